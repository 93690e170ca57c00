"""What is told of changes: to those who hold a file open, and to those who watch a path; and what a refresh drops."""

import select
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pyfuse3
import pytest
import trio
import trio.testing
from fakes import STARTED, Clock, FlatSource, TreeSource, World, data_source, settled, several, uris
from mcp.shared.subscriptions import ResourceUpdated

from bbfs.fuse.adapter import Operations
from bbfs.fuse.backings.attributes import CHANGED, READY, Ownership
from bbfs.fuse.waiting_programs import Interrupts
from bbfs.model.errors import BbfsError, NotFound, NotSupported, Outdated, Unreachable
from bbfs.model.values import Change
from bbfs.resources.catalog.folding import TOLD_APART, ChangedPaths
from bbfs.resources.catalog.record import Path
from bbfs.resources.watch import Watch
from bbfs.resources.watch.source import FOLLOWED, RETRY_EVERY
from bbfs.runtime.changes import Bus
from bbfs.server.following import Following

DOCS = "mcp-server+docs/x/"
TREE = "bb-scripted+tree+file/"
NOBODY = cast(pyfuse3.RequestContext, None)


class TrioTime(Clock):
    """The wall clock, going as trio's does."""

    def __call__(self) -> float:
        return STARTED + trio.current_time()


@dataclass
class Announcing(FlatSource):
    """A source that tells what changes: its listing, and the resources that somebody is interested in."""

    telling: bool = True

    def announces(self, native_uri: str | None) -> bool:
        return self.telling and (native_uri is None or native_uri in self.watched)

    async def confirmed(self) -> None:
        await trio.lowlevel.checkpoint()

    @property
    def requests(self) -> int:
        return len(self.loaded) + len(self.listed)


def flat(kind: type[FlatSource] = FlatSource, **contents: Any) -> Any:
    return kind(contents={f"x://{name}": data for name, data in contents.items()})


def tree(**contents: bytes) -> TreeSource:
    return TreeSource(contents={f"file:./{name.replace('__', '/')}": data for name, data in contents.items()})


# -- open files --------------------------------------------------------------------------------------------------------


async def watched(world: World, path: str) -> tuple[int, list[int]]:
    """A handle on a file, and a list that grows when it is told of a change."""
    handle, woken = await world.kernel.open(path), []
    world.files.watch_handle(handle, lambda: woken.append(handle))
    return handle, woken


@pytest.mark.semantics("S18.2", "S18.6")
@pytest.mark.parametrize("polls_before", [True, False])
async def test_a_change_between_the_read_and_the_subscription_wakes_who_polls(
    nursery: trio.Nursery, polls_before: bool
) -> None:
    source = flat(Announcing, a=b"old", b=b"other")
    async with World(nursery, source) as world:
        handles, woken = [await world.kernel.open(DOCS + name) for name in "ab"], []

        def poll() -> None:
            for handle in handles:
                world.files.watch_handle(handle, lambda handle=handle: woken.append(handle))

        if polls_before:
            poll()
        source.contents["x://a"] = b"new"
        world.clock.advance(2)
        for uri in ("x://a", "x://b"):
            source.announce(uri, missed=True)
        await settled()
        if not polls_before:
            assert len(source.loaded) == 2
            poll()
            await settled()
        assert woken == handles[:1]
        assert world.files.changed(handles[0])
        assert len(source.loaded) == 4
        poll()
        await settled()
        assert len(source.loaded) == 4


@pytest.mark.semantics("S13", "S18")
async def test_an_announced_change_is_told_at_once_and_costs_no_request(nursery: trio.Nursery) -> None:
    source = flat(Announcing, a=b"old", b=b"other")
    async with World(nursery, source) as world:
        handle, woken = await watched(world, DOCS + "a")
        _, not_woken = await watched(world, DOCS + "b")
        before = source.requests
        source.contents["x://a"] = b"new"
        source.announce("x://a")
        assert woken == [handle]
        assert world.files.changed(handle)
        source.announce("x://a")
        await settled()
        assert (woken, not_woken, source.requests) == ([handle], [], before)
        assert await world.kernel.read(handle) == b"old"
        again, quiet = await watched(world, DOCS + "a")
        assert not world.files.changed(again)
        assert await world.kernel.read(again) == b"new"
        assert quiet == []


