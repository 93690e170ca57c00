"""Mounts to compare: bbfs, the floor and the rivals, each with a home of its own, each ended whatever happens."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import Missing, Sheet, Unmeasurable
from rounds import HERE, Place, end, last_line, run

from bbfs.fuse import mounting
from bbfs.fuse import mountpoint as mounts

RIVALS = HERE / "rivals"
RIVALS_PYTHON = RIVALS / ".venv" / "bin" / "python"
MOUNT_BOUND = 60.0
"""Seconds until a mount must be there, with all that its program reads first."""


def isolated(home: Path) -> dict[str, str]:
    """The environment of a program that keeps what it keeps below `home`."""
    # rclone 1.60 reaches no S3 server with AWS_CA_BUNDLE.
    foreign = ("XDG_", "BBFS_", "RCLONE_", "AWS_")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    for name in ("CACHE_HOME", "CONFIG_HOME", "DATA_HOME", "STATE_HOME", "RUNTIME_DIR"):
        directory = home / name.lower()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        environ[f"XDG_{name}"] = str(directory)
    return environ | {"HOME": str(home), "BBFS_TOKEN_STORE": "file", "RCLONE_CONFIG": str(home / "rclone.conf")}


@contextmanager
def running(command: Sequence[str | Path], home: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program in the background, in a process group of its own. Raises Unmeasurable when there is no such program."""
    home.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=isolated(home),
                start_new_session=True,
            )
        except FileNotFoundError:
            raise Missing("not installed") from None
    try:
        yield process
    finally:
        end(process)


@contextmanager
def mounted(command: Sequence[str | Path], mountpoint: Path, home: Path) -> Iterator[int]:
    """A program that mounts `mountpoint` and serves it in the foreground; its PID. Raises Unmeasurable."""
    mountpoint.mkdir(parents=True)
    log = mountpoint.with_suffix(".log")
    try:
        with running(command, home, log) as process:
            _await_mount(process, mountpoint, log)
            yield process.pid
    finally:
        mounting.unmount(str(mountpoint))


def _await_mount(process: subprocess.Popen[bytes], mountpoint: Path, log: Path) -> None:
    ended = os.pidfd_open(process.pid)
    try:
        deadline = time.monotonic() + MOUNT_BOUND
        while mounts.mount_at(str(mountpoint)) is None:
            over = bool(select.select([ended], [], [], 0.02)[0])
            if over or time.monotonic() > deadline:
                with log.open("rb") as said:
                    raise Unmeasurable(f"{'ended' if over else 'did not mount'}: {last_line(said)}")
    finally:
        os.close(ended)
    run(["ls", mountpoint], bound=MOUNT_BOUND)


def bbfs(
    home: Path, sources: Sequence[dict[str, Any]], python: str | Path | None = None
) -> Callable[[Path], list[str | Path]]:
    """Return the command that mounts these sources, given as tables of the configuration file.

    python: the interpreter of the environment in which bbfs is installed, None for the one that runs this; `-P` keeps
    it from taking the one that lies in the working directory.
    """

    def value(of: Any) -> str:
        match of:
            case dict():
                return "{" + ", ".join(f"{key} = {value(item)}" for key, item in of.items()) + "}"
            case list():
                return "[" + ", ".join(map(value, of)) + "]"
            case str() | Path():
                escaped = str(of).replace("\\", "\\\\").replace('"', '\\"')
                return f'"{escaped}"'
        return str(of).lower()

    home.mkdir(parents=True, exist_ok=True)
    config = home / "bench.toml"
    tables = ["\n".join(f"{key} = {value(item)}" for key, item in source.items()) for source in sources]
    config.write_text("".join(f"[[sources]]\n{table}\n" for table in tables))
    return lambda mountpoint: [python or sys.executable, "-P", "-m", "bbfs", "mount", "--config", config, mountpoint]


def served(name: str, command: Sequence[str | Path], concurrency: int = 16) -> dict[str, Any]:
    """An MCP server over stdio as a source of bbfs, believed for an hour."""
    words = [str(word) for word in command]
    config = {"command": words[0], "args": words[1:]}
    return {"name": name, "mcpConfig": config, "ttl": "1h", "timeout": "60s", "concurrency": concurrency}


def server(
    directories: int,
    files: int,
    *,
    seed: str = "",
    delay: float = 0.0,
    counters: Path | None = None,
    template: bool = False,
) -> list[str | Path]:
    """The command of server.py."""
    shape = ["--directories", str(directories), "--files", str(files), "--seed", seed, "--delay", str(delay)]
    options = [*(["--counters", counters] if counters else []), *(["--template"] if template else [])]
    return [sys.executable, HERE / "server.py", *shape, *options]


def floor(folder: Path, *options: str) -> Callable[[Path], list[str | Path]]:
    return lambda mountpoint: [sys.executable, HERE / "floor.py", folder, mountpoint, *options]


KEPT = ("--attr-timeout", "1h", "--dir-cache-time", "1h", "--poll-interval", "0")
"""Options of rclone for keeping names and attributes as long as bbfs may here; by itself it keeps them for 1 s."""


def rclone(remote: str | Path, *options: str) -> Callable[[Path], list[str | Path]]:
    return lambda mountpoint: ["rclone", "mount", str(remote), mountpoint, "--read-only", *options]


def by_rival(program: str, folder: Path, *options: str) -> Callable[[Path], list[str | Path]]:
    """A program of rivals/, in the rivals' environment."""
    return lambda mountpoint: [RIVALS_PYTHON, RIVALS / program, folder, mountpoint, *options]


def ratarmount(archive: Path) -> Callable[[Path], list[str | Path]]:
    keep = ["--foreground", "--index-file", ":memory:"]
    return lambda mountpoint: [RIVALS_PYTHON, "-m", "ratarmount", *keep, archive, mountpoint]


@dataclass(frozen=True)
class Stage:
    """Where the mounts of a group are set up: a directory of its own, what ends them, and whether rivals take part."""

    sheet: Sheet
    group: str
    directory: Path
    ending: ExitStack
    rivals: bool = True

    def mount(
        self, name: str, command: Callable[[Path], list[str | Path]], *, below: str = "", home: Path | None = None
    ) -> tuple[Path, int]:
        """The tree `below` the new mount, and the PID of who serves it. Raises Unmeasurable."""
        slug = "".join(character if character.isalnum() else "-" for character in name)
        mountpoint = self.directory / f"{slug}-{len(list(self.directory.iterdir()))}"
        pid = self.ending.enter_context(
            mounted(command(mountpoint), mountpoint, home or mountpoint.with_suffix(".home"))
        )
        run(["ls", mountpoint / below], bound=MOUNT_BOUND)
        return mountpoint / below, pid

    def places(
        self, cases: Sequence[str], commands: Mapping[str, tuple[Callable[[Path], list[str | Path]], str]]
    ) -> list[Place]:
        """Those that could be mounted; the others are noted as failed in all cases."""
        found: list[Place] = []
        for name, (command, below) in commands.items():
            cell = self.sheet.cells[(self.group, cases[0], name)]
            try:
                if cell.rival and not self.rivals:
                    raise Missing("left out")
                tree, pid = self.mount(name, command, below=below)
                found.append(Place(name, tree, cell.share, pid))
            except Unmeasurable as why:
                for case in cases:
                    self.sheet.fail(self.group, case, name, why)
        return found
