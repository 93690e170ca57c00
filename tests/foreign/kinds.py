"""The kinds of mount that foreign suites run on, each a directory that a daemon of its own serves."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import forked_daemon
from harness import State, config_text, unexpected_lines
from programs import run, shell
from saved_places import places

from bbfs.fuse import mountpoint

PLACES: Mapping[str, str] = {
    "folder": "folder",
    "memory": "memory",
    "S3": "S3",
    "SFTP": "SFTP",
    "WebDAV": "WebDAV",
    "scratch over a folder": "folder",
    "scratch over memory": "memory",
}
"""The source of each kind, by its name in `saved_places`."""
KINDS: Sequence[str] = tuple(PLACES)
START, STOP = 30.0, 30.0
_LOGGED = ("not written", "stays pending", "cannot be", "refused")
"""Warnings that a suite which asks for what a source cannot do brings about."""


@dataclass
class Ground:
    """A directory to run a suite in. log: of the daemon."""

    kind: str
    directory: Path
    state: State
    log: Path
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 1 << 30)))

    def fresh(self) -> Path:
        """Return a new empty directory on the mount."""
        made = self.directory / f"run{next(self._numbers)}"
        shell('mkdir -p -m 777 "$1"', made)  # while a server is slow, mkdir(2) may say EEXIST (S22)
        return made

    def complaints(self) -> list[str]:
        """Return the lines of the log that speak of an unforeseen failure."""
        lines = unexpected_lines(self.log.read_text(errors="replace"), _LOGGED)
        return [line for line in lines if "Traceback" in line or "unforeseen" in line or "Error: " in line]


@contextmanager
def ground(kind: str) -> Iterator[Ground]:
    """Mount a kind, and unmount it at the end of the block."""
    if kind == "plain":
        with tempfile.TemporaryDirectory(prefix="bbfs-plain-") as directory:
            Path(directory).chmod(0o755)
            yield Ground(kind, Path(directory), State(), Path(os.devnull))
        return
    place = PLACES[kind]
    state = State()
    with tempfile.TemporaryDirectory(prefix="bbfs-foreign-") as name, places(Path(name), {place}) as made:
        Path(name).chmod(0o755)
        (source,) = made.values()
        source.table["config"].pop("file", None)  # memory that each write would copy to a disk as a whole
        mnt, log, config = Path(name, "mnt"), Path(name, "log"), Path(name, "config.toml")
        mnt.mkdir()
        config.write_text(config_text([source.table], {}))
        words = ["--config", str(config), *(["--allow-other"] if os.geteuid() == 0 else [])]
        if kind.startswith("scratch"):
            words += ["--scratch", str(Path(name, "scratch"))]
        try:
            with _served([str(mnt), *words], mnt, log, state):
                directory = mnt / source.directory
                run("ls", directory, timeout=START)
                yield Ground(kind, directory, state, log)
        finally:
            _clear(Path(name), state)


@contextmanager
def _served(words: list[str], mnt: Path, log: Path, state: State) -> Iterator[None]:
    with log.open("wb") as written:
        daemon = forked_daemon.start(["mount", *words], state.environ(), written.fileno())
    try:
        deadline = time.monotonic() + START
        while not _is_served(mountpoint.mount_at(str(mnt))):
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the daemon did not begin to serve:\n{log.read_text()}")
            time.sleep(0.02)
        yield
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(STOP)
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait(STOP)


def _is_served(mount: mountpoint.Mount | None) -> bool:
    """Return whether a mount serves. What covers the mount point of a scratch until then is empty."""
    return mount is not None and mount.type != "tmpfs"


def _clear(below: Path, state: State) -> None:
    """Remove what a daemon that did not end by itself has left."""
    for mount in reversed(mountpoint.mounts()):
        if mount.path.startswith(f"{below}/"):
            subprocess.run(["umount", "-f", "-l", mount.path], check=False, timeout=10, stdin=subprocess.DEVNULL)
    for process in state.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process.partition(":")[0]), signal.SIGKILL)
    state.remove()
