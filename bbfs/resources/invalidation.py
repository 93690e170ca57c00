"""What ends the validity of what is known: a source's announcement, another machine's, a user's wish for it fresh.

Contents stay for as long as the source does not answer (S20). Between two awaits a task is alone; nothing here waits.
"""

from collections.abc import Callable, Iterable, Mapping

from bbfs.model.values import SourceEvent
from bbfs.resources.catalog.record import Path
from bbfs.resources.source import Source
from bbfs.resources.tiers import LowerTiers


class Invalidation:
    """Ends validity in the catalogs of the sources and in the tiers.

    sources: those at work, by base prefix. tell: told of a source and the paths of its catalog that are not what they
    were.
    """

    def __init__(
        self, sources: Mapping[str, Source], tiers: LowerTiers, tell: Callable[[Source, Iterable[Path]], None]
    ) -> None:
        self._sources = sources
        self._tiers = tiers
        self._tell = tell

    def event(self, source: Source, event: SourceEvent) -> None:
        """A handler says that something changed: validity ends at once (S18)."""
        if event.missed:
            self._tiers.changed(source, None)
            self._suspect_all(source)
        if event.uri is None:
            source.catalog.expire()
            return
        self._tiers.changed(source, event.uri, told=True)
        self._suspect(source, event.uri)

    def dropped(self, told_of: str, uri: str | None) -> None:
        """Another machine has heard from the source with a fingerprint that something changed, or may have."""
        for source in self._sources.values():
            if self._tiers.dropped(source, told_of, uri):
                if uri is None:
                    self._suspect_all(source)
                else:
                    self._suspect(source, uri)

    def refresh(self, source: Source, path: Path) -> None:
        """Drop what is known at and below a path of a catalog: the next use asks the source (S21)."""
        source.error = None
        source.catalog.forget(path)
        if not path:
            self._tiers.changed(source, None)
            return
        for record in source.catalog.held():
            if record.suspected and record.fetched_at is not None:
                self._tiers.changed(source, record.metadata.native_uri)

    def _suspect(self, source: Source, uri: str) -> None:
        record = source.catalog.record(uri)
        if record is not None:
            record.suspect()  # the content stays: should the source go down now, it is what there is (S20)
            if record.path:
                self._tell(source, [record.path])

    def _suspect_all(self, source: Source) -> None:
        """Changes may have been missed: everything that was loaded is asked for again when it is next wanted."""
        loaded = [record for record in source.catalog.all_records() if record.fetched_at is not None]
        for record in loaded:
            record.suspect()
        self._tell(source, [record.path for record in loaded if record.path])
