"""`bbfs rm`, `cp`, `mv` and `edit`: resources as files, with and without a mount."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from bbfs.cli import lazy, output
from bbfs.cli.completion import complete_operand
from bbfs.cli.operands.access import Kept, Target, pending_store
from bbfs.cli.operands.location import inside_mount
from bbfs.cli.options import SourceChoice, source_options
from bbfs.model.errors import BbfsError, Conflict, NotFound
from bbfs.model.uri import parse_data_source_uri
from bbfs.model.versions import Expected

if TYPE_CHECKING:
    from bbfs.cli.operands.operand import Trees

_OPERANDS = """
\b
An operand is
  a path inside a mount        ~/mnt/bb-memory+scratch+memory/notes/a.md
  a source and a path below    scratch/notes/a.md
  a bbfs URI                   bb-memory+scratch+memory://notes/a.md
"""
_LOCAL = "  a local file                 ./report.pdf   /etc/hosts   - (standard input or output)\n"
_EXAMPLES = """\b
Examples:
  bbfs cp ./report.pdf scratch/reports/
  bbfs cp kb/notes/a.md scratch/a.md
  bbfs mv scratch/a.md scratch/b.md
  bbfs rm scratch/b.md bb-memory+scratch+memory://c.md
  EDITOR=nano bbfs edit scratch/todo.md
