"""Large: one file, read from the page cache, read for the first time, and looked into at random through mmap(2).

The seconds are those of the reads alone. The first read of the file on disk begins with none of its pages in memory,
neither of the file nor of the mount's. Rivals take part in the first round only, and not in the looks through mmap(2),
which take some of them minutes.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import places
from figures import Sheet
from rounds import HERE, Budget, Measure, Place, Unmeasurable, run, seconds, turn

GROUP = "large"
CELL_BOUND = 40.0
CACHED, COLD, MAPPED, MEMORY = (
    "read, cached",
    "read, first time, from disk",
    "mmap, random 4 KB",
    "growth of the daemon",
)
LOOKS = 200_000
ON_DISK = "bbfs, folder on disk"


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

    cached: dict[str, Measure] = {
        CACHED: lambda place: seconds("reader.py", "whole", place.tree / "large", bound=CELL_BOUND)
    }
    mapped: dict[str, Measure] = {
        MAPPED: lambda place: seconds("reader.py", "mmap", place.tree / "large", str(LOOKS), bound=CELL_BOUND)
    }
    from_disk: dict[str, Measure] = {COLD: first_time}
    memory, slow = scratch / "memory", disk / "large"
    believed = {"name": "large", "type": "filesystem", "config": {"root": memory}, "ttl": "1h"}
    fresh = believed | {"config": {"root": slow}}
    below = "bb-filesystem+large+file"
    with ExitStack() as ending:
        stage = places.Stage(sheet, GROUP, mounts, ending)
        daemons: dict[str, int] = {}

        def mount(
            name: str, command: Callable[[Path], list[str | Path]], tree: str, cases: Sequence[str]
        ) -> list[Place]:
            """The place, or none, which is noted."""
            try:
                path, daemons[name] = stage.mount(name, command, below=tree)
            except Unmeasurable as why:
                for case in cases:
                    sheet.fail(GROUP, case, name, str(why))
                return []
            return [Place(name, path)]

        ours = [Place("tmpfs", memory)]
        ours += mount("bbfs, folder", places.bbfs(scratch / "warm", [believed]), below, (CACHED, MAPPED))
        rivals = mount("rclone", places.rclone(memory, *places.KEPT), "", (CACHED,))
        rivals += mount("fsspec", places.by_rival("fsspec_mount.py", memory), "", (CACHED,))
        on_disk = [Place("the file itself", slow)]
        on_disk += mount(ON_DISK, places.bbfs(scratch / "cold", [fresh]), below, (COLD,))
        rivals_on_disk = mount("rclone, disk", places.rclone(slow, *places.KEPT), "", (COLD,))
        for place in (*ours, *rivals):  # the first run, which is not measured
            try:
                cached[CACHED](place)
            except Unmeasurable as why:
                sheet.fail(GROUP, CACHED, place.name, f"the first run: {why}")
        before = resident(daemons[ON_DISK]) if ON_DISK in daemons else 0.0
        for number in budget.numbers():
            first = number == 0
            turn(sheet, GROUP, number, cached, [*ours, *(rivals if first else [])])
            turn(sheet, GROUP, number, mapped, ours)
            turn(sheet, GROUP, number, from_disk, [*on_disk, *(rivals_on_disk if first else [])])
            if ON_DISK in daemons:
                grown = resident(daemons[ON_DISK]) - before
                sheet.add(number, GROUP, MEMORY, ON_DISK, grown, unit="MiB")
