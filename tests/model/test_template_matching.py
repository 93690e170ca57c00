"""URI templates as paths: which paths fit, what they expand to, and where directories begin."""

import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bbfs.model.errors import InvalidUri
from bbfs.model.uri_paths import plain_path
from bbfs.model.uri_templates.expand import expand_template
from bbfs.model.uri_templates.patterns import Pattern, shown


def match(template: str, path: str) -> tuple[str, dict[str, Any]] | None:
    """The URI and the values of a path, if it is the plain path of that URI."""
    place = Pattern(template).place(tuple(path.split("/")))
    if place is None or place.match is None or "/".join(place.match.path) != path:
        return None
    return place.match.native_uri, shown(place.match.variables)


@pytest.mark.parametrize(
    ("template", "path", "uri", "values"),
    [
        ("x://h/{a}", "x/h/v", "x://h/v", {"a": "v"}),
        ("x://h/{a}", "x/h/a b", "x://h/a%20b", {"a": "a b"}),
        ("x://h/{a}", "x/h/ü:1", "x://h/%C3%BC%3A1", {"a": "ü:1"}),
        ("x://h/{a}", "x/h/a%2Fb", "x://h/a%2Fb", {"a": "a/b"}),
        ("x://h/{a}", "x/h/v?w", "x://h/v%3Fw", {"a": "v?w"}),
        ("x://{project}/doc/{slug}", "x/p/doc/s", "x://p/doc/s", {"project": "p", "slug": "s"}),
        ("x://{a}-{b}.{c}", "x/1-2.3", "x://1-2.3", {"a": "1", "b": "2", "c": "3"}),
        ("x://{a,b}", "x/1,2", "x://1,2", {"a": "1", "b": "2"}),
        ("x://{v:3}", "x/abc", "x://abc", {"v": "abc"}),
        ("x://h/{+path}", "x/h/a/b/c", "x://h/a/b/c", {"path": "a/b/c"}),
        ("x://h/{+path}", "x/h/a b/c:d", "x://h/a%20b/c:d", {"path": "a b/c:d"}),
        ("x://h/{+path}/meta", "x/h/a/b/meta", "x://h/a/b/meta", {"path": "a/b"}),
        ("x://h/v{+path}.md", "x/h/vers/1.md", "x://h/vers/1.md", {"path": "ers/1"}),
        ("x://h/{path*}", "x/h/a/b c", "x://h/a/b%20c", {"path": "a/b c"}),
        ("x://h{/a,b}", "x/h/1/2", "x://h/1/2", {"a": "1", "b": "2"}),
        ("x://h{/a,b*}", "x/h/1/2/3", "x://h/1/2/3", {"a": "1", "b": ["2", "3"]}),
        ("x://h/f{.ext}", "x/h/f.txt", "x://h/f.txt", {"ext": "txt"}),
        ("x://h/f{.ext*}", "x/h/f.tar.gz", "x://h/f.tar.gz", {"ext": ["tar", "gz"]}),
        ("x://h/f{;v}", "x/h/f;v=1", "x://h/f;v=1", {"v": "1"}),
        ("x://h/f{;v*}", "x/h/f;v=1;v=2", "x://h/f;v=1;v=2", {"v": ["1", "2"]}),
        ("x://h/p{#frag}", "x/h/p#a", "x://h/p#a", {"frag": "a"}),
        ("x://s{?q,n}", "x/s?q=1&n=2", "x://s?q=1&n=2", {"q": "1", "n": "2"}),
        ("x://s{?q,n}", "x/s?n=2", "x://s?n=2", {"n": "2"}),
        ("x://s{?q,n}", "x/s", "x://s", {}),
        ("x://s{?q}", "x/s?", "x://s?", {}),
        ("x://s{?q}", "x/s?q=a%26b", "x://s?q=a%26b", {"q": "a&b"}),
        ("x://s{?q*}", "x/s?q=1&q=2", "x://s?q=1&q=2", {"q": ["1", "2"]}),
        ("x://s?v=1{&q}", "x/s?v=1&q=2", "x://s?v=1&q=2", {"q": "2"}),
        ("x://{a}/s{?q}", "x/1/s?q=2", "x://1/s?q=2", {"a": "1", "q": "2"}),
        ("x://h/{+path}{?v}", "x/h/a/b?v=1", "x://h/a/b?v=1", {"path": "a/b", "v": "1"}),
        ("file:///{+path}", "file/etc/hosts", "file:///etc/hosts", {"path": "etc/hosts"}),
        ("file://{+path}", "file/etc/hosts", "file:///etc/hosts", {"path": "etc/hosts"}),
        ("urn:{a}:{b}", "urn/1:2", "urn:1:2", {"a": "1", "b": "2"}),
        ("{scheme}://h/{a}", "x/h/1", "x://h/1", {"scheme": "x", "a": "1"}),
        ("docs/{a}", "_/docs/1", "docs/1", {"a": "1"}),
        ("x://{a}/{a}", "x/1/1", "x://1/1", {"a": "1"}),
    ],
)
def test_a_path_is_an_expansion(template: str, path: str, uri: str, values: dict[str, Any]) -> None:
    assert match(template, path) == (uri, values)


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("x://h/{a}", "x/h"),
        ("x://h/{a}", "x/h/a/b"),
        ("x://h/{a}", "y/h/a"),
        ("x://h/{a}", "x/g/a"),
        ("x://{v:3}", "x/abcd"),
        ("x://{a}/{a}", "x/1/2"),
        ("x://s{?q}", "x/s?p=1"),
        ("x://s{?q}", "x/s?q=1&q=2"),
        ("x://s{?q}", "x/t?q=1"),
        ("x://s?v=1{&q}", "x/s?q=1"),
        ("x://h/f{;v}", "x/h/f;w=1"),
        ("x://h/{a}", "x/h/%FF"),
        ("x://h/{+path}/meta", "x/h/meta"),
    ],
)
def test_what_is_no_expansion(template: str, path: str) -> None:
    assert match(template, path) is None


