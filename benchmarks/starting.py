"""Start: how long commands take, of the clock and of the processor; idle: the memory of a daemon that waits.

The commands ask for one file of a folder, without a mount and on one, beside Python that does nothing. What they print
is looked at. `mount --background` returns when the mount answers. The index of the search is filled before.
"""

import resource
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import places
from figures import Sheet, Unmeasurable
from files import Shape
from rounds import Bench, Place, Sizes, run, turn

GROUP, PROCESSOR, IDLE = "start", "start, processor time", "idle"
CASES, MOUNT, MEMORY = ("cat", "ls", "stat", "search"), "mount --background", "memory"
PYTHON, DIRECT, MOUNTED = "python -c pass", "bbfs, without a mount", "bbfs, on a mount"
FOLDER, MCP = "bbfs, one folder", "bbfs, one MCP server"
BOUND = 60.0


def plan(sheet: Sheet, _sizes: Sizes) -> None:
    for group in (GROUP, PROCESSOR):
        sheet.plan(group, CASES, [PYTHON, DIRECT, MOUNTED])
        sheet.plan(group, [MOUNT], [PYTHON, DIRECT])
    sheet.plan(IDLE, [MEMORY], [FOLDER, MCP], unit="MiB")


def children_time() -> float:
    """Seconds of processor time of all programs that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Commands:
    """The command lines for each place, in a home of their own. name: the file that they are to find."""

    def __init__(self, bench: Bench, stage: places.Stage) -> None:
        self._home = bench.memory / "home"
        shape = Shape(1, 20)
        self._name = shape.names()[0]
        shape.write(bench.memory / "folder" / "files")
        self._line = shape.content(self._name).splitlines()[0]
        source = {"name": "start", "type": "filesystem", "config": {"root": bench.memory / "folder"}, "index": True}
        command = places.bbfs(self._home, [source])
        self._config = ["--config", self._home / "bench.toml"]
        self.bbfs("index", *self._config, "start")
        self.tree, self.pid = stage.mount(FOLDER, command, below="bb-filesystem+start+file", home=self._home)
        self._other = bench.memory / "other"

    def bbfs(self, *words: str | Path, prints: str = "") -> float:
        """Seconds of a command. Raises Unmeasurable: it failed, or it did not print something."""
        return self.timed((sys.executable, "-P", "-m", "bbfs", *words), prints)

    def timed(self, command: tuple[str | Path, ...], prints: str = "") -> float:
        with tempfile.TemporaryFile() as output:
            taken = run(command, bound=BOUND, output=output, environ=places.isolated(self._home))
            output.seek(0)
            if prints not in output.read().decode():
                raise Unmeasurable(f"{command[-2]} {command[-1]} did not print {prints}")
        return taken

    def run(self, case: str, place: Place) -> float:
        if place.name == PYTHON:
            return self.timed((sys.executable, "-c", "pass"))
        if case == MOUNT:
            return self.bbfs("mount", *self._config, "--background", self._other)
        file = Path("files", self._name)
        direct = place.name == DIRECT
        where, options = (Path("start", file), self._config) if direct else (self.tree / file, [])
        if case == "search":
            below = "start" if direct else self.tree
            return self.bbfs("search", *options, self._line, below, prints=file.name)
        return self.bbfs(case, *options, where, prints=self._line if case == "cat" else file.name)

    def end(self, case: str, place: Place) -> None:
        if case == MOUNT and place.name == DIRECT:
            self.bbfs("umount", self._other)


def measure(bench: Bench) -> None:
    with ExitStack() as ending:
        mounts = bench.memory / "mounts"
        mounts.mkdir()
        stage = places.Stage(bench.sheet, GROUP, mounts, ending)
        commands = Commands(bench, stage)
        idle(bench, stage, Place(FOLDER, commands.tree, pid=commands.pid))

        def measured(number: int, case: str, place: Place) -> float:
            before = children_time()
            taken = commands.run(case, place)
            bench.sheet.add(number, PROCESSOR, case, place.name, children_time() - before)
            commands.end(case, place)
            return taken

        three = [Place(name, commands.tree) for name in (PYTHON, DIRECT, MOUNTED)]
        for place in three:  # the first run finds no bytecode
            commands.run("cat", place)
        for number in bench.budget.numbers():
            turn(bench.sheet, GROUP, number, {case: partial(measured, number, case) for case in CASES}, three)
            turn(bench.sheet, GROUP, number, {MOUNT: partial(measured, number, MOUNT)}, three[:2])


def idle(bench: Bench, stage: places.Stage, folder: Place) -> None:
    """Look at the daemons when nobody has asked them for a while."""
    served = places.bbfs(bench.memory / "mcp", [places.served("idle", places.server(1, 20))])
    tree, pid = stage.mount(MCP, served, below="mcp-server+idle/bench/tree/d000")
    for place in (folder, Place(MCP, tree, pid=pid)):
        run(["ls", place.tree], bound=BOUND)
    time.sleep(bench.sizes.idle)
    for place in (folder, Place(MCP, tree, pid=pid)):
        bench.sheet.add(0, IDLE, MEMORY, place.name, place.memory())
