"""Directory resources of MCP servers (SEP-2640, "Reading Directories"): those that a list names, the entries of one.

The path of a resource is its URI (`docs/semantics.md` S2), so the entries of a directory are the URIs that are one
segment longer. Whatever else a server answers is left out, and counted.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bbfs.model.errors import BbfsError
from bbfs.model.listing import Rows
from bbfs.model.uri_paths import VANISHING, plain_path
from bbfs.model.values import Listing, ResourceMetadata
from bbfs.server_parts.skills import DIRECTORY
from bbfs.sources.abilities import ListingExchange
from bbfs.sources.bounded.turns import InTurns
from bbfs.sources.mcp.client.decode import add_resources, resource_entry, usable_text, weight
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.client.paging import End, Taken
from bbfs.sources.mcp.tools import BEGINNINGS

MOST_NAMED = 10_000
"""Directories that a list may name."""
MOST_ENTRIES = 100_000
"""Entries of one directory; each takes about 1 KB of memory."""
BELOW_IN_A_ROW = 1000
"""Entries in a row that are in or below directories named before, after which a list tells nothing more.

A server of a million resources lists them all for clients that read no directories.
"""
MOST_GUESSES = 8
"""Directories that a server is asked for which its list does not name: it need not name any."""


class NamedDirectories:
    """The directories that a list of resources names, while its pages come, and the resources outside of them."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._found: dict[tuple[str, ...], str] = {}
        self._above: dict[str, bool] = {}  # whether resources are below a directory, by what is before their last slash
        self._in_a_row = 0
        self._guessed: set[str] = set()
        self._left_out = 0

    @property
    def is_told(self) -> bool:
        """Return whether the rest of the list need not be read."""
        return bool(self._found) and self._in_a_row >= BELOW_IN_A_ROW

    def take(self, raw: Sequence[Any]) -> Taken:
        """Take some entries of the list. What is below a named directory counts, and is not kept."""
        others: list[Any] = []
        known = 0
        for item in raw:
            uri = usable_text(item, "uri")
            if uri is None or uri.startswith(BEGINNINGS):
                others.append(item)
            elif item.get("mimeType") == DIRECTORY:
                known += 1
                self._in_a_row = 0 if self.add(uri) else self._in_a_row + 1
            elif self._is_below(uri):
                known += 1
                self._in_a_row += 1
            else:
                self._in_a_row = 0
                others.append(item)
        taken = add_resources(others, self._rows)
        return Taken(taken.new + known, taken.invalid, taken.bytes + known * 64)

    def add(self, uri: str) -> bool:
        """Add a directory. Return whether it is in no other one."""
        path = plain_path(uri).path
        if len(self._found) >= MOST_NAMED or self._holds(path):
            self._left_out += len(self._found) >= MOST_NAMED
            return False
        self._found[path] = uri
        self._above.clear()
        return True

    def _holds(self, path: tuple[str, ...]) -> bool:
        """Return whether a path is one of the directories, or below one."""
        return any(path[:depth] in self._found for depth in range(1, len(path) + 1))

    def _is_below(self, uri: str) -> bool:
        above, slash, last = uri.rpartition("/")
        if not slash or last in VANISHING:  # what stands before tells nothing of the directory
            return self._holds(plain_path(uri).path)
        known = self._above.get(above)
        if known is None:
            if len(self._above) >= MOST_NAMED:
                self._above.clear()
            known = self._above[above] = self._holds(plain_path(uri).path[:-1])
        return known or plain_path(uri).path in self._found

    def guesses(self) -> list[str]:
        """Return directories that the server may have, by the beginnings of what it lists; each once."""
        if self._found:
            return []
        found = (first_directory(uri) for uri in list(self._rows.descriptions)[: MOST_NAMED // 10])
        new = [uri for uri in dict.fromkeys(found) if uri is not None and uri not in self._guessed]
        new = new[: MOST_GUESSES - len(self._guessed)]
        self._guessed.update(new)
        return new

    def end(self, end: End) -> tuple[tuple[str, ...], End]:
        """Return the directories that are in no other one, and the end of the listing. Drops the rows below them."""
        paths = [path for path in self._found if self._holds(path[:-1])]
        for path in paths:
            del self._found[path]
        self._above.clear()
        if self._found:
            for uri in list(self._rows.descriptions):
                if not uri.startswith(BEGINNINGS) and self._is_below(uri):
                    self._rows.discard(uri)
        if self._left_out:
            problem = f"{self._left_out} directories beyond {MOST_NAMED} left out"
            end = End(end.ttl, "; ".join(filter(None, (end.problem, problem))))
        return tuple(self._found.values()), end


def first_directory(uri: str) -> str | None:
    """Return the uppermost directory that a URI with `://` is in, if it is in one."""
    scheme, opening, rest = uri.partition("://")
    names = rest.lstrip("/")
    first, slash, _ = names.partition("/")
    return f"{scheme}://{rest[: len(rest) - len(names)]}{first}" if opening and slash and first else None


async def gather(
    manager: MCPManager, server_id: str, rows: Rows, exchange: ListingExchange | None
) -> tuple[tuple[str, ...] | None, End | BbfsError]:
    """Gather the resources of a server in `rows`, but for those in the directories that the server reads one at a time.

    Return the directories, None for a server that reads none; and the end of the list, or the error as a value: raised
    in a nursery it would become an exception group. exchange: as for `MCPManager.gather_resources`.
    """
    try:
        reads_directories = await manager.reads_directories(server_id)
    except BbfsError as error:
        if exchange is None:
            return None, error
        reads_directories = False  # another machine may know what the server lists
    try:
        if reads_directories:
            return await _gather_outside(manager, server_id, rows)
        return None, await manager.gather_resources(server_id, rows, exchange)
    except BbfsError as error:
        return None, error


async def _gather_outside(manager: MCPManager, server_id: str, rows: Rows) -> tuple[tuple[str, ...], End]:
    """Gather the directories that a server names, and the resources outside of them. Raises BbfsError."""
    named = NamedDirectories(rows)

    async def turned() -> bool:
        for uri in named.guesses():
            entries = DirectoryEntries(rows.base_prefix, uri)
            with suppress(BbfsError):  # then what is below it is listed as any other resource
                await manager.read_directory(server_id, uri, 1, entries.take)
            if entries:  # the list has something below it
                named.add(uri)
        return named.is_told

    return named.end(await manager.gather_outside(server_id, named.take, turned))


class DirectoryEntries:
    """The entries of one directory, while its pages come. base_prefix: of the source. uri: the native one."""

    def __init__(self, base_prefix: str, uri: str) -> None:
        self._base_prefix = base_prefix
        self._path = plain_path(uri).path
        self._entries: dict[str, ResourceMetadata] = {}
        self._outside = 0

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, raw: Sequence[Any]) -> Taken:
        """Take some entries as the server lists them."""
        before, invalid, size = len(self._entries), 0, 0
        for item in raw:
            entry = resource_entry(item)
            if entry is None:
                invalid += 1
                continue
            is_directory = entry.mime_type == DIRECTORY
            path, _ = plain_path(entry.uri)
            if path[:-1] == self._path:
                name = entry.uri.rstrip("/").rpartition("/")[2]
            elif path == self._path and not is_directory:
                name = ""  # the own content of the directory
            else:
                self._outside += 1
                continue
            metadata = entry.metadata(self._base_prefix)
            if is_directory:
                metadata = replace(metadata, size=None, kind="directory")
            if self._entries.setdefault(name, metadata) is metadata:
                size += weight(item)
            elif self._entries[name] != metadata:
                invalid += 1
        return Taken(len(self._entries) - before, invalid, size)

    async def listing(self, end: End, known: Callable[[ResourceMetadata], ResourceMetadata]) -> Listing:
        """Return the entries. known: adds what else is known of a resource."""
        outside = f"{self._outside} entries outside of the directory left out" if self._outside else None
        problem = "; ".join(filter(None, (end.problem, outside))) or None
        found = [known(entry) async for entry in InTurns(self._entries.values())]
        return Listing(found, end.ttl, problem)
