"""Jupyter notebooks (nbformat 3 and 4): their texts, their code, and what the code has put out as text."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.sources.documents import html_markdown
from bbfs.sources.documents.decoding import decoded

MOST_CELLS = 20_000
"""Cells of a notebook, and outputs of a cell."""
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Sequences that colour the lines of an error."""
_PICTURE = re.compile(r"\(\s*data:[^()\s]*\)|(?<=[\"'])data:[^\"'\s]*(?=[\"'])")
"""A picture whose bytes stand in a text, in Markdown or in HTML."""
_FENCE = re.compile(r"^[ \t]*(`{3,})", re.MULTILINE)
_LANGUAGE = re.compile(r"[\w+#.-]{1,40}")


def read(document: bytes) -> Iterator[str]:
    """Yield the cells in their order."""
    try:
        notebook = json.loads(decoded(document))
    except ValueError as error:
        raise ProtocolViolation("is no JSON") from error
    if not isinstance(notebook, dict):
        raise ProtocolViolation("is no notebook")
    sheets = notebook.get("worksheets")  # of nbformat 3
    holders = [notebook, *(sheets if isinstance(sheets, list) else [])]
    cells = [cell for holder in holders if isinstance(holder, dict) for cell in _list(holder.get("cells"))]
    if len(cells) > MOST_CELLS:
        raise TooLarge(f"has more than {MOST_CELLS} cells")
    language = _language(notebook)
    for cell in cells:
        if isinstance(cell, dict):
            yield from _cell(cell, language)


def _language(notebook: Mapping[str, Any]) -> str:
    said = notebook.get("metadata")
    for place, key in (("kernelspec", "language"), ("language_info", "name")):
        described = said.get(place) if isinstance(said, dict) else None
        language = described.get(key) if isinstance(described, dict) else None
        if isinstance(language, str) and _LANGUAGE.fullmatch(language):
            return language
    return ""


def _cell(cell: Mapping[str, Any], language: str) -> Iterator[str]:
    kind, source = cell.get("cell_type"), _text(cell.get("source", cell.get("input")))
    if kind == "code":
        if source.strip():
            yield _fenced(source, language)
        for output in _list(cell.get("outputs")):
            if isinstance(output, dict):
                yield _output(output)
    elif kind == "heading":
        level = cell.get("level")
        level = level if isinstance(level, int) and 1 <= level <= 6 else 1
        yield f"{'#' * level} {' '.join(source.split())}\n\n"
    elif source.strip():
        yield f"{_PICTURE.sub('(data:)', source).strip(chr(10))}\n\n"


def _output(output: Mapping[str, Any]) -> str:
    """Return what an output says, in the richest form that is text; "" for a picture."""
    data = output.get("data", output)  # nbformat 3 has the forms in the output itself
    data = data if isinstance(data, dict) else {}
    if markdown := _text(data.get("text/markdown")):
        return f"{_PICTURE.sub('(data:)', markdown).strip()}\n\n"
    page = _text(data.get("text/html", data.get("html")))
    plain = _text(data.get("text/plain", data.get("text")))
    if page and ("<table" in page or not plain):
        return (
            _PICTURE.sub("(data:)", html_markdown.job(page.encode("utf-8", "replace"), {"charset": "utf-8"}).decode())
            + "\n"
        )
    if trace := _list(output.get("traceback")):
        plain = _text([f"{line}\n" for line in trace if isinstance(line, str)])
    return _fenced(plain) if plain.strip() else ""


def _fenced(text: str, language: str = "") -> str:
    text = _TERMINAL.sub("", text).strip("\n")
    longest = max((len(run) for run in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n\n"


def _list(value: Any) -> list[Any]:
    return value[:MOST_CELLS] if isinstance(value, list) else []


def _text(value: Any) -> str:
    """Return a text of a notebook: a string, or a list of its lines."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""
