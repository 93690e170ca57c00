"""`bbfs serve` over a source of every type: each is described, listed and loaded."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from every_type import Servers, every_type
from served import BOUND


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with every_type(tmp_path_factory.mktemp("types")) as running:
        yield running


@pytest.mark.timeout(120)
async def test_every_type_is_served(stdio: Callable[..., Any], servers: Servers) -> None:
    site, api = servers.site.url, servers.pets.url
    expected = {
        "notes": ("bb-filesystem+notes+file:./plan.md", "# Plan\n"),
        "scratch": ("bb-memory+scratch+memory://todo/today.txt", "buy coffee\n"),
        "shop": ("bb-database+shop+sqlite://main/customer/rows.csv", "id,name,city\n"),
        "ledger": ("bb-database+ledger+postgres://public/entry/row/1.json", '{"id":1,\n'),
        "papers": ("bb-storage+papers+zip://2026/brewing.txt", "On brewing coffee.\n"),
        "measured": ("bb-storage+measured+s3://lab/2026/run-1.csv", "minute,coffee\n"),
        "site": (f"bb-url+site+{site}/guide/brewing.html.md", "# Brewing\n"),
        "pets": (f"bb-api+pets+{api}/pets/1", '{"id":1,"name":"pet 1","kind":"cat"}'),
        "work": ("bb-notion+work+x-notion://Handbook/Rules.md", "# Rules\n"),
        "kb": ("mcp-server+kb+resource://knowledge/guides/document/brewing", "# Brewing\n"),
    }
    with trio.fail_after(2 * BOUND):
        async with stdio("auto", *servers.sources()) as client:
            for name in expected:
                described = await client.call_tool("load_datasource", {"dataSourceId": name, "depth": 3, "pageSize": 5})
                said = described.structured_content
                assert not described.is_error, said
                assert said["dataSource"]["id"] == name
                assert said["dataSource"]["state"] in ("up", "idle"), said["dataSource"]
                assert said["resources"], name
                assert said["uriTemplates"] or name == "site", name
            uris = [uri for uri, _ in expected.values()]
            loaded = await client.call_tool("load_resources", {"mode": "direct", "directUris": uris})
            outcomes = loaded.structured_content["resources"]
            assert [outcome["uri"] for outcome in outcomes] == uris
            for outcome, (uri, begins) in zip(outcomes, expected.values(), strict=True):
                assert outcome["contents"][0]["text"].startswith(begins), (uri, outcome)
                assert outcome["metadata"]["mimeType"], outcome
            secret = json.dumps(loaded.structured_content)
            assert "s3cret" not in secret
