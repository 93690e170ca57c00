"""OpenDocument texts, sheets and slides (ISO/IEC 26300), in archives or as one XML file.

Expat reads `content.xml` in portions and builds no tree: a sheet of 100 MB takes no more memory than its longest row.
"""

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from io import BytesIO
from xml.parsers import expat

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.sources.documents import xml_events
from bbfs.sources.documents.tables import TableWriter

DEEPEST = 500
"""Elements inside each other; LibreOffice nests some dozens."""
MOST_COLUMNS = 1 << 14
"""Columns of a row, as LibreOffice has them, and spaces that one element may stand for."""
MOST_ROWS = 1 << 20
"""Rows that one element may repeat, as LibreOffice has them."""
LONGEST_FOOT = 1000
"""Characters at the foot of a slide: any number of slides may have the same."""
_PORTION = 1 << 16
_CONTENT, _MANIFEST, _ENCRYPTED = "content.xml", "META-INF/manifest.xml", b"encryption-data"
_NAMESPACE = re.compile(
    r"(?:urn:oasis:names:tc:opendocument:xmlns:([a-z-]+):1\.0|http://purl\.org/(dc)/elements/1\.1/"
    r"|urn:org:documentfoundation:names:experimental:office:xmlns:(loext):1\.0) (.*)",
    re.DOTALL,
)
_HREF = "http://www.w3.org/1999/xlink href"
_SPACES = re.compile(r"[ \t\r\n]+")
_LEFT_OUT = frozenset(
    (
        *("text:tracked-changes", "table:tracked-changes", "text:note-citation", "text:ruby-text"),
        *("dc:creator", "dc:date", "meta:creator-initials", "loext:sender-initials", "meta:date-string"),
        *("text:table-of-content-source", "text:bibliography-source", "text:illustration-index-source"),
        *("text:alphabetical-index-source", "text:table-index-source", "text:object-index-source"),
        *("office:styles", "office:automatic-styles", "office:master-styles", "office:meta", "office:settings"),
        *("office:scripts", "office:font-face-decls", "office:binary-data", "office:forms", "office:event-listeners"),
        *("presentation:header-decl", "text:page-number"),
        *("table:shapes", "text:user-index-source"),
    )
)
"""Elements whose text is none of the document's: what was deleted, styles, descriptions of indexes."""
_CELLS = ("table:table-cell", "table:covered-table-cell")
_DECLARED = {"presentation:footer-decl": "footer", "presentation:date-time-decl": "date-time"}
"""Elements whose texts stand at the foot of the slides that name them."""
_VALUES = ("office:string-value", "office:date-value", "office:time-value", "office:boolean-value", "office:value")
"""Where a cell has its value if it has no paragraph."""


def read(document: bytes) -> Iterator[str]:
    """Yield the text of a document in portions. The caller has checked the bounds of the archive."""
    text = _Text()
    try:
        if document[:2] != b"PK":
            yield from text.pieces(document)
        else:
            with zipfile.ZipFile(BytesIO(document)) as archive:
                for portion in _portions(archive):
                    yield from text.pieces(portion)
        yield from text.pieces(b"", is_last=True)
    except expat.ExpatError as error:
        raise ProtocolViolation("is no XML") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError) as error:  # RuntimeError: a password
        raise ProtocolViolation("is a damaged archive") from error


def _portions(archive: zipfile.ZipFile) -> Iterator[bytes]:
    names = archive.namelist()
    if _CONTENT not in names:
        raise ProtocolViolation("has no content.xml")
    if _MANIFEST in names and _ENCRYPTED in archive.read(_MANIFEST):
        raise ProtocolViolation("is encrypted")
    with archive.open(_CONTENT) as content:
        while portion := content.read(_PORTION):
            yield portion


@lru_cache(maxsize=1024)
def _short(name: str) -> str:
    """Return the name of an element or attribute with the last word of its namespace."""
    found = _NAMESPACE.fullmatch(name)
    return f"{found[1] or found[2] or found[3]}:{found[4]}" if found else name


