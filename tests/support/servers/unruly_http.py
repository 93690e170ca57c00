"""Odd servers over Streamable HTTP, one a path, in one process: `python unruly_http.py` prints the URL they begin with.

`URL/ODDITY[/ARGUMENT]` lists `odd://a`, `odd://b` and `odd://c`, each with its URI as content, and does at a read of
`odd://a` what the function of that name says. It needs nothing but the standard library and knows the handshake era
only. It prints a line for each `initialize`, each `DELETE` and each stream that is resumed: `GET/LAST-EVENT-ID`.
"""

import gzip
import json
import socket
import struct
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

from streams import say

URIS = ("odd://a", "odd://b", "odd://c")
JSON = "application/json"
oddities: dict[str, Callable[["Handler", Any], None]] = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if (last := self.headers.get("last-event-id")) is None:
            return self.reply(405, b"")
        say(f"GET/{last}")
        events = b"retry: 1\nid: second\ndata:\n\n"
        if last == "second":
            events = b"id: third\ndata: " + self.server.resumed + b"\n\n"
        return self.reply(200, events, "text/event-stream")

    def do_DELETE(self) -> None:
        say("DELETE")
        self.server.sessions.pop(self.headers["mcp-session-id"], None)
        self.reply(200, b"")

    def do_POST(self) -> None:
        _, name, *arguments = self.path.partition("?")[0].split("/")
        self.argument = "".join(arguments)
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if request["method"] == "initialize":
            say("initialize")
            session = uuid4().hex
            self.server.sessions[session] = self.path
            self.reply(200, self.answer(request), JSON, mcp_session_id=session)
        elif self.headers["mcp-session-id"] not in self.server.sessions:
            self.reply(404, self.refusal(request, -32600, "Session not found"), JSON)
        elif request["method"] == "resources/read" and request["params"]["uri"] == "odd://a":
            self.server.reads[self.path] += 1
            oddities[name](self, request)
        elif "id" not in request:
            self.reply(202, b"")
        else:
            self.reply(200, self.answer(request), JSON)

    def answer(self, request: Any) -> bytes:
        """What a server without an oddity answers."""
        match request["method"]:
            case "initialize":
                result: dict[str, Any] = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"resources": {}},
                    "serverInfo": {"name": "odd", "version": "1"},
                }
            case "resources/list":
                result = {"resources": [{"uri": uri, "name": uri} for uri in URIS]}
            case "resources/read":
                uri = request["params"]["uri"]
                result = {"contents": [{"uri": uri, "text": f"content of {uri}\n"}]}
            case _:
                return self.refusal(request, -32601, "Method not found")
        return json.dumps({"jsonrpc": "2.0", "id": request.get("id"), "result": result}).encode()

    def refusal(self, request: Any, code: int, message: str) -> bytes:
        error = {"code": code, "message": message}
        return json.dumps({"jsonrpc": "2.0", "id": request.get("id"), "error": error}).encode()

    def reply(self, status: int, body: bytes, content_type: str | None = "text/plain", **headers: str) -> None:
        self.begin(status, content_type, content_length=str(len(body)), **headers)
        self.wfile.write(body)

    def begin(self, status: int, content_type: str | None, **headers: str) -> None:
        """Send the status and the headers, which are written with `_` for `-`."""
        self.send_response(status)
        if content_type is not None:
            self.send_header("content-type", content_type)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def endlessly(self, data: bytes, pause: float = 0) -> None:
        """Send the same again and again until nobody wants it any more."""
        waiting = threading.Event()
        try:
            while not waiting.wait(pause):
                self.wfile.write(data)
        except OSError:
            pass  # the client has gone
        self.close_connection = True


def oddity(function: Callable[[Handler, Any], None]) -> Callable[[Handler, Any], None]:
    oddities[function.__name__.replace("_", "-")] = function
    return function


@oddity
def none(handler: Handler, request: Any) -> None:
    handler.reply(200, handler.answer(request), JSON)


