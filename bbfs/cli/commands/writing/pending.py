"""`bbfs pending`: writes that a source has not taken, and what becomes of them."""

import functools
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from bbfs.cli import lazy, output
from bbfs.cli.operands import scratches
from bbfs.cli.operands.access import pending_store
from bbfs.cli.options import SourceChoice, Verbosity, source_options, verbosity_options
from bbfs.model.errors import BbfsError, NotFound
from bbfs.model.uri import parse_data_source_uri

if TYPE_CHECKING:
    from bbfs.cli.operands.operand import Trees
    from bbfs.resources.writing.pending import PendingWrite

Chosen: TypeAlias = "Sequence[str | PendingWrite]"
"""IDs or their beginnings, as a user wrote them, or the items that were listed."""
UNDER_WAY = 60.0
"""Seconds after which a write without an error counts as interrupted."""
_EXAMPLES = """\b
A program that saves a file gets an error if the source does not take it: the source is down, or somebody else has
changed the resource. What the program has written is kept on disk until it is handed over or dropped.

\b
Examples:
  bbfs pending                        what there is, and why
  bbfs pending show 0b90 > mine.md    the bytes; the beginning of an ID is enough
  bbfs pending diff 0b90              the source's content, and what should replace it
  bbfs pending retry 0b90             hand it over, if the source still has the state that it was based on
  bbfs pending retry --force 0b90     hand it over, whatever the source has
  bbfs pending retry --all            hand all over
  bbfs pending drop 0b90

\b
JSON: an array of objects with id, source_id, uri, native_uri, path, size, at (seconds since the epoch), error
(null: under way, or interrupted by a kill), expected: the state that the write replaces, mime_type and description.
"""


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    items = pending_store().items()
    return [CompletionItem(each.id, help=each.uri) for each in items if each.id.startswith(incomplete)]


