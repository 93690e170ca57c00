"""Pages of a JSON list as text, and how to join them. Pure.

Items keep their exact text: numbers keep their digits and objects the order of their keys. A page is an array, or an
object with an array of items (`{"items": […], "next": …}`), which may be one level down (`{"data": {"items": […]}}`).
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bbfs.model.errors import ProtocolViolation
from bbfs.sources.bounded.json import JsonBounds, parse_json

BOUNDS = JsonBounds(size=16 << 20)
"""Bounds of one page. A larger answer is no list, but a content like any other."""
_SPACE = re.compile(r"[ \t\r\n]*")
_MARK = re.compile(r'"(?:[^"\\]++|\\.)*+"|[][{}]', re.DOTALL)
_DECODER = json.JSONDecoder()
_ITEMS = (
    "items", "data", "results", "result", "value", "values", "records", "entries", "content", "hits", "rows", "list",
    "elements", "objects", "resources", "documents", "nodes", "members",
)  # fmt: skip
_AROUND = ("data", "_embedded", "result", "response", "hits", "body", "payload")
"""Members that hold the object with the items in many APIs."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list. items: the text of each item. before, after: the text around the array.

    around: the parsed page with an empty array for its items. where: the keys that lead to the array.
    """

    before: bytes
    items: tuple[bytes, ...]
    after: bytes
    around: Any
    where: tuple[str, ...]

    def parsed(self, most: int) -> list[Any]:
        """Return the first items, parsed."""
        return [json.loads(item) for item in self.items[:most]]


def page_of(body: bytes, hint: str = "", where: tuple[str, ...] | None = None) -> ListPage | None:
    """Parse a page, or return None if the answer is no list. hint: the probable key of the items. where: the keys from
    an earlier page. Raise TooLarge for a page over `BOUNDS`."""
    body = body.removeprefix(BOM_UTF8)
    try:
        value = parse_json(body, BOUNDS)
        if where is None:
            where = _place(value, hint)
        if where is None:
            return None
        around = _emptied(value, where)
        del value  # parsed items take many times the memory of their text
        text = body.decode()
        start = _find(text, where)
        if start is None or text[start] != "[":
            return None
        items, end = _items(text, start)
    except (ProtocolViolation, ValueError, LookupError, TypeError, RecursionError):
        return None
    return ListPage(text[:start].encode(), tuple(items), text[end:].rstrip().encode(), around, where)


def _emptied(value: Any, where: Sequence[str]) -> Any:
    """Return the page without its items."""
    if not where:
        return []
    return {**value, where[0]: _emptied(value[where[0]], where[1:])}


def joined(pages: Sequence[ListPage]) -> bytes:
    """Join pages into one text: the last page with all items, one item a line."""
    items = b",\n".join(item for page in pages for item in page.items)
    return b"".join(
        (pages[-1].before, b"[\n" if items else b"[", items, b"\n]" if items else b"]", pages[-1].after, b"\n")
    )


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
        position = _skip(text, _end_of(text, position))
        if text[position] == ",":
            position = _skip(text, position + 1)


def _end_of(text: str, start: int) -> int:
    """Return the end of a value in valid JSON. An array or object is gone through mark by mark: to decode it would hold
    the global lock until its end.
    """
    if text[start] not in "[{":
        return _DECODER.raw_decode(text, start)[1]
    depth = 0
    for mark in _MARK.finditer(text, start):
        if mark[0] in ("[", "{"):
            depth += 1
        elif mark[0] in ("]", "}"):
            depth -= 1
            if not depth:
                return mark.end()
    raise ValueError("no end of a value")


def _items(text: str, start: int) -> tuple[list[bytes], int]:
    """Return the text of each item of the array at `start`, and the offset of its end."""
    items: list[bytes] = []
    position = _skip(text, start + 1)
    while text[position] != "]":
        end = _end_of(text, position)
        items.append(text[position:end].encode())
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return items, position + 1


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return position if found is None else found.end()
