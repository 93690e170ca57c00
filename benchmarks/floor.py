"""The floor: what a tree on pyfuse3 costs at least. A copy of a directory in memory, mounted with the best options.

Everything is made before the mount: an answer is one look into a table. Names and attributes are good for an hour,
pages are kept, FLUSH is answered once with ENOSYS. What a file system that knows more takes longer is its own cost.

    python benchmarks/floor.py DIRECTORY MOUNTPOINT [--no-xattrs]

It serves until SIGTERM or SIGINT. --no-xattrs: questions for extended attributes are answered once for all with ENOSYS;
otherwise each is asked, and answered with ENODATA.
"""

import argparse
import errno
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileHandleT, FileInfo, FileNameT, FUSEError, InodeT, ReaddirToken, RequestContext

VALID = 3600.0
"""Seconds for which the kernel may keep names and attributes."""


@dataclass(slots=True)
class Node:
    attributes: EntryAttributes
    data: bytes = b""
    info: FileInfo | None = None
    children: dict[bytes, "Node"] = field(default_factory=dict)
    listing: list[tuple[FileNameT, EntryAttributes]] = field(default_factory=list)


class Floor(pyfuse3.Operations):
    """A tree in memory. An inode number is a place in `nodes`, and its own file handle."""

    def __init__(self, directory: bytes, *, xattrs: bool) -> None:
        super().__init__()
        self._no_attribute = errno.ENODATA if xattrs else errno.ENOSYS
        self._nodes: list[Node] = [Node(EntryAttributes())]  # 0 is no inode
        self._read(directory)

    def _read(self, path: bytes) -> Node:
        status = os.lstat(path)
        attributes = EntryAttributes()
        attributes.st_ino = InodeT(len(self._nodes))
        attributes.entry_timeout = attributes.attr_timeout = VALID
        for name in (
            "st_mode",
            "st_uid",
            "st_gid",
            "st_size",
            "st_blocks",
            "st_mtime_ns",
            "st_ctime_ns",
            "st_atime_ns",
        ):
            setattr(attributes, name, getattr(status, name))
        node = Node(attributes)
        self._nodes.append(node)
        if os.path.isdir(path):
            for name in sorted(os.listdir(path)):
                node.children[name] = self._read(os.path.join(path, name))
            node.listing = [(FileNameT(name), child.attributes) for name, child in node.children.items()]
        else:
            with open(path, "rb") as file:
                node.data = file.read()
            node.info = FileInfo(fh=FileHandleT(attributes.st_ino), keep_cache=True)
        return node

    async def lookup(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> EntryAttributes:
        child = self._nodes[parent_inode].children.get(name)
        if child is not None:
            return child.attributes
        absent = EntryAttributes()
        absent.entry_timeout = VALID
        return absent

    async def forget(self, inode_list: Sequence[tuple[InodeT, int]]) -> None:
        """Nothing is counted: every inode stays."""

    async def getattr(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        return self._nodes[inode].attributes

    async def opendir(self, inode: InodeT, ctx: RequestContext) -> FileHandleT:
        return FileHandleT(inode)

    async def readdir(self, fh: FileHandleT, start_id: int, token: ReaddirToken) -> None:
        listing = self._nodes[fh].listing
        for position in range(start_id, len(listing)):
            name, attributes = listing[position]
            if not pyfuse3.readdir_reply(token, name, attributes, position + 1):
                break

    async def releasedir(self, fh: FileHandleT) -> None:
        """A directory's handle is its inode."""

    async def open(self, inode: InodeT, flags: int, ctx: RequestContext) -> FileInfo:
        info = self._nodes[inode].info
        if info is None:
            raise FUSEError(errno.EISDIR)
        return info

    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        return self._nodes[fh].data[off : off + size]

    async def flush(self, fh: FileHandleT) -> None:
        raise FUSEError(errno.ENOSYS)

    async def release(self, fh: FileHandleT) -> None:
        """A file's handle is its inode."""

    async def getxattr(self, inode: InodeT, name: bytes, ctx: RequestContext) -> bytes:
        raise FUSEError(self._no_attribute)

    async def listxattr(self, inode: InodeT, ctx: RequestContext) -> Sequence[bytes]:
        return []


async def serve() -> None:
    """Until a signal, or an unmount."""
    async with trio.open_nursery() as nursery:

        async def stop() -> None:
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

        nursery.start_soon(stop)
        await pyfuse3.main()
        nursery.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("mountpoint")
    parser.add_argument("--no-xattrs", action="store_true", help="answer questions for extended attributes with ENOSYS")
    arguments = parser.parse_args()
    tree = Floor(os.fsencode(os.path.realpath(arguments.directory)), xattrs=not arguments.no_xattrs)
    pyfuse3.init(tree, arguments.mountpoint, {"fsname=floor", "default_permissions", "nosuid", "nodev", "ro"})
    try:
        trio.run(serve)
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    main()
