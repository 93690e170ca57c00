"""One search in many sources: asks all at once, within a deadline, and merges their ranks.

The scores of different sources cannot be compared, so only ranks count: reciprocal rank fusion (Cormack, Clarke and
Büttcher, SIGIR 2009) adds 1 / (5 + rank) for each ranking that has a resource, and 0.7 of that for the index's ranking
by meaning. A hit is shown only if the catalog has its resource now. No content is loaded for that.
"""

import math
import shlex
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import filterfalse, islice
from typing import Literal, Protocol, TypeAlias

import trio

from bbfs.model import uri_paths
from bbfs.model.errors import BbfsError, DeadlineExceeded, InvalidUri, NotADirectory, NotFound, NotSupported, TooLarge
from bbfs.model.redaction import printable, shortened
from bbfs.model.uri import source_uri
from bbfs.model.values import Hit
from bbfs.resources.catalog import Catalog
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.search.index.entries import Answer
from bbfs.resources.search.index.outdated import Lag
from bbfs.resources.source import Source
from bbfs.resources.tree import Roots
from bbfs.sources import CanSearch, SearchesByMeaning
from bbfs.sources.abilities import LONGEST_QUERY

WITHIN = 5.0
"""Seconds for one search, by default."""
LIMIT = 20
"""Hits of one search, by default."""
MOST = 200
"""Hits of one search at most, and of each source that is asked."""
_INDEX_NAMES = 16
"""Names of the own content of a directory that are tried for one hit."""
CHECKED_AT_ONCE = 16
"""Hits of one source that are looked up at once."""
LONGEST_URI, LONGEST_TITLE, LONGEST_SNIPPET, LONGEST_PROBLEM = 8192, 200, 500, 300
"""Characters of the texts of a hit, and of what is said of a source that failed."""
_BY_MEANING = "index by meaning"
_DAMPING = 5
"""The paper has 60 for rankings of a thousand hits; here a ranking has as many as are shown."""
_OF_MEANING = 0.7
"""Weight of a rank by meaning, beside 1 of any other: a static model orders worse than words do, and finds more.

Both numbers are measured by benchmarks/retrieval.py (docs/benchmarks/by-hand.md).
"""

Way: TypeAlias = Literal["words", "meaning"]
Mode: TypeAlias = Way | Literal["both"]


class Searcher(Protocol):
    """An index of the contents of some sources."""

    @property
    def without_meaning(self) -> str | None:
        """Why it finds nothing by meaning, or None."""
        ...

    def covers(self, source_id: str) -> bool:
        """Return whether the index has, or is getting, the contents of a source."""
        ...

    def has_none_of(self, source_id: str) -> bool:
        """Return whether a source that the index covers has no document in it yet."""
        ...

    async def look(self) -> None:
        """Take in which sources other processes have indexed meanwhile."""
        ...

    async def search(self, query: str, limit: int, *, sources: Collection[str], mode: Way) -> Answer:
        """Return at most `limit` hits in the sources with these ids, each with its source's id, the best first."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """One hit of a search. path: from the mount's root. score: of the merged ranks; greater is better.

    found_by: who has it: the id of its source, `index`, or `index by meaning`; the one with the best rank first.
    """

    path: Path
    uri: str
    native_uri: str
    source_id: str
    title: str
    snippet: str | None
    where: str | None
    score: float
    found_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The hits of a search, the best first. problems: sentences about sources that may have more."""

    hits: tuple[Found, ...]
    problems: tuple[str, ...]


