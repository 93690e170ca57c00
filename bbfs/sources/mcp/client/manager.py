"""The MCP servers that bbfs talks to: one supervised connection per server, its listings, contents and events.

Call every method from the event loop's thread. A request waits as long as the server takes, so the caller sets a
deadline. Connecting is bounded here too, by the `timeout` of the source's policy.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from operator import attrgetter
from random import Random
from types import MappingProxyType
from typing import Any, TypeVar

import trio

from bbfs.model.calls import Progress
from bbfs.model.errors import BbfsError, NotFound, NotSupported, ProtocolViolation, TooLarge
from bbfs.model.listing import Rows
from bbfs.model.uri import encodable
from bbfs.model.values import Completion, ListingProgress, Loaded, McpServer, Policy, ResourceTemplate
from bbfs.server_parts.skills import GET_SKILL, LIST_SKILLS, READ_DIRECTORY, SKILLS
from bbfs.sources.abilities import ListingExchange
from bbfs.sources.content.spool import Spool
from bbfs.sources.mcp.client import tasks
from bbfs.sources.mcp.client.connection import PING_AFTER, Connection, RequestKind
from bbfs.sources.mcp.client.decode import (
    Entries,
    ResourceEntry,
    add_resources,
    completion,
    content_version,
    is_private,
    loaded,
    loaded_size,
    next_cursor,
    page,
    progress_of,
    resource_entry,
    template_cost,
    template_entry,
    ttl_seconds,
    weight,
)
from bbfs.sources.mcp.client.paging import Course, End, Take, Taken, drop, packed, taken, unpacked
from bbfs.sources.mcp.client.session import McpSession
from bbfs.sources.mcp.client.tool_entries import PromptEntry, ToolEntry, parameter_headers, prompt_entry, tool_entry
from bbfs.sources.mcp.login.refresh import ClientSettings
from bbfs.sources.mcp.login.token_store import TokenStore

T = TypeVar("T")
log = logging.getLogger("bbfs.mcp")

MAX_MESSAGE = 256 << 20
"""Bytes of one message of a server; a larger one is a `ProtocolViolation`."""
MAX_PAGES = 10_000
"""Pages of one listing (`docs/semantics.md` S25)."""
_THREAD_FROM_CHARACTERS = 1 << 20
MAX_OTHERS, _BYTES_OF_OTHERS = 500, 32 << 20
"""Templates, tools or prompts of one server, and the bytes of memory that they may take."""
_BYTES_OF_DIRECTORY = 64 << 20
"""Bytes of memory that the entries of one directory may take."""
_EXPRESSIONS = 1000
"""Expressions in all templates of a server."""
_BYTES_OF_ENTRY = 128
"""Bytes of memory for each resource that a server may list; they are one budget for all of them."""
_SUBSCRIBED_FIRST = 0.1
"""Seconds that a first read or listing waits at most for its subscription. Without it, it is asked for once more."""
_LIBRARY_LOGGERS = {"httpx2": logging.WARNING, "mcp": logging.CRITICAL, "client": logging.CRITICAL}
"""httpx2 logs whole URLs at INFO, and they may hold secrets. The SDK logs tracebacks of errors that it also raises."""


class MCPManager:
    """All connections to MCP servers. `run` owns them. Other methods may be called before, during and after it.

    clock: seconds, monotonic, for the pauses between tries to connect; random: for their jitter. max_message: bytes.
    ping_after: seconds that a connected server may be silent before bbfs pings it. tokens: the store of logins; None to
    use none. spool: makes spools for the texts that are too long for memory; None for memory alone.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = trio.current_time,
        random: Random | None = None,
        max_message: int = MAX_MESSAGE,
        ping_after: float = PING_AFTER,
        tokens: TokenStore | None = None,
        spool: Callable[[], Spool] | None = None,
    ) -> None:
        self._in_memory = partial(Spool, None, max_message)
        self._spool = spool or self._in_memory
        self._clock = clock
        self._random = random or Random()
        self._max_message = max_message
        self._ping_after = ping_after
        self._tokens = tokens
        self._connections: dict[str, Connection] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._courses: dict[str, Course] = {}
        self._nursery: trio.Nursery | None = None

    @classmethod
    def of_user(cls, environ: Mapping[str, str], spool: Callable[[], Spool]) -> "MCPManager":
        """Return a manager with the logins of this user."""
        return cls(tokens=TokenStore.of_user(environ), spool=spool)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the connections until cancelled, then end all server processes, within 3 seconds."""
        for name, level in _LIBRARY_LOGGERS.items():
            logging.getLogger(name).setLevel(level)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for server_id in self._connections:
                self._start(server_id)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def add(
        self, server_id: str, server: McpServer, policy: Policy, settings: ClientSettings | None = None
    ) -> Connection:
        """Add a server, and return its connection. Its `start` says when to connect to it.

        settings: of the OAuth client whose login authorises requests to the server. Raises ValueError for an id that is
        taken.
        """
        if server_id in self._connections:
            raise ValueError(f"there is an MCP server '{server_id}' already")
        connection = Connection(
            server_id,
            server,
            policy,
            clock=self._clock,
            random=self._random,
            max_message=self._max_message,
            settings=settings,
            tokens=self._tokens,
            ping_after=self._ping_after,
            spool=self._spool if policy.disk else self._in_memory,
        )
        self._connections[server_id] = connection
        self._start(server_id)
        return connection

    def free_id(self, server_id: str) -> str:
        """Return an id for a server that no other one has: two sources of one name exist while one replaces the
        other."""
        number, free = 2, server_id
        while free in self._connections:
            free, number = f"{server_id}-{number}", number + 1
        return free

    def remove(self, server_id: str) -> None:
        """End the connection to a server, and forget the server. Requests under way fail."""
        del self._connections[server_id]
        self._courses.pop(server_id, None)
        if (scope := self._scopes.pop(server_id, None)) is not None:
            scope.cancel()

    def _start(self, server_id: str) -> None:
        if self._nursery is not None:
            scope = self._scopes[server_id] = trio.CancelScope()
            self._nursery.start_soon(self._run, self._connections[server_id], scope)

    @staticmethod
    async def _run(connection: Connection, scope: trio.CancelScope) -> None:
        with scope:
            await connection.run()

    async def list_resources(self, server_id: str) -> Entries[ResourceEntry]:
        """Return the resources that the server lists, each URI once, in its order. Raises BbfsError."""
        return await self._list(server_id, "resources/list", "resources", resource_entry, lambda entry: entry.uri)

    async def gather_resources(self, server_id: str, rows: Rows, exchange: ListingExchange | None = None) -> End:
        """Add the resources that the server lists to `rows`, page by page. Raises BbfsError.

        exchange: knows the pages if another machine has asked for them, and gets them otherwise.
        """
        limit = self.connection(server_id).list_limit
        course = Course(server_id, "resources/list", limit, _BYTES_OF_ENTRY * limit, "list_limit")
        self._courses[server_id] = course
        ask = partial(self._pages, server_id, course, "resources/list", "resources")
        if exchange is None:
            return await ask(lambda raw: add_resources(raw, rows))
        if (listed := await exchange.claim()) is not None:
            try:
                return await _recalled(course, rows, *listed)
            except BbfsError as error:
                log.warning("%s: a listing of another machine is of no use: %s", server_id, error)
                rows.clear()
                return await self.gather_resources(server_id, rows)
        try:
            end = await ask(lambda raw: add_resources(raw, rows), exchange)
            if end.problem is None:
                exchange.put(end.ttl)
        finally:
            exchange.give_up()
        return end

    async def reads_directories(self, server_id: str) -> bool:
        """Return whether a server declares that it reads directories, once it is connected. Raises BbfsError."""
        return "directoryRead" in (await self.connection(server_id).session()).server.capabilities.get(SKILLS, ())

    async def has_skills(self, server_id: str) -> bool:
        """Return whether a server declares that it has skills, once it is connected. Raises BbfsError."""
        return SKILLS in (await self.connection(server_id).session()).server.capabilities

    async def list_skills(self, server_id: str, parse: Callable[[Any], T | None], most: int) -> Entries[T]:
        """Return the entries of the skills that the server lists, up to `most`. Raises BbfsError."""
        return await self._list(server_id, LIST_SKILLS, "skills", parse, attrgetter("uri"), most)

    async def get_skill(self, server_id: str, uri: str, parse: Callable[[Any], T]) -> T:
        """Return the entry of one skill. uri: of its SKILL.md. Raises NotFound, BbfsError."""
        _, result = await self.connection(server_id).request(GET_SKILL, {"uri": uri}, kind="directory")
        return parse(result.get("skill"))

    async def gather_outside(self, server_id: str, take: Take, turned: Callable[[], Awaitable[bool]]) -> End:
        """Pass the resources that a server lists to `take`, which keeps some of them. Raises BbfsError.

        turned: called after each page that is not the last; returns whether the rest is of no interest.
        """
        limit = self.connection(server_id).list_limit
        course = Course(server_id, "resources/list", limit, _BYTES_OF_ENTRY * limit, "list_limit")
        self._courses[server_id] = course
        return await self._pages(server_id, course, "resources/list", "resources", take, turned=turned)

    async def read_directory(self, server_id: str, native_uri: str, most: int, take: Take) -> End:
        """Pass the entries of one directory to `take`, up to `most` of them. Raises BbfsError."""
        if not encodable(native_uri):
            raise NotFound("a URI that cannot be written in UTF-8")
        course = Course(server_id, READ_DIRECTORY, most, _BYTES_OF_DIRECTORY)
        return await self._pages(server_id, course, READ_DIRECTORY, "resources", take, params={"uri": native_uri})

    async def list_resource_templates(self, server_id: str) -> Entries[ResourceTemplate]:
        """Return the resource templates that the server lists. Raises BbfsError.

        Their patterns take time, so templates beyond `_EXPRESSIONS` expressions in all are left out.
        """
        method, key = "resources/templates/list", "resourceTemplates"
        listed = await self._list(server_id, method, key, template_entry, lambda entry: entry.uri_template)
        costs = accumulate(map(template_cost, listed.entries))
        kept = tuple(entry for entry, cost in zip(listed.entries, costs, strict=True) if cost <= _EXPRESSIONS)
        if len(kept) == len(listed.entries):
            return listed
        problem = f"templates of more than {_EXPRESSIONS} expressions, where those with slashes in values count tenfold"
        left_out = f"{problem}: {len(listed.entries) - len(kept)} of {len(listed.entries)} left out"
        return replace(listed, entries=kept, problem="; ".join(filter(None, (listed.problem, left_out))))

    async def load_resource(self, server_id: str, native_uri: str) -> Loaded:
        """Load the content of one resource, of one part or more. Raises BbfsError."""
        return (await self.load_version(server_id, native_uri))[0]

    async def load_version(self, server_id: str, native_uri: str) -> tuple[Loaded, str | None]:
        """Load as `load_resource` does. Return the server's own version of the content too, if it gives one."""
        connection = self.connection(server_id)
        if not encodable(native_uri):
            raise NotFound("a URI that cannot be written in UTF-8")
        if (interests := connection.interests).takes_uris:
            if interests.is_asked_for(native_uri):
                with trio.move_on_after(_SUBSCRIBED_FIRST):  # else the answer may miss a change, and is asked for again
                    await interests.answered_for(native_uri)
            interests.requested(native_uri)
        session, result = await connection.request("resources/read", {"uri": native_uri}, kind="read")
        ttl = ttl_seconds(result) if session.modern else None
        if loaded_size(result) >= _THREAD_FROM_CHARACTERS:
            content = await trio.to_thread.run_sync(loaded, result, ttl)
        else:
            content = loaded(result, ttl)
        personal = _is_personal(connection, session, result)
        return replace(content, personal=personal), content_version(result)

    async def list_tools(self, server_id: str) -> Entries[ToolEntry]:
        """Return the tools that the server lists, each name once, in its order. Raises BbfsError."""
        return await self._list(server_id, "tools/list", "tools", tool_entry, lambda entry: entry.name)

    async def list_prompts(self, server_id: str) -> Entries[PromptEntry]:
        """Return the prompts that the server lists, each name once, in its order. Raises BbfsError."""
        return await self._list(server_id, "prompts/list", "prompts", prompt_entry, lambda entry: entry.name)

    async def call_tool(
        self,
        server_id: str,
        tool: ToolEntry,
        arguments: Mapping[str, Any],
        progress: Callable[[Progress], None] | None = None,
    ) -> dict[str, Any]:
        """Run a tool once and return its raw result. Raises BbfsError.

        If the connection breaks before the answer, only a repeatable tool is run again. progress: called with each
        progress that the server reports. It must not raise. A server may answer with a task (`tasks`), whose result
        this waits for.
        """
        connection = self.connection(server_id)
        connection.parameter_headers[tool.name] = parameter_headers(tool)
        session = await connection.session()
        params = {"name": tool.name, "arguments": dict(arguments), **tasks.of_call(session, tool)}
        told = None if progress is None else partial(_tell_progress, progress)
        repeatable = tool.repeatable
        session, result = await connection.request(
            "tools/call", params, kind="call", repeatable=repeatable, progress=told
        )
        task = tasks.handle(session, tool, result)
        return result if task is None else await tasks.result_of(connection, session, task, progress)

    async def get_prompt(
        self,
        server_id: str,
        name: str,
        arguments: Mapping[str, str],
        progress: Callable[[Progress], None] | None = None,
    ) -> dict[str, Any]:
        """Render a prompt and return the raw result. Raises BbfsError. progress: as for `call_tool`."""
        params: dict[str, Any] = {"name": name, **({"arguments": dict(arguments)} if arguments else {})}
        told = None if progress is None else partial(_tell_progress, progress)
        _, result = await self.connection(server_id).request("prompts/get", params, kind="read", progress=told)
        return result

    async def complete(
        self, server_id: str, ref: Mapping[str, str], variable: str, value: str, context: Mapping[str, str]
    ) -> Completion:
        """Return values for a variable of a template or an argument of a prompt that begin with `value`.

        ref: `{"type": "ref/resource", "uri": …}` or `{"type": "ref/prompt", "name": …}`. context: the values of other
        variables. Empty for a server that completes nothing. Raises BbfsError.
        """
        connection = self.connection(server_id)
        session = await connection.session()
        if "completions" not in session.server.capabilities:
            return Completion()
        params: dict[str, Any] = {"ref": dict(ref), "argument": {"name": variable, "value": value}}
        if context:
            params["context"] = {"arguments": dict(context)}
        try:
            _, result = await connection.request("completion/complete", params, kind="complete")
        except NotSupported:
            return Completion()
        return completion(result)

    def progress(self, server_id: str) -> ListingProgress | None:
        """Return the progress of the latest listing of a server's resources."""
        course = self._courses.get(server_id)
        return course.progress if course is not None else None

    def connection(self, server_id: str) -> Connection:
        """Return the connection to a server: its state, and what it reports. Raises NotFound."""
        try:
            return self._connections[server_id]
        except KeyError:
            raise NotFound(f"no MCP server '{server_id}'") from None

    async def _list(
        self,
        server_id: str,
        method: str,
        key: str,
        parse: Callable[[Any], T | None],
        identity: Callable[[T], str],
        most: int = MAX_OTHERS,
    ) -> Entries[T]:
        """Return a whole listing, each identity once."""
        found: dict[str, T] = {}

        def take(raw: Sequence[Any]) -> Taken:
            before, kept = len(found), list[Any]()
            for item in raw:
                if (entry := parse(item)) is not None:
                    found.setdefault(identity(entry), entry)
                    kept.append(item)
            return Taken(len(found) - before, len(raw) - len(kept), weight(kept, _BYTES_OF_OTHERS))

        course = Course(server_id, method, most, _BYTES_OF_OTHERS)
        if method == LIST_SKILLS:
            course.first = 1  # each has hundreds of files
        end = await self._pages(server_id, course, method, key, take)
        return Entries(tuple(found.values()), end.ttl, end.problem)

    async def _pages(
        self,
        server_id: str,
        course: Course,
        method: str,
        key: str,
        take: Take,
        exchange: ListingExchange | None = None,
        *,
        params: Mapping[str, Any] = MappingProxyType({}),
        turned: Callable[[], Awaitable[bool]] | None = None,
    ) -> End:
        """Pass the entries of a listing to `take`, and to other machines, as they come, within the bounds.

        turned: as for `gather_outside`. Raises BbfsError.
        """
        connection = self.connection(server_id)
        session = await connection.session()
        if key in ("tools", "prompts") and key not in session.server.capabilities:
            return End()
        if session.modern:  # an earlier one reports changes from its greeting on
            with trio.move_on_after(_SUBSCRIBED_FIRST):
                await connection.interests.listing_answered_for()
            connection.interests.listed()
        cursor: str | int | None = None
        for number in range(MAX_PAGES):
            asked = {**params, "cursor": cursor} if cursor else {**params} or None
            found = await _page_of(connection, method, asked, course, number)
            if found is None:
                return End()
            session, result = found
            raw = page(result, key)
            try:
                await taken(course, raw, take)
                if exchange is not None:
                    await _shared(exchange, raw, personal=_is_personal(connection, session, result))
            finally:
                drop(raw)
            course.turn(ttl_seconds(result) if session.modern else None)
            cursor = next_cursor(result)
            if cursor is None or course.ends_at(cursor) or (turned is not None and await turned()):
                break
        else:
            course.problem = f"the server has more than {MAX_PAGES} pages: the listing is incomplete"
        return course.end()


