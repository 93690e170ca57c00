"""The values of a knowledge base, and the rules for ids, names and MIME types. Pure: no I/O, no clock.

Times are ISO 8601 in UTC with microseconds (`2026-11-21T09:00:00.000000Z`), so that they sort as text; sizes are bytes.
"""

import mimetypes
import re
import unicodedata
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Literal

MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
MAX_ID_BYTES = 255
_MAX_SLUG_CHARACTERS = 60

# An own instance ignores the system's mime.types, so that a file gets the same type on every machine.
_MIME_TYPES = mimetypes.MimeTypes()
for _extension, _type in {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".rst": "text/x-rst",
    ".toml": "application/toml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}.items():
    _MIME_TYPES.add_type(_type, _extension)
_COMPRESSED = {
    "gzip": "application/gzip",
    "bzip2": "application/x-bzip2",
    "xz": "application/x-xz",
    "compress": "application/x-compress",
}
_TEXTUAL = re.compile(
    r"text/.*|.*\+(json|xml|yaml)|application/(json|xml|yaml|toml|javascript|x-javascript|sql|x-sh|x-tex|x-latex)"
)
_HEADING = re.compile(r"\ufeff?\s*#[ \t]+([^\r\n]*?)[ \t]*#*[ \t]*(?:\r|\n|\Z)")
BEGINNING = 500
"""Bytes of a content in which its title is looked for."""
DOCUMENT = f"""d.collection, d.id, d.name, d.mime_type, d.is_text, d.size, d.created_at, d.updated_at,
       substr(d.content, 1, {BEGINNING}),
       (SELECT c.seq FROM change AS c WHERE c.collection = d.collection AND c.document = d.id)"""
"""The columns of a document, for a query whose `document AS d` it is."""
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)
_EXTENSION = re.compile(r"(?<=[^/])\.[A-Za-z0-9]{1,8}$")


class KnowledgeError(Exception):
    """An error of the user's or the file's. The message is a sentence for the user."""


class NotFound(KnowledgeError):
    """There is no such collection or document."""


class InvalidName(KnowledgeError, ValueError):
    """An id that a collection or document cannot have."""


class Conflict(KnowledgeError):
    """Another version is there than the one to replace. version: of the document that is there; None if none is."""

    def __init__(self, text: str, version: str | None) -> None:
        super().__init__(text)
        self.version = version


class TooLarge(KnowledgeError):
    """A document over `MAX_DOCUMENT_BYTES`."""


class StoreError(KnowledgeError):
    """The database file cannot be used."""


Outcome = Literal["added", "updated", "unchanged"]


@dataclass(frozen=True, slots=True)
class Collection:
    """A named set of documents. version: changes whenever the collection or a document of it does."""

    id: str
    name: str
    document_count: int
    created_at: str
    updated_at: str
    version: int


@dataclass(frozen=True, slots=True)
class Document:
    """The metadata of a document.

    title: the heading that a Markdown text begins with, else the name.
    is_text: the bytes are UTF-8 and the MIME type is a text's.
    version: changes whenever the document does, and never comes back.
    """

    collection: str
    id: str
    name: str
    title: str
    mime_type: str
    is_text: bool
    size: int
    created_at: str
    updated_at: str
    version: str


def document_of(row: tuple[str, str, str, str, int, int, str, str, bytes | None, int]) -> Document:
    """Make a document from the columns `DOCUMENT`."""
    collection, id_, name, mime_type, is_text, size, created_at, updated_at, beginning, seq = row
    title = (_heading(beginning) if is_text and mime_type == "text/markdown" else None) or name
    # The time too: a database that is restored from a copy counts again from there.
    version = blake2b(f"{seq} {updated_at}".encode(), digest_size=8).hexdigest()
    return Document(collection, id_, name, title, mime_type, bool(is_text), size, created_at, updated_at, version)


def _heading(beginning: bytes | None) -> str | None:
    """Return the first-level Markdown heading (CommonMark, section 4.2) that a text begins with, if any."""
    found = _HEADING.match((beginning or b"").decode(errors="ignore"))  # of an empty content SQLite's substr is NULL
    text = "".join(c for c in found[1] if c.isprintable()).strip() if found is not None else ""
    return text or None


@dataclass(frozen=True, slots=True)
class MimeTotals:
    """The number of documents of one MIME type in a collection, and their bytes together."""

    mime_type: str
    count: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that a search found. score: larger is better; snippet: the passage that matched, or None."""

    document: Document
    score: float
    snippet: str | None


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """A set of changes: ids as (collection, document), where a document of "" is the collection itself.

    listed: collections or documents were added or removed, so the list of resources is another.
    """

    changed: frozenset[tuple[str, str]]
    listed: bool


def check_id(id: str, kind: str) -> str:
    """Return an id in its normal form (NFC). Raises InvalidName.

    Any printable text of at most `MAX_ID_BYTES` bytes will do, but for `.` and `..`, which mean something in a URI.
    """
    normal = unicodedata.normalize("NFC", id)
    if not normal or normal in {".", ".."}:
        raise InvalidName(f"{normal!r} cannot be the id of a {kind}")
    if not normal.isprintable():
        raise InvalidName(f"the id of a {kind} must be printable text, not {normal!a}")
    if len(normal.encode()) > MAX_ID_BYTES:
        raise InvalidName(f"the id of a {kind} has at most {MAX_ID_BYTES} bytes")
    return normal


def slug(path: str) -> str:
    """Return the id for an imported file: its path without the extension, in lower case, words joined by `-`."""
    folded = unicodedata.normalize("NFKC", _EXTENSION.sub("", path)).lower()
    words = "".join(c if c.isalnum() else " " for c in folded).split()
    return unicodedata.normalize("NFC", "-".join(words)[:_MAX_SLUG_CHARACTERS].strip("-")) or "document"


def mime_type(name: str, content: bytes) -> str:
    """Return the MIME type of a file by its name, or else by its first bytes."""
    suffixes = "".join(PurePosixPath(name).suffixes[-2:])
    guessed, encoding = _MIME_TYPES.guess_type(f"file{suffixes}")
    if encoding is not None:
        return _COMPRESSED.get(encoding, "application/octet-stream")
    if guessed is not None:
        return guessed
    for signature, type_ in _SIGNATURES:
        if content.startswith(signature):
            return type_
    return "text/plain" if is_utf8(content) and b"\0" not in content else "application/octet-stream"


def is_text(mime_type: str, content: bytes) -> bool:
    """Return whether a content is served as text, that is, whether decoding and encoding keep its bytes."""
    return _TEXTUAL.fullmatch(mime_type.partition(";")[0].strip().lower()) is not None and is_utf8(content)


def is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
