"""Data sources as a file system: names, inodes, sizes, handles, positions, and what the kernel is told."""

from functools import partial
from itertools import islice

import pytest
import trio
from fakes import Clock, CompletingSource, FlatSource, TreeSource, World, data_source, settled, several, uris

from bbfs.model.errors import (
    BbfsError,
    Denied,
    IsADirectory,
    NameTooLong,
    NoAttribute,
    NotADirectory,
    NotFound,
    NotSupported,
    Outdated,
    Unreachable,
)
from bbfs.model.values import Loaded
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.catalog.record import ROOT as ROOT_INODE
from bbfs.vfs.file_handles import Attributes
from bbfs.vfs.filesystem import Wanted
from bbfs.vfs.names import answered

ROOT = "mcp-server+docs/x/"
TREE = "bb-scripted+tree+file/"


def flat(**contents: bytes) -> FlatSource:
    return FlatSource(contents={f"x://{name}": data for name, data in contents.items()})


# -- the root ----------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S1", "S6")
async def test_the_root_has_a_directory_for_each_source_whatever_it_answers(nursery: trio.Nursery) -> None:
    down = FlatSource(data_source("mcp-server+down"), down=Unreachable("gone"))
    fixed = FlatSource(data_source("mcp-database+pg+postgres"), contents={"postgres://db/t": b"1"})
    async with World(nursery, flat(), down, fixed, TreeSource()) as world:
        assert await world.kernel.ls() == [
            "bb-scripted+tree+file",
            "mcp-database+pg+postgres",
            "mcp-server+docs",
            "mcp-server+down",
        ]
        assert down.listed == fixed.listed == []
        assert await world.kernel.ls("mcp-database+pg+postgres/db") == ["t"]
        with pytest.raises(Unreachable):
            await world.kernel.ls("mcp-server+down")
        assert (await world.kernel.stat("mcp-server+down")).kind == "directory"


@pytest.mark.semantics("S2.1")
async def test_a_prefix_with_its_scheme_is_a_link_that_lookup_finds_and_readdir_does_not_list(
    nursery: trio.Nursery,
) -> None:
    async with World(nursery, flat(a=b""), FlatSource(data_source("mcp-database+pg+postgres"))) as world:
        link = await world.kernel.stat("mcp-server+docs+x")
        assert link.kind == "symlink"
        assert await world.files.readlink(link.ino) == b"mcp-server+docs/x"
        assert link.size == len(b"mcp-server+docs/x")
        assert await world.kernel.ls() == ["mcp-database+pg+postgres", "mcp-server+docs"]
        for name in ("mcp-server+docs+", "mcp-server+docs2", "mcp-database+pg", "mcp-server", "\udcff", "x" * 255):
            with pytest.raises(NotFound):
                await world.kernel.walk(name)


@pytest.mark.semantics("S1", "S4")
async def test_a_stray_scheme_of_a_fixed_scheme_source_is_not_lost(nursery: trio.Nursery) -> None:
    source = FlatSource(
        data_source("mcp-database+pg+postgres"), contents={"postgres://db/t": b"1", "http://h/page": b"2"}
    )
    async with World(nursery, source) as world:
        await world.kernel.ls("mcp-database+pg+postgres")
        assert await world.kernel.ls() == ["mcp-database+pg+http", "mcp-database+pg+postgres"]
        assert await world.kernel.cat("mcp-database+pg+http/h/page") == b"2"


@pytest.mark.semantics("S23")
async def test_a_name_that_is_no_text_is_not_found_and_one_that_no_file_can_have_is_too_long(
    nursery: trio.Nursery,
) -> None:
    async with World(nursery, flat(a=b"")) as world:
        directory = await world.kernel.walk("mcp-server+docs/x")
        missing = await world.files.lookup(directory.ino, b"\xff")
        assert missing.ino == 0
        assert 0 < missing.entry_timeout <= 5.0
        with pytest.raises(NameTooLong):
            await world.files.lookup(directory.ino, b"n" * 256)


