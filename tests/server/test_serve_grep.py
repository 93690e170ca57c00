"""`grep_resources`: the lines that match, exactly, within bounds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import FlatSource, World, data_source
from harness import folder
from mcp_types import TextContent
from served import BOUND

from bbfs.model.errors import Unreachable
from bbfs.resources.commands import matching
from bbfs.server.kept import KeptResults
from bbfs.server.service import MAX_RESULT
from bbfs.server.tools import Tools
from bbfs.server.tools.grep_resources import MOST, SHOWN, GrepArguments, Greps

KB = {
    "name": "kb",
    "type": "memory",
    "config": {
        "resources": {
            "tls/renew.md": "# Certificates\n\nRenew the certificate\nwith certbot.\n",
            "tls/issue.md": "How a certificate is issued.\n",
            "other.md": "nothing\n",
        }
    },
}


async def test_a_model_greps_and_cites(stdio: Callable[..., Any], era: str, local: Path) -> None:
    async with stdio(era, KB, folder("local", local)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["grep_resources"].annotations.read_only_hint
        arguments = {"pattern": "(Renew|is)[a-z]* ", "dataSourceId": "kb", "context": 1, "format": "json"}
        result = await client.call_tool("grep_resources", arguments)
        issue, renew = result.structured_content["resources"]
        assert issue["uri"] == "bb-memory+kb+memory://tls/issue.md"
        assert [(line["number"], line["text"], line["matches"]) for line in renew["lines"]] == [
            (2, "", False),
            (3, "Renew the certificate", True),
            (4, "with certbot.", False),
        ]
        result = await client.call_tool("grep_resources", arguments | {"format": "text"})
        assert result.structured_content is None
        assert result.content[0].text.endswith(f"{renew['uri']}\n2-\n3:Renew the certificate\n4-with certbot.")
        assert "Renew" in (await client.read_resource(renew["uri"])).contents[0].text
        for more, count in (({"path": "tls/renew.md"}, 1), ({"path": "other.md"}, 0), ({"limit": 1}, 1)):
            found = (await client.call_tool("grep_resources", arguments | more)).structured_content
            assert len(found["resources"]) == count
        for wrong, says in (
            ({"pattern": "a("}, "grep refuses the pattern"),
            ({"dataSourceId": "none"}, "data source not found"),
            ({"path": "nothing"}, "nothing"),
            ({"limit": MOST + 1}, "invalid arguments"),
        ):
            refused = await client.call_tool("grep_resources", arguments | wrong)
            assert refused.is_error, wrong
            assert says in refused.content[0].text


async def test_an_answer_is_bounded(nursery: trio.Nursery) -> None:
    long = b"a" * 10_000 + b"\n"
    contents: dict[str, Any] = {f"x://{number}": long * 50 for number in range(20)}
    contents |= {"x://large": b"a\n" * (matching.LARGEST // 2 + 1), "x://binary": b"a\0\n"}
    async with World(nursery, FlatSource(data_source("mcp-server+many"), contents=contents)) as world:
        arguments = {"pattern": "a", "dataSourceId": "many", "limit": MOST, "format": "json"}
        result = await Tools(world.manager, KeptResults(), None, MAX_RESULT).call("grep_resources", arguments)
        found = result.structured_content
        assert found is not None
        assert sum(len(each["lines"]) for each in found["resources"]) == MOST
        assert len(result.model_dump_json()) < 1 << 20
        assert "there may be more than 200 matching lines" in found["problems"]


async def test_all_sources_are_read_by_turns_and_those_that_were_not_are_named(nursery: trio.Nursery) -> None:
    many = FlatSource(data_source("mcp-server+many"), contents={f"x://{n}": b"a word\n" * 30 for n in range(9)})
    few = FlatSource(data_source("mcp-server+few"), contents={"x://1": b"a word\nno\na word\n"})
    down = FlatSource(data_source("mcp-server+down"), down=Unreachable("is away"))
    slow = FlatSource(data_source("mcp-server+slow"), contents={"x://1": b"a word\n"})
    async with World(nursery, many, few, down, slow) as world:
        tools = Tools(world.manager, KeptResults(), None, MAX_RESULT)
        with trio.fail_after(BOUND):
            result = await tools.call("grep_resources", {"pattern": "word", "format": "json"})
            found = result.structured_content
            assert found is not None
            taken = [(each["uri"].partition(":")[0], len(each["lines"])) for each in found["resources"]]
            assert taken == [
                ("mcp-server+many+x", 30),
                ("mcp-server+many+x", 17),
                ("mcp-server+few+x", 2),
                ("mcp-server+slow+x", 1),
            ]
            assert found["problems"] == ["there may be more than 50 matching lines", "down: is away"]
            for wrong in ({"pattern": "a("}, {"pattern": "a", "path": "x"}):
                assert (await tools.call("grep_resources", wrong)).is_error
            slow.hold("x://1")
            slow.contents["x://1"] = b"another word\n"
            slow.announce("x://1")
            greps = Greps(world.manager, KeptResults(), within=0.2)
            result = await greps.grep(GrepArguments(pattern="another", format="json"))
            assert result.structured_content is not None
            assert "slow" in result.structured_content["problems"][-1].rpartition(": ")[2].split(", ")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("x " * 400 + "é the match y" + " z" * 400, "é the match y"),
        ("x " * 120 + "the match y", "the match y"),
        ("the match y" + " z" * 400, "the match y z"),
        ("x " * 95 + "the match y" + " z" * 60, "the match y"),
    ],
)
async def test_the_part_of_a_long_line_around_the_match_is_shown(nursery: trio.Nursery, line: str, shown: str) -> None:
    text = f"nothing\nthe match\n{line}\n{line.replace('match', 'other')}\n"
    source = FlatSource(data_source("mcp-server+one"), contents={"x://a": text.encode()})
    async with World(nursery, source) as world:
        tools = Tools(world.manager, KeptResults(), None, MAX_RESULT)
        arguments = {"pattern": "match [yz]", "dataSourceId": "mcp-server+one"}
        [block] = (await tools.call("grep_resources", arguments)).content
        found = (await tools.call("grep_resources", {**arguments, "format": "json"})).structured_content
    assert isinstance(block, TextContent)
    _, told = block.text.splitlines()
    assert told.startswith("3:")
    assert shown in told
    assert len(told) <= SHOWN + len("3:……")
    [each] = found["resources"][0]["lines"]
    assert line[each["begin"] :].startswith(each["text"])
    assert line[each["match"] :].startswith("match y")


@pytest.mark.parametrize("pattern", ["(((((a{1,250}){1,250}){1,250}){1,250}){1,250})", "(.*)\\1\\1\\1\\1b" * 3])
async def test_a_hostile_pattern_takes_neither_memory_nor_time(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    monkeypatch.setattr(matching, "WITHIN", 3.0)
    source = FlatSource(data_source("mcp-server+one"), contents={"x://a": b"a" * 3000 + b"\n"})
    async with World(nursery, source) as world:
        with trio.fail_after(BOUND):
            arguments = {"pattern": pattern, "dataSourceId": "one", "format": "json"}
            result = await Tools(world.manager, KeptResults(), None, MAX_RESULT).call("grep_resources", arguments)
        assert result.structured_content is not None
