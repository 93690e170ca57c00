"""Open directories of resources that are merely listed, however many: an entry is a hash and a count, no more.

Between two awaits a task is alone; nothing here locks or waits.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bbfs.resources.catalog.directory_view import View
from bbfs.resources.catalog.record import Lease, Node, Path
from bbfs.vfs.file_handles import Attributes, OpenFiles
from bbfs.vfs.inode_table import InodeTable

Tell = Callable[[Path, Node | None], Attributes]
"""The attributes of an entry, of which the kernel is given one more reference. Without a node: of what is there now."""


@dataclass(slots=True)
class ListedDirectory:
    """One that may be opened again, by any, while it is current. listed: the attributes that its listed files share."""

    path: Path
    view: View
    lease: Lease
    listed: Attributes

    @classmethod
    def of(cls, path: Path, view: View, lease: Lease) -> "ListedDirectory":
        return cls(path, view, lease, Attributes(0, "file", 0, view.modified_ns, 0.0, 0.0))

    def __len__(self) -> int:
        return len(self.view)

    def current(self, now: float) -> bool:
        return now < self.lease.until and self.view.unchanged

    def entries(
        self, position: int, inodes: InodeTable, files: OpenFiles, tell: Tell
    ) -> Iterator[tuple[bytes, Attributes, int]]:
        """(name, attributes, position of the next) from a position on. Each entry taken counts one reference.

        The attributes are good until the next entry is asked for.
        """
        path, listed, busy = self.path, self.listed, bool(files)
        while (found := self.view.at(position)) is not None:
            portion, start = found
            names, shown, numbers = portion.names, portion.shown, portion.numbers
            for place in range(start, len(names)):
                name, what = names[place], shown[place]
                position += 1
                below = (*path, name)
                if type(what) is not str:
                    yield name.encode(), tell(below, what), position  # type: ignore[arg-type] # a node
                    continue
                number = numbers[place]
                if not number:
                    number = numbers[place] = inodes.hashed(below, what)
                if (busy and files.holds(number)) or not inodes.show(number, below, what):
                    yield name.encode(), tell(below, None), position
                    continue
                listed.ino = number
                yield name.encode(), listed, position
