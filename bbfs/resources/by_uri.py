"""Resources by their URI, listed or not: what programs without paths list, load, write and remove."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

import trio

from bbfs.model import uri_paths
from bbfs.model.errors import BbfsError, NotFound, NotSupported
from bbfs.model.uri_templates.expand import expand_template
from bbfs.model.values import Change, Part, ResourceMetadata
from bbfs.resources.catalog.base import is_directory
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.contents import Contents
from bbfs.resources.loading.loader import ContentLoader
from bbfs.resources.loading.publish import Publisher
from bbfs.resources.source import Source
from bbfs.resources.tree import Roots, Tree
from bbfs.runtime.changes import Bus

LOADS_AT_ONCE = 64
"""Concurrent loads of one `load_many`, besides the bound of each source."""


@dataclass(frozen=True, slots=True)
class LoadedResource:
    """One item of `load_many`: content and metadata, or its own error."""

    uri: str
    metadata: ResourceMetadata | None = None
    parts: tuple[Part, ...] = ()
    error: BbfsError | None = None


class ByUri:
    """The resources of all sources, by bbfs URI.

    changed: called with a source and the changed paths of its catalog. clock: seconds since the epoch.
    """

    def __init__(
        self,
        roots: Roots,
        tree: Tree,
        contents: Contents,
        loader: ContentLoader,
        publisher: Publisher,
        changes: Bus[Change],
        changed: Callable[[Source, Iterable[Path]], None],
        clock: Callable[[], float],
    ) -> None:
        self._roots = roots
        self._tree = tree
        self._contents = contents
        self._loader = loader
        self._publisher = publisher
        self._changes = changes
        self._changed = changed
        self._clock = clock

    def record_of(self, uri: str) -> tuple[Source, Record]:
        """Return the record of a bbfs URI, listed or not. Raise InvalidUri, or NotFound for an unknown source."""
        source, normal, native_uri = self._roots.parsed(uri)
        return source, source.catalog.record_of(normal, native_uri)

    async def list_below(self, source_id: str, path: str = "", depth: int | None = None) -> list[ResourceMetadata]:
        """Return the resources of a source below `path` (names as the mount shows them), down to `depth` directories.

        depth: 1 is the directory itself, None all of it. Directories of a hierarchical source are among the answers.
        Raises NotFound or the source's error.
        """
        source = self._roots.named(source_id)
        if depth is not None and depth < 1:
            raise NotSupported(f"depth is {depth}: it counts levels and begins at 1")
        if not source.data.capabilities.list:
            raise NotSupported(f"{source.data.id} cannot be listed")
        start = tuple(name for name in path.split("/") if name)
        if source.data.scheme is not None and source.is_split_by_scheme:
            start = (source.data.scheme, *start)
        found: list[ResourceMetadata] = []
        pending: list[tuple[Path, int]] = [(start, 1)]
        while pending:
            directory, level = pending.pop()
            try:
                view = await self._tree.below(source, directory)
            except NotFound:
                if path or directory != start:
                    raise
                return []  # a source of one scheme that lists nothing yet has no directory for it
            for name, shown in view:
                metadata = view.metadata(shown)
                if metadata is not None:
                    found.append(metadata)
                deeper = depth is None or level < depth
                if is_directory(shown) and deeper and level < uri_paths.MAX_DEPTH:
                    pending.append(((*directory, name), level + 1))
        return found

    # -- loading -----------------------------------------------------------------------------------------------------

    async def load(self, uri: str) -> LoadedResource:
        """Return content and metadata of one resource, listed or not. Raises InvalidUri or the source's error."""
        source, record = self.record_of(uri)
        if not record.path:
            record = await self._part_of(record) or record
        content = self._contents.content_now(record)
        kept = self._publisher.kept(record, counts=True) if content is None and record.fresh(self._clock()) else None
        contents = [content] if content is not None else kept or await self._loader.contents(source, record)
        described = self._contents.described(record)
        if record.parts is None:
            return LoadedResource(uri, described, (Part(None, record.metadata.mime_type, contents[0]),))
        parts = sorted(record.parts.values(), key=lambda part: part.part)
        loaded = (Part(p.metadata.native_uri, p.metadata.mime_type, contents[p.part]) for p in parts)
        return LoadedResource(uri, described, tuple(loaded))

    async def _part_of(self, unlisted: Record) -> Record | None:
        """Return the part of a resource with several contents that a URI names (S2, S5), or None."""
        source = self._roots.of(unlisted)
        above, _, segment = unlisted.metadata.native_uri.rpartition("/")
        known = source.catalog.record(above)
        if known is not None and known.on_open:
            return (known.parts or {}).get(uri_paths.show_component(segment))
        listed = source.catalog.records.get(above) or source.catalog.records.get(above + "/")
        if listed is None:
            return None
        if listed.parts is None:
            await self._loader.contents(source, listed)
        return (listed.parts or {}).get(uri_paths.show_component(segment))

    async def load_many(
        self,
        mode: Literal["template", "direct"],
        *,
        uri_template: str | None = None,
        template_resources: Sequence[Mapping[str, str | Sequence[str]]] = (),
        direct_uris: Sequence[str] = (),
    ) -> list[LoadedResource]:
        """Load many resources at once, in the order asked for; each has its content and metadata, or its own error.

        template: `uri_template` is expanded with each mapping of `template_resources`. direct: `direct_uris` as they
        are. Raises NotSupported only when the arguments do not fit the mode.
        """
        if mode == "template" and uri_template and not direct_uris:
            asked = [partial(expand_template, uri_template, values) for values in template_resources]
        elif mode == "direct" and uri_template is None and not template_resources:
            asked = [partial(str, uri) for uri in direct_uris]
        else:
            raise NotSupported(
                "mode 'template' takes uri_template and template_resources, mode 'direct' takes direct_uris"
            )
        results: dict[int, LoadedResource] = {}
        slots = trio.Semaphore(LOADS_AT_ONCE)

        async def load(position: int, make_uri: Callable[[], str]) -> None:
            uri = uri_template or ""
            try:
                uri = make_uri()
                async with slots:
                    results[position] = await self.load(uri)
            except BbfsError as error:
                results[position] = LoadedResource(uri, error=error)

        async with trio.open_nursery() as nursery:
            for position, make_uri in enumerate(asked):
                nursery.start_soon(load, position, make_uri)
        return [results[position] for position in range(len(asked))]

    # -- writing -----------------------------------------------------------------------------------------------------

    async def relist(self, source: Source, changed: Path | None = None) -> None:
        """Let the next lookup find what has changed, in other mounts as well.

        changed: the path of it from the mount's root, if it is known. The kernel may have that name as absent.
        """
        told = changed or (source.data.uri_prefix,)
        self._changes.notify(Change(source.data.id, "changed", None, frozenset((told,)), own=True))
        source.catalog.expire()  # what is being listed now may not have it
        with suppress(BbfsError):  # the write succeeded; the next lookup reports the error of the listing
            await source.catalog.relist()
        with suppress(NotFound):  # the mount that had it at this path may have named its sources otherwise
            found, below = self._tree.place(changed) if changed else (None, ())
            if found is source:
                if source.overlay is not None:
                    source.overlay.expire(below)
                self._changed(source, [below])
