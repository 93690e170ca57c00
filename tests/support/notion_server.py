"""The local Notion server of `tests/support/servers/notion.py` as a process that a test talks to."""

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.request import Request, urlopen
from uuid import NAMESPACE_URL, UUID, uuid5

import trio
from programs import printed_url
from repository import SERVERS

from bbfs.model import source_types
from bbfs.model.values import Capabilities, DataSource
from bbfs.sources import Services
from bbfs.sources.notion.handler import NotionHandler

PROGRAM = SERVERS / "notion.py"
TOKEN = "ntn_the_secret"
BOUND = 60.0


def id_of(name: str) -> str:
    """The id of what the server calls by a name, as Notion writes it in URLs."""
    return UUID(str(uuid5(NAMESPACE_URL, name))).hex


class NotionServer:
    """The server at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def control(self, **asked: Any) -> list[list[Any]]:
        """Have the server do something else. The requests since the last time: method, path, body."""
        request = Request(self.url + "/control", json.dumps(asked).encode(), {"content-type": "application/json"})
        with urlopen(request, timeout=BOUND) as answer:
            return json.load(answer)["requests"]

    def asked(self, path: str) -> dict[str, Any]:
        """The answer of the API to a GET."""
        headers = {"authorization": f"Bearer {TOKEN}", "notion-version": "2025-09-03"}
        with urlopen(Request(f"{self.url}/v1/{path}", headers=headers), timeout=BOUND) as answer:
            return json.load(answer)

    def blocks(self, id: str) -> list[dict[str, Any]]:
        """The blocks of a page or block."""
        found: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            answer = self.asked(f"blocks/{id}/children" + (f"?start_cursor={cursor}" if cursor else ""))
            found += answer["results"]
            cursor = answer["next_cursor"]
        return found

    def config(self, **options: Any) -> dict[str, Any]:
        """The options of a source that asks this server."""
        return {"base_url": self.url, "allow_private": True, "per_second": 1000, **options}


@contextmanager
def notion_server(answer_size: int = 3) -> Iterator[NotionServer]:
    """A server whose answers have at most so many objects."""
    line = [sys.executable, "-I", "-S", str(PROGRAM), str(answer_size)]
    with printed_url(*line) as url:
        yield NotionServer(url)


@asynccontextmanager
async def source(
    server: NotionServer,
    *,
    write: bool = False,
    token: str = TOKEN,
    timeout: float = 10.0,
    listing_ttl: float = 60.0,
    clock: Callable[[], float] = trio.current_time,
    **options: Any,
) -> AsyncIterator[NotionHandler]:
    """Make a handler of a source over a server. options: of the source. The block ends within `BOUND` seconds."""
    made = DataSource(
        *("work", "work", "notion", "bb", "bb-notion+work+x-notion"),
        capabilities=Capabilities(write=write),
        policy=source_types.policy("notion", timeout=timeout, listing_ttl=listing_ttl),
        config=server.config(**options),
        auth={"token": token},
    )
    handler = NotionHandler(made, Services(), clock)
    try:
        with trio.fail_after(BOUND):
            yield handler
    finally:
        await handler.aclose()
