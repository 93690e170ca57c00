"""Boot a Debian with systemd in a container, and try bbfs as its services there (`make booted`, as root).

The Debian comes from the mirror that apt of this machine uses, and stays in .booted/debian for the next time. What runs
inside, with this checkout and its environment, is inside.py. Its log is .booted/log.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".booted"
PACKAGES = "systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,fuse3,python3"
MADE_WITHIN, BOOTED_WITHIN = 900.0, 600.0
"""Seconds."""
INSIDE = "/booted"
"""Where the container has what inside.py reads and writes."""
UNIT = f"""\
[Unit]
After=multi-user.target
[Service]
Type=oneshot
StandardOutput=file:{INSIDE}/log
StandardError=inherit
ExecStart=-/usr/bin/python3 {ROOT}/tests/booted/inside.py boot {ROOT}
ExecStart=systemctl --no-block poweroff
"""
DEVICE = "c! /dev/fuse 0666 root root - 10:229\n"
"""For tmpfiles.d(5): a container has no udev, which makes the device by itself."""


def main() -> int:
    """Return 0 if everything inside went well."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    if os.geteuid() != 0:
        sys.exit("make booted: only root can boot a container")
    codename = _codename()
    debian, run, shared = PLACE / f"debian-{codename}", PLACE / "run", PLACE / "shared"
    if not debian.exists():
        _make(debian, codename)
    for each in (run, shared):
        shutil.rmtree(each, ignore_errors=True)
    shared.mkdir()
    subprocess.run(["cp", "--archive", "--reflink=auto", debian, run], check=True)
    _prepare(run, shared)
    log = shared / "log"
    try:
        _contain(run, shared, ["--boot"], PLACE / "console")
    except subprocess.TimeoutExpired:
        print(f"the container did not end within {BOOTED_WITHIN:g} s; {PLACE / 'console'} has what it printed")
    said = log.read_text() if log.exists() else ""
    print(said, end="")
    (PLACE / "log").write_text(said)
    shutil.rmtree(run, ignore_errors=True)
    return 0 if said.rstrip().endswith("\nall is well") else 1


def _codename() -> str:
    """Return the name of the Debian of this machine: the environment of the checkout is built for its Python."""
    lines = Path("/etc/os-release").read_text().splitlines()
    about = dict(line.split("=", 1) for line in lines if "=" in line)
    if about.get("ID") != "debian":
        sys.exit("make booted: only on Debian, whose Python and libfuse the container gets")
    return about["VERSION_CODENAME"]


def _make(debian: Path, codename: str) -> None:
    """Make a Debian beside, and put it in place when it is whole."""
    PLACE.mkdir(exist_ok=True)
    beside = debian.with_suffix(".part")
    shutil.rmtree(beside, ignore_errors=True)
    command = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", codename, str(beside)]
    subprocess.run(command, check=True, timeout=MADE_WITHIN)
    beside.rename(debian)


def _prepare(run: Path, shared: Path) -> None:
    """Install the service of the machine as on a machine that is set up before it boots."""
    (run / "etc/tmpfiles.d/fuse.conf").write_text(DEVICE)
    units = run / "etc/systemd/system"
    (units / "booted.service").write_text(UNIT)
    (units / "multi-user.target.wants/booted.service").symlink_to("../booted.service")
    script = ["/usr/bin/python3", f"{ROOT}/tests/booted/inside.py", "prepare", str(ROOT)]
    _contain(run, shared, script, PLACE / "console")


def _contain(run: Path, shared: Path, command: list[str], console: Path) -> None:
    """Run a command, or boot, in the container."""
    alone = [] if Path("/run/systemd/system").exists() else ["--register=no", "--keep-unit"]
    options = [f"--directory={run}", f"--bind-ro={ROOT}", f"--bind={shared}:{INSIDE}", "--link-journal=no", "--quiet"]
    with console.open("ab") as output:
        subprocess.run(
            ["systemd-nspawn", *alone, *options, *command],
            check=command != ["--boot"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=BOOTED_WITHIN,
        )


if __name__ == "__main__":
    sys.exit(main())
