"""Where the answers to one request go."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Replies(Generic[A]):
    """Takes the answers to one request. give: waits until the client has room.

    tell: for progress and changes. It never waits, and a slow client misses some.
    """

    give: Callable[[A], Awaitable[None]]
    tell: Callable[[A], None]
