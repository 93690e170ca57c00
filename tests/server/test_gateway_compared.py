"""A server directly and behind `bbfs serve`: the same answers, but for the rules of docs/serve.md.

`make compare-gateway` asks more servers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from compared_gateway import CALLS, SOURCE, Comparison
from forked_daemon import forked
from harness import mcp
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from repository import SERVERS
from served import BOUND


async def test_the_same_answers_but_for_the_rules(service: Callable[..., Any], tmp_path: Path, era: str) -> None:
    command, *arguments = forked(SERVERS / "everything.py")
    parameters = StdioServerParameters(command=command, args=arguments)
    with trio.fail_after(BOUND), (tmp_path / "direct.log").open("w") as errlog:
        async with (
            Client(stdio_client(parameters, errlog=errlog), mode=era, cache=None) as direct,
            service(mcp(SOURCE, [command, *arguments], tools="all", timeout=BOUND)) as served,
            Client(served, mode=era, cache=None) as behind,
        ):
            comparison = Comparison(direct, behind, CALLS)
            await comparison.run()
    assert comparison.differences == []
    assert comparison.compared > 25
