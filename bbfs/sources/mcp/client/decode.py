"""From raw results of `resources/*` to values: entries of a listing, one by one, and the parts of a content.

Pure. What a server sends is checked here, field by field: an entry without a usable URI is counted as invalid, any
other field of the wrong type is left out, so that one mistake costs as little as possible.
"""

import base64
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeGuard, TypeVar

from mcp_types import SERVER_INFO_META_KEY

from bbfs.model.errors import NotSupported, ProtocolViolation
from bbfs.model.listing import Description, Rows, last_part
from bbfs.model.values import Completion, Loaded, Part, ResourceTemplate
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.mcp.transport.long_strings import LongText

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_TTL = 366 * 86400.0
"""Seconds; a server may say any number, the kernel takes no longer validity than it can count."""
_URL_SAFE = str.maketrans("-_", "+/")


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """One resource of `resources/list`. Fields as in `ResourceMetadata`, `uri` being the native one."""

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
class Entries(Generic[T]):
    """A whole listing, in the server's order. ttl: seconds, where the server gave it; problem: what is missing."""

    entries: tuple[T, ...]
    ttl: float | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a server said of itself at the start of a session; before that, nothing.

    server: its name and version, or None where it gave none. capabilities: the flags that are on, by capability.
    """

    version: str = ""
    server: str | None = None
    capabilities: Mapping[str, frozenset[str]] = field(default_factory=dict)


def initialized(result: Mapping[str, Any], known: Collection[str]) -> Greeting:
    """The answer to `initialize`, with all that is of the wrong type made good or left out. Raises ProtocolViolation.

    PHP writes `[]` for `{}`, and others leave out the version of the server. known: the protocol versions to accept.
    """
    version = result.get("protocolVersion")
    if not isinstance(version, str):
        raise ProtocolViolation("the server's answer to a greeting is invalid")
    if version not in known:
        raise ProtocolViolation(f"Unsupported protocol version from the server: {version}")
    return Greeting(version, _server_name(result.get("serverInfo")), _capabilities(result.get("capabilities")))


def discovered(result: Mapping[str, Any], wanted: str) -> Greeting:
    """The answer to `server/discover`, as `initialized`. Raises ProtocolViolation unless it offers a version."""
    versions = result.get("supportedVersions")
    if not isinstance(versions, list) or wanted not in versions:
        raise ProtocolViolation("the server's answer to a greeting is invalid")
    meta = result.get("_meta")
    info = meta.get(SERVER_INFO_META_KEY) if isinstance(meta, dict) else None
    name = None if info is None else _server_name(info)
    return Greeting(wanted, name, _capabilities(result.get("capabilities")))


def _server_name(info: Any) -> str:
    told = (info.get(key) if isinstance(info, dict) else None for key in ("name", "version"))
    return " ".join(str(value) if isinstance(value, str | int | float) else "" for value in told).strip()


def _capabilities(given: Any) -> dict[str, frozenset[str]]:
    return {
        str(name): frozenset(flag for flag, on in flags.items() if on is True)
        if isinstance(flags, dict)
        else frozenset()
        for name, flags in (given.items() if isinstance(given, dict) else ())
        if flags is not None and flags is not False
    }


def resource_entry(raw: Any) -> ResourceEntry | None:
    """A listed resource, or None when it has no usable URI."""
    uri = usable_text(raw, "uri")
    if uri is None:
        return None
    annotations = _mapping(raw.get("annotations"))
    return ResourceEntry(
        uri=uri,
        name=text_of(raw.get("name")) or uri,
        title=text_of(raw.get("title")),
        description=text_of(raw.get("description")),
        mime_type=text_of(raw.get("mimeType")),
        size=_size(raw.get("size")),
        modified_ns=_modified_ns(annotations),
        annotations=annotations,
        mcp_data=mcp_data(raw),
    )


_PLAIN = frozenset(("uri", "name", "mimeType"))


def add_resources(raw: Iterable[Any], rows: Rows) -> int:
    """Add listed resources to `rows`, as `resource_entry` reads them. Returns how many have no usable URI."""
    invalid = 0
    plain: dict[tuple[str, bool], Description] = {}
    for item in raw:
        if type(item) is dict and item.keys() <= _PLAIN:  # most are; the way below takes ten times as long
            uri, name, mime_type = item.get("uri"), item.get("name"), item.get("mimeType", "")
            # Texts all of ASCII need no look for halves of surrogate pairs.
            if (
                isinstance(uri, str)
                and isinstance(name, str)
                and isinstance(mime_type, str)
                and name
                and last_part(uri) == name
                and uri.isascii()
                and mime_type.isascii()
            ):
                key = (mime_type, "mimeType" in item)
                description = plain.get(key)
                if description is None:
                    description = plain[key] = rows.described(uri, name, mime_type if key[1] else None)
                rows.add(uri, description)
                continue
        entry = resource_entry(item)
        if entry is None:
            invalid += 1
            continue
        described = (entry.mime_type, entry.size, entry.title, entry.description, entry.modified_ns)
        rows.add(entry.uri, rows.described(entry.uri, entry.name, *described, entry.annotations, entry.mcp_data))
    return invalid


def template_entry(raw: Any) -> ResourceTemplate | None:
    """A listed template, or None when it has no usable template."""
    uri_template = usable_text(raw, "uriTemplate")
    if uri_template is None:
        return None
    return ResourceTemplate(
        uri_template=uri_template,
        name=text_of(raw.get("name")) or uri_template,
        title=text_of(raw.get("title")),
        description=text_of(raw.get("description")),
        mime_type=text_of(raw.get("mimeType")),
        annotations=_mapping(raw.get("annotations")),
        mcp_data=mcp_data(raw),
    )


def page(result: Mapping[str, Any], key: str, parse: Callable[[Any], T | None]) -> tuple[list[T], int]:
    """The entries of one page and the number of invalid ones. Raises ProtocolViolation when there is no list at all."""
    raw = raw_page(result, key)
    entries = [entry for entry in map(parse, raw) if entry is not None]
    return entries, len(raw) - len(entries)


def raw_page(result: Mapping[str, Any], key: str) -> list[Any]:
    """The entries of one page as they were sent. Raises ProtocolViolation when there is no list at all."""
    raw = result.get(key, ...)
    if raw is None:
        return []  # how some languages write a list that has nothing in it
    if not isinstance(raw, list):
        raise ProtocolViolation(f"a listing without '{key}'")
    return raw


def next_cursor(result: Mapping[str, Any]) -> Any:
    """The cursor of the next page, to be sent back as it is; an empty one means the end (None), as an absent one does.

    It is a text by the protocol, but some servers give numbers.
    """
    return result.get("nextCursor") or None


def ttl_seconds(result: Mapping[str, Any]) -> float | None:
    """`ttlMs` (protocol 2026-07-28) in seconds, or None when absent or not positive: then the client decides."""
    ttl = result.get("ttlMs")
    if isinstance(ttl, int | float) and not isinstance(ttl, bool) and ttl > 0:
        return min(ttl, _LONGEST_TTL * 1000) / 1000
    return None


def loaded(result: Mapping[str, Any], ttl: float | None) -> Loaded:
    """The content of a resource. Raises ProtocolViolation, NotSupported."""
    if result.get("resultType") == "input_required":
        raise NotSupported("the server asks for input before it answers")
    contents = result.get("contents")
    if not isinstance(contents, list) or not contents:
        raise ProtocolViolation("an answer without contents")
    return Loaded(tuple(content_part(raw) for raw in contents), ttl)


def completion(result: Mapping[str, Any]) -> Completion:
    """The values of `completion/complete` that are texts. Raises ProtocolViolation when there are none at all."""
    found = result.get("completion")
    values = found.get("values", ...) if isinstance(found, dict) else ...
    values = [] if values is None else values  # as in `page`
    if not isinstance(found, dict) or not isinstance(values, list):
        raise ProtocolViolation("a completion without values")
    texts = tuple(dict.fromkeys(value for value in values if isinstance(value, str) and value and encodable(value)))
    total = found.get("total")
    more = found.get("hasMore") is True or (_is_number(total) and total > len(values))
    return Completion(texts, more)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def loaded_size(result: Mapping[str, Any]) -> int:
    """About how many characters `loaded` has to go through."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return 0
    texts = (raw.get(key) for raw in contents if isinstance(raw, dict) for key in ("text", "blob"))
    return sum(
        len(text.data if isinstance(text, LongText) else text) for text in texts if isinstance(text, str | LongText)
    )


