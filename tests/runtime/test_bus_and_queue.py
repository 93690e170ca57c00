"""The bus and the queue, through which every change reaches its readers."""

import logging

import pytest
import trio
import trio.testing

from bbfs.runtime.changes import Bus, ClientQueue


def test_a_listener_that_raises_hides_a_change_from_no_other(caplog: pytest.LogCaptureFixture) -> None:
    bus: Bus[int] = Bus()
    heard: list[int] = []

    def fail(change: int) -> None:
        raise ZeroDivisionError

    bus.subscribe(fail)
    end = bus.subscribe(heard.append)
    bus.notify(0)
    end()
    end()
    bus.notify(1)
    assert heard == [0]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


async def test_a_queue_drops_its_changes_when_there_are_too_many_and_no_answer() -> None:
    queue: ClientQueue[str] = ClientQueue(5, lambda dropped: [f"missed {','.join(dropped)}"])
    queue.answer("ok")
    for change in "aab":
        queue.offer(change)
    with trio.fail_after(1):
        assert await queue.take() == ["ok", "a", "b"]
        for change in "cdef":
            queue.offer(change)
        assert await queue.take() == ["missed c,d,e", "f"]


async def test_a_message_counts_until_it_is_sent(nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    queue: ClientQueue[str] = ClientQueue(9)
    queue.answer("ok")
    sent = trio.Event()

    async def wait() -> None:
        await queue.fewer_than(1)
        sent.set()

    nursery.start_soon(wait)
    assert await queue.take() == ["ok"]
    await trio.testing.wait_all_tasks_blocked()
    assert not sent.is_set()
    nursery.start_soon(queue.take)
    with trio.fail_after(1):
        await sent.wait()
