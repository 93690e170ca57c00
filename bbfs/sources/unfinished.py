"""The names of unfinished files, beside the files that they will replace: `.bbfs-TIME-MACHINE-PROCESS-….part`.

They tell if the process that writes a file has ended and left it behind.
"""

import os
import re
import secrets
import time
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

_NAME = re.compile(r"\.bbfs-([0-9a-f]{1,12})-([0-9a-f]{8})-([0-9a-f]{1,8})-[0-9a-f]{8}\.part")
_LONGEST = 24 * 3600
"""Seconds without a change after which the writer of a file has ended, if it is a process of another machine."""


def new_name() -> str:
    return f".bbfs-{int(time.time()):x}-{_machine()}-{os.getpid():x}-{secrets.token_hex(4)}.part"


def is_left(name: str) -> bool:
    """Return whether a name belongs to a file whose writer was a process of this machine and has ended."""
    found = _NAME.fullmatch(name)
    return found is not None and is_own(name) and not Path(f"/proc/{int(found[3], 16)}").exists()


def is_own(name: str) -> bool:
    """Return whether a name belongs to a file whose writer is or was a process of this machine."""
    found = _NAME.fullmatch(name)
    return found is not None and found[2] == _machine()


def is_of_others(name: str) -> bool:
    """Return whether a name belongs to a file whose writer is a process of another machine, or of an earlier boot."""
    found = _NAME.fullmatch(name)
    return found is not None and found[2] != _machine()


def is_idle(modified: float, now: float) -> bool:
    """Return whether a file of another machine was not changed for so long that its writer has ended.

    Both times (seconds) are of the clock of the file system with the file, which has just given `now` to a new file.
    The time in the name is of another machine's clock.
    """
    return now - modified > _LONGEST


def remove_left(directory: int, now: float) -> None:
    """Remove what was left behind in an open directory. It blocks. now: as for `is_idle`."""
    with suppress(OSError):
        for name in os.listdir(directory):
            if is_left(name) or (
                is_of_others(name) and is_idle(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime, now)
            ):
                os.unlink(name, dir_fd=directory)


@cache
def _machine() -> str:
    """Return a text that stands for all processes that this process sees: the boot, and the namespace of process
    IDs."""
    seen = secrets.token_hex()
    with suppress(OSError):
        seen = Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    return blake2b(seen.encode(), digest_size=4).hexdigest()
