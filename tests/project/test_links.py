"""Every link in the documents leads to a file, and to a heading of it."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from repository import DOCS, ROOT

_FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_MODULE = re.compile(r"`((?:cli|fuse|server(?:_parts)?|vfs|resources|sources|config|model|runtime)/[a-z_/]+(?:\.py)?)`")
"""How docs/architecture.md names a module or a package."""
_METHODS = {"resources/list", "resources/read"}
"""Names of requests of MCP that look like modules."""
_NAMED = re.compile(r"\bdocs/[\w/-]+\.md\b")
"""How code and messages name a document."""


def tracked(*patterns: str) -> list[Path]:
    """Return the files of the repository that match one of the patterns."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name and (ROOT / name).exists()]


def prose(text: str) -> str:
    """Return a text in Markdown without its blocks of code."""
    return _FENCE.sub("", text)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = _HEADING.findall(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", prose(page.read_text())))
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


def broken(page: Path, text: str) -> list[str]:
    """Return the links in the text of a page that lead nowhere in the repository."""
    found: list[str] = []
    for link in _LINK.findall(prose(text)):
        path, _, anchor = link.partition("#")
        target = page if not path else page.parent / path
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target.resolve()))):
            found.append(link)
    return found


def test_every_link_leads_somewhere() -> None:
    pages = tracked("*.md")
    assert DOCS / "semantics.md" in pages
    found = {str(page.relative_to(ROOT)): links for page in pages if (links := broken(page, page.read_text()))}
    assert found == {}


def test_every_document_that_code_names_exists() -> None:
    files = tracked("bbfs/*.py", "benchmarks/*.py", "pyproject.toml", "systemd/*", "Makefile", "scripts/*")
    named = {(name, file) for file in files for name in _NAMED.findall(file.read_text(errors="replace"))}
    missing = {name: str(file.relative_to(ROOT)) for name, file in named if not (ROOT / name).exists()}
    assert len(named) > 10
    assert missing == {}


def test_every_module_that_the_architecture_names_exists() -> None:
    named = set(_MODULE.findall((DOCS / "architecture.md").read_text())) - _METHODS
    assert len(named) > 30
    assert {
        name for name in named if not any((ROOT / "bbfs" / name).with_suffix(end).exists() for end in ("", ".py"))
    } == set()


@pytest.mark.parametrize(
    ("link", "is_broken"),
    [
        ("semantics.md", False),
        ("semantics.md#writing", False),
        ("#names-and-the-tree", False),
        ("https://example.com/x", False),
        ("none.md", True),
        ("semantics.md#none", True),
    ],
)
def test_a_link_that_leads_nowhere_is_noticed(link: str, is_broken: bool) -> None:
    text = f"A [link]({link}) and a block:\n\n```\n[no link](nowhere.md)\n```\n"
    assert broken(DOCS / "semantics.md", text) == ([link] if is_broken else [])
