"""The local folders of a mount, for programs that watch it: what is watched there is watched in the folder, too."""

import logging
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import trio
from cachetools import TTLCache

from bbfs.fuse.watchers.events import Happened
from bbfs.fuse.watchers.toucher import Kind
from bbfs.model.errors import BbfsError
from bbfs.resources.catalog.record import PASSED, Path
from bbfs.resources.manager import ResourceManager
from bbfs.sources.filesystem.beneath import AtMountPoint
from bbfs.sources.filesystem.handler import FilesystemHandler
from bbfs.sources.filesystem.inotify import NAMES
from bbfs.vfs.filesystem import FileSystem
from bbfs.vfs.passthrough.folders import Passed
from bbfs.vfs.passthrough.inodes import PassedInode, folder_of
from bbfs.vfs.passthrough.places import MayCrossMount

log = logging.getLogger(__name__)

LISTED_WITHIN = 2.0
"""Seconds for a listing. It asks the folder alone."""
LISTING_SHARE = 10
"""The listings of a directory may take one part in so many of the time."""
_DIRECTORIES = 1000
_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}

OfFolder: TypeAlias = Callable[[Path, int, Kind | None, Happened], None]
"""Takes a change of a passed folder: its path, the inode of the directory, what is or was there, what has happened."""


class LocalFolders:
    """The folders of one mount. Passed ones are watched as the kernel is vouched for, others by their source."""

    def __init__(self, manager: ResourceManager, files: FileSystem) -> None:
        self._manager = manager
        self._files = files
        self._from: TTLCache[Path, float] = TTLCache(_DIRECTORIES, 60.0, trio.current_time)

    @property
    def requests(self) -> int:
        """A number that grows while programs use folders; -1 without folders."""
        if not self._files.passed and all(self._handler((each,)) is None for each in self._manager.roots.directories()):
            return -1
        vouched = [each.vouched.answers for each in self._files.passed.values() if each.vouched is not None]
        return self._files.directories.next + sum(vouched)

    def _handler(self, path: Path) -> FilesystemHandler | None:
        """Return the handler of a folder that is listed, and not passed through."""
        source = self._manager.roots.directories().get(path[0])
        if source is None or source.is_passed or source.data.uri_prefix != path[0]:
            return None
        return source.handler if isinstance(source.handler, FilesystemHandler) else None

    def has(self, path: Path) -> bool:
        return self._handler(path) is not None

    async def follow(self, number: int, path: Path) -> None:
        if number >= PASSED:
            passed = self._files.passed.get(folder_of(number))
            with suppress(KeyError):
                if passed is not None and passed.vouched is not None:
                    passed.vouched.follow(passed.folder.inodes[number])
            return
        handler = self._handler(path) if path else None
        if handler is not None:
            await trio.to_thread.run_sync(handler.follow, path[1:], abandon_on_cancel=True)
            handler.begin()

    async def list_again(self, directory: Path) -> None:
        began = trio.current_time()
        await trio.sleep_until(min(self._from.get(directory, 0.0), began + LISTED_WITHIN))
        began = trio.current_time()
        with trio.move_on_after(LISTED_WITHIN):
            try:
                await self._manager.tree.view(directory)
            except BbfsError as error:
                log.debug("%s: not listed for programs that watch it: %s", "/".join(directory), error)
        now = trio.current_time()
        self._from[directory] = now + LISTING_SHARE * (now - began)

    async def confirm(self, directory: Path) -> None:
        source = self._manager.roots.directories().get(directory[0]) if directory else None
        if source is not None and not source.is_passed:
            source.catalog.expire()
            await self.list_again(directory)

    def hear(self, of_folder: OfFolder) -> None:
        """Have changes of passed folders told."""

        def heard(passed: Passed, directory: PassedInode, name: bytes, bits: int) -> None:
            there: Kind | None = None
            happened: Happened = "created" if bits & NAMES else "modified"
            try:
                path = passed.path(directory, name)
            except OSError:
                return  # the directory is gone
            try:
                there = _KINDS.get(stat.S_IFMT(passed.folder.lookup(directory, name).st_mode))
            except (FileNotFoundError, NotADirectoryError):
                happened = "deleted"
                was = None if directory.watched is None else directory.watched.told(name)
                if was is not None and stat.S_ISDIR(was.key[2]):
                    there = "folder"
            except (OSError, MayCrossMount, AtMountPoint):
                return
            if path[-1].encode() == name:
                of_folder(path, directory.number, there, happened)

        self._files.passed.heard = heard