# -- inodes ------------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S7")
async def test_an_inode_is_the_same_across_lookups_listings_and_remounts(nursery: trio.Nursery) -> None:
    clock, store, seen = Clock(), MetadataStore(None), []
    for _ in range(2):
        source = flat(a=b"1", b=b"2")
        source.contents["x://d/c"] = b"3"
        async with World(nursery, source, store=store, clock=clock) as world:
            await world.kernel.stat(ROOT + "a")
            source.contents["x://a"] = b"changed"
            clock.advance(100.0)
            numbers = {}
            for name in ("a", "b", "d", "d/c"):
                first = await world.kernel.stat(ROOT + name)
                await world.kernel.cat(ROOT + name) if first.kind == "file" else None
                again = await world.kernel.stat(ROOT + name)
                parent, _, last = (ROOT + name).rpartition("/")
                listed = dict(await world.kernel.entries(parent))[last]
                assert first.ino == again.ino == listed.ino
                numbers[name] = first.ino
            seen.append(numbers)
            await settled()
            await world.manager.flush()
        store_rows = store.recall(next(iter(world.manager.sources.values())).fingerprint)[0]
        assert {row.uri for row in store_rows} == {"x://a", "x://b", "x://d/c"}
    assert seen[0] == seen[1]
    assert len(set(seen[0].values())) == 4
    store.close()


@pytest.mark.semantics("S7.1", "S13")
async def test_new_content_is_a_new_inode_and_the_open_file_keeps_the_old_one(nursery: trio.Nursery) -> None:
    source = flat(a=b"old")
    async with World(nursery, source) as world:
        before = await world.kernel.stat(ROOT + "a")
        handle = await world.kernel.open(ROOT + "a")
        other = await world.kernel.walk(ROOT + "a")
        source.contents["x://a"] = b"new and longer"
        source.announce("x://a")
        after = await world.kernel.stat(ROOT + "a")
        assert after.ino != before.ino
        assert after.size == 14
        assert other.ino == before.ino
        with pytest.raises(Outdated):
            await world.files.open(before.ino)
        pinned = await world.files.getattr(before.ino)
        assert (pinned.ino, pinned.size, pinned.modified_ns) == (before.ino, 3, before.modified_ns)
        assert await world.kernel.read(handle) == b"old"
        assert await world.kernel.cat(ROOT + "a") == b"new and longer"
        world.files.release(handle)
        with pytest.raises(Outdated):
            await world.files.getattr(before.ino)


class Restless(FlatSource):
    """A source whose resources change at each load."""

    async def load(self, native_uri: str) -> Loaded:
        self.contents[native_uri] = str(len(self.loaded)).encode()
        loaded = await super().load(native_uri)
        self.announce(native_uri)
        return loaded


@pytest.mark.semantics("S18.1")
async def test_a_resource_that_changes_at_each_load_can_be_opened(nursery: trio.Nursery) -> None:
    async with World(nursery, Restless(contents={"x://a": b""})) as world:
        first = await world.kernel.cat(ROOT + "a")
        assert await world.kernel.cat(ROOT + "a") != first


@pytest.mark.semantics("S7")
async def test_content_that_returns_changed_after_it_left_the_listing_is_a_new_inode(nursery: trio.Nursery) -> None:
    source = flat(a=b"old", b=b"")
    async with World(nursery, source) as world:
        before = await world.kernel.stat(ROOT + "a")
        handle = await world.kernel.open(ROOT + "a")
        del source.contents["x://a"]
        source.announce()
        await settled()
        source.contents["x://a"] = b"new"
        source.announce()
        await settled()
        after = await world.kernel.stat(ROOT + "a")
        assert await world.kernel.cat(ROOT + "a") == b"new"
        assert await world.kernel.read(handle) == b"old"
        assert after.ino != before.ino


@pytest.mark.semantics("S7", "S10", "S18")
async def test_a_content_that_is_loaded_again_and_is_the_same_changes_nothing(nursery: trio.Nursery) -> None:
    source = flat(a=b"same")
    async with World(nursery, source) as world:
        before = await world.kernel.stat(ROOT + "a")
        world.told.clear()
        for _ in range(3):
            world.clock.advance(11.0)
            assert await world.kernel.cat(ROOT + "a") == b"same"
        after = await world.kernel.stat(ROOT + "a")
        assert (after.ino, after.modified_ns, world.told) == (before.ino, before.modified_ns, [])
        assert source.loads["x://a"] == 4


