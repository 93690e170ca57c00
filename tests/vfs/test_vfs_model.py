"""Random programs against a model: the kernel's side of the contract, whatever a source does meanwhile.

Three promises are checked at every step. An inode that the kernel holds stands for one text of bytes: its size never
differs, and every open of it gives these bytes. An open file keeps its bytes. What is opened is what the source holds,
or held within the content's time to live. At the end everything is given back, and the tables are empty.
"""

import queue
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio
import trio.lowlevel
from fakes import FlatSource, World, data_source, settled
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from bbfs.model.errors import BbfsError, NotFound, Outdated
from bbfs.resources.catalog.record import AWAITED, ROOT
from bbfs.vfs.file_handles import Attributes

CONTENT_TTL, LISTING_TTL = 10.0, 30.0
URIS = ("x://a", "x://b", "x://d/a", "x://d/e/a", "y://a")
BOUND = 60.0


class Loop:
    """A trio loop that runs only while a step of the machine waits for it."""

    def __init__(self) -> None:
        self._due: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._ended = False
        self._stop = trio.Event()
        self._nursery: trio.Nursery | None = None
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._due.put,
            done_callback=lambda outcome: setattr(self, "_ended", True),
        )
        self._until(lambda: self._nursery is not None)

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            await self._stop.wait()
            self._nursery.cancel_scope.cancel()

    def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._due.get(timeout=BOUND)()

    @property
    def nursery(self) -> trio.Nursery:
        assert self._nursery is not None
        return self._nursery

    def run(self, request: Callable[[], Awaitable[Any]]) -> Any:
        """What `request` returns; its exception is raised here."""
        ended: list[tuple[Any, Exception | None]] = []

        async def task() -> None:
            try:
                ended.append((await request(), None))
            except Exception as error:  # noqa: BLE001 - raised again outside the loop
                ended.append((None, error))

        self.nursery.start_soon(task)
        self._until(lambda: bool(ended))
        value, error = ended[0]
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        self._due.put(self._stop.set)
        self._until(lambda: self._ended)


@dataclass
class Version:
    """Bytes that a resource had. replaced_at: when the source got others; never: it still has them."""

    data: bytes
    replaced_at: float = float("inf")


@dataclass
class Handle:
    ino: int
    data: bytes


class FileSystemMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.source = FlatSource(data_source(content_ttl=CONTENT_TTL, listing_ttl=LISTING_TTL))
        self.loop = Loop()
        self.world = self.loop.run(self.started)
        self.versions: dict[str, list[Version]] = {}
        self.held: Counter[int] = Counter()
        self.paths: dict[int, str] = {ROOT: ""}
        self.kinds: dict[int, str] = {ROOT: "directory"}
        self.bytes_of: dict[int, bytes] = {}
        self.open: dict[int, Handle] = {}
        self.listings: dict[int, tuple[str, list[str], int]] = {}
        self.declared: set[int] = set()
        self.sent_on: dict[str, float] = {}
        for uri in URIS[:3]:
            self.set_content(uri, b"first " + uri.encode())

    async def started(self) -> World:
        return await World(self.loop.nursery, self.source).__aenter__()

    # -- the model -----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.world.clock.now

    def set_content(self, uri: str, data: bytes | None) -> None:
        for version in self.versions.get(uri, ()):
            version.replaced_at = min(version.replaced_at, self.now)
        if data is None:
            self.source.contents.pop(uri, None)
        else:
            self.versions.setdefault(uri, []).append(Version(data))
            self.source.contents[uri] = data

    def told_to_look_again(self, ino: int, error: BbfsError) -> None:
        """A program that is sent to another version finds it for a moment, whatever is announced meanwhile."""
        if isinstance(error, Outdated):
            self.sent_on[self.uri(self.paths[ino])] = self.now

    @staticmethod
    def uri(path: str) -> str:
        scheme, _, rest = path.removeprefix("mcp-server+docs/").partition("/")
        return f"{scheme}://{rest}"

    def acceptable(self, path: str) -> set[bytes]:
        """The bytes that may be served for a path now."""
        return {v.data for v in self.versions[self.uri(path)] if self.now < v.replaced_at + CONTENT_TTL}

    def seen(self, path: str, found: Attributes) -> None:
        """The kernel takes over attributes: of an inode whose pages it may have, they must not differ."""
        self.kinds[found.ino] = found.kind
        if found.ino in self.bytes_of and found.kind == "file":
            assert found.size == len(self.bytes_of[found.ino]), f"{path}: another size on the same inode"

    def counted(self, path: str, found: Attributes) -> None:
        assert self.paths.setdefault(found.ino, path) == path, "one inode, two paths"
        self.held[found.ino] += 1
        self.seen(path, found)

    def forget_pages(self, ino: int) -> None:
        if not self.held[ino]:
            del self.held[ino]
            if all(handle.ino != ino for handle in self.open.values()):
                self.bytes_of.pop(ino, None)

    def choose(self, data: st.DataObject, *kinds: str) -> int:
        return data.draw(st.sampled_from(sorted(ino for ino in {ROOT, *self.held} if self.kinds[ino] in kinds)))

    def any_held(self, kind: str) -> bool:
        return any(self.kinds[ino] == kind for ino in self.held)

    # -- what the kernel does ------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def lookup(self, data: st.DataObject) -> None:
        parent = self.choose(data, "directory")
        name = data.draw(st.sampled_from(["mcp-server+docs", "x", "y", "a", "b", "d", "e"]))
        loads = len(self.source.loaded)
        try:
            found = self.loop.run(lambda: self.world.files.lookup(parent, name.encode()))
        except BbfsError as error:
            assert isinstance(error, Outdated | NotFound)  # noqa: PT017 - it may also succeed
            return
        assert len(self.source.loaded) == loads, "a lookup loads nothing"
        if found.ino:
            self.counted(f"{self.paths[parent]}/{name}".lstrip("/"), found)

    @rule(uri=st.sampled_from(URIS))
    def walk(self, uri: str) -> None:
        """Lookups from the root to a resource, as `open(2)` of a path begins."""
        found, path = None, ""
        for name in ("mcp-server+docs", *uri.replace("://", "/").split("/")):
            parent = found.ino if found is not None else ROOT
            try:
                found = self.loop.run(partial(self.world.files.lookup, parent, name.encode()))
            except Outdated:
                return
            if not found.ino:
                return
            path = f"{path}/{name}".lstrip("/")
            self.counted(path, found)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def getattr(self, data: st.DataObject) -> None:
        ino = self.choose(data, "directory", "file")
        try:
            found = self.loop.run(lambda: self.world.files.getattr(ino))
        except (Outdated, NotFound) as error:
            assert all(handle.ino != ino for handle in self.open.values()), "an open file can always be asked"
            self.told_to_look_again(ino, error)
            return
        assert found.ino == ino
        path = self.paths[ino]
        self.seen(path, found)
        if found.kind == "file" and all(handle.ino != ino for handle in self.open.values()):
            assert found.size in {len(content) for content in self.acceptable(path)} | self.declared

    @precondition(lambda self: self.any_held("file"))
    @rule(data=st.data())
    def open_file(self, data: st.DataObject) -> None:
        ino = data.draw(st.sampled_from(sorted(ino for ino in self.held if self.kinds[ino] == "file")))
        try:
            handle = self.loop.run(lambda: self.world.files.open(ino))
        except (Outdated, NotFound) as error:
            self.told_to_look_again(ino, error)
            return
        content = self.world.core.open_files.read(handle, 0, 1 << 20)
        assert content in self.acceptable(self.paths[ino])
        assert self.bytes_of.setdefault(ino, content) == content, "one inode, two contents: torn pages"
        self.open[handle] = Handle(ino, content)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), offset=st.integers(0, 20), length=st.integers(0, 20))
    def read(self, data: st.DataObject, offset: int, length: int) -> None:
        handle = data.draw(st.sampled_from(sorted(self.open)))
        expected = self.open[handle].data[offset : offset + length]
        assert self.world.core.open_files.read(handle, offset, length) == expected

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(sorted(self.open)))
        self.world.files.release(handle)
        ino = self.open.pop(handle).ino
        if not self.held[ino]:
            self.forget_pages(ino)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        """As the kernel does: never an inode that a program has open."""
        busy = {handle.ino for handle in self.open.values()}
        idle = sorted(set(self.held) - busy)
        if not idle:
            return
        ino = data.draw(st.sampled_from(idle))
        count = data.draw(st.integers(1, self.held[ino]))
        self.world.files.forget(ino, count)
        self.held[ino] -= count
        self.forget_pages(ino)

    @rule(data=st.data())
    def open_directory(self, data: st.DataObject) -> None:
        ino = self.choose(data, "directory")
        try:
            handle = self.loop.run(lambda: self.world.files.opendir(ino))
        except (Outdated, NotFound):
            return
        self.listings[handle] = (self.paths[ino], [], 0)

    @precondition(lambda self: self.listings)
    @rule(data=st.data(), room=st.integers(0, 4))
    def read_directory(self, data: st.DataObject, room: int) -> None:
        """One READDIRPLUS into a buffer with room for so many entries."""
        handle = data.draw(st.sampled_from(sorted(self.listings)))
        path, names, position = self.listings[handle]
        for name, found, following in self.world.files.readdir(handle, position):
            if room == 0:
                if following > 2:
                    self.world.files.forget(found.ino, 1)
                break
            room -= 1
            position = following
            if following > 2:
                names.append(name.decode())
                self.counted(f"{path}/{name.decode()}".lstrip("/"), found)
        assert names == sorted(set(names)), "an entry came twice"
        self.listings[handle] = (path, names, position)

    @precondition(lambda self: self.listings)
    @rule(data=st.data())
    def release_directory(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(sorted(self.listings)))
        self.world.files.releasedir(handle)
        del self.listings[handle]

    # -- what the source does ------------------------------------------------------------------------------------------

    @rule(uri=st.sampled_from(URIS), content=st.binary(max_size=6) | st.none(), announce=st.booleans())
    def change(self, uri: str, content: bytes | None, announce: bool) -> None:
        """A resource changes, comes or goes, and the server says so or not."""
        was_there = uri in self.source.contents
        self.set_content(uri, content)
        if announce:
            for version in self.versions.get(uri, ()):
                if version.replaced_at <= self.now:
                    version.replaced_at = self.sent_on.get(uri, float("-inf")) + AWAITED - CONTENT_TTL
            self.source.announce(uri)
            if was_there != (content is not None):
                self.source.announce()

    @rule(uri=st.sampled_from(URIS), size=st.integers(0, 8) | st.none())
    def declare(self, uri: str, size: int | None) -> None:
        """The listing gives a size, which may be wrong."""
        self.source.described[uri] = {} if size is None else {"size": size}
        self.declared |= set() if size is None else {size}

    @rule(seconds=st.sampled_from([1.0, CONTENT_TTL, LISTING_TTL]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @rule()
    def refreshes_end(self) -> None:
        self.loop.run(settled)

    # -- the end -------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            files = self.world.files
            for handle in self.open:
                files.release(handle)
            for handle in self.listings:
                files.releasedir(handle)
            for ino, count in self.held.items():
                files.forget(ino, count)
            assert files.held() == (0, 0, 0)
            self.loop.run(settled)
            assert all(source.waiters.count == 0 for source in self.world.manager.sources.values())
        finally:
            self.loop.close()
            self.world.store.close()


TestFileSystem = FileSystemMachine.TestCase
TestFileSystem.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
