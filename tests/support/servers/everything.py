"""An MCP server over stdio with something of everything, on the SDK: `python everything.py [--handshake] [--log FILE]`.

Tools: `echo`, `record` (structured), `links`, `steps` (progress), `chatter` (a log message of each level), `ask` (the
user), `sample` (the model), `wait` (is never answered), `grow` (adds the tool `grown` and announces it), `broken` (an
error of the protocol). Prompts `plain` and `greet`, a resource, and a template, whose variables are completed. The log
gets a line for each call, and `cancelled NAME` for each one that is cancelled.

--handshake: speaks only the versions up to 2025-11-25.
"""

import argparse
from pathlib import Path
from typing import Any, get_args

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

parser = argparse.ArgumentParser()
parser.add_argument("--handshake", action="store_true")
parser.add_argument("--log", type=Path)

Context = ServerRequestContext[Any, Any]
EMPTY = {"type": "object", "properties": {}}
TEXTS = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
READS = types.ToolAnnotations(read_only_hint=True, title="Reads")
ICONS = [types.Icon(src="https://example.org/icon.png", mime_type="image/png", sizes=["48x48"])]
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
BESIDES: dict[str, Any] = {"icons": ICONS, "_meta": {"example.org/z": [3]}}
DOC = types.Resource(uri="doc://guide", name="guide", title="The guide", mime_type="text/plain", size=6, **BESIDES)
VALUES = [f"v{number}" for number in range(150)]


def tool(name: str, schema: dict[str, Any] = EMPTY, **fields: Any) -> types.Tool:
    return types.Tool(name=name, description=f"What {name} does.", input_schema=schema, annotations=READS, **fields)


