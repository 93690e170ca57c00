"""Answers that are made to harm a client of MCP, and a server that gives them: `hostile_mcp.py stdio|http|sse NAME`.

An attack is a function of a request. It returns pieces of bytes, without end perhaps, which are written in place of the
answer, or None for the honest answer. Over stdio they are lines, over HTTP the body of an answer in JSON.
"""

import json
import os
import socket
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, count, repeat
from typing import Any

Request = dict[str, Any]
Attack = Callable[[Request], Iterable[bytes] | None]

MIB = 1 << 20
ATTACKS: dict[str, Attack] = {}
"""By name: what is sent in place of the answer to one request."""
HTTP_ATTACKS: dict[str, Attack] = {}
"""By name: whole HTTP answers, from the status line on."""


def answer(request: Request, result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()


def around(request: Request, before: bytes, middle: Iterable[bytes], after: bytes) -> Iterator[bytes]:
    """Yield an answer whose result is these bytes."""
    yield b'{"jsonrpc": "2.0", "id": %s, "result": ' % json.dumps(request["id"]).encode() + before
    yield from middle
    yield after + b"}\n"


def much(piece: bytes, size: int = 255 * MIB) -> Iterator[bytes]:
    """Yield a piece as often as it fits into a size."""
    block = piece * max(1, MIB // len(piece))
    return repeat(block, max(1, size // len(block)))


def on(method: str, name: str, make: Callable[[Request], Iterable[bytes]]) -> None:
    """Register an attack in place of the answers to a method."""
    ATTACKS[name] = lambda request: make(request) if request.get("method") == method else None


def result_of(method: str, name: str, result: Callable[[], Any]) -> None:
    on(method, name, lambda request: [answer(request, result()) + b"\n"])


# -- a read: structure, texts, numbers ---------------------------------------------------------------------------------

READ = "resources/read"
_CONTENT = b'{"contents": [{"uri": "odd://a", "text": "x"}], "x": '
_TEXT, _BLOB, _END = (
    b'{"contents": [{"uri": "odd://a", "text": "',
    b'{"contents": [{"uri": "odd://a", "blob": "',
    b'"}]}',
)
_PARTS, _LAST = b'{"contents": [', b'{"uri": "x", "text": ""}]}'
_LISTED = b'{"resources": ['
on(READ, "lists in a result", lambda r: around(r, _CONTENT + b"[", much(b"[],"), b"0]}"))
on(READ, "objects in a result", lambda r: around(r, _CONTENT + b"[", much(b"{},"), b"0]}"))
_KEYS = 5_000_000
on(READ, "keys of a result", lambda r: around(r, _CONTENT + b"{", (b'"%d":0,' % n for n in range(_KEYS)), b'"":0}}'))
on(READ, "small lists in a result", lambda r: around(r, _CONTENT + b"[", much(b"[],", 2 * MIB), b"0]}"))
on(READ, "a deep result", lambda r: around(r, _CONTENT, much(b"[", 64 * MIB), b""))
on(READ, "a deep result of objects", lambda r: around(r, _CONTENT, much(b'{"a":', 64 * MIB), b""))
on(READ, "digits", lambda r: around(r, _CONTENT, much(b"1", 20 * MIB), b"}"))
on(READ, "a fraction without end", lambda r: around(r, _CONTENT + b"0.", much(b"1", 20 * MIB), b"}"))
on(READ, "an exponent", lambda r: around(r, _CONTENT, [b"1e999999999"], b"}"))
on(READ, "not a number", lambda r: around(r, _CONTENT, [b"[NaN, Infinity]"], b"}"))
on(READ, "one key a million times", lambda r: around(r, _CONTENT + b"{", much(b'"a":[],', 20 * MIB), b'"a":0}}'))
on(READ, "surrogates", lambda r: around(r, _CONTENT + b'"', much(rb"\ud800", 200 * MIB), b'"}'))
on(READ, "a text of 255 MiB", lambda r: around(r, _TEXT, much(b"x", 254 * MIB), _END))
on(READ, "a text of escapes", lambda r: around(r, _TEXT, much(rb"\"\u00e9\n", 254 * MIB), _END))
on(READ, "a blob of 255 MiB", lambda r: around(r, _BLOB, much(b"QUJD", 254 * MIB), _END))
on(READ, "a blob that breaks at its end", lambda r: around(r, _BLOB, much(b"QUJD", 254 * MIB), b"!" + _END))
_LONG_PART = b'{"uri": "odd://a", "text": "' + b"x" * 70_000 + b'"},'
on(READ, "many texts", lambda r: around(r, _PARTS, much(_LONG_PART, 250 * MIB), _LAST))
on(READ, "many parts", lambda r: around(r, _PARTS, much(b'{"uri": "odd://a", "text": "x"},', 30 * MIB), _LAST))
result_of(READ, "a type of megabytes", lambda: {"contents": [{"uri": "odd://a", "mimeType": "x" * MIB, "text": "x"}]})
result_of(READ, "a URI of megabytes", lambda: {"contents": [{"uri": "x" * MIB, "text": "x"}]})
on(READ, "a line without end", lambda r: much(b"x", 1 << 60))
on(READ, "spaces without end", lambda r: much(b" ", 1 << 60))
on(READ, "empty lines without end", lambda r: much(b"\n", 1 << 60))
on(READ, "objects without end", lambda r: much(b"{}\n", 1 << 60))
on(READ, "answers to nothing", lambda r: much(b'{"jsonrpc": "2.0", "id": 999999, "result": {}}\n', 1 << 60))
on(READ, "a batch", lambda r: [b"[" + b'{"id":1},' * 13_000 + b"0]\n"])
on(READ, "a large batch", lambda r: chain([b"["], much(b'{"jsonrpc":"2.0","method":"x"},', 30 * MIB), [b"0]\n"]))
on(READ, "UTF-16", lambda r: [answer(r, {"contents": []}).decode().encode("utf-16") * 10_000 + b"\n"])
on(READ, "bytes that are no UTF-8", lambda r: around(r, _CONTENT + b'"', much(b"\xff\xc0", 100 * MIB), b'"}'))


def _error(message: Iterable[bytes], data: Iterable[bytes] = (b"null",)) -> Callable[[Request], Iterator[bytes]]:
    def make(request: Request) -> Iterator[bytes]:
        yield b'{"jsonrpc": "2.0", "id": %d, "error": {"code": -32000, "message": "' % request["id"]
        yield from message
        yield b'", "data": '
        yield from data
        yield b"}}\n"

    return make


on(READ, "an error of 100 MiB", lambda r: _error(much(b"m\\u001b[31m", 100 * MIB))(r))
on(READ, "deep data of an error", lambda r: _error([b"no"], much(b"[", 30 * MIB))(r))
on(READ, "an error that controls the terminal", lambda r: _error([b"\\u001b]0;title\\u0007\\r\\n\\u2028x"])(r))


# -- floods of notifications and requests ------------------------------------------------------------------------------


def flood(name: str, make: Callable[[int], dict[str, Any]]) -> None:
    def messages(request: Request) -> Iterator[bytes]:
        for number in count():
            yield json.dumps({"jsonrpc": "2.0", **make(number)}).encode() + b"\n"

    on(READ, name, messages)


flood("pings", lambda n: {"id": n, "method": "ping"})
flood("requests of unknown methods", lambda n: {"id": f"{n}", "method": "x" * 1000})
flood("questions for roots", lambda n: {"id": n, "method": "roots/list"})
flood("samplings", lambda n: {"id": n, "method": "sampling/createMessage", "params": {"messages": []}})
flood("changed lists", lambda n: {"method": "notifications/resources/list_changed"})
flood("changed resources", lambda n: {"method": "notifications/resources/updated", "params": {"uri": f"odd://{n}"}})
flood(
    "long changed resources",
    lambda n: {"method": "notifications/resources/updated", "params": {"uri": f"{n}" + "x" * 60_000}},
)
flood("progress", lambda n: {"method": "notifications/progress", "params": {"progressToken": n, "progress": n}})
flood("logs", lambda n: {"method": "notifications/message", "params": {"level": "error", "data": "x" * 100}})


# -- listings ----------------------------------------------------------------------------------------------------------

LIST = "resources/list"


def pages(method: str, key: str, name: str, entry: Callable[[int], Any], size: int = 1000) -> None:
    """Register a listing without end."""

    def page(request: Request) -> Iterable[bytes]:
        start = int(request.get("params", {}).get("cursor", "0"))
        entries = [entry(number) for number in range(start, start + size)]
        return [answer(request, {key: entries, "nextCursor": str(start + max(1, size))}) + b"\n"]

    on(method, name, page)


pages(LIST, "resources", "resources without end", lambda n: {"uri": f"odd://{n}", "name": f"{n}"})
pages(
    LIST,
    "resources",
    "described resources without end",
    lambda n: {"uri": f"odd://d/{n}", "name": f"n{n}", "description": f"d{n}" * 10, "size": n},
)
pages(
    LIST,
    "resources",
    "resources with deep data",
    lambda n: {"uri": f"odd://{n}", "name": f"{n}", "_meta": {"x": [[]] * 50}, "icons": [{}] * 50},
)
pages(LIST, "resources", "long URIs", lambda n: {"uri": f"odd://{n}/" + "x" * 60_000, "name": f"{n}"}, 100)
pages(LIST, "resources", "deep URIs", lambda n: {"uri": f"odd://{n}/" + "x/" * 20_000, "name": f"{n}"}, 100)
pages(LIST, "resources", "empty pages without end", lambda n: None, 0)
pages(LIST, "resources", "pages of nothing usable", lambda n: {"name": f"{n}"})
for _name, _expressions, _size in (
    ("templates without end", "{a}{b}", 1000),
    ("long templates", "{a}-{b}." * 400, 50),
    ("templates of many expressions", "{a}-{b}." * 8, 50),
):

    def _template(number: int, expressions: str = _expressions) -> Any:
        return {"uriTemplate": f"odd://{number}/{expressions}", "name": f"{number}"}

    pages("resources/templates/list", "resourceTemplates", _name, _template, _size)
result_of(
    "resources/templates/list",
    "templates of slashes",
    lambda: {"resourceTemplates": [{"uriTemplate": f"odd://{{+a{n}}}{{+b}}", "name": f"{n}"} for n in range(500)]},
)
on(
    LIST,
    "a page of 30 MiB",
    lambda r: around(
        r,
        b'{"resources": [',
        (b'{"uri":"odd://%d","name":"%d"},' % (n, n) for n in range(900_000)),
        b'{"uri":"odd://x","name":"x"}]}',
    ),
)
_listings = count()
result_of(
    LIST,
    "other names in each listing",
    lambda: {
        "resources": [
            {"uri": f"odd://d/{listing}-{n}", "name": f"{n}"} for listing in [next(_listings)] for n in range(60_000)
        ]
    },
)
on(LIST, "a page of lists", lambda r: around(r, _LISTED, much(b"[],", 30 * MIB), b"0]}"))
result_of(LIST, "a cursor that is a number", lambda: {"resources": [{"uri": "odd://a", "name": "a"}], "nextCursor": 7})
result_of(
    LIST,
    "data of a million numbers",
    lambda: {"resources": [{"uri": f"odd://{n}", "name": n, "_meta": {"x": [1.5e-99] * 240_000}} for n in "abcd"]},
)
result_of(
    "resources/templates/list",
    "templates with long descriptions",
    lambda: {
        "resourceTemplates": [
            {"uriTemplate": f"odd://{n}/{{v}}", "name": "n", "description": "\u20ac" * 50_000} for n in range(100)
        ]
    },
)
result_of(LIST, "a cursor that is deep", lambda: {"resources": [], "nextCursor": [[[]]]})
result_of(
    LIST, "a cursor of megabytes", lambda: {"resources": [{"uri": "odd://a", "name": "a"}], "nextCursor": "x" * MIB}
)


def greeting(field: str) -> dict[str, Any]:
    """Return a greeting with a field that is large: an object, or a text where it has to be one."""
    is_object = field in ("capabilities", "serverInfo", "_meta")
    large = {"x": {str(n): [[]] for n in range(50_000)}} if is_object else "x" * MIB
    return {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}, field: large}


for _field in ("instructions", "protocolVersion", "serverInfo", "capabilities", "_meta"):
    result_of("initialize", f"{_field} of a greeting", partial(greeting, _field))
on("initialize", "a greeting without end", lambda r: around(r, b'{"instructions": "', much(b"x", 1 << 60), b'"}'))


# -- HTTP --------------------------------------------------------------------------------------------------------------

_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
_EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def on_http(name: str, make: Callable[[Request], Iterable[bytes]]) -> None:
    HTTP_ATTACKS[name] = lambda request: make(request) if request.get("method") == READ else None


def gzipped(pieces: Iterable[bytes], layers: int = 1) -> Iterator[bytes]:
    packer = zlib.compressobj(9, wbits=31)
    packed = chain((packer.compress(piece) for piece in pieces), (packer.flush() for _ in range(1)))
    return gzipped(packed, layers - 1) if layers > 1 else (piece for piece in packed if piece)


def _member() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return packer.compress(b"") + packer.flush()


def coded(name: str, coding: bytes, body: Callable[[Request], Iterable[bytes]]) -> None:
    head = _OK + b"content-encoding: " + coding + b"\r\nconnection: close\r\n\r\n"
    on_http(name, lambda r: chain([head], body(r)))


coded("gzip of lists", b"gzip", lambda r: gzipped(around(r, _CONTENT + b"[", much(b"[],", 30 * MIB), b"0]}")))
coded("gzip of a text", b"gzip", lambda r: gzipped(around(r, _TEXT, much(b"x", 254 * MIB), _END)))
coded("gzip of gzip", b"gzip, gzip", lambda r: gzipped(much(b" "), 2))
coded("members of gzip", b"gzip", lambda r: much(_member(), 1 << 60))
coded("bytes after gzip", b"gzip", lambda r: chain(gzipped([answer(r, {"contents": []})]), much(b"x", 1 << 60)))
coded("brotli", b"br", lambda r: much(b"x", 1 << 60))
_CHUNKED = _OK + b"transfer-encoding: chunked\r\n\r\n"
on_http("chunks of a byte", lambda r: chain([_CHUNKED], much(b"1\r\n \r\n", 1 << 60)))
on_http("extensions of a chunk", lambda r: chain([_CHUNKED + b"1;"], much(b"x", 1 << 60)))
on_http("early hints", lambda r: much(b"HTTP/1.1 103 Early Hints\r\n\r\n", 1 << 60))
on_http("headers", lambda r: chain([_OK], much(b"x-a: y\r\n", 1 << 60)))
on_http("a header", lambda r: chain([_OK + b"x-a: "], much(b"y", 1 << 60)))
on_http("trailers", lambda r: chain([_CHUNKED + b"0\r\n"], much(b"x-a: y\r\n", 1 << 60)))
on_http("redirects", lambda r: [b"HTTP/1.1 307 Over There\r\nlocation: /mcp\r\ncontent-length: 0\r\n\r\n"])
on_http(
    "a redirect to a file",
    lambda r: [b"HTTP/1.1 307 Over There\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n"],
)
on_http(
    "a refusal without end",
    lambda r: chain(
        [b"HTTP/1.1 500 No\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"], much(b"[],", 1 << 60)
    ),
)
for _line in (
    *(b"data:\n", b"data: x\n", b"event: x\n", b"id: x\n", b"retry: 1\n", b": x\n", b"\n", b"\r", b"data: {}\n\n"),
    *(b"x" * 99, b"id:" + b"x" * 10_000 + b"\n"),
):
    on_http(f"events of {_line[:9]!r}", lambda r, line=_line: chain([_EVENTS], much(line, 1 << 60)))
on_http(
    "pings in events",
    lambda r: chain([_EVENTS], (b'data: {"jsonrpc": "2.0", "id": %d, "method": "ping"}\n\n' % n for n in count())),
)


# -- directories and skills --------------------------------------------------------------------------------------------

READ_DIRECTORY, LIST_SKILLS = "resources/directory/read", "skills/list"


def on_extension(method: str, name: str, make: Callable[[Request], Iterable[bytes]]) -> None:
    """Register an attack by a server that reads directories and has skills."""

    def attack(request: Request) -> Iterable[bytes] | None:
        match request.get("method"):
            case "initialize":
                extensions = {"io.modelcontextprotocol/skills": {"directoryRead": True}}
                capabilities = {"resources": {"listChanged": True}, "extensions": extensions}
                result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": {}}
                return [answer(request, result) + b"\n"]
            case "resources/list":
                files = [{"uri": f"odd://{name}", "name": name} for name in "bcdefgh"]
                return [answer(request, {"resources": [_entry("odd://a", is_directory=True), *files]}) + b"\n"]
            case asked if asked == method:
                return make(request)
            case _:
                return None

    ATTACKS[name] = attack


def _entry(uri: str, *, is_directory: bool) -> dict[str, Any]:
    return {"uri": uri, "name": "../" + uri, **({"mimeType": "inode/directory"} if is_directory else {})}


def on_directory(name: str, entries: Callable[[str, int], Iterable[dict[str, Any]]], *, ends: bool = True) -> None:
    """Register answers to reads of directories. entries: of the directory, at a page."""

    def make(request: Request) -> Iterable[bytes]:
        params = request["params"]
        page = int(params.get("cursor", "0"))
        listed = list(entries(params["uri"], page))
        return [answer(request, {"resources": listed, **({} if ends else {"nextCursor": str(page + 1)})}) + b"\n"]

    on_extension(READ_DIRECTORY, name, make)


on_directory("a directory in itself", lambda uri, _: [_entry(uri + end, is_directory=True) for end in ("", "/", "/.")])
on_directory(
    "directories without end", lambda uri, _: [_entry(f"{uri}/{name * 50}", is_directory=True) for name in "x"]
)
on_directory(
    "entries elsewhere",
    lambda uri, _: [_entry(text, is_directory=True) for text in ("odd://b", "odd:", "file:///etc", f"{uri}/x/y", "..")],
)
on_directory(
    "entries that lead up", lambda uri, _: [_entry(f"{uri}/{name}", is_directory=False) for name in ("..", "%2F")]
)
on_directory(
    "a directory of many", lambda uri, _: (_entry(f"{uri}/{number}", is_directory=False) for number in range(300_000))
)
on_directory(
    "a directory without end",
    lambda uri, page: (_entry(f"{uri}/{page}-{number}", is_directory=False) for number in range(1000)),
    ends=False,
)
on_directory(
    "a directory that repeats",
    lambda uri, _: (_entry(f"{uri}/{number}", is_directory=False) for number in range(100)),
    ends=False,
)
on_directory("empty pages of a directory", lambda uri, _: (), ends=False)
on_extension(READ_DIRECTORY, "a directory of lists", lambda r: around(r, _LISTED, much(b"[],", 30 * MIB), b"0]}"))
on_extension(READ_DIRECTORY, "a directory of no array", lambda r: [answer(r, {"resources": {"a": 1}}) + b"\n"])


def _skill(number: int, files: int) -> dict[str, Any]:
    root = f"odd://a/s{number}"
    manifest = [
        {"uri": f"{root}/{file or 'SKILL.md'}", "digest": "sha256:" + "0" * 64, "size": 1} for file in range(files)
    ]
    return {"uri": f"{root}/SKILL.md", "frontmatter": {"name": f"s{number}", "description": "x"}, "resources": manifest}


def skills(name: str, entry: Callable[[int], Any], size: int) -> None:
    """Register a list of skills without end."""

    def page(request: Request) -> Iterable[bytes]:
        start = int(request.get("params", {}).get("cursor", "0"))
        listed = [entry(number) for number in range(start, start + size)]
        return [answer(request, {"skills": listed, "nextCursor": str(start + size)}) + b"\n"]

    on_extension(LIST_SKILLS, name, page)


skills("skills without end", lambda number: _skill(number, 1), 500)
skills("manifests without end", lambda number: _skill(number, 512), 20)
skills("manifests of too much", lambda number: _skill(number, 5000), 20)
skills("skills of nothing usable", lambda number: {"uri": [number], "frontmatter": {"name": {}}, "resources": 7}, 1000)


# -- the server --------------------------------------------------------------------------------------------------------


def honest(request: Request) -> bytes | None:
    """Return the answer of a server without tricks: ten resources, and the URI as the content of each."""
    match request.get("method"):
        case "initialize":
            capabilities = {"resources": {"listChanged": True, "subscribe": True}}
            return answer(request, {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": {}})
        case "resources/list":
            return answer(request, {"resources": [{"uri": f"odd://{name}", "name": name} for name in "abcdefghij"]})
        case "resources/templates/list":
            return answer(request, {"resourceTemplates": []})
        case "resources/read":
            uri = request["params"]["uri"]
            return answer(request, {"contents": [{"uri": uri, "text": uri + "\n"}]})
        case "server/discover":
            error = {"code": -32601, "message": "no such method"}
            return json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode()
        case _ if "id" in request and "method" in request:
            return answer(request, {})
    return None


def serve_stdio(attack: Attack) -> None:
    for line in sys.stdin.buffer:
        request = json.loads(line)
        pieces = attack(request) if "id" in request else None
        reply = honest(request) if pieces is None else None
        for piece in pieces if pieces is not None else [reply + b"\n"] if reply else []:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def never_reads() -> None:
    """Answer the first three requests, and read no more."""
    for _ in range(4):
        reply = honest(json.loads(sys.stdin.buffer.readline()))
        if reply:
            sys.stdout.buffer.write(reply + b"\n")
            sys.stdout.buffer.flush()
    threading.Event().wait()


def talks_on_stderr() -> None:
    """Write on stderr without end, and serve."""

    def talk() -> None:
        while True:
            os.write(2, b"x" * 4000 + b"\n" + b"\n" * 1000)

    threading.Thread(target=talk, daemon=True).start()
    serve_stdio(lambda request: None)


def serve_http(attack: Attack | None, http_attack: Attack | None) -> None:
    """Serve on a port of its own, and print the URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_talk, args=(connection, attack, http_attack), daemon=True).start()


def _talk(connection: socket.socket, attack: Attack | None, http_attack: Attack | None) -> None:
    file = connection.makefile("rb")
    try:
        while head := file.readline():
            headers = dict(line.decode().rstrip().lower().split(": ", 1) for line in iter(file.readline, b"\r\n"))
            body = file.read(int(headers.get("content-length", 0)))
            if not head.startswith(b"POST"):
                connection.sendall(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
                continue
            request = json.loads(body)
            if "method" not in request and http_attack is not None:
                threading.Event().wait()  # answers to its pings it never takes
            if "id" in request and http_attack is not None and (pieces := http_attack(request)) is not None:
                for piece in pieces:
                    connection.sendall(piece)
                connection.close()
                return
            pieces = attack(request) if attack is not None and "id" in request else None
            if pieces is not None:
                connection.sendall(_CHUNKED)
                for piece in filter(None, pieces):
                    connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                connection.sendall(b"0\r\n\r\n")
                continue
            reply = honest(request)
            status = _OK if reply else b"HTTP/1.1 202 OK\r\n"
            connection.sendall(status + b"content-length: %d\r\n\r\n%s" % (len(reply or b""), reply or b""))
    except (OSError, ValueError):
        return


if __name__ == "__main__":
    transport, name = sys.argv[1:]
    if name == "never reads":
        never_reads()
    elif name == "talks on stderr":
        talks_on_stderr()
    elif transport == "stdio":
        serve_stdio(ATTACKS[name])
    else:
        serve_http(ATTACKS.get(name), HTTP_ATTACKS.get(name))
