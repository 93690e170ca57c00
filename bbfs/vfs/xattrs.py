"""Metadata as extended attributes (S11). Secrets are in none of the values.

Between two awaits a task is alone; nothing here locks or waits.
"""

import json
import re
from collections.abc import Mapping
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


_FIELDS = (
    "uri", "name", "title", "description", "accessMethod", "type", "dataSourceType", "contentType", "uriTemplate",
    "uriTemplates", "variables", "size", "lastModified", "annotations", "etag", "fetchedAt", "cache", "error", "id",
    "capabilities", "state", "protocolVersion", "server", "uriPrefix",
)  # fmt: skip
_NAMES = {field: PREFIX + re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", field) for field in _FIELDS} | {
    "originalUri": "user.xdg.origin.url",
    "mimeType": "user.mime_type",
    "mcpData": "user.bbfs.mcp",
}
"""The attributes of the fields of documents; those of fields that other programs know have their names."""
_MEMBERS = {
    "annotations": {"audience": "user.bbfs.audience", "priority": "user.bbfs.priority"},
    "mcpData": {"icons": "user.bbfs.icons", "_meta": "user.bbfs.meta"},
}
"""Members of fields that have attributes of their own, whatever the source says there."""
KEPT = ("user.mime_type", "user.xdg.origin.url")
"""The attributes of a resource that a copy keeps: those that other programs define and read (freedesktop.org). They are
listed, and `cp -a` asks twice for each that is listed."""
COPIED = frozenset(name.encode() for name in KEPT)
"""The same, as the kernel has them."""
_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


def attributes(document: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the extended attributes of a document: one a field, and `user.bbfs.metadata` with all of it as JSON.

    A text that the kernel would refuse is cut at a character's border; other values that are too long are left out,
    and the JSON document leaves out its longest fields.
    """
    fields = {key: _json(value) for key, value in document.items()}
    named = {name: (document[key], fields[key]) for key, name in _NAMES.items() if key in document}
    for field, members in _MEMBERS.items():
        whole = document.get(field)
        found = {key: whole[key] for key in members if key in whole} if isinstance(whole, dict) else {}
        named |= {members[key]: (said, _json(said)) for key, said in found.items()}
    for key, said in document.get("properties", {}).items():
        if _PROPERTY.fullmatch(key):
            named.setdefault(PREFIX + key, (said, _json(said)))
    values: dict[str, bytes] = {}
    for name, (said, as_json) in named.items():
        if isinstance(said, str):
            values[name] = _cut(said)
        elif len(as_json) <= LIMIT:
            values[name] = as_json
    members = {key: b'"%b": %b' % (key.encode(), encoded) for key, encoded in fields.items()}
    while sum(map(len, members.values())) + 2 * len(members) > LIMIT:
        del members[max(members, key=lambda key: len(members[key]))]
    values[PREFIX + "metadata"] = b"{" + b", ".join(members.values()) + b"}"
    return values


def _cut(value: str) -> bytes:
    """Encode a text, cut at a character's border if it is too long."""
    encoded = _text(value)
    return encoded if len(encoded) <= LIMIT else encoded[:LIMIT].decode(errors="ignore").encode()


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


class ExtendedAttributes:
    """The extended attributes of what the names of a mount lead to, except its root."""

    def __init__(self, tree: Tree, contents: Contents) -> None:
        self._tree = tree
        self._contents = contents

    def listed(self, path: Path, node: Node) -> list[bytes]:
        """Return the names of the attributes that are listed: of a resource, those that a copy keeps."""
        record = _resource(path, node)
        return [name.encode() for name in self.all(path, node)] if record is None else self.listed_of(record)

    def listed_of(self, record: Record) -> list[bytes]:
        """Return the names of the attributes of a resource that are listed."""
        return [name.encode() for name in KEPT if self._text(record, name) is not None]

    def value(self, path: Path, node: Node, name: bytes) -> bytes:
        """Return the value of an attribute. Raise NoAttribute."""
        record = _resource(path, node) if name in COPIED else None
        # Programs that copy ask for these of every file, and a document takes longer than all else of the answer.
        return value_of(self.all(path, node), _name(name)) if record is None else self.copied(record, name)

    def copied(self, record: Record, name: bytes) -> bytes:
        """Return the value of an attribute of `COPIED`, as `all` has it. Raise NoAttribute."""
        text = self._text(record, _name(name))
        if text is None:
            raise NoAttribute(_name(name))
        return _cut(text)

    def _text(self, record: Record, name: str) -> str | None:
        """Return an attribute of `KEPT`."""
        return record.metadata.mime_type if name == KEPT[0] else self._contents.origin(record)

    def all(self, path: Path, node: Node) -> dict[str, bytes]:
        """Return the attributes that answer by name."""
        record = _resource(path, node)
        if record is not None:
            return attributes(self._contents.document(path, record))
        if node.kind == "symlink":
            return {}
        if len(path) == 1:
            source = self._tree.place(path)[0]
            # bbfs lists no folder that it passes on.
            return attributes(source.document | ({} if source.is_passed else {"resources": source.resources}))
        source, below = self._tree.place(path)
        document = directory_document(source.catalog.templates(below))
        return attributes(document) if document else {}


def _name(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def value_of(found: Mapping[str, bytes], name: str) -> bytes:
    """Return the value of an attribute. Raise NoAttribute."""
    value = found.get(name)
    if value is None:
        raise NoAttribute(name)
    return value


def _resource(path: Path, node: Node) -> Record | None:
    """Return the record of a resource; None for the directory of a source, other directories and links."""
    return None if node.kind == "symlink" or (len(path) == 1 and node.kind == "directory") else node.record
