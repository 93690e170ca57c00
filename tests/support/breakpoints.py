"""Steps of a save in a daemon: tells them, and ends or stops the daemon at one of them.

A daemon that is started with `environ(...)` imports this module. A step is what comes next: `disk 3` the third change
of a file that keeps bytes, `wire 2` the second message to the source, `compare`, `store` …
"""

import functools
import importlib
import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ASKED = "BBFS_TEST_BREAKPOINT"
_DISK = {"open", "os.rename", "os.remove", "os.link"}
_PENDING, _STORED = "/bbfs/pending/", "/pad.file"
"""In the names of files whose changes are steps: pending writes, and what a source of type memory stores."""
_WRITER, _STORE = "bbfs.resources.writing.writer:Writer.", "bbfs.resources.writing.pending:PendingStore."
_BEFORE = {
    "bbfs.resources.writing.writer:require_state": "compare",
    "bbfs.resources.writing.write_requests:require_state": "compare",
    _WRITER + "_failed": "failed",
    "bbfs.resources.writing.write_requests:WriteRequests.stored": "show",
    _STORE + "sync": "sync",
}
_AFTER = {
    _STORE + "keep": "kept",
    _STORE + "drop": "dropped",
    "bbfs.vfs.open_files:OpenFiles._flush": "answer",
    "bbfs.vfs.writing.name_changes:NameChanges.rename": "answer",
}
_HANDLERS = {
    "mcp": "bbfs.sources.mcp.handler:McpHandler.write",
    "memory": "bbfs.sources.memory.handler:MemoryHandler.write",
    "storage": "bbfs.sources.storage.handler:StorageHandler.write",
}
_WIRES = {
    "ftp": "ftplib:FTP.putcmd",
    "sftp": "paramiko.channel:Channel.send",
    "streams": "trio:SocketStream.send_all",
    "pipes": "trio._unix_pipes:FdStream.send_all",
}


def environ(told: Path, kind: str, wires: str, step: str = "", signal: int = 0) -> dict[str, str]:
    """Return what has a daemon write its steps into `told`, and send itself a signal at one of them.

    kind: of the handler. wires: how it sends.
    """
    return {_ASKED: "\n".join((str(told), kind, wires, step, str(int(signal)))), "BBFS_TEST_IMPORT": __name__}


class _Steps:
    """The steps of one daemon. storing: how many contents a handler is handing over now."""

    def __init__(self, told: str, step: str, signal: int) -> None:
        self._told = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._step, self._signal = step, signal
        self._counts: Counter[str] = Counter()
        self.storing = 0

    def come(self, kind: str) -> None:
        self._counts[kind] += 1
        step = f"{kind} {self._counts[kind]}"
        os.write(self._told, f"{step}\n".encode())
        if step == self._step and self._signal:
            os.kill(os.getpid(), self._signal)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a change on disk before it is made (PEP 578)."""
        if event not in _DISK or (event == "open" and not (arguments[2] & os.O_ACCMODE and arguments[2] & os.O_CREAT)):
            return
        named = arguments[1] if event == "os.link" else arguments[0]
        if isinstance(named, str | Path) and (_PENDING in str(named) or (self.storing and _STORED in str(named))):
            self.come("disk")

    def send(self) -> None:
        if self.storing:
            self.come("wire")

    def store(self, more: int) -> None:
        self.storing += more
        self.come("store" if more > 0 else "stored")


def _around(target: str, before: Callable[[], None] | None, after: Callable[[], None] | None) -> None:
    """Have a function, or a method, call others before and after it."""
    module, _, path = target.partition(":")
    owner, _, name = path.rpartition(".")
    kind = importlib.import_module(module)
    if owner:
        kind = getattr(kind, owner)
    function = getattr(kind, name)

    def calls(which: Callable[[], None] | None) -> None:
        if which is not None:
            which()

    @functools.wraps(function)
    async def awaited(*arguments: Any, **named: Any) -> Any:
        calls(before)
        try:
            return await function(*arguments, **named)
        finally:
            calls(after)

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        calls(before)
        try:
            return function(*arguments, **named)
        finally:
            calls(after)

    setattr(kind, name, awaited if inspect.iscoroutinefunction(function) else called)


def _begin(asked: str) -> None:
    told, kind, wires, step, signal = asked.split("\n")
    steps = _Steps(told, step, int(signal))
    for target, what in _BEFORE.items():
        _around(target, functools.partial(steps.come, what), None)
    for target, what in _AFTER.items():
        _around(target, None, functools.partial(steps.come, what))
    _around(_HANDLERS[kind], functools.partial(steps.store, 1), functools.partial(steps.store, -1))
    if wires:
        _around(_WIRES[wires], steps.send, None)
    sys.addaudithook(steps.hear)


if _ASKED in os.environ:
    _begin(os.environ.pop(_ASKED))
