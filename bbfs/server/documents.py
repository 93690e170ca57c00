"""Resources and sources as JSON for the tools, and their JSON Schemas. No source is asked."""

from typing import Any

from bbfs.model.source_types import resource_type
from bbfs.model.uri import source_uri
from bbfs.model.uri_paths import native_of, plain_path
from bbfs.resources.catalog import DirectoryCatalog, FlatCatalog
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.contents import Contents
from bbfs.resources.source import Source
from bbfs.server.errors import CODES
from bbfs.sources.media_types import content_type_of

_LEFT_OUT = frozenset(("originalUri", "fetchedAt", "cache", "etag", "path"))


def given_path(source: Source, path: str) -> Path:
    """Return the path in the catalog for a path that `shown_path` made, with or without a slash in front."""
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    scheme = source.data.scheme
    return (scheme, *names) if scheme is not None and isinstance(source.catalog, FlatCatalog) else names


def shown_path(source: Source, path: Path) -> str:
    """Return a path of the catalog as `load_datasource` takes it: without the directory of the scheme."""
    if isinstance(source.catalog, FlatCatalog) and source.data.scheme is not None:
        path = path[1:]
    return "/".join(path)


def resource(contents: Contents, source: Source, record: Record, path: Path) -> dict[str, Any]:
    """Describe a resource, a directory of a hierarchical source or a symbolic link. path: () if it is not listed."""
    document = contents.document(path, record)
    known = {key: value for key, value in document.items() if key not in _LEFT_OUT and value != {}}
    if record.metadata.modified_ns is None:
        known.pop("lastModified", None)  # else the time at which bbfs first saw it or its change
    if known["contentType"] == "unknown":
        known["contentType"] = content_type_of(known.get("mimeType"))
    if not path and isinstance(source.catalog, DirectoryCatalog):
        path = plain_path(record.metadata.native_uri, source.data.scheme).path
    if path:
        known["path"] = shown_path(source, path)
    if source.writes is not None and (version := contents.described(record).etag) is not None:
        known["version"] = version
    return {**known, "kind": record.metadata.kind}


def directory(source: Source, path: Path) -> dict[str, Any]:
    """Describe a directory of a flat source. Its URI is the common beginning of the URIs below it."""
    data = source.data
    scheme, *names = path
    native = native_of(path) if names else f"{scheme}:"
    return {
        "uri": source_uri(data.base_prefix, native),
        "name": names[-1] if names else scheme,
        "accessMethod": data.access_method,
        "type": resource_type(data),
        "dataSourceType": data.type,
        "contentType": "unknown",
        "kind": "directory",
        "path": shown_path(source, path),
    }


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


_TEXT = {"type": "string"}
ERROR_SCHEMA = _object(
    {
        "code": {"type": "string", "enum": list(CODES)},
        "errno": {**_TEXT, "description": "What a program on a mount gets, such as ENOENT."},
        "message": _TEXT,
    },
    "code",
    "errno",
    "message",
)
SOURCE_SCHEMA = _object(
    {
        "id": _TEXT,
        "name": _TEXT,
        "title": _TEXT,
        "type": _TEXT,
        "accessMethod": {"type": "string", "enum": ["bb", "mcp"]},
        "uriPrefix": {**_TEXT, "description": "What all URIs of the source begin with."},
        "capabilities": {"type": "array", "items": _TEXT},
        "state": {"type": "string", "enum": ["idle", "connecting", "up", "down"]},
        "protocolVersion": _TEXT,
        "server": _TEXT,
        **{name: {"type": "integer"} for name in ("templates", "tools", "prompts")},
        "error": {**_TEXT, "description": "What went wrong last and has not gone right since."},
    },
    "id",
    "name",
    "type",
    "accessMethod",
    "uriPrefix",
    "capabilities",
    "state",
)
RESOURCE_SCHEMA = _object(
    {
        "uri": {**_TEXT, "description": "For load_resources."},
        "name": _TEXT,
        "title": _TEXT,
        "description": _TEXT,
        "accessMethod": {"type": "string", "enum": ["bb", "mcp"]},
        "type": {**_TEXT, "description": "The type of the resource: file, mcp, url, database, api, …"},
        "dataSourceType": {**_TEXT, "description": "The type of the data source, as configured."},
        "contentType": {"type": "string", "enum": ["text", "binary", "unknown"]},
        "kind": {"type": "string", "enum": ["resource", "directory", "symlink"]},
        "mimeType": _TEXT,
        "uriTemplate": _TEXT,
        "variables": {"type": "object"},
        "path": {**_TEXT, "description": "Below the data source; of a directory, for load_datasource."},
        "size": {"type": "integer", "description": "Bytes."},
        "lastModified": {**_TEXT, "description": "ISO 8601, UTC."},
        "version": {**_TEXT, "description": "For ifMatch of write_resource and remove_resource."},
        "annotations": {"type": "object"},
        "mcpData": {"type": "object"},
        "properties": {"type": "object", "description": "What only this type of source tells."},
        "error": {**_TEXT, "description": "What went wrong when it was last loaded."},
    },
    "uri",
    "name",
    "accessMethod",
    "type",
    "contentType",
    "kind",
)
TEMPLATE_SCHEMA = _object(
    {
        "uriTemplate": {**_TEXT, "description": "RFC 6570; for load_resources with mode 'template'."},
        "name": _TEXT,
        "title": _TEXT,
        "description": _TEXT,
        "mimeType": _TEXT,
        "variables": {"type": "array", "items": _TEXT},
    },
    "uriTemplate",
    "name",
    "variables",
)
