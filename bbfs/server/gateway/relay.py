"""What servers say while they work: progress, log messages, changes of their lists, and questions to the user.

A question belongs to the one client whose requests the server works on. A client of the handshake era sets the level of
the messages that it gets; since 2026-07-28 a request says itself which messages it wants.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, get_args

import mcp_types as types
import trio
from mcp.server.connection import Connection
from mcp.shared.subscriptions import PromptsListChanged, ServerEvent, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from bbfs.model.calls import Progress
from bbfs.model.errors import BbfsError, NotSupported
from bbfs.model.redaction import Cut, printable
from bbfs.model.values import Change
from bbfs.resources.commands.calls import while_it_goes_on
from bbfs.resources.source import Source
from bbfs.server.gateway.questions import can_answer, declared, put, question_of, suspends
from bbfs.server.gateway.suspended import Suspendable, Suspended
from bbfs.server_parts.subscribers import Context, connection_of
from bbfs.sources.gateway import OfferedKind

log = logging.getLogger(__name__)

LEVELS: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)
"""The least severe first."""
MOST_WAITING = 100
"""Messages and progresses that wait for one client to read; further ones are dropped."""
LONGEST_MESSAGE = 16 << 10
"""Characters of the data of a log message as JSON; of a longer one, clients get the beginning as a text."""
_LONGEST_LOGGER = 100
_WAITING = Progress(0.0)
"""Stands for a client that has a question to answer: the time for the request begins again, and nothing is sent."""
_STATE_KEY = "bbfs.log"
_CHANGED: Mapping[OfferedKind, Callable[[], ServerEvent]] = {"tools": ToolsListChanged, "prompts": PromptsListChanged}
Said: TypeAlias = Progress | types.LoggingMessageNotificationParams


@dataclass(eq=False, slots=True)
class _Call:
    """A request of a client that a server is working on. level: of the messages that it asks for.

    questions: of the server, that the client has not answered. asked: set by the first one.
    """

    state: Suspendable[Any]
    level: types.LoggingLevel | None
    said: trio.MemorySendChannel[Said]
    questions: int = 0
    asked: trio.Event = field(default_factory=trio.Event)


@dataclass(eq=False, slots=True)
class _Reader:
    """A client of the handshake era that has set a level."""

    level: types.LoggingLevel
    said: trio.MemorySendChannel[types.LoggingMessageNotificationParams]


_CURRENT: ContextVar[_Call | None] = ContextVar("call", default=None)
"""The call in whose task something happens: a server of 2026-07-28 asks in its answer."""


class Relay:
    """Passes on what the servers say. notify: tells all clients of a change. nursery: for the tasks that send."""

    def __init__(self, nursery: trio.Nursery, notify: Callable[[ServerEvent], None]) -> None:
        self._nursery = nursery
        self._notify = notify
        self._readers: set[_Reader] = set()
        self._calls: dict[str, set[_Call]] = {}
        self._changed: dict[str, set[OfferedKind]] = {}
        self._clients: dict[Connection, types.ClientCapabilities] = {}
        self._modern: dict[str, Any] = {}
        self._suspended = Suspended(nursery)
        self._follow: dict[str, Callable[[], Awaitable[None]]] = {}

    def audience(self, source: Source, follow: Callable[[], Awaitable[None]]) -> "SourceAudience":
        """Return the clients as one source sees them. follow: tells its server the level that they want."""
        self._follow[source.data.id] = follow
        return SourceAudience(source, self)

    # -- calls and their progress ------------------------------------------------------------------------------------

    async def send(
        self,
        ctx: Context,
        source: Source,
        given: types.InputResponseRequestParams,
        key: Hashable,
        ask: Callable[[Callable[[Progress], None]], Awaitable[Mapping[str, Any]]],
    ) -> Mapping[str, Any] | types.InputRequiredResult:
        """Send a request of a client to a source, and pass on what the source says meanwhile. Raise BbfsError, Fault.

        given: its parameters. key: what the client has to repeat when it answers questions.
        """
        if given.request_state is not None:
            responses = given.input_responses or {}
            return await self._suspended.resume(ctx, given.request_state, key, responses)
        state: Suspendable[Mapping[str, Any]] = Suspendable(key, ctx)
        run = partial(self._send, ctx, state, source, ask)
        return await (self._suspended.begin(state, run) if suspends(ctx) else run())

    async def _send(
        self,
        ctx: Context,
        state: Suspendable[Any],
        source: Source,
        ask: Callable[[Callable[[Progress], None]], Awaitable[Mapping[str, Any]]],
    ) -> Mapping[str, Any]:
        send, receive = trio.open_memory_channel[Said](MOST_WAITING)
        call = _Call(state, _asked_level(ctx), send)
        failure: BbfsError | None = None
        answer: Mapping[str, Any] = {}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_pass_on, state, receive)
            with send, self._under_way(source.data.id, call):
                try:
                    if call.level is not None:
                        await self._follow[source.data.id]()
                    asking = partial(self._asking, call, ask, source.data.policy.timeout / 4)
                    answer = await while_it_goes_on(source, asking, partial(_offer, send))
                except BbfsError as error:
                    failure = error
        if failure is not None:
            raise failure
        return answer

    async def _asking(
        self,
        call: _Call,
        ask: Callable[[Callable[[Progress], None]], Awaitable[Mapping[str, Any]]],
        pause: float,
        progress: Callable[[Progress], None],
    ) -> Mapping[str, Any]:
        """Send a request. While the client has a question to answer, its time begins again, every `pause` seconds."""
        keeping = trio.CancelScope()

        async def keep() -> None:
            with keeping:
                await call.asked.wait()
                while True:
                    if call.questions:
                        progress(_WAITING)
                    await trio.sleep(pause)

        failure: BbfsError | None = None
        answer: Mapping[str, Any] = {}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep)
            try:
                answer = await ask(progress)
            except BbfsError as error:
                failure = error
            keeping.cancel()
        if failure is not None:
            raise failure
        return answer

    @contextmanager
    def _under_way(self, source_id: str, call: _Call) -> Iterator[None]:
        calls = self._calls.setdefault(source_id, set())
        calls.add(call)
        current = _CURRENT.set(call)
        try:
            yield
        finally:
            _CURRENT.reset(current)
            calls.discard(call)

    # -- log messages ------------------------------------------------------------------------------------------------

    @property
    def level(self) -> types.LoggingLevel | None:
        """The least severe level that any client wants; None if none wants messages."""
        wanted = {reader.level for reader in self._readers}
        wanted |= {call.level for calls in self._calls.values() for call in calls if call.level is not None}
        return next((level for level in LEVELS if level in wanted), None)

    def set_level(self, ctx: Context, level: types.LoggingLevel) -> None:
        """Send a client of the handshake era messages from a level on."""
        connection = connection_of(ctx)
        reader: _Reader | None = connection.state.get(_STATE_KEY)
        if reader is None:
            send, receive = trio.open_memory_channel[types.LoggingMessageNotificationParams](MOST_WAITING)
            reader = connection.state[_STATE_KEY] = _Reader(level, send)
            self._readers.add(reader)
            self._nursery.start_soon(_send_messages, connection, receive)
            connection.exit_stack.callback(self._forget, reader)
        reader.level = level
        for follow in self._follow.values():
            self._nursery.start_soon(follow)

    def _forget(self, reader: _Reader) -> None:
        self._readers.discard(reader)
        reader.said.close()

    def logged(self, source: Source, message: types.LoggingMessageNotificationParams) -> None:
        """Pass a message of a server on."""
        rank = LEVELS.index(message.level)
        for reader in self._readers:
            if rank >= LEVELS.index(reader.level):
                _offer(reader.said, message)
        for call in self._calls.get(source.data.id, ()):
            if call.level is not None and rank >= LEVELS.index(call.level):
                _offer(call.said, message)

    # -- questions ---------------------------------------------------------------------------------------------------

    def met(self, ctx: Context) -> None:
        """Note what a client offers; a client of the handshake era does until its connection ends."""
        capabilities = ctx.session.client_capabilities
        if capabilities is None:
            return
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._modern.update(declared(capabilities))
            return
        connection = connection_of(ctx)
        if connection not in self._clients:
            self._clients[connection] = capabilities
            connection.exit_stack.callback(self._clients.pop, connection, None)

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities that the clients have together."""
        return {**self._modern, **declared(*self._clients.values())}

    async def ask(self, source: Source, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the client whose request a server works on. Raise NotSupported, MCPError.

        A server of the handshake era does not say to which request a question belongs: it is refused if there are
        several clients.
        """
        call = _CURRENT.get() or self._only_call(source)
        ctx = call.state.ctx
        if ctx is None or not can_answer(ctx, method, params):
            raise NotSupported("the client does not offer it")
        request = question_of(source.data.name, method, params)
        call.questions += 1
        call.asked.set()
        try:
            answer = await (call.state.ask(request) if suspends(ctx) else put(ctx, request))
        finally:
            call.questions -= 1
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta", "result_type"})

    def _only_call(self, source: Source) -> _Call:
        """Return a call of the only client whose requests a server works on. Raise NotSupported."""
        calls = [call for call in self._calls.get(source.data.id, ()) if call.state.ctx is not None]
        clients = {connection_of(call.state.ctx) for call in calls if call.state.ctx is not None}
        if len(clients) != 1:
            raise NotSupported("several clients wait for the server" if clients else "no client waits for the server")
        return calls[0]

    # -- changes of lists --------------------------------------------------------------------------------------------

    def list_changed(self, source: Source, kind: OfferedKind) -> None:
        """Note that the list of tools or prompts of a server has changed. `changed` tells the clients."""
        self._changed.setdefault(source.data.id, set()).add(kind)

    def changed(self, change: Change) -> None:
        """Tell the clients of lists that have changed, once the source is going to be listed again."""
        if change.event in ("listed", "missed"):
            for kind in sorted(self._changed.pop(change.source_id, ())):
                self._notify(_CHANGED[kind]())


@dataclass(frozen=True, slots=True)
class SourceAudience:
    """The clients of this server, as the server of one source sees them."""

    source: Source
    relay: Relay = field(repr=False)

    @property
    def level(self) -> str | None:
        return self.relay.level

    def logged(self, params: Mapping[str, Any], cut: Cut) -> None:
        level, logger, data = params.get("level"), params.get("logger"), params.get("data")
        if level not in LEVELS or self.relay.level is None:
            return
        name = self.source.data.name
        if isinstance(logger, str) and logger:
            name += "/" + printable(cut(logger, _LONGEST_LOGGER))
        whole = json.dumps(data, ensure_ascii=False)
        shown = cut(whole, LONGEST_MESSAGE)
        if isinstance(data, str):
            data = cut(data, LONGEST_MESSAGE)
        elif shown != whole:
            data = shown
        self.relay.logged(self.source, types.LoggingMessageNotificationParams(level=level, logger=name, data=data))

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self.relay.capabilities

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self.relay.ask(self.source, method, params)

    def list_changed(self, kind: OfferedKind) -> None:
        self.relay.list_changed(self.source, kind)


def _asked_level(ctx: Context) -> types.LoggingLevel | None:
    """Return the level of the messages that a request asks for itself, as it can since 2026-07-28."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return None
    level = (ctx.meta or {}).get(types.LOG_LEVEL_META_KEY)
    return level if level in LEVELS else None


def _offer(channel: "trio.MemorySendChannel[Any]", said: Any) -> None:
    """Queue what a server says, unless the client is too far behind."""
    if said is _WAITING:
        return
    try:
        channel.send_nowait(said)
    except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
        log.debug("a client reads too slowly: dropped %s", type(said).__name__)


async def _pass_on(state: Suspendable[Any], receive: "trio.MemoryReceiveChannel[Said]") -> None:
    """Send what a server says during a request, before its answer; nothing while the client has to answer."""
    async for said in receive:
        if (ctx := state.ctx) is None:
            continue
        if isinstance(said, Progress):
            await ctx.session.report_progress(said.done, said.total, said.text)
        else:
            await ctx.session.send_notification(types.LoggingMessageNotification(params=said), ctx.request_id)


async def _send_messages(
    connection: Connection, receive: "trio.MemoryReceiveChannel[types.LoggingMessageNotificationParams]"
) -> None:
    async for said in receive:
        data = said.model_dump(by_alias=True, mode="json", exclude_none=True)
        await connection.outbound.notify("notifications/message", data)
