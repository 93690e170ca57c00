"""An HTTP server that answers as a plan says, and prints its port: `python hostile_http.py PLAN`.

The plan is a file in JSON: a list of patterns and replies, as `hostile_sources.Reply` writes them. The key of a request
is its JSON-RPC method if it has one, else `METHOD PATH`. A request that no pattern matches gets the answer of a plain
MCP server, or 404.

A plan with a pattern `GET /sse` is a server of the older transport of MCP, whose stream has all other replies.
"""

import contextlib
import gzip
import json
import sys
import zlib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from hostile_stdio import pieces, plain

MAX_STREAM = 1 << 40
"""Bytes of a body without an end, as its length in the header says if it is not chunked."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve(f"{self.command} {self.path}", {})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def do_PROPFIND(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_PROPFIND()

    def do_PATCH(self) -> None:
        self.do_PROPFIND()

    @property
    def _own(self) -> "Server":
        assert isinstance(self.server, Server)
        return self.server

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        with contextlib.suppress(ValueError):
            request = json.loads(data)
            if isinstance(request, dict) and "jsonrpc" in request:
                return self._serve(request.get("method", "an answer"), request)
        return self._serve(f"POST {self.path}", {})

    def _serve(self, key: str, request: dict[str, Any]) -> None:
        reply = next((reply for pattern, reply in self._own.plan if fnmatchcase(key, pattern)), None)
        with contextlib.suppress(ConnectionError):
            if key == "GET /sse":
                self._stream()
            elif self._own.is_sse:
                self._begin(202, {"content-length": "0"})
                if reply is not None:
                    identity = json.dumps(request.get("id")).encode()
                    for piece in pieces(reply, identity):
                        self._own.events.put(piece)
                elif answer := plain(request):
                    self._own.events.put(b"event: message\ndata: " + answer + b"\n\n")
            elif reply is not None:
                self._reply(reply, json.dumps(request.get("id")).encode())
            elif request:
                self._plain(plain(request), is_greeting=key == "initialize")
            else:
                self._begin(405 if self.path == "/" else 404, {"content-length": "0"})

    def _plain(self, answer: bytes, *, is_greeting: bool) -> None:
        headers = {"content-type": "application/json"} if answer else {}
        if is_greeting:
            headers["mcp-session-id"] = "1"  # without a session a client opens no stream for notifications
        self._begin(200 if answer else 202, {**headers, "content-length": str(len(answer))})
        self.wfile.write(answer)

    def _stream(self) -> None:
        self._begin(200, {"content-type": "text/event-stream", "connection": "close"})
        self.wfile.write(b"event: endpoint\ndata: /messages\n\n")
        while True:
            self.wfile.write(self._own.events.get())

    def _reply(self, reply: dict[str, Any], identity: bytes) -> None:
        made: Iterable[bytes] = pieces(reply, identity)
        if reply["raw"]:
            self.close_connection = True
        elif reply["endless"]:
            self._begin(reply["status"], {"content-length": str(MAX_STREAM), **reply["headers"]})
            made = _encoded_for_ever(made, reply["encodings"])
        else:
            body = _encoded(b"".join(made), reply["encodings"])
            codings = {"content-encoding": ", ".join(reply["encodings"])} if reply["encodings"] else {}
            self._begin(reply["status"], {"content-length": str(len(body)), **codings, **reply["headers"]})
            made = [body]
        if self.command != "HEAD":
            for piece in made:
                self.wfile.write(piece)

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _encoded(body: bytes, encodings: list[str]) -> bytes:
    for encoding in encodings:
        body = gzip.compress(body, 6) if encoding == "gzip" else zlib.compress(body, 6)
    return body


def _encoded_for_ever(made: Iterable[bytes], encodings: list[str]) -> Iterable[bytes]:
    packers = [zlib.compressobj(6, wbits=31 if encoding == "gzip" else 15) for encoding in encodings]
    for piece in made:
        for packer in packers:
            piece = packer.compress(piece)
        yield piece


class Server(ThreadingHTTPServer):
    """A server of one plan, on a port of its own."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, plan: list[tuple[str, dict[str, Any]]]) -> None:
        self.plan = plan
        self.is_sse = any(pattern == "GET /sse" for pattern, _ in plan)
        self.events = SimpleQueue[bytes]()
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


def main() -> None:
    server = Server(json.loads(Path(sys.argv[1]).read_text()))
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
