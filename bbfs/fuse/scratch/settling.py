"""Discarding changes of a scratch, and applying them to the sources below it.

Applying writes through the mount below, as any program: what `fsync` and `rename` acknowledge, the source has. A file
is written under a name whose rename keeps any name (`resources.writing.temporary`), so a source has the old content or
the new one.
"""

import errno
import filecmp
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from bbfs.fuse.scratch import changes as upper_layer
from bbfs.fuse.scratch.changes import Change, Marks, directory, is_beneath, names_of, parent, status, type_of
from bbfs.fuse.scratch.directory import Scratch, remove_tree
from bbfs.fuse.scratch.session import editable
from bbfs.model.errors import BbfsError, Conflict
from bbfs.resources.writing.pending import PendingStore, pending_path
from bbfs.resources.writing.temporary import new_keeping_name

_BLOCK = 1 << 20
_SECOND = 1_000_000_000
_ERROR = "user.bbfs.error"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one change. error: why it stays in the scratch; None if it is applied."""

    change: Change
    error: str | None


def discard(scratch: Scratch, chosen: Sequence[Change] | None, *, is_holder: bool = False) -> None:
    """Drop changes; None: all. is_holder: as for `editable`.

    Raise MountError if a program uses the overlay, BbfsError, OSError.
    """
    with editable(scratch, is_holder=is_holder):
        if chosen is None:
            scratch.clear()
            return
        with _Layers(scratch) as layers:
            for change in chosen:
                layers.restore(change)


def apply(
    scratch: Scratch, chosen: Sequence[Change], *, overwrite: bool = False, is_holder: bool = False
) -> Iterator[Outcome]:
    """Write changes to the sources, and yield what became of each. Raise MountError if a program uses the overlay.

    New directories come first, then files, removals last, but where something new takes the name. overwrite: also what
    the source has changed since. is_holder: as for `editable`.
    """
    with editable(scratch, is_holder=is_holder), _Layers(scratch) as layers:
        failed: list[Change] = []
        for change in ordered(chosen):
            error: str | None = None
            began = time.time()
            try:
                for other in failed:
                    if change.what == "removed" and other.old is not None and is_beneath(other.old, change.path):
                        raise Conflict(f"{other.old} was moved to {other.path}, which is not applied")
                layers.apply(change, overwrite=overwrite)
            except (BbfsError, OSError) as caught:
                error = layers.reason(change, caught, began)
                failed.append(change)
            yield Outcome(change, error)
        layers.prune(chosen)


def ordered(chosen: Sequence[Change]) -> list[Change]:
    """Return changes in the order in which they are applied."""
    new = {change.path for change in chosen if change.what != "removed"}

    def step(change: Change) -> tuple[int, str]:
        if change.what == "removed":
            return (0 if change.path in new else 3, change.path)
        return (1 if change.is_directory else 2, change.path)

    return sorted(chosen, key=step)


class _Layers:
    """Both layers of a scratch, by the descriptors of their roots."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._state = scratch.state
        self._marks = Marks.of(scratch)
        self._applied: dict[str, Any] = dict(self._state.get("applied") or {})

    def __enter__(self) -> "_Layers":
        with ExitStack() as stack:
            self._upper = stack.enter_context(directory(self._scratch.upper))
            self._lower = stack.enter_context(directory(self._scratch.lower))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._scratch.note(applied=self._applied)

    @contextmanager
    def _parents(self, path: str) -> Iterator[tuple[int, int | None, str]]:
        """Open the directory of a path in both layers; the lower one is None if it is not there. Yield its name, too.

        An opaque directory on the way becomes a merged one: then each name in it can be treated alone.
        """
        *above, name = names_of(path)
        with ExitStack() as stack:
            upper: int = self._upper
            lower: int | None = self._lower
            for part in above:
                upper = stack.enter_context(directory(part, upper))
                found = None if lower is None else status(part, lower)
                if lower is None or found is None or not stat.S_ISDIR(found.st_mode):
                    lower = None
                    continue
                lower = stack.enter_context(directory(part, lower))
                if self._marks.is_opaque(upper):
                    self._marks.make_merged(upper, lower)
            yield upper, lower, name

    # -- the upper layer ---------------------------------------------------------------------------------------------

    def restore(self, change: Change) -> None:
        """Let a name be what the sources have."""
        with suppress(FileNotFoundError):  # it has gone with the directory above it
            self._drop(change)
        if change.old is not None:
            with suppress(FileNotFoundError):
                self._drop_whiteout(change.old)

    def _drop(self, change: Change) -> None:
        if change.what == "removed":
            return self._drop_whiteout(change.path)
        with self._parents(change.path) as (upper, lower, name):
            if change.what == "attributes" and change.is_directory and lower is not None:
                found = os.stat(name, dir_fd=lower, follow_symlinks=False)
                _set_mode(name, upper, found)
            elif change.is_directory:
                status(name, upper)
                remove_tree(os.path.join(self._scratch.upper, change.path))
            else:
                os.unlink(name, dir_fd=upper)
        return None

    def _drop_whiteout(self, path: str) -> None:
        with suppress(NotADirectoryError), self._parents(path) as (upper, _, name):  # one above it may be removed, too
            self._marks.drop(name, upper)

    def prune(self, chosen: Sequence[Change]) -> None:
        """Remove the directories of the upper layer that say nothing any more."""
        above = {part for change in chosen for part in _and_above(change.path)}
        for path in sorted(above, reverse=True):
            with suppress(OSError), self._parents(path) as (upper, lower, name):
                if lower is not None and status(name, lower) is not None:
                    os.rmdir(name, dir_fd=upper)

    # -- the lower layer ---------------------------------------------------------------------------------------------

    def apply(self, change: Change, *, overwrite: bool) -> None:
        """Write one change to its source, and drop it from the scratch. Raise BbfsError, OSError."""
        with self._parents(change.path) as (upper, lower, name):
            if lower is None:
                raise OSError(errno.ENOENT, "the directory above it is not applied")

            def check() -> None:
                if not overwrite:
                    self._check(change, name, lower)
                    if change.old is not None:
                        self._check_old(change.old)

            check()
            if change.what == "removed":
                _remove(name, lower)
            elif change.is_directory:
                self._directory(change, name, upper, lower)
            else:
                if change.what == "attributes":
                    _set_attributes(name, lower, os.stat(name, dir_fd=upper, follow_symlinks=False))
                elif change.type == "symlink":
                    _put_symlink(os.readlink(name, dir_fd=upper), name, lower)
                elif change.type == "file":
                    _put_file(name, upper, lower, check)
                else:
                    raise OSError(errno.EOPNOTSUPP, "no source takes pipes, sockets and devices")
                if change.old is not None:
                    self._remove_old(change.old)
                os.unlink(name, dir_fd=upper)
                self._note(change.path, name, lower)
        if change.what == "removed":
            self._drop_whiteout(change.path)

    def _directory(self, change: Change, name: str, upper: int, lower: int) -> None:
        if change.what == "added":
            os.mkdir(name, 0o755, dir_fd=lower)
            with directory(name, upper) as inside, directory(name, lower) as other:
                self._marks.make_merged(inside, other)
        _set_mode(name, lower, os.stat(name, dir_fd=upper, follow_symlinks=False))

    def _check_old(self, old: str) -> None:
        """Raise Conflict if the source has changed the old name of a file that was renamed."""
        with suppress(FileNotFoundError), parent(old, self._lower) as (lower, name):
            self._check(Change("removed", old, "file"), name, lower)

    def _remove_old(self, old: str) -> None:
        """Remove the old name of a file that was renamed, if it is still there."""
        with suppress(FileNotFoundError), parent(old, self._lower) as (lower, name):
            os.unlink(name, dir_fd=lower)
        with suppress(FileNotFoundError):
            self._drop_whiteout(old)

    def _check(self, change: Change, name: str, lower: int) -> None:
        """Raise Conflict if the source has changed a name since the scratch did."""
        found = status(name, lower)
        if change.what in ("added", "renamed"):
            if found is not None:
                raise Conflict("the source has made it meanwhile")
            return
        if found is None:
            if change.what == "removed":
                return
            raise Conflict("the source has removed it meanwhile")
        if change.type != type_of(found):
            raise Conflict("the source has replaced it meanwhile")
        if change.is_directory:
            if change.what == "removed":
                with directory(name, lower) as inside:
                    for each in os.listdir(inside):
                        below = status(each, inside)
                        if below is not None:
                            self._check(Change("removed", f"{change.path}/{each}", type_of(below)), each, inside)
            return
        base = change.base or self._applied.get(change.path)
        now = _version(name, lower, found)
        if base is None:
            is_current = _last_change(found) <= self._state["begun_ns"]
        else:
            is_current = base == {key: now.get(key) for key in base}
        if not is_current:
            raise Conflict("the source has changed it meanwhile ('bbfs apply --overwrite' replaces that)")

    def _note(self, path: str, name: str, lower: int) -> None:
        """Note the version that a source has after a change was applied: the next change is based on it."""
        found = status(name, lower)
        if found is not None:
            self._applied[path] = _version(name, lower, found)

    def reason(self, change: Change, error: Exception, began: float) -> str:
        """Return why a change could not be applied, with the source's own words if it has some.

        Drop the pending write that the attempt has left since `began`: the scratch has its bytes. Another program's has
        others.
        """
        text = (error.strerror if isinstance(error, OSError) and not isinstance(error, BbfsError) else None) or str(
            error
        )
        if isinstance(error, Conflict):
            return text
        own, pending = os.path.join(self._scratch.upper, change.path), PendingStore(pending_path())
        for kept in pending.refused_since(began, path=tuple(change.path.split("/"))):
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