@pytest.mark.semantics("S10")
async def test_times_are_the_sources_own_or_of_the_first_sight_of_a_change(nursery: trio.Nursery) -> None:
    source = flat(a=b"1", b=b"1")
    source.described["x://a"] = {"modified_ns": 7}
    async with World(nursery, source) as world:
        mounted = int(world.clock.now * 1e9)
        world.clock.advance(5.0)
        assert (await world.kernel.stat(ROOT + "a")).modified_ns == 7
        seen = (await world.kernel.stat(ROOT + "b")).modified_ns
        assert seen == int(world.clock.now * 1e9)
        world.clock.advance(100.0)
        source.contents["x://a"] = source.contents["x://b"] = b"2"
        assert (await world.kernel.stat(ROOT + "a")).modified_ns == 7
        assert (await world.kernel.stat(ROOT + "b")).modified_ns == int(world.clock.now * 1e9)
        assert (await world.kernel.stat("mcp-server+docs")).modified_ns == mounted


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S9.2", "S12")
async def test_an_unknown_size_is_learnt_in_getattr_and_nowhere_before(nursery: trio.Nursery) -> None:
    source = flat(a=b"12345")
    async with World(nursery, source) as world:
        found = await world.kernel.walk(ROOT + "a")
        assert (found.size, found.attr_timeout) == (0, 0.0)
        assert found.entry_timeout > 0
        [(_, listed)] = await world.kernel.entries(ROOT.rstrip("/"))
        assert (listed.size, listed.attr_timeout) == (0, 0.0)
        await world.files.listxattr(found.ino)
        assert source.loaded == []
        learnt = await world.files.getattr(found.ino)
        assert (learnt.size, learnt.attr_timeout) == (5, 10.0)
        assert (await world.kernel.walk(ROOT + "a")).size == 5
        assert source.loaded == ["x://a"]


