"""Shared by all tests: how properties are tested, and what programs begin with."""

import ctypes
import gc
import logging
import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, settings
from repository import TESTS

from bbfs.fuse import mounting, mountpoint

if TYPE_CHECKING:
    from postgres_server import PostgresServer

# A shared machine may stop a test for seconds at any point: only the test's own bound counts.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# A shell starts what runs in its background with SIGINT ignored (POSIX, Shell Command Language, 2.11), nohup(1) with
# SIGHUP, and so would be every program that the tests start and send these to.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


_CLONE_NEWNS, _MS_PRIVATE_ALL, _MNT_DETACH = 0x20000, 0x4000 | 1 << 18, 2


def pytest_configure() -> None:
    """Have a table of mounts of our own. Commands look at all mounts of a user, and other tests mount meanwhile.

    Only root may; the mounts of other users' tests have names that no test asks for.
    """
    libc = ctypes.CDLL(None)
    if libc.unshare(_CLONE_NEWNS) == 0 and libc.mount(None, b"/", None, _MS_PRIVATE_ALL, None) == 0:
        for mount in mountpoint.own_mounts():  # copies in this table, which would keep their daemons alive
            libc.umount2(os.fsencode(mount.path), _MNT_DETACH)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers() -> int:
    """Return more workers than processors, since most tests wait for processes that they have started."""
    return len(os.sched_getaffinity(0)) + 2


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the directories of short files to the end. A worker has a whole file, and the last one should be short."""
    last = [TESTS / name for name in ("config", "fuse", "model", "resources")]
    items.sort(key=lambda item: any(directory in item.path.parents for directory in last))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from going through half a million objects that last until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hostile", action="store_true", help="run all attacks of tests/hostile, not only the quick ones")
    parser.addoption("--saves", action="store_true", help="run all of tests/mount/test_saves.py")


@pytest.fixture(scope="session")
def postgres() -> Iterator["PostgresServer"]:
    """A PostgreSQL server that the tests of a session share; each makes databases of its own."""
    from postgres_server import binaries, postgres_server

    if binaries() is None:
        if os.environ.get("CI"):
            pytest.fail("PostgreSQL is not installed")
        pytest.skip("PostgreSQL is not installed")
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def fuse() -> None:
    """Skip the test where this machine cannot mount; in CI that is a failure."""
    lack = mounting.missing()
    if lack is not None:
        if os.environ.get("CI"):
            pytest.fail(lack)
        pytest.skip(lack)


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Take back what a command of the test did to the log of this process: its level, and where it goes."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    for added in set(root.handlers).difference(handlers):
        root.removeHandler(added)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path leaves room for that of a Unix socket (107 bytes, unix(7)); `tmp_path` may not."""
    with tempfile.TemporaryDirectory(prefix="bbfs-") as directory:
        yield Path(directory)


class _ThreadsHold(trio.abc.Instrument):
    """Holds a clock while a thread works: a deadline must not pass because a thread is slow."""

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self._clock = clock

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._clock.autojump_threshold = inf if trio.testing.active_thread_count() else 0


@pytest.fixture
def autojump_clock() -> trio.testing.MockClock:
    """A clock that jumps to the next deadline when all tasks wait, unless one of them waits for a thread."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    start = clock.start_clock

    def start_clock() -> None:
        start()
        trio.lowlevel.add_instrument(_ThreadsHold(clock))

    setattr(clock, "start_clock", start_clock)  # noqa: B010  # MockClock is final
    return clock
