"""The watchdog of a service manager, which the daemon feeds while its mount answers.

The loop of the daemon may turn while the mount answers nobody, so a loop that turns is not enough. A process never
touches the mount that it serves: it would wait for itself. So each check is a process of its own, which asks for
statfs(2): the kernel caches no answer of that, and passes each call to the daemon.
"""

import logging
import subprocess
import sys

import trio

from bbfs.fuse import mountpoint
from bbfs.fuse.service.sd_notify import ServiceManager

log = logging.getLogger(__name__)

_ASK = "import os, sys; os.statvfs(sys.argv[1])"


class SelfCheck:
    """Checks one mount, again and again. path: its canonical path. program: what asks, in place of a small Python."""

    def __init__(self, path: str, program: tuple[str, ...] = (sys.executable, "-I", "-S", "-c", _ASK)) -> None:
        self._path = path
        self._program = program
        self._asking: trio.Process | None = None
        """The latest process that asks. One that waits in the mount in vain may not end, even if it is killed."""

    async def answers(self, within: float) -> bool:
        """Return whether the mount answers within so many seconds. At most one process asks at a time.

        A path at which no mount of bbfs is any more counts as an answer: after a lazy unmount the daemon serves what
        programs have open, and ends by itself.
        """
        found = mountpoint.mount_at(self._path)
        if found is None or not found.is_bbfs:
            return True
        with trio.move_on_after(within):
            if self._asking is None:
                self._asking = await trio.lowlevel.open_process(
                    [*self._program, self._path],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            status = await self._asking.wait()
            self._asking = None
            return status == 0
        self.end()
        return False

    def end(self) -> None:
        """Kill the process that asks. A killed one that the mount still holds counts as the next check."""
        if self._asking is not None:
            self._asking.kill()


async def feed(service: ServiceManager, check: SelfCheck) -> None:
    """Feed the watchdog, if there is one, as long as this loop turns and the mount answers.

    A check begins after a third of the time of the watchdog and may take another third, so one late answer kills no
    daemon.
    """
    watchdog = service.watchdog
    if watchdog is None:
        return
    try:
        while True:
            await trio.sleep(watchdog / 3)
            if await check.answers(watchdog / 3):
                service.tell(WATCHDOG="1")
            else:
                log.error("the mount does not answer this machine; the watchdog is not fed")
    finally:
        check.end()
