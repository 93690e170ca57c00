"""The calls of the toucher: one at a time, expected by the daemon, which recognises its requests and changes nothing.

A request counts as the toucher's if its thread is that of a process which this daemon has started and not yet reaped,
so no other process has the number. Such a request never reaches a source. What it asks for is answered if it is part of
the expected call: that directory, that name, that kind of call, and for a change of times a number which only the
daemon and this process know. Anything else that it asks is refused. Requests of other processes are answered as ever.

Answers wait for no source: the kernel locks the directory meanwhile.
"""

import errno
import logging
import os
import secrets
import stat
import struct
import subprocess
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pyfuse3
import trio
from cachetools import LRUCache
from pyfuse3 import EntryAttributes, FUSEError, InodeT, RequestContext, SetattrFields

from bbfs.fuse.backings.attributes import Ownership
from bbfs.fuse.backings.stored import packed
from bbfs.fuse.helper_process import started
from bbfs.fuse.watchers import toucher
from bbfs.model.errors import BbfsError
from bbfs.model.inode_number import PASSED, ROOT
from bbfs.resources.catalog.record import DIRECTORY, DIRECTORY_VERSION, Node, Path
from bbfs.vfs.file_handles import Attributes
from bbfs.vfs.filesystem import FileSystem

log = logging.getLogger(__name__)

Kind = Literal["modify", "touch", "file", "folder", "link", "unlink", "rmdir"]
WITHIN = 10.0
"""Seconds for a call. It waits for locks of the kernel, never for a source."""
REPORTED_WITHIN = 1.0
LOOKED_WITHIN = 10.0
"""Seconds for a look at the watches of all programs."""
ENDS_WITHIN = 1.0
PAUSE, LONGEST_PAUSE = 0.2, 60.0
"""Seconds until a toucher that was killed is started again, at first and at most."""
GONE_VERSION, HIDDEN_VERSION = "\0-", "\0."
"""The version parts of an inode that stands for what a name led to, until the call that removes the name ends, and of
the directory that only the toucher finds."""
STATUSES_KEPT = 10_000
_CREATES: dict[str, Literal["directory", "file", "symlink"]] = {
    "file": "file", "folder": "directory", "link": "symlink",
}  # fmt: skip
_LARGEST = 1 << 18


class Status(NamedTuple):
    """The attributes of an inode in the cache of the kernel. Times: seconds and nanoseconds."""

    ino: int
    size: int
    blocks: int
    accessed: int
    accessed_ns: int
    modified: int
    modified_ns: int
    changed: int
    changed_ns: int
    mode: int
    uid: int
    gid: int
    links: int


@dataclass(slots=True)
class Call:
    """One call. parent: the inode of its directory. path: of the name, from the mount's root.

    target: of a symbolic link. token: the modification time, in nanoseconds, that only this call sets. earlier: what
    the kernel has of an earlier version of the file, which programs watch; no name leads to that any more.
    """

    kind: Kind
    parent: int
    path: Path
    target: bytes = b""
    earlier: Status | None = None
    token: int = field(default_factory=lambda: 1 + secrets.randbits(60))
    status: Status | None = None
    reported: trio.Event = field(default_factory=trio.Event)

    @property
    def name(self) -> bytes:
        return self.path[-1].encode() if self.earlier is None else b"%d" % self.earlier.ino

    @property
    def hidden(self) -> bytes:
        """The name at the root of a directory that only this call finds, so that no program watches it."""
        return b".bbfs-%x" % self.token

    def changes_names(self) -> bool:
        return self.kind not in ("modify", "touch")


