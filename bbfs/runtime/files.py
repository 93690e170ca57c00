"""Files as the operating system has them: descriptors, and whole files that take the place of others."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@contextmanager
def closed_after(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def replace_file(path: "str | Path", data: bytes, mode: int = 0o600) -> None:
    """Store bytes under a path whose directory exists, or leave the file there as it was. Raise OSError."""
    directory, name = os.path.split(path)
    beside = os.path.join(directory, f".{name}.{os.getpid()}-{time.monotonic_ns():x}")  # not by tempfile: a slow import
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
