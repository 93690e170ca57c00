"""Lookups in a source that has not listed yet: they wait for a moment and answer provisionally."""

import gc
import os
import weakref
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest
import trio
import trio.testing
from fakes import CompletingSource, FlatSource, TreeSource, World, data_source, settled
from writable import Program, WritableFlat, WritableTree

from bbfs.model.errors import DeadlineExceeded, Exists, NotADirectory, NotFound, Outdated, Unreachable
from bbfs.resources.catalog.record import ROOT
from bbfs.vfs.file_handles import Attributes
from bbfs.vfs.names import LOOKUP_WAIT, Ended, Wait, after, answered

DOCS = "mcp-server+docs"
pytestmark = [pytest.mark.semantics("S22.2")]


async def took(request: Callable[..., Awaitable[Any]], *arguments: Any) -> tuple[Any, float]:
    """Return the answer of a request, or its error, and the seconds that it took."""
    began = trio.current_time()
    try:
        answer = await request(*arguments)
    except (NotFound, Outdated, DeadlineExceeded, Unreachable, NotADirectory) as error:
        answer = type(error)
    return answer, round(trio.current_time() - began, 3)


async def look_up(world: World, path: str) -> Attributes:
    """LOOKUP of each name, and nothing else."""
    found = Attributes(ROOT, "directory", 0, 0, 0.0, 0.0)
    for name in path.split("/"):
        found = await world.files.lookup(found.ino, name.encode())
    return found


