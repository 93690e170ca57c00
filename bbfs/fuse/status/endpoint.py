"""The metrics of a mount over HTTP, for Prometheus to scrape: `GET /metrics`, and nothing else.

All who reach the address may read the metrics. At an address of this machine (127.0.0.1), a request must name this
machine as its host: a web page whose name was rebound to the address gets nothing. A client has `WITHIN` seconds,
`LARGEST` bytes and one request; there are `MOST` at once.
"""

import errno
import ipaddress
import logging
from collections.abc import Callable
from typing import Any

import h11
import trio

from bbfs.fuse.status import metrics
from bbfs.model.errors import ConfigError

log = logging.getLogger(__name__)

PATH = b"/metrics"
WITHIN = 5.0
REFUSED_WITHIN = 0.5
"""Seconds for a client that is one too many."""
LARGEST = 16 << 10
"""Bytes of the head of a request."""
MOST = 16
_LOOPBACK = frozenset((b"127.0.0.1", b"localhost", b"[::1]"))


class Endpoint:
    """Answers at an address. state: returns the state of the mount. within: seconds for a client."""

    def __init__(
        self, address: tuple[str, int], state: Callable[[], dict[str, Any]], *, within: float = WITHIN
    ) -> None:
        self._host, self._port = address
        self._state = state
        self._within = within
        self._clients = 0

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Report the port as the task status. Raise ConfigError."""
        try:
            listeners = await trio.open_tcp_listeners(self._port, host=self._host)
        except OSError as error:
            remedy = "; '--metrics HOST:0' takes a free port" if error.errno == errno.EADDRINUSE else ""
            raise ConfigError(f"metrics: {self._host}:{self._port}: {error.strerror or error}{remedy}") from None
        port = listeners[0].socket.getsockname()[1]
        log.info("metrics at http://%s:%d%s", self._host, port, PATH.decode())
        task_status.started(port)
        await trio.serve_listeners(self._serve, listeners)

    async def _serve(self, stream: trio.SocketStream) -> None:
        self._clients += 1
        try:
            async with stream:
                is_one_too_many = self._clients > MOST
                with trio.move_on_after(REFUSED_WITHIN if is_one_too_many else self._within):
                    status, body = (503, b"") if is_one_too_many else await self._answered(stream)
                    await stream.send_all(_response(status, body))
                    await stream.send_eof()
                    # A close with bytes that nobody has read would reset the connection, and take the answer along.
                    while await stream.receive_some(LARGEST):
                        pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            log.debug("a client of the metrics is gone")
        except Exception:
            log.exception("unforeseen error at the metrics")  # the mount goes on
        finally:
            self._clients -= 1

    async def _answered(self, stream: trio.SocketStream) -> tuple[int, bytes]:
        """Read one request, and return status and body of its answer."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LARGEST)
        try:
            while (event := connection.next_event()) is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some(LARGEST))
        except h11.RemoteProtocolError as error:
            return error.error_status_hint, b""
        if not isinstance(event, h11.Request):
            return 400, b""
        hosts = [value for name, value in event.headers if name == b"host"]
        if self._is_local and (len(hosts) != 1 or _without_port(hosts[0].lower()) not in _LOOPBACK):
            return 421, b""
        if event.method != b"GET":
            return 405, b""
        if event.target.partition(b"?")[0] != PATH:
            return 404, b""
        return 200, metrics.exposition(self._state())

    @property
    def _is_local(self) -> bool:
        try:
            return ipaddress.ip_address(self._host).is_loopback
        except ValueError:
            return self._host == "localhost"


def _without_port(host: bytes) -> bytes:
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host


def _response(status: int, body: bytes) -> bytes:
    connection = h11.Connection(h11.SERVER)
    headers = [("content-type", metrics.MEDIA_TYPE), ("content-length", str(len(body))), ("connection", "close")]
    head = connection.send(h11.Response(status_code=status, headers=headers)) or b""
    return head + (connection.send(h11.Data(data=body)) or b"") if body else head
