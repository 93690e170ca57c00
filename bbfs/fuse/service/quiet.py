"""Before a mount is handed over: the changes that programs have begun end, and those that they begin wait.

What waits is not answered, so the kernel sends it again to the next daemon. The contents that programs write to a
source live in this daemon alone until they are closed; so a mount in which such a file stays open is not handed over.
Files of passed folders are different: the next daemon gets their descriptors, and the bytes are in the folder already.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from pyfuse3 import FileHandleT, FileInfo, InodeT, RequestContext

from bbfs.resources.catalog.record import PASSED
from bbfs.vfs.file_handles import WRITING
from bbfs.vfs.filesystem import FileSystem

WITHIN = 5.0
"""Seconds for programs to close what they write."""
LOOK_EVERY = 0.02
_NAMED = 3
"""Files that are named where more are being written."""
_CHANGES = ["create", "mknod", "mkdir", "symlink", "link", "unlink", "rmdir", "rename", "setxattr", "removexattr"]


class Gate:
    """pyfuse3's requests, of which those that begin a change wait until the event."""

    def __init__(self, operations: Any, files: FileSystem) -> None:
        self._operations = operations
        self._files = files
        self.opened = trio.Event()
        for name in _CHANGES:
            setattr(self, name, self._later(getattr(operations, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operations, name)

    def _later(self, request: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def ask(*arguments: Any) -> Any:
            await self.opened.wait()
            return await request(*arguments)

        return ask

    async def open(self, inode: InodeT, flags: int, ctx: RequestContext) -> FileInfo:
        if flags & WRITING and inode < PASSED:
            await self.opened.wait()
        info: FileInfo = await self._operations.open(inode, flags, ctx)
        return info

    async def setattr(self, inode: InodeT, *arguments: Any) -> Any:
        if inode >= PASSED or not self._files.handles.holds(inode):  # of an open file, it belongs to a change under way
            await self.opened.wait()
        return await self._operations.setattr(inode, *arguments)

    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:
        if fh >= PASSED:
            await self.opened.wait()
        written: int = await self._operations.write(fh, off, buf)
        return written


class Quiet:
    """Makes one mount quiet. operations: answer pyfuse3. become: has another object answer it from then on."""

    def __init__(self, operations: Any, files: FileSystem, become: Callable[[Any], None]) -> None:
        self._operations = operations
        self._files = files
        self._become = become

    async def begins(self) -> str:
        """Return what is still being changed after some seconds; all goes on then. Empty: nothing, and changes wait."""
        gate = Gate(self._operations, self._files)
        self._become(gate)
        with trio.move_on_after(WITHIN):
            while self._busy():  # noqa: ASYNC110 - drafts, locks and threads: no one event says it
                await trio.sleep(LOOK_EVERY)
        busy = self._busy()
        if busy:
            self._become(self._operations)
            gate.opened.set()
        return busy

    def _busy(self) -> str:
        written = sorted("/".join(draft.path) for draft in self._files.drafts.all())
        if written:
            more = f" and {len(written) - _NAMED} more" if len(written) > _NAMED else ""
            return f"programs write {', '.join(written[:_NAMED])}{more}"
        calls = any(passed.limiter.borrowed_tokens for passed in self._files.passed.values())
        return "" if self._files.locks.are_free and not calls else "a change waits for its source"
