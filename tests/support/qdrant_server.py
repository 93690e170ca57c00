"""The Qdrant of `tests/support/servers/qdrant.py` as a process that a test talks to."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

from programs import printed_url
from repository import SERVERS, TESTS
from vectors import DIMENSIONS, NOTES, embedded

PYTHON = TESTS / "thirdparty" / ".venv" / "bin" / "python"
KEY = "qdrant-secret"
BOUND = 30.0


class QdrantServer:
    """The server at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def control(self, **asked: Any) -> list[str]:
        """Make collections (`create`), or have parts of paths answered wrong (`wrong`). The requests so far."""
        request = Request(self.url + "/control", json.dumps(asked).encode(), {"content-type": "application/json"})
        with urlopen(request, timeout=BOUND) as answer:
            return json.load(answer)

    def notes(self) -> None:
        """Make the collection of four notes."""
        points = [
            {"id": key, "vector": numbers(body), "payload": {"topic": topic, "year": year, "body": body}}
            for key, body, topic, year in NOTES
        ]
        self.control(
            create=[{"name": "notes", "vectors": {"size": DIMENSIONS, "distance": "Cosine"}, "points": points}]
        )


def numbers(text: str) -> list[float]:
    return list(memoryview(embedded(text)).cast("f"))


@contextmanager
def qdrant_server() -> Iterator[QdrantServer]:
    with printed_url(PYTHON, SERVERS / "qdrant.py") as url:
        running = QdrantServer(url)
        running.notes()
        yield running