def encodable(text: str) -> bool:
    """Whether a text can be sent and stored: no half of a surrogate pair in it."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def content_part(raw: Any) -> Part:
    """One content of a resource. Raises ProtocolViolation."""
    if not isinstance(raw, dict):
        raise ProtocolViolation("a content that is not an object")
    uri = usable_text(raw, "uri")
    mime_type = text_of(raw.get("mimeType"))
    blob, text = raw.get("blob"), raw.get("text")
    # Where both are there, one of them is most often an empty field that the server's language cannot leave out.
    if isinstance(blob, LongText):
        return Part(uri, mime_type, _hashed(_long_blob(blob)), "binary")
    if isinstance(text, LongText):
        return Part(uri, mime_type, _hashed(text.data), "text")
    if isinstance(blob, str) and (blob or not isinstance(text, str)):
        return Part(uri, mime_type, MemoryContent(_decoded(blob)), "binary")
    if isinstance(text, str):
        return Part(uri, mime_type, MemoryContent(utf8(text)), "text")
    raise ProtocolViolation("a content with neither text nor blob")


def _hashed(data: bytes) -> MemoryContent:
    """A content whose version is known already: finding it out takes long, and this is not the event loop."""
    content = MemoryContent(data)
    assert content.version
    return content


def _long_blob(blob: LongText) -> bytes:
    try:
        return blob.base64_decoded()
    except ValueError:
        return _decoded(blob.data.decode())


def _decoded(blob: str) -> bytes:
    """Base64, also in lines, in the alphabet for URLs (older Python servers) or without its padding."""
    try:
        return base64.b64decode(blob, validate=True)
    except ValueError:
        digits = "".join(blob.split()).translate(_URL_SAFE).rstrip("=")
    try:
        return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except ValueError as exc:
        raise ProtocolViolation(f"a blob that is not base64: {exc}") from exc


def utf8(text: str) -> bytes:
    """UTF-8; halves of a surrogate pair (JSON can hold them, UTF-8 cannot) become U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def usable_text(raw: Any, key: str) -> str | None:
    """A field that identifies something: a text that is not empty and can be sent back, or None."""
    value = raw.get(key) if isinstance(raw, dict) else None
    return value if isinstance(value, str) and value and encodable(value) else None


def text_of(value: Any) -> str | None:
    """A text that can be stored, or None for anything else."""
    if not isinstance(value, str):
        return None
    return value if encodable(value) else utf8(value).decode()


def _mapping(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) and value else None


def _size(value: Any) -> int | None:
    """A declared size, or None. 0 is none: most often it is a field that the server's language cannot leave out.

    Believed, it would have `tar` archive an empty file without a word.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


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


def mcp_data(raw: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The fields of an entry that have no place elsewhere, or None."""
    return {key: raw[key] for key in ("_meta", "icons") if raw.get(key)} or None
