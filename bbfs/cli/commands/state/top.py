"""The command `bbfs top`. The screen, which needs the extra of that name, is imported when it runs."""

import os
import sys
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import click

from bbfs.cli import lazy, output
from bbfs.cli.commands.state.status import shown
from bbfs.cli.operands.access import pending_store
from bbfs.cli.operands.location import asked
from bbfs.fuse import mountpoint
from bbfs.fuse.mountpoint import MountError
from bbfs.fuse.scratch.directory import Scratch
from bbfs.model.errors import ConfigError, ProtocolViolation
from bbfs.resources.commands.requests.reading import State, Status
from bbfs.runtime.extras import needs

_SCREEN = "bbfs.cli.commands.state.screen"
_ANSWERS_WITHIN = 2.0
"""Seconds for an answer, which a daemon gives from memory."""
_LOG_TAIL = 64 << 10
"""Bytes of a log that are shown."""
_EXAMPLES = """\b
Examples:
  bbfs top                  the mount, if there is one alone
  bbfs top ~/bb --every 5   ask the daemon every five seconds

\b
Keys: / filters, Enter opens a source, p shows pending writes, l the log, r asks at once, ? helps, q ends.
"""


@click.command(epilog=_EXAMPLES, short_help="Watch a mount: sources, requests, programs that wait.")
@click.argument("mount", required=False, type=click.Path(file_okay=False))
@click.option("--every", type=click.FloatRange(0.2, 3600), default=1.0, show_default=True, help="Seconds.")
def top(mount: str | None, every: float) -> None:
    """Show what MOUNT does at the moment: its sources with their requests and faults, which programs wait for what, and
    what is being read, from which tier. No source is asked for that.
    """
    if find_spec("textual") is None:
        raise ConfigError(f"bbfs top {needs('top')}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("'bbfs top' is for a terminal; 'bbfs status --json' is for programs")
    path = chosen(mount)
    scratch = Scratch.mounted(path)
    sources = path if scratch is None else scratch.lower
    screen = lazy.imported(_SCREEN)
    screen.Top(output.printable(path), partial(state_of, sources), pending, partial(log_of, path), every).run()


def chosen(mount: str | None) -> str:
    """Return the mount that is meant. Raise MountError."""
    if mount is not None:
        return mountpoint.named(mount)
    found = [shown(each.path) for each in mountpoint.own_mounts()]
    if len(found) != 1:
        raise MountError(f"several mounts: name one of {', '.join(found)}" if found else "nothing is mounted")
    return found[0]


def state_of(mount: str) -> Mapping[str, Any]:
    """Return what the daemon of a mount says of itself. Raise BbfsError, OSError; it does not wait for long."""

    def ask() -> list[State]:
        return list(lazy.control_client.ask_now(mount, Status()))

    answers = asked(mount, ask, _ANSWERS_WITHIN)
    if not answers:
        raise ProtocolViolation("the daemon has not said how it is")
    return answers[0].state


def pending() -> list[tuple[str, str, str]]:
    """Return id, path and reason of each pending write of this user."""
    return [(each.id, "/".join(each.path) or each.uri, each.error or "under way") for each in pending_store().items()]


def log_of(mount: str) -> list[str]:
    """Return the last lines of the log of a mount in the background, or why there are none."""
    path = lazy.places.log_path(mount)
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL))
            return file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return [f"{path} does not exist: a mount in the foreground logs to its terminal, and --log names another file"]
    except OSError as error:
        return [f"{path}: {error.strerror}"]
