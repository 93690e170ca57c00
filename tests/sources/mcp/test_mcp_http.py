"""Servers over Streamable HTTP and SSE: both eras, and each way in which an exchange goes wrong."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio
from odd_servers import text, until
from programs import printed_url
from repository import SERVERS

from bbfs.model.errors import BbfsError, Denied, LoginRequired, NotFound, ProtocolViolation, Unreachable
from bbfs.model.values import McpServer, Policy
from bbfs.sources.mcp.client.manager import MCPManager

Serve = Callable[..., AbstractAsyncContextManager[str]]
PATIENT = Policy(timeout=20)
PLAIN = "content of odd://b\n"


def http(url: str, **headers: str) -> McpServer:
    return McpServer("sse" if url.endswith("/sse") else "http", url=url, headers=headers)


@pytest.fixture(scope="module")
def unruly() -> Iterator[str]:
    """The URL of the odd servers, to which the name of an oddity is added."""
    with printed_url(sys.executable, "-E", "-S", SERVERS / "unruly_http.py") as url:
        yield url


@pytest.mark.parametrize(
    ("transport", "options", "version"),
    [
        ("http", (), "2026-07-28"),
        ("http", ("--json",), "2026-07-28"),
        ("http", ("--handshake-only",), "2025-11-25"),
        ("http", ("--handshake-only", "--json"), "2025-11-25"),
        ("sse", (), "2026-07-28"),
    ],
)
async def test_both_transports_and_eras(
    manager: MCPManager, serve: Serve, tmp_path: Path, transport: str, options: tuple[str, ...], version: str
) -> None:
    counters = tmp_path / "counters"
    arguments = ("--transport", transport, "--page-size", 2, "--large", 4_000_000, "--counters", counters, *options)
    async with serve("resources.py", *arguments) as url:
        manager.add("web", http(url), PATIENT)
        listing = await manager.list_resources("web")
        assert len(listing.entries) == 6
        assert manager.connection("web").state.protocol_version == version
        assert (await manager.load_resource("web", "test://binary.bin")).parts[0].content.size == 256
        assert (await manager.load_resource("web", "test://large.txt")).parts[0].content.size == 4_000_000
        with pytest.raises(NotFound, match="no resource test://nothing"):
            await manager.load_resource("web", "test://nothing")
        async with trio.open_nursery() as nursery:
            for _ in range(16):
                nursery.start_soon(manager.load_resource, "web", "test://items/0001.txt")
    reads = [line for line in counters.read_text().splitlines() if line.startswith("read test://items")]
    assert len(reads) == 16


def connections(url: str) -> set[str]:
    """The local ports of the connections to a server (proc_pid_net(5)); 01 is ESTABLISHED."""
    port = f"{urlsplit(url).port:04X}"
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {
        local.partition(":")[2] for _, local, remote, state, *_ in rows if remote.endswith(f":{port}") and state == "01"
    }


async def test_all_connections_of_many_requests_at_once_are_kept(manager: MCPManager, serve: Serve) -> None:
    async with serve("resources.py", "--transport", "http", "--json") as url:
        manager.add("web", http(url), PATIENT)
        await manager.list_resources("web")

        async def forty() -> set[str]:
            async with trio.open_nursery() as nursery:
                for _ in range(40):
                    nursery.start_soon(manager.load_resource, "web", "test://items/0001.txt")
            return connections(url)

        opened = set().union(*[await forty() for _ in range(8)])
        assert 20 < len(opened) <= 45, "httpx by itself keeps 20, and opens others each time"


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.semantics("S23")
async def test_login(manager: MCPManager, serve: Serve, transport: str) -> None:
    async with serve("resources.py", "--transport", transport, "--token", "open-sesame") as url:
        manager.add("without", http(url), PATIENT)
        with pytest.raises(LoginRequired, match="bbfs login"):
            await manager.list_resources("without")
        with pytest.raises(LoginRequired):
            await manager.load_resource("without", "test://many")
        manager.add("with", http(url, authorization="Bearer open-sesame"), PATIENT)
        assert len((await manager.list_resources("with")).entries) == 5


@pytest.mark.semantics("S23")
@pytest.mark.parametrize(
    ("oddity", "error", "message"),
    [
        ("status/401", LoginRequired, "HTTP 401"),
        ("status/403", Denied, "HTTP 403"),
        ("status/503", Unreachable, "HTTP 503"),
        ("reset", Unreachable, "connection lost"),
        ("cut", Unreachable, "connection lost"),
        ("html", ProtocolViolation, "text/html"),
        ("not-json", ProtocolViolation, "JSON"),
        ("event-cut", Unreachable, "event stream ended"),
        ("elsewhere", Unreachable, "redirect"),
    ],
)
async def test_faults_of_one_exchange(
    manager: MCPManager, unruly: str, oddity: str, error: type[BbfsError], message: str
) -> None:
    manager.add("web", http(f"{unruly}/{oddity}"), PATIENT)
    await manager.list_resources("web")
    with trio.fail_after(60), pytest.raises(error, match=message) as caught:
        await manager.load_resource("web", "odd://a")
    assert type(caught.value) is error
    assert "token" not in str(caught.value)
    assert text(await manager.load_resource("web", "odd://b")) == PLAIN


@pytest.mark.semantics("S24.5")
async def test_stream_that_ends_before_the_answer_is_resumed(manager: MCPManager, serve: Serve) -> None:
    output: list[str] = []
    async with serve("unruly_http.py", output=output) as url:
        manager.add("web", http(f"{url}/event-resumed"), PATIENT)
        with trio.fail_after(60):
            assert text(await manager.load_resource("web", "odd://a")) == "resumed\n"
        await until(lambda: [said for said in output if said.startswith("GET")] == ["GET/first", "GET/second"])


async def test_fault_of_one_exchange_leaves_others_alone(manager: MCPManager, unruly: str) -> None:
    manager.add("web", http(f"{unruly}/reset"), PATIENT)
    await manager.list_resources("web")
    results: list[str] = []

    async def read() -> None:
        results.append(text(await manager.load_resource("web", "odd://b")))

    async def fail() -> None:
        with pytest.raises(Unreachable):
            await manager.load_resource("web", "odd://a")

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(read)
            nursery.start_soon(fail)
    assert results == [PLAIN] * 8
    assert manager.connection("web").state.state == "up"


@pytest.mark.semantics("S23")
async def test_too_large_an_answer(nursery: trio.Nursery, serve: Serve, unruly: str) -> None:
    manager = MCPManager(max_message=1 << 20)
    await nursery.start(lambda task_status: manager.run(task_status=task_status))
    manager.add("web", http(f"{unruly}/huge/{2 << 20}"), PATIENT)
    with pytest.raises(ProtocolViolation, match="more than 1048576 bytes"):
        await manager.load_resource("web", "odd://a")
    assert text(await manager.load_resource("web", "odd://b")) == PLAIN
    async with serve("resources.py", "--transport", "http", "--large", 2 << 20) as url:
        manager.add("events", http(url), PATIENT)
        with pytest.raises(ProtocolViolation, match="1048576"):
            await manager.load_resource("events", "test://large.txt")
        assert (await manager.load_resource("events", "test://many")).parts


@pytest.mark.parametrize("oddity", ["reset-once", "forgets"])
async def test_passing_fault_is_not_noticed(manager: MCPManager, unruly: str, oddity: str) -> None:
    """A connection reset once, and a server that has forgotten the session, as after its restart."""
    manager.add("web", http(f"{unruly}/{oddity}"), PATIENT)
    assert text(await manager.load_resource("web", "odd://a")) == "content of odd://a\n"
    assert manager.connection("web").state.state == "up"


@pytest.mark.semantics("S30")
async def test_no_secret_in_messages_and_logs(
    manager: MCPManager, unruly: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "bbfs")
    caplog.set_level(logging.INFO)
    secret = unruly.replace("http://", "http://joe:hush-user@") + "/error-body?key=hush-query"
    manager.add("web", http(secret, authorization="Bearer hush-token"), PATIENT)
    with pytest.raises(Unreachable, match=r"cannot use ") as caught:
        await manager.load_resource("web", "odd://a")
    shown = f"{caught.value!r} {manager.connection('web').state} {caplog.text}"
    assert "hush" not in shown


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.semantics("S23")
async def test_nobody_listens(manager: MCPManager, path: str) -> None:
    with trio.socket.socket() as unused:
        await unused.bind(("127.0.0.1", 0))
        manager.add("web", http(f"http://127.0.0.1:{unused.getsockname()[1]}{path}"), PATIENT)
        with trio.fail_after(60), pytest.raises(Unreachable, match="cannot connect"):
            await manager.list_resources("web")
        assert manager.connection("web").state.state == "down"


@pytest.mark.semantics("S22")
async def test_server_that_accepts_and_says_nothing(manager: MCPManager, short: Policy) -> None:
    with trio.socket.socket() as silent:
        await silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        for path in ("mcp", "sse"):
            manager.add(path, http(f"http://127.0.0.1:{port}/{path}"), short)
            with trio.fail_after(60), pytest.raises(Unreachable, match="within"):
                await manager.list_resources(path)


async def test_an_event_stream_that_ends_ends_the_connection(manager: MCPManager) -> None:
    """A server of 2024-11-05 has no other way to answer: a request would wait for its whole time."""

    async def serve(stream: trio.SocketStream) -> None:
        request = await stream.receive_some()
        if request.startswith(b"GET"):
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            await stream.send_all(head + b"event: endpoint\ndata: /messages\n\n")
        else:
            await stream.send_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        manager.add("web", http(f"http://127.0.0.1:{listener.socket.getsockname()[1]}/sse"), PATIENT)
        with trio.fail_after(60), pytest.raises(Unreachable, match="closed the event stream"):
            await manager.list_resources("web")
        nursery.cancel_scope.cancel()


async def test_session_is_ended_at_the_end(serve: Serve) -> None:
    output: list[str] = []
    async with serve("unruly_http.py", output=output) as url:
        manager = MCPManager()
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: manager.run(task_status=task_status))
            manager.add("web", http(f"{url}/none"), PATIENT)
            await manager.list_resources("web")
            nursery.cancel_scope.cancel()
        await until(lambda: "DELETE" in output)
