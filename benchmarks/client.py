"""Seconds that the MCP SDK's own client takes: `client.py list|read [--concurrency N] [--limit N] -- SERVER COMMAND`

`list` walks the pages of the listing; `read` reads all resources (or the first `--limit`), so many at a time, the
listing not counted. Printed as JSON, with the number of resources. What it takes to start is not in it.
"""

import argparse
import json
import sys
import time

import trio
from mcp import StdioServerParameters
from mcp.client.client import Client


async def listed(client: Client) -> list[str]:
    uris: list[str] = []
    cursor: str | None = None
    while True:
        page = await client.list_resources(cursor=cursor)
        uris += [resource.uri for resource in page.resources]
        cursor = page.next_cursor
        if not cursor:
            return uris


async def read_all(client: Client, uris: list[str], concurrency: int) -> None:
    waiting = iter(uris)

    async def reader() -> None:
        for uri in waiting:
            await client.read_resource(uri)

    async with trio.open_nursery() as nursery:
        for _ in range(concurrency):
            nursery.start_soon(reader)


async def measured(what: str, concurrency: int, limit: int | None, command: list[str]) -> dict[str, float]:
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(parameters, cache=None) as client:
        started = time.perf_counter()
        uris = (await listed(client))[:limit]
        if what == "read":
            started = time.perf_counter()
            await read_all(client, uris, concurrency)
        return {"seconds": time.perf_counter() - started, "count": len(uris)}


def main() -> None:
    split = sys.argv.index("--")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("list", "read"))
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--limit", type=int)
    options = parser.parse_args(sys.argv[1:split])
    print(json.dumps(trio.run(measured, options.what, options.concurrency, options.limit, sys.argv[split + 1 :])))


if __name__ == "__main__":
    main()
