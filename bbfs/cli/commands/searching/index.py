"""`bbfs index`: the local index of texts."""

import os
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from bbfs.cli import lazy, output
from bbfs.cli.completion import complete_operand
from bbfs.cli.operands.access import SourceTree
from bbfs.cli.operands.rule import is_called
from bbfs.cli.options import SourceChoice, source_options
from bbfs.cli.progress import amount
from bbfs.fuse.mountpoint import MOUNT_VARIABLE
from bbfs.model.errors import BbfsError, NotFound
from bbfs.resources.commands.requests.texts import Index, Walked

if TYPE_CHECKING:
    from bbfs.cli.operands.operand import Trees

_EXAMPLES = """\b
Examples:
  bbfs index                 index what has changed in all sources of the configuration file
  bbfs index docs notes      in two of them
  bbfs index --dry-run       say how much would be loaded
  bbfs index status          the documents in the index, by source
  bbfs index clear docs      remove those of one source; without a name, the whole index

\b
A source is named by its name, id or URI prefix. If a mount has it and no option names sources, the mount's
daemon does the work. Without a name, no mount is asked, unless BBFS_MOUNT names it. An interrupted run goes
on where it was, also after a kill.
JSON of 'status': an object with path, bytes and sources, an array of objects with source (its URI prefix),
documents, bytes (of their texts), stale (documents that have changed since) and unfinished (true or false).
"""


@click.command(epilog=_EXAMPLES, short_help="Index the texts of sources, for searches.")
@click.argument("operands", metavar="[SOURCE…|status|clear [SOURCE]]", nargs=-1, shell_complete=complete_operand)
@click.option("-n", "--dry-run", is_flag=True, help="Load nothing; say how much there is to load.")
@click.option("--json", "as_json", is_flag=True, help="With status: one JSON object.")
@source_options
def index(choice: SourceChoice, operands: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Load the texts that are new or have changed in some sources, and put them into the index of this machine."""
    if operands[:1] == ("status",):
        _status(as_json)
    elif operands[:1] == ("clear",):
        _clear(operands[1:])
    else:
        click.get_current_context().exit(0 if _index(choice, operands, dry_run) else 1)


def _index(choice: SourceChoice, operands: tuple[str, ...], dry_run: bool) -> bool:
    """Index sources and print their counts. Return whether nothing failed."""

    async def work(trees: "Trees") -> bool:
        well = True
        for source, tree, directory in await _chosen(trees, operands):
            try:
                counts = await _walked(trees, tree, directory, dry_run=dry_run)
            except (BbfsError, OSError) as error:
                output.failure(error, source)
                well = False
                continue
            click.echo(f"{output.printable(source)}: {_in_words(counts, dry_run=dry_run)}")
            if counts.error:
                output.message(f"{source}: {counts.error}")
                well = False
        return well

    return lazy.operand.run(choice, work)


async def _chosen(trees: "Trees", operands: Sequence[str]) -> list[tuple[str, SourceTree, str]]:
    """Return the sources meant: the name, the tree that has it, and its directory at the root."""
    found: list[tuple[str, SourceTree, str]] = []
    for operand in operands:
        target = await trees.target(operand)
        path = await target.tree.resolved(await target.located())  # a short name of a source is a link
        found += [(operand, target.tree, path[0])] if path else await _all_of(target.tree)
    if not operands:
        # Not all mounts of this user: other programs may have made them, and an index loads all texts of a source.
        for tree in await trees.roots() if os.environ.get(MOUNT_VARIABLE) else [await trees.direct()]:
            found += await _all_of(tree)
    return found


async def _all_of(tree: SourceTree) -> list[tuple[str, SourceTree, str]]:
    entries = await tree.children((), exact=False)
    return [(entry.path[0], tree, entry.path[0]) for entry in entries if entry.kind == "directory"]


async def _walked(trees: "Trees", tree: SourceTree, directory: str, *, dry_run: bool) -> Walked:
    """Index one source, and return the last counts. Raise BbfsError, OSError."""
    counts: Walked | None = None

    def hear(told: Walked) -> None:
        nonlocal counts
        counts = told

    def shown() -> str | None:
        if counts is None:
            return None
        done = counts.loaded + counts.left_out + counts.failed
        return f"{directory}: {done} of {output.count(counts.to_load, 'resource')} read"

    before, trees.progress.note = trees.progress.note, lambda: shown() or before()
    try:
        await tree.ask(Index(directory, dry_run), hear)
        return counts or Walked()
    finally:
        trees.progress.note = before


def _in_words(counts: Walked, *, dry_run: bool) -> str:
    if dry_run:
        size = f", {amount(counts.bytes)} as far as stated" if counts.bytes else ""
        return f"{counts.to_load} of {output.count(counts.resources, 'resource')} to load{size}"
    told = [f"{output.count(counts.loaded, 'document')} indexed", f"{counts.unchanged} unchanged"]
    for number, words in ((counts.left_out, "left out"), (counts.failed, "failed"), (counts.removed, "removed")):
        if number:
            told.append(f"{number} {words}")
    return ", ".join(told)


def _status(as_json: bool) -> None:
    path, size, usages = lazy.opening.index_path(), 0, []
    if path.exists():
        with closing(lazy.index_store.IndexStore(path, 0)) as store:
            size, usages = store.bytes(), store.usage()
    rows = [(usage.source.partition(" ")[0], usage) for usage in usages]
    if as_json:
        sources = [
            {
                "source": name,
                "documents": usage.documents,
                "bytes": usage.bytes,
                "stale": usage.stale,
                "unfinished": usage.walking is not None,
            }
            for name, usage in rows
        ]
        output.as_json({"path": str(path), "bytes": size, "sources": sources})
        return
    cells = [
        (
            output.printable(name),
            str(usage.documents),
            str(usage.bytes),
            str(usage.stale),
            "unfinished: 'bbfs index' goes on" if usage.walking is not None else "",
        )
        for name, usage in rows
    ]
    output.table([("SOURCE", "DOCUMENTS", "BYTES", "STALE", ""), *cells], right=[1, 2, 3])
    output.message(f"{size} bytes in {path}")


def _clear(names: tuple[str, ...]) -> None:
    path = lazy.opening.index_path()
    if not path.exists():
        if names:
            raise NotFound(f"nothing is indexed of {names[0]!r}")
        return
    with closing(lazy.index_store.IndexStore(path, 0)) as store:
        there = [usage.source for usage in store.usage()]
        for name in names:
            if not any(is_called(each, name) for each in there):
                raise NotFound(f"nothing is indexed of {name!r}")
        for each in there:
            if not names or any(is_called(each, name) for name in names):
                store.clear(each)
        store.shrink()
