"""Writing to object stores by their handlers: S3 by a server, the others by obstore's own store in memory."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import data_source
from object_stores import KEY, SECRET, S3Server, closing
from obstore.store import MemoryStore

from bbfs.model.errors import Conflict, NotFound
from bbfs.model.values import Expected
from bbfs.resources.writing.buffer import Buffer, BufferSpace
from bbfs.sources import Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.storage.handler import StorageHandler
from bbfs.sources.storage.objects import ObjectBackend

NEW = Expected(exists=False)


@pytest.fixture(params=["s3", "gs"])
async def handler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StorageHandler]:
    scheme = request.param
    config = {"url": f"{scheme}://data/", "options": {}}
    source = replace(data_source(f"bb-storage+data+{scheme}"), config=config)
    if scheme == "s3":
        server = S3Server()
        with closing(server):
            server.make_bucket("data")
            config["options"] = {"endpoint": server.url}
            made = StorageHandler(replace(source, auth={"accessKey": KEY, "secretKey": SECRET}), Services())
            yield made
            await made.aclose()
    else:
        made = StorageHandler(replace(source, config={**config, "options": {"anonymous": True}}), Services())
        assert isinstance(made.backend, ObjectBackend)
        monkeypatch.setattr(made.backend, "_store", MemoryStore())
        yield made


async def content(handler: StorageHandler, native_uri: str) -> bytes:
    [part] = (await handler.load(native_uri)).parts
    return await part.content.read_waiting(0, part.content.size)


async def test_objects_are_created_replaced_renamed_and_removed(handler: StorageHandler, tmp_path: Path) -> None:
    begin = handler.beginning + "data/"
    uri, moved = f"{begin}d/a%20b.txt", f"{begin}d/c.txt"
    assert {*handler.writes(uri)} == {"create", "replace", "remove", "rename"}
    assert "create" not in handler.writes(handler.beginning)
    told = await handler.write(uri, MemoryContent(b"one"), NEW)
    assert (told.native_uri, told.size) == (uri, 3)
    assert (await handler.stat(uri)).etag == told.etag
    assert await content(handler, uri) == b"one"
    with pytest.raises(Conflict):
        await handler.write(uri, MemoryContent(b"other"), NEW)
    again = await handler.write(uri, MemoryContent(b"two"), Expected(exists=True, etag=told.etag))
    assert again.etag != told.etag
    await handler.rename(uri, moved, replace=False)
    with pytest.raises(NotFound):
        await handler.load(uri)
    assert await content(handler, moved) == b"two"
    large = Buffer(BufferSpace(tmp_path))
    data = os.urandom(20 << 20)
    large.write(0, data)
    await handler.write(moved, large.snapshot(), Expected(exists=True))
    assert await content(handler, moved) == data
    await handler.remove(moved, Expected(exists=True))
    with pytest.raises(NotFound):
        await handler.load(moved)
