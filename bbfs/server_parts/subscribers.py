"""The clients of one server that are notified of changes, in both eras of the protocol.

Up to 2025-11-25 a client subscribes to single resources and is notified on its connection. Since 2026-07-28 it opens
`subscriptions/listen` streams. A client that reads nothing delays no other.
"""

from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any, TypeVar

import click
import trio
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, SubscriptionsListenRequestParams, SubscriptionsListenResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from bbfs.runtime.changes import Bus, ClientQueue
from bbfs.server_parts.bounds import LONGEST_URI

# The connection alone knows when it ends, and no public name of the SDK leads from a request to it.
if "_connection" not in ServerSession.__init__.__code__.co_names:
    raise click.ClickException(
        f"the MCP SDK (mcp {version('mcp')}) keeps a session's connection elsewhere than expected"
    )

LifespanT = TypeVar("LifespanT")
Context = ServerRequestContext[Any, Any]
MOST_URIS = 1024
"""Resources that one client may subscribe to."""
MOST_IN_ALL = 1 << 14
"""Subscriptions of all clients together."""
RESOURCE_NOT_FOUND = -32002
"""The code up to 2025-11-25."""
_STATE_KEY = "bbfs.subscriber"


class Subscriber:
    """One client of the handshake era."""

    def __init__(self, connection: Connection) -> None:
        self.uris: set[str] = set()
        self.scope = trio.CancelScope()
        self._connection = connection
        self._queue: ClientQueue[ServerEvent] = ClientQueue(MOST_URIS + 1)

    def offer(self, event: ServerEvent) -> None:
        """Queue an event, if this client has subscribed to it."""
        if not isinstance(event, ResourceUpdated) or event.uri in self.uris:
            self._queue.offer(event)

    async def run(self) -> None:
        """Send events, until `scope` is cancelled."""
        with self.scope:
            while True:
                for event in await self._queue.take():
                    match event:
                        case ResourceUpdated():
                            await self._connection.send_resource_updated(event.uri)
                        case ResourcesListChanged():
                            await self._connection.send_resource_list_changed()
                        case ToolsListChanged():
                            await self._connection.send_tool_list_changed()
                        case PromptsListChanged():
                            await self._connection.send_prompt_list_changed()


class Subscribers:
    """All clients that are notified. Their tasks are in `nursery`.

    A server that has to look for changes overrides `follow` and `leave`.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._bus: Bus[ServerEvent] = Bus()
        self._listen = ListenHandler(self._bus)
        self._subscribers: set[Subscriber] = set()
        self._listening = 0

    async def follow(self, *uris: str) -> None:
        """Notify of changes of these resources from now on, or raise and do not; once more for each further call."""

    def leave(self, uri: str) -> None:
        """Undo one `follow` of one resource."""

    def notify(self, event: ServerEvent) -> None:
        """Notify all subscribers of an event, without waiting.

        A stream that has too many events to send ends, and its client reads everything again.
        """
        self._bus.notify(event)

    async def notify_all(self, events: Iterable[ServerEvent]) -> None:
        """Notify all subscribers of any number of events, as fast as the streams take them."""
        for event in events:
            await self._bus.publish(event)

    def subscriber(self, ctx: Context) -> Subscriber:
        """Return the subscriber of a request's connection. From the first call on it is notified of list changes."""
        connection = connection_of(ctx)
        subscriber = connection.state.get(_STATE_KEY)
        if subscriber is None:
            subscriber = connection.state[_STATE_KEY] = Subscriber(connection)
            self._subscribers.add(subscriber)
            self._nursery.start_soon(subscriber.run)
            connection.exit_stack.callback(self._forget, subscriber, self._bus.subscribe(subscriber.offer))
        return subscriber

    async def subscribe(self, ctx: Context, uri: str) -> None:
        """Subscribe a client to a resource. Raises what `follow` raises, and MCPError for more than `MOST_URIS`."""
        subscriber = self.subscriber(ctx)
        if uri in subscriber.uris:
            return
        self._check(len(subscriber.uris), uri)
        await self.follow(uri)
        subscriber.uris.add(uri)

    def unsubscribe(self, ctx: Context, uri: str) -> None:
        subscriber = self.subscriber(ctx)
        if uri in subscriber.uris:
            subscriber.uris.discard(uri)
            self.leave(uri)

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve one `subscriptions/listen` stream. Raises as `subscribe` does."""
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        self._check(0, *uris)
        await self.follow(*uris)
        self._listening += len(uris)
        try:
            return await self._listen(ctx, params)
        finally:
            self._listening -= len(uris)
            for uri in uris:
                self.leave(uri)

    def close(self) -> None:
        """End the streams, each after the events that it still has to send."""
        self._listen.close()

    def _check(self, held: int, *uris: str) -> None:
        """Raise MCPError if a client that has `held` subscriptions may not have these too."""
        if held + len(uris) > MOST_URIS:
            raise MCPError(INVALID_PARAMS, f"more than {MOST_URIS} subscriptions")
        check_uri(*uris)
        total = self._listening + sum(len(each.uris) for each in self._subscribers)
        if total + len(uris) > MOST_IN_ALL:
            raise MCPError(
                INTERNAL_ERROR, f"all clients have {MOST_IN_ALL} subscriptions together, and may have no more"
            )

    def _forget(self, subscriber: Subscriber, end: Callable[[], None]) -> None:
        end()
        self._subscribers.discard(subscriber)
        subscriber.scope.cancel()
        for uri in subscriber.uris:
            self.leave(uri)
        subscriber.uris.clear()


def connection_of(ctx: Context) -> Connection:
    """Return the connection of a request. Its `exit_stack` runs at its end."""
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage] - see above


def check_uri(*uris: str) -> None:
    """Raise MCPError for a URI of more than `LONGEST_URI` characters."""
    if any(len(uri) > LONGEST_URI for uri in uris):
        raise MCPError(INVALID_PARAMS, f"a URI of more than {LONGEST_URI} characters")


class NotifyingServer(Server[LifespanT]):
    """The SDK's low-level server, which says that it notifies of list changes over HTTP, too.

    notifies: of which lists.
    """

    notifies = NotificationOptions(resources_changed=True)

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        return super().create_initialization_options(
            notification_options or self.notifies, experimental_capabilities, extensions
        )


def not_found_code(ctx: Context) -> int:
    """Return the code of "resource not found": INVALID_PARAMS since 2026-07-28."""
    return INVALID_PARAMS if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else RESOURCE_NOT_FOUND
