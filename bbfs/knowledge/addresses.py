"""The URIs of a knowledge base. Every resource has exactly one: ids are percent-encoded, only unreserved characters
stand for themselves (RFC 3986, 2.3), which is also what expanding the URI templates gives (RFC 6570, 3.2.2). Pure.
"""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote

COLLECTIONS_URI = "resource://knowledge/collections"
HEALTH_URI = "resource://system/health"
COLLECTION, DOCUMENT = "collectionId", "docId"
"""The variables of the templates."""
DOCUMENTS_TEMPLATE = "resource://knowledge/{collectionId}/documents"
STATS_TEMPLATE = "resource://knowledge/{collectionId}/stats"
DOCUMENT_TEMPLATE = "resource://knowledge/{collectionId}/document/{docId}"

_LONGEST = 2048
"""Characters: of two ids of 255 bytes, percent-encoded, and what is around them."""
_KNOWLEDGE = "resource://knowledge/"
SYSTEM_URI = "resource://system"
"""The directory of what the server says of itself."""

Kind = Literal["collections", "health", "documents", "stats", "document"]


@dataclass(frozen=True, slots=True)
class Address:
    """A resource by its kind and ids. collection and document are "" where the kind has none."""

    kind: Kind
    collection: str = ""
    document: str = ""


def collection_uri(collection: str) -> str:
    """Return the URI of the directory of a collection."""
    return f"{_KNOWLEDGE}{_encode(collection)}"


def directory(text: str) -> tuple[str, ...] | None:
    """Return the ids in the URI of a directory: none for that of all collections, that of a collection, or that and
    `document`; None for any other URI.
    """
    if text == _KNOWLEDGE.rstrip("/"):
        return ()
    rest = text.removeprefix(_KNOWLEDGE)
    whole = rest.removesuffix("/document")
    collection = unquote(whole, errors="replace")
    if len(text) > _LONGEST or not collection or rest == text or _encode(collection) != whole:
        return None
    return (collection,) if whole == rest else (collection, "document")


def documents_uri(collection: str) -> str:
    return f"{_KNOWLEDGE}{_encode(collection)}/documents"


def stats_uri(collection: str) -> str:
    return f"{_KNOWLEDGE}{_encode(collection)}/stats"


def document_uri(collection: str, document: str) -> str:
    return f"{_KNOWLEDGE}{_encode(collection)}/document/{_encode(document)}"


def uri(address: Address) -> str:
    """Return the one URI of an address."""
    match address.kind:
        case "collections":
            return COLLECTIONS_URI
        case "health":
            return HEALTH_URI
        case "documents":
            return documents_uri(address.collection)
        case "stats":
            return stats_uri(address.collection)
        case "document":
            return document_uri(address.collection, address.document)


def parse(text: str) -> Address | None:
    """Return the address of a URI, which need not exist; None for a URI that no knowledge base has.

    Another spelling of a URI (an unreserved character encoded, lower-case hex) is none: a subscriber to it would never
    be notified.
    """
    address = meant(text)
    return address if address is not None and uri(address) == text else None


def meant(text: str) -> Address | None:
    """Return the address that any spelling of a URI means, or None."""
    if len(text) > _LONGEST:
        return None
    if text == COLLECTIONS_URI:
        return Address("collections")
    if text == HEALTH_URI:
        return Address("health")
    if not text.startswith(_KNOWLEDGE):
        return None
    try:
        parts = [unquote(part, errors="strict") for part in text.removeprefix(_KNOWLEDGE).split("/")]
    except UnicodeDecodeError:
        return None
    if not all(parts):
        return None
    match parts:
        case [collection, "documents"]:
            return Address("documents", collection)
        case [collection, "stats"]:
            return Address("stats", collection)
        case [collection, "document", document]:
            return Address("document", collection, document)
    return None


def _encode(id: str) -> str:
    # A lone surrogate has no UTF-8 form; replaced, it encodes to another text, which therefore is no URI of ours.
    return quote(id, safe="", errors="replace")
