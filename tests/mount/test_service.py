"""The daemon under a service manager: what it tells a stand-in for systemd's notification socket."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio
from harness import Mount, Mounts, State, config_text, folder, mount_command
from notify_socket import PATIENCE, NotifySocket

from bbfs.fuse.service.watchdog import SelfCheck


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[NotifySocket]:
    with closing(NotifySocket(tmp_path / "notify")) as stand_in:
        yield stand_in


def test_a_service_manager_hears_of_start_health_and_stop(fuse: None, manager: NotifySocket, tmp_path: Path) -> None:
    state = State()
    config = tmp_path / "config.toml"
    (tmp_path / "notes").mkdir()
    config.write_text(config_text([folder("notes", tmp_path / "notes")], {}))
    point = tmp_path / "mnt"
    environ = state.environ() | {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "400000"}
    daemon = subprocess.Popen(
        [*mount_command(), str(config), str(point)],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        started = manager.expect("READY")
        assert started["READY"] == "1"
        assert started["MAINPID"] == str(daemon.pid)
        assert str(point) in started["STATUS"]
        assert manager.expect("WATCHDOG")["WATCHDOG"] == "1"
        assert "1 source" in manager.expect("STATUS")["STATUS"]
        daemon.terminate()
        assert manager.expect("STOPPING")["STOPPING"] == "1"
        _, said = daemon.communicate(timeout=PATIENCE)
        assert daemon.returncode == 0, said.decode()
        assert not os.path.ismount(point)
    finally:
        daemon.kill()
        daemon.communicate(timeout=PATIENCE)
        subprocess.run([sys.executable, "-c", UNMOUNT, str(point)], check=True, timeout=PATIENCE)
        state.remove()


@pytest.fixture
def mount(mounted: Mounts, tmp_path: Path) -> Mount:
    return mounted(folder("notes", tmp_path))


async def test_a_daemon_that_is_stopped_does_not_answer_until_it_goes_on(mount: Mount) -> None:
    check = SelfCheck(str(mount.path))
    assert await check.answers(PATIENCE)
    os.kill(mount.pid, signal.SIGSTOP)
    try:
        assert not await check.answers(0.2)
        assert not await check.answers(0.2)  # also while the killed process of the first one is held in the mount
    finally:
        os.kill(mount.pid, signal.SIGCONT)
    with trio.fail_after(PATIENCE):
        while not await check.answers(PATIENCE):
            pass


async def test_a_dead_mount_does_not_answer(mount: Mount) -> None:
    mount.kill()
    assert not await SelfCheck(str(mount.path)).answers(PATIENCE)
    mount.destroy()


UNMOUNT = "import sys; from bbfs.fuse import mounting; mounting.unmount(sys.argv[1])"
