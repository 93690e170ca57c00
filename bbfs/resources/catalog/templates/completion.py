"""The names that a source completes in a directory (`completion/complete`), asked for and kept within bounds.

Between two awaits a task is alone; nothing here locks.
"""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from sys import getsizeof
from typing import NamedTuple

import trio
from cachetools import LRUCache

from bbfs.model import uri_paths
from bbfs.model.errors import BbfsError, InvalidUri
from bbfs.model.redaction import shown
from bbfs.model.uri_templates import patterns
from bbfs.model.uri_templates.fitting import Below, Placed, Template
from bbfs.model.uri_templates.patterns import Match, Position, Segment
from bbfs.model.values import Completion, DataSource
from bbfs.resources.catalog.base import CatalogContext, ProblemLog
from bbfs.resources.catalog.record import Path
from bbfs.sources import CanComplete
from bbfs.sources.bounded.turns import Turn

DIRECTORIES_KEPT = 1000
MAX_NAMES = 32 << 20
"""Bytes of the completed names of all directories of a source, about; one directory has half of it at most."""
MAX_REQUESTS = 300
"""Completions requested to list one directory: a source answers at most 100 values each."""
TIME_SHARE = 0.5
"""The part of a source's timeout after which the names found so far are taken."""
MAX_VALUES = 10_000
MAX_VALUE_BYTES = 8 << 20
"""Bytes of the values of one completion."""
REQUESTS_AT_ONCE = 8
_ENTRY = 700
"""Bytes of a completed name beside its texts, about."""
_USUAL = "0123456789abcdefghijklmnopqrstuvwxyz"
"""Characters with which values may continue, besides those seen."""


@dataclass(slots=True)
class Names:
    """The completed names of one directory: a resource each, or None for a directory. size: in bytes, about."""

    fetched_at: float
    found: dict[str, tuple[Template, Match] | None] = field(default_factory=dict)
    size: int = MAX_NAMES // DIRECTORIES_KEPT
    problem: str | None = None
    error: BbfsError | None = None

    def failure(self) -> BbfsError | None:
        """Return the source's error as one to raise, or None."""
        return None if self.error is None else type(self.error)(*self.error.args)


class _Question(NamedTuple):
    """A template whose next names the source may complete, with the segment and its variable."""

    template: Template
    place: Position
    segment: Segment
    variable: str


def _questions(places: Placed) -> list[_Question]:
    return [
        _Question(template, place, place.following, variable)
        for template, place in places
        if place.following is not None and (variable := place.following.only_variable) is not None
    ]


class Completions:
    """The completed names of the directories used last. places: returns the templates that fit a path."""

    def __init__(
        self, source: DataSource, handler: object, context: CatalogContext, places: Callable[[Path], Placed]
    ) -> None:
        self._source = source
        self._handler = handler if isinstance(handler, CanComplete) else None
        self._context = context
        self._places = places
        self._names: LRUCache[Path, Names] = LRUCache(MAX_NAMES, lambda names: names.size)
        self._problems = ProblemLog(source.id, context.clock)

    # -- what is cached ----------------------------------------------------------------------------------------------

    def are_asked_for(self, places: Placed) -> bool:
        """Return whether the source may be asked for names of the directory at these places."""
        return self._handler is not None and bool(_questions(places))

    def last(self, path: Path) -> Names | None:
        """Return the last answer for a directory, however old it is, or None."""
        return self._names.get(path)

    def servable(self, path: Path) -> Names | None:
        """Return the names that may be served now. Expired ones are refreshed in the background (S19)."""
        names = self._names.get(path)
        if names is None:
            return None
        policy, age = self._source.policy, self._context.clock() - names.fetched_at
        if policy.listing_ttl <= age < policy.listing_ttl + policy.max_stale:
            self._context.flights.begin(*self._flight(path))
        return names if age < policy.listing_ttl + policy.max_stale else None

    def has_below(self, path: Path) -> bool:
        """Return whether a name at or below a path was completed."""
        return any(known[: len(path)] == path and names.found for known, names in self._names.items())

    def outdate(self, path: Path, *, is_there: bool) -> None:
        """Forget the completed names of a directory unless they say of this name what is so now."""
        names = self._names.get(path[:-1])
        if names is not None and (path[-1] in names.found) is not is_there:
            del self._names[path[:-1]]

    def clear(self) -> None:
        self._names.clear()

    # -- what the source answers -------------------------------------------------------------------------------------

    async def ask(self, path: Path) -> None:
        """Ask the source for the names of a directory, or join the request under way."""
        await self._context.flights.do(*self._flight(path))

    def _flight(self, path: Path) -> tuple[Hashable, Callable[[], Awaitable[None]], float]:
        """Return the arguments of the flight that completes the names of a directory."""
        return ("complete", self._source.id, path), partial(self._gather, path), self._source.policy.timeout

    async def _gather(self, path: Path) -> None:
        """Ask for the names of a directory, within bounds, and cache them."""
        names, places = Names(self._context.clock()), self._places(path)
        inside, turn = Below(path, places), Turn()
        for question in _questions(places):
            template = question.template
            try:
                values, complete = await self._values(path, question)
            except BbfsError as error:
                names.error, complete, values = type(error)(*error.args), True, []
                names.problem = f"{shown(template.given.uri_template, 100)}: {error}"
            for number, value in enumerate(values):
                await turn.give_way()
                if names.size > MAX_NAMES // 2:
                    complete, values = False, values[:number]
                    break
                _enter(names, path, inside, question, value)
            if not complete:
                names.problem = f"{shown(template.given.uri_template, 100)}: more values than are shown ({len(values)})"
        if names.problem is not None:
            self._problems.note(names.problem)
        names.fetched_at = self._context.clock()
        before = self._names.get(path)
        self._names[path] = names
        # Readahead may have built its order of the directory already, without these names.
        if names.found.keys() != (before.found.keys() if before is not None else set()):
            self._context.completed(path)

    async def _values(self, path: Path, question: _Question) -> tuple[list[str], bool]:
        """Return the values of a variable for a directory, and whether these are all. Raise BbfsError."""
        assert self._handler is not None
        template, place, segment, variable = question
        prefix = ""
        if segment.many and len(path) > (start := template.pattern.many_from):
            prefix = "/".join(map(uri_paths.hide_component, path[start:])) + "/"
        context = {name: value for name, value in patterns.shown(place.variables).items() if isinstance(value, str)}
        context.pop(variable, None)
        complete = partial(self._handler.complete, template.given.uri_template, variable, context=context)
        return await _Values(complete).all(prefix, self._source.policy.timeout)


