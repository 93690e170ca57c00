"""The tree of a source that lists everything at once: URIs folded into directories, served stale while refreshed."""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import trio
from cachetools import LRUCache

from bbfs import tree
from bbfs.cache.metadata import Remembered
from bbfs.catalog.base import Children, Surroundings
from bbfs.catalog.templated import Templated, Unlisted
from bbfs.errors import BbfsError, DeadlineExceeded, NotADirectory, NotFound, Unreachable
from bbfs.model import DataSource, Listing, ResourceMetadata, ResourceTemplate
from bbfs.probes import is_probe
from bbfs.records import DIRECTORY, Node, Path, Record, record_node
from bbfs.sources import CanList

log = logging.getLogger(__name__)

GONE_KEPT = 100_000
"""Resources that left the listing and whose version is remembered, lest they come back changed under the same inode."""
CHASES = 3
"""How often a listing that changes while it is asked for is asked for again at once."""
FOLD_IN_THREAD = 100_000
"""Characters of URIs; longer listings are folded off the event loop (it takes about 10 ms for as many)."""
DESCRIBED_AT_ONCE = 500


def part_node(record: Record, rest: Path) -> Node:
    """The node below a resource that answered several contents. Raises NotFound."""
    node = record_node(record)
    for name in rest:
        parts = node.record.parts if node.record is not None else None
        if parts is None:
            raise NotADirectory(f"{record.metadata.name} is not a directory") if node.kind == "file" else NotFound(name)
        if name not in parts:
            raise NotFound(f"no such content: {name}")
        node = record_node(parts[name])
    return node


