"""`bbfs index`: the local index of texts."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from bbfs.cli import output
from bbfs.cli.completion import complete_operand
from bbfs.cli.options import SourceChoice, source_options
from bbfs.cli.progress import amount
from bbfs.model.errors import NotFound

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
    from bbfs.cli.operands import operand  # noqa: PLC0415 - trio
    from bbfs.cli.work import indexing  # noqa: PLC0415 - as above

    async def work(trees: "Trees") -> bool:
        well = True
        async for source, counts in indexing.each(trees, operands, dry_run=dry_run):
            if isinstance(counts, Exception):
                output.failure(counts, source)
                well = False
                continue
            click.echo(f"{output.printable(source)}: {_in_words(counts, dry_run=dry_run)}")
            if counts.get("error"):
                output.message(f"{source}: {counts['error']}")
                well = False
        return well

    return operand.run(choice, work)


def _in_words(counts: Mapping[str, Any], *, dry_run: bool) -> str:
    if dry_run:
        size = f", {amount(counts['bytes'])} as far as stated" if counts["bytes"] else ""
        return f"{counts['to_load']} of {output.count(counts['resources'], 'resource')} to load{size}"
    told = [f"{output.count(counts['loaded'], 'document')} indexed", f"{counts['unchanged']} unchanged"]
    for key, words in (("left_out", "left out"), ("failed", "failed"), ("removed", "removed")):
        if counts[key]:
            told.append(f"{counts[key]} {words}")
    return ", ".join(told)


def _status(as_json: bool) -> None:
    from bbfs.resources.open import index_path  # noqa: PLC0415 - trio
    from bbfs.resources.search.index.store import IndexStore  # noqa: PLC0415 - as above

    path, size, usages = index_path(), 0, []
    if path.exists():
        store = IndexStore(path, 0)
        try:
            size, usages = store.bytes(), store.usage()
        finally:
            store.close()
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
        (output.printable(name), str(usage.documents), str(usage.bytes), str(usage.stale), _note(usage.walking))
        for name, usage in rows
    ]
    for line in output.table([("SOURCE", "DOCUMENTS", "BYTES", "STALE", ""), *cells], right=[1, 2, 3]):
        click.echo(line)
    output.message(f"{size} bytes in {path}")


def _note(walking: float | None) -> str:
    return "" if walking is None else "unfinished: 'bbfs index' goes on"


def _clear(names: tuple[str, ...]) -> None:
    from bbfs.resources.open import index_path  # noqa: PLC0415 - trio
    from bbfs.resources.search.index.store import IndexStore  # noqa: PLC0415 - as above

    path = index_path()
    if not path.exists():
        if names:
            raise NotFound(f"nothing is indexed of {names[0]!r}")
        return
    store = IndexStore(path, 0)
    try:
        there = [usage.source for usage in store.usage()]
        for name in names:
            if not any(_is_called(each, name) for each in there):
                raise NotFound(f"nothing is indexed of {name!r}")
        for each in there:
            if not names or any(_is_called(each, name) for name in names):
                store.clear(each)
        store.shrink()
    finally:
        store.close()


def _is_called(fingerprint: str, name: str) -> bool:
    """Return whether a source has this URI prefix (with or without a scheme), or this name."""
    prefix = fingerprint.partition(" ")[0]
    return name in (prefix, prefix.partition("+")[2]) or name.startswith(prefix + "+")
