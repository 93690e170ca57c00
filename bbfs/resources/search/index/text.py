"""Cut documents into chunks and terms. Pure functions.

The chunks of a document are its text, cut: joined they are the text again. A text without a character is one chunk, by
which its title is found. Chunks of HTML have the words without the markup beside it. A term is a run of letters and
digits in which A to Z are lower case; every other character that is not ASCII belongs to a term. So a literal without
separators is a substring of a term wherever it occurs. Of scripts without spaces, whose terms would be whole sentences,
each two characters that follow each other are a term.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from bbfs.resources.search.words import html
from bbfs.resources.search.words.folding import PAIRED, UNSPACED

CHUNK = 2000
"""Characters of a chunk, about."""
LONGEST_PIECE = 4 * CHUNK
"""Characters of a piece without a place to cut it, such as a very long line."""
LONGEST_RUN = 32
"""Characters of a run of a pattern that are looked up."""
_LONGEST_TERM = 2 * LONGEST_RUN
_LONGEST_HEADING = 120
_COMPRESSED_FROM = 300
"""Characters from which a text is worth compressing."""
_WINDOW, _EFFORT = 13, 6
"""Of a compressor (zlib): what a chunk needs. To clear the memory of the usual ones takes longer than to compress."""
_MOST_SECTIONS = 2000
"""Sections of a document: the rest belongs to the last one. Each is a chunk, which costs more time than its text."""
_UNSPACED = rf"{UNSPACED}{PAIRED}"
_RUN = re.compile(rf"[{_UNSPACED}]+|(?:[0-9a-z]|[^\x00-\x7f{_UNSPACED}])+")
_OF_UNSPACED = re.compile(f"[{_UNSPACED}]")
_SPACED = re.compile(rf"[^{_UNSPACED}]")
_RUNS = bytes(code if code > 127 or chr(code).isalnum() else ord(" ") for code in range(256)).lower()
"""For each byte of UTF-8 what stands in a run for it, a space between runs: ten times as fast as an expression."""
_PARAGRAPH = re.compile(r"\n[ \t]*\n+")
_LINE = re.compile("\n")
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
    if not found:
        return [Chunk("", "")]
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


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a text. pairs: those of two characters of scripts without spaces, which are no words."""

    words: set[str]
    pairs: set[str]

    def __str__(self) -> str:
        return " ".join((*self.words, *self.pairs))


def stored(text: str) -> str | bytes:
    """Return a text as the database keeps it: compressed, unless it is short."""
    if len(text) < _COMPRESSED_FROM:
        return text
    data = text.encode()
    compressor = zlib.compressobj(1, wbits=_WINDOW, memLevel=_EFFORT)
    found = compressor.compress(data) + compressor.flush()
    return found if len(found) < len(data) else text


def restored(kept: str | bytes) -> str:
    """Return the text that `stored` gave to the database."""
    return zlib.decompress(kept).decode() if isinstance(kept, bytes) else kept


def terms(text: str) -> Terms:
    """Return the terms of a text. A long one comes as pieces that have every run of `LONGEST_RUN` characters."""
    found, pairs = {*text.encode().translate(_RUNS).decode().split(" ")}, set[str]()
    found.discard("")
    if not text.isascii():
        for mixed in [run for run in found if _OF_UNSPACED.search(run) is not None]:
            found.discard(mixed)
            for run in _RUN.findall(mixed):
                if is_unspaced(run):
                    pairs.update(map("".join, pairwise(run)))
                else:
                    found.add(run)
    if max(map(len, found), default=0) > _LONGEST_TERM:
        for term in [term for term in found if len(term) > _LONGEST_TERM]:
            found.discard(term)
            found.update(term[at : at + _LONGEST_TERM] for at in range(0, len(term) - LONGEST_RUN, LONGEST_RUN))
    return Terms(found, pairs)


def is_unspaced(run: str) -> bool:
    """Return whether a run is of a script without spaces, so that the index has its pairs of characters."""
    return _SPACED.match(run) is None


def lowered(text: str) -> str:
    """Return a text with A to Z in lower case, and all else unchanged."""
    return text.lower() if text.isascii() else text.encode().lower().decode()


def runs(literal: str) -> list[str]:
    """Return the runs of a literal: each is a substring of a term wherever the literal occurs."""
    return [run[:LONGEST_RUN] for run in _RUN.findall(lowered(literal))]


def folds_to_ascii(text: str) -> bool:
    """Return whether a text has letters outside ASCII that equal one of ASCII where case is ignored, such as U+212A."""
    return not text.isascii() and _FOLD_TO_ASCII.search(text) is not None
