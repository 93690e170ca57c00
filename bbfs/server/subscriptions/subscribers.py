"""The clients that are to be told of changes, in both eras of the protocol.

Up to 2025-11-25 a client subscribes to single resources and is told on its connection; since 2026-07-28 it opens
`subscriptions/listen` streams. Both are told the same, and no client that reads nothing delays another.
"""

from collections.abc import Callable
from typing import Any

import trio
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent
from mcp_types import INVALID_PARAMS, SubscriptionsListenRequestParams, SubscriptionsListenResult

from bbfs.server.subscriptions.following import Following

Context = ServerRequestContext[Any, Any]
MOST_URIS = 1024
"""Resources that one client may be told of."""
_STATE_KEY = "bbfs.server.subscriber"


class Subscriber:
    """One client of the handshake era. What waits for it is bounded, because equal events are one."""

    def __init__(self, connection: Connection) -> None:
        self.uris: set[str] = set()
        self.scope = trio.CancelScope()
        self._connection = connection
        self._pending: dict[ServerEvent, None] = {}
        self._wake = trio.Event()

    def offer(self, event: ServerEvent) -> None:
        """Tell of an event, if it is one that this client is told of."""
        if isinstance(event, ResourcesListChanged) or (isinstance(event, ResourceUpdated) and event.uri in self.uris):
            self._pending[event] = None
            self._wake.set()

    async def run(self) -> None:
        """Send what is offered, until `scope` is cancelled."""
        with self.scope:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                while self._pending:
                    event = next(iter(self._pending))
                    del self._pending[event]
                    if isinstance(event, ResourceUpdated):
                        await self._connection.send_resource_updated(event.uri)
                    else:
                        await self._connection.send_resource_list_changed()


class Subscribers:
    """All clients of one server that are told of changes. Their tasks are in `nursery`."""

    def __init__(self, nursery: trio.Nursery, follow: Callable[[Callable[[ServerEvent], None]], Following]) -> None:
        """follow: makes what finds out what changes, given what is to be told of it."""
        self._nursery = nursery
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._subscribers: set[Subscriber] = set()
        self._following = follow(self.tell)
        self._events, self._told = trio.open_memory_channel[ServerEvent](1024)
        nursery.start_soon(self._publish)

    def tell(self, event: ServerEvent) -> None:
        """Tell all clients that are to be told of an event. Waits for nobody."""
        for subscriber in self._subscribers:
            subscriber.offer(event)
        try:
            self._events.send_nowait(event)
        except trio.WouldBlock:
            self._listen.close()  # the streams end, and the clients look at everything anew

    async def _publish(self) -> None:
        async for event in self._told:
            await self._bus.publish(event)

    def subscriber(self, ctx: Context) -> Subscriber:
        """The subscriber of the connection that a request came on; from the first call on it hears of list changes."""
        # The context does not show its connection, which alone knows when it ends (its exit stack is for that).
        connection = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
        subscriber = connection.state.get(_STATE_KEY)
        if subscriber is None:
            subscriber = connection.state[_STATE_KEY] = Subscriber(connection)
            self._subscribers.add(subscriber)
            self._nursery.start_soon(subscriber.run)
            connection.exit_stack.callback(self._forget, subscriber)
        return subscriber

    async def subscribe(self, ctx: Context, uri: str) -> None:
        """Raises NotFound for an unknown source, InvalidUri, and MCPError for more URIs than a client may have."""
        subscriber = self.subscriber(ctx)
        if uri in subscriber.uris:
            return
        if len(subscriber.uris) >= MOST_URIS:
            raise MCPError(INVALID_PARAMS, f"more than {MOST_URIS} subscriptions")
        await self._following.follow(uri)
        subscriber.uris.add(uri)

    def unsubscribe(self, ctx: Context, uri: str) -> None:
        subscriber = self.subscriber(ctx)
        if uri in subscriber.uris:
            subscriber.uris.discard(uri)
            self._following.leave(uri)

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve one `subscriptions/listen` stream."""
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        if len(uris) > MOST_URIS:
            raise MCPError(INVALID_PARAMS, f"more than {MOST_URIS} subscriptions")
        await self._following.follow(*uris)
        try:
            return await self._listen(ctx, params)
        finally:
            for uri in uris:
                self._following.leave(uri)

    def close(self) -> None:
        """End the streams, each after what it still has to tell."""
        self._listen.close()

    def _forget(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)
        subscriber.scope.cancel()
        for uri in subscriber.uris:
            self._following.leave(uri)
        subscriber.uris.clear()