def _last_change(found: os.stat_result) -> int:
    """Return the latest time (ns) at which a source can have changed a file.

    Programs set the modification time of what they write (`cp -p`, and `bbfs apply` itself), so a folder's time of
    change counts, too. A source that states whole seconds has rounded them down.
    """
    modified = found.st_mtime_ns
    return max(found.st_ctime_ns, modified + (_SECOND - 1 if modified % _SECOND == 0 else 0))


def _version(name: str, beneath: int, found: os.stat_result) -> dict[str, Any]:
    said = upper_layer.version(upper_layer.origin_of(name, beneath))
    return dict(said) if said is not None else {"modified_ns": found.st_mtime_ns, "size": found.st_size}


def _remove(name: str, beneath: int) -> None:
    """Remove a name, a directory with all below it."""
    found = status(name, beneath)
    if found is None:
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=beneath)
        return
    with directory(name, beneath) as inside:
        for each in os.listdir(inside):
            _remove(each, inside)
    os.rmdir(name, dir_fd=beneath)


def _put_file(name: str, upper: int, lower: int, check: Callable[[], None]) -> None:
    """Create or replace a file by the one of the upper layer.

    check: raises if the source has changed it. It is called again once all is copied, which may take long.
    """
    temporary = new_keeping_name()
    with open(upper_layer.open_file(name, upper), "rb") as content:
        wanted = os.fstat(content.fileno())
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(temporary, flags, stat.S_IMODE(wanted.st_mode), dir_fd=lower), "wb") as file:
                shutil.copyfileobj(content, file, _BLOCK)
                file.flush()
                os.fsync(file.fileno())
            with suppress(OSError):  # not every source has times
                os.utime(temporary, ns=(wanted.st_atime_ns, wanted.st_mtime_ns), dir_fd=lower)
            check()
            os.rename(temporary, name, src_dir_fd=lower, dst_dir_fd=lower)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=lower)
            raise


def _put_symlink(target: str, name: str, lower: int) -> None:
    temporary = new_keeping_name()
    os.symlink(target, temporary, dir_fd=lower)
    os.rename(temporary, name, src_dir_fd=lower, dst_dir_fd=lower)


def _set_mode(name: str, beneath: int, wanted: os.stat_result) -> None:
    """Set a mode, but not by way of a symbolic link, which may have taken the name just now and lead anywhere."""
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=beneath)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IMODE(wanted.st_mode))
    finally:
        os.close(descriptor)


def _set_attributes(name: str, lower: int, wanted: os.stat_result) -> None:
    _set_mode(name, lower, wanted)
    os.utime(name, ns=(wanted.st_atime_ns, wanted.st_mtime_ns), dir_fd=lower, follow_symlinks=False)
