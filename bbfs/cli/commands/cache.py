"""`bbfs cache`: what is kept on disk of the sources' contents, and getting rid of it; `bbfs refresh` for a mount."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bbfs.cli import lazy, output
from bbfs.cli.completion import complete_operand, complete_source
from bbfs.cli.operands.access import Target
from bbfs.cli.operands.rule import is_called
from bbfs.cli.options import SourceChoice, Verbosity, verbosity_options
from bbfs.model.errors import BbfsError, NotFound
from bbfs.resources.commands.requests.reading import Refresh

if TYPE_CHECKING:
    from bbfs.cli.operands.operand import Trees
    from bbfs.resources.cache.disk import DiskCache

_EXAMPLES = """\b
Examples:
  bbfs cache                 how much of each source is on disk
  bbfs cache --json
  bbfs cache clear           remove all of it
  bbfs cache clear docs      remove what is kept of one source

\b
JSON: an object with directory, bytes (what all contents take on disk) and sources, an array of objects with
source (its URI prefix), resources (a number) and bytes (of their contents, equal ones counted once).
"""
_CLEAR_EXAMPLES = """\b
Examples:
  bbfs cache clear
  bbfs cache clear docs
  bbfs cache clear mcp-server+docs
"""

_REFRESH_EXAMPLES = """\b
An operand is
  a path inside a mount        ~/mnt/mcp-server+docs/resource/guide
  a mount point                ~/mnt
  a source and a path below    docs   or   docs/resource/guide
  a bbfs URI                   mcp-server+docs+resource://guide

\b
Cached names, sizes and contents there are dropped, also names cached as absent: the next use asks the
source. While a source is down, its cached contents are still served.

\b
Examples:
  bbfs refresh ~/mnt                                everything
  bbfs refresh docs                                 one source
  bbfs refresh mcp-server+docs+resource://guide     one resource
"""


@click.group(epilog=_EXAMPLES, invoke_without_command=True, short_help="Show or remove the contents kept on disk.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def cache(ctx: click.Context, as_json: bool) -> None:
    """Show what is kept on disk of the sources' contents, by source."""
    if ctx.invoked_subcommand is not None:
        return
    directory = _directory()
    taken, rows = _usage(directory)
    if as_json:
        sources = [{"source": source, "resources": count, "bytes": size} for source, count, size in rows]
        output.as_json({"directory": str(directory), "bytes": taken, "sources": sources})
        return
    cells = [(output.printable(source), str(count), str(size)) for source, count, size in rows]
    output.table([("SOURCE", "RESOURCES", "BYTES"), *cells], right=[1, 2])
    output.message(f"{taken} bytes on disk in {directory}")


@cache.command(epilog=_CLEAR_EXAMPLES, short_help="Remove contents kept on disk.")
@click.argument("source", required=False, shell_complete=complete_source)
def clear(source: str | None) -> None:
    """Remove the contents of all sources, or of the one with this name or URI prefix, from the disk.

    Mounts may go on meanwhile: what they need again, they read from the source.
    """
    directory = _directory()
    kept = _open(directory)
    if kept is None:
        if source is not None:
            raise NotFound(f"nothing is kept of {source!r}")
        return
    try:
        chosen = [usage.source for usage in kept.usage()[1] if source is None or is_called(usage.source, source)]
        if source is not None and not chosen:
            raise NotFound(f"nothing is kept of {source!r}")
        for each in chosen:
            kept.clear(each)
        if {usage.source for usage in kept.usage()[1]} & {*chosen}:
            raise BbfsError(f"{directory}: not everything could be removed")
    finally:
        kept.close()


def _directory() -> Path:
    return lazy.opening.contents_path(lazy.opening.store_path())


def _open(directory: Path) -> "DiskCache | None":
    """Open the disk cache. Return None if there never was a cache. Raise OSError."""
    return lazy.disk_cache.DiskCache(directory, 0) if directory.is_dir() else None


def _usage(directory: Path) -> tuple[int, list[tuple[str, int, int]]]:
    """Return the bytes on disk, and for each source its URI prefix, resources and bytes."""
    kept = _open(directory)
    if kept is None:
        return 0, []
    try:
        taken, usages = kept.usage()
    finally:
        kept.close()
    rows: dict[str, tuple[int, int]] = {}
    for usage in usages:
        prefix = usage.source.partition(" ")[0]
        count, size = rows.get(prefix, (0, 0))
        rows[prefix] = (count + usage.resources, size + usage.bytes)
    return taken, [(prefix, count, size) for prefix, (count, size) in sorted(rows.items())]


@click.command(epilog=_REFRESH_EXAMPLES, short_help="Have a mount ask its sources again.")
@click.argument("operands", metavar="URI|PATH…", nargs=-1, required=True, shell_complete=complete_operand)
@verbosity_options
def refresh(verbosity: Verbosity, operands: tuple[str, ...]) -> None:
    """Drop what a mount has cached at and below each path, so that the next use asks the source."""

    async def drop(target: Target) -> None:
        if target.tree.mount is None:
            raise NotFound("not at any mount; without one, nothing is kept from one command to the next")
        path = await target.tree.resolved(await target.located())
        await target.tree.ask(Refresh(("/".join(path),)))

    async def work(opened: "Trees") -> bool:
        return await lazy.operand.each(opened, operands, drop)

    well = lazy.operand.run(SourceChoice(verbosity), work)
    click.get_current_context().exit(0 if well else 1)
