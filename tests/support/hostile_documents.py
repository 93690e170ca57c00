"""Documents of sources that mean harm: each function makes one. Small inputs whose parsers would make much of them."""

import json
import os
import re
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
    row = '<row r="{0}"><c r="XFD{0}" t="inlineStr"><is><t>{1}</t></is></c></row>'
    rows = "".join(row.format(number, "x" * 100_000) for number in (*range(1, 1000), 1_048_576))
    beginning = '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    whole = f"{beginning}{rows}</sheetData></worksheet>".encode()
    return changed(made.excel("a", ("x",)), "xl/worksheets/sheet1.xml", lambda _sheet: whole)


def deep_groups() -> bytes:
    """Return a PowerPoint file with 200 groups of shapes inside each other, which its library reads."""
    return changed(
        made.powerpoint("a", "b"),
        "ppt/slides/slide1.xml",
        lambda slide: slide.replace(b"</p:spTree>", b"<p:grpSp>" * 200 + b"</p:grpSp>" * 200 + b"</p:spTree>"),
    )


def same_slides(number: int) -> bytes:
    """Return a PowerPoint file that lists one slide again and again, whose layout has many shapes without a text."""
    once = changed(
        made.powerpoint("", ""),
        "ppt/slideLayouts/slideLayout2.xml",
        lambda layout: layout.replace(b"</p:spTree>", b"<p:cxnSp/>" * 10 * number + b"</p:spTree>"),
    )
    listed = re.compile(rb"<p:sldId [^>]*>")
    return changed(once, "ppt/presentation.xml", lambda deck: listed.sub(lambda slide: slide[0] * number, deck))


def same_charts(number: int) -> bytes:
    """Return a PowerPoint file that shows one chart again and again, which has many elements without a text."""
    shown = re.compile(rb"<p:graphicFrame.*?</p:graphicFrame>", re.DOTALL)
    chart = rb"(?=</c:chart>)"
    once = changed(
        made.drawn_powerpoint(), "ppt/charts/chart1.xml", lambda each: re.sub(chart, b"<c:x/>" * 10 * number, each)
    )
    return changed(once, "ppt/slides/slide1.xml", lambda slide: shown.sub(lambda each: each[0] * number, slide))


def changed(document: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """Return an archive with another member."""
    with zipfile.ZipFile(BytesIO(document)) as opened:
        members = {each: opened.read(each) for each in opened.namelist()}
    return made.archive({**members, name: change(members[name])})


def nested_mail(depth: int) -> bytes:
    """Return a mail whose parts are inside each other."""
    opened = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(depth))
    return b"Subject: x\n" + opened + b"\nlast\n"


def many_parts_mail(count: int) -> bytes:
    return b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\nContent-Type: text/plain\n\nx\n" * count


def repeated_cells() -> bytes:
    """Return a sheet of some hundred bytes that has 17 000 million cells."""
    cell = "<table:table-cell table:number-columns-repeated='16384'><text:p>xxxxxxxx</text:p></table:table-cell>"
    row = f"<table:table-row table:number-rows-repeated='1048576'>{cell}</table:table-row>"
    return made.open_document(f"<table:table>{row}</table:table>")


def entities_utf16() -> bytes:
    return f'<?xml version="1.0" encoding="utf-16"?>{entities()}'.encode("utf-16")


def notebook_of(source: str) -> bytes:
    return json.dumps({"cells": [{"cell_type": kind, "source": source} for kind in ("code", "markdown")]}).encode()


def long_cues(lines: int) -> bytes:
    """Return two captions of many lines that share no line."""
    texts = ("".join(f"{mark}{number}\n" for number in range(lines)) for mark in "ab")
    return "".join(f"00:00:0{number},0 --> 00:00:09,0\n{text}\n" for number, text in enumerate(texts)).encode()


