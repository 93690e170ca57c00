"""The tree of a source of vectors: collections, their points, the neighbours of a point, and searches by text.

Native URIs are `SCHEME://COLLECTION/…`; a search is a name that no listing has, so no program that walks runs one.
"""

import json
from collections.abc import Awaitable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import trio

from bbfs.model.errors import IsADirectory, NotADirectory, NotFound, NotSupported, Unreachable
from bbfs.model.redaction import shown
from bbfs.model.uri_paths import hide_component, show_component
from bbfs.model.values import DataSource, Hit, Listing, Loaded, Part, ResourceMetadata, SourceState
from bbfs.sources import Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.database.names import named, text_identifier, text_of
from bbfs.sources.embeddings.embedder import made
from bbfs.sources.health import Health
from bbfs.sources.options import local_path, parse_options
from bbfs.sources.vector_search.entries import (
    INFO,
    JSON,
    NEAR,
    POINTS,
    VectorEntries,
    collection_segment,
    id_of,
    point_segment,
)
from bbfs.sources.vector_search.options import VectorSearchOptions, backend, backend_of
from bbfs.sources.vector_search.queries import START, SearchQuery, parse_search, words_of
from bbfs.sources.vector_search.values import MOST_MATCHES, Collection, Match

T = TypeVar("T")
Path = tuple[str, ...]
_SNIPPET = 200
"""Characters of the text of a hit."""
_FUSED = 60
"""The constant of reciprocal rank fusion, for hits of several collections."""
_CONFIGURE = (
    'set [embeddings] to url = "http://localhost:11434/v1" and model = "…", or to folder = "…", for all sources, or'
    " embeddings in the options of the source"
)


