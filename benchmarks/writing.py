"""Writing to a local folder: bbfs beside pyfuse3's example `passthroughfs.py` and the folder itself, in one run.

The places take turns in each round, and the table has the medians of all rounds. The example is in the source
distribution of pyfuse3 (`examples/passthroughfs.py`); its path is the argument of this program.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from places import isolated

BOUND = 1200.0
"""Seconds for one command."""
SMALL = 10_000
"""Small files, of 100 to 2100 bytes."""
WRITE_SMALL = """
import os, sys
for number in range(int(sys.argv[2])):
    if number % 100 == 0:
        os.makedirs(f"{sys.argv[1]}/{number // 100}", exist_ok=True)
    with open(f"{sys.argv[1]}/{number // 100}/{number}.txt", "wb") as file:
        file.write(b"x" * (100 + number % 2001))
"""
READ_SMALL = """
import os, sys
for directory, _, names in os.walk(sys.argv[1]):
    for name in names:
        with open(os.path.join(directory, name), "rb") as file:
            file.read()
"""


def command(*words: str | Path, **environ: str) -> None:
    subprocess.run(
        list(map(str, words)), check=True, timeout=BOUND, stdout=subprocess.DEVNULL, env=os.environ | environ
    )


class Material:
    """What is written: an archive of a source tree, and a bare repository of it."""

    def __init__(self, scratch: Path, tree: Path, size: int) -> None:
        self.size = size
        self.archive = scratch / "tree.tar"
        command("tar", "-C", tree.parent, "-cf", self.archive, tree.name)
        self.bare = scratch / "bare.git"
        work = scratch / "repository"
        who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        shutil.copytree(tree, work / "tree", symlinks=True)
        command("git", "init", "-q", work)
        command("git", "-C", work, "add", "-A", "-f")
        command("git", "-C", work, "commit", "-qm", "tree", **who)
        command("git", "clone", "-q", "--bare", work, self.bare)
        shutil.rmtree(work)

    def cases(self) -> Mapping[str, Callable[[Path], None]]:
        """Return what is measured, in this order, each in the same directory of a place."""
        mebibytes = str(self.size)
        return {
            "untar of a source tree": lambda at: command("tar", "-C", at, "-xf", self.archive),
            "10 000 small files, written": lambda at: command(sys.executable, "-c", WRITE_SMALL, at / "s", str(SMALL)),
            "10 000 small files, read": lambda at: command(sys.executable, "-c", READ_SMALL, at / "s"),
            f"{mebibytes} MiB, written": lambda at: command(
                "dd", "if=/dev/zero", f"of={at}/large", "bs=1M", f"count={mebibytes}", "status=none"
            ),
            f"{mebibytes} MiB, read": lambda at: command(
                "dd", f"if={at}/large", "of=/dev/null", "bs=1M", "status=none"
            ),
            "git clone of a local bare repository": lambda at: command(
                "git", "clone", "-q", "--no-hardlinks", self.bare, at / "clone"
            ),
            "rm -r of all of it": lambda at: command("rm", "-r", at),
        }


@contextmanager
def serving(words: list[str | Path], at: Path, home: Path) -> Iterator[None]:
    """A mount at a directory while the block runs."""
    at.mkdir()
    with (home.parent / f"{home.name}.log").open("wb") as log:
        daemon = subprocess.Popen(list(map(str, words)), stdout=log, stderr=log, env=isolated(home))
        try:
            deadline = time.monotonic() + 30
            while not os.path.ismount(at):
                if daemon.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"no mount: {' '.join(map(str, words))}")
                time.sleep(0.05)
            yield
        finally:
            subprocess.run(["fusermount3", "-u", at], check=False)
            daemon.wait(30)


def places(stack: ExitStack, scratch: Path, example: Path) -> dict[str, Path]:
    """Start the mounts. Return the directory of each place."""
    folders = {name: scratch / f"{name}-folder" for name in ("bbfs", "example", "plain")}
    for folder in folders.values():
        folder.mkdir()
    config = scratch / "bbfs.toml"
    config.write_text(
        '[[sources]]\nname = "f"\ntype = "filesystem"\ncapabilities = ["read", "list", "write"]\n'
        f'config = {{ root = "{folders["bbfs"]}" }}\n'
    )
    at, beside = scratch / "bbfs-mount", scratch / "example-mount"
    bbfs: list[str | Path] = [sys.executable, "-m", "bbfs", "mount", "--config", config, at]
    stack.enter_context(serving(bbfs, at, scratch / "bbfs-home"))
    stack.enter_context(
        serving([sys.executable, example, folders["example"], beside], beside, scratch / "example-home")
    )
    return {"folder": folders["plain"], "example": beside, "bbfs": at / "bb-filesystem+f+file"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("example", type=Path, help="passthroughfs.py of pyfuse3")
    parser.add_argument("--tree", type=Path, default=Path(os.__file__).parent / "asyncio", help="a source tree")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1024, help="mebibytes of the large file")
    given = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="bbfs-writing-"))
    taken: dict[str, dict[str, list[float]]] = {}
    try:
        material = Material(scratch, given.tree.resolve(), given.size)
        with ExitStack() as stack:
            there = places(stack, scratch, given.example)
            for number in range(given.rounds):
                for case, do in material.cases().items():
                    for place, directory in there.items():
                        at = directory / f"round-{number}"
                        at.mkdir(exist_ok=True)
                        began = time.perf_counter()
                        do(at)
                        taken.setdefault(case, {}).setdefault(place, []).append(time.perf_counter() - began)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("| | folder | `passthroughfs.py` | bbfs |\n|---|---|---|---|")
    for case, by_place in taken.items():
        print(f"| {case} | " + " | ".join(f"{statistics.median(by_place[place]):.2f} s" for place in there) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
