"""From raw results of `resources/*` to values: entries of a listing, one by one, and the parts of a content.

Pure. What a server sends is checked here, field by field: an entry without a usable URI is counted as invalid, any
other field of the wrong type is left out, so that one mistake costs as little as possible.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from bbfs.cache.content import MemoryContent
from bbfs.errors import NotSupported, ProtocolViolation
from bbfs.model import Loaded, Part

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """One resource of `resources/list`. Fields as in `bbfs.model.ResourceMetadata`, `uri` being the native one."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    modified_ns: int | None = None
    annotations: Mapping[str, Any] | None = None
    mcp_data: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TemplateEntry:
    """One template of `resources/templates/list`."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Mapping[str, Any] | None = None
    mcp_data: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Entries(Generic[T]):
    """A whole listing, in the server's order. ttl: seconds, where the server gave it; problem: what is missing."""

    entries: tuple[T, ...]
    ttl: float | None = None
    problem: str | None = None


def resource_entry(raw: Any) -> ResourceEntry | None:
    """A listed resource, or None when it has no usable URI."""
    uri = _usable(raw, "uri")
    if uri is None:
        return None
    annotations = _mapping(raw.get("annotations"))
    return ResourceEntry(
        uri=uri,
        name=_text(raw.get("name")) or uri,
        title=_text(raw.get("title")),
        description=_text(raw.get("description")),
        mime_type=_text(raw.get("mimeType")),
        size=_size(raw.get("size")),
        modified_ns=_modified_ns(annotations),
        annotations=annotations,
        mcp_data=_mcp_data(raw),
    )


def template_entry(raw: Any) -> TemplateEntry | None:
    """A listed template, or None when it has no usable template."""
    uri_template = _usable(raw, "uriTemplate")
    if uri_template is None:
        return None
    return TemplateEntry(
        uri_template=uri_template,
        name=_text(raw.get("name")) or uri_template,
        title=_text(raw.get("title")),
        description=_text(raw.get("description")),
        mime_type=_text(raw.get("mimeType")),
        annotations=_mapping(raw.get("annotations")),
        mcp_data=_mcp_data(raw),
    )


def page(result: Mapping[str, Any], key: str, parse: Callable[[Any], T | None]) -> tuple[list[T], int]:
    """The entries of one page and the number of invalid ones. Raises ProtocolViolation when there is no list at all."""
    raw = result.get(key)
    if not isinstance(raw, list):
        raise ProtocolViolation(f"a listing without '{key}'")
    entries = [entry for entry in map(parse, raw) if entry is not None]
    return entries, len(raw) - len(entries)


def next_cursor(result: Mapping[str, Any]) -> str | None:
    """The cursor of the next page; an empty one means the end, as an absent one does."""
    cursor = result.get("nextCursor")
    return cursor if isinstance(cursor, str) and cursor else None


def ttl_seconds(result: Mapping[str, Any]) -> float | None:
    """`ttlMs` (protocol 2026-07-28) in seconds, or None when absent or not positive: then the client decides."""
    ttl = result.get("ttlMs")
    if isinstance(ttl, int | float) and not isinstance(ttl, bool) and ttl > 0:
        return ttl / 1000
    return None


def loaded(result: Mapping[str, Any], ttl: float | None) -> Loaded:
    """The content of a resource. Raises ProtocolViolation, NotSupported."""
    if result.get("resultType") == "input_required":
        raise NotSupported("the server asks for input before it answers")
    contents = result.get("contents")
    if not isinstance(contents, list) or not contents:
        raise ProtocolViolation("an answer without contents")
    return Loaded(tuple(_part(raw) for raw in contents), ttl)


def loaded_size(result: Mapping[str, Any]) -> int:
    """About how many characters `loaded` has to go through."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return 0
    texts = (raw.get(key) for raw in contents if isinstance(raw, dict) for key in ("text", "blob"))
    return sum(len(text) for text in texts if isinstance(text, str))


def encodable(text: str) -> bool:
    """Whether a text can be sent and stored: no half of a surrogate pair in it."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _part(raw: Any) -> Part:
    if not isinstance(raw, dict):
        raise ProtocolViolation("a content that is not an object")
    uri = _usable(raw, "uri")
    mime_type = _text(raw.get("mimeType"))
    blob, text = raw.get("blob"), raw.get("text")
    if isinstance(blob, str):
        try:
            data = base64.b64decode(blob, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise ProtocolViolation(f"a blob that is not base64: {exc}") from exc
        return Part(uri, mime_type, MemoryContent(data), "binary")
    if isinstance(text, str):
        return Part(uri, mime_type, MemoryContent(_utf8(text)), "text")
    raise ProtocolViolation("a content with neither text nor blob")


def _utf8(text: str) -> bytes:
    """UTF-8; halves of a surrogate pair (JSON can hold them, UTF-8 cannot) become U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _usable(raw: Any, key: str) -> str | None:
    value = raw.get(key) if isinstance(raw, dict) else None
    return value if isinstance(value, str) and value and encodable(value) else None


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    return value if encodable(value) else _utf8(value).decode()


def _mapping(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) and value else None


def _size(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _modified_ns(annotations: Mapping[str, Any] | None) -> int | None:
    """`lastModified` (ISO 8601, UTC where no offset is given) in nanoseconds since the epoch."""
    value = annotations.get("lastModified") if annotations else None
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def _mcp_data(raw: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return {key: raw[key] for key in ("_meta", "icons") if raw.get(key)} or None