@pytest.mark.semantics("S18")
async def test_it_is_told_although_the_kernel_has_forgotten_the_name(nursery: trio.Nursery) -> None:
    source = flat(a=b"old")
    async with World(nursery, source) as world:
        _, woken = await watched(world, DOCS + "a")
        for ino, references in list(world.kernel.references.items()):
            world.files.forget(ino, references)
        source.announce("x://a")
        assert len(woken) == 1


@pytest.mark.semantics("S18")
async def test_a_change_that_another_reader_finds_is_told(nursery: trio.Nursery) -> None:
    source = flat(a=b"old", b=b"same")
    async with World(nursery, source) as world:
        _, woken = await watched(world, DOCS + "a")
        _, not_woken = await watched(world, DOCS + "b")
        source.contents["x://a"] = b"new"
        world.clock.advance(11)
        for name in "ab":
            await world.kernel.cat(DOCS + name)
        assert (len(woken), len(not_woken)) == (1, 0)


@pytest.mark.semantics("S18")
async def test_a_resource_that_goes_is_told(nursery: trio.Nursery) -> None:
    source = flat(a=b"1", b=b"2", c=b"3")
    async with World(nursery, source) as world:
        told = {name: (await watched(world, DOCS + name))[1] for name in "abc"}
        world.clock.advance(11)
        del source.contents["x://a"]
        source.announce()
        await settled()
        assert [len(woken) for woken in told.values()] == [1, 0, 0]
        assert len(source.loaded) == 3, "they are told without a load"
        source.unlisted.add("x://none")
        source.contents["x://b"] = NotFound("gone, though it is listed")
        world.clock.advance(11)
        with pytest.raises(NotFound):
            await world.kernel.cat(DOCS + "b")
        assert [len(woken) for woken in told.values()] == [1, 1, 0]


@pytest.mark.semantics("S18")
async def test_the_contents_of_a_resource_of_several_are_told_of_by_themselves(nursery: trio.Nursery) -> None:
    source = flat(q=several(("x://q/one", b"1"), ("x://q/two", b"2")))
    async with World(nursery, source) as world:
        await world.kernel.stat(DOCS + "q")
        told = {name: (await watched(world, f"{DOCS}q/{name}"))[1] for name in ("one", "two")}
        source.contents["x://q"] = several(("x://q/one", b"1"), ("x://q/two", b"another"))
        world.clock.advance(11)
        await world.kernel.cat(DOCS + "q/two")
        assert [len(woken) for woken in told.values()] == [0, 1]
        source.contents["x://q"] = several(("x://q/two", b"another"))
        world.clock.advance(11)
        await world.kernel.stat(DOCS + "q")
        with pytest.raises(BbfsError):
            await world.kernel.cat(DOCS + "q/one")
        assert [len(woken) for woken in told.values()] == [1, 1]


@pytest.mark.semantics("S13")
async def test_what_is_announced_while_it_is_loaded_is_known_to_be_behind(nursery: trio.Nursery) -> None:
    source = flat(a=b"old")
    async with World(nursery, source) as world:
        gate = source.hold("x://a")
        handles: list[int] = []

        async def open_it() -> None:
            handles.append(await world.kernel.open(DOCS + "a"))

        nursery.start_soon(open_it)
        await trio.testing.wait_all_tasks_blocked()
        source.announce("x://a")
        gate.set()
        await settled()
        assert world.files.changed(handles[0])


@pytest.mark.semantics("S20")
async def test_what_is_open_from_memory_during_an_outage_waits_for_the_source(nursery: trio.Nursery) -> None:
    source = flat(a=b"old")
    async with World(nursery, source) as world:
        await world.kernel.cat(DOCS + "a")
        source.announce("x://a")
        source.down = Unreachable("gone")
        handle, woken = await watched(world, DOCS + "a")
        assert not world.files.changed(handle)  # else a program that opens it anew at once would do so for ever
        source.down = None
        source.announce(missed=True)
        assert len(woken) == 1


@pytest.mark.parametrize("etags", [True, False])
async def test_a_local_file_that_is_found_changed_or_gone_is_told(nursery: trio.Nursery, etags: bool) -> None:
    source = tree(a=b"old", d__b=b"1", d__c=b"2")
    source.etags = etags
    async with World(nursery, source) as world:
        told = {name: (await watched(world, TREE + name))[1] for name in ("a", "d/b", "d/c")}
        source.contents["file:./a"] = b"newer"
        world.clock.advance(11)
        await world.kernel.cat(TREE + "a")
        assert [len(woken) for woken in told.values()] == [1, 0, 0]
        del source.contents["file:./d/b"], source.contents["file:./d/c"]
        world.clock.advance(31)
        await world.kernel.ls(TREE[:-1])  # the directory itself is gone
        assert [len(woken) for woken in told.values()] == [1, 1, 1]