@oddity
def html(handler: Handler, request: Any) -> None:
    """As the page of a login, or of an error, of whatever stands before the server."""
    handler.reply(200, b"<!DOCTYPE html><html>Please log in</html>", "text/html")


@oddity
def accepted(handler: Handler, request: Any) -> None:
    handler.reply(202, b"")


@oddity
def no_content(handler: Handler, request: Any) -> None:
    handler.begin(204, None)


@oddity
def status(handler: Handler, request: Any) -> None:
    """The HTTP status of the argument."""
    handler.reply(int(handler.argument), b"no")


@oddity
def error_body(handler: Handler, request: Any) -> None:
    """An error that repeats the header `authorization`."""
    error = handler.refusal(request, -32603, f"cannot use {handler.headers['authorization']}")
    handler.reply(500, error, JSON)


@oddity
def reset(handler: Handler, request: Any) -> None:
    # Linger 0 makes `close` send RST.
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
    handler.connection.close()


@oddity
def reset_once(handler: Handler, request: Any) -> None:
    (reset if handler.server.reads[handler.path] == 1 else none)(handler, request)


@oddity
def forgets(handler: Handler, request: Any) -> None:
    """Has forgotten its sessions at the first read, as after a restart."""
    if handler.server.reads[handler.path] > 1:
        return none(handler, request)
    handler.server.sessions = {key: path for key, path in handler.server.sessions.items() if path != handler.path}
    return handler.reply(404, handler.refusal(request, -32600, "Session not found"), JSON)


@oddity
def cut(handler: Handler, request: Any) -> None:
    """Ends the connection in the middle of the body."""
    handler.begin(200, JSON, content_length="1000")
    handler.wfile.write(b'{"jsonrpc": "2.0", ')
    handler.close_connection = True


@oddity
def not_json(handler: Handler, request: Any) -> None:
    handler.reply(200, b"<html>please log in</html>", JSON)


@oddity
def huge(handler: Handler, request: Any) -> None:
    """As many bytes as the argument says."""
    result = {"contents": [{"uri": "odd://a", "text": "x" * int(handler.argument)}]}
    handler.reply(200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode(), JSON)


@oddity
def event_cut(handler: Handler, request: Any) -> None:
    """An event stream that ends without an answer."""
    handler.reply(200, b": nothing comes\n\n", "text/event-stream")


@oddity
def event_resumed(handler: Handler, request: Any) -> None:
    """The same, twice, and the answer after that to a GET with the id of the last event."""
    handler.server.resumed = handler.answer(request).replace(b"content of odd://a", b"resumed")
    handler.reply(200, b"id: first\ndata:\n\nretry: 1\n\n", "text/event-stream")


@oddity
def too_many(handler: Handler, request: Any) -> None:
    handler.reply(429, b"slow down", retry_after="1")


@oddity
def broken(handler: Handler, request: Any) -> None:
    handler.reply(500, b"<html>Internal Server Error</html>", "text/html")


@oddity
def endless_error(handler: Handler, request: Any) -> None:
    handler.begin(500, "text/html")
    handler.endlessly(b"<p>It is all our fault.</p>\n" * 1000)


@oddity
def slow_error(handler: Handler, request: Any) -> None:
    """A refusal whose body never ends, and hardly ever begins."""
    handler.begin(503, "text/html")
    handler.endlessly(b" ", 0.2)


@oddity
def slow_body(handler: Handler, request: Any) -> None:
    handler.begin(200, JSON, content_length="100000")
    handler.endlessly(b" ", 0.2)


@oddity
def slow_events(handler: Handler, request: Any) -> None:
    """An event stream that is kept alive and never says anything."""
    handler.begin(200, "text/event-stream")
    handler.endlessly(b": still there\n\n", 0.1)


