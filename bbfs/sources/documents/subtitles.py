"""Subtitles (SubRip and WebVTT): a line for each cue, after the time at which it shows."""

import html
import re
from collections.abc import Iterator

from bbfs.sources.documents.decoding import decoded

_TIMES = re.compile(r"\s*((?:\d{1,4}:)?\d{1,2}:\d{1,2})[.,]\d{1,3}\s*-->\s*(?:\d{1,4}:)?\d{1,2}:\d{1,2}[.,]\d{1,3}")
_VOICE = re.compile(r"<v(?:\.[^\s>]{0,100})?\s++([^<>]{1,200})>")
"""Who speaks (WebVTT, section 4.2.2)."""
_TAG = re.compile(r"</?[A-Za-z0-9:.][^<>]{0,200}>|\{\\[^{}]{0,200}\}")
"""Tags of both forms, times within a cue, and the positions that SubRip took from another format."""


def read(document: bytes) -> Iterator[str]:
    """Yield a line for each cue. A line that the cue before has shown already is left out, as captions roll."""
    shown: set[str] = set()
    lines: list[str] = []
    time: str | None = None
    for line in (*decoded(document).replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""):
        begins = _TIMES.match(line)
        if begins or not line.strip():
            if begins and lines and lines[-1].isdecimal():
                lines.pop()  # the number of the cue that begins: the empty line before it is missing
            if time is not None and lines:
                yield _cue(time, lines, shown)
                shown = {*lines}
            if lines or begins or not line:  # a first line of spaces is part of a cue
                time, lines = begins[1] if begins else None, []
        elif time is not None and (text := _plain(line)):
            lines.append(text)


def _cue(time: str, lines: list[str], before: set[str]) -> str:
    new = [line for line in lines if line not in before]
    return f"[{time}] {' '.join(new)}\n\n" if new else ""


def _plain(line: str) -> str:
    return html.unescape(_TAG.sub("", _VOICE.sub(r"\1: ", line))).strip()
