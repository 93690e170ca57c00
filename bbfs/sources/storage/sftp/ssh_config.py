"""The host of an SFTP source as `~/.ssh/config` describes it (ssh_config(5)), as far as paramiko reads such files."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import glob
from io import StringIO
from pathlib import Path
from typing import Any

from paramiko import SSHConfig, SSHException
from paramiko.ssh_exception import CouldNotCanonicalize

from bbfs.model.errors import ConfigError

_INCLUDE = re.compile(r"\s*include[\s=]+(.+)", re.IGNORECASE)
_DEEPEST = 16
"""Files that include each other, as OpenSSH allows."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host to connect to. command: a program that makes the connection, instead of a socket.

    user, port: None without a line for them. keys, known_hosts: files that exist.
    """

    name: str
    port: int | None
    user: str | None
    keys: tuple[str, ...]
    known_hosts: tuple[str, ...]
    command: str | None


def host_of(alias: str, port: int | None, user: str | None) -> Host:
    """Return the host that a name of the user's configuration means. Raises ConfigError.

    port, user: of the URL, which win.
    """
    file = Path("~/.ssh/config").expanduser()
    config = SSHConfig()
    try:
        config.parse(StringIO("".join(_lines(file, _DEEPEST))))
        found = config.lookup(alias)
        port = port or (int(found["port"]) if "port" in found else None)
    except (OSError, ValueError, KeyError, ImportError, SSHException, CouldNotCanonicalize) as error:
        raise ConfigError(f"{file}: cannot be used for the host {alias!a}: {error}") from None
    name = found["hostname"]
    if name.startswith("-"):
        raise ConfigError(f"{name!a}: no name of a host")  # a command would take it for an option
    return Host(
        name,
        port,
        user or found.get("user"),
        _existing(found.get("identityfile", [])),
        _existing(shlex.split(found.get("userknownhostsfile", ""))),
        _command(found, name, port),
    )


def _lines(file: Path, depth: int) -> Iterator[str]:
    """Yield the lines of a file, and the lines of the files that it includes in their places. Yield nothing if the file
    does not exist."""
    if not depth or not file.is_file():
        return
    for line in file.read_text("utf-8", "replace").splitlines(keepends=True):
        included = _INCLUDE.fullmatch(line.rstrip())
        if included is None:
            yield line if line.endswith("\n") else f"{line}\n"
            continue
        for pattern in shlex.split(included[1]):
            for path in sorted(glob(os.path.join(Path("~/.ssh").expanduser(), os.path.expanduser(pattern)))):
                yield from _lines(Path(path), depth - 1)


def _existing(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(path for path in map(os.path.expanduser, paths) if os.path.isfile(path))


def _command(found: Any, name: str, port: int | None) -> str | None:
    """Return the command of ProxyCommand, or OpenSSH's command for ProxyJump; None if there is neither."""
    command = found.get("proxycommand")
    if command and command.lower() != "none":
        return command
    jumps = [f"ssh://{jump.removeprefix('ssh://')}" for jump in found.get("proxyjump", "none").split(",")]
    if jumps == ["ssh://none"]:
        return None
    before = ["-J", ",".join(jumps[:-1])] if jumps[1:] else []
    return shlex.join(["ssh", "-o", "BatchMode=yes", *before, "-W", f"[{name}]:{port or 22}", "--", jumps[-1]])
