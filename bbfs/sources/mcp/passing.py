"""The tools, prompts and skills of one MCP server, as `bbfs serve` passes them on."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

from bbfs.model.calls import Progress
from bbfs.model.errors import NotFound
from bbfs.model.values import Completion, Tools
from bbfs.sources.gateway import Audience, Offered, OfferedKind
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.client.tool_entries import PromptEntry, ToolEntry, require_complete
from bbfs.sources.mcp.skills import Skills
from bbfs.sources.mcp.tools import allowed

Listed: TypeAlias = Callable[[], Awaitable[tuple[Iterable[ToolEntry], Iterable[PromptEntry]]]]
"""Returns the tools and prompts of a server as last listed; asks for what was never listed. Raises BbfsError."""


class McpPassing:
    """Passes requests on to one server of a manager. option: the tools that may run. prompts: whether any may."""

    def __init__(
        self, manager: MCPManager, server_id: str, option: Tools, prompts: bool, listed: Listed, skills: Skills
    ) -> None:
        self.kinds: frozenset[OfferedKind] = frozenset(
            (*(("tools",) if option != "off" else ()), *(("prompts",) if prompts else ()))
        )
        self._manager = manager
        self._id = server_id
        self._option: Tools = option
        self._listed = listed
        self._skills = skills
        self._offered: tuple[object, object, Offered] | None = None

    async def offered(self) -> Offered:
        """Return the allowed tools and the prompts; the same object while the server's lists are. Raise BbfsError."""
        tools, prompts = await self._listed()
        held = self._offered
        if held is None or held[0] is not tools or held[1] is not prompts:
            may_run, _ = allowed(self._option, tools)
            held = tools, prompts, Offered(tuple(map(_tool, may_run)), tuple(map(_prompt, prompts)))
            self._offered = held
        return held[2]

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], progress: Callable[[Progress], None]
    ) -> Mapping[str, Any]:
        """Run an allowed tool once, with arguments that the server checks itself. Raise NotFound, BbfsError."""
        tools, _ = await self._listed()
        tool = next((each for each in allowed(self._option, tools)[0] if each.name == name), None)
        if tool is None:
            raise NotFound(f"no tool {name!r} that the option tools allows")
        result = await self._manager.call_tool(self._id, tool, arguments, progress)
        require_complete(result)
        return result

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], progress: Callable[[Progress], None]
    ) -> Mapping[str, Any]:
        result = await self._manager.get_prompt(self._id, name, arguments, progress)
        require_complete(result)
        return result

    async def skills(self) -> list[Mapping[str, Any]]:
        if await self._manager.has_skills(self._id):
            await self._skills.listed()
        return [skill.as_json() for skill in self._skills]

    async def skill(self, uri: str) -> Mapping[str, Any]:
        return (await self._skills.get(uri)).as_json()

    def attach(self, audience: Audience) -> None:
        self._manager.connection(self._id).features.audience = audience

    async def follow_level(self) -> None:
        await self._manager.connection(self._id).features.follow_level()

    async def complete(self, prompt: str, argument: str, value: str, context: Mapping[str, str]) -> Completion:
        """Return values for an argument of a prompt; none if the server completes nothing. Raise BbfsError."""
        ref = {"type": "ref/prompt", "name": prompt}
        return await self._manager.complete(self._id, ref, argument, value, context)


def _tool(tool: ToolEntry) -> Mapping[str, Any]:
    """Return a tool as the entry of a listing."""
    return {
        **_described(tool),
        "inputSchema": tool.input_schema,
        **({} if tool.output_schema is None else {"outputSchema": tool.output_schema}),
        **({} if tool.annotations is None else {"annotations": tool.annotations}),
    }


def _prompt(prompt: PromptEntry) -> Mapping[str, Any]:
    """Return a prompt as the entry of a listing."""
    required = prompt.input_schema["required"]
    arguments = [
        {"name": name, **{key: text for key, text in told.items() if key != "type"}, "required": name in required}
        for name, told in prompt.input_schema["properties"].items()
    ]
    return {**_described(prompt), "arguments": arguments}


def _described(entry: ToolEntry | PromptEntry) -> dict[str, Any]:
    told = {"name": entry.name, "title": entry.title, "description": entry.description}
    return {**{key: text for key, text in told.items() if text is not None}, **(entry.mcp_data or {})}
