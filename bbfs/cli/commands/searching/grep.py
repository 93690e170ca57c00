"""`bbfs grep`: grep over a mount, which reads only the files that can match."""

from functools import partial
from typing import TYPE_CHECKING, Literal

import click

from bbfs.cli import lazy, output
from bbfs.cli.completion import complete_operand
from bbfs.cli.options import SourceChoice, Verbosity, log_to_stderr
from bbfs.fuse.mountpoint import MountError
from bbfs.model.errors import BbfsError

if TYPE_CHECKING:
    from bbfs.cli.commands.searching.grep_run import Locate, Located

_EXAMPLES = """\b
Examples:
  bbfs grep 'renew(s|ed)? the' ~/bb
  bbfs grep -F -i 'certificate' docs/resource/guide
  bbfs grep -l TODO --include '*.md' notes

\b
An operand is a path inside a mount, a source and a path below it, or a bbfs URI; without one, everything
below the current directory if it is inside a mount, else all mounts. GNU grep itself reads the files that
can match, so the output is that of 'grep -rnE PATTERN PATH' in the order of the tree. Index the sources
first ('bbfs index', or their option index): a file that is not in the index is always read.

\b
Exit status: 0 a line matched, 1 none did, 2 something failed.
"""
_FAILED = 2


@click.command(epilog=_EXAMPLES, short_help="Search the files of a mount by a pattern.")
@click.argument("pattern")
@click.argument("operands", metavar="[URI|PATH…]", nargs=-1, shell_complete=complete_operand)
@click.option("-E", "--extended-regexp", "syntax", flag_value="extended", default=True, help="An extended pattern.")
@click.option("-F", "--fixed-strings", "syntax", flag_value="fixed", help="The pattern is plain text.")
@click.option("-P", "--perl-regexp", "syntax", flag_value="perl", help="A pattern in Perl's syntax.")
@click.option("-i", "--ignore-case", is_flag=True, help="Letters of both cases match.")
@click.option("-w", "--word-regexp", is_flag=True, help="Match whole words only.")
@click.option("-v", "--invert-match", is_flag=True, help="Print the lines that do not match.")
@click.option("-l", "--files-with-matches", is_flag=True, help="Print the names of the files only.")
@click.option("-c", "--count", is_flag=True, help="Print the number of matching lines of each file.")
@click.option("-n", "--line-number", is_flag=True, help="Print line numbers: always so.")
@click.option("-A", "--after-context", type=click.IntRange(0), metavar="LINES", help="Print lines after a match.")
@click.option("-B", "--before-context", type=click.IntRange(0), metavar="LINES", help="Print lines before a match.")
@click.option("-C", "--context", type=click.IntRange(0), metavar="LINES", help="Print lines around a match.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only files with such a name.")
@click.option("--cached", is_flag=True, help="Believe the index also where the mount would ask its source again.")
def grep(
    pattern: str,
    operands: tuple[str, ...],
    syntax: Literal["extended", "fixed", "perl"],
    ignore_case: bool,
    word_regexp: bool,
    invert_match: bool,
    files_with_matches: bool,
    count: bool,
    line_number: bool,
    after_context: int | None,
    before_context: int | None,
    context: int | None,
    include: tuple[str, ...],
    cached: bool,
) -> None:
    """Print the lines of the files at and below some paths that match a pattern, as grep -rnE does."""
    verbosity = Verbosity()  # -v has grep's meaning here
    log_to_stderr(verbosity.level())
    flags = {"-i": ignore_case, "-w": word_regexp, "-v": invert_match, "-l": files_with_matches, "-c": count}
    options = [flag for flag, given in flags.items() if given]
    for flag, lines in (("-A", after_context), ("-B", before_context), ("-C", context)):
        options += [] if lines is None else [flag, str(lines)]
    has_context = bool(after_context or before_context or context) and not (files_with_matches or count)
    asked = lazy.grep_run.Asked(
        pattern,
        syntax,
        options,
        include,
        ignore_case=ignore_case,
        inverted=invert_match,
        counts=count and not files_with_matches,
        separated=has_context,
        cached=cached,
    )
    try:
        status = lazy.grep_run.run(asked, operands, partial(_located, verbosity))
    except (BbfsError, MountError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        output.failure(error)
        status = _FAILED
    click.get_current_context().exit(status)


def _located(verbosity: Verbosity, locate: "Locate") -> "Located":
    return lazy.operand.run(SourceChoice(verbosity), locate)
