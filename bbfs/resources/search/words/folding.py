"""Characters as a search compares them: without diacritics, in one width and form, with the digits 0 to 9.

The rules are those of Unicode (NFKD, UAX #15) where marks are optional in writing: Latin, Greek, Cyrillic, Hebrew and
Arabic. In the scripts of India and South-East Asia marks are vowels, and й is a letter of its own: these stay.
"""

import re
from unicodedata import decimal, normalize

UNSPACED = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3105-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9d"
    "\U0001b000-\U0001b16f\U00020000-\U0003fffd"
)
"""Ranges of Han, kana, bopomofo and Hangul, for a class of `re`: a word begins or ends at any of their characters."""
PAIRED = (
    "\u0e01-\u0eff\u0f00\u0f18-\u0f19\u0f20-\u0f39\u0f3e-\u0fbc\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17d7-\u17e9"
)
"""Ranges of Thai, Lao, Tibetan, Myanmar and Khmer: no spaces between words, and few characters."""
MARKED = "\u0900-\u0963\u0966-\u096f\u0971-\u0dff"
"""Ranges of the scripts of India with their vowel signs, which `re` does not count as parts of words."""
SYMBOLS = "\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
"""Ranges of arrows, signs and emoji: each is a word."""

_DROPPED = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f"
    "\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u1dc0-\u1dff\u20d0-\u20f0\ufe00-\ufe0f\ufe20-\ufe2f"
    "\u00ad\u200c\u200d\u2060\ufeff\U0001f3fb-\U0001f3ff]"
)
"""Marks that writers leave out, Arabic's tatweel, joiners, soft hyphens, variants and skin tones of emoji."""
_KEPT = re.compile(f"[й{MARKED}{PAIRED}\u3041-\u30ff\uac00-\ud7a3]", re.IGNORECASE)
"""Characters that stay whole: those whose parts are no letters of their own."""
_COMPOSED = re.compile("[\u0306\u1100-\u11ff\u3099\u309a\uff9e\uff9f]")
"""Parts of й, of Hangul and of kana, as macOS writes names of files."""
_LETTERS = {
    each[0]: each[1:]
    for each in (
        *("ßss", "ẞSS", "æae", "ÆAE", "œoe", "ŒOE", "øo", "ØO", "đd", "ĐD", "łl", "ŁL", "ıi", "ðd", "ÐD", "þth", "ÞTH"),
        *("ħh", "ĦH", "ŋn", "ςσ", "ٱا", "ىي", "یي", "ېي", "کك", "ۀه", "ہه", "ھه", "ۃة", "’'", "‘'", "ʼ'"),
    )
}
"""Letters that Unicode does not take apart, and forms of one letter in Arabic, Persian and Urdu."""


class _Table(dict[int, str]):
    """What `str.translate` puts for each character; a character is looked up once."""

    def __missing__(self, code: int) -> str:
        found = self[code] = _folded(chr(code))
        return found


def _folded(character: str) -> str:
    if character in _LETTERS:
        return _LETTERS[character]
    if _KEPT.match(character):
        return _digit(character)
    parts = _DROPPED.sub("", normalize("NFKD", character))
    return "".join(_LETTERS.get(part) or _digit(part) for part in parts)


def _digit(character: str) -> str:
    """Return a decimal digit of any script as one of 0 to 9, and any other character as it is."""
    number = decimal(character, None)
    return character if number is None else str(number)


_TABLE = _Table()


def folded(text: str) -> str:
    """Return a text with its characters folded; the case of letters stays, since it shows where words begin."""
    if text.isascii():
        return text
    if _COMPOSED.search(text) is not None:
        text = normalize("NFKC", text)
    return text.translate(_TABLE)
