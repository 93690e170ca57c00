"""The handler of MCP servers: the resources of one server, under the URI schemes that the server uses."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

import trio

from bbfs.model.calls import Call, Progress, Tool
from bbfs.model.errors import BbfsError, ConfigError, Conflict, Denied, NotFound, NotSupported, TooLarge, Unreachable
from bbfs.model.listing import Rows
from bbfs.model.quantities import counted
from bbfs.model.uri import encodable, native_scheme
from bbfs.model.values import (
    Change,
    Completion,
    Content,
    DataSource,
    Hit,
    Listing,
    ListingProgress,
    Loaded,
    RemoveTool,
    ResourceMetadata,
    ResourceTemplate,
    SourceState,
    WriteOperation,
)
from bbfs.model.versions import Expected
from bbfs.server_parts.skills import SKILLS
from bbfs.sources import Services
from bbfs.sources.abilities import LONGEST_QUERY, ListingExchange
from bbfs.sources.bounded.turns import InTurns
from bbfs.sources.mcp import arguments as mcp_arguments
from bbfs.sources.mcp import tools as mcp_calls
from bbfs.sources.mcp import writing
from bbfs.sources.mcp.client.decode import Entries
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.client.tool_entries import PromptEntry, ToolEntry
from bbfs.sources.mcp.directories import MOST_ENTRIES, DirectoryEntries, gather
from bbfs.sources.mcp.login.refresh import ClientSettings
from bbfs.sources.mcp.maps import proposals as map_proposals
from bbfs.sources.mcp.passing import McpPassing
from bbfs.sources.mcp.results import call_size, prompt_result, tool_result
from bbfs.sources.mcp.search import hits, proposal, proposed, server_search
from bbfs.sources.mcp.skills import Skills
from bbfs.sources.mcp.tools import Offer

T = TypeVar("T")

TEMPLATES_LATER = 5.0
"""Seconds that a listing waits for templates, tools and prompts, requested at the same time as the resources."""
_THREAD_FROM_CHARACTERS = 1 << 16

_LONGEST_EXAMPLE = 200
"""Characters of an example in the description of a source."""
ASKED_AGAIN = 1.0
"""Time to live (seconds) of a listing whose second part was lost with a broken connection."""


class McpHandler:
    """One MCP server: lists, loads and watches its resources through the shared connection."""

    writes_unseen = True
    """A tool may append to a resource, or change the content, and give the same answer."""

    def __init__(self, source: DataSource, services: Services) -> None:
        if source.mcp is None:
            raise ConfigError(f"source '{source.id}' names no MCP server")
        if not isinstance(services.mcp, MCPManager):
            raise ConfigError(f"source '{source.id}' needs MCP connections, and there are none here")
        self.source = source
        self._base_prefix = source.base_prefix
        self._manager = services.mcp
        settings = ClientSettings.of(source.id, source.auth, source.mcp.transport)
        self._id = self._manager.free_id(source.id)
        self._connection = self._manager.add(self._id, source.mcp, source.policy, settings)
        self._templates: tuple[ResourceTemplate, ...] = ()
        wanted = {"tools": source.tools != "off", "prompts": source.prompts}
        self._call_lists = [name for name, is_wanted in wanted.items() if is_wanted]
        self._connection.interests.lists |= {*self._call_lists}
        self._tools: tuple[ToolEntry, ...] = ()
        self._tools_listed = self.source.tools == "off"
        self._has_tools_alone = False
        self._prompts: tuple[PromptEntry, ...] = ()
        self._prompts_listed = not source.prompts
        self.skills = Skills(self._manager, self._id, self._base_prefix, services.workers, self._connection.emit)
        self.passing = McpPassing(self._manager, self._id, source.tools, source.prompts, self._listed_now, self.skills)
        self._offer: Offer | None = None
        self._offered: tuple[object, ...] = ()
        self._write_pattern = writing.pattern(source.write)
        self._remove_pattern = writing.pattern(source.remove)

    @property
    def state(self) -> SourceState:
        return self._connection.state

    async def aclose(self) -> None:
        self._manager.remove(self._id)

    @property
    def logged_in(self) -> bool:
        return self._connection.logged_in

    def end_pause(self) -> None:
        self._connection.end_pause()

    @property
    def progress(self) -> ListingProgress | None:
        return self._manager.progress(self._id)

    @property
    def notes(self) -> list[str]:
        """Return sentences about the tools and prompts of the server."""
        notes: list[str] = []
        if self.source.tools == "off":
            notes.append(
                'Tools are off. `tools = "read-only"`, or an array of names, in the configuration turns them on.'
            )
        elif self._tools:
            run, named = self._offer.tools if self._offer is not None else {}, len(self._tools)
            examples = (mcp_calls.example_of("tool", tool.name, tool.input_schema) for tool in run.values())
            example = next((each for each in examples if "`" not in each and len(each) <= _LONGEST_EXAMPLE), None)
            told = "`tool/NAME/description.md` says what each does and how to call it"
            notes.append(f"{counted(named, 'tool')} in `tool/`; {told}.")
            shown = f", for example `cat {example}` (or `bbfs cat`, if the result has several parts)" if example else ""
            notes.append(f"{len(run)} of {named} can be called by path{shown}; `bbfs call` calls any.")
            if len(run) < named:
                notes.append("`bbfs mount --tools all`, or `tools` in the configuration, gives others a path.")
                notes += mcp_calls.named_like_reads(self.source.name, self._tools) if not run else []
        if not self.searches and (candidates := proposed(self._tools)):
            named = " or ".join(f"`{name}`" for name in candidates)
            notes.append(f"A search does not ask this server. `search = {{ tool = … }}` lets it use the tool {named}.")
        if self.source.write is not None and not self.source.capabilities.write:
            notes.append("The option `write` names a tool, but `capabilities` does not grant `write`.")
        elif self.proposed_write:
            notes.append("Nothing is written to this server. `write = { tool = … }` lets bbfs use its tools for that.")
        if self._prompts:
            notes.append(f"{counted(len(self._prompts), 'prompt')} in `prompt/`.")
        elif not self.source.prompts:
            notes.append("Prompts are off. `prompts = true` in the configuration turns them on.")
        return notes

    @property
    def proposed_search(self) -> str | None:
        """Return the line that names a tool which looks like a search, if no search asks this server."""
        return None if self.searches else proposal(self._tools)

    @property
    def proposed_write(self) -> tuple[str, ...]:
        """Return the lines that name tools which look like a write and a removal, except configured ones."""
        if self.source.write is not None:
            return ()
        set_already = {"capabilities": self.source.capabilities.write, "remove": self.source.remove is not None}
        return writing.proposal(self._tools, [key for key, is_set in set_already.items() if is_set])

    @property
    def proposed_map(self) -> tuple[str, ...]:
        """Return the lines that show the tools as a tree: a map that is made for this server, or a guess if it has
        nothing else."""
        return map_proposals.proposal(self._tools, self.state.server, self.source.mcp, alone=self._has_tools_alone)

    @property
    def offers(self) -> dict[str, int]:
        return {"tools": len(self._tools), "prompts": len(self._prompts)}

    async def list(self) -> Listing:
        """List the resources and templates of the server, of its tools, and of its prompts. Raises BbfsError.

        If templates, tools or prompts cannot be listed, the resources still are.
        """
        return await self._list(None)

    async def list_through(self, exchange: ListingExchange) -> Listing:
        """As `list`. The resources may come from another machine, as they may be a million; the others are a few."""
        return await self._list(exchange)

    async def _list(self, exchange: ListingExchange | None) -> Listing:
        problems: list[str | None] = []
        ttls: list[float | None] = []
        waiting = dict.fromkeys(("resources/templates", "skills", *self._call_lists))

        async def list_other(name: str) -> None:
            await self._list_other(name, problems, ttls)
            del waiting[name]

        async with trio.open_nursery() as nursery:
            for name in tuple(waiting):
                nursery.start_soon(list_other, name)
            rows = Rows(self._base_prefix)
            directories, end = await gather(self._manager, self._id, rows, exchange)
            later = min(TEMPLATES_LATER, self.source.policy.timeout / 4) if not isinstance(end, BbfsError) else 0
            nursery.cancel_scope.deadline = trio.current_time() + later
        if isinstance(end, BbfsError):
            raise end
        if nursery.cancel_scope.cancelled_caught:
            problems.append("/list, ".join(waiting) + "/list: no answer in time")
        if self.skills.are_listed:
            directories = self.skills.named(directories)
            await self.skills.add_to(rows, directories)
        self._has_tools_alone = not (rows or directories or self._templates or end.problem) and bool(self._tools)
        offer = await self._make_offer(rows)
        for metadata in offer.resources:
            rows.add_metadata(metadata)
        templates = tuple(template for template in self._templates if not _add_fixed(template, rows))
        ttl = min((ttl for ttl in (end.ttl, *ttls) if ttl is not None), default=None)
        problem = "; ".join(filter(None, (end.problem, *problems, offer.problem, *self._missing_tools()))) or None
        made, described = (*templates, *offer.templates), len(offer.documents)
        return Listing(rows, ttl, problem, made, descriptions=described, directories=directories or ())

    def _missing_tools(self) -> Iterator[str]:
        """Yield a sentence for each option that names a tool to write with which the server does not list."""
        for option, named in (("write", self.source.write), ("remove", self.source.remove)):
            if named is not None and self._tools_listed and named.tool not in {tool.name for tool in self._tools}:
                yield f"option {option}: the server has no tool {named.tool!r}"

    async def read_directory(self, native_uri: str) -> Listing:
        """Return the entries of one directory. Raises BbfsError."""
        entries = DirectoryEntries(self._base_prefix, native_uri)
        most = min(MOST_ENTRIES, self._connection.list_limit)
        end = await self._manager.read_directory(self._id, native_uri, most, entries.take)
        return await entries.listing(end, self.skills.known)

    async def _list_other(self, what: str, problems: "list[str | None]", ttls: "list[float | None]") -> None:
        """Store the current templates, skills, tools or prompts; keep the previous ones if they cannot be listed."""
        entries: Entries[ResourceTemplate] | Entries[ToolEntry] | Entries[PromptEntry]
        try:
            if what == "tools":
                entries = await self._manager.list_tools(self._id)
                self._tools, self._tools_listed = entries.entries, True
            elif what == "skills":
                ttl, problem = await self.skills.list() if await self._manager.has_skills(self._id) else (None, None)
                entries = Entries((), ttl, problem)
            elif what == "prompts":
                entries = await self._manager.list_prompts(self._id)
                self._prompts, self._prompts_listed = entries.entries, True
            else:
                entries = await self._manager.list_resource_templates(self._id)
                self._templates = entries.entries
        except Unreachable:
            ttls.append(ASKED_AGAIN)  # the connection broke in between: the next one tells
            return
        except BbfsError as error:
            problems.append(f"{what}/list: {error}")
            return
        problems.append(entries.problem)
        ttls.append(entries.ttl)

    async def _make_offer(self, listed: Rows) -> Offer:
        """Return the offer. Make it in a thread, since its files may be large, and keep the one that still holds."""
        own: set[str] = set()
        async for portion in InTurns(listed.descriptions.portions()):
            own.update(uri for uri, _ in portion if uri.startswith(mcp_calls.BEGINNINGS))
        wanted = (self._tools, self._prompts, frozenset(own))
        if self._offer is None or wanted != self._offered:
            make = partial(mcp_calls.offer, self.source, *wanted)
            self._offer = await trio.to_thread.run_sync(make, abandon_on_cancel=True) if any(wanted) else make()
            self._offered = wanted
        return self._offer

    async def complete(self, uri_template: str, variable: str, value: str, context: Mapping[str, str]) -> Completion:
        """Return values for a variable of a template of the server, or an argument of a prompt. Raises BbfsError."""
        prompt = mcp_calls.completed_prompt(self._offer, uri_template) if self._offer is not None else None
        if prompt is not None:
            ref = {"type": "ref/prompt", "name": prompt}
            context = {unquote(name): text for name, text in context.items()}
            return await self._manager.complete(self._id, ref, unquote(variable), value, context)
        ref = {"type": "ref/resource", "uri": uri_template}
        return await self._manager.complete(self._id, ref, variable, value, context)

    async def load(self, native_uri: str) -> Loaded:
        """Load a resource, run a tool once, or render a prompt. Raises BbfsError."""
        if native_uri.startswith(mcp_calls.BEGINNINGS):
            loaded = await self._load_call(native_uri)
            if loaded is not None:
                return loaded
        loaded = await self._manager.load_resource(self._id, native_uri)
        if self.skills.are_listed or SKILLS in self._connection.greeting.capabilities:  # it may have ended by now
            await self.skills.check(native_uri, loaded)
        return loaded

    def holds(self, native_uri: str) -> bool:
        offer = self._offer
        return offer is not None and native_uri not in offer.own and native_uri in offer.documents

    async def _load_call(self, native_uri: str) -> Loaded | None:
        """Load a URI of a tool or a prompt; None if the URI is one of the server's own resources."""
        if self._offer is None:
            await self.list()  # the listing of an earlier mount does not hold the schemas
        offer = self._offer
        if offer is None or native_uri in offer.own:
            return None
        document = offer.documents.get(native_uri)
        if document is not None:
            return Loaded((document,))
        asked = mcp_calls.asked(native_uri)
        if asked is None:
            return None
        if asked.kind == "tool" and (tool := offer.tools.get(asked.name)) is not None:
            arguments = mcp_arguments.tool_arguments(tool, asked.query)
            result = await _read(tool_result, await self._manager.call_tool(self._id, tool, arguments))
            return replace(result, once=True)
        if asked.kind == "prompt" and (prompt := offer.prompts.get(asked.name)) is not None:
            texts = mcp_arguments.prompt_arguments(prompt, asked.query)
            return await _read(prompt_result, await self._manager.get_prompt(self._id, prompt.name, texts))
        if asked.kind == "tool" and (refusal := mcp_calls.refusal(offer, self.source, asked.name)) is not None:
            raise refusal
        return None

    async def tools(self) -> tuple[Tool, ...]:
        """Return the tools of the server; none if the option `tools` is off. Raises BbfsError."""
        there = await self._tools_now()
        paths = {tool.name for tool in mcp_calls.allowed(self.source.tools, there)[0]}
        return tuple(mcp_calls.described(tool, tool.name in paths) for tool in there)

    async def call(self, call: Call, progress: Callable[[Progress], None]) -> Loaded:
        """Run a tool once. Raises ToolFailed, and Denied for a tool that may change something and is not confirmed."""
        if self.source.tools == "off":
            raise NotSupported("the tools of this source are off (option tools)")
        there = {tool.name: tool for tool in await self._tools_now()}
        tool = there.get(call.tool)
        if tool is None:
            raise NotFound(f"no tool {call.tool!r}{mcp_arguments.suggestion(call.tool, there)}")
        arguments = mcp_arguments.call_arguments(tool, call.values, call.given)
        if not (tool.read_only or call.confirmed):
            raise Denied(f"tool {tool.name!r} does not declare to be read-only: it must be confirmed")
        return await _read(tool_result, await self._manager.call_tool(self._id, tool, arguments, progress))

    @property
    def searches(self) -> bool | None:
        """Return whether a tool searches the server; None before its tools are listed."""
        if self.source.search is not None or server_search(None, self._tools) is not None:
            return True
        return False if self._tools_listed else None

    async def search(self, query: str, limit: int) -> Sequence[Hit]:
        """Return the hits of the tool that searches. Raises BbfsError."""
        search = server_search(self.source.search, await self._tools_now())
        if search is None:
            named = self.source.search
            raise (
                NotSupported("no tool of the server searches")
                if named is None
                else BbfsError(f"search: no tool {named.tool!r}")
            )
        call = search.call(query[:LONGEST_QUERY], limit)
        result = await self._manager.call_tool(self._id, search.tool, call)
        return await _read(partial(hits, search=search, limit=limit), result)

    def writes(self, native_uri: str) -> tuple[WriteOperation, ...]:
        """Return the operations for which the options name a tool, if a resource of the server has this URI."""
        source = self.source
        if self._is_call(native_uri) or not encodable(native_uri):
            return ()
        may_write = source.write is not None and writing.fits(self._write_pattern, native_uri)
        may_remove = source.remove is not None and writing.fits(self._remove_pattern, native_uri)
        return (*(("create", "replace") if may_write else ()), *(("remove",) if may_remove else ()))

    @property
    def detects_conflicts(self) -> bool:
        options = (self.source.write, self.source.remove)
        return all(each is None or each.version is not None for each in options)

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        """Create or replace a resource by the tool of the option `write`. Raises BbfsError."""
        option = self.source.write
        if option is None or "create" not in self.writes(native_uri):
            raise NotSupported("the option write names no tool for it")
        if content.size > option.max_size:
            raise TooLarge(f"{native_uri}: {content.size} bytes, more than {option.max_size} (option write.max_size)")
        tool = await self.named_tool(option.tool, "write")
        version = await self._version(option, native_uri, expected)
        data = await content.read_waiting(0, content.size)
        make = partial(writing.write_call, option, native_uri, data, version)
        call = await trio.to_thread.run_sync(make) if len(data) > _THREAD_FROM_CHARACTERS else make()
        result = await self.run(tool, call)
        return writing.stored(result, self.source, native_uri)

    async def remove(self, native_uri: str, expected: Expected) -> None:
        """Remove a resource by the tool of the option `remove`. Raises BbfsError."""
        option = self.source.remove
        if option is None or "remove" not in self.writes(native_uri):
            raise NotSupported("the option remove names no tool for it")
        if expected.exists is False:
            raise Conflict(f"{native_uri}: somebody else has made it")
        tool = await self.named_tool(option.tool, "remove")
        version = await self._version(option, native_uri, expected)
        call = writing.remove_call(option, native_uri, version)
        writing.require_done(await self.run(tool, call))

    async def run(self, tool: ToolEntry, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run a tool of `named_tool` once, and return its raw result. Raises BbfsError."""
        return await self._manager.call_tool(self._id, tool, arguments)

    async def named_tool(self, name: str, option: str) -> ToolEntry:
        """Return the tool that an option names, whatever the option `tools` says. Raises BbfsError."""
        if all(each.name != name for each in self._tools):
            self._tools = (await self._manager.list_tools(self._id)).entries
        tool = next((each for each in self._tools if each.name == name), None)
        if tool is None:
            raise NotSupported(f"option {option}: the server has no tool {name!r}")
        return tool

    async def _version(self, option: RemoveTool, native_uri: str, expected: Expected) -> str | None:
        """Return the server's version of the expected state: "" if no resource is expected, None if any version will
        do.

        The tool compares it in one step with the change. So the content may be compared before. Raises BbfsError.
        """
        if option.version is None or expected == Expected():
            return None
        if expected.exists is False:
            return ""
        try:
            loaded, version = await self._manager.load_version(self._id, native_uri)
        except NotFound as error:
            raise Conflict(f"{native_uri}: somebody else has removed it: {error}") from error
        if expected.version is None:
            return version
        digests = [part.content.version for part in loaded.parts]
        if digests != [expected.version] and version != expected.version:  # a client may name the server's own
            raise Conflict(f"{native_uri}: somebody else has changed it")
        if version is None:
            raise NotSupported(
                f"{native_uri}: read, it has no version (_meta.etag) for the argument {option.version!r} of the tool "
                f"{option.tool!r}: leave the option version out"
            )
        return version

    async def _tools_now(self) -> tuple[ToolEntry, ...]:
        """Return the tools of the last listing, or ask the server. Raises BbfsError."""
        if self.source.tools == "off":
            return ()
        if not (self._tools_listed and self._tools):
            self._tools, self._tools_listed = (await self._manager.list_tools(self._id)).entries, True
        return self._tools

    async def _listed_now(self) -> tuple[tuple[ToolEntry, ...], tuple[PromptEntry, ...]]:
        """Return the tools and prompts of the last listing, or ask the server. Raises BbfsError."""
        tools = await self._tools_now()
        if not self._prompts_listed:
            self._prompts, self._prompts_listed = (await self._manager.list_prompts(self._id)).entries, True
        return tools, self._prompts

    def watch(self, sink: Callable[[Change], None]) -> None:
        self._connection.changes.subscribe(sink)

    def interested(self, native_uri: str) -> None:
        if (interests := self._connection.interests).takes_uris and not self._is_call(native_uri):
            interests.add(native_uri)

    def announces(self, native_uri: str | None) -> bool:
        if native_uri is not None and self._offer is not None and native_uri in self._offer.documents:
            native_uri = None  # they change with the listing
        return self._connection.interests.announces(native_uri)

    def _is_call(self, native_uri: str) -> bool:
        """Return whether a URI is a tool's or a prompt's: the server has no such resource to subscribe to."""
        own = self._offer.own if self._offer is not None else ()
        return bool(self._call_lists) and native_uri.startswith(mcp_calls.BEGINNINGS) and native_uri not in own

    async def confirmed(self) -> None:
        await self._connection.interests.confirmed()


async def _read(parse: Callable[[Mapping[str, Any]], T], result: Mapping[str, Any]) -> T:
    """Decode a result, a long one in a thread, so that other servers go on meanwhile."""
    if call_size(result, _THREAD_FROM_CHARACTERS) >= _THREAD_FROM_CHARACTERS:
        return await trio.to_thread.run_sync(parse, result)
    return parse(result)


def _add_fixed(template: ResourceTemplate, rows: Rows) -> bool:
    """Return whether a template has no variables. It names one resource then, which is a row unless it is listed."""
    uri = template.uri_template
    if "{" in uri or "}" in uri or native_scheme(uri) is None:
        return False
    if uri not in rows:
        described = (template.mime_type, None, template.title, template.description, None)
        rows.add(uri, rows.described(uri, template.name, *described, template.annotations, template.mcp_data))
    return True
