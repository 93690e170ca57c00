"""The names of pages and databases in their directories, and their native URIs. Pure.

The name is the title. An ambiguous title gets `~` and a hash of the item's id, before the extension. A title is
ambiguous if another item has it, if it is empty, if it is the name of another file there, or if it looks like an id.
"""

from collections.abc import Iterable, Sequence
from urllib.parse import quote, unquote

from bbfs.model.errors import NotFound, NotSupported
from bbfs.sources.content.memory import digest_of
from bbfs.sources.notion.values import NotionItem, as_id

SCHEME = "x-notion"
OPENING = SCHEME + "://"
LONGEST_URI = 65_536
LONGEST_TITLE = 2000
INDEX, ROWS, SCHEMA = "index.md", "rows.ndjson", "schema.json"
EXTENSION = ".md"
_SAFE = "!$&'()*+,;=:@"  # RFC 3986, pchar; `quote` leaves the unreserved characters alone


def segments_of(native_uri: str) -> tuple[str, ...]:
    """Return the percent-encoded path of a native URI. Raise NotFound."""
    if len(native_uri) > LONGEST_URI or not native_uri.startswith(OPENING):
        raise NotFound(f"{ascii(native_uri[:200])[1:-1]}: the URIs of this source begin with {OPENING}")
    return tuple(native_uri.removeprefix(OPENING).split("/"))


def native_uri_of(path: Sequence[str]) -> str:
    return OPENING + "/".join(path)


def segment_of(name: str) -> str:
    """Return a name as a segment of a URI."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe=_SAFE, errors="replace")


def title_in(segment: str, *, is_file: bool) -> str:
    """Return the title whose name is a segment, unless another item has that title. Raise NotSupported if no title has
    this name."""
    extension = EXTENSION if is_file else ""
    name = unquote(segment, errors="replace")
    title = name.removesuffix(extension)
    if (
        not title
        or title + extension != name
        or title != " ".join(title.split())
        or len(title) > LONGEST_TITLE
        or as_id(title) is not None
        or name in (INDEX, ROWS, SCHEMA)
        or "\ufffd" in name
    ):
        raise NotSupported(f"{name[:200]!r}: a page with this title would have another name")
    return title


def named(found: Iterable[tuple[NotionItem, str]], taken: Iterable[str] = ()) -> dict[str, NotionItem]:
    """Return the segments of a directory's items, in their order. found: items with their extensions. taken: other
    names."""
    pairs = list({item.id: (item, extension) for item, extension in found}.values())
    wanted: dict[str, int] = dict.fromkeys(taken, 1)
    for item, extension in pairs:
        name = title_of(item) + extension
        wanted[name] = wanted.get(name, 0) + 1
    names: dict[str, NotionItem] = {}
    used = set(wanted)
    for item, extension in pairs:
        title = title_of(item)
        name = title + extension
        if not title or as_id(title) or wanted[name] > 1:
            name = _apart(title or "Untitled", extension, item.id, used)
            used.add(name)
        names[segment_of(name)] = item
    return names


def title_of(item: NotionItem) -> str:
    """Return the title of an item as names have it, in one line."""
    return " ".join(item.title.split())


def _apart(title: str, extension: str, id: str, used: set[str]) -> str:
    digest = digest_of(id.encode())
    names = (f"{title}~{digest[:length]}{extension}" for length in range(8, len(digest) + 1, 4))
    return next((name for name in names if name not in used), f"{title}~{id}{extension}")
