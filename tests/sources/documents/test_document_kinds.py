"""What each kind of document becomes whose reader is bbfs's own, and what those readers refuse."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.message import EmailMessage

import office_documents as made
import pytest
from hostile_documents import HOSTILE_TEXTS

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.sources.documents.decoding import decoded
from bbfs.sources.documents.markdown import job

MOST_TEXT = 1 << 20


def text(kind: str, document: bytes) -> str:
    return job(document, {"kind": kind, "max_unpacked": 1 << 24, "max_text": MOST_TEXT}).decode()


def notebook(*cells: dict[str, object]) -> bytes:
    return json.dumps({"metadata": {"kernelspec": {"language": "python"}}, "nbformat": 4, "cells": cells}).encode()


def test_a_notebook_has_its_texts_its_code_and_what_that_put_out() -> None:
    page = "<table><tr><th>city</th><th>n</th></tr><tr><td>Oslo</td><td>1</td></tr></table>"
    outputs = [
        {"output_type": "stream", "text": ["read 3 files\n"]},
        {"output_type": "execute_result", "data": {"text/plain": "  city n", "text/html": page}},
        {"output_type": "display_data", "data": {"image/png": "AAAA"}},
        {"output_type": "error", "traceback": ["\x1b[0;31mKeyError\x1b[0m: 'x'"]},
    ]
    document = notebook(
        {"cell_type": "markdown", "source": ["# Cities\n", "![map](data:image/png;base64,AAAA)"]},
        {"cell_type": "code", "source": "print('```')\n```", "outputs": outputs},
    )
    assert text("notebook", document) == (
        "# Cities\n![map](data:)\n\n````python\nprint('```')\n```\n````\n\n```\nread 3 files\n```\n\n"
        "| city | n |\n| --- | --- |\n| Oslo | 1 |\n\n```\nKeyError: 'x'\n```\n"
    )


def test_a_notebook_of_an_old_format_is_read() -> None:
    cells = [{"cell_type": "heading", "level": 2, "source": "Old"}, {"cell_type": "code", "input": "1 + 1"}]
    assert text("notebook", json.dumps({"worksheets": [{"cells": cells}]}).encode()) == "## Old\n\n```\n1 + 1\n```\n"


def test_subtitles_become_lines_with_their_times() -> None:
    first = "\ufeff1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>Hello</i>\r\n{\\an8}you\r\n\r\n"
    subrip = f"{first}2\r\n00:01:00,0 --> 00:01:02,0\r\nBye\r\n"
    assert text("subtitles", subrip.encode()) == "[00:00:01] Hello you\n\n[00:01:00] Bye\n"
    first = "WEBVTT\n\nSTYLE\n::cue {}\n\nNOTE no\n\nid\n00:01.000 --> 00:02.000 line:0\n<v Ann>A &amp; b\n\n"
    web = f"{first}00:02.000 --> 00:03.000\nA &amp; b\nnew\n"
    assert text("subtitles", web.encode()) == "[00:01] Ann: A & b\n\n[00:02] A & b new\n"


def test_captions_that_roll_are_said_once() -> None:
    rolling = (
        "WEBVTT\n\n00:01.000 --> 00:02.000\none\n\n00:02.000 --> 00:03.000\none\ntwo\n\n00:03.000 --> 00:04.000\ntwo\n"
    )
    assert text("subtitles", rolling.encode()) == "[00:01] one\n\n[00:02] two\n"


@pytest.mark.parametrize(
    ("data", "charset", "meant"),
    [
        ("é".encode(), None, "é"),
        ("é".encode("cp1252"), None, "é"),
        ("é".encode("utf-16"), None, "é"),
        ("é".encode(), "ascii", "é"),
        ("щ".encode("koi8-r"), "koi8-r", "щ"),
        (b"a\xe9", "no such", "aé"),
        (b"a", "base64", "a"),
        (b"a\x81", None, "a\ufffd"),
    ],
)
def test_a_wrong_encoding_loses_no_text(data: bytes, charset: str | None, meant: str) -> None:
    assert decoded(data, charset) == meant


def test_an_open_text_has_headings_lists_tables_links_and_notes() -> None:
    document = made.open_document(
        "<text:h text:outline-level='2'>Plan</text:h>"
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
        "<text:p>Renew  it<text:s text:c='2'/>now<text:note><text:note-citation>1</text:note-citation>"
        "<text:p>by certbot</text:p></text:note> at <text:a xlink:href='http://x/'>x</text:a></text:p>"
        "<text:list><text:list-item><text:p>one</text:p><text:list><text:list-item><text:p>inner</text:p>"
        "</text:list-item></text:list></text:list-item></text:list>"
        "<table:table table:name='T'><table:table-row><table:table-cell><text:p>a|b</text:p><text:p>c</text:p>"
        "</table:table-cell><table:table-cell><text:p>d</text:p></table:table-cell></table:table-row></table:table>"
    )
    assert text("opendocument", document) == (
        "## Plan\n\nRenew it  now[^1] at [x](http://x/)\n\n[^1]: by certbot\n\n- one\n  - inner\n\n"
        "| a\\|b c | d |\n| --- | --- |\n"
    )


def test_an_open_sheet_repeats_cells_and_rows_and_leaves_out_empty_ones() -> None:
    row = "<table:table-row table:number-rows-repeated='{}'>{}</table:table-row>"
    cell = "<table:table-cell table:number-columns-repeated='{}' office:value='{}'>{}</table:table-cell>"
    rows = (
        row.format(1, cell.format(2, 7, "<text:p>7.00</text:p>") + "<table:table-cell/>" + cell.format(1, 8, "")),
        row.format(2, cell.format(1, 1, "")),
        row.format(1_048_573, "<table:table-cell table:number-columns-repeated='16384'/>"),
    )
    sheet = f"<office:spreadsheet><table:table table:name='Costs'>{''.join(rows)}</table:table></office:spreadsheet>"
    assert text("opendocument", made.open_document(sheet)) == (
        "## Costs\n\n| 7.00 | 7.00 |  | 8 |\n| --- | --- | --- | --- |\n| 1 |\n| 1 |\n"
    )


def test_open_slides_have_headings_and_notes() -> None:
    frame = "<draw:frame><svg:desc>a map</svg:desc><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
    slide = f"<draw:page presentation:use-footer-name='f'>{frame}{{}}</draw:page>"
    declared = "<presentation:footer-decl presentation:name='f'>foot</presentation:footer-decl>"
    notes = "<presentation:notes><text:p>{}</text:p></presentation:notes>"
    pages = slide.format("Plan", notes.format("say so")) + slide.format("End", notes.format(""))
    document = made.open_document(declared + pages)
    assert text("opendocument", document) == (
        "## Slide 1\n\na map\n\nPlan\n\nfoot\n\n### Notes of slide 1\n\nsay so\n\n## Slide 2\n\na map\n\nEnd\n\nfoot\n"
    )
    assert text("opendocument", made.open_content("<text:p>flat</text:p>").encode("utf-16")) == "flat\n"


def test_a_picture_between_words_and_the_initials_of_a_comment_join_none() -> None:
    initials = "<l:sender-initials xmlns:l='urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0'>AB"
    comment = f"<office:annotation>{initials}</l:sender-initials><text:p>why</text:p></office:annotation>"
    document = made.open_document(f"<text:p>before<draw:frame/>after{comment}</text:p>")
    assert text("opendocument", document) == "before after[^1]\n\n[^1]: why\n"


def test_an_encrypted_open_document_is_said_to_be_so() -> None:
    with pytest.raises(ProtocolViolation, match="is encrypted"):
        text("opendocument", made.archive({"content.xml": "x", "META-INF/manifest.xml": "<a encryption-data=''/>"}))


def mail(subject: str = "Prüfung", body: str = "Grüße\n") -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Ann <ann@x>", "bob@x", subject
    message.set_content(body)
    return message


def test_a_mail_has_its_headers_its_text_and_what_is_attached() -> None:
    message = mail()
    message.add_alternative("<p>other form</p>", subtype="html")
    message.add_attachment(b"ABC", maintype="application", subtype="pdf", filename="größe.pdf")
    message.add_attachment("a,b\n", subtype="csv", filename="a.csv")
    inner = mail("Inner", "quoted\n")
    message.add_attachment(inner)
    assert text("mail", message.as_bytes()) == (
        "# Prüfung\n\n- From: Ann <ann@x>\n- To: bob@x\n\nGrüße\n\na,b\n\n"
        "# Inner\n\n- From: Ann <ann@x>\n- To: bob@x\n\n"
        "quoted\n\nAttachments:\n\n- größe.pdf (application/pdf, 3 bytes)\n- a.csv (text/csv, 4 bytes)\n"
    )


def test_a_mail_in_html_alone_becomes_markdown() -> None:
    said = b"Subject: \xc3\xa9\nContent-Type: text/html; charset=wrong\n\n<h2>a</h2><table><tr><td>b</td></tr></table>"
    assert text("mail", said) == "# é\n\n## a\n\n|  |\n| --- |\n| b |\n"


def test_a_mailbox_has_each_mail() -> None:
    box = b"From a\nSubject: one\n\nx\n>From y\nFrom z\n\nFrom b\nSubject: two\n\nlast\n"
    assert text("mail", box) == "# one\n\nx\nFrom y\nFrom z\n\n# two\n\nlast\n"


def test_the_bytes_of_line_ends_part_words_of_rich_text() -> None:
    assert text("rich text", rb"{\rtf1 foo\'0d\'0abar ma\u269\'0dek}") == "foo  bar maček\n"


def test_rich_text_has_headings_lists_tables_and_notes() -> None:
    document = (
        rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}{\f1\fcharset204 Arial;}}{\info{\title no}}"
        rb"\pard\outlinelevel1 Plan\par\pard caf\'e9 {\f1\'e9}{\footnote by certbot} \u8364\'80 \u-10179?\u-8704?\par"
        rb"{\listtext 1.\tab}one\par\pard\ilvl1{\listtext a}two\par\pard{\v hidden}{\*\unknown no}{\pict\bin3 }}}}"
        rb"{\i0\*\x}"
        rb"\trowd\intbl a|b\cell c\par d\cell\row\trowd\intbl e\cell f\cell\row\pard end\par}ignored"
    )
    assert text("rich text", document) == (
        "## Plan\n\ncafé й[^1] € 😀\n\n[^1]: by certbot\n\n- one\n  - two\n\n"
        "| a\\|b | c d |\n| --- | --- |\n| e | f |\n\nend\n"
    )


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_a_hostile_text_is_refused_or_read_soon(name: str) -> None:
    kind, document = HOSTILE_TEXTS[name]
    data, begin = document(), time.process_time()
    with suppress(TooLarge, ProtocolViolation, RecursionError):
        assert len(text(kind, data)) <= MOST_TEXT
    assert time.process_time() - begin < 20, "no time that grows faster than the document"


REFUSED: Mapping[str, tuple[str, Callable[[], bytes], type[Exception]]] = {
    name: (*HOSTILE_TEXTS[name], error)
    for name, error in (
        ("entities in UTF-16", ProtocolViolation),
        ("deep elements", TooLarge),
        ("repeated cells", TooLarge),
        ("many parts", TooLarge),
        ("deep groups", TooLarge),
    )
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bound_refuses(name: str) -> None:
    kind, document, error = REFUSED[name]
    with pytest.raises(error):
        text(kind, document())
