"""A grep over a mount: the daemon says which files can match, and GNU grep reads these."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Literal, TypeAlias, TypeVar

from bbfs.cli import lazy, output
from bbfs.cli.operands import control_client, location
from bbfs.cli.operands.access import TROUBLED_WITHIN, troubled
from bbfs.cli.operands.location import inside_mount, resolved
from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import MountError
from bbfs.fuse.scratch.directory import Scratch
from bbfs.model.errors import BbfsError, ConfigError, NotFound, NotSupported
from bbfs.resources.commands.requests.finding import Grep, MayMatch, NoMatch, Unlisted

if TYPE_CHECKING:
    from bbfs.cli.operands.operand import Trees

T = TypeVar("T")
AT_ONCE = 8
"""Processes of grep at once: a file that is not cached waits for its source."""
FEWEST, MOST = 16, 500
"""Files of one process."""
LONGEST = 100_000
"""Bytes of the names in one command line (ARG_MAX of Linux is 2 MiB, with the environment)."""
_SYNTAX = {"extended": "-E", "fixed": "-F", "basic": "-G", "perl": "-P"}
_COPIED = 1 << 16
_NO_MOUNT = "not at any mount; bbfs grep reads files of a mount ('bbfs mount' makes one)"
FOUND, NOTHING, FAILED = 0, 1, 2
"""Exit statuses of grep."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The question.

    options: for grep, each with its value in one word. names: patterns of names in order, each with whether such a
    file is searched. pruned: patterns of directories that are left out. follows: follow links. cached: trust the index.
    """

    pattern: str
    syntax: Literal["extended", "fixed", "basic", "perl"]
    options: Sequence[str]
    names: Sequence[tuple[bool, str]]
    pruned: Sequence[str]
    follows: bool
    cached: bool

    @property
    def command(self) -> list[str]:
        """The command line of grep, up to the names of files."""
        if shutil.which("grep") is None:
            raise NotSupported("there is no grep on this machine")
        walk = ["-r"]
        if self.follows:  # grep itself walks
            walk = ["-R", *(f"--exclude-dir={pattern}" for pattern in self.pruned)]
            walk += [f"--{'include' if wanted else 'exclude'}={pattern}" for wanted, pattern in self.names]
        return ["grep", *walk, "-n", "-H", _SYNTAX[self.syntax], *self.options, "-e", self.pattern, "--"]

    def request(self, path: str) -> Grep:
        """Return the request to the daemon, for the files at and below a path."""
        if self.syntax == "basic" or self.has("-v", "-L"):
            return Grep(path, "", "extended", False, self.cached, self.counts)
        return Grep(path, self.pattern, self.syntax, self.has("-i"), self.cached, self.counts)

    def has(self, *options: str) -> bool:
        return any(option in self.options for option in options)

    @property
    def counts(self) -> bool:
        """True if grep prints the count of each file."""
        return self.has("-c") and not self.has("-q", "-l", "-L")

    @property
    def separated(self) -> bool:
        """True if grep prints a line between groups of lines."""
        around = any(option[:2] in ("-A", "-B", "-C") for option in self.options)
        return around and not self.has("-c", "-q", "-l", "-L")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where to search. shown: the path as it is printed, empty for the current directory."""

    mount: str
    path: tuple[str, ...]
    shown: str

    @property
    def is_directory(self) -> bool:
        return os.path.isdir(os.path.join(self.mount, *self.path))


Located: TypeAlias = Sequence["_Place | BbfsError | OSError"]
Locate: TypeAlias = "Callable[[Trees], Awaitable[Located]]"


