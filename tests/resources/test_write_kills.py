"""A daemon that is killed at any step of a save leaves the old or the new file, and every byte that it lacks (S32)."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from fakes import World
from writable import WritableTree

from bbfs.model.values import Content, ResourceMetadata
from bbfs.model.versions import Expected
from bbfs.resources.writing.pending import PendingStore, PendingWrite
from bbfs.sources.content.memory import MemoryContent

URI = "file:./a.txt"
OLD, NEW = b"old", os.urandom(5000)


class Killed(BaseException):
    """The process ends here, whatever it was about to do."""


def killed(*_: object) -> None:
    raise Killed


class Dying(WritableTree):
    """A source whose daemon dies before or after it stores a content. moment: `before`, `after` or None."""

    moment: str | None = None

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        if self.moment == "before":
            killed()
        told = await super().write(native_uri, content, expected)
        if self.moment == "after":
            killed()
        return told


def at(step: str, monkeypatch: pytest.MonkeyPatch) -> Dying:
    """Return a source, and let the daemon die at a step."""
    source = Dying()
    source.contents = {URI: OLD}
    keep, drop = PendingStore.keep, PendingStore.drop
    if step in ("before", "after"):
        source.moment = step
    elif step == "keep":
        monkeypatch.setattr(PendingStore, "keep", killed)
    elif step == "describe":
        monkeypatch.setattr(json, "dump", killed)
    elif step == "kept":

        def kept(store: PendingStore, write: PendingWrite, content: MemoryContent) -> None:
            keep(store, write, content)
            killed()

        monkeypatch.setattr(PendingStore, "keep", kept)
    elif step == "drop":
        monkeypatch.setattr(PendingStore, "drop", killed)
    elif step == "half dropped":
        unlink: Callable[..., None] = Path.unlink

        def once(path: Path, **options: bool) -> None:
            unlink(path, **options)
            if path.suffix == ".json":
                killed()

        monkeypatch.setattr(Path, "unlink", once)
    else:

        def dropped(store: PendingStore, write_id: str) -> None:
            drop(store, write_id)
            killed()

        monkeypatch.setattr(PendingStore, "drop", dropped)
    return source


@pytest.mark.semantics("S32.4")
@pytest.mark.parametrize(
    ("step", "stored", "pending"),
    [
        ("keep", OLD, False),
        ("describe", OLD, False),
        ("kept", OLD, True),
        ("before", OLD, True),
        ("after", NEW, True),
        ("drop", NEW, True),
        ("half dropped", NEW, False),
        ("dropped", NEW, False),
    ],
)
async def test_the_file_is_the_old_or_the_new_one(
    step: str, stored: bytes, pending: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source, store = at(step, monkeypatch), PendingStore(tmp_path)
    with pytest.raises(BaseExceptionGroup) as died:  # noqa: PT012 - all of it dies
        async with trio.open_nursery() as nursery, World(nursery, source) as world:
            world.manager.writer.pending = store
            [writes] = world.manager.sources.values()
            await world.manager.writer.write(writes, URI, MemoryContent(NEW), Expected(exists=True))
    assert died.value.subgroup(Killed) is not None
    monkeypatch.undo()
    assert source.contents == {URI: stored}
    items = [*store.items()]
    assert bool(items) == pending
    for item in items:
        assert store.content_path(item).read_bytes() == NEW
        assert (item.uri, item.expected) == (f"bb-scripted+tree+{URI}", Expected(exists=True))
