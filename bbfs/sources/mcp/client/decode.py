"""Decoding of raw results: the greeting, entries of a listing, the parts of a content. Pure.

Each field is checked: an entry without a usable URI counts as invalid, any other field of the wrong type is left out,
so that one mistake costs as little as possible.
"""

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf, isfinite, nan
from typing import Any, Generic, TypeGuard, TypeVar

from mcp_types import SERVER_INFO_META_KEY

from bbfs.model.calls import Progress
from bbfs.model.errors import NotSupported, ProtocolViolation, TooLarge
from bbfs.model.listing import Description, Rows, last_part
from bbfs.model.redaction import Cut, plain_cut, printable, shown
from bbfs.model.uri import encodable, source_uri
from bbfs.model.values import Completion, Content, Loaded, Part, ResourceMetadata, ResourceTemplate
from bbfs.server_parts.skills import SKILLS
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.mcp.client.paging import Taken
from bbfs.sources.mcp.transport.long_texts import LongText

T = TypeVar("T")
MAX_URI = 1 << 16
"""Characters of what identifies something: a URI, a template, a name. A longer one is not usable."""
MAX_TEMPLATE, MAX_EXPRESSIONS = 1024, 16
"""Characters of a URI template, and expressions in it: each costs time when its pattern is compiled."""
MAX_PARTS = 10_000
"""Parts of one content."""
_MAX_ODD_BLOB = 32 << 20
"""Characters of a blob in lines or in another alphabet."""
_MAX_COMPLETIONS = 10_000
"""Values of one completion; the protocol allows 100."""
_LONGEST_VALUE = 1024
"""Characters of a completed value: a name has 255 bytes, and each costs time when it becomes one."""
_LONGEST_PROGRESS = 500
"""Characters of the text of a progress."""
_LONGEST_TYPE = 255
"""Characters of a media type (RFC 6838, section 4.2, has 127 for each half)."""
_CAPABILITIES = ("resources", "tools", "prompts", "completions", "logging")
_FLAGS = ("listChanged", "subscribe", "directoryRead")
_INSTRUCTIONS = 64 << 10
_LARGEST_DATA = 1 << 20
"""Limit on the weight of `annotations`, `_meta` and `icons`, each. As JSON, such a value fits into no attribute."""
_OF_EVERY_LISTING = frozenset(("_meta", "resultType", "ttlMs", "cacheScope", "nextCursor"))
"""Members of a listing beside its list."""
_EPOCH, _SANE_FROM = datetime(1970, 1, 1, tzinfo=UTC), datetime(1971, 1, 1, tzinfo=UTC)
_LONGEST_TTL = 366 * 86400.0
"""Seconds; a server may send any number, but the kernel's entry timeout has a limit."""
_URL_SAFE = str.maketrans("-_", "+/")


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """One resource of `resources/list`. Fields as in `ResourceMetadata`, but `uri` is the native one."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    modified_ns: int | None = None
    annotations: Mapping[str, Any] | None = None
    mcp_data: Mapping[str, Any] | None = None

    def metadata(self, base_prefix: str) -> ResourceMetadata:
        """Return the resource of the source with this prefix."""
        return ResourceMetadata(
            source_uri(base_prefix, self.uri), self.uri, self.name, self.title, self.description, self.mime_type,
            size=self.size, modified_ns=self.modified_ns, annotations=self.annotations, mcp_data=self.mcp_data,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entries(Generic[T]):
    """A whole listing, in the server's order. ttl: seconds, if the server gave it. problem: what is missing."""

    entries: tuple[T, ...]
    ttl: float | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Greeting:
    """The version, name and capabilities that a server states at the start of a session; empty before.

    server: its name and version, or None if it gave no name. capabilities: by name, the flags that are on.
    instructions: the server's advice to its users, cut at about `_INSTRUCTIONS` characters. Texts are without secrets.
    """

    version: str = ""
    server: str | None = None
    capabilities: Mapping[str, frozenset[str]] = field(default_factory=dict)
    instructions: str | None = None


def initialized(result: Mapping[str, Any], known: Collection[str], cut: Cut = plain_cut) -> Greeting:
    """Decode the answer to `initialize`; fields of the wrong type are left out. Raises ProtocolViolation.

    PHP writes `[]` for `{}`, and others leave out the version of the server. known: the protocol versions to accept.
    cut: shortens texts of the server (`Redactor.cut`).
    """
    version = result.get("protocolVersion")
    if not isinstance(version, str):
        raise ProtocolViolation("the server's answer to a greeting is invalid")
    if version not in known:
        raise ProtocolViolation(f"Unsupported protocol version from the server: {shown(cut(version, 40), 40)}")
    name, capabilities = _server_name(result.get("serverInfo"), cut), _capabilities(result.get("capabilities"))
    return Greeting(version, name, capabilities, _instructions(result, cut))


