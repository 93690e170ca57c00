"""`bbfs config`: the configuration file, shown, checked, named, edited."""

import os
import tempfile

import click

from bbfs.cli import output
from bbfs.cli.commands.configuring.edit import check_options, config_option
from bbfs.model.errors import BbfsError

_EXAMPLES = """\b
Examples:
  bbfs config                 the file, with *** for secrets that are written in it
  bbfs config check           are the file and the options in it right? Contacts no source
  bbfs config path
  bbfs config edit            opens the file in $VISUAL or $EDITOR, and keeps it only if it is right
"""


@click.group(epilog=_EXAMPLES, invoke_without_command=True, short_help="Show, check or edit the configuration file.")
@config_option
@click.pass_context
def config(ctx: click.Context, config_file: str | None) -> None:
    """Show the configuration file."""
    from bbfs.config.editing import ConfigFile  # noqa: PLC0415 - pydantic

    ctx.obj = config_file
    if ctx.invoked_subcommand is None:
        _show(ConfigFile(config_file, os.environ).shown())


def _show(text: str) -> None:
    for line in text.splitlines():
        output.line(line)


@config.command(epilog="\b\nExamples:\n  bbfs config show\n", short_help="Print the file without its secrets.")
@click.pass_obj
def show(config_file: str | None) -> None:
    """Print the file, with *** for each secret that is no reference."""
    from bbfs.config.editing import ConfigFile  # noqa: PLC0415 - pydantic

    _show(ConfigFile(config_file, os.environ).shown())


@config.command(epilog="\b\nExamples:\n  bbfs config check && bbfs mount ~/bb\n", short_help="Look for faults in it.")
@click.pass_obj
def check(config_file: str | None) -> None:
    """Look for faults in the file and in the options of its sources. Each is told with its line."""
    from bbfs.config.editing import ConfigFile  # noqa: PLC0415 - pydantic

    file = ConfigFile(config_file, os.environ)
    loaded = file.config()
    check_options(loaded)
    click.echo(f"{output.printable(file.path)}: {output.count(len(loaded.sources), 'source')}, no fault")


@config.command(epilog="\b\nExamples:\n  ls -l $(bbfs config path)\n", short_help="Print its path.")
@click.pass_obj
def path(config_file: str | None) -> None:
    """Print the path of the file, whether or not it exists."""
    from bbfs.config.toml import default_config_path  # noqa: PLC0415 - pydantic

    output.line(os.path.abspath(os.path.expanduser(config_file or default_config_path(os.environ))))


@config.command(epilog="\b\nExamples:\n  EDITOR=nano bbfs config edit\n", short_help="Open it in an editor.")
@click.pass_obj
def edit(config_file: str | None) -> None:
    """Open a copy of the file in an editor, and put it in place if it has no fault."""
    from bbfs.config.editing import ConfigFile  # noqa: PLC0415 - pydantic

    file = ConfigFile(config_file, os.environ)
    descriptor, copy = tempfile.mkstemp(prefix="bbfs-config-", suffix=".toml")
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(file.text)
    click.edit(filename=copy)
    with open(copy, encoding="utf-8") as opened:
        text = opened.read()
    if text == file.text:
        output.message(f"{file.path} is as it was")
    else:
        try:
            file.text = text
            check_options(file.config())
        except BbfsError:
            output.message(f"{file.path} is as it was; your copy is {copy}")
            raise
        file.save()
        output.message(f"{file.path} is changed")
    os.unlink(copy)
