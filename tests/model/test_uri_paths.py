"""URIs as paths: the rule, the names, and the folding of listings into directories."""

import random
import unicodedata
from hashlib import blake2b

import pytest
from folded import folded, places
from hypothesis import assume, example, given
from hypothesis import strategies as st

from bbfs.model.errors import InvalidUri
from bbfs.model.uri import source_uri
from bbfs.model.uri_paths import (
    MAX_DEPTH,
    hide_component,
    index_name,
    is_suffixed,
    names,
    native_of,
    plain_path,
    show_component,
)
from bbfs.resources.catalog.folding import Directory, Tree

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))
DOTS = [
    "",
    ".",
    "..",
    "%2E%2E",
    "%2e",
    "%2F",
    "%2f",
    "%00",
    "\0",
    "%",
    "%zz",
    ":",
    "_",
    "a:b",
    "[::1]:80",
    "?q=1",
    "#f",
]
TWINS = ["a", "A", "%41", "%61", "%2561", "a b", "a%20b", "é", "e\u0301", "%C3%A9", "e%CC%81", "a~12345678"]
INDEXES = ["index", "index.md", "index.txt", "index%2Emd", "a.md"]
UNPRINTABLE = ["%FF", "\ud800", "%ED%A0%80", "\u202e", "%E2%80%AE", "\u200b", "\n", "\u00a0", "\ue000"]
LONG = ["x" * 255, "x" * 256, "é" * 128, "%41" * 90, "%00" * 90, "x" * 300 + ".md"]
PIECES = st.sampled_from([*DOTS, *TWINS, *INDEXES, *UNPRINTABLE, *LONG])
HEADS = st.sampled_from(
    ["x://", "x:", "x:/", "x:///", "X://", "_://", "", "/", "./", "urn:", "file:///", "file:./", "git+ssh://"]
)
SLOPPY = st.builds(lambda head, pieces: head + "/".join(pieces), HEADS, st.lists(PIECES, max_size=4))
URIS = st.lists(SLOPPY | ANY_TEXT | st.builds("x://{}".format, st.text(alphabet="a%214Ee\u0301/. ")), max_size=25)
SCHEMES = st.sampled_from([None, "x", "file"])


def assert_legal(name: str) -> None:
    """What S3 promises of every name, in words of its own."""
    assert name not in ("", ".", "..")
    assert "/" not in name
    assert len(name.encode()) <= 255
    assert unicodedata.normalize("NFC", name) == name
    for character in name:
        category = unicodedata.category(character)
        assert category[0] != "C", (name, character)
        assert category not in ("Zl", "Zp"), (name, character)
        assert category != "Zs" or character == " "


def mime_of(uri: str) -> str | None:
    """A MIME type that belongs to the URI, so that a shuffled listing keeps it."""
    return [None, "text/markdown", "text/plain", "text/x-unheard-of"][len(uri) % 4]


def paths(tree: Tree) -> dict[str, tuple[str, ...]]:
    return {uri: path for path, uri in places(tree).items()}


def listing(*uris: str, mime_type: str | None = "text/markdown") -> dict[str, str]:
    """URI to path, for short examples."""
    tree = folded(uris, lambda _uri: mime_type)
    return {uri: "/".join(path) for uri, path in paths(tree).items()}


