"""A file that takes room on the disk of the cache, and gives it up when the disk is full.

SQLite needs some pages even to open a database, so a cache on a full disk could not be cleared without it.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from bbfs.runtime.private_files import open_taken

Opened = TypeVar("Opened")
SIZE = 256 << 10
"""Bytes: the shared memory of a journal (32 KiB), its header, and some pages."""
NAME = "reserve"


def opened(directory: Path, opening: Callable[[], Opened]) -> Opened:
    """Return what `opening` opens in a directory, a second time without the reserve if there is no room.

    Raises what `opening` raises. The next one makes the reserve again, if there is room by then.
    """
    path = directory / NAME
    try:
        found = opening()
    except (sqlite3.OperationalError, OSError):
        try:
            path.unlink()
        except OSError:
            pass
        else:
            return opening()
        raise
    _keep(path)
    return found


def _keep(path: Path) -> None:
    """Make the reserve unless it is there, or the disk has no room for it."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        with suppress(OSError):
            os.close(open_taken(path, os.O_WRONLY))
        return
    except OSError:
        return
    try:
        os.posix_fallocate(number, 0, SIZE)
    except OSError:
        path.unlink(missing_ok=True)
    finally:
        os.close(number)
