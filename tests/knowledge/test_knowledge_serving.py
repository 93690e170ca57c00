"""The program itself, over standard input and output and over HTTP: what another process changes is announced."""

import base64
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from forked_daemon import forked
from listening_client import subscribed
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp_types import BlobResourceContents

from bbfs.knowledge.addresses import COLLECTIONS_URI, document_uri, documents_uri, stats_uri
from bbfs.knowledge.database.store import Store

BOUND = 60.0
# That is what the tests of the handshake era are about.
pytestmark = pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
Command = Callable[..., Awaitable[str]]
Documents = Mapping[tuple[str, str], tuple[str, bytes]]
DOCS = {COLLECTIONS_URI, documents_uri("docs"), stats_uri("docs")}


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[Any]:
    """A file for what a server writes to standard error, which is nothing."""
    with (tmp_path / "stderr").open("w+") as file:
        yield file
        file.seek(0)
        assert file.read() == ""


@pytest.fixture
def stdio(store: Store, database: Path, quiet: Any) -> Any:
    """A transport that starts a server of its own."""
    command, *arguments = forked("-m", "bbfs.knowledge", "serve", "--db", database)
    return stdio_client(StdioServerParameters(command=command, args=arguments), errlog=quiet)


@pytest.fixture
def http_server(store: Store, database: Path, quiet: Any) -> Iterator[subprocess.Popen[str]]:
    """A server over HTTP, which says its URL in its first line; at the end it goes away on SIGTERM, with success."""
    line = forked("-m", "bbfs.knowledge", "serve", "--db", database, "--http", "127.0.0.1:0")
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=quiet, text=True) as server:
        try:
            yield server
            server.send_signal(signal.SIGTERM)
            assert server.wait(BOUND) == 0
        finally:
            server.kill()


