"""URIs as paths: legal names for what servers send. Pure.

The rule (`docs/semantics.md`, S2 to S5). The path of a native URI below its source's directory is the URI with `://` or
the first `:` written as `/`: first the scheme (`_` where there is none; left out where a source has one fixed scheme),
then the rest split at every `/`, query and fragment included. Empty and `.` components vanish, as they do when the
kernel resolves what a user types; `..` stays, written `%2E%2E`. Each component is shown percent-decoded where that is a
legal, unambiguous name (`show_component`).

Only `plain_path` and `native_of` know the rule; `bbfs.resources.catalog.folding` decides what happens when several URIs
need the same name.

A path may be longer than the 4096 bytes (PATH_MAX) that one system call takes; the kernel answers `ENAMETOOLONG` then,
and the file is reached by walking (`cd`, `openat`, `find`, `tar` do). `MAX_DEPTH` bounds what one URI can cost.
"""

import mimetypes
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import count
from typing import NamedTuple
from unicodedata import is_normalized
from urllib.parse import quote, unquote_to_bytes

from bbfs.model.errors import InvalidUri
from bbfs.model.uri import NAME_MAX, NO_SCHEME, native_scheme

MAX_DEPTH = 2048
"""Components of the longest path: as many as fit into PATH_MAX. All deeper ones are one last component."""

OPENING = "://"
"""The text between the scheme and the first component of a URI, unless a source has its own."""

VANISHING = frozenset(("", "."))
_ILLEGAL = frozenset(("", ".", ".."))
PLAIN = re.compile(r"[ -$&-.0-~]{1,255}")  # printable ASCII without `%` and `/`
_TRIPLET = re.compile(r"%[0-9A-Fa-f]{2}")
_EXTENSION = re.compile(r"(?<=.)\.[A-Za-z0-9]{1,12}\Z", re.DOTALL)
_SUFFIX = re.compile(r"~[0-9a-f]+(?:\.[A-Za-z0-9]{1,12})?\Z")
_SAFE_IN_SEGMENT = "!$&'()*+,;=:@?#[]-._~"  # RFC 3986 pchar; `?` and `#` because the rule keeps them; brackets of hosts
_IN_URIS = "%:/?#[]@!$&'()*+,;="
"""Characters of a URI that stay as they are, beside letters, digits and `-._~`."""

_EXTENSIONS = {
    "text/plain": ".txt", "text/markdown": ".md", "text/html": ".html", "text/yaml": ".yaml",
    "application/yaml": ".yaml", "application/x-yaml": ".yaml", "application/toml": ".toml",
    "application/xml": ".xml", "text/xml": ".xml", "text/javascript": ".js", "application/javascript": ".js",
    "image/jpeg": ".jpg", "audio/wav": ".wav", "application/octet-stream": "",
}  # fmt: skip


class PlainPath(NamedTuple):
    """The path that the rule gives a URI. inside: the URI ends like a directory, so its content goes inside (S5)."""

    path: tuple[str, ...]
    inside: bool


def quoted(uri: str) -> str:
    """Return a URI that a user has typed, with `%` triplets for spaces, umlauts and the like (RFC 3986, 2.2)."""
    return quote(uri, safe=_IN_URIS)


def plain_path(native_uri: str, scheme: str | None = None) -> PlainPath:
    """Return the path of a native URI by the rule alone, as if no other URI had it. Total.

    scheme: the fixed scheme of the source, whose directory is then left out. A URI with another scheme counts as one
        text (`http://x` becomes `http:/x`), so no URI of a server is lost.
    """
    path: list[str] = []
    rest = native_uri
    if scheme is None:
        scheme = native_scheme(native_uri)
        path.append(show_component(scheme or NO_SCHEME))
    if scheme is not None and native_uri.startswith(scheme + ":"):
        rest = native_uri[len(scheme) + 1 :].removeprefix("//")
    segments = rest.split("/")
    inside = segments[-1] in VANISHING
    segments = [segment for segment in segments if segment not in VANISHING]
    if len(path) + len(segments) > MAX_DEPTH:
        last = MAX_DEPTH - len(path) - 1
        segments[last:] = ["%2F".join(segments[last:])]
    path.extend(map(show_component, segments))
    return PlainPath(tuple(path), inside)


def native_of(path: Sequence[str], scheme: str | None = None, opening: str = OPENING) -> str:
    """Return the native URI of a path below the source's directory, by the rule alone.

    scheme: the fixed scheme of the source; without it, the path's first component is the scheme.
    opening: the text between the scheme and the rest (`:./` for files below a folder).
    Raise InvalidUri for the directory of a source without a fixed scheme: no URI stands for it.
    """
    if scheme is None:
        if not path:
            raise InvalidUri("the directory of a data source has no URI of its own")
        scheme, path = path[0], path[1:]
    rest = "/".join(map(hide_component, path))
    if scheme != NO_SCHEME:
        return scheme + opening + rest
    return rest if native_scheme(rest) is None else f"./{rest}"  # RFC 3986, section 4.2


