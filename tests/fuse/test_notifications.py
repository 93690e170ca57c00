"""The queue of notifications to the kernel: its bound, its order and its end."""

import errno
import logging
import threading
from collections.abc import Iterator

import pytest
import trio

from bbfs.fuse.notifications import MOST, Names, Notifications
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