@pytest.mark.semantics("S2", "S3")
@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("postgres://database/customers/schema", "postgres/database/customers/schema"),
        ("resource://knowledge/collections", "resource/knowledge/collections"),
        ("urn:isbn:1", "urn/isbn:1"),
        ("urn:a:b/c", "urn/a:b/c"),
        ("c:foo", "c/foo"),
        ("x-notion://p", "x-notion/p"),
        ("git+ssh://h/r.git", "git+ssh/h/r.git"),
        ("file:///etc/hosts", "file/etc/hosts"),
        ("file:./src/x", "file/src/x"),
        ("x:////a//b", "x/a/b"),
        ("x://a/./b", "x/a/b"),
        ("x://a/../b", "x/a/%2E%2E/b"),
        ("x://h:80/a?q=b/c#d/e", "x/h:80/a?q=b/c#d/e"),
        ("x://search?q=a%20b", "x/search?q=a b"),
        ("x://[::1]:80/a", "x/[::1]:80/a"),
        ("X://a", "X/a"),
        ("read me.txt", "_/read me.txt"),
        ("/abs/path", "_/abs/path"),
        ("_://a", "_/_:/a"),
        ("x://caf%C3%A9", "x/café"),
        ("x://café", "x/café"),
        ("x://cafe%CC%81", "x/cafe%CC%81"),
        ("x://a%2Fb/c", "x/a%2Fb/c"),
        ("x://%2e%2e/a", "x/%2e%2e/a"),
        ("x://a%00b", "x/a%00b"),
        ("x://a\0b", "x/a%00b"),
        ("x://a\nb", "x/a%0Ab"),
        ("x://a\u202eb", "x/a%E2%80%AEb"),
        ("x://a%E2%80%AEb", "x/a%E2%80%AEb"),
        ("x://\ud800", "x/%ED%A0%80"),
        ("x://%FF", "x/%FF"),
        ("x://100%", "x/100%"),
        ("x://%2520", "x/%2520"),
        ("x://\u00a0", "x/%C2%A0"),
    ],
)
def test_the_path_of_a_uri(uri: str, path: str) -> None:
    assert plain_path(uri).path == tuple(path.split("/"))
    assert listing(uri) == {uri: path}


@pytest.mark.semantics("S2")
@given(
    st.from_regex(r"[a-z][a-z0-9+.-]{0,8}", fullmatch=True),
    st.sampled_from(["://", ":"]),
    st.lists(st.from_regex(r"[A-Za-z0-9_~!$&'()*+,;=:@?#-]{1,12}", fullmatch=True), min_size=1, max_size=5),
)
def test_a_tidy_uri_is_its_path_with_the_opening_written_as_a_slash(scheme: str, opening: str, rest: list[str]) -> None:
    native = scheme + opening + "/".join(rest)
    bbfs_uri = source_uri("mcp-server+docs", native)
    path = plain_path(native).path
    assert "mcp-server+docs+" + "/".join(path) == bbfs_uri.replace(opening, "/", 1)
    assert native_of(path, opening=opening) == native


@pytest.mark.semantics("S2")
@pytest.mark.parametrize(
    ("path", "uri"),
    [
        (("resource", "a b", "c"), "resource://a%20b/c"),
        (("x",), "x://"),
        (("x", "%2E%2E"), "x://%2E%2E"),
        (("x", "100%"), "x://100%25"),
        (("x", "a%2Fb ü"), "x://a%2Fb ü"),
        (("x", "ü?#[]@:"), "x://%C3%BC?#[]@:"),
        (("_", "a", "b"), "a/b"),
        (("_",), ""),
        (("_", "a:b"), "./a:b"),
    ],
)
def test_the_uri_of_a_path(path: tuple[str, ...], uri: str) -> None:
    assert native_of(path) == uri
    assert plain_path(uri).path == path


@pytest.mark.semantics("S1", "S2")
def test_a_fixed_scheme_is_left_out() -> None:
    assert plain_path("postgres://db/t", "postgres").path == ("db", "t")
    assert native_of(("db", "t"), "postgres") == "postgres://db/t"
    assert native_of((), "postgres") == "postgres://"
    assert plain_path("file:./src/x", "file").path == plain_path("file:///src/x", "file").path == ("src", "x")
    assert native_of(("src", "x"), "file", opening=":./") == "file:./src/x"
    # A URI of another scheme is one text there, so that it is not taken for the source's own.
    assert plain_path("http://db/t", "postgres").path == ("http:", "db", "t")
    with pytest.raises(InvalidUri):
        native_of(())


