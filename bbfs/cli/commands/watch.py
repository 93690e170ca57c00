"""`bbfs watch`: print what changes, or run a command for it."""

import errno
import json
import logging
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from bbfs.cli import lazy, output
from bbfs.cli.completion import complete_operand
from bbfs.cli.operands.access import SourceTree, Target
from bbfs.cli.options import SourceChoice, source_options
from bbfs.model.errors import BbfsError, NotFound
from bbfs.resources.commands.encoding import encoded
from bbfs.resources.commands.requests import Begun
from bbfs.resources.commands.requests.reading import Event, Note, Watch

if TYPE_CHECKING:
    from bbfs.cli.operands.operand import Trees

Hear: TypeAlias = Callable[[Event], None]
_SHELL = re.compile(r"""\\.|'[^']*'?|"(?:[^"\\]|\\.)*+"?|\{\}""", re.DOTALL)
"""The parts of a shell's line that matter to `{}`."""
log = logging.getLogger(__name__)

TIMED_OUT = 124
"""The exit status of timeout(1)."""
_BURST = 0.05
"""Seconds for which a command waits for further changes."""
_EXAMPLES = """\b
An operand is
  a path inside a mount        ~/mnt/mcp-server+docs/resource/guide
  a mount point                ~/mnt
  a source and a path below    docs   or   docs/resource/guide
  a bbfs URI                   mcp-server+docs+resource://guide
A directory stands for everything below it. The last two are watched through a mount that has the source,
if there is one and no option names sources; else the source is opened here.

\b
A line is 'added PATH', 'changed PATH' or 'removed PATH'; 'missed PATH' says that more has changed below
it than could be told. Only another content is a change: an announcement after which it is the same is not.
On standard error, 'watching PATH' says that the watch has begun; -q leaves that out.

\b
Examples:
  bbfs watch docs
  bbfs watch --once ~/mnt/mcp-server+docs/resource/guide && make
  bbfs watch --exec 'cp {} ~/copies/' mcp-server+docs+resource://guide
  bbfs watch --json ~/mnt | jq -r 'select(.event == "added").uri'

\b
JSON: one object a line, with event, path, uri, source (its id), time (ISO 8601, UTC). That of --ready has
only the event.
The command of --exec has BBFS_EVENT, BBFS_PATH, BBFS_URI and BBFS_SOURCE in its environment; {} stands for
"$BBFS_PATH", so no name can become a command. Among other text in quotes write $BBFS_PATH.
Exit status 124 says that --timeout was over.
"""


@click.command(epilog=_EXAMPLES, short_help="Print what changes.")
@click.argument("operands", metavar="URI|PATH…", nargs=-1, required=True, shell_complete=complete_operand)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="Run a shell command for each change instead of printing it, one at a time; {} is the path, as a word.",
)
@click.option("--ready", is_flag=True, help="Print 'ready' as the first line: from then on no change is missed.")
@click.option("-1", "--once", is_flag=True, help="Exit after the first change.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Exit after this time at most."
)
@source_options
def watch(
    choice: SourceChoice,
    operands: tuple[str, ...],
    as_json: bool,
    command: str | None,
    ready: bool,
    once: bool,
    timeout: float | None,
) -> None:
    """Print a line for each resource that is added, changed or removed, until interrupted."""
    if as_json and command is not None:
        raise click.UsageError("--json and --exec exclude each other: a command is run instead of printing")
    try:
        teller = Teller(as_json, command, once, ready)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--exec'") from None
    work = partial(_watched, operands=operands, teller=teller, timeout=timeout)
    click.get_current_context().exit(lazy.operand.run(choice, work))


