"""HTTP servers in threads of the test's own process."""

from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from threading import Thread
from typing import Any


class Answers(BaseHTTPRequestHandler):
    """Answers requests of any method on connections that stay open, and writes nothing."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self) -> None:
        raise NotImplementedError

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def reply(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class HttpServer:
    """A server that runs from now on until it is closed. answers: the class of its answers. context: of TLS."""

    def __init__(self, answers: type[BaseHTTPRequestHandler], context: SSLContext | None = None) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), answers)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.port = self._server.server_port
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