def run(asked: Asked, operands: Sequence[str], elsewhere: Callable[[Locate], Located]) -> int:
    """Search and print. Return the exit status of grep. Raise BbfsError, OSError.

    elsewhere: locates the operands that are no path inside a mount, or the mounts if there are no operands; it needs an
    event loop, whose import takes longer than most searches.
    """
    tried = subprocess.run([*asked.command, os.devnull], capture_output=True)
    if tried.returncode == FAILED:
        sys.stderr.buffer.write(tried.stderr)
        return FAILED
    search = _Search(asked)
    here = inside_mount(".") if not operands else None
    if here is not None:
        found: Located = [_Place(here[0], resolved(*here), "")]
    elif operands and all(map(inside_mount, operands)):
        found = [*map(_of_path, operands)]
    else:
        found = elsewhere(lambda trees: _of_operands(trees, operands) if operands else _everywhere(trees))
    places: list[_Place] = []
    for operand, place in zip(operands or [None] * len(found), found, strict=True):
        if isinstance(place, _Place):
            places.append(place)
        else:
            search.failed = True
            if not asked.has("-s"):
                output.failure(place, operand)
    search.run(places)
    if search.failed and not (search.found and asked.has("-q")):
        return FAILED
    return FOUND if search.found else NOTHING


def _of_path(operand: str) -> "_Place | BbfsError | OSError":
    """Return the place of a path inside a mount, or its error."""
    inside = inside_mount(operand)
    try:
        if inside is None:
            raise MountError(_NO_MOUNT)
        mount, path = inside[0], resolved(*inside)
    except (BbfsError, OSError) as error:
        return error
    return _Place(mount, path, _as_typed(operand) or os.path.join(mount, *path))


async def _of_operands(trees: "Trees", operands: Sequence[str]) -> Located:
    """Return the places of operands, or their errors."""
    found: list[_Place | BbfsError | OSError] = []
    for operand in operands:
        try:
            target = await trees.target(operand)
            mount = target.tree.mount
            if mount is None:
                raise MountError(_NO_MOUNT)
            path = resolved(mount, await target.located())
            found.append(_Place(mount, path, _as_typed(operand) or os.path.join(mount, *path)))
        except (BbfsError, OSError) as error:
            found.append(error)
    return found


def _as_typed(operand: str) -> str | None:
    """Return an operand that is a path as its user wrote it, or None for any other."""
    typed = os.path.expanduser(operand)
    return typed if inside_mount(operand) is not None and os.path.lexists(typed) else None


async def _everywhere(trees: "Trees") -> Located:
    """Return the roots of all mounts. Raise MountError if there are none."""
    try:
        mounts = [tree.mount for tree in await trees.roots() if tree.mount is not None]
    except ConfigError:
        mounts = []  # sources without a mount do not help
    if not mounts:
        raise MountError("nothing is mounted; bbfs grep reads files of a mount ('bbfs mount' makes one)")
    return [_Place(mount, (), mount) for mount in mounts]


@dataclass(frozen=True, slots=True)
class _Grepped:
    """The output of a process of grep, and its exit status."""

    output: IO[bytes]
    status: int


