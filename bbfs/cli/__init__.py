"""The command line of bbfs: it parses, calls and prints. `main` is the entry point.

A command is imported when it is used, and imports slow modules (the MCP SDK, trio, the FUSE binding, pydantic) when it
needs them.
"""

import atexit
import errno
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Any, NoReturn

if sys.platform != "linux":  # before an import that fails there
    sys.exit(
        "bbfs: bbfs runs on Linux only: it needs Linux's FUSE and /proc. A virtual machine or a container has them."
    )

import click

from bbfs import __version__
from bbfs.cli import lazy, output
from bbfs.fuse.mountpoint import MountError
from bbfs.model.errors import BbfsError, ConfigError

_EPILOG = """\b
Examples:
  bbfs mount ~/mnt --dir notes=~/notes --mcp 'docs=uvx some-server'
  bbfs mount ~/mnt --mcp-config ~/.claude.json --background
  bbfs add notes ~/notes
  bbfs ls docs
  bbfs cat docs/resource/guide/install
  bbfs search renew the certificate
  bbfs call git git_log repo_path=~/src
  bbfs umount ~/mnt
  bbfs login docs
  bbfs doctor

\b
Exit status:
  0    done
  1    something asked for is not there or failed, a search found nothing; of 'mount': usage or configuration
  2    wrong usage of any other command
  3    the tool of 'call' itself reports an error
  32   'mount' could not mount, as with mount(8)
  126  'run': the command cannot be executed; 127: it was not found
  130  interrupted

\b
Environment:
  XDG_CONFIG_HOME  where bbfs/config.toml is (by default ~/.config)
  XDG_CACHE_HOME   where bbfs/metadata.sqlite and bbfs/contents are (by default ~/.cache)
  XDG_DATA_HOME    where bbfs/logins is (by default ~/.local/share)
  BBFS_MOUNT       which mount is meant, if several have a source of the name
  NO_COLOR         if set, nothing is coloured

\b
Shell completion:
  eval "$(_BBFS_COMPLETE=bash_source bbfs)"    in ~/.bashrc
  eval "$(_BBFS_COMPLETE=zsh_source bbfs)"     in ~/.zshrc
  _BBFS_COMPLETE=fish_source bbfs | source     in ~/.config/fish/config.fish
"""
INTERRUPTED = 130
MOUNT_FAILED = 32
GROUPS: dict[str, dict[str, str]] = {
    "Begin": {
        "demo": "demo",
        "mount": "commands.mount",
        "umount": "commands.mount",
        "serve": "commands.serve",
        "skill": "commands.agents.skill",
    },
    "Read": {
        "ls": "commands.read",
        "cat": "commands.read",
        "stat": "commands.read",
        "search": "commands.searching.search",
        "grep": "commands.searching.grep",
        "index": "commands.searching.index",
        "load": "commands.load",
        "path": "commands.path",
        "uri": "commands.path",
    },
    "Write": {
        "edit": "commands.writing.files",
        "put": "commands.writing.put",
        "cp": "commands.writing.files",
        "mv": "commands.writing.files",
        "rm": "commands.writing.files",
        "pending": "commands.writing.pending",
    },
    "Try, then decide": {
        "run": "commands.writing.run",
        "changes": "commands.writing.scratch",
        "apply": "commands.writing.scratch",
        "discard": "commands.writing.scratch",
    },
    "Tools of MCP servers": {"tools": "commands.tools", "call": "commands.tools"},
    "Sources": {
        "sources": "commands.sources",
        "discover": "commands.configuring.discover",
        "add": "commands.configuring.edit",
        "remove": "commands.configuring.edit",
        "import": "commands.configuring.edit",
        "config": "commands.configuring.config",
        "login": "commands.login",
        "logout": "commands.login",
    },
    "Look after a mount": {
        "service": "commands.service.command",
        "status": "commands.state.status",
        "top": "commands.state.top",
        "reload": "commands.configuring.live",
        "watch": "commands.watch",
        "refresh": "commands.cache",
        "fetch": "commands.cache",
        "cache": "commands.cache",
        "doctor": "commands.doctor",
        "info": "commands.state.info",
    },
}
"""The module of each command, by what it is for. The command has its name there; `import` has `import_`."""
COMMANDS = {name: module for group in GROUPS.values() for name, module in group.items()} | {
    "unmount": "commands.mount",  # another name of `umount`, which the help leaves out
}
_COMPLETE = "_BBFS_COMPLETE"
"""The variable by which a shell asks click for completions."""
_PRINT_NOTHING = ("mount", "umount", "unmount")


