"""MCP clients that are told of changes, the way their era of the protocol has it."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from mcp import Client
from mcp.client.session import IncomingMessage
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent, ToolsListChanged
from mcp_types import ResourceListChangedNotification, ResourceUpdatedNotification, ToolListChangedNotification
from served import BOUND


class Announced:
    """What a client was told."""

    def __init__(self) -> None:
        self.send, self._receive = trio.open_memory_channel[ServerEvent](math.inf)
        self.told: set[ServerEvent] = set()

    async def next(self) -> ServerEvent:
        """Return the next event."""
        event = await self._receive.receive()
        self.told.add(event)
        return event

    async def until(self, *expected: ServerEvent) -> None:
        """Wait until each of these has come from now on."""
        missing = set(expected)
        while missing:
            missing.discard(await self.next())

    async def wait_for(self, expected: set[ServerEvent]) -> None:
        """Wait until each of these has come, now or earlier."""
        while not expected <= self.told:
            await self.next()

    async def notified(self, message: IncomingMessage) -> None:
        if isinstance(message, ResourceListChangedNotification):
            self.send.send_nowait(ResourcesListChanged())
        elif isinstance(message, ResourceUpdatedNotification):
            self.send.send_nowait(ResourceUpdated(message.params.uri))
        elif isinstance(message, ToolListChangedNotification):
            self.send.send_nowait(ToolsListChanged())


@asynccontextmanager
async def subscribed(
    transport: Any, era: str, uris: set[str], *, lists_first: bool = False
) -> AsyncIterator[tuple[Client, Announced]]:
    """Yield a client that is told of changes of the list and of these resources, for `BOUND` seconds at most."""
    with trio.fail_after(BOUND):
        announced = Announced()
        handler = announced.notified if era == "legacy" else None
        async with Client(transport, mode=era, message_handler=handler, cache=None) as client:
            if lists_first:
                await client.list_resources()
            if era == "legacy":
                for uri in sorted(uris):
                    await client.subscribe_resource(uri)
                yield client, announced
                return

            async def listen(task_status: trio.TaskStatus[None]) -> None:
                async with client.listen(
                    resources_list_changed=True, tools_list_changed=True, resource_subscriptions=sorted(uris)
                ) as events:
                    task_status.started()
                    async for event in events:
                        announced.send.send_nowait(event)

            async with trio.open_nursery() as nursery:
                await nursery.start(listen)
                yield client, announced
                nursery.cancel_scope.cancel()
