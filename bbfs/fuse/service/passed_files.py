"""Hands the open files, open directories and inodes of passed folders to the next daemon.

A descriptor outlives execve(2). So a file that is written goes on at the same place of the same file, and a directory
that is being listed at the same name.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from bbfs.fuse.adapter import Operations
from bbfs.sources.content.fd import Descriptor
from bbfs.vfs.filesystem import FileSystem
from bbfs.vfs.passthrough.folder import PassedDirectory, PassedFile
from bbfs.vfs.passthrough.inodes import folder_of

State = dict[str, Any]


def keep(files: FileSystem, operations: Operations) -> State:
    """Return what the next daemon needs. The descriptors are no longer closed here."""
    passed = operations.passed
    return {
        "folders": {
            str(number): [each.prefix, [*each.folder.inodes.kept()]]
            for number, each in files.passed.items()
            if each.source.ended is None
        },
        "files": [
            [handle, opened.inode.number, _taken(opened.descriptor), opened.writes, opened.written]
            for handle, (_, opened) in passed.files.items()
        ],
        "directories": [
            [handle, opened.inode.number, _taken(opened.descriptor), [*map(os.fsdecode, opened.names)]]
            for handle, (_, opened) in passed.directories.items()
        ],
        "next": passed.next,
    }


def _taken(descriptor: Descriptor) -> int:
    number, descriptor.number = descriptor.number, -1
    return number


def descriptors(state: State) -> Iterator[int]:
    """Yield the descriptors that the next daemon gets."""
    return (each[2] for kind in ("files", "directories") for each in state[kind])


def restore(state: State, files: FileSystem, operations: Operations, expire: Callable[[int], None]) -> None:
    """Go on with what the daemon before has kept. The folders have the same numbers.

    expire: has the kernel ask for the attributes of an inode again. It is notified of all names, too: this daemon
    vouches for none of them.
    """
    for number, (_, inodes) in state["folders"].items():
        files.passed[int(number)].folder.inodes.hold(inodes)
        for inode, _, _, places in inodes:
            expire(inode)
            for directory, name in places:
                files.passed.invalidate(directory, os.fsencode(name))
    operations.passed.next = state["next"]
    for handle, inode, number, *about in state["files"]:
        _adopt(files, operations, handle, inode, PassedFile, Descriptor(number), *about)
    for handle, inode, number, names in state["directories"]:
        _adopt(files, operations, handle, inode, PassedDirectory, Descriptor(number), [*map(os.fsencode, names)])


def _adopt(files: FileSystem, operations: Operations, handle: int, inode: int, opened: Any, *about: Any) -> None:
    with suppress(KeyError):  # of a folder that was removed: it ends here
        passed = files.passed[folder_of(inode)]
        operations.passed.adopt(handle, passed, opened(passed.folder.inodes[inode], *about))
