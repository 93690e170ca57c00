"""Writing to a source that takes whole resources, on the file system without a mount (S32, S33)."""

import errno
import gc
import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
import trio.testing
from fakes import World, settled, until
from programs import descriptors_of
from writable import Program, WritableCompleting, WritableFlat, WritableTree, program_on, writable

from bbfs.model.errors import (
    BbfsError,
    Conflict,
    DeadlineExceeded,
    Denied,
    Exists,
    IsADirectory,
    LoginRequired,
    NoSpace,
    NotEmpty,
    NotFound,
    NotSupported,
    Outdated,
    ReadOnly,
    Rejected,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import Change, Content, DataSource, Listing, Loaded, Policy, ResourceMetadata
from bbfs.model.versions import Expected
from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.catalog.record import Record
from bbfs.resources.commands.answers import ask
from bbfs.resources.commands.table import Put, Retry
from bbfs.resources.manager import ResourceManager
from bbfs.resources.writing.pending import LEFT
from bbfs.sources import Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.memory.handler import MemoryHandler
from bbfs.vfs.about import description
from bbfs.vfs.file_handles import NewAttributes
from bbfs.vfs.names import Aim
from bbfs.vfs.writing.name_changes import HELD

T = TypeVar("T")
TREE = "bb-scripted+tree+file"
MEMORY = 64 << 20
FLAT = "mcp-server+docs/test"


def full(*_: object, **__: object) -> int:
    """A system call that finds no room on the disk."""
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
async def tree() -> AsyncIterator[tuple[WritableTree, Program, World]]:
    source = WritableTree()
    source.contents = {"file:./a.txt": b"first", "file:./d/b.txt": b"second"}
    async with program_on(source, memory=MEMORY) as (program, world):
        yield source, program, world


@pytest.fixture
async def flat() -> AsyncIterator[tuple[WritableFlat, Program, World]]:
    source = WritableFlat()
    source.contents = {"test://a.txt": b"first", "test://d/b.txt": b"second"}
    async with program_on(source, memory=MEMORY) as (program, world):
        yield source, program, world


async def retry(manager: ResourceManager, request: dict[str, Any]) -> None:
    """Hand over a pending write as a command does."""
    await ask(manager, Retry(**request))


Tree = tuple[WritableTree, Program, World]
Flat = tuple[WritableFlat, Program, World]


@pytest.mark.semantics("S32")
async def test_the_source_has_what_was_written_when_close_returns(tree: Tree) -> None:
    source, program, _ = tree
    await program.save(f"{TREE}/a.txt", b"replaced")
    assert source.contents["file:./a.txt"] == b"replaced"
    assert await program.cat(f"{TREE}/a.txt") == b"replaced"
    assert (await program.stat(f"{TREE}/a.txt")).size == 8
    await program.save(f"{TREE}/new.txt", b"new")
    assert source.contents["file:./new.txt"] == b"new"
    assert await program.ls(TREE) == ["a.txt", "d", "new.txt"]
    assert await program.cat(f"{TREE}/new.txt") == b"new"


@pytest.mark.semantics("S32", "S33.13")
async def test_what_is_written_after_a_rename_goes_to_the_new_name(tree: Tree) -> None:
    source, program, _ = tree
    handle = await program.begin(f"{TREE}/a.txt", os.O_RDWR)
    await program.rename(f"{TREE}/a.txt", f"{TREE}/moved.txt")
    await program.writes.write(handle, 0, b"F")
    await program.close(handle)
    assert source.contents == {"file:./moved.txt": b"First", "file:./d/b.txt": b"second"}
    handle = await program.begin(f"{TREE}/moved.txt", os.O_RDWR)
    await program.rename(f"{TREE}/moved.txt", f"{TREE}/moved.txt~")
    await program.writes.write(handle, 0, b"W")
    await program.close(handle)
    assert await program.cat(f"{TREE}/moved.txt~") == b"Wirst"
    assert source.contents["file:./moved.txt"] == b"First"


@pytest.mark.semantics("S32")
async def test_a_reader_hands_over_nothing_of_what_another_program_writes(tree: Tree) -> None:
    source, program, _ = tree
    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_TRUNC)
    reader = await program.open(f"{TREE}/a.txt")
    await program.close(reader)
    assert source.written == []
    await program.writes.write(handle, 0, b"whole")
    await program.close(handle)
    assert source.written == ["file:./a.txt"]


@pytest.mark.semantics("S33")
async def test_a_directory_takes_its_temporary_and_open_files_along(tree: Tree) -> None:
    source, program, _ = tree
    await program.save(f"{TREE}/d/c.txt", b"third")
    await program.rename(f"{TREE}/d/b.txt", f"{TREE}/d/b.txt~")
    await program.save(f"{TREE}/d/x.part", b"half")
    handle = await program.begin(f"{TREE}/d/c.txt", os.O_RDWR)
    await program.rename(f"{TREE}/d", f"{TREE}/e")
    assert source.contents == {"file:./a.txt": b"first", "file:./e/b.txt": b"second", "file:./e/c.txt": b"third"}
    assert await program.ls(f"{TREE}/e") == ["b.txt~", "c.txt", "x.part"]
    assert await program.cat(f"{TREE}/e/x.part") == b"half"
    await program.writes.write(handle, 0, b"T")
    await program.close(handle)
    assert source.contents["file:./e/c.txt"] == b"Third"
    await program.rename(f"{TREE}/e/b.txt~", f"{TREE}/e/b.txt")
    assert await program.cat(f"{TREE}/e/b.txt") == source.contents["file:./e/b.txt"] == b"second"


@pytest.mark.semantics("S33.12")
async def test_a_file_renamed_to_a_temporary_name_elsewhere_stays_at_the_source(tree: Tree) -> None:
    source, program, _ = tree
    await program.rename(f"{TREE}/d/b.txt", f"{TREE}/b.tmp")
    assert source.contents == {"file:./a.txt": b"first", "file:./b.tmp": b"second"}
    await program.save(f"{TREE}/b.tmp", b"changed")
    assert source.contents["file:./b.tmp"] == b"changed"
    await program.unlink(f"{TREE}/b.tmp")
    assert source.contents == {"file:./a.txt": b"first"}


@pytest.mark.semantics("S33.12")
async def test_a_backup_may_go_before_the_file_is_closed(tree: Tree) -> None:
    source, program, _ = tree
    await program.rename(f"{TREE}/a.txt", f"{TREE}/a.txt~")
    handle = await program.begin(f"{TREE}/a.txt", os.O_RDWR | os.O_CREAT, b"new text")
    await program.unlink(f"{TREE}/a.txt~")
    assert source.contents["file:./a.txt"] == b"first"
    await program.close(handle)
    assert source.contents["file:./a.txt"] == b"new text"


@pytest.mark.semantics("S32")
async def test_a_file_that_is_removed_while_it_is_closed_is_gone(flat: Flat) -> None:
    source, program, _ = flat
    handle = await program.begin(f"{FLAT}/new.txt", os.O_WRONLY | os.O_CREAT, b"new")
    source.released = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(program.close, handle)
        await settled()
        nursery.start_soon(program.unlink, f"{FLAT}/new.txt")
        await settled()
        source.released.set()
    assert "test://new.txt" not in source.contents


@pytest.mark.semantics("S32")
async def test_a_rename_replaces_only_what_the_program_could_see(tree: Tree) -> None:
    source, program, _ = tree
    assert await program.cat(f"{TREE}/a.txt") == b"first"
    source.contents["file:./a.txt"] = b"theirs"
    with pytest.raises(Conflict):
        await program.rename(f"{TREE}/d/b.txt", f"{TREE}/a.txt")
    assert source.contents == {"file:./a.txt": b"theirs", "file:./d/b.txt": b"second"}


@pytest.mark.semantics("S32.8")
async def test_a_rename_compares_etags_that_only_a_load_tells(tmp_path: Path) -> None:
    """A source of type `memory` has no request for the metadata of one resource."""
    prefix = "bb-memory+scratch+memory"
    data = replace(writable(prefix), config={"file": str(tmp_path / "kept.json")})
    ours, theirs = MemoryHandler(data, Services()), MemoryHandler(data, Services())
    await theirs.put("a.txt", b"first")
    await theirs.put("b.txt", b"second")
    async with program_on(ours, memory=MEMORY) as (program, _):
        assert await program.cat(f"{prefix}/a.txt") == b"first"
        await theirs.put("a.txt", b"theirs")
        with pytest.raises(Conflict):
            await program.rename(f"{prefix}/b.txt", f"{prefix}/a.txt")
        assert (await theirs.load("memory://a.txt")).parts[0].content.read(0, 9) == b"theirs"
        await program.rename(f"{prefix}/b.txt", f"{prefix}/a.txt")
        assert (await theirs.load("memory://a.txt")).parts[0].content.read(0, 9) == b"second"


@pytest.mark.semantics("S32.20")
@pytest.mark.parametrize("announced", [False, True])
@pytest.mark.parametrize("change", ["rename", "unlink"])
async def test_what_was_read_before_an_announced_change_is_all_that_a_change_of_a_name_replaces(
    flat: Flat, change: str, announced: bool
) -> None:
    """A source without ETags: that it announces a change does not end the comparison with what programs have read."""
    source, program, _ = flat
    path = f"{FLAT}/a.txt"

    async def make() -> None:
        if change == "unlink":
            await program.unlink(path)
            return
        await program.save(f"{path}.tmp", b"first, and ours")
        await program.rename(f"{path}.tmp", path)

    assert await program.cat(path) == b"first"
    source.contents["test://a.txt"] = b"first, and theirs"
    if announced:
        source.announce("test://a.txt")
        await settled()
    with pytest.raises(Conflict):
        await make()
    assert source.contents["test://a.txt"] == b"first, and theirs"
    await make()
    assert source.contents.get("test://a.txt") == (None if change == "unlink" else b"first, and ours")


@pytest.mark.semantics("S32.20")
async def test_an_open_that_empties_a_file_replaces_the_version_that_its_stat_told(flat: Flat) -> None:
    source, program, _ = flat
    path = f"{FLAT}/a.txt"
    assert await program.cat(path) == b"first"
    source.contents["test://a.txt"] = b"second"
    source.announce("test://a.txt")
    await settled()
    ino = (await program.stat(path)).ino
    source.contents["test://a.txt"] = b"theirs"
    source.announce("test://a.txt")
    await settled()
    handle = await program.writes.open_to_write(ino, os.O_WRONLY | os.O_TRUNC)
    await program.writes.write(handle, 0, b"ours")
    with pytest.raises(Conflict):
        await program.close(handle)
    assert source.contents["test://a.txt"] == b"theirs"
    await program.save(path, b"ours")
    assert source.contents["test://a.txt"] == b"ours"


@pytest.mark.semantics("S32.12", "S32.20")
@pytest.mark.parametrize("size", [9, 3 << 20])
async def test_what_the_mount_has_stored_is_what_its_next_change_of_a_name_replaces(tree: Tree, size: int) -> None:
    """The digest of what was read before says nothing of what the mount has written since, wherever it was renamed."""
    source, program, _ = tree
    source.etags = False
    assert await program.cat(f"{TREE}/a.txt") == b"first"
    await program.save(f"{TREE}/a.txt", bytes(size))
    await program.rename(f"{TREE}/a.txt", f"{TREE}/c.txt")
    source.contents["file:./c.txt"] = b"theirs"
    with pytest.raises(Conflict):
        await program.unlink(f"{TREE}/c.txt")
    await program.save(f"{TREE}/c.txt", bytes(size + 1))
    await program.unlink(f"{TREE}/c.txt")
    await program.save(f"{TREE}/c.txt", b"new")
    await program.rename(f"{TREE}/d/b.txt", f"{TREE}/c.txt")
    assert source.contents == {"file:./c.txt": b"second"}


@pytest.mark.semantics("S13", "S32", "S33.14")
async def test_a_change_between_open_and_the_first_write_fails_the_write(flat: Flat) -> None:
    source, program, world = flat
    assert await program.cat(f"{FLAT}/a.txt") == b"first"
    handle = await program.begin(f"{FLAT}/a.txt", os.O_WRONLY | os.O_APPEND)
    source.contents["test://a.txt"] = b"first and theirs"
    world.clock.advance(3600)
    with pytest.raises(Outdated):
        await program.writes.write(handle, 5, b"--")
    await program.append(f"{FLAT}/a.txt", b", ours")
    with pytest.raises(Outdated):
        await program.writes.write(handle, 5, b"--")
    await program.close(handle)
    assert source.contents["test://a.txt"] == b"first and theirs, ours", "opens of this time are not refused for that"


