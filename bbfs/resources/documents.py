"""Resources and sources as JSON documents. Pure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bbfs.model.source_types import resource_type
from bbfs.model.uri_templates.expand import template_variables
from bbfs.model.values import DataSource, ResourceMetadata, ResourceTemplate, SourceState

ABOUT = ".about.md"
"""The name of the file that describes a source, and of the one at the root that describes all."""
_LONGEST = 1000
"""Characters of a text of a template where all templates of a directory are described together."""


def timestamp(ns: int) -> str:
    """Return nanoseconds since the epoch as ISO 8601 in UTC, or as `@SECONDS` outside the years 1 to 9999 (date(1))."""
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
    """Return the metadata of a resource under the names of the data model, without the fields that are None."""
    document = {
        "uri": metadata.uri,
        "originalUri": metadata.native_uri,
        "name": metadata.name,
        "title": metadata.title,
        "description": metadata.description,
        "accessMethod": source.access_method,
        "type": resource_type(source),
        "dataSourceType": source.type,
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
    """Return the templates that make names in a directory; an empty document if there are none."""
    described = [
        {
            "uriTemplate": template.uri_template,
            "name": template.name[:_LONGEST],
            "title": template.title and template.title[:_LONGEST],
            "description": template.description and template.description[:_LONGEST],
            "mimeType": template.mime_type,
            "variables": list(template_variables(template.uri_template)),
        }
        for template in templates
    ]
    found = [{key: value for key, value in each.items() if value is not None} for each in described]
    return {"uriTemplates": found} if found else {}


def source_document(
    source: DataSource, state: SourceState, problem: str | None, abilities: list[str], offers: Mapping[str, int]
) -> dict[str, Any]:
    """Return the description and the state of a data source. offers: the numbers of its templates, tools, …"""
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
        **{name: count for name, count in offers.items() if count and name != "descriptions"},
    }
    return {key: value for key, value in document.items() if value is not None}


def plain(value: Any) -> Any:
    """Return `value` with its mappings and sequences as dicts and lists."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value
