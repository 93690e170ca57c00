"""The statement of a scan for words, and the snippets of its rows. Pure.

Nothing in a word is syntax: a word is a value of the statement, and what LIKE takes for a pattern is escaped.
"""

import re
from collections.abc import Iterable, Sequence

LONGEST = 20_000
"""Characters of a row that its snippet is taken from."""
_BEFORE, _AFTER = 60, 140
"""Characters of a snippet before and after its first match."""


def pattern(word: str) -> str:
    """Return the pattern of LIKE for texts that have a word. Its escape is `!`."""
    return "%" + re.sub("[!%_]", r"!\g<0>", word) + "%"


def statement(source: str, text: str, key: Sequence[str], like: str, places: Sequence[str], limit: int) -> str:
    """Return the SQL that finds the rows with the most words.

    source: a table. text: an expression with the texts of a row. key: expressions. like: the operator that ignores
    case. places: a placeholder for the pattern of each word. The rows have the number of words, the text, and the key.
    """
    keys = [f"bbfs_key{number}" for number in range(len(key))]
    found = " + ".join(f"CASE WHEN bbfs_text {like} {place} ESCAPE '!' THEN 1 ELSE 0 END" for place in places)
    rows = ", ".join(f"{each} AS {name}" for each, name in zip(key, keys, strict=True))
    return (
        f"SELECT bbfs_score, substr(bbfs_text, 1, {LONGEST}), {', '.join(keys)} FROM"
        f" (SELECT {found} AS bbfs_score, bbfs_text, {', '.join(keys)} FROM"
        f" (SELECT {text} AS bbfs_text, {rows} FROM {source}) AS texts) AS scores"
        f" WHERE bbfs_score > 0 ORDER BY bbfs_score DESC, {', '.join(keys)} LIMIT {int(limit)}"
    )


def snippet(text: str, words: Iterable[str]) -> str:
    """Return the text around the first of the words in one line."""
    found = re.search("|".join(map(re.escape, words)), text, re.IGNORECASE)
    at = 0 if found is None else found.start()
    return " ".join(text[max(0, at - _BEFORE) : at + _AFTER].split())
