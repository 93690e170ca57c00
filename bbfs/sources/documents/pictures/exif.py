"""The tags of Exif 3.0 and TIFF 6.0 that say something to people."""

import struct
from collections.abc import Iterator, Mapping
from fractions import Fraction

from bbfs.sources.documents.decoding import decoded

MOST_TAGS = 2000
MOST_VALUES = 1 << 16
"""Bytes of one value."""
XMP, IPTC, RESOURCES = 700, 33723, 34377
_EXIF, _PLACE = 34665, 34853
_PLACES = range(1, 5)
"""Tags of latitude and longitude."""
_TAGS: Mapping[int, str] = {
    270: "Description", 271: "Make", 272: "Model", 305: "Software", 306: "Changed", 315: "Artist", 33432: "Copyright",
    40091: "Title", 40092: "Comment", 40093: "Author", 40094: "Keywords", 40095: "Subject", 269: "Document",
    285: "Page", 316: "Computer",
}  # fmt: skip
_EXIF_TAGS: Mapping[int, str] = {
    33434: "Exposure", 33437: "F-number", 34855: "ISO", 36867: "Taken", 36881: "Time zone", 37386: "Focal length",
    37510: "User comment", 42032: "Owner", 42035: "Lens make", 42036: "Lens", 42033: "Serial number",
    40962: "Width", 40963: "Height",
}  # fmt: skip
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 129: 1}
_TEXT, _UNDEFINED, _BYTE = (2, 129), 7, 1
_WINDOWS = range(40091, 40096)
"""Tags of Windows, in UTF-16."""
_CODES = {b"ASCII\0\0\0": "ascii", b"JIS\0\0\0\0\0": "iso2022_jp", b"UNICODE\0": "utf-16"}

Value = str | int | Fraction


def tags_of(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the tags. Those that lead nowhere are left out."""
    for name, values in _directories(data):
        text = _shown(name, values)
        if text:
            yield name, text


def blocks_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the XMP, the IPTC and the resources of Photoshop in a TIFF file, each with its tag."""
    order, first = _beginning(data)
    for tag, kind, count, at in _entries(data, order, first):
        if tag in (XMP, IPTC, RESOURCES):
            yield tag, data[at : at + count * _SIZES[kind]]


def size_of(data: bytes) -> tuple[int, int] | None:
    """Return the width and height of a TIFF file in pixels."""
    order, first = _beginning(data)
    found = {
        tag: int.from_bytes(data[at : at + _SIZES[kind]], "little" if order == "<" else "big")
        for tag, kind, _, at in _entries(data, order, first)
        if tag in (256, 257) and kind in (3, 4)
    }
    return (found[256], found[257]) if len(found) == 2 else None


def _beginning(data: bytes) -> tuple[str, int]:
    order = "<" if data[:2] == b"II" else ">"
    return order, struct.unpack_from(f"{order}I", data, 4)[0] if len(data) >= 8 else len(data)


def _directories(data: bytes) -> Iterator[tuple[str, list[Value]]]:
    order, first = _beginning(data)
    place: dict[int, list[Value]] = {}
    for tag, kind, count, at in _entries(data, order, first):
        if tag in _TAGS:
            yield _TAGS[tag], _values(data, order, tag, kind, count, at)
        elif tag in (_EXIF, _PLACE) and kind in (4, 13):
            wanted = _PLACES if tag == _PLACE else _EXIF_TAGS
            inner = struct.unpack_from(f"{order}I", data, at)[0]
            for inner_tag, inner_kind, inner_count, inner_at in _entries(data, order, inner):
                if inner_tag not in wanted:
                    continue
                values = _values(data, order, inner_tag, inner_kind, inner_count, inner_at)
                if tag == _PLACE:
                    place[inner_tag] = values
                else:
                    yield _EXIF_TAGS[inner_tag], values
    if position := _position(place):
        yield "Position", [position]


def _entries(data: bytes, order: str, at: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the tag, the type, the number of values, and the place of each entry of a directory.

    Of entries with one tag the first one counts (TIFF 6.0, section 2): all may have the same bytes.
    """
    if at < 8 or at + 2 > len(data):
        return
    count = min(struct.unpack_from(f"{order}H", data, at)[0], MOST_TAGS, (len(data) - at - 2) // 12)
    seen: set[int] = set()
    for number in range(count):
        tag, kind, values, place = struct.unpack_from(f"{order}HHII", data, at + 2 + 12 * number)
        size = _SIZES.get(kind, 0) * values
        place = place if size > 4 else at + 2 + 12 * number + 8
        if size and place + size <= len(data) and tag not in seen:
            seen.add(tag)
            yield tag, kind, values, place


def _values(data: bytes, order: str, tag: int, kind: int, count: int, at: int) -> list[Value]:
    count = min(count, MOST_VALUES // _SIZES[kind])
    raw = data[at : at + count * _SIZES[kind]]
    if tag in _WINDOWS:
        return [raw.decode("utf-16-le", "replace")]
    if kind in _TEXT:
        return [decoded(raw.partition(b"\0")[0] if tag not in _TAGS else raw.replace(b"\0", b" "))]
    if kind in (_UNDEFINED, _BYTE):
        code = _CODES.get(raw[:8])
        if code == "utf-16":
            return [raw[8:].decode("utf-16-le" if order == "<" else "utf-16-be", "replace")]
        return [decoded(raw[8:] if code or raw[:8] == bytes(8) else raw, code)] if tag == 37510 else list(raw[:16])
    if kind in (3, 4, 8, 9, 13):
        return list(struct.unpack(f"{order}{count}{ {3: 'H', 4: 'I', 8: 'h', 9: 'i', 13: 'I'}[kind] }", raw))[:16]
    if kind in (5, 10):
        pairs = struct.unpack(f"{order}{2 * count}{'I' if kind == 5 else 'i'}", raw)[:32]
        return [Fraction(above, below) for above, below in zip(pairs[::2], pairs[1::2], strict=True) if below]
    return []


def _shown(name: str, values: list[Value]) -> str:
    if name == "Exposure" and values and isinstance(values[0], Fraction):
        seconds = values[0]
        return f"1/{round(1 / seconds)} s" if 0 < seconds < 1 else f"{float(seconds):g} s"
    if name == "Focal length" and values and isinstance(values[0], Fraction):
        return f"{float(values[0]):g} mm"
    texts = (f"{float(value):g}" if isinstance(value, Fraction) else str(value) for value in values)
    return " ".join(" ".join(texts).replace("\0", " ").split())


def _position(place: Mapping[int, list[Value]]) -> str:
    """Return latitude and longitude in degrees (Exif 3.0, section 4.6.6)."""
    found: list[str] = []
    for reference, degrees in ((1, 2), (3, 4)):
        parts = [value for value in place.get(degrees, []) if isinstance(value, Fraction)]
        side = "".join(str(value) for value in place.get(reference, []))[:1].upper()
        if len(parts) != 3 or side not in ("N", "S", "E", "W"):
            return ""
        value = parts[0] + parts[1] / 60 + parts[2] / 3600
        found.append(f"{float(-value if side in 'SW' else value):.5f}")
    return ", ".join(found)
