"""The events for programs that watch a mount, without a mount: which calls are made, and who may make them (S43)."""

import errno
import os
from pathlib import Path as Place
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from pyfuse3 import EntryAttributes, FUSEError, RequestContext

from bbfs.fuse.backings.attributes import Ownership
from bbfs.fuse.watchers.calls import RecognisedCalls
from bbfs.fuse.watchers.events import FIRST_LOOKS, MOST, Events
from bbfs.fuse.watchers.toucher import Call, Status, Toucher
from bbfs.model.errors import NotFound
from bbfs.model.values import Change
from bbfs.resources.catalog.record import DIRECTORY, DIRECTORY_VERSION, ROOT, Node, Path
from bbfs.vfs.file_handles import FileHandles
from bbfs.vfs.inode_table import InodeTable

FILE = Node("file", cast(Any, SimpleNamespace()))
TOUCHER, STRANGER = (cast(RequestContext, SimpleNamespace(pid=pid)) for pid in (77, 78))
BELOW = ("docs", "a")


class Mount:
    """What events need of a mount, with a process that makes no call, and programs that watch some inodes."""

    def __init__(self) -> None:
        self.inodes = InodeTable()
        self.names = SimpleNamespace(passed={}, started_ns=1, counted=self._counted, path=lambda ino: self.path(ino))
        self.passed: dict[int, Any] = {}
        self.nodes: dict[Path, Node] = {BELOW: DIRECTORY, ("docs",): DIRECTORY}
        self.statuses: dict[int, Status] = {}
        self.lack = ""
        self.inodes.remember(BELOW[:1], DIRECTORY_VERSION)
        self.watching: set[int] | None = {self.inodes.remember(BELOW, DIRECTORY_VERSION)}
        self.calls: list[tuple[str, str]] = []
        self.touched: list[Status] = []
        self.handles = FileHandles()
        self.looks = self.failing_looks = 0
        self.requests = -1
        self.is_folder = False
        self.listed: list[Path] = []
        self.events = Events(cast(Any, self), cast(Any, self), self, self)

    def _counted(self, path: Path, node: Node) -> Any:
        return SimpleNamespace(ino=self.inodes.remember(path, "v"), kind=node.kind, size=0)

    def path(self, ino: int) -> Path:
        return self.inodes.get(ino).path

    def last_cached(self, path: Path) -> Node:
        if path not in self.nodes:
            raise NotFound("/".join(path))
        return self.nodes[path]

    async def perform(self, call: Call) -> int:
        self.calls.append((call.kind, "/".join(call.path)))
        if call.kind == "modify":  # the current version, which is not the one that a program watches
            call.status = call.earlier or Status(5, 3, 1, 0, 0, 7, 8, 0, 0, 0o100444, 1, 2, 1)
            self.touched.append(call.status)
        return 0

    def has(self, path: Path) -> bool:
        return self.is_folder

    async def follow(self, number: int, path: Path) -> None:
        """Do nothing: no folder is watched."""

    async def list_again(self, directory: Path) -> None:
        assert self.is_folder
        self.listed.append(directory)

    async def confirm(self, directory: Path) -> None:
        self.listed.append(directory)

    async def watched(self) -> tuple[set[int], bool] | None:
        self.looks += 1
        if self.looks <= self.failing_looks:
            return None
        return self.watching or set(), self.watching is not None

    def change(self, *names: str, added: str = "", removed: str = "", **said: Any) -> None:
        """Hear of a change of names of the directory; added, removed: words."""
        came, went = ({(*BELOW, name) for name in words.split()} for words in (added, removed))
        self.nodes |= dict.fromkeys((*came, *((*BELOW, name) for name in names)), FILE)
        for path in went:
            self.nodes.pop(path, None)
        paths = frozenset((*BELOW, name) for name in names) | came | went
        self.events.heard(
            Change("docs", "changed", None, paths, added=frozenset(came), removed=frozenset(went), **said)
        )


@pytest.fixture
async def mount(nursery: trio.Nursery) -> Mount:
    made = Mount()
    nursery.start_soon(made.events.run)
    return made


