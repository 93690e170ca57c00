"""One knowledge base in three ways: by a plain client, on a mount, and through `bbfs serve`. They agree at all times.

The server lets everything be kept for an hour, so what is new is found by its announcement alone.
"""

import base64
import math
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from forked_daemon import forked
from harness import Mounts, folder
from mcp import Client
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent
from mcp_types import BlobResourceContents
from programs import printed_url, run, wait_until
from served import serving

BOUND = 50.0
PREFIX = "mcp-server+kb+"
DOCUMENT = "resource://knowledge/docker/document/ssl-setup"
COMING = "resource://knowledge/docker/document/coming"
COLLECTIONS = "resource://knowledge/collections"
DOCUMENTS = "resource://knowledge/docker/documents"
LISTED = {
    COLLECTIONS: "Knowledge Base Collections",
    "resource://system/health": "System Health Status",
    DOCUMENTS: "Docker Guides - All Documents",
    "resource://knowledge/docker/stats": "Docker Guides - Statistics",
    DOCUMENT: "SSL certificates",
    "resource://knowledge/docker/document/logo": "logo.png",
}


class Knowledge:
    """The commands of a knowledge base, whose server is in a process of its own."""

    def __init__(self, home: Path) -> None:
        self.database = home / "kb.sqlite"
        notes = home / "notes"
        notes.mkdir()
        (notes / "SSL setup.md").write_text("# SSL certificates\n")
        (home / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
        self(
            "import",
            "--create",
            "--collection",
            "docker",
            "--title",
            "Docker Guides",
            str(notes),
            str(home / "logo.png"),
        )

    def line(self, command: str, *arguments: str) -> list[str]:
        return forked("-m", "bbfs.knowledge", command, "--db", self.database, *arguments)

    def __call__(self, command: str, *arguments: str, stdin: str | None = None) -> None:
        subprocess.run(
            self.line(command, *arguments), input=stdin, text=True, timeout=20, check=True, capture_output=True
        )


@pytest.fixture
def knowledge(tmp_path: Path) -> Knowledge:
    return Knowledge(tmp_path)


@pytest.fixture
def url(knowledge: Knowledge) -> Iterator[str]:
    """Where the knowledge base is served, to all three at once."""
    line = knowledge.line("serve", "--http", "127.0.0.1:0", "--ttl", "3600", "--interval", "0.05")
    with printed_url(*line, ends=True) as url:
        yield url


class Way:
    """A client that lists, reads, and is told of changes. prefix: what its URIs have in front of the server's own."""

    def __init__(self, client: Client, prefix: str) -> None:
        self.client = client
        self._prefix = prefix
        self._send, self._told = trio.open_memory_channel[ServerEvent](math.inf)

    async def listed(self) -> dict[str, str]:
        listed = (await self.client.list_resources()).resources
        found = [each for each in listed if each.mime_type != "inode/directory"]  # which the base itself does not name
        return {r.uri.removeprefix(self._prefix): r.name for r in found if r.uri.startswith(self._prefix)}

    async def read(self, uri: str) -> bytes:
        (content,) = (await self.client.read_resource(self._prefix + uri)).contents
        return base64.b64decode(content.blob) if isinstance(content, BlobResourceContents) else content.text.encode()

    async def subscribe(self, uris: set[str], task_status: trio.TaskStatus[None]) -> None:
        wanted = [self._prefix + uri for uri in sorted(uris)]
        async with self.client.listen(resources_list_changed=True, resource_subscriptions=wanted) as events:
            task_status.started()
            async for event in events:
                self._send.send_nowait(event)

    async def told(self, *uris: str, listing: bool = False) -> None:
        """Until it has been told of all these."""
        missing: set[ServerEvent] = {ResourceUpdated(self._prefix + uri) for uri in uris}
        missing |= {ResourcesListChanged()} if listing else set()
        while missing:
            missing.discard(await self._told.receive())


# The SDK's HTTP client leaves generators to the garbage collector, which trio warns of.
@pytest.mark.filterwarnings("ignore:Async generator .* was garbage collected:ResourceWarning")
async def test_three_ways_to_one_knowledge_base(
    mounted: Mounts, knowledge: Knowledge, url: str, tmp_path: Path
) -> None:
    sources: list[dict[str, Any]] = [
        {"name": "kb", "mcpConfig": {"url": url}, "tools": "off"},
        folder("notes", tmp_path / "notes"),
    ]
    mount = await trio.to_thread.run_sync(mounted, *sources)
    root = mount / "mcp-server+kb"

    async def on_mount(uri: str) -> bytes:
        path = root / uri.replace("://", "/")
        return (await trio.to_thread.run_sync(partial(run, "cat", path))).out

    async def until(condition: Callable[[], object], what: str) -> None:
        await trio.to_thread.run_sync(wait_until, condition, what)

    def there(uri: str, expected: bytes | None) -> bool:
        done = run("cat", root / uri.replace("://", "/"), status=None)
        return done.out == expected if expected is not None else done.status != 0

    with trio.fail_after(BOUND):
        async with (
            Client(url, mode="auto", cache=None) as directly,
            serving(mounted.state(), tmp_path, "auto", *sources) as served,
        ):
            plain, through = Way(directly, ""), Way(served, PREFIX)

            async def agree() -> dict[str, bytes]:
                """The bytes of all that is listed, which are the same in all ways; but health is of the moment."""
                listed = await plain.listed()
                assert await through.listed() == listed
                found = {uri: await plain.read(uri) for uri in listed}
                for uri, expected in found.items():
                    assert await through.read(uri) == expected
                    assert await on_mount(uri) == expected
                return found

            assert await plain.listed() == LISTED
            before = await agree()
            assert before[DOCUMENT] == b"# SSL certificates\n"
            async with trio.open_nursery() as nursery:
                for way in (plain, through):
                    await nursery.start(way.subscribe, {DOCUMENT, COMING, COLLECTIONS, DOCUMENTS})

                knowledge("put", "docker", "ssl-setup", "-", stdin="# SSL certificates\n\nRenewed.\n")
                for way in (plain, through):
                    await way.told(DOCUMENT, COLLECTIONS, DOCUMENTS)
                    assert await way.read(DOCUMENT) == b"# SSL certificates\n\nRenewed.\n"
                await until(lambda: there(DOCUMENT, b"# SSL certificates\n\nRenewed.\n"), "the update on the mount")

                knowledge("put", "docker", "coming", "-", stdin="here")
                for way in (plain, through):
                    await way.told(COMING, listing=True)
                    assert COMING in await way.listed()
                await until(lambda: there(COMING, b"here"), "the new document on the mount")
                for uri in (COLLECTIONS, DOCUMENTS):
                    expected = await plain.read(uri)
                    assert expected != before[uri]
                    assert await through.read(uri) == expected
                    await until(partial(there, uri, expected), f"{uri} on the mount")

                knowledge("remove", "docker", "coming")
                for way in (plain, through):
                    await way.told(listing=True)
                    assert COMING not in await way.listed()
                await until(lambda: there(COMING, None), "the removal on the mount")
                nursery.cancel_scope.cancel()
