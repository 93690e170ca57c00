"""Telling clients what changed, in both eras of the protocol.

Up to 2025-11-25 a client subscribes to single resources and is sent notifications on its connection; since 2026-07-28
it opens `subscriptions/listen` streams. Both are fed by one watcher of the database, which any process may write to.
"""

import logging
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent
from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

from bbfs.knowledge.addresses import COLLECTIONS_URI, document_uri, documents_uri, stats_uri
from bbfs.knowledge.database.store import ChangeFeed, Store
from bbfs.knowledge.documents import ChangeSet

logger = logging.getLogger(__name__)

_STATE_KEY = "bbfs.knowledge.subscriber"


def events(changes: ChangeSet) -> Iterator[ServerEvent]:
    """What to announce: whether the list of resources is another, and every resource that is or may be."""
    if changes.listed:
        yield ResourcesListChanged()
    yield ResourceUpdated(COLLECTIONS_URI)
    for collection in sorted({collection for collection, _ in changes.changed}):
        yield ResourceUpdated(documents_uri(collection))
        yield ResourceUpdated(stats_uri(collection))
    for collection, document in sorted(changes.changed):
        if document:
            yield ResourceUpdated(document_uri(collection, document))


class Subscriber:
    """One client of the handshake era. Its task alone waits for it, so a client that stops reading delays no other;
    what waits for it meanwhile is bounded, because equal events are one.
    """

    def __init__(self, connection: Connection) -> None:
        self.uris: set[str] = set()
        self.scope = anyio.CancelScope()
        self._connection = connection
        self._pending: dict[ServerEvent, None] = {}
        self._wake = anyio.Event()

    def offer(self, event: ServerEvent) -> None:
        """Announces the event, if it is one that this client is told of. Does not wait."""
        if isinstance(event, ResourcesListChanged) or (isinstance(event, ResourceUpdated) and event.uri in self.uris):
            self._pending[event] = None
            self._wake.set()

    async def run(self) -> None:
        """Sends what is offered, until `scope` is cancelled."""
        with self.scope:
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                while self._pending:
                    event = next(iter(self._pending))
                    del self._pending[event]
                    if isinstance(event, ResourceUpdated):
                        await self._connection.send_resource_updated(event.uri)
                    else:
                        await self._connection.send_resource_list_changed()


class Announcer:
    """Announces changes to the clients of one server. Made by `announcing`, which also runs its tasks."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._subscribers: set[Subscriber] = set()

    async def announce(self, changes: ChangeSet) -> None:
        """Tells every client what it is to be told. Waits for none of them."""
        for event in events(changes):
            for subscriber in self._subscribers:
                subscriber.offer(event)
            await self._bus.publish(event)

    async def listen(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serves one `subscriptions/listen` stream."""
        return await self._listen(ctx, params)

    def subscriber(self, ctx: ServerRequestContext[Any, Any]) -> Subscriber:
        """The subscriber of the connection that a request came on; from the first call on it hears of list changes."""
        # The context does not show its connection, which alone knows when it ends (its exit stack is for that).
        connection = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
        subscriber = connection.state.get(_STATE_KEY)
        if subscriber is None:
            subscriber = connection.state[_STATE_KEY] = Subscriber(connection)
            self._subscribers.add(subscriber)
            self._tasks.start_soon(subscriber.run)
            connection.exit_stack.callback(self._forget, subscriber)
        return subscriber

    def close(self) -> None:
        """Ends the streams, each after what it still has to tell."""
        self._listen.close()

    def _forget(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)
        subscriber.scope.cancel()


@asynccontextmanager
async def announcing(store: Store, interval: float) -> AsyncIterator[Announcer]:
    """Watches the database for as long as the `with` lasts, and announces every change of it.

    interval: seconds between two looks at the database, so the bound of how late an announcement is.
    """
    feed = await anyio.to_thread.run_sync(store.feed)
    try:
        async with anyio.create_task_group() as tasks:
            announcer = Announcer(tasks)
            tasks.start_soon(_watch, feed, interval, announcer)
            try:
                yield announcer
            finally:
                announcer.close()
                tasks.cancel_scope.cancel()
    finally:
        feed.close()


async def _watch(feed: ChangeFeed, interval: float, announcer: Announcer) -> None:
    failing = False
    while True:
        await anyio.sleep(interval)
        try:
            changes = await anyio.to_thread.run_sync(feed.poll)
        except sqlite3.Error as error:
            # The next look finds what this one could not see; said once, not five times a second.
            if not failing:
                logger.error("cannot look for changes: %s", error)
            failing = True
            continue
        failing = False
        if changes is not None:
            await announcer.announce(changes)
