"""Local folders: what is shown, that nothing outside is read, and that one open file is one version."""

import ctypes
import errno
import itertools
import logging
import os
import shutil
import socket
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
import trio
from fakes import data_source
from hypothesis import example, given, settings
from hypothesis import strategies as st
from programs import descriptors_of

from bbfs.model.errors import (
    BbfsError,
    Busy,
    ConfigError,
    Denied,
    IsADirectory,
    NotFound,
    NotSupported,
    Outdated,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import Content, ResourceMetadata
from bbfs.sources import Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.filesystem import beneath
from bbfs.sources.filesystem import content as file_content
from bbfs.sources.filesystem import handler as filesystem
from bbfs.sources.filesystem.beneath import MountPoint
from bbfs.sources.filesystem.content import AHEAD, FileContent
from bbfs.sources.filesystem.handler import FilesystemHandler

BOUND = 60.0


def make(root: Path | str, mount_point: Path | str | None = None, **options: object) -> FilesystemHandler:
    source = data_source("bb-filesystem+notes+file", concurrency=4, config={"root": str(root), **options})
    return FilesystemHandler(source, Services(mount_point=str(mount_point) if mount_point is not None else None))


async def load(handler: FilesystemHandler, native_uri: str) -> Content:
    with trio.fail_after(BOUND):
        return (await handler.load(native_uri)).parts[0].content


async def load_bytes(handler: FilesystemHandler, native_uri: str) -> bytes:
    content = await load(handler, native_uri)
    try:
        return await content.read_waiting(0, content.size)
    finally:
        content.close()


async def names(handler: FilesystemHandler, *path: str) -> list[str]:
    return [entry.name for entry in (await handler.list_directory(path)).resources]


async def entry_of(handler: FilesystemHandler, name: str) -> ResourceMetadata:
    (entry,) = [entry for entry in (await handler.list_directory(())).resources if entry.name == name]
    return entry


async def eventually(holds: Callable[[], bool]) -> None:
    """Waits for what another thread does, for a bounded time."""
    with trio.fail_after(BOUND):
        while not holds():  # noqa: ASYNC110 - the kernel's table of descriptors announces nothing
            await trio.sleep(0.001)


def open_below(directory: Path) -> list[str]:
    """The descriptors of this process that lead below `directory`."""
    return [leads for leads in descriptors_of("self").values() if leads.startswith(str(directory))]


@pytest.mark.semantics("S9", "S10", "S11")
async def test_metadata_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_bytes(b"hello")
    os.utime(path, ns=(1, 1_700_000_000_123_456_789))
    status = path.stat()
    handler = make(tmp_path)
    assert handler.state.state == "idle"
    entry = await handler.stat("file:./page.md")
    assert entry == ResourceMetadata(
        uri="bb-filesystem+notes+file:./page.md",
        native_uri="file:./page.md",
        name="page.md",
        mime_type="text/markdown",
        content_type="text",
        size=5,
        modified_ns=1_700_000_000_123_456_789,
        etag=f"{status.st_ino:x}-5-{status.st_mtime_ns:x}-{status.st_ctime_ns:x}",
    )
    assert (await handler.list_directory(())).resources == (entry,)
    loaded = await handler.load("file:./page.md")
    assert loaded.metadata == entry
    assert (loaded.parts[0].native_uri, loaded.parts[0].mime_type) == ("file:./page.md", "text/markdown")
    assert handler.state.state == "up"


async def test_every_way_to_write_a_uri_names_the_same(tmp_path: Path) -> None:
    root = tmp_path / "with space"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "a@b").write_bytes(b"x")
    handler = make(root)
    absolute = quote_from_bytes(os.fsencode(root))
    for native_uri in (
        "file:./sub/a%40b",
        "file:sub/a%40b",
        "file:./sub/a@b",
        "FILE:./sub/%61@b",
        f"file://{absolute}/sub/a@b",
        f"file://localhost{absolute}/sub/a@b",
        f"file:{absolute}/sub/a@b",
    ):
        assert (await handler.stat(native_uri)).native_uri == "file:./sub/a%40b", native_uri
        assert await load_bytes(handler, native_uri) == b"x"
    for native_uri in ("file:./", "file:.", f"file://{absolute}", f"file://{absolute}/"):
        entry = await handler.stat(native_uri)
        assert (entry.kind, entry.native_uri, entry.name) == ("directory", "file:./", "notes"), native_uri
    assert (await handler.stat("file:./sub/")).native_uri == "file:./sub"
    for outside in ("file:///", "file:///etc/passwd", f"file://{absolute}x/a", f"file://elsewhere{absolute}/sub"):
        with pytest.raises(NotFound):
            await handler.stat(outside)


