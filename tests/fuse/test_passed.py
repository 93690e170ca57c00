"""Requests for passed folders: in the event loop on a local file system, in threads with a deadline elsewhere."""

import errno
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pyfuse3
import pytest
import trio
from pyfuse3 import FUSEError

from bbfs.fuse.backings import folder_calls
from bbfs.fuse.backings.attributes import Ownership
from bbfs.fuse.backings.passed import PassedRequests
from bbfs.fuse.backings.stored import StoredRequests
from bbfs.fuse.scratch.shown import Shown
from bbfs.fuse.waiting_programs import Interrupts
from bbfs.model.errors import CrossesSources, DeadlineExceeded, Outdated, Unreachable
from bbfs.resources.catalog.record import PASSED
from bbfs.resources.source import Source
from bbfs.sources.filesystem.beneath import Root
from bbfs.vfs.filesystem import FileSystem
from bbfs.vfs.inode_table import DirectoryLocks
from bbfs.vfs.names import SHORT
from bbfs.vfs.passthrough.folder import Creator, PassedFolder
from bbfs.vfs.passthrough.folders import Passed
from bbfs.vfs.passthrough.places import MayCrossMount
from bbfs.vfs.passthrough.vouched import ASKED, LASTS, Bounds, Vouched

CONTEXT = cast(pyfuse3.RequestContext, SimpleNamespace(pid=0, umask=0o022, uid=os.geteuid(), gid=os.getegid()))
BOUND = 60.0
SOON = 0.5


class Requests:
    """The requests of a mount over folders. changed: the folders with changes that were passed on."""

    def __init__(self, *roots: Path, timeout: float = BOUND, is_lower: bool = False) -> None:
        self.changed: list[Passed] = []
        self.folders = [
            Passed(
                cast(Source, SimpleNamespace(writes=True, judged_by_files=False, ended=None)),
                PassedFolder(Root(os.fsencode(root), None), number, hidden=True),
                root.name,
                timeout,
                trio.CapacityLimiter(2),
            )
            for number, root in enumerate(roots)
        ]
        self.invalidated: list[bytes] = []
        """Names of which the kernel was notified."""
        self.folders = [replace(each, vouched=self._vouched(each)) for each in self.folders]
        self.locks = DirectoryLocks()
        files = SimpleNamespace(passed=dict(enumerate(self.folders)), note_changes=self._note, locks=self.locks)
        # No name of these tests is one that bbfs shows beside a folder.
        stored = cast(StoredRequests, None)
        owner = Ownership(0, 0, is_lower=is_lower)
        self.shown = Shown()
        self.requests = PassedRequests(cast(FileSystem, files), owner, Interrupts(), self.shown, stored)

    def _vouched(self, passed: Passed) -> Vouched:
        return Vouched(
            passed.folder,
            lambda _, name: self.invalidated.append(name),
            lambda _: None,
            lambda *_: None,
            Bounds(quiet=0.0),
        )

    def _note(self, passed: Passed) -> None:
        passed.folder.changes.clear()
        self.changed.append(passed)

    def root(self, number: int = 0) -> int:
        return self.folders[number].folder.inodes.root.number


@dataclass
class Asking:
    """A lookup in a task of its own."""

    requests: PassedRequests
    parent: int
    found: pyfuse3.EntryAttributes | None = None

    async def lookup(self, name: bytes) -> None:
        self.found = await self.requests.lookup(self.parent, name, CONTEXT)


@pytest.mark.semantics("S40")
@pytest.mark.parametrize("direct", [True, False])
async def test_every_request_is_answered_from_the_loop_and_from_threads(tmp_path: Path, direct: bool) -> None:
    made = Requests(tmp_path)
    requests, root, folder = made.requests, made.root(), made.folders[0].folder
    with trio.fail_after(BOUND):
        assert folder.direct is None
        assert (await requests.getattr(root, CONTEXT)).st_ino == root  # in a thread: it may hang
        assert folder.direct
        folder.direct = direct
        info, entry = await requests.create(root, b"a", 0o100666, os.O_RDWR | os.O_CREAT, CONTEXT)
        assert entry.st_mode == 0o100644
        assert await requests.write(info.fh, 0, b"text") == 4
        assert bytes(await requests.read(info.fh, 1, 100)) == b"ext"
        await requests.fsync(info.fh, False)
        await requests.flush(info.fh)
        await requests.release(info.fh)
        await requests.mkdir(root, b"d", 0o40777, CONTEXT)
        found = await requests.lookup(root, b"d", CONTEXT)
        assert found.st_ino
        await requests.rename(root, b"a", found.st_ino, b"b", 0, CONTEXT)
        assert not (await requests.lookup(root, b"a", CONTEXT)).st_ino
        directory = await requests.opendir(found.st_ino, CONTEXT)
        await requests.fsyncdir(directory, True)
        await requests.releasedir(directory)
        room = await requests.room(CONTEXT)
        assert room is not None
        assert room.size >= room.free >= room.available
    assert (tmp_path / "d" / "b").read_bytes() == b"text"
    assert made.changed


