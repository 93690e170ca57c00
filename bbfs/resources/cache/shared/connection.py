"""A connection to a Valkey or Redis server, or to the nodes of a cluster. No request waits for a connection.

One task owns the connection and receives published messages. A request that fails or takes too long ends the
connection for all. Until the next one is made, with back-off, requests return None at once. So an outage is one line in
the log, and costs one `timeout`.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import trio

from bbfs.model.errors import ConfigError, Unreachable
from bbfs.model.values import SharedCache
from bbfs.runtime.extras import needs

if TYPE_CHECKING:
    from coredis.client import Client

T = TypeVar("T")
log = logging.getLogger(__name__)

AT_ONCE = 16
"""Requests under way; more would wait for this process, which would look like a slow server."""
STEADY = 30.0
"""Lifetime (seconds) of a connection that resets the back-off."""
SILENCE = 5
"""Seconds without a message after which the server is pinged."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Times in seconds around a connection.

    connecting: the longest for one try to connect; no reader waits for it. start: how long the start of a mount waits
    for the first try. first_pause, longest_pause: the back-off between tries, which doubles from one to the other.
    lease: how long the server keeps a claim that its machine does not renew. following: the pause between questions to
    the sentinels for the present primary.
    """

    connecting: float = 2.0
    start: float = 3.0
    first_pause: float = 0.5
    longest_pause: float = 60.0
    lease: float = 3.0
    following: float = 5.0


USUAL_WAITS = Waits()


def require_client() -> None:
    """Raise ConfigError if the client library is not installed. Does not import it, which costs a second."""
    if find_spec("coredis") is None:
        raise ConfigError(f"[cache] shared {needs('shared')}")
    logging.getLogger("coredis").setLevel(logging.CRITICAL)  # it also logs, with tracebacks, what it raises


class Valkey:
    """The connection to one server or cluster. `run` owns it; `ask` may be called at any time.

    channel: the one to which `run` listens.
    """

    def __init__(self, settings: SharedCache, channel: str, waits: Waits = USUAL_WAITS) -> None:
        """Raises ConfigError if the client library is not installed."""
        require_client()
        self._settings = settings
        self._channel = channel
        self._waits = waits
        self._client: Client[bytes] | None = None
        self._module: Any = None
        """`client`, once it is imported."""
        self._places = trio.CapacityLimiter(AT_ONCE)
        self._scope = trio.CancelScope()
        self._reason: str | None = None
        self._answered = -math.inf
        self._started = False

    @property
    def up(self) -> bool:
        return self._client is not None

    @property
    def problem(self) -> str | None:
        """Why there is no connection, without secrets; None while there is one, and before the first try."""
        return None if self.up else self._reason

    async def ask(self, request: "Callable[[Client[bytes]], Awaitable[T]]") -> T | None:
        """Return the server's answer, or None without one in time. Raises nothing but cancellation."""
        if self._client is None:
            return None
        began, client = trio.current_time(), None
        try:
            with trio.fail_after(self._settings.timeout):  # bounds the wait for the limiter as well
                async with self._places:
                    client = self._client
                    if client is None:
                        return None
                    answer = await request(client)
            self._answered = trio.current_time()
            return answer
        except trio.TooSlowError:
            if (
                client is not None and self._client is client and self._answered <= began
            ):  # it has answered no other request either
                self.fail(f"no answer within {self._settings.timeout:g} s")
        except self._passing():
            log.debug("shared cache: a slot of the cluster is on its way to another node", exc_info=True)
        except Exception as error:  # any error makes the connection unusable
            log.debug("shared cache: a request failed", exc_info=True)
            if self._client is client:
                self.fail(_words(error))
        return None

    async def run_script(
        self, client: "Client[bytes]", text: str, keys: Sequence[str], arguments: Sequence[Any]
    ) -> Any:
        """Return the answer of a script to a request, see `ask`."""
        return await self._module.run_script(client, text, keys, arguments)

    def _passing(self) -> tuple[type[Exception], ...]:
        return self._module.PASSING

    def fail(self, reason: str) -> None:
        """End the connection. `run` makes a new one after a pause."""
        self._client, self._reason = None, reason
        self._scope.cancel()

    async def run(
        self,
        heard: Callable[[bytes], None],
        ready: "Callable[[Client[bytes], bool], Awaitable[None]]",
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep a connection until cancelled. Has started after the first try, or after `Waits.start`.

        heard: receives each message; it must neither block nor raise. ready: awaited on each new connection before its
        first use, when it already receives messages, with whether messages may have been missed since the start.
        """
        self._started = False

        def start() -> None:
            if not self._started:
                self._started = True
                task_status.started()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_later, self._waits.start, start)
            await self._keep(heard, ready, start)

    async def _keep(
        self,
        heard: Callable[[bytes], None],
        ready: "Callable[[Client[bytes], bool], Awaitable[None]]",
        tried: Callable[[], None],
    ) -> None:
        """Hold one connection after the other. tried: called after each try."""
        pause, told = self._waits.first_pause, False
        while True:
            connected: float | None = None
            async with trio.open_nursery() as nursery:
                done = await nursery.start(self._hold, heard, ready)
                if done is None:
                    connected = trio.current_time()
                    log.info("shared cache %s: %s", self._settings, "is there again" if told else "in use")
                    told = False
                tried()
            if connected is not None and trio.current_time() - connected >= STEADY:
                pause = self._waits.first_pause
            if not told:
                log.warning("shared cache %s: %s; going on without it", self._settings, self._reason)
                told = True
            await trio.sleep(pause)
            pause = min(2 * pause, self._waits.longest_pause)

    async def _hold(
        self,
        heard: Callable[[bytes], None],
        ready: "Callable[[Client[bytes], bool], Awaitable[None]]",
        *,
        task_status: trio.TaskStatus[str | None],
    ) -> None:
        """Hold one connection; `_reason` says why it ended. Has started with None, or with the reason of a failure."""
        within = self._waits.connecting
        self._scope = trio.CancelScope(deadline=trio.current_time() + within)
        connected, failure = False, None
        try:
            valkey_client = await _client_module()
            self._module = valkey_client
            self._scope.deadline = trio.current_time() + within
            with self._scope as scope:
                async with (
                    valkey_client.open_client(self._settings, within, self._waits.following) as client,
                    client.pubsub(
                        channels=[self._channel],
                        ignore_subscribe_messages=True,
                        retry_policy=None,
                        subscription_timeout=within,
                        max_idle_seconds=SILENCE,
                    ) as messages,
                ):
                    await client.ping()  # so that the connections for requests are there as well
                    await client.exists([self._channel])  # which a cluster refuses while slots of it have no node
                    await ready(client, self._started)
                    scope.deadline = math.inf
                    self._client, self._reason, connected = client, None, True
                    task_status.started(None)
                    async for message in messages:
                        if isinstance(data := message["data"], bytes):
                            heard(data)
        except* Exception as group:
            log.debug("shared cache: the connection failed", exc_info=True)
            failure = _words(_first(group))
        finally:
            self._client = None
        if connected:
            self._reason = self._reason or failure or "the connection ended"
        else:
            self._reason = failure or "no answer in time"
            task_status.started(self._reason)


async def probe(settings: SharedCache) -> str:
    """Connect once, and return name and version of the server. Raises ConfigError, and Unreachable with the reason."""
    require_client()
    version, reason = "", "no answer"
    try:
        valkey_client = await _client_module()
        with trio.move_on_after(USUAL_WAITS.connecting):
            async with valkey_client.open_client(settings, USUAL_WAITS.connecting, USUAL_WAITS.following) as client:
                found = await client.info("server")
                name = "Valkey" if "valkey_version" in found else "Redis"
                version = f"{name} {found.get('valkey_version') or found.get('redis_version')}"
    except* Exception as group:  # noqa: BLE001 - it is told, whatever it is
        reason = _words(_first(group))
    if not version:
        raise Unreachable(reason)
    return version


async def _later(seconds: float, start: Callable[[], None]) -> None:
    await trio.sleep(seconds)
    start()


async def _client_module() -> Any:
    """Import `client`, which needs the extra, in a thread: mounts serve meanwhile."""
    return await trio.to_thread.run_sync(import_module, "bbfs.resources.cache.shared.client", abandon_on_cancel=True)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _words(error: BaseException) -> str:
    """Return the reason for people: that of the cause, since a failed connection names the address only."""
    while isinstance(cause := error.__cause__ or error.__context__, Exception):
        error = _first(cause)
    if isinstance(error, TimeoutError | trio.TooSlowError):
        return "no answer in time"
    if isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError | anyio.EndOfStream | anyio.WouldBlock):
        return "the server closed the connection"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
