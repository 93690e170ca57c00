"""The tools of a source, and calls of them. All values are frozen, but for the time of a user."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolArgument:
    """One argument of a tool. type: in words. choices: the values that it allows, as texts; empty if it is free."""

    name: str
    type: str
    required: bool = False
    description: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of a source.

    read_only: whether it declares to change nothing. has_path: whether it may be run by opening a path.
    """

    name: str
    title: str | None = None
    description: str | None = None
    arguments: tuple[ToolArgument, ...] = ()
    read_only: bool = False
    has_path: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool. values: the texts of arguments, which its schema converts. given: other arguments, converted.

    confirmed: whether the user has said that a tool may run that does not declare to be read-only.
    """

    tool: str
    values: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    given: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a call: `done` of `total`, if that is known, and a text of the source."""

    done: float
    total: float | None = None
    text: str | None = None


class UserTime:
    """Stops the deadlines of calls while their user answers a question."""

    def __init__(self) -> None:
        self._calls: dict[object, Callable[[bool], None]] = {}

    @contextmanager
    def counted(self, stop: Callable[[bool], None]) -> Iterator[None]:
        """Have `stop` called with True when a question begins during the block, and with False after the answer."""
        call = object()
        self._calls[call] = stop
        try:
            yield
        finally:
            del self._calls[call]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the deadlines of all calls during the block. There is one question at a time."""
        for stop in tuple(self._calls.values()):
            stop(True)
        try:
            yield
        finally:
            for stop in tuple(self._calls.values()):
                stop(False)
