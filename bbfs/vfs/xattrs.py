"""Metadata as extended attributes (S11). Secrets are in none of the values.

Between two awaits a task is alone; nothing here locks or waits.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bbfs.model.errors import NoAttribute
from bbfs.resources.catalog.record import Node, Path, Record
from bbfs.resources.contents import Contents
from bbfs.resources.documents import directory_document
from bbfs.resources.tree import Tree

PREFIX = "user.bbfs."
LIMIT = 65536
"""XATTR_SIZE_MAX of Linux, in bytes (limits.h): the kernel refuses larger values."""


_PROPERTY = re.compile(r"[a-z0-9_]{1,100}")
"""A property's name that can be that of an attribute; XATTR_NAME_MAX of Linux is 255 bytes."""


_NAMES = {
    "uri": "user.bbfs.uri",
    "originalUri": "user.xdg.origin.url",
    "name": "user.bbfs.name",
    "title": "user.bbfs.title",
    "description": "user.bbfs.description",
    "accessMethod": "user.bbfs.access_method",
    "type": "user.bbfs.type",
    "dataSourceType": "user.bbfs.data_source_type",
    "contentType": "user.bbfs.content_type",
    "mimeType": "user.mime_type",
    "uriTemplate": "user.bbfs.uri_template",
    "uriTemplates": "user.bbfs.uri_templates",
    "variables": "user.bbfs.variables",
    "size": "user.bbfs.size",
    "lastModified": "user.bbfs.last_modified",
    "annotations": "user.bbfs.annotations",
    "mcpData": "user.bbfs.mcp",
    "etag": "user.bbfs.etag",
    "fetchedAt": "user.bbfs.fetched_at",
    "cache": "user.bbfs.cache",
    "error": "user.bbfs.error",
    "id": "user.bbfs.id",
    "capabilities": "user.bbfs.capabilities",
    "state": "user.bbfs.state",
    "protocolVersion": "user.bbfs.protocol_version",
    "server": "user.bbfs.server",
    "uriPrefix": "user.bbfs.uri_prefix",
}
LISTED = (
    "user.mime_type",
    "user.xdg.origin.url",
    *(PREFIX + name for name in ("uri", "title", "description", "metadata")),
)
"""The attributes of a resource that are listed: those to keep with a copy. `cp -a` asks four times for each."""
HELD = 0.05
"""Seconds for which the attributes of an unchanged file are served again: `cp -a` asks for one after the other."""
AT_ONCE = 64
"""Files whose attributes are cached."""
_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


def attributes(document: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the extended attributes of a document: one a field, and `user.bbfs.metadata` with all of it as JSON.

    A text that the kernel would refuse is cut at a character's border; other values that are too long are left out,
    and the JSON document leaves out its longest fields.
    """
    fields = {key: _json(value) for key, value in document.items()}
    named = {name: (document[key], fields[key]) for key, name in _NAMES.items() if key in document}
    for key, said in document.get("properties", {}).items():
        if _PROPERTY.fullmatch(key):
            named.setdefault(PREFIX + key, (said, _json(said)))
    values: dict[str, bytes] = {}
    for name, (said, as_json) in named.items():
        encoded = _text(said) if isinstance(said, str) else as_json
        if len(encoded) <= LIMIT:
            values[name] = encoded
        elif isinstance(said, str):
            values[name] = encoded[:LIMIT].decode(errors="ignore").encode()
    members = {key: b'"%b": %b' % (key.encode(), encoded) for key, encoded in fields.items()}
    while sum(map(len, members.values())) + 2 * len(members) > LIMIT:
        del members[max(members, key=lambda key: len(members[key]))]
    values[PREFIX + "metadata"] = b"{" + b", ".join(members.values()) + b"}"
    return values


def _text(value: str) -> bytes:
    """Encode a text, of one that is too long the beginning."""
    return value[: LIMIT + 1].encode("utf-8", "replace")


def _json(value: Any) -> bytes:
    """Encode a value as JSON, of one that is too long only the first bytes, more than LIMIT: the rest costs time."""
    if isinstance(value, str):
        return _text(_JSON.encode(value[:LIMIT]))
    if not isinstance(value, dict | list):
        return _text(_JSON.encode(value))
    pieces: list[str] = []
    size = 0
    for piece in _JSON.iterencode(value):
        pieces.append(piece)
        size += len(piece)
        if size > LIMIT:
            break
    return _text("".join(pieces))


@dataclass(frozen=True, slots=True)
class ExtendedAttributes:
    """The extended attributes of a file. values: all that answer by name. listed: their names that are listed."""

    values: Mapping[bytes, bytes]
    listed: Sequence[bytes]

    @classmethod
    def of(cls, found: Mapping[str, bytes]) -> "ExtendedAttributes":
        """Return attributes that are all listed."""
        values = {name.encode(): value for name, value in found.items()}
        return cls(values, tuple(values))

    @classmethod
    def of_resource(cls, found: Mapping[str, bytes]) -> "ExtendedAttributes":
        """Return attributes of which those to keep with a copy are listed."""
        whole = cls.of(found)
        return cls(whole.values, tuple(name.encode() for name in LISTED if name in found))

    def value(self, name: bytes) -> bytes:
        """Return the value of an attribute. Raise NoAttribute."""
        value = self.values.get(name)
        if value is None:
            raise NoAttribute(name.decode("utf-8", "replace"))
        return value


@dataclass(frozen=True, slots=True)
class _Description:
    """The attributes of a record, the state (`_state`) they were made from, and their end (seconds since the epoch)."""

    record: Record
    state: tuple[Any, ...]
    until: float
    values: ExtendedAttributes


class XattrCache:
    """The extended attributes of inodes; those of the last files are cached."""

    def __init__(self, tree: Tree, contents: Contents, clock: Callable[[], float]) -> None:
        self._tree = tree
        self._contents = contents
        self._clock = clock
        self._kept: dict[int, _Description] = {}

    def again(self, ino: int) -> ExtendedAttributes | None:
        """Return the cached attributes of a file if they are still true, else None."""
        kept = self._kept.get(ino)
        if kept is None:
            return None
        if self._clock() < kept.until and _state(kept.record) == kept.state:
            return kept.values
        del self._kept[ino]
        return None

    def make(self, ino: int, path: Path, node: Node) -> ExtendedAttributes:
        """Return the current attributes of anything but the mount's root."""
        if len(path) == 1 and node.kind == "directory":
            source = self._tree.place(path)[0]
            count = (
                {} if source.is_passed else {"resources": source.resources}
            )  # bbfs lists no folder that it passes on
            return ExtendedAttributes.of(attributes({**source.document, **count}))
        if node.kind == "symlink":
            return ExtendedAttributes.of({})
        if node.record is None:
            source, below = self._tree.place(path)
            document = directory_document(source.catalog.templates(below))
            return ExtendedAttributes.of(attributes(document) if document else {})
        while len(self._kept) >= AT_ONCE:
            del self._kept[next(iter(self._kept))]
        values = ExtendedAttributes.of_resource(attributes(self._contents.document(path, node.record)))
        self._kept[ino] = _Description(node.record, _state(node.record), self._clock() + HELD, values)
        return values


def _state(record: Record) -> tuple[Any, ...]:
    """Return everything that the attributes depend on but time and memory."""
    owner = record.parent or record
    learnt = (record.fetched_at, record.size, record.digest, record.modified_ns, record.error, owner.error)
    return (*learnt, record.metadata, record.invalidated, record.stale)
