"""Servers as they are met in the wild, on a real mount: each does one thing wrong, and costs that one thing alone.

Many servers share a mount, one source each: `mcp-server+NAME/odd/a`.
"""

import base64
import json
import sys
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Mount, Mounts, SourceTable, mcp
from programs import Program, printed_url, python, run, shell, wait_until
from repository import SERVERS
from scripted import ScriptedServer

TIMEOUT = 1.5
"""Seconds for a request to the servers that do not answer."""
PLAIN = {uri: f"content of odd://{uri}\n" for uri in "abc"}
A, B, C = (f"OK {content}" for content in PLAIN.values())


def unruly(name: str, oddity: str, *arguments: object, **options: Any) -> SourceTable:
    """A server of tests/support/servers/unruly.py as a source."""
    command = [sys.executable, "-E", "-S", SERVERS / "unruly.py", oddity, *map(str, arguments)]
    return mcp(name, command, **options)


def answering(name: str, script: dict[str, Any], **options: Any) -> SourceTable:
    """A server that answers methods as told; see `answers` in tests/support/servers/unruly.py."""
    if None in script.values():
        options["timeout"] = TIMEOUT
    return unruly(name, "answers", json.dumps(script), **options)


def result(**fields: Any) -> dict[str, Any]:
    return {"result": fields}


def error(code: int) -> dict[str, Any]:
    return {"error": {"code": code, "message": "as told"}}


def odd(mount: Mount, source: str, name: str = "") -> Path:
    return mount / f"mcp-server+{source}" / "odd" / name


OUTCOMES = """
import errno, json
from concurrent.futures import ThreadPoolExecutor
def outcome(path):
    try:
        if path.endswith("/"):
            return " ".join(["OK", *sorted({*os.listdir(path)} - {".about.md"})])
        with open(path, "rb") as file:
            return "OK " + file.read().decode("latin-1")
    except OSError as error:
        return errno.errorcode[error.errno]
with ThreadPoolExecutor(len(sys.argv)) as pool:
    print(json.dumps(list(pool.map(outcome, sys.argv[1:]))))
"""


def outcomes(*paths: Path, directories: bool = False) -> list[str]:
    """What a program gets that reads files all at once: `OK` and the bytes in Latin-1, or the errno.

    directories: it lists them, and gets `OK` and the names.
    """
    return json.loads(python(OUTCOMES, *(f"{path}/" if directories else path for path in paths), timeout=30).text)


def outcome(path: Path) -> str:
    return outcomes(path)[0]


def listing(path: Path) -> str:
    return outcomes(path, directories=True)[0]


def attribute(path: Path, name: str) -> str:
    return run("getfattr", "--only-values", "-n", f"user.{name}", path, status=None).text


def problem(mount: Mount, source: str) -> str:
    return attribute(mount / f"mcp-server+{source}", "bbfs.error")


@pytest.fixture(scope="module")
def mount(module_mounted: Mounts) -> Mount:
    """All servers over stdio whose oddities are below."""
    scripts = {f"greeting-{name}": script for name, script in (TOLERATED | REFUSED).items()}
    scripts |= {f"list-{name}": {"resources/list": {"result": answer}} for name, (answer, _) in LISTINGS.items()}
    scripts |= {"refuses": {"*": error(-32601)}, "fails": {"*": error(-32603)}}
    scripts |= {"greets": {"*": None}}
    scripts |= {f"templates-{name}": {**COMPLETING, TEMPLATES: answer} for name, answer in WITHOUT_TEMPLATES.items()}
    scripts |= {f"completion-{name}": {**TEMPLATED, COMPLETE: answer} for name, (answer, _) in COMPLETIONS.items()}
    return module_mounted(
        unruly("plain", "none"),
        *(unruly(name, name) for name in FRAMES),
        *(unruly(name, name, timeout=TIMEOUT) for name in UNUSABLE),
        *(answering(name, script) for name, script in scripts.items()),
        unruly("leaves", "exits-when-greeted"),
        unruly("twice", "twice"),
        unruly("pages-same", "new-cursors", "same"),
        unruly("pages-slow", "new-cursors", "slow", timeout=TIMEOUT),
        unruly("pages-quick", "new-cursors"),
        expected=[
            "list-entries: 6 invalid entries", "list-number-cursor: .* repeats a page cursor",
            "pages-same: .* repeats its pages", "pages-quick: .* more than 10000 pages",
            "templates-(error|object|absent|hung): resources/templates/list", "templates-odd: .* invalid entries",
            "templates-endless: .* repeats a page cursor", "odd://t/{x}: ",
        ],
    )  # fmt: skip


