"""The files of directories with their versions in the index, remembered from one grep to the next.

To walk a hundred thousand names takes half a second, to look at the same records again a tenth of that. What is
remembered of a directory holds as long as the lease of its names and the state of the index; each look compares the
records with the versions.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from cachetools import LRUCache

from bbfs.resources.catalog.record import Lease, Path, Record

FILES_KEPT = 300_000
"""Files of all directories that are remembered; each takes about 150 bytes."""


@dataclass(slots=True)
class CoveredDirectory:
    """A directory with its files and the names of its directories, both in the order of the listing.

    state: of the index (`Candidates.state`). lease: of the names, None if others may come any time. names, uris,
    records, versions: of the files, in columns, since to go through a hundred thousand objects takes twice the time.
    """

    state: tuple[int, int]
    lease: Lease | None
    directories: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    uris: list[str] = field(default_factory=list)
    records: list[Record | None] = field(default_factory=list)
    versions: list[str | None] = field(default_factory=list)

    def add_file(self, name: str, uri: str, record: Record | None, version: str | None) -> None:
        """Add a file. uri: the native one. record: None as long as the source has only listed it.

        version: in the index; None if the file must be read.
        """
        self.names.append(name)
        self.uris.append(uri)
        self.records.append(record)
        self.versions.append(version)

    @property
    def lasts(self) -> bool:
        """Return whether the same files have the same records at the next grep."""
        known = (record is not None or at is None for record, at in zip(self.records, self.versions, strict=True))
        return self.lease is not None and all(known)

    def __len__(self) -> int:
        return len(self.names) + len(self.directories)

    def passed_over(self, candidates: Collection[str], now: float, *, cached: bool) -> Iterator[tuple[str, bool]]:
        """Yield the names of the files, each with whether it has no match, as of `now`.

        A file is passed over only if a reader would get the version in the index, without asking the source. cached:
        believe the index where the source would have to be asked.
        """
        for name, uri, record, version in zip(self.names, self.uris, self.records, self.versions, strict=True):
            if version is None or uri in candidates:
                yield name, False
            elif record is None:
                yield name, cached
            elif record.invalidated or record.parts is not None or record.metadata.on_open:
                yield name, False
            elif cached:
                yield name, record.digest in (None, version)
            else:
                at = record.fetched_at
                yield name, at is not None and now < at + record.ttl and record.digest == version


class CoveredDirectories:
    """The directories that were walked last."""

    def __init__(self) -> None:
        self._directories: LRUCache[Path, CoveredDirectory] = LRUCache(FILES_KEPT, lambda directory: 1 + len(directory))

    def get(self, path: Path, state: tuple[int, int], now: float) -> CoveredDirectory | None:
        """Return a directory (a path from the mount's root), if it is still the same."""
        found = self._directories.get(path)
        if found is None or found.lease is None or found.state != state or now >= found.lease.until:
            return None
        return found

    def put(self, path: Path, directory: CoveredDirectory) -> None:
        """Remember a directory, if the same files have the same records at the next grep."""
        if directory.lasts and len(directory) < FILES_KEPT:
            self._directories[path] = directory
