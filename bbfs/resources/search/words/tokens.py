"""The words of a text as the index has them.

A name of a program stands as its parts, in the order of the text: `parseHttpHeader` as `parse http header`, so that
phrases of words are found. The whole of it stands beside the text, as one of its compounds: `parsehttpheader`, and so
do `e-mail` as `email`, `C++`, `C#` and `.NET`. Of scripts without spaces, each character is a word, or each pair of
characters where there are few: a phrase of these is a word of the language.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from unicodedata import unidata_version

from bbfs.resources.search.words import languages
from bbfs.resources.search.words.folding import MARKED, PAIRED, SYMBOLS, UNSPACED, folded
from bbfs.resources.search.words.languages import SHORTEST, stem, stemmer

_RULES = 2
"""Version of the words that a document has: another one has the index make its words again."""
LONGEST = 64
"""Characters of a word that count."""
_MOST_KNOWN = 200_000
"""Words that are remembered, about 150 bytes each, in all languages together."""
_SAMPLE = 1000
"""Characters of a text that tell its language."""
_ASCII = bytes(code if chr(code).isalnum() or code == ord("_") else ord(" ") for code in range(128)).ljust(256)
"""Letters, digits and the underscore, with spaces for all else: to split takes a third of the time of an expression."""
_SPACED = re.compile(r"\w+")
_SPECIAL_SCRIPT = re.compile(f"[{UNSPACED}{PAIRED}{MARKED}{SYMBOLS}]")
_ANY = re.compile(rf"(?:[^\W{UNSPACED}{PAIRED}]|[{MARKED}])+|[{UNSPACED}]+|[{PAIRED}]+|[{SYMBOLS}]")
_SIGN = re.compile(r"(?:\+\+|#(?![\w#]))(?<=[\w+][#+])")
_BEFORE_SIGN = re.compile(r"(?<!\w)[A-Za-z]\w{0,31}\Z")
_SIGNED = re.compile(r"[A-Za-z]\w{0,31}(?:\+\+|#(?![\w#]))")
_DOTTED = re.compile(r"\.(?<![\w.)\]]\.)[A-Za-z]\w*")
_HYPHEN = re.compile(r"-(?=[A-Za-z0-9]{1,32}(?![\w-]))")
_BEFORE_HYPHEN, _AFTER_HYPHEN = re.compile(r"(?<![\w-])[A-Za-z]{1,32}\Z"), re.compile("[A-Za-z0-9]{1,32}")
_SPECIAL = re.compile(rf"{_DOTTED.pattern}|{_SIGNED.pattern}|(?<![\w-])[A-Za-z]{{1,32}}-[A-Za-z0-9]{{1,32}}(?![\w-])")
"""Words of a query with signs that texts have among their compounds."""
HUMP = re.compile(r"(?<=[a-z0-9]{2})(?=[A-Z][A-Za-z0-9])|(?<=[A-Z]{2})(?=[A-Z][a-z]{2})")
"""Where a word begins inside of a name in camel case; a single letter is none."""
_OF_UNSPACED, _OF_PAIRED = re.compile(f"[{UNSPACED}]"), re.compile(f"[{PAIRED}]")


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a text, with spaces between them. compounds: the wholes of those that stand as parts."""

    text: str
    compounds: str


def rules() -> str:
    """Return a name of all rules that the words of a text follow; equal names mean equal words."""
    return f"{_RULES}, {languages.rules()}, Unicode {unidata_version}"


def tokens(text: str) -> list[str]:
    """Return the words of a folded text, in its own case: names with their parts, runs of scripts without spaces."""
    if text.isascii():
        return text.encode().translate(_ASCII).decode().split()
    return (_SPACED if _SPECIAL_SCRIPT.search(text) is None else _ANY).findall(text)


