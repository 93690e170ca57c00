"""Answers the requests of commands, from the sources that this process has opened."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from bbfs.model.calls import UserTime
from bbfs.model.errors import NotSupported
from bbfs.resources.commands import table
from bbfs.resources.commands.calls import call, tools
from bbfs.resources.commands.grep import grep
from bbfs.resources.commands.indexing import index
from bbfs.resources.commands.listing import list_directory
from bbfs.resources.commands.matching import match
from bbfs.resources.commands.offline import fetch
from bbfs.resources.commands.put import put, remove, retry
from bbfs.resources.commands.search import search
from bbfs.resources.commands.watching import watch
from bbfs.resources.manager import ResourceManager

A = TypeVar("A")
Answering: TypeAlias = Callable[[ResourceManager, Any, table.Replies[Any]], Awaitable[None]]
"""Answers a request. It raises BbfsError."""

ANSWERS: Mapping[type[table.Request[Any]], Answering] = {
    table.Search: search,
    table.Grep: grep,
    table.Match: match,
    table.Index: index,
    table.ListDirectory: list_directory,
    table.Watch: watch,
    table.Tools: tools,
    table.CallTool: call,
    table.Put: put,
    table.Remove: remove,
    table.Retry: retry,
    table.Fetch: fetch,
}


async def ask(
    manager: ResourceManager,
    request: table.Request[A],
    hear: Callable[[A], object] = table.unheard,
    user_time: UserTime | None = None,
) -> None:
    """Ask the sources of a manager, and have `hear` called with each answer. Raise BbfsError.

    user_time: of the user, whom a source may ask something meanwhile.
    """
    answering = ANSWERS.get(type(request))
    if answering is None:
        raise NotSupported(f"only a mount answers the request {request.name!r}")

    async def give(answer: A) -> None:
        hear(answer)

    def tell(answer: A) -> None:
        hear(answer)

    await answering(manager, request, table.Replies(give, tell, user_time or UserTime()))


async def asked(manager: ResourceManager, request: table.Request[A]) -> list[A]:
    """Return all answers of the sources of a manager. Raise BbfsError."""
    found: list[A] = []
    await ask(manager, request, found.append)
    return found