class _Search:
    """One search: batches of files go to processes of grep, whose outputs are printed in order."""

    def __init__(self, asked: Asked) -> None:
        self.found = False
        self.failed = False
        self._asked = asked
        self._command = asked.command
        self._printed = False
        self._printing = threading.Lock()
        self._room = threading.Semaphore(2 * AT_ONCE)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._named: SimpleQueue[list[str] | None] = SimpleQueue()
        self._stopped = False

    def run(self, places: Sequence[_Place]) -> None:
        """Search in some places. Raise BbfsError, OSError."""
        # A thread of its own takes the names: a daemon ends the connection of a client that reads too slowly.
        started: SimpleQueue[Future[_Grepped] | None] = SimpleQueue()
        failures: list[Exception] = []
        threading.Thread(target=self._name_all, args=(places, failures), daemon=True).start()
        with ThreadPoolExecutor(AT_ONCE) as greps, ThreadPoolExecutor(1) as printer:
            printing = printer.submit(self._print_all, started)
            try:
                for batch in _batches(iter(self._named.get, None)):
                    self._room.acquire()
                    if self._stopped:
                        break
                    started.put(greps.submit(self._grep, batch))
                started.put(None)
                printing.result()
            except BaseException:
                self._stop()  # else the end of the pools would wait for what is under way
                started.put(None)
                raise
        if failures and not self._has_answer:
            raise failures[0]

    @property
    def _has_answer(self) -> bool:
        """True once the exit status is certain and grep prints nothing more."""
        return self.found and self._asked.has("-q")

    def _stop(self) -> None:
        self._stopped = True
        for process in [*self._running]:
            process.kill()
        self._named.put(None)  # who waits for names finds that it is over

    def _grep(self, batch: list[str]) -> _Grepped:
        # grep reads its standard input for "-"; it walks the current directory if it gets no name.
        names = ["./-" if name == "-" else name for name in batch if name]
        taken = tempfile.TemporaryFile()  # noqa: SIM115 - the thread that prints closes it
        if self._stopped:
            return _Grepped(taken, NOTHING)
        with subprocess.Popen([*self._command, *names], stdout=taken, stdin=subprocess.DEVNULL) as process:
            self._running.add(process)
            try:
                return _Grepped(taken, process.wait())
            finally:
                self._running.discard(process)

    def _print_all(self, started: "SimpleQueue[Future[_Grepped] | None]") -> None:
        try:
            for future in iter(started.get, None):
                done = future.result()
                with done.output as output_file:
                    self._print(output_file)
                self._room.release()
                self.found = self.found or done.status == FOUND
                self.failed = self.failed or done.status not in (FOUND, NOTHING)
                if self._has_answer and not self._stopped:
                    self._stop()
        except BaseException:
            self._stop()
            self._room.release()  # who waits for room finds that it is over
            for future in iter(started.get, None):
                with suppress(OSError):
                    future.result().output.close()
            raise

    def _print(self, taken: IO[bytes]) -> None:
        taken.seek(0)
        first = taken.read(_COPIED)
        with self._printing:
            if first and self._printed and self._asked.separated:
                sys.stdout.buffer.write(b"--\n")
            self._printed = self._printed or bool(first)
            while first:
                sys.stdout.buffer.write(first)
                first = taken.read(_COPIED)
            sys.stdout.buffer.flush()

    def _name_all(self, places: Sequence[_Place], failures: list[Exception]) -> None:
        try:
            for place in places:
                for names in self._files(place):
                    self._named.put(names)
        except (BbfsError, OSError) as error:
            failures.append(error)
        finally:
            self._named.put(None)

    def _files(self, place: _Place) -> Iterator[list[str]]:
        """Yield the names of the files that can match, some at a time."""
        if not place.is_directory or self._asked.follows:
            yield [place.shown] if place.is_directory else self._wanted(place, [place.shown])
            return
        written = _Written(place)
        mountpoint.names(place.mount)  # or the error of a dead mount
        for answer in written.known(self._answers(place)):
            match answer:
                case MayMatch(paths):
                    yield self._wanted(place, _shown(place, written.without(paths)))
                case NoMatch(paths):
                    yield from self._without_match(self._wanted(place, _shown(place, written.without(paths))))
                case Unlisted(directory, why):
                    self.failed = True
                    if not self._asked.has("-s"):
                        output.message(f"{''.join(_shown(place, [directory]))}: {why}")
        if written.files:
            yield self._wanted(place, _shown(place, sorted(written.files)))

    def _answers(self, place: _Place) -> Iterator[MayMatch | NoMatch | Unlisted]:
        """Yield the answers of the daemon. At the root, a source that was down and does not answer soon is left out.

        Raise BbfsError, OSError.
        """
        silent = [] if place.path else _silent(place.mount)
        if not silent:
            yield from control_client.ask_now(place.mount, self._asked.request("/".join(place.path)))
            return
        yield from (Unlisted(name, f"left out: no answer within {TROUBLED_WITHIN:g} s") for name in silent)
        with os.scandir(place.mount) as root:
            entries = sorted(root, key=lambda entry: entry.name)
        yield MayMatch(tuple(entry.name for entry in entries if entry.is_file(follow_symlinks=False)))
        directories = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in directories:
            if name in silent:
                continue
            try:
                yield from control_client.ask_now(place.mount, self._asked.request(name))
            except BbfsError as error:
                yield Unlisted(name, str(error))

    def _without_match(self, names: list[str]) -> Iterator[list[str]]:
        """Print the counts of files without a match, or yield the files if grep writes other lines for them."""
        if self._asked.has("-h", "-Z", "--color=always"):
            yield names
            return
        with self._printing:
            sys.stdout.buffer.write(os.fsencode("".join(f"{name}:0\n" for name in names)))

    def _wanted(self, place: _Place, names: list[str]) -> list[str]:
        """Return the names that the patterns for files and directories do not leave out."""
        asked = self._asked
        if asked.pruned:
            skipped = len(os.path.dirname(place.shown)) if place.is_directory else len(place.shown)
            below = ((name, os.path.dirname(name[skipped:]).split("/")) for name in names)
            names = [name for name, path in below if not any(_fits(each, asked.pruned) for each in path if each)]
        if asked.names:
            unnamed = not asked.names[0][0]
            last = [(wanted, (pattern,)) for wanted, pattern in reversed(asked.names)]
            bases = ((name, os.path.basename(name)) for name in names)
            names = [name for name, base in bases if next((to for to, each in last if _fits(base, each)), unnamed)]
        return names


