"""A grep over a mount: the daemon says which files can match, and GNU grep reads these."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from math import inf
from typing import IO

import trio

from bbfs.cli import output
from bbfs.cli.target import control_client
from bbfs.cli.target.access import Target
from bbfs.cli.target.operand import Trees, inside_mount
from bbfs.fuse.mountpoint import MountError
from bbfs.model.errors import BbfsError, ConfigError, NotSupported

AT_ONCE = 8
"""Processes of grep at once: a file that is not cached waits for its source."""
FEWEST, MOST = 16, 500
"""Files of one process."""
LONGEST = 100_000
"""Bytes of the names in one command line (ARG_MAX of Linux is 2 MiB, with the environment)."""
_SYNTAX = {"extended": "-E", "fixed": "-F", "perl": "-P"}
_COPIED = 1 << 16
FOUND, NOTHING, FAILED = 0, 1, 2
"""Exit statuses of grep."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The question. options: for grep. include: patterns of names. inverted, counts, separated: whether lines without a
    match, the count of each file, and separators of contexts are to be printed. cached: trust the index.
    """

    pattern: str
    syntax: str
    options: Sequence[str]
    include: Sequence[str]
    ignore_case: bool
    inverted: bool
    counts: bool
    separated: bool
    cached: bool

    @property
    def command(self) -> list[str]:
        """The command line of grep, up to the names of files."""
        if shutil.which("grep") is None:
            raise NotSupported("there is no grep on this machine")
        return ["grep", "-r", "-n", "-H", _SYNTAX[self.syntax], *self.options, "-e", self.pattern, "--"]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where to search. shown: the path as it is printed, empty for the current directory."""

    mount: str
    path: tuple[str, ...]
    shown: str

    @property
    def is_directory(self) -> bool:
        return os.path.isdir(os.path.join(self.mount, *self.path))


async def run(trees: Trees, asked: Asked, operands: Sequence[str]) -> int:
    """Search and print. Return the exit status of grep. Raise BbfsError, OSError."""
    tried = subprocess.run([*asked.command, os.devnull], capture_output=True)  # noqa: ASYNC221 - reads nothing
    if tried.returncode == FAILED:
        sys.stderr.buffer.write(tried.stderr)
        return FAILED
    search = _Search(asked)
    places: list[_Place] = []
    for operand in operands:
        try:
            places.append(await _place(await trees.target(operand), operand))
        except (BbfsError, OSError) as error:
            output.failure(error, operand)
            search.failed = True
    if not operands:
        places = await _everywhere(trees)
    await search.run(places)
    trees.progress.end()
    return FAILED if search.failed else FOUND if search.found else NOTHING


async def _place(target: Target, operand: str) -> _Place:
    mount = target.tree.mount
    if mount is None:
        raise MountError("not at any mount; bbfs grep reads files of a mount ('bbfs mount' makes one)")
    path = await control_client.resolved(mount, await target.located())
    return _Place(mount, path, _as_typed(operand) or os.path.join(mount, *path))


def _as_typed(operand: str) -> str | None:
    """Return an operand that is a path as its user wrote it, or None for any other."""
    typed = os.path.expanduser(operand)
    return typed if inside_mount(operand) is not None and os.path.lexists(typed) else None


async def _everywhere(trees: Trees) -> list[_Place]:
    here = inside_mount(".")
    if here is not None:
        return [_Place(here[0], await control_client.resolved(*here), "")]
    try:
        mounts = [tree.mount for tree in await trees.roots() if tree.mount is not None]
    except ConfigError:
        mounts = []  # sources without a mount do not help
    if not mounts:
        raise MountError("nothing is mounted; bbfs grep reads files of a mount ('bbfs mount' makes one)")
    return [_Place(mount, (), mount) for mount in mounts]


@dataclass(slots=True)
class _Started:
    """A process of grep. status: its exit status, after `done`."""

    output: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    done: trio.Event = field(default_factory=trio.Event)
    status: int = FAILED


