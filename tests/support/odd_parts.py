"""The parts of a JSON value, each replaced in turn: for tests that one odd part takes nothing else away."""

from collections.abc import Iterator
from typing import Any


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each part of a JSON value."""
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, below in inner:
        yield from places(below, (*place, step))


def with_part(value: Any, place: tuple[Any, ...], part: Any) -> Any:
    """Return a JSON value with another part at a place."""
    if not place:
        return part
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[place[0]] = with_part(changed[place[0]], place[1:], part)
    return changed
