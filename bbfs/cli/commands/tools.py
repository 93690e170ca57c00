"""`bbfs tools` and `bbfs call`: the tools of MCP servers."""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.shell_completion import CompletionItem

from bbfs.cli import lazy, output
from bbfs.cli.completion import complete_operand
from bbfs.cli.operands import scratches
from bbfs.cli.options import SourceChoice, Verbosity, source_options
from bbfs.model.calls import Progress, Tool
from bbfs.model.errors import BbfsError, Denied, InvalidUri, NotFound, TooLarge, ToolFailed
from bbfs.resources.commands.encoding import encoded
from bbfs.resources.commands.requests.tools import CallTool, Piece, ResultPart, Tools

if TYPE_CHECKING:
    from bbfs.cli.operands.access import SourceTree
    from bbfs.cli.operands.direct import DirectTree
    from bbfs.cli.operands.operand import Trees

TOOL_FAILED = 3
"""Exit status if the tool itself reports an error."""
_EVERY = 1.0
"""Seconds between two lines of the progress of a call at least."""
_LONGEST_INDENTED, _DEEPEST_INDENTED = 1 << 16, 32
"""Bytes and depth of an error in JSON that is indented; a longer or deeper one is printed as it is."""
_UNQUOTED = re.compile(r"[\w./@%+][\w.,:/@%+=-]*")
"""A word that means itself in every shell and is no option."""

_TOOLS_EXAMPLES = """\b
Examples:
  bbfs tools                  of all sources
  bbfs tools git              of one
  bbfs tools git --json

\b
The column PATH says whether opening a file runs the tool (the option 'tools' of the source).

\b
JSON: an array of objects with source, name, arguments (an array of objects with name, type, required, and
where known description and choices), readOnly, hasPath, and where known title, description.
"""
_CALL_EXAMPLES = """\b
Examples:
  bbfs call git git_log repo_path=~/src max_count=5
  bbfs call fetch fetch url=https://example.com
  bbfs call fs write_file path=/tmp/a.txt content=@a.txt --yes
  bbfs call kb search_knowledge --json '{"query": "fuse"}'

\b
A value is read by the tool's schema: a text as it is, numbers and booleans as in JSON, lists as JSON, with
commas, or with the key repeated. KEY=@FILE takes the text of a file (@- of standard input); KEY=@@TEXT is
the text @TEXT.

\b
Texts go to standard output. Pictures and other bytes go there too if it is no terminal, else to files in
this directory. Exit status 3: the tool itself reports an error, which goes to standard error as text.
"""


# -- completion --------------------------------------------------------------------------------------------------------


def known_tools(source: str) -> list[Tool]:
    """Return the tools of a mounted source. Completion starts no server."""

    async def work(opened: "Trees") -> list[Tool]:
        target = await opened.target(source)
        directory = None if target.tree.mount is None else await target.directory()
        return [] if directory is None else await _tools(target.tree, directory)

    try:
        return lazy.operand.run(SourceChoice(Verbosity(quiet=True)), work)
    except (BbfsError, OSError):
        return []


