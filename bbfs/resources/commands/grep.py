"""Tells which files a grep must read (`bbfs grep`): all but those that the index knows to have no match.

The client itself reads the files, through the mount. A file is passed over only if a reader of the mount would get the
version that is in the index, without asking the source: the record is fresh, or the source has just listed that
version. `cached` trusts the index otherwise, too.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

import trio

from bbfs.model.errors import BbfsError
from bbfs.model.uri_paths import MAX_DEPTH
from bbfs.resources.catalog.base import Shown
from bbfs.resources.catalog.record import DIRECTORY, Node, Path, Record
from bbfs.resources.commands import table
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.index.covered import CoveredDirectory
from bbfs.resources.search.index.entries import Candidates
from bbfs.resources.search.literals import Query, plan
from bbfs.resources.source import Source

PAGE = 500
"""Files in one answer."""
LONGEST_PAGE = 100_000
"""Characters of the paths in one answer."""
AT_ONCE = 4 * PAGE
"""Files that are judged before other tasks get their turn, about 1 ms."""
_ALL = Candidates((0, 0), None)
Answer = table.MayMatch | table.NoMatch | table.Unlisted


@dataclass(slots=True)
class _Page:
    """Paths for one answer."""

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

    def __init__(self, manager: ResourceManager, request: table.Grep) -> None:
        """Raise BbfsError for a pattern that is too long, or a path."""
        self._manager = manager
        self._start = table.names(request.path)
        self._query: Query = plan(request.pattern, request.syntax, ignore_case=request.ignore_case)
        self._cached = request.cached
        self._others = request.others
        self._candidates: dict[str, Candidates] = {}

    async def answers(self) -> AsyncGenerator[Answer]:
        """Yield the answers. Raise BbfsError if the path itself cannot be listed."""
        read, others = _Page(), _Page()
        pending = [self._start]
        while pending:
            path = pending.pop()
            try:
                directory, candidates = await self._directory(path)
            except BbfsError as error:
                if path == self._start:
                    raise
                yield table.Unlisted("/".join(path), str(error))
                continue
            files = directory.passed_over(candidates.uris or (), self._manager.clock(), cached=self._cached)
            for number, (name, passed_over) in enumerate(files):
                if number % AT_ONCE == AT_ONCE - 1:
                    await trio.lowlevel.checkpoint()  # a large directory takes its time
                if not passed_over:
                    if read.add((*path, name)):
                        yield table.MayMatch(tuple(read.paths))
                        read = _Page()
                elif self._others and others.add((*path, name)):
                    yield table.NoMatch(tuple(others.paths))
                    others = _Page()
            if len(path) < MAX_DEPTH:
                below = ((*path, name) for name in reversed(directory.directories))
                pending += [each for each in below if not self._is_aside(each)]
        if read.paths:
            yield table.MayMatch(tuple(read.paths))
        if others.paths:
            yield table.NoMatch(tuple(others.paths))

    def _is_aside(self, path: Path) -> bool:
        """Return whether a directory has the pages of MCP apps, which are matched only if it is named itself."""
        source, below = self._manager.tree.place(path)
        return len(below) == 1 and source.leaves_aside(f"{below[0]}://")

    async def _directory(self, path: Path) -> tuple[CoveredDirectory, Candidates]:
        """Return a directory as it is listed now, and the documents of its source that may match. Raise BbfsError."""
        manager, index = self._manager, self._manager.index
        source = manager.tree.place(path)[0] if path else None
        candidates = await self._possible(source)
        known = None if index is None else index.covered.get(path, candidates.state, manager.clock())
        if known is not None and candidates.uris is not None:
            return known, candidates
        candidates = await self._possible(source, versions=candidates.uris is not None)
        versions = candidates.versions or {}
        entries = await self._entries(path)
        directory = CoveredDirectory(candidates.state, manager.tree.names_lease(path) if path else None)
        for number, (name, shown) in enumerate(entries):
            if number % PAGE == PAGE - 1:
                await trio.lowlevel.checkpoint()
            if isinstance(shown, str):
                directory.add_file(name, shown, None, versions.get(shown))
            elif shown.kind == "directory":
                directory.directories.append(name)
            elif shown.kind == "file":
                directory.add_file(name, *_covered(shown, source, versions))
        if index is not None and candidates.uris is not None:
            index.covered.put(path, directory)
        return directory, candidates

    async def _entries(self, directory: Path) -> list[tuple[str, Shown]]:
        manager = self._manager
        if directory:
            return list(await manager.tree.view(directory))
        files = [(name, await manager.tree.find((name,))) for name in manager.tree.root_files]
        return [*files, *((name, DIRECTORY) for name in sorted(manager.roots.directories()))]

    async def _possible(self, source: Source | None, *, versions: bool = False) -> Candidates:
        """Return the documents of a source that may match, asked for once; all if the index fails or has none of it."""
        index = self._manager.index
        if source is None or index is None:
            return _ALL
        name = source.data.id
        found = self._candidates.get(name)
        if found is None or (versions and found.versions is None):
            found = None
            with suppress(BbfsError):  # the files are read then
                found = await index.candidates(source, self._query, versions=versions)
            found = self._candidates[name] = _ALL if found is None else found
        return found


async def grep(manager: ResourceManager, request: table.Grep, replies: table.Replies[Answer]) -> None:
    """Answer a request. Raise BbfsError."""
    async with aclosing(Grep(manager, request).answers()) as answers:
        async for answer in answers:
            await replies.give(answer)


def _covered(node: Node, source: Source | None, versions: Mapping[str, str]) -> tuple[str, Record | None, str | None]:
    """Return the native URI, the record and the indexed version of a file in a directory of `source`.

    A file of another source, or made for the mount alone, has none.
    """
    record = node.record
    if record is None or source is None or record.source_key != source.key:
        return "", None, None
    uri = record.metadata.native_uri
    version = versions.get(uri) if record.parent is None and node.candidate is None and node.draft is None else None
    # The same object where it is the same version, so that to compare them takes no look at the texts.
    return uri, record, record.digest if version == record.digest else version