def blank_cells(rows: int) -> bytes:
    cell = "<table:table-cell table:number-columns-repeated='16384' office:string-value=' '/>"
    return made.open_document(f"<table:table>{f'<table:table-row>{cell}</table:table-row>' * rows}</table:table>")


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
    "groups in groups": ("powerpoint", deep_groups),
    "an archive of another kind": ("powerpoint", lambda: made.word("a")),
    "repeated cells": ("opendocument", repeated_cells),
    "many parts": ("mail", lambda: many_parts_mail(5_000)),
    "deep groups": ("rich text", lambda: b"{\\rtf1" + b"{" * 100_000),
}
"""The kind of each, and the file."""


HOSTILE_TEXTS: Mapping[str, tuple[str, Callable[[], bytes]]] = {
    "deep JSON": ("notebook", lambda: b'{"cells": ' + b"[" * 100_000),
    "a notebook that is none": ("notebook", lambda: b'{"cells": {"a": 1}, "worksheets": 5, "metadata": []}'),
    "cells of other types": ("notebook", lambda: b'{"cells": [1, {"source": 5, "outputs": [{"data": []}, 7]}]}'),
    "a picture in a text": ("notebook", lambda: b'{"cells": [{"source": "(data:' + b"A" * 1_000_000 + b'"}]}'),
    "lines without a fence": ("notebook", lambda: notebook_of("a" + "\n" * 100_000 + "b")),
    "beginnings of pictures": ("notebook", lambda: notebook_of("(data:" * 80_000)),
    "captions of many lines": ("subtitles", lambda: long_cues(100_000)),
    "many openings": ("subtitles", lambda: b"00:00:01,0 --> 00:00:02,0\n" + b"<v " * 100_000),
    "many times": ("subtitles", lambda: b"00:00:01,0 --> 00:00:02,0\n" * 50_000),
    "entities in UTF-16": ("opendocument", entities_utf16),
    "deep elements": ("opendocument", lambda: made.open_document("<text:p>" * 100_000)),
    "repeated cells": ("opendocument", repeated_cells),
    "many spaces": (
        "opendocument",
        lambda: made.open_document("<text:p><text:s text:c='99999999999'/>x</text:p>" * 99),
    ),
    "blank cells": ("opendocument", lambda: blank_cells(40_000)),
    "an archive of nothing": ("opendocument", lambda: made.archive({})),
    "one slide again and again": ("powerpoint", lambda: same_slides(3_000)),
    "one chart again and again": ("powerpoint", lambda: same_charts(3_000)),
    "deep parts": ("mail", lambda: nested_mail(200)),
    "many parts": ("mail", lambda: many_parts_mail(5_000)),
    "encoded words": ("mail", lambda: b"Subject: " + b"=?utf-8?b?" * 20_000 + b"\n\nx"),
    "no end of quotes": ("mail", lambda: b'Content-Type: text/plain; a="' + b'\\"' * 50_000 + b"\n\nx"),
    "an encoding that is none": ("mail", lambda: b"Content-Type: text/plain; charset=idna\n\n" + b"xn--" * 10_000),
    "many parameters": ("mail", lambda: b'Content-Type: text/plain; a="' + b";" * 250_000 + b"\n\nx"),
    "words without an end": (
        "mail",
        lambda: (b"To: " + b"=?a?q? " * 9_000 + b"\nCc: " + b"=?a?q? " * 9_000 + b"\n") * 9,
    ),
    "beginnings of mails": ("mail", lambda: b"From a\n\n" * 2_000),
    "deep groups": ("rich text", lambda: b"{\\rtf1" + b"{" * 100_000),
    "ends of groups": ("rich text", lambda: b"{\\rtf1 a" + b"}" * 100_000),
    "notes in notes": ("rich text", lambda: b"{\\rtf1" + b"{\\footnote x" * 900),
    "notes in one paragraph": ("rich text", lambda: b"{\\rtf1 " + b"a{\\footnote }" * 150_000),
    "bytes without an end": ("rich text", lambda: b"{\\rtf1\\bin9999999999 x}"),
}
"""Documents of kinds whose readers are bbfs's own: the kind of each, and the document. Each takes milliseconds."""
