"""Notifications of changes: one watcher looks into the database, which any process may write to."""

import logging
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import trio
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent

from bbfs.knowledge.addresses import COLLECTIONS_URI, document_uri, documents_uri, stats_uri
from bbfs.knowledge.database.store import ChangeFeed, Store
from bbfs.knowledge.documents import ChangeSet
from bbfs.server_parts.subscribers import Subscribers

logger = logging.getLogger(__name__)


def events(changes: ChangeSet) -> Iterator[ServerEvent]:
    """Yield the events of a set of changes: of the list of resources, and of each resource that may have changed."""
    if changes.listed:
        yield ResourcesListChanged()
    yield ResourceUpdated(COLLECTIONS_URI)
    for collection in sorted({collection for collection, _ in changes.changed}):
        yield ResourceUpdated(documents_uri(collection))
        yield ResourceUpdated(stats_uri(collection))
    for collection, document in sorted(changes.changed):
        if document:
            yield ResourceUpdated(document_uri(collection, document))


@asynccontextmanager
async def announcing(store: Store, interval: float, written: trio.lowlevel.ParkingLot) -> AsyncIterator[Subscribers]:
    """Watch the database until the `with` ends, and notify subscribers of each change.

    interval: seconds between two looks at the database, and so the longest delay of a notification. written: where the
    watcher parks meanwhile; a write by a client wakes it.
    """
    feed = await trio.to_thread.run_sync(store.feed)
    try:
        async with trio.open_nursery() as nursery:
            subscribers = Subscribers(nursery)
            nursery.start_soon(_watch, feed, interval, written, subscribers)
            try:
                yield subscribers
            finally:
                subscribers.close()
                nursery.cancel_scope.cancel()
    finally:
        feed.close()


async def _watch(
    feed: ChangeFeed, interval: float, written: trio.lowlevel.ParkingLot, subscribers: Subscribers
) -> None:
    failing = False
    while True:
        with trio.move_on_after(interval):
            await written.park()
        try:
            changes = await trio.to_thread.run_sync(feed.poll)
        except sqlite3.Error as error:
            # The next look finds these changes too. The error is logged once, not five times a second.
            if not failing:
                logger.error("cannot look for changes: %s", error)
            failing = True
            continue
        failing = False
        if changes is not None:
            await subscribers.notify_all(events(changes))