"""
_WRITE = """
\b
The configuration has to grant the source the capability `write`. When the command returns, the source has the
change. Without a mount, this process opens the source.
"""


@click.command(epilog=_EXAMPLES + _OPERANDS + _WRITE, short_help="Remove resources.")
@click.argument("operands", metavar="WHERE…", nargs=-1, required=True, shell_complete=complete_operand)
@source_options
def rm(choice: SourceChoice, operands: tuple[str, ...]) -> None:
    """Remove resources at their sources."""

    async def remove(target: Target) -> None:
        await target.tree.remove(target)

    _run(choice, lambda opened: lazy.operand.each(opened, operands, remove))


@click.command(epilog=_EXAMPLES + _OPERANDS + _LOCAL + _WRITE, short_help="Copy a resource, also between sources.")
@click.argument("source", metavar="FROM", shell_complete=complete_operand)
@click.argument("to", metavar="TO", shell_complete=complete_operand)
@click.option("-n", "--no-clobber", is_flag=True, help="Replace nothing.")
@source_options
def cp(choice: SourceChoice, source: str, to: str, no_clobber: bool) -> None:
    """Copy one resource or local file."""
    _run(choice, lambda opened: _copied(opened, source, to, replace=not no_clobber))


@click.command(epilog=_EXAMPLES + _OPERANDS + _LOCAL + _WRITE, short_help="Move a resource, also between sources.")
@click.argument("source", metavar="FROM", shell_complete=complete_operand)
@click.argument("to", metavar="TO", shell_complete=complete_operand)
@click.option("-n", "--no-clobber", is_flag=True, help="Replace nothing.")
@source_options
def mv(choice: SourceChoice, source: str, to: str, no_clobber: bool) -> None:
    """Move one resource or local file: copy it, then remove the old one."""

    async def moved(opened: "Trees") -> bool:
        if not await _copied(opened, source, to, replace=not no_clobber):
            return False
        if _is_local(source):
            os.unlink(source)
            return True
        return await _tried(opened, source, lambda target: target.tree.remove(target))

    _run(choice, moved)


@click.command(epilog=_EXAMPLES + _OPERANDS + _WRITE, short_help="Edit a resource in $EDITOR.")
@click.argument("where", metavar="WHERE", shell_complete=complete_operand)
@source_options
def edit(choice: SourceChoice, where: str) -> None:
    """Edit a copy of a resource in $VISUAL or $EDITOR, and save it to its source.

    If somebody else has changed the resource meanwhile, nothing is lost: edit it again, replace the other version, or
    keep yours as a pending write. What could not be saved is one too, or stays in a file that is named.
    """
    draft = _Draft(where, Path(tempfile.mkdtemp(prefix="bbfs-edit-")))
    try:
        _run(choice, lambda opened: _edited(opened, draft))
    finally:
        draft.end()


class _Draft:
    """The copy of a resource that its user edits. is_safe: the source or a pending write has what the user wrote."""

    def __init__(self, where: str, directory: Path) -> None:
        self.where = where
        self.copy = directory / (os.path.basename(where.rstrip("/")) or "resource")
        self.before: bytes | None = None
        self.is_safe = False

    def end(self) -> None:
        """Remove the copy. One that nothing else has stays, and its name is printed."""
        with suppress(OSError):
            if not self.is_safe and self.before is not None and self.copy.read_bytes() != self.before:
                output.message(f"{self.where}: your version is in {self.copy}")
                return
        shutil.rmtree(self.copy.parent, ignore_errors=True)

    async def save(self, mine: bytes, target: Target) -> None:
        """Write a version to the source. Raise BbfsError, OSError."""
        try:
            await target.tree.write(target, BytesIO(mine), replace=True)
        except Kept:
            self.is_safe = True
            raise
        self.is_safe = True

    async def set_aside(self, mine: bytes, read: "_Version", target: Target) -> None:
        """Keep a version as a pending write, and then raise Conflict. Raise BbfsError, OSError if it cannot be kept."""
        problem = f"{Conflict.__name__}: somebody else has changed it"
        there = read.document or await target.tree.document(target)
        uri = str(there["uri"])
        prefix = parse_data_source_uri(uri).base_prefix
        rows = await target.tree.sources(None)
        source = next((row["id"] for row in rows if f"{row.get('uriPrefix')}+".startswith(f"{prefix}+")), "")
        if read.document is None:
            expected = Expected(exists=False)
        elif (etag := read.document.get("etag")) is not None:
            expected = Expected(exists=True, etag=etag)
        else:
            expected = Expected(exists=True, version=lazy.memory_content.MemoryContent(read.content).version)
        path = tuple(there.get("path", "").split("/"))
        fields = (source, there["originalUri"], uri, path, expected, len(mine), time.time(), problem)
        item = lazy.pending.PendingWrite(lazy.pending.new_id(), *fields)
        store = pending_store()
        store.keep(item, lazy.memory_content.MemoryContent(mine))
        store.sync(item)
        self.is_safe = True
        raise Conflict(f"somebody else has changed it; 'bbfs pending' has your version as {item.id}")


async def _edited(opened: "Trees", draft: _Draft) -> bool:
    where = draft.where
    await opened.event_loop()  # sources that this process has opened live on while the editor runs
    read = await _version(opened, where)
    if read is None:
        return False
    draft.before = mine = read.content
    while True:
        mine = await lazy.trio.to_thread.run_sync(_from_editor, draft.copy, mine)
        if mine == read.content:
            output.message(f"{where}: unchanged")
            draft.is_safe = True
            return True
        there = await _version(opened, where)
        if there is None:
            return False
        answer = "r" if there.content == read.content else _answer(where)
        if answer != "e":
            work = partial(draft.save, mine) if answer == "r" else partial(draft.set_aside, mine, read)
            return await _tried(opened, where, work)
        read = there


@dataclass(frozen=True, slots=True)
class _Version:
    """A content in the editor of a user. document: the metadata; None if there was no such resource."""

    content: bytes
    document: dict[str, Any] | None


async def _version(opened: "Trees", where: str) -> _Version | None:
    """Return the version of a resource that is there now, or None after a failure has been reported."""
    found: list[_Version] = []

    async def take(target: Target) -> None:
        await target.tree.require_written(target)
        data = bytearray()
        try:
            await target.tree.copy(target, data.extend)
            found.append(_Version(bytes(data), await target.tree.document(target)))
        except (NotFound, FileNotFoundError):
            found.append(_Version(b"", None))

    return found[0] if await _tried(opened, where, take) else None


def _answer(where: str) -> str:
    """Ask what becomes of two versions: `e`, `r` or `a`. The end of input and Ctrl-C abandon."""
    question = f"{where}: somebody else has changed it: (e)dit again, (r)eplace, (a)bandon (yours is pending then)"
    try:
        return str(click.prompt(question, type=click.Choice(["e", "r", "a"]), err=True))
    except click.Abort:
        click.echo(err=True)
        return "a"


def _from_editor(copy: Path, data: bytes) -> bytes:
    """Return what the user makes of some bytes. Raise BbfsError if the editor fails."""
    copy.write_bytes(data)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    status = subprocess.call([*shlex.split(editor), str(copy)])
    if status != 0:
        raise BbfsError(f"{editor} ended with status {status}; nothing is saved")
    return copy.read_bytes()


async def _copied(opened: "Trees", source: str, to: str, *, replace: bool) -> bool:
    opened.takes_files = True
    if to.endswith("/"):
        to += os.path.basename(source.rstrip("/"))
    elif _is_local_directory(to):
        to += "/" + os.path.basename(source.rstrip("/"))
    with tempfile.TemporaryFile() as spool:
        if _is_local(source):
            _from_local(source, spool)
        elif not await _tried(opened, source, lambda target: target.tree.copy(target, spool.write)):
            return False
        spool.seek(0)
        if not _is_local(to):
            return await _tried(opened, to, lambda target: target.tree.write(target, spool, replace=replace))
        _to_local(spool, to, replace=replace)
        return True


async def _tried(opened: "Trees", where: str, work: Callable[[Target], Awaitable[None]]) -> bool:
    """Work on one operand and report a failure. Return whether there was no failure."""
    return await lazy.operand.each(opened, (where,), work)


def _is_local(operand: str) -> bool:
    """Return whether an operand is a file of this machine, outside every mount."""
    return operand == "-" or (operand.startswith(("/", "./", "../", "~")) and inside_mount(operand) is None)


def _is_local_directory(operand: str) -> bool:
    return operand in (".", "..") or (_is_local(operand) and os.path.isdir(os.path.expanduser(operand)))


def _from_local(operand: str, spool: IO[bytes]) -> None:
    if operand == "-":
        shutil.copyfileobj(sys.stdin.buffer, spool)
    else:
        with open(os.path.expanduser(operand), "rb") as file:
            shutil.copyfileobj(file, spool)


def _to_local(spool: IO[bytes], operand: str, *, replace: bool) -> None:
    if operand == "-":
        shutil.copyfileobj(spool, sys.stdout.buffer)
    else:
        with open(os.path.expanduser(operand), "wb" if replace else "xb") as file:
            shutil.copyfileobj(spool, file)


def _run(choice: SourceChoice, work: "Callable[[Trees], Awaitable[bool]]") -> None:
    click.get_current_context().exit(0 if lazy.operand.run(choice, work) else 1)
