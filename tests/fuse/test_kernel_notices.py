"""The queue of notifications to the kernel: its bound, its order and its end."""

import errno
from collections import defaultdict
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from bbfs.fuse.kernel_notices import EMPTIED_WITHIN, LATEST, MOST, Names, Notifications
from bbfs.model.values import Change
from bbfs.resources.catalog.record import PASSED
from bbfs.vfs.inode_table import DirectoryLocks

BOUND = 60.0


def nothing_held(change: Change) -> Iterator[Names]:
    yield []


class Kernel:
    """What it was sent, by name."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes]] = []
        self.got: dict[bytes, trio.Event] = defaultdict(trio.Event)

    async def send(self, names: Names) -> None:
        for parent, name in names:
            self.sent.append((parent, name))
            self.got[name].set()


async def test_more_than_the_bound_become_all_that_the_kernel_holds(nursery: trio.Nursery) -> None:
    asked: list[Change] = []
    kernel = Kernel()

    def held_below(change: Change) -> Iterator[Names]:
        asked.append(change)
        yield [(2, b"held")]

    notifications = Notifications(kernel.send)
    for number in range(MOST + 1):
        notifications.invalidate(1, str(number).encode())
        assert len(notifications) <= MOST
    nursery.start_soon(notifications.run, held_below, DirectoryLocks())
    with trio.fail_after(BOUND):
        await kernel.got[b"held"].wait()
    assert kernel.sent == [(2, b"held")]
    assert asked[0].paths == {()}
    assert asked[0].below
    nursery.cancel_scope.cancel()


@pytest.mark.semantics("S40.8")
async def test_names_in_passed_folders_are_sent_whatever_else_waits(nursery: trio.Nursery) -> None:
    """Nothing but the queue has these names."""
    kernel = Kernel()
    notifications = Notifications(kernel.send)
    passed = [(PASSED, str(number).encode()) for number in range(MOST + 1)]
    for parent, name in passed:
        notifications.invalidate(parent, name)
    for number in range(MOST + 1):
        notifications.invalidate(1, str(number).encode())
    nursery.start_soon(notifications.run, nothing_held, DirectoryLocks())
    with trio.fail_after(BOUND):
        await kernel.got[passed[-1][1]].wait()
    assert kernel.sent == passed
    nursery.cancel_scope.cancel()


async def test_a_change_of_which_the_kernel_cannot_be_notified_stops_nothing(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = Kernel()

    async def send(names: Names) -> None:
        await kernel.send(names)
        if names[0][0] == 1:
            raise OSError(errno.EMFILE, "no descriptor is free")

    notifications = Notifications(send)
    notifications.invalidate(1, b"first")
    notifications.invalidate(2, b"last")
    nursery.start_soon(notifications.run, nothing_held, DirectoryLocks())
    with trio.fail_after(BOUND):
        await kernel.got[b"last"].wait()
    assert "not notified of 1 names" in caplog.text
    nursery.cancel_scope.cancel()


async def test_a_name_waits_while_a_request_has_locked_its_directory(nursery: trio.Nursery) -> None:
    """The kernel takes it when the request has ended, and until then it takes no other name."""
    kernel = Kernel()
    locks = DirectoryLocks()
    notifications = Notifications(kernel.send)
    nursery.start_soon(notifications.run, nothing_held, locks)
    with trio.fail_after(BOUND):
        with locks.held(1):
            notifications.invalidate(1, b"in use")
            notifications.invalidate(2, b"free")
            await kernel.got[b"free"].wait()
            assert kernel.sent == [(2, b"free")]
        await kernel.got[b"in use"].wait()
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
    notifications = Notifications(Kernel().send)
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
    kernel = Kernel()
    locks = DirectoryLocks()
    notifications = Notifications(kernel.send)
    nursery.start_soon(notifications.run, nothing_held, locks)
    notifications.invalidate(1, b"name")

    async def use() -> None:
        while True:
            locks.used(1)
            await trio.sleep(0.01)

    nursery.start_soon(use)
    began = trio.current_time()
    await kernel.got[b"name"].wait()
    assert trio.current_time() - began >= LATEST
    nursery.cancel_scope.cancel()


async def test_a_command_waits_until_the_kernel_was_notified(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    gate, sent = trio.Event(), list[Names]()

    async def send(names: Names) -> None:
        await gate.wait()
        sent.append(names)

    notifications = Notifications(send)
    nursery.start_soon(notifications.run, nothing_held, DirectoryLocks())
    await notifications.emptied()
    began = trio.current_time()
    notifications.invalidate(1, b"a")
    await notifications.emptied()
    assert not sent
    assert trio.current_time() - began == EMPTIED_WITHIN  # a program holds the directory
    nursery.start_soon(notifications.emptied)
    gate.set()
    await notifications.emptied()
    assert sent == [[(1, b"a")]]
    assert trio.current_time() - began == EMPTIED_WITHIN
