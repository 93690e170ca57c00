"""Writing to object stores by their handlers: S3 by a server, the others by obstore's own store in memory."""

import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from fakes import data_source
from http_server import Answers, HttpServer
from object_stores import S3Server, handler_at
from obstore.store import MemoryStore

from bbfs.model.errors import BbfsError, Conflict, NoSpace
from bbfs.model.versions import Expected
from bbfs.sources import Services
from bbfs.sources.content.buffer import Buffer, BufferSpace
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.storage.backend import StoredItem
from bbfs.sources.storage.handler import StorageHandler
from bbfs.sources.storage.s3 import backend

NEW = Expected(exists=False)


@pytest.fixture(params=["s3", "gs"])
async def handler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StorageHandler]:
    if request.param == "s3":
        with closing(S3Server()) as server:
            server.make_bucket("data")
            async with aclosing(handler_at(server.url)) as made:
                yield made
    else:
        config = {"url": "gs://data/", "options": {"anonymous": True}}
        monkeypatch.setattr("obstore.store.GCSStore", lambda *_, **__: MemoryStore())
        made = StorageHandler(data_source("bb-storage+data+gs", config=config), Services())
        yield made


@pytest.fixture
async def s3() -> AsyncIterator[tuple[StorageHandler, S3Server]]:
    with closing(S3Server()) as server:
        server.make_bucket("data")
        async with aclosing(handler_at(server.url)) as made:
            yield made, server


class Parts:
    """A content whose first reads wait until there are `wanted` of them. One at `failing` fails."""

    version = "1"

    def __init__(self, data: bytes, wanted: int, failing: int | None = None) -> None:
        self.size, self.reading, self.most = len(data), 0, 0
        self._data, self._wanted, self._failing, self._all = data, wanted, failing, trio.Event()

    def read(self, offset: int, length: int) -> bytes | None:
        return None

    async def read_waiting(self, offset: int, length: int) -> bytes:
        self.reading += 1
        self.most = max(self.most, self.reading)
        if self.reading == self._wanted:
            self._all.set()
        await self._all.wait()
        await trio.testing.wait_all_tasks_blocked()
        self.reading -= 1
        if offset == self._failing:
            raise NoSpace("the disk cannot be read")
        return self._data[offset : offset + length]

    def close(self) -> None:
        """Nothing is held."""


async def content(handler: StorageHandler, native_uri: str) -> bytes:
    [part] = (await handler.load(native_uri)).parts
    return await part.content.read_waiting(0, part.content.size)


async def test_a_large_object_replaces_a_small_one(handler: StorageHandler, tmp_path: Path) -> None:
    uri, large, data = f"{handler.beginning}data/d/a%20b.txt", Buffer(BufferSpace(tmp_path)), os.urandom(20 << 20)
    assert {*handler.writes(uri)} == {"create", "replace", "remove", "rename"}
    assert "create" not in handler.writes(handler.beginning)
    await handler.write(uri, MemoryContent(b"one"), NEW)
    large.write(0, data)
    await handler.write(uri, large.snapshot(), Expected(exists=True))
    assert await content(handler, uri) == data


