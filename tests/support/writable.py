"""Sources that can be written, and a program that writes: for tests of the write side without a mount."""

import os
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import trio
from fakes import CompletingSource, FlatSource, Kernel, TreeSource, World, data_source

from bbfs.model.errors import BbfsError, Conflict, Exists, NotEmpty, NotFound, Outdated
from bbfs.model.values import Capabilities, Content, DataSource, ResourceMetadata, WriteOperation
from bbfs.model.versions import Expected
from bbfs.resources.catalog.record import Record
from bbfs.sources import Handler
from bbfs.sources.content.memory import MemoryContent
from bbfs.vfs.file_handles import NewAttributes
from bbfs.vfs.names import Aim

PIECE = 1 << 16


def writable(prefix: str) -> DataSource:
    return replace(data_source(prefix), capabilities=Capabilities(write=True))


class Taking:
    """What the writable sources share. refused: what the next writes of a URI end with. written: the URIs, in order.

    released: writes wait for it.
    """

    contents: dict[str, bytes]
    refused: dict[str, BbfsError]
    written: list[str]
    detects_conflicts = True
    released: trio.Event | None = None

    def check(self, uri: str, expected: Expected) -> None:
        there = self.contents.get(uri)
        if expected.exists is not None and expected.exists != (there is not None):
            raise Conflict(uri)
        if expected.etag is not None and (there is None or MemoryContent(there).version != expected.etag):
            raise Conflict(uri)
        if expected.version is not None and (there is None or MemoryContent(there).version != expected.version):
            raise Conflict(uri)

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        self.written.append(native_uri)
        if self.released is not None:
            await self.released.wait()
        if native_uri in self.refused:
            raise self.refused[native_uri]
        self.check(native_uri, expected)
        pieces = [await content.read_waiting(offset, PIECE) for offset in range(0, content.size, PIECE)]
        self.contents[native_uri] = b"".join(pieces)
        return self.told(native_uri)

    async def remove(self, native_uri: str, expected: Expected) -> None:
        if native_uri in self.refused:
            raise self.refused[native_uri]
        if native_uri not in self.contents:
            raise NotFound(native_uri)
        self.check(native_uri, expected)
        del self.contents[native_uri]

    def told(self, uri: str) -> ResourceMetadata:
        raise NotImplementedError


@dataclass
class WritableTree(Taking, TreeSource):  # type: ignore[misc]
    """A hierarchical source with directories of its own, renames, times and etags."""

    source: DataSource = field(default_factory=lambda: writable("bb-scripted+tree+file"))
    refused: dict[str, BbfsError] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    directories: set[str] = field(default_factory=set)
    times: dict[str, int] = field(default_factory=dict)

    @property
    def beginning(self) -> str:
        return self.start

    def writes(self, native_uri: str) -> Collection[WriteOperation]:
        return ("create", "replace", "remove", "rename", "make_directory", "remove_directory", "set_time")

    def told(self, uri: str) -> ResourceMetadata:
        return self.metadata(uri)

    def metadata(self, uri: str, **fields: object) -> ResourceMetadata:
        return super().metadata(uri, modified_ns=self.times.get(uri), **fields)

    async def list_directory(self, path: tuple[str, ...]):  # type: ignore[no-untyped-def]
        own = self.start + "/".join(path)
        made = {uri: b"" for uri in self.directories if not any(known.startswith(uri + "/") for known in self.contents)}
        if own in self.directories and not any(uri.startswith(own + "/") for uri in (*self.contents, *made)):
            self.listed.append(path)
            return type(await super().list_directory(()))(())
        keep = self.contents
        self.contents = {**keep, **{uri + "/.made": b"" for uri in made}}
        try:
            listing = await super().list_directory(path)
        finally:
            self.contents = keep
        return replace(listing, resources=tuple(each for each in listing.resources if each.name != ".made"))

    async def rename(self, native_uri: str, to: str, *, replace: bool) -> ResourceMetadata:
        below = [uri for uri in self.contents if uri.startswith(native_uri + "/")]
        if native_uri in self.directories or below:
            if any(uri.startswith(to + "/") for uri in (*self.contents, *self.directories)):
                raise NotEmpty(to)
            self.contents = {_moved(uri, native_uri, to): data for uri, data in self.contents.items()}
            self.directories = {_moved(uri, native_uri, to) for uri in self.directories}
            return super().metadata(to, kind="directory")
        if native_uri not in self.contents:
            raise NotFound(native_uri)
        if to in self.contents and not replace:
            raise Exists(to)
        self.contents[to] = self.contents.pop(native_uri)
        return self.told(to)

    async def make_directory(self, native_uri: str) -> ResourceMetadata:
        if native_uri in self.directories or native_uri in self.contents:
            raise Exists(native_uri)
        self.directories.add(native_uri)
        return super().metadata(native_uri, kind="directory")

    async def remove_directory(self, native_uri: str) -> None:
        if any(uri.startswith(native_uri + "/") for uri in (*self.contents, *self.directories)):
            raise NotEmpty(native_uri)
        self.directories.discard(native_uri)

    async def set_time(self, native_uri: str, modified_ns: int) -> ResourceMetadata:
        self.times[native_uri] = modified_ns
        return self.told(native_uri)