async def test_each_change_is_one_event(mount: Mount, autojump_clock: trio.testing.MockClock) -> None:
    mount.change("old", added="new", removed="gone")
    mount.change("old")
    await trio.sleep(5)
    assert mount.calls == [("file", "docs/a/new"), ("unlink", "docs/a/gone"), ("modify", "docs/a/old")]
    mount.change("old", found="load")  # the load that finds what was announced
    await trio.sleep(5)
    assert len(mount.calls) == 3
    mount.change("old", found="load")
    await trio.sleep(5)
    assert mount.calls[3:] == [("modify", "docs/a/old")]
    mount.change("old", found="nothing")
    await trio.sleep(5)
    assert len(mount.calls) == 4


@pytest.mark.semantics("S43.2")
async def test_changes_by_the_mount_itself_are_no_second_event(
    mount: Mount, autojump_clock: trio.testing.MockClock
) -> None:
    mount.change("written", "removed", own=True)
    mount.change("written")  # the server announces it, a listing has it
    mount.change(added="written", removed="removed", found="listing")
    await trio.sleep(5)
    assert mount.calls == []


@pytest.mark.semantics("S43.6")
async def test_a_doubt_hides_nothing_that_a_listing_has_told(
    mount: Mount, autojump_clock: trio.testing.MockClock
) -> None:
    """A program lists a directory of a folder just before bbfs hears that something has changed there."""
    mount.is_folder = True
    mount.change("old", added="new", removed="gone", found="listing")
    mount.change("old", "new", "gone")
    await trio.sleep(5)
    assert sorted(mount.calls) == [("file", "docs/a/new"), ("modify", "docs/a/old"), ("unlink", "docs/a/gone")]
    assert mount.listed == [BELOW]  # something else may have happened since


@pytest.mark.semantics("S43.4")
async def test_nothing_is_made_where_nobody_watches(mount: Mount, autojump_clock: trio.testing.MockClock) -> None:
    mount.watching = set()
    for _ in range(100):
        mount.change("old")
        await trio.sleep(0.1)
    await trio.sleep(5)
    assert mount.calls == []
    assert mount.looks <= 12  # in ten seconds
    mount.change("old")
    mount.watching = {mount.inodes.remember((*BELOW, "old"), "v")}  # the file alone, and after the last look
    await trio.sleep(5)
    assert mount.calls == [("modify", "docs/a/old")] * 2
    assert [each.ino for each in mount.touched] == [5, *mount.watching]  # another program has loaded a new version
    mount.watching = None  # the daemon cannot see all programs
    mount.change("other")
    await trio.sleep(20)
    assert mount.calls[2:] == [("modify", "docs/a/other")]


@pytest.mark.semantics("S43.4")
async def test_a_million_changes_are_few_events(mount: Mount, autojump_clock: trio.testing.MockClock) -> None:
    for number in range(2000):
        mount.events.heard(
            Change("docs", "changed", None, frozenset((*BELOW, f"{number}-{each}") for each in range(500)))
        )
    await trio.sleep(60)
    assert len(mount.calls) <= MOST
    assert ("touch", "docs/a") in mount.calls
    assert mount.events.state()["waiting"] == 0


@pytest.mark.semantics("S43.8")
@pytest.mark.parametrize("failing", [3, 2 * FIRST_LOOKS], ids=["slow start", "no start"])
async def test_a_first_look_that_fails_is_repeated(
    mount: Mount, autojump_clock: trio.testing.MockClock, failing: int
) -> None:
    mount.failing_looks = failing
    mount.events.take_over([])
    await trio.sleep(60)
    is_seen = failing < FIRST_LOOKS
    assert mount.looks == (failing + 1 if is_seen else FIRST_LOOKS)
    assert mount.calls == [("touch", "docs/a")] * is_seen


