"""A raw MCP server over Streamable HTTP with one oddity, for tests: `python odd_http.py ODDITY [ARGUMENT]`.

It needs nothing but the standard library, prints its URL as first line, lists `odd://a`, `odd://b`, `odd://c`, and
knows the handshake era only. The oddity is what it does at a read of `odd://a`; other reads are answered plainly. Every
method is written to stdout too, one a line.
"""

import argparse
import json
import socket
import struct
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

from streams import say

URIS = ("odd://a", "odd://b", "odd://c")
ODDITIES = (
    "none",
    "status",  # answers with the HTTP status of the argument
    "status-everywhere",  # the same for every request, the greeting included
    "error-body",  # 500 with a JSON-RPC error that repeats the authorization header
    "reset",  # resets the TCP connection
    "reset-once",
    "cut",  # ends the connection in the middle of the body
    "html",  # 200 with a page
    "not-json",  # 200 with JSON that is none
    "huge",  # an answer of as many bytes as the argument says
    "forgets",  # has forgotten the session, once
    "event-cut",  # an event stream that ends without an answer
    "event-resumed",  # the same, twice, and the answer after that to a GET with the id of the last event
    "elsewhere",  # redirects to another origin
)


class Odd(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "OddServer"  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        last = self.headers.get("last-event-id")
        if last is None or self.server.oddity != "event-resumed":
            self.reply(405, b"")
            return
        say(f"GET/{last}")
        events = b"retry: 1\nid: second\ndata:\n\n"
        if last == "second":
            content = {"uri": "odd://a", "text": "resumed\n"}
            answer = {"jsonrpc": "2.0", "id": self.server.odd_id, "result": {"contents": [content]}}
            events = f"id: third\ndata: {json.dumps(answer)}\n\n".encode()
        self.reply(200, events, "text/event-stream")

    def do_DELETE(self) -> None:
        say("DELETE")
        self.server.sessions.discard(self.headers.get("mcp-session-id", ""))
        self.reply(200, b"")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        say(message["method"])
        if self.server.oddity == "status-everywhere":
            self.reply(int(self.server.argument), b"no")
        elif message["method"] == "initialize":
            self.initialize(message)
        elif self.headers.get("mcp-session-id") not in self.server.sessions:
            self.error(message, -32600, "Session not found" if "mcp-session-id" in self.headers else "no session", 404)
        elif "id" not in message:
            self.reply(202, b"")
        elif message["method"] == "resources/list":
            self.result(message, {"resources": [{"uri": uri, "name": uri} for uri in URIS]})
        elif message["method"] == "resources/read":
            self.read(message)
        else:
            self.error(message, -32601, "Method not found")

    def initialize(self, message: Any) -> None:
        session = uuid4().hex
        self.server.sessions.add(session)
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"resources": {}},
            "serverInfo": {"name": "odd", "version": "1"},
        }
        self.result(message, result, session)

    def read(self, message: Any) -> None:
        uri, oddity = message["params"]["uri"], self.server.oddity
        self.server.odd_reads += uri == "odd://a"
        if uri != "odd://a" or oddity == "none" or (oddity in ("reset-once", "forgets") and self.server.odd_reads > 1):
            self.result(message, {"contents": [{"uri": uri, "text": f"content of {uri}\n"}]})
            return
        getattr(self, "odd_" + oddity.replace("-", "_"))(message)

    def odd_status(self, message: Any) -> None:
        self.reply(int(self.server.argument), b"no", "text/plain")

    def odd_error_body(self, message: Any) -> None:
        self.error(message, -32603, f"cannot use {self.headers.get('authorization')}", 500)

    def odd_reset(self, message: Any) -> None:
        # Linger 0 makes `close` send RST.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    odd_reset_once = odd_reset

    def odd_cut(self, message: Any) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b'{"jsonrpc": "2.0", ')
        self.close_connection = True

    def odd_html(self, message: Any) -> None:
        self.reply(200, b"<html>please log in</html>", "text/html")

    def odd_not_json(self, message: Any) -> None:
        self.reply(200, b"<html>please log in</html>", "application/json")

    def odd_huge(self, message: Any) -> None:
        self.result(message, {"contents": [{"uri": "odd://a", "text": "x" * int(self.server.argument)}]})

    def odd_forgets(self, message: Any) -> None:
        self.server.sessions.clear()
        self.error(message, -32600, "Session not found", 404)

    def odd_event_cut(self, message: Any) -> None:
        self.reply(200, b": nothing comes\n\n", "text/event-stream")

    def odd_event_resumed(self, message: Any) -> None:
        self.server.odd_id = message["id"]
        self.reply(200, b"id: first\ndata:\n\nretry: 1\n\n", "text/event-stream")

    def odd_elsewhere(self, message: Any) -> None:
        self.reply(307, b"", location="http://example.invalid/mcp?token=abcd")

    def result(self, message: Any, result: Any, session: str | None = None) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        headers = {} if session is None else {"mcp-session-id": session}
        self.reply(200, body, "application/json", **headers)

    def error(self, message: Any, code: int, text: str, status: int = 200) -> None:
        body = {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": code, "message": text}}
        self.reply(status, json.dumps(body).encode(), "application/json")

    def reply(self, status: int, body: bytes, content_type: str = "text/plain", **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class OddServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, oddity: str, argument: str) -> None:
        super().__init__(("127.0.0.1", 0), Odd)
        self.oddity = oddity
        self.argument = argument
        self.sessions: set[str] = set()
        self.odd_reads = 0
        self.odd_id: int | str = 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("oddity", choices=ODDITIES)
    parser.add_argument("argument", nargs="?", default="")
    options = parser.parse_args()
    with OddServer(options.oddity, options.argument) as server:
        print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