@pytest.mark.semantics("S40.9")
async def test_what_is_vouched_for_ends_with_a_scratch_over_the_mount(tmp_path: Path) -> None:
    made = Requests(tmp_path)
    requests, root = made.requests, made.root()
    (tmp_path / "a").write_text("a")
    with trio.fail_after(BOUND):
        await requests.getattr(root, CONTEXT)
        for _ in range(ASKED + 1):
            found = await requests.lookup(root, b"a", CONTEXT)
        found = await requests.lookup(root, b"a", CONTEXT)
        assert found.entry_timeout == found.attr_timeout == LASTS
        assert (await requests.lookup(root, b"absent", CONTEXT)).entry_timeout == LASTS
        made.shown.began()
        assert sorted(made.invalidated) == [b"a", b"absent"]
        found = await requests.lookup(root, b"a", CONTEXT)
        assert found.entry_timeout == found.attr_timeout == SHORT


@pytest.mark.semantics("S7.3", "S7.4")
async def test_an_overlay_opens_a_file_that_grows_all_the_time_at_the_second_try(tmp_path: Path) -> None:
    made = Requests(tmp_path, is_lower=True)
    requests, root, log = made.requests, made.root(), tmp_path / "log"
    log.write_text("first\n")
    with trio.fail_after(BOUND):
        await requests.getattr(root, CONTEXT)
        for _ in range(3):
            found = await requests.lookup(root, b"log", CONTEXT)
            assert found.st_size == log.stat().st_size
            await requests.release((await requests.open(found.st_ino, os.O_RDONLY, CONTEXT)).fh)
            with log.open("a") as file:
                file.write("more\n")
            with pytest.raises(FUSEError) as raised:
                await requests.open(found.st_ino, os.O_RDONLY, CONTEXT)
            assert raised.value.errno == errno.ESTALE
            await requests.lookup(root, b"log", CONTEXT)
            with log.open("a") as file:
                file.write("more\n")
            await requests.release((await requests.open(found.st_ino, os.O_RDONLY, CONTEXT)).fh)


@pytest.mark.semantics("S40.6")
async def test_a_program_may_open_as_many_files_as_are_left_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_calls, "most_for_programs", lambda: 60)  # two thirds of them for passed folders
    (tmp_path / "a").touch()
    requests, root = (made := Requests(tmp_path)).requests, made.root()
    contexts = [cast(pyfuse3.RequestContext, SimpleNamespace(pid=pid)) for pid in (1, 2, 3)]
    found = await requests.lookup(root, b"a", CONTEXT)
    assert found.st_ino
    handles: dict[int, list[int]] = {}

    async def open_all(context: pyfuse3.RequestContext) -> int:
        held = handles.setdefault(context.pid, [])
        number = 0
        while not number:
            try:
                held.append((await requests.open(found.st_ino, os.O_RDONLY, context)).fh)
            except FUSEError as refused:
                number = refused.errno
        assert number == errno.EMFILE
        return len(held)

    with trio.fail_after(BOUND):
        assert [await open_all(context) for context in contexts] == [20, 10, 5]
        with pytest.raises(FUSEError):
            await requests.opendir(root, contexts[0])
        await requests.releasedir(await requests.opendir(root, CONTEXT))
        for handle in handles.pop(1):
            await requests.release(handle)
        assert await open_all(contexts[0]) == 13
        for handle in (each for held in handles.values() for each in held):
            await requests.release(handle)