@dataclass
class StagingTree(WritableTree):
    """A hierarchical source that takes contents before it is known which resource they are for.

    places: what is staged. asked: the requests about that. takes: set when one comes. staging: these wait for it.
    """

    places: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    takes: trio.Event = field(default_factory=trio.Event)
    staging: trio.Event | None = None
    stage_error: BbfsError | None = None

    def writes(self, native_uri: str) -> Collection[WriteOperation]:
        return (*super().writes(native_uri), "stage")

    async def stage(self, native_uri: str, content: Content) -> str:
        self.asked.append("stage")
        self.takes.set()
        if self.staging is not None:
            await self.staging.wait()
        if self.stage_error is not None:
            raise self.stage_error
        place = f"{native_uri.rpartition('/')[0]}/place-{len(self.asked)}"
        self.places[place] = await content.read_waiting(0, content.size)
        return place

    async def write_staged(
        self, staged: str, native_uri: str, content: Content, expected: Expected
    ) -> ResourceMetadata:
        self.asked.append("write_staged")
        if native_uri in self.refused:
            raise self.refused[native_uri]
        self.check(native_uri, expected)
        self.contents[native_uri] = self.places.pop(staged)
        return self.told(native_uri)

    async def unstage(self, staged: str) -> None:
        self.asked.append("unstage")
        self.places.pop(staged, None)


def _moved(uri: str, old: str, new: str) -> str:
    return new + uri.removeprefix(old) if uri == old or uri.startswith(old + "/") else uri


@dataclass
class WritableFlat(Taking, FlatSource):  # type: ignore[misc]
    """A flat source without etags, directories and renames, such as a server with a tool that writes."""

    source: DataSource = field(default_factory=lambda: writable("mcp-server+docs"))
    refused: dict[str, BbfsError] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    detects_conflicts = detects_existing = False

    def writes(self, native_uri: str) -> Collection[WriteOperation]:
        return ("create", "replace", "remove")

    def told(self, uri: str) -> ResourceMetadata:
        return self.metadata(uri)


@dataclass
class WritableCompleting(WritableFlat, CompletingSource):  # type: ignore[misc]
    """A flat source whose names are completed, as those of an API. operations: what it has."""

    operations: Collection[WriteOperation] = ("create", "replace", "remove")

    def writes(self, native_uri: str) -> Collection[WriteOperation]:
        return self.operations