@pytest.mark.semantics("S2")
@given(SLOPPY | ANY_TEXT, SCHEMES)
def test_the_rule_leads_to_the_path_that_it_leads_back_from(uri: str, scheme: str | None) -> None:
    path = plain_path(uri, scheme).path
    assume(all("~" not in name for name in path))  # a cut name does not say what was cut
    assert plain_path(native_of(path, scheme), scheme).path == path


@pytest.mark.semantics("S3")
@given(PIECES | ANY_TEXT)
def test_every_segment_has_a_legal_name(segment: str) -> None:
    name = show_component(segment)
    assert_legal(name)
    if len(name.encode()) < 240 and segment:  # never cut
        assert show_component(name) == name
        assert show_component(hide_component(name)) == name


@pytest.mark.semantics("S3")
@given(ANY_TEXT)
def test_every_name_has_a_segment_that_a_uri_may_hold(name: str) -> None:
    segment = hide_component(name)
    if "%" not in name:
        assert segment.isascii()
        assert "/" not in segment
        assert " " not in segment


def test_a_name_that_is_no_unicode_has_a_segment_too() -> None:
    assert hide_component("a\udcff") == "a%ED%B3%BF"


@pytest.mark.semantics("S3")
def test_long_names_are_cut_at_a_character_and_keep_their_extension() -> None:
    name = show_component("x" * 300 + ".tar.gz")
    assert len(name) == 255
    assert name.startswith("xxx")
    assert name[-12] == "~"
    assert name.endswith(".gz")
    wide = show_component("é" * 200)
    assert len(wide.encode()) in (254, 255)
    assert wide.startswith("é" * 100)
    assert show_component("é" * 200) == show_component("%C3%A9" * 200)[: -len("~12345678")] + wide[-9:]
    assert show_component("x" * 300) != show_component("x" * 301)
    assert show_component("x" * 255) == "x" * 255
    assert_legal(show_component("%00" * 100))


@pytest.mark.parametrize("length", [300, 255 + len(".tar.gz")])
def test_what_a_long_name_ends_with_is_told_from_what_editors_append(length: int) -> None:
    assert all(is_suffixed(show_component("x" * length + end)) for end in ("", ".gz", ".tar.gz"))
    assert not any(map(is_suffixed, ("note.md~", "note.md.~1~", "~$note.md", "note~draft.md", ".~lock.note.md#")))


@pytest.mark.semantics("S4")
@given(st.lists(PIECES | ANY_TEXT, max_size=15), st.randoms(use_true_random=False))
def test_names_of_one_directory(segments: list[str], rng: random.Random) -> None:
    given_names = names(segments, literal=True)
    assert sorted(given_names.values()) == sorted(set(segments))
    for name, segment in given_names.items():
        assert_legal(name)
        shown = show_component(segment, literal=True)
        if hide_component(shown, literal=True) == segment:
            assert name == shown
    rng.shuffle(segments)
    assert names(segments, literal=True) == given_names


def test_names_are_in_listing_order() -> None:
    assert list(names(["b", "a", "c%20d"])) == ["b", "a", "c d"]


@pytest.mark.semantics("S3", "S4", "S5")
@given(URIS)
@example(["x://a", "x://a/", "x:a", "x://a/b", "x://a/index.md", "x://a/index.md/c"])
@example(["x:a", "x:/a", "x://a/b"])
@example(["", "/", ".", "./", "//"])
@example(["x:", "x://", "x:///"])
def test_every_uri_has_one_path_and_no_two_share_one(uris: list[str]) -> None:
    tree = folded(uris, mime_of)
    found = places(tree)
    assert sorted(found.values()) == sorted(set(uris))
    for path, uri in found.items():
        for name in path:
            assert_legal(name)
        assert tree.lookup(path) == uri
        assert tree.path_of(uri) == path
        for depth in range(len(path)):
            assert isinstance(tree.lookup(path[:depth]), Directory)
        assert tree.lookup((*path, "below")) is None