class Toucher:
    """The process that makes calls for one mount. It is started again, after a pause, if it was killed or hung.

    path, device: of the mount. has_other_users: whether others than the daemon's user may have it. recognise: called
    before the first start, so that the daemon recognises the calls. Until then, no request costs anything more.
    """

    def __init__(self, path: str, device: int, recognise: Callable[[], None], *, has_other_users: bool) -> None:
        self._path = path
        self._device = device
        self._recognise = recognise
        self._others = b"1" if has_other_users else b"0"
        self._started: tuple[trio.socket.SocketType, subprocess.Popen[bytes]] | None = None
        self._ended: list[subprocess.Popen[bytes]] = []
        self._pause = PAUSE
        self._not_before = 0.0
        self.pids: set[int] = set()
        """The processes that are not reaped yet: no other process has these numbers."""
        self.expected: Call | None = None
        self.statuses: LRUCache[int, Status] = LRUCache(STATUSES_KEPT)
        """The attributes of touched inodes in the cache of the kernel. No inode changes: each version has its own."""

    def start(self) -> None:
        """Start the process. Raise OSError."""
        if not self.pids:
            self._recognise()
        link, process = started(toucher.__file__)
        self.pids.add(process.pid)
        self._started = link, process

    def end(self) -> None:
        """Kill the process. It is reaped later: it may wait for the kernel."""
        self.expected = None
        if self._started is not None:
            link, process = self._started
            self._started = None
            link.close()
            process.kill()
            self._ended.append(process)

    def reap(self, within: float = 0.0) -> None:
        """Reap the processes that have ended. within: seconds for each to end."""
        for process in list(self._ended):
            with suppress(subprocess.TimeoutExpired):
                process.wait(within)
                self._ended.remove(process)
                self.pids.discard(process.pid)

    async def perform(self, call: Call) -> int:
        """Have a call made. Return its errno, or 0. ETIMEDOUT, EPIPE: the process had to be killed, or was."""
        self.expected = call
        directory = "/".join(call.path[:-1]).encode()
        if call.kind == "touch":
            directory, name = "/".join(call.path).encode(), b"."
        else:
            name = call.name
            directory = call.hidden if call.earlier is not None else directory
        request = call.kind.encode(), str(call.token).encode(), directory, name, call.target
        try:
            return int(await self._ask(*request, within=WITHIN))
        finally:
            self.expected = None

    async def watched(self) -> set[int] | None:
        """Return the inodes of the mount that programs watch; None if they are not known."""
        said = await self._ask(toucher.WATCHED, self._others, b"", b"", b"", within=LOOKED_WITHIN)
        if said == toucher.EVERYTHING or len(said) % 8:
            return None
        return set(struct.unpack(toucher.NUMBERS % (len(said) // 8), said))

    async def _ask(self, kind: bytes, token: bytes, *parts: bytes, within: float) -> bytes:
        """Send a request to the process, started if need be, and return its last answer; an errno if it is killed."""
        self.reap()
        failed = errno.EPIPE
        try:
            await trio.sleep(max(0.0, self._not_before - trio.current_time()))
            if self._started is None:
                self.start()
            assert self._started is not None
            link, _ = self._started
            place = os.fsencode(self._path)
            with trio.move_on_after(within):
                await link.send(b"\0".join((kind, str(self._device).encode(), token, place, *parts)))
                while said := await link.recv(_LARGEST):
                    if said[:1] != toucher.STATUS:
                        self._pause = PAUSE
                        return said[1:]
                    self._take_status(said[1:])
                raise ConnectionResetError
            failed = errno.ETIMEDOUT
        except OSError as error:
            log.debug("the toucher has ended: %s", error)
        log.info("the process that touches names for programs that watch is killed, and started again")
        self.end()
        self._not_before = trio.current_time() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return str(failed).encode() if kind != toucher.WATCHED else toucher.EVERYTHING

    def _take_status(self, said: bytes) -> None:
        if self.expected is not None:
            self.expected.status = status = Status(*toucher.STATUS_FORM.unpack(said))
            self.statuses[status.ino] = status
            self.expected.reported.set()


class RecognisedCalls:
    """pyfuse3's requests: those of the toucher are answered here, all others by `operations`.

    present: returns the node at a path as far as it is known, without asking a source.
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
        for name in ("open", "create", "rename", "link", "setxattr", "removexattr"):
            setattr(self, name, self._refusing(getattr(operations, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operations, name)

    def _refusing(self, request: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return a request that is none of the toucher's. Its context is the last argument."""

        async def ask(*arguments: Any) -> Any:
            if arguments[-1].pid in self._calls.pids:
                raise FUSEError(errno.EROFS)
            return await request(*arguments)

        return ask

    # -- what the toucher looks up -----------------------------------------------------------------------------------

    async def lookup(self, parent: InodeT, name: bytes, ctx: RequestContext) -> EntryAttributes:
        if ctx.pid not in self._calls.pids:
            found: EntryAttributes = await self._operations.lookup(parent, name, ctx)
            return found
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

    async def getattr(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        """Answer the check of a permission. The toucher, and no other process, may change names in the directory.

        The mode holds for this one request. Others that the kernel lets in by it meanwhile are refused by the daemon.
        """
        if ctx.pid not in self._calls.pids:
            found: EntryAttributes = await self._operations.getattr(inode, ctx)
            return found
        entry = await self._attributes(inode, ctx)
        entry.attr_timeout = 0.0
        call = self._calls.expected
        if call is not None and call.changes_names() and inode == call.parent:
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

    async def setattr(
        self,
        inode: InodeT,
        attr: EntryAttributes,
        fields: SetattrFields,
        fh: int | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        if ctx.pid not in self._calls.pids:
            changed: EntryAttributes = await self._operations.setattr(inode, attr, fields, fh, ctx)
            return changed
        call = self._calls.expected
        others = fields.update_size or fields.update_mode or fields.update_uid or fields.update_gid
        if call is None or call.changes_names() or others or fh is not None or attr.st_mtime_ns != call.token:
            raise FUSEError(errno.EROFS)
        with trio.move_on_after(REPORTED_WITHIN):
            await call.reported.wait()  # the process has sent it before it has made the call
        if call.status is None or call.status.ino != inode:
            raise FUSEError(errno.EROFS)
        return _unchanged(call.status)

    async def mknod(self, parent: InodeT, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        if ctx.pid in self._calls.pids:
            return await self._made(parent, name, "file", ctx)
        made: EntryAttributes = await self._operations.mknod(parent, name, mode, rdev, ctx)
        return made

    async def mkdir(self, parent: InodeT, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        if ctx.pid in self._calls.pids:
            return await self._made(parent, name, "folder", ctx)
        made: EntryAttributes = await self._operations.mkdir(parent, name, mode, ctx)
        return made

    async def symlink(self, parent: InodeT, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        if ctx.pid in self._calls.pids:
            return await self._made(parent, name, "link", ctx)
        made: EntryAttributes = await self._operations.symlink(parent, name, target, ctx)
        return made

    async def _made(self, parent: int, name: bytes, kind: Kind, ctx: RequestContext) -> EntryAttributes:
        """Return the entry that is there by now, as if the call had made it."""
        call = self._expected(parent, name, (kind,))
        if call.parent >= PASSED:
            return await self._of_folder(call, ctx)
        node = self._present(call.path)
        if node is None or node.kind != _CREATES[kind]:
            raise FUSEError(errno.ENOENT)
        return self._entry(self._files.names.counted(call.path, node))

    async def unlink(self, parent: InodeT, name: bytes, ctx: RequestContext) -> None:
        if ctx.pid in self._calls.pids:
            self._expected(parent, name, ("unlink",))
        else:
            await self._operations.unlink(parent, name, ctx)

    async def rmdir(self, parent: InodeT, name: bytes, ctx: RequestContext) -> None:
        if ctx.pid not in self._calls.pids:
            await self._operations.rmdir(parent, name, ctx)
            return
        call = self._expected(parent, name, ("rmdir",))
        held = self._files.inodes.held(call.path, DIRECTORY_VERSION)
        if held is not None:  # the kernel takes it for removed: a directory of that name is another one from now on
            self._files.inodes.detach(held)


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
