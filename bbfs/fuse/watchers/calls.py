"""The calls of the toucher: one at a time, expected by the daemon, which recognises its requests and changes nothing.

`toucher` says how a request is known to be the toucher's. Such a request never reaches a source, and the process makes
none before its number is known. What it asks for is answered if it is part of the expected call: that directory, that
name, that kind of call, and for a change of times a number which only the daemon and this process know. Anything else
that it asks is refused. Requests of other processes are answered as ever.

Answers wait for no source: the kernel locks the directory meanwhile.
"""

import errno
import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NoReturn

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FUSEError, InodeT, RequestContext, SetattrFields

from bbfs.fuse.backings.attributes import Ownership
from bbfs.fuse.backings.stored import packed
from bbfs.fuse.watchers.toucher import REPORTED_WITHIN, Call, Kind, Status, Toucher
from bbfs.model.errors import BbfsError
from bbfs.resources.catalog.record import DIRECTORY, DIRECTORY_VERSION, PASSED, ROOT, Node, Path
from bbfs.vfs.file_handles import Attributes
from bbfs.vfs.filesystem import FileSystem

GONE_VERSION, HIDDEN_VERSION = "\0-", "\0."
"""The version parts of an inode that stands for what a name led to, until the call that removes the name ends, and of
the directory that only the toucher finds."""
_CREATES: dict[str, Literal["directory", "file", "symlink"]] = {
    "file": "file", "folder": "directory", "link": "symlink",
}  # fmt: skip
_REFUSED = ("open", "create", "rename", "link", "setxattr", "removexattr")
"""Requests that no call makes."""


