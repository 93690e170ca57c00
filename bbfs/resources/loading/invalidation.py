"""Ends validity when a source announces a change, another machine reports one, or a user asks for a refresh.

Invalidated contents stay in the caches: they are served if the source does not answer (S20). Nothing here waits.
"""

from collections.abc import Callable, Iterable, Mapping

from bbfs.model.values import Change, ChangeEvent
from bbfs.resources.cache.tier import LISTING
from bbfs.resources.catalog.folding import ChangedPaths
from bbfs.resources.catalog.record import Path
from bbfs.resources.loading.loader import ContentLoader
from bbfs.resources.source import Source


class Invalidation:
    """Ends validity in the catalogs of the sources and of what is cached.

    sources: by base prefix. notify: called with a source, the changed paths of its catalog, the event, and the native
    URI of an invalidated resource.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        loader: ContentLoader,
        notify: Callable[[Source, Iterable[Path], ChangeEvent, str | None], None],
        clock: Callable[[], float],
    ) -> None:
        self._sources = sources
        self._loader = loader
        self._notify = notify
        self._clock = clock

    def announced(self, source: Source, change: Change) -> None:
        """Take in the change that a handler reports: validity ends at once (S18)."""
        if change.uri is None:
            if change.event == "missed":
                self._loader.invalidate(source, None)
                self._invalidate_all(source)
            self._loader.relisted(source, announced=change.event == "listed")
            source.catalog.expire()
        elif change.event == "missed":
            self._expire(source, change.uri)
        elif change.paths:  # names in a folder that lists a directory at a time
            for path in change.paths:
                self.written(source, path, change.uri)
        else:
            for uri in self._loaded_below(source, change.uri) if change.below else [change.uri]:
                self._loader.invalidate(source, uri, announced=True)
                self._invalidate(source, uri)

    def dropped(self, told_of: str, uri: str | None) -> None:
        """Take in a change that another machine reports for the source with the fingerprint `told_of`."""
        for source in self._sources.values():
            if self._loader.dropped(source, told_of, uri):
                if uri is None:
                    self._invalidate_all(source)
                elif uri == LISTING:
                    source.catalog.expire()
                else:
                    self._invalidate(source, uri)

    def refresh(self, source: Source, path: Path) -> None:
        """Invalidate a path of a catalog and everything below it: the next use asks the source (S21)."""
        source.error = None
        self._loader.relisted(source)
        source.catalog.forget(path)
        for record in source.overlay.expire(path) if source.overlay is not None else ():
            if not record.invalidated:  # what was written and not listed since
                record.invalidate()
                self._loader.invalidate(source, record.metadata.native_uri)
        if not path:
            self._loader.invalidate(source, None)
            return
        for record in source.catalog.held():
            if record.invalidated and record.fetched_at is not None:
                self._loader.invalidate(source, record.metadata.native_uri)

    def written(self, source: Source, path: Path, uri: str) -> None:
        """Invalidate a name of a catalog that a program has changed in a local folder."""
        self._loader.invalidate(source, uri, announced=True)
        source.catalog.outdate(path)
        record = source.catalog.record(uri)
        if record is not None:
            record.invalidate()
        self._notify(source, [path], "changed", uri)

    @staticmethod
    def _loaded_below(source: Source, uri: str) -> list[str]:
        """Return the native URIs of the loaded resources below that of a directory."""
        loaded = (each.metadata.native_uri for each in source.catalog.all_records() if each.fetched_at is not None)
        return [each for each in loaded if each.startswith(f"{uri}/")]

    def _expire(self, source: Source, uri: str) -> None:
        """Have a content asked for again that was answered before the source began to report its changes (S18)."""
        self._loader.distrust(source, uri)
        record, now = source.catalog.record(uri), self._clock()
        if record is not None and record.fresh(now):
            record.expire(now)
            if record.path:
                self._notify(source, ChangedPaths([record.path], found="nothing"), "changed", None)

    def _invalidate(self, source: Source, uri: str) -> None:
        source.catalog.announced(uri)
        record = source.catalog.record(uri)
        if record is not None:
            record.invalidate()  # the content stays: it is served if the source goes down now (S20)
        if source.changes_under_way:  # but not if it lacks what the mount itself has written
            self._loader.overwrite(source, uri, self._clock())
        self._notify(source, [record.path] if record is not None and record.path else [], "changed", uri)

    def _invalidate_all(self, source: Source) -> None:
        """Invalidate every loaded resource, because changes may have been missed."""
        loaded = [record for record in source.catalog.all_records() if record.fetched_at is not None]
        for record in loaded:
            record.invalidate()
        paths = ChangedPaths([record.path for record in loaded if record.path], found="doubt")
        self._notify(source, paths, "missed", None)
