"""Searches as directories (S36)."""

import json

import pytest
import trio
from fakes import FlatSource, SearchingSource, TreeSource, World, data_source

from bbfs.model.errors import BbfsError, InvalidUri, NotFound
from bbfs.model.values import Hit
from bbfs.vfs.about import root_description
from bbfs.vfs.search import HOLDS, MARKDOWN, NDJSON, SHOWN, SearchHandler

DOCS, TREE = "mcp-server+docs", "bb-scripted+tree+file"


async def searching(world: World) -> World:
    await world.manager.add_view(SearchHandler(world.manager))
    return world


def docs(*hits: Hit, **fields: object) -> SearchingSource:
    contents = {"x://tls/renew.md": b"renew", "x://tls/issue": b"issue", "x://soup.txt": b"soup"}
    found = hits or (Hit("x://tls/renew.md", 2.0, "Renew it", "how to *renew*", "line 3"), Hit("x://soup.txt"))
    return SearchingSource(contents=contents, hits=list(found), **fields)  # type: ignore[arg-type]


async def link(world: World, path: str) -> str:
    found = await world.kernel.walk(path)
    assert found.kind == "symlink"
    return (await world.files.readlink(found.ino)).decode()


@pytest.mark.semantics("S36.5")
async def test_hits_are_links_in_the_order_of_their_rank(nursery: trio.Nursery) -> None:
    source = docs()
    async with World(nursery, source) as world:
        await searching(world)
        here = ".search/renew the certificate"
        found = await world.kernel.stat(here)
        assert (found.kind, source.searched, source.listed) == ("directory", [], [])
        assert await world.kernel.ls(here) == ["01 Renew it.md", "02 soup.txt", MARKDOWN, NDJSON]
        assert await link(world, f"{here}/01 Renew it.md") == f"../../{DOCS}/x/tls/renew.md"
        assert await link(world, f"{here}/02 soup.txt") == f"../../{DOCS}/x/soup.txt"
        lines = [json.loads(line) for line in (await world.kernel.cat(f"{here}/{NDJSON}")).splitlines()]
        assert lines[0] == {
            "rank": 1,
            "link": "01 Renew it.md",
            "target": f"../../{DOCS}/x/tls/renew.md",
            "path": f"{DOCS}/x/tls/renew.md",
            "uri": f"{DOCS}+x://tls/renew.md",
            "source": "docs",
            "title": "Renew it",
            "snippet": "how to *renew*",
            "where": "line 3",
            "score": 0.166667,
            "foundBy": ["docs"],
        }
        text = (await world.kernel.cat(f"{here}/{MARKDOWN}")).decode()
        assert text.startswith(
            "# Search for “renew the certificate”\n\n1. [Renew it](../../mcp-server%2Bdocs/x/tls/renew.md)"
        )
        assert "   > how to \\*renew\\*\n" in text
        assert (await world.kernel.stat(f"{here}/{MARKDOWN}")).size == len(text.encode())
        assert (source.searched, source.loaded) == (["renew the certificate"], [])
        world.clock.advance(HOLDS + 1)
        await world.kernel.ls(here)
        assert len(source.searched) == 2


