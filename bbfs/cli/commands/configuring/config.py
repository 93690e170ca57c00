"""`bbfs config`: the configuration file, shown, checked, named, edited."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING

import click

from bbfs.cli import lazy, output
from bbfs.cli.commands.configuring.edit import check_options, config_option, opened
from bbfs.model.errors import BbfsError

if TYPE_CHECKING:
    from bbfs.config.editing import ConfigFile

_EDITORS = ("sensible-editor", "nano", "vim", "vi")

_EXAMPLES = """\b
Examples:
  bbfs config                 the file, with *** for secrets that are written in it
  bbfs config check           are the file and the options in it right? Contacts no source
  bbfs config path
  bbfs config edit            opens the file in $VISUAL or $EDITOR, and keeps it only if it is right
"""


def _takes_file(command: Callable[[str | None], None]) -> Callable[..., None]:
    """Give a command of the group the option --config, too; without it the group's is passed."""

    @config_option
    @click.pass_obj
    @wraps(command)
    def with_option(of_group: str | None, config_file: str | None) -> None:
        command(config_file or of_group)

    return with_option


@click.group(epilog=_EXAMPLES, invoke_without_command=True, short_help="Show, check or edit the configuration file.")
@config_option
@click.pass_context
def config(ctx: click.Context, config_file: str | None) -> None:
    """Show the configuration file."""
    ctx.obj = config_file
    if ctx.invoked_subcommand is None:
        ctx.invoke(show)


@config.command(epilog="\b\nExamples:\n  bbfs config show\n", short_help="Print the file without its secrets.")
@_takes_file
def show(config_file: str | None) -> None:
    """Print the file, with *** for each secret that is no reference."""
    for line in opened(config_file).shown().splitlines():
        output.line(line)


@config.command(epilog="\b\nExamples:\n  bbfs config check && bbfs mount ~/bb\n", short_help="Look for faults in it.")
@_takes_file
def check(config_file: str | None) -> None:
    """Look for faults in the file and in the options of its sources. Each is told with its line."""
    file = opened(config_file)
    loaded = file.config()
    check_options(loaded)
    click.echo(f"{output.printable(file.path)}: {output.count(len(loaded.sources), 'source')}, no fault")


@config.command(epilog="\b\nExamples:\n  ls -l $(bbfs config path)\n", short_help="Print its path.")
@_takes_file
def path(config_file: str | None) -> None:
    """Print the path of the file, whether or not it exists."""
    output.line(os.path.abspath(os.path.expanduser(config_file or lazy.toml.default_config_path(os.environ))))


@config.command(epilog="\b\nExamples:\n  EDITOR=nano bbfs config edit\n", short_help="Open it in an editor.")
@_takes_file
def edit(config_file: str | None) -> None:
    """Open a copy of the file in an editor, and put it in place if it has no fault.

    The copy stays if it has a fault or the editor fails, unless nothing was changed in it.
    """
    file = opened(config_file)
    before = file.text
    descriptor, copy = tempfile.mkstemp(prefix="bbfs-config-", suffix=".toml")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as made:
            made.write(before)
        while not _taken(file, before, copy):
            pass
    except BaseException:
        if _is_text(copy, before):
            os.unlink(copy)
        else:
            output.message(f"{file.path} is as it was; your copy is {copy}")
        raise
    os.unlink(copy)


def _taken(file: "ConfigFile", before: str, copy: str) -> bool:
    """Have the copy edited. Return False if it has a fault and the user wants to edit it again. Raise BbfsError."""
    _run_editor(copy)
    try:
        file.text = lazy.toml.read_text(copy)
        if file.text == before:
            output.message(f"{file.path} is as it was")
            return True
        check_options(file.config())
    except BbfsError as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        output.failure(error)
        if click.confirm("Edit it again?", default=True, err=True):
            return False
        raise
    if opened(file.path).text != before:
        raise BbfsError(f"{file.path}: another program has changed it meanwhile")
    file.save()
    output.message(f"{file.path} is changed")
    return True


def _is_text(path: str, text: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read() == text
    except (OSError, UnicodeDecodeError):
        return False


def _run_editor(path: str) -> None:
    """Open a file in the user's editor and wait for its end. Raise BbfsError, which names the editor."""
    command, origin = _editor()
    try:
        status = subprocess.run([*shlex.split(command), path], check=False).returncode
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BbfsError(f"the editor {command!r} ({origin}) did not start: {why}") from None
    if status:
        why = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        raise BbfsError(f"the editor {command!r} ({origin}) {why}")


def _editor() -> tuple[str, str]:
    """Return the command of the user's editor, and where it comes from."""
    for name in ("VISUAL", "EDITOR"):
        if (command := os.environ.get(name, "")).strip():
            return command, f"of ${name}"
    found = next(filter(shutil.which, _EDITORS), "vi")
    return found, "neither $VISUAL nor $EDITOR is set"
