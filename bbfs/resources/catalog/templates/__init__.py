"""Resources of a source's templates, beyond its listing; each gets a record when it is looked up.

Any name that fits a template may be a resource. A lookup asks the source nothing; the record stands for the resource
until a load tells whether it exists, and that answer is cached for a while. A directory shows the names that the source
completes (`completion/complete`), within bounds.

Between two awaits a task is alone; nothing here locks.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from sys import getsizeof

from cachetools import LRUCache

from bbfs.model import uri_paths
from bbfs.model.errors import BbfsError, InvalidUri, NotFound
from bbfs.model.redaction import shown
from bbfs.model.uri import source_uri
from bbfs.model.uri_templates import patterns
from bbfs.model.uri_templates.fitting import Below, Index, Placed, Template, sorted_out
from bbfs.model.uri_templates.patterns import Match, Pattern
from bbfs.model.values import DataSource, ResourceMetadata, ResourceTemplate
from bbfs.resources.cache.metadata import Remembered
from bbfs.resources.catalog.base import CatalogContext, Children
from bbfs.resources.catalog.lookups import is_probe
from bbfs.resources.catalog.record import DIRECTORY, Node, Path, Record, record_node
from bbfs.resources.catalog.templates.completion import Completions, Names
from bbfs.resources.catalog.templates.slashes import slashed
from bbfs.sources.bounded.turns import InTurns

MAX_UNLISTED = 10_000
"""Unlisted resources whose record is kept; beyond that, only their versions."""
OPENED_KEPT = 1000
OPENED_FOR = 1.0
"""Seconds for which a name is a file for a program that opens it, and no directory above others."""
_NAMED = 3
"""Templates without paths that a problem names; it counts the others."""
_RECORD = 2000
"""Bytes of a record beside its texts, about."""
_DIRECTORY_TYPES = frozenset(("inode/directory", "application/x-directory", "httpd/unix-directory", "text/directory"))
MAX_UNLISTED_BYTES = 64 << 20
"""Bytes of these records, about."""


def _weight(record: Record) -> int:
    """Return about how many bytes a record takes, at least the share of one of `MAX_UNLISTED`."""
    known = record.metadata
    texts = (known.uri, known.native_uri, known.name, *record.path, *map(str, (known.variables or {}).values()))
    return max(MAX_UNLISTED_BYTES // MAX_UNLISTED, _RECORD + sum(map(getsizeof, texts)))


class Unlisted(LRUCache[str, Record]):
    """The records of unlisted resources, by native URI. dropped: called with the learnt state of each evicted one."""

    def __init__(self, dropped: Callable[[str, Remembered], None]) -> None:
        super().__init__(MAX_UNLISTED_BYTES, _weight)
        self._dropped = dropped

    def take(self, uri: str) -> Remembered | None:
        """Remove a resource that is listed now. Return its learnt state, or None."""
        record = self.pop(uri, None)
        return record.to_remember() if record is not None and record.digest is not None else None

    def popitem(self) -> tuple[str, Record]:
        uri, record = super().popitem()
        if record.digest is not None:
            self._dropped(uri, record.to_remember())
        return uri, record


class _Shown(Mapping[str, Node]):
    """The unlisted names of a directory. The record of a completed one is made when its node is asked for."""

    def __init__(self, literal: Mapping[str, Node], completed: Collection[str], node: Callable[[str], Node]) -> None:
        self._literal = literal
        self._completed = completed
        self._node = node

    def __getitem__(self, name: str) -> Node:
        return self._literal[name] if name in self._literal else self._node(name)

    def __contains__(self, name: object) -> bool:
        return name in self._literal or name in self._completed

    def __iter__(self) -> Iterator[str]:
        yield from self._literal
        yield from (name for name in self._completed if name not in self._literal)

    def __len__(self) -> int:
        return len(self._completed) + sum(name not in self._completed for name in self._literal)


class Templated:
    """The resources of one source's templates.

    listed: returns the record of a listed resource by its native URI, or None. recalled: returns the learnt state of an
    evicted one, or None.
    """

    def __init__(
        self,
        source: DataSource,
        handler: object,
        context: CatalogContext,
        listed: Callable[[str], Record | None],
        unlisted: Unlisted,
        recalled: Callable[[str], Remembered | None],
    ) -> None:
        self.problem: str | None = None
        self._source = source
        self._context = context
        self._listed = listed
        self._unlisted = unlisted
        self._recalled = recalled
        self._templates: tuple[Template, ...] = ()
        self._index = Index(())
        self._refused = Index(())
        self._completions = Completions(source, handler, context, self._places)
        self._opened: LRUCache[Path, float] = LRUCache(OPENED_KEPT)

    async def install(self, templates: Sequence[ResourceTemplate]) -> None:
        """Take over the templates of a new listing. One that makes no paths is left out, and `problem` says so."""
        made: list[Template] = []
        problems: list[str] = []
        async for given in InTurns(templates):
            try:
                made.append(Template(given, Pattern(given.uri_template)))
            except InvalidUri as error:
                problems.append(str(error))
        more = [f"{len(problems) - _NAMED} more make no paths"] if len(problems) > _NAMED else []
        self.problem = "; ".join([*(shown(each, 100) for each in problems[:_NAMED]), *more]) or None
        if [each.given for each in made] != [each.given for each in self._templates]:
            self._completions.clear()
        self._templates = tuple(made)
        self._index = Index([each for each in made if not each.given.refused])
        self._refused = Index([each for each in made if each.given.refused])

    # -- without waiting ---------------------------------------------------------------------------------------------

    def directories(self, paths: Sequence[Path]) -> list[Path]:
        """Return the directories that the templates make: always, and out of the listed resources at `paths` (S5).

        A listed resource becomes one only if it is of a template (`db://{table}`) that another goes on from
        (`db://{table}/rows/{id}`); that any name could stand in its place says nothing of the resource itself.
        """
        always = [template.pattern.literal for template in self._templates if not template.given.refused]
        return [*always, *(path for path in paths if self._is_both(path))]

    def _is_both(self, path: Path) -> bool:
        files, leading = sorted_out(self._places(path))
        return bool(files and leading)

    def _places(self, path: Path, index: Index | None = None) -> Placed:
        fitting = (index or self._index).fitting(path)
        found = ((template, template.pattern.place(path)) for template in fitting)
        return [(template, place) for template, place in found if place is not None]

    def _refused_places(self, path: Path) -> Placed:
        """Return the places of a name with a query in refused templates, or of a directory above such names."""
        places = self._places(path, self._refused)
        return [each for each in places if "?" in path[-1] or each[1].match is None]

    def node(self, path: Path) -> Node | None:
        """Return the node at an unlisted path as far as cached, or None where no template fits.

        Raise NotFound for a resource that the source said a moment ago not to have.
        """
        names = self._completions.last(path[:-1])
        if names is not None and path[-1] in names.found:
            found = names.found[path[-1]]
            return DIRECTORY if found is None else replace(self._resource(self._record(*found, path)), completed=True)
        if (call := self._slashed(path)) is not None:
            return call
        places = self._places(path)
        if places and is_probe(path[-1]):
            return None
        if not places and (own := self._own_content(path)) is not None:
            return own
        places = places or self._refused_places(path)
        files, certain = sorted_out(places)
        both = [(template, place) for template, place in places if place.leads and place.match is not None]
        for template, place in () if certain else (*both, *files):
            match = place.match
            assert match is not None
            if match.path != path:
                if match.path[:-1] == path[:-1]:
                    return Node("symlink", target=match.path[-1])
                continue
            record = self._record(template, match, path)
            return self._undecided(path, record) if both else self._resource(record)
        return DIRECTORY if certain or both else None

    def _slashed(self, path: Path) -> Node | None:
        """Return the node of a call with slashes in a value, or None for any other path.

        A name that may lead on is a directory until a program opens it.
        """
        first = next((depth for depth, name in enumerate(path) if "?" in name), len(path))
        for template in (*self._index.fitting(path[: first + 1]), *self._refused.fitting(path[: first + 1])):
            given = template.given
            found = slashed(path, given) if given.slashed or given.choices else None
            place = template.pattern.place((*path[:first], found.name)) if found is not None else None
            if found is None or place is None or place.match is None:
                continue
            record = self._record(template, place.match, place.match.path)
            if record.path == path and record.parts is not None:
                return self._resource(record)
            if not (found.ends or self._is_opened(path, record)):
                return Node("directory", candidate=record)
            if record.path == path:
                return self._resource(record)
            target = "../" * (len(path) - 1 - first) + record.path[-1]
            return Node("symlink", target=target, candidate=None if found.ends else record)
        return None

    def open_as_file(self, path: Path) -> None:
        """Note that a program opens a call whose name may lead on: for a moment the name is a file."""
        node = self._slashed(path)
        also = [node.candidate.path] if node is not None and node.candidate is not None else []
        for each in (path, *also):  # as a file, the name may be a link to the one with escaped slashes
            self._opened[each] = self._context.clock()

    def _is_opened(self, path: Path, record: Record) -> bool:
        """Return whether a program is opening a call whose name may lead on, and the call has not been made yet."""
        opened = self._opened.get(path)
        if opened is None or self._context.clock() >= opened + OPENED_FOR:
            return False
        return record.path == path or record.fetched_at is None or record.fetched_at < opened

    def _resource(self, record: Record) -> Node:
        if self._absent(record):
            raise NotFound(str(record.error))
        return record_node(record)

    def _absent(self, record: Record) -> bool:
        return isinstance(record.error, NotFound) and self._context.clock() < record.error_until

    def _undecided(self, path: Path, record: Record) -> Node:
        """Return the node of a name that may be a resource or the beginning of others; only the source can tell."""
        if self._completions.has_below(path):
            return DIRECTORY
        if self._absent(record) and self._has_below(path):
            return DIRECTORY
        if record.fetched_at is not None and record.metadata.mime_type not in _DIRECTORY_TYPES:
            return self._resource(record) if not self._absent(record) else Node("directory", candidate=record)
        return Node("directory", candidate=record)

    def _has_below(self, path: Path) -> bool:
        """Return whether a resource below a path is known to exist."""
        return any(
            record.path[: len(path)] == path and not record.provisional and not self._absent(record)
            for record in self._unlisted.values()
            if len(record.path) > len(path)
        )

    def _own_content(self, path: Path) -> Node | None:
        """Return the own content of a directory, by its name in there (S5), or None."""
        for template, match in self._owners(path[:-1]):
            if path[-1] == uri_paths.index_name(template.given.mime_type):
                return self._resource(self._record(template, match, path))
        return None

    def native_uri(self, path: Path) -> str | None:
        """Return the native URI of a resource that a template makes at a path, whether or not it exists, or None."""
        files, certain = sorted_out(self._places(path))
        matches = [place.match for _, place in files if place.match is not None and not certain]
        return next((match.native_uri for match in matches if match.path == path), None) or self.own_uri(path)

    def own_uri(self, path: Path) -> str | None:
        """Return the native URI of a resource that may be there and whose own content has this name (S5), or None."""
        found = (each for each in self._owners(path[:-1]) if path[-1] == uri_paths.index_name(each[0].given.mime_type))
        return next((match.native_uri for _, match in found), None)

    def _owners(self, directory: Path) -> list[tuple[Template, Match]]:
        """Return the resources at a path that is a directory for certain, because others are below it."""
        files, leading = sorted_out(self._places(directory))
        return [
            (template, place.match)
            for template, place in files
            if leading and place.match is not None and self._listed(place.match.native_uri) is None
        ]

    def above(self, path: Path) -> tuple[Record, Path] | None:
        """Return the resource of several contents above a path, with the rest of the path, or None."""
        parted = [record for record in self._unlisted.values() if record.parts is not None and record.path]
        for record in sorted(parted, key=lambda record: -len(record.path)):
            depth = len(record.path)
            if record.path == path[:depth] and depth < len(path) and self._makes(record):
                return record, path[depth:]
        return None

    def _makes(self, record: Record) -> bool:
        """Return whether a template still makes a resource."""
        matches = (place.match for _, place in self._places(record.path))
        return any(match is not None and match.native_uri == record.metadata.native_uri for match in matches)

    def _record(self, template: Template, match: Match, path: Path) -> Record:
        return self._made(match.native_uri, path, lambda: self._metadata(template, match))

    def mentioned(self, native_uri: str, path: Path) -> Node:
        """Return the node of a resource that an answer of the source has named. Raise NotFound as `node` does."""
        metadata = ResourceMetadata(source_uri(self._source.base_prefix, native_uri), native_uri, path[-1])
        return self._resource(self._made(native_uri, path, lambda: metadata))

    def _made(self, uri: str, path: Path, describe: Callable[[], ResourceMetadata]) -> Record:
        """Return the record of a resource at a path; of one that is not listed, a provisional one."""
        record = self._listed(uri) or self._unlisted.get(uri)
        if record is None or not record.path:
            known = record.to_remember() if record is not None else self._recalled(uri)
            record = Record(self._context.key, describe(), path, self._context.clock())
            record.provisional = True
            if known is not None:
                record.recall(known)
                record.invalidated = True  # it may have changed meanwhile
            self._unlisted[uri] = record
        return record

    def _metadata(self, template: Template, match: Match) -> ResourceMetadata:
        given = template.given
        return ResourceMetadata(
            uri=source_uri(self._source.base_prefix, match.native_uri),
            native_uri=match.native_uri,
            name=match.path[-1],
            description=given.description,
            mime_type=given.mime_type,
            uri_template=given.uri_template,
            annotations=given.annotations,
            mcp_data=given.mcp_data,
            variables=patterns.shown(match.variables),
            on_open=given.on_open,
        )

    def of_uri(self, uri: str, native_uri: str) -> Record:
        """Return the record of an unlisted resource, with its path if a template has it."""
        record = self._unlisted.get(native_uri)
        if record is not None:
            return record
        path = uri_paths.plain_path(native_uri).path
        for template, place in self._places(path):
            if place.match is not None and place.match.native_uri == native_uri:
                return self._record(template, place.match, path)
        name = native_uri.rstrip("/").rpartition("/")[2] or native_uri
        record = Record(self._context.key, ResourceMetadata(uri, native_uri, name), (), self._context.clock())
        self._unlisted[native_uri] = record
        return record

    def absence(self, path: Path) -> float:
        """Return the seconds for which the source's word holds that a resource is absent; infinite without it."""
        now = self._context.clock()
        left = [
            record.error_until - now
            for _, place in self._places(path)
            if place.match is not None
            and (record := self._unlisted.get(place.match.native_uri)) is not None
            and self._absent(record)
        ]
        return min(left, default=inf)

    def given_at(self, path: Path) -> list[ResourceTemplate]:
        """Return the templates whose resources, or next variables, are the names of a directory."""
        found: list[ResourceTemplate] = []
        for template, place in self._places(path):
            following = place.following
            if following is not None and (following.name is None or template.pattern.ends_with(following)):
                found.append(template.given)
        return found

    def outdate(self, path: Path, *, is_there: bool) -> None:
        """Forget the completed names of a directory unless they say of this name what is so now."""
        self._completions.outdate(path, is_there=is_there)

    def expire(self) -> list[Path]:
        """Invalidate completed names and absences. Return the paths that were absent."""
        if self._templates:
            self._completions.clear()
        absent = [record for record in self._unlisted.values() if self._absent(record)]
        for record in absent:
            record.error = None
        return [record.path for record in absent if record.path]

    # -- the names of a directory ------------------------------------------------------------------------------------

    def completes(self, path: Path) -> bool:
        """Return whether the source may be asked for unlisted names of a directory."""
        return self._completions.are_asked_for(self._places(path))

    def cached_children(self, path: Path) -> Children | None:
        """Return the unlisted names of a directory, or None if the source must be asked for them."""
        places = self._places(path)
        if not self._completions.are_asked_for(places):
            return self._literal(path, places)
        names = self._completions.servable(path)
        return None if names is None else self._children(path, places, names)

    def failure(self, path: Path) -> BbfsError | None:
        """Return the error of the cached answer for the unlisted names of a directory, or None."""
        names = self._completions.last(path)
        return None if names is None else names.failure()

    async def children(self, path: Path) -> Children:
        """As `cached_children`, asking the source. Raise its error if there are no names to show."""
        children = self.cached_children(path)
        if children is not None:
            return children
        await self._completions.ask(path)
        places, names = self._places(path), self._completions.last(path)
        if names is None or not self._completions.are_asked_for(places):
            return self._literal(path, places)
        children = self._children(path, places, names)
        if not children and (failure := names.failure()) is not None:
            raise failure
        return children

    def _literal(self, path: Path, places: Placed) -> dict[str, Node]:
        """Return the names that exist for any variables, and the directory's own content."""
        children: dict[str, Node] = {}
        inside = Below(path, places)
        for template, place in places:
            if place.following is None or place.following.name is None:
                continue
            below = (*path, place.following.name)
            if template.pattern.ends_with(place.following) and not inside.leads_certainly(below[-1]):
                inner = template.pattern.place(below)
                if inner is None or inner.match is None or template.pattern.has_query:
                    continue
                children.setdefault(below[-1], record_node(self._record(template, inner.match, below)))
            else:
                children[below[-1]] = DIRECTORY
        for template, match in self._owners(path):
            name = uri_paths.index_name(template.given.mime_type)
            children.setdefault(name, record_node(self._record(template, match, (*path, name))))
        return children

    def _children(self, path: Path, places: Placed, names: Names) -> Children:
        def node(name: str) -> Node:
            found = names.found[name]
            return DIRECTORY if found is None else record_node(self._record(*found, (*path, name)))

        return _Shown(self._literal(path, places), names.found, node)
