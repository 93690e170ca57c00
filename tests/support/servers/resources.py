"""A well-behaved MCP server on the SDK, for tests: both protocol eras, over stdio, Streamable HTTP and SSE.

    python resources.py [--transport stdio|http|sse] [--count N] [--delay SECONDS] [--counters FILE] ...

It lists `test://items/0000.txt` and so on, `test://binary.bin`, `test://many` (several contents) and `test://large.txt`.
Over HTTP its first line on stdout is its URL. Reading `test://control/touch` changes item 0 and announces that;
`test://control/crash` ends the process at once. The counters file holds one line a request: `list`, or `read URI`.
"""

import argparse
import base64
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

parser = argparse.ArgumentParser()
parser.add_argument("--transport", choices=("stdio", "http", "sse"), default="stdio")
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--count", type=int, default=3)
parser.add_argument("--delay", type=float, default=0.0, help="seconds a read takes")
parser.add_argument("--counters", type=Path, help="file that gets a line a request")
parser.add_argument("--page-size", type=int, default=1000)
parser.add_argument("--large", type=int, default=0, help="bytes of test://large.txt; 0 leaves it out")
parser.add_argument("--tools", type=int, default=0, help="tools that say that they only read")
parser.add_argument("--ttl-ms", type=int, default=0)
parser.add_argument("--handshake-only", action="store_true", help="HTTP: refuse protocol 2026-07-28")
parser.add_argument("--token", help="HTTP: refuse requests without this bearer token")
parser.add_argument("--json", action="store_true", help="HTTP: answer with JSON, not with event streams")


