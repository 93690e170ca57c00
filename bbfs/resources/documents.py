"""Resources and sources as JSON documents. Pure."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from bbfs.model.quantities import timestamp
from bbfs.model.source_types import resource_type
from bbfs.model.uri_templates.expand import template_variables
from bbfs.model.values import DataSource, ResourceMetadata, ResourceTemplate, SourceState

TEXT = ".text"
"""The id of the source of the texts of documents."""
_LONGEST = 1000
"""Characters of a text of a template where all templates of a directory are described together."""
_MOST = 1 << 16
"""Values of one field. As JSON, more fit into no attribute, and a walk through a million holds the loop for 0.3 s."""


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
        "properties": _properties(metadata.properties),
        "etag": metadata.etag,
        "fetchedAt": None if fetched_at is None else timestamp(int(fetched_at * 1e9)),
        "cache": cache,
        "error": error,
    }
    return {key: value for key, value in document.items() if value is not None}


def _properties(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return properties as a JSON object, without those for which it has no room in `_MOST` values."""
    if not given or len(given) > _MOST:
        return None
    left = [_MOST - len(given)]
    found: dict[str, Any] = {}
    for key, said in given.items():
        with suppress(OverflowError):
            found[str(key)] = _plain(said, left)
    return found


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
    """Return `value` with its mappings and sequences as dicts and lists, or None if it has more than `_MOST` values."""
    try:
        return _plain(value, [_MOST])
    except OverflowError:
        return None


def _plain(value: Any, left: list[int]) -> Any:
    """Return a value as `plain` does. left: the values that may still come. Raise OverflowError beyond them."""
    if not isinstance(value, Mapping | list | tuple):
        return value
    if len(value) > left[0]:
        raise OverflowError
    left[0] -= len(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v, left) for k, v in value.items()}
    return [_plain(v, left) for v in value]
