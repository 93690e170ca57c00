"""All resources of all sources as one list, a page at a time.

Tasks of their own list all sources at once, and a client waits up to `WAIT` for them. The list leaves out a source that
is down or has not answered by then, and the log names it; clients are notified when it answers later. A flat source has
its first `MOST_LISTED` resources in the list. A hierarchical source has the files of its upper `LEVELS` levels, without
hidden names, up to `MOST_WALKED` of up to `MOST_DIRECTORIES` directories. load_datasource and the templates reach the
rest.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import trio

from bbfs.model.errors import BbfsError
from bbfs.model.uri_paths import MAX_DEPTH
from bbfs.model.values import ResourceTemplate
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.server.errors import Fault
from bbfs.server.listing import templates
from bbfs.server.listing.walk import Found, Walk, page_token, place_of, texts_of

log = logging.getLogger(__name__)

WAIT = 5.0
"""Seconds."""
PAGE = 200
MOST_LISTED = 10_000
LEVELS = 3
MOST_WALKED = 1000
MOST_DIRECTORIES = 200
_LIST, _TEMPLATES = "resources/list", "resources/templates/list"


@dataclass(slots=True)
class _Look:
    """One listing of a source. found: the files of a hierarchical source, upper levels first."""

    began: float
    done: trio.Event = field(default_factory=trio.Event)
    error: BbfsError | None = None
    missed: bool = False
    found: list[Found] = field(default_factory=list)


class Offering:
    """The list of one server. nursery: for the tasks that list sources. appeared: called when the list has grown.

    wait: seconds for the sources to answer.
    """

    def __init__(
        self, manager: ResourceManager, nursery: trio.Nursery, appeared: Callable[[], None], wait: float = WAIT
    ) -> None:
        self.wait = wait
        self._manager = manager
        self._nursery = nursery
        self._appeared = appeared
        self._looks: dict[str, _Look] = {}
        self._problems: dict[str, str] = {}

    async def resources(self, cursor: str | None) -> tuple[list[Record], str | None]:
        """Return one page and the cursor of the next. Unchanged resources appear exactly once in all pages.

        Raises Fault for a cursor that is not from this server.
        """
        first, count, after = _resources_place(cursor)
        page: list[Record] = []
        for source, look in await self._answering(first):
            if source.data.base_prefix != first:
                count, after = 0, None
            found, more = await self._found(source, look, count, after, PAGE - len(page))
            page += [each.record for each in found if each.record is not None]
            count += len(found)
            if more or len(page) >= PAGE:
                last = list(found[-1].path) if found else list(after or ())
                return page, page_token([_LIST], [source.data.base_prefix, count, last])
        return page, None

    async def templates(self, cursor: str | None) -> tuple[list[ResourceTemplate], str | None]:
        """Return one page of all templates, and the cursor of the next. Raises Fault as `resources` does."""
        first, skip = _templates_place(cursor)
        page: list[ResourceTemplate] = []
        for source, _ in await self._answering(first):
            every = templates.templates_of(source, "+")
            begin = skip if source.data.base_prefix == first else 0
            room = PAGE - len(page)
            page += every[begin : begin + room]
            if len(every) - begin > room:
                return page, page_token([_TEMPLATES], [source.data.base_prefix, begin + room])
        return page, None

    async def _answering(self, first: str | None) -> list[tuple[Source, _Look]]:
        """Return the sources from `first` on that answered in time, in the order of the configuration."""
        sources = [source for source in self._manager.sources.values() if source.data.capabilities.list]
        names = [source.data.base_prefix for source in sources]
        if first is not None:
            if first not in names:
                raise Fault("invalid_token", "the cursor belongs to a source that is not there")
            sources = sources[names.index(first) :]
        return await self.listed(sources)

    async def listed(self, sources: Iterable[Source]) -> list[tuple[Source, _Look]]:
        """List sources, and return those that answered in time. The log names the others."""
        sources = list(sources)
        now = trio.current_time()
        looks = {source.data.base_prefix: self._look(source) for source in sources}
        with trio.move_on_at(now + self.wait):
            for look in looks.values():
                if now < look.began + self.wait:  # an earlier request has waited for it already
                    await look.done.wait()
        answered: list[tuple[Source, _Look]] = []
        for source in sources:
            look = looks[source.data.base_prefix]
            if not look.done.is_set():
                look.missed = True
                self.note(source, f"no answer within {self.wait:g} s")
            elif look.error is None:
                self._problems.pop(source.data.id, None)
                answered.append((source, look))
        return answered

    def _look(self, source: Source) -> _Look:
        """Return the look at a source under way, or start one."""
        look = self._looks.get(source.data.base_prefix)
        if look is None or look.done.is_set():
            look = self._looks[source.data.base_prefix] = _Look(trio.current_time())
            self._nursery.start_soon(self._look_at, source, look)
        return look

    async def _look_at(self, source: Source, look: _Look) -> None:
        try:
            look.found = await _walked(source)
        except BbfsError as error:
            look.error = error
            self.note(source, str(error))
        finally:
            look.done.set()
        if look.missed and look.error is None:
            self._appeared()

    async def _found(
        self, source: Source, look: _Look, count: int, after: Path | None, room: int
    ) -> tuple[list[Found], bool]:
        """Return up to `room` resources of a source behind `after`, and whether there are more."""
        if not source.catalog.lists_all:
            rest = [each for each in look.found if after is None or _level(each.path) > _level(after)]
            return rest[:room], len(rest) > room
        room = min(room, MOST_LISTED - count)
        walk = Walk(source, (), None, room, after)
        try:
            if room > 0:
                await walk.run()
        except BbfsError as error:
            self.note(source, str(error))
        return walk.found, walk.more and count + len(walk.found) < MOST_LISTED

    def note(self, source: Source, problem: str) -> None:
        """Log once why the lists leave a source out."""
        if self._problems.get(source.data.id) != problem:
            self._problems[source.data.id] = problem
            log.warning("%s: left out of the lists: %s", source.data.id, problem)


async def _walked(source: Source) -> list[Found]:
    """List a source; return the files of the upper levels of a hierarchical one, level by level."""
    if source.catalog.lists_all:
        await Walk(source, (), 1, 0).run()
        return []
    found: list[Found] = []
    level: list[Path] = [()]
    levels = visited = 0
    while level and levels < LEVELS:
        following: list[Path] = []
        before = len(found)
        for directory in level[: MOST_DIRECTORIES - visited]:
            visited += 1
            walk = Walk(source, directory, 1, MOST_WALKED - len(found) + 1, hidden=False)
            try:
                await walk.run()
            except BbfsError:
                if not directory:
                    raise
                continue  # load_datasource gives the error
            following += [each.path for each in walk.found if _is_directory(each.record)]
            found += [each for each in walk.found if each.record and each.record.metadata.kind == "resource"]
            if len(found) >= MOST_WALKED:
                return found[:MOST_WALKED]
        if len(found) > before or len(following) != 1:  # a single directory is no level
            levels += 1
        level = following if len(following) != 1 or len(following[0]) < MAX_DEPTH else []
    return found


def _is_directory(record: Record | None) -> bool:
    """Return whether an entry is a directory: without a record, it follows from URIs."""
    return record is None or record.metadata.kind == "directory"


def _level(path: Path) -> tuple[int, Path]:
    return len(path), path


def _resources_place(cursor: str | None) -> tuple[str | None, int, Path | None]:
    if cursor is None:
        return None, 0, None
    match place_of([_LIST], cursor):
        case [str(first), int(count), list(after)] if count >= 0:
            return first, count, texts_of(after) or None
    raise Fault("invalid_token", "not a cursor of this server")


def _templates_place(cursor: str | None) -> tuple[str | None, int]:
    if cursor is None:
        return None, 0
    match place_of([_TEMPLATES], cursor):
        case [str(first), int(skip)] if skip >= 0:
            return first, skip
    raise Fault("invalid_token", "not a cursor of this server")
