"""The members of an archive as a tree. No name leads out of it, and a member that hides another is counted.

Names are split at `/`. Empty and `.` parts vanish, so an absolute name begins at the archive's root, as with tar and
unzip. `..` stays a name: it is shown as `%2E%2E` and does not lead up.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from bbfs.model.errors import NotFound, TooLarge
from bbfs.sources.storage.addresses import Names, shown
from bbfs.sources.storage.backend import ListedItems, StoredItem

M = TypeVar("M")
MAX_NODES = 500_000
"""Limit on the members and directories of one archive; each takes about half a kilobyte of memory."""
MAX_DEPTH = 256
_TOLD = 3


def names_of(name: str) -> Names:
    """Return the path of a member inside its archive."""
    return tuple(part for part in name.split("/") if part not in ("", "."))


def stays_inside(path: Names, target: str) -> bool:
    """Return whether the target of a symbolic link at `path` is below the root."""
    if target.startswith("/") or "\0" in target or not target:
        return False
    depth = len(path) - 1
    for part in target.split("/"):
        depth += {"..": -1, "": 0, ".": 0}.get(part, 1)
        if depth < 0:
            return False
    return True


@dataclass(slots=True)
class _Directory(Generic[M]):
    modified_ns: int | None = None
    items: dict[str, "StoredItem | _Directory[M]"] = field(default_factory=dict)


class Members(Generic[M]):
    """The tree of one version of an archive, with the archive's own member (`M`) of each file.

    Members are added in the order of the archive: of several with one name the last one counts, as in extraction.
    """

    def __init__(self, what: str) -> None:
        """what: names the archive in errors."""
        self._what = what
        self._root: _Directory[M] = _Directory()
        self._files: dict[Names, M] = {}
        self._items: dict[Names, StoredItem] = {}
        self._directories: dict[Names, _Directory[M]] = {(): self._root}
        self._nodes = 0
        self._left_out: list[str] = []
        self._left_out_count = 0
        self._covered = 0
        self.damage: str | None = None

    def __len__(self) -> int:
        return self._nodes

    def leave_out(self, name: str, why: str) -> None:
        """Note a member that is not shown."""
        self._left_out_count += 1
        if len(self._left_out) < _TOLD:
            self._left_out.append(f"{shown(name)} ({why})")

    def add_directory(self, name: str, modified_ns: int | None) -> None:
        path = names_of(name)
        if self._fits(name, path):
            self._directory(path).modified_ns = modified_ns

    def add(self, name: str, member: M, **facts: Any) -> None:
        """Add a file or link. facts: the fields of its Item."""
        path = names_of(name)
        if not path:
            self.leave_out(name, "has no name")
            return
        if not self._fits(name, path):
            return
        self._directory(path[:-1])
        if path in self._items:
            self._covered += 1
        else:
            self._count()
        self._items[path] = StoredItem(path, **facts)
        self._files[path] = member

    def _fits(self, name: str, path: Names) -> bool:
        if len(path) > MAX_DEPTH:
            self.leave_out(name, f"more than {MAX_DEPTH} directories deep")
            return False
        return True

    def _directory(self, path: Names) -> _Directory[M]:
        depth = len(path)
        while path[:depth] not in self._directories:
            depth -= 1
        for upto in range(depth + 1, len(path) + 1):
            self._count()
            self._directories[path[:upto]] = _Directory()
        return self._directories[path]

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise TooLarge(f"{self._what}: more than {MAX_NODES} members and directories")

    def finish(self) -> None:
        """Sort all members into directories, after the last one was added."""
        for path in self._directories:
            if path:
                self._directories[path[:-1]].items[path[-1]] = self._directories[path]
        for path, item in self._items.items():
            inside = self._directories.get(path)
            if inside is None:
                self._directories[path[:-1]].items[path[-1]] = item

    def list(self, path: Names) -> ListedItems:
        """Return the entries of a directory; a file of its name is its own content (S5). Raises NotFound."""
        directory = self._directories.get(path)
        if directory is None:
            raise NotFound(f"{self._what}: no directory {shown('/'.join(path))}")
        own = self._items.get(path)
        items: list[StoredItem] = [own] if own is not None else []
        for name, entry in directory.items.items():
            items.append(
                entry
                if isinstance(entry, StoredItem)
                else StoredItem((*path, name), "directory", modified_ns=entry.modified_ns)
            )
        return ListedItems(tuple(items), self.problem if not path else None)

    def directory(self, path: Names) -> StoredItem:
        """Return a directory. Raises NotFound."""
        found = self._directories.get(path)
        if found is None:
            raise NotFound(f"{self._what}: no directory {shown('/'.join(path))}")
        return StoredItem(path, "directory", modified_ns=found.modified_ns)

    def find(self, path: Names) -> tuple[StoredItem, M]:
        """Return a file and its member. Raises NotFound."""
        if path not in self._items:
            raise NotFound(f"{self._what}: no member {shown('/'.join(path))}")
        return self._items[path], self._files[path]

    def member(self, name: str) -> M | None:
        """Return the member that was added last under a name, the target of a hard link."""
        return self._files.get(names_of(name))

    def item(self, name: str) -> StoredItem | None:
        return self._items.get(names_of(name))

    @property
    def problem(self) -> str | None:
        return "; ".join(self._problems()) or None

    def _problems(self) -> Iterator[str]:
        if self.damage is not None:
            yield f"{self._what}: {self.damage}"
        if self._left_out_count:
            more = self._left_out_count - len(self._left_out)
            yield f"{self._what}: left out: {', '.join(self._left_out)}" + (f" and {more} more" if more else "")
        if self._covered:
            yield f"{self._what}: {self._covered} members are covered by later ones of the same name"
