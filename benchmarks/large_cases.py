"""Large: one file, read from the page cache, read for the first time, and looked into at random through mmap(2).

The seconds are those of the reads alone. The first read of the file on disk begins with none of its pages in memory,
neither of the file nor of the mount's. Rivals take part in the first round only, and not in the looks through mmap(2),
which take some of them minutes.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import places
from figures import Sheet, Unmeasurable
from rounds import HERE, Bench, Measure, Place, Sizes, expect, held, run, seconds, turn

GROUP = "large"
CELL_BOUND = 40.0
CACHED, COLD, MAPPED, MEMORY = (
    "read, cached",
    "read, first time, from disk",
    "mmap, random 4 KB",
    "growth of the daemon",
)
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


def plan(sheet: Sheet, _sizes: Sizes) -> None:
    sheet.plan(GROUP, [CACHED, MAPPED], ["tmpfs", "bbfs, folder"])
    sheet.plan(GROUP, [CACHED], ["rclone", "fsspec"], rival=True)
    sheet.plan(GROUP, [COLD], ["the file itself", ON_DISK])
    sheet.plan(GROUP, [COLD], ["rclone, disk"], rival=True)
    sheet.plan(GROUP, [MEMORY], [ON_DISK], unit="MiB")


def measure(bench: Bench) -> None:
    sheet, size = bench.sheet, bench.sizes.large
    memory, slow, mounts = bench.memory / "memory", bench.disk / "large", bench.memory / "mounts"
    for directory in (memory, slow, mounts):
        directory.mkdir()
    write(memory / "large", size)
    write(slow / "large", size)

    def evict(path: Path) -> None:
        run([sys.executable, HERE / "reader.py", "evict", path], bound=CELL_BOUND)

    def whole(place: Place) -> float:
        return seconds("reader.py", "whole", place.tree / "large", bound=CELL_BOUND)

    def first_time(place: Place) -> float:
        evict(place.tree / "large")
        evict(slow / "large")
        return whole(place)

    def looks(place: Place) -> float:
        return seconds("reader.py", "mmap", place.tree / "large", str(bench.sizes.looks), bound=CELL_BOUND)

    cached: dict[str, Measure] = {CACHED: whole}
    mapped: dict[str, Measure] = {MAPPED: looks}
    from_disk: dict[str, Measure] = {COLD: first_time}
    believed = {"name": "large", "type": "filesystem", "config": {"root": memory}, "ttl": "1h"}
    fresh = believed | {"config": {"root": slow}}
    below = "bb-filesystem+large+file"
    with ExitStack() as ending:
        stage = places.Stage(sheet, GROUP, mounts, ending, bench.rivals)
        ours = [Place("tmpfs", memory)]
        ours += stage.places(
            [CACHED, MAPPED], {"bbfs, folder": (places.bbfs(bench.memory / "warm", [believed]), below)}
        )
        rival = {
            "rclone": (places.rclone(memory, *places.KEPT), ""),
            "fsspec": (places.by_rival("fsspec_mount.py", memory), ""),
        }
        rivals = stage.places([CACHED], rival)
        bbfs = stage.places([COLD, MEMORY], {ON_DISK: (places.bbfs(bench.memory / "cold", [fresh]), below)})
        rivals_on_disk = stage.places([COLD], {"rclone, disk": (places.rclone(slow, *places.KEPT), "")})
        for place in (*ours, *rivals):  # the first run, which is not measured
            try:
                expect("bytes", held(place.tree / "large"), (1, size))
                whole(place)
            except Unmeasurable as why:
                sheet.fail(GROUP, CACHED, place.name, type(why)(f"the first run: {why}"))
        before = [place.memory() for place in bbfs]
        for number in bench.budget.numbers():
            first = number == 0
            turn(sheet, GROUP, number, cached, [*ours, *(rivals if first else [])])
            turn(sheet, GROUP, number, mapped, ours)
            on_disk = [Place("the file itself", slow), *bbfs, *(rivals_on_disk if first else [])]
            turn(sheet, GROUP, number, from_disk, on_disk)
            for place, at_first in zip(bbfs, before, strict=True):
                sheet.add(number, GROUP, MEMORY, place.name, place.memory() - at_first)
