"""Daemons that are forked from a process which has imported them: importing is most of what a short mount takes.

    python -m forked_daemon FD      the process that forks; FD is its end of a pair of sockets

The tests of the command line start `bbfs mount` itself, and so do the tours and the demo.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

MESSAGE = 1 << 20
"""Bytes of a message at most."""
IMPORTED = ("bbfs.fuse.daemon", "bbfs.sources.filesystem", "bbfs.sources.mcp", "bbfs.sources.mcp.handler")
"""The modules that most mounts need. A daemon imports the rest when it needs it."""
START_TIMEOUT = 60.0
"""Seconds until the process that forks has imported everything and has forked."""


class ForkedDaemon:
    """A daemon that runs, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, forker: "_Forker", arguments: Sequence[str]) -> None:
        self.args = list(arguments)
        self._forker = forker
        self.pid: int = forker.receive("pid", START_TIMEOUT)["pid"]
        self._pidfd = -1
        with contextlib.suppress(ProcessLookupError):  # a command has ended by now
            self._pidfd = os.pidfd_open(self.pid)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, negative for a signal. Raise TimeoutExpired."""
        if self.returncode is None:
            self.returncode = self._forker.status(self.pid, self.args, timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None and self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._pidfd)


def start(arguments: Sequence[str], environ: Mapping[str, str], log: int) -> ForkedDaemon:
    """Run `bbfs ARGUMENTS` in a session of its own, with nothing to read. log: takes both of its outputs."""
    forker = _forker()
    forker.ask({"arguments": list(arguments), "environ": dict(environ)}, log)
    return ForkedDaemon(forker, arguments)


@cache
def _forker() -> "_Forker":
    return _Forker()


class _Forker:
    """The process that forks, as one pytest process sees it. It ends with that."""

    def __init__(self) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            line = [sys.executable, "-W", "default", "-m", __name__, str(its.fileno())]
            environ = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
            self._process = subprocess.Popen(line, stdin=subprocess.DEVNULL, env=environ, pass_fds=[its.fileno()])
        self._ended: dict[int, int] = {}
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait(START_TIMEOUT)

    def ask(self, request: dict[str, Any], log: int) -> None:
        socket.send_fds(self._socket, [json.dumps(request).encode()], [log])

    def receive(self, key: str, timeout: float | None) -> dict[str, Any]:
        """Return the next message with this key; keep the ends of daemons. Raise TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._socket.settimeout(None if deadline is None else max(0.001, deadline - time.monotonic()))
            data = self._socket.recv(MESSAGE)
            assert data, "the process that forks daemons has ended"
            message = json.loads(data)
            if "status" in message:
                self._ended[message["ended"]] = message["status"]
            if key in message:
                return dict(message)

    def status(self, pid: int, arguments: Sequence[str], timeout: float | None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while pid not in self._ended:
            left = None if deadline is None else deadline - time.monotonic()
            try:
                self.receive("status", left)
            except TimeoutError:
                raise subprocess.TimeoutExpired(list(arguments), timeout or 0) from None
        return self._ended.pop(pid)


def _serve(control: socket.socket) -> None:
    """Fork a daemon for each request, and tell when one has ended. Return in the daemons only."""
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), *running], [], [])
        for pidfd in set(ready) & set(running):
            _, status = os.waitpid(running[pidfd], 0)
            control.send(
                json.dumps({"ended": running.pop(pidfd), "status": os.waitstatus_to_exitcode(status)}).encode()
            )
            os.close(pidfd)
        if control.fileno() in ready:
            data, descriptors, _, _ = socket.recv_fds(control, MESSAGE, 1)
            if not data:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                for descriptor in running:
                    os.close(descriptor)
                control.close()
                _become(json.loads(data), descriptors[0])
                return
            os.close(descriptors[0])
            running[os.pidfd_open(pid)] = pid
            control.send(json.dumps({"pid": pid}).encode())


def _become(request: dict[str, Any], log: int) -> None:
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv = ["bbfs", *request["arguments"]]
    if (module := os.environ.pop("BBFS_TEST_IMPORT", None)) is not None:
        importlib.import_module(module)


if __name__ == "__main__":
    from bbfs.cli import main

    for module in IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    main(prog_name="bbfs")
