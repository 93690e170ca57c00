"""The versions that changes of a scratch are based on: what the sources had when a program hid it.

The daemon of the lower layer notes the version of each name that it shows, until the upper layer hides the name. So no
clock is asked, and no program can write the notes through the overlay. A name without a note has an unknown base.

The notes are lines of JSON in one file, appended by the daemon and by `bbfs apply`; the last line of a path counts.
"""

import errno
import json
import logging
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bbfs.fuse.scratch.changes import Identity, Marks, Type, directory, origin_of, type_of
from bbfs.fuse.scratch.directory import Scratch
from bbfs.fuse.scratch.origin import version
from bbfs.resources.writing.temporary import KEEPING
from bbfs.sources.filesystem.content import etag_of

log = logging.getLogger(__name__)

Version: TypeAlias = Mapping[str, Any]
"""What tells one version of an entry from another, as far as its source states it: etag, or times and size."""

PATH = "path"
"""The field of an origin that is no part of the version."""
NOTES = "bases"
"""The name of the file, in the directory of a scratch."""
_MOST = 1 << 20
"""Names whose versions the daemon holds; beyond it, it forgets the oldest, whose base is unknown then."""
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Base:
    """A name that a source had. version: None if the source states none."""

    kind: Type
    version: Version | None = None

    def is_version(self, other: Version | None) -> bool:
        """Return whether an entry with this version is unchanged. An unknown version is that of no entry."""
        mine = self.version
        if not mine or not other:
            return False
        if "etag" in mine or "etag" in other:
            return mine.get("etag") == other.get("etag")
        return dict(mine) == dict(other)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A change that `bbfs apply` has begun. temporary: the name that it writes; identity: of what it applies."""

    temporary: str
    identity: Identity

    @property
    def is_removal(self) -> bool:
        return self.temporary == ""


REMOVAL = Attempt("", ())
"""The removal of a name at the source."""


@dataclass(slots=True)
class Notes:
    """The notes of a scratch. Owned by one process; several append to one file."""

    path: str
    bases: dict[str, Base] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    lines: int = 0
    _descriptor: int = -1
    _is_torn: bool = False
    """True if the file may end in a part of a line."""

    @classmethod
    def of(cls, scratch: Scratch) -> "Notes":
        """Read the notes of a scratch. Raise OSError."""
        found = cls(os.path.join(scratch.path, NOTES))
        with suppress(FileNotFoundError), open(os.open(found.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            for line in file:
                found.lines += 1
                found._is_torn = not line.endswith(b"\n")
                with suppress(ValueError, TypeError, KeyError, AttributeError):  # the last line of a crash
                    found._take(json.loads(line))
        return found

    def _take(self, said: Mapping[str, Any]) -> None:
        path = said["path"]
        if "temporary" in said:
            self.attempts[path] = Attempt(said["temporary"], tuple(said["identity"]))
            return
        self.attempts.pop(path, None)
        if said.get("kind") is not None:
            self.bases[path] = Base(said["kind"], said.get("version"))
            return
        gone = self.bases.pop(path, None)
        if gone is not None and gone.kind == "directory":
            for below in [each for each in self.bases if each.startswith(path + "/")]:
                del self.bases[below]

    def shown(self, path: str, base: Base) -> None:
        """Note a version of a name, if it is another one than the last. Raise OSError."""
        if self.bases.get(path) != base or path in self.attempts:
            self._append(path=path, kind=base.kind, version=base.version)

    def absent(self, path: str) -> None:
        """Note that a source does not have a name any more. Raise OSError."""
        if path in self.bases or path in self.attempts:
            self._append(path=path, kind=None)

    def attempted(self, path: str, attempt: Attempt) -> None:
        """Note the beginning of a change of the source. Raise OSError."""
        self._append(path=path, temporary=attempt.temporary, identity=attempt.identity)

    def ended(self, path: str) -> None:
        """Note that a change of the source has not been made. Raise OSError."""
        base = self.bases.get(path)
        self._append(
            path=path, kind=None if base is None else base.kind, version=None if base is None else base.version
        )

    def _append(self, **said: Any) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, _FLAGS, 0o600)
        # One write, so the lines of two processes do not mix. A path may have any bytes: JSON escapes them.
        # What a full disk has cut off, now or before, ends at the line feed that the next line begins with.
        line = json.dumps(said, separators=(",", ":")).encode() + b"\n"
        line = b"\n" + line if self._is_torn else line
        self._is_torn = os.write(self._descriptor, line) < len(line)
        if self._is_torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        self.lines += 1
        self._take(said)

    def compact(self) -> None:
        """Write the notes again without the lines that later ones replace. No other process may append."""
        if self.lines <= 2 * len(self.bases) + 1000:
            return
        new = Notes(f"{self.path}.new")
        with suppress(FileNotFoundError):
            os.unlink(new.path)
        for path, base in self.bases.items():
            new.shown(path, base)
        for path, attempt in self.attempts.items():
            new.attempted(path, attempt)
        new.close()
        os.replace(new.path, self.path)
        self.lines = new.lines

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


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
        if path in self._notes.bases and not self._is_hidden(path):
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


def version_in(lower: int, name: str, found: os.stat_result) -> Version | None:
    """Return the version of an entry of the lower layer, in the words in which its daemon notes one."""
    if not stat.S_ISREG(found.st_mode):
        return status_version(found)
    return {key: said for key, said in origin_of(name, lower).items() if key != PATH} or None


def status_version(found: os.stat_result) -> Version:
    """Return the version of an entry of a folder, or of an entry of any source that is no regular file."""
    if stat.S_ISREG(found.st_mode):
        return version(etag_of(found), None, None)
    return {"modified_ns": found.st_mtime_ns, "changed_ns": found.st_ctime_ns, "size": found.st_size}
