"""The passed folders of a mount: each with its source, its threads, and its names as the source lists them."""

import os
from dataclasses import dataclass

import trio

from bbfs.model.uri_paths import show_component
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.sources.filesystem.handler import FilesystemHandler, native_uri_of, segment_of
from bbfs.vfs.passthrough.folder import PassedFolder
from bbfs.vfs.passthrough.inodes import PassedInode


@dataclass(frozen=True, slots=True)
class Passed:
    """A passed folder. prefix: its directory at the mount's root. timeout: seconds for a call. limiter: its threads."""

    source: Source
    folder: PassedFolder
    prefix: str
    timeout: float
    limiter: trio.CapacityLimiter

    def path(self, inode: PassedInode, *more: bytes) -> tuple[str, ...]:
        """Return a path from the mount's root as the source's listings have it. Raise OSError (ESTALE)."""
        names = (*self.folder.way(inode), *more)
        return (self.prefix, *(show_component(segment_of(name), literal=True) for name in names))

    def raw_path(self, inode: PassedInode, *more: bytes) -> str:
        """Return a path from the mount's root as programs see it. Raise OSError (ESTALE)."""
        return os.fsdecode(b"/".join((os.fsencode(self.prefix), *self.folder.way(inode), *more)))

    def written(self, manager: ResourceManager, directory: PassedInode, name: bytes) -> None:
        """Let the manager know that a program has changed a name."""
        if not self.source.catalog.is_empty:
            try:
                raw = (*self.folder.way(directory), name)
            except OSError:
                return  # the directory is gone, and its change has been noted
            path = tuple(show_component(segment_of(each), literal=True) for each in raw)
            manager.written(self.source, path, native_uri_of(raw))


def passed_folders(manager: ResourceManager) -> list[Passed]:
    """Return the folders that a mount passes through, in the order of their sources."""
    found: list[Passed] = []
    for source in manager.sources.values():
        handler = source.handler
        if source.is_passed and isinstance(handler, FilesystemHandler):
            policy = source.data.policy
            folder = PassedFolder(handler.root, len(found), hidden=handler.shows_hidden)
            limiter = trio.CapacityLimiter(policy.concurrency)
            found.append(Passed(source, folder, source.data.uri_prefix, policy.timeout, limiter))
    return found