@pytest.fixture(scope="module")
def scripted(module_mounted: Mounts, tmp_path_factory: pytest.TempPathFactory) -> Mount:
    """Servers whose oddities are in what they list and read."""
    base = tmp_path_factory.mktemp("scripted")
    reads, uris = (ScriptedServer(base / name) for name in ("reads", "uris"))
    for name, (answer, _) in READS.items():
        reads.add(f"test://r/{name}", "x")
        reads.answer(f"test://r/{name}", answer)
    for uri in ODD_URIS:
        uris.add(uri, uri)
    uris.add("test://h/\ud800", "a URI that nobody could send")
    sources = (reads.source("reads"), uris.source("uris"))
    return module_mounted(*sources, expected=["uris: 1 invalid entry"])


# -- how messages are written ------------------------------------------------------------------------------------------

FRAMES = (
    "crlf", "byte-order-mark", "batch", "banner", "blank-lines", "control-characters", "id-as-text", "id-as-float",
    "null-error", "no-version", "bare-errors", "more-fields", "piecemeal",
)  # fmt: skip
UNUSABLE = ("undecodable", "wrong-id", "late")


@pytest.mark.semantics("S23")
def test_messages_may_be_written_in_odd_ways(mount: Mount) -> None:
    for name in FRAMES:
        found = shell("cat a b c; cat no 2>&1 || true", directory=odd(mount, name)).text
        expected = "".join(PLAIN.values())
        if name == "control-characters":
            expected = expected.replace("content of", "content\tof").replace("\n", "\x0b\n")
        assert found == expected + "cat: no: No such file or directory\n", name
        assert problem(mount, name) == ""
    assert 'not a JSON-RPC message: {"level": 30' in mount.log()


@pytest.mark.semantics("S22", "S23")
def test_an_answer_that_cannot_be_used_ends_its_request_and_no_other(mount: Mount, programs: type[Program]) -> None:
    waiting = [programs("cat", odd(mount, name, "a")) for name in ("wrong-id", "late")]
    assert outcomes(*(odd(mount, "undecodable", name) for name in "abc")) == ["EPROTO"] * 3
    assert "not JSON" in problem(mount, "undecodable")
    assert [program.wait().err.partition(b": C")[2] for program in waiting] == [b"onnection timed out\n"] * 2
    assert problem(mount, "wrong-id") == f"odd://a: no answer within {TIMEOUT} s"
    # The late answer to the first request comes just before the one to this.
    for name in ("wrong-id", "late"):
        assert outcome(odd(mount, name, "b")) == B
    assert outcome(odd(mount, "late", "c")) == C
    wait_until(lambda: outcome(odd(mount, "late", "a")) == A, "what was late can be read again")


# -- greetings and lists -----------------------------------------------------------------------------------------------


def greeted(**changes: Any) -> dict[str, Any]:
    plain = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"resources": {}},
        "serverInfo": {"name": "odd", "version": "1"},
    }
    return {"initialize": result(**{key: value for key, value in {**plain, **changes}.items() if value is not None})}


