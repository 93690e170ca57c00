"""Matches a pattern against resources without a mount: loads those that can match, and has GNU grep read them.

A pattern may come from a model, so grep runs with limits: on its memory, its time, and the lines that it may print.
"""

import os
import resource
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path as FilePath

import trio

from bbfs.model.errors import BbfsError, DeadlineExceeded, InvalidUri, NotSupported
from bbfs.resources.catalog.record import Path, Record
from bbfs.resources.commands import table
from bbfs.resources.commands.grep import Grep
from bbfs.resources.commands.table import Line, Matched
from bbfs.resources.manager import ResourceManager

WITHIN = 30.0
"""Seconds for one question."""
BATCH = 64
"""Resources that one process of grep reads."""
LARGEST = 8 << 20
"""Bytes of a content; a larger one is not read."""
BATCH_BYTES = 64 << 20
"""Bytes of the contents of one batch."""
MEMORY = 256 << 20
"""Bytes of address space of a process of grep."""
LONGEST_LINE, BEFORE = 500, 100
"""Characters of a line; of them, before the match in a longer line."""
SHORT_LINE = 200
"""Characters of a line of which nobody asks where it matches."""
MOST_OUTPUT = 4 << 20
MOST_PLACES = 1 << 20
"""Bytes of the output of one process that are read: of lines; of the places of matches in long lines."""


async def match(
    manager: ResourceManager, request: table.Match, replies: table.Replies[Matched | table.Problem]
) -> None:
    """Answer with the matching lines at and below a path, in the order of the tree, and with what was not read.

    Raise InvalidUri for a pattern that grep refuses; NotSupported without grep; the error of the path itself.
    """
    left, unread, problems = request.limit, 0, list[str]()
    await _lines(request, [], 0)
    with trio.move_on_after(WITHIN) as bound:
        async with aclosing(_files(manager, request, problems.append)) as files:
            async for paths in files:
                loaded = await _loaded(manager, paths)
                unread += len(paths) - len(loaded)
                found = await _lines(request, [data for _, data in loaded], left)
                for (record, _), lines in zip(loaded, found, strict=True):
                    kept = first_matches(lines, left)
                    left -= sum(line.matches for line in kept)
                    if kept:
                        metadata = record.metadata
                        await replies.give(Matched(metadata.uri, metadata.name, metadata.title, kept))
                if left <= 0:
                    problems.append(f"there may be more than {request.limit} matching lines")
                    break
    if bound.cancelled_caught:
        problems.append(f"not everything was read within {WITHIN:g} s: name a path below")
    if unread:
        problems.append(f"{unread} resources could not be read, or are larger than {LARGEST} bytes")
    for problem in problems:
        await replies.give(table.Problem(problem))


async def match_one(request: table.Match, data: bytes) -> tuple[Line, ...]:
    """Return the matching lines of one content, at whatever path. Raise as `match` does."""
    (lines,) = await _lines(request, [data], request.limit)
    return first_matches(lines, request.limit)


def _command(request: table.Match, most: int, *options: str) -> list[str]:
    """Return a command line of grep, without the files. most: matching lines of a file."""
    case = ["-i"] if request.ignore_case else []
    syntax = "-F" if request.fixed else "-E"
    return ["grep", "-nHI", "--null", syntax, *case, *options, "-m", str(most), "-e", request.pattern, "--"]


def first_matches(lines: Sequence[Line], most: int) -> tuple[Line, ...]:
    """Return the lines up to the last match that is wanted."""
    kept: list[Line] = []
    for line in lines:
        if line.matches and most == 0:
            break
        most -= line.matches
        kept.append(line)
    return tuple(kept) if any(line.matches for line in kept) else ()


async def _files(
    manager: ResourceManager, request: table.Match, unlisted: Callable[[str], None]
) -> AsyncGenerator[list[Path]]:
    """Yield the paths of the files that can match, a batch at a time."""
    start = table.names(request.path)
    node = await manager.tree.find(start) if len(start) > 1 else None
    if node is not None and node.kind == "file":
        yield [start]
        return
    waiting: list[Path] = []
    syntax = "fixed" if request.fixed else "extended"
    asked = table.Grep(request.path, request.pattern, syntax, request.ignore_case)
    async with aclosing(Grep(manager, asked).answers()) as answers:
        async for answer in answers:
            match answer:
                case table.MayMatch(read):
                    waiting += [tuple(path.split("/")) for path in read]
                case table.Unlisted(path, why):
                    unlisted(f"{path}: {why}")
                case _:
                    pass
            while len(waiting) >= BATCH:
                yield waiting[:BATCH]
                waiting = waiting[BATCH:]
    if waiting:
        yield waiting


