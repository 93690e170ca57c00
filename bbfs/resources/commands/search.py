"""Searches the sources (`bbfs search`)."""

from bbfs.model.errors import ProtocolViolation
from bbfs.resources.commands import table
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.engine import Found

LONGEST = 600.0
"""Seconds that a search may take at most."""


async def search(
    manager: ResourceManager, request: table.Search, replies: table.Replies[table.Hit | table.Problem]
) -> None:
    """Answer a request. Raise BbfsError."""
    if not 0 < request.within <= LONGEST:
        raise ProtocolViolation(f"within must be a number of seconds from 0 to {LONGEST:g}")
    below = [table.names(path) for path in request.paths]
    answer = await manager.searches.search(
        request.query, below=below, limit=request.limit, mode=request.mode, within=request.within
    )
    for found in answer.hits:
        await replies.give(hit(found))
    for problem in answer.problems:
        await replies.give(table.Problem(problem))


def hit(found: Found) -> table.Hit:
    """Return a hit as commands get it."""
    return table.Hit(
        "/".join(found.path),
        found.uri,
        found.source_id,
        found.title,
        found.snippet,
        found.where,
        found.score,
        found.found_by,
    )