@pytest.mark.parametrize(
    ("template", "path", "canonical"),
    [
        ("x://h/{a}", "x/h/a%20b", "x/h/a b"),
        ("x://s{?q,n}", "x/s?n=2&q=1", "x/s?q=1&n=2"),
        ("x://h/{+path}", "x/h/a/b%20c", "x/h/a/b c"),
    ],
)
def test_another_way_to_write_a_path_is_told_by_its_own(template: str, path: str, canonical: str) -> None:
    place = Pattern(template).place(tuple(path.split("/")))
    assert place is not None
    assert place.match is not None
    assert "/".join(place.match.path) == canonical


@pytest.mark.parametrize(
    ("template", "path", "leads", "decided"),
    [
        ("x://{p}/doc/{s}", "x", True, True),
        ("x://{p}/doc/{s}", "x/1", True, True),
        ("x://{p}/doc/{s}", "x/1/doc", True, True),
        ("x://{p}/doc/{s}", "x/1/dox", None, True),
        ("x://{p}/doc/{s}", "x/1/doc/2", False, True),
        ("x://h/{+path}", "x/h", True, True),
        ("x://h/{+path}", "x/h/a", True, False),
        ("x://h/{+path}", "x/h/a/b", True, False),
        ("x://h/{+path}/meta", "x/h/a", True, True),
        ("x://h/{+path}/meta", "x/h/a/meta", True, False),
    ],
)
def test_directories(template: str, path: str, leads: bool | None, decided: bool) -> None:
    place = Pattern(template).place(tuple(path.split("/")))
    assert (place.leads if place else None) is leads
    if place is not None and leads:
        assert (place.match is None) is decided


def test_the_directories_that_are_always_there_and_the_segment_that_follows() -> None:
    pattern = Pattern("x://h/doc/{a}{/b}/raw{?q}")
    assert pattern.literal == ("x", "h", "doc")
    place = pattern.place(("x", "h", "doc", "1"))
    assert place is not None
    assert place.following is not None
    assert place.following.only_variable == "b"
    assert pattern.beginning[: place.following.end] == "x://h/doc/{a}{/b}"
    assert pattern.path_of(place.following, {"a": "1", "b": "2 3"}) == ("x", "h", "doc", "1", "2 3")
    assert not pattern.ends_with(place.following)
    assert Pattern("x://h/s{?q}").literal == ("x", "h")


@pytest.mark.parametrize("template", ["x://h", "x://{", "x://{+a}/{+b}", "x://s{?q}{a}", ""])
def test_templates_that_have_no_paths(template: str) -> None:
    with pytest.raises(InvalidUri):
        Pattern(template)


def test_memory_is_linear_in_the_segments_and_their_count_is_bounded() -> None:
    name = "x" * 1000
    tracemalloc.start()
    try:
        pattern = Pattern("x://" + f"{name}/" * 250 + "{b}")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 10 * len(pattern.uri_template)
    with pytest.raises(InvalidUri, match="more than 256 segments"):
        Pattern("x://" + "a/" * 300 + "{b}")


