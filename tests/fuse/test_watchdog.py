"""The watchdog of a service manager: it is fed while the mount answers, and only then."""

import socket
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from bbfs.fuse.service.sd_notify import ServiceManager
from bbfs.fuse.service.watchdog import SelfCheck, feed

PATIENCE = 10.0


class Answers(SelfCheck):
    """Stands in for the check of a mount: what is said, in turn, and the last for ever."""

    def __init__(self, *said: bool) -> None:
        super().__init__("/nowhere")
        self._said = list(said)

    async def answers(self, within: float) -> bool:
        return self._said.pop(0) if len(self._said) > 1 else self._said[0]


@pytest.mark.parametrize(("said", "times"), [((True,), 3), ((False,), 0), ((True, False, True), 2)])
async def test_only_a_mount_that_answers_feeds_the_watchdog(
    autojump_clock: trio.testing.MockClock, tmp_path: Path, said: tuple[bool, ...], times: int
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        with trio.move_on_after(31.0):  # three checks of a watchdog of thirty seconds
            environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}
            await feed(ServiceManager(environ), Answers(*said))
        fed = 0
        while True:
            try:
                assert manager.recv(4096) == b"WATCHDOG=1"
            except BlockingIOError:
                break
            fed += 1
    assert fed == times


async def test_a_directory_where_no_mount_is_any_more_needs_no_answer(tmp_path: Path) -> None:
    """After a lazy unmount the daemon serves open files, and nothing at the path says how it fares."""
    assert await SelfCheck(str(tmp_path), (sys.executable, "-c", "raise SystemExit(1)")).answers(PATIENCE)
