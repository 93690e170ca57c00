"""Where a host has its server: documents and customary paths, within bounds, and never at another host."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
import trio
from http_server import Answers, HttpServer

from bbfs.model.values import DataSource, McpServer, Policy
from bbfs.sources.mcp.discovery import CARD_TYPE, CARDS, CATALOG, Found, NoServer, find_server, remotes_of

BOUND = 60.0
CARD = CARDS[0]
SECRET = "s3cr3t-value"


class Host(HttpServer):
    """A host. servers: the paths of its MCP servers. pages: by path, an answer to GET. locked: asks all for a login."""

    def __init__(self) -> None:
        self.servers: set[str] = set()
        self.pages: dict[str, tuple[int, Mapping[str, str], bytes]] = {}
        self.locked = False
        self.asked: list[tuple[str, str, str | None]] = []
        host = self

        class Handler(Answers):
            def answer(self) -> None:
                body = self.body()
                if self.command != "DELETE":
                    host.asked.append((self.command, self.path, self.headers.get("authorization")))
                self.reply(*host.answered(self.command, self.path, body))

        super().__init__(Handler)

    def answered(self, method: str, path: str, body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        """Return status, body and headers of an answer."""
        if method == "DELETE":
            return 200, b"", {}
        if method == "GET":
            status, headers, page = self.pages.get(path, (404, {}, b"no such page"))
            return 401 if self.locked else status, page, headers
        message = json.loads(body)
        if self.locked or path not in self.servers:
            return 401 if self.locked else 405, b"", {}
        if "id" not in message:
            return 202, b"", {}
        answer: dict[str, Any] = {"error": {"code": -32601, "message": "no such method"}}
        if message["method"] == "initialize":
            info = {"name": "n", "version": "1"}
            answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}}
        given = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode()
        return 200, given, {"content-type": "application/json"}

    def publish(self, path: str, document: Any) -> None:
        self.pages[path] = (200, {"content-type": "application/json"}, json.dumps(document).encode())

    @property
    def paths(self) -> set[str]:
        return {path for _, path, _ in self.asked}


@pytest.fixture
def host() -> Iterator[Host]:
    with closing(Host()) as made:
        yield made


other = host


async def found_at(url: str, headers: Mapping[str, str] | None = None) -> Found:
    server = McpServer("http", url=url, headers=headers or {}, secrets=frozenset((SECRET,)))
    source = DataSource("kb", "kb", "server", "mcp", "mcp-server+kb", policy=Policy(timeout=20), mcp=server)
    with trio.fail_after(BOUND):
        return await find_server(source)


def remotes(*urls: str) -> dict[str, Any]:
    return {"name": "x/y", "remotes": [{"type": "streamable-http", "url": url} for url in urls]}


async def test_a_server_is_found_in_a_document_or_where_custom_has_it(host: Host) -> None:
    host.servers = {"/mcp", "/deep/one"}
    host.publish(CATALOG, {"entries": [{"type": "other"}, {"type": CARD_TYPE, "url": "/card"}]})
    host.pages["/card"] = (302, {"location": "/moved"}, b"")
    host.publish("/moved", remotes(f"{host.url}/deep/one"))
    found = await found_at(host.url)
    assert (found.remote.url, found.by) == (f"{host.url}/deep/one", CATALOG)
    host.pages.clear()
    found = await found_at(host.url)
    assert (found.remote.url, found.by) == (f"{host.url}/mcp", "custom")


@pytest.mark.parametrize(
    ("card", "found"),
    [
        (remotes("https://a.example/mcp", "/b"), ["https://a.example/mcp", "https://home.example/b"]),
        ({"transport": {"type": "streamable-http", "endpoint": "/deep"}}, ["https://home.example/deep"]),
        ({"transports": [{"type": "sse", "url": "sse"}]}, ["https://home.example/sse"]),
        (remotes("https://{tenant}.example/", "ftp://a.example/", "http:///x"), []),
        ({"remotes": [7, {"url": 8, "type": "sse"}, {"url": "/x", "type": {}}, {"url": "/x", "type": "stdio"}]}, []),
    ],
)
def test_a_card_names_servers(card: dict[str, Any], found: list[str]) -> None:
    assert [each.url for each in remotes_of(card, "https://home.example:443")] == found


async def test_credentials_go_to_the_named_host_alone_and_another_host_is_told(host: Host, other: Host) -> None:
    other.servers = {"/mcp"}
    there = f"{other.url}/mcp"
    host.publish(CARD, remotes(there))
    host.publish(CATALOG, {"entries": [{"type": CARD_TYPE, "url": f"{other.url}/card"}]})
    host.pages[CARDS[1]] = (302, {"location": f"{other.url}/card"}, b"")
    host.pages["/server-card"] = (307, {"location": "file:///etc/passwd"}, b"")
    with pytest.raises(NoServer) as none:
        await found_at(host.url, {"authorization": f"Bearer {SECRET}"})
    assert other.asked == []
    assert {sent for _, _, sent in host.asked} == {f"Bearer {SECRET}"}
    text = str(none.value)
    assert f"{CARD}: names {there}: at another host, not asked" in text
    assert f"a card at another host, not asked: {other.url}/card" in text
    assert f"a redirect to {other.url}/card, not followed" in text
    assert "/mcp: HTTP 405" in text
    assert "/sse: HTTP 404" in text
    assert SECRET not in text


async def test_a_host_that_asks_for_a_login_is_found(host: Host) -> None:
    host.locked = True
    found = await found_at(host.url)
    assert (found.remote.url, found.needs_login) == (host.url, True)


async def test_several_servers_are_told_and_however_many_a_host_names_few_are_asked(host: Host) -> None:
    host.servers = {"/server-1", "/server-4"}
    host.publish("/card-0", remotes(*(f"{host.url}/server-{n}" for n in range(1000))))
    host.publish(CATALOG, {"entries": [{"type": CARD_TYPE, "url": f"/card-{n}"} for n in range(1000)]})
    with pytest.raises(NoServer, match="several servers") as several:
        await found_at(host.url)
    told = [line.partition(f": {CATALOG}")[0].strip() for line in str(several.value).splitlines()[1:]]
    assert told == [f"{host.url}/server-1", f"{host.url}/server-4"]
    assert len(host.paths) <= 16


async def test_hostile_documents_are_no_servers(host: Host) -> None:
    bodies = (b"", b"[" * 100_000, b'{"a": [' + b"1," * 100_000 + b"1]}", b'{"name": "' + b"x" * (1 << 20) + b'"}')
    for path, body in zip((CATALOG, "/server-card", *CARDS), bodies, strict=True):
        host.pages[path] = (200, {"content-type": "application/json"}, body)
    with pytest.raises(NoServer) as none:
        await found_at(host.url)
    text = str(none.value)
    assert len(text) < 2000
    assert text.count("no JSON") == 1
    assert text.count(" more than ") == 3


async def test_a_host_that_is_not_there_is_told_at_once() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # no other program gets the port, and connections to it are refused
        with pytest.raises(NoServer, match="cannot be reached") as none:
            await found_at(f"http://127.0.0.1:{nobody.getsockname()[1]}")
    assert len(str(none.value).splitlines()) == 2
