"""A folder as mirage mounts it, in the foreground: `mirage_mount.py FOLDER MOUNTPOINT [--delay SECONDS]`

With a delay each read of a file's content takes that long, and the file system says of itself what mirage's network
file systems do: that contents may be cached. Listings and attributes take no time.
"""

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

from mirage import MountMode, Workspace
from mirage.vfs.disk import DiskVFS


class SlowDisk(DiskVFS):
    """A folder whose contents take `delay` seconds to be read."""

    caches_reads = True
    local = False
    delay = 0.0

    async def read(self, path: Any, offset: int = 0, size: int | None = None) -> bytes:
        await asyncio.sleep(self.delay)
        return await super().read(path, offset, size)

    async def read_stream(self, path: Any) -> AsyncIterator[bytes]:
        await asyncio.sleep(self.delay)
        async for part in super().read_stream(path):
            yield part


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("mountpoint")
    parser.add_argument("--delay", type=float)
    options = parser.parse_args()
    SlowDisk.delay = options.delay or 0.0
    files = DiskVFS(options.folder) if options.delay is None else SlowDisk(options.folder)
    ending = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    workspace = Workspace({"/files": (files, MountMode.READ)})
    workspace.add_fuse_mount("/files", options.mountpoint)
    signal.sigwait(ending)
    workspace.remove_fuse_mount("/files")


if __name__ == "__main__":
    main()
