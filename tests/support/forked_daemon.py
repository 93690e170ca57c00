"""Daemons, commands and servers that are forked from a process which has imported them: that takes most of their time.

    python -m forked_daemon KIND FD LISTENING     the process that forks, with its ends of a pair and of its address

Some tests of the command line start `bbfs` itself, and so do the tours and the demo.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import resource
import runpy
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
IMPORTED = {
    "daemon": (
        "anyio._backends._trio", "bbfs.config.toml", "bbfs.fuse.daemon", "bbfs.sources.database.handler",
        "bbfs.sources.filesystem.handler", "bbfs.sources.mcp.handler", "bbfs.sources.memory.handler",
        "bbfs.sources.storage.handler", "encodings.utf_8_sig",
    ),
    "server": (
        "bbfs.config.toml", "bbfs.knowledge.importing", "bbfs.knowledge.server.run", "bbfs.resources.open",
        "bbfs.server.run", "bbfs.server_parts.http", "bbfs.sources.filesystem.handler", "bbfs.sources.mcp.handler",
        "mcp.server.sse", "mcp.server.stdio", "mcp.server.subscriptions", "uvicorn",
    ),
}  # fmt: skip
"""The modules that most of a kind need, beside all commands. The rest is imported when it is needed."""
STAND_IN = Path(__file__).with_name("stand_in.py")
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
            self._close()  # a run of a thousand rounds keeps the daemons of all of them
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None and self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            self._close()


def mark_of(home: str | Path) -> str:
    """Return the name of the processes of a daemon or command in this home, as far as they run no other program.

    The kernel shows the environment of the process that forks in the place of theirs (proc_pid_environ(5)).
    """
    return str(home)[-15:]  # TASK_COMM_LEN


def start(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    out: int,
    errors: int | None = None,
    directory: str | None = None,
) -> ForkedDaemon:
    """Run `bbfs ARGUMENTS` in a session of its own, with nothing to read. errors: None has them go to `out`, too."""
    forker = _forker("daemon")
    words = ["-m", "bbfs", *map(str, arguments)]
    request = {"words": words, "environ": dict(environ), "directory": str(directory or os.getcwd()), "is_marked": True}
    with open(os.devnull, "rb") as nothing:
        forker.ask(request, [nothing.fileno(), out, out if errors is None else errors])
    return ForkedDaemon(forker, words)


def forked(*words: str | Path) -> list[str]:
    """Return the command of a process that stands for `python WORDS`, which is forked when the command is run."""
    return [sys.executable, "-I", "-S", str(STAND_IN), _forker("server").address, *map(str, words)]


@cache
def _forker(kind: str) -> "_Forker":
    return _Forker(kind)


class _Forker:
    """The process that forks, as one pytest process sees it. It ends with that."""

    def __init__(self, kind: str) -> None:
        self.address = f"bbfs-tests-{kind}-{os.getpid()}"
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind("\0" + self.address)
            listening.listen()
            ends = [its.fileno(), listening.fileno()]
            line = [sys.executable, "-W", "default", "-m", __name__, kind, *map(str, ends)]
            environ = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
            self._process = subprocess.Popen(line, stdin=subprocess.DEVNULL, env=environ, pass_fds=ends)
        self._ended: dict[int, int] = {}
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait(START_TIMEOUT)

    def ask(self, request: dict[str, Any], streams: Sequence[int]) -> None:
        socket.send_fds(self._socket, [json.dumps(request).encode()], streams)

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


class _Forking:
    """The process that forks. control: of the tests. listening: where processes that stand for servers come."""

    def __init__(self, control: socket.socket, listening: socket.socket) -> None:
        self._control, self._listening = control, listening
        self._ended: dict[int, tuple[int, socket.socket]] = {}
        """By the descriptor of a process: its PID, and who is told of its end."""
        self._stand_ins: dict[socket.socket, int] = {}
        """The PIDs of servers, by the connection of what stands for them."""

    def serve(self) -> dict[str, Any]:
        """Fork for each request, and tell when a process has ended. Return the request in the forked ones only."""
        while True:
            ready, _, _ = select.select([self._control, self._listening, *self._stand_ins, *self._ended], [], [])
            for each in ready:
                request = None
                if isinstance(each, int):
                    self._tell_end(each)
                elif each in self._stand_ins:
                    self._pass_signal(each)
                elif each is self._listening:
                    request = self._fork(self._listening.accept()[0])
                elif each is self._control:
                    request = self._fork(self._control)
                if request is not None:
                    return request

    def _fork(self, asking: socket.socket) -> dict[str, Any] | None:
        """Return None in the process that forks."""
        data, streams, _, _ = socket.recv_fds(asking, MESSAGE, 3)
        if not data and asking is self._control:
            os._exit(0)  # the tests have ended
        if not data:
            asking.close()
            return None
        pid = os.fork()
        if pid == 0:
            for number, descriptor in enumerate(streams):
                os.dup2(descriptor, number)
            for descriptor in (*streams, *self._ended):
                os.close(descriptor)
            for end in {self._control, self._listening, asking, *self._stand_ins}:
                end.close()
            return dict(json.loads(data))
        for descriptor in streams:
            os.close(descriptor)
        self._ended[os.pidfd_open(pid)] = pid, asking
        if asking is self._control:
            asking.send(json.dumps({"pid": pid}).encode())
        else:
            self._stand_ins[asking] = pid
        return None

    def _tell_end(self, pidfd: int) -> None:
        pid, asked = self._ended.pop(pidfd)
        os.close(pidfd)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(OSError):  # what stands for it may have gone
            asked.send(json.dumps({"ended": pid, "status": status}).encode())
        if asked is not self._control:
            self._stand_ins.pop(asked, None)
            asked.close()

    def _pass_signal(self, stand_in: socket.socket) -> None:
        """Send the server a signal, or kill it when what stands for it was killed."""
        number = stand_in.recv(MESSAGE)
        os.kill(self._stand_ins[stand_in], int(number or signal.SIGKILL))
        if not number:
            del self._stand_ins[stand_in]


def _run(request: dict[str, Any]) -> None:
    """Be `python WORDS`."""
    os.setsid()
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environ"])
    if "files" in request:
        resource.setrlimit(resource.RLIMIT_NOFILE, request["files"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):  # these know what they were opened on
        errors = "backslashreplace" if name == "stderr" else "surrogateescape"
        mode, buffering = "w" if number else "r", 1 if name == "stderr" else -1
        setattr(sys, name, open(number, mode, buffering, "utf-8", errors, closefd=False))  # noqa: SIM115
        setattr(sys, f"__{name}__", getattr(sys, name))
    if request.get("is_marked"):
        Path("/proc/self/comm").write_text(mark_of(os.environ.get("HOME", "")))
    if (module := os.environ.pop("BBFS_TEST_IMPORT", None)) is not None:
        importlib.import_module(module)
    first, *rest = request["words"]
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        sys.path.insert(0, os.path.dirname(first))
        runpy.run_path(first, run_name="__main__")


class _End:
    """The end of a forked process, without what Python does last: to take apart all modules costs as much as a start.

    To be registered (atexit) before all else, so that it comes last. Before it, the garbage is collected, so that what
    nobody has closed is told as always.
    """

    status: int | None = None

    def note(self, ended: SystemExit | None = None) -> None:
        code = None if ended is None else ended.code
        self.status = 0 if code is None else code if isinstance(code, int) else None

    def __call__(self) -> None:
        if self.status is not None:
            gc.collect()
            sys.stdout.flush()
            os._exit(self.status)


def _main(kind: str, *ends: str) -> None:
    end = _End()
    atexit.register(end)
    cli = importlib.import_module("bbfs.cli")
    for module in (*IMPORTED[kind], *(f"{cli.__name__}.{name}" for name in cli.COMMANDS.values())):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    request = _Forking(*(socket.socket(fileno=int(number)) for number in ends)).serve()
    try:
        _run(request)
    except SystemExit as ended:
        end.note(ended)
        raise
    end.note()


if __name__ == "__main__":
    _main(*sys.argv[1:])