NAMES = (b"new\nline", b"\xff\xfe", b"a\xcc\x88", b"\xc3\xa4", b"-rf", b"%41", b"A", b"x" * 255, b"~", b"a b", b"a\\b")
NAMES += (b"...", b".hidden", b"CON", b"a:b", b"?", b"#", b"\x01", b"\xe2\x80\xae.txt", b"index", b"data:,x")


@pytest.mark.semantics("S3", "S4")
@settings(max_examples=60, deadline=None)
@example([*NAMES])
@given(st.lists(st.binary(min_size=1, max_size=255), min_size=1, max_size=5, unique=True))
async def test_any_name_lists_and_loads(candidates: list[bytes]) -> None:
    usable = [name for name in candidates if name not in (b".", b"..") and not set(name) & set(b"/\0")]
    with tempfile.TemporaryDirectory() as root:
        for name in usable:
            await trio.Path(root, os.fsdecode(name)).write_bytes(name)
        handler = make(root)
        listed = (await handler.list_directory(())).resources
        assert [entry.native_uri for entry in listed] == [filesystem.native_uri_of((name,)) for name in sorted(usable)]
        assert [await load_bytes(handler, entry.native_uri) for entry in listed] == sorted(usable)
        assert all(entry.name.encode() and entry.native_uri.isascii() for entry in listed)


@given(st.binary(min_size=1, max_size=40))
@example(b"%")
@example(b"a/")
@example(b"..")
def test_a_segment_is_a_name_or_an_error(name: bytes) -> None:
    segment = quote_from_bytes(name, safe="")
    if name in (b".", b"..") or set(name) & set(b"/\0"):
        with pytest.raises((NotFound, Denied)):
            filesystem.file_name(segment)
    else:
        assert filesystem.file_name(segment) == name
        assert filesystem.file_name(filesystem.native_uri_of((name,)).removeprefix("file:./")) == name


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40))
async def test_any_text_is_at_worst_an_error_of_bbfs(text: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        handler = make(root)
        for native_uri in (text, f"file:{text}", f"file:./{text}", f"file://{text}"):
            with pytest.raises(BbfsError):
                await handler.load(native_uri)
        if text:
            with pytest.raises(BbfsError):
                await handler.list_directory((text,))


async def test_hidden_names_can_be_left_out_altogether(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_bytes(b"secret")
    (tmp_path / "a").write_bytes(b"")
    assert await names(make(tmp_path)) == [".git", "a"]
    handler = make(tmp_path, hidden=False)
    assert await names(handler) == ["a"]
    for call in (handler.load("file:./.git/config"), handler.stat("file:./.git"), handler.list_directory((".git",))):
        with pytest.raises(NotFound):
            await call


async def test_a_hidden_root_is_no_hidden_name(tmp_path: Path) -> None:
    root = tmp_path / ".notes"
    root.mkdir()
    (root / "a").write_bytes(b"x")
    assert await load_bytes(make(root, hidden=False), f"file://{root}/a") == b"x"


async def test_paths_longer_than_a_system_call_takes(tmp_path: Path) -> None:
    depth = 25
    directory = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 250, dir_fd=directory)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    file = os.open("f", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=directory)
    os.write(file, b"deep")
    os.close(file)
    os.close(directory)
    handler = make(tmp_path)
    path = ("d" * 250,) * depth
    assert await names(handler, *path) == ["f"]
    assert await load_bytes(handler, "file:./" + "/".join((*path, "f"))) == b"deep"
    shutil.rmtree(tmp_path / ("d" * 250))


async def test_ten_thousand_entries(tmp_path: Path) -> None:
    for number in range(10_000):
        os.close(os.open(tmp_path / f"{number}", os.O_CREAT | os.O_WRONLY, 0o600))
    handler = make(tmp_path)
    with trio.fail_after(30):  # measured: 0.1 s
        listed = await names(handler)
    assert listed == sorted(str(number) for number in range(10_000))


@pytest.mark.semantics("S29")
async def test_links_are_shown_as_they_are_and_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "real").write_bytes(b"real")
    targets = {
        "inside": "real",
        "relative": "../outside/secret",
        "absolute": str(outside / "secret"),
        "directory": "../outside",
        "dangling": "nothing",
        "odd": os.fsdecode(b"\xff\n"),
        "self": "self",
    }
    for name, target in targets.items():
        (root / name).symlink_to(target)
    handler = make(root)
    entries = {entry.name: entry for entry in (await handler.list_directory(())).resources}
    for name, target in targets.items():
        assert (entries[name].kind, entries[name].target) == ("symlink", target)
        assert entries[name].size == len(os.fsencode(target))
        assert await handler.stat(f"file:./{name}") == entries[name]
        with pytest.raises(Denied, match="link"):
            await handler.load(f"file:./{name}")
        with pytest.raises((Denied, NotFound)):
            await handler.list_directory((name,))
    for call in (handler.load("file:./directory/secret"), handler.stat("file:./directory/secret")):
        with pytest.raises(Denied):
            await call


