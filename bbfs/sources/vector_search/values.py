"""Collections of vectors and what a search in them finds, as values; and the interface of their backends."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, Protocol, TypeAlias

from bbfs.model.errors import ProtocolViolation
from bbfs.sources.bounded.json import JsonBounds, parse_json

Metric: TypeAlias = Literal["cosine", "dot", "l2", "l1", "hamming", "jaccard"]
METRICS: tuple[Metric, ...] = ("cosine", "dot", "l2", "l1", "hamming", "jaccard")
ANSWER = JsonBounds(size=32 << 20, values=1_000_000, depth=64)
"""Bounds of an answer of a backend."""
LONGEST_TEXT = 1000
"""Characters of a text in the payload of a match. The point itself has all."""
MOST_COLLECTIONS = 10_000
MOST_MATCHES = 1000
_LARGEST_SCORE = 1 << 53
FILTERS: TypeAlias = Mapping[str, str]
"""Texts that fields of the payload must have; a dot leads into an object."""


@dataclass(frozen=True, slots=True)
class Collection:
    """One collection. element: type of the numbers. texts: fields of the payload with words. count: of the points.

    filters: fields that can be filtered; None where any can. owner: the backend's own name of the collection, and the
    name of the vector.
    """

    name: str
    dimensions: int
    metric: Metric
    element: str = "float"
    texts: tuple[str, ...] = ()
    filters: tuple[str, ...] | None = None
    count: int | None = None
    owner: tuple[str, str] = ("", "")

    @classmethod
    def of(cls, value: Any) -> "Collection":
        """Return the collection that a backend describes. Raise ProtocolViolation."""
        match value:
            case {"name": str(name), "dimensions": int(dimensions), "metric": str(metric)} if (
                metric in METRICS and name
            ):
                filters, count = value.get("filters"), value.get("count")
                return cls(
                    name,
                    dimensions,
                    metric,
                    str(value.get("element", "float")),
                    _strings(value.get("texts")),
                    None if filters is None else _strings(filters),
                    count if type(count) is int else None,
                )
        raise ProtocolViolation("a collection that cannot be understood")

    def document(self, model: str | None) -> bytes:
        """Return what `info.json` says. model: that makes vectors of texts."""
        about = {
            "collection": self.name,
            "dimensions": self.dimensions,
            "metric": self.metric,
            "element": self.element,
            "count": self.count,
            "texts": list(self.texts),
            "filters": None if self.filters is None else list(self.filters),
            "model": model,
        }
        return (json.dumps(about, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Match:
    """One result. score: greater is better; None where only the rank counts. payload: with long texts cut."""

    id: str
    score: float | None
    payload: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any) -> "Match":
        """Return the result that a backend describes. Raise ProtocolViolation."""
        match value:
            case {"id": str() | int() as identity, "payload": dict(payload)}:
                score = value.get("score")
                if type(score) is int and abs(score) < _LARGEST_SCORE:
                    score = float(score)
                return cls(str(identity), score if type(score) is float and isfinite(score) else None, payload)
        raise ProtocolViolation("a result that cannot be understood")


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


class VectorBackend(Protocol):
    """Reads the collections of one source. All raise BbfsError; NotFound for a collection or a point that is not there.

    A vector is 32-bit floats in this machine's byte order. An id is the text that names its file.
    """

    async def collections(self) -> Sequence[Collection]: ...

    async def collection(self, name: str) -> Collection: ...

    async def ids(self, collection: Collection, limit: int) -> Sequence[str]:
        """Return the ids of the first `limit` points."""
        ...

    async def has(self, collection: Collection, id: str) -> bool: ...

    async def point(self, collection: Collection, id: str) -> bytes:
        """Return a point with its payload and its vector as JSON."""
        ...

    async def near(
        self, collection: Collection, to: str | bytes, limit: int, filters: FILTERS
    ) -> Sequence[Match]:  # fmt: skip
        """Return the nearest points, the nearest first. to: the id of a point, which is left out, or a vector."""
        ...

    async def words(
        self, collection: Collection, words: Sequence[str], limit: int, filters: FILTERS
    ) -> Sequence[Match]:  # fmt: skip
        """Return the points whose texts have the most of these words."""
        ...

    async def aclose(self) -> None: ...


def parsed(data: bytes) -> Any:
    """Return the value of an answer. Raise ProtocolViolation and TooLarge."""
    return parse_json(data, ANSWER)


def score_of(metric: Metric, distance: float) -> float:
    """Return a score for a distance: the cosine itself, else a number that falls from 1 to 0."""
    return 1.0 - distance if metric == "cosine" else -distance if metric == "dot" else 1.0 / (1.0 + distance)
