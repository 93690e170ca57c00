"""docs/semantics.md agrees with the tests and the errors: a test for every promise, an errno for every error."""

import ast
import errno
import pkgutil
import re
from importlib import import_module

import pytest
import repository

import bbfs
from bbfs.model.errors import BbfsError

DOCUMENT = repository.DOCS / "semantics.md"
LONGEST = 125
"""Words of one promise, tables aside. A longer one is more than one promise."""
_PROMISE = re.compile(r"^ *- \*\*(S[0-9]+(?:\.[0-9]+)?)\*\*( \(planned\))? ", re.MULTILINE)
_ERROR = re.compile(r"^ *\| `(\w+)` \| `(E[A-Z]+)` \|", re.MULTILINE)


def promises(text: str) -> dict[str, bool]:
    """The numbers of a document in their order, and whether each is kept already."""
    return {match[1]: match[2] is None for match in _PROMISE.finditer(text)}


def marked(module: ast.Module) -> set[str]:
    """The numbers in the `semantics` marks of a test module."""
    return {
        argument.value
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "semantics"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def test_every_promise_that_is_kept_has_a_test_and_every_mark_a_promise() -> None:
    documented = promises(DOCUMENT.read_text())
    tested: dict[str, set[str]] = {}
    for path in repository.own_modules():
        for number in marked(repository.parsed(path)) if "semantics(" in path.read_text() else ():
            tested.setdefault(number, set()).add(path.name)
    assert {number: files for number, files in tested.items() if number not in documented} == {}
    assert [number for number, kept in documented.items() if kept and number not in tested] == []


def test_the_promises_are_numbered_without_a_gap() -> None:
    text = DOCUMENT.read_text()
    found = [match[1] for match in _PROMISE.finditer(text)]
    whole = [number for number in found if "." not in number]
    assert sorted(whole, key=lambda number: int(number[1:])) == [f"S{number}" for number in range(1, len(whole) + 1)]
    parts = {number: [part for part in found if part.startswith(f"{number}.")] for number in whole}
    # The parts of a promise follow it, so that no number is there twice.
    assert found == [
        each for number in whole for each in (number, *(f"{number}.{at}" for at in range(1, len(parts[number]) + 1)))
    ]
    assert len(whole) >= 40


def test_each_number_is_one_promise() -> None:
    text = re.sub(r"^ *\|.*\n", "", DOCUMENT.read_text(), flags=re.MULTILINE)
    parts = re.split(r"^(?: *- \*\*(S[\d.]+)\*\*|## .*$)", text, flags=re.MULTILINE)
    long = {number: len(words.split()) for number, words in zip(parts[1::2], parts[2::2], strict=True) if number}
    assert {number: words for number, words in long.items() if words > LONGEST} == {}


def test_marks_and_promises_are_found() -> None:
    text = "- **S1** a\n  - **S1.1** b\n- **S2** (planned) c\n  **S3** d\n"
    assert promises(text) == {"S1": True, "S1.1": True, "S2": False}
    module = ast.parse("@pytest.mark.semantics('S1', 'S2.1')\ndef test(): ...\nx = 'S3'")
    assert marked(module) == {"S1", "S2.1"}


def all_errors() -> dict[str, type[BbfsError]]:
    """BbfsError and every subclass of it in the product, by name."""
    for module in pkgutil.walk_packages(bbfs.__path__, "bbfs."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    found: dict[str, type[BbfsError]] = {}
    pending = [BbfsError]
    while pending:
        error = pending.pop()
        if error.__module__.startswith("bbfs."):
            found[error.__name__] = error
        pending.extend(error.__subclasses__())
    return found


@pytest.mark.semantics("S23")
def test_every_error_has_the_errno_of_the_table() -> None:
    table = {name: getattr(errno, code) for name, code in _ERROR.findall(DOCUMENT.read_text())}
    found = all_errors()
    shared = {name: error.errno for name, error in found.items() if error.__module__ == "bbfs.model.errors"}
    assert table == shared
    # What a part of the product adds is a special case of one of these.
    added = {name: error for name, error in found.items() if name not in shared}
    assert {name: error.errno for name, error in added.items()} == {
        name: next(table[base.__name__] for base in error.__mro__ if base.__name__ in table)
        for name, error in added.items()
    }
