"""`bbfs search`: find resources in all sources."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from bbfs.cli import lazy, output
from bbfs.cli.completion import complete_operand
from bbfs.cli.operands.access import TROUBLED_WITHIN, SourceTree, Target, troubled
from bbfs.cli.operands.location import inside_mount
from bbfs.cli.operands.mounted import MountedTree
from bbfs.cli.operands.rule import Path, components
from bbfs.cli.options import SourceChoice, source_options
from bbfs.model.errors import InvalidUri, NotSupported
from bbfs.model.uri import parse_data_source_uri, parse_uri_prefix
from bbfs.resources.commands.encoding import encoded
from bbfs.resources.commands.requests import Problem
from bbfs.resources.commands.requests.finding import Hit, Search

if TYPE_CHECKING:
    from bbfs.cli.operands.operand import Trees

_LIMIT, _MOST, _WITHIN = 20, 200, 5.0
_NOT_INDEXED = re.compile(r"cannot be searched: (.+) \(no search of their own, not indexed\)")
_INDEX_COMMAND = re.compile(r"'bbfs index [^;]+'(?= reads )")
_EXAMPLES = """\b
Examples:
  bbfs search renew the certificate              in all sources
  bbfs search renew the certificate --in docs --in ~/mnt/bb-filesystem+notes+file/ops
  bbfs search -n 1 --open renew the certificate
  bbfs search -l certificate | xargs -d '\\n' head -n 3

\b
All arguments are words of the search, but for paths inside a mount and bbfs URIs behind the first word: these are as
with --in. A source that is slow or down, or cannot be searched, is named on standard error.

