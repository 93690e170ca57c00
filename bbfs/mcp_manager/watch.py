"""Asking a server to tell what changes: `resources/subscribe` before protocol 2026-07-28, `subscriptions/listen` since.

Notifications are a bonus on top of the time to live: a server that refuses them is left alone.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable

import mcp_types as types
import trio
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError

from bbfs.mcp_manager.session import Session

log = logging.getLogger("bbfs.mcp")

MAX_INTERESTS = 256
_SETTLE = 0.05
"""Seconds to let a growing set of interests settle before it is sent."""
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0
"""Seconds between two tries to listen, doubling."""


class Interests:
    """The native URIs whose updates are wanted, the `MAX_INTERESTS` latest ones. Synchronous, for one event loop."""

    def __init__(self) -> None:
        self._uris: OrderedDict[str, None] = OrderedDict()
        self.changed = trio.Event()
        """Set, and replaced by a new one, when the set changes."""

    @property
    def uris(self) -> tuple[str, ...]:
        return tuple(self._uris)

    def add(self, uri: str) -> None:
        known = uri in self._uris
        self._uris[uri] = None
        self._uris.move_to_end(uri)
        if known:
            return
        if len(self._uris) > MAX_INTERESTS:
            self._uris.popitem(last=False)
        self.changed.set()
        self.changed = trio.Event()


async def watch(session: Session, interests: Interests, timeout: float, on_gap: Callable[[], None]) -> None:
    """Keep the server informed of what we want to hear, for as long as the session lives.

    timeout: seconds for one request. on_gap: called when events may have been missed.
    """
    capabilities = session.server_capabilities
    resources = capabilities.resources if capabilities else None
    if resources is None:
        return
    if session.modern:
        if resources.list_changed or resources.subscribe:
            await _Listener(session, interests, resources, timeout, on_gap).run()
    elif resources.subscribe:
        await _subscribe(session, interests, timeout)


async def _subscribe(session: Session, interests: Interests, timeout: float) -> None:
    subscribed: set[str] = set()
    while True:
        changed, wanted = interests.changed, interests.uris
        steps = [("resources/unsubscribe", uri) for uri in subscribed.difference(wanted)]
        steps += [("resources/subscribe", uri) for uri in wanted if uri not in subscribed]
        subscribed = set(wanted)
        for method, uri in steps:
            with trio.move_on_after(timeout) as bound:
                try:
                    await session.request(method, {"uri": uri})
                except MCPError as exc:
                    log.debug("%s refused: %s", method, exc.error.message)
                    if exc.code == types.METHOD_NOT_FOUND:
                        return
            if bound.cancelled_caught:
                return
        await changed.wait()


class _Listener:
    """One `subscriptions/listen` stream, replaced by a wider one when the interests grow, without a gap."""

    def __init__(
        self,
        session: Session,
        interests: Interests,
        resources: types.ResourcesCapability,
        timeout: float,
        on_gap: Callable[[], None],
    ) -> None:
        self._session = session
        self._interests = interests
        self._list_changed = bool(resources.list_changed)
        self._subscribe = bool(resources.subscribe)
        self._timeout = timeout
        self._on_gap = on_gap

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            current: trio.CancelScope | None = None
            pause, missed = _FIRST_PAUSE, False
            while True:
                changed, ended = self._interests.changed, trio.Event()
                following: trio.CancelScope | None = None
                try:
                    with trio.move_on_after(self._timeout):
                        following = await nursery.start(self._stream, ended)
                except (MCPError, SubscriptionLost) as exc:
                    if isinstance(exc, MCPError) and exc.code in (types.METHOD_NOT_FOUND, types.INVALID_PARAMS):
                        log.debug("listen refused: %s", exc.error.message)
                        return
                    await trio.sleep(pause)
                    pause = min(_LAST_PAUSE, 2 * pause)
                    continue
                if following is None:
                    return  # no acknowledgement in time
                if current is not None:
                    current.cancel()
                current = following
                if missed:
                    self._on_gap()
                opened = trio.current_time()
                await self._change_or_end(changed, ended)
                missed = ended.is_set()
                if missed:
                    pause = _FIRST_PAUSE if trio.current_time() - opened > _LAST_PAUSE else min(_LAST_PAUSE, 2 * pause)
                    await trio.sleep(pause)
                else:
                    await trio.sleep(_SETTLE)

    async def _stream(self, ended: trio.Event, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        uris = self._interests.uris if self._subscribe else ()
        with trio.CancelScope() as scope:
            async with listen(
                self._session, resources_list_changed=self._list_changed, resource_subscriptions=uris
            ) as subscription:
                task_status.started(scope)
                try:
                    # The session's message handler hands the events on; here the queue only needs emptying.
                    async for _ in subscription:
                        pass
                except SubscriptionLost as exc:
                    log.debug("listen stream lost: %s", exc)
            ended.set()

    async def _change_or_end(self, changed: trio.Event, ended: trio.Event) -> None:
        async with trio.open_nursery() as nursery:

            async def first(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            if self._subscribe:
                nursery.start_soon(first, changed)
            nursery.start_soon(first, ended)
