"""Passes changes on: a bus calls its listeners, and a queue bounds what waits for one client."""

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Generic, TypeVar

import trio

log = logging.getLogger(__name__)

ChangeT = TypeVar("ChangeT")
MessageT = TypeVar("MessageT", bound=Hashable)

TAKEN_AT_ONCE = 100


class Bus(Generic[ChangeT]):
    """Calls all listeners with each change, in the order of their subscriptions. A listener must not block."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[ChangeT], None]] = {}

    def subscribe(self, listener: Callable[[ChangeT], None]) -> Callable[[], None]:
        """Return a function that ends the subscription."""
        token = object()

        def end() -> None:
            self._listeners.pop(token, None)

        self._listeners[token] = listener
        return end

    def notify(self, change: ChangeT) -> None:
        """Call every listener. Log the error of one that raises, and call the others."""
        for listener in tuple(self._listeners.values()):
            try:
                listener(change)
            except Exception:
                log.exception("a listener to changes failed")

    async def publish(self, event: ChangeT) -> None:
        """Notify, and let the listeners' tasks work before the next change."""
        self.notify(event)
        await trio.lowlevel.checkpoint()


class ClientQueue(Generic[MessageT]):
    """The messages that wait for one client: answers first, then changes. Equal changes are one.

    most: messages that may wait. A change that exceeds it drops all changes. missed: returns the messages in the place
    of the dropped ones; it is not needed if there are no `most` different changes.
    """

    def __init__(self, most: int, missed: Callable[[Iterable[MessageT]], Iterable[MessageT]] = list) -> None:
        self._most = most
        self._missed = missed
        self._answers: deque[MessageT] = deque()
        self._changes: dict[MessageT, None] = {}
        self._taken = 0
        self._filled = trio.Event()
        self._sent = trio.Event()

    def __len__(self) -> int:
        """Return the number of messages that wait or are being sent."""
        return len(self._answers) + len(self._changes) + self._taken

    def answer(self, message: MessageT) -> None:
        """Queue a message that is never dropped. Wait with `fewer_than` before a request is accepted."""
        self._answers.append(message)
        self._filled.set()

    def offer(self, change: MessageT) -> None:
        """Queue a change."""
        self._changes[change] = None
        if len(self) > self._most:
            self._changes = dict.fromkeys(self._missed(self._changes))
        self._filled.set()

    async def take(self) -> list[MessageT]:
        """Wait for messages, and return the first. The next call says that they are sent."""
        self._taken = 0
        self._sent.set()
        self._sent = trio.Event()
        while not self:
            await self._filled.wait()
            self._filled = trio.Event()
        taken = [self._answers.popleft() for _ in range(min(TAKEN_AT_ONCE, len(self._answers)))]
        for change in list(islice(self._changes, TAKEN_AT_ONCE - len(taken))):
            del self._changes[change]
            taken.append(change)
        self._taken = len(taken)
        return taken

    async def fewer_than(self, count: int) -> None:
        """Wait until fewer messages than that wait or are being sent."""
        while len(self) >= count:
            await self._sent.wait()