class Teller:
    """Prints changes, or runs a command for each.

    command: of the shell, as `by_reference` takes it. Commands run one at a time; changes at one path in the meantime
    count as one. once: end after the first change. ready: print a line when the watch has begun.
    """

    def __init__(self, as_json: bool, command: str | None, once: bool, ready: bool = False) -> None:
        self._as_json = as_json
        self._command = None if command is None else by_reference(command)
        self._once = once
        self._ready = ready
        self._waiting: dict[int | str, Event] = {}
        self._heard = 0
        self._news = lazy.trio.Event()

    def hear(self, change: Event) -> None:
        """Take a change."""
        self._heard += 1
        key = self._heard if self._command is None else change.path
        before = self._waiting.get(key)
        if before is not None:
            change = replace(change, event=_both(before.event, change.event))
        self._waiting[key] = change
        self._news.set()

    def begin(self, shown: str) -> None:
        """Say that from now on no change is missed. Raise OSError."""
        if log.isEnabledFor(logging.WARNING):  # not with --quiet
            output.message(f"watching {shown}")
        if self._ready:
            click.echo(json.dumps({"event": "ready"}) if self._as_json else "ready")

    async def run(self) -> None:
        """Print changes until the watch ends. Raise OSError if the output fails."""
        while True:
            await self._news.wait()
            self._news = lazy.trio.Event()
            if self._command is not None:
                await lazy.trio.sleep(_BURST)
            while self._waiting:
                change = self._waiting.pop(next(iter(self._waiting)))
                if self._command is not None:
                    await self._run(self._command, change)
                else:
                    self._print(change)
                if self._once:
                    return

    def _print(self, change: Event) -> None:
        if not self._as_json:
            output.line(f"{change.event} {change.path}")
            return
        known = encoded(change)
        known.setdefault("time", datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"))
        click.echo(json.dumps(known))

    async def _run(self, command: str, change: Event) -> None:
        """Run the command for one change. Report a failure, and go on."""
        path = change.path
        told = {
            "BBFS_EVENT": change.event,
            "BBFS_PATH": path,
            "BBFS_URI": change.uri or "",
            "BBFS_SOURCE": change.source or "",
        }
        environ = {**os.environ, **told}
        done = await lazy.trio.run_process(command, shell=True, check=False, stdin=subprocess.DEVNULL, env=environ)
        if done.returncode > 0:
            output.message(f"{path}: the command ended with status {done.returncode}")
        elif done.returncode < 0:
            output.message(f"{path}: the command was ended by {signal.Signals(-done.returncode).name}")


def by_reference(command: str) -> str:
    """Return a command of the shell that has `{}` as a reference to its environment: a name is no text of the shell.

    Raise ValueError for `{}` among other text in quotes. A shell may get that text as a command.
    """

    def word(found: re.Match[str]) -> str:
        text = found[0]
        if text[0] in "\\" or "{}" not in text:
            return text
        if text[0] in "\"'" and text[1:-1] != "{}":
            raise ValueError(f"{{}} is among other text in quotes; write $BBFS_PATH there: {text}")
        return '"$BBFS_PATH"'

    return _SHELL.sub(word, command)


def _both(before: str, after: str) -> str:
    """Return the sum of two changes of one path."""
    return {("added", "changed"): "added", ("removed", "added"): "changed"}.get((before, after), after)


async def _watched(opened: "Trees", operands: Sequence[str], teller: Teller, timeout: float | None) -> int:
    """Print changes at and below the operands until the watch ends. Return the exit status.

    timeout: seconds. Raise BbfsError, OSError.
    """
    await opened.event_loop()
    ends = inf if timeout is None else lazy.trio.current_time() + timeout
    targets: list[Target] = []

    async def collect(target: Target) -> None:
        targets.append(target)

    # Outside the scopes below: opened sources stay open in a nursery of the trees.
    if not await lazy.operand.each(opened, tuple(operands), collect):
        return 1
    by_mount: dict[str | None, list[Target]] = {}
    for target in targets:
        by_mount.setdefault(target.tree.mount, []).append(target)
    failures: list[BbfsError | OSError] = []

    async def work(part: Any, *arguments: Any) -> None:
        try:
            await part(*arguments)
        except (BbfsError, OSError) as error:  # raised below, by itself
            failures.append(error)
        nursery.cancel_scope.cancel()

    begun: list[str] = []

    def begin(shown: str) -> None:
        begun.append(shown)
        if len(begun) == len(by_mount):
            opened.progress.end()
            teller.begin(", ".join(begun))

    with lazy.trio.CancelScope(deadline=ends) as bound:
        async with lazy.trio.open_nursery() as nursery:
            for of_mount in by_mount.values():
                nursery.start_soon(work, _watch_tree, of_mount[0].tree, of_mount, teller.hear, begin)
            nursery.start_soon(work, teller.run)
            if _stdout_is_pipe():
                nursery.start_soon(work, _until_nobody_reads)
    if failures:
        raise failures[0]
    return TIMED_OUT if bound.cancelled_caught else 0


async def _watch_tree(tree: SourceTree, targets: list[Target], hear: Hear, begin: Callable[[str], None]) -> None:
    """Watch some targets of one tree. begin: called when it has begun. Raise BbfsError, OSError."""
    paths = ["/".join(await tree.resolved(await target.located())) for target in targets]
    shown = ", ".join(_shown(tree, path) for path in paths)
    has_begun = False

    def take(answer: Begun | Event | Note) -> None:
        nonlocal has_begun
        match answer:
            case Event():
                hear(replace(answer, path=_shown(tree, answer.path)))
            case Note(text):
                output.message(text)
            case Begun():
                has_begun = True
                begin(shown)

    try:
        await tree.ask(Watch(tuple(paths)), take)
    except BbfsError as error:
        text = f"{(has_begun and tree.mount) or shown}: {error}"
        raise NotFound(text) if isinstance(error, NotFound) else BbfsError(text) from error


def _shown(tree: SourceTree, path: str) -> str:
    return path if tree.mount is None else os.path.join(tree.mount, path) if path else tree.mount


def _stdout_is_pipe() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


async def _until_nobody_reads() -> None:
    """Raise BrokenPipeError as soon as the reader of standard output is gone, even without output."""
    await lazy.trio.lowlevel.wait_readable(sys.stdout.fileno())  # readable also when the reader is gone
    raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