async def _loaded(manager: ResourceManager, paths: Sequence[Path]) -> list[tuple[Record, bytes]]:
    """Return the contents of files, in their order, without those that fail or are too large. No tool is run."""
    found: dict[Path, tuple[Record, bytes]] = {}
    room = BATCH_BYTES

    async def load(path: Path) -> None:
        nonlocal room
        with suppress(BbfsError):
            record = (await manager.tree.find(path)).record
            if record is None or record.on_open or (record.metadata.size or 0) > LARGEST:
                return
            content = await manager.contents.open(record)
            if content.size <= min(LARGEST, room):
                room -= content.size
                found[path] = record, await content.read_waiting(0, content.size)

    async with trio.open_nursery() as nursery:
        for path in paths:
            nursery.start_soon(load, path)
    return [found[path] for path in paths if path in found]


async def _lines(request: table.Match, contents: Sequence[bytes], most: int) -> list[list[Line]]:
    """Return the lines that grep prints of each content. Raise InvalidUri, NotSupported, DeadlineExceeded.

    most: matching lines of a content.
    """
    with tempfile.TemporaryDirectory(prefix="bbfs-grep-") as directory:
        names = [str(number) for number in range(len(contents))]
        for name, data in zip(names, contents, strict=True):
            (FilePath(directory) / name).write_bytes(data)
        command = _command(request, most, "-C", str(request.context))
        rows = _rows(await _run([*command, *(names or [os.devnull])], directory))
        long = {name for name, _, is_match, text in rows if is_match and len(text) > SHORT_LINE}
        where: dict[tuple[int, int], int] = {}
        if long:
            command = _command(request, most, "-b", "-o")
            output = await _run([*command, *(names[name] for name in sorted(long))], directory, MOST_PLACES)
            where = _first_places(_rows(output), contents)
    found: list[list[Line]] = [[] for _ in contents]
    for name, number, is_match, text in rows:
        found[name].append(_line(number, text, is_match=is_match, match=where.get((name, number), 0)))
    return found


def _rows(output: bytes) -> list[tuple[int, int, bool, bytes]]:
    """Return the rows of an output of grep: the number of the file and of the line, if it matches, and its text."""
    found: list[tuple[int, int, bool, bytes]] = []
    for row in output.split(b"\n"):
        name, null, rest = row.partition(b"\0")
        digits = len(rest) - len(rest.lstrip(b"0123456789"))
        if null and digits and name.isdigit():
            is_match = rest[digits : digits + 1] == b":"
            found.append((int(name), int(rest[:digits]), is_match, rest[digits + 1 :]))
    return found


def _first_places(
    rows: Sequence[tuple[int, int, bool, bytes]], contents: Sequence[bytes]
) -> dict[tuple[int, int], int]:
    """Return the byte of each line that its first match begins with. rows: of `grep -bo`, with places in the file."""
    found: dict[tuple[int, int], int] = {}
    for name, number, _, text in rows:
        place, colon, _ = text.partition(b":")
        if colon and place.isdigit() and (name, number) not in found:
            found[name, number] = int(place) - (contents[name].rfind(b"\n", 0, int(place)) + 1)
    return found


def _line(number: int, text: bytes, *, is_match: bool, match: int) -> Line:
    """Return a line, or the part of a long one around its match. match: the byte that it begins with."""
    at = len(text[:match].decode(errors="replace"))
    shown = text.decode(errors="replace")
    begin = min(at - BEFORE, len(shown) - LONGEST_LINE) if at > BEFORE and len(shown) > LONGEST_LINE else 0
    return Line(number, shown[begin : begin + LONGEST_LINE], is_match, begin, at)


async def _run(command: Sequence[str], directory: str, most: int = MOST_OUTPUT) -> bytes:
    """Return the output of grep, which runs in a directory with limits. most: bytes of it."""
    taken = bytearray()
    with trio.move_on_after(WITHIN) as bound:
        try:
            process = await trio.lowlevel.open_process(
                command,
                cwd=directory,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except FileNotFoundError:
            raise NotSupported("there is no grep on this machine") from None
        try:
            with suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
            assert process.stdout is not None
            async with process.stdout:
                async for some in process.stdout:
                    taken += some
                    if len(taken) > most:
                        break
            if len(taken) > most:
                process.kill()
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()
        if status == 2:
            raise InvalidUri("grep refuses the pattern, or it takes too much memory")
    if bound.cancelled_caught:
        raise DeadlineExceeded(f"the pattern took more than {WITHIN:g} s")
    return bytes(taken[:most])
