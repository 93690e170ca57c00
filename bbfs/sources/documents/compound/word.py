"""Word files before 2007 ([MS-DOC]): headings, paragraphs, tables and notes.

The text is in pieces, which the table of pieces puts in order. The properties of paragraphs are in pages of their own:
what a table's row ends with, and which style a paragraph has.
"""

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.sources.documents.compound.streams import Streams
from bbfs.sources.documents.tables import TableWriter

MOST_PIECES = 1 << 20
_MAGIC = (0xA5EC, 0xA5DC)
_WORD_97 = 0x00C1
"""The first version whose tables are where this module looks for them. Older files have their text in one place."""
_ENCRYPTED, _TABLE_1 = 0x0100, 0x0200
_FIELD = re.compile("\\x13[^\\x13\\x14\\x15]*\\x14([^\\x13\\x14\\x15]*)\\x15|\\x13[^\\x13\\x14\\x15]*\\x15")
"""A field: its instruction is left out, and its result stays."""
_OPEN_FIELD = re.compile("\\x13[^\\x13\\x14\\x15]*\\x14")
"""The instruction of a field whose result goes on in the next paragraphs, as that of a table of contents."""
_MOST_NESTED_FIELDS = 20
_SEPARATORS = str.maketrans(
    {"\x0b": "\n", "\x1e": "-", "\x1f": None, "\xa0": " ", "\x01": None, "\x08": None, "\x02": None, "\x05": None,
     "\x03": None, "\x04": None, "\x0e": "\n", "\x13": None, "\x14": None, "\x15": None, "\x00": None}
)  # fmt: skip
_MARKS = re.compile("[\r\x07\x0c]")
"""The ends of paragraphs, of cells and rows, and of pages."""
_ROW_ENDS, _IN_TABLE = 0x2417, 0x2416
_OPERANDS = (1, 1, 2, 4, 2, 2, 0, 3)
"""Bytes of the operand of a property, by the three highest bits of its code; 0: the first byte says so."""
_LONG_OPERANDS = (0xD608, 0xC615)


def read(document: bytes) -> Iterator[str]:
    """Yield the text, then the notes, comments and text boxes. Headers and footers are left out."""
    streams = Streams(document)
    yield from text_of(streams.read("WordDocument"), streams.read)


