"""Hostile documents on a real mount: what programs get that ask for their texts."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import folder
from hostile import Case
from hostile_documents import HOSTILE_FILES

EXTENSIONS = {
    "word": "docx",
    "powerpoint": "pptx",
    "excel": "xlsx",
    "pdf": "pdf",
    "epub": "epub",
    "opendocument": "ods",
    "mail": "eml",
    "rich text": "rtf",
}
QUICK = {"entities"}
COPIES = 2
"""Documents of each kind: a source has one conversion at a time."""


def read(directory: Path) -> Sequence[Sequence[str | Path]]:
    """Return the programs that list the documents with their texts, and read all."""
    return [("ls", "-l", directory), ("grep", "-rc", "x", directory)]


def cases() -> Iterator[Case]:
    for name, (kind, document) in HOSTILE_FILES.items():
        source = in_folder(EXTENSIONS[kind], document)
        directory, bounds = "bb-filesystem+hostile+file", {"documents": {"seconds": 1}}
        yield Case(name, source, directory, read, quick=name in QUICK, tables=bounds)


def in_folder(extension: str, document: Callable[[], bytes]) -> Callable[[Path], dict[str, Any]]:
    def source(root: Path) -> dict[str, Any]:
        data = document()
        for number in range(COPIES):
            (root / f"{number}.{extension}").write_bytes(data)
        return folder("hostile", root, text="listed")

    return source


@pytest.mark.semantics("S27", "S38.4")
@pytest.mark.parametrize("case", [*cases()], ids=str)
def test_a_hostile_document_harms_nobody(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)
