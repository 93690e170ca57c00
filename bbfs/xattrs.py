"""Metadata as extended attributes (S11). Pure: values in, names and bytes out. Secrets are in none of the values."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bbfs.model import DataSource, ResourceMetadata, ResourceTemplate, SourceState
from bbfs.templates import template_variables

PREFIX = "user.bbfs."
LIMIT = 65536
"""XATTR_SIZE_MAX of Linux, in bytes (limits.h): the kernel refuses larger values."""


_PROPERTY = re.compile(r"[a-z0-9_]{1,100}")
"""A property's name that can be that of an attribute; XATTR_NAME_MAX of Linux is 255 bytes."""


def timestamp(ns: int) -> str:
    """Nanoseconds since the epoch as ISO 8601 in UTC; outside the years 1 to 9999 as `@` and seconds, as in date(1)."""
    try:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=ns // 1_000_000_000)
    except OverflowError:
        return f"@{ns // 1_000_000_000}"
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def resource_document(
    metadata: ResourceMetadata,
    source: DataSource,
    *,
    path: str,
    size: int | None,
    modified_ns: int,
    fetched_at: float | None,
    cache: str,
    error: str | None,
) -> dict[str, Any]:
    """All that is known of a resource, under the names of the data model; what is not known is left out."""
    document = {
        "uri": metadata.uri,
        "originalUri": metadata.native_uri,
        "name": metadata.name,
        "title": metadata.title,
        "description": metadata.description,
        "accessMethod": source.access_method,
        "type": source.type,
        "contentType": metadata.content_type,
        "mimeType": metadata.mime_type,
        "uriTemplate": metadata.uri_template,
        "variables": plain(metadata.variables),
        "path": path,
        "size": size,
        "lastModified": timestamp(modified_ns),
        "annotations": plain(metadata.annotations),
        "mcpData": plain(metadata.mcp_data),
        "properties": plain(metadata.properties),
        "etag": metadata.etag,
        "fetchedAt": None if fetched_at is None else timestamp(int(fetched_at * 1e9)),
        "cache": cache,
        "error": error,
    }
    return {key: value for key, value in document.items() if value is not None}


def directory_document(templates: Sequence[ResourceTemplate]) -> dict[str, Any]:
    """The templates that make names in a directory; empty where none does."""
    described = [
        {
            "uriTemplate": template.uri_template,
            "name": template.name,
            "title": template.title,
            "description": template.description,
            "mimeType": template.mime_type,
            "variables": list(template_variables(template.uri_template)),
        }
        for template in templates
    ]
    found = [{key: value for key, value in each.items() if value is not None} for each in described]
    return {"uriTemplates": found} if found else {}


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


def source_document(
    source: DataSource, state: SourceState, problem: str | None, abilities: list[str]
) -> dict[str, Any]:
    """What is known of a data source and how it fares."""
    document = {
        "id": source.id,
        "name": source.name,
        "title": source.title,
        "type": source.type,
        "accessMethod": source.access_method,
        "uriPrefix": source.uri_prefix,
        "capabilities": abilities,
        "state": state.state,
        "protocolVersion": state.protocol_version,
        "server": state.server,
        "error": problem,
    }
    return {key: value for key, value in document.items() if value is not None}


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


def plain(value: Any) -> Any:
    """`value` with mappings and sequences as JSON knows them."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def _bytes(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace")
