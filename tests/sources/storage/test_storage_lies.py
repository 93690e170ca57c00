"""Object stores, and proxies in front of them, that answer a change with success and have not made it."""

from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import obstore
import pytest
from fakes import data_source
from leaving_server import LeavingServer
from object_stores import handler_at
from obstore.store import MemoryStore

from bbfs.model.errors import BbfsError, ProtocolViolation, Unreachable
from bbfs.model.versions import Expected
from bbfs.sources import Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.storage.handler import StorageHandler
from bbfs.sources.storage.s3.backend import PART

LIES = {
    "error": b'<?xml version="1.0"?>\n<Error><Code>InternalError</Code><Message>We failed</Message></Error>',
    "page": b"<html><body>Service</body></html>",
    "broken": b"\n<!doctype html><p>Log in<br>",
    "nothing": b"",
    "other": b"<CopyObjectResult/>",
}


class LyingServer(LeavingServer):
    """A store that answers requests of its `lies` with 200 and that body, and does nothing of what they ask for.

    lies: by the method, and `PART`, `COPY` and `COMPLETE` for those of S3. keeps: what it stores in place of that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lies: dict[str, bytes] = {}
        self.keeps: bytes | None = None

    def obeyed(self, request: BaseHTTPRequestHandler, given: bytes) -> tuple[int, bytes]:
        asked = request.command
        if "x-amz-copy-source" in request.headers:
            asked = "COPY"
        elif "uploadId=" in request.path:
            asked = {"PUT": "PART", "POST": "COMPLETE"}.get(asked, "ABORT")
        if asked in self.lies:
            if self.keeps is not None:
                self.objects[request.path] = self.keeps
            return 200, self.lies[asked]
        return super().obeyed(request, given)


@pytest.fixture
async def lying() -> AsyncIterator[tuple[StorageHandler, LyingServer]]:
    with closing(LyingServer()) as server:
        async with aclosing(handler_at(server.url)) as handler:
            yield handler, server


async def save(handler: StorageHandler) -> None:
    await handler.write("s3://data/a", MemoryContent(b"new"), Expected())


async def save_parts(handler: StorageHandler) -> None:
    await handler.write("s3://data/a", MemoryContent(bytes(PART + 1)), Expected())


async def remove(handler: StorageHandler) -> None:
    await handler.remove("s3://data/a", Expected(exists=True))


async def rename(handler: StorageHandler) -> None:
    await handler.rename("s3://data/a", "s3://data/b", replace=True)


@pytest.mark.semantics("S32", "S32.14")
@pytest.mark.parametrize(
    ("asked", "lie"),
    [
        *(
            (asked, lie)
            for asked in ("PUT", "DELETE", "PART", "COMPLETE", "COPY")
            for lie in ("error", "page", "broken")
        ),
        *((asked, "nothing") for asked in ("PART", "COMPLETE", "COPY")),
        ("COMPLETE", "other"),
    ],
)
async def test_an_answer_of_success_with_another_document_is_an_error(
    lying: tuple[StorageHandler, LyingServer], asked: str, lie: str
) -> None:
    handler, server = lying
    change = {"PUT": save, "DELETE": remove, "COPY": rename}.get(asked, save_parts)
    server.objects["/data/a"], server.lies = b"old", {asked: LIES[lie]}
    with pytest.raises(BbfsError, match=r"s3://data/[ab]: ") as failed:
        await change(handler)
    assert failed.type is (Unreachable if lie == "error" else ProtocolViolation)
    assert server.objects["/data/a"] == b"old"
    assert "/data/b" not in server.objects
    server.lies = {}
    await change(handler)
    assert server.objects.get("/data/a") != b"old"


@pytest.mark.semantics("S32")
@pytest.mark.parametrize("kept", [None, b"", b"the only"], ids=["nothing", "empty", "half"])
async def test_an_object_stays_unless_all_is_copied(
    lying: tuple[StorageHandler, LyingServer], kept: bytes | None
) -> None:
    handler, server = lying
    server.objects["/data/a"], server.keeps = b"the only copy", kept
    copied = {"COPY": b"<CopyObjectResult><ETag>&quot;abc&quot;</ETag></CopyObjectResult>"}
    server.lies = copied
    with pytest.raises(ProtocolViolation, match="s3://data/b: "):
        await rename(handler)
    assert server.objects["/data/a"] == b"the only copy"
    server.objects["/data/b"], server.keeps = b"another thing", None  # of the same size
    with pytest.raises(ProtocolViolation, match="s3://data/b: "):
        await rename(handler)
    assert server.objects == {"/data/a": b"the only copy", "/data/b": b"another thing"}
    server.lies = {}
    server.asked.clear()
    await rename(handler)
    assert server.objects == {"/data/b": b"the only copy"}
    origin, target = ("HEAD", "/data/a"), ("HEAD", "/data/b")
    assert server.asked == [origin, target, ("PUT", "/data/b"), target, origin, ("DELETE", "/data/a")]


@pytest.mark.semantics("S32")
@pytest.mark.parametrize("kept", [None, b"the only"], ids=["nothing", "half"])
async def test_another_stores_object_stays_unless_it_is_copied(
    monkeypatch: pytest.MonkeyPatch, kept: bytes | None
) -> None:
    source = replace(data_source("bb-storage+data+gs"), config={"url": "gs://data/", "options": {"anonymous": True}})
    store = MemoryStore()
    monkeypatch.setattr(obstore.store, "GCSStore", lambda *_, **__: store)
    handler = StorageHandler(source, Services())
    await handler.write("gs://data/a", MemoryContent(b"the only copy"), Expected(exists=False))

    def copy(store: MemoryStore, origin: str, target: str, *, overwrite: bool) -> None:
        if kept is not None:
            obstore.put(store, target, kept)

    monkeypatch.setattr(obstore, "copy", copy)
    for before in (None, b"another thing"):
        if before is not None:
            await handler.write("gs://data/b", MemoryContent(before), Expected())
        with pytest.raises(ProtocolViolation, match="gs://data/b: "):
            await handler.rename("gs://data/a", "gs://data/b", replace=True)
    assert obstore.get(store, "a").bytes() == b"the only copy"
