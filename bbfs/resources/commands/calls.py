"""Lists and calls the tools of sources (`bbfs tools`, `bbfs call`)."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import TypeVar

import trio

from bbfs.model.calls import Call, Progress, Tool, UserTime
from bbfs.model.errors import BbfsError, DeadlineExceeded, NotSupported
from bbfs.model.uri import native_scheme, source_uri
from bbfs.model.values import Loaded
from bbfs.resources.catalog.lookups import WEB
from bbfs.resources.commands import table
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.sources import CanCall

T = TypeVar("T")
PIECE = 512 << 10
"""Bytes of a result in one answer."""
LONGEST = 3600.0
"""Seconds of one call, however often the source reports that it goes on; the source's `timeout` if that is longer."""


async def tools(manager: ResourceManager, request: table.Tools, replies: table.Replies[Tool]) -> None:
    """Answer with the tools of a source; none for one that has no such things. Raise BbfsError."""
    source = manager.tree.place((request.source,))[0]
    if not isinstance(source.handler, CanCall):
        return
    found = None
    with source.waiters, trio.move_on_after(source.data.policy.timeout):
        found = await source.handler.tools()
    if found is None:
        raise DeadlineExceeded(f"no answer within {source.data.policy.timeout:g} s")
    for tool in found:
        await replies.give(tool)


async def call(
    manager: ResourceManager, request: table.CallTool, replies: table.Replies[Progress | table.ResultPart | table.Piece]
) -> None:
    """Call a tool, and answer with the parts of its result. Raise BbfsError."""
    source = manager.tree.place((request.source,))[0]
    for part in (await _called(source, request, replies)).parts:
        size = part.content.size
        kind = table.ResultPart(part.name, part.mime_type, part.content_type == "text")
        await replies.give(kind if part.link is None else await _linked(manager, source, kind, part.link))
        for at in range(0, size, PIECE):
            await replies.give(table.Piece(await part.content.read_waiting(at, min(PIECE, size - at))))


async def _linked(
    manager: ResourceManager, source: Source, kind: table.ResultPart, native_uri: str
) -> table.ResultPart:
    """Return a part that is a link, with what leads to its resource. An address that is no resource stays as it is."""
    with source.waiters, suppress(BbfsError):  # without a listing, the URI leads to it all the same
        if source.catalog.cached_view((), completed=False) is None:
            await source.catalog.view((), completed=False)
    path = manager.tree.leads_to(source, native_uri)
    if path is None and (native_scheme(native_uri) or "").lower() in WEB:
        return replace(kind, link=native_uri)
    uri = source_uri(source.data.base_prefix, native_uri)
    return replace(kind, link=uri, path=None if path is None else "/".join(path))


async def _called(
    source: Source, request: table.CallTool, replies: table.Replies[Progress | table.ResultPart | table.Piece]
) -> Loaded:
    """Call a tool once. Raise BbfsError."""
    handler = source.handler
    if not isinstance(handler, CanCall):
        raise NotSupported(f"{source.data.id} has no tools")
    asked = Call(request.tool, request.values, request.arguments, request.confirmed)
    return await while_it_goes_on(source, partial(handler.call, asked), replies.tell, replies.user_time)


async def while_it_goes_on(
    source: Source,
    ask: Callable[[Callable[[Progress], None]], Awaitable[T]],
    tell: Callable[[Progress], object],
    user_time: UserTime | None = None,
) -> T:
    """Send one request to a source, in a request slot, and tell its progress. Raise BbfsError.

    A progress begins the source's `timeout` again, within the bound of `LONGEST` for the whole request; so does the
    answer of a user. user_time: of the user, whose time to think does not count.
    """
    timeout = source.data.policy.timeout
    longest = max(timeout, LONGEST)
    end = trio.current_time() + longest
    with source.waiters, trio.move_on_after(timeout) as bound:

        def stop(is_stopped: bool) -> None:
            bound.deadline = inf if is_stopped else min(trio.current_time() + timeout, end)

        def progress(made: Progress) -> None:
            if bound.deadline != inf:
                stop(False)
            tell(made)

        with (user_time or UserTime()).counted(stop):
            async with source.slots.ask():
                answer = await ask(progress)
        source.error = None
        return answer
    within = longest if trio.current_time() >= end else timeout
    raise DeadlineExceeded(f"no answer within {within:g} s (option timeout)")
