"""Collections of a Qdrant server, over its REST API (https://api.qdrant.tech). All requests only read."""

from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote
from uuid import UUID

import trio

from bbfs.model.errors import InvalidUri, NotFound, NotSupported, ProtocolViolation
from bbfs.model.redaction import shown
from bbfs.sources.embeddings.options import MOST_DIMENSIONS
from bbfs.sources.http.client import WebClient
from bbfs.sources.vector_search.stored import point_json, shortened, vector_json
from bbfs.sources.vector_search.values import ANSWER, FILTERS, MOST_COLLECTIONS, Collection, Match, Metric, score_of

_METRICS: dict[str, Metric] = {"Cosine": "cosine", "Dot": "dot", "Euclid": "l2", "Manhattan": "l1"}
_LONGEST_NAME = 1024
"""Characters of the name of a collection or vector. Qdrant itself takes 255."""
_PAGE = 1000
"""Ids in one answer."""
_MOST_EMPTY = 10
"""Answers in a row that bring no new id."""


class QdrantVectors:
    """A `VectorBackend` over one server. url: its base. text: the field of the payload that has words."""

    def __init__(self, client: WebClient, url: str, text: str | None) -> None:
        self._client = client
        self._base = url.rstrip("/")
        self._text = text

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _ask(self, method: str, path: str, **more: Any) -> Any:
        response = await self._client.request(method, f"{self._base}/{path}", max_body=ANSWER.size, **more)
        answer = await response.json(ANSWER)
        if not isinstance(answer, dict) or "result" not in answer:
            raise ProtocolViolation(f"{path}: an answer without a result; is this a Qdrant server?")
        return answer["result"]

    async def collections(self) -> Sequence[Collection]:
        """Return the collections. The server describes each in an answer of its own."""
        match await self._ask("GET", "collections"):
            case {"collections": list(found)} if len(found) <= MOST_COLLECTIONS:
                listed: list[Collection] = []
                for name in sorted(_name(each.get("name") if isinstance(each, dict) else None) for each in found):
                    with suppress(NotFound):  # it was there a moment ago
                        listed += await self._described(name)
                return listed
        raise ProtocolViolation("a list of collections that cannot be understood")

    async def collection(self, name: str) -> Collection:
        base, dot, _ = name.rpartition(".")
        for owner in dict.fromkeys([name, base] if dot else [name]):
            with suppress(NotFound):
                found = next((each for each in await self._described(owner) if each.name == name), None)
                if found is not None:
                    return found
        raise NotFound(f"no collection {shown(name)!r}")

    async def _described(self, name: str) -> list[Collection]:
        """Return a collection: one for each of its named vectors. A sparse vector does not count."""
        result = await self._ask("GET", _path(name))
        match result:
            case {"config": {"params": {"vectors": dict(vectors)}}}:
                pass
            case {"config": {"params": dict()}}:
                vectors = {}
            case _:
                raise ProtocolViolation(f"{shown(name)}: a collection that cannot be understood")
        count = result.get("points_count")
        of = {"": vectors} if "size" in vectors else vectors
        return [self._one(name, vector and _name(vector), about, count) for vector, about in of.items()]

    def _one(self, name: str, vector: str, about: Any, count: Any) -> Collection:
        match about:
            case {"size": int(size), "distance": str(distance)} if distance in _METRICS and 0 < size <= MOST_DIMENSIONS:
                element = {"uint8": "int8", "float16": "half"}.get(str(about.get("datatype", "")).lower(), "float")
                texts = () if self._text is None else (self._text,)
                full = name if vector == "" else f"{name}.{vector}"
                number = count if type(count) is int else None
                return Collection(full, size, _METRICS[distance], element, texts, None, number, (name, vector))
        raise ProtocolViolation(f"{shown(name)}: a vector whose size or distance cannot be understood")

    async def ids(self, collection: Collection, limit: int) -> Sequence[str]:
        found: dict[str, None] = {}
        offset: Any = None
        empty = 0
        while len(found) < limit:
            request = {"limit": min(_PAGE, limit - len(found) + 1), "with_payload": False, "with_vector": False}
            if offset is not None:
                request["offset"] = offset
            before = len(found)
            match await self._ask("POST", f"{_path(collection.owner[0])}/points/scroll", json=request):
                case {"points": list(points), "next_page_offset": offset}:
                    found.update((_id(point), None) for point in points[:_PAGE])
                case _:
                    raise ProtocolViolation("a page of points that cannot be understood")
            empty = 0 if len(found) > before else empty + 1
            if offset is None:
                break
            if empty >= _MOST_EMPTY or type(offset) not in (int, str):
                raise ProtocolViolation(f"{shown(collection.name)}: pages without an end")
        return list(found)[:limit]

    async def _point(self, collection: Collection, id: str, with_all: bool) -> Mapping[str, Any] | None:
        owner, vector = collection.owner
        asked = _asked_id(id)
        if asked is None:
            return None
        what = {"with_payload": with_all, "with_vector": with_all if vector == "" else [vector] if with_all else False}
        match await self._ask("POST", f"{_path(owner)}/points", json={"ids": [asked], **what}):
            case []:
                return None
            case [dict(point)] if _id(point) == id:
                return point
        raise ProtocolViolation(f"{shown(collection.name)}: a point that cannot be understood")

    async def has(self, collection: Collection, id: str) -> bool:
        return await self._point(collection, id, with_all=False) is not None

    async def point(self, collection: Collection, id: str) -> bytes:
        found = await self._point(collection, id, with_all=True)
        if found is None:
            raise NotFound(f"{shown(id)}: no such point in {shown(collection.name)}")
        return await trio.to_thread.run_sync(_point_document, collection, found)

    async def near(self, collection: Collection, to: str | bytes, limit: int, filters: FILTERS) -> Sequence[Match]:
        query: Any = list(memoryview(to).cast("f")) if isinstance(to, bytes) else _asked_id(to)
        if query is None or (isinstance(to, str) and not await self.has(collection, to)):
            raise NotFound(f"{shown(str(to))}: no such point in {shown(collection.name)}")
        owner, vector = collection.owner
        request = {"query": query, "limit": limit, "with_payload": True, "filter": _filter(filters)}
        if vector:
            request["using"] = vector
        result = await self._ask("POST", f"{_path(owner)}/points/query", json=request)
        return await trio.to_thread.run_sync(self._matches, collection, result, limit)

    async def words(
        self, collection: Collection, words: Sequence[str], limit: int, filters: FILTERS
    ) -> Sequence[Match]:  # fmt: skip
        """Return points whose text has all of the words. Qdrant does not rank them."""
        if not collection.texts:
            raise NotSupported(f"{shown(collection.name)}: the option text does not say which field has the words")
        conditions = [{"key": collection.texts[0], "match": {"text": word}} for word in words]
        request = {"limit": limit, "with_payload": True, "filter": {"must": [*conditions, *_filter(filters)["must"]]}}
        result = await self._ask("POST", f"{_path(collection.owner[0])}/points/scroll", json=request)
        return await trio.to_thread.run_sync(self._matches, collection, result, limit)

    @staticmethod
    def _matches(collection: Collection, result: Any, limit: int) -> list[Match]:
        points = result.get("points") if isinstance(result, dict) else None
        if not isinstance(points, list) or len(points) > limit:
            raise ProtocolViolation(f"{shown(collection.name)}: results that cannot be understood")
        return [_match(collection, point) for point in points]


