"""Extended attributes that are asked for one after the other: made once, and never other than they are."""

from typing import Any

import pytest
import trio
from fakes import FlatSource, World

from bbfs.model.errors import NoAttribute
from bbfs.resources.catalog.record import Path, Record
from bbfs.vfs.xattrs import AT_ONCE, HELD

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


@pytest.mark.semantics("S11")
async def test_a_program_that_asks_for_each_has_them_made_once(nursery: trio.Nursery) -> None:
    async with World(nursery, FlatSource(contents={"x://a": b"12345"})) as world:
        ino = (await world.kernel.walk(ROOT + "a")).ino
        made = counted(world)
        names = world.core.listxattr(ino)
        assert isinstance(names, list)
        assert names
        for name in names * 2:
            assert world.core.getxattr(ino, name) == await world.files.getxattr(ino, name)
        with pytest.raises(NoAttribute):
            world.core.getxattr(ino, b"user.none")
        assert len(made) == 1


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


async def test_time_shows_after_a_moment(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={"x://a": b"12345"}, content_ttl=10.0)
    async with World(nursery, source) as world:
        await world.kernel.cat(ROOT + "a")
        ino = (await world.kernel.walk(ROOT + "a")).ino
        assert world.core.getxattr(ino, b"user.bbfs.cache") == b"fresh"
        world.clock.advance(10 + HELD)
        assert world.core.getxattr(ino, b"user.bbfs.cache") == b"stale"


async def test_those_asked_for_last_are_kept(nursery: trio.Nursery) -> None:
    source = FlatSource(contents={f"x://{number}": b"1" for number in range(AT_ONCE + 1)})
    async with World(nursery, source) as world:
        numbers = [(await world.kernel.walk(f"{ROOT}{number}")).ino for number in range(AT_ONCE + 1)]
        made = counted(world)
        for ino in (*numbers, numbers[-1], numbers[0]):
            world.core.listxattr(ino)
        assert len(made) == AT_ONCE + 2