TOLERATED = {
    "no-capabilities": greeted(capabilities=None),
    "not-declared": greeted(capabilities={}),
    "empty-list": greeted(capabilities=[]),
    "empty-lists": greeted(capabilities={"resources": [], "tools": []}),
    "flags": greeted(capabilities={"resources": True, "prompts": {"listChanged": "yes"}}),
    "no-name": greeted(serverInfo=None),
    "no-number": greeted(serverInfo={"name": "x", "icons": "none"}, instructions=["x"]),
}
REFUSED = {
    "future": greeted(protocolVersion="2099-01-01"),
    "numbered": greeted(protocolVersion=7),
    "unversioned": greeted(protocolVersion=None),
    "nothing": {"initialize": {"result": None}},
}


@pytest.mark.semantics("S23")
def test_a_greeting_may_have_mistakes_that_nobody_minds(mount: Mount) -> None:
    found = outcomes(*(odd(mount, f"greeting-{name}", "a") for name in TOLERATED | REFUSED))
    assert found == [*[A] * len(TOLERATED), *["EPROTO"] * len(REFUSED)]
    assert "2099-01-01" in problem(mount, "greeting-future")


LISTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "null": ({"resources": None}, "OK"),
    "absent": ({}, "OK"),
    "object": ({"resources": {"a": 1}}, "EPROTO"),
    "entries": ({"resources": ["odd://a", None, 7, [], {"name": "x"}, {"uri": None}, {"uri": "odd://b"}]}, "OK odd"),
    "number-cursor": ({"resources": [{"uri": "odd://b"}], "nextCursor": 7}, "OK odd"),
    "false-cursor": ({"resources": [{"uri": "odd://b"}], "nextCursor": False}, "OK odd"),
}


@pytest.mark.semantics("S23", "S25")
def test_a_list_with_mistakes_shows_what_can_be_used_and_says_what_not(mount: Mount) -> None:
    found = outcomes(*(mount / f"mcp-server+list-{name}" for name in LISTINGS), directories=True)
    assert found == [expected for _, expected in LISTINGS.values()]
    assert problem(mount, "list-entries") == "6 invalid entries left out"
    assert problem(mount, "list-number-cursor") == "the server repeats a page cursor: the listing may be incomplete"
    assert problem(mount, "list-false-cursor") == ""
    assert outcome(odd(mount, "list-entries", "b")) == B
    assert listing(odd(mount, "twice")) == "OK a b c"
    assert attribute(odd(mount, "twice", "b"), "bbfs.title") == "first"
    assert mount.log().count("list-entries: 6 invalid entries") == 1


@pytest.mark.semantics("S22", "S25")
def test_pages_without_an_end_are_given_up(mount: Mount, programs: type[Program]) -> None:
    many = programs("ls", odd(mount, "pages-quick", "page"))
    assert outcome(odd(mount, "plain", "a")) == A
    assert listing(mount / "mcp-server+pages-slow") == "ETIMEDOUT"
    assert listing(odd(mount, "pages-same")) == "OK a b c"
    assert problem(mount, "pages-same") == "the server repeats its pages: the listing may be incomplete"
    # The task of the request logs it after the program has its answer.
    wait_until(lambda: "pages-slow: resources/list: given up after" in mount.log(), "it is logged")
    assert len(many.wait(30).text.split()) == 10_000
    assert problem(mount, "pages-quick") == "the server has more than 10000 pages: the listing is incomplete"


# -- servers that hardly answer ----------------------------------------------------------------------------------------

COMPLETING = greeted(capabilities={"resources": {}, "completions": {}})
TEMPLATES = "resources/templates/list"
TEMPLATED = {**COMPLETING, TEMPLATES: result(resourceTemplates=[{"uriTemplate": "odd://t/{x}", "name": "t"}])}
COMPLETE = "completion/complete"


