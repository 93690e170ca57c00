"""The native URIs of storage: `scheme://authority/name/name`, and what each part of them stands for. Pure.

A store knows keys, texts with slashes; here a key is the tuple of the names between its slashes. A URI has each of
them percent-encoded, so that it is a true URI of the object, but for two kinds of names that no path can hold: `.` and
`..` are written `%2E` and `%2E%2E`, and an empty name (of keys such as `a//b`, `/a`, `a/`) is written `%2F`. So every
key has one URI, and every URI leads to one key at most.
"""

from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from bbfs.model.errors import NotFound
from bbfs.model.redaction import shown

Names = tuple[str, ...]
EMPTY = "%2F"
"""How an empty name is written."""
_SAFE = "!$&'()*+,;=:@-._~"  # RFC 3986, pchar


def segment_of(name: str) -> str:
    """The URI segment of a name. Bytes that are no UTF-8 are in the name as lone surrogates. Total."""
    if name in ("", ".", ".."):
        return EMPTY if not name else name.replace(".", "%2E")
    return quote(name, safe=_SAFE, errors="surrogateescape")


def name_of(segment: str) -> str:
    """The name that a URI segment stands for. Raises NotFound where it stands for none."""
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
    """Where the tree of a source begins: its URL, taken apart.

    authority: what stands between `//` and the next slash (a bucket, a host); empty where there is none, as for the
    archive `zip:///path/to.zip`. prefix: the names of the path that follows it. Where the archive itself is, is no part
    of the URIs of its members (`zip://member`): it may be moved, and says more of this machine than they should.
    """

    scheme: str
    authority: str
    prefix: Names

    @property
    def above(self) -> Names:
        """The names of the directories that lead from the root of the scheme to this place."""
        return (self.authority, *self.prefix) if self.authority else ()

    def native_uri(self, names: Names, *, is_directory: bool = False) -> str:
        """The native URI of what these names lead to from the root of the scheme."""
        path = "/".join(map(segment_of, names))
        return f"{self.scheme}://{path}" + ("/" if is_directory and names else "")

    def names(self, native_uri: str) -> tuple[Names, bool]:
        """The names below the root of the scheme, and whether the URI ends like a directory. Raises NotFound.

        What an authority has in it is compared as it is written.
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
        """The names that follow this place; None for those of a directory that leads to it. Raises NotFound."""
        above = self.above
        if names[: len(above)] == above:
            return names[len(above) :]
        if names == above[: len(names)]:
            return None
        raise NotFound(f"{shown(self.native_uri(names))}: not in {self.native_uri(above)}")