@pytest.mark.semantics("S22", "S36.7")
async def test_a_hit_of_a_slow_search_is_a_link_from_its_lookup_on(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    source = docs()
    source.hold(source.SEARCHING)
    async with World(nursery, source) as world:
        await searching(world)
        found = await world.kernel.walk(".search/renew/01 Renew it.md")
        assert (found.kind, found.entry_timeout) == ("symlink", 0.0)
        none = await world.kernel.walk(".search/renew/09 none")
        source.release(source.SEARCHING)
        assert await world.files.readlink(found.ino) == f"../../{DOCS}/x/tls/renew.md".encode()
        with pytest.raises(NotFound):
            await world.files.readlink(none.ino)
        assert source.searched == ["renew"]


@pytest.mark.semantics("S36.5")
async def test_each_directory_has_searches_of_what_is_below_it(nursery: trio.Nursery) -> None:
    source, tree = docs(), TreeSource(contents={"file:./d/t.md": b"t"})
    async with World(nursery, source, tree) as world:
        await searching(world)
        below = f"{DOCS}/x/tls/.search/renew"
        assert await world.kernel.ls(below) == ["01 Renew it.md", MARKDOWN, NDJSON]
        assert await link(world, f"{below}/01 Renew it.md") == "../../renew.md"
        assert await world.kernel.ls(f"{DOCS}/.search/renew") == ["01 Renew it.md", "02 soup.txt", MARKDOWN, NDJSON]
        text = (await world.kernel.cat(f"{TREE}/d/.search/t/{MARKDOWN}")).decode()
        assert "Nothing was found." in text
        assert "cannot be searched: tree" in text
        for path in (f"{TREE}/d/t.md/.search", f"{TREE}/none/.search", "none/.search"):
            with pytest.raises((NotFound, BbfsError)):
                await world.kernel.ls(path)


@pytest.mark.semantics("S36.6", "S36.7")
async def test_no_listing_has_a_search_and_programs_that_look_around_ask_nothing(nursery: trio.Nursery) -> None:
    source = docs()
    async with World(nursery, source, TreeSource(contents={"file:./d/t.md": b"t"})) as world:
        await searching(world)
        for path in ("", DOCS, f"{DOCS}/x", f"{DOCS}/x/tls", TREE, f"{TREE}/d"):
            assert ".search" not in await world.kernel.ls(path)
            assert await world.kernel.ls(f"{path}/.search" if path else ".search") == []
        for name in (".git", ".gitignore", ".hidden"):
            with pytest.raises(NotFound):
                await world.kernel.stat(f".search/{name}")
        with pytest.raises(NotFound):
            await world.kernel.stat(".search/renew/none")
        await world.kernel.ls(".search/a%2Fb")
        assert source.searched == ["renew", "a/b"]
        with pytest.raises(InvalidUri):
            await world.kernel.ls(".search/ ")


@pytest.mark.semantics("S36.6")
async def test_a_resource_of_that_name_comes_first(nursery: trio.Nursery) -> None:
    tree = TreeSource(contents={"file:./.search": b"its own", "file:./d/.search/q/own": b"deeper"})
    flat = FlatSource(contents={"x://.search": b"listed", "x://d/a": b"a"})
    async with World(nursery, tree, flat) as world:
        await searching(world)
        assert await world.kernel.cat(f"{TREE}/.search") == b"its own"
        assert await world.kernel.cat(f"{TREE}/d/.search/q/own") == b"deeper"
        assert await world.kernel.ls(f"{TREE}/d/.search") == ["q"]
        assert await world.kernel.cat(f"{DOCS}/x/.search") == b"listed"
        assert await world.kernel.ls(f"{DOCS}/x/d/.search/a") == [MARKDOWN, NDJSON]


@pytest.mark.semantics("S36")
async def test_a_template_that_takes_any_name_is_not_asked_for_it(nursery: trio.Nursery) -> None:
    source = docs()
    source.template("x://{name}")
    async with World(nursery, source) as world:
        await searching(world)
        assert await world.kernel.ls(f"{DOCS}/x/.search/soup") == ["01 Renew it.md", "02 soup.txt", MARKDOWN, NDJSON]
        assert source.loaded == []


@pytest.mark.semantics("S27", "S36")
@pytest.mark.parametrize(
    "title",
    ["a/b/../c", "\0\x1b[31m\n\u202e", "%2e%2E%00", "é" * 300, "x" * 300, "..", "e\u0301", "~", "-rf", "\ud800", " "],
)
async def test_names_of_links_are_safe_and_unique(nursery: trio.Nursery, title: str) -> None:
    source = docs(
        Hit("x://soup.txt", title=title), Hit("x://tls/renew.md", title=title), Hit("x://tls/issue", title=title)
    )
    async with World(nursery, source) as world:
        await searching(world)
        names = await world.kernel.ls(".search/q")
        assert len(set(names)) == 5
        for rank, name in enumerate(names[:3], 1):
            assert name.startswith(f"{rank:02} ") or name == f"{rank:02}"
            assert name.isprintable()
            assert "/" not in name
            assert len(name.encode()) <= 255
            assert (await link(world, f".search/q/{name}")).startswith(f"../../{DOCS}/x/")


@pytest.mark.semantics("S35")
async def test_the_description_of_the_root_says_how_to_search_if_something_can(nursery: trio.Nursery) -> None:
    source = docs()
    async with World(nursery, source) as world:
        assert "`ls '.search/some words'`" in root_description(world.manager, {})
        source.searches = False
        assert ".search" not in root_description(world.manager, {})


async def test_hits_of_a_directory_are_bounded(nursery: trio.Nursery) -> None:
    names = [f"x://{number}" for number in range(SHOWN * 2)]
    source = SearchingSource(data_source(), contents=dict.fromkeys(names, b""), hits=[Hit(name) for name in names])
    async with World(nursery, source) as world:
        await searching(world)
        assert len(await world.kernel.ls(".search/q")) == SHOWN + 2
