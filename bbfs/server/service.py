"""bbfs as an MCP server: the handlers of all requests, in both eras of the protocol."""

import logging
from collections.abc import Mapping
from typing import Any

import mcp_types as types
import trio
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from bbfs import __version__
from bbfs.model.errors import BbfsError, InvalidUri, IsADirectory, NotADirectory, NotFound
from bbfs.model.values import ResourceMetadata, ResourceTemplate
from bbfs.resources.by_uri import LoadedResource
from bbfs.resources.catalog.record import Record
from bbfs.resources.documents import plain
from bbfs.resources.manager import ResourceManager
from bbfs.server.contents import Budget, items_of
from bbfs.server.errors import Fault, certain, described
from bbfs.server.following import Following
from bbfs.server.gateway.entries import besides
from bbfs.server.gateway.relay import Relay
from bbfs.server.gateway.requests import Gateway, prompt_error, unknown
from bbfs.server.kept import KeptResults, is_kept
from bbfs.server.listing.directories import Directories
from bbfs.server.listing.resource_list import WAIT, Offering
from bbfs.server.listing.templates import MOST_VALUES, complete
from bbfs.server.skills.entries import SkillEntries
from bbfs.server.tools import Tools, definitions, instructions
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
from bbfs.server_parts.subscribers import MOST_URIS, Context, NotifyingServer, check_uri, not_found_code

log = logging.getLogger(__name__)

MAX_RESULT = 4 << 20
"""Bytes of all contents of one answer, by default."""
_STATIC_TTL = 3600.0
_WRONG = (NotFound, InvalidUri, IsADirectory, NotADirectory, Fault)
"""The errors of a wrong request."""