async def test_thousands_of_open_files_are_told_of_and_released(nursery: trio.Nursery) -> None:
    contents: dict[str, Any] = {f"{n:04}": b"%d" % n for n in range(2000)}
    source = flat(**contents)
    async with World(nursery, source) as world:
        held = [await watched(world, f"{DOCS}{n:04}") for n in range(2000)]
        for uri in uris(2000, "x://"):
            source.announce(uri)
        assert all(len(woken) == 1 for _, woken in held)
        for handle, _ in held:
            world.files.release(handle)
        assert world.files.held()[1] == 0
        for uri in uris(2000, "x://"):
            source.announce(uri)
        assert all(len(woken) == 1 for _, woken in held)


class Poll:
    """Stands in for pyfuse3's handle of somebody who polls."""

    def __init__(self, problem: OSError | None = None) -> None:
        self.notified = 0
        self._problem = problem

    def notify(self) -> None:
        self.notified += 1
        if self._problem is not None:
            raise self._problem


@pytest.mark.semantics("S18.2", "S27")
async def test_poll_says_what_is_ready_and_wakes_who_waits_once(nursery: trio.Nursery) -> None:
    source = flat(a=b"old")
    async with World(nursery, source) as world:
        operations = Operations(world.core, Ownership(0, 0), Interrupts())
        handle = await world.kernel.open(DOCS + "a")

        async def poll(waiting: Poll | None) -> int:
            return await operations.poll(pyfuse3.InodeT(2), pyfuse3.FileHandleT(handle), cast(Any, waiting), NOBODY)

        first, latest = Poll(), Poll(OSError(2, "the kernel knows it no more"))
        assert [await poll(each) for each in (None, first, latest)] == [READY] * 3
        assert READY & select.POLLIN
        assert not READY & CHANGED
        source.announce("x://a")
        assert (first.notified, latest.notified) == (0, 1)  # either would do: it wakes all who wait for the open file
        assert await poll(Poll()) == READY | select.POLLPRI | select.POLLERR
        world.files.unwatch()
        source.announce("x://a")
        assert latest.notified == 1


# -- watching ----------------------------------------------------------------------------------------------------------


@dataclass
class Heard:
    """What a watch has told."""

    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self) -> list[str]:
        """`changed a/b` for each change since the last call, in order."""
        told = [f"{change.event} {'/'.join(*change.paths)}" for change in self.changes]
        self.changes.clear()
        return told


async def watching(nursery: trio.Nursery, world: World, *paths: str, recursive: bool = True) -> Heard:
    heard = Heard()
    parts: Iterable[Path] = [tuple(name for name in path.split("/") if name) for path in paths]
    watch = Watch(world.manager, parts, heard.changes.append, heard.notes.append, recursive=recursive)
    await nursery.start(watch.run)
    return heard


@asynccontextmanager
async def heard_of(
    *paths: str, of: Iterable[FlatSource | TreeSource], clock: Clock | None = None, recursive: bool = True
) -> AsyncIterator[tuple[Heard, World]]:
    """Yield what a watch of some paths tells, and the world of the sources. All tasks end with the block."""
    async with trio.open_nursery() as nursery, World(nursery, *of, clock=clock or TrioTime()) as world:
        async with trio.open_nursery() as inner:
            yield await watching(inner, world, *paths, recursive=recursive), world
            inner.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


@pytest.fixture
async def inner(nursery: trio.Nursery) -> trio.Nursery:
    """For what ends with a test before its world does."""
    return await nursery.start(_hold)