class _Search:
    """One search: batches of files go to processes of grep, whose outputs are printed in order."""

    def __init__(self, asked: Asked) -> None:
        self.found = False
        self.failed = False
        self._asked = asked
        self._command = asked.command
        self._printed = False

    async def run(self, places: Sequence[_Place]) -> None:
        """Search in some places. Raise BbfsError, OSError."""
        # Unbounded: a daemon ends the connection of a client that reads too slowly.
        naming, named = trio.open_memory_channel[list[str]](inf)
        sending, receiving = trio.open_memory_channel[_Started](AT_ONCE)
        slots = trio.Semaphore(AT_ONCE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._name_all, places, naming)
            nursery.start_soon(self._print_all, receiving)
            async with sending:
                async for batch in _batches(named):
                    await slots.acquire()
                    started = _Started()
                    nursery.start_soon(self._grep, batch, started, slots)
                    await sending.send(started)

    async def _grep(self, batch: list[str], started: "_Started", slots: trio.Semaphore) -> None:
        names = ["./-" if name == "-" else name for name in batch]  # grep reads its standard input for the other
        try:
            ran = await trio.run_process(
                [*self._command, *names], stdout=started.output, check=False, stdin=subprocess.DEVNULL
            )
            started.status = ran.returncode
        finally:
            slots.release()
            started.done.set()

    async def _print_all(self, receiving: "trio.MemoryReceiveChannel[_Started]") -> None:
        async with receiving:
            async for started in receiving:
                await started.done.wait()
                with started.output as output_file:
                    self._print(output_file)
                self.found = self.found or started.status == FOUND
                self.failed = self.failed or started.status == FAILED

    def _print(self, taken: IO[bytes]) -> None:
        taken.seek(0)
        first = taken.read(_COPIED)
        if first and self._printed and self._asked.separated:
            sys.stdout.buffer.write(b"--\n")
        self._printed = self._printed or bool(first)
        while first:
            sys.stdout.buffer.write(first)
            first = taken.read(_COPIED)
        sys.stdout.buffer.flush()

    async def _name_all(self, places: Sequence[_Place], naming: trio.MemorySendChannel[list[str]]) -> None:
        async with naming:
            for place in places:
                async with aclosing(self._files(place)) as files:
                    async for names in files:
                        await naming.send(names)

    async def _files(self, place: _Place) -> AsyncGenerator[list[str]]:
        """Yield the names of the files that can match, some at a time."""
        asked = self._asked
        if not place.is_directory:
            yield self._included([place.shown])
            return
        request = {
            "request": "grep",
            "path": "/".join(place.path),
            "pattern": "" if asked.inverted else asked.pattern,
            "syntax": asked.syntax,
            "ignoreCase": asked.ignore_case,
            "cached": asked.cached,
            "others": asked.counts,
        }
        async for answer in control_client.answers(place.mount, request):
            if isinstance(paths := answer.get("read"), list):
                yield self._included(_shown(place, paths))
            elif isinstance(paths := answer.get("others"), list):
                for name in self._included(_shown(place, paths)):
                    sys.stdout.buffer.write(os.fsencode(f"{name}:0\n"))
            elif "unlisted" in answer:
                output.message(f"{''.join(_shown(place, [str(answer['unlisted'])]))}: {answer.get('why')}")
                self.failed = True

    def _included(self, names: list[str]) -> list[str]:
        if not self._asked.include:
            return names
        patterns = [os.fsencode(pattern) for pattern in self._asked.include]
        return [name for name in names if any(_fits(os.path.basename(name), pattern) for pattern in patterns)]


async def _batches(named: trio.MemoryReceiveChannel[list[str]]) -> AsyncGenerator[list[str]]:
    """Yield names of files for one process each."""
    waiting: list[str] = []
    async with named:
        async for names in named:
            waiting += names
            while len(waiting) >= MOST:
                batch = _cut(waiting)
                yield batch
                waiting = waiting[len(batch) :]
    share = max(FEWEST, -(-len(waiting) // AT_ONCE))
    while waiting:
        batch = _cut(waiting[:share])
        yield batch
        waiting = waiting[len(batch) :]


def _shown(place: _Place, paths: Sequence[str]) -> list[str]:
    """Return paths from the mount's root as they are printed."""
    skipped = len("/".join(place.path))
    below = (path[skipped:].lstrip("/") for path in paths)
    return [os.path.join(place.shown, path) for path in below]


def _cut(names: Sequence[str]) -> list[str]:
    """Return the first names that fit one command line."""
    taken, size = 0, 0
    for name in names[:MOST]:
        size += len(os.fsencode(name)) + 1
        if taken and size > LONGEST:
            break
        taken += 1
    return list(names[:taken])


def _fits(name: str, pattern: bytes) -> bool:
    """Return whether a name fits a pattern as grep reads it: by fnmatch(3), which is not Python's."""
    return ctypes.CDLL(None).fnmatch(pattern, os.fsencode(name), 0) == 0
