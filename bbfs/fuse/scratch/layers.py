"""Both layers of a scratch, in which a change is settled: dropped from the upper one, or written to the source below.

A change leaves the upper layer after the source has it: a kill at any step leaves it in one of them, or in both.
"""

import errno
import filecmp
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from bbfs.fuse.scratch import copying, entries
from bbfs.fuse.scratch.bases import REMOVAL, Attempt, Base, Notes, version_in
from bbfs.fuse.scratch.changes import Change
from bbfs.fuse.scratch.directory import FULL, Scratch
from bbfs.fuse.scratch.entries import Identity, Marks, directory, names_of, remove_tree, status, type_of
from bbfs.model.errors import BbfsError, Conflict
from bbfs.resources.writing.pending import PendingStore, pending_path
from bbfs.resources.writing.temporary import new_keeping_name

log = logging.getLogger(__name__)

_PARENTS = 128
"""Directories whose descriptors are kept for the next change in them."""
_ERROR = "user.bbfs.error"
_CHANGED = "the source has changed it meanwhile ('bbfs apply --overwrite' replaces that)"


@dataclass(slots=True)
class _Parent:
    """A directory in both layers, by descriptors. lower: None if it is not there. users: threads that use it."""

    upper: int
    lower: int | None
    users: int = 0

    def close(self) -> None:
        os.close(self.upper)
        if self.lower is not None:
            os.close(self.lower)


@dataclass(slots=True)
class _Parents:
    """The directories of changes, opened once for all that lie in one. Thread-safe."""

    upper: int
    lower: int
    marks: Marks
    _held: dict[str, _Parent] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def of(self, path: str) -> Iterator[tuple[int, int | None, str]]:
        """Open the directory of a path in both layers; the lower one is None if it is not there. Yield its name, too.

        An opaque directory on the way becomes a merged one: then each name in it can be treated alone. Raise OSError.
        """
        *above, name = names_of(path)
        key = "/".join(above)
        with self._lock:
            parent = self._held.get(key)
            if parent is None:
                self._drop(_PARENTS)
                parent = self._held[key] = self._opened(above)
            parent.users += 1
        try:
            yield parent.upper, parent.lower, name
        finally:
            with self._lock:
                parent.users -= 1

    def _opened(self, above: Sequence[str]) -> _Parent:
        found = _Parent(os.dup(self.upper), os.dup(self.lower))
        try:
            for part in above:
                upper, lower = found.upper, found.lower
                found.upper = os.open(part, entries.DIRECTORY, dir_fd=upper)
                os.close(upper)
                if lower is not None:
                    found.lower = None
                    with suppress(FileNotFoundError, NotADirectoryError):
                        found.lower = os.open(part, _UNLISTED, dir_fd=lower)
                    os.close(lower)
                if found.lower is not None and self.marks.is_opaque(found.upper):
                    with directory(".", found.lower) as listed:
                        self.marks.make_merged(found.upper, listed)
        except BaseException:
            found.close()
            raise
        return found

    def _drop(self, most: int) -> None:
        for key in [key for key, parent in self._held.items() if not parent.users]:
            if len(self._held) <= most:
                return
            self._held.pop(key).close()

    def close(self) -> None:
        with self._lock:
            self._drop(0)


