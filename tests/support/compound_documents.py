"""Small documents in compound files, made when a test needs them."""

import struct
import zlib
from collections.abc import Mapping

_SECTOR = 512
_FREE, _END, _FAT, _NONE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD, 0xFFFFFFFF
_LEAST = 4096
"""Bytes of the smallest stream that has sectors of its own; smaller ones here end in zeros."""
_STORAGE, _STREAM, _ROOT = 1, 2, 5

Tree = Mapping[str, "bytes | Tree"]


def compound(tree: Tree) -> bytes:
    """Return a compound file ([MS-CFB]) with these streams and storages."""
    entries: list[tuple[str, int, int, int, int, int]] = []
    data: list[bytes] = []
    sectors: list[int] = []

    def add(name: str, kind: int, below: "Tree | bytes") -> int:
        number = len(entries)
        entries.append(("", 0, 0, 0, 0, 0))
        if isinstance(below, bytes):
            padded = below.ljust(_LEAST, b"\0")
            count = -(-len(padded) // _SECTOR)
            first = sum(sectors)
            data.append(padded.ljust(count * _SECTOR, b"\0"))
            sectors.append(count)
            entries[number] = (name, kind, _NONE, _NONE, first, len(padded))
            return number
        before = _NONE
        for child, value in sorted(below.items(), reverse=True):  # each is to the right of the one before
            own = add(child, _STREAM if isinstance(value, bytes) else _STORAGE, value)
            entries[own] = (*entries[own][:3], before, *entries[own][4:])
            before = own
        entries[number] = (name, kind, before, _NONE, 0, 0)
        return number

    add("Root Entry", _ROOT, tree)
    listed = b"".join(_entry(*each) for each in entries)
    listed = listed.ljust(-(-len(listed) // _SECTOR) * _SECTOR, b"\0")
    chain: list[int] = []
    for count in (*sectors, len(listed) // _SECTOR):
        chain += [*range(len(chain) + 1, len(chain) + count), _END]
    tables = -(-(len(chain) + 4) // (_SECTOR // 4 - 1))
    directory, first = len(chain) - len(listed) // _SECTOR, len(chain)
    table = chain + [_FAT] * tables
    table += [_FREE] * (tables * _SECTOR // 4 - len(table))
    header = struct.pack(
        "<8s16xHHHHH6xIIIIIIIIII", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6,
        0, tables, directory, 0, _LEAST, _END, 0, _END, 0, first,
    )  # fmt: skip
    header += struct.pack("<108I", *range(first + 1, first + tables), *[_FREE] * (109 - tables))
    return header + b"".join(data) + listed + struct.pack(f"<{len(table)}I", *table)


def _entry(name: str, kind: int, child: int, right: int, first: int, size: int) -> bytes:
    text = name.encode("utf-16-le")
    return struct.pack(
        "<64sHBBIII36xIQ", text, len(text) + 2, kind, 1, _NONE, right, child, first if kind == _STREAM else _END, size
    )


def word(text: str, *, styles: Mapping[str, bytes] | None = None, flags: int = 0) -> bytes:
    """Return a Word file. styles: the paragraphs that begin with these texts have these properties; flags: of its
    beginning."""
    begin, page = 0x800, 0x600
    encoded = text.encode("utf-16-le")
    main = bytearray(begin + len(encoded))
    struct.pack_into("<HHxxxxxxH", main, 0, 0xA5EC, 0x00C1, 0x0200 | flags)
    struct.pack_into("<I", main, 0x4C, len(text))
    main[begin:] = encoded
    pieces = b"\2" + struct.pack("<IIIHIH", 16, 0, len(text), 0, begin, 0)
    struct.pack_into("<II", main, 0x1A2, 0, len(pieces))
    runs = struct.pack("<III", begin, begin + len(encoded), page // 512)
    struct.pack_into("<II", main, 0x102, len(pieces), len(runs))
    main[page : page + 512] = _properties(text, styles or {}, begin)
    return compound({"WordDocument": bytes(main), "1Table": pieces + runs})


def _properties(text: str, styles: Mapping[str, bytes], begin: int) -> bytes:
    page, ends, places, at = bytearray(512), [begin], [], 480
    start = 0
    for number, character in enumerate(text):
        if character not in "\r\x07":
            continue
        said = next((value for key, value in styles.items() if text.startswith(key, start)), b"")
        if said:
            said += bytes(1 - len(said) % 2)  # an odd number of bytes
            at -= len(said) + 2 & ~1
            page[at] = (len(said) + 1) // 2
            page[at + 1 : at + 1 + len(said)] = said
        places.append(at // 2 if said else 0)
        start = number + 1
        ends.append(begin + 2 * start)
    assert len(places) <= 29, "one page has no room for more"
    struct.pack_into(f"<{len(ends)}I", page, 0, *ends)
    for number, place in enumerate(places):
        page[4 * len(ends) + 13 * number] = place
    page[511] = len(places)
    return bytes(page)


def record(kind: int, body: bytes, instance: int = 0, *, holds: bool = False) -> bytes:
    """Return a record of a PowerPoint file. holds: whether it holds others."""
    return struct.pack("<HHI", instance << 4 | (0xF if holds else 0), kind, len(body)) + body


def footer(text: str, instance: int, *, shown: bool = True) -> bytes:
    """Return the text at the foot of all slides (instance 3), or of the slide that holds it (instance 0)."""
    flags = record(4058, struct.pack("<HH", 0, 0x20 if shown else 0))
    return record(4057, flags + record(4026, text.encode("utf-16-le"), 2), instance, holds=True)


def comment(author: str, text: str) -> bytes:
    """Return a comment on a slide, in the records that hold it."""
    said = b"".join(record(4026, each.encode("utf-16-le"), number) for number, each in enumerate((author, text)))
    return record(5000, record(5002, record(5003, record(12000, said, holds=True)), holds=True), holds=True)


def drawn_text(*strings: tuple[str, int]) -> bytes:
    """Return a metafile (EMF) that draws strings in one line: each with its place, and ten units for a character."""
    records = b""
    for text, x in strings:
        data = text.encode("utf-16-le")
        steps = struct.pack(f"<{len(text)}i", *[10] * len(text))
        placed = struct.pack("<iiIII16xI", x, 0, len(text), 76, 0, 76 + len(data))
        records += struct.pack("<II28x", 84, 76 + len(data) + len(steps)) + placed + data + steps
    return struct.pack("<II32x4s", 1, 44, b" EMF") + records


def picture_of(metafile: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the list of pictures of a file, what names it in a shape, and the stream that has it."""
    listed = record(1035, record(0xF000, record(0xF001, record(0xF007, bytes(36)), holds=True), holds=True), holds=True)
    named = record(0xF00B, struct.pack("<HI", 0x4104, 1), 1)
    return listed, named, record(0xF01A, bytes(16 + 34) + zlib.compress(metafile), 0x3D4)


def powerpoint(title: str, text: str, notes: str, **records: bytes) -> bytes:
    """Return a PowerPoint file with the streams that `powerpoint_streams` makes."""
    return compound(powerpoint_streams(title, text, notes, **records))


def powerpoint_streams(
    title: str, text: str, notes: str, *, common: bytes = b"", own: bytes = b"", master: bytes = b"", drawn: bytes = b""
) -> dict[str, bytes]:
    """Return the streams of a PowerPoint file with one slide, saved twice: the first save had another slide.

    common, own: records of the document, such as footers of all slides, and of this slide. master: those of its master.
    drawn: the stream with its pictures.
    """

    def shown(said: str) -> bytes:
        return record(1036, record(4000, said.encode("utf-16-le")), holds=True)

    def persisted(reference: int, number: int) -> bytes:
        return record(1011, struct.pack("<IIIII", reference, 0, 0, number, 0))

    outline = record(3999, bytes(4)) + record(4008, title.encode("latin-1"))
    slides = record(4080, persisted(2, 256) + outline, 0, holds=True)
    listed = record(4080, persisted(3, 7), 2, holds=True)
    masters = record(4080, persisted(4, 9), 1, holds=True)
    parts = [
        record(1006, shown("an old slide"), holds=True),
        record(1000, common + masters + slides + listed, holds=True),
        record(
            1006,
            record(1007, bytes(12) + struct.pack("<III", 9, 7, 1)) + record(3998, bytes(4)) + shown(text) + own,
            holds=True,
        ),
        record(1008, shown(notes), holds=True),
        record(1016, master, holds=True),
    ]
    places = [sum(map(len, parts[:number])) for number in range(len(parts))]
    old, new = places[0], places[1:]
    data = b"".join(parts)
    first = len(data)
    data += record(6002, struct.pack("<II", 1 << 20 | 2, old))
    before = len(data)
    data += record(4085, struct.pack("<IIIIIII", 0, 0, 0, first, 1, 0, 0))
    second = len(data)
    data += record(6002, struct.pack("<IIIII", 4 << 20 | 1, *new))
    last = len(data)
    data += record(4085, struct.pack("<IIIIIII", 0, 0, before, second, 1, 0, 0))
    user = record(4086, struct.pack("<III", 20, 0xE391C05F, last))
    return {"PowerPoint Document": data, "Current User": user, "Pictures": drawn}


def excel(sheet: str, *rows: tuple[str | float | None, ...], formula: bytes = b"") -> bytes:
    """Return an Excel file with one sheet, without a compound file around it, as the oldest are.

    formula: that of the name of a range.
    """

    def cell(row: int, column: int, value: str | float) -> bytes:
        place = struct.pack("<HHH", row, column, 0)
        if isinstance(value, str):
            return _biff(0x0204, place + struct.pack("<HB", len(value), 1) + value.encode("utf-16-le"))
        return _biff(0x0203, place + struct.pack("<d", value))

    name = struct.pack("<BB", len(sheet), 0) + sheet.encode("latin-1")
    begin = _biff(0x0809, struct.pack("<HHHHII", 0x0600, 5, 0, 0, 0, 6))
    begin += _biff(0x0018, struct.pack("<HBBHHH4xBc", 0, 0, 1, len(formula), 0, 0, 0, b"x") + formula)
    size = len(begin) + 4 + 6 + len(name) + 4
    book = begin + _biff(0x0085, struct.pack("<IH", size, 0) + name) + _biff(0x000A, b"")
    cells = (
        cell(row, column, value)
        for row, values in enumerate(rows)
        for column, value in enumerate(values)
        if value is not None
    )
    return book + _biff(0x0809, struct.pack("<HHHHII", 0x0600, 0x10, 0, 0, 0, 6)) + b"".join(cells) + _biff(0x000A, b"")


def _biff(kind: int, body: bytes) -> bytes:
    return struct.pack("<HH", kind, len(body)) + body


def outlook(subject: str, body: str | bytes, *, attached: Tree | None = None) -> bytes:
    """Return a mail of Outlook. body: as text, or as compressed Rich Text Format. attached: storages of attachments."""
    return compound({**message(subject, body, 32), **(attached or {})})


def message(subject: str, body: str | bytes, header: int) -> dict[str, "bytes | Tree"]:
    """Return the streams of a mail. header: bytes before the properties; 32 for the mail of a file, 24 inside one."""
    sent = struct.pack("<IIq", 0x00390040, 0, 132_000_000_000_000_000)
    text = (
        {"__substg1.0_1000001F": body.encode("utf-16-le")} if isinstance(body, str) else {"__substg1.0_10090102": body}
    )
    return {
        "__properties_version1.0": bytes(header) + sent,
        "__substg1.0_0037001F": subject.encode("utf-16-le"),
        "__substg1.0_0C1A001E": "Jürgen".encode("cp1252"),
        "__substg1.0_5D01001F": "j@x".encode("utf-16-le"),
        "__substg1.0_0E04001F": "Bob".encode("utf-16-le"),
        **text,
    }
