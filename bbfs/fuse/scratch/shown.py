"""What the daemon of a mount has shown to programs, noted for the scratches that lie over it."""

import logging
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bbfs.fuse.scratch import bases
from bbfs.fuse.scratch.bases import Base, Notes, Version
from bbfs.fuse.scratch.changes import Marks, Type, directory, type_of
from bbfs.fuse.scratch.directory import Scratch
from bbfs.fuse.scratch.origin import version
from bbfs.resources.writing.temporary import KEEPING
from bbfs.sources.filesystem.content import etag_of

_MOST = 1 << 20
"""Names whose versions the daemon holds; beyond it, it forgets the oldest, whose base is unknown then."""
log = logging.getLogger(__name__)


class Shown:
    """What a daemon has shown, noted for each scratch that lies over its mount.

    below: empty without such a scratch. Callers look at it first, so that a plain mount does nothing here.
    """

    def __init__(self, *scratches: Scratch) -> None:
        self.below = [_ShownBelow(each) for each in scratches]
        self._open: Counter[str] = Counter()

    @contextmanager
    def noted(self, scratch: Scratch) -> Iterator[None]:
        """Note what is shown for one more scratch while the block runs. Raise OSError."""
        noted = _ShownBelow(scratch)
        self.below.append(noted)
        try:
            yield
        finally:
            self.below.remove(noted)
            noted.close()

    def note(self, path: str, kind: Type, version: Version | None) -> None:
        """Note a version that is shown. It must have been read before, so it is older than what hides the name.

        While a program has the file open it is not noted: an overlay copies the open version.
        """
        if path not in self._open and KEEPING not in path:
            for each in self.below:
                each.note(path, Base(kind, version))

    def note_status(self, path: str, found: os.stat_result) -> None:
        """Note the version of an entry of a folder."""
        kind = type_of(found)
        self.note(path, kind, None if kind == "directory" else status_version(found))

    def note_absent(self, path: str) -> None:
        """Note that a name is not there."""
        for each in self.below:
            each.note_absent(path)

    def opened(self, path: str) -> None:
        """Keep the note of a path until the file is closed."""
        self._open[path] += 1

    def closed(self, path: str) -> None:
        self._open[path] -= 1
        if self._open[path] <= 0:
            del self._open[path]


class _ShownBelow:
    """What was shown below one scratch. The notes end, for each name, when the upper layer hides the name."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._notes = Notes.of(scratch)
        self._notes.compact()
        self._marks: Marks | None = None

    def note(self, path: str, base: Base) -> None:
        if self._notes.bases.get(path) == base or self._is_hidden(path):
            return
        if len(self._notes.bases) >= _MOST:
            del self._notes.bases[next(iter(self._notes.bases))]
        self._try(self._notes.shown, path, base)

    def note_absent(self, path: str) -> None:
        if path in self._notes.bases and not self._is_hidden(path) and not self._has_changes(path):
            self._try(self._notes.absent, path)

    @staticmethod
    def _try(note: Callable[..., None], *arguments: Any) -> None:
        try:
            note(*arguments)
        except OSError as error:  # the base is unknown or older then: a conflict
            log.warning("a version cannot be noted: %s", error)

    def _is_hidden(self, path: str) -> bool:
        if self._marks is None:
            if "kind" not in self._scratch.state:
                return False  # no overlay has been mounted yet
            self._marks = Marks.of(self._scratch)
        return is_hidden(self._marks, self._scratch.upper, path)

    def _has_changes(self, path: str) -> bool:
        """Return whether the upper layer has a directory at a path: what is changed in it is based on a source's."""
        return os.path.lexists(f"{self._scratch.upper}/{path}")

    def close(self) -> None:
        self._notes.close()


def is_hidden(marks: Marks, upper: str, path: str) -> bool:
    """Return whether the upper layer hides what the lower one has at a path."""
    above = upper
    for name in path.split("/"):
        if marks.by_name and os.path.lexists(f"{above}/.wh.{name}"):
            return True
        above = f"{above}/{name}"
        try:
            if not stat.S_ISDIR(os.lstat(above).st_mode):
                return True
            with directory(above) as descriptor:
                if marks.is_opaque(descriptor):
                    return True
        except FileNotFoundError:
            return False
    return False


def status_version(found: os.stat_result) -> Version:
    """Return the version of an entry of a folder."""
    if stat.S_ISREG(found.st_mode):
        return version(etag_of(found), None, None)
    return bases.status_version(found)
