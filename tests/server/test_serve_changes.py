"""Changes at the sources are passed on under the bbfs URIs, to clients of both eras."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked_daemon import forked
from harness import folder, mcp
from listening_client import subscribed
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp_types import INVALID_PARAMS, TextResourceContents

from bbfs.knowledge.database.store import Store

pytestmark = pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
DOCUMENT = "mcp-server+kb+resource://knowledge/docker/document/ssl-setup"
COMING = "mcp-server+kb+resource://knowledge/docker/document/coming"
FILE = "bb-filesystem+local+file:./src/config.ts"


async def read(client: Client, uri: str) -> str:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def test_announcements(
    service: Callable[..., Any], sources: list[dict[str, Any]], knowledge: Store, era: str
) -> None:
    async with (
        service(*sources) as served,
        subscribed(served, era, {DOCUMENT, COMING}, lists_first=True) as (client, told),
    ):
        assert await read(client, DOCUMENT) == "# SSL\n"
        for number in range(2):
            knowledge.put("docker", "ssl-setup", b"# SSL %d\n" % number)
            assert await told.next() == ResourceUpdated(DOCUMENT)
            assert await read(client, DOCUMENT) == f"# SSL {number}\n"
        knowledge.put("docker", "coming", b"here")
        await told.until(ResourcesListChanged(), ResourceUpdated(COMING))
        assert COMING in {resource.uri for resource in (await client.list_resources()).resources}
        knowledge.remove("docker", "coming")
        await told.until(ResourcesListChanged())
        assert COMING not in {resource.uri for resource in (await client.list_resources()).resources}


async def test_what_no_source_announces_is_looked_at(service: Callable[..., Any], local: Path, era: str) -> None:
    async with (
        service({**folder("local", local), "ttl": 0.1}) as served,
        subscribed(served, era, {FILE}, lists_first=True) as (_, told),
    ):
        client = _
        assert await read(client, FILE)
        (local / "src/config.ts").write_text("another")
        await told.until(ResourceUpdated(FILE))
        assert await read(client, FILE) == "another"


async def test_who_left_hears_no_more(
    service: Callable[..., Any], sources: list[dict[str, Any]], knowledge: Store
) -> None:
    other = "mcp-server+kb+resource://knowledge/docker/document/install"
    async with (
        service(*sources) as served,
        subscribed(served, "legacy", {DOCUMENT, other}, lists_first=True) as (client, told),
    ):
        await client.unsubscribe_resource(DOCUMENT)
        knowledge.put("docker", "ssl-setup", b"another")
        knowledge.put("docker", "install", b"another")
        assert await told.next() == ResourceUpdated(other)


async def test_what_cannot_be_followed(service: Callable[..., Any], local: Path) -> None:
    async with service(folder("local", local)) as served, Client(served, mode="legacy") as client:
        for uri, code in (("mcp-server+none+x://y", -32002), ("nonsense", -32602)):
            with pytest.raises(MCPError) as caught:
                await client.subscribe_resource(uri)
            assert caught.value.code == code


async def test_a_source_that_is_late_joins_the_list(service: Callable[..., Any], local: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    waiting = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
    kb = forked("-m", "bbfs.knowledge", "serve", "--db", tmp_path / "late.sqlite", "--create")
    start = f"{waiting}os.execv({kb[0]!r}, {kb!r})"
    async with (
        # Two seconds are enough for the folder on a busy machine.
        service(folder("local", local), mcp("late", [sys.executable, "-c", start], tools="off"), wait=2.0) as served,
        subscribed(served, "legacy", set(), lists_first=True) as (client, told),
    ):
        before = {resource.uri for resource in (await client.list_resources()).resources}
        assert FILE in before
        go.touch()
        await told.until(ResourcesListChanged())
        after = {resource.uri for resource in (await client.list_resources()).resources}
        assert after - before == {
            "mcp-server+late+resource://knowledge/collections",
            "mcp-server+late+resource://system/health",
        }


async def test_a_stream_of_what_is_nowhere_is_refused_in_words(service: Callable[..., Any], local: Path) -> None:
    uris = {
        "bb-filesystem+other+file:./a": "data source not found: bb-filesystem+other; there are: local",
        "bb-database+local+sqlite:./a": "not bb-database+local",
        "elsewhere": "unknown access method",
    }
    async with service(folder("local", local)) as served, Client(served, mode="auto", cache=None) as client:
        for uri, said in uris.items():
            with pytest.raises(MCPError, match=re.escape(said)) as caught:
                async with client.listen(resource_subscriptions=[FILE, uri]):
                    pass
            assert caught.value.error.code == INVALID_PARAMS
            assert caught.value.error.data["uri"] == uri
