"""`bbfs grep`: grep over a mount, which reads only the files that can match."""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from bbfs.cli import lazy, output
from bbfs.cli.completion import complete_operand
from bbfs.cli.logs import log_to_stderr
from bbfs.cli.options import SourceChoice, Verbosity
from bbfs.fuse.mountpoint import MountError
from bbfs.model.errors import BbfsError

if TYPE_CHECKING:
    from bbfs.cli.commands.searching.grep_run import Asked, Locate, Located

_EXAMPLES = """\b
Examples:
  bbfs grep 'renew(s|ed)? the' ~/bb
  bbfs grep -F -i 'certificate' docs/resource/guide
  bbfs grep -l TODO --include '*.md' notes
  bbfs grep -rnw -e certificate -e key ~/bb

\b
An operand is a path inside a mount, a source and a path below it, or a bbfs URI; without one, everything
below the current directory if it is inside a mount, else all mounts. GNU grep itself reads the files that
can match, so the output is that of 'grep -rnE PATTERN PATH' in the order of the tree, and an option means
what it means there. Index the sources first ('bbfs index', or their option index): a file that is not in
the index is always read.

\b
Exit status: 0 a line matched, 1 none did, 2 something failed.
"""
_FAILED = 2
_SYNTAXES = (
    ("-E", "--extended-regexp", "extended", "An extended pattern: the default."),
    ("-F", "--fixed-strings", "fixed", "The pattern is plain text."),
    ("-G", "--basic-regexp", "basic", "A basic pattern, as of grep without options."),
    ("-P", "--perl-regexp", "perl", "A pattern in Perl's syntax."),
)
_FLAGS = (
    ("-r", "--recursive", "Search what is below directories: always so."),
    ("-n", "--line-number", "Print line numbers: always so."),
    ("-i", "--ignore-case", "Letters of both cases match."),
    ("-w", "--word-regexp", "Match whole words only."),
    ("-x", "--line-regexp", "Match whole lines only."),
    ("-v", "--invert-match", "Print the lines that do not match."),
    ("-c", "--count", "Print the number of matching lines of each file."),
    ("-o", "--only-matching", "Print what matches, each in a line, and not the rest of its line."),
    ("-b", "--byte-offset", "Print byte offsets."),
    ("-a", "--text", "Search binary files as texts."),
    ("-Z", "--null", "Print a NUL behind each name of a file."),
    ("-q", "--quiet", "Print nothing, and end with the first match."),
    ("-s", "--no-messages", "Name no file that is missing or cannot be read."),
)
"""Options without a value that GNU grep gets as they are."""
_VALUES = {"max_count": "-m", "after_context": "-A", "before_context": "-B", "context": "-C"}
_ALWAYS, _NEVER, _ON_TERMINALS = ("always", "yes", "force"), ("never", "no", "none"), ("auto", "tty", "if-tty")
_TAKES_NEXT = re.compile(
    r"-[abchilnoqrsvwxEFGHILPRZ]*[emABC]|--(regexp|max-count|(after-|before-)?context|include|exclude(-dir)?)"
)
"""Options whose value is the next argument."""