def _complete_tool(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    tools = known_tools(str(ctx.params.get("source", "")))
    return _offered(((tool.name, _summary(tool)) for tool in tools), begun)


def _complete_pair(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    tools = {tool.name: tool for tool in known_tools(str(ctx.params.get("source", "")))}
    tool = tools.get(str(ctx.params.get("tool")))
    arguments = () if tool is None else tool.arguments
    key, equals, _ = begun.partition("=")
    if not equals:
        return _offered(((f"{each.name}=", output.printable(each.type)) for each in arguments), begun)
    values = (choice for each in arguments if each.name == key for choice in each.choices)
    return _offered(((f"{key}={value}", "") for value in values), begun)


def _offered(items: Iterable[tuple[str, str]], begun: str) -> list[CompletionItem]:
    """Return completions with their help. The shell puts a name of a server into the command line as it is."""
    found = ((name, text) for name, text in items if name.startswith(begun) and _UNQUOTED.fullmatch(name))
    return [CompletionItem(name, help=text or None) for name, text in found]


# -- bbfs tools --------------------------------------------------------------------------------------------------------


@click.command(epilog=_TOOLS_EXAMPLES, short_help="List the tools of MCP servers.")
@click.argument("source", required=False, shell_complete=complete_operand)
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@source_options
def tools(choice: SourceChoice, source: str | None, as_json: bool) -> None:
    """List the tools of SOURCE, of a mount, or of all sources: their arguments, and whether they only read."""
    rows: list[tuple[str, Tool]] = []
    failures: list[str] = []

    async def of_source(tree: "SourceTree", directory: str) -> None:
        rows.extend((directory, tool) for tool in await _tools(tree, directory))

    async def of_all(tree: "SourceTree") -> None:
        for each in await tree.sources(None):
            if "uriPrefix" not in each:
                output.message(f"{each['id']}: {each['error']}")
            if each.get("accessMethod") != "mcp":
                continue
            try:
                await of_source(tree, each["uriPrefix"])
            except BbfsError as error:
                failures.append(f"{each['uriPrefix']}: {error}")

    async def work(opened: "Trees") -> None:
        if source is None:
            await lazy.operand.each_root(opened, of_all)
            return
        target = await opened.target(source)
        directory = await target.directory()
        await (of_all(target.tree) if directory is None else of_source(target.tree, directory))

    lazy.operand.run(choice, work)
    if as_json:
        output.as_json([{"source": source, **encoded(tool)} for source, tool in rows])
    else:
        table = [("SOURCE", "TOOL", "READS ONLY", "PATH", "ARGUMENTS"), *(_cells(*row) for row in rows)]
        output.table(table)
    for failure in failures:
        output.message(failure)
    click.get_current_context().exit(1 if failures else 0)


async def _tools(tree: "SourceTree", source: str) -> list[Tool]:
    """Return the tools of the source with this directory at the root. Raise BbfsError, OSError."""
    found: list[Tool] = []
    await tree.ask(Tools(source), found.append)
    return found


def _cells(source: str, tool: Tool) -> tuple[str, ...]:
    arguments = (each.name if each.required else f"[{each.name}]" for each in tool.arguments)
    yes = ("yes" if has else "no" for has in (tool.read_only, tool.has_path))
    return tuple(map(output.printable, (source, tool.name, *yes, " ".join(arguments))))


def _summary(tool: Tool) -> str:
    text = tool.title or tool.description or ""
    return output.printable(text.strip().partition("\n")[0][:60])


# -- bbfs call ---------------------------------------------------------------------------------------------------------


@click.command(epilog=_CALL_EXAMPLES, short_help="Call a tool of an MCP server.")
@click.argument("source", shell_complete=complete_operand)
@click.argument("tool", shell_complete=_complete_tool)
@click.argument("pairs", metavar="KEY=VALUE…", nargs=-1, shell_complete=_complete_pair)
@click.option("--json", "given", metavar="ARGS|-", help="Arguments as a JSON object, or from standard input.")
@click.option("--yes", is_flag=True, help="Call a tool that may change something without a question.")
@source_options
def call(choice: SourceChoice, source: str, tool: str, pairs: tuple[str, ...], given: str | None, yes: bool) -> None:
    """Call TOOL of SOURCE once and print its result.

    A tool that does not declare to be read-only asks first, or needs --yes. On a terminal, you answer what the server
    asks meanwhile; without one, or through a mount, such a call fails.
    """
    values, arguments = _values(pairs), _given(given)
    progress = ProgressLines(quiet=choice.verbosity.quiet)
    parts: list[_Part] = []
    mount: str | None = None

    def hear(answer: Progress | ResultPart | Piece) -> None:
        match answer:
            case Progress():
                progress.show(answer)
            case ResultPart():
                parts.append(_Part(answer))
            case Piece(data):
                parts[-1].data += data

    async def work(opened: "Trees") -> None:
        nonlocal mount
        target = await opened.target(source)
        mount = target.tree.mount
        if mount is None and _has_terminal():
            cast("DirectTree", target.tree).attach(partial(lazy.questions.TerminalAudience, begin=opened.progress.end))
        directory = await target.directory()
        if directory is None:
            raise NotFound(f"{source} names no source; 'bbfs tools {source}' lists those that have tools")
        there = {each.name: each for each in await _tools(target.tree, directory)}
        if tool not in there:
            close = lazy.config_problems.suggestion(tool, there) or f"; 'bbfs tools {source}' lists those that it has"
            raise NotFound(f"{directory} has no tool {tool!r}{close}")
        if not there[tool].read_only:
            scratches.require_no_scratch(target.tree.mount)
        confirmed = yes or there[tool].read_only
        try:
            await target.tree.ask(CallTool(directory, tool, values, arguments, confirmed), hear)
        except Denied:  # but nothing is wrong with the arguments
            if confirmed:
                raise
            await target.tree.ask(CallTool(directory, tool, values, arguments, _confirmed(tool)), hear)

    try:
        lazy.operand.run(choice, work)
    except ToolFailed as error:
        print_error(str(error), tool)
        click.get_current_context().exit(TOOL_FAILED)
    _print(parts, tool, mount)


def _values(pairs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the texts of each argument. Raise InvalidUri, OSError."""
    values: dict[str, list[str]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is no KEY=VALUE", param_hint="'KEY=VALUE'")
        if text.startswith("@@"):
            text = text[1:]
        elif text.startswith("@"):
            text = _text_of(text[1:], key)
        values.setdefault(key, []).append(text)
    return {key: tuple(texts) for key, texts in values.items()}


def _text_of(name: str, key: str) -> str:
    data = sys.stdin.buffer.read() if name == "-" else Path(os.path.expanduser(name)).read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidUri(f"{key}=@{name}: the file is not UTF-8 text") from None


def _given(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = json.loads(sys.stdin.buffer.read() if text == "-" else text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"no JSON: {error}", param_hint="'--json'") from None
    if not isinstance(found, dict):
        raise click.BadParameter("no JSON object", param_hint="'--json'")
    return found


def _confirmed(tool: str) -> bool:
    """Ask on a terminal. Raise click.UsageError without a terminal."""
    name = output.printable(tool)
    if not _has_terminal():
        raise click.UsageError(f"{name} does not declare to be read-only: it needs --yes")
    return click.confirm(f"{name} may change or destroy something. Call it?", err=True, abort=True)


def _has_terminal() -> bool:
    """Return whether the user can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


@dataclass(slots=True)
class _Part:
    kind: ResultPart
    data: bytes = b""


class ProgressLines:
    """The progress of a call on standard error: a line for each new text unless quiet, and at most one line in `_EVERY`
    seconds."""

    def __init__(self, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._clock = clock
        self._said: str | None = None
        self._next = 0.0

    def show(self, made: Progress) -> None:
        share = f"{made.done:g}" if made.total is None else f"{made.done:g} of {made.total:g}"
        line = output.printable(": ".join(filter(None, (share, made.text))))
        now = self._clock()
        if self._quiet or line == self._said or now < self._next:
            return
        self._said, self._next = line, now + _EVERY
        output.message(line)


def print_error(text: str, tool: str) -> None:
    """Print the error that a tool reports, as people read it.

    Lines after the first are indented: none looks like a message of bbfs.
    """
    shown = text
    with suppress(ValueError, RecursionError, TooLarge):  # it is no JSON that a person reads
        bounds = lazy.bounded_json.JsonBounds(size=_LONGEST_INDENTED, depth=_DEEPEST_INDENTED)
        lazy.bounded_json.check_json(text.encode(), bounds)
        value = json.loads(text)
        only = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value
        if isinstance(only, str):
            shown = only
        elif isinstance(value, dict | list):
            shown = json.dumps(value, ensure_ascii=False, indent=2)
    if len(shown) > 4 * len(text):  # deep values grow with each level
        shown = text
    first, *others = shown.split("\n")
    output.message(f"{tool}: {first}")
    for line in others:
        click.echo(f"  {output.printable(line)}", err=True)


def _print(parts: Sequence[_Part], tool: str, mount: str | None) -> None:
    """Print texts, and write bytes to files if standard output is a terminal. Raise OSError.

    mount: where the resources of links have paths. Without one, or without a path, a link is a URI.
    """
    out = sys.stdout.buffer
    is_terminal = sys.stdout.isatty()
    texts = [part for part in parts if part.kind.text and part.kind.name != "structured.json"]
    for part in parts:
        kind = part.kind
        if kind.name == "structured.json" and texts and len(parts) > 1:
            continue  # the texts say the same for people
        if kind.link is not None:
            click.echo(output.printable(kind.link if mount is None or kind.path is None else f"{mount}/{kind.path}"))
        elif kind.text and is_terminal:
            text = "\n".join(map(output.printable, part.data.decode("utf-8", "replace").split("\n")))
            click.echo(text.removesuffix("\n"))
        elif not is_terminal:
            out.write(part.data)
            if kind.text and len(parts) > 1 and not part.data.endswith(b"\n"):
                out.write(b"\n")
            out.flush()
        else:
            name = _write_new(f"{tool}-{kind.name or 'result'}", part.data)
            output.message(f"{len(part.data)} bytes in {name}")


def _write_new(name: str, data: bytes) -> str:
    """Write a new file in this directory, under a name that is free. Return the name. Raise OSError."""
    stem, dot, ending = name.replace("/", "_").lstrip(".").rpartition(".")
    number = 0
    while True:
        chosen = f"{stem or ending}{f'-{number}' if number else ''}{f'.{ending}' if dot else ''}"
        try:
            with open(chosen, "xb") as file:
                file.write(data)
            return chosen
        except FileExistsError:
            number += 1