def show_component(segment: str, *, literal: bool = False) -> str:
    """Return the file name of one URI segment: percent-decoded if that is legal and unambiguous, else encoded. Total.

    Legal: not empty, `.` or `..`; NFC; only printable characters (no control, format, bidi, zero-width, private or
    unassigned ones, no space but U+0020); no `/`; at most 255 bytes. A decoded text that still holds a `%XX` triplet
    could not be told from an encoded one and stays encoded, unless the names are `literal`: file names of a folder, in
    which a triplet is text, and which links and programs lead to as they are. A longer name is cut and gets `~` and
    eight hex digits of the segment's hash before its extension.
    """
    if PLAIN.fullmatch(segment) and segment != "." and segment != "..":
        return segment
    try:
        name = unquote_to_bytes(segment).decode()
    except UnicodeError:
        name = ""
    if not _is_legal(name) or (_TRIPLET.search(name) and not literal):
        name = _encoded(segment)
    if len(name.encode()) > NAME_MAX or not name:
        name = suffixed(name, _digest(segment)[:8])
    return name


def hide_component(name: str, *, literal: bool = False) -> str:
    """Return the URI segment that `show_component` shows as `name`. Total.

    A name with a `%XX` triplet is encoded already. In any other, characters that a segment must not hold are encoded.
    """
    if _TRIPLET.search(name) and not literal:
        return name
    return quote(name, safe=_SAFE_IN_SEGMENT, errors="surrogatepass")


def index_name(mime_type: str | None) -> str:
    """Return the name of a directory's own content: `index` and the extension of its MIME type, if known (S5)."""
    essence = (mime_type or "").partition(";")[0].strip().lower()
    extension = _EXTENSIONS.get(essence)
    if extension is None:
        extension = _mime_types().guess_extension(essence) or ""
    return f"index{extension}"


@cache
def _mime_types() -> mimetypes.MimeTypes:
    return mimetypes.MimeTypes()  # Python's own table: the machine's mime.types would make names differ


def names(segments: Iterable[str], *, literal: bool = False) -> dict[str, str]:
    """Return the names of one directory of a hierarchical source: name to URI segment, in the given order. The rules of
    `bbfs.resources.catalog.folding` apply. literal: as for `show_component`.
    """
    wanted: dict[str, list[str]] = {}
    for segment in dict.fromkeys(segments):
        wanted.setdefault(show_component(segment, literal=literal), []).append(segment)
    kept: dict[str, str] = {}
    losers: list[tuple[str, str]] = []
    for name, rivals in wanted.items():
        for segment in rivals:
            if len(rivals) == 1 or hide_component(name, literal=literal) == segment:
                kept[name] = segment
            else:
                losers.append((name, segment))
    given = {segment: name for name, segment in kept.items()} | free_names(losers, kept.__contains__)
    return {given[segment]: segment for rivals in wanted.values() for segment in rivals}


def free_names(losers: list[tuple[str, str]], is_taken: Callable[[str], bool]) -> dict[str, str]:
    """Return a free name for each URI of the (name, URI) pairs that cannot have the name. Their order does not matter.

    Each gets the shortest free prefix of its hash, from eight digits on. A server may list names that take all of
    these, so the hashes never end; it takes only as many as it lists.
    """
    given: dict[str, str] = {}
    new: set[str] = set()
    for name, uri in sorted(losers):
        candidates = (suffixed(name, digits) for digits in _hashes(uri))
        given[uri] = next(candidate for candidate in candidates if candidate not in new and not is_taken(candidate))
        new.add(given[uri])
    return given


def _hashes(uri: str) -> Iterator[str]:
    digest = _digest(uri)
    for length in range(8, len(digest) + 1, 8):
        yield digest[:length]
    for turn in count(1):
        yield _digest(f"{turn} {uri}")


def _digest(text: str) -> str:
    from hashlib import blake2b  # noqa: PLC0415 - it loads OpenSSL, and few names need a digest

    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()


def suffixed(name: str, digits: str) -> str:
    """Return `name` with `~digits` before its extension, cut between two characters to at most 255 bytes."""
    match = _EXTENSION.search(name)
    extension = match.group() if match else ""
    stem = name.removesuffix(extension).encode()[: NAME_MAX - 1 - len(digits) - len(extension)]
    return f"{stem.decode(errors='ignore')}~{digits}{extension}"


def is_suffixed(name: str) -> bool:
    """Return whether `suffixed` may have made a name. Editors make others with a `~`, such as `x~`, for themselves."""
    return _SUFFIX.search(name) is not None


def _is_legal(name: str) -> bool:
    return name not in _ILLEGAL and name.isprintable() and "/" not in name and is_normalized("NFC", name)


def _encoded(segment: str) -> str:
    """Return `segment` with all characters percent-encoded that a name must not hold; its triplets stay."""
    if segment in (".", ".."):
        return segment.replace(".", "%2E")
    text = "".join(c if c.isprintable() and c != "/" else _percent(c) for c in segment)
    if not is_normalized("NFC", text):
        text = "".join(c if c.isascii() else _percent(c) for c in text)
    return text


def _percent(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")
