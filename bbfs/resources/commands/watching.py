"""Reports changes (`bbfs watch`)."""

from datetime import UTC, datetime

import trio

from bbfs.model.errors import BbfsError
from bbfs.model.values import Change
from bbfs.resources.commands import table
from bbfs.resources.manager import ResourceManager
from bbfs.resources.watch import Watch


async def watch(
    manager: ResourceManager, request: table.Watch, replies: table.Replies[table.Begun | table.Event | table.Note]
) -> None:
    """Report changes until cancelled. Raise BbfsError if a path cannot be watched."""
    watching = Watch(
        manager,
        [table.names(path) for path in request.paths],
        lambda change: replies.tell(_event(change, manager.clock())),
        lambda text: replies.tell(table.Note(text)),
        recursive=request.recursive,
    )
    problems: list[BbfsError] = []
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(watching.run)
            await replies.give(table.Begun())
        except BbfsError as error:  # raised below, by itself
            problems.append(error)
    for problem in problems:
        raise problem


def _event(change: Change, at: float) -> table.Event:
    """Return a change as a command gets it. at: seconds since the epoch."""
    when = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    path = "/".join(next(iter(change.paths)))
    return table.Event(change.event, path, change.uri, change.source_id, when)
