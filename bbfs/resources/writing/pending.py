"""Writes that no source has taken: on disk from before the request until the source has stored the content.

An item is two files, `ID.json` and `ID`, the content. The description is written last and removed first, so an item
that a kill leaves half written is none; `sweep` removes what it left. Functions block: call them in a thread.
A process that writes files here shares a lock of the directory (flock(2)), so that no other one sweeps meanwhile.
"""

import errno
import fcntl
import json
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import platformdirs

from bbfs.model.errors import BbfsError, NoSpace, NotFound
from bbfs.model.versions import Expected, Labels
from bbfs.runtime.private_files import open_own, open_taken, own_directory, take_directory

if TYPE_CHECKING:  # commands read what is pending, and nothing of the sources
    from bbfs.sources.content.memory import MemoryContent
    from bbfs.sources.content.spool import HasFile

LEFT = "the mount ended before the source had it"
"""The reason of a write that no source was asked to take: the file lived in the mount alone, or was still open."""
LARGEST_DESCRIPTION = 1 << 16
"""Bytes of a description that is read."""
_LATEST = 1 << 35
"""Seconds since the epoch that a time may be, some thousand years: localtime(3) knows no time that is far later."""
_OWN = re.compile(r"([0-9a-f]{12})(\.bytes|(?:\.[0-9a-f]{6})?\.new)?")
"""The names of all files but descriptions."""
_DESCRIPTION = re.compile(r"[0-9a-f]{12}\.json")


def pending_path() -> Path:
    """Return the directory of this user's pending writes."""
    return Path(platformdirs.user_state_dir("bbfs")) / "pending"


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A content that a source has not taken.

    at: when it was written (seconds since the epoch). error: why the source did not take it; None while the request is
    under way, or was when the daemon was killed. path: names from the mount's root. place: a hash of where the source
    is, or None if that is unknown. mime_type, description: the labels of the writer.
    """

    id: str
    source_id: str
    native_uri: str
    uri: str
    path: tuple[str, ...]
    expected: Expected
    size: int
    at: float
    error: str | None = None
    place: str | None = None
    mime_type: str | None = None
    description: str | None = None

    @property
    def labels(self) -> Labels:
        return Labels(self.mime_type, self.description)

    @property
    def reason(self) -> str:
        """The error in the source's own words."""
        return (self.error or "").partition(": ")[2]


