"""`bbfs put`: a write of the owner like every other, with a MIME type and a description (S32)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from fakes import FlatSource

from bbfs.model.errors import BbfsError, Conflict, Exists, NotFound, ReadOnly
from bbfs.model.values import Content, DataSource, ResourceMetadata
from bbfs.model.versions import Expected, Labels
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.commands.answers import ask
from bbfs.resources.commands.table import Put, Remove, Retry, Stored
from bbfs.resources.manager import ResourceManager
from bbfs.resources.writing.pending import PendingStore
from bbfs.sources import Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.memory.handler import MemoryHandler

PREFIX = "bb-memory+kb+memory"


class Shared(MemoryHandler):
    """Resources in memory that another program changes just before a write, once."""

    is_raced = False
    pauses_ended = 0

    def end_pause(self) -> None:
        self.pauses_ended += 1

    async def write_described(
        self, native_uri: str, content: Content, expected: Expected, labels: Labels
    ) -> ResourceMetadata:
        if self.is_raced:
            self.is_raced = False
            await self.put(native_uri, b"theirs")
        return await super().write_described(native_uri, content, expected, labels)


class Kb:
    """A source that the configuration does not let programs write."""

    def __init__(self, manager: ResourceManager, handler: Shared) -> None:
        self.manager = manager
        self.handler = handler

    async def told(self, name: str) -> tuple[bytes, str | None, str | None]:
        """Return a content with its MIME type and description."""
        loaded = await self.handler.load(f"memory://{name}")
        assert loaded.metadata is not None
        data = loaded.parts[0].content.read(0, 100) or b""
        return data, loaded.metadata.mime_type, loaded.metadata.description


@pytest.fixture
async def kb(tmp_path: Path) -> AsyncIterator[Kb]:
    data = DataSource("kb", "kb", "memory", "bb", PREFIX)
    handler = Shared(data, Services())
    pending = PendingStore(tmp_path / "pending")
    async with trio.open_nursery() as nursery:
        manager = ResourceManager(nursery, cache_bytes=1 << 20, store=MetadataStore(None), pending=pending)
        await manager.add(data, handler)
        yield Kb(manager, handler)
        nursery.cancel_scope.cancel()


async def test_a_put_has_labels_that_a_later_one_keeps(kb: Kb) -> None:
    stored: list[Stored] = []
    path = f"{PREFIX}/notes/a"
    await ask(kb.manager, Put(path, data=b"one", mime_type="text/x-note", description="first"), stored.append)
    assert stored == [Stored(f"{PREFIX}://notes/a", 3, MemoryContent(b"one").version)]
    assert await kb.told("notes/a") == (b"one", "text/x-note", "first")
    await ask(kb.manager, Put(uri=f"{PREFIX}://notes/a", data=b"two", description="second"))
    assert await kb.told("notes/a") == (b"two", "text/x-note", "second")
    with pytest.raises(Exists):
        await ask(kb.manager, Put(path, data=b"three", replace=False))
    await ask(kb.manager, Remove(path))
    with pytest.raises(NotFound):
        await ask(kb.manager, Remove(path))
    assert list(kb.manager.writer.pending.items()) == []


@pytest.mark.semantics("S24.1", "S32", "S34")
async def test_a_put_that_meets_another_version_is_pending_with_its_labels(kb: Kb) -> None:
    path = f"{PREFIX}/a"
    await ask(kb.manager, Put(path, data=b"one"))
    kb.handler.is_raced = True
    with pytest.raises(Conflict):
        await ask(kb.manager, Put(path, data=b"mine", mime_type="text/x-note"))
    assert (await kb.told("a"))[0] == b"theirs"
    [item] = kb.manager.writer.pending.items()
    assert (item.size, item.mime_type) == (4, "text/x-note")
    assert kb.handler.pauses_ended == 0
    with pytest.raises(Conflict):
        await ask(kb.manager, Retry(item.id))
    assert kb.handler.pauses_ended == 1
    kb.manager.refresh(())
    assert kb.handler.pauses_ended == 2
    file = kb.manager.writer.pending.content_path(item)
    file.write_bytes(b"mi")  # as by a crash of the machine
    with pytest.raises(BbfsError, match="has 2 bytes, and 4 were written"):
        await ask(kb.manager, Retry(item.id, force=True))
    assert ((await kb.told("a"))[0], list(kb.manager.writer.pending.items())) == (b"theirs", [item])
    file.write_bytes(b"mine")
    await ask(kb.manager, Retry(item.id, force=True))
    assert (await kb.told("a"))[:2] == (b"mine", "text/x-note")
    assert list(kb.manager.writer.pending.items()) == []


async def test_a_source_that_is_not_written_refuses_a_put(kb: Kb) -> None:
    source = FlatSource()
    await kb.manager.add(source.source, source)
    with pytest.raises(ReadOnly):
        await ask(kb.manager, Put(f"{source.source.uri_prefix}/x/new", data=b"x", mime_type="text/x"))