TEMPLATES = [
    "x://h/{a}", "x://{a}/d/{b}", "x://h{/a,b}", "x://h/{a}{?b}", "x://h{?a,b}", "x://h/{+a}", "x://h/{a*}",
    "x://h/{a}.{b}", "x://h/f{;a}", "x:{a}", "x://{a}{/b*}",
]  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)


@given(st.sampled_from(TEMPLATES), TEXT, TEXT)
@example("x://h/{a}", ".", "x")
@example("x://h/{+a}", "a//b", "x")
@example("x://h/{a}.{b}", "1.2", "3")
def test_every_expansion_is_found_at_its_path(template: str, a: str, b: str) -> None:
    """Unless the path leaves something out (S2: empty and dot components), and never as another resource."""
    pattern = Pattern(template)
    names = [
        name for name in ("a", "b") if f"{name}" in template.partition(":")[2].replace("h/", "").replace("/d/", "")
    ]
    values: dict[str, Any] = {name: value for name, value in (("a", a), ("b", b)) if name in names and "{" in template}
    values = {name: [value] if f"{{/{name}*" in template else value for name, value in values.items()}
    try:
        uri = expand_template(template, values)
    except InvalidUri:
        return
    path = plain_path(uri).path
    place = pattern.place(path)
    if place is None or place.match is None:
        # Lost are only names that do not hold all of the URI: cut ones, and components that vanish.
        assert any("~" in name for name in path) or uri != _rebuilt(path, uri) or "?" in uri
        return
    if place.match.path == path:
        again = pattern.place(place.match.path)
        assert again is not None
        assert again.match == place.match


@pytest.mark.semantics("S27")
@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("logs://{a}-{b}-{c}-{d}-{e}-{f}.log", ("logs", "-" * 255)),
        ("x://h/{a}{b}{c}{d}{e}{f}.x", ("x", "h", "a" * 255)),
        ("x://{+a}-{+b}-{+c}.md", ("x", *["-" * 255] * 20)),
        ("x://h/{a,b,c,d,e,f}.x", ("x", "h", "," * 255)),
        ("x://h{/a,b*}{.c*}-.md", ("x", "h", *["." * 255] * 20)),
        ("x://h/{;a*,b*,c*}x", ("x", "h", ";a=;b=;c=" * 28)),
        ("x://h/{a}{b}", ("x", "h", "..")),
        ("x://h/{+a}", ("x", "h", "a", "..")),
    ],
)
def test_no_name_takes_long_to_be_read(template: str, path: tuple[str, ...]) -> None:
    """A backtracking reader would take years; the server chooses the template, and any program the name."""
    place = None
    with suppress(InvalidUri):  # of some, a name could be read in too many ways
        place = Pattern(template).place(path)
    assert place is None or place.match is None or place.match.native_uri


def _rebuilt(path: tuple[str, ...], uri: str) -> str:
    from bbfs.model.uri_paths import native_of

    return native_of(path, None, "://" if "://" in uri else ":")


HOSTILE_TEMPLATES = [
    *(
        "x://{+a}{.b*}c",
        "x://{+a};b={c}",
        "x://{+a}.{b}.{c}",
        "x://{a*}.{b}/{c}.{d}",
        "x://{/a*}{.b*}",
        "x://{+a:3}{.b*}z",
    ),
    *("x://{/a*}/{b}.{c}-{d}/z", "x://{+a}aa{b}aa{c}aa", "x://a{/b*}/c{.d}", "x://{a*}{b*}", "x://{+a}{;b}{;c}"),
    *("x://{.a*}{b}", "x://{;a*}{b}.{c}", "x://{#a}{;b*}x", "x://{+path}{?q}"),
]


@pytest.mark.parametrize("template", HOSTILE_TEMPLATES)
def test_no_template_makes_a_lookup_take_long(template: str) -> None:
    """All of these together take seconds; with a cubic match, or one of these paths read again and again, for ever."""
    pattern = Pattern(template)
    for unit in (".a", ";b=a", "aa", "a.", "..", "a/", ".a/", ";b=a/"):
        for tail in ("", "!", "/x", "\n"):
            text = unit * 5000 + tail
            pattern.place(("x", *filter(None, text.split("/"))))
            pattern.place(("x", *filter(None, text[-2000:].split("/"))))