async def test_what_others_store_while_an_object_is_copied_is_not_removed(
    handler: StorageHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, to = f"{handler.beginning}data/a", f"{handler.beginning}data/b"
    await handler.write(uri, MemoryContent(b"mine"), NEW)
    looked = 0

    async def stat(path: tuple[str, ...], **named: bool) -> StoredItem:
        nonlocal looked
        looked += path[-1] == "a"
        if looked == 2:
            looked += 1  # no more
            await handler.write(uri, MemoryContent(b"theirs"), Expected())
        return await plain(path, **named)

    name = "_stat_object" if isinstance(handler.backend, backend.S3Backend) else "stat"
    plain = getattr(handler.backend, name)
    monkeypatch.setattr(handler.backend, name, stat)
    with pytest.raises(Conflict):
        await handler.rename(uri, to, replace=True)
    assert (await content(handler, uri), await content(handler, to)) == (b"theirs", b"mine")


async def test_parts_go_four_at_a_time_and_one_that_fails_ends_the_upload(
    s3: tuple[StorageHandler, S3Server],
) -> None:
    handler, server = s3
    data = os.urandom(97 << 20)
    with trio.fail_after(60):
        parts = Parts(data, 4)
        told = await handler.write("s3://data/large", parts, NEW)
        assert (parts.most, told.size) == (4, len(data))
        assert (await handler.stat("s3://data/large")).etag == told.etag
        assert server.client.get("/data/large").content == data
        with pytest.raises(NoSpace):
            await handler.write("s3://data/other", Parts(data, 4, failing=32 << 20), NEW)
    assert "<Upload>" not in server.client.get("/data?uploads").text
    assert server.client.get("/data/other").status_code == 404


@pytest.mark.parametrize("size", [3, 17 << 20])
async def test_an_object_keeps_how_it_is_described(s3: tuple[StorageHandler, S3Server], size: int) -> None:
    handler, server = s3
    kept = {
        "content-type": "text/x-own; charset=utf-8",
        "cache-control": "max-age=60",
        "content-language": "de",
        "x-amz-meta-author": "me",
    }
    etag = server.put("data", "note.txt", b"one", {**kept, "content-encoding": "gzip"}).strip('"')
    assert (await handler.stat("s3://data/note.txt")).etag == etag  # as before each write
    await handler.write("s3://data/note.txt", MemoryContent(bytes(size)), Expected(exists=True, etag=etag))
    headers = server.client.head("/data/note.txt").headers
    assert {name: headers.get(name) for name in kept} == kept
    assert "content-encoding" not in headers
    await handler.write("s3://data/note.txt", MemoryContent(b"new"), Expected())  # whatever it replaces
    headers = server.client.head("/data/note.txt").headers
    assert headers["content-type"] == "text/plain"
    assert "x-amz-meta-author" not in headers


class Store(HttpServer):
    """A store that is not S3.

    kind: if it compares, ignores all conditions and checksums, checks checksums alone, refuses conditions of a removal,
    or only promises to store.
    """

    def __init__(self, kind: str) -> None:
        self.kind, self.asked, self.connections = kind, list[str](), 0
        self.objects: dict[str, bytes] = {}
        store = self

        class Request(Answers):
            def setup(self) -> None:
                super().setup()
                store.connections += 1

            def answer(self) -> None:
                status = store.obeyed(self.command, self.path, self.headers, self.body())
                store.asked.append(f"{self.command} {self.path} {status}")
                self.reply(status, headers={"etag": '"1"'})

        super().__init__(Request)

    def obeyed(self, method: str, path: str, headers: Message, body: bytes) -> int:
        """Do what a request asks for. Return the status of the answer."""
        is_there, only_if = path in self.objects, headers["if-match"]
        match method, self.kind:
            case "HEAD", _:
                return 200 if is_there else 404
            case "PUT", "compares" if headers["if-none-match"] and is_there:
                return 412
            case "PUT", "checks" if headers["content-md5"]:
                return 400
            case "PUT", "promises":
                return 202
            case "PUT", _:
                self.objects[path] = body
                return 200
            case "DELETE", "refuses" if only_if:
                return 501
            case "DELETE", kind if not is_there:
                return 404 if kind == "compares" and only_if else 204
            case "DELETE", "compares" if only_if not in (None, '"1"'):
                return 412
        del self.objects[path]
        return 204


@asynccontextmanager
async def stored_at(kind: str, **options: Any) -> AsyncIterator[tuple[StorageHandler, Store]]:
    """Yield a source in a store of a kind. options: of S3."""
    with closing(Store(kind)) as store:
        async with aclosing(handler_at(store.url, **options)) as handler:
            yield handler, store


@pytest.mark.semantics("S32")
@pytest.mark.parametrize("kind", ["compares", "ignores", "checks"])
async def test_a_new_object_is_sent_once_and_replaces_none(kind: str) -> None:
    async with stored_at(kind) as (handler, store):
        for name in ("a", "b"):
            assert (await handler.write(f"s3://data/{name}", MemoryContent(b"new"), NEW)).etag == "1"
        looked = [(f"HEAD /data/{name} 404", f"PUT /data/{name} 200") for name in ("a", "b")]
        assert store.asked == [*looked[0], *looked[1]]
        with pytest.raises(Conflict):
            await handler.write("s3://data/b", MemoryContent(b"other"), NEW)
        assert store.objects == {"/data/a": b"new", "/data/b": b"new"}
        assert store.connections == 1, "each answer is read to its end"


@pytest.mark.semantics("S32")
async def test_a_store_that_is_said_to_refuse_a_taken_name_is_not_asked_before_a_new_object() -> None:
    async with stored_at("compares", refusesExisting=True) as (handler, store):
        await handler.write("s3://data/a", MemoryContent(b"new"), NEW)
        with pytest.raises(Conflict):
            await handler.write("s3://data/a", MemoryContent(b"other"), NEW)
        assert store.asked == ["PUT /data/a 200", "PUT /data/a 412"]
        assert store.objects == {"/data/a": b"new"}


@pytest.mark.semantics("S32.8")
@pytest.mark.parametrize(
    ("kind", "first", "later"),
    [
        ("compares", ["HEAD 200", "DELETE 412", "DELETE 204"], ["DELETE 204"]),
        ("ignores", ["HEAD 200", "DELETE 204"], ["HEAD 200", "DELETE 204"]),
        ("refuses", ["HEAD 200", "DELETE 501", "DELETE 204"], ["HEAD 200", "DELETE 204"]),
    ],
)
async def test_a_store_that_compares_is_not_asked_before_a_removal(
    kind: str, first: list[str], later: list[str]
) -> None:
    seen, other = Expected(exists=True, etag="1"), Expected(exists=True, etag="2")
    async with stored_at(kind) as (handler, store):
        assert handler.detects_removed(seen)
        assert not handler.detects_removed(Expected(exists=True, etag="W/1")), "of a weak ETag, the bytes tell"
        for asked in (first, later, later):
            store.objects, store.asked = {"/data/a": b"old"}, []
            await handler.remove("s3://data/a", seen)
            assert [each.replace(" /data/a", "") for each in store.asked] == asked
            assert not store.objects
            store.objects = {"/data/a": b"another"}
            with pytest.raises(Conflict):
                await handler.remove("s3://data/a", other)
            assert store.objects, "somebody else has changed it"
            store.objects = {}
            with pytest.raises(Conflict):
                await handler.remove("s3://data/a", seen)


@pytest.mark.semantics("S32.14")
async def test_a_store_that_only_promises_has_stored_nothing() -> None:
    async with stored_at("promises") as (handler, _):
        for expected in (NEW, Expected()):
            with pytest.raises(BbfsError, match="202 Accepted: the server has not said that it is done") as failed:
                await handler.write("s3://data/a", MemoryContent(b"new"), expected)
            assert failed.type is BbfsError