def _count(attributes: Mapping[str, str], name: str, most: int) -> int:
    """Return how often an element stands, by its attribute."""
    said = attributes.get(name, "1")
    return min(int(said), most) if said.isascii() and said.isdecimal() and len(said) < 12 else 1


class _Table:
    """The table that is read. cell: the paragraphs of the cell that is read."""

    def __init__(self) -> None:
        self.writer = TableWriter()
        self.cells: list[str | None] = []
        self.cell: list[str] = []
        self.value: str | None = None
        self.columns = self.rows = 1
        self.empty = 0
        """Cells without a value that come before the next one with a value: many rows end in thousands."""

    def begin_row(self, attributes: Mapping[str, str]) -> None:
        self.cells, self.empty = [], 0
        self.rows = _count(attributes, "table:number-rows-repeated", MOST_ROWS)

    def begin_cell(self, attributes: Mapping[str, str]) -> None:
        self.cell = []
        self.value = next((attributes[name] for name in _VALUES if name in attributes), None)
        self.columns = _count(attributes, "table:number-columns-repeated", MOST_COLUMNS)

    def end_cell(self) -> None:
        text = " ".join(self.cell) or self.value
        if text and not text.isspace():
            self.cells += [None] * min(self.empty, MOST_COLUMNS - len(self.cells))
            self.cells += [text] * min(self.columns, MOST_COLUMNS - len(self.cells))
            self.empty = 0
        else:
            self.empty += self.columns

    def end_row(self) -> list[str]:
        line = self.writer.row(self.cells)
        if not line:
            return []
        return [line] + [self.writer.row(self.cells)] * (self.rows - 1)