@pytest.mark.semantics("S22", "S23", "S24")
def test_a_server_that_hardly_answers_is_an_error_or_nothing(mount: Mount, programs: type[Program]) -> None:
    waiting = programs("ls", mount / "mcp-server+greets")
    assert listing(mount / "mcp-server+refuses") == "OK"
    assert problem(mount, "refuses") == ""
    assert listing(mount / "mcp-server+fails") == "EIO"
    assert "as told" in problem(mount, "fails")
    assert listing(mount / "mcp-server+leaves") == "EHOSTDOWN"
    assert problem(mount, "leaves").startswith("the server exited with status 1: that was all")
    assert outcome(odd(mount, "plain", "a")) == A
    assert b"timed out" in waiting.wait().err
    assert problem(mount, "greets") == f"no answer within {TIMEOUT} s"


@pytest.mark.semantics("S23", "S24")
def test_a_server_that_closes_its_pipes_and_lives_on_is_replaced(mounted: Mounts, tmp_path: Path) -> None:
    names = ("closes-input", "closes-output")
    # What was asked beside the read broke off with it.
    interrupted = "resources/templates/list: the server closed its output"
    mount = mounted(*(unruly(name, name, "--log", tmp_path / name) for name in names), expected=[interrupted])
    assert outcomes(*(odd(mount, name, "a") for name in names)) == [A, "EHOSTDOWN"]
    assert outcome(odd(mount, "closes-input", "b")) == B
    assert problem(mount, "closes-output").endswith("the server closed its output")
    wait_until(lambda: outcome(odd(mount, "closes-output", "b")) == B, "it is started again")
    for name in names:
        pids = [line.split()[1] for line in (tmp_path / name).read_text().splitlines() if line.startswith("start ")]
        assert len(pids) >= 2
        wait_until(lambda pids=pids: not any(map(runs, pids[:-1])), "nobody is left behind")


