"""A killed daemon whose notification waits for a program in the kernel, which waits for the daemon."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from glob import glob
from pathlib import Path

import pytest
from programs import wait_until, waits_in_fuse

from bbfs.fuse import mounting, mountpoint

BOUND = 30.0
DAEMON = """
import errno, os, stat, sys

import pyfuse3
import trio

from bbfs.fuse.kernel_notices import Notifier, devices
from bbfs.fuse.notifier_process import notification


class Hanging(pyfuse3.Operations):
    def init(self):
        agreed.set()

    async def getattr(self, inode, ctx):
        entry = pyfuse3.EntryAttributes()
        entry.st_ino, entry.st_mode, entry.attr_timeout = inode, stat.S_IFDIR | 0o755, 3600
        return entry

    async def lookup(self, parent, name, ctx):
        raise pyfuse3.FUSEError(errno.ENOENT)

    async def mkdir(self, parent, name, mode, ctx):
        print("asked", flush=True)
        await trio.sleep_forever()


async def serve():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pyfuse3.main)
        notifier = Notifier(device)
        await notifier.send([(4711, b"the kernel has no such directory")])
        await agreed.wait()  # before that, requests would wait elsewhere in the kernel
        print("serves", flush=True)
        if sys.argv[2] == "unread":  # no request is read any more
            sys.stdin.readline()
        else:
            await trio.to_thread.run_sync(sys.stdin.readline)
        os.write(notifier._started[0].fileno(), notification(pyfuse3.ROOT_INODE, b"name"))
        sys.stdin.readline()


agreed = trio.Event()
others = devices()
pyfuse3.init(Hanging(), sys.argv[1], {"fsname=bbfs", "subtype=bbfs"})
(device,) = devices() - others
trio.run(serve)
"""


@pytest.fixture
def point() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="bbfs-mnt-"))
    yield path
    while (mount := mountpoint.mount_at(str(path))) is not None:
        mounting.abort(mount)
        mounting.unmount(str(path))
    path.rmdir()


def blocked() -> set[int]:
    """Return the threads that wait in the kernel for the lock of a directory, in order to drop a name there."""
    found: set[int] = set()
    for wchan in glob("/proc/[0-9]*/task/[0-9]*/wchan"):
        with suppress(OSError):
            if "fuse_reverse_inval_entry" in Path(wchan).read_text():
                found.add(int(wchan.split("/")[-2]))
    return found


@pytest.mark.semantics("S22", "S26.1")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees in which function of the kernel a thread waits")
@pytest.mark.parametrize("request_is", ["read", "unread"])
def test_a_killed_daemon_frees_the_program_that_its_notification_waits_for(point: Path, request_is: str) -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, point, request_is], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    program: subprocess.Popen[bytes] | None = None
    try:
        assert daemon.stdout.readline() == "serves\n"
        program = subprocess.Popen(["mkdir", point / "new"], stderr=subprocess.DEVNULL)
        if request_is == "read":
            assert daemon.stdout.readline() == "asked\n"
        wait_until(lambda: program and waits_in_fuse(program.pid), "the program waits", BOUND)
        already = blocked()
        daemon.stdin.write("\n")
        daemon.stdin.flush()
        wait_until(lambda: blocked() - already, "the notification waits for the lock", BOUND)
        waiting = blocked() - already
        daemon.kill()
        assert daemon.wait(BOUND) == -signal.SIGKILL
        assert program.wait(BOUND) == 1
        wait_until(lambda: not blocked() & waiting, "no thread hangs", BOUND)
        wait_until(lambda: mounting.is_dead(str(point)), "the connection ends", BOUND)
    finally:
        daemon.kill()
        mount = mountpoint.mount_at(str(point))
        if mount is not None:
            mounting.abort(mount)
        if program is not None:
            program.wait(BOUND)
        daemon.wait(BOUND)
        daemon.stdin.close()
        daemon.stdout.close()


UNGREETED = """
import errno, os, struct, sys

import pyfuse3

from bbfs.fuse.kernel_notices import devices

others = devices()
pyfuse3.init(pyfuse3.Operations(), sys.argv[1], {"fsname=bbfs", "subtype=bbfs"})
(device,) = devices() - others
_, _, unique = struct.unpack_from("=IIQ", os.read(device, 1 << 20))
os.write(device, struct.pack("=IiQ", 16, -errno.ECONNABORTED, unique))  # as the notifier answers for a killed daemon
print("refused", flush=True)
sys.stdin.readline()
"""


def test_a_mount_whose_daemon_never_agreed_on_the_protocol_is_dead(point: Path) -> None:
    command = [sys.executable, "-c", UNGREETED, point]
    daemon = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    try:
        assert daemon.stdout.readline() == "refused\n"
        assert mounting.is_dead(str(point))
    finally:
        daemon.kill()
        daemon.wait(BOUND)
        daemon.stdin.close()
        daemon.stdout.close()
