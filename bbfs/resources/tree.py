"""The tree of a mount: the directories at its root, paths from there, and the nodes that they lead to.

A path leads to the source of its directory at the root. Over the catalog of that source lie the names that the mount
has changed; beside both are the views. Between two awaits a task is alone; nothing here locks.
"""

import os
from collections.abc import Callable, Collection
from contextlib import suppress

import trio

from bbfs.model import uri_paths
from bbfs.model.errors import BbfsError, NotADirectory, NotFound, Outdated
from bbfs.model.uri import FOLDER, SKILL, parse_data_source_uri, skill_parts, source_uri
from bbfs.resources.catalog import SERVED_STALE
from bbfs.resources.catalog.base import View
from bbfs.resources.catalog.lookups import ABSENT_FOR
from bbfs.resources.catalog.record import DIRECTORY, Lease, Node, Path, Record, record_node
from bbfs.resources.source import Source
from bbfs.resources.views import SourceView
from bbfs.sources import StatesBeginning


class Roots:
    """All sources of a configuration.

    sources: by base prefix, without the hidden ones. These are there for programs that ask for them by name.
    lazy: the keys of those with `sizes = "lazy"`; no key is used again.
    """

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}
        self.lazy: set[str] = set()
        self._by_key: dict[str, Source] = {}
        self._ended: dict[str, Source] = {}
        self._by_prefix: dict[str, Source] = {}
        self._keys: dict[str, int] = {}

    def new_key(self, source_id: str) -> str:
        """Return a key for the records of a source: another one for each source of one id."""
        number = self._keys[source_id] = self._keys.get(source_id, 0) + 1
        return source_id if number == 1 else f"{source_id}#{number}"

    def add(self, source: Source, *, hidden: bool) -> None:
        self._by_key[source.key] = self._by_prefix[source.data.uri_prefix] = source
        if source.data.policy.sizes == "lazy":
            self.lazy.add(source.key)
        if not hidden:
            self.sources[source.data.base_prefix] = source

    def remove(self, source: Source) -> None:
        """Let no path or URI lead to a source. Records of it still do, until `forget_ended`."""
        data = source.data
        del self._by_key[source.key], self._by_prefix[data.uri_prefix], self.sources[data.base_prefix]
        self._ended[source.key] = source

    def forget_ended(self, in_use: Collection[str]) -> None:
        """Forget the removed sources, unless their keys are among those in use."""
        self._ended = {key: source for key, source in self._ended.items() if key in in_use}

    def of(self, record: Record) -> Source:
        """Return the source of a record. Raise Outdated if it was removed and forgotten."""
        source = self._by_key.get(record.source_key) or self._ended.get(record.source_key)
        if source is None:
            raise Outdated(f"{record.metadata.uri}: its source is not in this mount any more")
        return source

    def by_key(self, key: str) -> Source:
        """Return the source with this key, hidden or not. Raise KeyError."""
        return self._by_key[key]

    def named(self, name: str) -> Source:
        """Return the source with this id, name, URI prefix or base prefix. Raise NotFound, which names the sources."""
        for source in self.sources.values():
            if name in (source.data.id, source.data.name, source.data.uri_prefix, source.data.base_prefix):
                return source
        there = ", ".join(sorted(s.data.id for s in self.sources.values())) or "none"
        raise NotFound(f"no source {name!r}; there are: {there}")

    def parsed(self, uri: str) -> tuple[Source, str, str]:
        """Return the source of a bbfs URI, its normal form, and the native URI. Raise InvalidUri, NotFound.

        `skill://ID/PATH`, as `bbfs serve` shows skills, is one for another form.
        """
        parsed = parse_data_source_uri(self._of_skill(uri) if uri.startswith(SKILL) else uri)
        source = self.sources.get(parsed.base_prefix)
        if source is None:
            there = ", ".join(sorted(self.sources)) or "none"
            raise NotFound(f"no source {parsed.base_prefix!r}; there are: {there}")
        return source, str(parsed), parsed.original_uri

    def _of_skill(self, uri: str) -> str:
        """Return the bbfs URI of a file of a skill. Raise NotFound."""
        source_id, rest = skill_parts(uri)
        data = next((each.data for each in self.sources.values() if each.data.id == source_id), None)
        if data is None or not rest or (data.mcp is None and data.type != "filesystem"):
            raise NotFound("no source has such a skill")
        return source_uri(data.base_prefix, f"{FOLDER if data.mcp is None else SKILL}{rest}")

    # -- directories at the root -------------------------------------------------------------------------------------

    def directories(self) -> dict[str, Source]:
        """Return the directories at the root: one a source, and one a stray scheme of a source with a fixed scheme."""
        roots: dict[str, Source] = {}
        for source in self.sources.values():
            roots[source.data.uri_prefix] = source
            if source.is_split_by_scheme:
                for scheme, _ in source.catalog.cached_view(()) or ():
                    roots.setdefault(f"{source.data.base_prefix}+{scheme}", source)
        return roots

    def has(self, name: str) -> bool:
        """Return whether a directory at the root has this name for as long as the mount lasts (S6)."""
        return name in self._by_prefix

    def link(self, name: str) -> str | None:
        """Return the target of a link at the root that no listing has (S2), or None.

        `mcp-server+docs+resource` leads to `mcp-server+docs/resource`, and `docs` to `mcp-server+docs` if no other
        source has this name or id.
        """
        base, plus, scheme = _split_scheme(name)
        source = self.sources.get(base)
        if source is None:
            named = [each.data.uri_prefix for each in self.sources.values() if name in (each.data.name, each.data.id)]
            return named[0] if len(named) == 1 else None
        if not plus or not scheme or source.data.scheme is not None:
            return None
        return f"{source.data.uri_prefix}/{scheme}"

    # -- paths -------------------------------------------------------------------------------------------------------

    def place(self, path: Path) -> tuple[Source, Path]:
        """Return the source of a path from the mount's root, and the path in its catalog. Raise NotFound."""
        source = self._by_prefix.get(path[0]) or self.directories().get(path[0])
        if source is None:
            raise NotFound(f"no such source: {path[0]}")
        if not source.is_split_by_scheme:
            return source, path[1:]
        return source, (path[0].removeprefix(source.data.base_prefix + "+"), *path[1:])

    def path_of(self, record: Record) -> Path:
        """Return the path of a listed resource from the mount's root."""
        return self.mounted(self.of(record), record.path)

    @staticmethod
    def mounted(source: Source, path: Path) -> Path:
        """Return the path from the mount's root of a path in the catalog of a source."""
        data = source.data
        if not data.uri_prefix:
            return path
        if not source.is_split_by_scheme:
            return (data.uri_prefix, *path)
        if not path:
            return ()  # it may have several roots
        return (f"{data.base_prefix}+{path[0]}", *path[1:])