class State:
    """What the server serves, and who wants to hear of changes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.touched = 0
        self.bus = InMemorySubscriptionBus()
        self.subscribers: dict[str, list[Any]] = {}

    def count(self, text: str) -> None:
        if self.options.counters is not None:
            with self.options.counters.open("a") as file:
                file.write(text + "\n")

    def resources(self) -> list[types.Resource]:
        found = [
            types.Resource(uri=f"test://items/{number:04}.txt", name=f"item {number}", mime_type="text/plain")
            for number in range(self.options.count)
        ]
        modified = types.Annotations(priority=0.5, last_modified="2026-01-02T03:04:05.678Z")
        found.append(
            types.Resource(uri="test://binary.bin", name="binary", title="All bytes", size=256, annotations=modified)
        )
        found.append(types.Resource(uri="test://many", name="many", _meta={"test/kind": "several"}))
        if self.options.large:
            found.append(types.Resource(uri="test://large.txt", name="large"))
        return found

    def contents(self, uri: str) -> list[types.TextResourceContents | types.BlobResourceContents]:
        if uri == "test://binary.bin":
            return [types.BlobResourceContents(uri=uri, blob=base64.b64encode(bytes(range(256))).decode())]
        if uri == "test://many":
            parts = [f"{uri}/{name}" for name in ("one.txt", "two.txt")]
            return [types.TextResourceContents(uri=part, text=part, mime_type="text/plain") for part in parts]
        if uri == "test://large.txt" and self.options.large:
            return [types.TextResourceContents(uri=uri, text="x" * self.options.large)]
        digits = uri.removeprefix("test://items/").removesuffix(".txt")
        if digits.isdecimal() and int(digits) < self.options.count and uri == f"test://items/{int(digits):04}.txt":
            return [types.TextResourceContents(uri=uri, text=self.item(int(digits)), mime_type="text/plain")]
        raise MCPError(code=-32002, message=f"no resource {uri}")

    def item(self, number: int) -> str:
        """A text of 64 to 1000 characters that differs from item to item, and after a touch."""
        seed = f"{number}.{self.touched if number == 0 else 0}"
        digest = hashlib.sha256(seed.encode()).hexdigest()
        return f"item {number}, version {seed}\n" + f"{digest}\n" * (1 + number % 14)

    async def control(self, session: Any, action: str) -> None:
        if action == "crash":
            os._exit(3)
        self.touched += 1
        uri = "test://items/0000.txt"
        await self.bus.publish(ResourceUpdated(uri))
        await self.bus.publish(ResourcesListChanged())
        for subscriber in self.subscribers.get(uri, ()):
            await subscriber.send_resource_updated(uri)
            await subscriber.send_resource_list_changed()


def make_server(state: State) -> Server[Any]:
    options = state.options

    async def list_resources(_context: Any, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        state.count("list")
        everything = state.resources()
        start = int(params.cursor) if params is not None and params.cursor else 0
        end = start + options.page_size
        cursor = str(end) if end < len(everything) else None
        return types.ListResourcesResult(
            resources=everything[start:end], next_cursor=cursor, ttl_ms=options.ttl_ms, cache_scope="private"
        )

    async def list_templates(
        _context: Any, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uri_template="test://items/{number}.txt", name="item")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read(context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = params.uri
        state.count(f"read {uri}")
        if uri.startswith("test://control/"):
            await state.control(context.session, uri.removeprefix("test://control/"))
            return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text="done")])
        await anyio.sleep(options.delay)
        return types.ReadResourceResult(contents=state.contents(uri), ttl_ms=options.ttl_ms, cache_scope="private")

    async def list_tools(_context: Any, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
        only_reads = types.ToolAnnotations(read_only_hint=True)
        names = [f"item-{number}" for number in range(options.tools)]
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema=schema, annotations=only_reads) for name in names]
        )

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        number = int((params.arguments or {})["number"])
        return types.CallToolResult(content=[types.TextContent(text=state.item(number))])

    async def subscribe(context: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
        state.count(f"subscribe {params.uri}")
        state.subscribers.setdefault(params.uri, []).append(context.session)
        return types.EmptyResult()

    async def listen(context: Any, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
        uris = params.notifications.resource_subscriptions or ()
        state.count(" ".join(("listen", *uris)))
        return await handler(context, params)

    handler = ListenHandler(state.bus)
    return Server(
        "resources",
        version="1",
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read,
        on_list_tools=list_tools if options.tools else None,
        on_call_tool=call_tool if options.tools else None,
        on_subscribe_resource=subscribe,
        on_subscriptions_listen=listen,
    )


async def serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (incoming, outgoing):
        options = server.create_initialization_options(NotificationOptions(resources_changed=True))
        await server.run(incoming, outgoing, options)


def sse_app(server: Server[Any]) -> ASGIApp:
    transport = SseServerTransport("/messages/")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError("no lifespan")
        if scope["path"] == "/sse":
            async with transport.connect_sse(scope, receive, send) as streams:
                await server.run(*streams, server.create_initialization_options())
        else:
            await transport.handle_post_message(scope, receive, send)

    return app


def guarded(app: Any, options: argparse.Namespace) -> Any:
    """The same application behind a check of the token, and of the protocol's era."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            if options.token and headers.get("authorization") != f"Bearer {options.token}":
                await JSONResponse({"error": "unauthorized"}, 401)(scope, receive, send)
                return
            if options.handshake_only and headers.get("mcp-protocol-version", "").startswith("2026"):
                await Response("Bad Request", 400)(scope, receive, send)
                return
        await app(scope, receive, send)

    return guard


async def serve_http(server: Server[Any], options: argparse.Namespace) -> None:
    path = "/sse" if options.transport == "sse" else "/mcp"
    app = sse_app(server) if options.transport == "sse" else server.streamable_http_app(json_response=options.json)
    config = uvicorn.Config(guarded(app, options), port=options.port, log_level="warning", timeout_graceful_shutdown=1)
    config.load()
    socket = config.bind_socket()
    socket.listen(100)  # before the URL is printed: who has it connects at once
    print(f"http://127.0.0.1:{socket.getsockname()[1]}{path}", flush=True)
    await uvicorn.Server(config).serve([socket])


def main() -> None:
    options = parser.parse_args()
    server = make_server(State(options))
    if options.transport == "stdio":
        anyio.run(serve_stdio, server)
    else:
        anyio.run(serve_http, server, options)


if __name__ == "__main__":
    sys.exit(main())
