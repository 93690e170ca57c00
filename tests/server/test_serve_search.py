"""`search_resources`: a model's way from a question to a resource that it can cite."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import SearchingSource, World, data_source
from harness import folder
from mcp.types import TextContent

from bbfs.model.errors import Unreachable
from bbfs.model.values import Hit
from bbfs.server.kept import KeptResults
from bbfs.server.service import MAX_RESULT
from bbfs.server.tools import Tools
from bbfs.server.tools.search_resources import MOST

KB = {
    "name": "kb",
    "type": "memory",
    "config": {
        "resources": {
            "tls/renew.md": "# Certificates\n\nRenew the certificate with certbot.\n",
            "tls/issue.md": "How a certificate is issued.\n",
        }
    },
}


@pytest.mark.semantics("S36")
async def test_a_model_searches_reads_the_hit_and_cites_it(stdio: Callable[..., Any], era: str, local: Path) -> None:
    async with stdio(era, KB, folder("local", local)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["search_resources"].annotations.read_only_hint
        result = await client.call_tool("search_resources", {"query": "renew a certificate", "format": "json"})
        hit, _ = result.structured_content["hits"]
        assert hit["uri"] == "bb-memory+kb+memory://tls/renew.md"
        assert hit["snippet"] == "# Certificates Renew the certificate with certbot."
        assert result.structured_content["problems"] == [
            "cannot be searched: local (no search of their own, not indexed)"
        ]
        assert result.content == []
        result = await client.call_tool("search_resources", {"query": "renew a certificate", "limit": 1})
        assert result.structured_content is None
        [text] = result.content
        assert text.text.startswith(f"1. {hit['uri']}\n   # Certificates Renew")
        read = (await client.read_resource(hit["uri"])).contents[0]
        assert "Renew the certificate" in read.text
        nothing = await client.call_tool("search_resources", {"query": "renew", "sources": ["local"], "format": "json"})
        assert (nothing.is_error, nothing.structured_content["hits"]) == (False, [])
        for arguments, says in (
            ({"query": "renew", "sources": ["none"]}, "data source not found"),
            ({"query": " "}, "a query without a word"),
            ({"query": "w" * 1001}, "invalid arguments"),
            ({"query": "w", "limit": MOST + 1}, "invalid arguments"),
        ):
            refused = await client.call_tool("search_resources", arguments)
            assert refused.is_error, arguments
            assert says in refused.content[0].text


@pytest.mark.semantics("S27", "S36.2")
async def test_an_answer_is_bounded_and_names_what_failed(nursery: trio.Nursery) -> None:
    names = [f"x://{number}/{'n' * 4000}" for number in range(MOST * 4)]
    hits = [Hit(name, title="t\x1b" * 9999, snippet="s" * 99_999, where="w" * 9999) for name in names]
    flood = SearchingSource(data_source("mcp-server+flood"), contents=dict.fromkeys(names, b""), hits=hits)
    down = SearchingSource(data_source("mcp-server+down"), down=Unreachable("no\x1b[31m net" * 1000))
    async with World(nursery, flood, down) as world:
        arguments = {"query": "q", "limit": MOST, "format": "json"}
        result = await Tools(world.manager, KeptResults(), None, MAX_RESULT).call("search_resources", arguments)
        assert len(result.model_dump_json()) < MAX_RESULT
        assert result.structured_content is not None
        assert len(result.structured_content["hits"]) == MOST
        [problem] = result.structured_content["problems"]
        assert problem.startswith("down: no [31m net")
        assert len(problem) < 400


async def test_a_heading_that_is_the_title_is_said_once(nursery: trio.Nursery) -> None:
    hits = [Hit("x://1", title="Renewal", where="Renewal"), Hit("x://2", title="Renewal", where="Costs")]
    source = SearchingSource(data_source("mcp-server+kb"), contents=dict.fromkeys(("x://1", "x://2"), b""), hits=hits)
    async with World(nursery, source) as world:
        result = await Tools(world.manager, KeptResults(), None, MAX_RESULT).call("search_resources", {"query": "q"})
        said = "".join(block.text for block in result.content if isinstance(block, TextContent)).splitlines()
        assert [line.partition(' "')[2] for line in said] == ['Renewal"', 'Renewal" (Costs)']
