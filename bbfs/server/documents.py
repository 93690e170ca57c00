"""Resources and directories as JSON for the tools. No source is asked."""

from typing import Any

from bbfs.model.source_types import resource_type
from bbfs.model.uri import source_uri
from bbfs.model.uri_paths import native_of
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.contents import Contents
from bbfs.resources.source import Source
from bbfs.sources.media_types import content_type_of

_LEFT_OUT = frozenset(("originalUri", "fetchedAt", "cache", "etag", "path"))


def given_path(source: Source, path: str) -> Path:
    """Return the path in the catalog for a path that `shown_path` made, with or without a slash in front."""
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    scheme = source.data.scheme
    return (scheme, *names) if scheme is not None and source.is_split_by_scheme else names


def shown_path(source: Source, path: Path) -> str:
    """Return a path of the catalog as `load_datasource` takes it: without the directory of the scheme."""
    if source.is_split_by_scheme:
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
    if not path and not source.catalog.lists_all:
        path = source.catalog.plain_path(record.metadata.native_uri)
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