class PendingStore:
    """The pending writes of this user, in one directory for all mounts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def free(self) -> int:
        """Return the bytes that the disk has room for; 0 if it does not say."""
        for directory in (self.directory, *self.directory.parents):
            with suppress(OSError):
                found = os.statvfs(directory)
                return found.f_bavail * found.f_frsize
        return 0

    def keep(self, write: PendingWrite, content: "MemoryContent | HasFile") -> None:
        """Keep a content, in the place of an earlier one with this id. Raise NoSpace, BbfsError."""
        from bbfs.sources.content import memory, spool  # noqa: PLC0415 - see above

        path = self.directory / write.id
        beside = path.with_suffix(".bytes")
        try:
            own_directory(self.directory)
            with self._shared():
                try:
                    if isinstance(content, memory.MemoryContent):
                        with open(beside, "wb", opener=open_own) as file:
                            file.write(content.data)
                    else:
                        beside.unlink(missing_ok=True)
                        spool.name_file(content, beside)
                    beside.rename(path)
                    beside.unlink(missing_ok=True)  # rename(2) leaves it if an item is kept again in its own file
                    self._describe(write)
                except OSError:
                    with suppress(OSError):
                        beside.unlink(missing_ok=True)
                        if not path.with_suffix(".json").exists():
                            path.unlink(missing_ok=True)
                    raise
        except OSError as error:
            kind = NoSpace if error.errno in (errno.ENOSPC, errno.EDQUOT) else BbfsError
            raise kind(f"a write could not be kept in {self.directory}: {error.strerror}") from error

    def describe(self, write: PendingWrite) -> None:
        """Write the description of an item, or replace it. Raise OSError."""
        with self._shared():
            self._describe(write)

    def _describe(self, write: PendingWrite) -> None:
        path = self.directory / f"{write.id}.json"
        beside = path.with_suffix(f".{os.urandom(3).hex()}.new")  # a request may fail twice at once: by two deadlines
        try:
            with open(beside, "w", opener=open_own, encoding="utf-8") as file:
                json.dump(asdict(write), file)
            beside.rename(path)
        except OSError:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise

    @contextmanager
    def _shared(self) -> Iterator[None]:
        """Let no process sweep meanwhile. Raise OSError."""
        with self._opened() as number:
            with suppress(OSError):  # a file system without locks: none is swept there
                fcntl.flock(number, fcntl.LOCK_SH)
            yield

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the directory, and give its descriptor. Raise OSError."""
        number = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield number
        finally:
            os.close(number)

    def sweep(self) -> None:
        """Remove the files that belong to no item, unless a process is writing some now."""
        with suppress(OSError), self._opened() as number:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            names = set(os.listdir(number))
            for own in filter(None, map(_OWN.fullmatch, names)):
                if own[2] is not None or f"{own[1]}.json" not in names:
                    os.unlink(own[0], dir_fd=number)

    def sync(self, write: PendingWrite) -> None:
        """Wait until the disk has an item: its program got an error, and may end now. Raise OSError."""
        for path in (self.directory / write.id, self.directory / f"{write.id}.json", self.directory):
            number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                os.fsync(number)
            finally:
                os.close(number)

    def drop(self, write_id: str) -> None:
        """Remove an item, if it is there. Raise OSError."""
        (self.directory / f"{write_id}.json").unlink(missing_ok=True)
        (self.directory / write_id).unlink(missing_ok=True)
        (self.directory / f"{write_id}.json").unlink(missing_ok=True)  # described again since; it has no content now

    def has_some(self) -> bool:
        """Return whether anything may be pending. Does not block for long."""
        try:
            with os.scandir(self.directory) as entries:
                return next(entries, None) is not None
        except OSError:
            return False

    def has(self, write_id: str) -> bool:
        """Return whether an item is still there. Does not block for long."""
        return (self.directory / f"{write_id}.json").exists()

    def items(self) -> Iterator[PendingWrite]:
        """Yield all items that can be read, the oldest first. Files that are no items are passed over."""
        yield from self._look()[0]

    def unreadable(self) -> list[str]:
        """Return what may be pending and cannot be read, the directory or descriptions, each with the reason."""
        return self._look()[1]

    def _look(self, beginning: str = "") -> tuple[list[PendingWrite], list[str]]:
        """Return the items whose ids begin so, the oldest first, and what cannot be read of them."""
        try:
            take_directory(self.directory)
            names = sorted(os.listdir(self.directory))
        except OSError as error:
            is_absent = isinstance(error, FileNotFoundError) and not self.directory.is_symlink()
            return [], [] if is_absent else [f"{self.directory}: cannot be read: {error.strerror}"]
        items: list[PendingWrite] = []
        problems: list[str] = []
        descriptions = (name for name in names if name.startswith(beginning) and name.endswith(".json"))
        for path in map(self.directory.joinpath, descriptions):
            try:
                items.append(_read(path))
            except FileNotFoundError:
                continue  # dropped meanwhile
            except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
                if _DESCRIPTION.fullmatch(path.name):
                    why = error.strerror if isinstance(error, OSError) else "is no description of a pending write"
                    content = f"; {path.with_suffix('')} has the bytes" if path.with_suffix("").exists() else ""
                    problems.append(f"{path}: {why}{content}")
        return sorted(items, key=lambda each: each.at), problems

    def ids(self) -> frozenset[str]:
        """Return the IDs of all items there are now."""
        with suppress(OSError):
            return frozenset(path.stem for path in self.directory.glob("*.json"))
        return frozenset()

    def refused_since(
        self, before: Collection[str], *, uri: str | None = None, path: tuple[str, ...] | None = None
    ) -> list[PendingWrite]:
        """Return the items that their source did not take since: of a URI, of a path from the mount's root, or all.

        The newest is the last. before: the IDs that there were; no clock tells it, which may be set meanwhile.
        """
        refused = [each for each in self.items() if each.id not in before and each.error]
        return [each for each in refused if uri is path is None or each.uri == uri or each.path == path]

    def get(self, write_id: str) -> PendingWrite:
        """Return the item with an id, or the only one whose id begins so. Raise NotFound, BbfsError."""
        found, problems = self._look(write_id) if write_id else ([], [])
        if problems and not found:
            raise BbfsError("; ".join(problems))
        if len(found) != 1:
            raise NotFound(f"{'no' if not found else 'more than one'} pending write begins with {write_id!r}")
        return found[0]

    def content_path(self, write: PendingWrite) -> Path:
        return self.directory / write.id

    def open_content(self, write: PendingWrite) -> BinaryIO:
        """Open the content of an item. Raise OSError, also if it is no regular file of this user."""
        return open(self.content_path(write), "rb", opener=open_taken)


def _read(path: Path) -> PendingWrite:
    """Return the item of a file. Raise OSError, or what `described` raises."""
    with open(path, encoding="utf-8", opener=open_taken) as file:
        item = described(file.read(LARGEST_DESCRIPTION))
    if item.id != path.stem:
        raise ValueError("the description of another item")
    return item


def described(text: str) -> PendingWrite:
    """Return the item of a description. Raise ValueError, TypeError, KeyError or RecursionError if it is none."""
    fields = json.loads(text)
    expected, path = Expected(**fields["expected"]), fields["path"]
    item = PendingWrite(**{**fields, "expected": expected, "path": tuple(path)})
    texts = (item.id, item.source_id, item.native_uri, item.uri, *item.path)
    optional = (item.error, item.place, item.mime_type, item.description, expected.etag, expected.version)
    if not (
        isinstance(path, list)
        and all(isinstance(each, str) for each in texts)
        and all(isinstance(each, str | None) for each in optional)
        and isinstance(expected.exists, bool | None)
        and type(item.size) is int
        and item.size >= 0
        and type(item.at) in (int, float)
        and 0 <= item.at < _LATEST
    ):
        raise ValueError("no description of a pending write")
    return item


def new_id() -> str:
    return os.urandom(6).hex()
