"""The passed folders of a mount: each with its source, its threads, and its names as the source lists them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import trio

from bbfs.model.uri_paths import show_component
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.sources.filesystem.handler import FilesystemHandler, native_uri_of, segment_of
from bbfs.vfs.passthrough.folder import PassedFolder
from bbfs.vfs.passthrough.inodes import MOST_FOLDERS, PassedInode
from bbfs.vfs.passthrough.vouched import Bounds, Vouched


@dataclass(frozen=True, slots=True)
class Passed:
    """A passed folder.

    prefix: its directory at the mount's root. timeout: seconds for a call. limiter: its threads. vouched: what the
    kernel may keep; None if it may keep nothing for long.
    """

    source: Source
    folder: PassedFolder
    prefix: str
    timeout: float
    limiter: trio.CapacityLimiter
    vouched: Vouched | None = None

    def path(self, inode: PassedInode, *more: bytes) -> tuple[str, ...]:
        """Return a path from the mount's root as the source's listings have it. Raise OSError (ESTALE)."""
        names = (*self.folder.way(inode), *more)
        return (self.prefix, *(show_component(segment_of(name), literal=True) for name in names))

    def raw_path(self, inode: PassedInode, *more: bytes) -> str:
        """Return a path from the mount's root as programs see it. Raise OSError (ESTALE)."""
        return os.fsdecode(b"/".join((os.fsencode(self.prefix), *self.folder.way(inode), *more)))

    def written(self, manager: ResourceManager, directory: PassedInode, name: bytes) -> None:
        """Let the manager know that a program has changed a name."""
        _written(manager, self.source, self.folder, directory, name)


def _written(
    manager: ResourceManager, source: Source, folder: PassedFolder, directory: PassedInode, name: bytes
) -> None:
    if not source.catalog.is_empty:
        try:
            raw = (*folder.way(directory), name)
        except OSError:
            return  # the directory is gone, and its change has been noted
        path = tuple(show_component(segment_of(each), literal=True) for each in raw)
        manager.written(source, path, native_uri_of(raw))


Heard = Callable[[Passed, PassedInode, bytes, int], None]


class PassedFolders(dict[int, Passed]):
    """The folders that a mount passes through, by their numbers. One whose source was removed stays until `forget`.

    invalidate, expire: notify the kernel, see `Vouched`.
    """

    def __init__(
        self, manager: ResourceManager, invalidate: Callable[[int, bytes], None], expire: Callable[[int], None]
    ) -> None:
        super().__init__()
        self._manager = manager
        self.invalidate = invalidate
        self._expire = expire
        self._added: list[Vouched] = []
        self._filled = trio.Event()
        self._next = 0
        self.heard: Heard = lambda _passed, _directory, _name, _bits: None
        """Called for each name that another program may have changed, with the bits of inotify that say how."""
        for source in manager.sources.values():
            self.add(source)

    def add(self, source: Source) -> None:
        """Add the folder of a source, if it is passed through.

        A number is used again as late as possible: a program may still be in the directory that had it before.
        """
        handler = source.handler
        if not source.is_passed or not isinstance(handler, FilesystemHandler):
            return
        if len(self) == MOST_FOLDERS:
            raise ValueError(f"more than {MOST_FOLDERS} folders")
        while self._next in self:
            self._next = (self._next + 1) % MOST_FOLDERS
        policy, number = source.data.policy, self._next
        self._next = (number + 1) % MOST_FOLDERS
        folder = PassedFolder(handler.root, number, hidden=handler.shows_hidden)
        limiter = trio.CapacityLimiter(policy.concurrency)
        vouched = None
        if not self._manager.grants.is_lower:
            bounds = Bounds(names=0) if source.judged_by_files else Bounds()
            vouched = Vouched(folder, self.invalidate, self._expire, partial(self._others_changed, number), bounds)
            self._added.append(vouched)
            self._filled.set()
        self[number] = Passed(source, folder, source.data.uri_prefix, policy.timeout, limiter, vouched)

    def _others_changed(self, number: int, directory: PassedInode, name: bytes, bits: int) -> None:
        passed = self[number]
        _written(self._manager, passed.source, passed.folder, directory, name)
        self.heard(passed, directory, name, bits)

    async def vouch(self) -> None:
        """Handle the events of all folders until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._filled = trio.Event()
                added, self._added = self._added, []
                for vouched in added:
                    nursery.start_soon(vouched.run)
                await self._filled.wait()

    def forget(self) -> None:
        """Forget the folders of removed sources of which the kernel holds no file."""
        for number, passed in list(self.items()):
            if passed.source.ended is None:
                continue
            if passed.vouched is not None:
                passed.vouched.close()
            if not len(passed.folder.inodes):
                del self[number]

    @property
    def roots(self) -> dict[str, int]:
        """The inode numbers of the folders, by their names at the root."""
        return {each.prefix: each.folder.inodes.root.number for each in self.values() if each.source.ended is None}
