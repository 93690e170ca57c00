"""Asks an MCP server directly and behind `bbfs serve`, and says what differs: `python compared_gateway.py`.

What differs by a rule of docs/serve.md is taken out before: names have the source in front, resources have bbfs URIs,
the lists have bbfs's own tools, directories, and the files that describe tools and prompts, times to live and totals of
completions are not passed on, a title of annotations is the title, and an error of a call is a result.
"""

import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mcp_types as types
import trio
from harness import State, mcp
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from repository import SERVERS
from served import serving

SOURCE = "e"
PREFIX = f"mcp-server+{SOURCE}+"
_OF_BBFS = ("tool:", "prompt:")
"""Schemes of the files that describe tools and prompts."""
_LEFT_OUT = frozenset(("ttlMs", "cacheScope", "nextCursor", "resultType", "total"))
_TIME = re.compile(r"\d?\d:\d\d:\d\d( [AP]M)?")
MOST_READ = 20
"""Resources that are read."""


@dataclass
class Comparison:
    """The same questions to a server and to bbfs in front of it. calls: tools to call, with their arguments.

    differences: what was found. compared: how many answers.
    """

    direct: Client
    behind: Client
    calls: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    compared: int = 0

    async def run(self) -> None:
        """Compare all methods."""
        await self._tools()
        await self._prompts()
        await self._resources()

    def _same(self, what: str, direct: Any, behind: Any) -> None:
        self.compared += 1
        if direct != behind:
            self.differences.append(f"{what}:\n  directly {direct}\n  behind   {behind}")

    async def _tools(self) -> None:
        tools = {f"{SOURCE}_{tool.name}": tool for tool in (await self.direct.list_tools()).tools}
        shown = {
            tool.name: tool for tool in (await self.behind.list_tools()).tools if tool.name.startswith(f"{SOURCE}_")
        }
        self._same("tools", sorted(tools), sorted(shown))
        for name in tools.keys() & shown.keys():
            self._same(f"tool {name}", _tool(tools[name]), _tool(shown[name]))
        for name, arguments in self.calls.items():
            direct = await _outcome(self.direct.call_tool(name, arguments))
            behind = await _outcome(self.behind.call_tool(f"{SOURCE}_{name}", arguments))
            if isinstance(direct, str):
                texts = "".join(block["text"] for block in behind["content"])
                self._same(f"error of {name}", (True, True), (behind["isError"], direct in texts))
            else:
                self._same(f"result of {name}", _timeless(_mapped(direct)), _timeless(behind))

    async def _prompts(self) -> None:
        prompts = {f"{SOURCE}_{prompt.name}": prompt for prompt in (await self.direct.list_prompts()).prompts}
        shown = {prompt.name: prompt for prompt in (await self.behind.list_prompts()).prompts}
        self._same("prompts", [*prompts], [*shown])
        for name, prompt in prompts.items():
            self._same(f"prompt {name}", *(_prompt(each) for each in (prompt, shown[name])))
            arguments = {argument.name: "1" for argument in prompt.arguments or ()}
            direct = await _outcome(self.direct.get_prompt(prompt.name, arguments))
            behind = await _outcome(self.behind.get_prompt(name, arguments))
            if isinstance(direct, str):
                self._same(f"error of {name}", True, isinstance(behind, str) and direct in behind)
            else:
                self._same(f"rendered {name}", _timeless(_mapped(direct)), _timeless(behind))
            for argument in arguments:
                await self._completion(
                    types.PromptReference(name=prompt.name), types.PromptReference(name=name), argument
                )

    async def _completion(self, direct: Any, behind: Any, argument: str) -> None:
        for value in ("", "v1", "nothing begins so"):
            asked = {"name": argument, "value": value}
            found = [
                await _outcome(client.complete(ref, asked))
                for client, ref in ((self.direct, direct), (self.behind, behind))
            ]
            self._same(f"completion of {argument}={value!r}", *(_without_absent(each) for each in found))

    async def _resources(self) -> None:
        listed = [_mapped(_plain(each)) for each in (await self.direct.list_resources()).resources]
        shown = [_plain(each) for each in await _all(self.behind.list_resources, "resources")]
        resources = [each for each in shown if each.get("mimeType") != "inode/directory"]
        own = [each for each in resources if not each["uri"].removeprefix(PREFIX).startswith(_OF_BBFS)]
        self._same("resources", _by_uri(listed), _by_uri(own))
        for each in listed[:MOST_READ]:
            native = each["uri"].removeprefix(PREFIX)
            direct = await _outcome(self.direct.read_resource(native))
            behind = await _outcome(self.behind.read_resource(each["uri"]))
            self._same(f"content of {native}", _timeless(_mapped(direct)), _timeless(behind))
        templates = [_plain(each) for each in (await self.direct.list_resource_templates()).resource_templates]
        found = [_plain(each) for each in (await self.behind.list_resource_templates()).resource_templates]
        for template in templates:
            uri = template["uriTemplate"]
            behind = [each for each in found if each["uriTemplate"] == PREFIX + uri]
            self._same(f"template {uri}", [{**template, "uriTemplate": PREFIX + uri}], behind)
            for argument in [part.partition("}")[0] for part in uri.split("{")[1:]]:
                direct, shown = (types.ResourceTemplateReference(uri=each) for each in (uri, PREFIX + uri))
                await self._completion(direct, shown, argument)
        missing = [
            await _outcome(self.direct.read_resource("gone:x")),
            await _outcome(self.behind.read_resource(PREFIX + "gone:x")),
        ]
        self._same("a resource that is not there", [True, True], [isinstance(each, str) for each in missing])