def discovered(result: Mapping[str, Any], wanted: str, cut: Cut = plain_cut) -> Greeting:
    """Decode the answer to `server/discover` like `initialized`. Raises ProtocolViolation unless it offers `wanted`."""
    versions = result.get("supportedVersions")
    if not isinstance(versions, list) or wanted not in versions:
        raise ProtocolViolation("the server's answer to a greeting is invalid")
    meta = result.get("_meta")
    info = meta.get(SERVER_INFO_META_KEY) if isinstance(meta, dict) else None
    name = None if info is None else _server_name(info, cut)
    return Greeting(wanted, name, _capabilities(result.get("capabilities")), _instructions(result, cut))


def _instructions(result: Mapping[str, Any], cut: Cut) -> str | None:
    text = result.get("instructions")
    return cut(text, _INSTRUCTIONS) if isinstance(text, str) and text.strip() else None


def _server_name(info: Any, cut: Cut) -> str:
    told = (info.get(key) if isinstance(info, dict) else None for key in ("name", "version"))
    texts = (cut(str(value), 200) if isinstance(value, str | float) or type(value) is int else "" for value in told)
    return printable(" ".join(texts)).strip()


def _capabilities(given: Any) -> dict[str, frozenset[str]]:
    """Return the capabilities that bbfs uses."""
    stated = {name: given.get(name) for name in _CAPABILITIES} if isinstance(given, dict) else {}
    of_calls = given.get("tasks") if isinstance(given, dict) else None
    for key in ("requests", "tools", "call"):
        of_calls = of_calls.get(key) if isinstance(of_calls, dict) else None
    stated["tasks"] = of_calls
    extensions = given.get("extensions") if isinstance(given, dict) else None
    if isinstance(extensions, dict) and isinstance(extensions.get(SKILLS), dict):
        stated[SKILLS] = extensions[SKILLS]
    return {
        name: frozenset(flag for flag in _FLAGS if isinstance(flags, dict) and flags.get(flag) is True)
        for name, flags in stated.items()
        if flags is not None and flags is not False
    }


def resource_entry(raw: Any) -> ResourceEntry | None:
    """Decode a listed resource; None if it has no usable URI."""
    uri = usable_text(raw, "uri")
    if uri is None:
        return None
    annotations = _mapping(raw.get("annotations"))
    return ResourceEntry(
        uri=uri,
        name=text_of(raw.get("name")) or uri,
        title=text_of(raw.get("title")),
        description=text_of(raw.get("description")),
        mime_type=_mime_type(raw),
        size=_size(raw.get("size")),
        modified_ns=_modified_ns(annotations),
        annotations=annotations,
        mcp_data=mcp_data(raw),
    )


_PLAIN = frozenset(("uri", "name", "mimeType"))


def add_resources(raw: Sequence[Any], rows: Rows) -> Taken:
    """Add listed resources to `rows`, decoded like `resource_entry`. Those without a usable URI are invalid."""
    before, invalid, size = len(rows), 0, 0
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
                and len(uri) <= MAX_URI
                and len(mime_type) <= _LONGEST_TYPE
                and last_part(uri) == name
                and uri.isascii()
                and mime_type.isascii()
            ):
                key = (mime_type, "mimeType" in item)
                description = plain.get(key)
                if description is None:
                    description = plain[key] = rows.described(uri, name, mime_type if key[1] else None)
                rows.add(uri, description)
                size += 64 + len(uri)
                continue
        entry = resource_entry(item)
        if entry is None:
            invalid += 1
            continue
        described = (entry.mime_type, entry.size, entry.title, entry.description, entry.modified_ns)
        rows.add(entry.uri, rows.described(entry.uri, entry.name, *described, entry.annotations, entry.mcp_data))
        size += weight(entry.uri) + weight(entry.annotations) + weight(entry.mcp_data)
        size += sum(map(weight, (entry.name, entry.title, entry.description)))
    return Taken(len(rows) - before, invalid, size)


def template_entry(raw: Any) -> ResourceTemplate | None:
    """Decode a listed template; None if its URI template is missing, unusable or too large."""
    uri_template = usable_text(raw, "uriTemplate")
    if uri_template is None or len(uri_template) > MAX_TEMPLATE or uri_template.count("{") > MAX_EXPRESSIONS:
        return None
    return ResourceTemplate(
        uri_template=uri_template,
        name=text_of(raw.get("name")) or uri_template,
        title=text_of(raw.get("title")),
        description=text_of(raw.get("description")),
        mime_type=_mime_type(raw),
        annotations=_mapping(raw.get("annotations")),
        mcp_data=mcp_data(raw),
    )


