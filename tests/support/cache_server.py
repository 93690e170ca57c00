"""A Valkey or Redis server of a test's own, on a Unix socket in its directory."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

START_TIMEOUT = 60.0


def server_program() -> str:
    """The path of the server. Skips the test where there is none."""
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("neither valkey-server nor redis-server is installed")
        pytest.skip("neither valkey-server nor redis-server is installed")
    return program


class CacheServer:
    """The server; it keeps nothing on disk. `start` may be called again after `stop`."""

    def __init__(self, password: str | None = None) -> None:
        self.program = server_program()
        self._password = password
        self._directory = Path(tempfile.mkdtemp(prefix="bbfs-cache-"))  # a socket's path has 107 bytes at most
        self.socket = self._directory / "socket"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start it, empty, and wait until it answers."""
        options = ["--port", "0", "--unixsocket", str(self.socket), "--save", "", "--appendonly", "no"]
        options += ["--dir", str(self._directory), "--daemonize", "no", "--enable-debug-command", "yes"]
        if self._password is not None:
            options += ["--requirepass", self._password]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.program, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.SubprocessError):
                if self.ask("PING") == "PONG":
                    return
            time.sleep(0.02)
        raise AssertionError(f"the server did not start:\n{(self._directory / 'log').read_text()}")

    def ask(self, *command: str) -> str:
        """What the server answers to a command, as its own command line client shows it."""
        client = shutil.which("valkey-cli") or shutil.which("redis-cli") or "redis-cli"
        environ = os.environ | ({} if self._password is None else {"REDISCLI_AUTH": self._password})
        done = subprocess.run(
            [client, "--no-auth-warning", "-s", str(self.socket), *command],
            env=environ, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def keys(self, kind: str) -> list[str]:
        """The keys of one kind that bbfs has made: `content`, `entry`, `loading`, `epoch`."""
        return sorted(filter(None, self.ask("KEYS", f"*:{kind}:*").split("\n")))

    def pause(self) -> None:
        """Let it answer nothing until `go_on`, though it takes connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it, as by a power failure."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)