def _enter(names: Names, path: Path, inside: Below, question: _Question, value: str) -> None:
    """Add the name that a value makes in the directory at `path`, if any."""
    template, place, segment, variable = question
    known = {**place.variables, variable: value}
    try:
        if not template.pattern.ends_with(segment) or template.pattern.has_query:
            whole, match = template.pattern.path_of(segment, known), None
        else:
            uri = template.pattern.expand(known)
            whole = uri_paths.plain_path(uri).path
            match = Match(uri, known, whole)
    except InvalidUri:
        return
    if whole[: len(path)] != path or len(whole) <= len(path):
        return
    name = whole[len(path)]
    is_resource = match is not None and len(whole) == len(path) + 1 and not inside.leads_certainly(name)
    if name not in names.found:
        uri = match.native_uri if match is not None else ""
        names.size += _ENTRY + sum(map(getsizeof, (name, value, uri)))
    if is_resource and match is not None:
        names.found.setdefault(name, (template, match))
    else:
        names.found[name] = None


class _Values:
    """The values of a variable. A source answers at most 100, so this asks for each next letter while that brings more.

    complete: asks for the values that begin with a text.
    """

    def __init__(self, complete: Callable[[str], Awaitable[Completion]]) -> None:
        self._complete = complete
        self._slots = trio.CapacityLimiter(REQUESTS_AT_ONCE)
        self._found: dict[str, None] = {}
        self._size = 0
        self._cut = False
        self._failures: list[BbfsError] = []

    async def all(self, prefix: str, timeout: float) -> tuple[list[str], bool]:
        """Return the values that begin with `prefix`, and whether these are all. Raise the source's error if none came.

        timeout: seconds for one request.
        """
        asked, wave, enough = 0, [prefix], trio.current_time() + TIME_SHARE * timeout
        while wave:
            asked += len(wave)
            following: list[str] = []
            async with trio.open_nursery() as nursery:
                nursery.cancel_scope.deadline = enough if self._found else inf
                for start in wave:
                    nursery.start_soon(self._ask, start, following)
            if self._failures and not self._found:
                raise type(self._failures[0])(*self._failures[0].args)
            self._cut = self._cut or nursery.cancel_scope.cancelled_caught or bool(self._failures)
            wave, is_full = following, self._size >= MAX_VALUE_BYTES
            if len(self._found) >= MAX_VALUES or is_full or trio.current_time() >= enough:
                self._cut, wave = self._cut or bool(wave) or is_full, []
            elif asked + len(wave) > MAX_REQUESTS:
                self._cut, wave = True, wave[: MAX_REQUESTS - asked]
        return [value for value in self._found if value.startswith(prefix)][:MAX_VALUES], not self._cut

    async def _ask(self, start: str, following: list[str]) -> None:
        """Ask for the values that begin with `start`. Add to `following` what to ask for next."""
        try:
            async with self._slots:
                got = await self._complete(start)
        except BbfsError as error:
            self._failures.append(error)
            return
        new = [value for value in got.values if value not in self._found]
        for value in new:
            if self._size < MAX_VALUE_BYTES:
                self._found[value] = None
                self._size += getsizeof(value)
        if got.more and not got.final and (new or all(value.startswith(start) for value in got.values)):
            later = (value for value in self._found if value.startswith(start) and len(value) > len(start))
            seen = {value[len(start)] for value in later}
            following.extend(start + letter for letter in sorted(seen | set(_USUAL)))
        elif got.more:
            self._cut = True
