"""Requests for the tools and prompts of the servers behind this one."""

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import mcp_types as types
import trio
from mcp.shared.exceptions import MCPError

from bbfs.model.calls import Progress
from bbfs.model.errors import BbfsError
from bbfs.model.values import Completion
from bbfs.resources.commands.calls import while_it_goes_on
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.server.errors import Fault, code_of, described
from bbfs.server.gateway.entries import EntryT, entry_of
from bbfs.server.gateway.names import Names
from bbfs.server.gateway.relay import Relay
from bbfs.server.gateway.results import in_parts, prompt_result, tool_result
from bbfs.server.kept import KeptResults
from bbfs.server.listing.resource_list import Offering
from bbfs.server.listing.walk import page_token, place_of
from bbfs.server_parts.bounds import shortened
from bbfs.server_parts.subscribers import Context
from bbfs.server_parts.tools import failure
from bbfs.sources.gateway import IsMcpServer, Offered, OfferedKind, Passing

log = logging.getLogger(__name__)

PAGE = 200
"""Entries of a page."""
_PAGE_CHARACTERS = 2 << 20
"""Characters of the entries of a page, as JSON, from which on it ends."""


class Gateway:
    """Answers for the servers behind this one. offering: lists them. own: the names of this server's own tools.

    relay: passes on what the servers say besides. most: characters of one answer. kept: keeps longer texts.
    """

    def __init__(
        self,
        manager: ResourceManager,
        offering: Offering,
        relay: Relay,
        own: Collection[str],
        most: int,
        kept: KeptResults,
    ) -> None:
        self._manager = manager
        self._relay = relay
        self._offering = offering
        self._own = frozenset(own)
        self._most = most
        self._kept = kept
        self._entries: dict[tuple[str, OfferedKind, str], tuple[Offered, list[Any]]] = {}
        self._left_out: dict[str, str] = {}
        self._attached: set[str] = set()
        self._servers()

    @property
    def has_tools(self) -> bool:
        """Return whether any server may have tools to call."""
        return any("tools" in passing.kinds for _, passing in self._servers().values())

    async def tools(
        self, ctx: Context, own: Sequence[types.Tool], cursor: str | None
    ) -> tuple[list[types.Tool], str | None]:
        """Return a page of the tools, this server's own first, and the cursor of the next. Raise Fault."""
        offered = await self._offered("tools")
        found = self._all("tools", types.Tool, offered, ctx.protocol_version)
        return _page("tools/list", [*own, *found], cursor)

    async def prompts(self, ctx: Context, cursor: str | None) -> tuple[list[types.Prompt], str | None]:
        """Return a page of the prompts, and the cursor of the next. Raise Fault."""
        offered = await self._offered("prompts")
        return _page("prompts/list", self._all("prompts", types.Prompt, offered, ctx.protocol_version), cursor)

    async def call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Run a tool. Raise KeyError for an unknown name, Fault.

        An error of the server is a result, for the model to read.
        """
        source, passing, name = await self._find("tools", params.name)
        arguments = params.arguments or {}
        key = ("tools/call", params.name, json.dumps(arguments, sort_keys=True))
        try:
            raw = await self._relay.send(ctx, source, params, key, partial(passing.call_tool, name, arguments))
            if isinstance(raw, types.InputRequiredResult):
                return raw
            return tool_result(source, await in_parts(raw, self._kept), ctx.protocol_version, self._most)
        except BbfsError as error:
            return failure(f"{code_of(error)}: {source.data.id}: {error}")

    async def get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        """Render a prompt. Raise KeyError for an unknown name, BbfsError, Fault."""
        source, passing, name = await self._find("prompts", params.name)
        arguments = params.arguments or {}
        key = ("prompts/get", params.name, json.dumps(arguments, sort_keys=True))
        raw = await self._relay.send(ctx, source, params, key, partial(passing.get_prompt, name, arguments))
        if isinstance(raw, types.InputRequiredResult):
            return raw
        return prompt_result(source, raw, ctx.protocol_version, self._most)

    async def complete(self, public: str, argument: str, value: str, context: Mapping[str, str]) -> Completion:
        """Return values for an argument of a prompt. Raise KeyError for an unknown prompt, BbfsError."""
        source, passing, name = await self._find("prompts", public)

        async def ask(_progress: Callable[[Progress], None]) -> Completion:
            return await passing.complete(name, argument, value, context)

        return await while_it_goes_on(source, ask, lambda _: None)

    # -- what the servers offer --------------------------------------------------------------------------------------

    def _servers(self) -> dict[str, tuple[Source, Passing]]:
        """Return the sources that are MCP servers, by id, in the order of the configuration."""
        found: dict[str, tuple[Source, Passing]] = {}
        for source in self._manager.sources.values():
            handler = source.handler
            if source.data.capabilities.list and isinstance(handler, IsMcpServer):
                found[source.data.id] = source, handler.passing
                if source.data.id not in self._attached:
                    self._attached.add(source.data.id)
                    handler.passing.attach(self._relay.audience(source, handler.passing.follow_level))
        return found

    def _names(self) -> Names:
        return Names({source_id: source.data.name for source_id, (source, _) in self._servers().items()}, self._own)

    async def _offered(
        self, kind: OfferedKind, only: Collection[str] | None = None, *, listing: bool = True
    ) -> dict[str, tuple[Source, Offered]]:
        """Return what the servers offer that answer within the wait of the lists, by the id of their sources.

        A server that does not answer offers what it did when it was last listed. only: ids of sources to ask. listing:
        list the servers again whose listings have expired.
        """
        servers = {
            key: (source, passing)
            for key, (source, passing) in self._servers().items()
            if kind in passing.kinds and (only is None or key in only)
        }
        deadline = trio.current_time() + self._offering.wait
        if listing:
            await self._offering.listed([source for source, _ in servers.values()])
        offered: dict[str, Offered] = {}

        async def ask(source: Source, passing: Passing) -> None:
            problem = f"no answer within {self._offering.wait:g} s"
            with trio.move_on_at(deadline):
                try:
                    offered[source.data.id] = await passing.offered()
                    return
                except BbfsError as error:
                    problem = str(error)
            self._note(source.data.id, f"its tools and prompts are left out: {problem}")

        async with trio.open_nursery() as nursery:
            for source, passing in servers.values():
                nursery.start_soon(ask, source, passing)
        return {key: (source, offered[key]) for key, (source, _) in servers.items() if key in offered}

    async def _find(self, kind: OfferedKind, public: str) -> tuple[Source, Passing, str]:
        """Return the source of a public name, and the server's own name. Raise KeyError."""
        names, servers = self._names(), self._servers()
        possible = names.sources_of(public)
        for listing in (False, True):  # a server may have more than when it was last listed
            for source_id, (source, offered) in (await self._offered(kind, possible, listing=listing)).items():
                for raw in getattr(offered, kind):
                    if names.public(source_id, raw["name"]) == public:
                        return source, servers[source_id][1], raw["name"]
        raise KeyError(public)

    def _all(
        self, kind: OfferedKind, model: type[EntryT], offered: Mapping[str, tuple[Source, Offered]], version: str
    ) -> list[EntryT]:
        """Return the entries of all servers, each public name once."""
        names = self._names()
        found: dict[str, EntryT] = {}
        for source_id, (_, of_source) in offered.items():
            held = self._entries.get((source_id, kind, version))
            if held is None or held[0] is not of_source:
                held = of_source, self._made(kind, model, names, source_id, of_source, version)
                self._entries[source_id, kind, version] = held
            for entry in held[1]:
                found.setdefault(entry.name, entry)
        return list(found.values())

    def _made(
        self, kind: OfferedKind, model: type[EntryT], names: Names, source_id: str, offered: Offered, version: str
    ) -> list[EntryT]:
        listed = getattr(offered, kind)
        made = [entry_of(kind, model, raw, names.public(source_id, raw["name"]), version) for raw in listed]
        usable = [entry for entry in made if entry is not None]
        if len(usable) < len(made):
            self._note(source_id, f"{len(made) - len(usable)} of {len(made)} {kind} are too large or invalid: left out")
        return usable

    def _note(self, source_id: str, problem: str) -> None:
        """Log once what is left out of a source."""
        if self._left_out.get(source_id) != problem:
            self._left_out[source_id] = problem
            log.warning("%s: %s", source_id, problem)


def prompt_error(error: BbfsError) -> MCPError:
    """Return the error of the protocol for a prompt that could not be rendered."""
    return MCPError(types.INTERNAL_ERROR, str(error), described(error))


def unknown(kind: str, name: str) -> MCPError:
    """Return the error of the protocol for a name that nothing has."""
    return MCPError(types.INVALID_PARAMS, f"no {kind} {shortened(name)!r}")


def _page(method: str, entries: list[EntryT], cursor: str | None) -> tuple[list[EntryT], str | None]:
    """Return a page of entries and the cursor of the next: the name of its last entry. Raise Fault."""
    start = 0
    if cursor is not None:
        names = [entry.name for entry in entries]
        match place_of([method], cursor):
            case [str(last)] if last in names:
                start = names.index(last) + 1
            case _:
                raise Fault("invalid_token", "the list has changed: begin again without a cursor")
    sizes = accumulate(len(entry.model_dump_json()) for entry in entries[start:])
    room = next((number for number, size in enumerate(sizes, 1) if size >= _PAGE_CHARACTERS), PAGE)
    page = entries[start : start + min(room, PAGE)]
    more = start + len(page) < len(entries)
    return page, page_token([method], [page[-1].name]) if more else None
