"""A raw MCP server over Streamable HTTP whose event streams a test holds in its hand.

    streams.py [--modern] [--port PORT]

Standard library only. It prints its URL, then a line for everything that happens: each method, `GET`, `DELETE`,
`cancelled` for a notification that cancels a read, `hung` for a read that hangs, `closed` when a client leaves it. It
lists `odd://a`; reads of `odd://hung` are not answered. `POST /control/ACTION` makes it act:

    changed   announce that `odd://a` and the listing have changed, on every stream
    renew     have another text, `text 1`, `text 2`, …, and announce that
    flood     announce 1000 times what has not changed
    forget    forget all sessions, and break off their streams
"""

import argparse
import json
import os
import queue
import select
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


def say(text: str) -> None:
    """Print a line by one write: lines of two threads never mix."""
    os.write(sys.stdout.fileno(), f"{text}\n".encode())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body would wait 40 ms for the acknowledgement of its headers
    server: "StreamServer"  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        say("GET")
        if self.server.modern:
            self.reply(405)
        elif self.headers.get("mcp-session-id") not in self.server.sessions:
            self.reply(404)
        else:
            self.stream({})

    def do_DELETE(self) -> None:
        say("DELETE")
        self.reply(200)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.startswith("/control/"):
            self.server.act(self.path.removeprefix("/control/"))
            self.reply(200)
            return
        message = json.loads(body)
        method = message["method"]
        say("cancelled" if method == "notifications/cancelled" else method)
        known = self.server.modern or method in ("initialize", "server/discover")
        if not known and self.headers.get("mcp-session-id") not in self.server.sessions:
            self.reply(404)
        elif "id" not in message:
            self.reply(202)
        else:
            self.request_of(message, method)

    def request_of(self, message: Any, method: str) -> None:
        resources = {"resources": {"subscribe": True, "listChanged": True}}
        complete = {"resultType": "complete"} if self.server.modern else {}
        match method:
            case "server/discover" if self.server.modern:
                cached = {"ttlMs": 0, "cacheScope": "private"}
                versions = {"supportedVersions": ["2026-07-28"]}
                self.result(message, {**versions, "capabilities": resources, **complete, **cached})
            case "initialize" if not self.server.modern:
                session = uuid4().hex
                self.server.sessions.add(session)
                info = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "streams", "version": "1"}}
                self.result(message, {"capabilities": resources, **info}, session)
            case "subscriptions/listen" if self.server.modern:
                meta = {SUBSCRIPTION_ID: message["id"]}
                honored = message["params"]["notifications"]
                acknowledged = {"_meta": meta, "notifications": honored}
                self.stream(meta, notification("notifications/subscriptions/acknowledged", acknowledged))
            case "resources/list":
                self.result(message, {"resources": [{"uri": "odd://a", "name": "a"}], **complete})
            case "resources/read" if message["params"]["uri"] == "odd://hung":
                self.hang()
            case "resources/read":
                self.result(message, {"contents": [{"uri": "odd://a", "text": self.server.text}], **complete})
            case "ping" | "resources/subscribe" | "resources/unsubscribe" if not self.server.modern:
                self.result(message, {})
            case _:
                self.error(message)

    def hang(self) -> None:
        """Wait until the client closes the connection."""
        say("hung")
        select.select([self.connection], [], [])
        if not self.connection.recv(1, socket.MSG_PEEK):
            say("closed")
        self.close_connection = True

    def stream(self, meta: dict[str, Any], *first: Any) -> None:
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for message in first:
            self.event(message)
        self.server.streams.append(events)
        say("stream")
        while (method_and_params := events.get()) is not None:
            method, params = method_and_params
            self.event(notification(method, {**params, **({"_meta": meta} if meta else {})}))
        self.close_connection = True

    def event(self, message: Any) -> None:
        self.wfile.write(b"data: " + json.dumps(message).encode() + b"\n\n")
        self.wfile.flush()

    def result(self, message: Any, result: Any, session: str | None = None) -> None:
        headers = {} if session is None else {"mcp-session-id": session}
        self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, **headers)

    def error(self, message: Any) -> None:
        error = {"code": -32601, "message": "Method not found"}
        self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})

    def reply(self, status: int, body: Any = None, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def notification(method: str, params: Any) -> Any:
    return {"jsonrpc": "2.0", "method": method, "params": params}


class StreamServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, modern: bool) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.modern = modern
        self.text = "text"
        self.renewals = 0
        self.sessions: set[str] = set()
        self.streams: list[queue.SimpleQueue[Any]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients come and go as they like

    def act(self, action: str) -> None:
        match action:
            case "changed":
                for stream in self.streams:
                    stream.put(("notifications/resources/updated", {"uri": "odd://a"}))
                    stream.put(("notifications/resources/list_changed", {}))
            case "renew":
                self.renewals += 1
                self.text = f"text {self.renewals}"
                self.act("changed")
            case "flood":
                for _ in range(1000):
                    self.act("changed")
            case "forget":
                self.sessions.clear()
                streams, self.streams = self.streams, []
                for stream in streams:
                    stream.put(None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--modern", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    with StreamServer(options.port, options.modern) as server:
        say(f"http://127.0.0.1:{server.server_port}/mcp")
        server.serve_forever()


if __name__ == "__main__":
    main()
