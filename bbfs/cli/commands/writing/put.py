"""`bbfs put`: put resources into sources that accept them."""

import os
import sys
from typing import IO, TYPE_CHECKING

import click

from bbfs.cli import lazy
from bbfs.cli.operands.access import Target
from bbfs.cli.options import SourceChoice, source_options
from bbfs.model.versions import Labels

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
of type 'memory' takes them from the owner of its mount without that, and a MIME type and a description with them. When
the command returns, the source has the resource, and programs find it. A content that the source does not take is a
pending write ('bbfs pending').
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
    labels = Labels(mime_type, description)

    async def take_away(target: Target) -> None:
        await target.tree.remove(target, by_owner=True)

    async def work(opened: "Trees") -> bool:
        if remove:
            return await lazy.operand.each(opened, operands, take_away)
        name, where = operands
        with _source(name) as file:

            async def store(target: Target) -> None:
                await target.tree.write(target, file, replace=True, labels=labels, by_owner=True)

            return await lazy.operand.each(opened, (_where(where, name),), store)

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
