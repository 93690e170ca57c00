"""No module, function, class or package of the product has more than a reader takes in at once."""

import ast
from collections import Counter
from collections.abc import Iterator

from repository import ROOT, parsed

PRODUCT = ROOT / "bbfs"
LINES_OF_A_MODULE, LINES_OF_A_FUNCTION = 500, 50
METHODS, MODULES = 40, 13
IMPORTS_INSIDE = 20
"""Imports in functions of the whole product: each makes a start cheaper, or breaks a circle."""
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def too_large(module: str, tree: ast.Module, lines: int) -> Iterator[str]:
    if lines > LINES_OF_A_MODULE:
        yield f"{module}: {lines} lines"
    for node in ast.walk(tree):
        if isinstance(node, FUNCTION) and (length := (node.end_lineno or 0) - node.lineno + 1) > LINES_OF_A_FUNCTION:
            yield f"{module}: {node.name} has {length} lines"
        if (
            isinstance(node, ast.ClassDef)
            and (count := sum(isinstance(each, FUNCTION) for each in node.body)) > METHODS
        ):
            yield f"{module}: {node.name} has {count} methods"


def test_nothing_is_too_large() -> None:
    modules = [*PRODUCT.rglob("*.py")]
    found = [
        problem
        for path in modules
        for problem in too_large(str(path.relative_to(PRODUCT)), parsed(path), path.read_text().count("\n"))
    ]
    packages = Counter(path.parent.relative_to(PRODUCT) for path in modules)
    found += [f"{package}: {count} modules" for package, count in packages.items() if count > MODULES]
    assert found == []


def test_few_imports_stand_in_functions() -> None:
    found = Counter(
        f"{path.relative_to(PRODUCT)}:{each.lineno}"
        for path in PRODUCT.rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, FUNCTION)
        for each in ast.walk(node)
        if isinstance(each, ast.Import | ast.ImportFrom)
    )
    assert len(found) <= IMPORTS_INSIDE, sorted(found)


def test_what_is_too_large_is_found() -> None:
    methods = "\n".join(f"    def m{number}(self): ..." for number in range(METHODS + 1))
    body = "    x\n" * LINES_OF_A_FUNCTION
    text = f"def f():\n{body}class C:\n{methods}\n"
    assert [*too_large("a.py", ast.parse(text), LINES_OF_A_MODULE + 1)] == [
        "a.py: 501 lines", "a.py: f has 51 lines", "a.py: C has 41 methods",
    ]  # fmt: skip