def _with_signs(text: str) -> Iterator[str]:
    """Yield the compounds of a folded text that are written with signs."""
    if "++" in text or text.replace("\n#", "").rfind("#") > 0:  # at the beginning of a line it is a heading
        for sign in _SIGN.finditer(text):
            name = _BEFORE_SIGN.search(text, max(0, sign.start() - LONGEST), sign.start())
            if name is not None:
                yield (name[0] + sign[0]).casefold()
    yield from (found.casefold()[:LONGEST] for found in _DOTTED.findall(text))
    if "-" in text:
        for hyphen in _HYPHEN.finditer(text):
            before = _BEFORE_HYPHEN.search(text, max(0, hyphen.start() - LONGEST), hyphen.start())
            after = _AFTER_HYPHEN.match(text, hyphen.end())
            if before is not None and after is not None:
                yield (before[0] + after[0]).casefold()


def parts(token: str) -> list[str]:
    """Return the words that a token stands as, in lower case and without endings cut."""
    if _OF_UNSPACED.match(token):
        return [*token]
    if _OF_PAIRED.match(token):
        return [token[at : at + 2] for at in range(max(1, len(token) - 1))]
    bare = token.strip("_.+#")
    if bare.isalnum() and (bare.islower() or bare.isdigit()):
        return [bare.casefold()[:LONGEST]]
    pieces = (piece for name in re.split("[_-]", bare) for piece in HUMP.split(name))
    return [piece.casefold()[:LONGEST] for piece in pieces if piece]


def whole(token: str) -> str:
    """Return the compound that a token is, or nothing for a plain word."""
    if token[-1] in "+#" or token[0] == ".":
        return token.casefold()[:LONGEST]
    found = [] if _OF_UNSPACED.match(token) or _OF_PAIRED.match(token) else parts(token)
    return "".join(found)[:LONGEST] if len(found) > 1 else ""


class _Known(dict[str, str]):
    """What the index has for tokens of texts in one language. compounds: those of tokens that are some."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self.compounds: dict[str, str] = {}
        self._language = language
        self._stem = stemmer(language)

    def __missing__(self, token: str) -> str:
        if token.isascii() and token.isalpha() and token.islower() and SHORTEST <= len(token) <= LONGEST:
            known = self[token] = self._stem(token)
            return known
        found = parts(token)
        if _OF_UNSPACED.match(token) or _OF_PAIRED.match(token):
            return " ".join(found)  # seldom the same again
        known = self[token] = " ".join(stem(part, self._language) for part in found)
        if compound := whole(token):
            self.compounds[token] = compound
        return known

    def stems(self, found: Sequence[str]) -> str:
        """Return what a text has for tokens that follow each other."""
        return " ".join(itemgetter(*found)(self)) if len(found) > 1 else "".join(map(self.__getitem__, found))

    def compounds_of(self, found: Sequence[str]) -> set[str]:
        """Return the compounds of tokens that were looked up."""
        known = self.compounds
        return {known[token] for token in known.keys() & {*found}} if known else set()


_KNOWN: dict[str, _Known] = {}


def _known(language: str) -> _Known:
    """Return what is known of a language. Forget all languages if that is too much.

    A text has one object from end to end, and so has the tokens that it has looked up.
    """
    if sum(map(len, [*_KNOWN.values()])) >= _MOST_KNOWN:  # a copy: searches and writes are in two threads
        _KNOWN.clear()
    found = _KNOWN.get(language)
    if found is None:
        found = _KNOWN[language] = _Known(language)
    return found


def words(text: str, language: str) -> Words:
    """Return the words of a text in a language."""
    text = folded(text)
    found, known = tokens(text), _known(language)
    stems = known.stems(found)
    compounds = known.compounds_of(found)
    compounds.update(_with_signs(text))
    return Words(stems, " ".join(sorted(compounds)))


def stream(found: Sequence[str], language: str) -> str:
    """Return what a text has where these tokens follow each other."""
    return _known(language).stems(found)


def exact(found: Sequence[str]) -> str:
    """Return the words of tokens as they are written, without endings cut."""
    return " ".join(part for token in found for part in parts(token))


def language_of(text: str) -> str:
    """Return the language of a text."""
    return languages.language_of(tokens(folded(text[:_SAMPLE].lower())))


def pieces(text: str) -> Iterator[str]:
    """Yield the tokens of a query, with those that have signs whole."""
    end = 0
    for match in _SPECIAL.finditer(text):
        yield from tokens(text[end : match.start()])
        yield match[0]
        end = match.end()
    yield from tokens(text[end:])
