"""The native URIs of storage, `scheme://authority/name/name`, and the names in them. Pure.

A store has keys: texts with slashes. Here a key is the tuple of the names between its slashes. A URI has each name
percent-encoded. Two kinds of names cannot stand in a path: `.` and `..` are written `%2E` and `%2E%2E`, and an empty
name (of keys such as `a//b`, `/a`, `a/`) is written `%2F`. So every key has one URI, and a URI has at most one key.
"""

from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from bbfs.model.errors import NotFound
from bbfs.model.redaction import shown

Names = tuple[str, ...]
EMPTY = "%2F"
"""The segment of an empty name."""
_SAFE = "!$&'()*+,;=:@-._~"  # RFC 3986, pchar


def segment_of(name: str) -> str:
    """Return the URI segment of a name, in which surrogates stand for bytes that are not UTF-8. Total."""
    if name in ("", ".", ".."):
        return EMPTY if not name else name.replace(".", "%2E")
    return quote(name, safe=_SAFE, errors="surrogateescape")


def name_of(segment: str) -> str:
    """Return the name of a URI segment. Raises NotFound if it has no name."""
    if segment == EMPTY:
        return ""
    if segment in ("", ".", ".."):
        raise NotFound(f"{shown(segment)!r} is no name of an object")
    try:
        raw = unquote_to_bytes(segment)
    except UnicodeEncodeError:
        raise NotFound(f"{shown(segment)}: no name of an object") from None
    if b"/" in raw or b"\0" in raw:
        raise NotFound(f"{shown(segment)}: no name of an object")
    return raw.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Place:
    """The root of a source's tree: its URL, taken apart.

    authority: the text between `//` and the next slash (a bucket, a host); empty for an archive (`zip:///path/to.zip`).
    prefix: the names of the path after it. The URIs of an archive's members (`zip://member`) leave its path out: the
    archive may be moved, and its path says more of this machine than they should.
    """

    scheme: str
    authority: str
    prefix: Names

    @property
    def above(self) -> Names:
        """The names of the directories from the root of the scheme to this place."""
        return (self.authority, *self.prefix) if self.authority else ()

    def native_uri(self, names: Names, *, is_directory: bool = False) -> str:
        """Return the native URI of names below the root of the scheme."""
        path = "/".join(map(segment_of, names))
        return f"{self.scheme}://{path}" + ("/" if is_directory and names else "")

    def names(self, native_uri: str) -> tuple[Names, bool]:
        """Return the names below the root of the scheme, and if the URI ends with a slash. Raises NotFound.

        The authority is compared without decoding it.
        """
        opening = f"{self.scheme}://"
        if not native_uri.startswith(opening):
            raise NotFound(f"{shown(native_uri)}: the URIs of this source begin with {opening}")
        rest = native_uri[len(opening) :]
        if not rest:
            return (), True
        if rest.count("/") > 2048 or len(rest) > 65536:
            raise NotFound(f"{shown(native_uri)}: too long for an object of this source")
        is_directory = rest.endswith("/")
        segments = rest.removesuffix("/").split("/")
        return tuple(name_of(segment) for segment in segments), is_directory

    def inside(self, names: Names) -> Names | None:
        """Return the names below this place, or None for a directory that leads to it. Raises NotFound."""
        above = self.above
        if names[: len(above)] == above:
            return names[len(above) :]
        if names == above[: len(names)]:
            return None
        raise NotFound(f"{shown(self.native_uri(names))}: not in {self.native_uri(above)}")