class FlatCatalog:
    """The tree of a source that lists all its resources at once."""

    def __init__(self, source: DataSource, handler: CanList, around: Surroundings) -> None:
        self.source = source
        self.records: dict[str, Record] = {}
        self.problem: str | None = None
        self._handler = handler
        self._around = around
        self._tree: tree.Tree | None = None
        self._listed: tuple[ResourceMetadata, ...] = ()
        self._fetched_at = 0.0
        self._ttl = 0.0
        self._confirmed = False  # whether this process has listed the source itself
        self._expiries = 0
        self._gone: LRUCache[str, Remembered] = LRUCache(GONE_KEPT)
        self._unlisted = Unlisted(self._gone.__setitem__)
        self._templated = Templated(
            source,
            handler,
            around,
            lambda uri: self.records.get(uri),
            self._unlisted,
            lambda uri: self._gone.pop(uri, None),
        )

    # -- without waiting ---------------------------------------------------------------------------------------------

    def _servable(self) -> tree.Tree | None:
        """The tree, if it may be served now; refreshed behind when it has expired (S19)."""
        if self._tree is None:
            return None
        now = self._around.clock()
        if now < self._fetched_at + self._ttl:
            return self._tree
        if self._confirmed and now < self._fetched_at + self._ttl + self.source.policy.max_stale:
            self._begin()
            return self._tree
        return None

    def known(self, path: Path) -> Node | None:
        """The node at `path`, None if the source must be asked. Raises NotFound only when the listing is fresh."""
        root = self._servable()
        if root is None:
            return DIRECTORY if not path else None
        try:
            return self._node(root, path)
        except NotFound:
            # A name that programs look for by themselves is no reason to ask.
            if self.validity(path) > 0 or is_probe(path[-1]):
                raise
            return None

    def known_children(self, path: Path) -> Children | None:
        root = self._servable()
        if root is None:
            return None
        try:
            listed = self._children(root, path)
        except NotFound:
            if self.validity(path) > 0:
                raise
            return None
        beyond = self._templated.known_children(path)
        return None if beyond is None else _merged(listed, beyond)

    def validity(self, path: Path) -> float:
        """Seconds for which names and their absence hold."""
        return max(0.0, self._fetched_at + self._ttl - self._around.clock()) if self._tree is not None else 0.0

    def _node(self, root: tree.Directory, path: Path) -> Node:
        place: tree.Directory | tree.Entry = root
        for depth, name in enumerate(path):
            if isinstance(place, tree.Entry):
                return part_node(self.records[place.native_uri], path[depth:])
            below = place.children.get(name)
            if below is None:
                alias = place.alias(name) if depth == len(path) - 1 else None
                return self._unlisted_node(path) if alias is None else Node("symlink", target=alias)
            place = below
        return DIRECTORY if isinstance(place, tree.Directory) else record_node(self.records[place.native_uri])

    def _unlisted_node(self, path: Path) -> Node:
        """What is at a path that the listing does not have. Raises NotFound."""
        node = self._templated.node(path)
        if node is not None:
            return node
        above = self._templated.above(path)
        if above is None:
            raise NotFound(f"no such resource: {'/'.join(path)}")
        return part_node(*above)

    def _children(self, root: tree.Directory, path: Path) -> Children:
        """The names of a directory as listed. Raises NotFound for one that the listing does not have."""
        place: tree.Directory | tree.Entry = root
        for depth, name in enumerate(path):
            if isinstance(place, tree.Entry):
                node = part_node(self.records[place.native_uri], path[depth:])
                return self._parts(node)
            below = place.children.get(name)
            if below is None:
                return self._unlisted_children(path)
            place = below
        if isinstance(place, tree.Entry):
            return self._parts(record_node(self.records[place.native_uri]))
        return {
            name: DIRECTORY if isinstance(child, tree.Directory) else record_node(self.records[child.native_uri])
            for name, child in place.children.items()
        }

    def _unlisted_children(self, path: Path) -> Children:
        node = self._unlisted_node(path)
        return self._parts(node) if node.kind != "directory" or node.record is not None else {}

    @staticmethod
    def _parts(node: Node) -> Children:
        if node.record is None or node.record.parts is None:
            raise NotADirectory("not a directory")
        return {name: record_node(part) for name, part in node.record.parts.items()}

    # -- waiting for a listing ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._around.flights.begin(("list", self.source.id), self._refresh, self.source.policy.timeout)

    async def refresh(self) -> None:
        """List the source now, or join the listing under way. Raises BbfsError."""
        try:
            await self._around.flights.do(("list", self.source.id), self._refresh, self.source.policy.timeout)
        except DeadlineExceeded as error:
            self.problem = str(error)
            raise

    async def _current(self) -> tuple[tree.Tree, BbfsError | None]:
        """The tree as it is, or with the outage as it was last known (S6, S20)."""
        outage: BbfsError | None = None
        try:
            await self.refresh()
        except (Unreachable, DeadlineExceeded) as error:
            if self._tree is None:
                raise
            outage = error
        assert self._tree is not None
        return self._tree, outage

    async def find(self, path: Path) -> Node:
        node = self.known(path)
        if node is not None:
            return node
        root, outage = await self._current()
        try:
            return self._node(root, path)
        except NotFound as absence:
            raise outage or absence from None

    async def children(self, path: Path) -> Children:
        children = self.known_children(path)
        if children is not None:
            return children
        listed = await self._listed_children(path)
        try:
            return _merged(listed, await self._templated.children(path))
        except BbfsError:
            if not listed:
                raise
            return _merged(listed, {})

    async def _listed_children(self, path: Path) -> Children:
        """The names of a directory as listed now, or as they are served while that is found out."""
        root = self._servable()
        if root is not None:
            with suppress(NotFound):
                return self._children(root, path)
        root, outage = await self._current()
        try:
            return self._children(root, path)
        except NotFound as absence:
            raise outage or absence from None

    def record(self, native_uri: str) -> Record | None:
        """What is known of a resource, listed or not."""
        return self.records.get(native_uri) or self._unlisted.get(native_uri)

    def all_records(self) -> list[Record]:
        return [*self.records.values(), *self._unlisted.values()]

    def record_of(self, uri: str, native_uri: str) -> Record:
        """The record of a resource by its URIs, made for one that nobody has listed."""
        return self.records.get(native_uri) or self._templated.of_uri(uri, native_uri)

    def absence(self, path: Path) -> float:
        """Seconds for which the absence of a name holds beyond that of the listing; infinite where nothing ends it."""
        return self._templated.absence(path)

    def templates(self, path: Path) -> list[ResourceTemplate]:
        """The templates that make names in a directory."""
        return self._templated.given_at(path)

    def expire(self) -> None:
        """The source says that its listing changed: ask again at the next use, and now if it was ever used."""
        self._ttl = 0.0
        self._expiries += 1
        absent = self._templated.expire()
        if absent:
            self._around.changed(absent)
        if self._confirmed:
            self._begin()

    def forget(self, path: Path) -> None:
        """As `expire`; and the contents at and below the path are asked for again as well."""
        found = [record for record in self.all_records() if _at_or_below(record.path, path)]
        for record in found:
            record.suspect()
        self._around.changed([record.path for record in found])
        self.expire()

    async def _refresh(self) -> None:
        before = self._listed
        for _ in range(CHASES):
            expiries = self._expiries
            try:
                listing = await self._handler.list()
            except BbfsError as error:
                self.problem = str(error)
                raise
            await self._install(listing, self._around.clock(), confirmed=True)
            if before != self._listed:  # writing a long listing costs more than asking for it again after a remount
                self._around.listed(self._fetched_at, listing)
            if expiries == self._expiries:
                return
            before = self._listed
        self._ttl = 0.0  # it changes faster than it can be asked for

    async def recall(self, fetched_at: float, listing: Listing) -> None:
        """Take over the listing that an earlier mount had seen; it stands in while the source does not answer."""
        if self._tree is None:
            await self._install(listing, fetched_at, confirmed=False)

    async def _install(self, listing: Listing, at: float, *, confirmed: bool) -> None:
        entries = [tree.Entry(r.native_uri, r.mime_type) for r in listing.resources]
        old_tree = self._tree
        before = {uri: record.path for uri, record in self.records.items()} if old_tree is not None else {}
        self._templated.install(listing.templates)
        fold = partial(_fold, entries, before, self._templated.directories)
        if sum(len(entry.native_uri) for entry in entries) > FOLD_IN_THREAD:
            plan = await trio.to_thread.run_sync(fold)
        else:
            plan = fold()
        if not confirmed and self._confirmed:
            return
        suspects = await self._describe(listing.resources, plan.paths, at)
        self._tree, self._listed, self._fetched_at, self._confirmed = plan.tree, listing.resources, at, confirmed
        self._ttl = self.source.policy.listing_ttl if listing.ttl is None else listing.ttl
        problem = "; ".join(filter(None, (listing.problem, self._templated.problem))) or None
        if problem and problem != self.problem:
            log.warning("%s: %s", self.source.id, problem)
        self.problem = problem
        if old_tree is not None:
            self._around.changed([*suspects, *plan.moved])

    async def _describe(self, resources: Iterable[ResourceMetadata], paths: dict[str, Path], at: float) -> list[Path]:
        """Bring the records up to date; other tasks get their turn meanwhile and see the old ones."""
        records: dict[str, Record] = {}
        suspects: list[Path] = []
        for number, metadata in enumerate(resources):
            if number % DESCRIBED_AT_ONCE == DESCRIBED_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            uri = metadata.native_uri
            path = paths[uri]
            record = self.records.get(uri)
            if record is None or record.path != path:
                known = record.to_remember() if record is not None else self._recalled(uri)
                record = Record(self.source.id, metadata, path, at)
                if known is not None:
                    record.recall(known)
                    record.suspected = True  # it may have changed meanwhile
            elif record.describe(metadata, path, at):
                suspects.append(path)
            records[uri] = record
        for uri, record in self.records.items():
            if record.digest is not None and uri not in records:
                self._gone[uri] = record.to_remember()
        self.records = records
        return suspects

    def _recalled(self, uri: str) -> Remembered | None:
        """What is known of a resource from before: an earlier listing held it, or it was asked for by its name."""
        record = self._unlisted.pop(uri, None)
        return self._gone.pop(uri, None) if record is None or record.digest is None else record.to_remember()


def _at_or_below(resource: Path, path: Path) -> bool:
    """Whether a resource is at or below a path, or is the one of several contents that the path is one of."""
    return bool(resource) and (resource[: len(path)] == path or path[: len(resource)] == resource)


class _Plan(NamedTuple):
    """A folded listing: the tree, where each URI is in it, and the paths at which there is something else now."""

    tree: tree.Tree
    paths: dict[str, Path]
    moved: list[Path]


def _merged(listed: Children, beyond: Children) -> Children:
    """All names of a directory in readdir's order; what is listed comes before what is not."""
    return dict(sorted({**beyond, **listed}.items()))


def _fold(entries: list[tree.Entry], before: dict[str, Path], directories: Callable[[list[Path]], list[Path]]) -> _Plan:
    plain = [tree.plain_path(entry.native_uri).path for entry in entries]
    folded = tree.fold(entries, directories=directories(plain))
    paths = {entry.native_uri: folded.path_of(entry.native_uri) or () for entry in entries}
    was, is_now = ({path: uri for uri, path in place.items()} for place in (before, paths))
    return _Plan(folded, paths, [path for path in was.keys() | is_now.keys() if was.get(path) != is_now.get(path)])
