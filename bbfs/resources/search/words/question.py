"""A query as the index is asked: its words with all forms that texts may have, its phrases, and what stands together.

Nothing in a query is syntax but quotation marks: what stands between two of them must be in a text as it is written,
unless the query is long.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from bbfs.resources.search.words import languages, tokens
from bbfs.resources.search.words.folding import folded

MOST = 128
"""Words of a query that count, and words that stand together."""
_MOST_TIMES = 5
"""Times that a repeated word of a query counts."""
_SHORT_PART = 3
"""Letters of a part of a word with a hyphen that is no word of its own: `e-mail`, `wi-fi`, `UTF-8`."""
_LONG = 8
"""Words from which a query is a question in sentences."""
_LONGEST_PHRASE = 16
"""Words of a query that are looked for as one phrase."""
_QUOTED = re.compile('"([^"]+)"|“([^“”]+)”|„([^„“”]+)[“”]|«([^«»]+)»|「([^「」]+)」')
_MARKS = re.compile('["“”„«»「」]')
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
_SPELT_OUT = {"ae": "ä", "oe": "ö", "ue": "ü"}


@dataclass(frozen=True, slots=True)
class Unit:
    """A word of a query. word: folded, in lower case. token: as a text would have it.

    matches: phrases of FTS5; a text that has one of them has the word. parts: expressions for the parts of a name of a
    program; a text with some of them has a part of it. times: how often the query has it. is_word: it is one word of
    letters or digits, and may be the beginning of one, or mistyped.
    """

    word: str
    token: str
    matches: tuple[str, ...]
    parts: tuple[str, ...] = ()
    times: int = 1
    is_word: bool = False

    @property
    def match(self) -> str:
        """The expression of FTS5 for this word."""
        return _any(self.matches)

    def beginning(self) -> str:
        """Return the expression for words that begin with this one."""
        return _any((*self.matches, f"{_quoted(self.word)} *"))

    def also(self, words: Sequence[str], among: Sequence[str]) -> "Unit":
        """Return this word with others that are as good."""
        others = [_quoted(stem) for word in words for stem in languages.stems(folded(word).casefold(), among)]
        return replace(self, matches=tuple(dict.fromkeys((*self.matches, *others))))

    def instead(self, word: str, among: Sequence[str]) -> "Unit":
        """Return the word that this one means."""
        word = folded(word).casefold()
        return replace(self, word=word, token=word, matches=tuple(map(_quoted, languages.stems(word, among))))


@dataclass(frozen=True)
class Question:
    """A query. units: the words to look for. phrase: the expression for all words one after the other, or "".

    pairs: the expressions of words that stand together in the query. quoted: for each phrase in quotation marks, its
    expression and its words as they are written. last_begins: the last word may be the beginning of one.
    """

    units: tuple[Unit, ...]
    phrase: str
    pairs: tuple[str, ...]
    quoted: tuple[tuple[str, str], ...]
    last_begins: bool

    def __bool__(self) -> bool:
        return bool(self.units or self.quoted)

    def spelt(self, units: Sequence[Unit]) -> "Question":
        """Return the question with other words."""
        return replace(self, units=tuple(units), phrase="", pairs=())

    @cached_property
    def exact_words(self) -> frozenset[str]:
        """The words as they are written."""
        return frozenset(unit.word for unit in self.units)

    @cached_property
    def _beginnings(self) -> str:
        """An expression for the beginnings of its words, as texts have them; "" if it has none."""
        words = {_common(unit) for unit in self.units if unit.is_word}
        words |= {word for _, phrase in self.quoted for word in phrase.split()}
        return rf"(?:{'|'.join(map(_written, sorted(words, key=len, reverse=True)))})\w*" if words else ""

    @cached_property
    def pattern(self) -> "re.Pattern[str] | None":
        """What to show of a text: the beginnings of its words, in the form that `snippets` compares."""
        others = {tokens.exact([unit.token]) if unit.token[:1].isascii() else unit.token for unit in self.units}
        others -= {unit.word for unit in self.units if unit.is_word}
        found = [rf"\b{self._beginnings}"] if self._beginnings else []
        found += [re.escape(other).replace(r"\ ", r"\W*") for other in sorted(others, key=len, reverse=True) if other]
        return re.compile("|".join(found)) if found else None

    @cached_property
    def part(self) -> "re.Pattern[str] | None":
        """What to show where a part of a name of a program begins: `retry` of `maxRetryCount`."""
        return re.compile(self._beginnings) if self._beginnings else None


def asked(query: str, among: Sequence[str]) -> Question:
    """Return the question that a query is. among: the languages of the texts."""
    among = tuple(among) or (languages.DEFAULT,)
    if len(query.split()) > _LONGEST_PHRASE:
        query = _MARKS.sub(" ", query)  # a text that quotes something
    quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(query)]
    phrases = tuple(filter(None, (_phrase(tokens.tokens(folded(text)), among) for text in quoted)))
    plain = folded(_QUOTED.sub(" ", query))
    found = [piece for piece in tokens.pieces(plain) if tokens.parts(piece)][:MOST]
    wanted = _wanted(found, among)
    counted = Counter(unit for token in wanted for unit in _units(token, query, among))
    units = tuple(replace(unit, times=min(times, _MOST_TIMES)) for unit, times in counted.items())[:MOST]
    is_phrase = len(units) > 1 and len(found) <= _LONGEST_PHRASE and not quoted
    phrase = _phrase(found, among) if is_phrase else None
    last = bool(found and units and units[-1].token == found[-1] and units[-1].is_word and plain.endswith(found[-1]))
    pairs = tuple(_pairs(found, {*wanted}, among))[:MOST]
    return Question(units, phrase[0] if phrase else "", pairs, phrases, last)


def _wanted(found: Sequence[str], among: Sequence[str]) -> list[str]:
    """Return the tokens that a text must have: without the commonest words, unless there are no others.

    Of a long question, those by which it asks are left out as well. A word in capitals among others is no common one:
    `IT`, `WHO`.
    """
    lower = [token.casefold() for token in found]
    default = languages.DEFAULT if languages.DEFAULT in among else among[0]
    language = languages.language_of(lower, among, default)
    common = languages.stop_words(language)
    asking = languages.asking_words(language) if len(found) >= _LONG else frozenset[str]()
    capitals = {token for token in found if len(token) > 1 and token.isupper()}
    capitals = capitals if len(capitals) < len({*found}) else set()
    wanted = [token for token in found if token in capitals or token.casefold() not in common]
    return [token for token in wanted if token in capitals or token.casefold() not in asking] or wanted or [*found]


def _units(token: str, query: str, among: Sequence[str]) -> Iterator[Unit]:
    """Yield the words of one token of a query."""
    found = tokens.parts(token)
    whole = tokens.whole(token)
    if len(found) == 1:
        word = whole or found[0]
        is_word = not whole and found[0][:1].isalnum() and token.strip("_") == token
        matches = [whole] if whole else languages.stems(word, among)
        if is_word and not query.isascii():
            matches += _spelt_out(word, query, among)
        yield Unit(word, token, tuple(map(_quoted, dict.fromkeys(matches))), is_word=is_word)
    elif whole and "-" in token and min(map(len, found)) > _SHORT_PART:
        for part in found:
            yield from _units(part, query, among)
    elif whole:
        streams = [tokens.stream(_split([token]), language) for language in among]
        matches = tuple(map(_quoted, dict.fromkeys([whole, *streams])))
        parts = tuple(_any([*map(_quoted, languages.stems(part, among))]) for part in found)
        yield Unit(" ".join(found), token, matches, parts)
    else:
        for one, other in pairwise(found):  # two characters, or two pairs of them
            text = one + other[-1]
            yield Unit(text, text, (_quoted(f"{one} {other}"),))


def _spelt_out(word: str, query: str, among: Sequence[str]) -> list[str]:
    """Return the stems of a word of a query with its umlauts spelt out: `ue` for `ü`."""
    for written in re.findall(r"\w+", query.lower()):
        if folded(written).casefold() == word and (other := written.translate(_UMLAUTS)) != written:
            return languages.stems(folded(other).casefold(), among)
    return []


def with_umlauts(word: str) -> list[str]:
    """Return the words that this one may spell out: `schlüssel` for `schluessel`."""
    found = word
    for spelt, umlaut in _SPELT_OUT.items():
        found = found.replace(spelt, umlaut)
    return [found] if found != word else []


def _phrase(found: Sequence[str], among: Sequence[str]) -> tuple[str, str] | None:
    """Return the expression for tokens that follow each other, and their words as they are written."""
    streams = [tokens.stream(_split(found), language) for language in among]
    exact = tokens.exact(_split(found))
    return (_any([*map(_quoted, dict.fromkeys(streams))]), exact) if exact else None


def _split(found: Sequence[str]) -> list[str]:
    return [part for token in found for part in (token.split("-") if token[0].isascii() else [token])]


def _pairs(found: Sequence[str], wanted: set[str], among: Sequence[str]) -> Iterator[str]:
    """Yield an expression for each two wanted tokens that follow each other, and for three characters of a run."""
    seen: set[str] = set()
    for one, other in pairwise(found):
        if one in wanted and other in wanted:
            pair = _phrase([one, other], among)
            if pair is not None and pair[0] not in seen:
                seen.add(pair[0])
                yield pair[0]
    for token in found:
        some = tokens.parts(token)
        if not token[0].isascii() and len(some) > 2 and len(some[0]) < 3:
            yield from (_quoted(" ".join(some[at : at + 3])) for at in range(len(some) - 2))


def _any(matches: Sequence[str]) -> str:
    return matches[0] if len(matches) == 1 else f"({' OR '.join(matches)})"


def _quoted(words: str) -> str:
    return f'"{words}"'


def _common(unit: Unit) -> str:
    """Return the beginning that a word has in common with its stems."""
    word = unit.word
    for match in unit.matches:
        other = match.strip('"')
        while not other.startswith(word) and len(word) > 3:
            word = word[:-1]
    return word


def _written(word: str) -> str:
    return re.escape(word).replace("ss", "(?:ss|ß)")