@oddity
def bad_chunks(handler: Handler, request: Any) -> None:
    handler.begin(200, JSON, transfer_encoding="chunked")
    handler.wfile.write(b'7\r\n{"jsonr\r\nzz\r\n;;;\r\n')
    handler.close_connection = True


@oddity
def no_http(handler: Handler, request: Any) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    handler.close_connection = True


@oddity
def bad_gzip(handler: Handler, request: Any) -> None:
    handler.reply(200, handler.answer(request), JSON, content_encoding="gzip")


@oddity
def good_gzip(handler: Handler, request: Any) -> None:
    handler.reply(200, gzip.compress(handler.answer(request)), JSON, content_encoding="gzip")


@oddity
def unknown_encoding(handler: Handler, request: Any) -> None:
    handler.reply(200, b"\x28\xb5\x2f\xfd" + handler.answer(request), JSON, content_encoding="zstd")


def _bomb() -> bytes:
    """The beginning of a JSON text of 1 GiB, as 1 MB: after a full flush, the same bytes stand for the same again."""
    packer = zlib.compressobj(9, wbits=31)
    start = packer.compress(b'{"jsonrpc": "2.0", "id": 1, "result": "') + packer.flush(zlib.Z_FULL_FLUSH)
    return start + 1024 * (packer.compress(b" " * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH))


@oddity
def bomb(handler: Handler, request: Any) -> None:
    handler.reply(200, _bomb(), JSON, content_encoding="gzip")


@oddity
def bomb_of_events(handler: Handler, request: Any) -> None:
    handler.reply(200, _bomb(), "text/event-stream", content_encoding="gzip")


@oddity
def elsewhere(handler: Handler, request: Any) -> None:
    handler.reply(307, b"", location="http://example.invalid/mcp?token=abcd")


@oddity
def found(handler: Handler, request: Any) -> None:
    """A redirect that makes GET of POST."""
    handler.reply(302, b"", location="/none")


@oddity
def circle(handler: Handler, request: Any) -> None:
    handler.reply(307, b"", location=handler.path)


@oddity
def short_length(handler: Handler, request: Any) -> None:
    body = handler.answer(request)
    handler.begin(200, JSON, content_length=str(len(body) - 20))
    handler.wfile.write(body)


@oddity
def untyped(handler: Handler, request: Any) -> None:
    handler.reply(200, handler.answer(request), None)


@oddity
def plain_text(handler: Handler, request: Any) -> None:
    handler.reply(200, b"\xef\xbb\xbf\r\n" + handler.answer(request) + b"\r\n", "text/plain; charset=iso-8859-1")


@oddity
def other_id(handler: Handler, request: Any) -> None:
    handler.reply(200, handler.answer({**request, "id": 4711}), JSON)


@oddity
def batch(handler: Handler, request: Any) -> None:
    note = b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}'
    handler.reply(200, b"[" + note + b", " + handler.answer(request) + b"]", JSON)


@oddity
def noisy_events(handler: Handler, request: Any) -> None:
    """An event stream with all sorts of things before the answer, which itself is on two lines."""
    events = (": hello", "retry: 5\r\nid", "event: ping\r\ndata: 2026", "data: {not json", "data", "foo: bar")
    noise = "".join(event + "\r\n\r\n" for event in events).encode()
    first, second = handler.answer(request).split(b", ", 1)
    body = b"\xef\xbb\xbf" + noise + b"event: message\r\ndata: " + first + b",\r\ndata: " + second + b"\r\n\r\n"
    handler.reply(200, body, "Text/Event-Stream; charset=utf-8")


@oddity
def closing(handler: Handler, request: Any) -> None:
    """Closes the connection after the answer without a word, as servers do with idle ones."""
    handler.reply(200, handler.answer(request), JSON)
    handler.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # of the usual 5 connections some of fifty clients at once are lost, or wait for seconds

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sessions: dict[str, str] = {}  # and the path of each
        self.reads = Counter[str]()
        self.resumed = b""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go in the middle are what this is for."""


def main() -> None:
    with Server() as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
