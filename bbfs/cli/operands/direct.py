"""Sources that this process opens, if no mount serves them."""

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, TypeVar

import trio

from bbfs.cli import lazy
from bbfs.cli.operands import scratches
from bbfs.cli.operands.access import (
    NoSuchSource,
    Target,
    TreeEntry,
    ends_with_its_process,
    kept_write,
    pending_ids,
    with_pending,
)
from bbfs.cli.operands.rule import Path, components, path_by_rule
from bbfs.model.calls import UserTime
from bbfs.model.errors import BbfsError, ConfigError, Denied, IsADirectory, NotFound, ReadOnly, Unreachable
from bbfs.model.uri import parse_data_source_uri
from bbfs.model.versions import Labels
from bbfs.resources.commands.requests import Request, unheard
from bbfs.sources.gateway import IsMcpServer

if TYPE_CHECKING:
    from bbfs.model.values import Content
    from bbfs.resources.catalog.record import Node, Record
    from bbfs.resources.manager import ResourceManager
    from bbfs.resources.source import Source
    from bbfs.sources.gateway import Audience

A = TypeVar("A")
_CHUNK = 1 << 20
_MOST_LINKS = 40
"""Symbolic links followed on the way to one file: MAXSYMLINKS of Linux."""


class DirectTree:
    """The tree of a ResourceManager, as a mount would show it."""

    def __init__(self, manager: "ResourceManager") -> None:
        self.mount: str | None = None
        self.manager = manager
        self._user_time = UserTime()

    async def ask(self, request: Request[A], hear: Callable[[A], object] | None = None) -> None:
        if request.name == "search" and self.manager.index is not None:
            with suppress(Unreachable):  # the task that writes the index reports it
                await self.manager.index.open()  # until then, no source counts as indexed
        await lazy.answers.ask(self.manager, request, hear or unheard, self._user_time)

    def attach(self, audience: "Callable[[str, UserTime], Audience]") -> None:
        """Have servers ask the user. audience: returns the user as a source with this name sees one."""
        for source in self.manager.sources.values():
            if isinstance(source.handler, IsMcpServer):
                source.handler.passing.attach(audience(source.data.name, self._user_time))

    def has(self, path: str) -> bool:
        return True

    async def source_directory(self, source: str) -> Path:
        """Return the directory of a source named by its prefix, name or id.

        Raise NoSuchSource, or ConfigError if several have the name.
        """
        if source in self.manager.roots.directories():
            return (source,)
        base = next((base for base in self.manager.sources if source.startswith(base + "+")), None)
        if base is not None and source in await self._roots(base):
            return (source,)
        link = self.manager.roots.link(source)
        if link is not None:
            return components(link)
        known = [s.data for s in self.manager.sources.values()]
        found = [data for data in known if source in (data.id, data.name, data.base_prefix)]
        if len(found) > 1:
            raise ConfigError(f"{source!r} names several sources: {', '.join(data.uri_prefix for data in found)}")
        if not found:
            there = ", ".join(data.uri_prefix for data in known)
            raise NoSuchSource(f"no source {source!r}; there are: {there}")
        return (found[0].uri_prefix,)

    async def _roots(self, *bases: str) -> list[str]:
        """List the sources with these base prefixes, by default all, and return the directories at the root.

        A source with a scheme of its own has a directory for each other scheme that it lists.
        """
        async with trio.open_nursery() as nursery:
            for base in bases or self.manager.sources:
                source = self.manager.sources[base]
                if source.data.scheme is not None and source.data.type != "filesystem":
                    nursery.start_soon(self._listed, source)
        return sorted(self.manager.roots.directories())

    async def list_all(self, prefixes: Iterable[str]) -> None:
        """List the sources that have one of these URI prefixes: only a listing has all metadata of a resource."""
        async with trio.open_nursery() as nursery:
            for source in self.manager.sources.values():
                if any(f"{prefix}+".startswith(f"{source.data.base_prefix}+") for prefix in prefixes):
                    nursery.start_soon(self._listed, source)

    async def _listed(self, source: "Source") -> None:
        with suppress(BbfsError):  # a read of it reports the error
            await self.manager.tree.below(source, ())

    async def locate(self, uri: str) -> Path:
        parsed = parse_data_source_uri(uri)
        source = self.manager.sources.get(parsed.base_prefix)
        if source is None:
            raise NoSuchSource(f"no source {parsed.base_prefix!r}")
        return await self._located(source, uri, parsed.original_uri)

    async def _located(self, source: "Source", uri: str, native: str) -> Path:
        await self.manager.tree.below(source, ())
        record = source.catalog.records.get(native)
        if record is None:
            return await self.resolved(path_by_rule(uri))
        if source.data.scheme is None:
            return (source.data.uri_prefix, *record.path)
        return (f"{source.data.base_prefix}+{record.path[0]}", *record.path[1:])

    async def resolved(self, path: Path) -> Path:
        """Return `path` with its symbolic links followed, as the kernel does on a mount. Raise BbfsError."""
        if not path:
            return ()
        done, rest, links = await self.source_directory(path[0]), list(path[1:]), 0
        while rest:
            name = rest.pop(0)
            if name == "..":
                if len(done) == 1:
                    raise Denied("leads out of its source")
                done = done[:-1]
                continue
            node = await (self.manager.tree.find if rest else self.manager.contents.find_certain)((*done, name))
            if node.kind != "symlink":
                done = (*done, name)
                continue
            links += 1
            target = node.target or ""
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                raise Denied(f"a symbolic link that leads out of its source: {target}")
            rest = [*components(target), *rest]
        return done

    async def children(self, path: Path, *, exact: bool) -> list[TreeEntry]:
        if not path:
            return [TreeEntry((name,), "directory") for name in await self._roots()]
        path = await self.resolved(path)
        node = await self.manager.contents.find_certain(path) if len(path) > 1 else None
        nodes = await self.manager.tree.children(path)
        if not nodes and node is not None and node.candidate is not None:
            raise NotFound("/".join(path))
        if not exact:
            return [self._entry((*path, name), node) for name, node in nodes.items()]
        problems: dict[str, str] = {}

        async def learn(name: str, record: "Record") -> None:
            try:
                await self._learnt(record)
            except BbfsError as error:
                problems[name] = str(error)

        async with trio.open_nursery() as nursery:
            for name, node in nodes.items():
                if node.kind == "file" and node.record is not None:
                    nursery.start_soon(learn, name, node.record)
        nodes = await self.manager.tree.children(path)
        return [self._entry((*path, name), node, problems.get(name)) for name, node in nodes.items()]

    async def described(self, entries: list[TreeEntry]) -> list[TreeEntry]:
        return entries  # a listing has it all

    async def entry(self, path: Path, *, exact: bool) -> TreeEntry:
        path = await self.resolved(path)
        node = await self.manager.contents.find_certain(path)
        if node.kind == "file" and node.record is not None and (exact or node.record.provisional):
            await self._learnt(node.record)
            node = await self.manager.tree.find(path)
        return self._entry(path, node)

    async def _learnt(self, record: "Record") -> None:
        if self.manager.contents.size_now(record) is None:
            await self.manager.contents.learn(record)

    def _entry(self, path: Path, node: "Node", error: str | None = None) -> TreeEntry:
        record = node.record
        if record is None:
            return TreeEntry(path, node.kind, target=node.target)
        known = self.manager.contents.size_now(record) if node.kind == "file" else None
        metadata = record.metadata
        return TreeEntry(
            path,
            node.kind,
            None if known is None else known[0],
            record.modified_ns,
            metadata.mime_type,
            metadata.uri,
            node.target,
            error,
        )

    async def document(self, target: Target) -> dict[str, Any]:
        record, path = await self._record(target)
        if record is None:
            assert path is not None
            if len(path) > 1:
                return {"path": "/".join(path), "kind": "directory"}
            with suppress(BbfsError):  # the document has it
                await self.manager.tree.children(path)
            return {**self.manager.tree.place(path)[0].document, "kind": "directory"}
        kind, problem = record.metadata.kind, {}
        try:
            if kind == "resource":
                await self._learnt(record)
        except BbfsError as error:
            if isinstance(error, NotFound):
                raise
            problem = {"error": str(error)}
        document = problem | self.manager.contents.document(path or (), record)
        if not path:
            del document["path"]
        is_directory = kind == "directory" or record.parts is not None
        return {**document, "kind": "directory" if is_directory else "symlink" if kind == "symlink" else "file"}

    async def _record(self, target: Target) -> "tuple[Record | None, Path | None]":
        """Return the record of a resource and its path. The record is None for a directory that only URIs make.

        A resource may exist without being listed; then it has no path.
        """
        try:
            path = await self.resolved(await target.located())
            return (await self.manager.contents.find_certain(path)).record, path
        except NotFound:
            if target.uri is None:
                raise
        return (self.manager.by_uri.record_of(target.uri))[1], None

    async def copy(self, target: Target, write: Callable[[bytes], object]) -> None:
        if target.uri is not None:
            uri = target.uri
        else:
            record, _ = await self._record(target)
            if record is None or record.metadata.kind == "directory":
                raise IsADirectory("is a directory")
            if record.parent is not None:
                return await _copy_content(await self.manager.contents.open(record), write)
            uri = record.metadata.uri
        for part in (await self.manager.by_uri.load(uri)).parts:
            await _copy_content(part.content, write)
        return None

    async def require_written(self, target: Target) -> None:
        self._require_written(await self._uri(target))

    def _require_written(self, uri: str) -> None:
        """Raise ReadOnly if nothing that is written to a source would outlast this process."""
        scratches.require_no_scratch(None)
        source = self.manager.sources.get(parse_data_source_uri(uri).base_prefix)
        if source is None:
            return
        if source.writes is None:
            raise ReadOnly(source.why_read_only)
        if ends_with_its_process(source.data):
            raise ReadOnly("the source is in the memory of this command alone: mount it, or give it the option file")

    async def write(
        self, target: Target, file: IO[bytes], *, replace: bool, labels: Labels | None = None, by_owner: bool = False
    ) -> None:
        uri = await self._uri(target)
        self._require_written(uri)
        data = await trio.to_thread.run_sync(file.read, abandon_on_cancel=True)
        before = pending_ids()
        try:
            labels = labels or Labels()
            await self.ask(lazy.writing.Put(None, uri, data, replace, False, labels.mime_type, labels.description))
        except BbfsError as error:
            raise kept_write(before, uri=uri) or error from error

    async def remove(self, target: Target, *, by_owner: bool = False) -> None:
        uri = await self._uri(target)
        self._require_written(uri)
        await self.ask(lazy.writing.Remove(None, uri))

    async def _uri(self, target: Target) -> str:
        """Return the URI of a resource, or the one that an unused path gets."""
        if target.uri is not None:
            return target.uri
        with suppress(NotFound):
            record, _ = await self._record(target)
            if record is not None:
                return record.metadata.uri
        directory, *below = await target.located()
        return await self.manager.tree.uri_for((*await self.source_directory(directory), *below))

    async def why(self, path: Path, error: OSError) -> str | None:
        return None  # the error itself has the source's reason

    async def sources(self, timeout: float | None) -> list[dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = {}

        async def contact(base: str, source: "Source") -> None:
            counted: int | None = None
            problem: str | None = None
            if timeout is not None:
                with trio.move_on_after(timeout) as bound:
                    try:
                        await self.manager.tree.below(source, ())
                        await self.manager.by_uri.list_below(source.data.uri_prefix)
                        counted = source.resources
                    except BbfsError as error:
                        problem = str(error)
                if bound.cancelled_caught and source.state.state != "up":
                    problem = f"did not answer within {timeout:g} s"
            document = source.document
            document.update(resources=counted, mount=None)
            if problem is not None:
                document.setdefault("error", problem)
            rows[base] = document

        async with trio.open_nursery() as nursery:
            for base, source in self.manager.sources.items():
                nursery.start_soon(contact, base, source)
        return with_pending([rows[base] for base in self.manager.sources])


async def _copy_content(content: "Content", write: Callable[[bytes], object]) -> None:
    offset = 0
    while offset < content.size:
        chunk = await content.read_waiting(offset, _CHUNK)
        if not chunk:
            raise OSError(errno.EIO, "the content ended before its size")
        write(chunk)
        offset += len(chunk)
