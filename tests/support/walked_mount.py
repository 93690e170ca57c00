"""`python walked_mount.py FILE -m bbfs mount …`: the daemon, which writes to FILE what it walks through when asked.

SIGUSR1 begins a walk: from then on each call of a function of bbfs counts. SIGUSR2 ends it, and writes a line for each
function, `module function calls`.
"""

import math
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import bbfs
from bbfs.cli import main
from bbfs.resources import manager

HOME = str(Path(bbfs.__file__).parent)


class Walk:
    """The functions that were called between two signals."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._called: Counter[CodeType] = Counter()
        self._walking = False

    def record(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function (sys.setprofile)."""
        if self._walking and event == "call" and frame.f_code.co_filename.startswith(HOME):
            self._called[frame.f_code] += 1

    def begin(self, *_: Any) -> None:
        self._called.clear()
        self._walking = True
        sys.setprofile(self.record)

    def end(self, *_: Any) -> None:
        sys.setprofile(None)
        self._walking = False
        calls = self._called.items()
        lines = sorted(f"{os.path.relpath(code.co_filename, HOME)} {code.co_qualname} {count}" for code, count in calls)
        partial = self._file.with_suffix(".partial")
        partial.write_text("\n".join(lines) + "\n")
        partial.rename(self._file)


if __name__ == "__main__":
    manager.FLUSH_EVERY = math.inf  # a flush that falls into a walk is not on its way
    walk = Walk(Path(sys.argv[1]))
    signal.signal(signal.SIGUSR1, walk.begin)
    signal.signal(signal.SIGUSR2, walk.end)
    threading.setprofile(walk.record)
    main(sys.argv[4:])