def text_of(main: bytes, stream: Callable[[str], bytes]) -> Iterator[str]:
    """Yield the text of a file. main: the stream "WordDocument". stream: returns that of a name."""
    if len(main) < 0x20 or struct.unpack_from("<H", main)[0] not in _MAGIC:
        raise ProtocolViolation("is no Word file")
    version, flags = struct.unpack_from("<H", main, 2)[0], struct.unpack_from("<H", main, 0x0A)[0]
    if flags & _ENCRYPTED:
        raise ProtocolViolation("is encrypted")
    if version < _WORD_97:
        begin, end = struct.unpack_from("<II", main, 0x18)
        yield from _paragraphs(main[begin:end].decode("cp1252", "replace"), None)
        return
    if len(main) < 0x1AA:
        raise ProtocolViolation("is cut")
    table = stream("1Table" if flags & _TABLE_1 else "0Table")
    pieces = list(_pieces(main, table))
    text = "".join(piece.text for piece in pieces)
    body, notes, headers, _, annotations, ends, boxes = struct.unpack_from("<7I", main, 0x4C)
    yield from _paragraphs(text[:body], _Properties(main, table, pieces))
    at = body + notes + headers
    for begin, size in ((body, notes), (at, annotations), (at + annotations, ends), (at + annotations + ends, boxes)):
        yield from _paragraphs(text[begin : begin + size], None)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of the text. at: its first character. offset: the byte of that. width: bytes of a character."""

    at: int
    offset: int
    width: int
    text: str


def _pieces(main: bytes, table: bytes) -> Iterator[_Piece]:
    """Yield the pieces in the order of the text (section 2.8.35)."""
    at, size = struct.unpack_from("<II", main, 0x1A2)
    described = table[at : at + size]
    at = 0
    while at + 3 <= len(described) and described[at] == 1:  # properties of pieces
        at += 3 + struct.unpack_from("<H", described, at + 1)[0]
    if at + 5 > len(described) or described[at] != 2:
        raise ProtocolViolation("has no table of pieces")
    count = (struct.unpack_from("<I", described, at + 1)[0] - 4) // 12
    at += 5
    if not 0 <= count <= MOST_PIECES or at + 4 + 12 * count > len(described):
        raise ProtocolViolation("has a damaged table of pieces")
    places = struct.unpack_from(f"<{count + 1}I", described, at)
    left = 2 * len(main)
    for number in range(count):
        said = struct.unpack_from("<I", described, at + 4 * (count + 1) + 8 * number + 2)[0]
        length = places[number + 1] - places[number]
        is_narrow = bool(said & 0x40000000)
        offset, width = (said & 0x3FFFFFFF) // (2 if is_narrow else 1), 1 if is_narrow else 2
        if length < 0 or offset + length * width > len(main):
            raise ProtocolViolation("has a damaged table of pieces")
        left -= length * width
        if left < 0:  # pieces may repeat the same bytes
            raise TooLarge("its pieces repeat more than the file has")
        data = main[offset : offset + length * width]
        text = data.decode("cp1252" if is_narrow else "utf-16-le", "replace")
        if not is_narrow and len(text) != length:  # keep the numbers of characters: some take two
            text = "".join(map(chr, struct.unpack(f"<{length}H", data)))
        yield _Piece(places[number], offset, width, text)


class _Properties:
    """The properties of paragraphs, by the character that ends each (sections 2.8.5 and 2.9.113)."""

    def __init__(self, main: bytes, table: bytes, pieces: list[_Piece]) -> None:
        self._pieces = pieces
        self._begins = [piece.at for piece in pieces]
        self._ends: list[int] = []
        self._found: list[tuple[int, bool, bool]] = []
        at, size = struct.unpack_from("<II", main, 0x102)
        described = table[at : at + size]
        count = min(max(0, (len(described) - 4) // 8), len(main) // 512)
        runs: list[tuple[int, tuple[int, bool, bool]]] = []
        for number in range(count):
            page = struct.unpack_from("<I", described, 4 * (count + 1) + 4 * number)[0] * 512
            if 0 < page <= len(main) - 512:
                runs += _page(main[page : page + 512])
        for end, properties in sorted(runs):
            self._ends.append(end)
            self._found.append(properties)

    def of(self, character: int) -> tuple[int, bool, bool]:
        """Return the style of a paragraph, whether it is in a table, and whether it ends a row."""
        piece = self._pieces[max(0, bisect_right(self._begins, character) - 1)]
        place = bisect_right(self._ends, piece.offset + (character - piece.at) * piece.width)
        return self._found[place] if place < len(self._found) else (0, False, False)


def _page(page: bytes) -> Iterator[tuple[int, tuple[int, bool, bool]]]:
    """Yield the end of each run of a page, and its properties."""
    count = min(page[511], 29)
    for number in range(count):
        end = struct.unpack_from("<I", page, 4 * (number + 1))[0]
        at = page[4 * (count + 1) + 13 * number] * 2
        if not 0 < at < 510:
            yield end, (0, False, False)
            continue
        size = 2 * page[at] - 1 if page[at] else 2 * page[at + 1]
        begin = at + (1 if page[at] else 2)
        described = page[begin : begin + size]
        style = struct.unpack_from("<H", described)[0] if len(described) >= 2 else 0
        switches = dict(_switches(described[2:]))
        yield end, (style, bool(switches.get(_IN_TABLE)), bool(switches.get(_ROW_ENDS)))


def _switches(properties: bytes) -> Iterator[tuple[int, int]]:
    """Yield the code and the first byte of each property (section 2.6)."""
    at = 0
    while at + 2 < len(properties):
        code = struct.unpack_from("<H", properties, at)[0]
        yield code, properties[at + 2]
        size = _OPERANDS[code >> 13]
        if code in _LONG_OPERANDS:
            size = 1 + int.from_bytes(properties[at + 2 : at + 4], "little")
        at += 2 + (size or 1 + properties[at + 2])


def _paragraphs(text: str, properties: _Properties | None) -> Iterator[str]:
    """Yield paragraphs and rows. properties: None if nothing tells what is a row."""
    cells: list[str] = []
    cell: list[str] = []
    table: TableWriter | None = None
    begin = 0
    for mark in (*_MARKS.finditer(text), None):
        plain = _plain(text[begin : mark.start() if mark else len(text)])
        begin = mark.end() if mark else begin
        style, in_table, ends_row = properties.of(mark.start()) if properties and mark else (0, False, False)
        is_cell = mark is not None and mark[0] == "\x07"
        if is_cell and (ends_row or (properties is None and not plain and not cell and cells)):
            table = table or TableWriter()
            yield table.row(cells)
            cells = []
        elif is_cell:
            cells.append(" ".join((*cell, plain)))
            cell = []
        elif in_table and plain:
            cell.append(plain)
        elif not in_table and plain:
            if table is not None or cells or cell:
                yield f"{' '.join((*cells, *cell))}\n"
                table, cells, cell = None, [], []
            yield f"{'#' * style} {plain}\n\n" if 1 <= style <= 6 else f"{plain}\n\n"
    yield f"{' '.join((*cells, *cell))}\n"


def _plain(text: str) -> str:
    """Return the characters of a paragraph that are shown."""
    for _ in range(_MOST_NESTED_FIELDS):
        if "\x13" not in text:
            break
        shorter = _FIELD.sub(lambda field: field[1] or "", text)
        if shorter == text:
            break
        text = shorter
    return (
        _OPEN_FIELD.sub("", text)
        .translate(_SEPARATORS)
        .encode("utf-16", "surrogatepass")
        .decode("utf-16", "replace")
        .strip()
    )
