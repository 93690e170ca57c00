"""Requests of one kind that go to the server together, so that many cost little more than one."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

TOGETHER = 32
"""Items of one request."""
UNHURRIED = 0.02
"""Seconds for which items that no reader waits for wait for others to go with."""


class _Item:
    """An item, and what the server has answered to it. done: set when there is an answer, or will be none."""

    __slots__ = ("answer", "done", "item")

    def __init__(self, item: Any) -> None:
        self.item = item
        self.answer: Any = None
        self.done = trio.Event()


class _Queue:
    """The items of a source that wait for the next request. hurry: set when it must not wait for more of them."""

    __slots__ = ("hurry", "items")

    def __init__(self) -> None:
        self.items: deque[_Item] = deque()
        self.hurry = trio.Event()


class Together:
    """Items of a source that come while a request of its earlier ones is under way share the next request.

    send: sends the items of a source, and returns the answer to each of them, in their order, or None. It is bounded in
    time, and raises nothing but cancellation.
    """

    def __init__(self, send: Callable[[str, Sequence[Any]], Awaitable[Any]]) -> None:
        self._send = send
        self._queues: dict[str, _Queue] = {}

    async def ask(self, nursery: trio.Nursery, source: str, item: Any, *, urgent: bool) -> Any:
        """Return the answer to an item, or None. nursery: for requests, which go on if their callers are cancelled."""
        asked, queue = _Item(item), self._queues.get(source)
        if queue is None:
            queue = self._queues[source] = _Queue()
            nursery.start_soon(self._run, source, queue)  # it begins after the tasks that are ready now
        queue.items.append(asked)
        if urgent or len(queue.items) >= TOGETHER:
            queue.hurry.set()
        await asked.done.wait()
        return asked.answer

    async def _run(self, source: str, queue: _Queue) -> None:
        some: list[_Item] = []
        try:
            while queue.items:
                with trio.move_on_after(UNHURRIED):
                    await queue.hurry.wait()
                some = [queue.items.popleft() for _ in range(min(len(queue.items), TOGETHER))]
                if not queue.items:
                    queue.hurry = trio.Event()
                answers = await self._send(source, [each.item for each in some])
                if isinstance(answers, list) and len(answers) == len(some):
                    for each, answer in zip(some, answers, strict=True):
                        each.answer = answer
                for each in some:
                    each.done.set()
        finally:
            del self._queues[source]
            for each in (*some, *queue.items):
                each.done.set()
