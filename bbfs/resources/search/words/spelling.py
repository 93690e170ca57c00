"""Words that a mistyped one may mean."""

from collections.abc import Iterable

SHORTEST = 4
"""Letters of the shortest word that may be mistyped."""
_TWO_FROM = 8
"""Letters from which a word may have two errors."""


def trigrams(word: str) -> list[str]:
    """Return the parts of three letters of a word, each once."""
    return [*dict.fromkeys(word[at : at + 3] for at in range(len(word) - 2))]


def most_errors(word: str) -> int:
    """Return how many errors a word may have."""
    return 2 if len(word) >= _TWO_FROM else 1


def closest(word: str, terms: Iterable[str]) -> list[str]:
    """Return the terms with the fewest errors, if they are few enough for a word of this length."""
    found: dict[str, int] = {}
    least = most_errors(word)
    for term in terms:
        if abs(len(term) - len(word)) <= least and term.isalpha():
            errors = distance(word, term, least)
            if errors <= least:
                least = errors
                found[term] = errors
    return [term for term, errors in found.items() if errors == least]


def distance(one: str, other: str, most: int) -> int:
    """Return how many letters are missing, too many, other ones or swapped with the next one; `most` + 1 beyond `most`.

    The distance of Damerau and Levenshtein in its restricted form (optimal string alignment).
    """
    before: list[int] = []
    row = [*range(len(other) + 1)]
    for at, letter in enumerate(one, 1):
        older, before, row = before, row, [at]
        for to, wanted in enumerate(other, 1):
            errors = min(before[to] + 1, row[to - 1] + 1, before[to - 1] + (letter != wanted))
            if at > 1 and to > 1 and letter == other[to - 2] and one[at - 2] == wanted:
                errors = min(errors, older[to - 2] + 1)
            row.append(errors)
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)
