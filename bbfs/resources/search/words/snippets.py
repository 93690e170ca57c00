"""What a hit shows of its text: the part with most of the words of a query, and its line."""

import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import merge
from unicodedata import normalize

from bbfs.resources.search.words import tokens
from bbfs.resources.search.words.folding import folded
from bbfs.resources.search.words.question import Question

_BEFORE, _AFTER = 60, 140
"""Characters of a snippet before and after the beginning of its first match."""
_NEWLINE = "\n"
_PART = re.compile(rf"(?<=[A-Za-z0-9]_)(?=[A-Za-z0-9])|{tokens.HUMP.pattern}")
"""Where a part of a name of a program begins: `maxRetryCount`, `max_retry_count`."""
_LINE_PLACE = re.compile(r"line ([0-9]+)")


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a text. begin: where the match of most of the words begins; 0 without a match.

    exact: how many words of the query the text has as they are written.
    """

    text: str
    begin: int
    exact: int

    @property
    def snippet(self) -> str:
        """The text around the match in one line, or the beginning of a text without a match."""
        begin, end = max(0, self.begin - _BEFORE), self.begin + _AFTER
        shown = " ".join(self.text[begin:end].split())
        return f"{'…' if begin else ''}{shown}{'…' if end < len(self.text) else ''}"

    def place(self, place: str, *, is_html: bool) -> str:
        """Return the place of the match in a chunk: its heading, or the line of the match.

        The words of HTML have other lines than the file, so the line where the chunk begins stays.
        """
        found = _LINE_PLACE.fullmatch(place)
        if found is None or is_html:
            return place
        return f"line {int(found[1]) + self.text.count(_NEWLINE, 0, self.begin)}"


NOTHING = Shown("", 0, 0)


def shown(text: str, question: Question) -> Shown:
    """Return what to show of a text. The time is linear in the text, however often it has the words."""
    pattern = question.pattern
    if pattern is None:
        return Shown(text, 0, 0)
    lower = text.lower() if text.isascii() else "".join(map(_base, text))
    at: deque[re.Match[str]] = deque()
    there: Counter[str] = Counter()
    exact: set[str] = set()
    begin, most = 0, 0

    def words() -> Iterator[re.Match[str]]:
        for match in pattern.finditer(lower):
            exact.add(match[0])
            yield match

    for match in merge(words(), _parts(text, lower, question.part), key=re.Match[str].start):
        at.append(match)
        there[match[0]] += 1
        while match.end() > at[0].start() + _AFTER:
            there -= Counter((at.popleft()[0],))
        if len(there) > most:
            begin, most = at[0].start(), len(there)
    return Shown(text, begin, len(exact & question.exact_words))


def _parts(text: str, lower: str, pattern: re.Pattern[str] | None) -> Iterator[re.Match[str]]:
    """Yield the words that begin inside of a name. lower: the text in the form of the pattern, as long as it."""
    if pattern is None:
        return
    for place in _PART.finditer(text):
        if (match := pattern.match(lower, place.start())) is not None:
            yield match


@lru_cache(maxsize=1 << 14)
def _base(character: str) -> str:
    """Return a character folded and in lower case, as one character."""
    lower = normalize("NFKD", character.lower())[:1] if character in "ßẞ" else folded(character).casefold()[:1]
    return lower or character
