"""Requests that a server leaves without an answer: what is sent again, and what is told as an error."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, closing
from dataclasses import replace

import pytest
from fakes import data_source
from leaving_server import LeavingServer, etag
from object_stores import handler_at

from bbfs.model.errors import BbfsError, Unreachable
from bbfs.model.versions import Expected
from bbfs.sources import Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.http.client import WebClient
from bbfs.sources.storage.handler import StorageHandler

NEW = Expected(exists=False)


@pytest.fixture(params=["closed", "reset"])
def server(request: pytest.FixtureRequest) -> Iterator[LeavingServer]:
    with closing(LeavingServer()) as server:
        server.resets = request.param == "reset"
        yield server


@pytest.fixture
async def client(server: LeavingServer) -> AsyncIterator[WebClient]:
    client = WebClient(data_source("bb-url+web"), allow_private=True)
    assert (await client.request("PUT", f"{server.url}/kept", content=b"a connection")).status == 200
    yield client
    await client.aclose()


@pytest.fixture
async def s3(server: LeavingServer) -> AsyncIterator[StorageHandler]:
    server.objects["/data/kept"] = b"a connection"
    async with aclosing(handler_at(server.url)) as handler:
        await handler.stat("s3://data/kept")
        yield handler


class Pieces:
    """A body in pieces that can be sent again."""

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        yield b"two "
        yield b"pieces"


async def test_a_conditional_put_without_an_answer_is_sent_again(server: LeavingServer, client: WebClient) -> None:
    server.left = ["PUT"]
    assert (await client.request("PUT", f"{server.url}/a", content=b"a", headers={"if-none-match": "*"})).status == 200
    server.objects["/b"], server.left = b"old", ["PUT"]
    headers = {"if-match": f'"{etag(b"old")}"', "content-length": "10"}
    assert (await client.request("PUT", f"{server.url}/b", content=Pieces(), headers=headers)).status == 200
    assert server.objects == {"/kept": b"a connection", "/a": b"a", "/b": b"two pieces"}
    assert [each for each in server.asked if each[0] == "PUT"][1:] == [("PUT", "/a")] * 2 + [("PUT", "/b")] * 2


async def test_a_put_that_was_stored_without_an_answer_is_no_conflict(server: LeavingServer, client: WebClient) -> None:
    """The condition cannot hold the second time: nobody knows whose content the server has."""
    server.stores, server.left = True, ["PUT"]
    with pytest.raises(Unreachable):
        await client.request("PUT", f"{server.url}/a", content=b"a", headers={"if-none-match": "*"}, accept=(412,))
    assert server.objects["/a"] == b"a"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
async def test_a_change_without_a_condition_is_sent_once(server: LeavingServer, client: WebClient, method: str) -> None:
    server.left = [method]
    with pytest.raises(Unreachable):
        await client.request(method, f"{server.url}/a", content=b"a")
    assert server.asked[1:] == [(method, "/a")]


async def test_a_server_that_leaves_each_request_ends_a_put(server: LeavingServer, client: WebClient) -> None:
    server.left = ["PUT"] * 9
    with pytest.raises(Unreachable):
        await client.request("PUT", f"{server.url}/a", content=b"a", headers={"if-none-match": "*"})
    assert len(server.asked) == 3


async def test_s3_writes_over_a_connection_that_the_server_closed(server: LeavingServer, s3: StorageHandler) -> None:
    server.left = ["PUT"]
    made = await s3.write("s3://data/a", MemoryContent(b"a"), NEW)
    server.left = ["PUT"]
    written = await s3.write("s3://data/a", MemoryContent(b"b"), Expected(exists=True, etag=made.etag))
    assert (server.objects["/data/a"], written.etag, server.left) == (b"b", etag(b"b"), [])


async def test_s3_sends_a_part_without_an_answer_again(server: LeavingServer, s3: StorageHandler) -> None:
    large = bytes(range(256)) * (33 << 12)  # 33 MiB, in parts of 16 MiB
    server.left = ["PUT"]
    await s3.write("s3://data/large", MemoryContent(large), NEW)
    assert (server.objects["/data/large"], server.left) == (large, [])
    assert [method for method, _ in server.asked].count("PUT") == 3 + 1


async def test_webdav_writes_all_pieces_over_a_connection_that_the_server_has_closed(server: LeavingServer) -> None:
    config = {"url": server.url.replace("http", "webdav") + "/", "options": {}}
    handler = StorageHandler(replace(data_source("bb-storage+dav+webdav"), config=config), Services())
    base, large = f"{config['url']}", bytes(range(256)) * 3000
    made = await handler.write(f"{base}a", MemoryContent(b"a"), NEW)
    server.left = ["PUT"]
    written = await handler.write(f"{base}a", MemoryContent(large), Expected(exists=True, etag=made.etag))
    assert (server.objects["/a"], written.etag, server.left) == (large, etag(large), [])
    await handler.aclose()


@pytest.mark.parametrize("left", ["PUT", "DELETE"])
async def test_an_s3_rename_without_an_answer_is_an_error_and_loses_nothing(
    server: LeavingServer, s3: StorageHandler, left: str
) -> None:
    server.objects |= {"/data/a": b"new", "/data/b": b"old"}
    server.left = [left]
    with pytest.raises(BbfsError):
        await s3.rename("s3://data/a", "s3://data/b", replace=True)
    assert server.objects["/data/a"] == b"new"
    await s3.rename("s3://data/a", "s3://data/b", replace=True)
    assert server.objects == {"/data/kept": b"a connection", "/data/b": b"new"}