class VectorSearchHandler:
    """The collections of one source. Raises ConfigError for options that cannot be used."""

    options = VectorSearchOptions
    offers: Mapping[str, int] = MappingProxyType({})
    loads_while_wanted = True
    """When all readers have given up, the backend ends the search."""

    def __init__(self, source: DataSource, services: Services) -> None:
        self.source = source
        self._options = options = parse_options(VectorSearchOptions, source)
        url = options.url.get_secret_value()
        scheme = backend_of(url) or ""
        self._entries = VectorEntries(source.base_prefix, source.scheme or scheme)
        self._backend = backend(source, options)
        where = f"sources[{source.id}].config.embeddings"
        self._own = None if options.embeddings is None else made(source, options.embeddings, where)
        self._embedder = self._own or services.embedder
        self._has_texts: bool | None = None
        self._health = Health(Unreachable)
        if scheme == "sqlite":
            self._health.look_for(source.id, local_path(source, url.partition("://")[2][1:]))

    @property
    def state(self) -> SourceState:
        """`down` after the backend could not be reached, `up` after anything else."""
        return self._health.state

    @property
    def notes(self) -> Sequence[str]:
        """Return how to search, and what is missing for it."""
        how = "the meaning of WORDS" if self._embedder is not None else "the words themselves"
        told = [
            "Open `COLLECTION/search?text=WORDS.json`, or with fields of the payload"
            f" `search?text=WORDS&limit=5&FIELD=VALUE.json`, to search for {how}. Without `.json` it is a directory of"
            " links in the order of their rank.",
            "`COLLECTION/near/ID/` has links to the nearest points of a point, and their scores in `results.json`. No"
            " listing has these names.",
        ]
        return told if self._embedder is not None else [*told, f"Nothing makes vectors of texts: {_CONFIGURE}."]

    async def aclose(self) -> None:
        await self._backend.aclose()
        if self._own is not None:
            await self._own.aclose()

    async def list_directory(self, path: Path) -> Listing:
        if not path:
            found = await self._collections()
            return Listing(tuple(map(self._entries.collection, found)))
        collection = await self._collection(path[0])
        segment = collection_segment(collection.name)
        match path[1:]:
            case ():
                return Listing(tuple(self._entries.of_collection(segment)), open=True)
            case ("point",):
                return await self._points(collection, segment)
            case ("near",):
                return Listing((), open=True)
            case ("near", id):
                point = text_identifier(text_of(id))
                links = self._entries.links((segment, NEAR, id), await self._near(collection, point))
                return Listing((self._entries.results(segment, point), *links))
            case (search,) if search.startswith(START):
                query = parse_search(search)
                if not query.is_file:
                    links = self._entries.links((segment, search), await self._searched(collection, query))
                    return Listing(tuple(links))
        if path[1:2] in ((INFO,), (POINTS,)):
            raise NotADirectory(f"{shown('/'.join(path))}: is no directory")
        raise NotFound(f"{shown('/'.join(path))}: no such directory")

    async def find(self, path: Path, name: str) -> ResourceMetadata:
        if len(path) == 1 and name.startswith(START):
            return await self._find_search(path[0], name)
        match path:
            case (collection, "point"):
                point = id_of(named(name))
            case (collection, "near"):
                point = text_identifier(named(name))
            case _:
                raise NotFound(f"{shown(name)}: no such file")
        there = await self._collection(collection)
        if not await self._ask(self._backend.has(there, point)):
            raise NotFound(f"{shown(point)}: no such point in {shown(there.name)}")
        make = self._entries.point if path[1] == POINTS else self._entries.neighbours
        return make(collection_segment(there.name), point)

    async def load(self, native_uri: str) -> Loaded:
        """Load a file: a point, what is near to one, or the results of a search."""
        path = self._entries.path_of(native_uri)
        return Loaded((Part(native_uri, JSON, MemoryContent(await self._load(path)), "text"),))

    @property
    def searches(self) -> bool:
        """Return whether something makes vectors of texts, or the collections have texts, as far as is known."""
        return self._embedder is not None or self._has_texts is not False

    @property
    def by_meaning(self) -> bool:
        """Return whether something makes vectors of texts; otherwise a search is for words."""
        return self._embedder is not None

    async def search(self, query: str, limit: int) -> Sequence[Hit]:
        """Return the points nearest to a text in all collections. The ranks of several collections are merged."""
        limit = min(limit, MOST_MATCHES)
        collections = await self._collections()
        wanted = SearchQuery(query, limit)
        if self._embedder is None:
            if not self._has_texts:
                raise NotSupported(f"nothing makes vectors of texts, and no collection has texts: {_CONFIGURE}")
            found = [(c, await self._words(c, wanted)) for c in collections if c.texts]
        else:
            vector = await self._vector(query) if query.strip() else None
            size = self._embedder.dimensions
            fitting = [c for c in collections if c.dimensions == size] if vector is not None else []
            if vector is not None and collections and not fitting:
                raise self._misfit(collections[0])
            found = [(c, await self._ask(self._backend.near(c, vector or b"", limit, {}))) for c in fitting]
        return _fused(self._entries, found, limit)

    # -- the parts of a request --------------------------------------------------------------------------------------

    async def _ask(self, request: Awaitable[T]) -> T:
        """Return the answer of the backend. Its health is the health of the source; the embedder has no influence."""
        with self._health:
            return await request

    async def _near(self, collection: Collection, point: str) -> Sequence[Match]:
        return await self._ask(self._backend.near(collection, point, self._options.limit, {}))

    async def _collections(self) -> list[Collection]:
        shown_ones = self._options.collections
        found = [c for c in await self._ask(self._backend.collections()) if shown_ones is None or c.name in shown_ones]
        self._has_texts = any(c.texts for c in found)
        return found

    async def _collection(self, segment: str) -> Collection:
        """Return the collection of a segment of a path. Raise NotFound."""
        name = text_identifier(text_of(segment))
        given = self._options.collections
        if given is not None and name not in given:
            raise NotFound(f"collection {shown(name)!r} is not shown; the option collections says which are")
        return await self._ask(self._backend.collection(name))

    async def _points(self, collection: Collection, segment: str) -> Listing:
        limit = self._options.listed_points
        ids = list(dict.fromkeys(await self._ask(self._backend.ids(collection, limit + 1))))
        problem = f"only the first {limit} points are listed (listed_points)" if len(ids) > limit else None
        listed = tuple(self._entries.point(segment, each) for each in ids[:limit])
        return Listing(listed, problem=problem, open=True)

    async def _find_search(self, collection: str, name: str) -> ResourceMetadata:
        search = hide_component(name)
        if show_component(search) != name:
            raise NotFound(f"{shown(name)}: no such name")
        # Only load checks the values: then the log and the file's attributes have the error.
        there = await self._collection(collection)
        costs = self._embedder is not None and self._embedder.costs
        segment, is_file = collection_segment(there.name), search.endswith(".json")
        return self._entries.search(segment, search, is_file=is_file, on_open=costs)

    async def _load(self, path: Path) -> bytes:
        collection = await self._collection(path[0])
        match path[1:]:
            case ("info.json",):
                return collection.document(None if self._embedder is None else self._embedder.name)
            case ("point", name):
                return await self._ask(self._backend.point(collection, self._id(name)))
            case ("near", id, "results.json"):
                point = text_identifier(text_of(id))
                return await _document(await self._near(collection, point))
            case (search,) if search.startswith(START) and search.endswith(".json"):
                return await _document(await self._searched(collection, parse_search(search)))
            case () | ("point",) | ("near",) | ("near", _):
                raise IsADirectory(f"{shown('/'.join(path))}: is a directory")
            case (search,) if search.startswith(START):
                raise IsADirectory(f"{shown(search)}: is a directory of links; the file ends with .json")
        raise NotFound(f"{shown('/'.join(path))}: no such file")

    @staticmethod
    def _id(segment: str) -> str:
        point = id_of(text_of(segment))
        if point_segment(point) != segment:
            raise NotFound(f"{shown(segment)}: no such point")
        return point

    async def _searched(self, collection: Collection, query: SearchQuery) -> Sequence[Match]:
        """Return the results of a search: by meaning where something makes vectors, else by words."""
        limit = query.limit or self._options.limit
        if self._embedder is None:
            if not collection.texts:
                raise NotSupported(
                    f"{shown(collection.name)}: nothing makes vectors of texts, and it has no texts: {_CONFIGURE}"
                )
            return await self._words(collection, query)
        vector = await self._vector(query.text)
        if self._embedder.dimensions != collection.dimensions:
            raise self._misfit(collection)
        return await self._ask(self._backend.near(collection, vector, limit, query.filters))

    async def _words(self, collection: Collection, query: SearchQuery) -> Sequence[Match]:
        words = words_of(query.text)
        limit = query.limit or self._options.limit
        return await self._ask(self._backend.words(collection, words, limit, query.filters)) if words else ()

    async def _vector(self, text: str) -> bytes:
        assert self._embedder is not None
        return (await self._embedder.embed([text]))[0]

    def _misfit(self, collection: Collection) -> NotSupported:
        assert self._embedder is not None
        return NotSupported(
            f"{shown(collection.name)}: its vectors have {collection.dimensions} dimensions, and the model"
            f" {self._embedder.name!r} makes {self._embedder.dimensions} (embeddings): configure the model that"
            " made them"
        )