def _is_personal(connection: Connection, session: McpSession, result: Mapping[str, Any]) -> bool:
    """Return whether the server has this answer for the login of this user alone: another login is another user.

    Credentials of the configuration are part of what names the source, so only those who have them share it.
    """
    return session.modern and connection.logged_in and is_private(result)


async def _page_of(
    connection: Connection, method: str, params: dict[str, Any] | None, course: Course, number: int
) -> tuple[McpSession, dict[str, Any]] | None:
    """Ask for a page of a list. number: of the pages before it. None if the server has no such list.

    Raises BbfsError; NotFound for a directory that is not there, and not for a cursor that the server does not know.
    """
    cursor = (params or {}).get("cursor")
    try:
        kind: RequestKind = "directory" if method == READ_DIRECTORY else "list"
        return await connection.request(method, params, kind=kind)
    except NotSupported:
        if params is None:
            return None
        raise
    except NotFound as exc:
        if cursor is None:
            raise
        raise BbfsError(f"the server refuses its own page cursor: {exc}") from exc
    except BbfsError as exc:
        if isinstance(cursor, int) and type(exc) is BbfsError:
            raise ProtocolViolation(f"a page cursor that is a number, and the server refuses it: {exc}") from exc
        raise
    except trio.Cancelled:
        if number:
            log.info("%s: given up after %d pages", course.name, number)
        raise


async def _recalled(course: Course, rows: Rows, pages: Sequence[bytes], ttl: float) -> End:
    """Add the entries of pages that another machine has asked for, as if the server had sent them. Raises BbfsError."""
    for shared in pages:
        raw = await trio.to_thread.run_sync(unpacked, shared, abandon_on_cancel=True)
        await taken(course, raw, lambda some: add_resources(some, rows))
        course.turn(None)
        if course.problem is not None:
            break
    return replace(course.end(), ttl=ttl)


async def _shared(exchange: ListingExchange, raw: Sequence[Any], *, personal: bool) -> None:
    """Give a page to other machines; to none if it is for this user alone or beyond the bounds."""
    if personal:
        exchange.give_up()
        return
    try:
        for shared in packed(raw):
            exchange.add(shared)
            await trio.lowlevel.checkpoint()
    except TooLarge:
        exchange.give_up()


def _tell_progress(tell: Callable[[Progress], None], params: Mapping[str, Any]) -> None:
    if (progress := progress_of(params)) is not None:
        tell(progress)
