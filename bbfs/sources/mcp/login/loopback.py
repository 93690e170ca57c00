"""The end of a login in the browser: one redirect to a port of this machine (RFC 8252, 7.3).

The browser waits for the outcome of the login, so that its last page can show it.
"""

import html
import socket
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import trio
from mcp.shared.auth import AuthorizationCodeResult

from bbfs.model.errors import ConfigError, Denied

_HOST = "127.0.0.1"
_PATH = "/callback"
_REQUEST_TIMEOUT = 10.0
"""Seconds for a client to send its request, and to take the answer."""
_LONGEST_REQUEST = 1 << 16
"""Bytes of a request with its headers."""
_OUTCOME_TIMEOUT = 60.0
"""Seconds that a browser waits for the outcome."""
_LAST_PAGE_TIMEOUT = 2.0
_MAX_TEXT = 300
_HEADERS = """HTTP/1.1 {status} {phrase}\r
Content-Type: text/html; charset=utf-8\r
Content-Length: {size}\r
Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r
Referrer-Policy: no-referrer\r
Cache-Control: no-store\r
Connection: close\r
\r
"""
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


def redirect_uri(port: int) -> str:
    """Return the URI that the browser is sent back to. port: 0 for any, which the URI then does not name."""
    return f"http://{_HOST}{f':{port}' if port else ''}{_PATH}"


class Loopback:
    """A web server on 127.0.0.1 from construction until `close`.

    port: 0 for any free one. source: for the last page. Raises ConfigError if it cannot listen on the port.
    """

    def __init__(self, port: int, source: str) -> None:
        try:
            listening = socket.create_server((_HOST, port))
        except OSError as error:
            raise ConfigError(f"port {port} of {_HOST} cannot be listened on: {error.strerror}") from None
        self.redirect_uri = redirect_uri(listening.getsockname()[1])
        self._source = source
        self._answered = trio.Event()
        self._answer: dict[str, str] = {}
        self._state: str | None = None
        self._ended = trio.Event()
        self._shown = trio.Event()
        self._failure: str | None = None
        self._serving = trio.CancelScope()
        trio.lowlevel.spawn_system_task(self._serve, listening, name="the end of a login")

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

    async def close(self) -> None:
        """Stop listening, after the browser has got its last page. Takes a few seconds at most."""
        self.end("The login was given up.")
        if self._answered.is_set():
            with trio.move_on_after(_LAST_PAGE_TIMEOUT):
                await self._shown.wait()
        self._serving.cancel()

    async def _serve(self, listening: socket.socket) -> None:
        with self._serving:
            await trio.serve_listeners(self._respond, [trio.SocketListener(trio.socket.from_stdlib_socket(listening))])

    async def _respond(self, stream: trio.SocketStream) -> None:
        """Answer one request. Log nothing: the request contains the code."""
        request = b""
        try:
            with trio.fail_after(_REQUEST_TIMEOUT):
                while b"\r\n\r\n" not in request and len(request) <= _LONGEST_REQUEST:
                    piece = await stream.receive_some()
                    if not piece:
                        return
                    request += piece
            method, target, *_ = (*request.partition(b"\r\n")[0].decode("latin-1").split(" "), "", "")
            status, page = await self._page(target if method == "GET" else "")
            head = _HEADERS.format(status=status.value, phrase=status.phrase, size=len(page))
            with trio.fail_after(_REQUEST_TIMEOUT):
                await stream.send_all(head.encode() + page)
        except (OSError, ValueError, trio.TooSlowError, trio.BrokenResourceError):
            return  # that client gets no page
        if self._ended.is_set():
            self._shown.set()

    async def _page(self, target: str) -> tuple[HTTPStatus, bytes]:
        """Return the answer to a browser's request, once the outcome of the login is known."""
        parts = urlsplit(target)
        if parts.path != _PATH:
            return HTTPStatus.NOT_FOUND, _page("There is nothing here", "bbfs waits for a login to end.", False)
        said = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if self._state is None or said.get("state") != self._state:
            text = "This is not the answer to the login that bbfs waits for. Begin again with bbfs login."
            return HTTPStatus.BAD_REQUEST, _page("Not accepted", text, False)
        if not self._answered.is_set():
            self._answer = said
            self._answered.set()
        with trio.move_on_after(_OUTCOME_TIMEOUT):
            await self._ended.wait()
        if not self._ended.is_set():
            return HTTPStatus.OK, _page("Nearly there", "See the terminal for what becomes of the login.", True)
        if self._failure is not None:
            return HTTPStatus.OK, _page("The login failed", self._failure, False)
        text = f"bbfs is logged in to {self._source}. You can close this window."
        return HTTPStatus.OK, _page("Logged in", text, True)


def _page(heading: str, text: str, well: bool) -> bytes:
    colour = "#2e9e5b" if well else "#d0473c"
    return _PAGE.format(heading=html.escape(heading), text=html.escape(text), colour=colour).encode()