def runs(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


ODD_TEMPLATES = [
    7, None, {"uriTemplate": 5}, {"uriTemplate": ""}, {"name": "x"}, {"uriTemplate": "odd://{bad"},
    {"uriTemplate": "odd://}{"}, {"uriTemplate": "{+path}"}, {"uriTemplate": "{x}"}, {"uriTemplate": "odd://w/{path*}"},
    {"uriTemplate": "odd://q{?a,b*}"}, {"uriTemplate": "odd://p/{v:3}"}, {"uriTemplate": "odd://d/{a}{b}"},
    {"uriTemplate": "odd://d/{a}/{a}"}, {"uriTemplate": "odd://\u202e/{a}"}, {"uriTemplate": "odd://t/{x}"},
    {"uriTemplate": "odd://t/{" + "x" * 3000 + "}"}, {"uriTemplate": "/".join(f"{{v{n}}}" for n in range(500))},
]  # fmt: skip
WITHOUT_TEMPLATES: dict[str, Any] = {
    "error": error(-32603),
    "null": result(resourceTemplates=None),
    "object": result(resourceTemplates={}),
    "absent": {"result": {}},
    "odd": result(resourceTemplates=ODD_TEMPLATES),
    "endless": result(resourceTemplates=[], nextCursor="again"),
    "hung": None,
}


@pytest.mark.semantics("S22", "S25")
def test_templates_that_cannot_be_listed_take_nothing_from_resources(mount: Mount) -> None:
    listed = outcomes(*(odd(mount, f"templates-{name}") for name in WITHOUT_TEMPLATES), directories=True)
    assert all({*"abc"} <= set(names.split()) for names in listed)
    assert outcomes(*(odd(mount, f"templates-{name}", "a") for name in WITHOUT_TEMPLATES)) == [A] * len(listed)
    for name in ("error", "object", "hung"):
        assert "resources/templates/list" in problem(mount, f"templates-{name}")
    assert "invalid" in problem(mount, "templates-odd")


MANY = [f"v{number}" for number in range(5000)]
ODD_VALUES = [1, None, "ok", "", "a/b", "..", "\u202e", "\x00", "ok", {"value": "v"}]
COMPLETIONS: dict[str, tuple[Any, str]] = {
    "text": (result(completion="x"), "EPROTO"),
    "absent": (result(completion={}), "EPROTO"),
    "null": (result(completion={"values": None}), "OK"),
    "odd": (result(completion={"values": ODD_VALUES, "total": "x", "hasMore": 1}), "OK %00 %2E%2E %E2%80%AE a%2Fb ok"),
    "error": (error(-32603), "EIO"),
    "unserved": (error(-32601), "OK"),
    "hung": (None, "ETIMEDOUT"),
    "many": (result(completion={"values": MANY, "total": 10**30, "hasMore": True}), " ".join(["OK", *sorted(MANY)])),
}


@pytest.mark.semantics("S22", "S23")
def test_completions_that_cannot_be_used_take_nothing_from_the_rest(mount: Mount) -> None:
    names = [f"completion-{name}" for name in COMPLETIONS]
    assert outcomes(*(odd(mount, name) for name in names), directories=True) == ["OK a b c t"] * len(names)
    for _ in range(2):  # a failure stays one while it is cached
        found = outcomes(*(odd(mount, name, "t") for name in names), directories=True)
        assert found == [expected for _, expected in COMPLETIONS.values()]
    assert outcomes(*(odd(mount, name, "t/unknown") for name in names)) == ["ENOENT"] * len(names)
    assert outcomes(*(odd(mount, name, "a") for name in names)) == [A] * len(names)


# -- what lists and reads say ------------------------------------------------------------------------------------------

BYTES = bytes(range(256))
BASE64 = base64.b64encode(BYTES).decode()
URI = "test://r/x"


def contents(**fields: Any) -> dict[str, Any]:
    return {"contents": [{"uri": URI, **fields}]}


DEEP: list[Any] = []
for _ in range(500):
    DEEP = [DEEP]
READS: dict[str, tuple[Any, bytes | str]] = {
    "another-uri": ({"contents": [{"uri": "test://elsewhere", "text": "ok"}]}, b"ok"),
    "no-uri": ({"contents": [{"text": "ok"}]}, b"ok"),
    "number-uri": ({"contents": [{"uri": 7, "text": "ok"}]}, b"ok"),
    "both": (contents(text="text", blob=BASE64), BYTES),
    "empty-blob-too": (contents(text="text", blob=""), b"text"),
    "empty-text-too": (contents(text="", blob=BASE64), BYTES),
    "null-text-too": (contents(text=None, blob=BASE64), BYTES),
    "null-blob-too": (contents(text="ok", blob=None), b"ok"),
    "empty": (contents(text=""), b""),
    "in-lines": (contents(blob=base64.encodebytes(BYTES).decode()), BYTES),
    "for-urls": (contents(blob=base64.urlsafe_b64encode(BYTES).decode()), BYTES),
    "unpadded": (contents(blob=BASE64.rstrip("=")), BYTES),
    "odd-mime-type": (contents(text="ok", mimeType=7), b"ok"),
    "odd-fields": (
        {**contents(text="ok", _meta=7, annotations="x", size=-1), "ttlMs": "soon", "_meta": {"x": "y" * 100_000}},
        b"ok",
    ),
    "null-text": (contents(text=None), "EPROTO"),
    "number-text": (contents(text=42), "EPROTO"),
    "list-text": (contents(text=["a", "b"]), "EPROTO"),
    "bad-base64": (contents(blob="!!!!"), "EPROTO"),
    "no-contents": ({"contents": []}, "EPROTO"),
    "null-contents": ({"contents": None}, "EPROTO"),
    "one-content": ({"contents": {"uri": URI, "text": "ok"}}, "EPROTO"),
    "tool-result": ({"isError": True, "content": [{"type": "text", "text": "no"}]}, "EPROTO"),
    "list": ([1], "EPROTO"),
    "text": ("ok", "EPROTO"),
    "null": (None, "EPROTO"),
    "deep": (contents(text="ok", _meta={"deep": DEEP}), "EPROTO"),
}


@pytest.mark.semantics("S11", "S23")
def test_a_read_gives_the_true_bytes_or_a_protocol_error(scripted: Mount) -> None:
    directory = scripted / "mcp-server+reads/test/r"
    found = outcomes(*(directory / name for name in READS))
    assert dict(zip(READS, found, strict=True)) == {
        name: expected if isinstance(expected, str) else "OK " + expected.decode("latin-1")
        for name, (_, expected) in READS.items()
    }
    for name in ("another-uri", "odd-mime-type", "both"):
        assert attribute(directory / name, "mime_type") == ""
        assert attribute(directory / name, "bbfs.content_type") == ("binary" if name == "both" else "text")


COMBINED = "test://h/é.txt"
ODD_URIS = (
    "docs/readme.md", "./x", "/etc/x", "../x", "../../y", "?q", "#f", "x", ":", "1:x", "-", ".", "..", "...", " ", "/",
    "//", "///", "://", "//host/p", "a:", "a:/", "a://", "\x00", "\n", "file:///etc/passwd", "file:rel/x",
    "test:x", "test:/x", "test://x", "test:///x", "test:////x", "TEST:x", "test://[::1]:80/x", "data:a/b;base64,x",
    "http://user@host:80/p?q#f", "HTTP://HOST/x", "té://h/x", "te st://h/x", "\ufeffbom://x", "s" * 300 + "://x",
    "test://a b/c d.txt", "test://höst/päth.txt", "test://h/😀.txt", unicodedata.normalize("NFD", COMBINED), COMBINED,
    "test://h/%C3%A9.txt", "test://h/tab\there", "test://h/new\nline", "test://h/nul\x00x", "test://h/del\x7f",
    "test://h/\u202egpj.exe", "test://h/zero\u200bwidth", "test://h/\u2028", "test://h/ ", "test://h/%20", "test://h/%",
    "test://h/%zz", "test://h/%2e%2e", "test://h/%2e%2e/x", "test://h/..", "test://h/../z", "test://h/a%00b",
    "test://h/a%2Fb", "test://h/a%2fb", "test://h/%ff", "test://h/%C0%AF", "test://h/%252e", "test://h/index",
    "test://h", "test://h/", "test://h/x?a=/b", "test://h/{var}", "test://h/*", "test://h/-rf", "test://h/$(id)",
    "test://h/.git", "test://h/autorun.inf", "test://h/" + "n" * 300, "test://h/" + "ü" * 200, "test://h/" + "x" * 5000,
    "test://h/" + "/".join(f"{number}" * 80 for number in range(40)), "test://h/" + "a/" * 3000 + "end",
)  # fmt: skip
WALK = """
import json, resource, stat
resource.setrlimit(resource.RLIMIT_NOFILE, (4000, 4000))
sys.setrecursionlimit(10_000)
found = []
def walk(directory):
    for name in {*os.listdir(directory)} - {".about.md"}:
        descriptor = os.open(name, os.O_RDONLY, dir_fd=directory)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            walk(descriptor)
        else:
            said = os.getxattr(descriptor, "user.xdg.origin.url").decode()
            found.append([said, os.read(descriptor, 100_000).decode(), os.fstat(descriptor).st_size])
        os.close(descriptor)
walk(os.open(sys.argv[1], os.O_RDONLY))
print(json.dumps(found))
"""


@pytest.mark.semantics("S2", "S3", "S4")
def test_every_text_that_a_server_calls_a_uri_is_one_file(scripted: Mount) -> None:
    found: list[tuple[str, str, int]] = json.loads(python(WALK, scripted / "mcp-server+uris").text)
    assert sorted(content for _, content, _ in found) == sorted(ODD_URIS)
    assert all(uri == content and size == len(content.encode()) for uri, content, size in found)
    assert problem(scripted, "uris") == "1 invalid entry left out"


# -- sizes -------------------------------------------------------------------------------------------------------------

LINES = "".join(f"line {number} ü\n" for number in range(1000))
SIZES = {
    "small": 1, "zero": 0, "large": 100_000, "page": 8192, "characters": len(LINES), "negative": -5, "half": 12.5,
    "float": 9890.0, "huge": 10**30, "largest": (1 << 63) - 1, "text": "9",
}  # fmt: skip
READERS = {
    "cat": "cat $1 > $2",
    "wc": "test $(wc -c < $1) = $(wc -c < $3); cat $1 > $2",
    "stat": "stat $1 > /dev/null; cat $1 > $2",
    "tar": "tar cf - -C $(dirname $1) $(basename $1) | tar xOf - > $2",
    "sparse-tar": "tar --sparse -cf - -C $(dirname $1) $(basename $1) | tar xOf - > $2",
    "rsync": "rsync -a $1 $2",
}


@pytest.mark.semantics("S9", "S14")
def test_whatever_size_is_declared_programs_get_the_true_bytes(
    mounted: Mounts, server: ScriptedServer, tmp_path: Path
) -> None:
    for name, size in SIZES.items():
        server.add(f"test://d/{name}", LINES, size=size)
    mount = mounted(*(server.source(reader) for reader in READERS))
    (tmp_path / "true").write_text(LINES)
    for reader, script in READERS.items():
        directory, copies = mount / f"mcp-server+{reader}/test/d", tmp_path / reader
        copies.mkdir()
        read = f"reader() {{ {script}; }}; for name in {' '.join(SIZES)}; do reader $1/$name $2/$name $3; done"
        shell(read, directory, copies, tmp_path / "true")
        assert {name for name in SIZES if (copies / name).read_text() != LINES} == set(), reader
        sizes = shell("stat -c %s *", directory=directory).text.split()
        assert sizes == [str(len(LINES.encode()))] * len(SIZES), reader


@pytest.mark.semantics("S9.1", "S14")
def test_a_source_whose_sizes_are_wrong_is_believed_no_more(
    mounted: Mounts, server: ScriptedServer, tmp_path: Path
) -> None:
    for name, size in SIZES.items():
        server.add(f"test://d/{name}", LINES, size=size)
    directory = mounted(server.source("docs")) / "mcp-server+docs/test/d"
    run("cat", directory / "small")
    run("cp", "-a", directory, tmp_path / "copies")  # it refuses a file that is another one when it opens it
    assert {name for name in SIZES if (tmp_path / "copies" / name).read_text() != LINES} == set()
    assert server.reads() == len(SIZES)


# -- many of them ------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S6", "S18")
def test_a_flood_of_notifications_holds_nobody_up(mounted: Mounts, tmp_path: Path) -> None:
    log = tmp_path / "log"
    mount = mounted(unruly("flood", "flood", "--log", log), unruly("other", "none"))
    flood, other = odd(mount, "flood"), odd(mount, "other")
    assert run("cat", flood / "b", flood / "c").text == "content of odd://b\n0"
    assert listing(other) == "OK a b c"
    assert outcome(flood / "a") == A
    slowest = 0.0
    rounds = 0
    while "flooded" not in log.read_text():
        changing = [("cat", flood / "c"), ("stat", flood / "c")]
        for command in (*changing, ("cat", flood / "b"), ("ls", flood), ("cat", other / "a"), ("ls", other)):
            started = time.monotonic()
            run(*command)
            slowest = max(slowest, time.monotonic() - started)
        rounds += 1
        assert rounds < 1000
    assert slowest < 10  # of the 30 s that a request may take
    wait_until(lambda: outcome(flood / "c") == "OK 5000", "the last change is seen")
    wait_until(lambda: "after-5000" in listing(flood), "the last listing is seen")
    requests = log.read_text().count("resources/")
    assert requests < 500, f"{requests} requests for 5 000 notifications"


# -- over HTTP ---------------------------------------------------------------------------------------------------------

OVER_HTTP = {
    "none": "OK", "good-gzip": "OK", "untyped": "OK", "plain-text": "OK", "other-id": "OK", "batch": "OK",
    "noisy-events": "OK", "closing": "OK", "html": "EPROTO", "accepted": "EPROTO", "no-content": "EPROTO",
    "bad-gzip": "EPROTO", "unknown-encoding": "EPROTO", "short-length": "EPROTO", "too-many": "EHOSTDOWN",
    "broken": "EHOSTDOWN", "endless-error": "EHOSTDOWN", "slow-error": "EHOSTDOWN", "bad-chunks": "EHOSTDOWN",
    "no-http": "EHOSTDOWN", "elsewhere": "EHOSTDOWN", "found": "EHOSTDOWN", "circle": "EHOSTDOWN",
    "slow-body": "ETIMEDOUT", "slow-events": "ETIMEDOUT",
}  # fmt: skip
SAID = {
    "html": "HTTP 200 with no JSON-RPC answer (text/html)",
    "accepted": "HTTP 202 with no JSON-RPC answer (text/plain)",
    "too-many": "HTTP 429 Too Many Requests",
    "endless-error": "HTTP 500 Internal Server Error",
    "elsewhere": "HTTP 307: a redirect to http://example.invalid/mcp, not followed",
    "circle": "too many redirects",
    "unknown-encoding": "an answer in a content coding that was not asked for: zstd",
}


@pytest.fixture(scope="module")
def http() -> Iterator[str]:
    """Where the servers of tests/support/servers/unruly_http.py are: a URL without a path."""
    with printed_url(sys.executable, "-E", "-S", SERVERS / "unruly_http.py") as url:
        yield url


def over_http(url: str, path: str, **options: Any) -> SourceTable:
    return {"name": path.replace("/", "-"), "mcpConfig": {"url": f"{url}/{path}"}, **options}


@pytest.fixture(scope="module")
def web(module_mounted: Mounts, http: str) -> Mount:
    hung = {name: {"timeout": 3} for name, outcome in OVER_HTTP.items() if outcome == "ETIMEDOUT"}
    servers = (over_http(http, name, **hung.get(name, {})) for name in OVER_HTTP)
    # Many servers in one process, asked at once: where nothing else is to be had, 3 s may pass for a listing as well.
    return module_mounted(*servers, expected=[f"({'|'.join(hung)}): resources/templates/list: no answer in time"])


@pytest.mark.semantics("S22", "S23")
def test_what_an_http_server_answers_to_one_read(web: Mount) -> None:
    found = outcomes(*(odd(web, name, "a") for name in OVER_HTTP))
    assert dict(zip(OVER_HTTP, found, strict=True)) == {
        name: A if expected == "OK" else expected for name, expected in OVER_HTTP.items()
    }
    for name, reason in SAID.items():
        assert problem(web, name).partition(" (stat fails")[0] == f"odd://a: {reason}"
    assert outcomes(*(odd(web, name, "b") for name in OVER_HTTP)) == [B] * len(OVER_HTTP)


@pytest.mark.semantics("S22", "S23")
def test_a_body_that_inflates_without_end_takes_bounded_memory(mounted: Mounts, http: str) -> None:
    mount = mounted(*(over_http(http, path) for path in ("bomb", "bomb-of-events", "none")))
    assert outcome(odd(mount, "none", "a")) == A
    before = resident(mount, "VmHWM")
    for name, reason in (
        ("bomb", "a coded body that grows more than 250 times"),
        ("bomb-of-events", "the server sent a field of more than 16384 bytes"),
    ):
        assert outcome(odd(mount, name, "a")) == "EPROTO"
        assert problem(mount, name).startswith(f"odd://a: {reason} (")
    assert resident(mount, "VmHWM") - before < 100 << 10
    assert resident(mount, "VmRSS") - before < 100 << 10
    assert outcome(odd(mount, "none", "b")) == B


def resident(mount: Mount, field: str) -> int:
    """KiB of memory that the daemon has (VmRSS), or had at most (VmHWM)."""
    lines = Path(f"/proc/{mount.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
