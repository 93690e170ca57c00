"""The plan of a grep: it never requires what a matching line may lack."""

import subprocess
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbfs.resources.search.index.text import Terms, folds_to_ascii, is_unspaced, terms
from bbfs.resources.search.literals import LONGEST_PATTERN, And, Anything, Node, Or, Run, Syntax, plan


def allows(node: Node, found: Terms) -> bool:
    match node:
        case Run(text) if is_unspaced(text):
            return all(one + other in found.pairs for one, other in pairwise(text))
        case Run(text):
            return any(text in term for term in found.words)
        case And(parts):
            return all(allows(part, found) for part in parts)
        case Or(parts):
            return any(allows(part, found) for part in parts)
        case Anything():
            return True


@pytest.mark.parametrize(
    ("pattern", "required"),
    [
        ("certificate", Run("certificate")),
        ("Renew the", And((Run("renew"), Run("the")))),
        ("ab+c", And((Run("ab"), Run("c")))),
        ("abc*", Run("ab")),
        ("abc?d", And((Run("ab"), Run("d")))),
        ("ab{2}c", And((Run("ab"), Run("c")))),
        ("ab{0,2}c", And((Run("a"), Run("c")))),
        ("(one|two)three", And((Or((Run("one"), Run("two"))), Run("three")))),
        ("(one|two)*three", Run("three")),
        ("a+?b", Run("b")),
        ("one|", Anything()),
        ("[abc]def", Run("def")),
        ("[]abc]def", Run("def")),
        ("[[:alpha:]]def", Run("def")),
        (r"\<word\>", Run("word")),
        (r"a\.b", And((Run("a"), Run("b")))),
        (r"(a)\1", Run("a")),
        ("a{x", Anything()),
        ("(a", Anything()),
        ("a)", Anything()),
        ("*a", Anything()),
        ("für", Run("für")),
        ("first\nsecond", Or((Run("first"), Run("second")))),
    ],
)
def test_the_plan_of_an_extended_pattern(pattern: str, required: Node) -> None:
    assert plan(pattern, "extended").required == required


@pytest.mark.parametrize(
    ("pattern", "required"),
    [
        (r"\d+ errors", Run("errors")),
        ("(?:one|two)", Or((Run("one"), Run("two")))),
        ("(?i)one", Anything()),
        ("(?!one)two", Anything()),
        (r"\x41bc", Anything()),
        (r"\Qa.b\E", Anything()),
        (r"[\]a]def", Run("def")),
    ],
)
def test_the_plan_of_a_perl_pattern(pattern: str, required: Node) -> None:
    assert plan(pattern, "perl").required == required


def test_letters_beyond_ascii_require_nothing_where_case_is_ignored() -> None:
    assert plan("für", "fixed", ignore_case=True).required == And((Run("f"), Run("r")))


def test_a_deep_pattern_requires_nothing() -> None:
    assert plan("(" * 5000 + "a" + ")" * 5000, "extended").required == Anything()
    assert plan("a" * 20_000, "extended").required == Anything()


_PIECES = st.sampled_from(
    [
        "a",
        "b",
        "ab",
        "明証",
        "ไท",
        "証",
        "K",
        "k",
        "s",
        "é",
        "É",
        "_",
        " ",
        "-",
        ".",
        "x",
        "*",
        "+",
        "?",
        "|",
        "(",
        ")",
        "(a|b)",
        "[ab]",
    ]
) | st.sampled_from(
    ["[^a]", "[]x]", "^", "$", "{2}", "{0,1}", "{,2}", "\\.", "\\w", "\\b", "\\<", "\\1", "[[:alpha:]]", "\\d", "(?:"]
)
_TEXT = st.text(alphabet="abkKsSxéÉ_ -.\u212a\u017f\n明証ไท", max_size=40)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(_PIECES, min_size=1, max_size=7).map("".join),
    st.lists(_TEXT, min_size=1, max_size=8),
    st.sampled_from(["-E", "-F", "-P"]),
    st.booleans(),
)
def test_a_text_that_grep_matches_has_all_that_the_plan_requires(
    pattern: str, texts: list[str], syntax: str, ignore_case: bool
) -> None:
    options = [syntax, *(["-i"] if ignore_case else [])]
    query = plan(pattern, {"-E": "extended", "-F": "fixed", "-P": "perl"}[syntax], ignore_case=ignore_case)  # type: ignore[arg-type]
    for text in texts:
        if allows(query.required, terms(text)) or (ignore_case and folds_to_ascii(text)):
            continue
        ran = subprocess.run(
            ["grep", *options, "-q", "-e", pattern], input=text.encode(), capture_output=True, env={"LC_ALL": "C.UTF-8"}
        )
        assert ran.returncode != 0, (pattern, text)


@given(st.text(alphabet="abZé0 -_明証ไท", max_size=400), st.integers(0, 400), st.integers(1, 32))
def test_every_short_run_of_a_text_is_in_a_term(text: str, at: int, length: int) -> None:
    assert allows(plan(text[at : at + length], "fixed").required, terms(text))


@pytest.mark.parametrize("syntax", ["extended", "perl", "fixed"])
@pytest.mark.parametrize("piece", ["[[:a", "[[.", "[", "(a|", "a{1}", "\\", "[^]", "(?:", "a\n", "|", "[[:a:]"])
def test_a_hostile_pattern_is_planned_within_the_bound(piece: str, syntax: Syntax) -> None:
    begun = time.process_time()
    plan(piece * (LONGEST_PATTERN // len(piece)), syntax)
    assert time.process_time() - begun < 5
