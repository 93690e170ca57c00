"""Tells which files a grep must read (`bbfs grep`): all but those that the index knows to have no match.

    {"id": 1, "request": "grep", "path": "mcp-server+docs/guide", "pattern": "renew|issue", "syntax": "extended",
     "ignoreCase": false, "cached": false, "others": false}

The answers are `{"id": 1, "read": [PATH, …]}` with paths from the mount's root, in the order of the tree, and with
`others` also `{"id": 1, "others": [PATH, …]}` for the files without a match. Directories that cannot be listed are in
`{"id": 1, "unlisted": PATH, "why": …}`. The client itself reads the files, through the mount.

A file is passed over only if a reader of the mount would get the version that is in the index, without asking the
source: the record is fresh, or the source has just listed that version. `cached` trusts the index otherwise, too.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from bbfs.model.errors import BbfsError, NameTooLong, ProtocolViolation
from bbfs.model.uri_paths import MAX_DEPTH
from bbfs.resources.catalog.base import Shown
from bbfs.resources.catalog.record import DIRECTORY, Path, Record
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.literals import Query, Syntax, plan
from bbfs.resources.source import Source

PAGE = 500
"""Files in one message."""
LONGEST_PAGE = 100_000
"""Characters of the paths in one message."""
_SYNTAXES: Mapping[str, Syntax] = {"extended": "extended", "fixed": "fixed", "perl": "perl"}


@dataclass(slots=True)
class _Page:
    """Paths for one message."""

    paths: list[str] = field(default_factory=list)
    size: int = 0

    def add(self, path: Path) -> bool:
        """Return whether the page is full now."""
        text = "/".join(path)
        self.paths.append(text)
        self.size += len(text)
        return len(self.paths) >= PAGE or self.size >= LONGEST_PAGE


class Grep:
    """One grep: walks the tree as a program on the mount would, and leaves out what cannot match."""

    def __init__(self, manager: ResourceManager, request: Mapping[str, Any]) -> None:
        """Take a request. Raise BbfsError for one that is not understood."""
        path, pattern, syntax = request.get("path"), request.get("pattern"), _SYNTAXES.get(str(request.get("syntax")))
        if not isinstance(path, str) or not isinstance(pattern, str) or syntax is None:
            raise ProtocolViolation("path and pattern must be strings, and syntax extended, fixed or perl")
        self._manager = manager
        self._start = tuple(name for name in path.split("/") if name)
        if len(self._start) > MAX_DEPTH + 1:
            raise NameTooLong(f"a path of more than {MAX_DEPTH + 1} names")
        self._query: Query = plan(pattern, syntax, ignore_case=request.get("ignoreCase") is True)
        self._cached = request.get("cached") is True
        self._others = request.get("others") is True
        self._excluded: dict[str, Mapping[str, str]] = {}

    async def answers(self) -> AsyncGenerator[dict[str, Any]]:
        """Yield the answers. Raise BbfsError if the path itself cannot be listed."""
        read, others = _Page(), _Page()
        pending = [self._start]
        while pending:
            directory = pending.pop()
            try:
                entries = await self._entries(directory)
            except BbfsError as error:
                if directory == self._start:
                    raise
                yield {"unlisted": "/".join(directory), "why": str(error)}
                continue
            below: list[Path] = []
            source = self._manager.place(directory)[0] if directory else None
            for number, (name, shown) in enumerate(entries):
                if number % PAGE == PAGE - 1:
                    await trio.lowlevel.checkpoint()  # a large directory takes its time
                path = (*directory, name)
                kind = "file" if isinstance(shown, str) else shown.kind
                if kind == "directory" and len(path) <= MAX_DEPTH:
                    below.append(path)
                elif kind == "file":
                    if not await self._passed_over(source, shown):
                        if read.add(path):
                            yield {"read": read.paths}
                            read = _Page()
                    elif self._others and others.add(path):
                        yield {"others": others.paths}
                        others = _Page()
            pending += reversed(below)
        for key, page in (("read", read), ("others", others)):
            if page.paths:
                yield {key: page.paths}

    async def _entries(self, directory: Path) -> list[tuple[str, Shown]]:
        manager = self._manager
        if directory:
            return list(await manager.view(directory))
        files = [(name, await manager.find((name,))) for name in manager.root_files]
        return [*files, *((name, DIRECTORY) for name in sorted(manager.roots()))]

    async def _passed_over(self, source: Source | None, shown: Shown) -> bool:
        """Return whether a file has no match. source: that of its directory."""
        if isinstance(shown, str):
            excluded = {} if source is None else await self._without_match(source)
            if source is None or (version := excluded.get(shown)) is None:
                return False
            return self._is_current(source.catalog.record(shown), version)
        record = shown.record
        if record is None or record.parent is not None or shown.candidate is not None:
            return False
        excluded = await self._without_match(self._manager.source_of(record))
        version = excluded.get(record.metadata.native_uri)
        return version is not None and self._is_current(record, version)

    def _is_current(self, record: Record | None, version: str) -> bool:
        """Return whether a reader would get this version now."""
        if record is None:
            return self._cached
        if record.invalidated or record.on_open or record.parts is not None or record.digest not in (None, version):
            return False
        return self._cached or (record.digest == version and record.fresh(self._manager.clock()))

    async def _without_match(self, source: Source) -> Mapping[str, str]:
        """Return the documents of a source that cannot match, with their versions; none if the index fails."""
        found = self._excluded.get(source.data.id)
        if found is None:
            found = {}
            if self._manager.index is not None:
                try:
                    found = await self._manager.index.excluded(source, self._query)
                except BbfsError:
                    found = {}  # the files are read then
            self._excluded[source.data.id] = found
        return found