@dataclass(slots=True)
class _Asked:
    """One search under way. rankings: what was found, by who found it: a source, or an index.

    unable: the sources that turned out to have no search. lags: what an index does not have, by the id of its source.
    """

    query: str
    limit: int
    mode: Mode
    below: Collection[Path]
    within: float
    rankings: dict[object, list[Found]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    unable: set[str] = field(default_factory=set)
    lags: dict[str, Lag] = field(default_factory=dict)
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = trio.current_time() + self.within

    @property
    def most(self) -> int:
        """Hits to ask for: more where some may be outside of the paths below a source."""
        return MOST if any(len(path) > 1 for path in self.below) else self.limit

    def has_changed(self, found: Found) -> bool:
        """Return whether an index has found a document as it was before."""
        lag = self.lags.get(found.source_id)
        return lag is not None and found.native_uri in lag.changed

    def includes(self, path: Path) -> bool:
        return not self.below or any(path[: len(above)] == above for above in self.below)


class Search:
    """One search in all sources. searchers: the indexes that it asks beside the sources.

    lag: returns what these do not have yet of a source.
    """

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self.searchers: list[Searcher] = []
        self.lag: Callable[[Source], Awaitable[Lag | None]] | None = None

    async def search(
        self,
        query: str,
        *,
        below: Collection[Path] = (),
        limit: int = LIMIT,
        mode: Mode = "both",
        within: float = WITHIN,
    ) -> SearchAnswer:
        """Return the best hits at and below some paths from the mount's root, by default everywhere.

        within: seconds. Raise NotFound for a path without a source, InvalidUri, TooLarge. A source that fails costs
        only its own hits, and the answer says so.
        """
        scope = () if () in below else below
        sources = self._sources(scope)
        asked = _Asked(_checked(query, limit), limit, mode, scope, within)
        async with trio.open_nursery() as nursery:
            for source in sources:
                asked.rankings[source.data.id] = []
                nursery.start_soon(self._of_source, asked, source)
            for index in self.searchers:
                if any(not index.covers(source.data.id) or index.has_none_of(source.data.id) for source in sources):
                    with trio.move_on_at(asked.deadline):
                        await index.look()
                covered = {source.data.id: source for source in sources if index.covers(source.data.id)}
                for way in self._ways(asked, index, covered):
                    asked.rankings[index, way] = []
                    nursery.start_soon(self._of_index, asked, index, covered, way)
                for source in covered.values():
                    nursery.start_soon(self._look_for_lag, asked, source)
        return SearchAnswer(_merged(asked), (*asked.problems.values(), *self._left_out(asked, sources)))

    def _sources(self, scope: Collection[Path]) -> list[Source]:
        """Return the sources at or above some paths; all without a path. Raise NotFound."""
        if not scope:
            return [*self._roots.sources.values()]
        found = {source.data.id: source for source, _ in map(self._roots.place, scope)}
        return [source for source in found.values() if source.data.base_prefix in self._roots.sources]

    @staticmethod
    def _handler(source: Source, mode: Mode) -> CanSearch | None:
        handler = source.may_search
        by_meaning = isinstance(handler, SearchesByMeaning) and handler.by_meaning
        return handler if mode == "both" or by_meaning == (mode == "meaning") else None

    @staticmethod
    def _ways(asked: _Asked, index: Searcher, covered: Collection[str]) -> Iterable[Way]:
        """Return how to search an index that has some sources."""
        if not covered:
            return ()
        if asked.mode == "words" or (asked.mode == "both" and index.without_meaning is not None):
            return ("words",)
        if asked.mode == "both":
            return ("words", "meaning")
        if index.without_meaning is None:
            return ("meaning",)
        asked.problems["index"] = f"the index, by meaning: {index.without_meaning}"
        return ()

    def _left_out(self, asked: _Asked, sources: Sequence[Source]) -> list[str]:
        """Return a sentence about the sources that nothing could be found in."""
        left = [
            source
            for source in sources
            if (self._handler(source, asked.mode) is None or source.data.id in asked.unable)
            and source.data.id not in asked.problems
            and not any(index.covers(source.data.id) for index in self.searchers)
        ]
        is_able = {
            source.data.id: source.may_search is not None and source.data.id not in asked.unable for source in left
        }
        forbidden = {source.data.id for source in left if source.data.index is False}
        unable = [name for name, able in is_able.items() if not able]
        other = ", ".join(name for name, able in is_able.items() if able)
        said: list[str] = []
        if none := ", ".join(name for name in unable if name not in forbidden):
            said.append(f"cannot be searched: {none} (no search of their own, not indexed)")
        if none := ", ".join(name for name in unable if name in forbidden):
            said.append(f"cannot be searched: {none} (no search of their own, their option index forbids an index)")
        by = {"words": "meaning", "meaning": "words"}.get(asked.mode)
        if other:
            said.append(f"not searched: {other} (by {by} only)")
        if empty := [*self._empty(asked, sources)]:
            all_of = "it" if len(empty) == 1 else "them"
            said.append(
                f"nothing is indexed yet of: {', '.join(empty)}; 'bbfs index {shlex.join(empty)}' reads all of {all_of}"
            )
        if late := [
            source.data.id for source in sources if source.data.id in asked.lags and self._needs_index(asked, source)
        ]:
            each = ", ".join(f"{name} ({asked.lags[name].why})" for name in late)
            said.append(f"the index may be out of date: {each}; 'bbfs index {shlex.join(late)}' reads what has changed")
        return said

    @staticmethod
    def _needs_index(asked: _Asked, source: Source) -> bool:
        return source.may_search is None or source.data.id in asked.unable

    def _empty(self, asked: _Asked, sources: Sequence[Source]) -> Iterator[str]:
        """Yield the sources that only an index can search, and that have nothing in it."""
        for source in sources:
            name = source.data.id
            covering = [index for index in self.searchers if index.covers(name)]
            if self._needs_index(asked, source) and covering and all(index.has_none_of(name) for index in covering):
                yield name

    # -- one ranking -------------------------------------------------------------------------------------------------

    async def _of_source(self, asked: _Asked, source: Source) -> None:
        """Ask a source for its hits. A source that is slow or down costs its own hits and a sentence."""
        name = source.data.id
        handler = self._handler(source, asked.mode)
        if handler is None:
            return
        most = asked.most

        async def request() -> list[tuple[Source, Hit]]:
            async with source.slots.ask():
                found = await handler.search(asked.query, most)
            source.error = None
            return [*_usable(((source, hit) for hit in found), most)]

        try:
            with source.waiters:
                timeout = min(asked.within, source.data.policy.timeout)
                hits = await source.flights.do(
                    ("search", name, asked.query, most), request, timeout, while_wanted=True, deadline=asked.deadline
                )
        except NotSupported:
            asked.unable.add(name)  # only a search could tell
            return
        except BbfsError as error:
            asked.problems[name] = _problem(name, _with_cause(source, error))
            return
        asked.rankings[name] = await self._existing(asked, hits)

    async def _of_index(self, asked: _Asked, index: Searcher, covered: dict[str, Source], way: Way) -> None:
        name = "the index" if way == "words" else "the index, by meaning"
        most = asked.most
        with trio.move_on_at(asked.deadline) as bound:
            try:
                found = await index.search(asked.query, most, sources=covered.keys(), mode=way)
            except BbfsError as error:
                asked.problems[name] = _problem(name, error)
                return
            asked.problems |= {f"{name}: {each}": each for each in found.said}
            hits = ((covered[source_id], hit) for source_id, hit in found.hits if source_id in covered)
            asked.rankings[index, way] = await self._existing(asked, [*_usable(hits, most)])
        if bound.cancelled_caught:
            asked.problems[name] = _problem(name, _late(asked))

    async def _look_for_lag(self, asked: _Asked, source: Source) -> None:
        """Note what the index does not have yet of a source, if that is known in time."""
        with trio.move_on_at(asked.deadline):
            lag = await self.lag(source) if self.lag is not None else None
            if lag is not None:
                asked.lags[source.data.id] = lag

    # -- what exists -------------------------------------------------------------------------------------------------

    async def _existing(self, asked: _Asked, hits: Sequence[tuple[Source, Hit]]) -> list[Found]:
        """Return the hits whose resources exist and are wanted, in their order."""
        found: list[Found | None] = [None] * len(hits)
        slots = trio.Semaphore(CHECKED_AT_ONCE)

        async def check(number: int, source: Source, hit: Hit) -> None:
            try:
                async with slots:
                    found[number] = await self._found(asked, source, hit)
            except (NotFound, NotADirectory):
                pass  # it is gone
            except BbfsError as error:
                asked.problems.setdefault(source.data.id, _problem(source.data.id, error))

        with trio.move_on_at(asked.deadline) as bound:
            async with trio.open_nursery() as nursery:
                for number, (source, hit) in enumerate(hits):
                    nursery.start_soon(check, number, source, hit)
        if bound.cancelled_caught:
            for source, _ in hits:
                asked.problems.setdefault(source.data.id, _problem(source.data.id, _with_cause(source, _late(asked))))
        return [each for each in found if each is not None]

    async def _found(self, asked: _Asked, source: Source, hit: Hit) -> Found | None:
        """Return a hit with its path, or None outside of the search. Raise NotFound, or the source's error."""
        catalog = source.catalog
        if source.leaves_aside(hit.native_uri):
            return None
        with source.waiters:
            if catalog.lists_all and catalog.cached_view((), completed=False) is None:
                await catalog.view((), completed=False)
            known = catalog.record(hit.native_uri)
            path = known.path if known is not None else ()
            path = path or catalog.plain_path(hit.native_uri)
            mounted = self._roots.mounted(source, path)
            if not asked.includes(mounted):
                return None
            path, record = await _record(catalog, path, hit.native_uri)
        if record is None or isinstance(record.error, NotFound):
            return None
        mounted = self._roots.mounted(source, path)
        uri = source_uri(source.data.base_prefix, hit.native_uri)
        title = hit.title or _text(_title(record), LONGEST_TITLE) or path[-1]
        return Found(mounted, uri, hit.native_uri, source.data.id, title, hit.snippet, hit.where, 0.0)


async def _record(catalog: Catalog, path: Path, native_uri: str) -> tuple[Path, Record | None]:
    """Return the record of a resource at a path, or in it if the path is a directory as well. Raise BbfsError."""
    node = await catalog.find(path)
    record = node.record or node.candidate
    if record is not None and record.metadata.native_uri == native_uri:
        return path, record
    templates = catalog.all_templates() if node.kind == "directory" else ()
    for name in islice({uri_paths.index_name(template.mime_type) for template in templates}, _INDEX_NAMES):
        with suppress(NotFound):
            inner = (await catalog.find((*path, name))).record
            if inner is not None and inner.metadata.native_uri == native_uri:
                return (*path, name), inner
    return path, None


def _title(record: Record) -> str:
    return record.metadata.title or record.metadata.name


def _checked(query: str, limit: int) -> str:
    """Return the words of a query with single spaces. Raise InvalidUri, TooLarge."""
    if len(query) > LONGEST_QUERY:
        raise TooLarge(f"a query of more than {LONGEST_QUERY} characters")
    words = " ".join(query.split())
    if not words:
        raise InvalidUri("a query without a word")
    if not 1 <= limit <= MOST:
        raise InvalidUri(f"a limit of {limit} hits: it is from 1 to {MOST}")
    return words


def _usable(hits: Iterable[tuple[Source, Hit]], most: int) -> Iterator[tuple[Source, Hit]]:
    """Yield at most so many hits, each resource once, with texts in one printable line and of a bound."""
    seen: set[tuple[str, str]] = set()
    for source, hit in islice(hits, most):
        key = source.data.id, hit.native_uri
        if not isinstance(hit.native_uri, str) or len(hit.native_uri) > LONGEST_URI or key in seen:
            continue
        seen.add(key)
        score = hit.score if hit.score is not None and math.isfinite(hit.score) else None
        texts = (_text(hit.title, LONGEST_TITLE), _text(hit.snippet, LONGEST_SNIPPET), _text(hit.where, LONGEST_TITLE))
        yield source, Hit(hit.native_uri, score, *texts)


def _text(text: str | None, longest: int) -> str | None:
    """Return a text in one printable line, or None if nothing is left."""
    return (shortened(" ".join(printable(text[: longest * 4]).split()), longest) or None) if text else None


def _late(asked: _Asked) -> DeadlineExceeded:
    return DeadlineExceeded(f"no answer within {asked.within:g} s")


def _with_cause(source: Source, error: BbfsError) -> BbfsError:
    """Return an error that says why a source does not answer, if the last request has told."""
    cause = source.problem if isinstance(error, DeadlineExceeded) else None
    return error if cause is None else DeadlineExceeded(f"{error}; before that: {cause}")


def _problem(name: str, error: BbfsError) -> str:
    return f"{name}: {_text(str(error), LONGEST_PROBLEM) or type(error).__name__}"


def _merged(asked: _Asked) -> tuple[Found, ...]:
    """Merge the rankings. Of equal ranks, the hit of the source comes first that is configured first."""
    merged: dict[str, Found] = {}
    finders: dict[str, list[tuple[int, str]]] = {}
    for finder, ranking in asked.rankings.items():
        shown = ranking if isinstance(finder, str) else filterfalse(asked.has_changed, ranking)
        name = _finder(finder)
        for rank, found in enumerate(shown, 1):
            finders.setdefault(found.uri, []).append((rank, name))
            known = merged.get(found.uri)
            score = round((known.score if known else 0.0) + rank_score(rank, by_meaning=name == _BY_MEANING), 6)
            if known is None:
                merged[found.uri] = replace(found, score=score)
            else:
                snippet, where = (known.snippet, known.where) if known.snippet else (found.snippet, found.where)
                merged[found.uri] = replace(known, score=score, snippet=snippet, where=where)
    best = sorted(merged.values(), key=lambda found: -found.score)[: asked.limit]
    return tuple(replace(each, found_by=tuple(name for _, name in sorted(finders[each.uri]))) for each in best)


def rank_score(rank: int, *, by_meaning: bool) -> float:
    """Return what a rank, from 1 on, adds to the score of a hit. by_meaning: of the index's ranking by meaning."""
    return (_OF_MEANING if by_meaning else 1.0) / (_DAMPING + rank)


def _finder(key: object) -> str:
    """Return the name of who has made a ranking."""
    match key:
        case str():
            return key
        case (_, "meaning"):
            return _BY_MEANING
    return "index"
