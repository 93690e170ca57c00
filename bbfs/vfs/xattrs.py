"""Metadata as extended attributes (S11). Pure: values in, names and bytes out. Secrets are in none of the values."""

import json
import re
from collections.abc import Mapping
from typing import Any

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


def attributes(document: Mapping[str, Any]) -> dict[str, bytes]:
    """The extended attributes of a document: one a field, and `user.bbfs.metadata` with all of it as JSON.

    A text that the kernel would refuse is cut at a character's border; other values that are too long are left out,
    and the JSON document leaves out its longest fields.
    """
    named = {name: document[key] for key, name in _NAMES.items() if key in document}
    for key, said in document.get("properties", {}).items():
        if _PROPERTY.fullmatch(key):
            named.setdefault(PREFIX + key, said)
    values: dict[str, bytes] = {}
    for name, said in named.items():
        encoded = _bytes(said)
        if len(encoded) > LIMIT:
            if not isinstance(said, str):
                continue
            encoded = encoded[:LIMIT].decode(errors="ignore").encode()
        values[name] = encoded
    whole = dict(document)
    while len(encoded := _bytes(whole)) > LIMIT:
        del whole[max(whole, key=lambda key: len(_bytes(whole[key])))]
    values[PREFIX + "metadata"] = encoded
    return values


def _bytes(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace")