_UNLISTED = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""A descriptor for names below it; the source is not asked to list the directory."""


class Layers:
    """Both layers of a scratch, by the descriptors of their roots, and the versions that changes are based on."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._marks = Marks.of(scratch)
        self._notes = Notes.of(scratch)
        self._note_lock = threading.Lock()
        self._pending = PendingStore(pending_path()).ids()
        self._resumed: dict[str, Identity] = {}
        self._umask = os.umask(0o077)
        os.umask(self._umask)

    def __enter__(self) -> "Layers":
        with ExitStack() as stack:
            stack.callback(self._notes.close)
            self._upper = stack.enter_context(directory(self._scratch.upper))
            self._lower = stack.enter_context(directory(self._scratch.lower))
            self._parents = _Parents(self._upper, self._lower, self._marks)
            stack.callback(self._parents.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Write notes, one thread at a time. On a disk without room go on without them: applying makes room there.

        A version that is not noted is a conflict later, and never taken for another one.
        """
        with self._note_lock:
            try:
                yield
            except OSError as error:
                if error.errno not in FULL:
                    raise
                log.warning("a step is not noted, the disk of %s has no room", self._scratch.path)

    def close_parents(self) -> None:
        """Close the directories that are kept: the next step makes or removes some."""
        self._parents.close()

    # -- the upper layer ---------------------------------------------------------------------------------------------

    def restore(self, change: Change) -> None:
        """Let a name be what the sources have."""
        with suppress(FileNotFoundError):  # it has gone with the directory above it
            self._drop(change)
        if change.old is not None:
            with suppress(FileNotFoundError):
                self._drop_whiteout(change.old)
        self._parents.close()

    def _drop(self, change: Change) -> None:
        if change.what == "removed":
            return self._drop_whiteout(change.path)
        with self._parents.of(change.path) as (upper, lower, name):
            if change.what == "attributes" and change.is_directory and lower is not None:
                found = os.stat(name, dir_fd=lower, follow_symlinks=False)
                copying.set_mode(name, upper, stat.S_IMODE(found.st_mode))
            elif change.is_directory:
                status(name, upper)
                remove_tree(os.path.join(self._scratch.upper, change.path))
            else:
                os.unlink(name, dir_fd=upper)
        return None

    def _drop_whiteout(self, path: str) -> None:
        with (
            suppress(NotADirectoryError),
            self._parents.of(path) as (upper, _, name),
        ):  # one above it may be removed, too
            self._marks.drop(name, upper)

    def prune(self, chosen: Sequence[Change]) -> None:
        """Remove the directories of the upper layer that say nothing any more."""
        above = {part for change in chosen for part in _and_above(change.path)}
        for path in sorted(above, reverse=True):
            with suppress(OSError), self._parents.of(path) as (upper, lower, name):
                if lower is not None and (below := status(name, lower)) is not None:
                    found = os.stat(name, dir_fd=upper, follow_symlinks=False)
                    if stat.S_IMODE(found.st_mode) == stat.S_IMODE(below.st_mode):
                        os.rmdir(name, dir_fd=upper)

    def resume(self) -> None:
        """End what an earlier `bbfs apply` that was killed had begun.

        Drop from the scratch what the source has by now, and from the source what has no name to keep.
        """
        for path, attempt in list(self._notes.attempts.items()):
            with suppress(OSError), self._parents.of(path) as (upper, lower, name):
                if lower is None:
                    continue
                mine, there = status(name, upper), status(name, lower)
                if attempt.is_removal:
                    if there is None:
                        self._marks.drop(name, upper)
                        self._notes.absent(path)
                    continue
                with suppress(FileNotFoundError):
                    os.unlink(attempt.temporary, dir_fd=lower)
                if mine is None or there is None or entries.identity(mine) != attempt.identity:
                    continue
                if type_of(mine) == type_of(there) and entries.is_same(name, upper, lower, mine, there):
                    os.unlink(name, dir_fd=upper)
                    self._note(path, name, lower)
                    self._resumed[path] = attempt.identity
        self._parents.close()

    # -- the lower layer ---------------------------------------------------------------------------------------------

    def apply(self, change: Change, *, overwrite: bool) -> None:
        """Write one change to its source, and drop it from the scratch. Raise BbfsError, OSError."""
        with self._parents.of(change.path) as (upper, lower, name):
            if lower is None:
                raise OSError(errno.ENOENT, "the directory above it is not applied")
            if change.identity is not None and self._resumed.get(change.path) == change.identity:
                if change.old is not None:
                    self._check_old(change.old)
                    self._remove_old(change.old)
                return  # the source has it by an apply that was killed; the list is from before that

            def check() -> None:
                self._require_listed(change, name, upper)  # in another namespace of mounts the overlay may live on
                if not overwrite:
                    if change.old is not None:
                        self._check_old(change.old)
                    self._check(change, name, lower, last=True)

            check()
            if change.what == "removed":
                self._begin(change.path, REMOVAL)
                self._remove(change.path, name, lower, overwrite=overwrite)
            elif change.is_directory:
                self._directory(change, name, upper, lower)
            else:
                self._file(
                    change, name, upper, lower, check, replaces=overwrite or change.what not in ("added", "renamed")
                )
                self._require_stored(change, name, lower)
                if change.old is not None:
                    self._remove_old(change.old)
                try:
                    self._require_listed(change, name, upper)
                    os.unlink(name, dir_fd=upper)
                finally:
                    self._note(change.path, name, lower)
        if change.what == "removed":
            self._drop_whiteout(change.path)
            with self._noting():
                self._notes.absent(change.path)

    def _require_listed(self, change: Change, name: str, upper: int) -> None:
        """Raise Conflict unless the scratch has what was listed: what was reviewed is applied, and nothing else."""
        if change.identity is None and change.what != "removed":
            return  # it was never listed
        found = status(name, upper)
        if change.identity is None or stat.S_ISCHR(change.identity[1]):
            is_listed = found is None or entries.is_whiteout(found)
        else:
            is_listed = found is not None and entries.identity(found) == change.identity
        if not is_listed:
            raise Conflict("it has changed in the scratch since it was listed")

    def _file(
        self, change: Change, name: str, upper: int, lower: int, check: Callable[[], None], *, replaces: bool
    ) -> None:
        """Write a file, a link, or the attributes of a file. replaces: what the source has of the name."""
        found = os.stat(name, dir_fd=upper, follow_symlinks=False)
        wanted = stat.S_IMODE(found.st_mode)
        attempt = Attempt(new_keeping_name(), entries.identity(found))
        if change.type == "symlink":
            with self._attempted(change.path, attempt, lower):
                place = copying.Place(name, lower, attempt.temporary, replaces=replaces)
                copying.put_symlink(os.readlink(name, dir_fd=upper), place, check)
            return
        self._require_unprivileged(wanted, change.before)
        if change.what == "attributes":
            before = os.stat(name, dir_fd=lower, follow_symlinks=False)
            mode = copying.applied_mode(wanted, stat.S_IMODE(before.st_mode), self._umask)
            if mode != stat.S_IMODE(before.st_mode):
                copying.set_mode(name, lower, mode)
            os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=lower, follow_symlinks=False)
        elif change.type == "file":
            mode = copying.applied_mode(wanted, None, self._umask)
            with self._attempted(change.path, attempt, lower):
                place = copying.Place(name, lower, attempt.temporary, replaces=replaces)
                copying.put_file(name, upper, mode, place, check)
        else:
            raise OSError(errno.EOPNOTSUPP, "no source takes pipes, sockets and devices")

    def _begin(self, path: str, attempt: Attempt) -> None:
        """Note what is about to be done, for the next command if this one is killed."""
        with self._noting():
            self._notes.attempted(path, attempt)

    @contextmanager
    def _attempted(self, path: str, attempt: Attempt, lower: int) -> Iterator[None]:
        """Note the beginning of a change, and its end if it fails and leaves nothing at the source.

        If the mount of the sources has just died, the next command removes what is left there.
        """
        self._begin(path, attempt)
        try:
            yield
        except BaseException:
            with suppress(OSError):
                if status(attempt.temporary, lower) is None:
                    with self._noting():
                        self._notes.ended(path)
            raise

    def _directory(self, change: Change, name: str, upper: int, lower: int) -> None:
        """Make a directory, or set its mode."""
        wanted = stat.S_IMODE(os.stat(name, dir_fd=upper, follow_symlinks=False).st_mode)
        inherited = stat.S_IMODE(os.fstat(lower).st_mode) & stat.S_ISGID  # by each directory that is made in this one
        self._require_unprivileged(wanted, change.before if change.what == "attributes" else inherited)
        if change.what == "added":
            os.mkdir(name, copying.applied_mode(wanted, None, self._umask), dir_fd=lower)
            with directory(name, upper) as inside, directory(name, lower) as other:
                self._marks.make_merged(inside, other)
            self._note(change.path, name, lower)
        before = stat.S_IMODE(os.stat(name, dir_fd=lower, follow_symlinks=False).st_mode)
        mode = copying.applied_mode(wanted, before, self._umask)
        if mode != before and not (change.what == "added" and mode == before & 0o777):
            copying.set_mode(name, lower, mode)
        if change.what == "attributes":
            now = stat.S_IMODE(os.stat(name, dir_fd=lower, follow_symlinks=False).st_mode)
            copying.set_mode(name, upper, now)

    @staticmethod
    def _require_unprivileged(wanted: int, before: int | None) -> None:
        refused = copying.refused_bits(wanted, before)
        if refused is not None:
            raise OSError(
                errno.EPERM,
                f"it is {refused}, which no change carries to a source: 'chmod' it in the scratch, or set it there",
            )

    def _require_stored(self, change: Change, name: str, lower: int) -> None:
        """Raise OSError unless the source has what was written: only then may the scratch drop it."""
        found = status(name, lower)
        if found is None or type_of(found) != change.type:
            raise OSError(errno.EIO, "the source acknowledged it and does not have it")

    def _check_old(self, old: str) -> None:
        """Raise Conflict if the source has changed the old name of a file that was renamed."""
        with suppress(FileNotFoundError), entries.parent(old, self._lower) as (lower, name):
            self._check(Change("removed", old, "file"), name, lower)

    def _remove_old(self, old: str) -> None:
        """Remove the old name of a file that was renamed, if it is still there."""
        with suppress(FileNotFoundError), entries.parent(old, self._lower) as (lower, name):
            self._begin(old, REMOVAL)
            os.unlink(name, dir_fd=lower)
        with suppress(FileNotFoundError):
            self._drop_whiteout(old)
        with self._noting():
            self._notes.absent(old)

    def _remove(self, path: str, name: str, lower: int, *, overwrite: bool) -> None:
        """Remove a name, a directory with all below it. Compare each entry just before it is removed."""
        found = status(name, lower)
        if found is None:
            return
        if not overwrite:
            self._check(Change("removed", path, type_of(found)), name, lower, deep=False, last=True)
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=lower)
            return
        with directory(name, lower) as inside:
            for each in os.listdir(inside):
                self._remove(f"{path}/{each}", each, inside, overwrite=overwrite)
        os.rmdir(name, dir_fd=lower)

    def _check(self, change: Change, name: str, lower: int, *, deep: bool = True, last: bool = False) -> None:
        """Raise Conflict if the source has changed a name since the scratch hid it, or may have.

        last: the change follows. The mount below refuses it if the listing that this reads was out of date.
        """
        found = status(name, lower)
        base = self._notes.bases.get(change.path)
        if change.what in ("added", "renamed"):
            if found is not None:
                raise Conflict("the source has made it meanwhile")
            if base is not None:
                raise Conflict("the source has removed it meanwhile ('bbfs apply --overwrite' makes it again)")
            return
        if found is None:
            if change.what == "removed":
                return
            raise Conflict("the source has removed it meanwhile")
        if change.type != type_of(found) or (base is not None and base.kind != change.type):
            raise Conflict("the source has replaced it meanwhile")
        if change.is_directory:
            if change.what == "removed" and deep:
                with directory(name, lower) as inside:
                    for each in os.listdir(inside):
                        below = status(each, inside)
                        if below is not None:
                            self._check(Change("removed", f"{change.path}/{each}", type_of(below)), each, inside)
            return
        if base is None:
            raise Conflict(
                "the version that the scratch has changed is not known ('bbfs apply --overwrite' replaces it)"
            )
        there = version_in(lower, name, found)
        if there is None or not base.is_version(there):
            raise Conflict(_CHANGED)
        if last and change.type == "file":
            entries.require_base(name, lower, there)

    def _note(self, path: str, name: str, lower: int) -> None:
        """Note the version that a source has after a change was applied: the next change is based on it."""
        found = status(name, lower)
        if found is not None:
            base = Base(type_of(found), version_in(lower, name, found))
            with self._noting():
                self._notes.shown(path, base)

    def reason(self, change: Change, error: Exception) -> str:
        """Return why a change could not be applied, with the source's own words if it has some.

        Drop the pending write that the attempt has left: the scratch has its bytes. Another program's has others.
        """
        text = (error.strerror if isinstance(error, OSError) and not isinstance(error, BbfsError) else None) or str(
            error
        )
        if isinstance(error, Conflict):
            return text
        if isinstance(error, OSError) and error.errno == errno.EBUSY:  # S23: a change of a name that is a conflict
            text = _CHANGED
        own, pending = os.path.join(self._scratch.upper, change.path), PendingStore(pending_path())
        for kept in pending.refused_since(self._pending, path=tuple(change.path.split("/"))):
            with suppress(OSError):  # one of the two may be gone by now
                if filecmp.cmp(own, pending.content_path(kept), shallow=False):
                    pending.drop(kept.id)
                    return f"{text}: {kept.reason}"
        path = os.path.join(self._scratch.lower, change.path)
        while path != self._scratch.lower:
            with suppress(OSError):
                return f"{text}: {os.getxattr(path, _ERROR, follow_symlinks=False).decode(errors='replace')}"
            path = os.path.dirname(path)
        return text


def _and_above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