async def _hold(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    async with trio.open_nursery() as nursery:
        task_status.started(nursery)
        await trio.sleep_forever()


@pytest.mark.semantics("S18")
@pytest.mark.parametrize("path", ["", "mcp-server+docs", "mcp-server+docs/x"])
async def test_what_is_announced_is_told_and_nothing_is_asked_meanwhile(
    autojump_clock: trio.testing.MockClock, path: str
) -> None:
    source = flat(Announcing, a=b"old", b=b"2")
    async with heard_of(path, of=[source]) as (heard, _):
        assert source.watched == {"x://a", "x://b"}
        quiet = source.requests
        await trio.sleep(500)
        assert source.requests == quiet
        source.contents["x://a"] = b"new"
        source.announce("x://a")
        await trio.sleep(1)
        assert heard.take() == [f"changed {DOCS}a"]
        assert source.requests == quiet + 1
        source.announce("x://a")  # it is the same
        await trio.sleep(1)
        assert heard.take() == []
        source.contents["x://c"] = b"3"
        del source.contents["x://b"]
        source.announce()
        await trio.sleep(1)
        assert heard.take() == [f"removed {DOCS}b", f"added {DOCS}c"]
        assert "x://c" in source.watched
        quiet = source.requests
        await trio.sleep(500)
        assert (source.requests, heard.take(), heard.notes) == (quiet, [], [])


async def test_a_change_has_a_time_a_uri_and_a_source(autojump_clock: trio.testing.MockClock) -> None:
    source = flat(Announcing, a=b"old")
    async with heard_of("", of=[source]) as (heard, _):
        del source.contents["x://a"]
        await trio.sleep(7)
        source.announce()
        await trio.sleep(1)
        assert heard.changes == [
            Change("docs", "removed", "mcp-server+docs+x://a", frozenset([(*DOCS.split("/")[:2], "a")]))
        ]


@pytest.mark.semantics("S17")
async def test_a_source_that_announces_nothing_is_looked_at_when_its_time_to_live_is_over(
    nursery: trio.Nursery, inner: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    source = flat(a=b"old", b=b"2")
    source.source = data_source(listing_ttl=30.0, content_ttl=10.0)
    async with World(nursery, source, clock=TrioTime()) as world:
        directory = await watching(inner, world, "mcp-server+docs")
        file = await watching(inner, world, DOCS + "a")
        listed, loaded = len(source.listed), len(source.loaded)
        await trio.sleep(301)
        assert len(source.listed) - listed == 10
        assert (
            len(source.loaded) - loaded == 30
        )  # of the file alone: what is in a directory is not read again and again
        source.contents["x://a"] = b"new"
        await trio.sleep(11)
        assert file.take() == directory.take() == [f"changed {DOCS}a"]
        del source.contents["x://a"]
        source.contents["x://c"] = b"3"
        await trio.sleep(31)
        assert file.take() == [f"removed {DOCS}a"]
        assert directory.take() == [f"removed {DOCS}a", f"added {DOCS}c"]
        source.contents["x://a"] = b"again"
        await trio.sleep(41)
        assert file.take() == directory.take() == [f"added {DOCS}a"]
        inner.cancel_scope.cancel()


async def test_a_file_that_is_announced_is_read_again_only_then(autojump_clock: trio.testing.MockClock) -> None:
    source = flat(Announcing, a=b"old", b=b"2")
    async with heard_of(DOCS + "a", of=[source]) as (heard, _):
        assert source.watched == {"x://a"}
        quiet = source.requests
        await trio.sleep(500)
        source.announce("x://b")
        await trio.sleep(1)
        assert (source.requests, heard.take()) == (quiet, [])
        source.contents["x://a"] = b"new"
        source.announce("x://a")
        await trio.sleep(1)
        assert heard.take() == [f"changed {DOCS}a"]
        del source.contents["x://a"]
        source.announce()
        await trio.sleep(1)
        assert heard.take() == [f"removed {DOCS}a"]
        source.contents["x://a"] = b"back"
        source.announce()
        await trio.sleep(60)
        assert heard.take() == [f"added {DOCS}a"]


@pytest.mark.semantics("S20")
async def test_an_outage_is_noted_once_and_what_it_hid_is_told_afterwards(
    autojump_clock: trio.testing.MockClock,
) -> None:
    source = flat(Announcing, a=b"old", b=b"2")
    async with heard_of("", of=[source]) as (heard, _):
        source.down, source.telling = Unreachable("it is gone"), False
        await trio.sleep(200)
        assert heard.notes == ["mcp-server+docs: it is gone"]
        source.contents["x://a"] = b"new"
        del source.contents["x://b"]
        source.down, source.telling = None, True
        source.announce(missed=True)
        await trio.sleep(RETRY_EVERY + 1)
        assert heard.take() == [f"removed {DOCS}b", f"changed {DOCS}a"]
        assert heard.notes[1:] == ["mcp-server+docs: answers again"]


async def test_a_source_that_is_down_at_first_has_added_nothing_when_it_comes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    down = flat(a=b"1")
    down.down = Unreachable("not yet")
    other = flat(Announcing, a=b"1")
    other.source = data_source("mcp-server+other")
    async with heard_of("", of=[down, other]) as (heard, _):
        other.contents["x://b"] = b"2"
        other.announce()
        await trio.sleep(1)
        assert heard.take() == ["added mcp-server+other/x/b"]
        down.down = None
        await trio.sleep(RETRY_EVERY + 1)
        assert (heard.take(), heard.notes) == ([], ["mcp-server+docs: not yet", "mcp-server+docs: answers again"])
        down.contents["x://b"] = b"2"
        await trio.sleep(31)
        assert heard.take() == [f"added {DOCS}b"]


async def test_a_resource_that_cannot_be_read_is_noted_and_hides_no_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    source = flat(Announcing, a=b"old", b=b"old")
    async with heard_of("", of=[source]) as (heard, _):
        source.contents.update({"x://a": BbfsError("no more"), "x://b": b"new"})
        for uri in ("x://a", "x://b", "x://a"):
            source.announce(uri)
            await trio.sleep(3)
        assert heard.take() == [f"changed {DOCS}b"]
        assert heard.notes == [f"{DOCS}a: no more"]


async def test_many_resources_are_followed_up_to_a_bound(autojump_clock: trio.testing.MockClock) -> None:
    source = flat(Announcing, **{f"{n:04}": b"old" for n in range(FOLLOWED + 50)})
    async with heard_of("", of=[source]) as (heard, _):
        assert len(source.watched) == len(source.loaded) == FOLLOWED
        beyond = f"x://{FOLLOWED + 1:04}"
        source.announce(beyond)  # with nothing to compare it with, the source is believed
        await trio.sleep(1)
        assert heard.take() == [f"changed {DOCS}{FOLLOWED + 1:04}"]
        source.announce(beyond)
        await trio.sleep(1)
        assert heard.take() == []


async def test_a_resource_of_several_contents_is_one_that_changes(autojump_clock: trio.testing.MockClock) -> None:
    source = flat(Announcing, q=several(("x://q/one", b"1"), ("x://q/two", b"2")))
    async with heard_of("mcp-server+docs", of=[source]) as (heard, _):
        source.contents["x://q"] = several(("x://q/one", b"1"), ("x://q/two", b"another"))
        source.announce("x://q")
        await trio.sleep(1)
        assert heard.take() == [f"changed {DOCS}q"]


async def test_an_unlisted_resource_of_a_template_is_polled_and_watched(
    nursery: trio.Nursery, inner: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    source = flat(Announcing, **{"k/one": b"old", "a": b"1"})
    source.unlisted.update({"x://k/one", "x://k/two"})
    source.template("x://k/{name}")
    async with World(nursery, source, clock=TrioTime()) as world:
        with pytest.raises(NotFound):
            await watching(inner, world, DOCS + "k/two")
        heard = await watching(inner, world, DOCS + "k/one")
        _, woken = await watched(world, DOCS + "k/one")
        quiet = source.requests
        source.contents["x://k/one"] = b"new"
        source.announce("x://k/one")
        await trio.sleep(1)
        assert (heard.take(), len(woken)) == ([f"changed {DOCS}k/one"], 1)
        assert source.requests == quiet + 1
        del source.contents["x://k/one"]
        source.announce("x://k/one")
        await trio.sleep(1)
        assert heard.take() == [f"removed {DOCS}k/one"]
        source.contents["x://k/one"] = b"again"
        await trio.sleep(30)
        assert heard.take() == [f"added {DOCS}k/one"]
        inner.cancel_scope.cancel()


@pytest.mark.parametrize("path", ["", TREE[:-1], TREE + "d"])
async def test_a_folder_is_walked_through(autojump_clock: trio.testing.MockClock, path: str) -> None:
    source = tree(a=b"1", d__b=b"2", d__e__f=b"3")
    async with heard_of(path, of=[source]) as (heard, _):
        assert source.loaded == []
        source.contents["file:./d/b"] = b"newer"
        source.contents["file:./d/new/file"] = b"4"
        del source.contents["file:./d/e/f"]
        await trio.sleep(31)
        assert sorted(heard.take()) == [f"added {TREE}d/new/file", f"changed {TREE}d/b", f"removed {TREE}d/e/f"]
        assert source.loaded == []


async def test_a_directory_by_itself_is_told_of_without_those_below(autojump_clock: trio.testing.MockClock) -> None:
    flat_source, source = flat(Announcing, a=b"1"), tree(a=b"1", d__b=b"2")
    async with heard_of(TREE[:-1], DOCS[:-1], recursive=False, of=[flat_source, source]) as (heard, _):
        source.contents.update({"file:./new": b"", "file:./d/new": b""})
        flat_source.contents.update({"x://new": b"", "x://d/new": b""})
        flat_source.announce()
        await trio.sleep(31)
        assert sorted(heard.take()) == [f"added {TREE}new", f"added {DOCS}new"]
        assert ("d",) not in source.listed


async def test_what_cannot_be_watched_is_an_error_at_once(nursery: trio.Nursery) -> None:
    source = tree(a=b"1")
    source.links["file:./link"] = "a"
    async with World(nursery, source, flat(a=b"1")) as world:
        for path, error in (("none", NotFound), (DOCS + "none", NotFound), (TREE + "link", NotSupported)):
            with pytest.raises(error):
                await Watch(world.manager, [tuple(path.split("/"))], print, print).run()


# -- refreshing --------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S21")
@pytest.mark.parametrize("path", ["", "mcp-server+docs", "mcp-server+docs/x/d", "mcp-server+docs/x/d/a"])
async def test_a_refresh_drops_what_is_known_there_and_nothing_else(nursery: trio.Nursery, path: str) -> None:
    source = FlatSource(contents={"x://d/a": b"old", "x://e/b": b"2"})
    async with World(nursery, source, TreeSource()) as world:
        for name in ("d/a", "e/b"):
            await world.kernel.cat(DOCS + name)
        source.contents.update({"x://d/a": b"newer", "x://d/new": b""})
        world.forgotten()
        world.files.refresh(tuple(name for name in path.split("/") if name))
        await settled()
        everything = path in ("", "mcp-server+docs")
        assert set(world.forgotten()) >= ({"a", "b"} if everything else {"a"})
        assert await world.kernel.cat(DOCS + "d/a") == b"newer"
        assert (await world.kernel.stat(DOCS + "d/new")).kind == "file"
        await world.kernel.cat(DOCS + "e/b")
        assert source.loads["x://e/b"] == (2 if everything else 1)


@pytest.mark.semantics("S20", "S21")
async def test_a_refresh_keeps_contents_for_an_outage(nursery: trio.Nursery) -> None:
    source = flat(a=b"old")
    async with World(nursery, source) as world:
        await world.kernel.cat(DOCS + "a")
        world.files.refresh(())
        source.down = Unreachable("gone")
        assert await world.kernel.cat(DOCS + "a") == b"old"
        with pytest.raises(NotFound):
            world.files.refresh(("none",))


@pytest.mark.semantics("S21")
async def test_a_refresh_of_a_folder_lists_it_anew_and_forgets_what_was_absent(nursery: trio.Nursery) -> None:
    source = tree(d__a=b"old", e__b=b"2")
    async with World(nursery, source) as world:
        await world.kernel.cat(TREE + "d/a")
        await world.kernel.cat(TREE + "e/b")
        for absent in ("d/new", "e/new"):
            with pytest.raises(NotFound):
                await world.kernel.walk(TREE + absent)
        source.contents.update({"file:./d/a": b"newer", "file:./d/new": b"", "file:./e/new": b""})
        world.forgotten()
        world.files.refresh(("bb-scripted+tree+file", "d"))
        assert world.forgotten() == ["a", "new"]
        assert await world.kernel.cat(TREE + "d/a") == b"newer"
        assert await world.kernel.ls(TREE + "d") == ["a", "new"]
        assert await world.kernel.ls(TREE + "e") == ["b"]


@pytest.mark.semantics("S7")
async def test_a_size_that_was_listed_before_another_one_is_no_size_of_the_content(nursery: trio.Nursery) -> None:
    source = tree(a=b"old")
    source.etags = False
    async with World(nursery, source) as world:
        ino = (await world.kernel.walk(TREE + "a")).ino
        source.contents["file:./a"] = b"of another size"
        world.files.refresh((TREE.strip("/"),))
        assert await world.kernel.ls(TREE.strip("/")) == ["a"]
        with pytest.raises(Outdated):
            await world.files.open(ino)  # of which the kernel has three bytes
        again = await world.kernel.walk(TREE + "a")
        assert (again.ino != ino, again.size) == (True, 15)
        assert await world.kernel.cat(TREE + "a") == b"of another size"


class Unwalked(frozenset[Path]):
    """The paths of a change, of which no listener may go through all."""

    def __iter__(self) -> Iterator[Path]:
        raise AssertionError("a listener went through all paths of a change")


@pytest.mark.semantics("S18")
async def test_those_who_follow_single_files_look_them_up_in_a_change(
    nursery: trio.Nursery, inner: trio.Nursery, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = flat(Announcing, a=b"old", b=b"same")
    async with World(nursery, source) as world:
        world.manager.changes = Bus()  # without the kernel
        heard = await watching(inner, world, DOCS + "a")
        following = Following(world.manager, inner, wait=5.0)
        await following.follow("mcp-server+docs+x://a", "mcp-server+docs+x://b")
        told: list[object] = []
        monkeypatch.setattr(following, "notify", told.append)
        source.contents["x://a"] = b"new"
        record = world.manager.sources["mcp-server+docs"].catalog.record("x://a")
        assert record is not None
        record.invalidate()
        many = Unwalked([("mcp-server+docs", "x", name) for name in ("a", *map(str, range(2000)))])
        world.manager.changes.notify(Change(source.source.id, "missed", None, many))
        await settled()
        assert heard.take() == [f"changed {DOCS}a"]
        assert told == [ResourceUpdated("mcp-server+docs+x://a")]
        assert "a listener to changes failed" not in caplog.text
        inner.cancel_scope.cancel()


# -- changes of many paths ---------------------------------------------------------------------------------------------


@pytest.mark.semantics("S18")
async def test_of_many_changes_the_directories_are_told_and_the_kernel_of_what_it_holds(
    nursery: trio.Nursery, inner: trio.Nursery
) -> None:
    source = flat(Announcing, **{f"old{number}": b"" for number in range(TOLD_APART)}, d__x=b"", same=b"")
    async with World(nursery, source) as world:
        await world.kernel.stat(DOCS + "old1")
        await world.kernel.stat(DOCS + "same")
        opened, woken = await watched(world, DOCS + "old2")
        heard = await watching(inner, world, DOCS + "old3")
        changes: list[Change] = []
        world.manager.changes.subscribe(changes.append)
        world.told.clear()
        for number in range(TOLD_APART):
            del source.contents[f"x://old{number}"]
            source.contents[f"x://new{number}"] = b""
        source.announce()
        await settled()
        (change,) = [change for change in changes if change.paths]
        assert (change.paths, change.below) == ({("mcp-server+docs", "x")}, True)
        assert {name for _, name in world.told} == {b"old1", b"old2", b"same"}
        assert (woken, world.files.changed(opened)) == ([opened], True)
        await settled()
        assert heard.take() == [f"removed {DOCS}old3"]
        inner.cancel_scope.cancel()


def test_changed_paths_of_any_shape_stay_few() -> None:
    flat_ones = ChangedPaths(("x", str(number)) for number in range(TOLD_APART + 1))
    assert (set(flat_ones), flat_ones.below) == ({("x",)}, True)
    few = ChangedPaths(("x", str(number)) for number in range(TOLD_APART))
    assert (len(set(few)), few.below) == (TOLD_APART, False)
    apart = ChangedPaths((str(number), "d", "x") for number in range(3 * TOLD_APART))
    assert (set(apart), apart.below) == ({()}, True)


@pytest.mark.semantics("S18")
async def test_a_watch_of_too_many_resources_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bbfs.resources.watch.source.WATCHED", 2)
    source = flat(Announcing, a=b"", b=b"", c=b"", d=b"")
    async with heard_of("", of=[source], clock=Clock()) as (heard, _):
        assert heard.notes == ["mcp-server+docs: over 2 resources; the others are not watched"]
        del source.contents["x://a"], source.contents["x://d"]
        source.contents["x://e"] = b""
        source.announce()
        await settled()
        assert heard.take() == [f"removed {DOCS}a"]
        assert len(heard.notes) == 1
