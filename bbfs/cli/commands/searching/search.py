"""`bbfs search`: find resources in all sources."""

import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click

from bbfs.cli import output
from bbfs.cli.completion import complete_operand
from bbfs.cli.options import SourceChoice, source_options
from bbfs.model.errors import NotSupported

if TYPE_CHECKING:
    from bbfs.cli.operands.operand import Trees
    from bbfs.cli.work.search import TreeHit

_LIMIT, _MOST, _WITHIN = 20, 200, 5.0
_EXAMPLES = """\b
Examples:
  bbfs search 'renew the certificate'            in all sources
  bbfs search 'renew the certificate' docs ~/mnt/bb-filesystem+notes+file/ops
  bbfs search -n 1 --open 'renew the certificate'
  bbfs search -l certificate | xargs -d '\\n' head -n 3

\b
The query is one argument. A source that is slow or down, or cannot be searched, is named on standard error.

\b
JSON: an array of objects with path, uri, source, title, score, and where known snippet and where.
Exit status 1: no hit.
"""


@click.command(epilog=_EXAMPLES, short_help="Find resources in all sources.")
@click.argument("query")
@click.argument("paths", metavar="[PATH]…", nargs=-1, shell_complete=complete_operand)
@click.option("-n", "--limit", type=click.IntRange(1, _MOST), default=_LIMIT, show_default=True, help="Hits at most.")
@click.option(
    "--mode",
    type=click.Choice(["words", "meaning", "both"]),
    default="both",
    show_default=True,
    help="Which searches to use: those by words, those by meaning, or both.",
)
@click.option("--timeout", type=click.FloatRange(0.1, 600), default=_WITHIN, show_default=True, help="Seconds to wait.")
@click.option("-l", "--paths-only", is_flag=True, help="Print the paths only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.option("--open", "open_first", is_flag=True, help="Open the best hit: text in $PAGER, the rest by xdg-open.")
@source_options
def search(
    choice: SourceChoice,
    query: str,
    paths: tuple[str, ...],
    limit: int,
    mode: str,
    timeout: float,
    paths_only: bool,
    as_json: bool,
    open_first: bool,
) -> None:
    """Find resources by the words of QUERY, in all sources or below each PATH, and print the best first."""
    from bbfs.cli.operands import operand  # noqa: PLC0415 - trio
    from bbfs.cli.work import search as searching  # noqa: PLC0415 - trio

    hits: list[TreeHit] = []
    problems: list[str] = []
    request = {"query": query, "limit": limit, "mode": mode, "within": timeout}

    async def work(opened: "Trees") -> bytes | None:
        for tree, below in await searching.scopes(opened, paths):
            found, told = await searching.search(tree, request, below)
            hits.extend(found)
            problems.extend(told)
        hits.sort(key=lambda hit: -float(hit.document.get("score", 0)))
        del hits[limit:]
        return await _text(hits[0]) if open_first and hits else None

    text = operand.run(choice, work)
    if not choice.verbosity.quiet:
        for problem in dict.fromkeys(problems):
            output.message(problem)
    if open_first and hits:
        click.get_current_context().exit(_opened(hits[0], text))
    _print(hits, query, paths_only=paths_only, as_json=as_json)
    click.get_current_context().exit(0 if hits else 1)


def _print(hits: "list[TreeHit]", query: str, *, paths_only: bool, as_json: bool) -> None:
    if as_json:
        output.as_json([hit.document for hit in hits])
        return
    words = sorted(set(re.findall(r"\w+", query)), key=len, reverse=True)
    matching = re.compile("|".join(map(re.escape, words)) or r"(?!)", re.IGNORECASE)
    for hit in hits:
        if not sys.stdout.isatty():
            output.line(hit.shown)
        else:
            click.secho(output.printable(hit.shown), fg="magenta")
        if not paths_only and (said := _said(hit.document)):
            shown = matching.sub(lambda found: click.style(found[0], fg="red", bold=True), output.printable(said))
            click.echo(f"    {shown}")


def _said(document: dict[str, Any]) -> str:
    """Return the title, the place and the text around the match in one line."""
    title = document.get("title")
    named = title if title and title != os.path.basename(document["path"]) else None
    about = ", ".join(str(each) for each in (named, document.get("where")) if each)
    return ": ".join(str(each) for each in (about, document.get("snippet")) if each)


async def _text(hit: "TreeHit") -> bytes | None:
    """Return the content of a hit to show, if it is text that no file has, or None. Raise BbfsError, OSError."""
    from bbfs.cli.operands.access import Target  # noqa: PLC0415 - trio

    target = Target(hit.tree, hit.path)
    document = await hit.tree.document(target)
    if document.get("contentType") != "text" or document["kind"] != "file":
        if hit.tree.mount is None:
            raise NotSupported(f"{hit.shown}: only text can be opened without a mount")
        return None
    data = bytearray()
    await hit.tree.copy(target, data.extend)
    return bytes(data)


def _opened(hit: "TreeHit", text: bytes | None) -> int:
    """Show a text in the pager, or open a file in its program. Return the exit status. Raise OSError."""
    if text is None:
        return click.launch(hit.shown)
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(text)
        return 0
    pager = shlex.split(os.environ.get("PAGER") or "less")
    return subprocess.run(pager, input=text, check=False).returncode if pager else 1
