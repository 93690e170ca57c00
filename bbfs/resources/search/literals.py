"""The literals that a regular expression requires, so that an index can tell which documents cannot match.

The plan may require too little, never too much: what the parser does not know for sure requires nothing. GNU grep
itself does the matching.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bbfs.resources.search.index.text import runs

Syntax = Literal["extended", "fixed", "perl"]
DEEPEST = 50
"""Groups in groups; of a deeper pattern, nothing is required."""
LONGEST_PATTERN = 2000
"""Characters of a pattern of which literals are required."""
_INTERVAL = re.compile(r"\{(\d+)(?:,\d*)?\}")
_PERL_UNKNOWN = re.compile(r"\(\?(?!:)|\(\*|\\[^\WdDwWsSbBAzZnrtfevhHV]")
"""Syntax of Perl that changes the meaning of the rest of a pattern, or takes characters that look like literals."""
_CLASS = re.compile(r"\[\^?\]?(?:\[([:.=]).*?\1\]|[^\]])*\]", re.DOTALL)
_PERL_CLASS = re.compile(r"\[\^?\]?(?:\[:.*?:\]|\\.|[^\]\\])*\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of characters that a line must have, in terms (`index.text`)."""

    text: str


@dataclass(frozen=True, slots=True)
class And:
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Or:
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Anything:
    """No requirement."""


Node = And | Or | Run | Anything


@dataclass(frozen=True, slots=True)
class Query:
    """The requirement of a pattern. ignore_case: letters of both cases match."""

    required: Node
    ignore_case: bool = False


class _Unknown(Exception):
    """A part of a pattern whose meaning the parser does not know."""


def plan(pattern: str, syntax: Syntax, *, ignore_case: bool = False) -> Query:
    """Return what a line must have to match a pattern. A pattern of several lines matches if one of them does."""
    lines = [_required(line, syntax, ignore_case) for line in pattern[: LONGEST_PATTERN + 1].split("\n")]
    return Query(Anything() if len(pattern) > LONGEST_PATTERN else _or(lines), ignore_case)


def _required(pattern: str, syntax: Syntax, ignore_case: bool) -> Node:
    if syntax == "fixed":
        return _and([_literal(pattern, ignore_case)])
    if syntax == "perl" and _PERL_UNKNOWN.search(pattern):
        return Anything()
    parser = _Parser(pattern, ignore_case, perl=syntax == "perl")
    try:
        return parser.parse()
    except _Unknown:
        return Anything()


def _literal(text: str, ignore_case: bool) -> Node:
    """Return the requirement of a literal. Where case is ignored, only ASCII letters are known to stay in ASCII."""
    unknown = r"[^\x00-\x7f]" if ignore_case else r"[\ud800-\udfff]"
    return _and([Run(run) for piece in re.split(unknown, text) for run in runs(piece)])


def _and(parts: Sequence[Node]) -> Node:
    known = tuple(dict.fromkeys(part for part in parts if not isinstance(part, Anything)))
    return And(known) if len(known) > 1 else next(iter(known), Anything())


def _or(parts: Sequence[Node]) -> Node:
    if any(isinstance(part, Anything) for part in parts):
        return Anything()
    known = tuple(dict.fromkeys(parts))
    return Or(known) if len(known) > 1 else next(iter(known))


class _Parser:
    """Reads one pattern, of POSIX extended syntax as GNU grep has it, or of Perl's without what `_PERL_UNKNOWN` finds.

    perl: the syntax.
    """

    def __init__(self, pattern: str, ignore_case: bool, *, perl: bool) -> None:
        self._pattern = pattern
        self._ignore_case = ignore_case
        self._perl = perl
        self._at = 0

    def parse(self) -> Node:
        """Return the requirement of the whole pattern. Raise _Unknown."""
        node = self._alternatives(0)
        if self._at < len(self._pattern):
            raise _Unknown
        return node

    def _alternatives(self, depth: int) -> Node:
        if depth > DEEPEST:
            raise _Unknown
        found = [self._sequence(depth)]
        while self._next() == "|":
            self._at += 1
            found.append(self._sequence(depth))
        return _or(found)

    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _sequence(self, depth: int) -> Node:
        """Read up to the end of an alternative."""
        required: list[Node] = []
        literal = ""
        while (character := self._next()) not in ("", "|", ")"):
            atom = self._atom(character, depth)
            repeated, optional = self._quantifiers()
            if isinstance(atom, str) and not optional:
                literal += atom
            if not isinstance(atom, str) or repeated or optional:
                required.append(_literal(literal, self._ignore_case))
                literal = ""
            if not isinstance(atom, str) and not optional:
                required.append(atom)
        return _and([*required, _literal(literal, self._ignore_case)])

    def _atom(self, character: str, depth: int) -> Node | str:
        """Read one atom: return a literal character, or the requirement of anything else."""
        if character == "(":
            self._at += 3 if self._pattern.startswith("(?:", self._at) and self._perl else 1
            group = self._alternatives(depth + 1)
            if self._next() != ")":
                raise _Unknown
            self._at += 1
            return group
        if character == "[":
            found = (_PERL_CLASS if self._perl else _CLASS).match(self._pattern, self._at)
            if found is None:
                raise _Unknown
            self._at = found.end()
            return Anything()
        if character == "\\":
            escaped = self._pattern[self._at + 1 : self._at + 2]
            if not escaped:
                raise _Unknown
            self._at += 2
            return Anything() if escaped.isalnum() or escaped in "<>`'_" or ord(escaped) > 127 else escaped
        if character == "{" or (character in "*+?" and self._at == 0):
            raise _Unknown
        self._at += 1
        return Anything() if character in ".^$*+?" else character

    def _quantifiers(self) -> tuple[bool, bool]:
        """Read the quantifiers of an atom. Return whether there are any, and whether the atom may be missing."""
        repeated = optional = False
        while (character := self._next()) and character in "*+?{":
            repeated = True
            if character == "{":
                found = _INTERVAL.match(self._pattern, self._at)
                if found is None:
                    raise _Unknown
                optional = optional or int(found[1]) == 0
                self._at = found.end()
            else:
                optional = optional or character in "*?"
                self._at += 1
        return repeated, optional
