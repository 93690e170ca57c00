"""The resources of a source of type `memory`, their size limit, and their URIs.

A native URI is `memory://` and the path, with the UTF-8 of its names percent-encoded. Each path has one URI, in
whatever spelling a program asks for it. Plain values: nothing here waits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from bbfs.model.errors import InvalidUri, NotFound, TooLarge
from bbfs.model.redaction import shown
from bbfs.model.uri import source_uri
from bbfs.model.values import ResourceMetadata
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.media_types import content_type_of, mime_type_of_name

SCHEME = "memory"
OPENING = SCHEME + "://"
LONGEST_URI = 4096
"""Longest native URI in characters. No program could open a longer path (PATH_MAX)."""
NAMED = 4096
"""URIs whose names are known, with their MIME types."""
_SAFE = "!$&'()*+,;=:@"  # RFC 3986, pchar; `quote` leaves the unreserved characters alone


def native_uri_of(where: str) -> str:
    """Return the one native URI of a path (`notes/a b.md`), or of a native URI in any spelling
    (`memory://notes/a%20b.md`).

    Raise InvalidUri if no resource can have this URI.
    """
    scheme, colon, rest = where.partition("://")
    if colon and scheme.lower() == SCHEME:
        names = [_decoded(segment, where) for segment in rest.split("/")]
    else:
        names = where.removeprefix("/").split("/")
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise InvalidUri(f"{shown(where)}: {shown(name) or 'nothing'} is no name of a resource or directory")
    try:
        native_uri = OPENING + "/".join(quote(name, safe=_SAFE) for name in names)
    except UnicodeEncodeError:
        raise InvalidUri(f"{shown(where)}: not UTF-8") from None
    if len(native_uri) > LONGEST_URI:
        raise InvalidUri(f"{shown(where)}: longer than {LONGEST_URI} characters")
    return native_uri


def _decoded(segment: str, where: str) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeError:
        raise InvalidUri(f"{shown(where)}: not UTF-8") from None


@dataclass(frozen=True, slots=True)
class Held:
    """One resource: its content and its description. modified_ns: time of the put, or None for a resource of the
    options."""

    content: MemoryContent
    mime_type: str | None = None
    description: str | None = None
    modified_ns: int | None = None

    def charge(self, native_uri: str) -> int:
        """Return the bytes that count towards the limit: content and URI, so that empty resources count too."""
        return self.content.size + len(native_uri)

    def metadata(self, base_prefix: str, native_uri: str) -> ResourceMetadata:
        named = _named(base_prefix, native_uri, self.mime_type)
        if named.mime_type is None:
            named = _named(base_prefix, native_uri, _guessed(self.content.data))
        return replace(
            named,
            description=self.description,
            size=self.content.size,
            modified_ns=self.modified_ns,
            etag=self.content.version,
        )


@lru_cache(NAMED)
def _named(base_prefix: str, native_uri: str, mime_type: str | None) -> ResourceMetadata:
    """Return what a URI tells of its resource, and its MIME type if it is given or the name has one."""
    name = unquote_to_bytes(native_uri.rpartition("/")[2]).decode()
    mime_type = mime_type or mime_type_of_name(name)
    uri = source_uri(base_prefix, native_uri)
    return ResourceMetadata(uri, native_uri, name, mime_type=mime_type, content_type=content_type_of(mime_type))


def _guessed(data: bytes) -> str:
    """Guess the MIME type of a content whose name has no known extension: text if it is UTF-8 without NUL."""
    if b"\0" not in data:
        try:
            data.decode()
        except UnicodeDecodeError:
            pass
        else:
            return "text/plain"
    return "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Contents:
    """All resources by native URI. A value: each change returns a new value.

    removed: resources of the options that were removed since.
    """

    held: Mapping[str, Held] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()

    @property
    def bytes(self) -> int:
        return sum(held.charge(uri) for uri, held in self.held.items())

    def get(self, native_uri: str) -> Held:
        """Raise NotFound."""
        try:
            return self.held[native_uri_of(native_uri)]
        except (KeyError, InvalidUri):
            raise NotFound(f"{shown(native_uri)}: there is no such resource in memory") from None

    def with_resource(self, native_uri: str, held: Held, max_bytes: int) -> "Contents":
        """Raise TooLarge if that exceeds `max_bytes` bytes."""
        other = Contents({**self.held, native_uri: held}, self.removed - {native_uri})
        other.require_room(max_bytes)
        return other

    def without(self, native_uri: str) -> "Contents":
        """Raise NotFound."""
        self.get(native_uri)
        return Contents(
            {uri: held for uri, held in self.held.items() if uri != native_uri}, self.removed | {native_uri}
        )

    def over(self, configured: Mapping[str, Held]) -> "Contents":
        """Return these with the resources of the options. What was put or removed overrides the options."""
        removed = self.removed & configured.keys()
        given = {uri: held for uri, held in configured.items() if uri not in removed}
        return Contents({**given, **self.held}, removed)

    def beside(self, configured: Mapping[str, Held]) -> "Contents":
        """Return these without the resources of the options that were not replaced."""
        return Contents({uri: held for uri, held in self.held.items() if configured.get(uri) is not held}, self.removed)

    def require_room(self, max_bytes: int) -> None:
        if self.bytes > max_bytes:
            raise TooLarge(f"{self.bytes} bytes in memory are more than the limit of {max_bytes} bytes (max_bytes)")


def differing(before: Contents, after: Contents) -> Iterable[str]:
    """Return the native URIs of resources that were added, removed or changed."""
    pairs = ((uri, before.held.get(uri), after.held.get(uri)) for uri in {**before.held, **after.held})
    return [uri for uri, was, now in pairs if was is not now and _facts(was) != _facts(now)]


def _facts(held: Held | None) -> tuple[str | int | None, ...]:
    return () if held is None else (held.content.version, held.mime_type, held.description, held.modified_ns)
