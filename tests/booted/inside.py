"""What runs in the container of boot.py: `prepare` before it boots, and `boot` once it is up.

Only the standard library, and programs of the container: bbfs runs as its services run it.
"""

import json
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

UNIT, POINT, CONFIG = "bbfs-docs.service", Path("/mnt/bbfs/docs"), Path("/etc/bbfs/docs.toml")
NOTES = Path("/srv/notes")
FILE = POINT / "bb-filesystem+notes+file/hello.txt"
SOURCE = '[[sources]]\nname = "{}"\ntype = "filesystem"\nconfig = {{ root = "{}" }}\n'
WATCHDOG = 9
"""Seconds, in place of thirty."""
PATIENCE = 90.0
"""Seconds for whatever systemd has to do."""


class Failed(Exception):
    """What was expected and did not come."""


def run(*words: str, status: int | None = 0, environ: Mapping[str, str] | None = None) -> str:
    """Run a program, and return what it prints. Raise Failed for another exit status; None allows each."""
    env = os.environ | (environ or {})
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, env=env, cwd="/", check=False)
    if status is not None and done.returncode != status:
        raise Failed(f"{' '.join(words)}: exit status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def until(what: str, holds: Callable[[], bool]) -> float:
    """Wait until something holds, and return the seconds that took. Raise Failed."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > PATIENCE:
            raise Failed(f"not within {PATIENCE:g} s: {what}\n{run('systemctl', 'status', UNIT, status=None)}")
        time.sleep(0.05)
    return time.monotonic() - began


def shown(name: str) -> str:
    """Return a property of the unit."""
    return run("systemctl", "show", "--value", f"--property={name}", UNIT).strip()


def read(path: Path = FILE, user: str = "nobody") -> str:
    """Return what a user reads in a file of the mount, or the error."""
    words = ["timeout", "-s", "KILL", "20", "cat", str(path)]
    account = pwd.getpwnam(user)  # a mount is for its user, in the group of the daemon
    done = subprocess.run(
        words, user=account.pw_uid, group=account.pw_gid, cwd="/", capture_output=True, text=True, check=False
    )
    return (done.stdout + done.stderr).strip()


def reads(path: Path = FILE) -> bool:
    """Return whether another user can read a file of the mount."""
    return read(path) == "hello"


def mounts(point: Path = POINT) -> int:
    """Return how many file systems are mounted there."""
    return sum(line.split()[4] == str(point) for line in Path("/proc/self/mountinfo").read_text().splitlines())


def require(condition: bool, what: str) -> None:
    """Raise Failed with what was expected."""
    if not condition:
        raise Failed(what)


def prepare(root: Path) -> None:
    """Set the machine up: a user, a source, a service that is enabled."""
    for parent in root.parents:
        parent.chmod(0o755)  # made for the bind mount; the user bbfs has to come through
    run("useradd", "--system", "--user-group", "--create-home", "--home-dir", "/var/lib/bbfs", "bbfs")
    run("useradd", "--create-home", "me")
    with open("/etc/fuse.conf", "a") as file:
        file.write("user_allow_other\n")
    if not os.path.lexists("/etc/mtab"):
        os.symlink("../proc/self/mounts", "/etc/mtab")
    NOTES.mkdir()
    (NOTES / "hello.txt").write_text("hello\n")
    CONFIG.parent.mkdir()
    CONFIG.write_text(SOURCE.format("notes", "${credential:where}"))
    secret = Path("/etc/bbfs/where")
    secret.write_text(f"{NOTES}\n")
    secret.chmod(0o600)
    bbfs = f"{root}/.venv/bin/bbfs"
    said = run(bbfs, "service", "install", "--system", "docs", "--credential", f"where={secret}")
    require("systemd has not read it yet" in said, said)  # none runs: the unit is written all the same
    drop_in = Path(f"/etc/systemd/system/{UNIT}.d")
    drop_in.mkdir()
    (drop_in / "sooner.conf").write_text(f"[Service]\nWatchdogSec={WATCHDOG}s\n")
    run("systemctl", "enable", UNIT)


class Boot:
    """The steps, in their order. Each returns what it has seen."""

    def __init__(self, root: Path) -> None:
        self._bbfs = f"{root}/.venv/bin/bbfs"

    def _pid(self) -> int:
        return int(shown("MainPID"))

    def _back(self, pid: int) -> str:
        """Wait for another daemon and its mount."""
        seconds = until("another daemon", lambda: self._pid() not in (0, pid) and shown("ActiveState") == "active")
        require(reads(), "the mount is read again")
        require(mounts() == 1, "one mount, and no other below it")
        return f"another daemon serves after {seconds:.1f} s"

    def starts_at_boot(self) -> str:
        seconds = until("active", lambda: shown("ActiveState") == "active")
        require(reads(), "another user reads the mount")
        require(shown("User") == "bbfs", "the daemon is not root's")
        require("Permission denied" in read(Path("/etc/bbfs/where"), "bbfs"), "the file of the credential is root's")
        return f"active {seconds:.1f} s after the others; another user reads it; its folder is named by a credential"

    def reports(self) -> str:
        until("a report of the sources", lambda: "source" in shown("StatusText"))
        return shown("StatusText")

    def doctor_finds_no_fault(self) -> str:
        found = json.loads(run(self._bbfs, "doctor", "--json", status=None))
        (about,) = [each for each in found if each["check"] == f"service {UNIT}"]
        require(about["level"] == "ok" and "enabled, active" in about["finding"], str(about))
        return str(about["finding"])

    def a_killed_daemon_is_started_again(self) -> str:
        pid = self._pid()
        os.kill(pid, signal.SIGKILL)
        return self._back(pid)

    def a_stopped_daemon_is_killed_by_the_watchdog(self) -> str:
        pid = self._pid()
        os.kill(pid, signal.SIGSTOP)
        said = self._back(pid)
        require("Watchdog timeout" in run("journalctl", "-b", "-u", UNIT), "the journal names the watchdog")
        return said

    def a_healthy_daemon_is_left_alone(self) -> str:
        pid, restarts = self._pid(), shown("NRestarts")
        time.sleep(3 * WATCHDOG)
        require((self._pid(), shown("NRestarts")) == (pid, restarts), "no restart")
        return f"no restart in {3 * WATCHDOG} s, three times WatchdogSec"

    def stop_unmounts(self) -> str:
        began = time.monotonic()
        run("systemctl", "stop", UNIT)
        require(mounts() == 0, "nothing is mounted")
        require(shown("Result") == "success", "the daemon has ended with success")
        return f"after {time.monotonic() - began:.1f} s"

    def a_stale_mount_is_cleared_at_the_start(self) -> str:
        where = Path("/run/credentials-by-hand")
        where.mkdir(mode=0o755)
        (where / "where").write_text(f"{NOTES}\n")
        words = [self._bbfs, "mount", "--allow-other", "--config", str(CONFIG), str(POINT)]
        environ = {"PATH": os.environ["PATH"], "HOME": "/var/lib/bbfs", "CREDENTIALS_DIRECTORY": str(where)}
        daemon = subprocess.Popen(
            words, user="bbfs", group="bbfs", extra_groups=[], cwd="/", env=environ, stderr=subprocess.DEVNULL
        )
        until("a mount by hand", lambda: mounts() == 1 and reads())
        daemon.kill()
        daemon.wait(PATIENCE)
        until("a dead mount", lambda: "not connected" in run("ls", str(POINT), status=None))
        run("systemctl", "start", UNIT)
        require(reads(), "the mount is read")
        require(mounts() == 1, "the dead one is gone")
        return "the dead one is gone, and a live one is there"

    def stop_while_a_program_uses_the_mount(self) -> str:
        user = subprocess.Popen(["sleep", "1000"], cwd=POINT, user="nobody")
        try:
            began = time.monotonic()
            run("systemctl", "stop", UNIT)
            require(mounts() == 0, "nothing is mounted")
            taken = time.monotonic() - began
            run("systemctl", "start", UNIT)
            require(reads(), "the next mount is read")
        finally:
            user.kill()
        return f"after {taken:.1f} s, lazily"

    def reload_takes_a_new_configuration(self) -> str:
        pid = self._pid()
        CONFIG.write_text(CONFIG.read_text() + SOURCE.format("more", NOTES))
        run("systemctl", "reload", UNIT)
        until("the new source", lambda: reads(POINT / "bb-filesystem+more+file/hello.txt"))
        require(self._pid() == pid, "the daemon is the same")
        return "the new source is there, by the same daemon"

    def a_restart_keeps_the_mount(self) -> str:
        pid, number = self._pid(), next(each for each in self._numbers())
        words = ["sh", "-c", "exec 3<hello.txt; head -c 2 <&3; read _; head -c 4 <&3; cat hello.txt"]
        using = subprocess.Popen(
            words, cwd=FILE.parent, user="nobody", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        began = time.monotonic()
        run(self._bbfs, "service", "restart", "--system", "docs")
        until("the next daemon", lambda: "handing the mount over" in self._said() and reads())
        said, _ = using.communicate("\n", PATIENCE)
        require(said == "hello\nhello\n", f"a program goes on: {said!r}")
        require(self._pid() == pid and number in self._numbers(), "the same process and the same mount")
        return f"a program with a working directory and an open file goes on, after {time.monotonic() - began:.1f} s"

    def _said(self) -> str:
        return run("journalctl", "-b", "-u", UNIT)

    def _numbers(self) -> list[str]:
        """Return the ids of the mounts there."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return [line.split()[0] for line in lines if line.split()[4] == str(POINT)]

    def a_user_has_a_mount_too(self) -> str:
        run("loginctl", "enable-linger", "me")
        uid = run("id", "-u", "me").strip()
        until("a manager of the user", Path(f"/run/user/{uid}/systemd/private").exists)
        home = Path("/home/me")
        words = [self._bbfs, "service", "install", "docs", "--config", f"{home}/docs.toml", "--now"]
        (home / "docs.toml").write_text(SOURCE.format("notes", NOTES))
        there = {"XDG_RUNTIME_DIR": f"/run/user/{uid}", "HOME": str(home)}
        run("runuser", "-u", "me", "--", *words, environ=there)
        path = home / "bbfs/docs/bb-filesystem+notes+file/hello.txt"
        require(read(path, "me") == "hello", f"the user reads the mount: {read(path, 'me')}")
        require("Permission denied" in read(path), "nobody else does")
        run("runuser", "-u", "me", "--", self._bbfs, "service", "uninstall", "docs", environ=there)
        require(mounts(home / "bbfs/docs") == 0, "it is unmounted")
        return "installed, started, read by that user alone, uninstalled"

    def uninstall_leaves_nothing(self) -> str:
        run(self._bbfs, "service", "uninstall", "--system", "docs")
        require(mounts() == 0, "nothing is mounted")
        require(shown("LoadState") == "not-found", "systemd knows the unit no more")
        return "no unit, no mount"

    def security(self) -> str:
        lines = run("systemd-analyze", "security", "--no-pager", UNIT).splitlines()
        return lines[-1].strip(" →")


STEPS = (
    Boot.starts_at_boot,
    Boot.reports,
    Boot.doctor_finds_no_fault,
    Boot.security,
    Boot.a_killed_daemon_is_started_again,
    Boot.a_stopped_daemon_is_killed_by_the_watchdog,
    Boot.a_healthy_daemon_is_left_alone,
    Boot.stop_unmounts,
    Boot.a_stale_mount_is_cleared_at_the_start,
    Boot.stop_while_a_program_uses_the_mount,
    Boot.reload_takes_a_new_configuration,
    Boot.a_restart_keeps_the_mount,
    Boot.a_user_has_a_mount_too,
    Boot.uninstall_leaves_nothing,
)


def boot(root: Path) -> None:
    """Take each step, and print what came of it. The last line says whether all went well."""
    failed = 0
    version = run("systemctl", "--version").splitlines()[0]
    print(f"{version}, Linux {os.uname().release}, {run('systemd-detect-virt').strip()}", flush=True)
    machine = Boot(root)
    for step in STEPS:
        name = step.__name__.replace("_", " ")
        began = time.time()
        try:
            print(f"ok    {name}: {step(machine)}", flush=True)
        except (Failed, OSError, ValueError, subprocess.SubprocessError) as error:
            failed += 1
            print(f"FAIL  {name}: {error}", flush=True)
            print(run("journalctl", "-b", "--no-pager", f"--since=@{began:.0f}", "-n", "30", status=None), flush=True)
    print(f"{failed} failed" if failed else "all is well")


if __name__ == "__main__":
    {"prepare": prepare, "boot": boot}[sys.argv[1]](Path(sys.argv[2]))