class RecognisedCalls:
    """pyfuse3's requests: those of the toucher are answered here, all others by `operations`.

    present: returns the node at a path as far as it is known, without asking a source. A request of any other process
    costs one look at its number: the methods that the kernel's requests call are no coroutines of their own.
    """

    def __init__(
        self,
        operations: Any,
        files: FileSystem,
        owner: Ownership,
        calls: Toucher,
        present: Callable[[Path], Node | None],
    ) -> None:
        self._operations = operations
        self._files = files
        self._owner = owner
        self._calls = calls
        self._present = present
        self._lookup: Callable[..., Awaitable[EntryAttributes]] = operations.lookup
        answers: dict[str, Callable[..., Awaitable[Any]]] = {
            "getattr": self._got,
            "setattr": self._set,
            "mknod": partial(self._made, "file"),
            "mkdir": partial(self._made, "folder"),
            "symlink": partial(self._made, "link"),
            "unlink": self._unlinked,
            "rmdir": self._removed,
        }
        for name in (*answers, *_REFUSED):
            setattr(self, name, self._divided(getattr(operations, name), answers.get(name, _refused)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operations, name)

    def _divided(
        self, request: Callable[..., Awaitable[Any]], answer: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        """Return a request that `answer` answers for the toucher. Its context is the last argument."""
        numbers, made = self._calls.numbers, self._calls.made

        def ask(*arguments: Any) -> Awaitable[Any]:
            number = arguments[-1].pid
            return answer(*arguments) if number in numbers and made(number) else request(*arguments)

        return ask

    # -- what the toucher looks up -----------------------------------------------------------------------------------

    def lookup(self, parent: InodeT, name: bytes, ctx: RequestContext) -> Awaitable[EntryAttributes]:
        calls = self._calls
        if ctx.pid in calls.numbers and calls.made(ctx.pid):
            return self._looked_up(parent, name, ctx)
        if name == calls.greeting and parent == ROOT:
            calls.greet(ctx.pid)
            return self._looked_up(parent, name, ctx)  # nothing is expected yet
        return self._lookup(parent, name, ctx)

    async def _looked_up(self, parent: InodeT, name: bytes, ctx: RequestContext) -> EntryAttributes:
        call = self._calls.expected
        if call is None:
            raise FUSEError(errno.ENOENT)
        if call.earlier is not None:
            return self._earlier(parent, name, call, call.earlier)
        if call.kind == "touch" or (parent, name) != (call.parent, call.name):
            return await self._on_the_way(parent, name, ctx)
        if call.kind in _CREATES:
            raise FUSEError(errno.ENOENT)
        if call.kind == "modify":
            return await self._there(call, ctx)
        return self._gone(call)

    def _earlier(self, parent: int, name: bytes, call: Call, status: Status) -> EntryAttributes:
        """Return the entry of the hidden directory, or that of the earlier version in it."""
        inodes, hidden = self._files.inodes, (call.hidden.decode(),)
        if (parent, name) == (ROOT, call.hidden):
            ino = inodes.remember(hidden, HIDDEN_VERSION)
            return self._entry(Attributes(ino, "directory", 0, self._files.names.started_ns, 0.0, 0.0))
        if parent != inodes.held(hidden, HIDDEN_VERSION) or name != call.name or status.ino not in inodes:
            raise FUSEError(errno.ENOENT)
        inodes.inode(status.ino).lookups += 1
        return _unchanged(status)

    async def _on_the_way(self, parent: InodeT, name: bytes, ctx: RequestContext) -> EntryAttributes:
        """Return the entry of a directory that the kernel holds, on the way to that of the call."""
        if parent >= PASSED:
            found: EntryAttributes = await self._operations.lookup(parent, name, ctx)
            return found
        with suppress(BbfsError, UnicodeDecodeError):
            path = (*self._files.names.path(parent), name.decode())
            is_passed = len(path) == 1 and path[0] in self._files.names.passed
            if is_passed or self._files.inodes.held(path, DIRECTORY_VERSION) is not None:
                return self._entry(self._files.names.counted(path, DIRECTORY))
        raise FUSEError(errno.ENOENT)

    async def _there(self, call: Call, ctx: RequestContext) -> EntryAttributes:
        """Return the entry of a file as it was last shown."""
        if call.parent >= PASSED:
            return await self._of_folder(call, ctx)
        node = self._present(call.path)
        if node is None or node.kind != "file" or node.draft is not None:
            raise FUSEError(errno.ENOENT)
        found = self._files.names.counted(call.path, node)
        found.entry_timeout = found.attr_timeout = 0.0
        return self._entry(found)

    async def _of_folder(self, call: Call, ctx: RequestContext) -> EntryAttributes:
        found: EntryAttributes = await self._operations.lookup(call.parent, call.name, ctx)
        if found.st_ino == 0:
            raise FUSEError(errno.ENOENT)
        return found

    def _gone(self, call: Call) -> EntryAttributes:
        """Return an entry in the place of one that is gone, for the call that removes it."""
        kind: Literal["directory", "file"] = "directory" if call.kind == "rmdir" else "file"
        version = GONE_VERSION
        if kind == "directory" and self._files.inodes.held(call.path, DIRECTORY_VERSION) is not None:
            version = DIRECTORY_VERSION
        ino = self._files.inodes.remember(call.path, version)
        return self._entry(Attributes(ino, kind, 0, self._files.names.started_ns, 0.0, 0.0))

    def _entry(self, found: Attributes) -> EntryAttributes:
        entry = packed(found, self._owner)
        entry.st_ino = InodeT(found.ino)
        entry.entry_timeout, entry.attr_timeout = found.entry_timeout, found.attr_timeout
        return entry

    async def _got(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        """Answer the check of a permission. The toucher may change names in the directory, for this one request.

        No other user may: it is the owner, or has a privilege. The daemon answers its user's other programs as ever.
        """
        entry = await self._attributes(inode, ctx)
        entry.attr_timeout = 0.0
        call = self._calls.expected
        is_owner = entry.st_uid == os.geteuid()
        if is_owner and call is not None and call.changes_names() and inode == call.parent:
            entry.st_mode = pyfuse3.ModeT(entry.st_mode | stat.S_IWUSR)
        return entry

    async def _attributes(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        if inode >= PASSED:
            entry = EntryAttributes()
            entry.__setstate__((await self._operations.getattr(inode, ctx)).__getstate__())  # it may be kept
            return entry
        try:
            path, version = self._files.inodes.get(inode)
        except BbfsError:
            raise FUSEError(errno.ESTALE) from None
        if version not in (DIRECTORY_VERSION, HIDDEN_VERSION):
            raise FUSEError(errno.ESTALE)
        return self._entry(self._files.names.attributes(inode, path, DIRECTORY))

    # -- what the toucher changes ------------------------------------------------------------------------------------

    def _expected(self, parent: int, name: bytes, kinds: Iterable[Kind]) -> Call:
        """Return the expected call, if it is this one. Raise FUSEError (EROFS) for any other."""
        call = self._calls.expected
        if call is None or call.kind not in kinds or (parent, name) != (call.parent, call.name):
            raise FUSEError(errno.EROFS)
        return call

    async def _set(
        self, inode: InodeT, attr: EntryAttributes, fields: SetattrFields, fh: int | None, _ctx: RequestContext
    ) -> EntryAttributes:
        call = self._calls.expected
        others = fields.update_size or fields.update_mode or fields.update_uid or fields.update_gid
        if call is None or call.changes_names() or others or fh is not None or attr.st_mtime_ns != call.token:
            raise FUSEError(errno.EROFS)
        with trio.move_on_after(REPORTED_WITHIN):
            await call.reported.wait()  # the process has sent it before it has made the call
        if call.status is None or call.status.ino != inode:
            raise FUSEError(errno.EROFS)
        return _unchanged(call.status)

    async def _made(self, kind: Kind, parent: int, name: bytes, *more: Any) -> EntryAttributes:
        """Return the entry that is there by now, as if the call had made it. more: what the request has besides."""
        call = self._expected(parent, name, (kind,))
        if call.parent >= PASSED:
            return await self._of_folder(call, more[-1])
        node = self._present(call.path)
        if node is None or node.kind != _CREATES[kind]:
            raise FUSEError(errno.ENOENT)
        return self._entry(self._files.names.counted(call.path, node))

    async def _unlinked(self, parent: InodeT, name: bytes, _ctx: RequestContext) -> None:
        self._expected(parent, name, ("unlink",))

    async def _removed(self, parent: InodeT, name: bytes, _ctx: RequestContext) -> None:
        call = self._expected(parent, name, ("rmdir",))
        held = self._files.inodes.held(call.path, DIRECTORY_VERSION)
        if held is not None:  # the kernel takes it for removed: a directory of that name is another one from now on
            self._files.inodes.detach(held)


async def _refused(*_: Any) -> NoReturn:
    raise FUSEError(errno.EROFS)


def _unchanged(status: Status) -> EntryAttributes:
    """Return the attributes that the kernel has, without validity: it drops no page, and asks again at the next use."""
    entry = EntryAttributes()
    entry.st_ino = InodeT(status.ino)
    entry.st_mode, entry.st_nlink = pyfuse3.ModeT(status.mode), status.links
    entry.st_uid, entry.st_gid = status.uid, status.gid
    entry.st_size, entry.st_blocks, entry.st_blksize = status.size, status.blocks, 4096
    entry.st_atime_ns = status.accessed * 10**9 + status.accessed_ns
    entry.st_mtime_ns = status.modified * 10**9 + status.modified_ns
    entry.st_ctime_ns = status.changed * 10**9 + status.changed_ns
    entry.attr_timeout = entry.entry_timeout = 0.0
    return entry