async def test_a_lookup_waits_for_a_moment_and_the_requests_after_it_to_the_end(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    source = FlatSource(data_source(timeout=10.0), contents={"x://d/a": b"1"})
    async with World(nursery, source) as world:
        source.hold(source.LISTING)
        for name in ("x", "no-such"):
            found, seconds = await took(look_up, world, f"{DOCS}/{name}")
            assert seconds <= LOOKUP_WAIT
            assert (found.kind, found.entry_timeout, found.attr_timeout) == ("directory", 0.0, 0.0)
        assert await took(world.files.getattr, found.ino) == (DeadlineExceeded, 10.0 - 2 * LOOKUP_WAIT)
        assert source.listed == [()]
        await settled()
        assert await took(world.files.opendir, found.ino) == (DeadlineExceeded, 10.0)
        await settled()
        source.release(source.LISTING)
        assert await took(world.files.getattr, found.ino) == (NotFound, 0.0)
        assert (await look_up(world, f"{DOCS}/no-such")).ino == 0
        assert (await look_up(world, f"{DOCS}/x")).entry_timeout > 0


async def test_a_provisional_directory_gives_way_to_what_the_source_has(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    source = FlatSource(contents={"x://d/a": b"12345"})
    async with World(nursery, source) as world:
        gate = source.hold(source.LISTING)
        directory = await look_up(world, f"{DOCS}/x")
        file = await look_up(world, f"{DOCS}/x/d/a")
        gate.set()
        assert (await world.files.getattr(directory.ino)).kind == "directory"
        assert (await look_up(world, f"{DOCS}/x")).ino == directory.ino
        with pytest.raises(Outdated):
            await world.files.getattr(file.ino)
        with pytest.raises(Outdated):
            await world.files.opendir(file.ino)
        found = await look_up(world, f"{DOCS}/x/d/a")
        assert (found.kind, found.ino == file.ino) == ("file", False)
        assert await world.kernel.cat(f"{DOCS}/x/d/a") == b"12345"


async def test_the_first_use_of_a_slow_source_is_as_any(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    source = FlatSource(contents={"x://d/a": b"12345"})
    async with World(nursery, source) as world:
        gate = source.hold(source.LISTING)

        async def answer() -> None:
            await trio.sleep(5.0)
            gate.set()

        nursery.start_soon(answer)
        assert await took(world.kernel.cat, f"{DOCS}/x/d/a") == (b"12345", 5.0)
        assert source.listed == [()]


async def test_an_error_that_comes_soon_is_the_answer(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    async with World(nursery, FlatSource(down=Unreachable("gone"))) as world:
        assert await took(look_up, world, f"{DOCS}/x") == (Unreachable, 0.0)


async def test_a_directory_that_takes_long_each_time_is_walked_by_its_last_listing(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Without that, the lookup after ESTALE would be provisional again, and the kernel tries no third time."""
    source = TreeSource(data_source("bb-scripted+tree+file", listing_ttl=0.0), contents={"file:./d/a": b"12345"})
    source.links = {"file:./d/l": "a"}
    async with World(nursery, source) as world:
        root = "bb-scripted+tree+file/"

        async def slow() -> None:
            while True:
                gate = source.hold(source.LISTING)
                await trio.sleep(2.0)
                gate.set()

        nursery.start_soon(slow)
        first = await look_up(world, root + "d/a")
        assert first.kind == "directory"
        with pytest.raises(Outdated):
            await world.files.getattr(first.ino)
        again, seconds = await took(look_up, world, root + "d/a")
        assert (again.kind, again.entry_timeout, again.attr_timeout) == ("file", 0.0, 0.0)
        assert seconds <= 2 * LOOKUP_WAIT
        assert (await world.files.getattr(again.ino)).size == 5
        assert (await look_up(world, root + "d/l")).kind == "symlink"
        handle = await world.files.open(again.ino)
        assert await world.kernel.read(handle) == b"12345"
        world.files.release(handle)
        nursery.cancel_scope.cancel()


async def test_a_name_of_a_template_in_a_stale_listing_stays_provisional(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    source = CompletingSource(
        data_source(listing_ttl=1.0, max_stale=0.0), contents={"x://d/listed": b"1"}, unlisted={"x://d/there"}
    )
    source.contents["x://d/there"] = b"123"
    source.template("x://d/{name}")
    async with World(nursery, source) as world:
        assert await world.kernel.cat(f"{DOCS}/x/d/there") == b"123"
        world.clock.advance(500.0)
        gate = source.hold(source.LISTING)
        found = await look_up(world, f"{DOCS}/x/d/there")
        assert (found.kind, found.entry_timeout, found.attr_timeout) == ("file", 0.0, 0.0)
        gate.set()
        await settled()
        assert (await world.files.getattr(found.ino)).size == 3


async def test_a_directory_is_made_in_a_slow_source(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """A lookup that shows a directory until the source answers would have the kernel say EEXIST."""
    source = WritableTree(contents={"file:./old.txt": b"old"})
    async with World(nursery, source) as world:
        root = "bb-scripted+tree+file"
        for name, error in (("new", None), ("old.txt", Exists)):
            world.core.refresh((root,))
            nursery.start_soon(_set_later, source.hold(source.LISTING))
            with pytest.raises(error) if error is not None else nullcontext():
                await Program(world).mkdir(f"{root}/{name}")
        assert (await world.kernel.stat(f"{root}/new")).kind == "directory"
        nursery.cancel_scope.cancel()


async def _set_later(gate: trio.Event) -> None:
    await trio.sleep(3 * LOOKUP_WAIT)
    gate.set()


@pytest.mark.parametrize("name", ["new.txt", "old.txt"])
@pytest.mark.parametrize("kind", [WritableTree, WritableFlat])
async def test_a_file_is_created_in_a_slow_source(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    kind: type[WritableTree | WritableFlat],
    name: str,
) -> None:
    source = kind()
    root, start = f"{DOCS}/test/", "test://"
    if isinstance(source, WritableTree):
        root, start = "bb-scripted+tree+file/", source.start
    else:
        source.template("test://n/{+path}")
    source.contents = {f"{start}n/old.txt": b"old"}
    async with World(nursery, source) as world:
        nursery.start_soon(_set_later, source.hold(source.LISTING))
        program = Program(world)
        await program.begin(f"{root}n/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, b"new")
        assert await program.cat(f"{root}n/{name}") == b"new"
        nursery.cancel_scope.cancel()


async def test_an_error_keeps_nothing_of_what_its_request_held() -> None:
    class Listing:
        pass

    held: list[weakref.ref[Listing]] = []

    async def request() -> None:
        listing = Listing()
        held.append(weakref.ref(listing))
        raise NotFound("x")

    def ask(ended: Ended = ()) -> Wait | None:
        return after(ended, request)

    gc.disable()
    try:
        with suppress(NotFound):
            await answered(ask(), ask)
            pytest.fail("no error")
        assert held[0]() is None, "only the garbage collector frees it"
    finally:
        gc.enable()
