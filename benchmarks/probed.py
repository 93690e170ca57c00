"""Runs bbfs with a probe in its event loop: how late a task is that sleeps for 5 ms, at the longest.

    python benchmarks/probed.py FILE mount …

The longest lateness so far, in seconds, is in FILE; it is written anew whenever it has grown, and with every start of a
measurement: whoever removes FILE begins one.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio

from bbfs.cli import main

EVERY = 0.005
LOOK_EVERY = 0.1


async def watch(path: Path) -> None:
    """Keep the longest lateness so far in a file."""
    longest = looked = 0.0
    while True:
        before = time.perf_counter()
        await trio.sleep(EVERY)
        now = time.perf_counter()
        late = now - before - EVERY
        if late > longest or now - looked > LOOK_EVERY:
            looked = now
            gone = not path.exists()  # noqa: ASYNC240 - on tmpfs, now and then
            longest = late if gone else max(late, longest)
            if gone or late == longest:
                path.write_text(f"{longest:.6f}")  # noqa: ASYNC240 - as above


def probed(path: Path, run: Callable[..., Any], main: Callable[..., Any], *args: Any) -> Any:
    """As `trio.run`, with the probe beside the main task."""

    async def both() -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, path)
            result = await main(*args)
            nursery.cancel_scope.cancel()
            return result

    return run(both)


if __name__ == "__main__":
    trio.run = partial(probed, Path(sys.argv.pop(1)), trio.run)
    main.main(prog_name="bbfs")
