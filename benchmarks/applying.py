"""Applying the changes of a scratch to a local folder, beside a careful copy of them, in one run.

A careful copy writes each file under another name, calls fsync(2) and renames it, as `bbfs apply` promises to. Both
take turns in each round, in directories on one disk; the figures are the medians. Root only: the scratch is an overlay
of the kernel. `python benchmarks/applying.py [--changes N] [--rounds N]`
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from places import isolated

BOUND = 600.0
"""Seconds for one command."""
SOURCE = "bb-filesystem+f+file"


def made(directory: Path, changes: int, text: str) -> None:
    """Write files of 100 to 2100 bytes, a hundred in each directory."""
    for number in range(changes):
        place = directory / str(number // 100)
        if number % 100 == 0:
            place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.txt").write_text(text + "x" * (100 + number % 2001))


def copied(source: Path, target: Path) -> float:
    """Copy a tree carefully, file by file. Return the seconds."""
    began = time.perf_counter()
    for above, _, names in os.walk(source):
        place = target / Path(above).relative_to(source)
        place.mkdir(exist_ok=True)
        for name in names:
            temporary = place / f".{name}.new"
            with open(temporary, "wb") as file:
                file.write((Path(above) / name).read_bytes())
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(place / name)
    return time.perf_counter() - began


class Mounted:
    """A folder that is mounted with a scratch."""

    def __init__(self, root: Path) -> None:
        self.folder, self.mnt, self.scratch = root / "folder", root / "mnt", root / "scratch"
        self._environ = isolated(root / "home")

    def bbfs(self, *words: str | Path) -> float:
        """Run a command. Return the seconds."""
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "bbfs", *map(str, words)],
            env=self._environ,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=BOUND,
        )
        return time.perf_counter() - began

    def mount(self) -> None:
        sources = ("--dir", f"f={self.folder}", "-o", "f.capabilities=read,list,write")
        self.bbfs("mount", self.mnt, *sources, "--scratch", self.scratch, "--background")

    def umount(self) -> None:
        self.bbfs("umount", self.mnt)


def one_round(root: Path, changes: int) -> dict[str, float]:
    """Return the seconds of each case."""
    root.mkdir()
    mounted = Mounted(root)
    mounted.folder.mkdir()
    made(mounted.folder / "there", changes // 2, "old")
    plain, copy = root / "plain", root / "copy"
    made(plain, changes, "new")
    copy.mkdir()
    mounted.mount()
    try:
        made(mounted.mnt / SOURCE / "there", changes // 2, "changed ")
        made(mounted.mnt / SOURCE / "made", changes - changes // 2, "new")
        return {
            "a careful copy": copied(plain, copy),
            "bbfs changes": mounted.bbfs("changes", mounted.mnt),
            "bbfs apply": mounted.bbfs("apply", mounted.mnt),
            "bbfs --version": mounted.bbfs("--version"),
        }
    finally:
        mounted.umount()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        rounds = [one_round(Path(directory, str(number)), given.changes) for number in range(given.rounds)]
    medians = {case: statistics.median(each[case] for each in rounds) for case in rounds[0]}
    for case, seconds in medians.items():
        ratio = seconds / medians["a careful copy"]
        print(f"{case:20} {seconds:7.2f} s  {ratio:5.2f} x a careful copy of {given.changes} files")


if __name__ == "__main__":
    main()
