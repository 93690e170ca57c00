"""The changes in a scratch, read from its upper layer and compared with its lower one.

The programs that wrote the upper layer may be hostile: no symbolic link is followed, every step goes from a directory's
descriptor, and the depth is bounded.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from threading import Thread
from typing import Literal, TypeAlias, TypeVar

from bbfs.fuse.scratch.directory import Scratch
from bbfs.fuse.scratch.entries import (
    MANY,
    Identity,
    Marks,
    Type,
    directory,
    identity,
    is_same,
    is_whiteout,
    origin_of,
    parent,
    status,
    statuses,
    type_of,
)
from bbfs.model.errors import TooLarge

What: TypeAlias = Literal["added", "changed", "removed", "renamed", "attributes", "written"]
"""`written` is added or changed, where there is no lower layer that tells which."""

MAX_DEPTH = 256
"""Directories in each other that are read; a tree below that can be discarded but not listed."""
_AT_ONCE = 4
"""Requests that wait for the lower layer at once."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. path: below the mount. old: of a renamed file.

    mode, target: the permission bits, and where a symbolic link leads. before: the mode in the lower layer, if that has
    the entry, too. identity: of the entry of the upper layer when it was listed; None: there was none.
    """

    what: What
    path: str
    type: Type
    old: str | None = None
    size: int = 0
    mode: int | None = None
    before: int | None = None
    target: str | None = None
    identity: Identity | None = None

    @property
    def is_directory(self) -> bool:
        return self.type == "directory"

    @property
    def leads_out(self) -> bool:
        """Return whether the target of a symbolic link is outside the source of the link."""
        if self.target is None:
            return False
        depth = self.path.count("/") - 1  # directories between the source's own and the link
        for name in self.target.split("/"):
            depth += -1 if name == ".." else name not in ("", ".")
            if depth < 0:
                return True
        return self.target.startswith("/")

    def concerns(self, paths: Sequence[str]) -> bool:
        """Return whether one of these paths is that of the change, or above it. No paths: all are meant."""
        own = [self.path] if self.old is None else [self.path, self.old]
        return not paths or any(is_beneath(each, path) for each in own for path in paths)


def is_beneath(path: str, above: str) -> bool:
    return above in ("", path) or path.startswith(above + "/")


def changes(scratch: Scratch) -> list[Change]:
    """Return the changes in a scratch, whose `lower` is mounted, in the order of their paths.

    Raise BbfsError, OSError.
    """
    with directory(scratch.upper) as upper, directory(scratch.lower) as lower:
        found = list(_Reader(Marks.of(scratch)).below(upper, lower, "", 0))
        joined = list(_renamed(found, lower))
    return sorted(joined, key=lambda change: (change.path, change.what != "removed"))


def digest(found: Sequence[Change]) -> str:
    """Return a text that differs if any change does, or the entry of the upper layer that one of them stands for."""
    said = blake2b(digest_size=16)
    for change in found:
        said.update(repr(change).encode("utf-8", "surrogatepass") + b"\n")
    return said.hexdigest()


def recorded(scratch: Scratch) -> list[Change]:
    """Return the changes in a scratch by its upper layer alone: for one whose `lower` is not mounted.

    Nothing tells what a removed name was, or whether a file that was written has its old content. Raise BbfsError,
    OSError.
    """
    with directory(scratch.upper) as upper:
        return sorted(_Reader(Marks.of(scratch)).alone(upper, "", 0), key=lambda change: change.path)


@dataclass(slots=True)
class _Reader:
    """Reads the upper layer, with the marks of the overlay that wrote it."""

    marks: Marks

    def below(self, upper: int, lower: int | None, path: str, depth: int) -> Iterator[Change]:
        """Yield the changes of one directory and those below it. lower: None if the lower layer has none there."""
        names, removed = self._names(upper, path, depth)
        if lower is not None and self.marks.is_opaque(upper):
            removed |= set(os.listdir(lower)).difference(names)
        entries = {name: os.stat(name, dir_fd=upper, follow_symlinks=False) for name in names}
        removed |= {name for name, found in entries.items() if is_whiteout(found)}
        with _located(path):
            shown = {} if lower is None else _in_lower({*names, *removed}, lower)
            same = {} if lower is None else _compared(entries, shown, upper, lower)
        for name, found in entries.items():
            if not is_whiteout(found):
                yield from self._entry(upper, lower, path + name, name, found, shown.get(name), same.get(name), depth)
        for name in sorted(removed):
            below = shown.get(name)
            if below is not None:
                hides = status(name, upper)
                yield Change(
                    "removed", path + name, type_of(below), identity=None if hides is None else identity(hides)
                )

    def alone(self, upper: int, path: str, depth: int) -> Iterator[Change]:
        """Yield the changes of one directory and those below it, as far as the upper layer tells."""
        names, removed = self._names(upper, path, depth)
        for name in names:
            found = os.stat(name, dir_fd=upper, follow_symlinks=False)
            if is_whiteout(found):
                removed.add(name)
            elif not stat.S_ISDIR(found.st_mode):
                yield self._described("written", path + name, upper, name, found)
            else:
                with self._opened(name, upper) as inside:
                    if inside is None or self.marks.is_opaque(inside):
                        yield self._described("written", path + name, upper, name, found)
                    if inside is not None:
                        yield from self.alone(inside, f"{path}{name}/", depth + 1)
        yield from (Change("removed", path + name, "other") for name in removed)

    def _names(self, upper: int, path: str, depth: int) -> tuple[list[str], set[str]]:
        """Return the names of a directory, and those that other names say are removed. Raise TooLarge."""
        if depth > MAX_DEPTH:
            raise TooLarge(
                f"{path[:200]}…: more than {MAX_DEPTH} directories in each other; 'bbfs discard' removes them"
            )
        listed = sorted(os.listdir(upper))
        return [name for name in listed if not self.marks.is_mark(name)], set(self.marks.removed_by_name(listed))

    def _entry(
        self,
        upper: int,
        lower: int | None,
        path: str,
        name: str,
        found: os.stat_result,
        below: os.stat_result | None,
        is_same: bool | None,
        depth: int,
    ) -> Iterator[Change]:
        if below is not None and type_of(below) != type_of(found):
            yield Change("removed", path, type_of(below), identity=identity(found))
            below = None
        what, old = self._difference(upper, path, name, found, below, is_same=is_same)
        if what is not None:
            before = None if below is None else stat.S_IMODE(below.st_mode)
            yield self._described(what, path, upper, name, found, old=old, before=before)
        if not stat.S_ISDIR(found.st_mode):
            return
        with self._opened(name, upper) as inside:
            if inside is None:
                return
            if below is None or lower is None:
                yield from self.below(inside, None, path + "/", depth + 1)
            else:
                with directory(name, lower) as other:
                    yield from self.below(inside, other, path + "/", depth + 1)

    @staticmethod
    @contextmanager
    def _opened(name: str, upper: int) -> Iterator[int | None]:
        """Open a directory of the upper layer. Yield None for one that its own user may not read: a program made it so.

        The change of its mode is listed, and nothing that is in it. Raise OSError.
        """
        with ExitStack() as stack:
            found: int | None = None
            with suppress(PermissionError):
                found = stack.enter_context(directory(name, upper))
            yield found

    @staticmethod
    def _described(
        what: What,
        path: str,
        upper: int,
        name: str,
        found: os.stat_result,
        *,
        old: str | None = None,
        before: int | None = None,
    ) -> Change:
        """Return a change with what the entry of the upper layer says."""
        kind = type_of(found)
        target = os.readlink(name, dir_fd=upper) if kind == "symlink" else None
        mode = None if kind == "symlink" else stat.S_IMODE(found.st_mode)
        size = 0 if kind == "directory" else found.st_size
        return Change(what, path, kind, old, size, mode, before, target, identity(found))

    @staticmethod
    def _difference(
        upper: int,
        path: str,
        name: str,
        found: os.stat_result,
        below: os.stat_result | None,
        *,
        is_same: bool | None,
    ) -> tuple[What | None, str | None]:
        """Return in what an entry differs from that of the lower layer, if in anything, and its old path, if known."""
        kind = type_of(found)
        if below is None:
            old = origin_of(name, upper).get("path") if kind == "file" else None
            return "added", old if isinstance(old, str) and old != path else None
        if kind != "directory" and not is_same:
            return "changed", None
        if kind == "symlink":
            return None, None
        touched = stat.S_IMODE(found.st_mode) != stat.S_IMODE(below.st_mode)
        if kind == "file":
            touched |= found.st_mtime_ns != below.st_mtime_ns
        return "attributes" if touched else None, None


@contextmanager
def _located(directory: str) -> Iterator[None]:
    """Let an OSError name the path from the root of the layer. directory: with a slash at its end."""
    try:
        yield
    except OSError as error:
        name = os.path.basename(os.fsdecode(error.filename or ""))
        raise OSError(error.errno, error.strerror, directory + name) from None


def _in_lower(names: Collection[str], lower: int) -> Mapping[str, os.stat_result]:
    """Return the statuses of those names that a directory of the lower layer has. Raise OSError."""
    found = statuses(names, lower)
    asked = [name for name in names if name not in found]  # a source may have names that it does not list
    said = zip(asked, _each(asked, partial(status, beneath=lower)), strict=True)
    return found | {name: answer for name, answer in said if answer is not None}


def _compared(
    entries: Mapping[str, os.stat_result], shown: Mapping[str, os.stat_result], upper: int, lower: int
) -> Mapping[str, bool]:
    """Return whether each entry that is of one type in both layers, and no directory, is the same. Raise OSError."""
    types = {name: type_of(found) for name, found in entries.items() if name in shown}
    both = [name for name, kind in types.items() if kind != "directory" and kind == type_of(shown[name])]
    same = _each(both, lambda name: is_same(name, upper, lower, entries[name], shown[name]))
    return dict(zip(both, same, strict=True))


def _each(names: Sequence[str], ask: Callable[[str], T]) -> Sequence[T]:
    """Return the answers for some names, asked for in threads if they are many. Raise OSError.

    The daemon of a mount takes about as long for an answer as this process for a question. No exit of the process waits
    for these threads: a source may keep one for its whole timeout.
    """
    if len(names) < MANY:
        return [ask(name) for name in names]
    answers: dict[str, T] = {}
    errors: list[OSError] = []
    left = iter(names)

    def work() -> None:
        try:
            while not errors and (name := next(left, None)) is not None:
                answers[name] = ask(name)
        except OSError as error:
            errors.append(error)

    threads = [Thread(target=work, daemon=True) for _ in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [answers[name] for name in names]


def _renamed(found: Sequence[Change], lower: int) -> Iterator[Change]:
    """Join what was removed under one name and added under another; a copy of what is still there is merely added.

    Any program may have written what a file says of its old name: it counts only if an entry of the lower layer has it.
    """
    removed = {change.path: change for change in found if change.what == "removed"}
    taken: set[str] = set()
    joined: list[Change] = []
    for change in found:
        old = change.old
        if old is None or old in taken or not (_is_removed(old, removed) and _is_there(old, lower)):
            joined.append(replace(change, old=None) if change.what == "added" and old is not None else change)
        else:
            taken.add(old)
            joined.append(replace(change, what="renamed"))
    yield from (
        change
        for change in joined
        if not (change.what == "removed" and change.path in taken and not change.is_directory)
    )


def _is_removed(path: str, removed: Mapping[str, Change]) -> bool:
    """Return whether a path was removed, by itself or with a directory above it."""
    if path in removed:
        return not removed[path].is_directory
    while (path := path.rpartition("/")[0]) != "":
        if path in removed:
            return True
    return False


def _is_there(path: str, lower: int) -> bool:
    """Return whether a path leads to an entry of the lower layer through directories alone. Loads no content."""
    with suppress(OSError, ValueError), parent(path, lower) as (above, name):  # ValueError: no bytes have such text
        os.close(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above))
        return True
    return False