@pytest.mark.semantics("S32")
async def test_an_append_to_an_outdated_file_begins_where_the_file_ends(flat: Flat) -> None:
    source, program, world = flat
    assert await program.cat(f"{FLAT}/a.txt") == b"first"
    source.contents["test://a.txt"] = b"first and theirs"
    world.clock.advance(3600)
    await program.append(f"{FLAT}/a.txt", b", ours")
    assert source.contents["test://a.txt"] == b"first and theirs, ours"


@pytest.mark.semantics("S33")
async def test_parts_of_a_file_are_changed_as_on_a_disk(tree: Tree) -> None:
    source, program, _ = tree
    await program.append(f"{TREE}/a.txt", b" and more")
    assert source.contents["file:./a.txt"] == b"first and more"
    await program.patch(f"{TREE}/a.txt", 1, b"IRS")
    assert source.contents["file:./a.txt"] == b"fIRSt and more"
    await program.truncate(f"{TREE}/a.txt", 4)
    assert source.contents["file:./a.txt"] == b"fIRS"
    await program.patch(f"{TREE}/a.txt", 6, b"!")
    assert source.contents["file:./a.txt"] == b"fIRS\0\0!"
    large = os.urandom(3 << 20)
    await program.save(f"{TREE}/large", large)
    await program.append(f"{TREE}/large", b"end")
    assert source.contents["file:./large"] == large + b"end"
    assert await program.cat(f"{TREE}/large") == (large + b"end")[: 3 + (1 << 20)]


async def test_the_kernel_is_notified_of_a_written_name_once_the_file_is_closed(tree: Tree) -> None:
    """Until then the name leads to the inode that the program has open, whatever the source has."""
    source, program, world = tree
    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_TRUNC, b"replaced")
    world.told.clear()
    await program.writes.flush(handle)
    assert (source.contents["file:./a.txt"], world.told) == (b"replaced", [])
    world.core.open_files.release(handle)
    assert {name for _, name in world.told} == {b"a.txt"}


@pytest.mark.semantics("S33")
async def test_names_are_removed_and_renamed_as_on_a_disk(tree: Tree) -> None:
    source, program, _ = tree
    await program.rename(f"{TREE}/a.txt", f"{TREE}/d/c.txt")
    assert source.contents == {"file:./d/b.txt": b"second", "file:./d/c.txt": b"first"}
    assert await program.ls(f"{TREE}/d") == ["b.txt", "c.txt"]
    assert await program.ls(TREE) == ["d"]
    await program.rename(f"{TREE}/d/c.txt", f"{TREE}/d/b.txt")
    assert await program.cat(f"{TREE}/d/b.txt") == b"first"
    with pytest.raises(NotFound):
        await program.cat(f"{TREE}/d/c.txt")
    with pytest.raises(NotEmpty):
        await program.rmdir(f"{TREE}/d")
    await program.mkdir(f"{TREE}/e")
    with pytest.raises(Exists):
        await program.mkdir(f"{TREE}/e")
    with pytest.raises(Exists):
        await program.rename(f"{TREE}/d/b.txt", f"{TREE}/e", flags=1)
    await program.rename(f"{TREE}/d/b.txt", f"{TREE}/e/f")
    await program.rename(f"{TREE}/e", f"{TREE}/g")
    assert await program.cat(f"{TREE}/g/f") == b"first"
    await program.unlink(f"{TREE}/g/f")
    await program.rmdir(f"{TREE}/g")
    assert source.contents == {}


@pytest.mark.semantics("S33.3")
async def test_a_triplet_in_a_new_name_is_a_part_of_a_uri(flat: Flat) -> None:
    source, program, _ = flat
    await program.save(f"{FLAT}/p%41", b"new")
    assert source.contents["test://p%41"] == b"new"
    source.announce()
    assert await program.cat(f"{FLAT}/pA") == b"new"
    assert "pA" in await program.ls(FLAT)


