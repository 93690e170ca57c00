"""Completion in a shell: the names of sources, and whole words in bash.

Completion asks no source and says nothing of faults.
"""

import os
from collections.abc import Iterator
from contextlib import suppress

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

from bbfs.cli.operands import scratches
from bbfs.cli.options import configured_sources
from bbfs.fuse import mountpoint
from bbfs.model.errors import BbfsError
from bbfs.model.uri import parse_uri_prefix

_BASH = """\
%(complete_func)s() {
    local type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                COMPREPLY+=("$value")
                [[ $value == *= ]] && compopt -o nospace ;;
        esac
    done < <(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@add_completion_class
class WholeWords(BashComplete):
    """Completion in bash, which splits words at `=` and `:` itself, and replaces only the text after the last of them.

    So this reads the line instead of bash's words. A `KEY=` gets no space behind it.
    """

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE")
        if line is None:  # the shell has the function of an older bbfs
            words, self._begun = super().get_completion_args()
            return words, self._begun
        words = split_arg_string(line)[1:]
        self._begun = words.pop() if words and not line[-1:].isspace() else ""
        return words, self._begun

    def format_completion(self, item: CompletionItem) -> str:
        breaks = set("=:").intersection(os.environ.get("COMP_WORDBREAKS", "=:"))
        kept = max((self._begun.rfind(each) for each in breaks), default=-1) + 1
        return f"{item.type},{item.value[kept:]}"


def complete_source(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the name of a source of this user's mounts, or of the configuration file."""
    names = sorted({*_mounted(), *(source.name for source in configured_sources(ctx))})
    return [CompletionItem(name) for name in names if name.startswith(begun)]


def complete_operand(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the name of a source, or else a path in a mount."""
    is_path = begun.startswith(("/", ".", "~"))
    return [*([] if is_path else complete_source(ctx, parameter, begun)), CompletionItem(begun, type="file")]


def _mounted() -> Iterator[str]:
    for mount in scratches.own_trees():
        with suppress(BbfsError, OSError):
            for name in mountpoint.names(mount):
                with suppress(BbfsError):
                    yield parse_uri_prefix(name).name
