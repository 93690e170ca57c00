"""The handler of an MCP server with a map: a tree that calls of the server's tools list, read and write.

A native URI is `tree://` and the path. The server announces no change of the tree, so what is cached is valid by time.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import trio

from bbfs.model.calls import Call, Progress, Tool
from bbfs.model.errors import (
    BbfsError,
    ConfigError,
    Conflict,
    Denied,
    Exists,
    InvalidUri,
    NotADirectory,
    NotEmpty,
    NotFound,
    NotSupported,
    TooLarge,
    ToolFailed,
)
from bbfs.model.redaction import shown
from bbfs.model.uri import source_uri
from bbfs.model.values import (
    Content,
    DataSource,
    Hit,
    Listing,
    Loaded,
    Part,
    ResourceMetadata,
    SourceState,
    WriteOperation,
)
from bbfs.model.versions import Expected
from bbfs.sources import Services
from bbfs.sources.abilities import LONGEST_QUERY
from bbfs.sources.bounded.turns import InTurns
from bbfs.sources.mcp.arguments import fitted
from bbfs.sources.mcp.handler import McpHandler
from bbfs.sources.mcp.maps.answers import (
    Names,
    all_names,
    below,
    content_of,
    is_name,
    joined,
    mark_in,
    names_in,
    require_answer,
)
from bbfs.sources.mcp.maps.calls import Prepared, TreeMap
from bbfs.sources.mcp.maps.forms import Path
from bbfs.sources.mcp.maps.options import CallOptions, ListOptions, map_options
from bbfs.sources.mcp.passing import McpPassing
from bbfs.sources.mcp.results import call_size
from bbfs.sources.media_types import content_type_of, mime_type_of_name

T = TypeVar("T")
OptionsT = TypeVar("OptionsT", bound=CallOptions)
BEGINNING = "tree://"
"""Of the native URIs."""
DEEPEST = 100
"""Names of the longest path: a server may list directories in directories without end."""
MOST_PAGES = 1000
"""Pages of one answer."""
_LONGEST = 64 << 20
"""Characters of all pages of one answer, if it has several."""
_THREAD_FROM_CHARACTERS = 1 << 16
_OPTIONS = ("search", "write", "remove")


class MapHandler:
    """The tree of one server. Raises ConfigError for a map that cannot be used."""

    detects_conflicts = False
    beginning = BEGINNING

    def __init__(self, source: DataSource, services: Services) -> None:
        self.source = source
        self._map = TreeMap(map_options(source), f"sources[{source.id}].map")
        for key in _OPTIONS:
            if getattr(source, key) is not None:
                raise ConfigError(f"sources[{source.id}].{key}: is for resources; with a map it is map.{key}")
        self._server = McpHandler(source, services)

    # -- the server --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> SourceState:
        return self._server.state

    @property
    def logged_in(self) -> bool:
        return self._server.logged_in

    @property
    def passing(self) -> McpPassing:
        return self._server.passing

    @property
    def offers(self) -> Mapping[str, int]:
        return self._server.offers

    @property
    def notes(self) -> list[str]:
        """Return how the tree is made, and what may be older than at the server."""
        policy = self.source.policy
        reading, writing = (", ".join(f"`{each}`" for each in each) for each in (self._map.reading, self._map.writing))
        notes = [f"A map shows the tools of this server as a tree. Listing, reading and searching call {reading}."]
        if self._map.writing:
            granted = "" if self.source.capabilities.write else ", once `capabilities` grants `write`"
            notes.append(f"Writing calls {writing}{granted}.")
        notes.append(
            f"The server announces no changes: a directory may be {policy.listing_ttl:g} s old, and a file "
            f"{policy.content_ttl:g} s (option `ttl`). `bbfs refresh` asks at once. `bbfs call` calls any tool."
        )
        return notes

    def end_pause(self) -> None:
        self._server.end_pause()

    async def aclose(self) -> None:
        await self._server.aclose()

    async def tools(self) -> tuple[Tool, ...]:
        """Return the tools of the server, none of which has a path. Raises BbfsError."""
        return tuple(replace(tool, has_path=False) for tool in await self._server.tools())

    async def call(self, call: Call, progress: Callable[[Progress], None]) -> Loaded:
        return await self._server.call(call, progress)

    async def _pages(
        self, call: Callable[[Mapping[str, Any]], Prepared[Any]], parse: Callable[[Mapping[str, Any]], T]
    ) -> list[T]:
        """Return the parsed answers to all pages of a call that reads. call: makes one of a page. Raise BbfsError."""
        found: list[T] = []
        mark, room = None, _LONGEST
        for page in range(1, MOST_PAGES + 1):
            answer, mark, size = await self._ask(call({"page": page, "next": mark}), parse)
            found.append(answer)
            room -= size
            if mark is None:
                return found
            if room < 0:
                break
        raise TooLarge(f"an answer of more than {MOST_PAGES} pages or {_LONGEST} characters in them")

    async def _ask(self, prepared: Prepared[Any], parse: Callable[[Mapping[str, Any]], T]) -> tuple[T, Any, int]:
        """Make a call that reads; return its parsed answer, the mark of the next page, and about its characters."""
        tool = await self._server.named_tool(prepared.options.tool, "map")
        if (tool.annotations or {}).get("readOnlyHint") is False:
            raise Denied(f"option map: tool {tool.name!r}, which is to read, declares that it changes something")
        # The map says that it only reads, so a call that a broken connection may have executed can be repeated.
        reading = replace(tool, annotations={**(tool.annotations or {}), **_READS})
        result = await self._server.run(reading, fitted(tool, prepared.arguments))
        parse_answer = partial(_parsed, parse, self._map, prepared, result)
        size = call_size(result, _LONGEST)
        is_long = size >= _THREAD_FROM_CHARACTERS
        answer, mark = (
            await trio.to_thread.run_sync(parse_answer, abandon_on_cancel=True) if is_long else parse_answer()
        )
        return answer, mark, size

    async def _change(self, prepared: Prepared[Any]) -> None:
        """Make a call that changes something. Raise BbfsError."""
        tool = await self._server.named_tool(prepared.options.tool, "map")
        result = await self._server.run(tool, fitted(tool, prepared.arguments))
        require_answer(result, self._map.errors, prepared.arguments)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def list_directory(self, path: Path) -> Listing:
        names = _names_of(path)
        if not self._map.list.has(names):
            raise NotADirectory(f"{shown('/'.join(names))}: the map lists no such directory")
        if len(names) >= DEEPEST:
            raise NotSupported(f"{DEEPEST} directories in each other are shown at most")
        options, answer = await self._names(names)
        there = [*options.names, *answer.names]
        if options.whole:
            there = [*below(there, names)]
            if names and not there:
                raise NotFound(f"{shown('/'.join(names))}: no such directory")
        entries = {segment: entry async for segment, entry in InTurns(self._entry(path, name) for name in there)}
        return Listing([*entries.values()], problem=answer.problem)

    async def _names(self, path: Path) -> tuple[ListOptions, Names]:
        """Return how the map lists a directory, and the names in the answer."""
        first = _required(self._map.list.call(path, _FIRST_PAGE), path)
        if not first.options.tool:
            return first.options, Names(())
        pages = await self._pages(
            lambda page: _required(self._map.list.call(path, page), path), partial(names_in, named=first.named)
        )
        return first.options, all_names(pages)

    def _entry(self, path: Path, name: str) -> tuple[str, ResourceMetadata]:
        """Return an entry with its segment. name: with a slash at its end if it is a directory."""
        is_directory = name.endswith("/")
        segment = _segment(name.removesuffix("/"))
        return segment, self._metadata((*path, segment), "directory" if is_directory else "resource")

    def _metadata(self, path: Path, kind: Any = "resource") -> ResourceMetadata:
        native_uri, name = BEGINNING + "/".join(path), unquote(path[-1])
        mime_type = None if kind == "directory" else mime_type_of_name(name)
        return ResourceMetadata(
            source_uri(self.source.base_prefix, native_uri),
            native_uri,
            name,
            mime_type=mime_type,
            content_type=content_type_of(mime_type),
            kind=kind,
        )

    async def load(self, native_uri: str) -> Loaded:
        """Read a file. Raise NotFound also where the tool fails and the directory does not list the file; BbfsError."""
        try:
            return await self._loaded(native_uri)
        except InvalidUri as error:
            raise NotFound(f"{shown(native_uri)}: no name that the tool takes: {error}") from error
        except BbfsError as error:
            if type(error) not in (ToolFailed, BbfsError):  # some servers answer an error of the protocol instead
                raise
            found, is_whole = None, False
            with suppress(BbfsError):
                found, is_whole = await self._listed(native_uri)
            if found is None and is_whole:
                raise NotFound(f"{shown(native_uri)}: not listed, and {error}") from error
            raise

    async def _loaded(self, native_uri: str) -> Loaded:
        path = _path_of(native_uri)
        options = _required(self._map.read.call(path, _FIRST_PAGE), path).options
        pages = await self._pages(
            lambda page: _required(self._map.read.call(path, page), path),
            partial(content_of, pointer=options.result, answer=options.format),
        )
        content = joined(pages)
        metadata = self._metadata(_segments_of(native_uri))
        return Loaded((Part(native_uri, metadata.mime_type, content, metadata.content_type),))

    @property
    def searches(self) -> bool:
        return bool(self._map.search)

    async def search(self, query: str, limit: int) -> Sequence[Hit]:
        """Return the files that the call of the map finds. Raise BbfsError."""
        words = {"query": query[:LONGEST_QUERY], "limit": limit}
        found = _required(self._map.search.call((), {**words, **_FIRST_PAGE}), ())
        answer, _, _ = await self._ask(found, partial(names_in, named=found.named))
        paths = ("/".join(map(_segment, filter(None, name.split("/")))) for name in answer.names[:limit])
        return [Hit(BEGINNING + path) for path in paths]

    # -- writing -----------------------------------------------------------------------------------------------------

    @property
    def writes_unseen(self) -> bool:
        """Return whether bbfs compares what the server has after a write: not if the map says that it differs."""
        return not self._map.changes

    def writes(self, native_uri: str) -> Collection[WriteOperation]:
        """Return the operations that the map has for a file or a name."""
        try:
            path = _path_of(native_uri)
        except NotFound:
            path = ()
        # An empty directory of the server stays where no call removes it, and rmdir(2) has to say so.
        is_listed = bool(path) and bool(self._map.writing) and self._map.list.has(path)
        operations: list[WriteOperation] = ["remove_directory"] if is_listed else []
        if self._map.make_directory.has(path):
            operations.append("make_directory")
        if path and self._map.read.has(path):
            if self._map.write.has(path) or self._map.create.has(path):
                operations.append("create")
            if self._map.write.has(path):
                operations.append("replace")
        if path and self._map.remove.has(path):
            operations.append("remove")
        if path and self._map.rename.has(path):
            operations.append("rename")
        return operations

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        path = _path_of(native_uri)
        is_new = expected.exists is False or (expected.exists is None and not await self._is_there(native_uri))
        found = self._map.storing(path, content.size, is_new=is_new)
        data = await content.read_waiting(0, content.size)
        make = partial(self._map.with_content, found, data)
        await self._change(await trio.to_thread.run_sync(make) if len(data) > _THREAD_FROM_CHARACTERS else make())
        return self._metadata(_segments_of(native_uri))

    async def _is_there(self, native_uri: str) -> bool:
        """Return whether a file exists, where that decides which call makes or writes it."""
        if not self._map.create:
            return True
        try:
            await self.load(native_uri)
        except NotFound:
            return False
        return True

    async def remove(self, native_uri: str, expected: Expected) -> None:
        found = self._map.remove.call(_path_of(native_uri))
        if found is None:
            raise NotSupported(f"{shown(native_uri)}: the map removes no such file")
        if expected.exists is False:
            raise Conflict(f"{shown(native_uri)}: somebody else has made it")
        await self._change(found)

    def renames(self, native_uri: str, to: str, *, is_directory: bool, replace: bool) -> bool:
        """Return whether the map has a call that renames this."""
        path, new = _path_of(native_uri), _path_of(to)
        found = self._map.rename.call(path, to=new)
        if found is None or (replace and not (is_directory or found.options.replaces)):
            return False
        known = self._map.list if is_directory else self._map.read
        return (found.options.directories or not is_directory) and known.has(new)

    async def rename(self, native_uri: str, to: str, *, replace: bool) -> ResourceMetadata:
        """Rename by the call of the map, and look what the server has then. Raise BbfsError.

        No tool says whether it compares, so the server is asked for the new name before.
        """
        found = self._map.rename.call(_path_of(native_uri), to=_path_of(to))
        if found is None:
            raise NotSupported(f"{shown(native_uri)}: the map renames no such file")
        there, _ = await self._listed(to)
        if there is not None and not (replace and found.options.replaces and there.kind == "resource"):
            raise Exists(shown(to))
        await self._change(found)
        renamed, is_whole = await self._listed(to)
        if renamed is None and is_whole:
            raise BbfsError(f"{shown(to)}: {found.options.tool} reported no error, and the server has no such name")
        return renamed or self._metadata(_segments_of(to))

    async def _listed(self, native_uri: str) -> tuple[ResourceMetadata | None, bool]:
        """Return a file or a directory as its directory lists it now, and whether that listing is whole."""
        try:
            listing = await self.list_directory(_segments_of(native_uri)[:-1])
        except NotFound:
            return None, True
        found = next((each for each in listing.resources if each.native_uri == native_uri), None)
        return found, listing.problem is None

    async def make_directory(self, native_uri: str) -> ResourceMetadata:
        found = self._map.make_directory.call(_path_of(native_uri))
        if found is None:
            raise NotSupported(f"{shown(native_uri)}: the map makes no such directory")
        await self._change(found)
        return self._metadata(_segments_of(native_uri), "directory")

    async def remove_directory(self, native_uri: str) -> None:
        """Remove an empty directory by the call of the map: one that has nothing in it now. Raise BbfsError.

        Without a call, a directory that went with its last file is gone, and any other one stays.
        """
        found = self._map.remove_directory.call(_path_of(native_uri))
        if found is None:
            there, is_whole = await self._listed(native_uri)
            if there is None and is_whole:
                return
            raise NotSupported(f"{shown(native_uri)}: the map removes no such directory")
        listing = await self.list_directory(_segments_of(native_uri))
        if listing.resources or listing.problem:
            raise NotEmpty(shown(native_uri))
        await self._change(found)


_READS = {"readOnlyHint": True, "destructiveHint": False}


_FIRST_PAGE: Mapping[str, Any] = {"page": 1, "next": None}


def _required(found: Prepared[OptionsT] | None, path: Path) -> Prepared[OptionsT]:
    """Return a call that the map has. Raise NotSupported if it has none."""
    if found is None:
        raise NotSupported(f"{shown('/'.join(path))}: the map has no call for it")
    return found


def _parsed(
    parse: Callable[[Mapping[str, Any]], T], tree: TreeMap, prepared: Prepared[Any], result: Mapping[str, Any]
) -> tuple[T, Any]:
    require_answer(result, tree.errors, prepared.arguments)
    options = prepared.options
    return parse(result), mark_in(result, options.next, is_python=options.format == "python")


def _segment(name: str) -> str:
    """Return the segment of a native URI for a name, in which a slash is no end of it."""
    return quote(name, safe="!$&'()*+,;=:@~")


def _segments_of(native_uri: str) -> Path:
    return tuple(filter(None, native_uri.removeprefix(BEGINNING).split("/")))


def _path_of(native_uri: str) -> Path:
    path = _names_of(_segments_of(native_uri))
    if not path or not native_uri.startswith(BEGINNING):
        raise NotFound(f"{shown(native_uri)}: no path of a tree")
    return path


def _names_of(segments: Path) -> Path:
    """Return the names behind segments of a native URI. Raise NotFound for a path that leads out of the tree."""
    try:
        names = tuple(unquote(segment, errors="strict") for segment in segments)
    except UnicodeDecodeError:
        raise NotFound(f"{shown('/'.join(segments))}: no text") from None
    if names and not is_name("/".join(names)):
        raise NotFound(f"{shown('/'.join(names))}: no path of a tree")
    return names
