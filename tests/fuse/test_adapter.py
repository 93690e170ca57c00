"""The FUSE adapter without FUSE: errnos, attributes, and that no exception leaves it."""

import errno
import logging
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyfuse3
import pytest
import trio
import trio.testing
from fakes import FlatSource, TreeSource, World, data_source, settled, several, until, uris
from pyfuse3 import FUSEError
from writable import Program, WritableTree

from bbfs.fuse import adapter as operations
from bbfs.fuse.adapter import Operations, answers
from bbfs.fuse.backings.attributes import Ownership
from bbfs.fuse.scratch import origin
from bbfs.fuse.scratch.bases import Notes
from bbfs.fuse.scratch.directory import Scratch
from bbfs.fuse.scratch.shown import Shown
from bbfs.fuse.waiting_programs import Interrupts
from bbfs.model import errors
from bbfs.model.errors import BbfsError
from bbfs.model.values import Loaded
from bbfs.sources.content.memory import MemoryContent
from bbfs.vfs.filesystem import FileSystem
from bbfs.vfs.inode_table import DirectoryLocks
from bbfs.vfs.open_files import FILLED

OWNER = Ownership(uid=1234, gid=5678)
TREE = "bb-scripted+tree+file"
NOBODY = cast(pyfuse3.RequestContext, SimpleNamespace(pid=0, umask=0o022))
"""The context of a request whose thread has no number here."""


def all_errors(of: type[BbfsError] = BbfsError) -> list[type[BbfsError]]:
    return [of, *(error for child in of.__subclasses__() for error in all_errors(child))]


FOUND = [error for error in all_errors() if error.__module__ == errors.__name__]
ERRNOS = {
    "BbfsError": errno.EIO,
    "NotFound": errno.ENOENT,
    "Denied": errno.EACCES,
    "LoginRequired": errno.EACCES,
    "Unreachable": errno.EHOSTDOWN,
    "DeadlineExceeded": errno.ETIMEDOUT,
    "ProtocolViolation": errno.EPROTO,
    "TooLarge": errno.EFBIG,
    "ToolFailed": errno.EIO,
    "ReadOnly": errno.EROFS,
    "NotSupported": errno.EOPNOTSUPP,
    "Outdated": errno.ESTALE,
    "Conflict": errno.ESTALE,
    "Exists": errno.EEXIST,
    "NotEmpty": errno.ENOTEMPTY,
    "CrossesSources": errno.EXDEV,
    "NoSpace": errno.ENOSPC,
    "Rejected": errno.EINVAL,
    "Busy": errno.EAGAIN,
    "NotADirectory": errno.ENOTDIR,
    "IsADirectory": errno.EISDIR,
    "NameTooLong": errno.ENAMETOOLONG,
    "NoAttribute": errno.ENODATA,
    "InvalidUri": errno.EINVAL,
    "ConfigError": errno.EINVAL,
}


def serving(world: World, owner: Ownership = OWNER, shown: Shown | None = None) -> Operations:
    return Operations(world.core, owner, Interrupts(), shown)


PARTS = ("names", "directories", "handles", "open_files", "uncached", "name_changes", "passed")


class Failing:
    """A file system whose every method ends with the same exception."""

    def __init__(self, error: BaseException) -> None:
        self.locks = DirectoryLocks()
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return self if name in PARTS else self._fail

    def __getitem__(self, handle: int) -> Any:
        raise self._error

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise self._error


UPDATES = [f"update_{name}" for name in ("size", "mtime", "atime", "ctime", "mode", "uid", "gid")]
REQUESTS: dict[str, tuple[Any, ...]] = {
    "lookup": (1, b"a", NOBODY),
    "getattr": (1, NOBODY),
    "readlink": (1, NOBODY),
    "opendir": (1, NOBODY),
    "readdir": (1, 0, None),
    "releasedir": (1,),
    "open": (1, os.O_RDONLY, NOBODY),
    "read": (1, 0, 1),
    "release": (1,),
    "poll": (1, 1, None, NOBODY),
    "getxattr": (1, b"user.a", NOBODY),
    "listxattr": (1, NOBODY),
    "statfs": (NOBODY,),
    "create": (1, b"a", 0o644, os.O_WRONLY, NOBODY),
    "mknod": (1, b"a", stat.S_IFREG | 0o644, 0, NOBODY),
    "write": (1, 0, b"a"),
    "setattr": (1, pyfuse3.EntryAttributes(), SimpleNamespace(**dict.fromkeys(UPDATES, False)), None, NOBODY),
    "flush": (1,),
    "fsync": (1, False),
    "unlink": (1, b"a", NOBODY),
    "mkdir": (1, b"a", 0o755, NOBODY),
    "rmdir": (1, b"a", NOBODY),
    "rename": (1, b"a", 1, b"b", 0, NOBODY),
    "link": (1, 1, b"a", NOBODY),
    "symlink": (1, b"a", b"b", NOBODY),
}
BY_NAME = ("mknod", "mkdir", "unlink", "rmdir", "rename", "setattr")
"""Requests that the kernel repeats by itself after ESTALE."""