def _chosen(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the IDs of pending writes, and `--all`. The command gets `chosen`, after the arguments of other decorators.

    For `--all` that is what was listed: an item that a mount has handed over or dropped since is passed over.
    """

    @click.argument("ids", metavar="ID…|--all", nargs=-1, shell_complete=_complete)
    @click.option("--all", "everything", is_flag=True, help="All of them.")
    @functools.wraps(command)
    def wrapped(first: SourceChoice | Verbosity, ids: tuple[str, ...], everything: bool, **given: Any) -> None:
        chosen: Chosen = ids
        unreadable: list[str] = []
        if bool(ids) == everything:
            raise click.UsageError("expected IDs, or --all", click.get_current_context())
        if everything:
            store = pending_store()
            chosen, unreadable = [*store.items()], store.unreadable()
            verbosity = first.verbosity if isinstance(first, SourceChoice) else first
            if not chosen and not unreadable and not verbosity.quiet:
                output.message("nothing is pending")
        if chosen:
            command(first, chosen, **given)
        _end(unreadable)

    return wrapped


@click.group(epilog=_EXAMPLES, invoke_without_command=True, short_help="Writes that a source has not taken.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.pass_context
def pending(ctx: click.Context, as_json: bool) -> None:
    """List the writes that no source has taken, hand them over again, or drop them."""
    if ctx.invoked_subcommand is None:
        _show_all(as_json)


@pending.command("list", short_help="List pending writes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def list_(as_json: bool) -> None:
    """List the writes that no source has taken, the oldest first."""
    _show_all(as_json)


def _show_all(as_json: bool) -> None:
    store = pending_store()
    items, unreadable = [*store.items()], store.unreadable()
    if as_json:
        output.as_json([asdict(item) for item in items])
    elif items:
        _table(items)
    elif not unreadable:
        output.message("nothing is pending")
    _end(unreadable)


def _end(unreadable: list[str]) -> None:
    """Name the pending writes that cannot be read. End with status 1 if there are any."""
    for each in unreadable:
        output.message(each)
    if unreadable:
        click.get_current_context().exit(1)


def _table(items: "list[PendingWrite]") -> None:
    rows = [
        (
            item.id,
            time.strftime("%Y-%m-%d %H:%M", time.localtime(item.at)),
            str(item.size),
            output.printable(item.uri),
            output.printable(_why(item)),
        )
        for item in items
    ]
    output.table([("ID", "WRITTEN", "BYTES", "URI", "WHY"), *rows], right=[2])


def _why(item: "PendingWrite") -> str:
    if item.error is not None:
        return item.error
    return "under way" if time.time() - item.at < UNDER_WAY else "interrupted"


@pending.command(short_help="Print the bytes of a pending write.")
@click.argument("write_id", metavar="ID", shell_complete=_complete)
def show(write_id: str) -> None:
    """Print what should have been written."""
    store = pending_store()
    with store.open_content(store.get(write_id)) as file:
        contents = output.Contents()
        lazy.shutil.copyfileobj(file, contents)
        contents.end()


@pending.command(short_help="Compare pending writes with what their sources have.")
@source_options
@_chosen
def diff(choice: SourceChoice, chosen: "Chosen") -> None:
    """Print the differences between the content of the source and a pending write, as a unified diff."""

    async def compare(opened: "Trees", item: "PendingWrite") -> None:
        there = bytearray()
        with suppress(NotFound, FileNotFoundError):  # it is all new
            await (target := await opened.target(item.uri)).tree.copy(target, there.extend)
        with pending_store().open_content(item) as file:
            mine = file.read()
        for line in _difference(bytes(there), mine, item):
            click.echo(line, nl=False)

    _each(choice, chosen, compare)


def _difference(there: bytes, mine: bytes, item: "PendingWrite") -> Iterator[str]:
    try:
        old, new = there.decode().splitlines(keepends=True), mine.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        yield f"{item.uri}: {len(there)} bytes at the source, {len(mine)} pending; not text\n"
        return
    for line in lazy.difflib.unified_diff(old, new, output.printable(item.uri), f"pending {item.id}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


@pending.command("retry", short_help="Hand pending writes over again.")
@click.option("--force", is_flag=True, help="Whatever the source has by now, and wherever it is.")
@source_options
@_chosen
def retry_(choice: SourceChoice, chosen: "Chosen", force: bool) -> None:
    """Hand over pending writes, and remove those that their source has taken."""

    async def hand_over(opened: "Trees", item: "PendingWrite") -> None:
        tree = (await opened.target(parse_data_source_uri(item.uri).base_prefix)).tree
        scratches.require_no_scratch(tree.mount)
        await tree.ask(lazy.writing.Retry(item.id, force))

    _each(choice, chosen, hand_over)


@pending.command(short_help="Drop pending writes.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@verbosity_options
@_chosen
def drop(_verbosity: Verbosity, chosen: "Chosen", yes: bool) -> None:
    """Remove pending writes. What they hold is gone then, and a source that is being given it gets no more of it."""
    store = pending_store()
    for item in [store.get(each) if isinstance(each, str) else each for each in chosen]:
        if not yes and not (sys.stdin.isatty() and click.confirm(f"drop {item.size} bytes for {item.uri}?", err=True)):
            raise BbfsError(f"{item.id}: not dropped; --yes drops it without a question")
        store.drop(item.id)


def _each(choice: SourceChoice, chosen: Chosen, work: "Callable[[Trees, PendingWrite], Awaitable[None]]") -> None:
    """Work on each pending write in order and report failures. End with status 1 if there were any."""
    store = pending_store()

    async def all_of(opened: "Trees") -> bool:
        well = True
        for each in chosen:
            try:
                await work(opened, store.get(each) if isinstance(each, str) else each)
            except (BbfsError, OSError) as error:
                if not isinstance(each, str) and not store.has(each.id):
                    continue  # a mount has handed it over since, or somebody has dropped it
                output.failure(error, each if isinstance(each, str) else each.id)
                well = False
        return well

    well = lazy.operand.run(choice, all_of)
    if not well:
        click.get_current_context().exit(1)
