"""Writing: what a program creates, changes, renames and removes on a mount.

Every method is awaited by the adapter, raises BbfsError, and may wait for a source.
"""

from dataclasses import dataclass
from typing import NoReturn

from bbfs.model.errors import ReadOnly
from bbfs.vfs.file_handles import Attributes


@dataclass(frozen=True, slots=True)
class NewAttributes:
    """The attributes that a program sets; None: left as it is. size: bytes. Times: nanoseconds since the epoch."""

    size: int | None = None
    modified_ns: int | None = None
    accessed_ns: int | None = None
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None


class Writes:
    """The write side of a file system. Inode numbers and handles are those of the `FileSystem`.

    possible: whether any source can be written.
    """

    possible = False

    async def create(self, parent: int, raw_name: bytes, flags: int, mode: int) -> tuple[int, Attributes]:
        """Create a file, or open one that is there unless `flags` has O_EXCL. Count one lookup of it."""
        _refuse()

    async def make_node(self, parent: int, raw_name: bytes, mode: int) -> Attributes:
        """Create a regular file without opening it. Count one lookup."""
        _refuse()

    async def open(self, ino: int, flags: int) -> int:
        """Return a handle for writing, and for reading unless `flags` has O_WRONLY."""
        _refuse()

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        _refuse()

    async def flush(self, handle: int) -> None:
        """Hand over what was written: a program has closed one of the file's descriptors."""

    async def sync(self, handle: int) -> None:
        """Hand over what was written, and wait until the source has stored it."""

    async def set_attributes(self, ino: int, handle: int | None, wanted: NewAttributes) -> Attributes:
        _refuse()

    async def remove(self, parent: int, raw_name: bytes) -> None:
        _refuse()

    async def make_directory(self, parent: int, raw_name: bytes, mode: int) -> Attributes:
        """Make a directory. Count one lookup."""
        _refuse()

    async def remove_directory(self, parent: int, raw_name: bytes) -> None:
        _refuse()

    async def rename(self, parent: int, raw_name: bytes, to_parent: int, to_name: bytes, flags: int) -> None:
        """Rename. flags: of renameat2(2)."""
        _refuse()

    async def link(self, ino: int, parent: int, raw_name: bytes) -> Attributes:
        """Make another name of a file. Count one lookup."""
        _refuse()

    async def symlink(self, parent: int, raw_name: bytes, target: bytes) -> Attributes:
        """Make a symbolic link. Count one lookup."""
        _refuse()


def _refuse() -> NoReturn:
    raise ReadOnly("no source of this mount can be written")
