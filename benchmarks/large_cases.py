"""Large: one file, read from the page cache, read for the first time, and looked into at random through mmap(2).

The seconds are those of the reads alone. The first read of the file on disk begins with none of its pages in memory,
neither of the file nor of the mount's.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import places
from figures import Sheet
from rounds import HERE, Budget, Measure, Place, Unmeasurable, run, seconds, turn

GROUP = "large"
CELL_BOUND = 20.0
CACHED, COLD, MAPPED, MEMORY = (
    "read, cached",
    "read, first time, from disk",
    "mmap, random 4 KB",
    "growth of the daemon",
)
LOOKS = 50_000


def pieces(size: int) -> Iterator[bytes]:
    """Bytes that differ from page to page."""
    pattern = bytes(range(256)) * 4096
    for number in range(size // len(pattern)):
        yield number.to_bytes(8, "big") + pattern[8:]


def write(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for piece in pieces(size):
            file.write(piece)


def resident(pid: int) -> float:
    """MiB that a process has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def measure(sheet: Sheet, scratch: Path, disk: Path, budget: Budget, *, size: int = 1 << 30) -> None:
    """scratch: a directory on tmpfs; disk: one on a disk; size: bytes, a multiple of 1 MiB."""
    (scratch / "memory").mkdir()
    write(scratch / "memory" / "large", size)
    (disk / "large").mkdir()
    write(disk / "large" / "large", size)
    mounts = scratch / "mounts"
    mounts.mkdir()

    def evict(path: Path) -> None:
        run([sys.executable, HERE / "reader.py", "evict", path], bound=CELL_BOUND)

    def first_time(place: Place) -> float:
        evict(place.tree / "large")
        evict(disk / "large" / "large")
        return seconds("reader.py", "whole", place.tree / "large", bound=CELL_BOUND)

    in_memory: dict[str, Measure] = {
        CACHED: lambda place: seconds("reader.py", "whole", place.tree / "large", bound=CELL_BOUND),
        MAPPED: lambda place: seconds("reader.py", "mmap", place.tree / "large", str(LOOKS), bound=CELL_BOUND),
    }
    on_disk: dict[str, Measure] = {COLD: first_time}
    with ExitStack() as ending:
        stage = places.Stage(sheet, GROUP, mounts, ending)
        memory, slow = scratch / "memory", disk / "large"
        daemons: dict[str, int] = {}

        def mount(
            name: str, command: Callable[[Path], list[str | Path]], below: str, cases: dict[str, Measure]
        ) -> None:
            """Where it can be mounted, the place joins those of its cases."""
            try:
                tree, pid = stage.mount(name, command, below=below)
            except Unmeasurable as why:
                for case in cases:
                    sheet.fail(GROUP, case, name, str(why))
                return
            daemons[name] = pid
            (warm if cases is in_memory else cold).append(Place(name, tree))

        warm, cold = [Place("tmpfs", memory)], [Place("the file itself", slow)]
        cached = {"name": "large", "type": "filesystem", "config": {"root": memory}, "ttl": "1h"}
        mount("bbfs, folder", places.bbfs(scratch / "warm", [cached]), "bb-filesystem+large+file", in_memory)
        mount("rclone", places.rclone(memory, *places.KEPT), "", in_memory)
        mount("fsspec", places.by_rival("fsspec_mount.py", memory), "", in_memory)
        fresh = cached | {"config": {"root": slow}}
        mount("bbfs, folder on disk", places.bbfs(scratch / "cold", [fresh]), "bb-filesystem+large+file", on_disk)
        mount("rclone, disk", places.rclone(slow, *places.KEPT), "", on_disk)
        for place in warm:  # the first run, which is not measured
            try:
                in_memory[CACHED](place)
            except Unmeasurable as why:
                for case in in_memory:
                    sheet.fail(GROUP, case, place.name, str(why))
        daemon = daemons.get("bbfs, folder on disk")
        before = resident(daemon) if daemon else 0.0
        for number in budget.numbers():
            turn(sheet, GROUP, number, in_memory, warm)
            turn(sheet, GROUP, number, on_disk, cold)
            if daemon:
                sheet.add(number, GROUP, MEMORY, "bbfs, folder on disk", resident(daemon) - before, unit="MiB")
