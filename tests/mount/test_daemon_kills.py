"""`kill -9` of the daemon while programs create, rename and remove names: afterwards nothing hangs (S26).

`make kills` has 50 rounds.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from harness import NOTIFIER, Mount, Mounts
from programs import children_of, wait_until

from bbfs.fuse import mountpoint

ROUNDS = int(os.environ.get("DAEMON_KILLS", "2"))
PROGRAMS = 16
BOUND = 30.0
CHANGES = """
import os, sys
directory, number = sys.argv[1:]
print(flush=True)
path = os.path.join(directory, "file " + number)
while True:
    with open(path + " beside", "w") as file:
        file.write(number)
    os.rename(path + " beside", path)
    os.listdir(directory)
    os.unlink(path)
"""


def started(directory: Path) -> list[subprocess.Popen[bytes]]:
    return [
        subprocess.Popen(
            [sys.executable, "-S", "-c", CHANGES, directory, str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for number in range(PROGRAMS)
    ]


def end(programs: Sequence[subprocess.Popen[bytes]]) -> None:
    for program in programs:
        program.kill()
        assert program.stdout is not None
        program.stdout.close()
    for program in programs:
        program.wait(BOUND)


def notifiers(mount: Mount) -> list[int]:
    """Return the PIDs of the daemon's processes that notify the kernel."""
    found: list[int] = []
    for child in children_of(mount.pid):
        with suppress(OSError):
            if NOTIFIER in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                found.append(child)
    return found


def _none_left(mount: Mount) -> bool:
    return not mount.state.processes()


@pytest.mark.semantics("S22", "S26.1")
@pytest.mark.timeout(60 + 20 * ROUNDS)
@pytest.mark.parametrize("kills", ["the daemon", "the daemon and its notifier"])
def test_nothing_hangs_after_a_kill_of_the_daemon(mounted: Mounts, kills: str) -> None:
    random_ = random.Random(ROUNDS)
    source = {"name": "pad", "type": "memory", "capabilities": ["read", "list", "write"]}
    for _ in range(ROUNDS):
        mount = mounted(source)
        programs = started(mount / "bb-memory+pad+memory")
        try:
            for program in programs:
                assert program.stdout is not None
                program.stdout.readline()
            time.sleep(random_.random())  # the moment of the kill is what is random here
            killed = [mount.pid, *(notifiers(mount) if kills != "the daemon" else ())]
            for pid in killed:
                os.kill(pid, 9)
            if kills == "the daemon":
                for program in programs:
                    assert program.wait(BOUND) == 1, "its call failed"
            mount.bbfs("umount", mount.path, timeout=2 * BOUND)
            assert mountpoint.mount_at(str(mount.path)) is None
            for program in programs:
                assert program.wait(BOUND) == 1, "its call failed"
            mount.process.wait(BOUND)
            wait_until(partial(_none_left, mount), "no process hangs", BOUND)
        finally:
            end(programs)
        mount.destroy()