def failing(error: BaseException) -> Operations:
    return Operations(cast(FileSystem, Failing(error)), OWNER, Interrupts())


async def outcome(adapter: Operations, request: str) -> int | None:
    with pytest.raises(FUSEError) as raised:
        await getattr(adapter, request)(*REQUESTS[request])
    return raised.value.errno


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S23")
def test_the_table_of_errnos_is_closed() -> None:
    assert {error.__name__: error.errno for error in FOUND} == ERRNOS


@pytest.mark.semantics("S23")
@pytest.mark.parametrize("kind", FOUND)
async def test_every_error_answers_its_errno_to_every_request(
    kind: type[BbfsError], caplog: pytest.LogCaptureFixture
) -> None:
    adapter = failing(kind("the cause"))
    for request in REQUESTS:
        by_name = kind is errors.Conflict and request in BY_NAME
        assert await outcome(adapter, request) == (errno.EBUSY if by_name else kind.errno), request
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


@pytest.mark.semantics("S23", "S27")
@pytest.mark.parametrize(
    "error", [ZeroDivisionError("oops"), KeyError(7), OSError(2, "no"), ExceptionGroup("", [ValueError()])]
)
async def test_what_is_unforeseen_answers_eio_with_a_traceback_in_the_log(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = failing(error)
    for request in REQUESTS:
        caplog.clear()
        assert await outcome(adapter, request) == errno.EIO, request
        [record] = caplog.records
        assert record.levelno == logging.ERROR
        assert request in record.getMessage()
        assert record.exc_info is not None


@pytest.mark.semantics("S27")
def test_every_request_that_is_answered_here_goes_through_the_one_rule() -> None:
    own = {name for name, value in vars(Operations).items() if callable(value) and not name.startswith("_")}
    assert own == REQUESTS.keys() | {"forget", "fsyncdir", "setxattr", "removexattr"}
    for name in own - {"forget"}:
        assert hasattr(getattr(Operations, name), "__wrapped__"), name


@pytest.mark.semantics("S27")
@pytest.mark.parametrize("error", [KeyError(1), errors.Outdated("never held"), ValueError("too many")])
async def test_forget_never_raises_and_goes_on(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    forgotten: list[tuple[int, int]] = []

    def forget(ino: int, references: int) -> None:
        forgotten.append((ino, references))
        if ino == 2:
            raise error

    unused: dict[str, Any] = dict.fromkeys(
        ("names", "directories", "open_files", "name_changes", "note_changes", "locks")
    )
    files = cast(FileSystem, SimpleNamespace(forget=forget, passed=[], **unused))
    inodes = [(pyfuse3.InodeT(2), 1), (pyfuse3.InodeT(3), 4)]
    await Operations(files, OWNER, Interrupts()).forget(inodes)
    assert forgotten == [(2, 1), (3, 4)]
    assert "forget" in caplog.text


async def test_a_real_file_system_is_forgotten_too_often(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    async with World(nursery, FlatSource(contents={"x://a": b""})) as world:
        await serving(world).forget([(pyfuse3.InodeT(99), 1), (pyfuse3.InodeT(1), 1)])
    assert len(caplog.records) == 1


async def test_a_cancelled_daemon_is_no_error(autojump_clock: trio.testing.MockClock) -> None:
    class Hanging:
        @answers
        async def wait(self) -> None:
            await trio.sleep_forever()

    with trio.move_on_after(5.0) as scope:
        await Hanging().wait()
    assert scope.cancelled_caught


# -- waits -------------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S22", "S16")
@pytest.mark.parametrize("request_name", ["getattr", "open"])
async def test_the_wait_of_an_interrupted_reader_answers_eintr_and_harms_nobody(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    request_name: str,
) -> None:
    wanting: set[int] = set()
    monkeypatch.setattr("bbfs.fuse.waiting_programs.wants_out", lambda pid: pid in wanting)
    source = FlatSource(contents={"x://a": b"bytes"})
    answered: dict[int, Any] = {}
    some_answer = trio.Event()
    async with World(nursery, source) as world:
        interrupts = Interrupts()
        nursery.start_soon(interrupts.run)
        adapter = Operations(world.core, OWNER, interrupts)
        found = await world.kernel.walk("mcp-server+docs/x/a")
        source.hold("x://a")

        async def ask(pid: int) -> None:
            context = cast(pyfuse3.RequestContext, SimpleNamespace(pid=pid))
            ino = pyfuse3.InodeT(found.ino)
            try:
                if request_name == "open":
                    answered[pid] = await adapter.open(ino, os.O_RDONLY, context)
                else:
                    answered[pid] = await adapter.getattr(ino, context)
            except FUSEError as error:
                answered[pid] = error.errno
            some_answer.set()

        async with trio.open_nursery() as readers:
            readers.start_soon(ask, 1)
            readers.start_soon(ask, 2)
            await trio.sleep(1.0)
            started = trio.current_time()
            wanting.add(1)
            await some_answer.wait()
            assert trio.current_time() - started < 1.0
            assert answered == {1: errno.EINTR}
            source.release("x://a")
        assert not isinstance(answered[2], int)
        assert source.loaded == ["x://a"]
        assert source.cancelled == []


@pytest.mark.semantics("S22")
async def test_a_reader_of_what_others_write_is_interrupted(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bbfs.fuse.waiting_programs.wants_out", lambda pid: pid == 2)
    source = WritableTree()
    source.contents = {"file:./a": b"first"}
    async with World(nursery, source) as world:
        interrupts = Interrupts()
        nursery.start_soon(interrupts.run)
        adapter = Operations(world.core, OWNER, interrupts)
        ino = pyfuse3.InodeT((await world.kernel.walk(f"{TREE}/a")).ino)
        writer, reader = [
            (await adapter.open(ino, flags, cast(pyfuse3.RequestContext, SimpleNamespace(pid=pid)))).fh
            for pid, flags in ((1, os.O_WRONLY | os.O_APPEND), (2, os.O_RDONLY))
        ]
        await adapter.write(writer, 5, b" and more")
        source.released = trio.Event()
        async with trio.open_nursery() as programs:
            programs.start_soon(adapter.flush, writer)
            await until(lambda: source.written)
            programs.start_soon(adapter.write, writer, 14, b", later")
            await settled()
            with pytest.raises(FUSEError) as raised:
                await adapter.read(reader, 0, 100)
            source.released.set()
        assert raised.value.errno == errno.EINTR


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S8", "S10")
@pytest.mark.parametrize(("umask", "file", "directory"), [(0, 0o444, 0o555), (0o027, 0o440, 0o550), (0o777, 0, 0)])
async def test_modes_owners_and_blocks(nursery: trio.Nursery, umask: int, file: int, directory: int) -> None:
    source = TreeSource(
        contents={"file:./d/a": bytes(513), "file:./empty": b""},
        links={"file:./l": "d"},
        described={"file:./d/a": {"modified_ns": 1_700_000_000_123_456_789}},
    )
    root = "bb-scripted+tree+file/"
    async with World(nursery, source) as world:
        adapter = serving(world, Ownership(1234, 5678, umask))

        async def entry(path: str) -> pyfuse3.EntryAttributes:
            return await adapter.getattr(pyfuse3.InodeT((await world.kernel.walk(path)).ino), NOBODY)

        found = await entry(root + "d/a")
        assert stat.S_ISREG(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == file
        assert (found.st_size, found.st_blocks, found.st_uid, found.st_gid) == (513, 2, 1234, 5678)
        assert found.st_mtime_ns == found.st_ctime_ns == 1_700_000_000_123_456_789
        found = await entry(root + "d")
        assert stat.S_ISDIR(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == directory
        found = await entry(root + "l")
        assert stat.S_ISLNK(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == 0o777
        assert found.st_size == 1
        assert (await entry(root + "empty")).st_blocks == 0
        assert stat.S_ISDIR((await entry("")).st_mode)


async def test_a_name_that_is_not_there_is_an_entry_without_an_inode(nursery: trio.Nursery) -> None:
    async with World(nursery, FlatSource(contents={"x://a": b""})) as world:
        found = await serving(world).lookup(pyfuse3.InodeT(1), b"none", NOBODY)
        assert found.st_ino == 0
        assert found.entry_timeout > 0


@pytest.mark.semantics("S13", "S28")
async def test_open_read_release(nursery: trio.Nursery) -> None:
    async with World(nursery, FlatSource(contents={"x://a": b"0123456789"})) as world:
        adapter = serving(world)
        ino = pyfuse3.InodeT((await world.kernel.stat("mcp-server+docs/x/a")).ino)
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
            with pytest.raises(FUSEError) as raised:
                await adapter.open(ino, flags, NOBODY)
            assert raised.value.errno == errno.EROFS
        await adapter.release((await adapter.open(ino, os.O_RDONLY | os.O_APPEND, NOBODY)).fh)  # as on a local disk
        info = await adapter.open(ino, os.O_RDONLY | os.O_CLOEXEC, NOBODY)
        assert info.keep_cache
        assert await adapter.read(info.fh, 2, 3) == b"234"
        assert await adapter.read(info.fh, 8, 100) == b"89"
        assert await adapter.read(info.fh, 10, 100) == b""
        with pytest.raises(FUSEError) as raised:
            await adapter.flush(info.fh)
        assert raised.value.errno == errno.ENOSYS
        await adapter.release(info.fh)


@pytest.mark.semantics("S12")
async def test_attributes_of_other_namespaces_are_answered_without_asking_anybody(nursery: trio.Nursery) -> None:
    async with World(nursery, FlatSource(contents={"x://a": b""})) as world:
        adapter = serving(world)
        ino = pyfuse3.InodeT((await world.kernel.walk("mcp-server+docs/x/a")).ino)
        for name in (b"security.selinux", b"system.posix_acl_access", b"trusted.a", b"user.none", b"user.\xff"):
            with pytest.raises(FUSEError) as raised:
                await adapter.getxattr(ino, name, NOBODY)
            assert raised.value.errno == (errno.ENODATA if name.startswith(b"user.") else errno.EOPNOTSUPP)
        assert await adapter.getxattr(ino, b"user.mime_type", NOBODY) == b"text/plain"
        assert b"user.mime_type" in await adapter.listxattr(ino, NOBODY)


@pytest.mark.semantics("S7", "S13")
async def test_the_first_open_of_an_inode_gives_the_kernel_its_content(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FlatSource(contents={"x://a": b"12345", "x://empty": b"", "x://large": bytes(FILLED + 1)})
    given: list[tuple[int, int, bytes]] = []
    monkeypatch.setattr(pyfuse3, "notify_store", lambda *arguments: given.append(arguments))
    async with World(nursery, source) as world:
        adapter = serving(world)

        async def opened(name: str) -> int:
            ino = pyfuse3.InodeT((await world.kernel.stat(f"mcp-server+docs/x/{name}")).ino)
            for _ in range(2):
                await adapter.release((await adapter.open(ino, os.O_RDONLY, NOBODY)).fh)
            return ino

        first = await opened("a")
        await opened("empty")
        await opened("large")
        assert given == [(first, 0, b"12345")]
        source.contents["x://a"] = b"another"
        source.announce("x://a")
        second = await opened("a")
        assert given[1:] == [(second, 0, b"another")]


@pytest.mark.semantics("S7", "S13")
async def test_the_kernel_is_given_nothing_while_another_program_may_read(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel holds a page until a read of it is answered, and would hold the daemon until then."""
    given: list[tuple[int, int, bytes]] = []
    monkeypatch.setattr(pyfuse3, "notify_store", lambda *arguments: given.append(arguments))
    async with World(nursery, FlatSource(contents={"x://a": b"12345"})) as world:
        ino = pyfuse3.InodeT((await world.kernel.stat("mcp-server+docs/x/a")).ino)
        handle = await world.files.open(ino)
        second = await serving(world).open(ino, os.O_RDONLY, NOBODY)
        assert given == []
        assert await serving(world).read(second.fh, 0, 4096) == b"12345"
        world.files.release(handle)


async def test_statfs(nursery: trio.Nursery) -> None:
    async with World(nursery, FlatSource(contents={"x://a": bytes(1000), "x://of unknown size": b"1"})) as world:
        await world.kernel.stat("mcp-server+docs/x/a")
        await settled()
        found = await serving(world).statfs(NOBODY)
        assert (found.f_blocks * found.f_frsize, found.f_bfree, found.f_files, found.f_namemax) == (1024, 0, 2, 255)


async def test_statfs_of_sizes_beyond_all_numbers(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(nursery, FlatSource(contents={"x://a": b""})) as world:
        (source,) = world.manager.sources.values()

        async def usage() -> tuple[int, int]:
            return 1100 * ((1 << 63) - 1), 1100

        monkeypatch.setattr(source.catalog, "usage", usage)
        assert (await serving(world).statfs(NOBODY)).f_blocks == (1 << 63) // 512


class Buffer:
    """Stands in for the kernel's buffer of one READDIRPLUS: it takes so many entries."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 0
        self.taken: list[tuple[bytes, int, int]] = []
        monkeypatch.setattr(operations.pyfuse3, "readdir_reply", self._reply)

    def _reply(self, token: object, name: bytes, attributes: pyfuse3.EntryAttributes, following: int) -> bool:
        if not self.room:
            return False
        self.room -= 1
        self.taken.append((name, attributes.st_ino, following))
        return True

    async def listed(
        self, adapter: Operations, directory: int, room: int, between: Callable[[], None] = lambda: None
    ) -> list[tuple[bytes, int, int]]:
        """List a directory in pieces of so many entries. between: called after each of them."""
        self.taken.clear()
        handle, position = await adapter.opendir(pyfuse3.InodeT(directory), NOBODY), 0
        while True:
            before = len(self.taken)
            self.room = room
            await adapter.readdir(handle, position, cast(pyfuse3.ReaddirToken, None))
            if len(self.taken) == before:
                break
            position = self.taken[-1][2]
            between()
        await adapter.releasedir(handle)
        return list(self.taken)


@pytest.mark.parametrize("room", [1, 2, 3, 7, 100])
async def test_a_listing_in_pieces_skips_and_repeats_nothing_and_counts_what_was_taken(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    buffer = Buffer(monkeypatch)
    source = FlatSource(contents={**dict.fromkeys(uris(20), b""), "x://d/p": several(("x://q", b""), ("x://r", b""))})
    async with World(nursery, source) as world:
        adapter = serving(world)
        directory = (await world.kernel.walk("mcp-server+docs/x/d")).ino
        held = world.files.held()[0]
        listed = (await buffer.listed(adapter, directory, room))[2:]
        assert [name for name, _, _ in listed] == [*(f"{n:04}".encode() for n in range(20)), b"p"]
        assert world.files.held()[0] == held + 21
        await adapter.forget([(pyfuse3.InodeT(ino), 1) for _, ino, _ in listed])
        assert world.files.held()[0] == held


@pytest.mark.semantics("S11.4", "S39")
async def test_an_overlay_gets_each_attribute_that_was_listed(nursery: trio.Nursery) -> None:
    """The listing of the file may expire between the two requests; without the attribute the save fails."""
    async with World(nursery, TreeSource(contents={"file:./d/a.txt": b"first"})) as world:
        adapter = serving(world, replace(OWNER, is_lower=True))
        below, file = [pyfuse3.InodeT((await world.kernel.walk(path)).ino) for path in (f"{TREE}/d", f"{TREE}/d/a.txt")]
        [name] = await adapter.listxattr(file, NOBODY)
        assert b"etag" in await adapter.getxattr(file, name, NOBODY)
        assert await adapter.listxattr(below, NOBODY) == []
        world.clock.advance(3600)
        assert await adapter.getxattr(file, name, NOBODY) == b'{"path":"%s/d/a.txt"}' % TREE.encode()
        assert await adapter.listxattr(below, NOBODY) == []


@pytest.mark.semantics("S20", "S39.6")
async def test_what_a_stale_listing_shows_is_noted_as_the_base_of_changes(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    """Else a change that begins while the source is down would be a conflict, though nobody has changed the file."""
    source = TreeSource(contents={"file:./a.txt": b"first"})
    scratch = Scratch.made(str(tmp_path / "scratch"), "/mnt")
    async with World(nursery, source, is_lower=True) as world:
        adapter = serving(world, replace(OWNER, is_lower=True), Shown(scratch))
        root = pyfuse3.InodeT((await world.kernel.walk(TREE)).ino)
        await world.kernel.walk(f"{TREE}/a.txt")
        source.down = errors.Unreachable("down")
        world.clock.advance(3600)
        await adapter.lookup(root, pyfuse3.FileNameT(b"a.txt"), NOBODY)
        noted = Notes.of(scratch).bases[f"{TREE}/a.txt"]
        assert noted.kind == "file"
        assert noted.version


@pytest.mark.semantics("S39")
async def test_an_overlay_copies_no_content_of_another_size_than_it_was_told(nursery: trio.Nursery) -> None:
    """It asks for the size before the open. While the open waits, another program may look the new version up."""
    source = TreeSource(contents={"file:./a.txt": b"first"})
    load = source.load

    async def changed(native_uri: str) -> Loaded:
        source.contents[native_uri] = b"longer than before"
        ino = world.core.inodes.remember((TREE, "a.txt"), MemoryContent(b"longer than before").version)
        assert ino == file
        return await load(native_uri)

    source.load = changed  # type: ignore[method-assign]
    async with World(nursery, source, is_lower=True) as world:
        adapter = serving(world, replace(OWNER, is_lower=True))
        file = pyfuse3.InodeT((await world.kernel.walk(f"{TREE}/a.txt")).ino)
        with pytest.raises(FUSEError) as raised:
            await adapter.open(file, os.O_RDONLY, NOBODY)
        assert raised.value.errno == errno.ESTALE
        assert len(world.core.handles) == 0
        assert (await adapter.getattr(file, NOBODY)).st_size == len("longer than before")
        opened = await adapter.open(file, os.O_RDONLY, NOBODY)
        assert await adapter.read(opened.fh, 0, 100) == b"longer than before"
        await adapter.release(opened.fh)


@pytest.mark.semantics("S7.3", "S39")
@pytest.mark.parametrize("is_open", [False, True])
async def test_an_overlay_copies_no_content_that_another_thread_has_looked_up(
    nursery: trio.Nursery, is_open: bool
) -> None:
    """The open waits for nothing: another thread has loaded the new version, or has it open."""
    one, other = (cast(pyfuse3.RequestContext, SimpleNamespace(pid=pid, umask=0o022)) for pid in (1, 2))
    source = TreeSource(contents={"file:./a.txt": b"first"})
    async with World(nursery, source, is_lower=True) as world:
        adapter = serving(world, replace(OWNER, is_lower=True))
        root = pyfuse3.InodeT((await world.kernel.walk(TREE)).ino)
        found = await adapter.lookup(root, pyfuse3.FileNameT(b"a.txt"), one)
        first = await adapter.open(found.st_ino, os.O_RDONLY, one)
        await adapter.release(first.fh)
        assert (await adapter.getattr(found.st_ino, one)).st_size == len("first")
        source.contents["file:./a.txt"] = b"longer than before"
        world.core.refresh((TREE,))
        later = await adapter.lookup(root, pyfuse3.FileNameT(b"a.txt"), other)
        handle = None
        while handle is None:
            try:
                handle = (await adapter.open(later.st_ino, os.O_RDONLY, other)).fh
            except FUSEError:
                later = await adapter.lookup(root, pyfuse3.FileNameT(b"a.txt"), other)
        assert later.st_ino == found.st_ino
        if not is_open:
            await adapter.release(handle)
        with pytest.raises(FUSEError) as raised:
            await adapter.open(found.st_ino, os.O_RDONLY, one)
        assert raised.value.errno == errno.ESTALE
        found = await adapter.lookup(root, pyfuse3.FileNameT(b"a.txt"), one)
        assert found.st_size == len("longer than before")
        opened = await adapter.open(found.st_ino, os.O_RDONLY, one)
        assert await adapter.read(opened.fh, 0, 100) == b"longer than before"
        for each in [opened.fh, *([handle] if is_open else [])]:
            await adapter.release(each)


@pytest.mark.semantics("S7.3", "S18.1")
async def test_a_thread_that_an_overlay_has_sent_back_opens_what_has_changed_again_meanwhile(
    nursery: trio.Nursery,
) -> None:
    """The kernel tries an open twice, so the first one has to load what the second one finds."""
    source = TreeSource(contents={"file:./a.txt": b"first"})
    async with World(nursery, source, is_lower=True) as world:
        adapter = serving(world, replace(OWNER, is_lower=True))
        root, tries = pyfuse3.InodeT((await world.kernel.walk(TREE)).ino), 0
        found = await adapter.lookup(root, pyfuse3.FileNameT(b"a.txt"), NOBODY)
        for pid in range(1, 6):
            one = cast(pyfuse3.RequestContext, SimpleNamespace(pid=pid, umask=0o022))
            try:
                opened = await adapter.open(found.st_ino, os.O_RDONLY, one)
            except FUSEError:
                tries += 1
                found = await adapter.lookup(root, pyfuse3.FileNameT(b"a.txt"), one)
                opened = await adapter.open(found.st_ino, os.O_RDONLY, one)
            assert await adapter.read(opened.fh, 0, 100) == source.contents["file:./a.txt"]
            await adapter.release(opened.fh)
            source.contents["file:./a.txt"] = b"longer" * pid
            world.clock.advance(11)  # the content has expired, and the listing has not
        assert tries >= 3


@pytest.mark.semantics("S32", "S39")
@pytest.mark.parametrize("request_of", ["unlink", "rename"])
async def test_a_change_replaces_the_version_that_its_thread_has_stated(nursery: trio.Nursery, request_of: str) -> None:
    """`bbfs apply` compares the version of a listing, which may be out of date. The change itself meets a later one."""
    source = WritableTree(contents={"file:./a.txt": b"first", "file:./b.txt": b"new"})
    async with World(nursery, source) as world:
        adapter = serving(world)
        root = pyfuse3.InodeT((await world.kernel.walk(TREE)).ino)

        async def change() -> None:
            if request_of == "unlink":
                await adapter.unlink(root, pyfuse3.FileNameT(b"a.txt"), NOBODY)
            else:
                await adapter.rename(root, pyfuse3.FileNameT(b"b.txt"), root, pyfuse3.FileNameT(b"a.txt"), 0, NOBODY)

        file = pyfuse3.InodeT((await world.kernel.walk(f"{TREE}/a.txt")).ino)
        seen = await adapter.getxattr(file, pyfuse3.XAttrNameT(origin.ATTRIBUTE.encode()), NOBODY)
        await adapter.setxattr(file, pyfuse3.XAttrNameT(origin.BASE.encode()), seen, NOBODY)
        source.contents["file:./a.txt"] = b"of somebody else"
        world.core.refresh((TREE,))
        await world.kernel.walk(f"{TREE}/a.txt")
        with pytest.raises(FUSEError) as raised:
            await change()
        assert raised.value.errno == errno.EBUSY
        assert source.contents["file:./a.txt"] == b"of somebody else"
        await change()
        assert source.contents.get("file:./a.txt") in (None, b"new"), "it holds for one change"


@pytest.mark.parametrize("room", [1, 3, 100])
async def test_a_listing_held_ready_is_the_same_in_pieces_and_counts_what_was_taken(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    buffer = Buffer(monkeypatch)
    source = FlatSource(data_source(listing_ttl=100.0, content_ttl=100.0), contents=dict.fromkeys(uris(9), b"1"))
    async with World(nursery, source) as world:
        adapter = serving(world)
        await world.kernel.entries("mcp-server+docs/x/d")
        for number in range(9):
            await world.kernel.cat(f"mcp-server+docs/x/d/{number:04}")
        await world.kernel.entries("mcp-server+docs/x/d")
        directory = (await world.kernel.walk("mcp-server+docs/x/d")).ino

        def lookups(ino: int) -> int:
            return world.files.core.inodes.inode(ino).lookups

        listed = partial(buffer.listed, adapter, directory, room)
        counted = {ino: lookups(ino) for _, ino, _ in (await listed())[2:]}
        whole = await listed()
        last = whole[-1][1]
        with monkeypatch.context() as patched:
            patched.setattr(world.files, "readdir", None)  # all comes from what is held ready
            assert await listed() == whole
        assert {ino: lookups(ino) - count for ino, count in counted.items()} == dict.fromkeys(counted, 2)

        def forget() -> None:
            if len(buffer.taken) == room:  # the first piece
                world.files.forget(last, lookups(last))
                world.kernel.references[last] = 0

        if room < len(whole):
            assert await listed(between=forget) == whole, "what the kernel has forgotten is remembered again"
            assert lookups(last) == 1


@pytest.mark.semantics("S27")
async def test_times_and_sizes_of_any_source_can_be_answered(nursery: trio.Nursery) -> None:
    """A server may say that a resource was last modified before 1970, or later than nanoseconds in 64 bits reach."""
    source = FlatSource(contents={"x://late": b"1", "x://past": b"1", "x://too late": b"1"})
    source.described = {"x://late": {"modified_ns": 2**63 - 1}, "x://past": {"modified_ns": -1}}
    source.described["x://too late"] = {"modified_ns": 253_402_300_799 * 10**9}
    async with World(nursery, source) as world:
        times: dict[str, int] = {}
        for name in ("late", "past", "too late"):
            ino = pyfuse3.InodeT((await world.kernel.stat(f"mcp-server+docs/x/{name}")).ino)
            times[name] = (await serving(world).getattr(ino, NOBODY)).st_mtime_ns
        assert times == {"late": 2**63 - 1, "past": -1, "too late": int(world.clock.now * 1e9)}


# -- writing -----------------------------------------------------------------------------------------------------------

HELD = ("write", "remove", "rename", "make_directory", "remove_directory")


@pytest.mark.semantics("S22", "S32.2")
@pytest.mark.parametrize(
    "request_name",
    ["flush", "fsync of a reader", "fsync", "setattr", "mknod", "unlink", "rename", "mkdir", "rmdir", "write"],
)
async def test_a_killed_writer_ends_soon_and_its_change_is_whole(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    request_name: str,
) -> None:
    wanting: set[int] = set()
    monkeypatch.setattr("bbfs.fuse.waiting_programs.wants_out", lambda pid: pid in wanting)
    source = WritableTree()
    source.contents = {"file:./a": b"old", "file:./d/b": b"b"}
    source.directories = {"file:./empty"}
    asked, go_on = trio.Event(), trio.Event()

    def held(change: Any) -> Any:
        async def wait(*arguments: Any, **named: Any) -> Any:
            asked.set()
            await go_on.wait()
            return await change(*arguments, **named)

        return wait

    killed = cast(pyfuse3.RequestContext, SimpleNamespace(pid=os.getpid(), umask=0o022))
    async with World(nursery, source) as world:
        interrupts = Interrupts()
        nursery.start_soon(interrupts.run)
        adapter = Operations(world.core, OWNER, interrupts)
        program = Program(world)
        root = pyfuse3.InodeT((await program.walk(TREE)).ino)
        file = pyfuse3.InodeT((await program.walk(f"{TREE}/a")).ino)
        name = cast("Callable[[str], pyfuse3.FileNameT]", str.encode)
        handle = (await adapter.open(file, os.O_WRONLY, killed)).fh
        reading = (await adapter.open(file, os.O_RDONLY, killed)).fh
        if request_name in ("flush", "fsync of a reader", "fsync"):
            await adapter.write(handle, 0, b"new")
        for each in ("load", *HELD):
            monkeypatch.setattr(source, each, held(getattr(source, each)))
        inodes = len(world.core.inodes)
        resized = SimpleNamespace(**{**dict.fromkeys(UPDATES, False), "update_size": True})
        request = {
            "flush": lambda: adapter.flush(handle),
            "fsync of a reader": lambda: adapter.fsync(reading, False),
            "fsync": lambda: adapter.fsync(handle, False),
            "write": lambda: adapter.write(handle, 1, b"n"),
            "setattr": lambda: adapter.setattr(file, pyfuse3.EntryAttributes(), cast(Any, resized), None, killed),
            "mknod": lambda: adapter.mknod(root, name("n"), stat.S_IFREG | 0o644, 0, killed),
            "unlink": lambda: adapter.unlink(root, name("a"), killed),
            "rename": lambda: adapter.rename(root, name("a"), root, name("z"), 0, killed),
            "mkdir": lambda: adapter.mkdir(root, name("n"), 0o755, killed),
            "rmdir": lambda: adapter.rmdir(root, name("empty"), killed),
        }[request_name]
        answered: list[int | None] = []

        async def ask() -> None:
            with pytest.raises(FUSEError) as raised:
                await request()
            answered.append(raised.value.errno)

        async with trio.open_nursery() as programs:
            programs.start_soon(ask)
            await asked.wait()
            started = trio.current_time()
            wanting.add(os.getpid())
        assert trio.current_time() - started < 1.0
        assert answered == [errno.EINTR]
        for each in (handle, reading):
            await adapter.release(each)  # as its program has ended
        go_on.set()
        await settled()
        contents, directories = {"file:./a": b"old", "file:./d/b": b"b"}, {"file:./empty"}
        match request_name:
            case "flush" | "fsync of a reader" | "fsync":
                contents["file:./a"] = b"new"
            case "setattr":
                contents["file:./a"] = b""
            case "mknod":
                contents["file:./n"] = b""
            case "unlink":
                del contents["file:./a"]
            case "rename":
                contents["file:./z"] = contents.pop("file:./a")
            case "mkdir":
                directories.add("file:./n")
            case "rmdir":
                directories.clear()
            case _:
                pass
        assert (source.contents, source.directories) == (contents, directories)
        assert not world.core.names.drafts
        assert not world.manager.writer.pending.has_some()
        assert len(world.core.inodes) <= inodes
        shown = {uri.removeprefix("file:./").split("/")[0] for uri in (*contents, *directories)}
        assert set(await program.ls(TREE)) == shown
