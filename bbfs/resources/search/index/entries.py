"""What is written to the local index, and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bbfs.model.values import Hit

LARGEST_TEXT = 1 << 20
"""Bytes of the largest document in the index: the work on it holds Python's global lock."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document to be indexed. source: its fingerprint. stamp: `stamp_of` its description, or None.

    modified_ns: when its source says that it changed (ns since the epoch), or None.
    """

    source: str
    uri: str
    version: str
    stamp: str | None
    title: str
    name: str
    text: str
    modified_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Stale:
    """A document that has changed at its source: it is out of all results until it is indexed again."""

    source: str
    uri: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A version or stamp that a source states of a document, or None. The document is stale if it is another one."""

    source: str
    uri: str
    version: str | None
    stamp: str | None


@dataclass(frozen=True, slots=True)
class Remove:
    """The end of a document."""

    source: str
    uri: str


@dataclass(frozen=True, slots=True)
class Unfit:
    """A resource that was read and has no text to index. stamp: `stamp_of` its description, or None."""

    source: str
    uri: str
    stamp: str | None


Entry = Document | Stale | Seen | Remove | Unfit


@dataclass(frozen=True, slots=True)
class Indexed:
    """The entry of one document in the index. at: when it was indexed or confirmed (seconds since the epoch)."""

    version: str
    stamp: str | None
    at: float
    stale: bool


@dataclass(frozen=True, slots=True)
class Known:
    """The entries of one source in the index.

    documents: by URI; None if there are more than were asked for. unfit: the stamps of resources that have no text to
    index, by URI. walking: when a walk began that has not ended (seconds since the epoch), or None. walked: when the
    last walk began that has ended, or None.
    """

    documents: Mapping[str, Indexed] | None = field(default_factory=dict)
    unfit: Mapping[str, str | None] = field(default_factory=dict)
    walking: float | None = None
    walked: float | None = None


@dataclass(frozen=True, slots=True)
class IndexUsage:
    """The documents of one source. source: its fingerprint. bytes: of their texts. stale: documents that have changed.

    walking: when a walk began that has not ended (seconds since the epoch), or None.
    """

    source: str
    documents: int
    bytes: int
    stale: int
    walking: float | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The hits of a search, the best first, each with the fingerprint or the id of its source.

    said: sentences about them.
    """

    hits: Sequence[tuple[str, Hit]]
    said: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Candidates:
    """The documents of a source that may match a pattern, by URI; None if every text may.

    state: of the index. While it stays the same, the index does. versions: of all documents of the source that have not
    changed, by URI; None if they were not asked for.
    """

    state: tuple[int, int]
    uris: set[str] | None
    versions: Mapping[str, str] | None = None


def decoded(data: bytes) -> str | None:
    """Return the text of a document, or None for one that is not text in UTF-8."""
    if len(data) > LARGEST_TEXT or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
