"""Large files that programs close under names that they do not keep, and rename (S32)."""

import os
from collections.abc import AsyncIterator

import pytest
import trio
from fakes import World, settled, until
from writable import Program, StagingTree, program_on

from bbfs.model.errors import BbfsError, Conflict, NoSpace, Unreachable
from bbfs.resources.writing.temporary import is_temporary, is_unfinished
from bbfs.vfs.writing.drafts import STAGED_FROM

pytestmark = pytest.mark.semantics("S32")
TREE = "bb-scripted+tree+file"
URI = "file:./a.txt"
LARGE, OTHER = os.urandom(STAGED_FROM + 1), os.urandom(STAGED_FROM + 2)


@pytest.fixture
async def tree() -> AsyncIterator[tuple[StagingTree, Program, World]]:
    source = StagingTree(contents={URI: b"first", "file:./d/b.txt": b"second"})
    async with program_on(source, memory=64 << 20) as (program, world):
        yield source, program, world


Tree = tuple[StagingTree, Program, World]


@pytest.mark.parametrize("name", ["a.txt", "new.txt"])
@pytest.mark.semantics("S33.8")
async def test_the_source_has_the_bytes_before_the_rename(tree: Tree, name: str) -> None:
    source, program, world = tree
    await program.save(f"{TREE}/a.txt.tmp", LARGE)
    assert [*source.places.values()] == [LARGE]
    assert source.contents[URI] == b"first"
    await program.rename(f"{TREE}/a.txt.tmp", f"{TREE}/{name}")
    assert source.contents[f"file:./{name}"] == LARGE
    assert await program.cat(f"{TREE}/{name}") == LARGE
    assert (source.asked, source.written, source.places) == (["stage", "write_staged"], [], {})
    assert [*world.manager.writer.pending.items()] == []


@pytest.mark.parametrize(("name", "data"), [("a.tmp", LARGE[:-1]), (".a.swp", LARGE), ("a.txt~", LARGE)])
async def test_what_is_small_or_never_renamed_is_not_staged(tree: Tree, name: str, data: bytes) -> None:
    source, program, _ = tree
    await program.save(f"{TREE}/{name}", data)
    await program.rename(f"{TREE}/{name}", f"{TREE}/a.txt")
    assert (source.contents[URI], source.asked, source.written) == (data, [], [URI])


async def test_a_file_that_is_changed_again_is_sent_as_it_is_then(tree: Tree) -> None:
    source, program, _ = tree
    await program.save(f"{TREE}/a.tmp", LARGE)
    handle = await program.begin(f"{TREE}/a.tmp", os.O_WRONLY | os.O_APPEND)
    await program.writes.write(handle, len(LARGE), b"more")
    await program.rename(f"{TREE}/a.tmp", f"{TREE}/a.txt")
    assert (source.contents[URI], source.written) == (LARGE + b"more", [URI])
    await until(lambda: not source.places)
    await program.close(handle)
    await program.save(f"{TREE}/b.tmp", LARGE)
    await program.append(f"{TREE}/b.tmp", b"more")
    assert (source.asked, source.places) == (["stage", "unstage"] * 2, {})
    await program.rename(f"{TREE}/b.tmp", f"{TREE}/a.txt")
    assert (source.contents[URI], source.written) == (LARGE + b"more", [URI, URI])


@pytest.mark.semantics("S33.9")
async def test_nothing_is_left_of_a_file_that_is_removed_or_replaced(tree: Tree) -> None:
    source, program, _ = tree
    await program.save(f"{TREE}/a.tmp", LARGE)
    await program.unlink(f"{TREE}/a.tmp")
    assert source.places == {}
    await program.save(f"{TREE}/a.tmp", LARGE)
    await program.save(f"{TREE}/b.tmp", OTHER)
    await program.rename(f"{TREE}/a.tmp", f"{TREE}/b.tmp")
    await until(lambda: [*source.places.values()] == [LARGE])
    await program.rename(f"{TREE}/b.tmp", f"{TREE}/a.txt")
    assert (source.contents[URI], source.places, source.written) == (LARGE, {}, [])


async def test_nothing_is_left_in_a_directory_that_a_file_or_itself_leaves(tree: Tree) -> None:
    source, program, _ = tree
    await program.save(f"{TREE}/d/a.tmp", LARGE)
    await program.rename(f"{TREE}/d/a.tmp", f"{TREE}/a.tmp")
    await until(lambda: not source.places)
    await program.save(f"{TREE}/d/b.tmp", LARGE)
    await program.rename(f"{TREE}/d", f"{TREE}/e")
    assert source.places == {}
    await program.rename(f"{TREE}/e/b.tmp", f"{TREE}/e/c.txt")
    await program.rename(f"{TREE}/a.tmp", f"{TREE}/a.txt")
    assert source.contents[URI] == source.contents["file:./e/c.txt"] == LARGE


async def test_a_source_that_stages_nothing_costs_the_close_no_error(tree: Tree) -> None:
    source, program, _ = tree
    source.stage_error = NoSpace("full")
    await program.save(f"{TREE}/a.tmp", LARGE)
    await program.rename(f"{TREE}/a.tmp", f"{TREE}/a.txt")
    assert (source.contents[URI], source.asked, source.written) == (LARGE, ["stage"], [URI])


@pytest.mark.parametrize("error", [Conflict("theirs"), Unreachable("down")])
async def test_a_rename_that_fails_leaves_a_pending_write_alone(tree: Tree, error: BbfsError) -> None:
    source, program, _ = tree
    assert await program.cat(f"{TREE}/a.txt") == b"first"
    await program.save(f"{TREE}/a.tmp", LARGE)
    if isinstance(error, Conflict):
        source.contents[URI] = b"theirs"
    else:
        source.refused[URI] = error
    with pytest.raises(type(error)):
        await program.rename(f"{TREE}/a.tmp", f"{TREE}/a.txt")
    await until(lambda: not source.places)
    assert program.kept() == [LARGE]


async def test_a_rename_waits_for_what_is_being_staged_and_a_removal_does_not(tree: Tree) -> None:
    source, program, _ = tree
    for to, left in ((f"{TREE}/a.txt", LARGE), (None, b"first")):
        source.contents[URI], source.staging, source.takes = b"first", trio.Event(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(program.save, f"{TREE}/a.tmp", LARGE)
            await source.takes.wait()
            if to is not None:
                nursery.start_soon(program.rename, f"{TREE}/a.tmp", to)
                await settled()
                assert source.contents[URI] == b"first"
            else:
                await program.unlink(f"{TREE}/a.tmp")
            source.staging.set()
        await until(lambda: not source.places)
        assert (source.contents[URI], source.written) == (left, [])


async def test_the_end_of_the_mount_leaves_nothing_at_the_source(tree: Tree) -> None:
    source, program, _ = tree
    await program.save(f"{TREE}/a.part", LARGE)
    assert len(source.places) == 1
    await program.files.core.drafts.keep_left()
    assert source.places == {}
    assert program.kept() == [LARGE]


@pytest.mark.parametrize(
    "name", [".a.txt.Xy12Ab", "a.tmp", ".tmp-bbfs-0123", "a.part", ".goutputstream-X", "sedA1b2c3"]
)
def test_names_that_are_renamed_are_temporary_ones(name: str) -> None:
    assert is_unfinished(name)
    assert is_temporary(name)