def template_cost(template: ResourceTemplate) -> int:
    """Return how many expressions a template counts as: each counts tenfold if one of several may hold slashes."""
    count, uri = template.uri_template.count("{"), template.uri_template
    return count * 10 if count > 1 and any(mark in uri for mark in ("{+", "{#", "*}")) else count


def page(result: Mapping[str, Any], key: str) -> list[Any]:
    """Return the raw entries of one page. Raises ProtocolViolation if there is no list."""
    raw = result.get(key)
    if raw is None and (key in result or _OF_EVERY_LISTING.issuperset(result)):
        return []  # how some languages write a list that has nothing in it; others leave it out
    if not isinstance(raw, list):
        raise ProtocolViolation(f"a listing without '{key}'")
    return raw


def next_cursor(result: Mapping[str, Any]) -> str | int | None:
    """Return the cursor of the next page, or None at the end, which an empty cursor means too.

    It is a text by the protocol, but some servers send and take numbers. Raises ProtocolViolation for any other value,
    and for a cursor that is too long to be sent back.
    """
    cursor = result.get("nextCursor") or None
    if cursor is None or (isinstance(cursor, str) and len(cursor) <= MAX_URI and encodable(cursor)):
        return cursor
    if type(cursor) is int and abs(cursor) < 1 << 53:
        return cursor
    raise ProtocolViolation("a page cursor that is no text of a usable length")


def weight(value: Any, limit: float = inf) -> int:
    """Return about how many bytes of memory a decoded value takes. Counts no further than `limit`.

    An array, and an object that holds others, count more than they take: the garbage collector has to go through them.
    """
    pending, size = [value], 0
    while pending and size <= limit:
        each = pending.pop()
        size += 64
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            size += 1024 if any(isinstance(value, dict | list) for value in each.values()) else 192
            pending.extend(each.keys())
            pending.extend(each.values())
        elif isinstance(each, list | tuple):
            size += 1024
            pending.extend(each)
    return size


def ttl_seconds(result: Mapping[str, Any]) -> float | None:
    """Return `ttlMs` (protocol 2026-07-28) in seconds; None if absent or not positive: then the client decides."""
    ttl = result.get("ttlMs")
    if isinstance(ttl, int | float) and not isinstance(ttl, bool) and ttl > 0:
        return min(ttl, _LONGEST_TTL * 1000) / 1000
    return None


def is_private(result: Mapping[str, Any]) -> bool:
    """Return whether a result of protocol 2026-07-28 is for one authorization context (`cacheScope`).

    A server has to say so; from one that does not, nothing is given to others.
    """
    return result.get("cacheScope") != "public"


def loaded(result: Mapping[str, Any], ttl: float | None) -> Loaded:
    """Decode the content of a resource. Raises ProtocolViolation, NotSupported."""
    if result.get("resultType") == "input_required":
        raise NotSupported("the server asks for input before it answers")
    contents = result.get("contents")
    if not isinstance(contents, list) or not contents:
        raise ProtocolViolation("an answer without contents")
    if len(contents) > MAX_PARTS:
        raise TooLarge(f"a content of {len(contents)} parts, more than {MAX_PARTS}")
    return Loaded(tuple(content_part(raw) for raw in contents), ttl, _said_with(contents))


def _said_with(contents: list[Any]) -> ResourceMetadata | None:
    """Return the `_meta` of the only content of a resource as its property; None instead of one that is too large.

    A content without it takes that of an earlier load away.
    """
    if len(contents) > 1:
        return None
    return ResourceMetadata("", "", "", properties={"content_meta": _mapping(contents[0].get("_meta"))})


def content_version(result: Mapping[str, Any]) -> str | None:
    """Return the version that the server gives the only content of a resource, in `_meta` of it or of the result."""
    contents = result.get("contents")
    only = contents[0] if isinstance(contents, list) and len(contents) == 1 else None
    metas = (each["_meta"] for each in (only, result) if isinstance(each, dict) and isinstance(each.get("_meta"), dict))
    found = (usable_text(meta, key) for meta in metas for key in ("etag", "version"))
    return next((version for version in found if version is not None), None)


def completion(result: Mapping[str, Any]) -> Completion:
    """Return the values of `completion/complete` that are texts of a usable length. Raises ProtocolViolation."""
    found = result.get("completion")
    values = found.get("values", ...) if isinstance(found, dict) else ...
    values = [] if values is None else values  # as in `page`
    if not isinstance(found, dict) or not isinstance(values, list):
        raise ProtocolViolation("a completion without values")
    texts = (value for value in values[:_MAX_COMPLETIONS] if isinstance(value, str) and len(value) <= _LONGEST_VALUE)
    usable = (value for value in texts if usable_text({"": value}, "") is not None)
    total = found.get("total")
    more = found.get("hasMore") is True or (_is_number(total) and total > len(values)) or len(values) > _MAX_COMPLETIONS
    return Completion(tuple(dict.fromkeys(usable)), more)


