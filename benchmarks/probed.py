"""Runs bbfs with a probe in its event loop: how late a task is that sleeps for 5 ms, at the longest.

    python benchmarks/probed.py FILE mount …

The longest lateness so far, in seconds, is in FILE; it is written anew whenever it has grown, and with every start of a
measurement: whoever removes FILE begins one.
"""

import functools
import sys
import time
from pathlib import Path

import trio

from bbfs.cli import main

EVERY = 0.005
LOOK_EVERY = 0.1


class Probe(trio.abc.Instrument):
    """Starts the probe with the loop."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def before_run(self) -> None:
        trio.lowlevel.spawn_system_task(self._watch)

    async def _watch(self) -> None:
        longest = looked = 0.0
        while True:
            before = time.perf_counter()
            await trio.sleep(EVERY)
            now = time.perf_counter()
            late = now - before - EVERY
            if now - looked > LOOK_EVERY or late > longest:
                looked = now
                if not self._path.exists():
                    longest = 0.0
                if late > longest or not self._path.exists():
                    longest = max(late, longest)
                    self._path.write_text(f"{longest:.6f}")


if __name__ == "__main__":
    trio.run = functools.partial(trio.run, instruments=[Probe(Path(sys.argv.pop(1)))])
    main(prog_name="bbfs")
