"""Pages of a JSON list as text, and how to join them. Pure.

Items keep their exact text: numbers keep their digits and objects the order of their keys. A page is an array, or an
object with an array of items (`{"items": […], "next": …}`), which may be one level down (`{"data": {"items": […]}}`).
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_ITEMS = (
    "items", "data", "results", "result", "value", "values", "records", "entries", "content", "hits", "rows", "list",
    "elements", "objects", "resources", "documents", "nodes", "members",
)  # fmt: skip
_AROUND = ("data", "_embedded", "result", "response", "hits", "body", "payload")
"""Members that hold the object with the items in many APIs."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list. text: all of it. start, end: where the array is in the text. items: the text of each item.

    around: the parsed page with an empty array for its items. where: the keys that lead to the array.
    """

    text: str
    start: int
    end: int
    items: tuple[str, ...]
    around: Any
    where: tuple[str, ...]

    @property
    def parsed(self) -> list[Any]:
        """The items, parsed."""
        return [json.loads(item) for item in self.items]


def page_of(body: bytes, hint: str = "", where: tuple[str, ...] | None = None) -> ListPage | None:
    """Parse a page, or return None if the answer is no list. hint: the probable key of the items. where: the keys from
    an earlier page."""
    try:
        text = body.decode("utf-8-sig")
        value = json.loads(text)
        if where is None:
            where = _place(value, hint)
        if where is None:
            return None
        start = _find(text, where)
        if start is None or text[start] != "[":
            return None
        items, end = _items(text, start)
        around = _emptied(value, where)
    except (ValueError, RecursionError, IndexError):
        return None
    return ListPage(text, start, end, tuple(items), around, where)


def _emptied(value: Any, where: Sequence[str]) -> Any:
    """Return the page without its items. Parsed items would take many times the memory of their text."""
    if not where:
        return []
    return {**value, where[0]: _emptied(value[where[0]], where[1:])}


def joined(pages: Sequence[ListPage]) -> bytes:
    """Join pages into one text: the last page with all items, one item a line."""
    last = pages[-1]
    items = ",\n".join(item for page in pages for item in page.items)
    array = f"[\n{items}\n]" if items else "[]"
    return f"{last.text[: last.start]}{array}{last.text[last.end :].rstrip()}\n".encode()


def _place(value: Any, hint: str) -> tuple[str, ...] | None:
    """Return the keys that lead to the items, or None."""
    if isinstance(value, list):
        return ()
    if not isinstance(value, dict):
        return None
    key = _key_of_items(value, hint)
    if key is not None:
        return (key,)
    for around in _AROUND:
        inner = value.get(around)
        if isinstance(inner, dict):
            key = _key_of_items(inner, hint)
            if key is not None:
                return around, key
    return None


def _key_of_items(value: dict[str, Any], hint: str) -> str | None:
    arrays = [key for key, inner in value.items() if isinstance(inner, list)]
    if hint in arrays:
        return hint
    named = next((key for key in _ITEMS if key in arrays), None)
    return named or (arrays[0] if len(arrays) == 1 else None)


def _find(text: str, where: Sequence[str]) -> int | None:
    """Return the offset of the value at these keys. Of duplicate keys the last one counts, as in `json`."""
    position = _skip(text, 0)
    for key in where:
        places = [at for name, at in _members(text, position) if name == key]
        if not places:
            return None
        position = places[-1]
    return position


def _members(text: str, start: int) -> Iterator[tuple[str, int]]:
    """Yield the names of the members of the object at `start`, and the offsets of their values."""
    position = _skip(text, start + 1)
    while text[position] != "}":
        name, position = _DECODER.raw_decode(text, position)
        position = _skip(text, _skip(text, position) + 1)
        yield name, position
        _, position = _DECODER.raw_decode(text, position)
        position = _skip(text, position)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _items(text: str, start: int) -> tuple[list[str], int]:
    """Return the text of each item of the array at `start`, and the offset of its end."""
    items: list[str] = []
    position = _skip(text, start + 1)
    while text[position] != "]":
        _, end = _DECODER.raw_decode(text, position)
        items.append(text[position:end])
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return items, position + 1


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return position if found is None else found.end()
