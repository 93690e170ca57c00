"""Growth: the same work with more and more readers, sources, names and bytes, beside what does it without a mount.

*readers*: so many programs share 5 000 files of 4 KB that were read before, or 1 000 resources at 20 ms a read of which
nothing is known. *sources*: from the start of a daemon until each of its sources is listed, and its memory then.
*names*: the second `find` over the resources of a server, and the memory of the daemon. *bytes*: one file of a folder,
from memory and from a disk.

A step is a case whose name begins with its number (`label`), so that `plots.py` can draw it.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import cold_cases
import large_cases
import places
import scale
from cold_cases import Slow
from figures import Sheet
from files import Shape, write_list
from rounds import HERE, Bench, Place, Sizes, expect, held, run, seconds

WARM, COLD = "growth, warm readers", "growth, cold readers"
STARTED, SOURCES_MEMORY = "growth, sources", "growth, memory by sources"
NAMES, NAMES_MEMORY = "growth, names", "growth, memory by names"
CACHED, FROM_DISK = "growth, bytes from memory", "growth, bytes from a disk"
KINDS = FOLDERS, SERVERS = "bbfs, folders", "bbfs, MCP servers"
ITSELF, MOUNT = "the file itself", "bbfs, folder"
BELOW = "bb-filesystem+bytes+file"
REFRESH = (sys.executable, "-P", "-m", "bbfs", "refresh")
BOUND = 120.0
IN_FLIGHT = 16
ENOUGH = 64 << 20
"""Bytes that are read at least for one figure: a smaller file is read more often, and its figure is of one read."""


def label(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def labels(numbers: Sequence[int], what: str) -> list[str]:
    return [label(number, what) for number in numbers]


def plan(sheet: Sheet, sizes: Sizes) -> None:
    readers, sources = labels(sizes.readers, "reader"), labels(sizes.sources, "source")
    names, file_sizes = labels(sizes.names, "name"), labels(sizes.file_sizes, "byte")
    sheet.plan(WARM, readers, ["tmpfs", "bbfs"])
    sheet.plan(COLD, readers, ["ideal", "bbfs"])
    sheet.plan(STARTED, sources, KINDS)
    sheet.plan(SOURCES_MEMORY, sources, KINDS, unit="MiB")
    sheet.plan(NAMES, names, ["tmpfs", "bbfs"])
    sheet.plan(NAMES_MEMORY, names, ["bbfs"], unit="MiB")
    for group in (CACHED, FROM_DISK):
        sheet.plan(group, file_sizes, [ITSELF, MOUNT])


@contextmanager
def stage(bench: Bench, group: str) -> Iterator[places.Stage]:
    with ExitStack() as ending:
        directory = bench.memory / f"mounts-{time.monotonic_ns()}"
        directory.mkdir()
        yield places.Stage(bench.sheet, group, directory, ending)


# -- readers -----------------------------------------------------------------------------------------------------------


def read_by(readers: int, tree: Path, names: Sequence[str], scratch: Path) -> float:
    """Seconds in which so many processes together read each of the files once."""
    portion = str(-(-len(names) // readers))
    chosen = write_list(scratch / "growth.list", list(names))
    command = ["env", "-C", tree, "xargs", "-0", "-a", chosen, "-n", portion, "-P", str(readers), "cat"]
    return run(command, bound=BOUND)


def warm_readers(bench: Bench) -> None:
    shape, tree = Shape(bench.sizes.directories, -(-bench.sizes.files // 2)), bench.memory / "growing"
    shape.write(tree)
    source = {"name": "warm", "type": "filesystem", "config": {"root": tree}, "ttl": "1h"}
    with stage(bench, WARM) as mounts:
        command = places.bbfs(bench.memory / "growing.home", [source])
        found = [Place("tmpfs", tree), Place("bbfs", mounts.mount("bbfs", command, below="bb-filesystem+warm+file")[0])]
        for place in found:
            expect("files", held(place.tree)[0], shape.count)
            read_by(1, place.tree, shape.names(), bench.memory)
        for number in range(bench.sizes.growths):
            for readers in bench.sizes.readers:
                for place in found[:: 1 if number % 2 else -1]:
                    taken = read_by(readers, place.tree, shape.names(), bench.memory)
                    bench.sheet.add(number, WARM, label(readers, "reader"), place.name, taken)


def cold_readers(bench: Bench) -> None:
    slow = Slow(bench.sizes.slow)
    names = [Path(name).name for name in Shape(1, slow.count).names()]
    cases = {label(readers, "reader"): readers for readers in bench.sizes.readers}
    for number in range(bench.sizes.growths):
        with stage(bench, COLD) as mounts:
            upstream = cold_cases.Upstream(mounts, slow, list(cases), IN_FLIGHT)
            for case, readers in cases.items():
                taken = read_by(readers, upstream.tree(case), names, bench.memory)
                upstream.read_all(case)
                bench.sheet.add(number, COLD, case, "ideal", slow.ideal(IN_FLIGHT))
                bench.sheet.add(number, COLD, case, "bbfs", taken)


# -- sources -----------------------------------------------------------------------------------------------------------


def folder(bench: Bench, number: int) -> dict[str, Any]:
    tree = bench.memory / "folders" / str(number)
    Shape(1, 20, seed=str(number)).write(tree)
    return {"name": f"s{number}", "type": "filesystem", "config": {"root": tree}, "ttl": "1h"}


def mcp_server(_bench: Bench, number: int) -> dict[str, Any]:
    return places.served(f"s{number}", places.server(1, 20, seed=str(number)))


def sources(bench: Bench, name: str, make: Callable[[Bench, int], dict[str, Any]]) -> None:
    for count in bench.sizes.sources:
        home = bench.memory / f"{count} {name}"
        command = places.bbfs(home, [make(bench, number) for number in range(count)])
        with stage(bench, STARTED) as mounts:
            began = time.perf_counter()
            root, pid = mounts.mount(name, command)
            expect("files", count_of_files(root), 20 * count)
            case = label(count, "source")
            bench.sheet.add(0, STARTED, case, name, time.perf_counter() - began)
            bench.sheet.add(0, SOURCES_MEMORY, case, name, Place(name, root, pid=pid).memory())


def count_of_files(root: Path) -> int:
    with tempfile.TemporaryFile() as output:
        run(["find", root, "-mindepth", "2", "-name", "f*.txt", "-printf", "\n"], bound=BOUND, output=output)
        return output.tell()


# -- names -------------------------------------------------------------------------------------------------------------


def names(bench: Bench) -> None:
    for count in bench.sizes.names:
        copy, case = bench.memory / f"names-{count}", label(count, "name")
        scale.copy_tree(count, copy)
        with scale.mounted(bench.memory / f"names-{count}.home", {"many": scale.server(count)}) as daemon:
            scale.find(daemon.mount.tree, count)
            for number in range(bench.sizes.growths):
                bench.sheet.add(number, NAMES, case, "tmpfs", scale.find(copy, count))
                bench.sheet.add(number, NAMES, case, "bbfs", scale.find(daemon.mount.tree, count))
            bench.sheet.add(0, NAMES_MEMORY, case, "bbfs", daemon.mount.memory())
        run(["rm", "-rf", copy], bound=BOUND)


# -- bytes -------------------------------------------------------------------------------------------------------------


def read_often(path: Path, size: int) -> float:
    """Seconds of one read of the whole file."""
    times = max(1, min(1000, ENOUGH // size))
    return seconds("reader.py", "often", path, str(times), bound=BOUND) / times


def first_read(path: Path, behind: Path) -> float:
    for one in dict.fromkeys((path, behind)):
        run([sys.executable, HERE / "reader.py", "evict", one], bound=BOUND)
    return seconds("reader.py", "whole", path, bound=BOUND)


def bytes_of_files(bench: Bench) -> None:
    kept = bench.disk / "growing"
    kept.mkdir()
    source = {"name": "bytes", "type": "filesystem", "config": {"root": kept}, "ttl": "1h"}
    with stage(bench, CACHED) as mounts:
        home = bench.memory / "bytes.home"
        root = mounts.mount(MOUNT, places.bbfs(home, [source]), home=home)[0]
        for size in bench.sizes.file_sizes:
            file, case = kept / f"of-{size}", label(size, "byte")
            large_cases.write(file, size)
            os.sync()
            run([*REFRESH, root / BELOW], bound=BOUND, environ=places.isolated(home))
            found = {ITSELF: file, MOUNT: root / BELOW / file.name}
            for number in range(bench.sizes.growths):
                for name, path in list(found.items())[:: 1 if number % 2 else -1]:
                    bench.sheet.add(number, FROM_DISK, case, name, first_read(path, file))
                    bench.sheet.add(number, CACHED, case, name, read_often(path, size))
            file.unlink()


def measure(bench: Bench) -> None:
    """Each part once; a part that fails leaves the others."""
    sizes = bench.sizes
    parts: list[tuple[str, list[str], str, Callable[[], None]]] = [
        (WARM, labels(sizes.readers, "reader"), "bbfs", partial(warm_readers, bench)),
        (COLD, labels(sizes.readers, "reader"), "bbfs", partial(cold_readers, bench)),
        (STARTED, labels(sizes.sources, "source"), FOLDERS, partial(sources, bench, FOLDERS, folder)),
        (STARTED, labels(sizes.sources, "source"), SERVERS, partial(sources, bench, SERVERS, mcp_server)),
        (NAMES, labels(sizes.names, "name"), "bbfs", partial(names, bench)),
        (CACHED, labels(sizes.file_sizes, "byte"), MOUNT, partial(bytes_of_files, bench)),
    ]
    for group, cases, place, part in parts:
        bench.sheet.attempt(group, cases, place, part)
