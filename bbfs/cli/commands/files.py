"""`bbfs rm`, `cp`, `mv` and `edit`: resources as files, with and without a mount."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from bbfs.cli import output
from bbfs.cli.completion import complete_operand
from bbfs.cli.options import SourceChoice, source_options
from bbfs.cli.target.access import Target
from bbfs.model.errors import BbfsError, Conflict, NotFound

if TYPE_CHECKING:
    from bbfs.cli.target.operand import Trees

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

    from bbfs.cli.target import operand  # noqa: PLC0415 - trio

    _run(choice, lambda opened: operand.each(opened, operands, remove))


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
    keep yours as a pending write.
    """
    with tempfile.TemporaryDirectory(prefix="bbfs-edit-") as directory:
        copy = Path(directory) / (os.path.basename(where.rstrip("/")) or "resource")
        _run(choice, lambda opened: _edited(opened, where, copy))


async def _edited(opened: "Trees", where: str, copy: Path) -> bool:
    import trio  # noqa: PLC0415 - for those who edit

    before = await _content(opened, where, absent=b"")
    if before is None:
        return False
    mine = before
    while True:
        mine = await trio.to_thread.run_sync(_from_editor, copy, mine)
        if mine == before:
            output.message(f"{where}: unchanged")
            return True
        there = await _content(opened, where, absent=b"")
        if there is None:
            return False
        if there == before or _replaces(where):
            file = BytesIO(mine)
            return await _tried(opened, where, partial(_written, file))
        before = there


async def _written(file: IO[bytes], target: Target) -> None:
    await target.tree.write(target, file, replace=True)


def _replaces(where: str) -> bool:
    """Ask what becomes of two versions. Return whether to replace the other one; False: edit again. Raise Conflict."""
    question = f"{where}: somebody else has changed it: (e)dit again, (r)eplace, (a)bandon"
    answer = click.prompt(question, type=click.Choice(["e", "r", "a"]), err=True)
    if answer == "a":
        raise Conflict(f"{where}: somebody else has changed it; your version is not saved")
    return answer == "r"


def _from_editor(copy: Path, data: bytes) -> bytes:
    """Return what the user makes of some bytes. Raise BbfsError if the editor fails."""
    copy.write_bytes(data)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    status = subprocess.call([*shlex.split(editor), str(copy)])
    if status != 0:
        raise BbfsError(f"{editor} ended with status {status}; nothing is saved")
    return copy.read_bytes()


async def _content(opened: "Trees", where: str, absent: bytes | None = None) -> bytes | None:
    """Return the content of a resource, or None after a failure has been reported.

    absent: the content of one that is not there; None makes that a failure.
    """
    data = bytearray()

    async def take(target: Target) -> None:
        try:
            await target.tree.copy(target, data.extend)
        except (NotFound, FileNotFoundError):
            if absent is None:
                raise
            data.extend(absent)

    return bytes(data) if await _tried(opened, where, take) else None


async def _copied(opened: "Trees", source: str, to: str, *, replace: bool) -> bool:
    if to.endswith("/"):
        to += os.path.basename(source.rstrip("/"))
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
    """Work on one operand and report a failure. Return whether there was none."""
    from bbfs.cli.target import operand  # noqa: PLC0415 - trio

    return await operand.each(opened, (where,), work)


def _is_local(operand: str) -> bool:
    """Return whether an operand is a file of this machine, outside every mount."""
    from bbfs.cli.target.location import inside_mount  # noqa: PLC0415 - the model

    return operand == "-" or (operand.startswith(("/", "./", "../", "~")) and inside_mount(operand) is None)


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
    from bbfs.cli.target import operand  # noqa: PLC0415 - trio

    click.get_current_context().exit(0 if operand.run(choice, work) else 1)
