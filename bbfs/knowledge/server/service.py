"""The knowledge base as an MCP server: the handlers of all requests."""

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar, TypeVarTuple, Unpack

import mcp_types as types
import trio
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from bbfs import __version__
from bbfs.knowledge import addresses
from bbfs.knowledge.database.store import Store
from bbfs.knowledge.documents import NotFound
from bbfs.knowledge.server import tools
from bbfs.knowledge.server.announcements import announcing
from bbfs.knowledge.server.catalogue import TEMPLATES, Catalogue, InvalidCursor
from bbfs.server_parts.bounds import LONGEST_URI, shortened
from bbfs.server_parts.skills import (
    GET_SKILL,
    LIST_SKILLS,
    READ_DIRECTORY,
    SKILLS,
    DirectoryParams,
    DirectoryResult,
    SkillParams,
    SkillResult,
    SkillsResult,
)
from bbfs.server_parts.subscribers import NotifyingServer, Subscribers, not_found_code

logger = logging.getLogger(__name__)

MAX_COMPLETIONS = 100
# Seconds for which clients may cache what never changes while a server runs.
_STATIC_TTL = 3600.0
# The upper bound for the list of resources: a changed size in it is not notified.
_LIST_TTL = 1.0

_INSTRUCTIONS = (
    "Collections of documents. Read resource://knowledge/collections, or the directory resource://knowledge, "
    "for what there is, "
    "search_knowledge to find passages, and the documents themselves as resources."
)

Context = ServerRequestContext[Subscribers, Any]
_T = TypeVar("_T")
_Arguments = TypeVarTuple("_Arguments")


