"""MCP servers that read directories (SEP-2640): a level at a time, whatever the list of all resources has."""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from odd_servers import until
from trees_server import asked

from bbfs.model.errors import BbfsError, NotADirectory, NotFound
from bbfs.model.listing import Rows
from bbfs.resources.manager import ResourceManager
from bbfs.sources.mcp import directories
from bbfs.sources.mcp.client.paging import End
from bbfs.sources.mcp.directories import DirectoryEntries, NamedDirectories, first_directory

SOURCE = "mcp-server+t"
ROOT = (SOURCE, "tree", "root")
Trees = Callable[..., AbstractAsyncContextManager[ResourceManager]]


async def names(manager: ResourceManager, *path: str) -> dict[str, str]:
    return {name: node.kind for name, node in (await manager.tree.children(path)).items()}


@pytest.mark.semantics("S44", "S44.1")
async def test_a_level_costs_one_request(trees: Trees, log: Path) -> None:
    async with trees("--width", "100", "--page", "1000") as manager:
        assert await names(manager, SOURCE) == {"other": "directory", "tree": "directory"}
        assert await names(manager, SOURCE, "tree") == {"root": "directory"}
        assert await names(manager, SOURCE, "other") == {"x": "file"}
        assert await names(manager, *ROOT, "07") == {f"{number:02}": "directory" for number in range(100)}
        assert await names(manager, *ROOT, "07", "99") == {f"{number:02}": "file" for number in range(100)}
        assert asked(log, "resources/directory/read") == ["tree://root", "tree://root/07", "tree://root/07/99"]
        assert asked(log, "resources/list") == ["-"]  # of a thousand pages

        assert (await manager.tree.find((*ROOT, "07", "99", "01"))).kind == "file"
        loaded = await manager.by_uri.load(f"{SOURCE}+tree://root/07/99/01")
        assert loaded.parts[0].content.read(0, 100) == b"content of tree://root/07/99/01\n"
        for wrong, error in (
            (("07", "no"), NotFound),
            (("no", "a"), NotFound),
            (("07", "99", "01", "a"), NotADirectory),
        ):
            with pytest.raises(error):
                await manager.tree.find((*ROOT, *wrong))
        assert len(asked(log, "resources/directory/read")) == 3  # all answers were there


async def test_a_directory_that_no_list_names_is_found_by_what_is_below(trees: Trees, log: Path) -> None:
    async with trees("--width", "30", "--page", "1000", "--unnamed") as manager:
        assert len(await names(manager, *ROOT)) == 30
        assert asked(log, "resources/directory/read") == ["tree://root"] * 2
        assert len(asked(log, "resources/list")) == 2


async def test_a_short_list_that_names_no_directory_is_all(trees: Trees, log: Path) -> None:
    async with trees("--unnamed") as manager:
        assert len(await names(manager, *ROOT, "00", "01")) == 3
        assert asked(log, "resources/directory/read") == []
        assert all(source.catalog.lists_all for source in manager.sources.values())


@pytest.mark.semantics("S18", "S44.3")
@pytest.mark.parametrize("told", ["list_changed", "updated"])
async def test_a_notification_ends_what_is_cached(trees: Trees, tmp_path: Path, told: str) -> None:
    more, say = tmp_path / "more", tmp_path / "say"
    more.mkdir()
    os.mkfifo(say)
    notification: Mapping[str, Any] = {
        "list_changed": {"method": "notifications/resources/list_changed"},
        "updated": {"method": "notifications/resources/updated", "params": {"uri": "tree://root"}},
    }[told]
    async with trees("--more", more, "--say", say, ttl=3600) as manager:
        assert "new" not in await names(manager, *ROOT)
        (more / "new").touch()
        assert "new" not in await names(manager, *ROOT)
        changed: list[Any] = []
        manager.changes.subscribe(changed.append)
        say.write_text(json.dumps({"jsonrpc": "2.0", **notification}) + "\n")
        await until(lambda: any(ROOT in change.paths for change in changed))
        assert "new" in await names(manager, *ROOT)


@pytest.mark.parametrize("lies", ["fails", "array"])
async def test_a_failing_directory_is_an_error_of_its_own(trees: Trees, lies: str) -> None:
    async with trees("--lies", lies) as manager:
        for path in (ROOT, (*ROOT, "00")):
            with pytest.raises(BbfsError):
                await manager.tree.view(path)
        assert (await manager.tree.find((SOURCE, "other", "x"))).kind == "file"
        (source,) = manager.sources.values()
        assert source.problem is not None