@pytest.mark.semantics("S29")
async def test_a_directory_that_is_swapped_for_a_link_leads_nowhere(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for directory, data in ((root / "d", b"inside"), (outside, b"secret")):
        directory.mkdir(parents=True)
        (directory / "f").write_bytes(data)
    handler = make(root)
    stop = threading.Event()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        while not stop.is_set():
            os.rename(root / "d", root / "kept")
            os.symlink(outside, root / "d")
            os.unlink(root / "d")
            os.rename(root / "kept", root / "d")
            swaps += 1
            time.sleep(0.0002)  # for loads between two swaps; on a busy machine there would be none

    swapper = threading.Thread(target=swap)
    swapper.start()
    outcomes: dict[str, int] = {}
    try:
        for number in range(100_000):
            try:
                outcome = os.fsdecode(await load_bytes(handler, "file:./d/f"))
            except (NotFound, Denied) as error:
                outcome = type(error).__name__
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if number > 2000 and swaps > 10 and len(outcomes) > 1 and "inside" in outcomes:
                break
    finally:
        stop.set()
        await trio.to_thread.run_sync(swapper.join, BOUND)
    assert outcomes.keys() <= {"inside", "NotFound", "Denied"}
    assert outcomes["inside"] > 0
    assert len(outcomes) > 1, "no load met a swap"
    assert swaps > 10


async def test_special_files_are_not_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "bbfs")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_bytes(b"")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        handler = make(tmp_path)
        assert await names(handler) == ["file"]
        assert "fifo" in caplog.text
        for name in ("fifo", "socket"):
            for call in (handler.stat(f"file:./{name}"), handler.load(f"file:./{name}")):
                with trio.fail_after(BOUND), pytest.raises(NotFound):
                    await call


async def test_what_turns_into_another_thing_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    turns: dict[Callable[[], object], type[BbfsError]] = {
        path.mkdir: IsADirectory,
        lambda: path.symlink_to("/etc/passwd"): Denied,
        lambda: os.mkfifo(path): NotFound,
        lambda: None: NotFound,
    }
    handler = make(tmp_path)
    original = filesystem.require_regular
    for turn, expected in turns.items():
        path.write_bytes(b"x")

        def then_turn(status: os.stat_result, what: str, turn: Callable[[], object] = turn) -> None:
            original(status, what)
            path.unlink()
            turn()

        monkeypatch.setattr(filesystem, "require_regular", then_turn)
        with trio.fail_after(BOUND), pytest.raises(expected):
            await handler.load("file:./a")
        assert not open_below(tmp_path), "an error must not keep a descriptor"
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)


async def test_files_and_directories_are_not_confused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "f").write_bytes(b"")
    handler = make(tmp_path)
    with pytest.raises(IsADirectory):
        await handler.load("file:./d")
    with pytest.raises(IsADirectory):
        await handler.load("file:./")
    for call in (handler.load("file:./f/"), handler.list_directory(("f",)), handler.stat("file:./f/x")):
        with pytest.raises(NotFound):
            await call


