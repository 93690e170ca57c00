"""Documents as Markdown: a job of worker processes, since the libraries take what time and memory a document wants.

The same document gives the same text. The members of an archive are counted, with their sizes, before anything reads
them; zipfile then reads no more of a member than the size that was counted. Readers that need no library, or more than
a few lines, are modules of their own.
"""

import importlib
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.sources.documents import compound, html_markdown
from bbfs.sources.documents.decoding import decoded, is_plain
from bbfs.sources.documents.tables import table

MOST_MEMBERS = 10_000
"""Members of an archive; a large workbook has some hundreds."""
MOST_PAGES = 10_000
"""Pages of a PDF file."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_BLANK_LINES = re.compile(r"\n{3,}")
_ARCHIVE = b"PK\3\4"
_ARCHIVES = ("word", "powerpoint", "excel", "epub")
"""The kinds that are archives, also where something stands before the archive, as zipfile allows."""
_NEWER: Mapping[str, str] = {"word 97": "word", "excel 97": "excel", "powerpoint 97": "powerpoint", "outlook": ""}
"""The kinds in compound files, and the kind that took the place of each."""
_PAGE = re.compile(rb"<(?:html|!doctype html|table|head)\b", re.IGNORECASE)
_CONTAINER = "META-INF/container.xml"


def job(document: bytes, options: Mapping[str, Any]) -> bytes:
    """Return a document as Markdown in UTF-8.

    options: `kind`, a key of `READERS` or `MODULES`; `max_unpacked` and `max_text`, in bytes. Raise TooLarge,
    ProtocolViolation.
    """
    kind = _kind_by_bytes(options["kind"], document)
    if kind in _ARCHIVES or document[:4] == _ARCHIVE:
        _require_bounded(document, options["max_unpacked"])
    pieces: list[str] = []
    size = 0
    for piece in _reader(kind)(document):
        pieces.append(piece)
        size += len(piece)
        if size > options["max_text"]:
            raise TooLarge(f"its text has more than {options['max_text']} bytes ([documents] max_text)")
    text = _BLANK_LINES.sub("\n\n", _CONTROL.sub("", "".join(pieces))).strip()
    return (text + "\n").encode("utf-8", "replace") if text else b""


def _kind_by_bytes(kind: str, document: bytes) -> str:
    """Return the kind of a document by its first bytes where files of its extension are often of another kind."""
    newer = _NEWER.get(kind)
    if document.startswith(compound.MAGIC):
        return next((old for old, new in _NEWER.items() if new == kind), kind)
    if newer is None:
        return kind
    if document[:4] == _ARCHIVE and newer:
        return newer
    if document[:100].lstrip().startswith(b"{\\rtf"):
        return "rich text"
    if not is_plain(document):
        return kind
    return "html" if _PAGE.search(document[:1000]) else "plain text"


def _reader(kind: str) -> Callable[[bytes], Iterator[str]]:
    """Return the function that yields the pieces of the text of a kind of document."""
    if kind in READERS:
        return READERS[kind]
    return importlib.import_module(f"{__package__}.{MODULES[kind]}").read


def _require_bounded(document: bytes, max_unpacked: int) -> None:
    try:
        with zipfile.ZipFile(BytesIO(document)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise ProtocolViolation("is a damaged archive") from error
    if len(members) > MOST_MEMBERS:
        raise TooLarge(f"has more than {MOST_MEMBERS} members")
    if sum(member.file_size for member in members) > max_unpacked:
        raise TooLarge(f"unpacks to more than {max_unpacked} bytes ([documents] max_unpacked)")


def _pdf(document: bytes) -> Iterator[str]:
    """Yield each page below a heading with its number. Pages without text are left out."""
    from pypdf import PdfReader  # noqa: PLC0415 - of the extra "documents", and each job needs one library only

    reader = PdfReader(BytesIO(document))
    if reader.is_encrypted and not reader.decrypt(""):
        raise ProtocolViolation("is encrypted")
    for number, page in enumerate(reader.pages, 1):
        if number > MOST_PAGES:
            raise TooLarge(f"has more than {MOST_PAGES} pages")
        text = page.extract_text().strip()
        if text:
            yield f"## Page {number}\n\n{text}\n\n"


def _word(document: bytes) -> Iterator[str]:
    from mammoth import convert_to_html, html  # noqa: PLC0415 - as above

    def describe(image: Any) -> list[Any]:
        return [html.text(f"{image.alt_text} ")] if image.alt_text else []

    page = convert_to_html(BytesIO(document), convert_image=describe).value
    yield _of_html(page.encode("utf-8", "replace"))


def _excel(document: bytes) -> Iterator[str]:
    """Yield each sheet below a heading with its name: the values of its cells as a table, without empty rows."""
    from openpyxl import load_workbook  # noqa: PLC0415 - as above

    workbook = load_workbook(BytesIO(document), read_only=True, data_only=True, keep_links=False)
    for sheet in workbook.worksheets:
        yield f"## {sheet.title}\n\n"
        sheet.reset_dimensions()  # some programs state one cell, whatever there is
        yield from table(sheet.iter_rows(values_only=True))


def _epub(document: bytes) -> Iterator[str]:
    """Yield the chapters in the order of the spine (EPUB 3.3, section 5.7)."""
    with zipfile.ZipFile(BytesIO(document)) as archive:
        rootfile = _xml(archive.read(_CONTAINER)).find(".//{*}rootfile")
        if rootfile is None:
            raise ProtocolViolation("names no package document")
        package = rootfile.get("full-path", "")
        described = _xml(archive.read(package))
        places = {item.get("id"): item.get("href", "") for item in described.iterfind("{*}manifest/{*}item")}
        chapters = (each.get("idref") for each in described.iterfind("{*}spine/{*}itemref"))
        for reference in dict.fromkeys(chapters):  # none may be there twice
            href = places.get(reference, "")
            yield _of_html(archive.read(posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(href)))))


def _xml(text: bytes) -> ElementTree.Element:
    if b"<!ENTITY" in text:
        raise ProtocolViolation("declares entities")
    return ElementTree.fromstring(text)


def _html(document: bytes) -> Iterator[str]:
    yield _of_html(document)


def _of_html(page: bytes) -> str:
    return html_markdown.job(page, {}).decode() + "\n"


def _plain(document: bytes) -> Iterator[str]:
    yield decoded(document).replace("\r\n", "\n")


READERS: Mapping[str, Callable[[bytes], Iterator[str]]] = {
    "pdf": _pdf,
    "word": _word,
    "excel": _excel,
    "epub": _epub,
    "html": _html,
    "plain text": _plain,
}
"""The reader of each kind of document. It yields pieces of the text."""

MODULES: Mapping[str, str] = {
    "notebook": "notebooks",
    "subtitles": "subtitles",
    "opendocument": "open_document",
    "mail": "mail",
    "word 97": "compound.word",
    "excel 97": "compound.excel",
    "powerpoint": "office_open.powerpoint",
    "powerpoint 97": "compound.powerpoint",
    "outlook": "compound.outlook",
    "picture": "pictures.reader",
    "rich text": "rich_text",
}
"""The module of each other kind, whose `read` does the same: a worker imports only what a document needs."""
