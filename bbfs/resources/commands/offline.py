"""Fetches contents for the time when their sources are away (`bbfs fetch`)."""

from math import inf

from bbfs.resources.commands import table
from bbfs.resources.manager import ResourceManager
from bbfs.resources.offline.fetching import Fetching


async def fetch(
    manager: ResourceManager, request: table.Fetch, replies: table.Replies[table.Fetched | table.Problem]
) -> None:
    """Load contents below some paths, and answer with the counts. Raise BbfsError for a path that is not there."""

    async def problem(text: str) -> None:
        await replies.give(table.Problem(text))

    fetching = Fetching(
        manager,
        replies.tell,
        problem,
        most_bytes=inf if request.most_bytes is None else request.most_bytes,
        most_files=inf if request.most_files is None else request.most_files,
    )
    await fetching.load(await fetching.find(map(table.names, request.paths)))
    await replies.give(fetching.counts)
