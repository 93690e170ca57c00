"""The tools of a source, and calls of them. All values are frozen."""

from collections.abc import Mapping
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