@pytest.mark.semantics("S4")
@given(URIS, st.randoms(use_true_random=False))
def test_names_do_not_depend_on_the_order_of_the_listing(uris: list[str], rng: random.Random) -> None:
    before = paths(folded(uris, mime_of))
    rng.shuffle(uris)
    assert paths(folded(uris, mime_of)) == before


@pytest.mark.semantics("S2", "S4", "S5")
@given(URIS)
def test_the_uri_that_the_rule_leads_back_to_keeps_the_name(uris: list[str]) -> None:
    tree = folded(uris, mime_of)
    for uri in uris:
        plain = plain_path(uri)
        path = tree.path_of(uri)
        assert path is not None
        alone = sum(plain_path(other).path == plain.path for other in set(uris)) == 1
        if isinstance(tree.lookup(plain.path), Directory):
            assert path[:-1] == plain.path
            assert path[-1].startswith("index")
        elif alone or native_of(plain.path) == uri:
            assert path == plain.path
        else:
            assert path[:-1] == plain.path[:-1]
            assert path[-1] != plain.path[-1]


@pytest.mark.semantics("S5")
@given(URIS)
def test_no_directory_is_without_a_resource(uris: list[str]) -> None:
    tree = folded(uris, mime_of)
    stack: list[Directory] = [child for child in tree.children.values() if isinstance(child, Directory)]
    while stack:
        directory = stack.pop()
        assert directory.children
        stack.extend(child for child in directory.children.values() if isinstance(child, Directory))


@given(URIS, ANY_TEXT)
def test_what_is_not_listed_has_no_path(uris: list[str], other: str) -> None:
    assume(other not in uris)
    assert folded(uris).path_of(other) is None


@pytest.mark.semantics("S4")
def test_losers_get_a_hash_of_their_uri_before_the_extension() -> None:
    found = listing("x://a b.md", "x://a%20b.md", "x:a b.md")
    assert found["x://a%20b.md"] == "x/a b.md"
    for loser in ("x://a b.md", "x:a b.md"):
        assert found[loser] == f"x/a b~{blake2b(loser.encode(), digest_size=32).hexdigest()[:8]}.md"
    # Nobody whom the rule leads back to: no one keeps the plain name.
    assert "x/a b.md" not in listing("x://a b.md", "x:a b.md").values()
    assert listing("x://A", "x://a") == {"x://A": "x/A", "x://a": "x/a"}


@pytest.mark.semantics("S4")
def test_a_name_that_is_taken_makes_the_hash_longer() -> None:
    uris = ["x://a%20b.md", "x://a b.md"]
    lengths: list[int] = []
    for _ in range(12):
        found = listing(*uris)
        assert len(set(found.values())) == len(uris)
        loser = found["x://a b.md"]
        lengths.append(len(loser))
        squatter = native_of(loser.split("/"))
        uris.append(squatter)
        assert listing(*uris)[squatter] == loser
    assert lengths == sorted(lengths)
    assert lengths[1] - lengths[0] == 8
    assert max(lengths) <= len("x/a b~.md") + 64


@pytest.mark.semantics("S4")
def test_losers_with_the_same_first_digits_are_told_apart_whatever_the_order() -> None:
    def encoded(letters: int) -> str:
        """`x://abc…` with those letters percent-encoded whose bits are set."""
        name = "abcdefghijklmnopqrstuvwx"
        return "x://" + "".join(f"%{ord(c):02X}" if letters >> bit & 1 else c for bit, c in enumerate(name))

    twins = [encoded(11323), encoded(22479)]  # found by search: eight equal digits
    digits = [blake2b(uri.encode(), digest_size=32).hexdigest() for uri in sorted(twins)]
    assert digits[0][:8] == digits[1][:8]
    found = listing(*twins)
    assert [found[uri] for uri in sorted(twins)] == [
        f"x/abcdefghijklmnopqrstuvwx~{digits[0][:8]}",
        f"x/abcdefghijklmnopqrstuvwx~{digits[1][:16]}",
    ]
    assert listing(*reversed(twins)) == found


