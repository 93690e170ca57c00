"""The end of a login in the browser: one redirect to a port of this machine (RFC 8252, 7.3).

The browser waits for the outcome of the login, so that its last page can show it.
"""

import html
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trio
from mcp.shared.auth import AuthorizationCodeResult

from bbfs.model.errors import ConfigError, Denied

_HOST = "127.0.0.1"
_PATH = "/callback"
_REQUEST_TIMEOUT = 10.0
"""Seconds for a client to send its request."""
_OUTCOME_TIMEOUT = 60.0
"""Seconds that a browser waits for the outcome."""
_LAST_PAGE_TIMEOUT = 2.0
_MAX_TEXT = 300
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>bbfs</title>
<style>
  body {{ font: 18px/1.5 system-ui, sans-serif; margin: 0; min-height: 100vh; display: grid; place-items: center;
         background: #f4f5f7; color: #1c2430 }}
  main {{ background: #fff; border-radius: 12px; padding: 2.5rem 3rem; max-width: 30rem; border-top: 6px solid {colour};
         box-shadow: 0 2px 12px #0002 }}
  h1 {{ font-size: 1.4rem; margin: 0 0 .5rem }} p {{ margin: 0 }}
  @media (prefers-color-scheme: dark) {{
    body {{ background: #14181f; color: #e6e9ee }} main {{ background: #1f2630 }}
  }}
</style></head><body><main><h1>{heading}</h1><p>{text}</p></main></body></html>
"""


class Loopback:
    """A web server on 127.0.0.1 from construction until `close`, in its own threads. One trio task uses it.

    port: 0 for any free one. Raises ConfigError if it cannot listen on the port.
    """

    def __init__(self, port: int, source: str) -> None:
        try:
            self._server = _Server((_HOST, port), _Handler)
        except OSError as error:
            raise ConfigError(f"port {port} of {_HOST} cannot be listened on: {error.strerror}") from None
        self._server.loopback = self
        self._source = source
        self._token = trio.lowlevel.current_trio_token()
        self._answered = trio.Event()
        self._answer: dict[str, str] = {}
        self._state: str | None = None
        self._ended = threading.Event()
        self._shown = threading.Event()
        self._failure: str | None = None
        self._taken = threading.Lock()
        self._thread = threading.Thread(target=self._server.serve_forever, name="login", daemon=True)
        self._thread.start()

    @property
    def redirect_uri(self) -> str:
        return f"http://{_HOST}:{self._server.server_port}{_PATH}"

    def expect(self, authorization_url: str) -> None:
        """Accept only an answer with the `state` of this request."""
        self._state = parse_qs(urlsplit(authorization_url).query).get("state", [""])[0]

    async def answer(self) -> AuthorizationCodeResult:
        """Wait for the answer of the authorization server. Raises Denied if it refuses."""
        await self._answered.wait()
        said = self._answer
        if "code" in said:
            return AuthorizationCodeResult(code=said["code"], state=said.get("state"), iss=said.get("iss"))
        error, description = said.get("error", "no code and no error"), said.get("error_description", "")
        reason = "you, or the server, refused it" if error == "access_denied" else error[:_MAX_TEXT]
        raise Denied(f"the login was refused: {reason}" + (f" ({description[:_MAX_TEXT]})" if description else ""))

    def end(self, failure: str | None = None) -> None:
        """Let the browser show the outcome: success, or this failure."""
        if not self._ended.is_set():
            self._failure = failure
            self._ended.set()

    def close(self) -> None:
        """Stop listening, after the browser has got its last page. Blocks for a few seconds at most."""
        self.end("The login was given up.")
        if self._answered.is_set():
            self._shown.wait(_LAST_PAGE_TIMEOUT)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def shown(self) -> None:
        """Note that a page was sent. Called in a thread."""
        if self._ended.is_set():
            self._shown.set()

    def page(self, target: str) -> tuple[HTTPStatus, bytes]:
        """Return the answer to a browser's request. Called in a thread."""
        parts = urlsplit(target)
        if parts.path != _PATH:
            return HTTPStatus.NOT_FOUND, _page("There is nothing here", "bbfs waits for a login to end.", False)
        said = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if self._state is None or said.get("state") != self._state:
            text = "This is not the answer to the login that bbfs waits for. Begin again with bbfs login."
            return HTTPStatus.BAD_REQUEST, _page("Not accepted", text, False)
        if self._taken.acquire(blocking=False):
            self._answer = said
            self._token.run_sync_soon(self._answered.set)
        if not self._ended.wait(_OUTCOME_TIMEOUT):
            return HTTPStatus.OK, _page("Nearly there", "See the terminal for what becomes of the login.", True)
        if self._failure is not None:
            return HTTPStatus.OK, _page("The login failed", self._failure, False)
        text = f"bbfs is logged in to {self._source}. You can close this window."
        return HTTPStatus.OK, _page("Logged in", text, True)


class _Server(ThreadingHTTPServer):
    # Browsers keep idle connections open; do not wait for them.
    daemon_threads = True
    block_on_close = False
    loopback: Loopback


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_TIMEOUT
    server_version = "bbfs"
    sys_version = ""

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        status, body = self.server.loopback.page(self.path)
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        self.server.loopback.shown()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the request contains the code."""


def _page(heading: str, text: str, well: bool) -> bytes:
    colour = "#2e9e5b" if well else "#d0473c"
    return _PAGE.format(heading=html.escape(heading), text=html.escape(text), colour=colour).encode()