def progress_of(params: Mapping[str, Any]) -> Progress | None:
    """Decode the parameters of a progress notification; None without a usable number."""
    done, text = _finite(params.get("progress")), params.get("message")
    said = printable(text[:_LONGEST_PROGRESS]) if isinstance(text, str) else None
    return None if done is None else Progress(done, _finite(params.get("total")), said)


def _finite(value: Any) -> float | None:
    """Return a number as a float; None for any other value. An integer of JSON may be larger than any float."""
    try:
        number = float(value) if _is_number(value) else nan
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def loaded_size(result: Mapping[str, Any]) -> int:
    """Return about how many characters `loaded` has to decode."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return 0
    texts = (raw.get(key) for raw in contents if isinstance(raw, dict) for key in ("text", "blob"))
    return sum(
        text.content.size if isinstance(text, LongText) else len(text)
        for text in texts
        if isinstance(text, str | LongText)
    )


def content_part(raw: Any) -> Part:
    """Decode one content of a resource. Raises ProtocolViolation."""
    if not isinstance(raw, dict):
        raise ProtocolViolation("a content that is not an object")
    uri = usable_text(raw, "uri")
    mime_type = _mime_type(raw)
    blob, text = raw.get("blob"), raw.get("text")
    # Where both are there, one of them is most often an empty field that the server's language cannot leave out.
    if isinstance(blob, LongText):
        return Part(uri, mime_type, _hashed(_long_blob(blob)), "binary")
    if isinstance(text, LongText):
        return Part(uri, mime_type, _hashed(text.content), "text")
    if isinstance(blob, str) and (blob or not isinstance(text, str)):
        return Part(uri, mime_type, MemoryContent(_decoded(blob)), "binary")
    if isinstance(text, str):
        return Part(uri, mime_type, MemoryContent(utf8(text)), "text")
    raise ProtocolViolation("a content with neither text nor blob")


def _hashed(content: Content) -> Content:
    """Compute the version of a content: that takes long, and this is not the event loop."""
    assert content.version
    return content


def _long_blob(blob: LongText) -> MemoryContent | StoredContent:
    if blob.is_broken:
        raise ProtocolViolation("a blob that is not base64")
    if blob.is_decoded:
        return blob.content
    if blob.content.size > _MAX_ODD_BLOB:
        raise TooLarge(f"a blob in other than plain base64 of more than {_MAX_ODD_BLOB} bytes")
    return MemoryContent(_decoded(blob.text()))


def _decoded(blob: str) -> bytes:
    """Decode base64, also in lines, in the alphabet for URLs (older Python servers) or without its padding."""
    try:
        return base64.b64decode(blob, validate=True)
    except ValueError:
        digits = "".join(blob.split()).translate(_URL_SAFE).rstrip("=")
    try:
        return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except ValueError as exc:
        raise ProtocolViolation(f"a blob that is not base64: {exc}") from exc


def utf8(text: str) -> bytes:
    """Encode in UTF-8; halves of a surrogate pair (JSON can hold them, UTF-8 cannot) become U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def usable_text(raw: Any, key: str) -> str | None:
    """Return a field that identifies something: a non-empty text that can be sent back, or None."""
    value = raw.get(key) if isinstance(raw, dict) else None
    return value if isinstance(value, str) and 0 < len(value) <= MAX_URI and encodable(value) else None


def text_of(value: Any) -> str | None:
    """Return a text that can be stored, or None for another value."""
    if not isinstance(value, str):
        return None
    return value if encodable(value) else utf8(value).decode()


def _mime_type(raw: Mapping[str, Any]) -> str | None:
    value = text_of(raw.get("mimeType"))
    return value if value is None or len(value) <= _LONGEST_TYPE else None


def _mapping(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) and value and _is_light(value) else None


def _is_light(value: Any) -> bool:
    return weight(value, _LARGEST_DATA) <= _LARGEST_DATA


def _size(value: Any) -> int | None:
    """Return a declared size, or None. 0 counts as None: most often it is a field that a language cannot leave out.

    With a size of 0, `tar` would archive an empty file without a warning.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _modified_ns(annotations: Mapping[str, Any] | None) -> int | None:
    """Return `lastModified` (ISO 8601, by default UTC) in nanoseconds since the epoch; None for a time before 1971.

    Such a time is most often that of a field which a language cannot leave out: the epoch, or the year 1.
    """
    value = annotations.get("lastModified") if annotations else None
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000 if moment >= _SANE_FROM else None


def mcp_data(raw: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the fields of an entry that no other value holds, without fields that are too large, or None."""
    return {key: raw[key] for key in ("_meta", "icons") if raw.get(key) and _is_light(raw[key])} or None