def _url(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    return server.stdout.readline().strip()


async def _contents(client: Client) -> dict[str, tuple[int | None, bytes]]:
    """The declared size and the bytes of every resource but the many notes."""
    found: dict[str, tuple[int | None, bytes]] = {}
    cursor = None
    while True:
        page = await client.list_resources(cursor=cursor)
        for resource in page.resources:
            if "/many/document/" not in resource.uri:
                (content,) = (await client.read_resource(resource.uri)).contents
                blob = isinstance(content, BlobResourceContents)
                raw = base64.b64decode(content.blob) if blob else content.text.encode()
                found[resource.uri] = (resource.size, raw)
        cursor = page.next_cursor
        if not cursor:
            return found


async def _check_reading(client: Client, era: str, documents: Documents) -> None:
    found = await _contents(client)
    assert {uri: size for uri, (size, _) in found.items()} == {uri: len(raw) for uri, (_, raw) in found.items()}
    for (collection, document), (_, content) in documents.items():
        if collection != "many":
            assert found[document_uri(collection, document)][1] == content
    with pytest.raises(MCPError) as caught:
        await client.read_resource("resource://knowledge/docs/document/none")
    assert caught.value.code == (-32602 if era == "auto" else -32002)


async def test_stdio(stdio: Any, era: str, documents: Documents, command: Command) -> None:
    changing, coming = document_uri("docs", "empty"), document_uri("docs", "new one")
    async with subscribed(stdio, era, {*DOCS, changing, coming}) as (client, announced):
        await _check_reading(client, era, documents)

        await command("put", "docs", "empty", "-", stdin=b"no longer")
        await announced.wait_for({ResourceUpdated(uri) for uri in (*DOCS, changing)})
        assert announced.told == {ResourceUpdated(uri) for uri in (*DOCS, changing)}
        assert (await _contents(client))[changing] == (9, b"no longer")

        announced.told.clear()
        await command("put", "docs", "new one", "-", stdin=b"x")
        await announced.wait_for({ResourcesListChanged(), *(ResourceUpdated(uri) for uri in (*DOCS, coming))})
        assert coming in await _contents(client)

        announced.told.clear()
        await command("remove", "docs", "new one")
        await announced.wait_for({ResourcesListChanged(), *(ResourceUpdated(uri) for uri in (*DOCS, coming))})
        assert coming not in await _contents(client)


async def test_a_client_hears_of_list_changes_and_what_it_asked_for(stdio: Any, command: Command) -> None:
    async with subscribed(stdio, "legacy", {document_uri("docs", "logo"), document_uri("docs", "empty")}) as (
        client,
        announced,
    ):
        await client.unsubscribe_resource(document_uri("docs", "empty"))
        with pytest.raises(MCPError) as caught:
            await client.subscribe_resource("resource://system/none")
        assert caught.value.code == -32002
        await command("put", "docs", "empty", "-", stdin=b"no longer")
        await command("put", "docs", "logo", "-", stdin=b"another")
        await announced.wait_for({ResourceUpdated(document_uri("docs", "logo"))})
        assert announced.told == {ResourceUpdated(document_uri("docs", "logo"))}
        announced.told.clear()
        await command("remove", "many", "--all")
        await announced.wait_for({ResourcesListChanged()})
        assert announced.told == {ResourcesListChanged()}


# The SDK's HTTP client leaves generators to the garbage collector, which trio warns of.
@pytest.mark.filterwarnings("ignore:Async generator .* was garbage collected:ResourceWarning")
async def test_http(http_server: subprocess.Popen[str], era: str, documents: Documents, command: Command) -> None:
    changing = document_uri("docs", "empty")
    transport = streamable_http_client(_url(http_server))
    async with subscribed(transport, era, {*DOCS, changing}) as (client, announced):
        await _check_reading(client, era, documents)
        expected = {ResourcesListChanged(), *(ResourceUpdated(uri) for uri in (*DOCS, changing))}
        # The notification stream of the handshake era opens behind the client's back; what comes before it is lost.
        attempt = 0
        while attempt < 5 and not expected <= announced.told:
            attempt += 1
            await command("put", "docs", "empty", "-", stdin=b"%d" % attempt)
            await command("put", "docs", f"new-{attempt}", "-", stdin=b"x")
            with trio.move_on_after(5):
                await announced.wait_for(expected)
        assert announced.told == expected
        assert (await _contents(client))[changing][1] == b"%d" % attempt


@pytest.mark.filterwarnings("ignore:Async generator .* was garbage collected:ResourceWarning")
async def test_listening_ends_properly_when_the_server_stops(http_server: subprocess.Popen[str]) -> None:
    with trio.fail_after(BOUND):
        async with (
            Client(_url(http_server), mode="auto") as client,
            client.listen(resources_list_changed=True) as events,
        ):
            http_server.send_signal(signal.SIGTERM)
            # Raises SubscriptionLost if the stream just breaks off.
            assert [event async for event in events] == []


def test_the_server_says_why_it_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "kb").write_text("no database")
    line = forked("-m", "bbfs.knowledge", "serve", "--db", tmp_path / "kb")
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOUND, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"bbfs-knowledge: {tmp_path}/kb: file is not a database\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_server_whose_input_stays_open(database: Path, number: signal.Signals) -> None:
    line = forked("-m", "bbfs.knowledge", "serve", "--db", database, "--create")
    request = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            os.write(server.stdin.fileno(), request)
            assert b'"id":1' in server.stdout.readline()
            server.send_signal(number)
            assert server.wait(BOUND) == -number
        finally:
            server.kill()


def test_hostile_lines_are_refused_before_they_are_parsed(store: Store, database: Path) -> None:
    lines = {
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[' + b"[]," * 100_000 + b"[]]}}": "values in one message",
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 40_000: "no JSON",
        b"{nothing": "no JSON",
        b'{"jsonrpc":"2.0","id":1,"method":"nothing","params":{"a":"' + b"x" * (32 << 20) + b'"}}': "Method not found",
    }
    line = forked("-m", "bbfs.knowledge", "serve", "--db", database)
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            for text, expected in lines.items():
                server.stdin.write(text + b"\n")
                server.stdin.flush()
                assert expected in server.stdout.readline().decode(), text[:50]
            with contextlib.suppress(BrokenPipeError):  # the server ends before the line does
                for _ in range(80):
                    server.stdin.write(b"x" * (1 << 20))
                server.stdin.flush()
            assert server.wait(BOUND) == 0
        finally:
            server.kill()


def test_help_shows_examples_without_loading_the_sdk() -> None:
    program = """
import runpy, sys
sys.argv = ["x", "--help"]
try:
    runpy.run_module("bbfs.knowledge", run_name="__main__")
finally:
    assert "mcp" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=BOUND, check=True)
    assert "bbfs-knowledge serve --http 127.0.0.1:8000" in done.stdout
