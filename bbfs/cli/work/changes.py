"""The work of `bbfs watch`: receive changes, from the daemon of a mount or directly, and print them."""

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
from datetime import UTC, datetime
from math import inf
from typing import Any

import click
import trio

from bbfs.cli import output
from bbfs.cli.operands import control_client, operand
from bbfs.cli.operands.access import Target
from bbfs.cli.operands.direct import DirectTree
from bbfs.cli.operands.operand import Trees
from bbfs.model.errors import BbfsError, NotFound, Unreachable

_SHELL = re.compile(r"""\\.|'[^']*'?|"(?:[^"\\]|\\.)*+"?|\{\}""", re.DOTALL)
"""The parts of a shell's line that matter to `{}`."""
log = logging.getLogger(__name__)

TIMED_OUT = 124
"""The exit status of timeout(1)."""
_BURST = 0.05
"""Seconds for which a command waits for further changes."""


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
        self._waiting: dict[Any, dict[str, Any]] = {}
        self._heard = 0
        self._news = trio.Event()

    def hear(self, message: dict[str, Any]) -> None:
        """Take a change, with event, path, and its other fields."""
        self._heard += 1
        key = self._heard if self._command is None else message["path"]
        before = self._waiting.get(key)
        if before is not None:
            message = {**message, "event": _both(before["event"], message["event"])}
        self._waiting[key] = message
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
            self._news = trio.Event()
            if self._command is not None:
                await trio.sleep(_BURST)
            while self._waiting:
                message = self._waiting.pop(next(iter(self._waiting)))
                if self._command is not None:
                    await self._run(self._command, message)
                else:
                    self._print(message)
                if self._once:
                    return

    def _print(self, message: dict[str, Any]) -> None:
        if not self._as_json:
            output.line(f"{message['event']} {message['path']}")
            return
        known = {key: message[key] for key in ("event", "path", "uri", "source", "time") if key in message}
        known.setdefault("time", datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"))
        click.echo(json.dumps(known))

    async def _run(self, command: str, message: dict[str, Any]) -> None:
        """Run the command for one change. Report a failure, and go on."""
        path = message["path"]
        names = {"BBFS_EVENT": "event", "BBFS_PATH": "path", "BBFS_URI": "uri", "BBFS_SOURCE": "source"}
        environ = {**os.environ, **{name: str(message.get(key, "")) for name, key in names.items()}}
        done = await trio.run_process(command, shell=True, check=False, stdin=subprocess.DEVNULL, env=environ)
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


async def watch(opened: Trees, operands: Sequence[str], teller: Teller, timeout: float | None) -> int:
    """Print changes at and below the operands until the watch ends. Return the exit status.

    timeout: seconds. Raise BbfsError, OSError.
    """
    ends = inf if timeout is None else trio.current_time() + timeout
    targets: list[Target] = []

    async def collect(target: Target) -> None:
        targets.append(target)

    # Outside the scopes below: opened sources stay open in a nursery of the trees.
    if not await operand.each(opened, tuple(operands), collect):
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

    with trio.CancelScope(deadline=ends) as bound:
        async with trio.open_nursery() as nursery:
            for mount, of_mount in by_mount.items():
                nursery.start_soon(
                    work, _directly if mount is None else _through_mount, mount, of_mount, teller.hear, begin
                )
            nursery.start_soon(work, teller.run)
            if _stdout_is_pipe():
                nursery.start_soon(work, _until_nobody_reads)
    if failures:
        raise failures[0]
    return TIMED_OUT if bound.cancelled_caught else 0


async def _through_mount(
    mount: str, targets: list[Target], hear: Callable[[dict[str, Any]], None], begin: Callable[[str], None]
) -> None:
    """Watch through the daemon of a mount, until it ends. begin: called when it has begun. Raise BbfsError, OSError."""
    paths = ["/".join(await control_client.resolved(mount, await target.located())) for target in targets]
    shown = ", ".join(os.path.join(mount, path) if path else mount for path in paths)
    async with control_client.daemon_of(mount) as link:
        await link.send([{"id": 1, "request": "watch", "paths": paths}])
        try:
            while (message := await link.receive()) is not None:
                if "event" in message:
                    path = str(message.get("path", ""))
                    hear({**message, "path": os.path.join(mount, path) if path else mount})
                elif "note" in message:
                    output.message(str(message["note"]))
                else:
                    control_client.require_ok(message, shown)
                    begin(shown)
        except trio.BrokenResourceError:
            log.debug("the connection broke")
    raise Unreachable(f"{mount}: the daemon has ended")


async def _directly(
    _: None, targets: list[Target], hear: Callable[[dict[str, Any]], None], begin: Callable[[str], None]
) -> None:
    """Watch sources that this process opens. begin: called when it has begun. Raise BbfsError, OSError."""
    from bbfs.resources.watch import Watch, change_message  # noqa: PLC0415 - the handlers

    tree = targets[0].tree
    assert isinstance(tree, DirectTree)
    paths = [await tree.resolved(await target.located()) for target in targets]
    shown = ", ".join("/".join(path) for path in paths)
    watching = Watch(
        tree.manager, paths, lambda change: hear(change_message(change, tree.manager.clock())), output.message
    )
    problems: list[BbfsError] = []
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(watching.run)
            begin(shown)
        except BbfsError as error:
            problems.append(error)
    for error in problems:
        raise NotFound(f"{shown}: {error}") if isinstance(error, NotFound) else error


def _stdout_is_pipe() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


async def _until_nobody_reads() -> None:
    """Raise BrokenPipeError as soon as the reader of standard output is gone, even without output."""
    await trio.lowlevel.wait_readable(sys.stdout.fileno())  # readable also when the reader is gone
    raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
