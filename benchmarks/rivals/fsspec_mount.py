"""A folder as `fsspec.fuse` mounts it, in the foreground: `fsspec_mount.py FOLDER MOUNTPOINT [--delay SECONDS]`

With a delay the files are kept in fsspec's file system in memory, and opening one takes that long, as it does for a
file system that fetches over a network; listings take no time. fsspec.fuse imports the binding fusepy, which needs
libfuse 2; mfusepy is its successor with the same interface on libfuse 3, and stands in for it.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import fsspec
import mfusepy
from fsspec.implementations.memory import MemoryFileSystem

sys.modules["fuse"] = mfusepy


class SlowMemory(MemoryFileSystem):
    """fsspec's memory file system whose files take `delay` seconds to open for reading."""

    protocol = "slowmemory"
    delay = 0.0
    store: dict[str, Any] = {}  # noqa: RUF012 - as the base class has it
    pseudo_dirs = [""]  # noqa: RUF012 - as the base class has it

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if "r" in mode:
            time.sleep(self.delay)
        return super()._open(path, mode, **options)


def in_memory(folder: Path, delay: float) -> SlowMemory:
    files = SlowMemory()
    for directory, _, names in os.walk(folder):
        inside = "/" + os.path.relpath(directory, folder).strip(".")
        files.makedirs(inside, exist_ok=True)
        for name in names:
            files.pipe(os.path.join(inside, name), Path(directory, name).read_bytes())
    SlowMemory.delay = delay
    return files


def main() -> None:
    from fsspec import fuse  # noqa: PLC0415 - it imports `fuse`, which is put in place above

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("mountpoint")
    parser.add_argument("--delay", type=float)
    options = parser.parse_args()
    if options.delay is None:
        fuse.run(fsspec.filesystem("file"), f"{options.folder}/", options.mountpoint, foreground=True, threads=True)
    else:
        files = in_memory(options.folder, options.delay)
        fuse.run(files, "/", options.mountpoint, foreground=True, threads=True)


if __name__ == "__main__":
    main()
