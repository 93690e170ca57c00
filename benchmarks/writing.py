"""Writing to a local folder: bbfs beside pyfuse3's example `passthroughfs.py` and the folder itself.

The places take turns. What a place has stored is counted in the folder behind its mount, so counting warms no mount.
The example is in the source distribution of pyfuse3 (`examples/passthroughfs.py`); `make bench` fetches it.
"""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import places
from figures import Missing, Sheet, Unmeasurable
from rounds import Bench, Place, Sizes, expect, held, run, turn

GROUP = "writing to a folder"
UNTAR, SMALL, SMALL_READ = "untar of a source tree", "small files, written", "small files, read"
LARGE, LARGE_READ = "a large file, written", "a large file, read"
CLONE, REMOVE = "git clone of a local bare repository", "rm -r of all of it"
CASES = (UNTAR, SMALL, SMALL_READ, LARGE, LARGE_READ, CLONE, REMOVE)
FOLDER, EXAMPLE, BBFS = "folder", "passthroughfs.py", "bbfs"
BOUND = 120.0
"""Seconds for one command."""
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
Held = tuple[int, int]
"""Files, and their bytes."""


def command(*words: str | Path, **environ: str) -> float:
    return run(words, bound=BOUND, environ=os.environ | environ)


class Material:
    """What is written: an archive of a source tree, and a bare repository of it. size: MiB of a large file."""

    def __init__(self, scratch: Path, tree: Path, files: int, size: int) -> None:
        self._files, self._size = files, size
        self._archive, self._bare = scratch / "tree.tar", scratch / "bare.git"
        command("tar", "-C", tree.parent, "-cf", self._archive, tree.name)
        work = scratch / "repository"
        who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        shutil.copytree(tree, work / "tree", symlinks=True)
        command("git", "init", "-q", work)
        command("git", "-C", work, "add", "-A", "-f")
        command("git", "-C", work, "commit", "-qm", "tree", **who)
        command("git", "clone", "-q", "--bare", work, self._bare)
        shutil.rmtree(work)

    def cases(self) -> Mapping[str, Callable[[Path], float]]:
        """Return what is measured, in this order, given a directory; the reading ones read what was written before."""
        size, none = f"count={self._size}", "status=none"
        acts: tuple[Callable[[Path], float], ...] = (
            lambda at: command("tar", "-C", at, "--no-same-owner", "-xf", self._archive),
            lambda at: command(sys.executable, "-c", WRITE_SMALL, at / "s", str(self._files)),
            lambda at: command(sys.executable, "-c", READ_SMALL, at / "s"),
            lambda at: command("dd", "if=/dev/zero", f"of={at}/large", "bs=1M", size, none),
            lambda at: command("dd", f"if={at}/large", "of=/dev/null", "bs=1M", none),
            lambda at: command("git", "clone", "-q", "--no-hardlinks", self._bare, at / "clone"),
            lambda at: command("rm", "-r", at),
        )
        return dict(zip(CASES, acts, strict=True))

    def stored(self, scratch: Path) -> dict[str, Held]:
        """Return what each case that writes leaves in a plain directory."""
        found: dict[str, Held] = {}
        for number, case in enumerate((UNTAR, SMALL, LARGE, CLONE)):
            at = scratch / str(number)
            at.mkdir(parents=True)
            self.cases()[case](at)
            found[case] = held(at)
        return found


def complete(there: Held, wanted: Held) -> bool:
    """Whether all files are there. git's configuration has more bytes on a file system with fewer abilities."""
    return there[0] == wanted[0] and there[1] >= wanted[1]


def source_tree(sizes: Sizes) -> Path:
    return (Path(os.__file__).parent / sizes.tree).resolve()


def passthroughfs(folder: Path, mountpoint: Path) -> list[str | Path]:
    example = places.RIVALS / ".venv" / "passthroughfs.py"
    if not example.exists():
        raise Missing("not installed")
    return [sys.executable, example, folder, mountpoint]


def plan(sheet: Sheet, _sizes: Sizes) -> None:
    sheet.plan(GROUP, CASES, [FOLDER])
    sheet.plan(GROUP, CASES, [EXAMPLE], rival=True)
    sheet.plan(GROUP, CASES, [BBFS])


def measure(bench: Bench) -> None:
    sizes, mounts = bench.sizes, bench.memory / "mounts"
    material = Material(bench.disk, source_tree(sizes), sizes.written, sizes.megabytes)
    stored = material.stored(bench.memory / "plain")
    folders = {name: bench.disk / name for name in (FOLDER, EXAMPLE, BBFS)}
    for directory in (mounts, *folders.values()):
        directory.mkdir()
    source = {"name": "f", "type": "filesystem", "capabilities": ["read", "list", "write"]}
    ours = places.bbfs(bench.memory / "home", [source | {"config": {"root": folders[BBFS]}}])

    def measured(case: str, number: int, place: Place) -> float:
        at, behind = place.tree / f"round-{number}", folders[place.name] / f"round-{number}"
        at.mkdir(exist_ok=True)
        taken = material.cases()[case](at)
        if case == REMOVE:
            expect("still there", behind.exists(), False)
        elif case in stored:
            before = [stored[one] for one in CASES[: CASES.index(case) + 1] if one in stored]
            wanted = (sum(files for files, _ in before), sum(size for _, size in before))
            if not complete(there := held(behind), wanted):
                raise Unmeasurable(f"files and bytes in the folder: {there}, not {wanted}")
        return taken

    with ExitStack() as ending:
        stage = places.Stage(bench.sheet, GROUP, mounts, ending, bench.rivals)
        commands = {
            EXAMPLE: (partial(passthroughfs, folders[EXAMPLE]), ""),
            BBFS: (ours, "bb-filesystem+f+file"),
        }
        found = [Place(FOLDER, folders[FOLDER]), *stage.places(CASES, commands)]
        for number in bench.budget.numbers():
            turn(bench.sheet, GROUP, number, {case: partial(measured, case, number) for case in CASES}, found)
