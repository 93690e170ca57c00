"""Real mounts for tests: the daemon in a process of its own, with directories of its own, watched until it is gone."""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forked_daemon
from forked_daemon import ForkedDaemon, mark_of
from programs import Done, bbfs, children_of

from bbfs.fuse import mountpoint, notifier_process
from bbfs.fuse.watchers import toucher_process
from bbfs.sources.mcp.transport import leftovers

START_TIMEOUT = 60.0
STOP_TIMEOUT = 30.0
LEFTOVER_GRACE = 10.0
NOTIFIER, TOUCHER, LEFTOVERS = (
    os.fsencode(str(module.__file__)) for module in (notifier_process, toucher_process, leftovers)
)
_QUIET = re.compile(r"(?:[-0-9]+ [:,0-9]+ )?bbfs: (?:debug|info): ")

SourceTable = dict[str, Any]


def folder(name: str, root: Path, **options: Any) -> SourceTable:
    """A local folder as the configuration file has it. options: of the source, `config` for those of its type."""
    config = {"root": str(root), **options.pop("config", {})}
    return {"name": name, "type": "filesystem", "config": config, **options}


def mcp(name: str, command: Sequence[str | Path], **options: Any) -> SourceTable:
    """An MCP server over stdio as the configuration file has it."""
    program, *args = map(str, command)
    env = options.pop("env", {})
    return {"name": name, "mcpConfig": {"command": program, "args": args, "env": env}, **options}


def toml(value: Any) -> str:
    """A value as TOML; tables are written inline."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case Mapping():
            return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
        case Iterable():
            return "[" + ", ".join(map(toml, value)) + "]"
    raise TypeError(f"no TOML for {type(value).__name__}")


def config_text(sources: Iterable[SourceTable], tables: Mapping[str, Mapping[str, Any]]) -> str:
    lines: list[str] = []
    for name, table in tables.items():
        lines += [*([f"[{name}]"] if name else []), *(f"{key} = {toml(value)}" for key, value in table.items())]
    for source in sources:
        lines += ["[[sources]]", *(f"{key} = {toml(value)}" for key, value in source.items())]
    return "\n".join(lines) + "\n"


@dataclass(slots=True)
class State:
    """Where a daemon keeps things: a home with the XDG directories in it. Two mounts in a row may share one."""

    home: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="bbfs-home-")))

    def environ(self) -> dict[str, str]:
        directories = {"XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config", "XDG_RUNTIME_DIR": "run"}
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "BBFS_"))}
        environ.update({key: str(self.home / name) for key, name in directories.items()})
        # The keyring of whoever runs the tests is none of theirs.
        return environ | {"HOME": str(self.home), "PYTHONWARNINGS": "default", "BBFS_TOKEN_STORE": "file"}

    def remove(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)

    def pending(self) -> list[Path]:
        """The descriptions of the pending writes; the content of each is beside it, without the suffix."""
        return sorted((self.home / ".local/state/bbfs/pending").glob("*.json"))

    def kept(self) -> list[bytes]:
        """The contents of the pending writes."""
        return sorted(each.with_suffix("").read_bytes() for each in self.pending())

    def processes(self) -> list[str]:
        """The processes that live in this home: what a daemon started, whatever became of their parents."""
        found: list[str] = []
        wanted, mark = f"HOME={self.home}".encode(), f"{mark_of(self.home)}\n".encode()
        for number in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                entry = Path("/proc", number)
                if (entry / "comm").read_bytes() == mark or wanted in (entry / "environ").read_bytes().split(b"\0"):
                    words = (entry / "cmdline").read_bytes().replace(bytes(1), b" ").decode()
                    if words:  # none when it has ended
                        found.append(f"{number}: {words}")
        return found


def unexpected_lines(log: str, expected: Sequence[str]) -> list[str]:
    """The lines of a log that are neither debug nor information, nor match one of the patterns."""
    return [
        line
        for line in log.splitlines()
        if line.strip() and not _QUIET.match(line) and not any(re.search(pattern, line) for pattern in expected)
    ]


def _command_of(process: int) -> list[bytes]:
    """The words with which a process was started; none when it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    return []


def mount_command(python: str | Path = sys.executable) -> list[str]:
    """How to start the daemon, up to its arguments `CONFIG MOUNTPOINT`."""
    return [str(python), "-m", "bbfs", "mount", "--config"]