async def _document(matches: Sequence[Match]) -> bytes:
    """Return the results as JSON. Their payloads may be large, so a thread writes them."""
    return await trio.to_thread.run_sync(_written, matches)


def _written(matches: Sequence[Match]) -> bytes:
    found = [{"id": match.id, "score": match.score, "payload": match.payload} for match in matches]
    return (json.dumps(found, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "replace")


def _fused(
    entries: VectorEntries, found: Sequence[tuple[Collection, Sequence[Match]]], limit: int
) -> Sequence[Hit]:  # fmt: skip
    """Return the hits of all collections. Scores of different collections cannot be compared, so ranks decide."""
    hits: list[tuple[float, Hit]] = []
    for collection, matches in found:
        segment = collection_segment(collection.name)
        for rank, match in enumerate(matches):
            score = match.score if len(found) == 1 else 1 / (_FUSED + rank)
            snippet = _snippet(collection, match)
            title = f"{collection.name} {match.id}"
            hit = Hit(entries.point(segment, match.id).native_uri, score, title, snippet, None)
            hits.append((-1 / (_FUSED + rank), hit))
    return [hit for _, hit in sorted(hits, key=lambda each: each[0])][:limit]


def _snippet(collection: Collection, match: Match) -> str | None:
    """Return the beginning of the longest text of a result."""
    texts = [match.payload.get(name) for name in collection.texts or match.payload]
    plain = [" ".join(text.split()) for text in texts if isinstance(text, str)]
    return max(plain, key=len)[:_SNIPPET] or None if plain else None
