"""The local Notion server of `tests/support/servers/notion.py` as a process that a test talks to."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen
from uuid import NAMESPACE_URL, UUID, uuid5

from programs import printed_url
from repository import SERVERS

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
