"""A kernel for a passed folder without a mount: resolves paths by lookups, and keeps names as the real one does."""

import errno
import os
import stat
from dataclasses import dataclass, field

from bbfs.vfs.file_handles import NewAttributes
from bbfs.vfs.passthrough.folder import EXCHANGE, Creator, PassedFile, PassedFolder
from bbfs.vfs.passthrough.inodes import PassedInode

OWN = (os.geteuid(), os.getegid())


@dataclass
class PlainKernel:
    """System calls on a passed folder, by paths of it. No path has `.` or `..`, and all links lead nowhere.

    names: the names that it holds, by directory and name, each with one lookup of its inode.
    """

    folder: PassedFolder
    names: dict[tuple[int, str], PassedInode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.open_root()
        self.root = self.folder.inodes.root

    def find(self, path: str) -> PassedInode:
        inode = self.root
        for name in filter(None, path.split("/")):
            inode = self.entry(inode, name)
        return inode

    def entry(self, parent: PassedInode, name: str) -> PassedInode:
        held = self.names.get((parent.number, name))
        if held is not None:
            try:
                self.folder.getattr(held)  # a name that is held is used without a lookup
                return held
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                self.drop(parent, name)
        self.require_directory(parent)
        status = self.folder.lookup(parent, os.fsencode(name))
        return self.hold(parent, name, status)

    def hold(self, parent: PassedInode, name: str, status: os.stat_result) -> PassedInode:
        inode = self.folder.counted(parent, os.fsencode(name), status)
        self.drop(parent, name)
        self.names[parent.number, name] = inode
        return inode

    def drop(self, parent: PassedInode, name: str) -> None:
        held = self.names.pop((parent.number, name), None)
        if held is not None:
            self.folder.forget(held.number, 1)

    def place(self, path: str) -> tuple[PassedInode, str]:
        above, _, name = path.rpartition("/")
        parent = self.find(above)
        self.require_directory(parent)
        return parent, name

    def require_directory(self, inode: PassedInode) -> None:
        kind = stat.S_IFMT(self.folder.getattr(inode).st_mode)
        if kind != stat.S_IFDIR:
            raise OSError(errno.ENOENT if kind == stat.S_IFLNK else errno.ENOTDIR, "")

    def stat(self, path: str) -> os.stat_result:
        return self.folder.getattr(self.find(path))

    def open(self, path: str, flags: int, mode: int = 0o644) -> tuple[PassedFile, int]:
        """Open a file; create it if `flags` has O_CREAT. Return it and its handle."""
        parent, name = self.place(path)
        try:
            inode: PassedInode | None = self.entry(parent, name)
        except FileNotFoundError:
            inode = None
        if inode is None and not flags & os.O_CREAT:
            raise OSError(errno.ENOENT, "")
        if inode is None:
            creator = Creator(mode, *OWN)
            descriptor, status = self.folder.create(parent, os.fsencode(name), flags, creator)
            inode = self.hold(parent, name, status)
            opened = PassedFile(inode, descriptor, flags & os.O_ACCMODE != os.O_RDONLY)
        else:
            kind = stat.S_IFMT(self.folder.getattr(inode).st_mode)
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise OSError(errno.EEXIST, "")
            if kind == stat.S_IFLNK:
                raise OSError(errno.ELOOP, "")
            if kind == stat.S_IFDIR:
                raise OSError(errno.EISDIR, "")
            opened, _ = self.folder.open(inode, flags)
        handle = id(opened)
        inode.handles[handle] = opened.descriptor
        return opened, handle

    def close(self, opened: PassedFile) -> None:
        opened.inode.handles.pop(id(opened), None)
        self.folder.closed(opened)

    def write_at(self, path: str, flags: int, offset: int, data: bytes) -> None:
        opened, _ = self.open(path, flags)
        try:
            assert self.folder.write(opened, offset, data) == len(data)
        finally:
            self.close(opened)

    def read_all(self, path: str) -> bytes:
        opened, _ = self.open(path, os.O_RDONLY)
        try:
            size = self.folder.getattr(opened.inode).st_size
            now = self.folder.read_now(opened, 0, size + 1)
            data = self.folder.read(opened, 0, size + 1)
            assert now is None or bytes(now) == data
            return data
        finally:
            self.close(opened)

    def listdir(self, path: str) -> list[str]:
        inode = self.find(path)
        self.require_directory(inode)
        opened = self.folder.opendir(inode)
        self.folder.begin(opened)
        found: list[str] = []
        for place, name in enumerate(opened.names):
            if place not in opened.looked_at:
                self.folder.look_ahead(opened, place)
            if place in opened.ahead:
                found.append(os.fsdecode(name))
        opened.descriptor.close()
        return found

    def set(self, path: str, **changed: int) -> None:
        self.folder.setattr(self.find(path), None, NewAttributes(**changed))

    def truncate(self, path: str, size: int) -> None:
        inode = self.find(path)
        kind = stat.S_IFMT(self.folder.getattr(inode).st_mode)
        if kind == stat.S_IFDIR:
            raise OSError(errno.EISDIR, "")
        if kind == stat.S_IFLNK:
            raise OSError(errno.ELOOP, "")
        self.folder.setattr(inode, None, NewAttributes(size=size))

    def mkdir(self, path: str) -> None:
        parent, name = self.place(path)
        self.hold(parent, name, self.folder.mkdir(parent, os.fsencode(name), Creator(0o755, *OWN)))

    def symlink(self, target: str, path: str) -> None:
        parent, name = self.place(path)
        made = self.folder.symlink(parent, os.fsencode(name), os.fsencode(target), Creator(0, *OWN))
        self.hold(parent, name, made)

    def readlink(self, path: str) -> str:
        inode = self.find(path)
        if not stat.S_ISLNK(self.folder.getattr(inode).st_mode):
            raise OSError(errno.EINVAL, "")
        return os.fsdecode(self.folder.readlink(inode))

    def link(self, path: str, to: str) -> None:
        inode = self.find(path)
        parent, name = self.place(to)
        self.hold(parent, name, self.folder.link(inode, parent, os.fsencode(name)))

    def unlink(self, path: str) -> None:
        parent, name = self.place(path)
        self.folder.unlink(parent, os.fsencode(name))
        self.drop(parent, name)

    def rmdir(self, path: str) -> None:
        parent, name = self.place(path)
        self.folder.rmdir(parent, os.fsencode(name))
        self.drop(parent, name)

    def rename(self, path: str, to: str, flags: int = 0) -> None:
        parent, name = self.place(path)
        to_parent, to_name = self.place(to)
        self.folder.rename(parent, os.fsencode(name), to_parent, os.fsencode(to_name), flags)
        if (parent.number, name) == (to_parent.number, to_name):
            return
        moved = self.names.pop((parent.number, name), None)
        replaced = self.names.pop((to_parent.number, to_name), None)
        if moved is not None:
            self.names[to_parent.number, to_name] = moved
        if replaced is not None and flags & EXCHANGE:
            self.names[parent.number, name] = replaced
        elif replaced is not None:
            self.folder.forget(replaced.number, 1)
