"""Searches as directories: `.search/QUERY/` in the root and in each directory of a mount. No listing has them.

They are a source of their own, which no configuration names. A lookup of a query asks nothing; its names are found when
a program opens the directory or looks up a name in it. Linux keeps extended attributes of users from symbolic links
(xattr(7)), so scores and snippets are in `results.ndjson`.
"""

import json
import os
import re
from collections.abc import Iterator
from unicodedata import normalize
from urllib.parse import quote, unquote

from cachetools import LRUCache

from bbfs.model.errors import BbfsError, NotADirectory, NotFound
from bbfs.model.uri import SEARCH
from bbfs.model.uri_paths import hide_component, show_component
from bbfs.model.values import DataSource, Listing, Loaded, Part, Policy, ResourceMetadata
from bbfs.resources.catalog.record import Node, Path
from bbfs.resources.commands.encoding import encoded
from bbfs.resources.commands.search import hit
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.engine import WITHIN, Found, SearchAnswer
from bbfs.resources.views import SourceView
from bbfs.sources import MemoryContent

HOLDS = 10.0
"""Seconds for which an answer is served again."""
SHOWN = 50
"""Hits of a directory."""
KEPT = 64
"""Answers that are kept for the files with the results."""
MARKDOWN, NDJSON = "results.md", "results.ndjson"
_NAME_MAX = 255
_EXTENSION = re.compile(r"(?<=.)\.[A-Za-z0-9]{1,12}\Z")
_TRIPLET = re.compile(r"%(?=[0-9A-Fa-f]{2})")
_HIT = re.compile(r"[0-9]{2,} ")
"""The beginning of the name of a hit in the directory of a query: its rank."""
_MARKUP = re.compile(r"([\\`*_\[\]<>#|!&~])")


class SearchHandler(SourceView):
    """The source of the directories of searches. The segments of its URIs are those of a path on the mount."""

    roots = marks = (SEARCH,)

    def __init__(self, manager: ResourceManager) -> None:
        policy = Policy(timeout=3 * WITHIN, listing_ttl=HOLDS, content_ttl=HOLDS, max_stale=0.0, disk=False)
        self.source = DataSource(
            id=SEARCH, name="search", type="search", access_method="bb", uri_prefix="", policy=policy
        )
        self._manager = manager
        self._kept: LRUCache[Path, tuple[SearchAnswer, float]] = LRUCache(KEPT)

    def owns(self, path: Path) -> bool:
        """Return whether a path is a search. A source that may list the name is asked first."""
        if SEARCH not in path:  # it has the mark of another view
            return False
        at = path.index(SEARCH)
        if at == 0:
            return True
        source, below = self._manager.roots.place(path[: at + 1])
        if source.data.base_prefix not in self._manager.sources:
            return False
        try:
            if source.catalog.cached(below) is not None:
                return False
        except (NotFound, NotADirectory):
            return True
        return at + 1 < len(path) and source.catalog.last_cached(below) is None

    async def follows(self, path: Path, error: BbfsError) -> bool:
        return path[-1] == SEARCH

    def expected(self, path: Path) -> Node | None:
        """Return a link for a hit even before its search has ended.

        Otherwise the kernel would give up an open: it looks a name up again only once, which the file that the link
        leads to may need.
        """
        is_hit = path[-3:-2] == (SEARCH,) and _HIT.match(path[-1]) and self.owns(path)
        return Node("symlink", target="") if is_hit else None

    async def find(self, path: Path, name: str) -> ResourceMetadata:
        """Return a directory on the way to a query, or that of a query. This asks nothing. Raise NotFound."""
        if _depth(path) > 1:
            raise NotFound(name)
        uri = "/".join((*path, hide_component(name)))
        return ResourceMetadata(uri, uri, name, kind="directory")

    async def list_directory(self, path: Path) -> Listing:
        """Search for the query of a directory, and return the hits as links. Other directories show nothing."""
        if _depth(path) > 2:
            raise NotFound("/".join(path))
        if _depth(path) == 0:
            uri = "/".join((*path, SEARCH))  # listed here, since nothing finds it by name alone
            return Listing((ResourceMetadata(uri, uri, SEARCH, kind="directory"),), open=True)
        if _depth(path) == 1:
            return Listing((), open=True)
        answer, here = await self._ask(path), "/".join(path)
        links = (
            ResourceMetadata(uri, uri, name, kind="symlink", target=target)
            for name, target, _ in _links(path, answer)
            if (uri := f"{here}/{quote(name, safe='')}")
        )
        return Listing((*links, *(_described(here, name, path, answer) for name in (MARKDOWN, NDJSON))))

    async def load(self, native_uri: str) -> Loaded:
        """Return the results of a search as a file; of the last one, if it is not too old."""
        here, _, name = native_uri.rpartition("/")
        path = tuple(here.split("/"))
        if _depth(path) != 2 or name not in (MARKDOWN, NDJSON):
            raise NotFound(native_uri)
        answer, at = self._kept.get(path, (None, 0.0))
        if answer is None or self._manager.clock() >= at + HOLDS:
            answer = await self._ask(path)
        metadata = _described(here, name, path, answer)
        return Loaded((Part(None, metadata.mime_type, _content(name, path, answer), "text"),), metadata=metadata)

    async def _ask(self, path: Path) -> SearchAnswer:
        above = _above(path)
        answer = await self._manager.searches.search(_query(path), below=[above] if above else (), limit=SHOWN)
        self._kept[path] = answer, self._manager.clock()
        return answer