\b
JSON: an array of objects with path, uri, source, title, score, foundBy, and where known snippet and where.
Exit status 1: no hit.
"""


@dataclass(frozen=True, slots=True)
class _TreeHit:
    """A hit in a tree. shown: its path for people and programs, absolute on a mount."""

    tree: SourceTree
    hit: Hit
    shown: str

    @property
    def document(self) -> dict[str, Any]:
        return {**encoded(self.hit), "path": self.shown}


@click.command(epilog=_EXAMPLES, short_help="Find resources in all sources.")
@click.argument("words", metavar="WORD…", nargs=-1, required=True)
@click.option(
    "--in",
    "places",
    multiple=True,
    metavar="SOURCE|PATH|URI",
    shell_complete=complete_operand,
    help="Search there only. May be given several times, or have sources with commas between them.",
)
@click.option("-n", "--limit", type=click.IntRange(1, _MOST), default=_LIMIT, show_default=True, help="Hits at most.")
@click.option(
    "--mode",
    type=click.Choice(["words", "meaning", "both"]),
    default="both",
    show_default=True,
    help="Which searches to use: those by words, those by meaning, or both.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 600),
    help=f"Seconds to wait: {_WITHIN:g}, and {TROUBLED_WITHIN:g} for a source of a mount that was down before.",
)
@click.option("-l", "--paths-only", is_flag=True, help="Print the paths only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.option("--open", "open_first", is_flag=True, help="Open the best hit: text in $PAGER, the rest by xdg-open.")
@source_options
def search(
    choice: SourceChoice,
    words: tuple[str, ...],
    places: tuple[str, ...],
    limit: int,
    mode: Literal["words", "meaning", "both"],
    timeout: float | None,
    paths_only: bool,
    as_json: bool,
    open_first: bool,
) -> None:
    """Find resources by some words, in all sources or in those of --in, and print the best first."""
    query = " ".join(word for number, word in enumerate(words) if number == 0 or not _is_place(word))
    within = [*(each for place in places for each in _listed(place)), *filter(_is_place, words[1:])]
    hits: list[_TreeHit] = []
    problems: dict[str, None] = {}

    async def work(opened: "Trees") -> bytes | None:
        if len(words) > 1 and not within:
            await _say_if_source(opened, words[-1], problems)
        scopes = await _scopes(opened, within, timeout)
        may_fail = not within and len({tree.mount for tree, _, _ in scopes}) > 1
        away: list[Exception] = []
        for tree, below, seconds in scopes:
            request = Search(query, tuple("/".join(path) for path in below), limit, mode, seconds)
            try:
                await _ask(tree, request, hits, problems)
            except lazy.operand.AWAY as error:
                if not may_fail:
                    raise
                away.append(error)
                problems[lazy.operand.passed_over(tree, error)] = None
        if away and len(away) == len(scopes):
            raise away[0]  # no mount has answered: that is no search without hits
        hits.sort(key=lambda found: -found.hit.score)
        del hits[limit:]
        return await _text(hits[0]) if open_first and hits else None

    text = lazy.operand.run(choice, work)
    if not choice.verbosity.quiet:
        for problem in problems:
            output.message(_INDEX_COMMAND.sub(r"\g<0> with the same options", problem) if choice.given else problem)
            if (hint := _how_to_index(problem, choice)) is not None:
                output.message(hint)
    if open_first and hits:
        click.get_current_context().exit(_opened(hits[0], text))
    _print(hits, query, paths_only=paths_only, as_json=as_json)
    click.get_current_context().exit(0 if hits else 1)


async def _ask(tree: SourceTree, request: Search, hits: list[_TreeHit], problems: dict[str, None]) -> None:
    """Add the answers of a tree. Raise BbfsError, OSError."""

    def hear(answer: Hit | Problem) -> None:
        if isinstance(answer, Problem):
            problems[answer.problem] = None
        elif tree.has(answer.path):
            hits.append(_TreeHit(tree, answer, os.path.join(tree.mount or "", answer.path)))

    await tree.ask(request, hear)


def _listed(place: str) -> list[str]:
    """Return the sources of a list with commas. A path or a URI is one place: it may have a comma itself."""
    return [each for each in place.split(",") if each] if not {"/", ":"} & {*place} else [place]


def _is_place(word: str) -> bool:
    """Return whether a word can only be meant as a place: a bbfs URI, or a path that is written as one, in a mount."""
    if word.startswith(("/", "./", "../", "~")) or word in (".", ".."):
        return inside_mount(word) is not None
    try:
        parse_data_source_uri(word)
    except InvalidUri:
        return False
    return True


async def _say_if_source(opened: "Trees", word: str, problems: dict[str, None]) -> None:
    """Say that the last word is the name of a source, and is searched for: `--in` may be meant."""
    for tree in await opened.roots():
        for entry in await tree.children((), exact=False):
            with suppress(InvalidUri):
                if parse_uri_prefix(entry.path[0]).name == word:
                    problems[f"{word!r} is a word of the search; --in {word} searches in that source alone"] = None


def _how_to_index(problem: str, choice: SourceChoice) -> str | None:
    """Return the command to type if a problem is that sources are neither searched nor indexed, else None."""
    found = _NOT_INDEXED.fullmatch(problem)
    if found is None:
        return None
    sources = found[1].split(", ")
    options = " with the same options" if choice.given else ""
    made = "it" if len(sources) == 1 else "them"
    return f"'bbfs index {lazy.shlex.join(sources)}'{options} makes {made} searchable"


async def _scopes(
    opened: "Trees", operands: Sequence[str], timeout: float | None
) -> list[tuple[SourceTree, list[Path], float]]:
    """Return the trees to search, with the paths in each (none for all of a tree) and the seconds to wait."""
    if not operands:
        return [scope for tree in await opened.roots() for scope in _everywhere(tree, timeout)]
    found: dict[str | None, tuple[SourceTree, list[Path], float]] = {}
    for operand in operands:
        target = await opened.target(operand)
        path = await target.tree.resolved(await target.located())
        found.setdefault(target.tree.mount, (target.tree, [], timeout or _WITHIN))[1].append(path)
    return [*found.values()]


def _everywhere(tree: SourceTree, timeout: float | None) -> Iterator[tuple[SourceTree, list[Path], float]]:
    """Yield all of a tree, in two parts if some of its sources are in trouble: for these the wait is shorter."""
    status = tree.status() if isinstance(tree, MountedTree) and timeout is None else {}
    directories = [row["uri_prefix"] for row in status.get("sources", ())]
    late = troubled(status)
    if not late:
        yield tree, [], timeout or _WITHIN
        return
    if len(late) < len(directories):
        yield tree, [(each,) for each in directories if each not in late], _WITHIN
    yield tree, [(each,) for each in late], TROUBLED_WITHIN


def _print(hits: list[_TreeHit], query: str, *, paths_only: bool, as_json: bool) -> None:
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
        if not paths_only and (said := _said(hit.hit)):
            shown = matching.sub(lambda found: click.style(found[0], fg="red", bold=True), output.printable(said))
            click.echo(f"    {shown}")


def _said(hit: Hit) -> str:
    """Return the title, the place, and the text around the match in one line."""
    named = hit.title if hit.title != os.path.basename(hit.path) else None
    about = ", ".join(each for each in (named, hit.part) if each)
    return ": ".join(each for each in (about, hit.snippet) if each)


async def _text(hit: _TreeHit) -> bytes | None:
    """Return the content of a hit to show, if it is text that no file has, or None. Raise BbfsError, OSError."""
    target = Target(hit.tree, components(hit.hit.path))
    document = await hit.tree.document(target)
    if document.get("contentType") != "text" or document["kind"] != "file":
        if hit.tree.mount is None:
            raise NotSupported(f"{hit.shown}: only text can be opened without a mount")
        return None
    data = bytearray()
    await hit.tree.copy(target, data.extend)
    return bytes(data)


def _opened(hit: _TreeHit, text: bytes | None) -> int:
    """Show a text in the pager, or open a file in its program. Return the exit status. Raise OSError."""
    if text is None:
        return click.launch(hit.shown)
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(text)
        return 0
    pager = lazy.shlex.split(os.environ.get("PAGER") or "less")
    return lazy.subprocess.run(pager, input=text, check=False).returncode if pager else 1