def _silent(mount: str) -> list[str]:
    """Return the directories of the sources that were down, or not connected yet, and do not answer soon."""
    asked = {
        name: location.Asking(mount, partial(os.listdir, os.path.join(mount, name)))
        for name in troubled(lazy.mounted.MountedTree(mount).status())
    }
    until = time.monotonic() + TROUBLED_WITHIN
    silent: list[str] = []
    for name, asking in asked.items():
        try:
            asking.answer(max(0.0, until - time.monotonic()))
        except location.NoAnswer:
            silent.append(name)
        except OSError:
            pass  # the daemon says at once why
    return silent


class _Written:
    """The files of a scratch at and below a place: the daemon knows those of the sources only."""

    def __init__(self, place: _Place) -> None:
        scratch = Scratch.mounted(place.mount)
        self._place = place
        self._has_scratch = scratch is not None
        self.files = set() if scratch is None else set(self._written(scratch.upper))
        """Paths from the mount's root of the files that programs have written."""

    def _written(self, upper: str) -> Iterator[str]:
        for directory, _, names in os.walk(os.path.join(upper, *self._place.path)):
            for name in names:
                path = os.path.relpath(os.path.join(directory, name), upper)
                # Through the overlay: a mark of a removed name is no file there.
                with suppress(OSError):
                    if stat.S_ISREG(os.lstat(os.path.join(self._place.mount, path)).st_mode):
                        yield path

    def known(self, answers: Iterator[T]) -> Iterator[T]:
        """Pass on the daemon's answers. A directory that only the scratch has is no error. Raise BbfsError, OSError."""
        try:
            yield from answers
        except NotFound:
            if not self._has_scratch:
                raise

    def without(self, paths: Sequence[str]) -> list[str]:
        """Return the paths from the mount's root at which the sources' files still show."""
        if not self._has_scratch:
            return [*paths]
        shown = (path for path in paths if path not in self.files)
        return [path for path in shown if not location.is_removed(os.path.join(self._place.mount, path))]


def _batches(named: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield names of files for one process each."""
    waiting: list[str] = []
    for names in named:
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


def _fits(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a name fits a pattern as grep reads them: by fnmatch(3), which is not Python's."""
    fnmatch = lazy.ctypes.CDLL(None).fnmatch
    return any(fnmatch(os.fsencode(pattern), os.fsencode(name), 0) == 0 for pattern in patterns)