class Asker:
    """A program that has asked for something. asked: how often it was looked at."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted, self.asked = wanted, 0

    async def __call__(self) -> Wanted:
        self.asked += 1
        return self.wanted

    async def getattr(self, world: World, ino: int) -> Attributes:
        ask = partial(world.core.getattr, asker=self)
        return await answered(ask(ino), ask, ino)


@pytest.mark.semantics("S12.1")
@pytest.mark.parametrize("wanted", [Wanted.EXISTENCE, Wanted.XATTRS])
async def test_a_program_that_wants_no_size_costs_no_load(nursery: trio.Nursery, wanted: Wanted) -> None:
    source = flat(a=b"12345", broken=b"", sized=b"1")
    source.contents["x://broken"] = BbfsError("as told")
    source.described["x://sized"] = {"size": 1}
    async with World(nursery, source) as world:
        asker = Asker(wanted)
        for name in ("a", "broken"):
            found = await asker.getattr(world, (await world.kernel.walk(ROOT + name)).ino)
            assert (found.size, found.attr_timeout) == (0, 0.0)
        assert (source.loaded, asker.asked) == ([], 2)
        await asker.getattr(world, (await world.kernel.walk(ROOT + "sized")).ino)
        assert asker.asked == 2  # it is not looked at where the size is there
        learnt = await Asker(Wanted.ALL).getattr(world, (await world.kernel.walk(ROOT + "a")).ino)
        assert (learnt.size, source.loaded) == (5, ["x://a"])
        with pytest.raises(BbfsError):
            await world.kernel.stat(ROOT + "broken")
        assert (await asker.getattr(world, (await world.kernel.walk(ROOT + "a")).ino)).size == 5
        assert asker.asked == 2
        world.clock.advance(500.0)  # the last size, of which nothing is certain any more
        found = await asker.getattr(world, (await world.kernel.walk(ROOT + "a")).ino)
        assert (found.size, found.attr_timeout, asker.asked) == (5, 0.0, 3)


@pytest.mark.semantics("S7")
async def test_a_program_that_wants_no_size_learns_that_the_version_is_another(nursery: trio.Nursery) -> None:
    source = flat(a=b"12345")
    async with World(nursery, source) as world:
        before = (await world.kernel.stat(ROOT + "a")).ino
        source.contents["x://a"] = b"other"
        world.clock.advance(500.0)
        with pytest.raises(Outdated):
            await world.files.getattr(before)
        with pytest.raises(Outdated):
            await Asker(Wanted.EXISTENCE).getattr(world, before)


@pytest.mark.semantics("S34.1")
async def test_a_program_that_wants_no_size_learns_if_a_template_resource_exists(nursery: trio.Nursery) -> None:
    source = CompletingSource(contents={"x://d/listed": b"1"}, unlisted={"x://d/there", "x://d/broken"})
    source.contents |= {"x://d/there": b"123", "x://d/broken": BbfsError("as told")}
    source.values = {"name": ["completed"]}
    source.template("x://d/{name}")
    async with World(nursery, source) as world:
        existence, xattrs = Asker(Wanted.EXISTENCE), Asker(Wanted.XATTRS)

        async def ino(name: str) -> int:
            return (await world.kernel.walk(f"mcp-server+docs/x/d/{name}")).ino

        assert (await existence.getattr(world, await ino("there"))).size == 3
        for asker in (existence, xattrs):
            with pytest.raises(NotFound):
                await asker.getattr(world, await ino(f"absent-{asker.wanted.name}"))
        with pytest.raises(BbfsError):
            await existence.getattr(world, await ino("broken"))
        assert (await xattrs.getattr(world, await ino("broken"))).kind == "file"
        before = len(source.loaded)
        await world.kernel.ls("mcp-server+docs/x/d")
        assert (await existence.getattr(world, await ino("completed"))).kind == "file"
        assert len(source.loaded) == before


@pytest.mark.semantics("S9.1")
async def test_a_declared_size_is_used_and_corrected_when_it_proves_wrong(nursery: trio.Nursery) -> None:
    source = flat(right=b"12345", wrong=b"12345")
    source.described = {"x://right": {"size": 5}, "x://wrong": {"size": 9}}
    async with World(nursery, source) as world:
        declared = await world.kernel.stat(ROOT + "right"), await world.kernel.stat(ROOT + "wrong")
        assert [found.size for found in declared] == [5, 9]
        assert source.loaded == []
        assert await world.kernel.cat(ROOT + "right") == await world.kernel.cat(ROOT + "wrong") == b"12345"
        assert world.forgotten() == ["wrong"]
        corrected = await world.kernel.stat(ROOT + "wrong")
        assert corrected.size == 5
        assert corrected.ino != declared[1].ino
        assert (await world.kernel.stat(ROOT + "right")).ino == declared[0].ino
        world.clock.advance(500.0)
        await world.kernel.ls(ROOT.rstrip("/"))
        await settled()
        assert (await world.kernel.stat(ROOT + "wrong")).size == 5


@pytest.mark.semantics("S7", "S9.1")
async def test_a_size_declared_anew_and_wrong_is_corrected_too(nursery: trio.Nursery) -> None:
    source = flat(a=b"12345")
    source.described["x://a"] = {"size": 5}
    async with World(nursery, source) as world:
        assert await world.kernel.cat(ROOT + "a") == b"12345"
        source.described["x://a"] = {"size": 7}
        source.announce()
        await settled()
        claimed = await world.kernel.stat(ROOT + "a")
        world.told.clear()
        handle = await world.kernel.open(ROOT + "a")
        opened = await world.kernel.walk(ROOT + "a")
        assert opened.size == 5
        assert claimed.size == 5 or (claimed.ino != opened.ino and world.forgotten() == ["a"])
        world.files.release(handle)


@pytest.mark.semantics("S13", "S9")
async def test_an_open_file_keeps_its_size_when_the_listing_declares_another(nursery: trio.Nursery) -> None:
    source = flat(a=b"old")
    source.described["x://a"] = {"size": 3}
    async with World(nursery, source) as world:
        handle = await world.kernel.open(ROOT + "a")
        before = await world.kernel.walk(ROOT + "a")
        source.contents["x://a"] = b"longer"
        source.described["x://a"] = {"size": 6}
        source.announce()
        await settled()
        pinned = await world.files.getattr(before.ino)
        assert (pinned.size, await world.kernel.read(handle)) == (3, b"old")
        found = await world.kernel.walk(ROOT + "a")
        assert found.ino != before.ino or found.size == 3, "the kernel would cut or pad the pages of the open file"


@pytest.mark.semantics("S9.5")
async def test_lazy_sizes_are_not_kept_by_the_kernel(nursery: trio.Nursery) -> None:
    """With a validity the kernel would go on reading 0 bytes of a file that it has seen as empty."""
    source = FlatSource(data_source(sizes="lazy"), contents={"x://a": b"12345"})
    async with World(nursery, source) as world:
        found = await world.kernel.stat(ROOT + "a")
        assert (found.size, source.loaded) == (0, [])
        assert found.attr_timeout == 0.0
        handle = await world.kernel.open(ROOT + "a")
        assert (await world.kernel.stat(ROOT + "a")).size == 5
        world.files.release(handle)


# -- several contents --------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S5")
async def test_several_contents_become_a_directory_and_one_becomes_a_file_again(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://a": several(("x://a/p", b"1"), ("x://a/q", b"22"), (None, b"own"))})
    async with World(nursery, source) as world:
        assert (await world.kernel.walk(ROOT + "a")).kind == "file", "nobody knows before a load"
        assert (await world.kernel.stat(ROOT + "a")).kind == "directory"
        assert await world.kernel.ls(ROOT + "a") == ["index.txt", "p", "q"]
        assert [await world.kernel.cat(ROOT + "a/" + name) for name in ("p", "q", "index.txt")] == [b"1", b"22", b"own"]
        assert (await world.kernel.stat(ROOT + "a/q")).size == 2
        assert source.loaded == ["x://a"]
        world.told.clear()
        source.contents["x://a"] = b"one"
        world.clock.advance(11.0)
        with pytest.raises((NotFound, NotADirectory)):
            await world.kernel.stat(ROOT + "a/q")
        assert "a" in world.forgotten()
        assert await world.kernel.cat(ROOT + "a") == b"one"
        with pytest.raises((NotFound, NotADirectory)):
            await world.kernel.stat(ROOT + "a/p")


@pytest.mark.semantics("S5", "S7.1", "S9")
@pytest.mark.parametrize("first", ["stat", "open"])
async def test_a_content_among_several_that_changes_is_a_new_inode(nursery: trio.Nursery, first: str) -> None:
    source = FlatSource(contents={"x://a": several(("x://a/p", b"1"), ("x://a/q", b"2"))})
    async with World(nursery, source) as world:
        await world.kernel.stat(ROOT + "a")
        before = await world.kernel.stat(ROOT + "a/p")
        source.contents["x://a"] = several(("x://a/p", b"one"), ("x://a/q", b"2"))
        world.clock.advance(11.0)
        with pytest.raises(Outdated):
            await (world.files.getattr(before.ino) if first == "stat" else world.files.open(before.ino))
        after = await world.kernel.stat(ROOT + "a/p")
        assert (after.size, await world.kernel.cat(ROOT + "a/p")) == (3, b"one")
        assert after.ino != before.ino


@pytest.mark.semantics("S4", "S5")
async def test_no_content_among_several_is_lost_to_another_of_its_name(nursery: trio.Nursery) -> None:
    parts = several(
        ("x://a/n~2.txt", b"0"), ("x://a/n.txt", b"1"), ("x://a/n.txt", b"2"), (None, b"3"), (None, b"4"), ("x:", b"5")
    )
    source = FlatSource(contents={"x://a": parts})
    async with World(nursery, source) as world:
        await world.kernel.stat(ROOT + "a")
        names = await world.kernel.ls(ROOT + "a")
        assert sorted([await world.kernel.cat(f"{ROOT}a/{name}") for name in names]) == [
            b"0", b"1", b"2", b"3", b"4", b"5",
        ]  # fmt: skip


@pytest.mark.semantics("S5", "S18")
async def test_contents_that_come_and_go_among_several_are_told(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://a": several(("x://a/p", b"1"), ("x://a/q", b"2"))})
    async with World(nursery, source) as world:
        await world.kernel.stat(ROOT + "a")
        await world.kernel.ls(ROOT + "a")
        await world.kernel.stat(ROOT + "a/p")
        world.told.clear()
        source.contents["x://a"] = several(("x://a/p", b"1"), ("x://a/r", b"3"))
        world.clock.advance(11.0)
        await world.kernel.stat(ROOT + "a/p")
        assert {"q", "r"} <= set(world.forgotten()) or "a" in world.forgotten()


# -- hierarchical sources ----------------------------------------------------------------------------------------------


@pytest.mark.semantics("S12", "S9")
async def test_a_source_that_can_stat_is_not_loaded_for_a_size(nursery: trio.Nursery) -> None:
    source = TreeSource(contents={"file:./d/a": b"12345"})
    async with World(nursery, source) as world:
        assert (await world.kernel.stat(TREE + "d/a")).size == 5
        world.clock.advance(15.0)
        assert (await world.kernel.stat(TREE + "d/a")).size == 5
        assert source.stated == ["file:./d/a"] or source.stated == []
        assert source.loaded == []
        assert await world.kernel.cat(TREE + "d/a") == b"12345"
        assert source.loaded == ["file:./d/a"]


@pytest.mark.semantics("S7.1", "S13")
@pytest.mark.parametrize("etags", [True, False])
async def test_a_changed_file_is_a_new_inode(nursery: trio.Nursery, etags: bool) -> None:
    source = TreeSource(contents={"file:./d/a": b"old"}, etags=etags)
    async with World(nursery, source) as world:
        before = await world.kernel.stat(TREE + "d/a")
        handle = await world.kernel.open(TREE + "d/a")
        source.contents["file:./d/a"] = b"newer"
        world.clock.advance(100.0)
        after = await world.kernel.stat(TREE + "d/a")
        assert (after.size, await world.kernel.cat(TREE + "d/a")) == (5, b"newer")
        assert (await world.kernel.walk(TREE + "d/a")).ino != before.ino
        assert (await world.files.getattr(before.ino)).size == 3
        assert await world.kernel.read(handle) == b"old"


@pytest.mark.semantics("S29")
async def test_links_of_a_source_are_links_whatever_bytes_they_hold(nursery: trio.Nursery) -> None:
    source = TreeSource(links={"file:./good": "a/ß", "file:./odd": "caf\udce9"}, contents={"file:./z": b""})
    async with World(nursery, source) as world:
        for name, target in (("good", "a/ß".encode()), ("odd", b"caf\xe9")):
            found = await world.kernel.stat(TREE + name)
            assert (found.kind, found.size) == ("symlink", len(target))
            assert await world.files.readlink(found.ino) == target
        assert await world.kernel.ls(TREE.rstrip("/")) == ["good", "odd", "z"]


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S28")
async def test_what_a_file_system_refuses(nursery: trio.Nursery) -> None:
    source = TreeSource(contents={"file:./d/a": b"1"}, links={"file:./l": "d"})
    async with World(nursery, source) as world:
        walk = world.kernel.walk
        file, directory, link = await walk(TREE + "d/a"), await walk(TREE + "d"), await walk(TREE + "l")
        with pytest.raises(IsADirectory):
            await world.files.open(directory.ino)
        with pytest.raises(NotSupported):
            await world.files.open(link.ino)
        with pytest.raises(Outdated):
            await world.files.readlink(file.ino)
        with pytest.raises(Outdated):
            await world.files.getattr(12345)
        with pytest.raises(NoAttribute):
            await world.files.getxattr(file.ino, b"user.none")
        assert await world.files.listxattr(ROOT_INODE) == []
        assert await world.files.listxattr(link.ino) == []


# -- directories -------------------------------------------------------------------------------------------------------


async def test_readdir_resumes_at_any_position_without_skip_or_repeat(nursery: trio.Nursery) -> None:
    source = FlatSource(contents=dict.fromkeys(uris(50), b""))
    async with World(nursery, source) as world:
        directory = await world.kernel.walk("mcp-server+docs/x/d")
        handle = await world.files.opendir(directory.ino)
        whole = list(world.files.readdir(handle, 0))
        assert [name for name, _, _ in whole] == [b".", b"..", *sorted(name[-4:].encode() for name in uris(50))]
        assert [following for _, _, following in whole] == list(range(1, 53))
        for start in range(53):
            assert [name for name, _, _ in world.files.readdir(handle, start)] == [name for name, _, _ in whole[start:]]
        world.files.releasedir(handle)


async def test_readdir_counts_what_it_gives_out_and_not_the_dots(nursery: trio.Nursery) -> None:
    async with World(nursery, flat(a=b"", b=b"", c=b"")) as world:
        directory = await world.kernel.walk("mcp-server+docs/x")
        before = world.files.held()[0]
        handle = await world.files.opendir(directory.ino)
        entries = world.files.readdir(handle, 0)
        taken = [(found.ino, following) for _, found, following in islice(entries, 4)]
        assert world.files.held()[0] == before + 2, "an entry that is not taken counts nothing"
        for number, following in taken:
            assert number != 0
            if following > 2:
                world.files.forget(number, 1)
        assert world.files.held()[0] == before
        world.files.releasedir(handle)
        world.kernel.forget_all()
        assert world.files.held() == (0, 0, 0)


async def test_an_open_directory_goes_on_whatever_happens_to_the_listing(nursery: trio.Nursery) -> None:
    source = flat(a=b"", b=b"", c=b"")
    async with World(nursery, source) as world:
        directory = await world.kernel.walk("mcp-server+docs/x")
        handle = await world.files.opendir(directory.ino)
        source.contents = {"x://b": b"", "x://d": b""}
        source.announce()
        await settled()
        names = [name for name, _, _ in world.files.readdir(handle, 2)]
        assert names == [b"a", b"b", b"c"]
        world.files.releasedir(handle)
        assert await world.kernel.ls("mcp-server+docs/x") == ["b", "d"]


@pytest.mark.semantics("S5", "S12")
async def test_a_resource_found_to_be_a_directory_or_a_file_is_listed_as_what_it_is_now(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://a": b"1", "x://b": several(("x://b/p", b""), ("x://b/q", b""))})
    async with World(nursery, source) as world:
        await world.kernel.stat(ROOT + "a")
        await world.kernel.stat(ROOT + "b")
        directory = await world.kernel.walk("mcp-server+docs/x")
        handle = await world.files.opendir(directory.ino)
        source.contents["x://a"], source.contents["x://b"] = source.contents["x://b"], b"1"
        world.clock.advance(11.0)
        await world.kernel.stat(ROOT + "a")
        records = world.manager.roots.named("docs").catalog.records.values()
        await world.manager.contents.learn(next(record for record in records if record.parts))
        kinds = {name: found.kind for name, found, _ in world.files.readdir(handle, 2)}
        now = {name.encode(): (await world.kernel.stat(ROOT + name)).kind for name in ("a", "b")}
        assert kinds == now


# -- what the kernel is told -------------------------------------------------------------------------------------------


@pytest.mark.semantics("S18")
async def test_a_changed_listing_invalidates_exactly_what_differs(nursery: trio.Nursery) -> None:
    source = flat(same=b"", gone=b"")
    source.contents |= {"x://d/same": b"", "x://d/gone": b"", "x://e/only": b"", "y://only": b""}
    async with World(nursery, source) as world:
        for path in ("", "mcp-server+docs", "mcp-server+docs/x", ROOT + "d", ROOT + "e", "mcp-server+docs/y"):
            await world.kernel.ls(path)
        world.told.clear()
        for uri in ("x://gone", "x://d/gone", "x://e/only", "y://only"):
            del source.contents[uri]
        source.contents |= {"x://new": b"", "x://f/deep/new": b"", "z://new": b""}
        source.announce()
        await settled()
        assert world.forgotten() == sorted(["gone", "gone", "only", "e", "only", "y", "new", "f", "z"])
        source.announce()  # it is the same
        await settled()
        assert world.forgotten() == []


@pytest.mark.semantics("S18")
async def test_an_update_invalidates_that_name_and_the_next_getattr_learns_anew(nursery: trio.Nursery) -> None:
    source = flat(a=b"1", b=b"1")
    async with World(nursery, source) as world:
        for name in ("a", "b"):
            await world.kernel.stat(ROOT + name)
        parent = (await world.kernel.walk("mcp-server+docs/x")).ino
        world.told.clear()
        source.contents["x://a"] = b"22"
        source.announce("x://a")
        assert world.told == [(parent, b"a")]
        assert (await world.kernel.stat(ROOT + "a")).size == 2
        assert source.loads == {"x://a": 2, "x://b": 1}


@pytest.mark.semantics("S18")
async def test_names_that_the_kernel_does_not_hold_are_not_told(nursery: trio.Nursery) -> None:
    source = flat(a=b"1")
    async with World(nursery, source) as world:
        await world.kernel.ls("mcp-server+docs/x")
        world.kernel.forget_all()
        source.contents["x://b"] = b""
        source.announce("x://a")
        source.announce()
        await settled()
        assert world.told == []


@pytest.mark.semantics("S18", "S1")
async def test_a_stray_scheme_that_comes_and_goes_is_told_at_the_root(nursery: trio.Nursery) -> None:
    source = FlatSource(data_source("mcp-database+pg+postgres"), contents={"postgres://a": b""})
    async with World(nursery, source) as world:
        await world.kernel.ls("mcp-database+pg+postgres")
        with pytest.raises(NotFound):
            await world.kernel.walk("mcp-database+pg+http")
        source.contents["http://h"] = b""
        source.announce()
        await settled()
        assert (ROOT_INODE, b"mcp-database+pg+http") in world.told
        await world.kernel.ls("mcp-database+pg+http")
        world.told.clear()
        del source.contents["http://h"]
        source.announce()
        await settled()
        assert (ROOT_INODE, b"mcp-database+pg+http") in world.told


# -- loading ahead -----------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S9.2", "S12")
@pytest.mark.parametrize("walk", ["stat", "cat", "stat and cat"])
async def test_a_walk_loads_each_resource_exactly_once_and_many_at_a_time(nursery: trio.Nursery, walk: str) -> None:
    source = FlatSource(data_source(concurrency=16), contents={uri: uri.encode() for uri in uris(300)})
    async with World(nursery, source) as world:
        names = await world.kernel.ls("mcp-server+docs/x/d")
        assert len(names) == 300
        for name in names:
            path = f"mcp-server+docs/x/d/{name}"
            if "stat" in walk:
                assert (await world.kernel.stat(path)).size == 10
            if "cat" in walk:
                assert await world.kernel.cat(path) == f"x://d/{name}".encode()
        assert set(source.loads.values()) == {1}
        assert len(source.loaded) == 300
        assert 8 < source.busiest <= 16


async def test_random_access_loads_nothing_else(nursery: trio.Nursery) -> None:
    source = FlatSource(contents=dict.fromkeys(uris(300), b"1"))
    async with World(nursery, source) as world:
        await world.kernel.ls("mcp-server+docs/x/d")
        wanted = [number * 37 % 300 for number in range(30)]
        for number in wanted:
            await world.kernel.cat(f"mcp-server+docs/x/d/{number:04}")
        await settled()
        assert sorted(source.loaded) == sorted(f"x://d/{number:04}" for number in wanted)


async def test_what_fails_when_it_is_loaded_ahead_harms_nobody(nursery: trio.Nursery) -> None:
    source = FlatSource(contents=dict.fromkeys(uris(20), b"1"))
    source.contents["x://d/0005"] = Denied("no")
    async with World(nursery, source) as world:
        for number in range(20):
            if number == 5:
                with pytest.raises(Denied):
                    await world.kernel.cat("mcp-server+docs/x/d/0005")
            else:
                assert await world.kernel.cat(f"mcp-server+docs/x/d/{number:04}") == b"1"
        assert set(source.loads.values()) == {1}


# -- the whole ---------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S11")
async def test_extended_attributes_of_files_and_sources(nursery: trio.Nursery) -> None:
    source = flat(a=b"12345")
    source.described["x://a"] = {"title": "Ä title", "annotations": {"priority": 0.5}}
    async with World(nursery, source) as world:
        found = await world.kernel.walk(ROOT + "a")
        names = set(await world.files.listxattr(found.ino))
        assert names == {b"user.mime_type", b"user.xdg.origin.url"}
        for name in names:
            assert await world.files.getxattr(found.ino, name)
        assert await world.kernel.xattr(ROOT + "a", "user.bbfs.uri") == "mcp-server+docs+x://a"
        assert await world.kernel.xattr(ROOT + "a", "user.bbfs.title") == "Ä title"
        assert await world.kernel.xattr(ROOT + "a", "user.bbfs.cache") == "absent"
        with pytest.raises(NoAttribute):
            await world.kernel.xattr(ROOT + "a", "user.bbfs.size")
        await world.kernel.cat(ROOT + "a")
        assert await world.kernel.xattr(ROOT + "a", "user.bbfs.size") == "5"
        assert await world.kernel.xattr("mcp-server+docs", "user.bbfs.id") == "docs"
        assert await world.kernel.xattr("mcp-server+docs", "user.bbfs.state") == "up"


@pytest.mark.semantics("S2", "S5")
async def test_the_uri_of_each_of_several_contents_leads_to_it(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://a": several(("q://elsewhere/p", b"1"), ("x://a/q r", b"22"))})
    async with World(nursery, source) as world:
        await world.kernel.stat(ROOT + "a")
        names = await world.kernel.ls(ROOT + "a")
        assert sorted(names) == ["p", "q r"]
        for name in names:
            uri = await world.kernel.xattr(f"{ROOT}a/{name}", "user.bbfs.uri")
            loaded = await world.manager.by_uri.load(uri)
            assert loaded.parts[0].content.read(0, 10) == await world.kernel.cat(f"{ROOT}a/{name}")