async def entries(uri: str, *raw: Any) -> tuple[dict[str, str], str | None]:
    """The entries of a directory by their native URIs, with their kinds; and what is missing."""
    found = DirectoryEntries("mcp-server+t", uri)
    taken = found.take(raw)
    listing = await found.listing(End(None, f"{taken.invalid} invalid" if taken.invalid else None), lambda each: each)
    return {each.native_uri: each.kind for each in listing.resources}, listing.problem


def resource(uri: str, mime_type: str | None = None) -> dict[str, Any]:
    return {"uri": uri, "name": "../../etc/passwd", **({} if mime_type is None else {"mimeType": mime_type})}


@pytest.mark.parametrize(
    ("uri", "children"),
    [
        ("tree://root", {"tree://root/a": "resource", "tree://root/b": "directory"}),
        ("agents://", {"agents://a": "resource", "agents://b": "directory"}),
        ("agents:", {"agents:a": "resource", "agents://b": "directory"}),
        ("bb-filesystem+n+file:.", {"bb-filesystem+n+file:./a": "resource", "bb-filesystem+n+file:./b": "directory"}),
        ("tree://root/d", {"tree://root/d/z%2Fy": "resource", "tree://root/d/..": "resource"}),
        ("tree://root/d", {"tree://root/d": "resource", "tree://root/d/x": "resource"}),  # its own content, and a file
    ],
)
async def test_entries(uri: str, children: dict[str, str]) -> None:
    raw = (resource(each, "inode/directory" if kind == "directory" else None) for each, kind in children.items())
    assert await entries(uri, *raw) == (children, None)


@pytest.mark.semantics("S44.2")
@pytest.mark.parametrize(
    "elsewhere", ["tree://root", "tree://other/x", "tree:", "tree://root/a/b", "x", "tree://root/."]
)
async def test_what_is_not_in_the_directory_is_left_out(elsewhere: str) -> None:
    found, problem = await entries("tree://root", resource("tree://root/a"), resource(elsewhere, "inode/directory"))
    assert (found, problem) == ({"tree://root/a": "resource"}, "1 entries outside of the directory left out")


async def test_entries_that_are_none() -> None:
    twice = (resource("tree://r/a"), resource("tree://r/a"), resource("tree://r/a/", "text/plain"))
    found, problem = await entries(
        "tree://r", *twice, None, 7, {"uri": ""}, {"uri": ["tree://r/b"]}, {"uri": "x" * 70_000}
    )
    assert (found, problem) == ({"tree://r/a": "resource"}, "6 invalid")


def named(*pages: list[dict[str, Any]]) -> tuple[set[str], set[str], bool]:
    """The directories and the resources outside of them, and whether the rest of the list need not be read."""
    rows = Rows("mcp-server+t")
    found = NamedDirectories(rows)
    for page in pages:
        found.take(page)
    is_told = found.is_told
    kept, _ = found.end(End(None, None))
    return set(kept), {each.native_uri for each in rows}, is_told


def test_named_directories() -> None:
    inner, outer = resource("t://a/b/c", "inode/directory"), resource("t://a/b", "inode/directory")
    files = [resource(f"t://a/{name}") for name in ("b/x", "b/c/x", "x", "bx", "b")]
    tool = resource("tool://x", "inode/directory")
    for page in ([inner, outer, tool, *files], [*files, tool, inner, outer]):
        assert named(page) == ({"t://a/b"}, {"t://a/x", "t://a/bx", "tool://x"}, False)
    assert named(files, files) == (set(), {each["uri"] for each in files}, False)
    opaque = [resource("memo:", "inode/directory"), resource("memo:one"), resource("note:two")]
    assert named(opaque) == ({"memo:"}, {"note:two"}, False)  # no slash says where they are


def test_the_rest_of_a_list_is_of_no_interest_after_a_thousand() -> None:
    page = [resource("t://a", "inode/directory"), *(resource(f"t://a/{number}") for number in range(999))]
    assert not named(page)[2]
    assert named(page, [resource("t://a/b/c")])[2]
    assert not named(page, [resource("t://b")])[2]
    most = directories.MOST_NAMED
    kept, _, _ = named([resource(f"t://{number}", "inode/directory") for number in range(most + 2)])
    assert kept == {f"t://{number}" for number in range(most)}


@pytest.mark.parametrize(
    ("uri", "directory"),
    [
        ("t://a/b/c", "t://a"),
        ("file:///home/user/x", "file:///home"),
        ("t://a", None),
        ("mailto:a/b", None),
        ("a/b", None),
        ("://", None),
    ],
)
def test_the_uppermost_directory(uri: str, directory: str | None) -> None:
    assert first_directory(uri) == directory
