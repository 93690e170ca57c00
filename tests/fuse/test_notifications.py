"""The queue of notifications to the kernel: its bound, its order and its end."""

import errno
import logging
import threading
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from bbfs.fuse.notifications import LATEST, MOST, Names, Notifications
from bbfs.model.values import Change
from bbfs.vfs.names import DirectoryLocks

BOUND = 10.0


def nothing_held(change: Change) -> Iterator[Names]:
    yield []


async def test_more_than_the_bound_become_all_that_the_kernel_holds(nursery: trio.Nursery) -> None:
    sent: list[tuple[int, bytes]] = []
    asked: list[Change] = []
    done = threading.Event()

    def send(parent: int, name: bytes) -> None:
        sent.append((parent, name))
        done.set()

    def held_below(change: Change) -> Iterator[Names]:
        asked.append(change)
        yield [(2, b"held")]

    notifications = Notifications(send)
    for number in range(MOST + 1):
        notifications.invalidate(1, str(number).encode())
        assert len(notifications) <= MOST
    nursery.start_soon(notifications.run, held_below, DirectoryLocks())
    with trio.fail_after(BOUND):
        await trio.to_thread.run_sync(done.wait, BOUND)
    assert sent == [(2, b"held")]
    assert asked[0].paths == {()}
    assert asked[0].below
    nursery.cancel_scope.cancel()


async def test_what_waits_is_dropped_at_the_end() -> None:
    sent: list[bytes] = []
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def send(parent: int, name: bytes) -> None:
        sent.append(name)
        begun.set()
        go.wait(BOUND)
        ended.set()

    notifications = Notifications(send)
    for number in range(100):
        notifications.invalidate(1, str(number).encode())
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(notifications.run, nothing_held, DirectoryLocks())
            await trio.to_thread.run_sync(begun.wait, BOUND)
            nursery.cancel_scope.cancel()
        go.set()
        await trio.to_thread.run_sync(ended.wait, BOUND)
    assert sent == [b"0"]


async def test_a_name_that_the_kernel_does_not_hold_stops_nothing(nursery: trio.Nursery) -> None:
    done = threading.Event()

    def send(parent: int, name: bytes) -> None:
        if name == b"last":
            done.set()
        raise FileNotFoundError

    notifications = Notifications(send)
    notifications.invalidate(1, b"first")
    notifications.invalidate(1, b"last")
    nursery.start_soon(notifications.run, nothing_held, DirectoryLocks())
    assert await trio.to_thread.run_sync(done.wait, BOUND)
    nursery.cancel_scope.cancel()


async def test_a_change_that_nobody_can_be_told_of_any_more_is_no_error(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[bytes] = []
    done = threading.Event()

    def send(parent: int, name: bytes) -> None:
        tried.append(name)
        if name == b"last":
            done.set()
        raise OSError(errno.ENODEV, "the mount is gone")

    notifications = Notifications(send)
    notifications.invalidate(1, b"first")
    notifications.invalidate(1, b"last")
    nursery.start_soon(notifications.run, nothing_held, DirectoryLocks())
    assert await trio.to_thread.run_sync(done.wait, BOUND)
    assert tried == [b"first", b"last"]
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
    nursery.cancel_scope.cancel()


async def test_a_name_waits_while_a_request_has_locked_its_directory(nursery: trio.Nursery) -> None:
    """A thread that the kernel blocks there cannot be killed, and would keep the mount of a killed daemon alive."""
    sent: list[bytes] = []
    free, in_use = threading.Event(), threading.Event()

    def send(_: int, name: bytes) -> None:
        sent.append(name)
        (free if name == b"free" else in_use).set()

    locks = DirectoryLocks()
    notifications = Notifications(send)
    nursery.start_soon(notifications.run, nothing_held, locks)
    with trio.fail_after(BOUND):
        with locks.held(1):
            notifications.invalidate(1, b"in use")
            notifications.invalidate(2, b"free")
            await trio.to_thread.run_sync(free.wait, BOUND)
            assert sent == [b"free"]
        await trio.to_thread.run_sync(in_use.wait, BOUND)
    nursery.cancel_scope.cancel()


async def test_names_of_a_busy_directory_are_not_looked_at_one_by_one(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """A program that writes ten thousand files to a directory would keep the loop busy with its notifications."""
    looks: list[int] = []

    class Locks(DirectoryLocks):
        def in_use(self, directory: int) -> bool:
            looks.append(directory)
            return super().in_use(directory)

    locks = Locks()
    notifications = Notifications(lambda *_: None)
    nursery.start_soon(notifications.run, nothing_held, locks)
    with locks.held(1):
        for number in range(1000):
            notifications.invalidate(1, str(number).encode())
        await trio.sleep(1)
        assert len(notifications) == 1000
    assert 0 < len(looks) <= 20
    nursery.cancel_scope.cancel()


async def test_a_name_is_sent_although_its_directory_is_in_use_all_the_time(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sent = trio.Event()
    token = trio.lowlevel.current_trio_token()
    locks = DirectoryLocks()
    notifications = Notifications(lambda *_: token.run_sync_soon(sent.set))
    nursery.start_soon(notifications.run, nothing_held, locks)
    notifications.invalidate(1, b"name")

    async def use() -> None:
        while True:
            locks.used(1)
            await trio.sleep(0.01)

    nursery.start_soon(use)
    began = trio.current_time()
    await sent.wait()
    assert trio.current_time() - began >= LATEST
    nursery.cancel_scope.cancel()