class KnowledgeServer(NotifyingServer[Subscribers]):
    """The server of one store, which the caller keeps open while the server runs.

    ttl: seconds for which a client may cache a content, unless notified of a change.
    interval: seconds between two looks for changes. writable: clients may put and remove documents.
    """

    def __init__(self, store: Store, *, ttl: float, interval: float, writable: bool = False) -> None:
        self._store = store
        self._tools = {**tools.READING, **(tools.WRITING if writable else {})}
        self._written = trio.lowlevel.ParkingLot()
        self._interval = interval
        self._subscribers: set[Subscribers] = set()
        self._catalogue = Catalogue(store)
        super().__init__(
            "bbfs-knowledge",
            version=__version__,
            title="Knowledge base",
            instructions=_INSTRUCTIONS,
            cache_hints=_cache_hints(ttl),
            lifespan=self._announcing,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_resource_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_completion=self._complete,
        )
        self.extensions[SKILLS] = {"directoryRead": True}
        self.add_request_handler(READ_DIRECTORY, DirectoryParams, self._read_directory)
        self.add_request_handler(LIST_SKILLS, types.PaginatedRequestParams, _list_skills)
        self.add_request_handler(GET_SKILL, SkillParams, _get_skill)
        self.add_notification_handler("notifications/initialized", types.NotificationParams, self._initialized)

    def close_streams(self) -> None:
        """End all `subscriptions/listen` streams with a result, as the protocol says."""
        for each in self._subscribers:
            each.close()

    @asynccontextmanager
    async def _announcing(self, _server: Server[Subscribers]) -> AsyncIterator[Subscribers]:
        async with announcing(self._store, self._interval, self._written) as subscribers:
            self._subscribers.add(subscribers)
            try:
                yield subscribers
            finally:
                self._subscribers.discard(subscribers)

    async def _list_resources(
        self, _ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        cursor = params.cursor if params is not None else None
        try:
            resources, next_cursor = await _in_thread(self._catalogue.page, cursor)
        except InvalidCursor as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        return types.ListResourcesResult(resources=resources, next_cursor=next_cursor)

    async def _read_directory(self, _ctx: Context, params: DirectoryParams) -> DirectoryResult:
        try:
            resources, cursor = await _in_thread(self._catalogue.directory, params.uri, params.cursor)
        except (NotFound, InvalidCursor) as error:
            raise MCPError(types.INVALID_PARAMS, str(error), {"uri": shortened(params.uri)}) from error
        return DirectoryResult(resources=resources, next_cursor=cursor)

    async def _list_resource_templates(
        self, _ctx: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=list(TEMPLATES))

    async def _read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        address = addresses.parse(params.uri)
        try:
            if address is None:
                raise _unknown(params.uri)
            contents = await _in_thread(self._catalogue.read, address)
        except NotFound as error:
            raise _not_found(ctx, params.uri, error) from error
        return types.ReadResourceResult(contents=[contents])

    async def _initialized(self, ctx: Context, _params: types.NotificationParams | None) -> None:
        """Notify a client of the handshake era of list changes from now on."""
        ctx.lifespan_context.subscriber(ctx)

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Accept any URI of this server: its document may be created later."""
        if addresses.parse(params.uri) is None:
            raise _not_found(ctx, params.uri, _unknown(params.uri))
        await ctx.lifespan_context.subscribe(ctx, params.uri)
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        ctx.lifespan_context.unsubscribe(ctx, params.uri)
        return types.EmptyResult()

    async def _listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        return await ctx.lifespan_context.listen(ctx, params)

    async def _list_tools(self, _ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool for tool, _ in self._tools.values()])

    async def _call_tool(self, _ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in self._tools:
            raise MCPError(types.INVALID_PARAMS, f"no tool {shortened(params.name)!r}")
        result = await _in_thread(self._tools[params.name][1], self._store, params.arguments)
        if params.name in tools.WRITING:
            self._written.unpark_all()
        return result

    async def _complete(self, _ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        if not isinstance(params.ref, types.ResourceTemplateReference):
            raise MCPError(types.INVALID_PARAMS, "there are no prompts to complete")
        if max(len(params.ref.uri), len(params.argument.name), len(params.argument.value)) > LONGEST_URI:
            raise MCPError(types.INVALID_PARAMS, f"more than {LONGEST_URI} characters to complete")
        known = (params.context.arguments if params.context is not None else None) or {}
        argument = params.argument
        try:
            completion = await _in_thread(
                self._catalogue.complete,
                params.ref.uri,
                argument.name,
                argument.value,
                known.get(addresses.COLLECTION),
                MAX_COMPLETIONS,
            )
        except NotFound as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        return types.CompleteResult(completion=completion)


async def _list_skills(_ctx: Context, _params: types.PaginatedRequestParams) -> SkillsResult:
    """Return no skill: a knowledge base has documents. The extension has directories, and asks for this method, too."""
    return SkillsResult(skills=[])


async def _get_skill(_ctx: Context, params: SkillParams) -> SkillResult:
    raise MCPError(types.INVALID_PARAMS, f"no skill {shortened(params.uri)}")


def _cache_hints(ttl: float) -> Mapping[CacheableMethod, CacheHint]:
    # "public": answers do not depend on the client.
    def hint(seconds: float) -> CacheHint:
        return CacheHint(round(seconds * 1000), "public")

    return {
        "resources/list": hint(min(ttl, _LIST_TTL)),
        "resources/read": hint(ttl),
        "resources/templates/list": hint(_STATIC_TTL),
        "tools/list": hint(_STATIC_TTL),
        "server/discover": hint(_STATIC_TTL),
    }


def _unknown(uri: str) -> NotFound:
    return NotFound(f"Unknown resource URI pattern: {shortened(uri)}")


def _not_found(ctx: Context, uri: str, error: NotFound) -> MCPError:
    return MCPError(not_found_code(ctx), str(error), {"uri": shortened(uri)})


async def _in_thread(function: Callable[[Unpack[_Arguments]], _T], *arguments: *_Arguments) -> _T:
    """Run a function that uses the database. A database error becomes an internal error of the protocol."""
    try:
        return await trio.to_thread.run_sync(function, *arguments)
    except sqlite3.Error as error:
        logger.error("the database failed: %s", error)
        raise MCPError(types.INTERNAL_ERROR, f"the database failed: {error}") from error
