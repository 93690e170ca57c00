"""The names of files that are not whole yet, beside those that they will replace: `.bbfs-TIME-MACHINE-PROCESS-….part`.

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
"""Seconds after which a writer that this machine knows nothing of has ended."""


def new_name() -> str:
    return f".bbfs-{int(time.time()):x}-{_machine()}-{os.getpid():x}-{secrets.token_hex(4)}.part"


def is_left(name: str) -> bool:
    """Return whether a name is that of a file whose writer has ended."""
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    if found[2] == _machine() and not Path(f"/proc/{int(found[3], 16)}").exists():
        return True
    return time.time() - int(found[1], 16) > _LONGEST


def remove_left(directory: int) -> None:
    """Remove what was left behind in an open directory. It blocks."""
    with suppress(OSError):
        for name in filter(is_left, os.listdir(directory)):
            os.unlink(name, dir_fd=directory)


@cache
def _machine() -> str:
    """Return what stands for the processes that this one sees: the boot, and the namespace of process IDs."""
    seen = secrets.token_hex()
    with suppress(OSError):
        seen = Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    return blake2b(seen.encode(), digest_size=4).hexdigest()
