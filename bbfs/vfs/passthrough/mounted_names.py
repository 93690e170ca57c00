"""The names of mount points, which tell for almost every name that nothing is mounted there.

A mount point cannot be renamed (rename(2): EBUSY), but the directories above it can. So a name that no mount point has
is none in any directory, while a path that was none a moment ago may be one.
"""

import os
import re
import select
from collections.abc import Set
from pathlib import Path

from bbfs.sources.content.fd import Descriptor

MOUNTS = Path("/proc/self/mountinfo")
_PIECE = 1 << 16
_ESCAPED = re.compile(rb"\\([0-7]{3})")


class MountedNames:
    """The last names of all mount points of this process. It is asked by one thread. Raise OSError without /proc."""

    def __init__(self) -> None:
        self._file = Descriptor(os.open(MOUNTS, os.O_RDONLY))
        self._changes = select.poll()
        self._changes.register(self._file.number, select.POLLPRI)
        self._names = self._read()

    def now(self) -> Set[bytes]:
        """Return the names. It takes a microsecond unless something was mounted (proc_pid_mounts(5))."""
        if self._changes.poll(0):
            self._names = self._read()
        return self._names

    def _read(self) -> Set[bytes]:
        os.lseek(self._file.number, 0, os.SEEK_SET)
        table = b"".join(iter(lambda: os.read(self._file.number, _PIECE), b""))
        paths = (line.split()[4] for line in table.splitlines())
        return {_ESCAPED.sub(lambda code: bytes((int(code[1], 8),)), os.path.basename(path)) for path in paths}