def _match(collection: Collection, point: Any) -> Match:
    identity = _id(point)
    found = Match.of({"id": identity, "score": point.get("score"), "payload": point.get("payload") or {}})
    score = found.score
    if score is not None and collection.metric in ("l1", "l2"):
        score = score_of(collection.metric, max(0.0, score))  # Qdrant says a distance
    return Match(found.id, score, shortened(found.payload))


def _point_document(collection: Collection, found: Mapping[str, Any]) -> bytes:
    numbers, payload = found.get("vector"), found.get("payload")
    if isinstance(numbers, dict):
        numbers = numbers.get(collection.owner[1])
    text = "null" if numbers is None else vector_json("float", _floats(collection, numbers))
    return point_json(found["id"], payload if isinstance(payload, dict) else {}, text).encode("utf-8", "replace")


def _path(name: str) -> str:
    return f"collections/{quote(name, safe='')}"


def _name(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME:
        raise ProtocolViolation(f"a collection without a name, or with one of more than {_LONGEST_NAME} characters")
    return value


def _id(point: Any) -> str:
    """Return the id of a point: a number or a UUID."""
    found = point.get("id") if isinstance(point, dict) else None
    if type(found) not in (int, str) or (text := str(found)) == "" or _asked_id(text) is None:
        raise ProtocolViolation("a point without an id")
    return text


def _asked_id(text: str) -> int | str | None:
    """Return the id that a text names, or None if no point can have it."""
    if text.isascii() and text.isdigit():
        return int(text) if len(text) < 21 and str(int(text)) == text else None
    try:
        return text if str(UUID(text)) == text else None
    except ValueError:
        return None


def _floats(collection: Collection, numbers: Any) -> bytes:
    if not isinstance(numbers, list) or len(numbers) != collection.dimensions:
        raise ProtocolViolation(
            f"{shown(collection.name)}: a vector that has not the {collection.dimensions} dimensions of its collection"
        )
    try:
        return array("f", numbers).tobytes()
    except (TypeError, OverflowError):
        raise ProtocolViolation(f"{shown(collection.name)}: a vector with something that is no number") from None


def _filter(filters: FILTERS) -> dict[str, Any]:
    return {"must": [_condition(name, text) for name, text in filters.items()]}


def _condition(name: str, text: str) -> dict[str, Any]:
    """Return the condition that a field has a value, which may be stored as a text, a number or a boolean."""
    either: list[dict[str, Any]] = [{"key": name, "match": {"value": text}}]
    if text in ("true", "false"):
        either.append({"key": name, "match": {"value": text == "true"}})
    elif text.lstrip("-").isdigit() and text.isascii() and len(text) < 19:
        either.append({"key": name, "match": {"value": int(text)}})
    if not name or len(name) > 200:
        raise InvalidUri(f"{shown(name)}: no name of a field")
    return {"should": either} if len(either) > 1 else either[0]
