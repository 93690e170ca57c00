"""The resources of a knowledge base as the protocol describes them: their list, their contents, their completion.

Synchronous: the server runs these in worker threads. Sizes are exact, also those of the generated resources.
"""

import base64
import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, Literal

import mcp_types as types

from bbfs.knowledge import addresses
from bbfs.knowledge.addresses import Address
from bbfs.knowledge.database.snapshot import Snapshot
from bbfs.knowledge.database.store import Store
from bbfs.knowledge.documents import Collection, Document, NotFound
from bbfs.knowledge.server import rendering
from bbfs.server_parts.bounds import shortened
from bbfs.server_parts.skills import directory

PAGE_SIZE = 100
_LONGEST_CURSOR = 1 << 13
"""Characters: of two ids, escaped, in Base64."""
ETAG = "etag"
"""The key of `_meta` that holds the version of a document."""
_JSON = "application/json"

TEMPLATES = (
    types.ResourceTemplate(
        name="documents",
        title="Documents of a collection",
        uri_template=addresses.DOCUMENTS_TEMPLATE,
        description="The documents of one collection, with the URI of each",
        mime_type=_JSON,
    ),
    types.ResourceTemplate(
        name="stats",
        title="Statistics of a collection",
        uri_template=addresses.STATS_TEMPLATE,
        description="Numbers of documents and bytes of one collection, in all and for each MIME type",
        mime_type=_JSON,
    ),
    types.ResourceTemplate(
        name="document",
        title="A document",
        uri_template=addresses.DOCUMENT_TEMPLATE,
        description="One document, as it was put in",
    ),
)

# A position in the list of resources, which is ordered by rank, collection and document.
Rank = Literal["fixed", "collection", "document"]
Position = tuple[Rank, str, str]
_START: Position = ("fixed", "", "")


class InvalidCursor(ValueError):
    """A cursor that is not from this server."""