class Mount:
    """A daemon that serves `path`. `stop` ends it and checks that nothing of it is left.

    expected: patterns of log lines above INFO that this test brings about. python: runs a daemon that is not forked.
    environ: more variables of the daemon.
    """

    def __init__(
        self,
        sources: Iterable[SourceTable],
        *,
        expected: Sequence[str] = (),
        state: State | None = None,
        mount_point: Path | None = None,
        tables: Mapping[str, Mapping[str, Any]] | None = None,
        python: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.expected = list(expected)
        self.state = state or State()
        self.path = mount_point or Path(tempfile.mkdtemp(prefix="bbfs-mnt-"))
        self._own_path = mount_point is None
        self._is_destroyed = False
        self._below = mountpoint.mount_at(str(self.path))
        self._log = Path(tempfile.mkstemp(prefix="log-", dir=self.state.home)[1])
        self.config = config = self._log.with_suffix(".toml")
        config.write_text(config_text(sources, tables or {}))
        address = f"bbfs-test-{os.getpid()}-{self._log.name}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, self._log.open("wb") as log:
            ready.bind("\0" + address)
            variables = {**self.state.environ(), "NOTIFY_SOCKET": "@" + address, **(environ or {})}
            self.process = self._start([str(config), str(self.path)], variables, log.fileno(), python)
            self._await_ready(ready)

    def _start(
        self, arguments: list[str], environ: dict[str, str], log: int, python: str | Path | None
    ) -> subprocess.Popen[bytes] | ForkedDaemon:
        if python is None:
            return forked_daemon.start(["mount", "--config", *arguments], environ, log)
        return subprocess.Popen(
            [*mount_command(python), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environ,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def environ(self) -> dict[str, str]:
        """The environment of a command that means this mount, whatever else is mounted."""
        return self.state.environ() | {"BBFS_MOUNT": str(self.path)}

    def bbfs(self, *arguments: str | Path, status: int | None = 0, timeout: float = START_TIMEOUT) -> Done:
        """Run a command that means this mount to its end, as `programs.run` does."""
        return bbfs(*arguments, env=self.environ(), status=status, timeout=timeout)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def mounted(self) -> bool:
        """Whether anything is mounted there that was not before."""
        return mountpoint.mount_at(str(self.path)) not in (None, self._below)

    def children(self) -> list[int]:
        """The PIDs of the daemon's children, those of all its threads, but for the processes that outlive it.

        A child that runs no program of its own yet may become one of these.
        """
        own = _command_of(self.pid)
        found = {child: _command_of(child) for child in children_of(self.pid)}
        return [
            child
            for child, command in found.items()
            if command != own and command[3:4] not in ([NOTIFIER], [TOUCHER], [LEFTOVERS])
        ]

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def _await_ready(self, ready: socket.socket) -> None:
        """Wait for READY=1 of the notification protocol, or for the end of the process."""
        pidfd = os.pidfd_open(self.pid)
        either = select.poll()  # select(2) takes no descriptor from 1024 up
        for each in (ready.fileno(), pidfd):
            either.register(each, select.POLLIN)
        try:
            deadline = time.monotonic() + START_TIMEOUT
            while (left := deadline - time.monotonic()) > 0:
                readable = [each for each, _ in either.poll(left * 1000)]
                if ready.fileno() in readable and b"READY=1" in ready.recv(4096):
                    return
                if pidfd in readable:
                    break
        finally:
            os.close(pidfd)
        self.destroy()
        raise AssertionError(f"the daemon did not begin to serve:\n{self.log()}")

    def kill(self) -> None:
        """As `kill -9` by hand: the mount stays, dead."""
        self.process.kill()
        self.process.wait(START_TIMEOUT)  # the kernel's work, on a busy machine

    def wait(self, timeout: float = STOP_TIMEOUT) -> int:
        """The exit status of a daemon that ends by itself. Raises AssertionError."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the daemon did not end within {timeout:g} s:\n{self.log()}") from None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the daemon with a signal, as a user does. Raises AssertionError when anything of it remains."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.check_end()

    def check_end(self) -> None:
        """A daemon that was told to end has left nothing behind: no mount, no process, no complaint in its log."""
        problems: list[str] = []
        try:
            status = self.wait()
            if status != 0:
                problems.append(f"exit status {status}")
        except AssertionError as error:
            problems.append(str(error))
        if self.mounted:
            problems.append("the mount is still there")
        left = self._leftovers()
        problems += [f"left behind: process {process}" for process in left]
        problems += [f"unexpected in the log: {line}" for line in unexpected_lines(self.log(), self.expected)]
        log = self.log()
        self._destroy(left)
        if problems:
            raise AssertionError("\n".join([*problems, "--- the whole log:", log]))

    def _leftovers(self) -> list[str]:
        """Processes that outlive the daemon; those that are dying already are given a moment."""
        deadline = time.monotonic() + LEFTOVER_GRACE
        while (left := self.state.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def destroy(self) -> None:
        """End everything by force. The last resort of a test that failed; no-op after a clean end."""
        if not self._is_destroyed:
            self._destroy(self.state.processes())

    def _destroy(self, left: Iterable[str]) -> None:
        """End everything by force. left: processes of the daemon, as the state names them."""
        self._is_destroyed = True
        if self.process.poll() is None:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_TIMEOUT)
        if self.mounted:
            command = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
            subprocess.run([*command, str(self.path)], check=False, timeout=10, stdin=subprocess.DEVNULL)
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process.partition(":")[0]), signal.SIGKILL)
        if self._own_path and not self.mounted:
            with contextlib.suppress(OSError):
                self.path.rmdir()


class Mounts:
    """Makes mounts for one test, or for all of a module, and ends them in reverse order."""

    def __init__(self) -> None:
        self._mounts: list[Mount] = []
        self._states: list[State] = []

    def __call__(self, *sources: SourceTable, state: State | None = None, **options: Any) -> Mount:
        """Mount the sources and wait until that is served. Keyword arguments as for `Mount`."""
        if state is None:
            state = self.state()
        mount = Mount(sources, state=state, **options)
        self._mounts.append(mount)
        return mount

    def state(self) -> State:
        """A home for several mounts in a row."""
        self._states.append(State())
        return self._states[-1]

    def close(self) -> None:
        """Stop what still runs. Raises an ExceptionGroup of what each mount left behind."""
        problems: list[Exception] = []
        for mount in reversed(self._mounts):
            if mount.process.poll() is None or mount.mounted:
                try:
                    mount.stop()
                except AssertionError as error:
                    problems.append(error)
            mount.destroy()
        for state in self._states:
            state.remove()
        if problems:
            raise ExceptionGroup("mounts did not end cleanly", problems)
