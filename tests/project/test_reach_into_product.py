"""Tests go through what the product offers: how often they reach past it is counted, and may only fall."""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from repository import TESTS, own_modules, parsed

MOST_PRIVATE = 7
"""Uses of names with an underscore of other objects, patches of them included."""
MOST_PATCHED = 25
"""Constants that tests patch."""
_OWN = {"self", "cls", "os"}  # and os._exit, which has no other name
_MAY_REACH = re.compile(r"(?<!\bself)(?<!\bcls)\._[a-zA-Z]|setattr\(")
"""What a module has that may count. To parse all modules takes three seconds."""


def private_names(tree: ast.AST) -> Iterator[str]:
    """Yield each use of a name with an underscore that belongs to another object than the method's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_own(node.value):
            yield ast.unparse(node)
    yield from (name for name in _patched(tree) if _is_private(name))


def patched_constants(tree: ast.AST) -> Iterator[str]:
    """Yield the name of each constant that a test sets in a module or class."""
    yield from (name for name in _patched(tree) if name.isupper())


def _patched(tree: ast.AST) -> Iterator[str]:
    """Yield the names that calls of `monkeypatch.setattr` set, written with the object or as one dotted text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            texts = [arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            yield from (text.rpartition(".")[2] for text in texts[:1])


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_own(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in _OWN


@pytest.mark.parametrize(("uses", "most"), [(private_names, MOST_PRIVATE), (patched_constants, MOST_PATCHED)])
def test_tests_reach_past_the_product_seldom(uses: Callable[[ast.AST], Iterator[str]], most: int) -> None:
    modules = (path for path in own_modules() if _MAY_REACH.search(path.read_text()))
    found = Counter({path.relative_to(TESTS): len([*uses(parsed(path))]) for path in modules})
    number = found.total()
    where = ", ".join(f"{path}: {count}" for path, count in found.most_common(10))
    assert number <= most, (
        f"{uses.__name__}: {number}, and {most} were there. Give the class a parameter, or test what it shows. {where}"
    )


def test_what_reaches_past_the_product_is_found() -> None:
    tree = ast.parse(
        "self._a; cls._b; os._exit(1); super()._c; made._d; made.__e__\n"
        "patch.setattr(module, '_f', 1); patch.setattr('a.b._G', 2); patch.setattr(module, 'H', 3)"
    )
    assert list(private_names(tree)) == ["made._d", "_f", "_G"]
    assert list(patched_constants(tree)) == ["_G", "H"]
