"""The extended attributes that a copy keeps: few, and without the document that has the others."""

from typing import Any

import pytest
import trio
from fakes import FlatSource, World, data_source, settled

from bbfs.model.errors import NoAttribute, NotFound
from bbfs.resources.catalog.record import Path, Record
from bbfs.vfs.names import Wait
from bbfs.vfs.xattrs import KEPT, LIMIT, ExtendedAttributes

ROOT = "mcp-server+docs/x/"


def counted(world: World) -> list[Path]:
    """The paths of the documents that are made from now on."""
    made: list[Path] = []
    document = world.manager.contents.document

    def counting(path: Path, record: Record) -> dict[str, Any]:
        made.append(path)
        return document(path, record)

    world.manager.contents.document = counting  # type: ignore[method-assign]
    return made


@pytest.mark.semantics("S11.4", "S12")
async def test_a_copy_keeps_two_and_makes_no_document(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://a": b"12345"})
    source.described["x://a"] = {"title": "Title", "description": "Description", "annotations": {"priority": 0.5}}
    async with World(nursery, source) as world:
        ino = (await world.kernel.walk(ROOT + "a")).ino
        made = counted(world)
        names = world.core.listxattr(ino)
        assert isinstance(names, list)
        assert names == [b"user.mime_type", b"user.xdg.origin.url"]
        found = [world.core.getxattr(ino, name) for name in names for _ in range(2)]
        assert not any(isinstance(value, Wait) for value in found)
        assert made == []
        assert source.loads == {}
        assert world.core.getxattr(ino, b"user.bbfs.title") == b"Title"
        assert world.core.getxattr(ino, b"user.bbfs.description") == b"Description"
        assert len(made) == 2


@pytest.mark.semantics("S11", "S11.4")
@pytest.mark.parametrize("mime_type", ["text/plain", "", None, "€" * LIMIT])
async def test_what_a_copy_keeps_is_what_the_document_says(nursery: trio.Nursery, mime_type: str | None) -> None:
    source = FlatSource(contents={"x://a": b"1"})
    source.described["x://a"] = {"mime_type": mime_type}
    async with World(nursery, source) as world:
        ino = (await world.kernel.walk(ROOT + "a")).ino
        path = world.core.names.path(ino)
        whole = ExtendedAttributes(world.manager.tree, world.manager.contents).all(
            path, await world.core.names.resolve(path)
        )
        names = world.core.listxattr(ino)
        assert isinstance(names, list)
        assert names == [name.encode() for name in KEPT if name in whole]
        assert [world.core.getxattr(ino, name) for name in names] == [whole[name.decode()] for name in names]


@pytest.mark.semantics("S11.4", "S18")
async def test_what_a_copy_keeps_of_an_opened_file_takes_no_walk_until_something_changes(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = data_source(listing_ttl=100.0, content_ttl=1000.0)
    source = FlatSource(policy, contents={"x://a": b"1", "x://b": b"2"})
    source.described["x://a"] = {"mime_type": "text/plain"}
    async with World(nursery, source) as world:
        ino = (await world.kernel.walk(ROOT + "a")).ino
        await world.kernel.cat(ROOT + "a")
        walks: list[Path] = []
        cached = world.manager.tree.cached
        monkeypatch.setattr(world.manager.tree, "cached", lambda path, _: walks.append(path) or cached(path))

        def kept() -> list[bytes | Wait]:
            names = world.core.listxattr(ino)
            assert isinstance(names, list)
            return [world.core.getxattr(ino, name) for name in names]

        assert kept() == [b"text/plain", b"x://a"]
        assert walks == []
        source.described["x://a"] = {"mime_type": "text/html"}
        source.announce()
        await settled()
        assert kept() == [b"text/html", b"x://a"]
        source.announce("x://a")
        walks.clear()
        assert kept() == [b"text/html", b"x://a"]
        assert len(walks) == 3
        del source.contents["x://a"]
        source.announce()
        await settled()
        for name in KEPT:
            with pytest.raises(NotFound):
                world.core.getxattr(ino, name.encode())


@pytest.mark.semantics("S11")
async def test_what_is_learnt_shows_at_once(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://a": b"12345"})
    async with World(nursery, source) as world:
        ino = (await world.kernel.walk(ROOT + "a")).ino
        assert world.core.getxattr(ino, b"user.bbfs.cache") == b"absent"
        await world.kernel.cat(ROOT + "a")
        assert world.core.getxattr(ino, b"user.bbfs.cache") == b"fresh"
        assert world.core.getxattr(ino, b"user.bbfs.size") == b"5"
        world.files.refresh(tuple((ROOT + "a").split("/")))
        assert world.core.getxattr(ino, b"user.bbfs.cache") == b"stale"
        with pytest.raises(NoAttribute):
            world.core.getxattr(ino, b"user.none")
