"""systemd: what it is told of a unit, and what is wrong with one."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bbfs.cli.commands.service.units import Scope, Written
from bbfs.model.errors import BbfsError
from bbfs.runtime.extras import runs_from_cache

ENDS_WITHIN = 120.0
"""Seconds for a command of systemd. It stops a mount, and starts one, within the times of the unit."""
FUSE_CONF = Path("/etc/fuse.conf")


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a unit, or its state. remedy: what the user can do."""

    level: Literal["ok", "warn", "FAIL"]
    text: str
    remedy: str | None = None


def program() -> list[str]:
    """Return the command that runs this bbfs, by its whole path. Raise BbfsError if uv may remove this bbfs.

    The script beside the Python that runs: pipx, `uv tool`, `make install` and packages put it there, and leave it
    there at an upgrade.
    """
    if runs_from_cache():
        raise BbfsError("this bbfs is in the cache of uvx, which may remove it: 'uv tool install' it for a service")
    script = Path(sys.executable).absolute().parent / "bbfs"
    if os.access(script, os.X_OK):
        return [str(script)]
    found = shutil.which("bbfs")
    return [os.path.abspath(found)] if found is not None else [os.path.abspath(sys.executable), "-m", "bbfs"]


def systemctl(scope: Scope, *words: str) -> str:
    """Run systemctl, and return what it prints. Raise BbfsError with what it says, or if there is no systemd."""
    done = _run(["systemctl", f"--{scope}", "--no-ask-password", *words])
    if done.returncode != 0:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        raise BbfsError(f"systemctl {' '.join(words)}: {said}")
    return done.stdout


def _run(command: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN,
            check=False,
            env=os.environ | environ,
        )
    except FileNotFoundError:
        raise BbfsError(f"{command[0]} is missing: this machine has no systemd") from None
    except subprocess.TimeoutExpired:
        raise BbfsError(f"{command[0]} did not end within {ENDS_WITHIN:g} s") from None


def state(unit: Written) -> tuple[str, str]:
    """Return whether a unit is enabled and active, in the words of systemd; "unknown" where none runs."""
    try:
        shown = systemctl(unit.scope, "show", "--property=UnitFileState,ActiveState", unit.unit)
    except BbfsError:
        return "unknown", "unknown"
    found = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    return found.get("UnitFileState") or "unknown", found.get("ActiveState") or "unknown"


def command(scope: Scope) -> str:
    """Return how to call systemctl for a scope."""
    return "systemctl --user" if scope == "user" else "systemctl"


def findings(unit: Written) -> Iterator[Finding]:
    """Return what is wrong with a unit that is installed; at the end its state."""
    yield from problems(unit)
    enabled, active = state(unit)
    text = f"{enabled}, {active}; {unit.config} at {unit.mount_point}"
    if active == "failed":
        logs = f"journalctl {'--user ' if unit.scope == 'user' else ''}-u {unit.unit}"
        yield Finding("FAIL", text, f"'{logs}' says why")
    elif active == "unknown":
        yield Finding("warn", f"its state is unknown, since no systemd of the {unit.scope} answers; {text}")
    else:
        starts = f"'{command(unit.scope)} enable --now {unit.unit}' mounts, now and at each start"
        yield Finding("ok", text, None if enabled == "enabled" else starts)


def problems(unit: Written) -> Iterator[Finding]:
    """Return what keeps a unit that is installed from being started."""
    if unit.is_changed:
        remedy = f"'{command(unit.scope)} edit {unit.unit}' makes a drop-in, which an installation leaves alone"
        yield Finding("warn", "somebody has changed the file", remedy)
    yield from _verified(unit)
    yield from _paths(unit)
    if unit.scope == "system":
        yield from _account(unit)


def _verified(unit: Written) -> Iterator[Finding]:
    """Return the faults that systemd sees in the file; nothing is started, and no running systemd is needed."""
    with tempfile.TemporaryDirectory(prefix="bbfs-") as runtime:
        words = ["systemd-analyze", f"--{unit.scope}", "--man=no", "--recursive-errors=no", "verify", str(unit.path)]
        try:
            done = _run(words, XDG_RUNTIME_DIR=os.environ.get("XDG_RUNTIME_DIR", runtime))
        except BbfsError as error:
            yield Finding("warn", f"not verified: {error}")
            return
    said = [line for line in done.stderr.splitlines() if line.strip()]
    if done.returncode != 0 or said:
        yield Finding("FAIL", said[0] if said else "systemd refuses it", f"'systemd-analyze verify {unit.path}'")


def _paths(unit: Written) -> Iterator[Finding]:
    again = f"bbfs service install --{unit.scope} {unit.name}"
    if not os.access(unit.program[0], os.X_OK):
        yield Finding(
            "FAIL", f"{unit.program[0]} is no program any more", f"'{again}' by the bbfs that is installed now"
        )
    for path in (unit.config, *unit.credentials.values()):
        if not os.path.exists(path) and os.access(os.path.dirname(path) or "/", os.X_OK):
            yield Finding("FAIL", f"{path} does not exist", "make it, or install the unit again with another one")


def _account(unit: Written) -> Iterator[Finding]:
    """Return what keeps the user of a mount of the machine from mounting for all users."""
    if unit.user == "root":
        return
    try:
        account = pwd.getpwnam(unit.user)
    except KeyError:
        add = f"useradd --system --user-group --create-home --home-dir /var/lib/{unit.user} --shell /usr/sbin/nologin"
        yield Finding("FAIL", f"there is no user {unit.user}", f"as root: {add} {unit.user}")
        return
    if os.geteuid() == 0 and (why := _cannot_run(unit, account)) is not None:
        remedy = "install bbfs where that user can run it, such as /opt or /usr/local, or choose a user with --as"
        yield Finding("FAIL", f"the user {unit.user} cannot run {unit.program[0]}: {why}", remedy)
    lines = FUSE_CONF.read_text("utf-8", "replace").splitlines() if FUSE_CONF.exists() else []
    if not any(line.strip() == "user_allow_other" for line in lines):
        remedy = f"as root: echo user_allow_other >> {FUSE_CONF}"
        yield Finding("FAIL", f"user_allow_other is not in {FUSE_CONF}, so no other user could see the mount", remedy)


def _cannot_run(unit: Written, account: pwd.struct_passwd) -> str | None:
    """Return why the user of a unit cannot run bbfs; None if that works, or nothing is there to run. For root."""
    path = unit.program[0]
    if not os.access(path, os.X_OK):
        return None  # reported as missing
    try:
        done = subprocess.run(
            [*unit.program, "--version"],
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            cwd="/",
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it does not end within {ENDS_WITHIN:g} s"
    except OSError as error:
        return error.strerror
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it fails"])[-1]
