"""JSON Schemas of what several tools answer."""

from typing import Any

from bbfs.server.errors import CODES


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


_TEXT = {"type": "string"}
ERROR = _object(
    {
        "code": {"type": "string", "enum": list(CODES)},
        "errno": {**_TEXT, "description": "What a program on a mount gets, such as ENOENT."},
        "message": _TEXT,
    },
    "code",
    "errno",
    "message",
)
DATA_SOURCE = _object(
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
RESOURCE = _object(
    {
        "uri": {**_TEXT, "description": "For load_resources."},
        "name": _TEXT,
        "title": _TEXT,
        "description": _TEXT,
        "accessMethod": {"type": "string", "enum": ["bb", "mcp"]},
        "type": {**_TEXT, "description": "The type of the data source."},
        "contentType": {"type": "string", "enum": ["text", "binary", "unknown"]},
        "kind": {"type": "string", "enum": ["resource", "directory", "symlink"]},
        "mimeType": _TEXT,
        "uriTemplate": _TEXT,
        "variables": {"type": "object"},
        "path": {**_TEXT, "description": "Below the data source; of a directory, for load_datasource."},
        "size": {"type": "integer", "description": "Bytes."},
        "lastModified": {**_TEXT, "description": "ISO 8601, UTC."},
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
TEMPLATE = _object(
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
