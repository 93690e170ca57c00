"""The files that describe the sources (S35)."""

import logging

import pytest
import trio
from fakes import FlatSource, TreeSource, World, data_source

from bbfs.model import source_types
from bbfs.model.errors import BbfsError, Unreachable
from bbfs.model.uri import ABOUT
from bbfs.model.values import ResourceTemplate, SourceState
from bbfs.vfs.about import AboutHandler

DOCS, TREE = "mcp-server+docs", "bb-scripted+tree+file"


async def described(world: World, *, agents: bool = False) -> World:
    await world.manager.add_view(AboutHandler(world.manager, agents=agents))
    return world


async def text(world: World, path: str) -> str:
    return (await world.kernel.cat(path)).decode()


@pytest.mark.semantics("S35.1")
async def test_a_source_that_describes_itself_lists_its_description_and_a_mirror_does_not(
    nursery: trio.Nursery,
) -> None:
    sources = FlatSource(contents={"x://a": b"1"}), TreeSource(contents={"file:./b": b"2"})
    async with World(nursery, *sources) as world:
        await described(world)
        assert await world.kernel.ls() == [ABOUT, TREE, DOCS]
        assert await world.kernel.ls(DOCS) == [ABOUT, "x"]
        assert await world.kernel.ls(TREE) == ["b"]
        for path in (ABOUT, f"{DOCS}/{ABOUT}", f"{TREE}/{ABOUT}"):
            assert len(await text(world, path)) == (await world.kernel.stat(path)).size > 0
        for handler in sources:
            assert handler.loaded == []


async def test_a_mount_searches_no_package_for_the_type_of_its_own_files(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look at what is installed takes longer than all else that a mount of one folder begins with."""
    asked: list[str] = []
    monkeypatch.setattr(source_types, "find", asked.append)
    async with World(nursery, FlatSource()) as world:
        await described(world)
    assert asked == []


@pytest.mark.semantics("S35")
async def test_a_resource_of_that_name_comes_first(nursery: trio.Nursery) -> None:
    async with World(nursery, TreeSource(contents={f"file:./{ABOUT}": b"its own"})) as world:
        await described(world)
        assert await text(world, f"{TREE}/{ABOUT}") == "its own"
        assert await world.kernel.ls(TREE) == [ABOUT]


@pytest.mark.semantics("S35", "S6")
async def test_a_source_that_is_down_says_why(nursery: trio.Nursery) -> None:
    down = FlatSource(state=SourceState("down", "no such program"), down=Unreachable("no such program"))
    mirror = TreeSource(down=Unreachable("no such host"))
    async with World(nursery, down, mirror) as world:
        await described(world)
        assert "Down. Last error: no such program" in await text(world, f"{DOCS}/{ABOUT}")
        assert "no such host" in await text(world, f"{TREE}/{ABOUT}")


@pytest.mark.semantics("S35", "S9")
async def test_a_size_that_no_load_tells_names_the_option_that_avoids_the_load(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    source = FlatSource(contents={f"x://{name}": BbfsError("no kubeconfig") for name in "abc"})
    with caplog.at_level(logging.INFO, "bbfs.resources.source"):
        async with World(nursery, source) as world:
            await described(world)
            for name in "abc":
                with pytest.raises(BbfsError, match="no kubeconfig"):
                    await world.kernel.stat(f"{DOCS}/x/{name}")
            assert "-o docs.sizes=lazy" in await text(world, f"{DOCS}/{ABOUT}")
            assert len([line for line in caplog.messages if "sizes=lazy" in line]) == 1
            world.clock.advance(10)
            source.contents["x://c"] = b"1"
            assert (await world.kernel.stat(f"{DOCS}/x/c")).size == 1
            assert "sizes=lazy" not in await text(world, f"{DOCS}/{ABOUT}")


@pytest.mark.semantics("S35.3")
async def test_it_waits_for_the_first_listing_but_not_for_ever(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    slow = FlatSource(contents={"x://a": b"1"})
    gate = slow.hold(FlatSource.LISTING)
    async with World(nursery, slow) as world:
        await described(world)
        before = trio.current_time()
        assert "has not been listed yet" in await text(world, f"{DOCS}/{ABOUT}")
        assert trio.current_time() - before < 3
        gate.set()


@pytest.mark.semantics("S35", "S34")
async def test_templates_have_the_path_of_an_example(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://a": b"1"})
    source.templates = [
        ResourceTemplate("x://{user}/notes", "notes", description="Notes\n# of a user"),
        ResourceTemplate("x://a;touch%20b/{v}", "command"),
        ResourceTemplate("x://`id`/{v}", "quotes"),
        ResourceTemplate("x://-rf/{v}", "option"),
    ]
    async with World(nursery, source) as world:
        await described(world)
        found = await text(world, f"{DOCS}/{ABOUT}")
        assert "- `x://{user}/notes`, for example `cat x/USER/notes`: Notes # of a user\n" in found
        assert "- `x://a;touch%20b/{v}`, for example `cat 'x/a;touch b/V'`\n" in found
        assert "- `x://'id'/{v}`\n" in found
        assert "for example `cat x/-rf/V`" in found


@pytest.mark.semantics("S35")
async def test_instructions_are_quoted_line_by_line(nursery: trio.Nursery) -> None:
    source = FlatSource(state=SourceState("up", instructions="Ask first.\n\x1b[2J# Not a heading"))
    async with World(nursery, source) as world:
        await described(world)
        assert "> Ask first.\n>  [2J# Not a heading\n" in await text(world, f"{DOCS}/{ABOUT}")


@pytest.mark.semantics("S35.2", "S35.3")
async def test_the_root_describes_all_sources_and_asks_none(nursery: trio.Nursery) -> None:
    sources = FlatSource(), FlatSource(data_source("mcp-server+other"))
    async with World(nursery, *sources) as world:
        await described(world, agents=True)
        assert (await world.kernel.ls())[:2] == [ABOUT, "AGENTS.md"]
        found = await text(world, "AGENTS.md")
        assert found == await text(world, ABOUT)
        assert f"[{DOCS}]({DOCS}/{ABOUT})" in found
        assert "[mcp-server+other]" in found
        assert sources[0].listed == sources[1].listed == []