class Program(Kernel):
    """A program that reads and writes files, as the kernel passes its system calls on."""

    def __init__(self, world: World) -> None:
        super().__init__(world.files)
        self.writes, self.name_changes = world.core.open_files, world.core.name_changes
        self._manager = world.manager
        self._held: int | None = None

    def kept(self) -> list[bytes]:
        """Return the contents of the pending writes."""
        pending = self._manager.writer.pending
        return [pending.content_path(each).read_bytes() for each in pending.items()]

    def record(self, path: str) -> Record:
        """Return the record of a resource whose name is cached."""
        node = self._manager.tree.cached(tuple(path.split("/")))
        assert node is not None
        assert node.record is not None
        return node.record

    async def place(self, path: str) -> tuple[int, bytes]:
        directory, _, name = path.rpartition("/")
        return (await self.walk(directory, Aim.PASSES)).ino, name.encode()

    async def read(self, handle: int) -> bytes:
        """All bytes of a file, which may be written at the same time."""
        return await self.files.read(handle, 0, 3) + await self.files.read(handle, 3, 1 << 20)

    async def begin(self, path: str, flags: int, data: bytes = b"", at: int = 0) -> int:
        """open(2), and write(2) if there are data."""
        parent, name = await self.place(path)
        aim = Aim.CREATES if flags & os.O_CREAT else Aim.OTHER
        found = await self.lookup(parent, name.decode(), aim)
        if found.kind == "file" and found.ino and not found.attr_timeout and not flags & os.O_EXCL:
            try:
                await self.files.getattr(found.ino)  # its permissions
            except Outdated:
                found = await self.lookup(parent, name.decode(), aim)
        if found.ino and not flags & os.O_EXCL:
            handle: int = await self.again(path, lambda ino: self.writes.open_to_write(ino, flags))
        elif flags & os.O_CREAT:
            handle, created = await self.name_changes.create(parent, name, flags, 0o644)
            self.references[created.ino] += 1
        else:
            raise NotFound(path)
        if data:
            await self.writes.write(handle, at, data)
        return handle

    async def close(self, handle: int) -> None:
        """close(2): FLUSH, and RELEASE whatever it answered."""
        try:
            await self.writes.flush(handle)
        finally:
            self.files.release(handle)

    async def save(self, path: str, data: bytes, flags: int = os.O_TRUNC) -> None:
        """Write a whole file, as `>` does."""
        handle = await self.begin(path, os.O_WRONLY | os.O_CREAT | flags)
        for offset in range(0, len(data), PIECE):
            await self.writes.write(handle, offset, data[offset : offset + PIECE])
        await self.close(handle)

    async def append(self, path: str, data: bytes) -> None:
        handle = await self.begin(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        size = (await self.files.getattr(self.files.core.handles[handle].ino)).size
        await self.writes.write(handle, size, data)
        await self.close(handle)

    async def patch(self, path: str, offset: int, data: bytes) -> None:
        handle = await self.begin(path, os.O_RDWR)
        if data:  # the kernel sends no empty write
            await self.writes.write(handle, offset, data)
        await self.close(handle)

    async def hold(self, path: str) -> None:
        """Open a file for a while, unless one is open."""
        if self._held is None:
            self._held = await self.begin(path, os.O_RDWR)

    async def poke(self, _: str, offset: int, data: bytes) -> None:
        """Write to the file that is open, if one is."""
        if self._held is not None and data:
            await self.writes.write(self._held, offset, data)

    async def let(self, _: str = "") -> None:
        held, self._held = self._held, None
        if held is not None:
            await self.close(held)

    async def truncate(self, path: str, size: int) -> None:
        await self.again(path, lambda ino: self.writes.set_attributes(ino, None, _size(size)))

    async def unlink(self, path: str) -> None:
        await self.name_changes.remove(*await self.place(path))

    async def rename(self, path: str, to: str, flags: int = 0) -> None:
        parent, name = await self.place(path)
        await self.lookup(parent, name.decode())
        await self.name_changes.rename(parent, name, *await self.place(to), flags)

    async def mkdir(self, path: str) -> None:
        parent, name = await self.place(path)
        if (await self.lookup(parent, name.decode(), Aim.MAKES)).ino:
            raise Exists(path)
        made = await self.name_changes.make_directory(parent, name, 0o755)
        self.references[made.ino] += 1

    async def rmdir(self, path: str) -> None:
        await self.name_changes.remove_directory(*await self.place(path))


def _size(size: int) -> NewAttributes:
    return NewAttributes(size=size)


@asynccontextmanager
async def program_on(source: Handler, **options: Any) -> AsyncIterator[tuple[Program, World]]:
    """Yield a program and the file system of a source. The tasks of that end with the block."""
    async with trio.open_nursery() as nursery, World(nursery, source, **options) as world:
        yield Program(world), world
        nursery.cancel_scope.cancel()
