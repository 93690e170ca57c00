"""Documents of sources that mean harm: each function makes one. Small inputs whose parsers would make much of them."""

import os
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO

import office_documents as made


def deep_yaml(depth: int = 25_000) -> bytes:
    return b"openapi: 3.0.0\nx: " + b"[" * depth


def deep_block_yaml(depth: int = 2_000) -> bytes:
    return b"".join(b" " * level + b"- \n" for level in range(depth))


def merging_yaml(levels: int = 9, fan_out: int = 9) -> bytes:
    """Merge keys that lead to merge keys."""
    lines = [b"a0: &a0 {k: 1}"]
    for level in range(1, levels + 1):
        before = b", ".join([b"*a%d" % (level - 1)] * fan_out)
        lines.append(b"a%d: &a%d {<<: [%s], k%d: [%s]}" % (level, level, before, level, before))
    return b"\n".join(lines)


def aliases_yaml(levels: int = 12, fan_out: int = 9) -> bytes:
    """Aliases of aliases: a "billion laughs"."""
    lines = [b"a0: &a0 laugh"]
    for level in range(1, levels + 1):
        lines.append(b"a%d: &a%d [%s]" % (level, level, b", ".join([b"*a%d" % (level - 1)] * fan_out)))
    return b"\n".join(lines)


def alias_keys_yaml(count: int = 30_000) -> bytes:
    """One large anchor, merged over and over into the same mapping, which never grows."""
    members = b", ".join(b"k%d: 1" % number for number in range(2_000))
    return b"a: &a {%s}\nb: {<<: [%s]}" % (members, b", ".join([b"*a"] * count))


def long_numbers_yaml(digits: int = 2_000_000) -> bytes:
    return b"a: " + b"9" * digits + b"\nb: ." + b"9" * digits + b"\nc: 1e" + b"9" * digits


def many_anchors_yaml(count: int = 300_000) -> bytes:
    return b"[" + b",".join(b"&a%d 1" % number for number in range(count)) + b"]"


def many_documents_yaml(count: int = 300_000) -> bytes:
    return b"--- a\n" * count


def many_directives_yaml(count: int = 100_000) -> bytes:
    return b"".join(b"%%TAG !t%d! tag:x,%d:\n" % (number, number) for number in range(count)) + b"--- a\n"


def question_marks_yaml(count: int = 20_000) -> bytes:
    return b"? " * count


HOSTILE_YAML = {
    each.__name__: each
    for each in (
        *(deep_yaml, deep_block_yaml, merging_yaml, aliases_yaml, alias_keys_yaml, long_numbers_yaml),
        *(many_anchors_yaml, many_documents_yaml, many_directives_yaml, question_marks_yaml),
    )
}


def deep_tables(depth: int) -> str:
    return "<w:tbl><w:tr><w:tc>" * depth + "</w:tc></w:tr></w:tbl>" * depth


def entities() -> str:
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    return f'<!DOCTYPE a [<!ENTITY e0 "x">{levels}]><container>&e11;</container>'


def looping_pages() -> bytes:
    """Return a PDF file whose tree of pages has itself as a branch."""
    return made.pdf_of(["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"])


def many_pages() -> bytes:
    """Return a PDF file that has one page half a million times."""
    kids = "3 0 R " * 500_000
    page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>"
    pages = f"<< /Type /Pages /Kids [{kids}] /Count 500000 >>"
    return made.pdf_of(["<< /Type /Catalog /Pages 2 0 R >>", pages, page])


def understated(document: bytes) -> bytes:
    """Return an archive whose last member says to have 1000 bytes."""
    changed = bytearray(document)
    for signature, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        at = changed.rindex(signature) + place
        changed[at : at + 4] = (1000).to_bytes(4, "little")
    return bytes(changed)


def sheet() -> bytes:
    """Return an Excel file with one sheet of 100 MB, which has cells in the last column and the last row."""
    small = made.excel("a", ("x",))
    with zipfile.ZipFile(BytesIO(small)) as opened:
        members: dict[str, str | bytes] = {name: opened.read(name) for name in opened.namelist()}
    row = '<row r="{0}"><c r="XFD{0}" t="inlineStr"><is><t>{1}</t></is></c></row>'
    rows = "".join(row.format(number, "x" * 100_000) for number in (*range(1, 1000), 1_048_576))
    beginning = '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    members["xl/worksheets/sheet1.xml"] = f"{beginning}{rows}</sheetData></worksheet>"
    return made.archive(members)


HOSTILE_FILES: Mapping[str, tuple[str, Callable[[], bytes]]] = {
    "a bomb that states a small size": ("word", lambda: understated(made.word(body="<w:p/>" * 500_000))),
    "blank paragraphs": ("word", lambda: made.word(body="<w:p/>" * 500_000)),
    "deep XML": ("word", lambda: made.word(body=deep_tables(100_000))),
    "deep XML in a book": ("epub", lambda: made.epub("x", container="<a>" * 1_000_000)),
    "entities": ("epub", lambda: made.epub("x", container=entities())),
    "a tree of pages with a loop": ("pdf", looping_pages),
    "half a million pages": ("pdf", many_pages),
    "a sheet of 100 MB": ("excel", sheet),
    "no archive": ("excel", lambda: b"PK\3\4" + os.urandom(1000)),
    "garbage": ("pdf", lambda: b"%PDF-1.7\n" + bytes(range(256)) * 1000),
    "an empty file": ("powerpoint", lambda: b""),
    "an archive of another kind": ("powerpoint", lambda: made.word("a")),
}
"""The kind of each, and the file."""
