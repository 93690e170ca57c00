"""Cut documents into chunks and terms. Pure functions.

The chunks of a document are its text, cut: joined they are the text again. Those of HTML have the words without the
markup beside it. A term is a run of letters and digits in which A to Z are lower case; every other character that is
not ASCII belongs to a term. So a literal without separators is a substring of a term wherever it occurs, and no
knowledge of scripts is needed to find it.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from unicodedata import normalize

from bbfs.resources.search.index import html

CHUNK = 2000
"""Characters of a chunk, about."""
LONGEST_PIECE = 4 * CHUNK
"""Characters of a piece without a place to cut it, such as a very long line."""
LONGEST_RUN = 32
"""Characters of a run of a pattern that are looked up."""
_LONGEST_TERM = 2 * LONGEST_RUN
_LONGEST_HEADING = 120
_MOST_SECTIONS = 2000
"""Sections of a document: the rest belongs to the last one. Each is a chunk, which costs more time than its text."""
_SNIPPET_BEFORE, _SNIPPET_AFTER = 60, 140
"""Characters of a snippet before and after the beginning of its first match."""
_TERM = re.compile(r"[0-9a-z\u0080-\U0010ffff]+")
_PARAGRAPH = re.compile(r"\n[ \t]*\n+")
_NEWLINE = "\n"
_LINE = re.compile(_NEWLINE)
_LINE_PLACE = re.compile(r"line ([0-9]+)")
_HEADING = re.compile(r"^(?:(#{1,6})[ \t]+(.*)|(```|~~~).*)$", re.MULTILINE)
_FOLD_TO_ASCII = re.compile("[\u0130\u0131\u017f\u212a]")
_MARKDOWN = ("md", "markdown", "mdx", "rst")
_PROSE = ("txt", "text", *html.EXTENSIONS, "org", "adoc", "tex", "")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a document. place: its heading, or `line N`. markup: the part of the document, if `text` is not."""

    place: str
    text: str
    markup: str | None = None


def chunks(text: str, name: str) -> list[Chunk]:
    """Cut a text: Markdown by headings, other prose by paragraphs, code by lines. name: of its file."""
    extension = name.rpartition(".")[2].lower() if "." in name else ""
    found: list[Chunk] = []
    line = 1
    for heading, section in _sections(text) if extension in _MARKDOWN else ((None, text),):
        boundary = _PARAGRAPH if extension in _MARKDOWN or extension in _PROSE else _LINE
        for piece in _pieces(section, boundary):
            found.append(Chunk(heading or f"line {line}", piece))
            line += piece.count("\n")
    if extension not in html.EXTENSIONS:
        return found
    words = html.shown([chunk.text for chunk in found])
    return [Chunk(chunk.place, text, chunk.text) for chunk, text in zip(found, words, strict=True)]


def _sections(text: str) -> Iterator[tuple[str | None, str]]:
    """Yield the sections of a Markdown text with their headings. A `#` in a block of code begins none."""
    if "#" not in text:
        yield None, text
        return
    begin, heading, fence, sections = 0, None, None, 0
    for match in _HEADING.finditer(text):
        marks, title, quote = match.groups()
        if quote is not None:
            fence = quote if fence is None else None if fence == quote else fence
        elif fence is None and marks:
            if match.start() > begin:
                yield heading, text[begin : match.start()]
                sections += 1
            begin, heading = match.start(), title.strip(" #\t\r")[:_LONGEST_HEADING] or None
            if sections == _MOST_SECTIONS:
                break
    if begin < len(text):
        yield heading, text[begin:]


def _pieces(text: str, boundary: re.Pattern[str]) -> Iterator[str]:
    """Yield a text in pieces of about `CHUNK` characters that end at boundaries."""
    begin = 0
    while len(text) - begin > CHUNK:
        match = boundary.search(text, begin + CHUNK // 2, begin + CHUNK)
        match = match or _LINE.search(text, begin + CHUNK - 1, begin + LONGEST_PIECE)
        end = begin + LONGEST_PIECE if match is None else match.end()
        yield text[begin:end]
        begin = end
    if begin < len(text):
        yield text[begin:]


def terms(text: str) -> set[str]:
    """Return the terms of a text. A long one comes as pieces that have every run of `LONGEST_RUN` characters."""
    found = set(_TERM.findall(lowered(text)))
    if max(map(len, found), default=0) <= _LONGEST_TERM:
        return found
    for term in [term for term in found if len(term) > _LONGEST_TERM]:
        found.discard(term)
        found.update(term[at : at + _LONGEST_TERM] for at in range(0, len(term) - LONGEST_RUN, LONGEST_RUN))
    return found


def lowered(text: str) -> str:
    """Return a text with A to Z in lower case, and all else unchanged."""
    return text.lower() if text.isascii() else text.encode().lower().decode()


def runs(literal: str) -> list[str]:
    """Return the runs of a literal: each is a substring of a term wherever the literal occurs."""
    return [run[:LONGEST_RUN] for run in _TERM.findall(lowered(literal))]


def folds_to_ascii(text: str) -> bool:
    """Return whether a text has letters outside ASCII that equal one of ASCII where case is ignored, such as U+212A."""
    return not text.isascii() and _FOLD_TO_ASCII.search(text) is not None


def snippet(text: str, words: Sequence[str]) -> str:
    """Return the text around a match of most of the words in one line, or the beginning of a text without a match."""
    begin = _best_match(text, words)
    begin, end = max(0, begin - _SNIPPET_BEFORE), begin + _SNIPPET_AFTER
    shown = " ".join(text[begin:end].split())
    return f"{'…' if begin else ''}{shown}{'…' if end < len(text) else ''}"


def place_of_match(place: str, text: str, words: Sequence[str], name: str) -> str:
    """Return the place of a chunk: its heading, or the line of the match that `snippet` shows. name: of its file.

    The words of HTML have other lines than the file, so the line where the chunk begins stays.
    """
    found = _LINE_PLACE.fullmatch(place)
    if found is None or name.rpartition(".")[2].lower() in html.EXTENSIONS:
        return place
    return f"line {int(found[1]) + text.count(_NEWLINE, 0, _best_match(text, words))}"


def _best_match(text: str, words: Sequence[str]) -> int:
    """Return where a match of most of the words in one snippet begins; 0 without a match.

    The time is linear in the text, however often it has the words.
    """
    folded = text.lower() if text.isascii() else "".join(map(_base, text))
    pattern = "|".join(re.escape("".join(map(_base, word))) for word in words)
    at: deque[re.Match[str]] = deque()
    there: Counter[str] = Counter()
    begin, most = 0, 0
    for match in re.finditer(rf"\b(?:{pattern})", folded):
        at.append(match)
        there[match[0]] += 1
        while match.end() > at[0].start() + _SNIPPET_AFTER:
            there -= Counter((at.popleft()[0],))
        if len(there) > most:
            begin, most = at[0].start(), len(there)
    return begin


@lru_cache(maxsize=1 << 14)
def _base(character: str) -> str:
    """Return a character in lower case without diacritics, as one character."""
    return normalize("NFD", character.lower())[:1] or character


def query_words(query: str, most: int = 32) -> Sequence[str]:
    """Return the words of a query."""
    return re.findall(r"\w+", query)[:most]
