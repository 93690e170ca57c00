"""Notes of the versions that a daemon shows to programs, for the scratches over its mount."""

import logging
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import trio

from bbfs.fuse.scratch import bases
from bbfs.fuse.scratch.bases import Base, Notes, Version
from bbfs.fuse.scratch.directory import Scratch
from bbfs.fuse.scratch.entries import Marks, directory, type_of
from bbfs.fuse.scratch.origin import version
from bbfs.resources.writing.temporary import KEEPING
from bbfs.sources.filesystem.content import etag_of

_MOST = 1 << 20
"""Names whose versions the daemon holds; beyond it, it forgets the oldest, whose base is unknown then."""
_WAITS = 1.0
"""Seconds in which the upper layer has to tell what it hides."""
_THREADS = 16
log = logging.getLogger(__name__)


class Shown:
    """Notes the versions that a daemon shows, for each scratch over its mount.

    below: empty without such a scratch. Callers look at it first, so that a plain mount does nothing here. began:
    called when there is one more scratch over a mount that serves already.
    """

    def __init__(self, *scratches: Scratch) -> None:
        self.below = [_ShownBelow(each) for each in scratches]
        self._open: Counter[str] = Counter()
        self.began: Callable[[], None] = lambda: None

    @contextmanager
    def noted(self, scratch: Scratch) -> Iterator[None]:
        """Note what is shown for one more scratch while the block runs. Raise OSError."""
        noted = _ShownBelow(scratch)
        self.below.append(noted)
        self.began()
        try:
            yield
        finally:
            self.below.remove(noted)
            noted.close()

    async def note_all(self, shown: Sequence[tuple[str, Base | None]]) -> None:
        """Note the versions of names that are shown together; None: a name is not there.

        They must have been read before, so they are older than what hides the names. While a program has a file open it
        is not noted: an overlay copies the open version.
        """
        noted = [(path, base) for path, base in shown if base is None or self._is_noted(path)]
        for each in list(self.below):
            await each.note([(path, base) for path, base in noted if each.is_new(path, base)], self._is_noted)

    def _is_noted(self, path: str) -> bool:
        return path not in self._open and KEEPING not in path

    async def note_status(self, path: str, found: os.stat_result) -> None:
        """Note the version of an entry of a folder."""
        await self.note_all([(path, base_of(found))])

    async def note_absent(self, path: str) -> None:
        """Note that a name is not there."""
        await self.note_all([(path, None)])

    async def note_open(self, path: str, base: Base | None) -> None:
        """Note the version that a program opens, which an overlay copies, and keep that note until the file is closed.

        base: None to keep the note as it is. If another program has the file open, the note is of that open.
        """
        is_first = path not in self._open
        self.opened(path)  # from now on, whatever else is shown is not what the overlay copies
        if base is None or not is_first:
            return
        for each in list(self.below):
            if each.is_new(path, base):
                await each.note([(path, base)], lambda _: True)

    def opened(self, path: str) -> None:
        """Keep the note of a path until the file is closed."""
        self._open[path] += 1

    def closed(self, path: str) -> None:
        self._open[path] -= 1
        if self._open[path] <= 0:
            del self._open[path]


class _ShownBelow:
    """Notes the versions below one scratch. The upper layer hides a name: from then on the note of that name stays."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._notes = Notes.of(scratch)
        self._notes.compact()
        self._marks: Marks | None = None
        self._threads = trio.CapacityLimiter(_THREADS)

    def is_new(self, path: str, base: Base | None) -> bool:
        """Return whether a base, or its absence, is another one than what is noted."""
        return self._notes.bases.get(path) != base

    async def note(self, shown: Sequence[tuple[str, Base | None]], is_noted: Callable[[str], bool]) -> None:
        """Note what is new and not hidden. is_noted: tells it of a path, also afterwards.

        The upper layer is asked in a thread: the kernel locks its directories while it asks this daemon for what it
        copies there. A name whose directory stays locked is not noted, and its base is unknown or older then.
        """
        if not shown:
            return
        with trio.move_on_after(_WAITS):
            hidden = await trio.to_thread.run_sync(self._hidden, shown, abandon_on_cancel=True, limiter=self._threads)
            for path, base in shown:
                if path in hidden:
                    continue
                if base is None:
                    self._try(self._notes.absent, path)
                elif is_noted(path):
                    if len(self._notes.bases) >= _MOST:
                        del self._notes.bases[next(iter(self._notes.bases))]
                    self._try(self._notes.shown, path, base)
            return
        log.warning("%s is locked: what was shown of %s is not noted", self._scratch.upper, shown[0][0])

    def _hidden(self, shown: Sequence[tuple[str, Base | None]]) -> set[str]:
        """Return the paths of which nothing is noted. It blocks."""
        return {path for path, base in shown if self._is_hidden(path) or (base is None and self._has_changes(path))}

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


def base_of(found: os.stat_result) -> Base:
    """Return what is noted of an entry of a folder."""
    kind = type_of(found)
    return Base(kind, None if kind == "directory" else status_version(found))


def status_version(found: os.stat_result) -> Version:
    """Return the version of an entry of a folder."""
    if stat.S_ISREG(found.st_mode):
        return version(etag_of(found), None, None)
    return bases.status_version(found)
