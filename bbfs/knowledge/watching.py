"""Imports that go on: what changes below watched folders is imported again."""

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path

import watchfiles

from bbfs.knowledge.database.store import ImportReport, Store
from bbfs.knowledge.documents import KnowledgeError
from bbfs.knowledge.importing import files_by_source, source_file

LOOKED_AFTER = 10.0
"""Seconds between two looks where nothing is announced: inotify tells nothing of what other machines change."""

LOOKS = 20
"""Looks at files of which one has gone before it was read, until that is a failure."""

_Stamp = tuple[int, int, int, int]


class WatchedImport:
    """An import that is repeated for files that have changed. Synchronous, for one thread.

    A document whose file has gone is removed; one whose file cannot be read, or is too large, stays as it is. A folder
    that cannot be read, or is not there, leaves its documents.
    """

    def __init__(self, store: Store, collection: str, paths: Sequence[Path], title: str | None) -> None:
        self._store = store
        self._collection = collection
        self._paths = paths
        self._title = title
        self._known: dict[str, _Stamp] = {}

    def begin(self, *, prune: bool = False) -> ImportReport:
        """Import all files. Raises what `Store.import_files` raises."""
        return self._import(prune=prune)

    def again(self, refuse: Callable[[Exception], None] | None = None) -> ImportReport | None:
        """Import the files that have changed since the last import; None if there are none. Raises as `begin`.

        refuse: takes what one of several files raises. It is left out then, and tried again next time.
        """
        report = self._import(refuse=refuse)
        return report if report.added or report.updated or report.removed else None

    def run(self, report: Callable[[ImportReport], None], complain: Callable[[str], None]) -> None:
        """Import again whenever something changes, until KeyboardInterrupt. What fails is tried again."""
        complaints: list[str] = []
        looks = watchfiles.watch(
            *self._paths, watch_filter=None, rust_timeout=round(1000 * LOOKED_AFTER), yield_on_timeout=True
        )
        for _ in looks:
            refused: list[Exception] = []
            changed = None
            try:
                changed = self.again(refused.append)
            except (KnowledgeError, OSError, sqlite3.Error) as error:
                refused.append(error)
            said, complaints = complaints, list(dict.fromkeys(map(str, refused)))
            for complaint in complaints:
                if complaint not in said:
                    complain(f"{complaint}: tried again after the next change")
            if changed is not None:
                report(changed)

    def _import(self, *, prune: bool = False, refuse: Callable[[Exception], None] | None = None) -> ImportReport:
        """Import what has changed. Look again where a file comes and goes: that is no failure of the others."""
        for _ in range(LOOKS - 1):
            try:
                return self._look(prune, refuse)
            except FileNotFoundError:
                if not all(path.exists() for path in self._paths):
                    raise
        return self._look(prune, refuse)

    def _look(self, prune: bool, refuse: Callable[[Exception], None] | None) -> ImportReport:
        files = files_by_source(self._paths)
        # Before a file is read: what changes it meanwhile leaves another stamp for the next look.
        stamps = {source: _stamp(file) for source, file in files.items()}
        changed = [source for source, stamp in stamps.items() if self._known.get(source) != stamp]
        gone = self._known.keys() - stamps.keys()
        try:
            report = self._put(files, changed, gone, prune=prune)
        except (KnowledgeError, OSError) as error:
            if refuse is None or isinstance(error, FileNotFoundError):
                raise
            report = self._put(files, [], gone)
            for source in changed:
                try:
                    report = report.and_also(self._put(files, [source]))
                except (KnowledgeError, OSError) as fault:
                    refuse(fault)
                    del stamps[source]
                    if source in self._known:
                        stamps[source] = self._known[source]
        self._known = stamps
        return report

    def _put(
        self, files: Mapping[str, Path], sources: Sequence[str], gone: Set[str] = frozenset(), *, prune: bool = False
    ) -> ImportReport:
        return self._store.import_files(
            self._collection,
            [source_file(source, files[source]) for source in sources],
            title=self._title,
            prune=prune,
            gone=gone,
        )


def _stamp(file: Path) -> _Stamp:
    found = os.stat(file)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