class _LikeGrep(click.Command):
    """Parses what click does not: `--color` with an optional value, `-3` for `-C3`. Keeps the order of the options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = _spelled_out(args)
        _, _, order = self.make_parser(ctx).parse_args([*args])
        ctx.meta[__name__] = [parameter.name for parameter in order]
        return super().parse_args(ctx, args)


def _spelled_out(args: Sequence[str]) -> list[str]:
    spelled: list[str] = []
    for number, argument in enumerate(args):
        if argument == "--":
            return [*spelled, *args[number:]]
        if number and _TAKES_NEXT.fullmatch(args[number - 1]):
            spelled.append(argument)
        elif argument in ("--color", "--colour"):
            spelled.append("--color=auto")
        else:
            spelled.append(re.sub(r"-(\d+)", r"-C\1", argument) if re.fullmatch(r"-\d+", argument) else argument)
    return spelled


def _asked(ctx: click.Context, patterns: Sequence[str], given: Mapping[str, Any]) -> "Asked":
    options = [short for short, long, _ in _FLAGS if given[long[2:].replace("-", "_")]]
    options += ["-I"] if given["no_binary"] else []
    options += [given[name] for name in ("listed", "named") if given[name] is not None]
    options += [f"{option}{given[name]}" for name, option in _VALUES.items() if given[name] is not None]
    is_coloured = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not output.no_colour()
    if given["color"] in _ALWAYS or (given["color"] in _ON_TERMINALS and is_coloured):
        options.append("--color=always")  # GNU grep itself writes to a file
    globs = {name: iter(given[name]) for name in ("include", "exclude")}
    return lazy.grep_run.Asked(
        "\n".join(patterns),
        given["syntax"] or "extended",
        options,
        [(name == "include", next(globs[name])) for name in ctx.meta[__name__] if name in globs],
        given["exclude_dir"],
        follows=given["follows"],
        cached=given["cached"],
    )


def _flags(command: Callable[..., Any]) -> Callable[..., Any]:
    for short, long, said in reversed(_FLAGS):
        others = ["--silent"] if short == "-q" else []
        command = click.option(short, long, *others, is_flag=True, help=said)(command)
    for short, long, syntax, said in reversed(_SYNTAXES):
        command = click.option(short, long, "syntax", flag_value=syntax, help=said)(command)
    return command


_context = partial(click.option, type=click.IntRange(0), metavar="LINES")
_names = partial(click.option, multiple=True, metavar="GLOB")


@click.command(
    cls=_LikeGrep,
    epilog=_EXAMPLES,
    short_help="Search the files of a mount by a pattern.",
    context_settings={"help_option_names": ["--help"]},
)
@click.argument("operands", metavar="PATTERN [URI|PATH…]", nargs=-1, shell_complete=complete_operand)
@_flags
@click.option(
    "-e", "--regexp", "patterns", multiple=True, metavar="PATTERN", help="A pattern; every argument is a path."
)
@click.option("-l", "--files-with-matches", "listed", flag_value="-l", help="Print the names of the files only.")
@click.option("-L", "--files-without-match", "listed", flag_value="-L", help="Print the names of all other files.")
@click.option("-m", "--max-count", type=int, metavar="LINES", help="Read a file up to so many matching lines.")
@click.option("-h", "--no-filename", "named", flag_value="-h", help="Print no names of files.")
@click.option("-H", "--with-filename", "named", flag_value="-H", help="Print names of files: the default.")
@click.option("-I", "no_binary", is_flag=True, help="Leave out binary files.")
@click.option(
    "-R", "--dereference-recursive", "follows", is_flag=True, help="Follow links, too. This reads every file."
)
@_context("-A", "--after-context", help="Print lines after a match.")
@_context("-B", "--before-context", help="Print lines before a match.")
@_context("-C", "--context", help="Print lines around a match; -3 is -C 3.")
@_names("--include", help="Only files with such a name.")
@_names("--exclude", help="No files with such a name.")
@_names("--exclude-dir", help="Nothing below directories with such a name.")
@click.option(
    "--color",
    "--colour",
    type=click.Choice([*_ALWAYS, *_NEVER, *_ON_TERMINALS]),
    metavar="[=WHEN]",
    help="Mark what matches: always, never, or on a terminal (auto).",
)
@click.option("--cached", is_flag=True, help="Believe the index also where the mount would ask its source again.")
@click.pass_context
def grep(ctx: click.Context, operands: tuple[str, ...], patterns: tuple[str, ...], **given: Any) -> None:
    """Print the lines of the files at and below some paths that match a pattern, as grep -rnE does."""
    if not patterns:
        if not operands:
            raise click.UsageError("Missing argument 'PATTERN'.", ctx)
        patterns, operands = operands[:1], operands[1:]
    verbosity = Verbosity()  # -v and -q have grep's meaning here
    log_to_stderr(verbosity.level())
    try:
        status = lazy.grep_run.run(_asked(ctx, patterns, given), operands, partial(_located, verbosity))
    except (BbfsError, MountError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        if not given["no_messages"]:
            output.failure(error)
        status = _FAILED
    ctx.exit(status)


def _located(verbosity: Verbosity, locate: "Locate") -> "Located":
    return lazy.operand.run(SourceChoice(verbosity), locate)