async def test_only_the_expected_call_of_the_own_process_is_answered(
    mount: Mount, autojump_clock: trio.testing.MockClock
) -> None:
    asked: list[str] = []

    class Operations:
        def __getattr__(self, name: str) -> Any:
            async def ask(*_: Any) -> EntryAttributes:
                asked.append(name)
                raise FUSEError(errno.EACCES)

            return ask

    toucher = Toucher("/mnt", 1, lambda: None, has_other_users=False)
    held = os.pidfd_open(os.getpid())
    toucher.numbers[TOUCHER.pid] = held
    directory = mount.inodes.remember(BELOW, DIRECTORY_VERSION)
    mount.nodes[*BELOW, "new"] = FILE
    calls: Any = RecognisedCalls(
        Operations(), cast(Any, mount), Ownership(1, 2), toucher, lambda path: mount.nodes.get(path)
    )

    async def answer(name: str, *arguments: Any) -> str:
        try:
            await getattr(calls, name)(*arguments)
        except FUSEError as error:
            return errno.errorcode[error.errno]
        return "OK"

    changes = (
        ("mknod", directory, b"new", 0o100444, 0),
        ("unlink", directory, b"new"),
        ("mkdir", directory, b"new", 0o555),
        ("rmdir", directory, b"new"),
        ("symlink", directory, b"new", b"x"),
        ("rename", directory, b"new", directory, b"x", 0),
        ("open", directory, 0),
        ("create", directory, b"new", 0o644, 1),
    )
    for name, *arguments in changes:  # nothing is expected
        assert await answer(name, *arguments, TOUCHER) == "EROFS"
    assert asked == []
    toucher.expected = Call("unlink", directory, (*BELOW, "new"))
    for name, *arguments in changes:
        assert await answer(name, *arguments, TOUCHER) == ("OK" if name == "unlink" else "EROFS"), name
        assert await answer(name, *arguments, STRANGER) == "EACCES"  # as ever
    assert await answer("unlink", directory, b"other", TOUCHER) == "EROFS"
    assert await answer("unlink", ROOT, b"new", TOUCHER) == "EROFS"
    assert asked == [name for name, *_ in changes]
    await _times(calls, toucher, directory)
    os.close(held)
    toucher.numbers[TOUCHER.pid] = _ended()  # its number means nothing: another process may have it
    assert await answer("unlink", directory, b"new", TOUCHER) == "EACCES"


def _ended() -> int:
    """Return a descriptor of a process that has ended and is reaped."""
    number = os.posix_spawnp("true", ["true"], os.environ)
    descriptor = os.pidfd_open(number)
    os.waitpid(number, 0)
    return descriptor


async def test_no_call_is_made_where_its_request_would_have_no_number(tmp_path: Place) -> None:
    """As in a PID namespace beside that of the mount: the call would be taken for one of a program."""
    (tmp_path / "dir").mkdir()
    toucher = Toucher(str(tmp_path), os.stat(tmp_path).st_dev, lambda: None, has_other_users=False)
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            assert await toucher.perform(Call("file", ROOT, ("dir", "new"))) == errno.EPIPE
            assert await toucher.watched() is None
            nursery.cancel_scope.cancel()

        nursery.start_soon(ask)
        while toucher.greeting is None:  # the process is being started; its name is looked up in no mount here
            await trio.lowlevel.checkpoint()
        toucher.greet(0)
    assert "no number" in toucher.lack
    assert os.listdir(tmp_path / "dir") == []
    toucher.reap(5)


async def _times(calls: Any, toucher: Toucher, directory: int) -> None:
    """A change of times is the expected one only with the number that the process was given, and of that inode."""
    toucher.expected = call = Call("modify", directory, (*BELOW, "new"))
    call.status = Status(5, 3, 1, 0, 0, 7, 8, 0, 0, 0o100444, 1, 2, 1)
    call.reported.set()
    fields = SimpleNamespace(update_size=False, update_mode=False, update_uid=False, update_gid=False)
    for inode, token in ((5, call.token + 1), (6, call.token)):
        with pytest.raises(FUSEError) as refused:
            await calls.setattr(inode, SimpleNamespace(st_mtime_ns=token), fields, None, TOUCHER)
        assert refused.value.errno == errno.EROFS
    found = await calls.setattr(5, SimpleNamespace(st_mtime_ns=call.token), fields, None, TOUCHER)
    assert (found.st_size, found.st_mtime_ns, found.attr_timeout) == (3, 7 * 10**9 + 8, 0.0)