class Catalogue:
    """The resources of one store: list, contents, completion."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # By URI of a generated resource: the version of its data, and its size in bytes.
        self._sizes: dict[str, tuple[int, int]] = {}

    def page(self, cursor: str | None) -> tuple[list[types.Resource], str | None]:
        """Return one page of all resources and the cursor of the next one. Unchanged resources appear exactly once,
        whatever changes between two pages. Raises InvalidCursor.
        """
        position = _START if cursor is None else _position(cursor)
        found: list[types.Resource] = []
        with self._store.snapshot() as snapshot:
            for place, resources in self._from(snapshot, position):
                found += resources
                if len(found) >= PAGE_SIZE:
                    return found, _cursor(place)
        return found, None

    def directory(self, uri: str, cursor: str | None) -> tuple[list[types.Resource], str | None]:
        """Return a page of the direct children of a directory, and the cursor of the next. Raises NotFound,
        InvalidCursor.
        """
        after = None if cursor is None else _position(cursor)
        match addresses.directory(uri):
            case ():
                with self._store.snapshot() as snapshot:
                    more = snapshot.collections(after[1] if after else "", PAGE_SIZE)
                    first = [] if after else [self._collections(snapshot)]
                found = [directory(addresses.collection_uri(one.id), one.name) for one in more]
                return first + found, _cursor(("collection", more[-1].id, "")) if len(more) == PAGE_SIZE else None
            case (collection,):
                with self._store.snapshot() as snapshot:
                    one = snapshot.collection(collection)
                    documents = directory(f"{addresses.collection_uri(collection)}/document", "document")
                    return [documents, self._documents(snapshot, one), self._stats(snapshot, one)], None
            case (collection, _):
                with self._store.snapshot() as snapshot:
                    snapshot.collection(collection)
                    more = snapshot.all_documents((collection, after[2] if after else ""), PAGE_SIZE)
                here = [one for one in more if one.collection == collection]
                page = [resource(one) for one in here]
                return page, _cursor(("document", collection, here[-1].id)) if len(here) == PAGE_SIZE else None
            case None if uri == addresses.SYSTEM_URI:
                return [self._health()], None
            case _:
                raise NotFound(f"no directory {shortened(uri)}")

    def read(self, address: Address) -> types.TextResourceContents | types.BlobResourceContents:
        """Return the content of one resource. Raises NotFound."""
        uri = addresses.uri(address)
        if address.kind == "health":
            return _text(uri, rendering.health(self._problems()))
        with self._store.snapshot() as snapshot:
            match address.kind:
                case "collections":
                    return _text(uri, rendering.collections(snapshot.collections()))
                case "documents":
                    return _text(uri, _documents(snapshot, snapshot.collection(address.collection)))
                case "stats":
                    return _text(uri, _stats(snapshot, snapshot.collection(address.collection)))
                case "document":
                    document = snapshot.document(address.collection, address.document)
                    return _content(document, snapshot.content(address.collection, address.document))

    def complete(
        self, template: str, argument: str, prefix: str, collection: str | None, limit: int
    ) -> types.Completion:
        """Return the ids that complete an argument of a template, within `collection` if given.

        Raises NotFound for an unknown template or argument.
        """
        known = {
            addresses.DOCUMENTS_TEMPLATE: (addresses.COLLECTION,),
            addresses.STATS_TEMPLATE: (addresses.COLLECTION,),
            addresses.DOCUMENT_TEMPLATE: (addresses.COLLECTION, addresses.DOCUMENT),
        }
        if template not in known:
            raise NotFound(f"no template {template!r}")
        if argument not in known[template]:
            raise NotFound(f"no argument {argument!r} in the template {template!r}")
        # Ids are printable. SQLite may reject other text, such as a lone surrogate.
        if not prefix.isprintable():
            return types.Completion(values=[], total=0, has_more=False)
        with self._store.snapshot() as snapshot:
            if argument == addresses.COLLECTION:
                values, total = snapshot.collection_ids(prefix, limit)
            else:
                values, total = snapshot.document_ids(prefix, limit, collection)
        return types.Completion(values=values, total=total, has_more=total > len(values))

    def _from(self, snapshot: Snapshot, position: Position) -> Iterator[tuple[Position, list[types.Resource]]]:
        """Yield the resources behind `position` in steps of at most a page, each with the position it ends at."""
        rank, collection, document = position
        if position == _START:
            yield ("collection", "", ""), [self._collections(snapshot), self._health()]
        if rank in ("fixed", "collection"):
            for one in snapshot.collections(collection, PAGE_SIZE):
                yield ("collection", one.id, ""), [self._documents(snapshot, one), self._stats(snapshot, one)]
            collection = document = ""
        for one in snapshot.all_documents((collection, document), PAGE_SIZE):
            yield ("document", one.collection, one.id), [resource(one)]

    def _collections(self, snapshot: Snapshot) -> types.Resource:
        uri = addresses.COLLECTIONS_URI
        size = self._size(uri, snapshot.seq(), lambda: rendering.collections(snapshot.collections()))
        return _generated(uri, "Knowledge Base Collections", "All collections", size, snapshot.changed_at())

    def _health(self) -> types.Resource:
        size = len(rendering.health(self._problems()).encode())
        return _generated(addresses.HEALTH_URI, "System Health Status", "The state of each component", size, None)

    def _documents(self, snapshot: Snapshot, one: Collection) -> types.Resource:
        uri = addresses.documents_uri(one.id)
        size = self._size(uri, one.version, lambda: _documents(snapshot, one))
        name, description = f"{one.name} - All Documents", "The documents of this collection, with the URI of each"
        return _generated(uri, name, description, size, one.updated_at)

    def _stats(self, snapshot: Snapshot, one: Collection) -> types.Resource:
        uri = addresses.stats_uri(one.id)
        size = self._size(uri, one.version, lambda: _stats(snapshot, one))
        name, description = f"{one.name} - Statistics", "Numbers of documents and bytes of this collection"
        return _generated(uri, name, description, size, one.updated_at)

    def _size(self, uri: str, version: int, render: Callable[[], str]) -> int:
        known = self._sizes.get(uri)
        if known is None or known[0] != version:
            known = self._sizes[uri] = (version, len(render().encode()))
        return known[1]

    def _problems(self) -> dict[str, str]:
        try:
            with self._store.snapshot() as snapshot:
                return snapshot.problems()
        except sqlite3.Error as error:
            return {"database": str(error)}


def resource(document: Document) -> types.Resource:
    """Return a document as the list of resources shows it."""
    return types.Resource(
        uri=addresses.document_uri(document.collection, document.id),
        name=document.title,
        title=document.title,
        mime_type=document.mime_type,
        size=document.size,
        annotations=types.Annotations(last_modified=document.updated_at),
        _meta={ETAG: document.version},
    )


def _generated(uri: str, name: str, description: str, size: int, modified: str | None) -> types.Resource:
    return types.Resource(
        uri=uri,
        name=name,
        title=name,
        description=description,
        mime_type=_JSON,
        size=size,
        annotations=types.Annotations(last_modified=modified) if modified else None,
    )


def _documents(snapshot: Snapshot, collection: Collection) -> str:
    return rendering.documents(snapshot.documents(collection.id))


def _stats(snapshot: Snapshot, collection: Collection) -> str:
    return rendering.stats(collection, snapshot.mime_totals(collection.id))


def _text(uri: str, text: str) -> types.TextResourceContents:
    return types.TextResourceContents(uri=uri, mime_type=_JSON, text=text)


def _content(document: Document, content: bytes) -> types.TextResourceContents | types.BlobResourceContents:
    uri = addresses.document_uri(document.collection, document.id)
    described: dict[str, Any] = {"uri": uri, "mime_type": document.mime_type, "_meta": {ETAG: document.version}}
    if document.is_text:
        return types.TextResourceContents(**described, text=content.decode())
    return types.BlobResourceContents(**described, blob=base64.b64encode(content).decode())


def _cursor(position: Position) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def _position(cursor: str) -> Position:
    try:
        if len(cursor) > _LONGEST_CURSOR:
            raise ValueError
        match json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True)):
            case ["collection" | "document" as rank, str(collection), str(document)] if (
                collection.isprintable() and document.isprintable()
            ):
                return rank, collection, document
    except (ValueError, RecursionError):  # too long, not Base64, not UTF-8, not JSON, too deep
        pass
    raise InvalidCursor(f"not a cursor of this server: {cursor[:100]!r}")
