"""A local endpoint that speaks OpenAI's protocol for embeddings, and does wrong what a test says."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from http_server import Answers, HttpServer
from vectors import embedded, words

MODEL = "words-32"
KEY = "sk-the-secret"


def vectors_of(texts: list[str]) -> list[list[float]]:
    """The vectors of texts, as the static model of the tests makes them."""
    known = set(words())
    return [list(memoryview(embedded(kept(text, known))).cast("f")) for text in texts]


def kept(text: str, known: set[str]) -> str:
    return " ".join(word for word in text.lower().split() if word in known) or "source"


class Endpoint(HttpServer):
    """The endpoint at `url`. requests: bodies in the order of arrival. wrong: makes the status and body instead."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.wrong: Callable[[dict[str, Any]], tuple[int, Any]] | None = None
        self.hang = threading.Event()
        self.hang.set()
        super().__init__(_handler(self))
        self.url += "/v1"

    def answer(self, request: dict[str, Any]) -> tuple[int, Any]:
        self.hang.wait(20)
        if self.wrong is not None:
            return self.wrong(request)
        if request["model"] != MODEL:
            return 404, {"error": {"message": f'model "{request["model"]}" not found, try pulling it first'}}
        found = [{"index": n, "embedding": vector} for n, vector in enumerate(vectors_of(request["input"]))]
        return 200, {"object": "list", "data": found[::-1], "model": MODEL}

    def close(self) -> None:
        self.hang.set()
        super().close()


def _handler(endpoint: Endpoint) -> type[Answers]:
    class Handler(Answers):
        protocol_version = "HTTP/1.0"  # it is gone at once when it closes

        def answer(self) -> None:
            request = json.loads(self.body())
            assert self.path == "/v1/embeddings"
            endpoint.requests.append(request)
            endpoint.keys.append(self.headers["authorization"])
            status, value = endpoint.answer(request)
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.reply(status, body, {"content-type": "application/json"})

    return Handler


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    with closing(Endpoint()) as running:
        yield running


def config(running: Endpoint, **options: Any) -> dict[str, Any]:
    return {"url": running.url, "model": MODEL, "key": KEY, **options}
