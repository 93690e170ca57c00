"""`bbfs mount` and `bbfs umount`."""

import functools
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import click.shell_completion

from bbfs.cli import lazy, output
from bbfs.cli.logs import also_log_to_bounded_file, log_to_file, log_to_stderr
from bbfs.cli.operands.access import pending_store
from bbfs.cli.options import SourceChoice, Verbosity, source_options, verbosity_options
from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import MountError
from bbfs.fuse.scratch.directory import Scratch
from bbfs.model.errors import BbfsError, ConfigError
from bbfs.model.quantities import parse_size, parse_umask
from bbfs.server_parts.options import Address

if TYPE_CHECKING:
    from bbfs.config import Config
    from bbfs.config.values import LogFormat

ENDS_WITHIN = 20.0
"""Seconds for a daemon to close its sources and to write its cache after an unmount."""
LOOKS_AFTER = 1.0
"""Seconds after which the mount is looked for in other mount namespaces."""
_USER_ID = click.IntRange(0, 2**32 - 2)


class _Directory(click.ParamType):
    """The path of a directory. It is completed but never touched: the mount there may be dead, or hang."""

    name = "directory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:  # a variable of a script that is not set; it would mean the working directory
            self.fail("an empty path", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        return [click.shell_completion.CompletionItem(incomplete, type="dir")]


DIRECTORY = _Directory()


class _Umask(click.ParamType):
    name = "octal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_umask(str(value))
        except ValueError:
            self.fail(f"{value!r}: expected octal digits, such as 022", param, ctx)


class _Size(click.ParamType):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        try:
            return parse_size(int(text) if text.isascii() and text.isdecimal() else text)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


SIZE = _Size()


@dataclass(frozen=True, slots=True)
class LogChoice:
    """The log as the options name it. file: None for standard error. form: None for that of the configuration."""

    file: str | None
    form: "LogFormat | None"

    def set_up(self, verbosity: Verbosity, config: "Config", *, among_others: bool = False) -> None:
        """Log at the level of the options and the configuration. Raise OSError.

        among_others: another program writes to standard error as well, so only warnings and errors go there.
        """
        is_quiet = config.path is None and self.file is None
        written = logging.WARNING if is_quiet else getattr(logging, config.log_level.upper())
        if among_others and self.file is None:
            written = max(written, logging.WARNING)
        level, form = verbosity.level(written), self.form or config.log_format
        if self.file is None:
            log_to_stderr(level, form)
        else:
            log_to_file(self.file, level, form)

    def keep(self, mount_point: str, verbosity: Verbosity, config: "Config") -> None:
        """Log to the file of a mount as well: a daemon in the background has no standard error."""
        path = lazy.places.log_path(mount_point)
        level = verbosity.level(getattr(logging, config.log_level.upper()))
        try:
            also_log_to_bounded_file(str(path), level, self.form or config.log_format)
        except OSError as error:
            logging.getLogger(__name__).warning("no log is kept in %s: %s", path, error.strerror)


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the log; the command gets `log`, a `LogChoice`."""

    @click.option("--log", metavar="FILE", type=click.Path(dir_okay=False), help="Log to FILE, not to standard error.")
    @click.option(
        "--log-format", type=click.Choice(["text", "json", "journal"]), help="Text, objects, or fields of the journal."
    )
    @functools.wraps(command)
    def wrapped(*args: Any, log: str | None, log_format: "LogFormat | None", **rest: Any) -> Any:
        return command(*args, log=LogChoice(log, log_format), **rest)

    return wrapped


_MOUNT_EXAMPLES = """\b
Examples:
  bbfs mount ~/mnt                                        the sources of ~/.config/bbfs/config.toml
  bbfs mount ~/mnt --mcp-config ~/.claude.json            the servers of an MCP host
  bbfs mount ~/mnt --discover                             those of all MCP hosts of yours
  bbfs mount ~/mnt --mcp 'docs=uvx some-server --flag' --mcp kb=http://127.0.0.1:8000/mcp
  bbfs mount ~/mnt --dir notes=~/notes --background       returns as soon as the mount is there
  bbfs mount ~/mnt -o notes.capabilities=read,list,write  lets programs write to a source
  bbfs mount ~/mnt -o docs.ttl=1m -o kb.headers.Authorization='Bearer ${env:TOKEN}'

\b
Exit status: 0 after a clean unmount, 1 usage or configuration, 32 the mount failed.
"""


@click.command(epilog=_MOUNT_EXAMPLES, short_help="Mount data sources at a directory.")
@click.argument("mount_point", metavar="MNT", type=DIRECTORY)
@source_options
@click.option("--background", is_flag=True, help="Return once mounted; not 0 if that failed.")
@click.option("--scratch", metavar="DIR", type=DIRECTORY, help="Let programs write; DIR keeps it, no source has it.")
@click.option("--read-only", is_flag=True, help="Refuse every write, whatever the sources grant.")
@click.option("--inotify/--no-inotify", default=None, help="Tell programs that watch the mount what sources change.")
@click.option("--restartable", is_flag=True, help="On SIGUSR2, start bbfs again and keep the mount.")
@click.option("--allow-other", is_flag=True, help="Let other users see the mount.")
@click.option("--agents", is_flag=True, help="Describe the sources in AGENTS.md at the root, too.")
@click.option("--uid", type=_USER_ID, help="The owner of the files, if not you.")
@click.option("--gid", type=_USER_ID, help="The group of the files, if not yours.")
@click.option("--umask", type=_Umask(), help="The permissions to take away, such as 077.")
@click.option("--cache", type=SIZE, help="Memory for contents, such as 256MiB.")
@log_options
@click.option("--audit", metavar="FILE|-|journal", help="Record each change: in FILE, on standard output, the journal.")
@click.option("--audit-reads", is_flag=True, help="Record opened files and listings, too.")
@click.option("--metrics", type=Address(), help="Answer GET /metrics for Prometheus; port 0 takes a free one.")
def mount(
    choice: SourceChoice,
    mount_point: str,
    background: bool,
    scratch: str | None,
    restartable: bool,
    cache: int | None,
    log: LogChoice,
    **given: Any,
) -> None:
    """Mount data sources at the directory MNT, which is made if it is missing.

    Serves until it is unmounted or gets Ctrl-C or SIGTERM. A dead mount at MNT is replaced. MNT may be /dev/fd/N: the
    descriptor of a mount that another program has made.
    """
    if scratch is not None:
        _refuse_with_scratch(given)
    if background and given["audit"] == "-":
        raise click.UsageError(
            "--audit - is for a mount in the foreground: one in the background has no standard output"
        )
    if is_passed := mountpoint.passed_device(mount_point) is not None:
        _refuse_to_place({"--background": background, "--scratch": scratch, "--restartable": restartable}, mount_point)
    config = choice.load_to_serve(tells=background and not choice.verbosity.quiet)
    lazy.mounting.require(mount_point)
    log.set_up(choice.verbosity, config)
    if background and log.file is None:
        log.keep(_followed(mount_point), choice.verbosity, config)
    config = _set(config, given, cache)
    read, path = partial(choice.load, log_left_out, choice.typed()), config.path

    def reread() -> "Config":
        return _set(_required(read(), path), given, cache)

    def ready() -> None:
        if not background and not choice.verbosity.quiet and sys.stderr.isatty():
            output.message(
                f"{output.count(len(config.sources), 'source')} at {os.path.abspath(mount_point)}; Ctrl-C unmounts"
            )

    if not choice.verbosity.quiet and not is_passed:
        _warn(mount_point)
    if scratch is not None:
        status = _with_scratch(config, mount_point, scratch, background=background, ready=ready)
    else:
        with _named(mount_point):
            status = lazy.daemon.mount(
                config, mount_point, background=background, ready=ready, reread=reread, is_restartable=restartable
            )
    click.get_current_context().exit(status and 32)


def _refuse_with_scratch(given: Mapping[str, Any]) -> None:
    """Raise UsageError for options that a scratch does not go with."""
    if given["read_only"]:
        raise click.UsageError("--scratch lets programs write, and --read-only does not")
    if given["inotify"]:
        raise click.UsageError("--scratch: programs watch the overlay, which passes no event of --inotify on")


def _set(config: "Config", given: Mapping[str, Any], cache: int | None) -> "Config":
    """Return a configuration with the settings of the command line: those of the mount, and the memory in bytes."""
    flags = [name for name, value in given.items() if value is None or (value is False and name != "inotify")]
    options = replace(config.mount, **{name: value for name, value in given.items() if name not in flags})
    return replace(config, mount=options, cache_bytes=config.cache_bytes if cache is None else cache)


def _required(config: "Config", path: str | None) -> "Config":
    """Return the configuration for a reload. Raise ConfigError if the file of the mount is gone, or names no source.

    path: of the file with which the mount began.
    """
    if path is not None and config.path is None:
        raise ConfigError(f"{path}: there is no such file any more")
    if not config.sources:
        raise ConfigError(f"{path or 'the configuration'}: no source is left; 'bbfs umount' ends a mount")
    return config


def log_left_out(why: str) -> None:
    """Log why a server is no source."""
    logging.getLogger(__name__).warning("left out: %s", why)


def _with_scratch(
    config: "Config", mount_point: str, directory: str, *, background: bool, ready: Callable[[], None]
) -> int:
    """Mount with a scratch over the sources; as `daemon.mount`."""
    scratch = Scratch.made(directory, mount_point)

    def keep(told: Callable[[], None]) -> int:
        with _named(mount_point):
            return lazy.session.keep(config, mount_point, scratch, told, detached=background)

    if not background:
        return keep(ready)
    lazy.processes.start(keep, detached=True, lasts=True)
    return 0


@contextmanager
def _named(mount_point: str) -> Iterator[None]:
    """Name the whole mount point if it, or a directory above it, cannot be made. Raise MountError."""
    try:
        yield
    except OSError as error:
        path = _followed(mount_point)
        if isinstance(error, BbfsError) or error.filename not in path.split("/"):
            raise
        raise MountError(f"{path} cannot be made: {output.reason(error)}") from error


def _refuse_to_place(options: Mapping[str, object], passed: str) -> None:
    """Raise UsageError if options that need to know where the mount is are given for `/dev/fd/N`."""
    for option, value in options.items():
        if value:
            raise click.UsageError(f"{option} needs a directory; {passed} is a mount that another program has made")


def _warn(mount_point: str) -> None:
    """Warn of what will be in a user's way."""
    _warn_of_hiding(mount_point)
    if (lack := lacks_to_unmount()) is not None:
        output.message(lack)


def _warn_of_hiding(mount_point: str) -> None:
    """Warn if a directory is not empty, unless something is mounted there."""
    path = _followed(mount_point)
    if mountpoint.mount_at(path) is not None:
        return
    try:
        entries = os.listdir(path)
    except OSError:
        return  # missing, or no directory: mounting makes it, or reports the fault
    if entries:
        output.message(f"{path} is not empty; while it is mounted on, what is in it is hidden")


def lacks_to_unmount() -> str | None:
    """Return what this machine lacks for unmounting by this user, with the remedy; None if it lacks nothing."""
    lack = lazy.mounting.missing_table() if os.geteuid() != 0 else None
    return None if lack is None else f"only root can unmount what is mounted here, since {lack}"


def _followed(mount_point: str) -> str:
    """Return the canonical path of a mount point, which may be a symbolic link to one. Do not touch a mount."""
    path = mountpoint.canonical(mount_point)
    if mountpoint.mount_at(path) is None and os.path.islink(path):
        return mountpoint.canonical(os.path.join(os.path.dirname(path), os.readlink(path)))
    return path


_UMOUNT_EXAMPLES = """\b
Examples:
  bbfs umount ~/mnt
  bbfs umount ~/mnt ~/other
"""


def _umount(_verbosity: Verbosity, mount_points: tuple[str, ...]) -> None:
    """Get rid of the bbfs mount at MNT: a live one, a busy one (what has files open keeps them), a dead one.

    Returns when the daemon has ended, too. That nothing is mounted there is told and is no failure.
    """
    failed = False
    for mount_point in mount_points:
        try:
            _unmount_one(mount_point)
        except MountError as error:
            output.failure(error)
            failed = True
    click.get_current_context().exit(1 if failed else 0)


def _unmount_one(mount_point: str) -> None:
    path = _followed(mount_point)
    mount = mountpoint.mount_at(path)
    scratch = Scratch.mounted(path)
    if mount is None:
        output.message(f"{path}: nothing is mounted there")
    elif scratch is not None:
        if scratch.state.get("in_run") and scratch.is_held():
            raise MountError(f"{path} is the mount of a command of 'bbfs run', and ends with it")
        if lazy.session.unmount(path, scratch):
            output.message(f"{path}: was in use; what is open there stays until it is closed")
    elif not mount.is_bbfs:
        raise MountError(f"{path} is a mount of type {mount.type}, not one of bbfs")
    else:
        _unmount_and_wait(path)


def _unmount_and_wait(path: str) -> None:
    """Unmount, and return when the daemon has ended: until then it writes its cache. Name the files that only the mount
    had."""
    try:
        daemon = lazy.control_address.daemon_process(path)
    except OSError:
        daemon = None  # no directory of control sockets
    before = pending_store().ids()
    mount = mountpoint.mount_at(path)
    copies = set[int]() if mount is None or daemon is None else lazy.mounting.copies(mount)
    in_use = lazy.mounting.unmount(path)
    if daemon is None:
        return
    try:
        ending = select.poll()
        ending.register(daemon, select.POLLIN)
        if in_use:
            output.message(f"{path}: was in use; its daemon ends when the last file in it is closed")
        elif ending.poll(min(LOOKS_AFTER, ENDS_WITHIN) * 1000):
            pass
        elif mount is not None and copies & lazy.mounting.copies(mount):
            number = lazy.control_address.number_of(daemon)
            output.message(
                f"{path}: unmounted, but another mount namespace (a container or a sandbox) still has it;"
                f" its daemon ends with that, or by 'kill {number}'"
            )
        elif not ending.poll(ENDS_WITHIN * 1000):
            output.message(
                f"{path}: unmounted, but its daemon has not ended within {ENDS_WITHIN:g} s: {_described(daemon)}"
            )
    finally:
        os.close(daemon)
    for each in pending_store().refused_since(before):
        if each.reason == lazy.pending.LEFT:
            output.message(f"{path}: {'/'.join(each.path)}: {lazy.pending.LEFT}; 'bbfs pending' has it as {each.id}")


def _described(process: int) -> str:
    """Return the number and the state of a process that does not end, with the remedy. process: a descriptor of it."""
    number = lazy.control_address.number_of(process)
    if lazy.control_address.is_stopped(number):
        return f"process {number} is stopped; 'kill -CONT {number}' lets it end"
    return f"process {number}; 'kill -KILL {number}' ends it"


def _umount_command(name: str, *, hidden: bool = False) -> click.Command:
    points = click.argument("mount_points", metavar="MNT…", nargs=-1, required=True, type=DIRECTORY)
    command = points(verbosity_options(_umount))
    short = "Get rid of a mount: live, busy or dead."
    return click.command(name, epilog=_UMOUNT_EXAMPLES, short_help=short, hidden=hidden)(command)


umount = _umount_command("umount")
unmount = _umount_command("unmount", hidden=True)
