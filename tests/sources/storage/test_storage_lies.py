"""Object stores, and proxies in front of them, that answer a change with success and have not made it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest
from fakes import data_source
from leaving_server import LeavingServer

from bbfs.model.errors import BbfsError, ProtocolViolation, Unreachable
from bbfs.model.versions import Expected
from bbfs.sources import Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.storage.handler import StorageHandler
from bbfs.sources.storage.s3 import backend

LIES = {
    "error": b'<?xml version="1.0"?>\n<Error><Code>InternalError</Code><Message>We failed</Message></Error>',
    "page": b"<html><body>Service</body></html>",
    "broken": b"\n<!doctype html><p>Log in<br>",
    "nothing": b"",
    "other": b"<CopyObjectResult/>",
}


class LyingServer(LeavingServer):
    """A store that answers requests of its `lies` with 200 and that body, and does nothing of what they ask for.

    lies: by the method, and `PART`, `COPY` and `COMPLETE` for those of S3.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lies: dict[str, bytes] = {}

    def obeyed(self, request: BaseHTTPRequestHandler, given: bytes) -> tuple[int, bytes]:
        asked = request.command
        if "x-amz-copy-source" in request.headers:
            asked = "COPY"
        elif "uploadId=" in request.path:
            asked = {"PUT": "PART", "POST": "COMPLETE"}.get(asked, "ABORT")
        if asked in self.lies:
            return 200, self.lies[asked]
        return super().obeyed(request, given)


@pytest.fixture
async def lying() -> AsyncIterator[tuple[StorageHandler, LyingServer]]:
    server = LyingServer()
    config = {"url": "s3://data/", "options": {"endpoint": server.url}}
    source = replace(data_source("bb-storage+data+s3"), config=config, auth={"accessKey": "k", "secretKey": "s"})
    handler = StorageHandler(source, Services())
    yield handler, server
    await handler.aclose()
    server.close()


async def save(handler: StorageHandler) -> None:
    await handler.write("s3://data/a", MemoryContent(b"new"), Expected())


async def save_parts(handler: StorageHandler) -> None:
    await handler.write("s3://data/a", MemoryContent(b"new " * 10), Expected())


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
    lying: tuple[StorageHandler, LyingServer],
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    lie: str,
) -> None:
    handler, server = lying
    monkeypatch.setattr(backend, "PART", 16)
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