@pytest.mark.semantics("S15")
async def test_large_files_are_read_in_ranges_with_flat_memory(tmp_path: Path) -> None:
    size = 64 << 20
    (tmp_path / "large").write_bytes(b"begin")
    os.truncate(tmp_path / "large", size - 3)
    async with await trio.open_file(tmp_path / "large", "ab") as file:
        await file.write(b"end")
    handler = make(tmp_path)
    tracemalloc.start()
    try:
        content = await load(handler, "file:./large")
        assert isinstance(content, FileContent)
        assert content.size == size
        offset = total = 0
        while offset < size:
            piece = content.read(offset, 1 << 20)
            if piece is None:
                piece = await content.read_waiting(offset, 1 << 20)
            offset += len(piece)
            total += piece.count(0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == size - 8
    assert peak < 8 << 20
    assert await content.read_waiting(size - 3, 99) == b"end"
    content.close()
    await eventually(lambda: not open_below(tmp_path))


async def test_max_memory_is_the_border(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    small = await load(make(tmp_path, max_memory=5), "file:./f")
    large = await load(make(tmp_path, max_memory=4), "file:./f")
    assert isinstance(small, MemoryContent)
    assert isinstance(large, FileContent)
    assert await large.read_waiting(1, 3) == small.read(1, 3) == b"234"
    assert large.read(0, 5) in (b"12345", None)
    large.close()


@pytest.mark.semantics("S13")
async def test_a_small_file_is_a_snapshot(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"first")
    handler = make(tmp_path)
    content = await load(handler, "file:./f")
    (tmp_path / "f").write_bytes(b"second")
    assert content.read(0, 99) == b"first"
    assert (await load(handler, "file:./f")).read(0, 99) == b"second"


def _rewrite(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(b"XX")


def _rewrite_and_restore_times(path: Path) -> None:
    before = path.stat()
    _rewrite(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.semantics("S13")
@pytest.mark.parametrize(
    "change",
    [
        _rewrite,
        _rewrite_and_restore_times,
        lambda path: os.truncate(path, 3),
        lambda path: os.truncate(path, 300),
        lambda path: path.write_bytes(b""),
    ],
)
async def test_a_large_file_that_changes_in_place_is_outdated(tmp_path: Path, change: Callable[[Path], Any]) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789" * 10)
    os.utime(path, ns=(1, 1))
    handler = make(tmp_path, max_memory=10)
    content = await load(handler, "file:./f")
    assert await content.read_waiting(0, 4) == b"0123"
    change(path)
    for _ in range(2):
        with pytest.raises(Outdated):
            await content.read_waiting(0, 4)
        try:
            at_once = content.read(0, 2)
        except Outdated:
            continue
        assert at_once is None, "an outdated page was given out"
    content.close()
    again = await load(handler, "file:./f")
    assert again.version != content.version
    again.close()


@pytest.mark.semantics("S13")
async def test_the_disk_is_asked_ahead_of_who_reads_in_order_and_of_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece, size = 1 << 20, 40 << 20
    with (tmp_path / "f").open("wb") as file:
        file.truncate(size)
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, offset, length, advice: asked.append((offset, offset + length)))
    monkeypatch.setattr(os, "preadv", lambda *_: 0)  # nothing is in memory
    handler = make(tmp_path, max_memory=1)
    content = await load(handler, "file:./f")
    for offset in (0, 20 * piece, 3 * piece, size - piece):
        assert len(await content.read_waiting(offset, piece)) == piece
    assert asked == [], "at random"
    content = await load(handler, "file:./f")
    for offset in range(0, size, piece):
        assert content.read(offset, piece) is None
        assert len(await content.read_waiting(offset, piece)) == piece
    assert asked[0][0] == 2 * piece
    assert asked[-1][1] >= size
    assert all(before[1] == after[0] for before, after in itertools.pairwise(asked)), "each byte once"
    assert all(0 < end - begin <= AHEAD for begin, end in asked)
    asked.clear()
    monkeypatch.undo()
    content = await load(handler, "file:./f")
    backward = [content.read(offset, piece) for offset in range(size - piece, -1, -piece)]
    assert sum(read is None for read in backward) <= 2, "what is in memory is read at once by who reads in no order"


async def test_a_large_file_survives_whatever_leaves_its_bytes_alone(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    (tmp_path / "new").write_bytes(b"another one")
    handler = make(tmp_path, max_memory=1)
    content = await load(handler, "file:./f")

    async def is_still_whole() -> None:
        assert await content.read_waiting(0, 10) == b"0123456789"
        assert content.read(2, 3) in (b"234", None)

    os.chmod(path, 0o600)
    await is_still_whole()
    os.link(path, tmp_path / "link")
    await is_still_whole()
    os.rename(path, tmp_path / "renamed")
    await is_still_whole()
    os.rename(tmp_path / "new", tmp_path / "renamed")
    await is_still_whole()
    os.unlink(tmp_path / "link")
    await is_still_whole()
    content.close()
    content.close()
    with pytest.raises(BbfsError):
        content.read(0, 1)
    await eventually(lambda: not open_below(tmp_path))


async def test_a_file_that_never_rests_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    original = file_content.read_to_end

    def read_and_change(*arguments: int) -> bytes:
        data = original(*arguments)
        path.write_bytes(data + b"x")
        return data

    monkeypatch.setattr(file_content, "read_to_end", read_and_change)
    with pytest.raises(Busy):
        await make(tmp_path).load("file:./f")


async def test_files_that_do_not_say_their_size() -> None:
    handler = make("/proc/self")
    assert (await handler.stat("file:./status")).size is None
    content = await load(handler, "file:./status")
    assert content.size > 100
    assert content.read(0, 5) == b"Name:"
    with pytest.raises(TooLarge, match="max_memory"):
        await make("/proc/self", max_memory=10).load("file:./status")


class AsSomebodyElse:
    """For root, who may do everything: lets the file system calls of one thread be those of a user without rights."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)

    def __enter__(self) -> None:
        if os.geteuid() == 0:
            self._libc.setfsuid(65534)

    def __exit__(self, *_: object) -> None:
        if os.geteuid() == 0:
            self._libc.setfsuid(0)


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory whose way there is open to every user."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    for path in directory.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(directory)


@pytest.mark.semantics("S23")
async def test_what_the_user_may_not_read_is_denied(public_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = filesystem.with_errors

    def unprivileged(*arguments: Any) -> Any:
        with AsSomebodyElse():
            return original(*arguments)

    monkeypatch.setattr(filesystem, "with_errors", unprivileged)
    (public_directory / "mine").write_bytes(b"secret")
    (public_directory / "mine").chmod(0)
    (public_directory / "closed").mkdir(mode=0)
    blind = public_directory / "blind"
    (blind / "sub").mkdir(parents=True)
    (blind / "f").write_bytes(b"x")
    blind.chmod(0o444)
    handler = make(public_directory)
    assert (await handler.stat("file:./mine")).size == 6
    for call in (handler.load("file:./mine"), handler.list_directory(("closed",)), handler.stat("file:./closed/x")):
        with pytest.raises(Denied):
            await call
    # The names may be read, what they name may not be looked at.
    listing = await handler.list_directory(("blind",))
    assert [(entry.name, entry.kind, entry.etag) for entry in listing.resources] == [
        ("f", "resource", None),
        ("sub", "directory", None),
    ]
    assert "file:./blind/f: Permission denied" in (listing.problem or "")


@pytest.mark.semantics("S6", "S23")
async def test_a_root_may_be_missing_and_return_and_be_replaced(tmp_path: Path) -> None:
    root = tmp_path / "root"
    handler = make(root)
    for call in (handler.list_directory(()), handler.stat("file:./a"), handler.load("file:./a")):
        with pytest.raises(Unreachable, match="root"):
            await call
    assert handler.state.state == "down"
    root.mkdir()
    (root / "a").write_bytes(b"1")
    assert await load_bytes(handler, "file:./a") == b"1"
    assert handler.state.state == "up"
    root.rename(tmp_path / "old")
    with pytest.raises(Unreachable):
        await handler.load("file:./a")
    root.mkdir()
    (root / "a").write_bytes(b"2")
    assert await load_bytes(handler, "file:./a") == b"2"
    shutil.rmtree(root)
    root.write_bytes(b"a file")
    with pytest.raises(Unreachable):
        await handler.list_directory(())


async def test_the_root_may_be_reached_through_links(tmp_path: Path) -> None:
    (tmp_path / "real" / "root").mkdir(parents=True)
    (tmp_path / "real" / "root" / "a").write_bytes(b"x")
    (tmp_path / "absolute").symlink_to(tmp_path / "real")
    (tmp_path / "relative").symlink_to("real/../absolute/root")
    (tmp_path / "loop").symlink_to("loop")
    assert await load_bytes(make(tmp_path / "absolute" / "root"), "file:./a") == b"x"
    assert await load_bytes(make(tmp_path / "relative"), "file:./a") == b"x"
    assert await load_bytes(make(f"{tmp_path}/real/../relative/."), "file:./a") == b"x"
    with pytest.raises(Denied):
        await make(tmp_path / "loop").list_directory(())


async def test_a_kernel_without_openat2_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"x")
    handler = make(tmp_path)
    monkeypatch.setattr(beneath, "_SYS_OPENAT2", 9999)
    with pytest.raises(NotSupported, match=r"Linux 5\.6"):
        await handler.load("file:./a")
    assert handler.state.state == "down"


def test_a_sandbox_that_forbids_openat2_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beneath, "_openat2", lambda *_: (-1, errno.EPERM))
    with pytest.raises(NotSupported, match="seccomp"):
        beneath.openat2(-100, b"x", os.O_PATH)


@pytest.mark.semantics("S23")
def test_errors_of_the_system() -> None:
    table = {
        errno.ENOENT: NotFound,
        errno.ENOTDIR: NotFound,
        errno.ENAMETOOLONG: NotFound,
        errno.EACCES: Denied,
        errno.EPERM: Denied,
        errno.ELOOP: Denied,
        errno.EXDEV: Denied,
        errno.ESTALE: Unreachable,
        errno.ENOTCONN: Unreachable,
        errno.ECONNREFUSED: Unreachable,
        errno.EHOSTDOWN: Unreachable,
        errno.EIO: BbfsError,
        errno.EMFILE: BbfsError,
    }
    for code, expected in table.items():
        error = beneath.error_of(OSError(code, "text"), "file:./x")
        assert type(error) is expected, errno.errorcode[code]
        assert "file:./x" in str(error)


@pytest.mark.semantics("S16", "S22")
async def test_a_load_that_nobody_awaits_leaves_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    handler = make(tmp_path, max_memory=1)
    reached, go_on, done = threading.Event(), threading.Event(), threading.Event()
    original = filesystem.open_content

    def hang(*arguments: Any) -> Any:
        reached.set()
        assert go_on.wait(BOUND)
        try:
            return original(*arguments)
        finally:
            done.set()

    monkeypatch.setattr(filesystem, "open_content", hang)
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handler.load, "file:./f")
            await trio.to_thread.run_sync(reached.wait, BOUND)
            nursery.cancel_scope.cancel()
    assert open_below(tmp_path) != []
    go_on.set()
    await eventually(done.is_set)
    await eventually(lambda: not open_below(tmp_path))
    monkeypatch.undo()
    assert await load_bytes(handler, "file:./f") == b"0123456789"


async def test_at_most_so_many_threads_as_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"x")
    handler = make(tmp_path)
    go_on = threading.Event()
    lock = threading.Lock()
    running = most = 0
    original = filesystem.open_content

    def count(*arguments: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        assert go_on.wait(BOUND)
        with lock:
            running -= 1
        return original(*arguments)

    monkeypatch.setattr(filesystem, "open_content", count)
    async with trio.open_nursery() as nursery:
        for _ in range(12):
            nursery.start_soon(load_bytes, handler, "file:./f")
        await eventually(lambda: running == 4)
        go_on.set()
    assert most == 4


@pytest.mark.semantics("S29")
async def test_the_mount_point_inside_is_an_empty_directory_that_nothing_touches(tmp_path: Path) -> None:
    root = tmp_path / "root"
    mount_point = root / "sub" / "mnt"
    (mount_point / "below").mkdir(parents=True)
    (root / "mnt").mkdir()
    (root / "mnt" / "same name elsewhere").write_bytes(b"x")
    (root / "sub" / "other").write_bytes(b"y")
    (tmp_path / "way").symlink_to(root)
    for handler in (make(root, mount_point), make(tmp_path / "way", mount_point), make(root / "sub", mount_point)):
        prefix = () if handler.source.config["root"].endswith("sub") else ("sub",)
        uri = "/".join(("file:.", *prefix, "mnt"))
        entry, other = (await handler.list_directory(prefix)).resources
        assert (entry.name, entry.kind, entry.native_uri) == ("mnt", "directory", uri)
        assert (entry.etag, entry.modified_ns, entry.size) == (None, None, None), "it was looked at"
        assert other.etag is not None
        assert await handler.stat(uri) == entry
        assert await handler.stat(uri + "/") == entry
        assert (await handler.list_directory((*prefix, "mnt"))).resources == ()
        for call in (
            handler.stat(f"{uri}/below"),
            handler.load(f"{uri}/below"),
            handler.list_directory((*prefix, "mnt", "below")),
        ):
            with pytest.raises(NotFound):
                await call
        with pytest.raises(IsADirectory):
            await handler.load(uri)
        if prefix:
            assert await load_bytes(handler, "file:./mnt/same%20name%20elsewhere") == b"x"
            assert await names(handler, "mnt") == ["same name elsewhere"]
    # Without anything there, the answer is the same: it did not come from the mount point.
    handler = make(root, mount_point)
    shutil.rmtree(mount_point)
    assert (await handler.stat("file:./sub/mnt")).kind == "directory"


@pytest.mark.semantics("S29")
async def test_a_root_at_or_below_the_mount_point_is_refused(tmp_path: Path) -> None:
    mount_point = tmp_path / "mnt"
    (mount_point / "below").mkdir(parents=True)
    (tmp_path / "way").symlink_to(tmp_path)
    for root in (mount_point, mount_point / "below", f"{tmp_path}/x/../mnt"):
        with pytest.raises(ConfigError, match="mount point"):
            make(root, mount_point)
    with pytest.raises(ConfigError):
        make(tmp_path, "/")
    with pytest.raises(ConfigError):
        make(tmp_path, tmp_path / "nothing" / "mnt")
    # A way through links is only seen when it is gone, but before the mount point is touched.
    handler = make(tmp_path / "way" / "mnt" / "below", mount_point)
    with pytest.raises(ConfigError, match="mount point"):
        await handler.list_directory(())
    assert handler.state.state == "down"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, "sources[notes].config.root: this option is required"),
        ({"root": "/", "hiden": True}, "sources[notes].config.hiden: unknown option; did you mean 'hidden'?"),
        (
            {"root": "/", "zzz": 1},
            "sources[notes].config.zzz: unknown option; known options are hidden, max_memory, root",
        ),
        ({"root": ""}, "sources[notes].config.root: must be the path of a folder"),
        ({"root": "a\0b"}, "sources[notes].config.root: must be the path of a folder"),
        ({"root": "~nobody-of-this-name/x"}, "no home directory is known for '~nobody-of-this-name'"),
        ({"root": "/", "max_memory": -1}, "sources[notes].config.max_memory: "),
        ({"root": "/", "hidden": "perhaps"}, "sources[notes].config.hidden: "),
    ],
)
def test_options_that_cannot_be_used_are_named(config: dict[str, object], text: str) -> None:
    source = data_source("bb-filesystem+notes+file", config=config)
    with pytest.raises(ConfigError) as caught:
        FilesystemHandler(source, Services())
    assert text in str(caught.value)


async def test_the_home_directory_and_relative_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a").write_bytes(b"x")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert await names(make("~/notes")) == ["a"]
    monkeypatch.chdir(tmp_path)
    handler = make("notes")
    monkeypatch.chdir("/")
    assert await names(handler) == ["a"], "a root must not move with the working directory"


def test_nothing_looks_at_the_mount_point_itself(tmp_path: Path) -> None:
    """A reload makes handlers while this process serves the mount: it would wait for itself."""
    (tmp_path / "mnt").symlink_to(tmp_path / "elsewhere")
    assert MountPoint.named(str(tmp_path / "mnt")).path == os.fsencode(tmp_path / "mnt")
