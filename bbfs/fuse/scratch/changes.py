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


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of the upper layer. upper: its directory there. path: from the root of the layer."""

    upper: int
    path: str
    name: str
    status: os.stat_result

    @property
    def type(self) -> Type:
        return type_of(self.status)

    def change(self, what: What, old: str | None = None, before: int | None = None) -> Change:
        """Return a change with what the entry says."""
        is_link = self.type == "symlink"
        target = os.readlink(self.name, dir_fd=self.upper) if is_link else None
        mode = None if is_link else stat.S_IMODE(self.status.st_mode)
        size = 0 if self.type == "directory" else self.status.st_size
        return Change(what, self.path, self.type, old, size, mode, before, target, identity(self.status))

    @contextmanager
    def opened(self) -> Iterator[int | None]:
        """Open a directory. Yield None for one that its own user may not read: a program made it so.

        The change of its mode is listed, and nothing that is in it. Raise OSError.
        """
        with ExitStack() as stack:
            found: int | None = None
            with suppress(PermissionError):
                found = stack.enter_context(directory(self.name, self.upper))
            yield found


@dataclass(slots=True)
class _Reader:
    """Reads the upper layer, with the marks of the overlay that wrote it."""

    marks: Marks

    def below(self, upper: int, lower: int | None, path: str, depth: int) -> Iterator[Change]:
        """Yield the changes of one directory and those below it. lower: None if the lower layer has none there."""
        entries, removed = self._entries(upper, path, depth)
        if lower is not None and self.marks.is_opaque(upper):
            removed |= set(os.listdir(lower)).difference(entries)
        hiding = {name for name, entry in entries.items() if is_whiteout(entry.status)}
        removed |= hiding
        with _located(path):
            shown = {} if lower is None else _in_lower({*entries, *removed}, lower)
            same = {} if lower is None else _compared(entries, shown, lower)
            shown = {name: found for name, found in shown.items() if same.get(name, False) is not None}
        for name, entry in entries.items():
            if name not in hiding:
                yield from self._changes(entry, lower, shown.get(name), same.get(name), depth)
        for name in sorted(removed):
            below = shown.get(name)
            if below is not None:
                hides = status(name, upper)
                yield Change(
                    "removed", path + name, type_of(below), identity=None if hides is None else identity(hides)
                )

    def alone(self, upper: int, path: str, depth: int) -> Iterator[Change]:
        """Yield the changes of one directory and those below it, as far as the upper layer tells."""
        entries, removed = self._entries(upper, path, depth)
        for name, entry in entries.items():
            if is_whiteout(entry.status):
                removed.add(name)
            elif entry.type != "directory":
                yield entry.change("written")
            else:
                with entry.opened() as inside:
                    if inside is None or self.marks.is_opaque(inside):
                        yield entry.change("written")
                    if inside is not None:
                        yield from self.alone(inside, f"{entry.path}/", depth + 1)
        yield from (Change("removed", path + name, "other") for name in removed)

    def _entries(self, upper: int, path: str, depth: int) -> tuple[dict[str, _Entry], set[str]]:
        """Return the entries of a directory by name, and the names that others say are removed. Raise TooLarge."""
        if depth > MAX_DEPTH:
            raise TooLarge(
                f"{path[:200]}…: more than {MAX_DEPTH} directories in each other; 'bbfs discard' removes them"
            )
        listed = sorted(os.listdir(upper))
        names = [name for name in listed if not self.marks.is_mark(name)]
        found = {name: os.stat(name, dir_fd=upper, follow_symlinks=False) for name in names}
        entries = {name: _Entry(upper, path + name, name, each) for name, each in found.items()}
        return entries, set(self.marks.removed_by_name(listed))

    def _changes(
        self, entry: _Entry, lower: int | None, below: os.stat_result | None, is_same: bool | None, depth: int
    ) -> Iterator[Change]:
        """Yield the changes of an entry and of what is below it. below, is_same: of the lower layer's entry, if any."""
        if below is not None and type_of(below) != entry.type:
            yield Change("removed", entry.path, type_of(below), identity=identity(entry.status))
            below = None
        if below is None:
            yield entry.change("added", _old_path(entry))
        elif (what := _difference(entry, below, is_same=is_same)) is not None:
            yield entry.change(what, before=stat.S_IMODE(below.st_mode))
        if entry.type != "directory":
            return
        with entry.opened() as inside:
            if inside is None:
                return
            if below is None or lower is None:
                yield from self.below(inside, None, entry.path + "/", depth + 1)
            else:
                with directory(entry.name, lower) as other:
                    yield from self.below(inside, other, entry.path + "/", depth + 1)


def _old_path(entry: _Entry) -> str | None:
    """Return the path that a file says it was copied from, if that is another one."""
    old = origin_of(entry.name, entry.upper).get("path") if entry.type == "file" else None
    return old if isinstance(old, str) and old != entry.path else None


def _difference(entry: _Entry, below: os.stat_result, *, is_same: bool | None) -> What | None:
    """Return in what an entry differs from that of the lower layer, if in anything."""
    if entry.type != "directory" and not is_same:
        return "changed"
    if entry.type == "symlink":
        return None
    touched = stat.S_IMODE(entry.status.st_mode) != stat.S_IMODE(below.st_mode)
    if entry.type == "file":
        touched |= entry.status.st_mtime_ns != below.st_mtime_ns
    return "attributes" if touched else None


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
    entries: Mapping[str, _Entry], shown: Mapping[str, os.stat_result], lower: int
) -> Mapping[str, bool | None]:
    """Return whether each entry that is of one type in both layers, and no directory, is the same. Raise OSError.

    None: the source has removed it since it was shown.
    """
    both = [name for name in entries if name in shown and entries[name].type == type_of(shown[name]) != "directory"]

    def same(name: str) -> bool | None:
        try:
            return is_same(name, entries[name].upper, lower, entries[name].status, shown[name])
        except FileNotFoundError:
            return None

    return dict(zip(both, _each(both, same), strict=True))


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