@pytest.mark.semantics("S22", "S23")
async def test_a_folder_that_hangs_costs_its_programs_a_time_out_and_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "good").mkdir()
    made = Requests(tmp_path / "slow", tmp_path / "good", timeout=SOON)
    await made.requests.getattr(made.root(1), CONTEXT)
    over = Event()
    locked: list[bool] = []

    def hang(*_: Any) -> Any:
        locked.append(made.locks.locked(made.root()))
        over.wait(BOUND)
        raise FileNotFoundError(errno.ENOENT, "")

    monkeypatch.setattr(PassedFolder, "lookup", hang)
    try:
        with trio.fail_after(BOUND):
            for _ in range(3):  # more than it has threads
                with pytest.raises(DeadlineExceeded):
                    await made.requests.lookup(made.root(), b"a", CONTEXT)
                assert (await made.requests.getattr(made.root(1), CONTEXT)).st_ino == made.root(1)
        assert locked
        assert all(locked)  # no notification waits for the directory
        assert not made.locks.locked(made.root())
    finally:
        over.set()


@pytest.mark.semantics("S22", "S40.7")
async def test_the_event_loop_enters_no_file_system_that_is_mounted_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/proc is mounted in the root directory."""
    made = Requests(Path("/"), tmp_path)
    requests, root, folder = made.requests, made.root(), made.folders[0].folder
    await requests.getattr(root, CONTEXT)
    folder.direct = True  # also where the root directory is on a file system that is not known as local
    listing = folder.opendir(folder.inodes.root)
    folder.begin(listing)
    for call in (
        lambda: folder.open_root(),
        lambda: folder.lookup(folder.inodes.root, b"proc"),
        lambda: folder.look_ahead(listing, listing.names.index(b"proc")),
        lambda: folder.create(folder.inodes.root, b"proc", os.O_RDWR, Creator(0o600, 0, 0)),
    ):
        with pytest.raises(MayCrossMount):
            call()
    listing.descriptor.close()
    stat_of, over = os.stat, Event()

    def hang(name: Any, **named: Any) -> os.stat_result:
        if name == b"proc":
            over.wait(BOUND)
        return stat_of(name, **named)

    monkeypatch.setattr(os, "stat", hang)
    asking = Asking(requests, root)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asking.lookup, b"proc")
        with trio.fail_after(BOUND):
            await requests.getattr(made.root(1), CONTEXT)
            assert (await requests.lookup(root, b"tmp", CONTEXT)).st_ino
            assert asking.found is None
            over.set()
    assert asking.found is not None
    assert not folder.direct  # and is not local
    with trio.fail_after(BOUND):
        found = await requests.lookup(asking.found.st_ino, b"self", CONTEXT)
        assert stat.S_ISLNK(found.st_mode)


@pytest.mark.semantics("S6", "S23")
async def test_a_folder_that_is_gone_is_an_outage_and_its_directory_stays(tmp_path: Path) -> None:
    made = Requests(tmp_path / "folder")
    requests = made.requests
    for _ in range(2):
        assert stat.S_ISDIR((await requests.getattr(made.root(), CONTEXT)).st_mode)
        with pytest.raises(Unreachable):
            await requests.lookup(made.root(), b"a", CONTEXT)
        (tmp_path / "folder").mkdir()
        await requests.getattr(made.root(), CONTEXT)
        assert not (await requests.lookup(made.root(), b"a", CONTEXT)).st_ino
        (tmp_path / "folder").rmdir()


async def test_errors_are_the_folders_own(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    made = Requests(tmp_path / "one", tmp_path / "two")
    requests = made.requests
    await requests.getattr(made.root(), CONTEXT)
    await requests.mkdir(made.root(), b"d", 0o755, CONTEXT)
    with pytest.raises(FUSEError) as raised:
        await requests.mkdir(made.root(), b"d", 0o755, CONTEXT)
    assert raised.value.errno == errno.EEXIST
    with pytest.raises(CrossesSources):
        await requests.rename(made.root(), b"d", made.root(1), b"d", 0, CONTEXT)
    with pytest.raises(CrossesSources):
        await requests.rename(made.root(), b"d", 5, b"d", 0, CONTEXT)
    with pytest.raises(Outdated):
        await requests.getattr(PASSED + 12345, CONTEXT)
