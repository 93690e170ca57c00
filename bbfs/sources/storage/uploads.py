"""The names of files that are on their way to a server, and which of these their writer has left behind. Pure but for
what it asks of this machine's processes.

    .bbfs-TIME-MACHINE-PROCESS-UPLOADS-NUMBER.part
"""

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from itertools import count
from pathlib import Path

_NAME = re.compile(r"\.bbfs-([0-9a-f]{1,12})-([0-9a-f]{8})-([0-9a-f]{1,8})-([0-9a-f]{8})-[0-9a-f]+\.part")
_LONGEST = 24 * 3600
"""Seconds after which a writer that this machine knows nothing of is gone."""


class Uploads:
    """The files that one backend has under way."""

    def __init__(self) -> None:
        self._own = secrets.token_hex(4)
        self._numbers = count(1)
        self._under_way: set[str] = set()

    @contextmanager
    def name(self) -> Iterator[str]:
        """Yield a new name. After that, a file of this name has been left behind."""
        name = f".bbfs-{int(time.time()):x}-{_machine()}-{os.getpid():x}-{self._own}-{next(self._numbers):x}.part"
        self._under_way.add(name)
        try:
            yield name
        finally:
            self._under_way.remove(name)

    def is_left(self, name: str) -> bool:
        """Return whether a name is that of a file whose writer has ended."""
        found = _NAME.fullmatch(name)
        if found is None:
            return False
        if found[4] == self._own:
            return name not in self._under_way
        if found[2] == _machine() and not Path(f"/proc/{int(found[3], 16)}").exists():
            return True
        return time.time() - int(found[1], 16) > _LONGEST


@cache
def _machine() -> str:
    """Return what stands for the processes that this one sees: the boot, and the namespace of process IDs."""
    seen = ""
    with suppress(OSError):
        seen = Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    return blake2b((seen or secrets.token_hex()).encode(), digest_size=4).hexdigest()