def _depth(path: Path) -> int:
    """Return the number of names from `.search` on: 2 for the directory of a query."""
    return len(path) - path.index(SEARCH) if SEARCH in path else 0


def _above(path: Path) -> Path:
    """Return the directory of the mount that is searched."""
    return tuple(map(show_component, path[: path.index(SEARCH)]))


def _query(path: Path) -> str:
    return unquote(path[-1])


def _links(path: Path, answer: SearchAnswer) -> Iterator[tuple[str, str, Found]]:
    """Yield the name, the target and the hit of each link, the best first."""
    here = "/".join(("", *_above(path), SEARCH, "query"))
    for rank, found in enumerate(answer.hits, 1):
        yield _link_name(rank, found), os.path.relpath("/".join(("", *found.path)), here), found


def _link_name(rank: int, found: Found) -> str:
    """Return a name with the rank, the title and the extension of the resource, which no other link has."""
    match = _EXTENSION.search(found.path[-1])
    extension = match[0] if match else ""
    title = normalize("NFC", _TRIPLET.sub("\N{FULLWIDTH PERCENT SIGN}", found.title.replace("/", "-")))
    stem = title[: -len(extension)] if extension and title.lower().endswith(extension.lower()) else title
    room = _NAME_MAX - len(extension)
    return f"{rank:02} {stem}".encode("utf-8", "replace")[:room].decode("utf-8", "ignore") + extension


def _described(here: str, name: str, path: Path, answer: SearchAnswer) -> ResourceMetadata:
    content, uri = _content(name, path, answer), f"{here}/{name}"
    mime_type = "text/markdown" if name == MARKDOWN else "application/x-ndjson"
    return ResourceMetadata(uri, uri, name, mime_type=mime_type, size=content.size, etag=content.version)


def _content(name: str, path: Path, answer: SearchAnswer) -> MemoryContent:
    lines = _markdown(path, answer) if name == MARKDOWN else _ndjson(path, answer)
    return MemoryContent("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))


def _markdown(path: Path, answer: SearchAnswer) -> Iterator[str]:
    yield f"# Search for “{_plain(' '.join(_query(path).split()))}”"
    yield ""
    for rank, (_, target, found) in enumerate(_links(path, answer), 1):
        where = f" ({_plain(found.where)})" if found.where else ""
        yield f"{rank}. [{_plain(found.title)}]({quote(target)}){where}, `{found.uri.replace('`', '%60')}`"
        if found.snippet:
            yield f"   > {_plain(found.snippet)}"
    if not answer.hits:
        yield "Nothing was found."
    if answer.problems:
        yield ""
        yield from (f"- {_plain(problem)}" for problem in answer.problems)


def _plain(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    return _MARKUP.sub(r"\\\1", text)


def _ndjson(path: Path, answer: SearchAnswer) -> Iterator[str]:
    for rank, (name, target, found) in enumerate(_links(path, answer), 1):
        yield json.dumps({"rank": rank, "link": name, "target": target, **encoded(hit(found))}, ensure_ascii=False)
    yield from (json.dumps({"problem": problem}, ensure_ascii=False) for problem in answer.problems)
