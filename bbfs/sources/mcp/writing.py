"""Writing to an MCP server by its tools: the arguments of a call, and what its result says. Pure."""

import base64
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bbfs.model.errors import (
    BbfsError,
    Conflict,
    Denied,
    Exists,
    NoSpace,
    NotFound,
    NotSupported,
    Rejected,
    TooLarge,
    ToolFailed,
)
from bbfs.model.listing import last_part
from bbfs.model.uri import source_uri
from bbfs.model.uri_paths import plain_path
from bbfs.model.uri_templates.patterns import Pattern
from bbfs.model.values import DataSource, RemoveTool, ResourceMetadata, WriteTool
from bbfs.sources.mcp.arguments import properties, required, takes_text
from bbfs.sources.mcp.client.decode import resource_entry
from bbfs.sources.mcp.client.tool_entries import ToolEntry
from bbfs.sources.mcp.results import is_error, parsed_result, tool_result
from bbfs.sources.media_types import mime_type_of_name

_CODES: Mapping[type[BbfsError], Sequence[str]] = {
    Conflict: ("conflict", "version_conflict", "version_mismatch", "etag_mismatch", "precondition_failed", "stale"),
    Exists: ("exists", "already_exists"),
    NotFound: ("not_found", "no_such_resource"),
    TooLarge: ("too_large", "payload_too_large"),
    NoSpace: ("no_space", "quota_exceeded", "insufficient_storage"),
    Denied: ("denied", "forbidden", "permission_denied", "unauthorized", "read_only"),
    NotSupported: ("not_supported", "unsupported", "not_implemented"),
}
ERRORS = {code: error for error, codes in _CODES.items() for code in codes}
"""The errors by the words that tools say of them."""
_PUT = re.compile(r"(?:^|[^a-z])(?:put|write|save|update|upsert)(?:[^a-z]|$)|^(?:put|write|save|update|upsert)[A-Z]")
_REMOVE = re.compile(r"(?:^|[^a-z])(?:remove|delete)(?:[^a-z]|$)|^(?:remove|delete)[A-Z]")
_URIS = ("uri", "resource_uri", "resourceUri")
_CONTENTS = ("content", "contents", "text", "body")
_OTHERS: Mapping[str, Sequence[str]] = {
    "blob": ("blob",),
    "version": ("version", "etag", "if_match", "ifMatch"),
    "mime_type": ("mime_type", "mimeType"),
}
"""Arguments of a tool that writes, by the key of the option `write` that names them."""


def pattern(option: RemoveTool | None) -> Pattern | None:
    """Return the pattern of the URIs that a tool is for, or None if it is for all. Raise InvalidUri."""
    return None if option is None or option.template is None else Pattern(option.template)


def fits(found: Pattern | None, native_uri: str) -> bool:
    """Return whether a tool is for a URI."""
    if found is None:
        return True
    place = found.place(plain_path(native_uri).path, is_plain=True)
    return place is not None and place.match is not None


def write_call(option: WriteTool, native_uri: str, data: bytes, version: str | None) -> dict[str, Any]:
    """Return the arguments of a call that writes. version: as for `remove_call`. Raise NotSupported."""
    call = remove_call(option, native_uri, version)
    text = _text(data) if option.content else None
    if text is not None:
        call[option.content] = text
    elif option.blob is not None:
        call[option.blob] = base64.b64encode(data).decode()
    else:
        raise NotSupported(f"{native_uri}: not UTF-8 text, and the option write.blob names no argument for other bytes")
    mime_type = mime_type_of_name(plain_path(native_uri).path[-1]) if option.mime_type is not None else None
    if option.mime_type is not None and mime_type is not None:
        call[option.mime_type] = mime_type
    return call


def remove_call(option: RemoveTool, native_uri: str, version: str | None) -> dict[str, Any]:
    """Return the arguments of a call that removes.

    version: of the state that is replaced; "" if there must be none, None for any.
    """
    call = {**option.arguments, option.uri: native_uri}
    if option.version is not None and version is not None:
        call[option.version] = version
    return call


def stored(result: Mapping[str, Any], source: DataSource, native_uri: str) -> ResourceMetadata:
    """Return the metadata of a resource after a write, as far as the result has it: its link to the resource, else its
    structured content. Raise what `require_done` raises.
    """
    require_done(result)
    blocks = result.get("content")
    links = [each for each in blocks if _is_link(each)] if isinstance(blocks, list) else []
    answer = parsed_result(result) if not links else links[0]
    entry = resource_entry({"uri": native_uri, **answer}) if isinstance(answer, dict) else None
    # The server's spelling of the URI is taken, another resource's is not.
    if entry is None or plain_path(entry.uri).path != plain_path(native_uri).path:
        return ResourceMetadata(source_uri(source.base_prefix, native_uri), native_uri, last_part(native_uri))
    metadata = entry.metadata(source.base_prefix)
    return metadata if entry.name != entry.uri else replace(metadata, name=last_part(entry.uri))


def require_done(result: Mapping[str, Any]) -> None:
    """Raise the error of a result that is one: by the `code` in its structured content, else Rejected.

    Raise ProtocolViolation if the result does not say whether it is one.
    """
    if not is_error(result):
        return
    try:
        tool_result(result)
    except ToolFailed as error:
        raise ERRORS.get(_code(result), Rejected)(*error.args) from None


def proposal(tools: Iterable[ToolEntry], configured: Collection[str] = ()) -> tuple[str, ...]:
    """Return the lines of TOML that let bbfs write by tools that plainly are for that; none if no tool writes.

    configured: keys that need no line.
    """
    lines = ["", ""]
    for tool in tools:
        known = {
            name for name, schema in properties(tool.input_schema).items() if takes_text(schema, tool.input_schema)
        }
        uri, content = (next((name for name in names if name in known), None) for names in (_URIS, _CONTENTS))
        if uri is None or tool.read_only or tool.needs_task:
            continue
        given = {key: next((name for name in names if name in known), None) for key, names in _OTHERS.items()}
        needed = set(required(tool.input_schema)) - {uri}
        if content is not None and _PUT.search(tool.name) and needed <= {content}:
            lines[0] = lines[0] or _line("write", tool.name, {"uri": uri, "content": content, **given})
        elif _REMOVE.search(tool.name) and not needed:
            lines[1] = lines[1] or _line("remove", tool.name, {"uri": uri, "version": given["version"]})
    if not lines[0]:
        return ()
    granted = "" if "capabilities" in configured else 'capabilities = ["read", "list", "search", "write"]'
    return tuple(filter(None, (granted, lines[0], "" if "remove" in configured else lines[1])))


def _line(key: str, tool: str, arguments: Mapping[str, str | None]) -> str:
    usual = {"uri": "uri", "content": "content"}
    named = {name: value for name, value in arguments.items() if value is not None and usual.get(name) != value}
    items = ", ".join(f"{name} = {json.dumps(value)}" for name, value in {"tool": tool, **named}.items())
    return f"{key} = {{ {items} }}"


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _is_link(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "resource_link"


def _code(result: Mapping[str, Any]) -> str:
    answer = parsed_result(result)
    inner = answer.get("error") if isinstance(answer, dict) else None
    found = next((each["code"] for each in (answer, inner) if isinstance(each, dict) and "code" in each), None)
    return re.sub(r"[^a-z0-9]+", "_", found[:100].lower()) if isinstance(found, str) else ""