@pytest.mark.semantics("S32.5")
async def test_a_write_that_cannot_be_kept_takes_no_room(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a file nor one without a name: it would take the room of the next write."""
    source, program, world = tree
    store = world.manager.writer.pending

    def held() -> list[str]:
        return [leads for leads in descriptors_of("self").values() if str(store.directory) in leads]

    monkeypatch.setattr(json, "dump", full)  # by which the write is described
    gc.disable()
    try:
        handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY, bytes(3 << 20))
        assert held()
        with pytest.raises(NoSpace):
            await program.close(handle)
        assert held() == []
    finally:
        gc.enable()
    assert os.listdir(store.directory) == []
    assert source.contents["file:./a.txt"] == b"first"


@pytest.mark.semantics("S32.8")
async def test_a_change_by_somebody_else_is_a_conflict_and_both_versions_stay(tree: Tree) -> None:
    source, program, world = tree
    handle = await program.begin(f"{TREE}/a.txt", os.O_RDWR, b"mine!")
    source.contents["file:./a.txt"] = b"theirs"
    with pytest.raises(Conflict):
        await program.close(handle)
    assert source.contents["file:./a.txt"] == b"theirs"
    [pending] = world.manager.writer.pending.items()
    assert (pending.uri, pending.error) == ("bb-scripted+tree+file:./a.txt", "Conflict: file:./a.txt")
    assert program.kept() == [b"mine!"]
    world.clock.advance(60)
    assert await program.cat(f"{TREE}/a.txt") == b"theirs"


@pytest.mark.semantics("S32.1")
async def test_what_a_source_does_not_take_is_kept_once(tree: Tree) -> None:
    source, program, world = tree
    source.refused["file:./a.txt"] = Unreachable("down")
    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_TRUNC, b"kept")
    for _ in range(3):
        with pytest.raises(Unreachable):
            await program.writes.sync(handle)
    assert len([*world.manager.writer.pending.items()]) == 1
    del source.refused["file:./a.txt"]
    await program.close(handle)
    assert source.contents["file:./a.txt"] == b"kept"
    assert list(world.manager.writer.pending.items()) == []


@pytest.mark.semantics("S32.19")
async def test_what_several_programs_could_not_save_is_all_kept(tree: Tree) -> None:
    source, program, _ = tree
    reader = await program.open(f"{TREE}/a.txt")
    source.refused["file:./a.txt"] = Unreachable("down")
    first = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_TRUNC)
    second = await program.begin(f"{TREE}/a.txt", os.O_WRONLY)
    await program.writes.write(first, 0, b"of the first")
    for _ in range(2):  # by its fsync, and by the end of a process that has inherited the descriptor
        with pytest.raises(Unreachable):
            await program.writes.sync(first)
        with pytest.raises(Unreachable):
            await program.writes.flush(first)
    watcher = await program.open(f"{TREE}/a.txt")
    await program.writes.write(second, 0, b"OF THE OTHER")
    with pytest.raises(Unreachable):
        await program.close(second)
    with pytest.raises(Unreachable):
        await program.save(f"{TREE}/a.txt", b"of the third")
    with pytest.raises(Unreachable):
        await program.truncate(f"{TREE}/a.txt", 2)
    assert set(program.kept()) == {b"of the first", b"OF THE OTHER", b"of the third", b"fi"}
    await program.writes.write(first, 0, b"of the first, again")
    with pytest.raises(Unreachable):
        await program.close(first)
    assert set(program.kept()) == {b"of the first, again", b"OF THE OTHER", b"of the third", b"fi"}
    for handle in (reader, watcher):
        program.files.core.open_files.release(handle)


@pytest.mark.semantics("S32.18")
@pytest.mark.parametrize("name", ["a.txt", "new.txt"])
async def test_an_open_after_a_refused_close_begins_with_what_the_source_has(tree: Tree, name: str) -> None:
    source, program, world = tree
    writer = await program.begin(f"{TREE}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, b"mine")
    reader = await program.open(f"{TREE}/{name}")
    source.contents[f"file:./{name}"] = b"of somebody else"
    with pytest.raises(Conflict):
        await program.close(writer)
    world.core.refresh((TREE,))
    assert await program.cat(f"{TREE}/{name}") == b"of somebody else"
    await program.append(f"{TREE}/{name}", b", and more")
    assert source.contents[f"file:./{name}"] == b"of somebody else, and more"
    assert await program.read(reader) == b"mine"
    assert program.kept() == [b"mine"]
    program.files.core.open_files.release(reader)


@pytest.mark.semantics("S32.18")
async def test_what_a_program_cannot_save_is_not_shown_as_saved(tree: Tree) -> None:
    source, program, _ = tree
    before = (await program.stat(f"{TREE}/a.txt")).ino
    source.refused["file:./a.txt"] = Unreachable("down")
    with pytest.raises(Unreachable):
        await program.save(f"{TREE}/a.txt", b"lost?")
    assert await program.cat(f"{TREE}/a.txt") == b"first"
    assert (await program.stat(f"{TREE}/a.txt")).ino != before, "the kernel has pages of the inode that was written"


@pytest.mark.semantics("S33.7")
@pytest.mark.parametrize("name", [".a.txt.swp", "a.txt~", ".#a.txt", "4913", "sedAb12Cd", ".goutputstream-X1"])
async def test_a_name_that_programs_do_not_keep_lives_in_the_mount(tree: Tree, name: str) -> None:
    source, program, _ = tree
    await program.save(f"{TREE}/{name}", b"temporary")
    assert f"file:./{name}" not in source.contents
    assert await program.cat(f"{TREE}/{name}") == b"temporary"
    assert name in await program.ls(TREE)
    await program.rename(f"{TREE}/{name}", f"{TREE}/a.txt")
    assert source.contents["file:./a.txt"] == b"temporary"
    assert await program.ls(TREE) == ["a.txt", "d"]
    await program.save(f"{TREE}/{name}", b"again")
    await program.unlink(f"{TREE}/{name}")
    assert await program.ls(TREE) == ["a.txt", "d"]
    assert source.written == ["file:./a.txt"]


@dataclass
class Totalling(WritableFlat):
    """A source that stores another text than it is given, and has a resource that is made of the others."""

    source: DataSource = field(
        default_factory=lambda: replace(writable("mcp-server+docs"), policy=Policy(content_ttl=1000.0, disk=True))
    )

    def told(self, uri: str) -> ResourceMetadata:
        self.contents[uri] = b"".join([b"stored: ", self.contents[uri]])
        self.contents["test://all.txt"] = b"".join([self.contents["test://a.txt"], self.contents["test://b.txt"]])
        self._sink(Change(self.source.id, "changed", "test://all.txt"))
        return self.metadata(uri)


@pytest.mark.semantics("S20.1", "S32")
async def test_nothing_from_before_a_write_comes_back_while_the_source_is_down(tmp_path: Path) -> None:
    source = Totalling()
    source.contents = {"test://a.txt": b"old", "test://b.txt": b"b", "test://all.txt": b"oldb"}
    names = [f"{FLAT}/{name}" for name in ("a.txt", "all.txt", "b.txt")]
    with closing(DiskCache(tmp_path / "cache", max_bytes=1 << 20)) as disk:
        async with program_on(source, disk=disk) as (program, _):
            assert [await program.cat(name) for name in names] == [b"old", b"oldb", b"b"]
            await settled()
            for text in (b"new", b"newer"):
                await program.save(names[0], text)
            source.down = Unreachable("down")
            for name in names[:2]:
                with pytest.raises(Unreachable):
                    await program.cat(name)
            assert await program.cat(names[2]) == b"b"
        async with program_on(source, disk=disk) as (program, _):  # the next mount knows no more than the disk
            for name in names[:2]:
                with pytest.raises(BbfsError):
                    await program.cat(name)


@pytest.mark.semantics("S20.1")
async def test_nothing_from_before_a_write_without_disk_comes_back_with_it(tmp_path: Path) -> None:
    """`disk = false` is set, a file is written, and the option is taken back."""
    on_disk = Policy(listing_ttl=1000.0, content_ttl=1000.0)
    contents = {"test://a.txt": b"old"}
    with closing(DiskCache(tmp_path / "cache", max_bytes=1 << 20)) as disk:
        for policy, expected in ((on_disk, b"old"), (replace(on_disk, disk=False), b"new"), (on_disk, b"new")):
            source = WritableFlat(replace(writable("mcp-server+docs"), policy=policy))
            source.contents = contents
            async with program_on(source, disk=disk) as (program, world):
                if not policy.disk:
                    await program.save(f"{FLAT}/a.txt", b"new")
                assert await program.cat(f"{FLAT}/a.txt") == expected
                await world.manager.flush()


@pytest.mark.semantics("S23", "S32")
async def test_a_rewrite_of_pages_that_the_kernel_has_replaces_no_later_version() -> None:
    """The program reads what the kernel has from before, while the source is down; then it rewrites the file."""
    source = WritableFlat(writable("mcp-server+docs"))
    source.contents = {"test://a.txt": b"old"}
    async with program_on(source) as (program, _):
        assert await program.cat(f"{FLAT}/a.txt") == b"old"
        source.contents["test://a.txt"] = b"theirs"
        program.record(f"{FLAT}/a.txt").invalidate()
        source.down = Unreachable("down")
        handle = await program.begin(f"{FLAT}/a.txt", os.O_RDWR)
        source.down = None
        await program.writes.set_attributes(program.files.core.handles[handle].ino, handle, NewAttributes(size=0))
        await program.writes.write(handle, 0, b"old, and more")
        with pytest.raises(Conflict):
            await program.close(handle)
        assert source.contents == {"test://a.txt": b"theirs"}


@pytest.mark.semantics("S20.1", "S32")
@pytest.mark.parametrize("change", ["save", "unlink", "rename"])
async def test_nothing_from_before_a_change_comes_back_after_a_kill(tmp_path: Path, change: str) -> None:
    """The cache of a killed mount is as it was when the change was answered: what is written behind is not there."""
    source = Totalling()
    source.contents = {"test://a.txt": b"old", "test://b.txt": b"b", "test://all.txt": b"oldb"}
    name, killed = f"{FLAT}/a.txt", tmp_path / "killed"
    with closing(DiskCache(tmp_path / "cache", max_bytes=1 << 20)) as disk:
        async with program_on(source, disk=disk) as (program, world):
            assert [await program.cat(each) for each in (name, f"{FLAT}/b.txt")] == [b"old", b"b"]
            await world.manager.flush()
            await {
                "save": lambda: program.save(name, b"new"),
                "unlink": lambda: program.unlink(name),
                "rename": lambda: program.rename(name, f"{FLAT}/c.txt"),
            }[change]()
            (fingerprint,) = {each.fingerprint for each in world.manager.sources.values()}
            shutil.copytree(tmp_path / "cache", killed)
    with closing(DiskCache(killed, max_bytes=1 << 20)) as disk:
        found = {name: disk.read(fingerprint, f"test://{name}.txt", 1 << 20) for name in ("a", "b", "c")}
    assert {name for name, cached in found.items() if cached is not None and cached.parts} == {"b"}


@pytest.mark.semantics("S20.1")
async def test_no_answer_from_before_a_write_is_read_after_it(tmp_path: Path) -> None:
    """A read that comes after the write may wait for a load that began before it."""
    source = Totalling()
    source.contents = {"test://a.txt": b"old", "test://b.txt": b"b", "test://all.txt": b"oldb"}
    load, asked, gate = source.load, trio.Event(), trio.Event()

    async def held(native_uri: str) -> Loaded:
        found = await load(native_uri)
        if not gate.is_set():
            asked.set()
            await gate.wait()
        return found

    source.load = held  # type: ignore[method-assign]
    with closing(DiskCache(tmp_path / "cache", max_bytes=1 << 20)) as disk:
        async with program_on(source, disk=disk) as (program, world):
            await program.ls(FLAT)
            record, contents = program.record(f"{FLAT}/a.txt"), world.manager.contents

            async def read() -> None:
                assert (await contents.open(record)).read(0, 100) == b"stored: new"

            async with trio.open_nursery() as readers:
                readers.start_soon(read)
                await asked.wait()
                [flat_source] = world.manager.sources.values()
                written = (flat_source, "test://a.txt", MemoryContent(b"new"), Expected())
                await world.manager.writer.write(*written, path=record.path)
                readers.start_soon(read)
                await settled()
                gate.set()
            source.down = Unreachable("down")
            world.clock.advance(60)
            assert await program.cat(f"{FLAT}/a.txt") == b"stored: new"


@pytest.mark.semantics("S7.2")
async def test_a_new_file_keeps_its_inode_and_the_time_of_its_change(tree: Tree) -> None:
    source, program, world = tree
    source.times["file:./new"] = 1_000_000_000
    handle = await program.begin(f"{TREE}/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    made = await program.files.getattr(program.files.core.handles[handle].ino)
    await program.close(handle)
    closed = await program.stat(f"{TREE}/new")
    assert (closed.ino, closed.changed_ns) == (made.ino, made.modified_ns)
    assert closed.modified_ns == 1_000_000_000
    await program.read(reader := await program.open(f"{TREE}/new"))
    assert (await program.stat(f"{TREE}/new")).changed_ns == made.modified_ns
    program.files.core.open_files.release(reader)
    world.core.refresh((TREE,))
    assert (await program.stat(f"{TREE}/new")).ino == made.ino
    await program.save(f"{TREE}/.tmp1", b"renamed over it")
    await program.rename(f"{TREE}/.tmp1", f"{TREE}/new")
    source.contents["file:./new"] = b"of somebody else"
    world.core.refresh((TREE,))
    assert (await program.stat(f"{TREE}/new")).ino != made.ino
    assert await program.cat(f"{TREE}/new") == b"of somebody else"


@pytest.mark.semantics("S33.11")
@pytest.mark.parametrize("name", ["4913", "x.part", "a.txt~", "tmpAb12Cd", "#x#"])
async def test_a_program_that_means_to_keep_such_a_name_renames_to_it(tree: Tree, name: str) -> None:
    source, program, _ = tree
    await program.save(f"{TREE}/{name}", b"of another program, in the mount alone")
    await program.save(f"{TREE}/.tmp-bbfs-1", b"kept")
    assert source.written == []
    await program.rename(f"{TREE}/.tmp-bbfs-1", f"{TREE}/{name}")
    assert source.contents[f"file:./{name}"] == b"kept"
    assert await program.cat(f"{TREE}/{name}") == b"kept"
    assert ".tmp-bbfs-1" not in await program.ls(TREE)
    await program.save(f"{TREE}/{name}", b"changed")
    assert source.contents[f"file:./{name}"] == b"changed"


@pytest.mark.semantics("S33.10")
async def test_what_only_the_mount_has_at_its_end_is_a_pending_write(tree: Tree) -> None:
    source, program, world = tree
    pending = world.manager.writer.pending
    await program.save(f"{TREE}/x.part", b"half")
    await program.save(f"{TREE}/y.part", b"renamed")
    await program.rename(f"{TREE}/y.part", f"{TREE}/d/y.tmp")
    await program.save(f"{TREE}/z.part", b"removed")
    await program.unlink(f"{TREE}/z.part")
    await program.save(f"{TREE}/.tmp-bbfs-1", b"left by a command")
    await program.save(f"{TREE}/4913", b"")
    await program.rename(f"{TREE}/d/b.txt", f"{TREE}/d/b.txt~")  # the source has it still
    opened = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_TRUNC, b"not closed")
    await world.core.drafts.keep_left()
    kept = {each.uri: (pending.content_path(each).read_bytes(), each.reason) for each in pending.items()}
    start = "bb-scripted+tree+file:./"
    assert kept == {
        start + "x.part": (b"half", LEFT),
        start + "d/y.tmp": (b"renamed", LEFT),
        start + "a.txt": (b"not closed", LEFT),
    }
    for each in [*pending.items()]:
        await retry(world.manager, {"write": each.id})
    assert source.contents["file:./d/y.tmp"] == b"renamed"
    assert source.contents["file:./a.txt"] == b"not closed"
    program.files.core.open_files.release(opened)


@pytest.mark.semantics("S32")
async def test_what_a_program_reads_from_the_kernels_cache_is_what_its_write_replaces(tree: Tree) -> None:
    source, program, _ = tree
    source.etags = False
    path = f"{TREE}/a.txt"
    assert await program.cat(path) == b"first"
    program.record(path).invalidate()
    handle = await program.begin(path, os.O_RDWR)
    source.contents["file:./a.txt"] = b"theirs"
    ino = (await program.walk(path)).ino
    await program.writes.set_attributes(ino, handle, NewAttributes(size=0))
    await program.writes.write(handle, 0, b"mine")
    with pytest.raises(Conflict):
        await program.close(handle)
    assert source.contents["file:./a.txt"] == b"theirs"


@pytest.mark.parametrize("size", [4, 3 << 20])
@pytest.mark.semantics("S32.10")
async def test_a_pending_write_that_the_source_has_is_done(tree: Tree, size: int) -> None:
    """The answer to the first attempt was lost, and the source had stored it, as it shows by its new version."""
    source, program, world = tree
    pending, mine = world.manager.writer.pending, b"mine" * (size // 4)
    source.refused["file:./a.txt"] = DeadlineExceeded("late")
    with pytest.raises(DeadlineExceeded):
        await program.save(f"{TREE}/a.txt", mine)
    del source.refused["file:./a.txt"]
    [item] = pending.items()
    for theirs in (mine[:-1] + b"!", mine + b"!"):
        source.contents["file:./a.txt"] = theirs
        with pytest.raises(Conflict):
            await retry(world.manager, {"write": item.id})
    del source.contents["file:./a.txt"]
    with pytest.raises(Conflict):
        await retry(world.manager, {"write": item.id})
    source.contents["file:./a.txt"] = mine
    await retry(world.manager, {"write": item.id})
    assert not [*pending.items()]
    assert await program.cat(f"{TREE}/a.txt") == mine[: 3 + (1 << 20)]


@pytest.mark.semantics("S32.10")
async def test_a_pending_write_is_not_for_a_source_of_the_same_name_elsewhere(tree: Tree) -> None:
    source, program, world = tree
    pending = world.manager.writer.pending
    source.refused["file:./new"] = Unreachable("down")
    with pytest.raises(Unreachable):
        await program.save(f"{TREE}/new", b"mine")
    del source.refused["file:./new"]
    [item] = pending.items()
    assert item.place is not None
    pending.describe(replace(item, place="of another folder"))
    with pytest.raises(BbfsError, match=r"'tree' is at another place now .* --force"):
        await retry(world.manager, {"write": item.id})
    assert "file:./new" not in source.contents
    assert program.kept() == [b"mine"]
    await retry(world.manager, {"write": item.id, "force": True})
    assert source.contents["file:./new"] == b"mine"


@pytest.mark.semantics("S32.17")
async def test_a_read_has_what_was_written_before_it_while_a_close_hands_over(tree: Tree) -> None:
    """The kernel keeps the page that a read answers, and shows it up to the size that the earlier write gives."""
    source, program, _ = tree
    first = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_APPEND)
    second = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_APPEND)
    reader = await program.open(f"{TREE}/a.txt")
    await program.writes.write(first, 5, b" and more")
    source.released = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(program.close, first)
        await until(lambda: source.written)
        nursery.start_soon(program.writes.write, second, 14, b", later")
        await settled()
        read: list[bytes] = []

        async def reads() -> None:
            read.append(await program.files.read(reader, 0, 100))

        nursery.start_soon(reads)
        await settled()
        source.released.set()
    assert read == [b"first and more, later"]
    await program.close(second)


@pytest.mark.semantics("S32")
async def test_a_pending_write_shows_at_once_under_a_name_that_was_absent(tree: Tree) -> None:
    source, program, world = tree
    told: list[tuple[str, ...]] = []
    world.manager.changes.subscribe(lambda change: told.extend(change.paths) if change.own else None)
    source.refused["file:./new.txt"] = Unreachable("down")
    with pytest.raises(Unreachable):
        await program.save(f"{TREE}/new.txt", b"mine")
    del source.refused["file:./new.txt"]
    with pytest.raises(NotFound):
        await program.walk(f"{TREE}/new.txt")
    world.forgotten()
    [item] = world.manager.writer.pending.items()
    await retry(world.manager, {"write": item.id})
    assert "new.txt" in world.forgotten(), "the kernel has the name as absent"
    assert (TREE, "new.txt") in told
    assert await program.cat(f"{TREE}/new.txt") == b"mine"


@pytest.mark.semantics("S32.19")
async def test_a_later_save_keeps_its_bytes_whatever_becomes_of_the_earlier_one(tree: Tree) -> None:
    source, program, world = tree
    pending = world.manager.writer.pending
    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_TRUNC, b"mine")
    source.refused["file:./a.txt"] = Unreachable("down")
    with pytest.raises(Unreachable):
        await program.writes.flush(handle)
    [item] = pending.items()
    with pytest.raises(Unreachable):
        await retry(world.manager, {"write": item.id, "force": True})
    assert [each.expected for each in pending.items()] == [item.expected]  # the next one is not forced
    assert len(os.listdir(pending.directory)) == 2
    del source.refused["file:./a.txt"]
    source.released = earlier = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(retry, world.manager, {"write": item.id})
        await until(lambda: len(source.written) == 3)
        source.released = later = trio.Event()
        await program.writes.write(handle, 4, b" and later")
        nursery.start_soon(closed_in_conflict, program, handle)
        await until(lambda: len(source.written) == 4)
        earlier.set()
        await until(lambda: source.contents["file:./a.txt"] == b"mine")
        await settled()
        later.set()
    assert program.kept() == [b"mine and later"]
    assert len(os.listdir(pending.directory)) == 2


async def closed_in_conflict(program: Program, handle: int) -> None:
    with pytest.raises(Conflict):
        await program.close(handle)


@asynccontextmanager
async def answering_late(
    source: WritableTree, method: str, ask: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """Ask a source, and let the body run between its answer and the arrival of that."""
    answer, answered, gate = getattr(source, method), trio.Event(), trio.Event()

    async def held(asked: object) -> object:
        found = await answer(asked)
        answered.set()
        await gate.wait()
        return found

    async with trio.open_nursery() as nursery:
        with monkeypatch.context() as patched:
            patched.setattr(source, method, held)
            nursery.start_soon(ask)
            with trio.fail_after(60):
                await answered.wait()
        yield
        gate.set()


@pytest.mark.parametrize("late", ["list_directory", "load"])
@pytest.mark.semantics("S32")
async def test_an_answer_from_before_a_save_does_not_undo_it(
    tree: Tree, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, program, world = tree
    assert await program.cat(f"{TREE}/a.txt") == b"first"
    world.clock.advance(3600)
    source.contents["file:./a.txt"] = b"other"

    async def read() -> None:
        with suppress(Outdated):
            await (program.ls(TREE) if late == "list_directory" else program.cat(f"{TREE}/a.txt"))

    async with answering_late(source, late, read, monkeypatch):
        world.clock.advance(1)
        [tree_source] = world.manager.sources.values()
        await world.manager.writer.write(
            tree_source, "file:./a.txt", MemoryContent(b"mine!!"), Expected(), path=("a.txt",)
        )
    assert (await program.stat(f"{TREE}/a.txt")).size == 6
    assert await program.cat(f"{TREE}/a.txt") == b"mine!!"
    await program.save(f"{TREE}/a.txt", b"later")


@pytest.mark.semantics("S32.17")
@pytest.mark.parametrize("size", [6, 3 << 20])
@pytest.mark.parametrize("states_etag", [True, False])
@pytest.mark.parametrize("late", ["list_directory", "stat"])
async def test_a_description_from_before_a_save_does_not_undo_it(
    tree: Tree, late: str, states_etag: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program closes a file while it is listed, or renames another one over it while its size is asked for.

    states_etag: whether the answer to the change has an ETag. Those to all other requests have one.
    """
    source, program, world = tree
    path, mine = f"{TREE}/a.txt", b"m" * size
    assert await program.cat(path) == b"first"
    if not states_etag:
        monkeypatch.setattr(source, "told", lambda uri: replace(source.metadata(uri), etag=None))
        renamed = source.rename

        async def rename(native_uri: str, to: str, *, replace: bool) -> ResourceMetadata:
            await renamed(native_uri, to, replace=replace)
            return source.told(to)

        monkeypatch.setattr(source, "rename", rename)
    if late == "stat":
        await program.save(f"{TREE}/b.txt", mine)
        world.clock.advance(3600)
        await program.ls(TREE)
        world.clock.advance(11)
        program.record(path).invalidate()
        change = partial(program.rename, f"{TREE}/b.txt", path)
    else:
        handle = await program.begin(path, os.O_WRONLY | os.O_TRUNC)
        change = partial(program.close, handle)
        await program.writes.write(handle, 0, mine)
        world.clock.advance(3600)

    async def ask() -> None:
        with suppress(Outdated):
            await (program.stat(path) if late == "stat" else program.ls(TREE))

    async with answering_late(source, late, ask, monkeypatch):
        world.clock.advance(1)
        await change()
        assert source.contents["file:./a.txt"] == mine
    assert (await program.stat(path)).size == size
    assert await program.cat(path) == mine[: 3 + (1 << 20)]  # all that it reads
    source.contents["file:./a.txt"] = b"theirs"
    with pytest.raises((Conflict, Outdated)):
        await program.save(path, b"later")
    world.core.refresh(())
    await program.save(path, b"later")
    assert source.contents["file:./a.txt"] == b"later"


@pytest.mark.semantics("S32.17", "S33")
@pytest.mark.parametrize("states_etag", [True, False])
async def test_files_of_renamed_directories_have_their_own_bytes(tree: Tree, states_etag: bool) -> None:
    """Two directories are exchanged, as a deployment does."""
    source, program, world = tree
    source.etags = states_etag
    await exchanged(source, program, world)
    assert (await program.stat(f"{TREE}/now/f")).size == 6
    assert await program.cat(f"{TREE}/now/f") == b"twotwo"
    assert (await program.stat(f"{TREE}/next/f")).size == 3
    assert await program.cat(f"{TREE}/next/f") == b"one"
    await program.save(f"{TREE}/now/f", b"three")
    assert source.contents == {"file:./now/f": b"three", "file:./next/f": b"one"}


@pytest.mark.semantics("S20", "S32.17")
@pytest.mark.parametrize("states_etag", [True, False])
async def test_no_earlier_bytes_of_renamed_directories_stand_in_or_stay_on_disk(
    states_etag: bool, tmp_path: Path
) -> None:
    source = WritableTree()
    source.etags = states_etag
    with closing(DiskCache(tmp_path / "cache", max_bytes=1 << 20)) as disk:
        async with program_on(source, disk=disk) as (program, world):
            await exchanged(source, program, world)
            shutil.copytree(tmp_path / "cache", tmp_path / "killed")
            for name in ("now", "next"):
                assert await program.ls(f"{TREE}/{name}") == ["f"]
            source.down = Unreachable("down")
            for name in ("now", "next"):
                with pytest.raises(Unreachable):
                    await program.cat(f"{TREE}/{name}/f")
            (fingerprint,) = {each.fingerprint for each in world.manager.sources.values()}
    with closing(DiskCache(tmp_path / "killed", max_bytes=1 << 20)) as disk:
        for name in ("now", "next"):
            cached = disk.read(fingerprint, f"file:./{name}/f", 1 << 20)
            assert cached is None or not cached.parts


@pytest.mark.semantics("S20.1", "S32.17")
async def test_nothing_that_an_earlier_mount_has_loaded_below_a_renamed_directory_outlives_a_kill(
    tmp_path: Path,
) -> None:
    """The mount that renames has read nothing there, and is killed once the rename is answered."""
    source = WritableTree()
    source.contents = {"file:./now/f": b"one", "file:./next/f": b"twotwo", "file:./nowhere/f": b"three"}
    with closing(DiskCache(tmp_path / "cache", max_bytes=1 << 20)) as disk:
        async with program_on(source, disk=disk) as (program, world):
            for name in ("now", "next", "nowhere"):
                await program.cat(f"{TREE}/{name}/f")
            await world.manager.flush()
        async with program_on(source, disk=disk) as (program, world):
            await program.rename(f"{TREE}/now", f"{TREE}/old")
            await program.rename(f"{TREE}/next", f"{TREE}/now")
            shutil.copytree(tmp_path / "cache", tmp_path / "killed")
            (fingerprint,) = {each.fingerprint for each in world.manager.sources.values()}
    with closing(DiskCache(tmp_path / "killed", max_bytes=1 << 20)) as disk:
        cached = {name: disk.read(fingerprint, f"file:./{name}/f", 1 << 20) for name in ("now", "next", "nowhere")}
    assert {name for name, found in cached.items() if found is not None} == {"nowhere"}


async def exchanged(source: WritableTree, program: Program, world: World) -> None:
    """Read a file of two directories, and exchange these by three renames."""
    source.contents = {"file:./now/f": b"one", "file:./next/f": b"twotwo"}
    assert await program.cat(f"{TREE}/now/f") == b"one"
    assert await program.cat(f"{TREE}/next/f") == b"twotwo"
    await world.manager.flush()
    for name, to in (("now", "old"), ("next", "now"), ("old", "next")):
        await program.rename(f"{TREE}/{name}", f"{TREE}/{to}")
    assert source.contents == {"file:./now/f": b"twotwo", "file:./next/f": b"one"}


@pytest.mark.semantics("S13", "S33")
async def test_a_replaced_file_that_is_open_is_under_no_later_name(tree: Tree) -> None:
    """The file that replaces it, and is renamed itself, has the bytes that it had when it was opened."""
    _, program, _ = tree
    for name in ("a.txt", "b~"):
        await program.save(f"{TREE}/{name}", b"same")
    await program.hold(f"{TREE}/a.txt")
    await program.poke("", 0, b"open")
    await program.rename(f"{TREE}/b~", f"{TREE}/a.txt")
    await program.rename(f"{TREE}/a.txt", f"{TREE}/c.txt")
    assert await program.cat(f"{TREE}/c.txt") == b"same"
    await program.let()


@pytest.mark.semantics("S32.17", "S33")
async def test_a_listing_from_before_a_directory_was_renamed_is_of_another_one(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, program, world = tree
    source.contents = {"file:./now/f": b"one", "file:./next/g": b"twotwo"}
    await program.ls(TREE)

    async def ask() -> None:
        with suppress(Outdated):
            await program.ls(f"{TREE}/now")

    async with answering_late(source, "list_directory", ask, monkeypatch):
        world.clock.advance(1)
        [there] = world.manager.sources.values()
        for name, to in (("now", "old"), ("next", "now")):
            assert await world.manager.writer.names.rename(
                there, f"file:./{name}", f"file:./{to}", replace_there=True, path=(name,), to_path=(to,)
            )
    assert await program.ls(f"{TREE}/now") == ["g"]
    assert await program.cat(f"{TREE}/now/g") == b"twotwo"


@pytest.mark.semantics("S32")
async def test_what_a_source_cannot_write_any_more_is_kept(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    source, program, world = tree
    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_TRUNC, b"mine")
    monkeypatch.setattr(source, "writes", lambda _: ())
    with pytest.raises(NotSupported):
        await program.close(handle)
    [item] = world.manager.writer.pending.items()
    assert program.kept() == [b"mine"]
    assert "cannot replace it" in (item.error or "")


@pytest.mark.semantics("S7", "S33")
async def test_one_lookup_leads_to_a_renamed_file_also_without_etags(tree: Tree) -> None:
    """The kernel looks a name up once more after ESTALE, and no more."""
    source, program, world = tree
    source.etags = False
    assert await program.cat(f"{TREE}/a.txt") + await program.cat(f"{TREE}/d/b.txt") == b"firstsecond"
    await program.save(f"{TREE}/a.txt", b"again")
    await program.rename(f"{TREE}/a.txt", f"{TREE}/d/b.txt")
    found = await program.walk(f"{TREE}/d/b.txt")
    assert (await world.files.getattr(found.ino)).size == 5
    assert await program.read(await world.files.open(found.ino)) == b"again"


@pytest.mark.semantics("S32", "S33.12")
async def test_a_file_that_is_renamed_aside_is_at_its_source_until_it_is_replaced(tree: Tree) -> None:
    """The way of vim: rename the old file, write a new one, remove the old one."""
    source, program, _ = tree
    await program.rename(f"{TREE}/a.txt", f"{TREE}/a.txt~")
    assert source.contents["file:./a.txt"] == b"first"
    assert await program.ls(TREE) == ["a.txt~", "d"]
    await program.save(f"{TREE}/a.txt", b"changed")
    assert source.contents["file:./a.txt"] == b"changed"
    assert await program.cat(f"{TREE}/a.txt~") == b"first"
    await program.unlink(f"{TREE}/a.txt~")
    assert source.contents["file:./a.txt"] == b"changed"
    assert source.written == ["file:./a.txt"]
    await program.rename(f"{TREE}/a.txt", f"{TREE}/a.txt~")
    await program.rename(f"{TREE}/a.txt~", f"{TREE}/a.txt")
    assert await program.cat(f"{TREE}/a.txt") == b"changed"
    await program.rename(f"{TREE}/a.txt", f"{TREE}/a.txt~")
    await program.unlink(f"{TREE}/a.txt~")
    assert "file:./a.txt" not in source.contents
    await program.rename(f"{TREE}/d/b.txt", f"{TREE}/d/b.txt~")
    await program.rename(f"{TREE}/d/b.txt~", f"{TREE}/kept.txt")
    assert sorted(source.contents) == ["file:./kept.txt"]


@pytest.mark.semantics("S32")
async def test_what_others_store_under_a_name_that_was_given_away_stays(tree: Tree) -> None:
    source, program, world = tree
    for name in ("a.txt", "d/b.txt"):
        await program.rename(f"{TREE}/{name}", f"{TREE}/{name}~")
        source.contents[f"file:./{name}"] = b"theirs"
    world.clock.advance(3600)
    assert await program.ls(TREE) + await program.ls(f"{TREE}/d") == ["a.txt~", "d", "b.txt~"]
    with pytest.raises(Conflict):
        await program.save(f"{TREE}/a.txt", b"mine")
    await program.unlink(f"{TREE}/d/b.txt~")
    assert await program.ls(f"{TREE}/d") == ["b.txt"]
    assert await program.cat(f"{TREE}/d/b.txt") == b"theirs"
    assert set(source.contents.values()) == {b"theirs"}


@pytest.mark.semantics("S32")
async def test_a_rename_by_copying_removes_only_what_it_has_copied(flat: Flat) -> None:
    source, program, world = flat
    assert await program.ls(FLAT) == ["a.txt", "d"]
    source.released = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(renamed_in_conflict, program, f"{FLAT}/a.txt", f"{FLAT}/new.txt")
        await until(lambda: bool(source.written))
        source.contents["test://a.txt"] = b"theirs"
        world.clock.advance(3600)
        assert await program.cat(f"{FLAT}/a.txt") == b"theirs"
        source.released.set()
    assert (source.contents["test://a.txt"], source.contents["test://new.txt"]) == (b"theirs", b"first")


async def renamed_in_conflict(program: Program, path: str, to: str) -> None:
    with pytest.raises(Conflict):
        await program.rename(path, to)


async def test_a_flat_source_without_renames_is_written_too(flat: Flat) -> None:
    source, program, world = flat
    await program.save(f"{FLAT}/a.txt", b"changed")
    await program.save(f"{FLAT}/new/n.txt".replace("new/", ""), b"new")
    assert source.contents["test://a.txt"] == b"changed"
    assert source.contents["test://n.txt"] == b"new"
    await program.mkdir(f"{FLAT}/e")
    assert await program.ls(f"{FLAT}/e") == []
    await program.rename(f"{FLAT}/n.txt", f"{FLAT}/e/m.txt")
    assert source.contents["test://e/m.txt"] == b"new"
    assert "test://n.txt" not in source.contents
    world.clock.advance(3600)
    assert await program.ls(FLAT) == ["a.txt", "d", "e"]
    assert await program.cat(f"{FLAT}/e/m.txt") == b"new"
    await program.unlink(f"{FLAT}/e/m.txt")
    await program.rmdir(f"{FLAT}/e")
    assert await program.ls(FLAT) == ["a.txt", "d"]
    source.contents["test://a.txt"] = b"theirs"
    world.clock.advance(3600)
    handle = await program.begin(f"{FLAT}/a.txt", os.O_RDWR, b"m")
    source.contents["test://a.txt"] = b"theirs again"
    with pytest.raises(Conflict):
        await program.close(handle)


async def test_a_source_that_looks_itself_is_not_asked_before_a_new_file(flat: Flat) -> None:
    source, program, _ = flat
    for detects, name in ((False, "n.txt"), (True, "m.txt")):
        source.detects_existing = detects
        source.loaded.clear()
        await program.save(f"{FLAT}/{name}", b"new")
        assert (f"test://{name}" in source.loaded) != detects
    source.contents["test://o.txt"] = b"theirs"
    with pytest.raises(Conflict):
        await program.save(f"{FLAT}/o.txt", b"mine")
    assert source.contents["test://o.txt"] == b"theirs"


@pytest.mark.semantics("S32.8")
async def test_a_source_that_compares_removals_is_asked_for_the_state_after_a_conflict_alone(tree: Tree) -> None:
    source, program, _ = tree
    source.contents |= {"file:./b.txt": b"second", "file:./c.txt": b"third"}
    source.detects_conflicts = False
    source.detects_removed = lambda expected: expected.etag is not None  # type: ignore[attr-defined]
    await program.ls(TREE)
    await program.unlink(f"{TREE}/a.txt")
    assert not source.stated
    source.contents["file:./b.txt"] = b"theirs"
    with pytest.raises(Conflict):
        await program.unlink(f"{TREE}/b.txt")
    assert source.contents["file:./b.txt"] == b"theirs"
    assert source.stated
    remove, asked = source.remove, list[Expected]()

    async def removed(native_uri: str, expected: Expected) -> None:
        asked.append(expected)
        if len(asked) == 1:
            raise Conflict(native_uri)  # the store has given the same bytes another ETag
        await remove(native_uri, expected)

    source.remove = removed  # type: ignore[method-assign]
    await program.unlink(f"{TREE}/c.txt")
    assert "file:./c.txt" not in source.contents
    assert len(asked) == 2


@pytest.mark.semantics("S32")
async def test_a_change_that_is_announced_while_a_program_begins_is_a_conflict(flat: Flat) -> None:
    source, program, _ = flat
    source.detects_conflicts = True
    handle = await program.begin(f"{FLAT}/a.txt", os.O_RDWR)
    source.hold("test://a.txt")

    async def write() -> None:
        with pytest.raises(Outdated):
            await program.writes.write(handle, 0, b"m")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await until(lambda: source.loaded == ["test://a.txt"])
        source.contents["test://a.txt"] = b"theirs"
        source.announce("test://a.txt")
        source.release("test://a.txt")
    await program.close(handle)
    assert source.contents["test://a.txt"] == b"theirs"


async def test_a_rename_that_the_source_does_not_accept_leaves_the_file_and_no_pending_write(flat: Flat) -> None:
    """EINVAL of rename(2) would mean to mv(1) that a directory should go into itself."""
    source, program, world = flat
    source.refused["test://d/c.txt"] = Rejected("it has the key b")
    with pytest.raises(NotSupported, match="it has the key b"):
        await program.rename(f"{FLAT}/d/b.txt", f"{FLAT}/d/c.txt")
    assert await program.ls(f"{FLAT}/d") == ["b.txt"]
    assert not [*world.manager.writer.pending.items()]
    [at_work] = world.manager.sources.values()
    assert at_work.error == "test://d/c.txt: not written: it has the key b"


async def test_names_that_templates_make_are_saved_as_programs_save(flat: Flat) -> None:
    source, program, _ = flat
    source.template("test://d/{name}")
    await program.save(f"{FLAT}/d/new.txt", b"new")
    for name in ("b.txt", "new.txt"):
        await program.save(f"{FLAT}/d/sedAb12Cd", b"by sed")
        assert await program.cat(f"{FLAT}/d/sedAb12Cd") == b"by sed"
        await program.rename(f"{FLAT}/d/sedAb12Cd", f"{FLAT}/d/{name}")
        assert source.contents[f"test://d/{name}"] == b"by sed"
        await program.rename(f"{FLAT}/d/{name}", f"{FLAT}/d/{name}~")
        await program.save(f"{FLAT}/d/{name}", b"by vim")
        await program.unlink(f"{FLAT}/d/{name}~")
        assert await program.cat(f"{FLAT}/d/{name}") == b"by vim"
    assert await program.ls(f"{FLAT}/d") == ["b.txt", "new.txt"]
    await program.rename(f"{FLAT}/d/new.txt", f"{FLAT}/d/other.txt")
    await program.unlink(f"{FLAT}/d/other.txt")
    assert source.contents == {"test://a.txt": b"first", "test://d/b.txt": b"by vim"}


async def test_what_lists_a_resource_is_asked_again_once_it_is_written_or_removed() -> None:
    source = WritableCompleting(values={"id": ["a"]}, unlisted={"test://pets/a", "test://pets/b"})
    source.contents = {"test://pets": b"a", "test://pets/a": b"1"}
    source.template("test://pets/{id}")
    source.template("test://pets/{id}/parts")
    pets = f"{FLAT}/pets"
    async with program_on(source) as (program, _):
        assert await program.ls(pets) == ["a", "index.txt"]
        assert await program.cat(f"{pets}/index.txt") == b"a"
        source.values["id"], source.contents["test://pets"] = ["a", "b"], b"ab"
        await program.save(f"{pets}/b/index", b"2")
        assert source.contents["test://pets/b"] == b"2"
        assert await program.cat(f"{pets}/index.txt") == b"ab"
        completed = len(source.completions)
        assert await program.ls(pets) == ["a", "b", "index.txt"]
        assert len(source.completions) == completed + 2, "one for each template"
        await program.save(f"{pets}/b/index", b"3")
        assert await program.ls(pets) == ["a", "b", "index.txt"]
        assert len(source.completions) == completed + 2, "no name is another one"
        source.values["id"], source.contents["test://pets"] = ["a"], b"a"
        await program.unlink(f"{pets}/b/index")
        assert await program.cat(f"{pets}/index.txt") == b"a"
        await program.ls(pets)
        assert len(source.completions) == completed + 4


async def test_programs_save_by_way_of_other_names_where_a_source_only_replaces() -> None:
    source = WritableCompleting(operations=["replace"], unlisted={"test://pets/a"})
    source.contents = {"test://pets/a": b"1"}
    source.template("test://pets/{id}")
    async with program_on(source) as (program, _):
        pets = await program.walk(f"{FLAT}/pets")
        assert not (await program.lookup(pets.ino, "sedAb12Cd")).ino, "else the kernel refuses O_EXCL"
        await program.save(f"{FLAT}/pets/sedAb12Cd", b"2", os.O_EXCL)
        await program.rename(f"{FLAT}/pets/sedAb12Cd", f"{FLAT}/pets/a")
        assert source.contents == {"test://pets/a": b"2"}


async def test_a_directory_that_is_made_again_outlives_the_listing_that_shows_the_old_one(flat: Flat) -> None:
    source, program, world = flat
    await program.ls(FLAT)
    await program.unlink(f"{FLAT}/d/b.txt")
    await program.rmdir(f"{FLAT}/d")
    await program.mkdir(f"{FLAT}/d")
    assert await program.ls(f"{FLAT}/d") == []
    world.clock.advance(3600)
    source.announce()
    await settled()
    assert await program.ls(f"{FLAT}/d") == []
    await program.save(f"{FLAT}/d/new", b"new")
    assert source.contents["test://d/new"] == b"new"


async def test_a_file_that_is_removed_while_it_is_open_is_not_written(tree: Tree) -> None:
    source, program, _ = tree
    handle = await program.begin(f"{TREE}/a.txt", os.O_RDWR, b"F")
    await program.unlink(f"{TREE}/a.txt")
    assert await program.read(handle) == b"First"
    await program.close(handle)
    assert "file:./a.txt" not in source.contents


async def test_what_cannot_be_written_is_refused(tree: Tree) -> None:
    _, program, _ = tree
    with pytest.raises(ReadOnly):
        await program.mkdir("elsewhere")
    with pytest.raises(NotSupported):
        program.name_changes.refuse_link((await program.walk(TREE)).ino, b"link")
    with pytest.raises(NotFound):
        await program.unlink(f"{TREE}/absent")


async def given_up(
    clock: trio.testing.MockClock, program: Program, change: Callable[..., Awaitable[None]], *paths: str
) -> None:
    """A change of names, as the adapter asks for it, of which the source says nothing."""
    places = [await program.place(each) for each in paths]
    arguments = [part for place in places for part in place]
    ended = trio.Event()

    async def changes() -> None:
        with pytest.raises(DeadlineExceeded, match="the change goes on"):
            await program.name_changes.in_time(partial(change, *arguments, *((0,) if len(paths) > 1 else ())), *places)
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(changes)
        await settled()
        clock.jump(HELD - 0.1)
        await settled()
        assert not ended.is_set()
        clock.jump(0.1)


@pytest.mark.semantics("S22.3")
async def test_no_change_of_a_name_keeps_its_directory_locked(
    tree: Tree, mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    source, program, world = tree
    await program.save(f"{TREE}/.a.txt.Ab12Cd", b"renamed")
    source.released = trio.Event()
    await given_up(mock_clock, program, program.name_changes.rename, f"{TREE}/.a.txt.Ab12Cd", f"{TREE}/a.txt")
    await given_up(mock_clock, program, program.name_changes.remove, f"{TREE}/.a.txt.Ab12Cd")  # as rsync does then
    assert program.kept() == [b"renamed"]
    assert [item.path for item in world.manager.writer.pending.items()] == [(TREE, "a.txt")]
    assert "a.txt: not changed within 5 s; the change goes on" in caplog.text
    source.released.set()
    await settled()
    assert source.contents["file:./a.txt"] == b"renamed"
    assert "that no program waits for any more is made" in caplog.text
    assert "that no program waits for any more was not made" in caplog.text, "the removal came too late"
    assert await program.cat(f"{TREE}/a.txt") == b"renamed"
    assert await program.ls(TREE) == ["a.txt", "d"]
    assert not [*world.manager.writer.pending.items()]


@pytest.mark.semantics("S22", "S32.2")
async def test_a_change_that_goes_on_and_fails_leaves_a_pending_write(
    tree: Tree, mock_clock: trio.testing.MockClock
) -> None:
    source, program, world = tree
    await program.save(f"{TREE}/x.tmp", b"refused")
    source.released, source.refused["file:./a.txt"] = trio.Event(), NoSpace("full")
    await given_up(mock_clock, program, program.name_changes.rename, f"{TREE}/x.tmp", f"{TREE}/a.txt")
    source.released.set()
    await settled()
    assert [each.error for each in world.manager.writer.pending.items()] == ["NoSpace: full"]
    assert await program.cat(f"{TREE}/x.tmp") == b"refused"
    await program.unlink(f"{TREE}/x.tmp")
    assert await program.ls(TREE) == ["a.txt", "d"]
    assert await program.cat(f"{TREE}/a.txt") == b"first"
    assert program.kept() == [b"refused"]


@pytest.mark.semantics("S23", "S32.1")
@pytest.mark.parametrize("error", [Denied, LoginRequired, NoSpace, Rejected, TooLarge, Unreachable, BbfsError])
async def test_each_reason_of_a_source_reaches_the_program_and_the_log(
    tree: Tree, error: type[BbfsError], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    source, program, world = tree
    source.refused["file:./new"] = error("because of this")
    with pytest.raises(error):
        await program.save(f"{TREE}/new", b"kept")
    [pending] = world.manager.writer.pending.items()
    assert pending.error == f"{error.__name__}: because of this"
    assert f"because of this; `bbfs pending` has it as {pending.id}" in caplog.text
    assert world.manager.sources["bb-scripted+tree"].error == "file:./new: not written: because of this"
    assert "new" not in await program.ls(TREE)
    source.refused["file:./a.txt"] = error("also because of that")
    with pytest.raises(error):
        await program.unlink(f"{TREE}/a.txt")
    assert world.manager.sources["bb-scripted+tree"].error == "file:./a.txt: not removed: also because of that"
    assert "file:./a.txt: not removed: also because of that" in caplog.text
    described = description(world.manager.sources["bb-scripted+tree"], [pending])
    assert f"`bbfs pending show {pending.id}`: {pending.uri}: {error.__name__}: because of this" in described


@pytest.mark.semantics("S22.3", "S32")
@pytest.mark.parametrize("asked", ["rename", "write", "remove"])
async def test_a_change_without_an_answer_ends_and_leaves_an_open_file_to_its_program(
    tree: Tree, mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """A file that is open and changed is renamed or removed, and the source takes that request and says nothing."""
    source, program, _ = tree
    waiting = trio.Event()

    async def hang(*_: object, **named: object) -> ResourceMetadata:
        waiting.set()
        await trio.sleep_forever()
        raise AssertionError

    handle = await program.begin(f"{TREE}/a.txt", os.O_RDWR, b"F")
    with monkeypatch.context() as patched:
        patched.setattr(source, asked, hang)
        if asked == "remove":
            await given_up(mock_clock, program, program.name_changes.remove, f"{TREE}/a.txt")
        else:
            await given_up(mock_clock, program, program.name_changes.rename, f"{TREE}/a.txt", f"{TREE}/b.txt")
        await waiting.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(program.writes.write, handle, 1, b"I")
            await settled()
            assert nursery.child_tasks, "it waits for the change, which holds the file"
            mock_clock.jump(source.source.policy.timeout + 1)
    await program.close(handle)
    assert source.contents == {"file:./a.txt": b"FIrst", "file:./d/b.txt": b"second"}
    await program.rename(f"{TREE}/a.txt", f"{TREE}/c.txt")
    assert source.contents == {"file:./c.txt": b"FIrst", "file:./d/b.txt": b"second"}


@pytest.mark.semantics("S22", "S32")
async def test_a_source_that_does_not_answer_has_its_time(tree: Tree, autojump_clock: trio.testing.MockClock) -> None:
    source, program, world = tree
    await program.ls(TREE)

    async def hang(*_: object) -> ResourceMetadata:
        await trio.sleep_forever()
        raise AssertionError

    source.write = hang  # type: ignore[method-assign]
    began = trio.current_time()
    with pytest.raises(DeadlineExceeded):
        await program.save(f"{TREE}/a.txt", b"kept")
    assert trio.current_time() - began < source.source.policy.timeout + 1
    [pending] = world.manager.writer.pending.items()
    assert pending.error is not None
    assert pending.error.startswith("DeadlineExceeded: no answer within 30")
    assert program.kept() == [b"kept"]


@pytest.mark.semantics("S32.7")
async def test_a_pending_write_that_is_dropped_ends_its_hand_over(
    tree: Tree, autojump_clock: trio.testing.MockClock
) -> None:
    source, program, world = tree
    asked, ended = trio.Event(), trio.Event()

    async def take_long(*_: object) -> ResourceMetadata:
        asked.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    source.write = take_long  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def save() -> None:
            with pytest.raises(BbfsError, match="was dropped"):
                await program.save(f"{TREE}/a.txt", b"mine")

        await asked.wait()
        pending = world.manager.writer.pending
        [item] = pending.items()
        pending.drop(item.id)
        with trio.fail_after(30):
            await ended.wait()
    assert [*pending.directory.iterdir()] == []


@pytest.mark.semantics("S32")
async def test_a_large_content_that_the_source_refuses_is_not_read_for_that(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, program, _ = tree
    disk = os.statvfs_result((4096, 4096, *(1 << 31,) * 6, 0, 255))  # which has room for that
    monkeypatch.setattr(os, "fstatvfs", lambda _: disk)
    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_TRUNC)
    ino = (await program.stat(f"{TREE}/a.txt")).ino
    await program.writes.set_attributes(ino, handle, NewAttributes(size=1 << 42))

    async def refuse(*_: object) -> ResourceMetadata:
        raise TooLarge("more than the limit")

    source.write = refuse  # type: ignore[method-assign]
    with trio.fail_after(60), pytest.raises(TooLarge):
        await program.close(handle)


@pytest.mark.semantics("S32.3")
async def test_a_full_disk_is_said_before_a_source_is_asked(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    source, program, _ = tree

    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_TRUNC, b"begun")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(NoSpace):
            await program.writes.write(handle, 0, bytes(2 << 20))
        await program.writes.write(handle, 0, b"small enough for memory")
        patched.setattr("builtins.open", full)
        with pytest.raises(NoSpace):
            await program.writes.flush(handle)
    assert source.written == []
    await program.close(handle)
    assert source.contents["file:./a.txt"] == b"small enough for memory"


@pytest.mark.semantics("S32.5")
async def test_a_file_of_which_a_part_could_not_be_kept_is_not_handed_over(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    source, program, world = tree
    world.manager.writer.space.most_files = 0
    for again in (False, True):
        handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_TRUNC, b"begin")
        with pytest.raises(NoSpace):
            await program.writes.write(handle, 5, bytes(2 << 20))
        if again:
            await program.writes.write(handle, 5, b" and end")
            await program.close(handle)
            break
        with pytest.raises(NoSpace):
            await program.close(handle)
        assert source.contents["file:./a.txt"] == await program.cat(f"{TREE}/a.txt") == b"first"
        assert "a.txt: not written, for a part of it is lacking: 0 files that are too large for memory" in caplog.text
        caplog.clear()
    assert source.contents["file:./a.txt"] == b"begin and end"
    assert caplog.text == ""


@pytest.mark.semantics("S32.5")
@pytest.mark.parametrize("written", ["all", "one of two", "a part"])
async def test_each_part_that_could_not_be_kept_has_to_be_written_again(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    source, program, _ = tree
    source.contents["file:./a.txt"] = bytes(3 << 20)
    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY, b"x")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        for offset in (100, 200):
            with pytest.raises(NoSpace):
                await program.writes.write(handle, offset, b"MINE")
    await program.writes.write(handle, 100, b"M" if written == "a part" else b"MINE")
    if written != "one of two":
        await program.writes.write(handle, 200, b"MINE")
    if written == "all":
        await program.close(handle)
        assert source.contents["file:./a.txt"][100:104] == b"MINE"
    else:
        with pytest.raises(NoSpace):
            await program.close(handle)
        assert source.contents["file:./a.txt"] == bytes(3 << 20)


@pytest.mark.semantics("S32.5")
async def test_a_close_fails_too_if_only_a_write_without_room_came_before_it(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, program, _ = tree
    source.contents["file:./a.txt"] = bytes(3 << 20)
    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY, b"x")
    await program.writes.sync(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(NoSpace):
            await program.writes.write(handle, 100, b"MINE")
    with pytest.raises(NoSpace):
        await program.close(handle)
    assert source.contents["file:./a.txt"] == b"x" + bytes((3 << 20) - 1)


@pytest.mark.semantics("S33.12")
@pytest.mark.parametrize("error", [Unreachable("down"), NoSpace("full"), Conflict("changed")])
async def test_a_backup_is_removed_after_a_refused_save_without_the_file(tree: Tree, error: BbfsError) -> None:
    source, program, _ = tree
    await program.rename(f"{TREE}/a.txt", f"{TREE}/a.txt~")
    source.refused["file:./a.txt"] = error
    with pytest.raises(type(error)):
        await program.save(f"{TREE}/a.txt", b"changed")
    source.refused.clear()
    assert await program.cat(f"{TREE}/a.txt") == b"first"
    await program.unlink(f"{TREE}/a.txt~")
    assert await program.cat(f"{TREE}/a.txt") == source.contents["file:./a.txt"] == b"first"


@pytest.mark.semantics("S33")
async def test_a_draft_is_shown_while_it_is_written(tree: Tree) -> None:
    """Other programs see what is written, under the inode that the file had."""
    source, program, _ = tree
    before = await program.stat(f"{TREE}/a.txt")
    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY, b" and more", 5)
    during = await program.stat(f"{TREE}/a.txt")
    assert (during.ino, during.size) == (before.ino, 14)
    assert await program.cat(f"{TREE}/a.txt") == b"first and more"
    assert source.contents["file:./a.txt"] == b"first"
    await program.close(handle)
    after = await program.stat(f"{TREE}/a.txt")
    assert after.ino != before.ino
    assert source.contents["file:./a.txt"] == b"first and more"


@pytest.mark.semantics("S33", "S34.6")
async def test_names_of_files_can_be_created_where_a_value_may_have_slashes(flat: Flat) -> None:
    source, program, world = flat
    source.template("test://n/{+path}")
    source.contents["test://n/there.md"] = b"there"
    notes = f"{FLAT}/n"
    assert (await program.stat(f"{notes}/there.md")).kind == "file"
    await program.save(f"{notes}/new.md", b"new")
    await program.save(f"{notes}/made/deep.md", b"deep")
    await program.save(f"{notes}/sedAb12Cd", b"sed")
    await program.rename(f"{notes}/sedAb12Cd", f"{notes}/there.md")
    assert source.contents["test://n/new.md"] == b"new"
    assert source.contents["test://n/made/deep.md"] == b"deep"
    assert source.contents["test://n/there.md"] == b"sed"
    assert source.written == ["test://n/new.md", "test://n/made/deep.md", "test://n/there.md"]
    with pytest.raises(NotFound):
        await program.stat(f"{notes}/absent.md")
    source.contents["test://n/un/listed/x.md"] = b"deep down"
    with pytest.raises(NotFound):
        await program.stat(f"{notes}/un")
    assert (await program.walk(f"{notes}/un", Aim.UNKNOWN)).kind == "directory"
    with pytest.raises(NotFound):
        await program.walk(f"{notes}/un.md", Aim.UNKNOWN)
    assert await program.cat(f"{notes}/un/listed/x.md") == b"deep down"
    assert (await program.stat(f"{notes}/un")).kind == "directory"
    world.clock.advance(10)  # the source is asked for it again
    assert (await program.stat(f"{notes}/un")).kind == "directory"
    with pytest.raises(IsADirectory):
        await program.save(f"{notes}/un", b"")
    await program.save(f"{notes}/Makefile", b"all:")
    assert source.contents["test://n/Makefile"] == b"all:"
    await program.mkdir(f"{notes}/made/empty")
    assert await program.ls(f"{notes}/made/empty") == []
    await program.save(f"{notes}/made/empty/Makefile", b"deeper")
    assert source.contents["test://n/made/empty/Makefile"] == b"deeper"


@pytest.mark.semantics("S34.5")
async def test_a_name_of_which_a_source_can_only_say_that_it_failed_leads_on(flat: Flat) -> None:
    """Many servers have no code for an absent resource."""
    source, program, _ = flat
    source.template("test://n/{+path}")
    contents: dict[str, Any] = source.contents
    contents |= {"test://n/un": BbfsError("internal error"), "test://n/un/x.md": b"deep"}
    source.unlisted = {"test://n/un", "test://n/un/x.md"}
    assert (await program.stat(f"{FLAT}/n/un")).kind == "directory"
    assert await program.cat(f"{FLAT}/n/un/x.md") == b"deep"


@pytest.mark.semantics("S32")
async def test_what_a_command_writes_while_the_source_is_listed_is_found(flat: Flat) -> None:
    source, program, world = flat
    await program.ls(FLAT)
    gate = source.hold(source.LISTING)
    [found] = world.manager.sources.values()
    told = trio.Event()
    world.manager.changes.subscribe(lambda change: told.set() if change.own else None)
    put = Put(uri="mcp-server+docs+test://new", data=b"new", expected=Expected(exists=False))
    async with trio.open_nursery() as nursery:
        found.catalog.expire()
        await until(lambda: source.under_way > 0)
        nursery.start_soon(ask, world.manager, put)
        await told.wait()
        gate.set()
    assert await program.ls(FLAT) == ["a.txt", "d", "new"]


@pytest.mark.semantics("S33")
async def test_a_file_that_another_one_was_renamed_over_opens_at_the_second_try(flat: Flat) -> None:
    """The kernel has the inode of the renamed one, and looks the name up only once again after ESTALE."""
    source, program, _ = flat
    source.template("test://n/{+path}")
    for name in ("new.md", "old.md"):
        await program.save(f"{FLAT}/n/{name}", name.encode())
    renamed = await program.stat(f"{FLAT}/n/new.md")
    await program.rename(f"{FLAT}/n/new.md", f"{FLAT}/n/old.md")
    with pytest.raises(Outdated):
        await program.files.open(renamed.ino)
    found = await program.walk(f"{FLAT}/n/old.md")
    assert (await program.files.getattr(found.ino)).size == len(b"new.md")
    handle = await program.files.open(found.ino)
    assert await program.read(handle) == b"new.md"
    program.files.core.open_files.release(handle)


@pytest.mark.semantics("S33")
async def test_a_save_leaves_the_kernel_the_directory_that_programs_are_in(flat: Flat) -> None:
    """Without its entry, getcwd(2) fails in it."""
    source, program, world = flat
    source.template("test://n/{+path}")
    await program.save(f"{FLAT}/n/in/one.md", b"one")
    within = (await program.walk(f"{FLAT}/n")).ino
    world.told.clear()
    await program.save(f"{FLAT}/n/in/one.md", b"two")
    await program.save(f"{FLAT}/n/in/two.md", b"two")
    assert (within, b"in") not in world.told


@pytest.mark.semantics("S33.7")
@pytest.mark.parametrize(
    ("name", "kept"),
    [(".env.sample", True), ("sedentary", True), ("tmpfolder", True), ("tmp202401", True), (".a.2024-01", True),
     (".a.txt.x9KdkA", False), ("sedAb12Cd", False), ("tmpy8Kd3L", False)],
)  # fmt: skip
async def test_words_are_no_names_that_programs_make_at_random(tree: Tree, name: str, kept: bool) -> None:
    source, program, _ = tree
    await program.save(f"{TREE}/{name}", b"text")
    assert (f"file:./{name}" in source.contents) is kept


@pytest.mark.semantics("S33")
async def test_the_first_lookup_after_a_save_by_a_rename_finds_the_last_version(flat: Flat) -> None:
    """Emacs stats what it has saved by a descriptor, which the kernel does not try again after ESTALE."""
    _, program, _ = flat
    assert await program.cat(f"{FLAT}/a.txt") == b"first"
    await program.save(f"{FLAT}/.a.txt.tmp", b"changed")
    await program.rename(f"{FLAT}/.a.txt.tmp", f"{FLAT}/a.txt")
    found = await program.walk(f"{FLAT}/a.txt")
    assert (await program.files.getattr(found.ino)).size == len(b"changed")


@pytest.mark.semantics("S33.6")
@pytest.mark.parametrize("template", ["test://d/{name}", "test://d/{+path}"])
async def test_an_empty_directory_outlives_a_listing_where_a_template_makes_any_name(flat: Flat, template: str) -> None:
    source, program, world = flat
    source.template(template)
    await program.mkdir(f"{FLAT}/d/made")
    for _ in range(2):  # a listing, and one that began later
        world.clock.advance(3600)
        assert "made" in await program.ls(f"{FLAT}/d")
    assert (await program.stat(f"{FLAT}/d/made")).kind == "directory"
    await program.rmdir(f"{FLAT}/d/made")
    assert "made" not in await program.ls(f"{FLAT}/d")


@pytest.mark.semantics("S33")
async def test_a_save_leaves_the_kernel_a_directory_whose_listing_has_expired(tree: Tree) -> None:
    _, program, world = tree
    within = (await program.walk(TREE)).ino
    await program.stat(f"{TREE}/d/b.txt")
    handle = await program.begin(f"{TREE}/d/b.txt", os.O_RDWR, b"new")
    world.clock.advance(3600)
    world.told.clear()
    await program.close(handle)
    assert (within, b"d") not in world.told


@pytest.mark.semantics("S33")
async def test_the_kernel_keeps_the_directory_that_a_program_has_made(tree: Tree) -> None:
    """The program may be in it already: without its entry, getcwd(2) fails."""
    _, program, world = tree
    within = (await program.walk(TREE)).ino
    await program.mkdir(f"{TREE}/made")
    assert (within, b"made") not in world.told
    await program.rmdir(f"{TREE}/made")
    assert (within, b"made") in world.told


def sizes_in(world: World, handle: int) -> dict[bytes, int]:
    return {name: attributes.size for name, attributes, _ in world.files.readdir(handle, 0)}


@pytest.mark.semantics("S32", "S33")
async def test_names_read_from_an_open_directory_have_the_size_of_what_is_being_written(tree: Tree) -> None:
    """The kernel appends at the size that it was told last, and READDIR tells one too."""
    _, program, world = tree
    assert await program.cat(f"{TREE}/a.txt") == b"first"
    directory = await program.again(TREE, world.files.opendir)
    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_APPEND, b" and more", 5)
    assert sizes_in(world, directory)[b"a.txt"] == len(b"first and more")
    await program.close(handle)
    assert sizes_in(world, directory)[b"a.txt"] == len(b"first and more")


@pytest.mark.semantics("S32")
@pytest.mark.parametrize("later", [b"replaced by a longer content", None])
async def test_a_draft_that_has_ended_does_not_come_back_with_the_names_of_an_open_directory(
    tree: Tree, later: bytes | None
) -> None:
    """later: what replaces the file, which is removed if that is None."""
    source, program, world = tree
    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_APPEND, b" and more", 5)
    directory = await program.again(TREE, world.files.opendir)
    await program.close(handle)
    await (program.unlink(f"{TREE}/a.txt") if later is None else program.save(f"{TREE}/a.txt", later))
    assert sizes_in(world, directory).get(b"a.txt") == (None if later is None else len(later))
    assert not world.files.names.drafts
    assert source.contents.get("file:./a.txt") == later


@pytest.mark.semantics("S33")
async def test_an_open_of_a_name_that_is_gone_sends_the_kernel_to_look_again(tree: Tree) -> None:
    """After ENOENT, open(2) with O_CREAT fails; after ESTALE it creates the file."""
    source, program, world = tree
    found = await program.walk(f"{TREE}/a.txt")
    del source.contents["file:./a.txt"]
    world.manager.refresh(())
    with pytest.raises(Outdated):
        await program.writes.open_to_write(found.ino, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


@pytest.mark.semantics("S33")
async def test_a_removed_name_does_not_come_back_with_the_names_of_an_open_directory(tree: Tree) -> None:
    """The kernel would take it for a file that was made, and open(2) with O_CREAT would not create one."""
    _, program, world = tree
    found = await program.walk(f"{TREE}/a.txt")
    directory = await program.again(TREE, world.files.opendir)
    await program.unlink(f"{TREE}/a.txt")
    assert set(sizes_in(world, directory)) == {b".", b"..", b"d"}
    with pytest.raises(Outdated):
        await world.files.getattr(found.ino)


@pytest.mark.semantics("S32", "S33")
async def test_what_is_appended_comes_at_the_end_whatever_size_the_kernel_has(tree: Tree) -> None:
    """Of a file whose size only a load tells, the kernel was told 0."""
    source, program, _ = tree
    before = (await program.walk(f"{TREE}/a.txt")).ino
    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_APPEND, b" and more")
    await program.writes.write(handle, 14, b" at the end")
    await program.close(handle)
    assert source.contents["file:./a.txt"] == b"first and more at the end"
    assert (await program.walk(f"{TREE}/a.txt")).ino != before, "the kernel's pages have it at the beginning"
    assert await program.cat(f"{TREE}/a.txt") == b"first and more at the end"


@pytest.mark.semantics("S21")
@pytest.mark.parametrize("seconds", [1, 3600])
async def test_a_name_that_the_mount_has_removed_is_asked_for_again(tree: Tree, seconds: int) -> None:
    """After a refresh, or when a listing of that time would have expired: also where no program lists the directory."""
    source, program, world = tree
    await program.unlink(f"{TREE}/a.txt")
    source.contents["file:./a.txt"] = b"of somebody else"
    with pytest.raises(NotFound):
        await program.cat(f"{TREE}/a.txt")
    world.clock.advance(seconds)
    if seconds == 1:
        world.core.refresh((TREE,))
    assert await program.cat(f"{TREE}/a.txt") == b"of somebody else"


@pytest.mark.semantics("S21")
@pytest.mark.parametrize("path", [(), (TREE,), (TREE, "new.txt")])
async def test_what_the_mount_has_written_is_asked_for_after_a_refresh(tree: Tree, path: tuple[str, ...]) -> None:
    source, program, world = tree
    await program.save(f"{TREE}/new.txt", b"of the mount")
    source.contents["file:./new.txt"] = b"of somebody else"
    assert await program.cat(f"{TREE}/new.txt") == b"of the mount"
    world.clock.advance(1)
    world.core.refresh(path)
    assert await program.cat(f"{TREE}/new.txt") == b"of somebody else"
    await program.save(f"{TREE}/new.txt", b"of the mount")
    del source.contents["file:./new.txt"]
    world.clock.advance(1)
    world.core.refresh(path)
    with pytest.raises(NotFound):
        await program.walk(f"{TREE}/new.txt")


@pytest.mark.semantics("S20", "S21")
async def test_a_refresh_brings_back_nothing_from_before_a_change_while_the_source_is_down(tree: Tree) -> None:
    source, program, world = tree
    assert await program.ls(TREE) == ["a.txt", "d"]
    await program.unlink(f"{TREE}/a.txt")
    await program.save(f"{TREE}/new.txt", b"new")
    source.down = Unreachable("down")
    world.clock.advance(1)
    world.core.refresh((TREE,))
    with pytest.raises(NotFound):
        await program.walk(f"{TREE}/a.txt")
    assert (await program.walk(f"{TREE}/new.txt")).kind == "file"


@pytest.mark.semantics("S32.11")
async def test_two_saves_at_the_same_time_do_not_replace_each_other_where_a_source_cannot_compare(
    flat: Flat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would find the content that they began with, just before they store theirs."""
    source, program, world = flat
    monkeypatch.setattr(source, "check", lambda *_: None)
    first = await program.begin(f"{FLAT}/a.txt", os.O_WRONLY, b"of the first")
    source.refused["test://a.txt"] = Denied("not now")
    second = await program.begin(f"{FLAT}/a.txt", os.O_WRONLY)
    with pytest.raises(Denied):
        await program.close(second)  # from now on the name leads to what the source has
    del source.refused["test://a.txt"]
    other = await program.begin(f"{FLAT}/a.txt", os.O_WRONLY, b"of the other")
    source.released = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(program.close, other)
        await until(lambda: len(source.written) == 2)
        nursery.start_soon(closed_in_conflict, program, first)
        await settled()
        source.released.set()
    assert source.contents["test://a.txt"] == b"of the other"
    pending = world.manager.writer.pending
    [item] = [each for each in pending.items() if each.error and "Conflict" in each.error]
    assert pending.content_path(item).read_bytes() == b"of the first"


@dataclass
class LateFlat(WritableFlat):
    """A source that does what it was asked for a while after the request was given up."""

    source: DataSource = field(
        default_factory=lambda: replace(writable("mcp-server+docs"), policy=Policy(timeout=0.5, content_ttl=1000.0))
    )
    nursery: trio.Nursery | None = None

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        if self.nursery is None:
            return await super().write(native_uri, content, expected)
        nursery, self.nursery = self.nursery, None

        async def land() -> None:
            await trio.sleep(0.1)
            self.contents[native_uri] = await content.read_waiting(0, content.size)

        try:
            await trio.sleep_forever()
        finally:
            nursery.start_soon(land)
        raise AssertionError


@pytest.mark.semantics("S32.11")
async def test_a_request_that_was_given_up_replaces_no_later_save(nursery: trio.Nursery) -> None:
    source = LateFlat()
    source.contents = {"test://a.txt": b"first"}
    async with program_on(source) as (program, _):
        source.nursery = nursery
        with pytest.raises(DeadlineExceeded):
            await program.save(f"{FLAT}/a.txt", b"late")
        await program.save(f"{FLAT}/a.txt", b"later")
        await trio.sleep(0.2)
        assert source.contents["test://a.txt"] == b"later"


@pytest.mark.semantics("S7.2", "S13")
async def test_a_file_that_is_written_has_one_inode(tree: Tree) -> None:
    """The kernel keeps pages for each inode, and a write changes those of one."""
    source, program, world = tree
    before = (await program.walk(f"{TREE}/a.txt")).ino
    reader = await program.open(f"{TREE}/a.txt")
    source.contents["file:./a.txt"] = b"of somebody else"
    world.clock.advance(3600)
    handle = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_APPEND)
    written = world.core.handles[handle].ino
    assert written != before
    for flags in (os.O_WRONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_TRUNC):  # by a name that is held from before
        with pytest.raises(Outdated):
            await program.writes.open_to_write(before, flags)
    with pytest.raises(Outdated):
        await world.files.open(before)
    assert (await program.walk(f"{TREE}/a.txt")).ino == written
    assert await program.read(reader) == b"first"
    for each in (handle, reader):
        await program.close(each)
    assert source.contents["file:./a.txt"] == b"of somebody else"


@pytest.mark.semantics("S7.2", "S13")
async def test_no_inode_that_stands_in_for_another_one_leads_to_what_is_written(flat: Flat) -> None:
    _, program, world = flat
    reader = await program.open(f"{FLAT}/a.txt")
    before = (await program.walk(f"{FLAT}/a.txt")).ino
    world.clock.advance(3600)
    standing_in = (await program.walk(f"{FLAT}/a.txt")).ino
    assert standing_in != before
    handle = await program.writes.open_to_write(standing_in, os.O_WRONLY)
    await program.writes.write(handle, 0, b"FIRST, and more")
    world.core.open_files.release(reader)
    for request in (world.files.getattr, world.files.open):
        with pytest.raises(Outdated):
            await request(before)
    assert await program.cat(f"{FLAT}/a.txt") == b"FIRST, and more"
    await program.close(handle)


@pytest.mark.semantics("S32")
async def test_the_kernel_keeps_no_bytes_of_what_is_appended_to_a_file_of_unknown_size(flat: Flat) -> None:
    source, program, world = flat
    source.described["test://d/b.txt"] = {"size": 6}
    for name, is_known in (("a.txt", False), ("d/b.txt", True)):
        handle = await program.begin(f"{FLAT}/{name}", os.O_WRONLY | os.O_APPEND)
        reader = await program.open(f"{FLAT}/{name}")
        assert (handle in world.core.open_files.uncached) is not is_known
        assert (reader in world.core.open_files.uncached) is not is_known
        await program.writes.write(handle, 0, b"x")  # where the kernel does not have the end
        later = await program.open(f"{FLAT}/{name}")
        assert later in world.core.open_files.uncached
        for each in (handle, reader, later):
            await program.close(each)


@pytest.mark.semantics("S33")
@pytest.mark.parametrize("flags", [os.O_TRUNC, os.O_APPEND, 0])
async def test_a_file_that_somebody_else_has_removed_can_be_created(flat: Flat, flags: int) -> None:
    """The listing still has it: a load tells."""
    source, program, world = flat
    assert await program.ls(FLAT) == ["a.txt", "d"]
    del source.contents["test://a.txt"]
    with pytest.raises(Outdated):  # the kernel looks the name up again, and creates the file
        await world.files.getattr((await program.walk(f"{FLAT}/a.txt")).ino)
    await program.save(f"{FLAT}/a.txt", b"of the mount", flags)
    assert source.contents["test://a.txt"] == b"of the mount"
    assert await program.cat(f"{FLAT}/a.txt") == b"of the mount"


@pytest.mark.semantics("S33")
async def test_a_file_whose_open_tells_that_it_is_gone_is_created(flat: Flat) -> None:
    source, program, world = flat
    assert await program.cat(f"{FLAT}/a.txt") == b"first"
    world.clock.advance(20)  # the content has expired, and the listing has not
    found = await program.walk(f"{FLAT}/a.txt")
    del source.contents["test://a.txt"]
    with pytest.raises(Outdated):
        await program.writes.open_to_write(found.ino, os.O_WRONLY | os.O_APPEND)
    with pytest.raises(NotFound):
        await program.walk(f"{FLAT}/a.txt")
    source.contents["test://a.txt"] = b"of somebody else"
    world.clock.advance(1)
    world.core.refresh((FLAT.split("/")[0],))
    await settled()
    assert await program.cat(f"{FLAT}/a.txt") == b"of somebody else"


@pytest.mark.semantics("S33")
async def test_an_absence_from_before_a_change_of_the_mount_is_asked_for_again(tree: Tree) -> None:
    source, program, world = tree
    await program.ls(TREE)
    record, node = program.record(f"{TREE}/a.txt"), await world.manager.tree.find((TREE, "a.txt"))
    record.invalidate()
    overlay = world.manager.roots.of(record).overlay
    assert overlay is not None
    stat, gone = source.stat, source.contents.pop("file:./a.txt")

    async def stated(native_uri: str) -> ResourceMetadata:
        if len(source.stated) == before + 1:
            return await stat(native_uri)
        with pytest.raises(NotFound):
            await stat(native_uri)
        world.clock.advance(1)
        source.contents[native_uri] = gone
        overlay.put(("a.txt",), node, stored=True)  # as after a save, or one that gives a name back
        raise NotFound(native_uri)

    before = len(source.stated)
    source.stat = stated
    await world.manager.contents.learn(record)
    assert await program.cat(f"{TREE}/a.txt") == gone


@pytest.mark.semantics("S33")
async def test_a_renamed_file_is_not_opened_by_an_inode_of_another_size(tree: Tree) -> None:
    """Somebody else has changed it since its name was looked up, and no program has read it yet."""
    source, program, world = tree
    listed = source.list_directory

    async def sized(path: tuple[str, ...]) -> Listing:
        listing = await listed(path)
        return replace(listing, resources=tuple(replace(each, size=5, etag=None) for each in listing.resources))

    metadata = source.metadata
    source.list_directory = sized  # type: ignore[method-assign]
    source.told = lambda uri: replace(metadata(uri), size=len(source.contents[uri]), etag=None)  # type: ignore[method-assign]
    found = await program.walk(f"{TREE}/a.txt")
    assert found.size == len(b"first")
    source.contents["file:./a.txt"] = b"longer than before"
    await program.rename(f"{TREE}/a.txt", f"{TREE}/b.txt")
    with pytest.raises(Outdated):
        await world.files.open(found.ino)
    assert await program.cat(f"{TREE}/b.txt") == b"longer than before"


@pytest.mark.semantics("S33")
async def test_a_file_that_comes_back_while_its_load_tells_that_it_is_gone_is_looked_up_again(flat: Flat) -> None:
    """Its name is there, so an open(2) with O_CREAT must not fail by ENOENT."""
    source, program, world = flat
    await program.ls(FLAT)
    found = await program.walk(f"{FLAT}/a.txt")
    path = tuple(f"{FLAT}/a.txt".split("/"))
    node = await world.manager.tree.find(path)
    overlay = world.manager.roots.of(program.record(f"{FLAT}/a.txt")).overlay
    assert overlay is not None

    async def load(native_uri: str) -> Loaded:
        overlay.put(path[1:], node, stored=True)  # another program has saved it
        raise NotFound(native_uri)

    source.load = load
    with pytest.raises(Outdated):
        await world.files.getattr(found.ino)


@pytest.mark.semantics("S33")
async def test_a_file_of_a_listed_directory_that_somebody_else_has_removed_can_be_created(tree: Tree) -> None:
    source, program, world = tree
    assert await program.cat(f"{TREE}/a.txt") == b"first"
    program.record(f"{TREE}/a.txt").invalidate()  # as after a save that the source did not take
    found = await program.walk(f"{TREE}/a.txt")
    del source.contents["file:./a.txt"]
    with pytest.raises(Outdated):
        await world.files.getattr(found.ino)
    with pytest.raises(NotFound):
        await program.walk(f"{TREE}/a.txt")
    await program.save(f"{TREE}/a.txt", b"of the mount")
    assert source.contents["file:./a.txt"] == b"of the mount"


@pytest.mark.semantics("S32.17")
async def test_a_file_that_was_opened_before_shows_what_a_program_writes(tree: Tree) -> None:
    """The kernel has one set of pages and one size for both: it would show zeros in place of what is appended."""
    _, program, world = tree
    assert await program.cat(f"{TREE}/a.txt") == b"first"
    reader = await program.open(f"{TREE}/a.txt")
    writer = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_APPEND)
    assert await program.files.read(reader, 0, 100) == b"first"
    await program.writes.write(writer, 5, b", second")
    assert await program.files.read(reader, 0, 100) == b"first, second"
    await program.close(writer)
    assert await program.files.read(reader, 0, 100) == b"first, second"  # some of it from the kernel's pages
    assert (await world.files.getattr(world.core.handles[reader].ino)).size == len("first, second")
    world.core.open_files.release(reader)


@pytest.mark.semantics("S32.17")
async def test_a_read_beside_the_first_write_waits_for_the_content_that_this_changes(tree: Tree) -> None:
    """The kernel may have dropped the page with the written bytes, and keeps the one that a read answers."""
    _, program, world = tree
    assert await program.cat(f"{TREE}/a.txt") == b"first"
    reader = await program.open(f"{TREE}/a.txt")
    writer = await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_APPEND)
    draft = world.core.handles[writer].draft
    assert draft is not None
    load, gate, read = draft.load, trio.Event(), []

    async def held(record: Record) -> Content:
        await gate.wait()
        return await load(record)

    async def reads() -> None:
        read.append(await program.files.read(reader, 0, 100))

    draft.load = held
    async with trio.open_nursery() as nursery:
        nursery.start_soon(program.writes.write, writer, 5, b", second")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(reads)
        await trio.testing.wait_all_tasks_blocked()
        assert read == []
        gate.set()
    assert read == [b"first, second"]
    await program.close(writer)
    world.core.open_files.release(reader)


@pytest.mark.semantics("S32.17")
async def test_a_file_that_was_opened_before_shows_what_is_written_after_a_refused_close(tree: Tree) -> None:
    source, program, world = tree
    assert await program.cat(f"{TREE}/a.txt") == b"first"
    reader = await program.open(f"{TREE}/a.txt")
    one, other = [await program.begin(f"{TREE}/a.txt", os.O_WRONLY | os.O_APPEND) for _ in range(2)]
    await program.writes.write(one, 5, b", one")
    source.refused["file:./a.txt"] = Unreachable("down")
    with pytest.raises(Unreachable):
        await program.close(one)
    await program.writes.write(other, 10, b", other")
    assert await program.files.read(reader, 0, 100) == b"first, one, other"
    with pytest.raises(Unreachable):
        await program.close(other)
    assert await program.files.read(reader, 0, 100) == b"first, one, other"
    assert await program.cat(f"{TREE}/a.txt") == b"first"
    world.core.open_files.release(reader)
