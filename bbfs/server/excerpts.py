"""Parts of texts: the lines or characters that a call asks for, or as many as one answer has room for.

A content is read a chunk at a time, so a part of a text of any size can be had.
"""

import codecs
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal, TypeAlias

import trio

from bbfs.model.values import Content

HEAD = 20_000
"""Characters of a text in an answer, if the call does not say how many."""
MOST = 100_000
"""Characters of all texts of an answer: hosts refuse longer ones, or cut them."""
COUNTED = 64 << 20
"""Bytes of a content of which all lines are counted, also those after the part."""
CHUNK = 1 << 20
"""Bytes that are read at once."""
Unit: TypeAlias = Literal["lines", "characters"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a call asks for. offset: the first line or character, from 1. limit: None for all that there is room for."""

    offset: int = 1
    limit: int | None = None
    unit: Unit = "lines"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a text. first, last: lines or characters, from 1; last is less if there are none.

    total: None if it was not counted. following: the unit and the offset of what comes next, or None at the end.
    """

    text: str
    unit: Unit
    first: int
    last: int
    total: int | None
    following: tuple[Unit, int] | None

    @property
    def is_whole(self) -> bool:
        return self.first == 1 and self.following is None

    def __str__(self) -> str:
        """Say which part it is, and how to ask for the next."""
        total = "more" if self.total is None else str(self.total)
        if self.last < self.first:
            return f"no {self.unit} from {self.first} on: it has {total}"
        said = f"{self.unit} {self.first}-{self.last} of {total}"
        if self.following is None:
            return said
        unit, offset = self.following
        return f"{said}, next: offset={offset}" + (f" unit={unit}" if unit != "lines" else "")


async def excerpt(
    content: Content, wanted: Wanted, most: int, *, counted: int = COUNTED, chunk: int = CHUNK
) -> Excerpt | None:
    """Return a part of a text, of at most `most` characters; None if it is not UTF-8. Raise BbfsError.

    A part of lines ends with a line if it has a whole one. counted, chunk: as `COUNTED` and `CHUNK`.
    """
    cutter = _Cutter(wanted, most)
    try:
        async with aclosing(_texts(content, chunk)) as texts:
            async for text in texts:
                if text and cutter.is_full and content.size > counted:
                    return cutter.excerpt(is_counted=False)
                cutter.take(text)
    except UnicodeDecodeError:
        return None
    return cutter.excerpt(is_counted=True)


async def _texts(content: Content, chunk: int) -> AsyncGenerator[str]:
    """Yield a text in pieces. Raise UnicodeDecodeError, BbfsError."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    while offset < content.size and (data := await content.read_waiting(offset, chunk)):
        offset += len(data)
        yield decoder.decode(data)
        await trio.lowlevel.checkpoint()
    yield decoder.decode(b"", final=True)


class _Cutter:
    """Takes a text piece by piece, and keeps a part of it. is_full: nothing more will be kept."""

    def __init__(self, wanted: Wanted, most: int) -> None:
        self._wanted = wanted
        self._by_lines = wanted.unit == "lines"
        limit = wanted.limit
        self._to_skip = wanted.offset - 1
        self._lines_left = limit if self._by_lines else None
        self._room = most if limit is None or self._by_lines else min(limit, most)
        self._pieces: list[str] = []
        self._start = 0
        self._newlines = self._characters = 0
        self._is_open = False
        self._ends_with_line = False
        self.is_full = False

    def take(self, text: str) -> None:
        """Take the next piece of the text."""
        self._ends_with_line = text.endswith("\n") if text else self._ends_with_line
        for part in (self._skip, self._keep):
            length = part(text)
            self._newlines += text.count("\n", 0, length)
            self._characters += length
            text = text[length:]
        self._newlines += text.count("\n")
        self._characters += len(text)

    def _skip(self, text: str) -> int:
        """Return how many characters of a piece come before the part."""
        units = text.count("\n") if self._by_lines else len(text)
        if units < self._to_skip:
            self._to_skip -= units
            return len(text)
        length = _length_of_lines(text, self._to_skip) if self._by_lines else self._to_skip
        self._to_skip = 0
        return length

    def _keep(self, text: str) -> int:
        """Keep the beginning of what is left of a piece; return its length."""
        if self._to_skip or self.is_full or not text:
            return 0
        if not self._is_open:
            self._is_open, self._start = True, self._characters
        length = min(len(text), self._room)
        if self._lines_left is not None:
            newlines = text.count("\n", 0, length)
            if newlines >= self._lines_left:
                length = _length_of_lines(text, self._lines_left)
                newlines, self.is_full = self._lines_left, True
            self._lines_left -= newlines
        self._pieces.append(text[:length])
        self._room -= length
        self.is_full = self.is_full or length < len(text)
        return length

    def excerpt(self, *, is_counted: bool) -> Excerpt:
        """Return the part. is_counted: the whole text has been taken."""
        text, unit, first = "".join(self._pieces), self._wanted.unit, self._wanted.offset
        has_more = self._is_open and (not is_counted or self._start + len(text) < self._characters)
        if not self._by_lines:
            last = first + len(text) - 1
            following = (unit, last + 1) if has_more else None
            return Excerpt(text, unit, first, last, self._characters if is_counted else None, following)
        following = None
        if has_more:
            text = text[: text.rfind("\n") + 1] or text
            if text.endswith("\n"):
                following = unit, first + text.count("\n")
            else:
                following = "characters", self._start + len(text) + 1
        lines = text.count("\n") + (bool(text) and not text.endswith("\n"))
        total = self._newlines + (self._characters > 0 and not self._ends_with_line) if is_counted else None
        return Excerpt(text, unit, first, first + lines - 1, total, following)


def _length_of_lines(text: str, lines: int) -> int:
    """Return the length of the first lines of a text that has so many newlines."""
    return len(text) - len(text.split("\n", lines)[lines])
