"""The members of an archive as a tree. No name leads out of it, and a member that hides another is counted.

Names are split at `/`. Empty and `.` parts vanish, so an absolute name begins at the archive's root, as with tar and
unzip. `..` stays a name: it is shown as `%2E%2E` and does not lead up.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from bbfs.model.errors import NotFound, TooLarge
from bbfs.sources.storage.addresses import Names, shown
from bbfs.sources.storage.backend import Collected, StoredItem

MAX_NODES = 500_000
"""Limit on the members and directories of one archive; each takes up to half a kilobyte of memory."""
MAX_DIRECTORIES = 100_000
MAX_DEPTH = 256
LONGEST_NAME = 4096
"""Characters of a name with its directories, or of the target of a link (PATH_MAX)."""
MOST_NAMES = 64 << 20
"""Characters of all names and targets of one archive, together."""
_MOST_LINKS = 40
"""Links in a row that the kernel follows (path_resolution(7))."""
_TOLD = 3


def names_of(name: str) -> Names:
    """Return the path of a member inside its archive."""
    return tuple(part for part in name.split("/") if part not in ("", "."))


def stays_inside(path: Names, target: str) -> bool:
    """Return whether a link at `path` stays below the root, whatever links there are on its way.

    A name before `..` may be a link itself; then `..` leads up from elsewhere.
    """
    if target.startswith("/") or "\0" in target or not target:
        return False
    parts = names_of(target)
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return up < len(path) and ".." not in parts[up:]


@dataclass(slots=True)
class _Directory:
    """own: the file that has the same name (S5)."""

    parent: "_Directory | None"
    modified_ns: int | None = None
    own: "bytes | _Link | None" = None
    items: "dict[str, bytes | _Link | _Directory]" = field(default_factory=dict)


_Link: TypeAlias = tuple[str, int | None]
"""Target and time of a symbolic link."""
_Place: TypeAlias = _Directory | Literal[False] | None
"""The target of a link: a directory, None for anything else, False for what is or may be outside."""


class Members:
    """The tree of one version of an archive, with the archive's own member of each file, in bytes.

    Members are added in the order of the archive: of several with one name the last one counts, as in extraction. Half
    a million objects would stall the garbage collector, and with it all sources; it does not look at bytes.
    """

    def __init__(self, what: str, describe: Callable[[Names, bytes], StoredItem]) -> None:
        """what: names the archive in errors. describe: returns the item of a file."""
        self._what = what
        self._describe = describe
        self._root = _Directory(None)
        self._nodes = self._directories = self._characters = 0
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
        path = self._path(name)
        if path is not None:
            self._directory(path).modified_ns = modified_ns

    def add(self, name: str, member: bytes) -> None:
        self._put(name, member)

    def add_link(self, name: str, target: str, modified_ns: int | None) -> None:
        """Add a symbolic link; `finish` leaves it out if it leads out of the archive."""
        if len(target) > LONGEST_NAME:
            self.leave_out(name, f"a link to a name of more than {LONGEST_NAME} characters")
        else:
            self._count(0, len(target))
            self._put(name, (target, modified_ns))

    def _put(self, name: str, entry: bytes | _Link) -> None:
        path = self._path(name)
        if path == ():
            self.leave_out(name, "has no name")
        if not path:
            return
        above, last = self._directory(path[:-1]), path[-1]
        known = above.items.get(last)
        if isinstance(known, _Directory):
            self._covered += known.own is not None
            known.own = entry
            return
        self._covered += known is not None
        if known is None:
            self._count(1, len(last))
        above.items[last] = entry

    def _path(self, name: str) -> Names | None:
        """Return the path of a member, or None if it is left out."""
        if len(name) > LONGEST_NAME:
            self.leave_out(name, f"a name of more than {LONGEST_NAME} characters")
            return None
        path = names_of(name)
        if len(path) > MAX_DEPTH:
            self.leave_out(name, f"more than {MAX_DEPTH} directories deep")
            return None
        return path

    def _directory(self, path: Names) -> _Directory:
        """Return the directory of a path, and make it if it does not exist."""
        here = self._root
        for name in path:
            entry = here.items.get(name)
            if not isinstance(entry, _Directory):
                self._count(entry is None, len(name))
                self._directories += 1
                if self._directories > MAX_DIRECTORIES:
                    raise TooLarge(f"{self._what}: more than {MAX_DIRECTORIES} directories")
                entry = here.items[name] = _Directory(here, own=entry)
            here = entry
        return here

    def _count(self, nodes: int, characters: int) -> None:
        self._nodes += nodes
        self._characters += characters
        if self._nodes > MAX_NODES:
            raise TooLarge(f"{self._what}: more than {MAX_NODES} members and directories")
        if self._characters > MOST_NAMES:
            raise TooLarge(f"{self._what}: more than {MOST_NAMES} characters of names")

    # -- links -------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Leave out the links that lead out of the archive, after the last member was added."""
        known: dict[int, _Place] = {}
        waiting = [self._root]
        while waiting:
            directory = waiting.pop()
            for name, entry in list(directory.items.items()):
                if isinstance(entry, _Directory):
                    waiting.append(entry)
                    if isinstance(entry.own, tuple):
                        self.leave_out(name, "a link that has the name of a directory")
                        entry.own = None
                elif isinstance(entry, tuple) and self._followed(entry, directory, known, 0) is False:
                    self.leave_out(name, "a link that leads out of the archive")
                    del directory.items[name]

    def _followed(self, link: _Link, at: _Directory, known: dict[int, _Place], depth: int) -> _Place:
        """Return where a link leads to. at: the directory of the link. known: the places of links, by their `id`.

        `..` after an unknown name may lead out: the name may be shown differently.
        """
        if id(link) in known:
            return known[id(link)]
        known[id(link)] = False  # a circle comes back here
        target = link[0]
        if target.startswith("/") or "\0" in target or not target or depth > _MOST_LINKS:
            return False
        place: _Directory | None = at
        for part in names_of(target):
            if part == "..":
                place = None if place is None else place.parent
                if place is None:
                    return False
            elif place is not None:
                entry = place.items.get(part)
                found = self._followed(entry, place, known, depth + 1) if isinstance(entry, tuple) else entry
                place = found if isinstance(found, _Directory) else None
        known[id(link)] = place
        return place

    # -- what there is -----------------------------------------------------------------------------------------------

    def _find(self, path: Names) -> bytes | _Link | _Directory | None:
        here: bytes | _Link | _Directory | None = self._root
        for name in path:
            here = here.items.get(name) if isinstance(here, _Directory) else None
        return here

    def list(self, path: Names, collected: Collected) -> None:
        """Add the entries of a directory; a file of its name is its own content (S5). Raises NotFound."""
        directory = self._find(path)
        if not isinstance(directory, _Directory):
            raise NotFound(f"{self._what}: no directory {shown('/'.join(path))}")
        for name, entry in directory.items.items():
            if not collected.add(self._item((*path, name), entry)):
                break

    def own(self, path: Names) -> tuple[StoredItem, ...]:
        """Return the item of the file that has the name of a directory, if there is one."""
        directory = self._find(path)
        if not isinstance(directory, _Directory) or directory.own is None:
            return ()
        return (self._item(path, directory.own),)

    def _item(self, path: Names, entry: bytes | _Link | _Directory) -> StoredItem:
        if isinstance(entry, _Directory):
            return StoredItem(path, "directory", modified_ns=entry.modified_ns)
        if isinstance(entry, tuple):
            return StoredItem(path, "symlink", modified_ns=entry[1], target=entry[0])
        return self._describe(path, entry)

    def directory(self, path: Names) -> StoredItem:
        """Return a directory. Raises NotFound."""
        found = self._find(path)
        if not isinstance(found, _Directory):
            raise NotFound(f"{self._what}: no directory {shown('/'.join(path))}")
        return self._item(path, found)

    def find(self, path: Names) -> tuple[StoredItem, bytes | None]:
        """Return a file and its member, or a symbolic link. Raises NotFound."""
        found = self._find(path)
        entry = found.own if isinstance(found, _Directory) else found
        if entry is None:
            raise NotFound(f"{self._what}: no member {shown('/'.join(path))}")
        return self._item(path, entry), None if isinstance(entry, tuple) else entry

    def member(self, name: str) -> bytes | None:
        """Return the member that was added last under a name, the target of a hard link."""
        found = self._find(names_of(name)) if len(name) <= LONGEST_NAME else None
        entry = found.own if isinstance(found, _Directory) else found
        return None if isinstance(entry, tuple) else entry

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
