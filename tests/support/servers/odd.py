"""A raw MCP server over stdio with one oddity, for tests: `python odd.py ODDITY [ARGUMENT] [--log FILE]`.

It needs nothing but the standard library, so it starts in a moment. It lists three resources (`odd://a`, `odd://b`,
`odd://c`), knows the handshake era only, and appends what happens to the log: `start PID`, every method it is asked,
`exit`. Oddities are the functions below that are decorated with their names.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Request = dict[str, Any]
Answer = dict[str, Any] | None
URIS = ("odd://a", "odd://b", "odd://c")
oddities: dict[str, Callable[["Server", Request], bool]] = {}


class Server:
    def __init__(self, argument: str | None, log: Path | None) -> None:
        self.argument = argument
        self.log_file = log
        self.reads = 0

    def log(self, text: str) -> None:
        if self.log_file is not None:
            with self.log_file.open("a") as file:
                file.write(text + "\n")

    def send(self, message: Any) -> None:
        self.send_raw(json.dumps(message).encode() + b"\n")

    def send_raw(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def answer(self, request: Request, result: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    def refuse(self, request: Request, code: int, message: str) -> None:
        self.send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})

    def answer_list(self, request: Request, entries: Any = None, **more: Any) -> None:
        entries = [{"uri": uri, "name": uri[-1]} for uri in URIS] if entries is None else entries
        self.answer(request, {"resources": entries, **more})

    def answer_text(self, request: Request, text: str) -> None:
        self.answer(request, {"contents": [{"uri": request["params"]["uri"], "text": text}]})

    def plain(self, request: Request) -> None:
        """What a server without an oddity does."""
        if "id" not in request:
            return
        match request["method"]:
            case "initialize":
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"resources": {"subscribe": True, "listChanged": True}},
                    "serverInfo": {"name": "odd", "version": "1"},
                }
                self.answer(request, result)
            case "resources/list":
                self.answer_list(request)
            case "resources/read" if request["params"]["uri"] in URIS:
                self.answer_text(request, f"content of {request['params']['uri']}\n")
            case "resources/read":
                self.refuse(request, -32002, "Resource not found")
            case "ping" | "resources/subscribe" | "resources/unsubscribe":
                self.answer(request, {})
            case method:
                self.refuse(request, -32601, f"Method not found: {method}")


def oddity(name: str) -> Callable[[Callable[[Server, Request], bool]], Callable[[Server, Request], bool]]:
    """Register a function that handles a request itself (True) or leaves it to `Server.plain` (False)."""

    def register(function: Callable[[Server, Request], bool]) -> Callable[[Server, Request], bool]:
        oddities[name] = function
        return function

    return register


@oddity("none")
def none(server: Server, request: Request) -> bool:
    return False


@oddity("many-templates")
def many_templates(server: Server, request: Request) -> bool:
    """Has as many templates of two expressions, one for any number of slashes, as the argument says."""
    if request["method"] != "resources/templates/list":
        return False
    templates = [{"uriTemplate": f"odd://{n}/{{a}}/{{+b}}", "name": "x"} for n in range(int(server.argument or 0))]
    server.answer(request, {"resourceTemplates": templates})
    return True


@oddity("hung")
def hung(server: Server, request: Request) -> bool:
    """Never answers to anything."""
    return True


@oddity("hung-discover")
def hung_discover(server: Server, request: Request) -> bool:
    """Leaves unknown methods unanswered."""
    return request["method"] == "server/discover"


@oddity("initialize-only")
def initialize_only(server: Server, request: Request) -> bool:
    return request["method"] not in ("initialize", "server/discover")


@oddity("hung-read")
def hung_read(server: Server, request: Request) -> bool:
    """Never answers a read of the argument, or any read."""
    return request["method"] == "resources/read" and server.argument in (None, request["params"]["uri"])


@oddity("dies-on-discover")
def dies_on_discover(server: Server, request: Request) -> bool:
    """As servers do that take anything but `initialize` first for an error."""
    if request["method"] == "server/discover":
        sys.exit("expected initialize")
    return False


TERMINAL = "x\x1b[31mred\x9b2J\x07\u202e\u2066\u200f\r\nbbfs: all is well\n\x85\u2028y"
"""Controls of a terminal, of the direction of a line, and ends of lines."""


@oddity("terminal")
def terminal(server: Server, request: Request) -> bool:
    """Has `TERMINAL` in every text, also in errors and on standard error."""
    print(TERMINAL, file=sys.stderr, flush=True)
    match request.get("method"):
        case "initialize":
            capabilities = {"resources": {"subscribe": True, "listChanged": True}}
            info = {"name": TERMINAL, "title": TERMINAL, "version": TERMINAL}
            answer = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
            server.answer(request, answer | {"instructions": TERMINAL})
        case "resources/list":
            texts = dict.fromkeys(("name", "title", "description", "mimeType"), TERMINAL)
            entries = [{"uri": uri, **texts, "_meta": {TERMINAL: TERMINAL}} for uri in URIS]
            server.answer_list(request, entries, _meta={TERMINAL: TERMINAL})
        case "resources/read" if request["params"]["uri"] == URIS[0]:
            texts = {"uri": URIS[0], "mimeType": TERMINAL, "text": "plain"}
            server.answer(request, {"contents": [texts]})
        case _ if "id" in request:
            server.refuse(request, -32000, TERMINAL)
        case _:
            server.send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": TERMINAL}})
    return True


@oddity("fails-to-start")
def fails_to_start(server: Server, request: Request) -> bool:
    sys.exit("no such database: token=" + os.environ.get("ODD_SECRET", ""))


@oddity("fails-while")
def fails_while(server: Server, request: Request) -> bool:
    """Exits at the greeting for as long as the file that the argument names is there."""
    if server.argument and Path(server.argument).exists():
        sys.exit("not yet")
    return False


@oddity("crash-after")
def crash_after(server: Server, request: Request) -> bool:
    """Crashes at the read after so many, without an answer."""
    if request["method"] == "resources/read":
        server.reads += 1
        if server.reads > int(server.argument or 0):
            print("Traceback: the odd server is out of luck", file=sys.stderr)
            os._exit(3)
    return False


@oddity("crash-idle")
def crash_idle(server: Server, request: Request) -> bool:
    """Answers the first read, then crashes by itself."""
    if request["method"] != "resources/read":
        return False
    server.plain(request)
    os.kill(os.getpid(), signal.SIGKILL)
    return True


@oddity("last-words")
def last_words(server: Server, request: Request) -> bool:
    """Exits with a complaint after it has answered a read, or when it is greeted if the argument says so."""
    if request["method"] == ("initialize" if server.argument == "greeting" else "resources/read"):
        if server.argument != "greeting":
            server.plain(request)
        print("warming up\nout of memory, goodbye", file=sys.stderr, flush=True)
        os._exit(5)
    return False


@oddity("fixed-templates")
def fixed_templates(server: Server, request: Request) -> bool:
    """Has templates without variables, one of them of a listed resource."""
    if request["method"] != "resources/templates/list":
        return False
    fixed = [
        {"uriTemplate": "odd://a", "name": "other"},
        {"uriTemplate": "odd://now", "name": "Now", "mimeType": "text/x"},
    ]
    server.answer(request, {"resourceTemplates": [*fixed, {"uriTemplate": "odd://by/{name}", "name": "By"}]})
    return True


@oddity("garbage")
def garbage(server: Server, request: Request) -> bool:
    """Talks on stdout before every answer, in bytes that are not UTF-8 too."""
    server.send_raw(b"DEBUG: got a request \xff\xfe\n\n{not json}\n[1, 2\n")
    return False


@oddity("bad-bytes")
def bad_bytes(server: Server, request: Request) -> bool:
    """A text with a byte that is not UTF-8, and one with half a surrogate pair."""
    if request["method"] != "resources/read":
        return False
    identifier = str(request["id"]).encode()
    text = b"a\xffb" if request["params"]["uri"] == "odd://a" else b"a\\ud800b"
    contents = b'{"contents": [{"uri": "odd://a", "text": "' + text + b'"}]}'
    server.send_raw(b'{"jsonrpc": "2.0", "id": ' + identifier + b', "result": ' + contents + b"}\n")
    return True


@oddity("error")
def error(server: Server, request: Request) -> bool:
    """Reads and listings answer with the error code of the argument."""
    if request["method"].startswith("resources/"):
        server.refuse(request, int(server.argument or 0), "as ordered")
        return True
    return False


@oddity("invalid-entry")
def invalid_entry(server: Server, request: Request) -> bool:
    """Two usable entries among others; one of the usable ones is there twice."""
    if request["method"] != "resources/list":
        return False
    good = {"uri": "odd://a", "name": "a", "size": "big", "annotations": {"lastModified": "2026-11-21T10:00:00Z"}}
    entries = [good, {"name": "no uri"}, 7, {"uri": 3, "name": "x"}, {"uri": "odd://b"}, {**good, "name": "again"}]
    server.answer_list(request, entries, nextCursor="")
    return True


@oddity("huge-line")
def huge_line(server: Server, request: Request) -> bool:
    """Answers reads with as many bytes as the argument says."""
    if request["method"] == "resources/read":
        server.answer_text(request, "x" * int(server.argument or 1 << 20))
        return True
    return False


@oddity("stubborn")
def stubborn(server: Server, request: Request) -> bool:
    """Notes the end of its stdin and SIGTERM, with the time, and goes on; ignores SIGINT (see `main`)."""
    return False


@oddity("flood-stderr")
def flood_stderr(server: Server, request: Request) -> bool:
    """Writes 4 MB to stderr before it answers a read."""
    if request["method"] == "resources/read":
        for number in range(40_000):
            print(f"line {number} {'.' * 90}", file=sys.stderr)
    return False


@oddity("family")
def family(server: Server, request: Request) -> bool:
    """Has a child that outlives it and holds its stdout open."""
    if request["method"] == "initialize":
        child = subprocess.Popen(["sleep", "1000"])
        server.log(f"child {child.pid}")
    if request["method"] == "resources/read":
        os._exit(0)
    return False


@oddity("changing")
def changing(server: Server, request: Request) -> bool:
    """Announces, before it answers a read of `odd://b`, that the list and `odd://a` have changed."""
    if request["method"] == "resources/read" and request["params"]["uri"] == "odd://b":
        server.send({"jsonrpc": "2.0", "method": "notifications/resources/list_changed"})
        params = {"uri": "odd://a"}
        server.send({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params})
    return False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("oddity", choices=sorted(oddities))
    parser.add_argument("argument", nargs="?")
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    server = Server(options.argument, options.log)
    server.log(f"start {os.getpid()}")
    if options.oddity == "stubborn":
        signal.signal(signal.SIGTERM, lambda *_: server.log(f"SIGTERM {time.monotonic_ns()}"))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "method" not in request:
            continue
        uri = (request.get("params") or {}).get("uri")
        server.log(" ".join(filter(None, (request["method"], uri))))
        if not oddities[options.oddity](server, request):
            server.plain(request)
    server.log(f"end of input {time.monotonic_ns()}")
    while options.oddity == "stubborn":
        time.sleep(3600)
    server.log("exit")


if __name__ == "__main__":
    main()
