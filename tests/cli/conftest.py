"""The command line in this process and in processes of its own, a folder and a knowledge base to read, and mounts."""

import logging
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import forked_daemon
import programs
import pytest
from click.testing import CliRunner, Result
from forked_daemon import ForkedDaemon, forked

from bbfs.cli import logs, main
from bbfs.fuse import mounting, mountpoint
from bbfs.knowledge.database.store import Store

BOUND = 60.0
FILES = {"hello.txt": b"hello\n", "sub dir/grüße.md": "# Grüße\n".encode()}


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No configuration, cache, colour or logging but the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    level = logging.getLogger().level
    yield
    logs.log_to_stderr(level)
    for handler in [h for h in logging.getLogger().handlers if type(h).__module__ == logs.__name__]:
        logging.getLogger().removeHandler(handler)


@pytest.fixture
def bbfs() -> Callable[..., Result]:
    """Runs a command in this process."""

    def run(*arguments: str | Path) -> Result:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Runs a command in a process of its own, with a bound."""

    def run(
        *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        done = programs.bbfs(*arguments, timeout=BOUND, status=None, env=env, directory=cwd)
        return subprocess.CompletedProcess(arguments, done.status, done.out, done.err)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "folder"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


@pytest.fixture
def only(tmp_path: Path, folder: Path) -> list[str]:
    """Options for the folder as the one source, named `notes`."""
    return ["--dir", f"notes={folder}"]


@pytest.fixture
def knowledge(tmp_path: Path) -> list[str]:
    """Options for a knowledge base as the one source, named `shelf`: one document, `guides/first`."""
    database = tmp_path / "kb.sqlite"
    with Store(database) as store:
        store.put("guides", "first", b"# First\n", name="first.md")
    return ["--mcp", f"shelf={shlex.join(forked('-m', 'bbfs.knowledge', 'serve', '--db', database))}"]


@pytest.fixture
def mount(fuse: None, tmp_path: Path) -> Iterator[Callable[..., tuple[Path, ForkedDaemon]]]:
    """Mounts with the options given, in the foreground of a process; all is gone at the end of the test.

    What the process says is in a file beside the mount point, whose name ends in `.said`.
    """
    started: list[tuple[Path, ForkedDaemon]] = []

    def start(*arguments: str) -> tuple[Path, ForkedDaemon]:
        point = tmp_path / f"mnt-{len(started)}"
        said = point.with_suffix(".said")
        with said.open("wb") as out:
            daemon = forked_daemon.start(["mount", str(point), *arguments], os.environ, out.fileno())
        started.append((point, daemon))
        wait_until(lambda: mountpoint.mount_at(str(point)) is not None or daemon.poll() is not None)
        assert daemon.poll() is None, said.read_text()
        assert mountpoint.names(str(point), timeout=BOUND)
        return point, daemon

    yield start
    for point, daemon in started:
        if daemon.poll() is None:
            daemon.send_signal(signal.SIGCONT)
            daemon.terminate()
        try:
            daemon.wait(15)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(15)
        mounting.unmount(str(point))


def wait_until(condition: Callable[[], bool], bound: float = BOUND) -> None:
    """Wait for what nobody announces."""
    deadline = time.monotonic() + bound
    while not condition():
        assert time.monotonic() < deadline, f"not within {bound} s"
        time.sleep(0.02)


@pytest.fixture
def until() -> Callable[..., None]:
    return wait_until