async def _all(listing: Callable[..., Any], key: str) -> list[Any]:
    found, cursor = [], None
    while True:
        page = await listing(cursor=cursor)
        found += getattr(page, key)
        if (cursor := page.next_cursor) is None:
            return found


async def _outcome(asked: Any) -> Any:
    """Return a result as JSON, or the message of an error."""
    try:
        return _plain(await asked)
    except MCPError as error:
        return error.error.message


def _plain(value: Any, leaving: str = "") -> Any:
    """Return a value of the protocol as JSON, without what differs by rule."""
    return _without(value.model_dump(by_alias=True, mode="json", exclude_none=True), {*_LEFT_OUT, *leaving.split()})


def _without(value: Any, keys: Iterable[str]) -> Any:
    """Drop these keys of an object, the metadata of the connection, and metadata that is empty then."""
    kept = {key: each for key, each in value.items() if key not in keys}
    if "_meta" in kept:
        kept["_meta"] = {
            key: each for key, each in kept["_meta"].items() if not key.startswith("io.modelcontextprotocol/")
        }
    if isinstance(kept.get("completion"), dict):
        kept["completion"] = {key: each for key, each in kept["completion"].items() if key != "total"}
    return {key: each for key, each in kept.items() if key != "_meta" or each}


def _without_absent(value: Any) -> Any:
    """Return a completion in which what is not said is false."""
    return value if isinstance(value, str) else {"hasMore": False, **value["completion"]}


def _tool(tool: types.Tool) -> Any:
    """Return a tool with a title, if its annotations have one."""
    found = _plain(tool, leaving="name execution")
    title = found.get("annotations", {}).get("title")
    return {"title": title, **found} if title is not None else found


def _prompt(prompt: types.Prompt) -> Any:
    """Return a prompt in which an argument that does not say so is not required, and no list of arguments is empty."""
    found = _plain(prompt, leaving="name")
    found["arguments"] = [{"required": False, **each} for each in found.get("arguments", ())]
    return found


def _mapped(value: Any) -> Any:
    """Return an answer of the server with its URIs of resources as bbfs has them."""
    if isinstance(value, dict):
        return {key: PREFIX + each if key == "uri" else _mapped(each) for key, each in value.items()}
    return [_mapped(each) for each in value] if isinstance(value, list) else value


def _timeless(value: Any) -> Any:
    """Return an answer without times of day: server-everything tells them in its contents."""
    return json.loads(_TIME.sub("", json.dumps(value)))


def _by_uri(listed: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(listed, key=lambda each: each["uri"])


CALLS: dict[str, dict[str, Any]] = {"echo": {"text": "x"}, "record": {}, "links": {}, "broken": {}}
"""Of the server everything.py."""
CALLS_OF_OTHERS: dict[str, dict[str, Any]] = {
    "echo": {"message": "x"},
    "get-sum": {"a": 1, "b": 2},
    "get-tiny-image": {},
    "get-structured-content": {"location": "New York"},
    "get-annotated-message": {"messageType": "error", "includeImage": True},
    "get-resource-links": {"count": 3},
    "get-resource-reference": {"resourceType": "Text", "resourceId": 1},
    "trigger-long-running-operation": {"duration": 0.1, "steps": 2},
}
"""Of server-everything."""


@asynccontextmanager
async def both(directory: Path, command: list[str], era: str) -> AsyncIterator[tuple[Client, Client]]:
    """Yield a client of a server, and one of `bbfs serve` in front of the same server."""
    state = State()
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    try:
        with (directory / "direct.log").open("w") as errors:
            async with (
                Client(stdio_client(parameters, errlog=errors), mode=era, cache=None) as direct,
                serving(state, directory, era, mcp(SOURCE, command, tools="all"), expected=[".*"]) as behind,
            ):
                while not any(tool.name.startswith(SOURCE) for tool in (await behind.list_tools()).tools):
                    pass  # on a busy machine the server may start for longer than the list waits
                yield direct, behind
    finally:
        state.remove()


async def main() -> int:
    """Compare all servers in both eras; return 1 if anything differs."""
    from thirdparty_servers import EVERYTHING, NODE  # beside the tests of other people's servers

    everything = [sys.executable, str(SERVERS / "everything.py")]
    servers = [
        (everything, CALLS),
        ([*everything, "--handshake"], CALLS),
        ([str(NODE), str(EVERYTHING)], CALLS_OF_OTHERS),
    ]
    failed = False
    for command, calls in servers:
        for era in ("legacy", "auto"):
            with TemporaryDirectory() as directory, trio.fail_after(120):
                async with both(Path(directory), command, era) as (direct, behind):
                    comparison = Comparison(direct, behind, calls)
                    await comparison.run()
            name = " ".join(Path(word).name for word in command)
            print(f"{name}, client {era}: {comparison.compared} answers, {len(comparison.differences)} differ")
            for difference in comparison.differences:
                print(difference)
            failed = failed or bool(comparison.differences)
    return int(failed)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "thirdparty"))
    sys.exit(trio.run(main))
