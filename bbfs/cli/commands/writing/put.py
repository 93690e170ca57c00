"""`bbfs put`: put resources into sources that accept them."""

import os
import sys
from collections.abc import Awaitable, Callable
from typing import IO, TYPE_CHECKING

import click

from bbfs.cli import lazy
from bbfs.cli.operands import scratches
from bbfs.cli.operands.access import Target
from bbfs.cli.options import SourceChoice, source_options
from bbfs.model.errors import NotSupported
from bbfs.resources.commands.table import Put, Remove

if TYPE_CHECKING:
    from bbfs.cli.operands.operand import Trees

_EXAMPLES = """\b
WHERE is
  a path inside a mount        ~/mnt/bb-memory+scratch+memory/notes/a.md
  a source and a path below    scratch/notes/a.md
  a bbfs URI                   bb-memory+scratch+memory://notes/a.md
With a slash at its end it is a directory, in which the resource gets the name of FILE.

\b
Examples:
  bbfs put report.pdf scratch/reports/
  date | bbfs put - ~/mnt/bb-memory+scratch+memory/now
  bbfs put --mime-type text/html page bb-memory+scratch+memory://page
  bbfs put --remove scratch/now scratch/reports/report.pdf

\b
A source that the configuration grants the capability `write` takes resources in, with and without a mount; a source
of type 'memory' takes them from the owner of its mount without that. When the command returns, the source has the
resource, and programs find it.
"""


@click.command(epilog=_EXAMPLES, short_help="Put a resource into a source.")
@click.argument("operands", metavar="FILE|- WHERE", nargs=-1, required=True, type=click.Path())
@click.option("--mime-type", metavar="TYPE", help="The MIME type, if the name does not say it.")
@click.option("--description", metavar="TEXT", help="A description, for people.")
@click.option("--remove", is_flag=True, help="Take resources away: all operands are WHERE.")
@source_options
def put(
    choice: SourceChoice, operands: tuple[str, ...], mime_type: str | None, description: str | None, remove: bool
) -> None:
    """Put the content of FILE, or of standard input, into a source as the resource WHERE."""
    if remove and (mime_type is not None or description is not None):
        raise click.UsageError("--remove takes neither --mime-type nor --description")
    if not remove and len(operands) != 2:
        raise click.UsageError("expected FILE (or '-' for standard input) and WHERE to put it")
    said = {"mime_type": mime_type, "description": description}
    said = {key: value for key, value in said.items() if value is not None}

    async def take_away(target: Target) -> None:
        if _has_scratch(target) or target.tree.mount is None:
            await target.tree.remove(target)
        else:
            await _ask(target, {})

    async def work(opened: "Trees") -> bool:
        if remove:
            return await lazy.operand.each(opened, operands, take_away)
        name, where = operands
        with _source(name) as file:
            return await lazy.operand.each(opened, (_where(where, name),), _putter(file, said))

    well = lazy.operand.run(choice, work)
    click.get_current_context().exit(0 if well else 1)


def _source(name: str) -> IO[bytes]:
    """Return the file to put. Raise OSError."""
    return open(sys.stdin.fileno() if name == "-" else name, "rb", closefd=name != "-")


def _where(where: str, name: str) -> str:
    if not where.endswith("/"):
        return where
    if name == "-":
        raise click.UsageError("standard input has no name to put it under")
    return where + os.path.basename(name)


def _putter(file: IO[bytes], said: dict[str, str]) -> Callable[[Target], Awaitable[None]]:
    async def put_there(target: Target) -> None:
        if _has_scratch(target):
            if said:
                raise NotSupported("a file in a scratch has neither a MIME type nor a description")
            await target.tree.write(target, file, replace=True)
        elif not said and (target.tree.mount is None or await _is_written(target)):
            await target.tree.write(target, file, replace=True)
        else:
            await _ask(target, said, file)

    return put_there


def _has_scratch(target: Target) -> bool:
    """Return whether a resource is put as a file into a scratch, and not into its source."""
    return isinstance(target.tree, lazy.mounted.MountedTree) and target.tree.has_scratch


async def _is_written(target: Target) -> bool:
    """Return whether the configuration grants the target's source the capability `write`."""
    first = target.path[0] if target.path else (target.uri or "").partition(":")[0]
    written = [row for row in await target.tree.sources(None) if "write" in row.get("capabilities", ())]
    return any(first == row["uriPrefix"] or first.startswith(f"{row['uriPrefix']}+") for row in written)


async def _ask(target: Target, said: dict[str, str], file: IO[bytes] | None = None) -> None:
    """Have the daemon of the target's mount put a file, or remove a resource. Raise BbfsError, OSError."""
    scratches.require_no_scratch(target.tree.mount)
    if target.tree.mount is None:
        raise NotSupported("without a mount a resource has neither a MIME type nor a description of its own")
    path = None if target.path is None else "/".join(await target.tree.resolved(target.path))
    uri = target.uri if path is None else None
    if file is None:
        await target.tree.ask(Remove(path, uri))
    else:
        data = await lazy.trio.to_thread.run_sync(file.read)
        await target.tree.ask(
            Put(path, uri, data, mime_type=said.get("mime_type"), description=said.get("description"))
        )
