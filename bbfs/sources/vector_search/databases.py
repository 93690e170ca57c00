"""Collections in a database, read by processes of their own with limits (`bbfs.sources.database.backend`)."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bbfs.model.errors import NotFound, ProtocolViolation
from bbfs.model.redaction import shown
from bbfs.sources.database.backend import Access, DatabaseBackend
from bbfs.sources.vector_search.values import FILTERS, MOST_COLLECTIONS, Collection, Match, parsed

T = TypeVar("T")


class DatabaseVectors:
    """A `VectorBackend` over one database. Each request is a transaction of its own."""

    def __init__(self, access: Access) -> None:
        self._backend = DatabaseBackend(access)

    async def aclose(self) -> None:
        await self._backend.aclose()

    async def _ask(self, make: Callable[[Any], T], call: str, *arguments: Any) -> T:
        """Return what `make` reads in the answer of the process. Raise NotFound if there is none."""

        def work(session: Any, _job: Any) -> T:
            data = session.data(call, *arguments)
            if data is None:
                raise NotFound(f"{shown(str(arguments[1]))}: no such point in {shown(str(arguments[0]))}")
            return make(data)

        return await self._backend.run(work)

    async def collections(self) -> Sequence[Collection]:
        return await self._ask(lambda data: _each(data, Collection.of, MOST_COLLECTIONS), "collections")

    async def collection(self, name: str) -> Collection:
        return await self._ask(lambda data: Collection.of(parsed(data)), "collection", name)

    async def ids(self, collection: Collection, limit: int) -> Sequence[str]:
        return await self._ask(lambda data: _each(data, _text, limit), "ids", collection.name, limit)

    async def has(self, collection: Collection, id: str) -> bool:
        return await self._ask(lambda data: parsed(data) is True, "has", collection.name, id)

    async def point(self, collection: Collection, id: str) -> bytes:
        return await self._ask(bytes, "point", collection.name, id)

    async def near(self, collection: Collection, to: str | bytes, limit: int, filters: FILTERS) -> Sequence[Match]:
        make: Callable[[Any], list[Match]] = lambda data: _each(data, Match.of, limit)  # noqa: E731
        return await self._ask(make, "near", collection.name, to, limit, dict(filters))

    async def words(
        self, collection: Collection, words: Sequence[str], limit: int, filters: FILTERS
    ) -> Sequence[Match]:  # fmt: skip
        make: Callable[[Any], list[Match]] = lambda data: _each(data, Match.of, limit)  # noqa: E731
        return await self._ask(make, "words", collection.name, list(words), limit, dict(filters))


def _each(data: bytes, of: Callable[[Any], T], most: int) -> list[T]:
    value = parsed(data)
    if not isinstance(value, list) or len(value) > most:
        raise ProtocolViolation("a list that cannot be understood")
    return [of(each) for each in value]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ProtocolViolation("an id that cannot be understood")
    return value
