"""Warm: 10 000 files of 4 KB, listed and read once before, so that nothing need be asked for again.

All places hold the same files and stay mounted; each round runs each program at each place, in turn. The first one is
of all, the others of bbfs and what it is measured by, because most rivals take minutes for one. mirage gets a fiftieth
of the files; its seconds are scaled up.
"""

import shutil
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import places
from figures import Sheet, Unmeasurable
from files import Shape, write_list
from rounds import Bench, Measure, Place, Sizes, expect, held, run, turn

GROUP = "warm"
CELL_BOUND = 40.0
MIRAGE_SHARE = 0.02
OURS = ("tmpfs", "floor", "floor, no xattrs", "bbfs, MCP", "bbfs, folder")
"""Places that take part in all rounds."""
RIVALS = ("rclone", "rclone, kept 1 h", "fsspec", "ratarmount")
CASES = ("find", "ls -lR", "cat of all", "grep -r", "tar", "rsync -a")


def programs(scratch: Path, lists: Callable[[Place], Path]) -> dict[str, Measure]:
    """What is run at each place. lists: the names of a place's files."""

    def rsync(place: Place) -> float:
        target = scratch / "copy"
        try:
            return run(["rsync", "-a", f"{place.tree}/", target], bound=CELL_BOUND)
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def cat(place: Place) -> float:
        return run(["env", "-C", place.tree, "xargs", "-0", "-a", lists(place), "cat"], bound=CELL_BOUND)

    measures: tuple[Measure, ...] = (
        lambda place: run(["find", place.tree], bound=CELL_BOUND),
        lambda place: run(["ls", "-lR", place.tree], bound=CELL_BOUND),
        cat,
        lambda place: run(["grep", "-r", "no such text", place.tree], bound=CELL_BOUND, accepted=(1,)),
        lambda place: run(["tar", "-cf", "-", "-C", place.tree, "."], bound=CELL_BOUND, accepted=(0, 1), piped=True),
        rsync,
    )
    return dict(zip(CASES, measures, strict=True))


def plan(sheet: Sheet, sizes: Sizes) -> None:
    sheet.plan(GROUP, CASES, OURS)
    sheet.plan(GROUP, CASES, RIVALS, rival=True)
    sheet.plan(GROUP, CASES, ["mirage"], rival=True, share=few(sizes).count / shape(sizes).count)


def shape(sizes: Sizes) -> Shape:
    return Shape(sizes.directories, sizes.files)


def few(sizes: Sizes) -> Shape:
    return Shape(max(1, round(sizes.directories * MIRAGE_SHARE)), sizes.files)


def warm_up(sheet: Sheet, group: str, place: Place, measures: dict[str, Measure], wanted: Shape) -> None:
    """List and read everything once. A place that cannot, or has other files, is left out of all cases."""
    try:
        measures["ls -lR"](place)
        measures["cat of all"](place)
        expect("files and bytes", held(place.tree, bound=CELL_BOUND), (wanted.count, wanted.count * wanted.size))
    except Unmeasurable as why:
        for case in CASES:
            sheet.fail(group, case, place.name, type(why)(f"the first run: {why}"))


def measure(bench: Bench) -> None:
    scratch, sheet, all_files, few_files = bench.memory, bench.sheet, shape(bench.sizes), few(bench.sizes)
    # Beside the files, a folder that is mounted has .about.md.
    tree = scratch / "folder" / "files"
    all_files.write(tree)
    few_files.write(scratch / "few")
    archive = scratch / "files.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tree, arcname=".")
    names = {
        place: write_list(scratch / place, of.names())
        for place, of in (("all.list", all_files), ("few.list", few_files))
    }
    measures = programs(scratch, lambda place: names["few.list" if place.share < 1 else "all.list"])
    mounts = scratch / "mounts"
    mounts.mkdir()
    folder = {"name": "warm", "type": "filesystem", "config": {"root": tree.parent}, "ttl": "1h"}
    serving = places.served("warm", places.server(all_files.directories, all_files.files))
    commands = {
        "floor": (places.floor(tree), ""),
        "floor, no xattrs": (places.floor(tree, "--no-xattrs"), ""),
        "bbfs, MCP": (places.bbfs(scratch / "mcp", [serving]), "mcp-server+warm/bench/tree"),
        "bbfs, folder": (places.bbfs(scratch / "folder-home", [folder]), "bb-filesystem+warm+file/files"),
        "rclone": (places.rclone(tree), ""),
        "rclone, kept 1 h": (places.rclone(tree, *places.KEPT), ""),
        "fsspec": (places.by_rival("fsspec_mount.py", tree), ""),
        "ratarmount": (places.ratarmount(archive), ""),
        "mirage": (places.by_rival("mirage_mount.py", scratch / "few"), ""),
    }
    with ExitStack() as ending:
        stage = places.Stage(sheet, GROUP, mounts, ending, bench.rivals)
        found = [Place("tmpfs", tree), *stage.places(CASES, commands)]
        for place in found:
            warm_up(sheet, GROUP, place, measures, few_files if place.share < 1 else all_files)
        ours = [place for place in found if place.name in OURS]
        for number in bench.budget.numbers(first_apart=True):
            turn(sheet, GROUP, number, measures, ours if number else found)
