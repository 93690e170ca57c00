"""`bbfs cache`: what is kept on disk of the sources' contents, and getting rid of it.

For a mount, `bbfs fetch` has it keep more, and `bbfs refresh` has it ask again.
"""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bbfs.cli import lazy, output
from bbfs.cli.commands.mount import SIZE
from bbfs.cli.completion import complete_operand, complete_source
from bbfs.cli.operands.access import Target
from bbfs.cli.operands.rule import is_called
from bbfs.cli.options import SourceChoice, Verbosity, verbosity_options
from bbfs.cli.progress import amount
from bbfs.model.errors import BbfsError, NotFound
from bbfs.resources.commands.requests import Problem
from bbfs.resources.commands.requests.offline import Fetch, Fetched, Pin
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


_FETCH_EXAMPLES = """\b
Examples:
  bbfs fetch docs                                    all of a source
  bbfs fetch ~/mnt/mcp-server+kb/knowledge/handbook  a part of it
  bbfs fetch ~/mnt --max-bytes 2GiB                  of all sources, but no more than this
  bbfs fetch --pin docs/resource/guide               and keep it there, as it changes
  bbfs fetch --unpin docs/resource/guide

\b
Contents go to the disk cache. While their source is down, programs read them there, until they have been expired for
the option max_stale of the source. A content that is fresh on disk is not loaded again, so an interrupted fetch goes on
where it was. What is pinned is never evicted, and is read for as long as its source is down; the option pin = true pins
a whole source, and bbfs status tells how much is there.

\b
Exit status: 0 all is on disk but what a bound has left out; 1 something failed.
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
    with closing(kept):
        chosen = [usage.source for usage in kept.usage()[1] if source is None or is_called(usage.source, source)]
        if source is not None and not chosen:
            raise NotFound(f"nothing is kept of {source!r}")
        for each in chosen if source is not None else (None,):
            kept.clear(each)
        if {usage.source for usage in kept.usage()[1]} & {*chosen}:
            raise BbfsError(f"{directory}: not everything could be removed")


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
    with closing(kept):
        taken, usages = kept.usage()
    rows: dict[str, tuple[int, int]] = {}
    for usage in usages:
        prefix = usage.source.partition(" ")[0]
        count, size = rows.get(prefix, (0, 0))
        rows[prefix] = (count + usage.resources, size + usage.bytes)
    return taken, [(prefix, count, size) for prefix, (count, size) in sorted(rows.items())]


@click.command(epilog=_FETCH_EXAMPLES, short_help="Load contents to the disk, for the time without a source.")
@click.argument("operands", metavar="URI|PATH…", nargs=-1, required=True, shell_complete=complete_operand)
@click.option("--max-bytes", type=SIZE, help="Load no more than this, such as 500MiB.")
@click.option("--max-files", type=click.IntRange(min=0), help="Load no more files than this.")
@click.option("--pin", is_flag=True, help="Keep them on disk from now on, and load them again when they change.")
@click.option("--unpin", is_flag=True, help="Keep them so no more. This loads nothing.")
@verbosity_options
def fetch(
    verbosity: Verbosity,
    operands: tuple[str, ...],
    max_bytes: int | None,
    max_files: int | None,
    pin: bool,
    unpin: bool,
) -> None:
    """Have a mount load the contents at and below each path, so that they can be read while their source is down."""
    if pin and unpin:
        raise click.UsageError("--pin keeps what --unpin lets go")
    failed = False

    async def one(trees: "Trees", target: Target) -> None:
        nonlocal failed
        if target.tree.mount is None:
            raise NotFound("not at any mount; without one, 'bbfs cat' reads a source")
        path = "/".join(await target.tree.resolved(await target.located()))
        if pin or unpin:
            await target.tree.ask(Pin((path,), pin))
        if unpin:
            return
        counts = Fetched()

        def hear(answer: Fetched | Problem) -> None:
            nonlocal counts
            if isinstance(answer, Fetched):
                counts = answer
            else:
                output.message(answer.problem)

        before, trees.progress.note = trees.progress.note, lambda: _fetching(path, counts) or before()
        try:
            await target.tree.ask(Fetch((path,), max_bytes, max_files), hear)
        finally:
            trees.progress.note = before
        failed = failed or counts.failed > 0
        if not verbosity.quiet:
            click.echo(f"{output.printable(path or target.tree.mount)}: {_fetched(counts)}")

    async def work(trees: "Trees") -> bool:
        return await lazy.operand.each(trees, operands, lambda target: one(trees, target))

    well = lazy.operand.run(SourceChoice(verbosity), work)
    click.get_current_context().exit(0 if well and not failed else 1)


def _fetching(path: str, counts: Fetched) -> str | None:
    if not counts.files:
        return None
    done = counts.loaded + counts.present + counts.failed + counts.left_out
    return f"{path}: {done} of {output.count(counts.files, 'file')}, {amount(counts.bytes)}"


def _fetched(counts: Fetched) -> str:
    told = [f"{output.count(counts.loaded, 'file')} loaded", f"{counts.present} on disk already"]
    for number, words in ((counts.left_out, "left out"), (counts.failed, "failed")):
        if number:
            told.append(f"{number} {words}")
    return f"{', '.join(told)}, {amount(counts.bytes)}"


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

    well = lazy.operand.run(SourceChoice(verbosity), lambda opened: lazy.operand.each(opened, operands, drop))
    click.get_current_context().exit(0 if well else 1)