class _Text:
    """Makes Markdown of the events of the parser."""

    def __init__(self) -> None:
        self._parser = xml_events.parser(self._start, self._end, self._characters)
        self._made: list[str] = []
        self._depth = 0
        self._left_out = 0
        self._open: list[list[str]] = []
        """The paragraphs that are open, each in pieces: a frame within one has paragraphs, too."""
        self._levels: list[int] = []
        """The level of each open paragraph as a heading, or 0."""
        self._table: _Table | None = None
        self._inner_tables = 0
        self._links: list[str] = []
        self._notes: list[list[str]] = []
        """The notes that are open, each as its paragraphs."""
        self._finished_notes: list[str] = []
        self._note_count = 0
        self._list_depth = 0
        self._bullet = ""
        self._slide = 0
        self._declared: dict[tuple[str, str], str] = {}
        self._declaring = ""
        self._foot: list[str] = []
        self._is_spreadsheet = False
        self._heading = ""
        """A heading that waits for the first text below it."""

    def pieces(self, portion: bytes, *, is_last: bool = False) -> Iterator[str]:
        """Parse a portion of the XML, and yield what it completes."""
        self._parser.Parse(portion, is_last)
        made, self._made = self._made, []
        yield from made

    def _start(self, long_name: str, long_attributes: dict[str, str]) -> None:
        name = _short(long_name)
        self._depth += 1
        if self._depth > DEEPEST:
            raise TooLarge("nested too deeply")
        if self._left_out or name in _LEFT_OUT:
            self._left_out += 1
            return
        attributes = {_short(key): value for key, value in long_attributes.items()}
        match name:
            case "text:p" | "text:h" | "svg-compatible:title" | "svg-compatible:desc":
                self._open.append([])
                self._levels.append(_count(attributes, "text:outline-level", 6) if name == "text:h" else 0)
            case "text:s":
                self._inline(" " * _count(attributes, "text:c", MOST_COLUMNS))
            case "text:tab":
                self._inline("\t")
            case "text:line-break":
                self._inline("\n")
            case "text:a":
                self._links.append(attributes.get(_HREF, ""))
                self._inline("[")
            case "text:note" | "office:annotation":
                self._notes.append([])
            case "text:list":
                self._list_depth += 1
            case "text:list-item":
                self._bullet = "- "
            case "office:spreadsheet":
                self._is_spreadsheet = True
            case "drawing:page":
                self._slide += 1
                self._made.append(f"## Slide {self._slide}\n\n")
                named = ((kind, attributes.get(f"presentation:use-{kind}-name", "")) for kind in _DECLARED.values())
                self._foot = [self._declared[each] for each in named if each in self._declared]
            case "presentation:footer-decl" | "presentation:date-time-decl":
                self._open.append([])
                self._declaring = attributes.get("presentation:name", "")
            case "presentation:notes":
                self._end_of_slide()
                self._heading = f"### Notes of slide {self._slide}\n\n"
            case _:
                self._start_of_table(name, attributes)

    def _start_of_table(self, name: str, attributes: Mapping[str, str]) -> None:
        table = self._table
        if name == "table:table":
            if table is not None:
                self._inner_tables += 1
                return
            self._table = _Table()
            if self._is_spreadsheet and (title := attributes.get("table:name")):
                self._made.append(f"## {title}\n\n")
        elif table is None or self._inner_tables:
            return
        elif name == "table:table-row":
            table.begin_row(attributes)
        elif name in _CELLS:
            table.begin_cell(attributes)

    def _end(self, long_name: str) -> None:
        name = _short(long_name)
        self._depth -= 1
        if self._left_out:
            self._left_out -= 1
            return
        match name:
            case "text:p" | "text:h" | "svg-compatible:title" | "svg-compatible:desc":
                self._block("".join(self._open.pop()).strip(), self._levels.pop())
            case "text:a":
                target = self._links.pop()
                self._inline(f"]({target})")
            case "text:note" | "office:annotation":
                self._note_count += 1
                self._inline(f"[^{self._note_count}]")
                self._finished_notes.append(f"[^{self._note_count}]: {' '.join(self._notes.pop())}\n\n")
            case "text:list":
                self._list_depth -= 1
                self._bullet = ""
                if not self._list_depth:
                    self._made.append("\n")
            case "presentation:notes":
                self._heading = ""
            case "drawing:frame":
                self._inline(" ")  # between the words before and behind a picture
            case "drawing:page":
                self._end_of_slide()
            case "presentation:footer-decl" | "presentation:date-time-decl":
                self._declared[_DECLARED[name], self._declaring] = "".join(self._open.pop())[:LONGEST_FOOT].strip()
            case _:
                self._end_of_table(name)

    def _end_of_table(self, name: str) -> None:
        table = self._table
        if table is None:
            return
        if name == "table:table":
            if self._inner_tables:
                self._inner_tables -= 1
                return
            self._table = None
            self._made.append("\n")
            self._end_of_block()
        elif self._inner_tables:
            return
        elif name == "table:table-row":
            self._made += table.end_row()
        elif name in _CELLS:
            table.end_cell()

    def _characters(self, text: str) -> None:
        if self._open and not self._left_out:
            self._open[-1].append(_SPACES.sub(" ", text))

    def _inline(self, text: str) -> None:
        if self._open:
            self._open[-1].append(text)

    def _block(self, text: str, level: int) -> None:
        """Put a paragraph where it belongs: into a note, a cell, or the text."""
        if not text:
            return
        if self._notes:
            self._notes[-1].append(text)
        elif self._table is not None:
            self._table.cell.append(text)
        else:
            self._made.append(self._heading)
            self._heading = ""
            if self._list_depth:
                indent = "  " * (self._list_depth - 1)
                self._made.append(f"{indent}{self._bullet or '  '}{text}\n")
                self._bullet = ""
            else:
                self._made.append(f"{'#' * level} {text}\n\n" if level else f"{text}\n\n")
                self._end_of_block()

    def _end_of_slide(self) -> None:
        self._made += (f"{text}\n\n" for text in self._foot if text)
        self._foot = []

    def _end_of_block(self) -> None:
        if not self._open and self._table is None:
            self._made += self._finished_notes
            self._finished_notes = []