@pytest.mark.semantics("S5")
def test_a_resource_that_has_others_below_is_a_directory() -> None:
    found = listing("resource://a", "resource://a/b")
    assert found == {"resource://a": "resource/a/index.md", "resource://a/b": "resource/a/b"}
    assert listing("resource://a/b", "resource://a") == found
    assert listing("x://a/")["x://a/"] == "x/a/index.md"
    assert listing("x://")["x://"] == listing("x:")["x:"] == "x/index.md"
    assert listing("")[""] == "_/index.md"
    assert listing("x://a", "x://a/")["x://a"] == "x/a/index.md"
    assert listing("x://a", "x://a/")["x://a/"].startswith("x/a/index~")


@pytest.mark.semantics("S4", "S5")
def test_a_real_child_called_index_keeps_its_name() -> None:
    for child in ("x://a/index.md", "x:a/index.md", "x://a/index.md/deeper"):
        found = listing("x://a", child)
        assert found[child] == "x/" + child.removeprefix("x:").removeprefix("//")
        assert found["x://a"].startswith("x/a/index~")
        assert found["x://a"].endswith(".md")
    assert listing("x://a", "x://a/index.txt")["x://a"] == "x/a/index.md"


@pytest.mark.semantics("S5")
@pytest.mark.parametrize(
    ("mime_type", "name"),
    [
        ("text/markdown", "index.md"),
        ("text/plain", "index.txt"),
        ("application/json", "index.json"),
        ("text/html", "index.html"),
        ("Text/HTML; charset=utf-8", "index.html"),
        ("image/png", "index.png"),
        ("application/pdf", "index.pdf"),
        ("application/octet-stream", "index"),
        ("application/x-unheard-of", "index"),
        ("../../x", "index"),
        ("", "index"),
        (None, "index"),
    ],
)
def test_the_name_of_own_content(mime_type: str | None, name: str) -> None:
    assert index_name(mime_type) == name


def test_children_are_in_listing_order_and_own_content_comes_first() -> None:
    tree = folded(["x://c", "x://a/2", "x://b", "x://a/1", "x://a", "x://c"])
    top = tree.lookup(("x",))
    assert isinstance(top, Directory)
    assert list(top.children) == ["c", "a", "b"]
    inner = top.children["a"]
    assert isinstance(inner, Directory)
    assert list(inner.children) == ["index.txt", "2", "1"]


@pytest.mark.semantics("S2")
def test_a_name_written_as_in_the_uri_finds_its_child() -> None:
    top = folded(["x://a%20b", "x://c", "x://d%2520"]).lookup(("x",))
    assert isinstance(top, Directory)
    assert top.alias("a%20b") == "a b"
    assert top.alias("%63") == "c"
    assert top.alias("a b") is top.alias("nothing") is top.alias("") is top.alias("d%2520") is None


@pytest.mark.semantics("S3")
def test_deep_uris() -> None:
    deep = "x://" + "/".join(["s"] * 2000)
    deepest = "x://" + "/".join(["s"] * 100_000)
    tree = folded([deep, deepest, deep + "/t", deepest + "/"])
    path = tree.path_of(deep)
    assert path is not None
    assert len(path) == 2002  # the scheme's directory, 2000 segments, the index of what has others below
    cut = tree.path_of(deepest)
    assert cut is not None
    assert len(cut) == MAX_DEPTH + 1
    assert len(places(tree)) == 4
    for name in cut:
        assert_legal(name)


def test_many_uris_for_one_name() -> None:
    uris = ["x:" + "/" * slashes + "a" for slashes in range(2, 2002)]
    found = listing(*uris)
    assert len(set(found.values())) == len(uris)
    assert found["x://a"] == "x/a"
