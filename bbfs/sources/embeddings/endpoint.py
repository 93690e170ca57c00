"""Vectors from an endpoint that speaks OpenAI's protocol (`POST …/embeddings`): Ollama, vLLM, OpenAI and others."""

from array import array
from collections.abc import Sequence
from math import isfinite
from typing import Any

import trio
from cachetools import LRUCache

from bbfs.model.errors import NotSupported, ProtocolViolation, Unreachable
from bbfs.model.redaction import shown
from bbfs.model.values import DataSource
from bbfs.sources.bounded.json import JsonBounds
from bbfs.sources.embeddings.options import MOST_DIMENSIONS, EmbeddingOptions
from bbfs.sources.http.addresses import names_private
from bbfs.sources.http.client import WebClient

_ANSWER = JsonBounds(size=32 << 20, values=1_000_000, depth=16)
_PAUSES = (0.2, 1.0)
"""Seconds before a request is sent again: a vector costs the endpoint nothing but work."""
_KEPT = 256
"""Texts whose vectors are kept, as one search may be read as a directory and as a file."""
_REFUSED = (400, 404)
"""Statuses of an unknown model (Ollama answers 404, vLLM 404, OpenAI 400 or 404)."""


class EndpointEmbedder:
    costs = True

    def __init__(self, source: DataSource, options: EmbeddingOptions) -> None:
        assert options.url is not None
        assert options.model is not None
        key = "" if options.key is None else options.key.get_secret_value()
        allow = names_private(options.url) if options.allow_private is None else options.allow_private
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = WebClient(source, headers=headers, allow_private=allow, max_body=_ANSWER.size)
        self._url = options.url.rstrip("/") + "/embeddings"
        self._request: dict[str, Any] = {"model": options.model, "encoding_format": "float"}
        if options.send_dimensions:
            self._request["dimensions"] = options.dimensions
        self._batch = options.batch
        self._kept: LRUCache[str, bytes] = LRUCache(_KEPT)
        self.name = options.model
        self.dimensions = options.dimensions

    async def aclose(self) -> None:
        await self._client.aclose()

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """Return the vector of each text, in requests of a batch each."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._kept]
        found = {text: self._kept[text] for text in texts if text in self._kept}
        for begin in range(0, len(missing), self._batch):
            batch = missing[begin : begin + self._batch]
            found.update(zip(batch, await self._vectors(batch), strict=True))
        self._kept.update((text, found[text]) for text in missing[-_KEPT:])
        return [found[text] for text in texts]

    async def _vectors(self, texts: list[str]) -> list[bytes]:
        answer = await self._answer({**self._request, "input": texts})
        items = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(items, list) or len(items) != len(texts):
            raise self._broken(f"has no list of {len(texts)} vectors (data)")
        vectors: list[bytes | None] = [None] * len(texts)
        for place, item in enumerate(items):
            await trio.lowlevel.checkpoint()  # a batch may have a million numbers
            index = item.get("index", place) if isinstance(item, dict) else None
            if type(index) is not int or not 0 <= index < len(texts) or vectors[index] is not None:
                raise self._broken("does not give one vector for each text (index)")
            vectors[index] = self._vector(item.get("embedding"))
        return [vector for vector in vectors if vector is not None]

    async def _answer(self, request: dict[str, Any]) -> Any:
        for pause in (*_PAUSES, None):
            try:
                response = await self._client.request("POST", self._url, json=request, accept=_REFUSED)
                break
            except Unreachable:
                if pause is None:
                    raise
                await trio.sleep(pause)
        else:
            raise AssertionError
        if response.status in _REFUSED:
            said = shown(response.body[:300].decode("utf-8", "replace"))
            raise NotSupported(
                f"embeddings: the endpoint refuses the model {self.name!r} (embeddings.model), HTTP"
                f" {response.status}: {said}"
            )
        return await response.json(_ANSWER)

    def _vector(self, numbers: Any) -> bytes:
        """Return a checked vector. The first one says how many numbers all others must have, unless an option does."""
        if not isinstance(numbers, list) or not 1 <= len(numbers) <= MOST_DIMENSIONS:
            raise self._broken(f"has a vector that is no list of 1 to {MOST_DIMENSIONS} numbers")
        if self.dimensions is not None and len(numbers) != self.dimensions:
            raise self._broken(f"has a vector of {len(numbers)} dimensions where {self.dimensions} are expected")
        if not all(type(number) in (float, int) for number in numbers):
            raise self._broken("has a vector with something that is no number")
        try:
            vector = array("f", numbers)
        except OverflowError:
            raise self._broken("has a number that is too large") from None
        if not all(map(isfinite, vector)):
            raise self._broken("has a number that is too large")
        self.dimensions = len(numbers)
        return vector.tobytes()

    def _broken(self, what: str) -> ProtocolViolation:
        return ProtocolViolation(f"embeddings: the answer of the endpoint for the model {self.name!r} {what}")
