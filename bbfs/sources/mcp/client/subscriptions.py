"""Subscriptions to changes: `resources/subscribe` before protocol 2026-07-28, `subscriptions/listen` since.

Notifications come on top of the time to live: a server that refuses them is not asked again.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from math import inf

import mcp_types as types
import trio
from mcp.shared.exceptions import MCPError

from bbfs.model.uri import encodable
from bbfs.sources.mcp.client.errors import http_fault
from bbfs.sources.mcp.client.session import McpSession

log = logging.getLogger("bbfs.mcp")

MAX_INTERESTS = 256
_ASKED_EVERY, _ASKED_AT_LEAST = 1.0, 8.0
"""Seconds between two requests for other subscriptions, doubling while the interests go on changing."""
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0
"""Seconds between two tries after a failure, doubling."""
_SUBSCRIBING_AT_ONCE = 8
_SUBSCRIBED_TOGETHER = 64
"""Resources that `resources/subscribe` names one by one before the next pause."""


class Interests:
    """The latest `MAX_INTERESTS` native URIs whose changes bbfs wants to hear of, and what the server agreed to report.

    A connected server reports changes of `told`, and of its listing if `listing_told`. Synchronous, for one event loop.
    begun: called with each URI whose content was requested before the server agreed to report its changes, and with
    None for a listing, or for all that was requested from a server that took no subscriptions.
    lists: the lists that make the listing: `resources`, perhaps `tools` and `prompts`.

    The server is asked for other subscriptions at once after a calm second, and the more rarely the longer programs go
    on to read other resources. So a walk through thousands of files is a handful of requests.
    """

    def __init__(self, begun: Callable[[str | None], None] = lambda uri: None) -> None:
        self._begun = begun
        self._listing_unreported = False
        self._unreported: OrderedDict[str, None] = OrderedDict()
        self.takes_uris = True
        """False while a server is connected that takes no subscriptions to resources: then no load need add its URI."""
        self._left_out = False  # `_uris` lacks what was loaded then
        self.lists: frozenset[str] = frozenset(("resources",))
        self._uris: OrderedDict[str, None] = OrderedDict()
        self.changed = trio.Event()
        """Set, and replaced by a new one, when the set changes."""
        self.listing_told = False
        self.told: frozenset[str] = frozenset()
        self._asked: frozenset[str] | None = frozenset()
        self._connected = False
        self._answered = trio.Event()
        # In trio's clock: what is asked for right now, since when, when more may be asked for, and in which steps.
        self._asking: frozenset[str] = frozenset()
        self._asked_at = self._due = -inf
        self._every = _ASKED_EVERY
        self._hurried = trio.Event()

    @property
    def uris(self) -> tuple[str, ...]:
        return tuple(self._uris)

    def announces(self, uri: str | None) -> bool:
        """Return whether a connected server agreed to report changes of this resource, or of its listing (None)."""
        return self.listing_told if uri is None else uri in self.told

    def add(self, uri: str) -> None:
        """Add the URI of a resource. One that cannot be sent is left out."""
        if not encodable(uri):
            return
        known = uri in self._uris
        self._uris[uri] = None
        self._uris.move_to_end(uri)
        if known:
            return
        if len(self._uris) > MAX_INTERESTS:
            self._uris.popitem(last=False)
        self.changed.set()
        self.changed = trio.Event()

    def answered(self, *, listing: bool, told: Iterable[str], asked: Iterable[str] | None) -> None:
        """Note what the server agreed to report. asked: the URIs asked for so far; None: no URI will be asked for."""
        is_first, listing_missed = not self._connected, listing and self._listing_unreported
        self.listing_told, self.told, self._connected = listing, frozenset(told), True
        self._asked = None if asked is None else frozenset(asked)
        self.takes_uris = asked is not None
        contents_missed = self.takes_uris and self._left_out
        # One that refuses what it has offered in its greeting does so each time, and what was loaded stays.
        self._left_out = not self.takes_uris and (is_first or self._left_out)
        self._answered.set()
        self._answered = trio.Event()
        if listing_missed or contents_missed:
            self._listing_unreported = self._listing_unreported and not listing
            self._begun(None)
        for uri in [uri for uri in self._unreported if uri in self.told]:
            del self._unreported[uri]
            self._begun(uri)

    def requested(self, uri: str) -> None:
        """Note that a content is requested. A change before the server agrees to report changes may be missed."""
        if uri not in self.told:
            self._unreported[uri] = None
            if len(self._unreported) > MAX_INTERESTS:
                self._unreported.popitem(last=False)

    def listed(self) -> None:
        """Note that a listing is requested. A change before the server agrees to report changes may be missed."""
        self._listing_unreported = not self.listing_told

    async def listing_answered_for(self) -> None:
        """Wait until a server has answered if it reports changes of its listing. Set a deadline."""
        while not self._connected:
            await self._answered.wait()

    def is_asked_for(self, uri: str) -> bool:
        """Return whether a connected server is asked for a URI right now, and has not answered."""
        if not self._connected or self._asked is None or uri in self._asked or uri not in self._uris:
            return False
        return uri in self._asking or trio.current_time() >= self._due

    async def answered_for(self, uri: str) -> None:
        """Wait until a connected server has answered for a URI, if it is asked right now. Set a deadline."""
        while self.is_asked_for(uri):
            await self._answered.wait()

    def disconnected(self) -> None:
        """Note that the server reports nothing until it is connected again."""
        self.listing_told, self.told, self._connected, self.takes_uris = False, frozenset(), False, True
        self._asking, self._due, self._every = frozenset(), -inf, _ASKED_EVERY

    async def confirmed(self) -> None:
        """Wait until a connected server has answered for every URI. Set a deadline."""
        while not (self._connected and (self._asked is None or self._asked.issuperset(self._uris))):
            self._due = min(self._due, self._asked_at + _ASKED_EVERY)
            self._hurried.set()
            self._hurried = trio.Event()
            await self._answered.wait()

    def asking(self, uris: Iterable[str]) -> None:
        """Note that the server is asked for these URIs now."""
        self._asking = frozenset(uris)
        if self._asking:
            self._asked_at = trio.current_time()
            self._due = self._asked_at + self._every

    async def due(self, changed: trio.Event, *, left: bool = False) -> None:
        """Wait until the interests have changed, and until the server may be asked again.

        changed: the event `changed` of the interests that the server was asked for. left: some of them were left out.
        """
        if not left:
            await changed.wait()
        early = trio.current_time() < self._due
        while trio.current_time() < self._due:
            with trio.move_on_at(self._due):
                await self._hurried.wait()
        self._every = min(2 * self._every, _ASKED_AT_LEAST) if early and changed.is_set() else _ASKED_EVERY


class Subscriptions:
    """Sends the interests to the server of one session while `run` runs.

    hears: whether the server may report changes, so that the end of the session is a gap. subscribed: whether it agreed
    to a subscription, so that the session is kept without requests.
    timeout: seconds for one request. on_gap: called when the stream of events goes on after an interruption.
    """

    def __init__(self, session: McpSession, interests: Interests, timeout: float, on_gap: Callable[[], None]) -> None:
        self._session = session
        self._interests = interests
        self._timeout = timeout
        self._on_gap = on_gap
        capabilities = session.server.capabilities
        self._subscribe = "subscribe" in capabilities.get("resources", ())
        has = interests.lists & capabilities.keys()
        self._announced = {name for name in has if "listChanged" in capabilities[name]}
        # Tools or prompts of a server that does not announce them hardly ever change: they are no reason to poll.
        self._has = self._announced | (has & {"resources"})
        self.hears = bool(self._announced) and not session.modern
        self.subscribed = False
        self._asked: set[str] = set()
        self._accepted: set[str] = set()
        self._limiter = trio.CapacityLimiter(_SUBSCRIBING_AT_ONCE)
        self._refused = False

    async def run(self) -> None:
        """Subscribe, and again when the interests change, until cancelled."""
        try:
            if not self._session.modern:
                if self._subscribe:
                    await self._subscribe_each()
            elif self._announced or self._subscribe:
                await self._listen()
                self.subscribed = False
            self._answered((), None)  # refused
            await trio.sleep_forever()
        finally:
            self._interests.disconnected()

    def _answered(self, told: Iterable[str], asked: Iterable[str] | None, *, listing: bool | None = None) -> None:
        """Forward to `Interests.answered`. listing: None where it follows from the capabilities, as before `listen`."""
        if listing is None:
            listing = self._covers(self._announced) and not self._session.modern
        self._interests.answered(listing=listing, told=told, asked=asked)

    def _covers(self, announced: Collection[str]) -> bool:
        """Return whether these are all the lists that the server has and bbfs wants."""
        return bool(self._has) and self._has <= set(announced)

    def _agreed(self, subscribed: bool) -> None:
        """Note whether the server agreed to any subscription."""
        self.subscribed = subscribed
        self.hears = self.hears or subscribed

    # -- `resources/subscribe` for each of the interests, a few at a time --------------------------------------------

    async def _subscribe_each(self) -> None:
        pause = _FIRST_PAUSE
        while not self._refused:
            changed, wanted = self._interests.changed, self._interests.uris
            latest = [uri for uri in reversed(wanted) if uri not in self._asked][:_SUBSCRIBED_TOGETHER]
            superfluous = len(self._asked) + len(latest) - MAX_INTERESTS
            self._interests.asking(latest)
            await self._send("resources/unsubscribe", list(self._asked.difference(wanted))[: max(0, superfluous)])
            await self._send("resources/subscribe", latest)
            self._agreed(bool(self._accepted))
            self._answered(self._accepted, self._asked)
            if not self._asked.issuperset(latest):
                await trio.sleep(pause)
                pause = min(_LAST_PAUSE, 2 * pause)
                continue
            pause = _FIRST_PAUSE
            await self._interests.due(changed, left=not self._asked.issuperset(wanted))

    async def _send(self, method: str, uris: Iterable[str]) -> None:
        async with trio.open_nursery() as nursery:
            for uri in uris:
                nursery.start_soon(self._send_one, method, uri)

    async def _send_one(self, method: str, uri: str) -> None:
        self._asked.discard(uri)
        self._accepted.discard(uri)
        async with self._limiter:
            if self._refused:
                return
            try:
                with trio.move_on_after(self._timeout) as bound:
                    await self._session.exchange(method, {"uri": uri})
            except MCPError as exc:
                log.debug("%s refused: %s", method, exc.error.message)
                self._refused = exc.code == types.METHOD_NOT_FOUND
                if http_fault(exc.error) is not None:
                    return  # to be asked again: the server may never have got it
            else:
                if method == "resources/subscribe" and not bound.cancelled_caught:
                    self._accepted.add(uri)
        if method == "resources/subscribe":
            self._asked.add(uri)
            self._answered(self._accepted, self._asked)

    # -- one `subscriptions/listen` stream ---------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Hold a stream open. When the interests grow, a wider one replaces it without a gap."""
        async with trio.open_nursery() as nursery:
            current: _Stream | None = None
            pause = _FIRST_PAUSE
            while True:
                changed, following = self._interests.changed, _Stream()
                nursery.start_soon(self._hear, following)
                with trio.move_on_after(self._timeout):
                    await following.answered.wait()
                if following.opened is None:
                    following.scope.cancel()
                    if following.refused or (current is None and not following.answered.is_set()):
                        return  # it does not know what it was asked
                    await trio.sleep(pause)
                    pause = min(_LAST_PAUSE, 2 * pause)
                    continue
                if current is not None:
                    if current.ended.is_set():
                        self._on_gap()
                    current.scope.cancel()
                current = following
                await self._due_or_end(changed, current.ended)
                if not current.ended.is_set():
                    continue
                if trio.current_time() - following.opened > _LAST_PAUSE:
                    pause = _FIRST_PAUSE
                await trio.sleep(pause)
                pause = min(_LAST_PAUSE, 2 * pause)

    async def _hear(self, stream: "_Stream") -> None:
        uris = self._interests.uris if self._subscribe else ()
        self._interests.asking(uris)
        wanted = types.SubscriptionFilter(
            tools_list_changed="tools" in self._announced or None,
            prompts_list_changed="prompts" in self._announced or None,
            resources_list_changed="resources" in self._announced or None,
            resource_subscriptions=list(uris) or None,
        )

        def acknowledged(agreed: types.SubscriptionFilter) -> None:
            told = frozenset(agreed.resource_subscriptions or ())
            lists = {name for name in self._announced if getattr(agreed, f"{name}_list_changed")}
            self._agreed(bool(lists or told))
            self._answered(told, uris if self._subscribe else None, listing=self._covers(lists))
            stream.opened = trio.current_time()
            stream.answered.set()

        with stream.scope:
            try:
                await self._session.listen(wanted, acknowledged)
            except MCPError as exc:
                log.debug("listen stream refused or lost: %s", exc.error.message)
                stream.refused = exc.code in (types.METHOD_NOT_FOUND, types.INVALID_PARAMS)
        stream.ended.set()
        stream.answered.set()
        if stream.opened is not None and not stream.scope.cancel_called:  # no wider one has taken its place
            self._interests.disconnected()

    async def _due_or_end(self, changed: trio.Event, ended: trio.Event) -> None:
        async with trio.open_nursery() as nursery:

            async def first(wait: Callable[[], Awaitable[None]]) -> None:
                await wait()
                nursery.cancel_scope.cancel()

            if self._subscribe:
                nursery.start_soon(first, partial(self._interests.due, changed))
            nursery.start_soon(first, ended.wait)


@dataclass(slots=True, eq=False)
class _Stream:
    """One stream of events. opened: when the server acknowledged it, in trio's clock. ended: set when it ended.

    answered: set when the server acknowledged or ended it. refused: whether the server has no such streams.
    """

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    opened: float | None = None
    refused: bool = False
    answered: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)