class Service(NotifyingServer[Any]):
    """The server over one ResourceManager; its tasks are in `nursery`.

    depth: how far load_datasource goes down by default. most_bytes: of the contents of one answer. wait: seconds that a
    list and a subscription wait for the sources.
    """

    notifies = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)

    def __init__(
        self,
        manager: ResourceManager,
        nursery: trio.Nursery,
        *,
        depth: int | None = None,
        most_bytes: int = MAX_RESULT,
        wait: float = WAIT,
    ) -> None:
        self._manager = manager
        self._most_bytes = most_bytes
        self._kept = KeptResults()
        self._tools = Tools(manager, self._kept, depth, most_bytes)
        self._subscribers = Following(manager, nursery, wait)
        self._offering = Offering(manager, nursery, self._appeared, wait)
        self._directories = Directories(manager, self._resource)
        self._skills = SkillEntries(manager, self._offering)
        self._relay = Relay(nursery, self._subscribers.notify)
        self._gateway = Gateway(manager, self._offering, self._relay, self._tools.names, most_bytes, self._kept)
        manager.changes.subscribe(self._relay.changed)
        super().__init__(
            "bbfs",
            version=__version__,
            title="bbfs",
            instructions=instructions(manager),
            cache_hints=_cache_hints(),
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            get_tool_input_schema=lambda _: None,  # else each call over HTTP would list all tools first
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
        )
        self.middleware.append(_errors_of_the_protocol)
        self.middleware.append(self._meet)
        self.extensions[SKILLS] = {"directoryRead": True}
        self.add_request_handler(READ_DIRECTORY, DirectoryParams, self._read_directory)
        self.add_request_handler(LIST_SKILLS, types.PaginatedRequestParams, self._list_skills)
        self.add_request_handler(GET_SKILL, SkillParams, self._get_skill)
        self.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        self.add_notification_handler("notifications/initialized", types.NotificationParams, self._initialized)

    def close_streams(self) -> None:
        """End all `subscriptions/listen` streams with a result, as the protocol says."""
        self._subscribers.close()

    # -- resources ---------------------------------------------------------------------------------------------------

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        after = params.cursor if params is not None else None
        records, cursor = await self._offering.resources(after)
        reads_directories = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS  # the earlier ones have no extensions
        directories = self._directories.roots() if after is None and reads_directories else ()
        resources = [*(self._resource(record) for record in records), *directories]
        return types.ListResourcesResult(resources=resources, next_cursor=cursor)

    async def _read_directory(self, _ctx: Context, params: DirectoryParams) -> DirectoryResult:
        check_uri(params.uri)
        try:
            found, cursor = await self._directories.page(params.uri, params.cursor)
            resources = [each.model_copy(update={"uri": self._skills.shown(params.uri, each.uri)}) for each in found]
        except BbfsError as error:
            raise self._invalid(params.uri, error) from error
        return DirectoryResult(resources=resources, next_cursor=cursor)

    async def _list_skills(self, _ctx: Context, params: types.PaginatedRequestParams) -> SkillsResult:
        skills, cursor = await self._skills.page(params.cursor)
        return SkillsResult(skills=skills, next_cursor=cursor)

    async def _get_skill(self, _ctx: Context, params: SkillParams) -> SkillResult:
        check_uri(params.uri)
        try:
            return SkillResult(skill=await self._skills.get(params.uri))
        except BbfsError as error:
            raise self._invalid(params.uri, error) from error

    def _invalid(self, uri: str, error: BbfsError) -> MCPError:
        """Return an error of the protocol, with one code in both eras for what is not there (SEP-2640)."""
        code = types.INVALID_PARAMS if isinstance(error, _WRONG) else types.INTERNAL_ERROR
        told = described(certain(self._manager, uri, error))
        return MCPError(code, told["message"], {"uri": uri, **told})

    async def _list_templates(
        self, _ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        templates, cursor = await self._offering.templates(params.cursor if params is not None else None)
        return types.ListResourceTemplatesResult(
            resource_templates=[_template(each) for each in templates], next_cursor=cursor
        )

    async def _read(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        check_uri(params.uri)
        try:
            if is_kept(params.uri):
                return await self._read_kept(params.uri)
            loaded = await self._manager.by_uri.load(params.uri)
            base_prefix = self._manager.roots.parsed(params.uri)[0].data.base_prefix
            items = await items_of(loaded, base_prefix, Budget(self._most_bytes))
        except BbfsError as error:
            raise _failure(ctx, params.uri, certain(self._manager, params.uri, error)) from error
        version = await self._version(loaded) if len(items) == 1 else None
        return types.ReadResourceResult(contents=[item.contents(version) for item in items])

    async def _read_kept(self, uri: str) -> types.ReadResourceResult:
        loaded = self._kept.loaded(uri)
        if loaded.error is not None:
            raise loaded.error
        items = await items_of(loaded, "", Budget(self._most_bytes))
        return types.ReadResourceResult(contents=[item.contents() for item in items])

    async def _version(self, loaded: LoadedResource) -> str | None:
        """Return the version of exactly this load, if the source of the resource can be written."""
        source, _ = self._manager.by_uri.record_of(loaded.uri)
        return loaded.metadata.etag if source.writes is not None and loaded.metadata is not None else None

    def _resource(self, listed: Record | ResourceMetadata) -> types.Resource:
        metadata = listed.metadata if isinstance(listed, Record) else listed
        known = self._manager.contents.size_now(listed) if isinstance(listed, Record) else (metadata.size,)
        return types.Resource(
            uri=metadata.uri,
            name=metadata.name,
            title=metadata.title,
            description=metadata.description,
            mime_type=metadata.mime_type,
            size=known[0] if known is not None else None,
            annotations=_annotations(metadata.annotations),
            **besides(metadata.mcp_data),
        )

    def _appeared(self) -> None:
        """Notify clients that a source which was too slow for the lists has answered."""
        for event in (ResourcesListChanged(), ToolsListChanged(), PromptsListChanged()):
            self._subscribers.notify(event)

    # -- changes -----------------------------------------------------------------------------------------------------

    async def _meet(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Note what the client of a request offers to servers that have questions."""
        self._relay.met(ctx)
        return await call_next(ctx)

    async def _initialized(self, ctx: Context, _params: types.NotificationParams | None) -> None:
        """Notify a client of the handshake era of list changes from now on."""
        self._subscribers.subscriber(ctx)

    async def _set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        """Send a client of the handshake era log messages of the servers behind."""
        self._relay.set_level(ctx, params.level)
        return types.EmptyResult()

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Accept any URI of a source: the resource may be created later."""
        try:
            await self._subscribers.subscribe(ctx, params.uri)
        except BbfsError as error:
            raise _failure(ctx, params.uri, certain(self._manager, params.uri, error)) from error
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self._subscribers.unsubscribe(ctx, params.uri)
        return types.EmptyResult()

    async def _listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        asked = params.notifications.resource_subscriptions or ()
        check_uri(*asked[:MOST_URIS])
        for uri in asked[:MOST_URIS]:  # `listen` refuses more
            try:
                self._manager.by_uri.record_of(uri)
            except BbfsError as error:
                raise _failure(ctx, uri, certain(self._manager, uri, error)) from error
        return await self._subscribers.listen(ctx, params)

    # -- tools and completion ----------------------------------------------------------------------------------------

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        sources = self._manager.sources.values()
        written = [source.data.id for source in sources if source.writes is not None]
        own = definitions([source.data.id for source in sources], written)
        tools, cursor = await self._gateway.tools(ctx, own, params.cursor if params is not None else None)
        if self._gateway.has_tools:  # their tools may change
            return types.ListToolsResult(tools=tools, next_cursor=cursor, ttl_ms=0)
        return types.ListToolsResult(tools=tools, next_cursor=cursor)

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            if params.name in self._tools.names:
                return await self._tools.call(params.name, params.arguments)
            return await self._gateway.call_tool(ctx, params)
        except KeyError:
            raise unknown("tool", params.name) from None

    async def _list_prompts(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        prompts, cursor = await self._gateway.prompts(ctx, params.cursor if params is not None else None)
        return types.ListPromptsResult(prompts=prompts, next_cursor=cursor)

    async def _get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        try:
            return await self._gateway.get_prompt(ctx, params)
        except KeyError:
            raise unknown("prompt", params.name) from None
        except BbfsError as error:
            raise prompt_error(error) from error

    async def _complete(self, _ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        context = (params.context.arguments if params.context is not None else None) or {}
        ref, argument = params.ref, params.argument
        try:
            if isinstance(ref, types.ResourceTemplateReference):
                check_uri(ref.uri, argument.value, *context.values())
                found = await complete(self._manager, ref.uri, argument.name, argument.value, context)
            else:
                check_uri(argument.value, *context.values())
                found = await self._gateway.complete(ref.name, argument.name, argument.value, context)
        except KeyError:
            raise unknown("prompt", ref.name if isinstance(ref, types.PromptReference) else "") from None
        except BbfsError as error:
            code = types.INVALID_PARAMS if isinstance(error, _WRONG) else types.INTERNAL_ERROR
            raise MCPError(code, str(error), described(error)) from error
        return types.CompleteResult(
            completion=types.Completion(
                values=list(found.values[:MOST_VALUES]), has_more=found.more or len(found.values) > MOST_VALUES
            )
        )


async def _errors_of_the_protocol(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Answer a `Fault` as invalid parameters. Log an unforeseen error, which the client sees as an internal one."""
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except Fault as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from error
    except Exception:
        log.exception("unforeseen error in %s", ctx.method)
        raise


def _cache_hints() -> Mapping[CacheableMethod, CacheHint]:
    # bbfs alone keeps to the sources' times to live: clients ask each time, and bbfs answers from its cache.
    static = CacheHint(round(_STATIC_TTL * 1000), "private")
    return {"tools/list": static, "server/discover": static}


def _failure(ctx: Context, uri: str, error: BbfsError | Fault) -> MCPError:
    """Return an error of the protocol: not found by era, invalid parameters, or an internal error."""
    found = described(error)
    if found["code"] in ("resource_not_found", "data_source_not_found"):
        code = not_found_code(ctx)
    else:
        code = types.INVALID_PARAMS if isinstance(error, _WRONG) else types.INTERNAL_ERROR
    return MCPError(code, found["message"], {"uri": uri, **found})


def _template(template: ResourceTemplate) -> types.ResourceTemplate:
    return types.ResourceTemplate(
        uri_template=template.uri_template,
        name=template.name,
        title=template.title,
        description=template.description,
        mime_type=template.mime_type,
        annotations=_annotations(template.annotations),
        **besides(template.mcp_data),
    )


def _annotations(given: Mapping[str, Any] | None) -> types.Annotations | None:
    """Return the source's annotations as the protocol has them for resources; None without any."""
    if given is None:
        return None
    try:
        found = types.Annotations.model_validate(plain(given))
    except ValidationError:
        return None
    return found if found.model_fields_set else None