class Tree:
    """The tree of a mount."""

    def __init__(self, roots: Roots, clock: Callable[[], float]) -> None:
        self.root_files: tuple[str, ...] = ()
        """The names of the files at the root."""
        self._roots = roots
        self._clock = clock
        self._views: list[tuple[SourceView, Source]] = []
        self._listed: dict[str, list[tuple[SourceView, Source]]] = {}
        self._marks: frozenset[str] = frozenset()
        self._view_roots: frozenset[str] = frozenset()

    def add(self, view: SourceView, source: Source) -> None:
        """Add a view over the sources that there are. Of two that have a name, the first one shows it."""
        self._views.append((view, source))
        for each in self._roots.sources.values():
            self._list_in(each, view, source)
        self.root_files += tuple(sorted(view.root_files))
        self._marks |= {*view.marks, *view.root_files, *view.roots}
        self._view_roots |= {*view.roots}

    def _list_in(self, source: Source, view: SourceView, own: Source) -> None:
        if view.is_listed_in(source):
            self._listed.setdefault(source.key, []).append((view, own))

    def added(self, source: Source) -> None:
        """Let the views show what they have beside the names of a source."""
        for view, own in self._views:
            self._list_in(source, view, own)
        self._list_roots_again()

    def removed(self, source: Source) -> None:
        """Let the views show nothing beside a source any more."""
        self._listed.pop(source.key, None)
        self._list_roots_again()

    def _list_roots_again(self) -> None:
        for view, own in self._views:
            if view.root_files:  # it lists the directories at the root
                own.catalog.forget(())

    # -- by what is cached -------------------------------------------------------------------------------------------

    def has_root(self, name: str) -> bool:
        """As `Roots.has`, or whether a view has a directory of this name there."""
        return self._roots.has(name) or name in self._view_roots

    def place(self, path: Path) -> tuple[Source, Path]:
        """Return the source of a path from the mount's root, and the path in its catalog. Raise NotFound."""
        if not self._marks.isdisjoint(path):
            for view, own in self._views:
                if view.owns(path):
                    return own, path
        return self._roots.place(path)

    def cached(self, path: Path, place: tuple[Source, Path] | None = None) -> Node | None:
        """Return the cached node at a path, or None if the source must be asked. place: if the caller has it.

        Raise NotFound.
        """
        source, below = self.place(path) if place is None else place
        if len(path) == 1 and path[0] not in self.root_files:
            return DIRECTORY
        if source.overlay is not None and (overlaid := source.overlay.cached(below)) is not None:
            return overlaid
        try:
            node = source.catalog.cached(below)
        except NotFound:
            stand_in = self._stand_in(path)
            if stand_in is None:
                raise
        else:
            if node is None or node.record is None or not self.gives_way(path, node.record):
                return node
            stand_in = self._stand_in(path)
        return None if stand_in is None else stand_in.catalog.cached(path)

    def last_cached(self, path: Path) -> Node | None:
        """Return the node at a path by the last answer of the source, however old it is, or None."""
        source, below = self.place(path)
        try:
            node = source.overlay.find(below) if source.overlay is not None else None
            node = source.catalog.last_cached(below) if node is None else node
        except (NotFound, NotADirectory):
            node = None
        if node is None and (stand_in := self._stand_in(path)) is not None:
            node = stand_in.catalog.last_cached(path)
        for view, _ in self._views if node is None else ():
            node = node or view.expected(path)
        return node

    def _stand_in(self, path: Path) -> Source | None:
        """Return the source of the view that has what the source of a path does not have, or None."""
        return next(
            (own for view, own in self._views if path[-1].endswith(view.endings) and view.stands_in(path)), None
        )

    def gives_way(self, path: Path, record: Record) -> bool:
        """Return whether a name leads into a view: its source does not have what a template makes of the name."""
        is_absent = record.provisional and self.absent_until(record) is not None
        return is_absent and self._stand_in(path) is not None

    def absent_until(self, record: Record) -> float | None:
        """Return until when the source's word holds that a resource is absent; None if it has not said so."""
        said_so = isinstance(record.error, NotFound) and self._clock() < record.error_until
        return record.error_until if said_so else None

    def opened_as_file(self, path: Path, node: Node) -> bool:
        """Return whether opening a directory means a call, whose name could also lead on; for a moment it is a file."""
        if node.kind != "directory" or node.candidate is None or not node.candidate.on_open:
            return False
        source, below = self.place(path)
        source.catalog.open_as_file(below)
        return True

    def link(self, source: Source, record: Record, native_uri: str) -> str | None:
        """Return the target of a link in the directory of `record` to another resource of the source, or None."""
        end = self.leads_to(source, native_uri) if record.path else None
        if end is None:
            return None
        start = self._roots.mounted(source, record.path)
        return os.path.relpath("/".join(("", *end)), "/".join(("", *start)))

    def leads_to(self, source: Source, native_uri: str) -> Path | None:
        """Return the path from the mount's root of a resource that an answer of its source names, or None.

        A resource that is neither listed nor made by a template has a path from now on.
        """
        catalog = source.catalog
        linked = catalog.record(native_uri)
        path = linked.path if linked is not None and linked.path else catalog.plain_path(native_uri)
        if not self._is_at(source, path, native_uri):
            mentioned = None if catalog.mentioned is None else catalog.mentioned.add(native_uri)
            if mentioned is None or not self._is_at(source, mentioned, native_uri):
                return None
            path = mentioned
        return self._roots.mounted(source, path)

    def _is_at(self, source: Source, path: Path, native_uri: str) -> bool:
        """Return whether a path in the catalog of a source leads to the resource with this native URI."""
        try:
            self.place(self._roots.mounted(source, path))
            node = source.catalog.cached(path)
        except (NotFound, NotADirectory):
            return False
        there = node.record or node.candidate if node is not None else None
        return there is not None and there.metadata.native_uri == native_uri

    # -- for how long it holds ---------------------------------------------------------------------------------------

    def lease(self, record: Record) -> Lease | None:
        """Return the promise that a listed resource stays at its path; None for an unlisted one."""
        source = self._roots.of(record)
        return source.catalog.lease(record) if record.parent is None and source.overlay is None else None

    def names_lease(self, path: Path, place: tuple[Source, Path] | None = None) -> Lease | None:
        """Return the promise that the names of a directory do not change, or None. place: if the caller has it."""
        source, below = self.place(path) if place is None else place
        return source.catalog.names_lease(below) if source.overlay is None else None

    def stated_validity(self, path: Path) -> float:
        """Return the seconds for which the sizes hold that the listing states in a directory."""
        source, below = self.place(path)
        # `cp` and `tar` would report a file that changed while they read it.
        return 0.0 if source.misstates_sizes else source.catalog.validity((*below, ""))

    def validity(self, path: Path) -> float:
        """Return the seconds for which the names in the directory of `path` hold, `SERVED_STALE` at least."""
        source, below = self.place(path)
        return max(SERVED_STALE, source.catalog.validity(below))

    def absence(self, path: Path) -> float:
        """Return the seconds for which the kernel may cache the absence of a name."""
        source, below = self.place(path)
        names_hold = max(SERVED_STALE, source.catalog.validity((*below[:-1], "")))
        return min(ABSENT_FOR, source.catalog.absence(below), names_hold)

    # -- after a listing if necessary --------------------------------------------------------------------------------

    async def find(self, path: Path, place: tuple[Source, Path] | None = None) -> Node:
        """Return the node at a path, after a listing if necessary. place: if the caller has it.

        Raise NotFound or the source's error.
        """
        source, below = place = self.place(path) if place is None else place
        node = self.cached(path, place)
        if node is not None:
            return node
        try:
            with source.waiters:
                node = await _asked(source, below)
            if node.record is not None and self.gives_way(path, node.record):
                node = await self._in_views(path, NotFound("/".join(path)), source) or node
        except BbfsError as error:
            node = await self._in_views(path, error, source)
            if node is None:
                raise
        return node

    async def find_below(self, source: Source, below: Path) -> Node:
        """As `find`, by the path in the catalog of a source."""
        return await self.find(self._roots.mounted(source, below))

    async def _in_views(self, path: Path, error: BbfsError, asked: Source) -> Node | None:
        """Return the node of a view at a path for which a source has raised an error, or None. Raise BbfsError."""
        for view, own in self._views:
            node = await self._in_view(view, own, path, error) if own is not asked else None
            if node is not None:
                return node
        return None

    @staticmethod
    async def _in_view(view: SourceView, own: Source, path: Path, error: BbfsError) -> Node | None:
        if await view.follows(path, error):
            with suppress(NotFound):
                return await own.catalog.find(path)
        return None

    async def below(self, source: Source, path: Path) -> View:
        """Return the names of a directory of the source's catalog."""
        with source.waiters:
            return await source.catalog.view(path)

    async def view(self, path: Path, place: tuple[Source, Path] | None = None) -> View:
        """Return the names of a directory in readdir's order (sorted). place: if the caller has it."""
        source, below = self.place(path) if place is None else place
        try:
            made = source.overlay is not None and source.overlay.is_made(below)
            view = View.of({}) if made else source.catalog.cached_view(below)
            if view is not None and not len(view) and (failure := source.catalog.failure(below)) is not None:
                raise failure  # it is not empty, it could not be asked for
            view = await self.below(source, below) if view is None else view
        except NotFound:
            if len(path) > 1 and not (source.overlay is not None and source.overlay.is_directory(below)):
                raise
            view = View.of({})  # S6: the directory of a fixed scheme is there, whether or not anything is listed below
        if source.overlay is not None:
            view = source.overlay.over(below, view)
        for beside, own in self._listed.get(source.key, ()):
            if beside.depth not in (None, len(path)):
                continue
            more: dict[str, Node] = {}
            for name in await beside.names(path, view):
                node = await self._in_view(beside, own, (*path, name), NotFound(name))
                if node is not None:
                    more[name] = node
            if more:
                view = view.preceded_by(more) if beside.comes_first else view.followed_by(more)
        return view

    async def children(self, path: Path) -> dict[str, Node]:
        """Return the names of a directory with their nodes. Makes the records of all resources in it."""
        view, records = await self.view(path), self.place(path)[0].catalog.records
        found: dict[str, Node] = {}
        for portion, _ in view.portions():
            for name, shown in zip(portion.names, portion.shown, strict=True):
                found[name] = record_node(records[shown]) if isinstance(shown, str) else shown
            await trio.lowlevel.checkpoint()
        return found

    # -- names that lead to nothing yet ------------------------------------------------------------------------------

    async def uri_for(self, path: Path) -> str:
        """Return the bbfs URI for a name of the mount that leads to nothing yet. Raise NotFound for no source."""
        source, below = self.place(path)
        return source_uri(source.data.base_prefix, await self.native_uri_for(source, below))

    async def native_uri_for(self, source: Source, below: Path) -> str:
        """Return the native URI for a name that the source does not have: that of its directory, and the name."""
        catalog = source.catalog
        if (native_uri := catalog.native_uri(below)) is not None:
            return native_uri
        segments = [uri_paths.hide_component(name, literal=source.data.scheme == "file") for name in below]
        for depth in range(len(below) - 1, 0, -1):
            try:
                directory = await self.find_below(source, below[:depth])
            except NotFound:
                continue  # it is new, too
            if directory.record is not None:
                return "/".join((directory.record.metadata.native_uri.rstrip("/"), *segments[depth:]))
        if isinstance(source.handler, StatesBeginning):
            return source.handler.beginning + "/".join(segments)
        if catalog.beginning is None:
            await catalog.view(())
        if catalog.beginning is None:
            return uri_paths.native_of(below, source.data.scheme)
        return catalog.beginning + "/".join(segments)


async def _asked(source: Source, below: Path) -> Node:
    """Return the node at a path after a listing. What the mount has changed since, or what no listing showed, holds.

    Raise NotFound or the source's error.
    """
    try:
        node = await source.catalog.find(below)
    except BbfsError:
        overlaid = source.overlay.find(below) if source.overlay is not None else None
        if overlaid is None:
            raise
        return overlaid
    return (source.overlay.find(below) if source.overlay is not None else None) or node


def _split_scheme(name: str) -> tuple[str, str, str]:
    """Split `a-b+c+git+ssh` into (`a-b+c`, `+`, `git+ssh`): a scheme may hold `+`, the rest of a prefix one only."""
    parts = name.split("+", 2)
    return ("+".join(parts[:2]), "+", parts[2]) if len(parts) == 3 else (name, "", "")
