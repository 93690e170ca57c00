"""The versions that changes of a scratch are based on: what the sources had when a program hid it.

The daemon of the lower layer notes the version of each name that it shows, until the upper layer hides the name. So no
clock is asked, and no program can write the notes through the overlay. A name without a note has an unknown base.

The notes are lines of JSON in one file, appended by the daemon and by `bbfs apply`; the last line of a path counts.
"""

import errno
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bbfs.fuse.scratch.directory import Scratch
from bbfs.fuse.scratch.entries import Identity, Type, origin_of

Version: TypeAlias = Mapping[str, Any]
"""The version of an entry as its source states it: etag, or times and size."""

PATH = "path"
"""The field of an origin that is no part of the version."""
NOTES = "bases"
"""The name of the file, in the directory of a scratch."""
_LONGEST = 1 << 15
"""Bytes of a line: those of a path (PATH_MAX of limits.h) that JSON escapes, and a version."""
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
        """Read the notes of a scratch. Leave damaged lines out. Raise OSError."""
        found = cls(os.path.join(scratch.path, NOTES))
        noted: dict[str, int] = {}
        gone: dict[str, int] = {}  # the last line of each directory that went with what was below it

        def is_gone(path: str) -> bool:
            ends = (at for at, mark in enumerate(path) if mark == "/")
            return any(gone.get(path[:end], 0) > noted[path] for end in ends)

        with suppress(FileNotFoundError), open(os.open(found.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            while line := file.readline(_LONGEST):
                found.lines += 1
                found._is_torn = not line.endswith(b"\n")
                with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):  # the end of a crash
                    said = _checked(json.loads(line))
                    path = said["path"]
                    if found._take(said) and not is_gone(path):
                        gone[path] = found.lines
                    if "temporary" not in said:
                        noted[path] = found.lines
        if gone:
            found.bases = {path: base for path, base in found.bases.items() if not is_gone(path)}
        return found

    def _take(self, said: Mapping[str, Any]) -> bool:
        """Take in a line. Return whether a directory went, and so what is below it."""
        path = said["path"]
        if "temporary" in said:
            self.attempts[path] = Attempt(said["temporary"], tuple(said["identity"]))
            return False
        self.attempts.pop(path, None)
        if said.get("kind") is not None:
            self.bases[path] = Base(said["kind"], said.get("version"))
            return False
        gone = self.bases.pop(path, None)
        return gone is not None and gone.kind == "directory"

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
        if self._take(said):
            for below in [each for each in self.bases if each.startswith(said["path"] + "/")]:
                del self.bases[below]

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


def _checked(said: Any) -> Mapping[str, Any]:
    """Return a line of notes, decoded. Raise TypeError or KeyError if a crash or a stranger has damaged it."""
    fields = (said["path"], said.get("temporary", ""), said.get("kind", ""), said.get("version") or {})
    if not all(map(isinstance, fields, (str, str, str | None, dict))):
        raise TypeError("no line of notes")
    return said


def version_in(lower: int, name: str, found: os.stat_result) -> Version | None:
    """Return the version of an entry of the lower layer, in the words in which its daemon notes one."""
    if not stat.S_ISREG(found.st_mode):
        return status_version(found)
    return {key: said for key, said in origin_of(name, lower).items() if key != PATH} or None


def status_version(found: os.stat_result) -> Version:
    """Return the version of an entry that is no regular file."""
    return {"modified_ns": found.st_mtime_ns, "changed_ns": found.st_ctime_ns, "size": found.st_size}
