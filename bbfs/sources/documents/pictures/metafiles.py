"""The texts that metafiles of Windows draw ([MS-EMF], [MS-WMF]): office programs keep one of each chart and object.

A metafile places strings, which may be parts of words. One that begins where another ends goes on with it.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

LARGEST = 8 << 20
"""Bytes of a metafile; a larger one has a million records."""
_EMF_HEADER, _EMF_END = 1, 14
_EXTENDED_A, _EXTENDED_W, _MANY_A, _MANY_W, _SMALL = 83, 84, 96, 97, 108
_GLYPHS, _SMALL_CHARACTERS, _NO_RECTANGLE = 0x10, 0x200, 0x100
_PLACEABLE, _PLACEABLE_SIZE, _WMF_HEADERS = b"\xd7\xcd\xc6\x9a", 22, (b"\1\0\x09\0", b"\2\0\x09\0")
_TEXT_OUT, _EXTENDED_TEXT_OUT, _CREATE_FONT = 0x0521, 0x0A32, 0x02FB
_WITH_RECTANGLE = 6
_SYMBOLS = 2
"""The character set of fonts whose characters are signs."""
_CHARSETS = {
    77: "mac_roman", 128: "cp932", 129: "cp949", 134: "gbk", 136: "big5", 161: "cp1253", 162: "cp1254", 163: "cp1258",
    177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _String:
    """A string and its place. end: where the next one begins that goes on with it, or None if that is unknown."""

    text: str
    x: int
    y: int
    end: int | None


def text_of(metafile: bytes) -> str:
    """Return the texts of a metafile in lines, or "" if it has none, is too large or is no metafile."""
    if len(metafile) > LARGEST:
        return ""
    if metafile[:4] == struct.pack("<I", _EMF_HEADER) and metafile[40:44] == b" EMF":
        return _joined(_of_extended(metafile), len(metafile))
    begin = _PLACEABLE_SIZE if metafile.startswith(_PLACEABLE) else 0
    is_one = metafile[begin : begin + 4] in _WMF_HEADERS
    return _joined(_of_windows(metafile, begin + 18), len(metafile)) if is_one else ""


def _joined(strings: Iterator[_String], most: int) -> str:
    """Return strings in lines. most: characters; strings of one record may have the same bytes."""
    made: list[str] = []
    before: _String | None = None
    for each in strings:
        most -= len(each.text)
        if most < 0:
            break
        if before is not None:
            goes_on = before.y == each.y and before.end is not None and abs(before.end - each.x) <= _gap(before)
            made.append("" if goes_on else " " if before.y == each.y else "\n")
        made.append(each.text)
        before = each
    return "\n".join(filter(None, (" ".join(line.split()) for line in "".join(made).split("\n"))))


def _gap(string: _String) -> float:
    """Return the distance up to which the next string belongs to the same word."""
    return abs((string.end or string.x) - string.x) / len(string.text) / 4


def _of_extended(data: bytes) -> Iterator[_String]:
    at, left = 0, len(data)
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if size < 8 or kind == _EMF_END:
            return
        record = data[at : at + size]
        if kind in (_EXTENDED_A, _EXTENDED_W):
            yield from _extended(record, 36, 1 if kind == _EXTENDED_A else 2)
        elif kind in (_MANY_A, _MANY_W) and len(record) >= 40:
            (count,) = struct.unpack_from("<I", record, 36)
            for begin in range(40, min(len(record) - 39, 40 + 40 * count), 40):
                left -= struct.unpack_from("<I", record, begin + 8)[0]
                if left < 0:  # they have the same bytes
                    return
                yield from _extended(record, begin, 1 if kind == _MANY_A else 2)
        elif kind == _SMALL and len(record) >= 36:
            x, y, count, options = struct.unpack_from("<iiII", record, 8)
            begin = 36 if options & _NO_RECTANGLE else 52
            width = 1 if options & _SMALL_CHARACTERS else 2
            yield from _string(record[begin:][: count * width], width, x, y, options, None)
        at += size


def _extended(record: bytes, at: int, width: int) -> Iterator[_String]:
    """Yield the string that an EmrText object describes ([MS-EMF] 2.2.5)."""
    if len(record) < at + 40:
        return
    x, y, count, begin, options = struct.unpack_from("<iiIII", record, at)
    (steps,) = struct.unpack_from("<I", record, at + 36)
    end = x + sum(struct.unpack_from(f"<{count}i", record, steps)) if 0 < steps <= len(record) - 4 * count else None
    yield from _string(record[begin : begin + count * width], width, x, y, options, end)


def _string(data: bytes, width: int, x: int, y: int, options: int, end: int | None) -> Iterator[_String]:
    text = data.decode("cp1252" if width == 1 else "utf-16-le", "replace").rstrip("\0")
    if text and not options & _GLYPHS:
        yield _String(text, x, y, end)


def _of_windows(data: bytes, at: int) -> Iterator[_String]:
    charset = 0
    while at + 6 <= len(data):
        words, kind = struct.unpack_from("<IH", data, at)
        if words < 3:
            return
        body = data[at + 6 : at + 2 * words]
        at += 2 * words
        if kind == _CREATE_FONT and len(body) > 13:
            charset = body[13]
        elif charset == _SYMBOLS:
            continue
        elif kind == _TEXT_OUT and len(body) >= 6:
            size = struct.unpack_from("<H", body)[0]
            place = 2 + size + size % 2
            y, x = struct.unpack_from("<hh", body, place) if place + 4 <= len(body) else (0, 0)
            yield from _in_charset(body[2 : 2 + size], charset, x, y, None)
        elif kind == _EXTENDED_TEXT_OUT and len(body) >= 8:
            y, x, size, options = struct.unpack_from("<hhHH", body)
            begin = 16 if options & _WITH_RECTANGLE else 8
            steps = begin + size + size % 2
            known = 2 * size <= len(body) - steps
            end = x + sum(struct.unpack_from(f"<{size}h", body, steps)) if known else None
            yield from () if options & _GLYPHS else _in_charset(body[begin : begin + size], charset, x, y, end)


def _in_charset(data: bytes, charset: int, x: int, y: int, end: int | None) -> Iterator[_String]:
    if text := data.decode(_CHARSETS.get(charset, "cp1252"), "replace").rstrip("\0"):
        yield _String(text, x, y, end)