class Everything:
    """The answers. log: gets lines."""

    def __init__(self, log: Path | None) -> None:
        self._log = log
        self.bus = InMemorySubscriptionBus()
        self.tools = [
            tool("echo", TEXTS, title="Echo", icons=ICONS, _meta={"example.org/x": 1}),
            tool("record", output_schema={"type": "object", "properties": {"n": {"type": "integer"}}}),
            *map(tool, ("links", "steps", "chatter", "ask", "sample", "wait", "grow", "broken")),
        ]

    def note(self, line: str) -> None:
        if self._log is not None:
            with self._log.open("a") as file:
                file.write(line + "\n")

    async def list_tools(self, _ctx: Context, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self.tools, ttl_ms=60_000, cache_scope="public")

    async def call(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        self.note(params.name)
        try:
            return await self._called(ctx, params)
        except anyio.get_cancelled_exc_class():
            self.note(f"cancelled {params.name}")
            raise

    async def _called(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        match params.name:
            case "echo":
                return said((params.arguments or {})["text"], _meta={"example.org/y": 2})
            case "record":
                return types.CallToolResult(content=[types.TextContent(text='{"n": 1}')], structured_content={"n": 1})
            case "links":
                embedded = types.TextResourceContents(uri="doc://guide", mime_type="text/plain", text="guide\n")
                return types.CallToolResult(
                    content=[
                        types.ResourceLink(uri="doc://guide", name="guide", icons=ICONS),
                        types.EmbeddedResource(resource=embedded, annotations=types.Annotations(priority=1)),
                        types.ImageContent(data="AAEC", mime_type="image/png"),
                    ]
                )
            case "steps":
                for number in (1, 2, 3):
                    await ctx.session.report_progress(number, 3, f"step {number}")
            case "chatter":
                await self._chatter(ctx)
            case "ask" | "sample":
                return await self._asked(ctx, params)
            case "wait":
                await anyio.sleep_forever()
            case "grow":
                self.tools.append(tool("grown"))
                await self.bus.publish(ToolsListChanged())
                await ctx.session.send_tool_list_changed()
            case "broken":
                raise MCPError(types.INVALID_PARAMS, "broken, as told")
        return said(f"{params.name} done")

    async def _chatter(self, ctx: Context) -> None:
        for level in get_args(types.LoggingLevel):
            message = types.LoggingMessageNotificationParams(level=level, logger="mouth", data={"said": level})
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and level not in allowed(ctx):
                continue
            await ctx.session.send_notification(types.LoggingMessageNotification(params=message), ctx.request_id)

    async def _asked(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Ask the user or the model of the client: by a request, or since 2026-07-28 in the result."""
        message = types.SamplingMessage(role="user", content=types.TextContent(text="Say something."))
        request: types.ElicitRequest | types.CreateMessageRequest
        if params.name == "ask":
            form = types.ElicitRequestFormParams(message="Who are you?", requested_schema=FORM)
            request = types.ElicitRequest(params=form)
        else:
            request = types.CreateMessageRequest(
                params=types.CreateMessageRequestParams(messages=[message], max_tokens=10)
            )
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            if params.request_state != "asked":
                return types.InputRequiredResult(input_requests={"question": request}, request_state="asked")
            answer = (params.input_responses or {})["question"]
        else:
            kind = types.ElicitResult if params.name == "ask" else types.CreateMessageResult
            answer = await ctx.session.send_request(request, kind)
        if isinstance(answer, types.ElicitResult):
            return said(f"{answer.action}: {answer.content}")
        assert isinstance(answer, types.CreateMessageResult)
        return said(f"{answer.model}: {answer.content.text if isinstance(answer.content, types.TextContent) else ''}")

    async def list_prompts(self, _ctx: Context, _params: Any) -> types.ListPromptsResult:
        arguments = [types.PromptArgument(name="who", description="Whom.", required=True)]
        greet = types.Prompt(name="greet", title="Greet", description="Greets.", arguments=arguments, icons=ICONS)
        return types.ListPromptsResult(prompts=[types.Prompt(name="plain"), greet])

    async def get_prompt(self, _ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        who = (params.arguments or {}).get("who", "nobody")
        link = types.ResourceLink(uri="doc://guide", name="guide")
        contents = [types.TextContent(text=f"Greet {who}."), link]
        messages = [types.PromptMessage(role="user", content=each) for each in contents]
        return types.GetPromptResult(description="A greeting", messages=messages)

    async def list_resources(self, _ctx: Context, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[DOC])

    async def list_templates(self, _ctx: Context, _params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uri_template="doc://page/{number}", name="page", title="A page", **BESIDES)
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read(self, _ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        if params.uri != "doc://guide" and not params.uri.startswith("doc://page/"):
            raise MCPError(-32002, f"no resource {params.uri}")
        content = types.TextResourceContents(uri=params.uri, mime_type="text/plain", text="guide\n")
        return types.ReadResourceResult(contents=[content], ttl_ms=60_000, cache_scope="public")

    async def complete(self, _ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        found = [value for value in VALUES if value.startswith(params.argument.value)]
        completion = types.Completion(values=found[:100], total=len(found), has_more=len(found) > 100)
        return types.CompleteResult(completion=completion)

    async def set_level(self, _ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.note(f"level {params.level}")
        return types.EmptyResult()


def said(text: str, **fields: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], **fields)


def allowed(ctx: Context) -> tuple[str, ...]:
    """The levels that a request of 2026-07-28 asks for."""
    levels = get_args(types.LoggingLevel)
    wanted = (ctx.meta or {}).get(types.LOG_LEVEL_META_KEY)
    return levels[levels.index(wanted) :] if wanted in levels else ()


def server_of(log: Path | None) -> Server[Any]:
    """The server, for a test that talks to it in its own process as well."""
    answers = Everything(log)
    server: Server[Any] = Server(
        "everything",
        version="1",
        instructions="Be kind.",
        on_list_tools=answers.list_tools,
        on_call_tool=answers.call,
        on_list_prompts=answers.list_prompts,
        on_get_prompt=answers.get_prompt,
        on_list_resources=answers.list_resources,
        on_list_resource_templates=answers.list_templates,
        on_read_resource=answers.read,
        on_completion=answers.complete,
        on_subscriptions_listen=ListenHandler(answers.bus),
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, answers.set_level)
    return server


async def main(options: argparse.Namespace) -> None:
    server = server_of(options.log)
    changes = NotificationOptions(tools_changed=True)
    async with stdio_server() as (incoming, outgoing):
        if not options.handshake:
            await server.run(incoming, outgoing, server.create_initialization_options(changes))
            return
        made = server.create_initialization_options(changes)
        await serve_loop(server, incoming, outgoing, lifespan_state={}, init_options=made)


if __name__ == "__main__":
    anyio.run(main, parser.parse_args())