# The interpreter looks for garbage in all objects at its end, which takes a tenth of a short command.
atexit.register(gc.freeze)


class _Commands(click.Group):
    """The group of commands. It reports an error in one line on standard error, and sets the exit status."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        extra["standalone_mode"] = False
        output.set_up_streams()
        if _COMPLETE in os.environ:
            import_module("bbfs.cli.completion")  # it registers the completion in bash
        try:
            status = super().main(args, prog_name, **extra)
        except click.ClickException as error:
            output.messages(error.format_message())
            ctx = error.ctx if isinstance(error, click.UsageError) else None
            if ctx is not None:
                click.echo(f"Try '{ctx.command_path} --help' for help.", err=True)
            sys.exit(1 if ctx is not None and ctx.command.name == "mount" else error.exit_code)
        except click.Abort:
            sys.exit(INTERRUPTED)
        sys.exit(status if isinstance(status, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        ctx.color = False if output.no_colour() else None
        try:
            return super().invoke(ctx)
        except (BbfsError, OSError) as error:
            _fail(ctx, error)
        except BaseExceptionGroup as group:
            if group.subgroup(KeyboardInterrupt) is not None:
                raise KeyboardInterrupt from group
            error = _only(group)
            if not isinstance(error, BbfsError | OSError):
                raise
            _fail(ctx, error)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if sys.stdout is None and name not in _PRINT_NOTHING:  # the parent process closed it; see sys.__stdout__
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), "standard output")
        return name, command, rest

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))  # one column for all groups
        for group, names in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), _imported(name).get_short_help_str(80)) for name in names])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            return _imported(cmd_name)
        self.commands.update({name: _imported(name) for name in COMMANDS})  # click suggests a similar one of these
        return None


def _imported(name: str) -> click.Command:
    module = lazy.imported(f"bbfs.cli.{COMMANDS[name]}")
    command: click.Command = getattr(module, name + "_" * iskeyword(name))
    return command


def _only(group: BaseException) -> BaseException:
    """Return the exception inside groups of one; return a group of several unchanged."""
    while isinstance(group, BaseExceptionGroup) and len(group.exceptions) == 1:
        group = group.exceptions[0]
    return group


def _fail(ctx: click.Context, error: BbfsError | OSError) -> NoReturn:
    if isinstance(error, BrokenPipeError):
        raise error  # the reader has ended; click ends quietly
    about = error.filename if isinstance(error, OSError) and isinstance(error.filename, str) else None
    status = _status(ctx, error)
    output.failure(error, about, of_mount=status == MOUNT_FAILED)
    ctx.exit(status)


def _status(ctx: click.Context, error: BaseException) -> int:
    if ctx.invoked_subcommand not in ("mount", "run") or isinstance(error, ConfigError):
        return 1
    if isinstance(error, MountError):
        return error.status
    return MOUNT_FAILED if isinstance(error, OSError) else 1


@click.group(
    cls=_Commands,
    epilog=_EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="bbfs %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """MCP servers, databases, stores, web pages, APIs and folders as a file system.

    Each data source is a directory, each of its resources a file. What a command is given may be a path inside a mount,
    a bbfs URI, or a source with a path below it; it works with and without a mount.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
