"""What inotify vouches for in a passed folder: what the kernel keeps is true, whoever changes the folder."""

import errno
import fcntl
import gc
import os
import random
import stat
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio
import trio.testing

from bbfs.sources.filesystem.beneath import Root
from bbfs.sources.filesystem.inotify import most_watches
from bbfs.vfs.file_handles import NewAttributes
from bbfs.vfs.names import SHORT
from bbfs.vfs.passthrough import vouched as vouching
from bbfs.vfs.passthrough.folder import EXCHANGE, Creator, PassedFolder
from bbfs.vfs.passthrough.inodes import PassedInode, key_of
from bbfs.vfs.passthrough.vouched import ASKED, Bounds, Vouched

OPERATIONS = int(os.environ.get("BBFS_PASSED_OPERATIONS", "4000"))
AT_ONCE = Bounds(quiet=0.0)
MOST_QUEUED = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
OWN = Creator(0o755, os.geteuid(), os.getegid())


@dataclass
class Kernel:
    """A kernel that keeps the names and attributes that are vouched for, for ever, until it is notified."""

    root: Path
    bounds: Bounds = AT_ONCE
    names: dict[tuple[PassedInode, bytes], PassedInode | None] = field(default_factory=dict)
    attributes: dict[PassedInode, tuple[int, ...]] = field(default_factory=dict)
    notified: int = 0
    told: list[tuple[PassedInode, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root.mkdir(exist_ok=True)
        self.folder = PassedFolder(Root(os.fsencode(self.root), None), 0, hidden=True)
        self.folder.open_root()
        self.top = self.folder.inodes.root
        self.vouched = Vouched(
            self.folder, self.invalidate, self.expire, lambda *place: self.told.append(place[:2]), self.bounds
        )

    def invalidate(self, number: int, name: bytes) -> None:
        self.notified += 1
        for place in [*self.names]:
            if place[0].number == number and place[1] == name:
                del self.names[place]

    def expire(self, number: int) -> None:
        for inode in [*self.attributes]:
            if inode.number == number:
                del self.attributes[inode]

    def walk(self, path: str) -> PassedInode:
        """Resolve a path as the kernel does: with the names that it keeps, and lookups of all others."""
        inode = self.top
        for each in filter(None, path.split("/")):
            found = self.lookup(inode, each.encode())
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "", path)
            inode = found
        return inode

    def lookup(self, parent: PassedInode, name: bytes) -> PassedInode | None:
        if (parent, name) in self.names:
            return self.names[parent, name]
        at = self.vouched.happened
        try:
            status = self.folder.lookup(parent, name)
        except FileNotFoundError:
            if self.vouched.name(parent, name, None, at) > SHORT:
                self.names[parent, name] = None
            self.vouched.looked_up(parent, None)
            return None
        inode = self.folder.counted(parent, name, status)
        if self.vouched.name(parent, name, inode, at) > SHORT:
            self.names[parent, name] = inode
        self.vouched.looked_up(parent, inode)
        self.keep(inode, status)
        return inode

    def keep(self, inode: PassedInode, status: os.stat_result) -> None:
        if self.vouched.attributes(inode, status, self.vouched.happened) > SHORT:
            self.attributes[inode] = seen(status)
        else:
            self.attributes.pop(inode, None)

    def getattr(self, inode: PassedInode) -> None:
        if inode not in self.attributes:
            status = self.folder.getattr(inode)
            self.keep(inode, status)
            self.vouched.asked_again(inode)

    # -- what programs of the mount do: the kernel knows what it has changed itself

    def changed(self) -> None:
        while self.folder.changes:
            self.vouched.note_own(*self.folder.changes.popleft())

    def made(self, parent: PassedInode, name: bytes, status: os.stat_result) -> None:
        inode = self.folder.counted(parent, name, status)
        self.names.pop((parent, name), None)
        self.vouched.made(parent, name, inode)
        self.attributes.pop(inode, None)
        self.attributes.pop(parent, None)
        self.changed()

    def removed(self, parent: PassedInode, name: bytes, inode: PassedInode | None) -> None:
        self.names.pop((parent, name), None)
        self.vouched.made(parent, name, None)
        self.attributes.pop(parent, None)
        if inode is not None:
            self.attributes.pop(inode, None)
        self.changed()

    def rename(self, parent: PassedInode, name: bytes, to: PassedInode, to_name: bytes, flags: int) -> None:
        moved, replaced = self.lookup(parent, name), self.lookup(to, to_name)
        self.folder.rename(parent, name, to, to_name, flags)
        if moved is not None and moved is replaced and not flags & EXCHANGE:
            return  # two names of one file: nothing has happened
        kept = [self.names.pop(place, False) for place in ((parent, name), (to, to_name))]
        for place, inode, other in (((to, to_name), moved, kept[0]), ((parent, name), replaced, kept[1])):
            if other is not False and (place == (to, to_name) or flags & EXCHANGE):
                self.names[place] = inode
        self.vouched.renamed(parent, name, to, to_name, exchanged=flags & EXCHANGE != 0)
        for each in (parent, to, moved, replaced):
            if each is not None:
                self.attributes.pop(each, None)
        self.changed()

    # -- what is true

    def check(self) -> None:
        """Compare all that the kernel keeps with the folder."""
        self.vouched.take()
        self.folder.changes.clear()
        for (parent, name), inode in self.names.items():
            try:
                at = self.folder.directory(parent)
                key = key_of(os.stat(name, dir_fd=at.number, follow_symlinks=False))
            except FileNotFoundError:
                key = None
            except OSError as error:
                assert error.errno == errno.ESTALE  # noqa: PT017 - the directory itself is gone
                continue
            assert key == (None if inode is None else inode.key), name
        for inode, kept in self.attributes.items():
            with suppress(OSError):  # ESTALE, as the kernel is told when it uses the inode
                assert seen(self.folder.getattr(inode)) == kept


def seen(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_nlink, status.st_uid


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path / "folder")


def watched(kernel: Kernel, path: str = "") -> PassedInode:
    """Ask for a directory until it is watched, as programs do that walk through it."""
    inode = kernel.walk(path)
    for _ in range(ASKED):
        kernel.vouched.listed(inode)
    assert inode.watched is not None
    return inode


class Walk:
    """Random changes of a folder, by programs of the mount and by others, between looks of the mount's programs."""

    def __init__(self, seed: int, kernel: Kernel) -> None:
        self.random = random.Random(seed)
        self.kernel = kernel

    def path(self) -> str:
        return "/".join(self.random.choice("abcd") for _ in range(self.random.choice((1, 1, 2, 2, 3))))

    def step(self) -> None:
        with suppress(OSError):
            self.random.choice((self.look, self.look, self.look, self.own, self.other, self.other))()

    def look(self) -> None:
        kernel = self.kernel
        inode = kernel.walk(self.random.choice(("", self.path(), self.path())))
        kernel.getattr(inode)
        if stat.S_ISDIR(inode.key[2]) and self.random.random() < 0.5:
            kernel.vouched.listed(inode)
            for name in "abcd":
                found = kernel.lookup(inode, name.encode())
                if found is not None:
                    kernel.getattr(found)

    def own(self) -> None:
        kernel, choose = self.kernel, self.random
        path, to = self.path(), self.path()
        (parent, name), (to_parent, to_name) = self.place(path), self.place(to)
        match choose.choice(
            ("make", "make", "mkdir", "mkdir", "link", "unlink", "rmdir", "rename", "rename", "mode", "cut")
        ):
            case "make":
                found, status = kernel.folder.create(parent, name, os.O_RDWR | os.O_EXCL, OWN)
                found.close()
                kernel.made(parent, name, status)
            case "mkdir":
                kernel.made(parent, name, kernel.folder.mkdir(parent, name, OWN))
            case "link":
                kernel.made(to_parent, to_name, kernel.folder.link(kernel.walk(path), to_parent, to_name))
            case "unlink" | "rmdir" as how:
                inode = kernel.lookup(parent, name)
                getattr(kernel.folder, how)(parent, name)
                kernel.removed(parent, name, inode)
            case "rename":
                kernel.rename(parent, name, to_parent, to_name, choose.choice((0, 0, EXCHANGE)))
            case how:
                inode = kernel.walk(path)
                changed = {"mode": choose.choice((0o600, 0o755))} if how == "mode" else {"size": choose.choice((0, 9))}
                kernel.folder.setattr(inode, None, NewAttributes(**changed))
                kernel.attributes.pop(inode, None)
                kernel.changed()

    def place(self, path: str) -> tuple[PassedInode, bytes]:
        above, _, name = path.rpartition("/")
        return self.kernel.walk(above), name.encode()

    def other(self) -> None:
        choose, path, to = self.random, self.kernel.root / self.path(), self.kernel.root / self.path()
        match choose.choice(
            ("write", "write", "mkdir", "mkdir", "link", "unlink", "rmdir", "rename", "mode", "symlink")
        ):
            case "write":
                path.write_bytes(choose.randbytes(choose.choice((1, 10))))
            case "mkdir":
                path.mkdir()
            case "link":
                # By a name in an unwatched directory, a file can be changed without an event: no promise covers that.
                if self.is_watched(to.parent):
                    os.link(path, to, follow_symlinks=False)
            case "unlink":
                path.unlink()
            case "rmdir":
                path.rmdir()
            case "rename":
                path.rename(to)
            case "mode":
                path.chmod(choose.choice((0o640, 0o711)))
            case _:
                path.symlink_to("nowhere")

    def is_watched(self, directory: Path) -> bool:
        inode = self.kernel.folder.inodes.known(key_of(directory.lstat()))
        return inode is not None and inode.watched is not None


@pytest.mark.semantics("S40.8")
@pytest.mark.timeout(7200)
def test_what_the_kernel_keeps_is_true_whoever_changes_the_folder(tmp_path: Path) -> None:
    kept = 0
    for first in range(0, OPERATIONS, 500):
        kernel = Kernel(tmp_path / str(first))
        walk = Walk(first, kernel)
        for _ in range(500):
            walk.step()
            kernel.check()
            kept += len(kernel.names) + len(kernel.attributes)
        del kernel, walk
        gc.collect()  # a user may have 128 instances of inotify
    assert kept > OPERATIONS  # it keeps something


# -- one by one --------------------------------------------------------------------------------------------------------


def files(kernel: Kernel, *names: str) -> None:
    for name in names:
        (kernel.root / name).write_text(name)


@pytest.mark.semantics("S40.8")
def test_a_directory_is_watched_once_programs_ask_again(kernel: Kernel) -> None:
    files(kernel, "a")
    for _ in range(2):
        kernel.vouched.listed(kernel.top)
        kernel.lookup(kernel.top, b"a")
        assert kernel.top.watched is None
    assert not kernel.names
    kernel.vouched.listed(kernel.top)
    kernel.lookup(kernel.top, b"a")
    kernel.lookup(kernel.top, b"absent")
    assert kernel.names.keys() == {(kernel.top, b"a"), (kernel.top, b"absent")}


@pytest.mark.semantics("S40.8")
def test_what_the_mounts_programs_change_invalidates_nothing(kernel: Kernel) -> None:
    top = watched(kernel)
    for number in range(100):
        name, other = b"%d" % number, b"other %d" % number
        assert kernel.lookup(top, name) is None
        found, status = kernel.folder.create(top, name, os.O_RDWR | os.O_EXCL, OWN)
        kernel.made(top, name, status)
        os.write(found.number, b"text")
        found.close()
        assert kernel.lookup(top, name) is not None
        kernel.rename(top, name, top, other, 0)
        inode = kernel.lookup(top, other)
        if number % 2:
            kernel.folder.unlink(top, other)
            kernel.removed(top, other, inode)
        kernel.check()
    assert kernel.notified == 0
    assert kernel.told == []  # the changes of others


@pytest.mark.semantics("S40.8")
def test_changes_of_others_are_told(kernel: Kernel) -> None:
    top = watched(kernel)
    files(kernel, "new")
    kernel.vouched.take()
    assert set(kernel.told) == {(top, b"new")}


@pytest.mark.semantics("S40.8")
def test_a_name_goes_to_a_directory_that_cannot_be_watched(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "folder", Bounds(quiet=0.0, directories=1))
    top = watched(kernel)
    (kernel.root / "d").mkdir()
    files(kernel, "a")
    directory, inode = kernel.walk("d"), kernel.lookup(top, b"a")
    kernel.rename(top, b"a", directory, b"a", 0)
    assert (directory, b"a") not in kernel.names
    assert kernel.notified == 1
    assert kernel.lookup(directory, b"a") is inode


@pytest.mark.semantics("S40.9")
@pytest.mark.parametrize("most", [{"directories": 1}, {"share": most_watches()}])
def test_no_more_directories_and_names_are_vouched_for_than_the_budgets_allow(
    tmp_path: Path, most: dict[str, int]
) -> None:
    kernel = Kernel(tmp_path / "folder", replace(Bounds(quiet=0.0, names=2), **most))
    (kernel.root / "d").mkdir()
    files(kernel, "d/a", "a", "b", "c")
    top, directory = watched(kernel), kernel.walk("d")
    for _ in range(2 * ASKED):
        kernel.vouched.listed(directory)
        for name in (b"a", b"b", b"c"):
            assert kernel.lookup(top, name)
        assert kernel.lookup(directory, b"a")
    assert directory.watched is None
    assert len(kernel.names) == 2
    files(kernel, "d/a", "a", "b", "c")
    kernel.check()


@pytest.mark.semantics("S40.9")
def test_the_kernel_is_not_asked_for_more_watches_than_it_gives(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def refuse(self: vouching.Inotify, directory: object) -> int:
        nonlocal asked
        asked += 1
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr(vouching.Inotify, "watch", refuse)
    files(kernel, "a")
    for _ in range(10 * ASKED):
        kernel.vouched.listed(kernel.top)
        kernel.lookup(kernel.top, b"a")
    assert asked == 1
    assert not kernel.names


@pytest.mark.semantics("S40.9")
@pytest.mark.parametrize("how", ["file system", "case"])
def test_a_directory_of_which_inotify_does_not_tell_all_is_not_vouched_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    kernel = Kernel(tmp_path / "folder", Bounds(file_systems=frozenset()) if how == "file system" else Bounds())
    if how == "case":
        monkeypatch.setattr(fcntl, "ioctl", lambda *_: (0x40000000).to_bytes(8, "little"))
    files(kernel, "a")
    for _ in range(2 * ASKED):
        kernel.vouched.listed(kernel.top)
        kernel.lookup(kernel.top, b"a")
    assert kernel.top.watched is None
    assert not kernel.names


@pytest.mark.semantics("S40.9")
@pytest.mark.parametrize("quiet", [0.0, 100.0])
def test_what_may_be_changed_without_an_event_keeps_its_name_alone(tmp_path: Path, quiet: float) -> None:
    kernel = Kernel(tmp_path / "folder", Bounds(quiet=quiet))
    files(kernel, "a", "b")
    os.link(kernel.root / "b", tmp_path / "elsewhere")
    top = watched(kernel)
    one = kernel.lookup(top, b"a")
    assert kernel.lookup(top, b"b") is not None
    assert kernel.attributes.keys() == ({one} if quiet == 0.0 else set())
    assert kernel.names.keys() == {(top, b"a"), (top, b"b")}
    (tmp_path / "elsewhere").write_text("longer")
    kernel.check()


@pytest.mark.semantics("S40.8")
def test_a_status_from_before_a_change_is_not_vouched_for(kernel: Kernel) -> None:
    files(kernel, "a")
    top = watched(kernel)
    at = kernel.vouched.happened
    status = kernel.folder.lookup(top, b"a")
    files(kernel, "a")
    kernel.vouched.take()
    inode = kernel.folder.counted(top, b"a", status)
    assert kernel.vouched.name(top, b"a", inode, at) == SHORT
    assert kernel.vouched.attributes(inode, status, at) == SHORT


@pytest.mark.semantics("S40.8")
def test_a_folder_that_is_replaced_keeps_no_name(kernel: Kernel, tmp_path: Path) -> None:
    files(kernel, "a")
    top = watched(kernel)
    kernel.lookup(top, b"a")
    kernel.root.rename(tmp_path / "old")
    kernel.root.mkdir()
    kernel.folder.open_root()
    kernel.vouched.root_found()
    kernel.check()
    assert not kernel.names
    assert top.watched is None


@pytest.mark.semantics("S40.8")
def test_all_that_is_vouched_for_can_be_ended(kernel: Kernel) -> None:
    files(kernel, "a")
    top = watched(kernel)
    for name in (b"a", b"absent"):
        kernel.lookup(top, name)
    assert kernel.names
    assert kernel.attributes
    kernel.vouched.end_all()
    assert not kernel.names
    assert not kernel.attributes
    assert top.watched is None


@pytest.mark.semantics("S40.8")
async def test_nothing_is_vouched_for_in_a_folder_that_was_removed(kernel: Kernel) -> None:
    files(kernel, "a")
    top = watched(kernel)
    kernel.lookup(top, b"a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kernel.vouched.run)
        await trio.testing.wait_all_tasks_blocked()
        kernel.vouched.close()  # ends the task as well
    assert not kernel.names
    for _ in range(2 * ASKED):
        kernel.vouched.listed(top)
        kernel.lookup(top, b"a")
    assert not kernel.names
    assert top.watched is None


@pytest.mark.semantics("S40.8")
def test_what_the_kernel_forgets_is_watched_no_more(kernel: Kernel) -> None:
    (kernel.root / "d").mkdir()
    files(kernel, "d/a")
    watched(kernel)
    directory = watched(kernel, "d")
    kernel.lookup(directory, b"a")
    kernel.names.clear()
    gone = kernel.folder.forget(directory.number, directory.lookups)
    assert gone is not None
    assert gone is directory
    kernel.vouched.forgotten(gone)
    assert directory.watched is None
    files(kernel, "d/b")
    kernel.vouched.take()
    assert kernel.notified == 0


@pytest.mark.semantics("S40.8")
async def test_after_dropped_events_all_names_are_compared(kernel: Kernel) -> None:
    (kernel.root / "d").mkdir()
    files(kernel, "a", "d/a", "d/b")
    async with trio.open_nursery() as nursery:
        top, directory = watched(kernel), watched(kernel, "d")
        for parent, name in ((top, b"a"), (directory, b"a"), (directory, b"b"), (directory, b"absent")):
            kernel.lookup(parent, name)
        for number in range(MOST_QUEUED // 4 + 1):  # each change is four events at least
            files(kernel, f"noise {number % 2}")
            (kernel.root / f"noise {number % 2}").unlink()
        (kernel.root / "a").unlink()
        (kernel.root / "d" / "a").rename(kernel.root / "d" / "absent")
        nursery.start_soon(kernel.vouched.run)
        with trio.fail_after(60):
            await trio.testing.wait_all_tasks_blocked(5 * vouching.GATHERED_FOR)
        kernel.check()
        assert kernel.names.keys() == {(top, b"d"), (directory, b"b")}
        nursery.cancel_scope.cancel()


@pytest.mark.semantics("S40.8")
async def test_a_directory_that_no_program_uses_is_not_watched(
    kernel: Kernel, autojump_clock: trio.testing.MockClock
) -> None:
    (kernel.root / "d").mkdir()
    files(kernel, "a", "d/a")
    top, directory = watched(kernel), watched(kernel, "d")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kernel.vouched.run)
        for _ in range(4):
            kernel.names.clear()  # their time is over
            kernel.lookup(top, b"a")
            await trio.sleep(vouching.TURN + 2 * SHORT)
        assert top.watched is not None
        assert directory.watched is None
        kernel.check()
        nursery.cancel_scope.cancel()


@pytest.mark.semantics("S40.8")
async def test_a_name_on_which_something_is_mounted_is_not_vouched_for(
    kernel: Kernel, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kernel.root / "d").mkdir()
    files(kernel, "a")
    top = watched(kernel)
    kernel.lookup(top, b"d")
    kernel.lookup(top, b"a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kernel.vouched.run)
        await trio.sleep(2 * SHORT)
        assert kernel.names.keys() == {(top, b"d"), (top, b"a")}
        monkeypatch.setattr(vouching.MountedNames, "now", lambda _: {b"d"})
        await trio.sleep(2 * SHORT)
        assert kernel.names.keys() == {(top, b"a")}
        nursery.cancel_scope.cancel()
