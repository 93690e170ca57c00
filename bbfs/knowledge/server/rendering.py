"""The generated JSON resources. Equal data gives equal bytes, whenever they are read. Pure."""

import json
from collections.abc import Mapping, Sequence

from bbfs.knowledge.addresses import document_uri
from bbfs.knowledge.documents import Collection, Document, MimeTotals


def collections(found: Sequence[Collection]) -> str:
    """Render the list of collections."""
    return _json([_collection(collection) for collection in found])


def documents(found: Sequence[Document]) -> str:
    """Render the documents of one collection, with the URI of each."""
    return _json([document(one) for one in found])


def stats(collection: Collection, totals: Sequence[MimeTotals]) -> str:
    """Render the numbers of documents and bytes of one collection, in all and for each MIME type."""
    total = sum(one.total_bytes for one in totals)
    count = sum(one.count for one in totals)
    return _json(
        {
            "id": collection.id,
            "name": collection.name,
            "documentCount": count,
            "totalBytes": total,
            "averageBytes": round(total / count, 2) if count else 0,
            "mimeTypes": {one.mime_type: {"documentCount": one.count, "totalBytes": one.total_bytes} for one in totals},
            "createdAt": collection.created_at,
            "lastUpdated": collection.updated_at,
        }
    )


def health(problems: Mapping[str, str]) -> str:
    """Render the state of each component. problems: error messages by component."""
    components = {
        name: {"status": "error", "detail": problems[name]} if name in problems else {"status": "ok"}
        for name in ("database", "searchIndex")
    }
    status = "ok" if not problems else "error" if "database" in problems else "degraded"
    return _json({"status": status, "components": components})


def document(one: Document) -> dict[str, str | int]:
    """Return a document's metadata as JSON, here and in search results."""
    return {
        "id": one.id,
        "name": one.name,
        "size": one.size,
        "mimeType": one.mime_type,
        "createdAt": one.created_at,
        "lastUpdated": one.updated_at,
        "uri": document_uri(one.collection, one.id),
    }


def _collection(collection: Collection) -> dict[str, str | int]:
    return {
        "id": collection.id,
        "name": collection.name,
        "documentCount": collection.document_count,
        "createdAt": collection.created_at,
        "lastUpdated": collection.updated_at,
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
