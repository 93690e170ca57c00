"""Where picture files have their metadata: JPEG, PNG, GIF, WebP, TIFF, and HEIC and AVIF.

Each reader walks the headers of a format and skips the picture. Every length is compared with what is left.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from bbfs.model.errors import ProtocolViolation
from bbfs.sources.documents.decoding import decoded

MOST_PARTS = 10_000
"""Segments, chunks or boxes of a file."""
LONGEST = 4 << 20
"""Bytes of a block of metadata, and of all texts of a PNG file."""
MOST_TEXTS = 1000
_EXIF, _XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
_PROFILE = "Raw profile type "
_IPTC = b"Photoshop 3.0\0"


@dataclass(slots=True)
class Found:
    """The metadata of a file, as they stand in it. texts: by their keywords. size: width and height in pixels."""

    form: str
    size: tuple[int, int] | None = None
    exif: list[bytes] = field(default_factory=list)
    xmp: list[bytes] = field(default_factory=list)
    iptc: list[bytes] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)


def metadata_of(data: bytes) -> Found:
    """Return the metadata of a picture. Raise ProtocolViolation for a file of another kind."""
    for beginning, read in _READERS.items():
        if data.startswith(beginning):
            return read(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if data[4:8] == b"ftyp":
        return _heif(data)
    raise ProtocolViolation("is no picture of a known kind")


def _jpeg(data: bytes) -> Found:
    """Read the segments before the picture (ISO/IEC 10918-1, annex B)."""
    found, at = Found("JPEG"), 2
    for _ in range(MOST_PARTS):
        while data[at : at + 2] == b"\xff\xff":  # fill bytes
            at += 1
        if at + 4 > len(data) or data[at] != 0xFF or data[at + 1] in (0xD9, 0xDA):
            break
        marker, size = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 2 + size]
        at += 2 + max(2, size)
        if marker == 0xE1 and body.startswith(_EXIF):
            found.exif.append(body[len(_EXIF) :])
        elif marker == 0xE1 and body.startswith(_XMP):
            found.xmp.append(body[len(_XMP) :])
        elif marker == 0xED and body.startswith(_IPTC):
            found.iptc.append(body[len(_IPTC) :])
        elif marker == 0xFE:
            found.texts.append(("Comment", decoded(body).strip("\0 \r\n")))
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and len(body) >= 5:
            found.size = int.from_bytes(body[3:5], "big"), int.from_bytes(body[1:3], "big")
    return found


def _png(data: bytes) -> Found:
    """Read the chunks (W3C PNG, section 11)."""
    found, at, left = Found("PNG"), 8, LONGEST
    for _ in range(MOST_PARTS):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        if len(kind) < 4:
            break
        body = data[at + 8 : at + 8 + size] if size <= LONGEST else b""
        at += 12 + size
        if kind == b"IHDR" and len(body) >= 8:
            found.size = struct.unpack_from(">II", body)
        elif kind == b"eXIf":
            found.exif.append(body)
        elif kind in (b"tEXt", b"zTXt", b"iTXt") and len(found.texts) < MOST_TEXTS:
            keyword, text = _png_text(kind, body, left)
            left = max(0, left - len(text))
            if keyword == "XML:com.adobe.xmp":
                found.xmp.append(text.encode("utf-8", "replace"))
            elif keyword.startswith(_PROFILE):
                _add_profile(keyword.removeprefix(_PROFILE), text, found)
            else:
                found.texts.append((keyword, text))
    return found


def _add_profile(kind: str, text: str, found: Found) -> None:
    """Add a block that ImageMagick has put into a text: its name, its length, and its bytes in hexadecimal digits."""
    try:
        block = bytes.fromhex("".join(text.split()[2:]))
    except ValueError:
        return
    if kind in ("exif", "APP1"):
        found.exif.append(block.removeprefix(_EXIF))
    elif kind == "xmp":
        found.xmp.append(block)
    elif kind in ("iptc", "8bim"):
        found.iptc.append(block)


def _png_text(kind: bytes, body: bytes, most: int) -> tuple[str, str]:
    """Return the keyword and the text of a chunk. most: bytes of a compressed text that are read."""
    keyword, _, rest = body.partition(b"\0")
    if kind == b"tEXt":
        return keyword.decode("latin-1"), decoded(rest)
    if kind == b"zTXt":
        return keyword.decode("latin-1"), decoded(_inflated(rest[1:], most))
    is_packed = rest[:1] == b"\1"
    text = rest[2:].partition(b"\0")[2].partition(b"\0")[2]  # without the language and the translated keyword
    return keyword.decode("latin-1"), (_inflated(text, most) if is_packed else text).decode("utf-8", "replace")


def _inflated(data: bytes, most: int) -> bytes:
    """Return the first bytes of a compressed text, or b"" if it is damaged."""
    try:
        return zlib.decompressobj().decompress(data, most) if most else b""
    except zlib.error:
        return b""


def _gif(data: bytes) -> Found:
    """Read the comments and the XMP (GIF89a, section 24)."""
    found = Found("GIF")
    if len(data) >= 13:
        found.size = struct.unpack_from("<HH", data, 6)
    at = 13 + (3 << (data[10] & 7) + 1 if len(data) > 10 and data[10] & 0x80 else 0)
    for _ in range(MOST_PARTS):
        kind = data[at : at + 2]
        if kind[:1] == b"\x21" and len(kind) == 2:
            blocks, after = _gif_blocks(data, at + 2)
            if kind[1] == 0xFE:
                found.texts.append(("Comment", decoded(b"".join(blocks))))
            elif kind[1] == 0xFF and blocks and blocks[0] == b"XMP DataXMP":
                found.xmp.append(data[at + 14 : after].partition(b"\x01\xff\xfe")[0])
        elif kind[:1] == b"\x2c" and at + 10 < len(data):
            own_table = 3 << (data[at + 9] & 7) + 1 if data[at + 9] & 0x80 else 0
            _, after = _gif_blocks(data, at + 11 + own_table)
        else:
            break
        at = after
    return found


def _gif_blocks(data: bytes, at: int) -> tuple[list[bytes], int]:
    blocks: list[bytes] = []
    while at < len(data) and data[at]:
        blocks.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    return blocks, at + 1


def _webp(data: bytes) -> Found:
    """Read the chunks (RFC 9649)."""
    found, at = Found("WebP"), 12
    for _ in range(MOST_PARTS):
        kind, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if len(kind) < 4:
            break
        body = data[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
        if kind == b"VP8X" and len(body) >= 10:
            found.size = int.from_bytes(body[4:7], "little") + 1, int.from_bytes(body[7:10], "little") + 1
        elif kind == b"VP8L" and len(body) >= 5 and found.size is None:
            bits = int.from_bytes(body[1:5], "little")
            found.size = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        elif kind == b"VP8 " and len(body) >= 10 and found.size is None:
            width, height = struct.unpack_from("<HH", body, 6)
            found.size = width & 0x3FFF, height & 0x3FFF
        elif kind == b"EXIF":
            found.exif.append(body.removeprefix(_EXIF))
        elif kind == b"XMP ":
            found.xmp.append(body)
    return found


def _tiff(data: bytes) -> Found:
    """A TIFF file is its own Exif; the tags of that lead to XMP and IPTC."""
    found = Found("TIFF")
    found.exif.append(data)
    return found


def _heif(data: bytes) -> Found:
    """Read the items "Exif" and XMP of HEIC and AVIF (ISO/IEC 23008-12, annex A)."""
    found = Found("AVIF" if data[8:11] == b"avi" else "HEIC")
    for kind, begin, end in _boxes(data, 0, len(data)):
        if kind == b"meta":
            boxes = {inner: (start, stop) for inner, start, stop in _boxes(data, begin + 4, end)}
            _heif_items(data, boxes, found)
    return found


def _boxes(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the type of each box, and where its contents begin and end."""
    for _ in range(MOST_PARTS):
        if at + 8 > end:
            return
        size, kind, header = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8], 8
        if size == 1:
            size, header = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        size = size or end - at
        if size < header or at + size > end:
            return
        yield kind, at + header, at + size
        at += size


def _heif_items(data: bytes, boxes: Mapping[bytes, tuple[int, int]], found: Found) -> None:
    if b"iinf" not in boxes or b"iloc" not in boxes:
        return
    begin, end = boxes[b"iinf"]
    kinds: dict[int, bytes] = {}
    for kind, start, stop in _boxes(data, begin + (8 if data[begin : begin + 1] != b"\0" else 6), end):
        entry = data[start:stop]
        if kind == b"infe" and len(entry) >= 12 and entry[0] in (2, 3):
            wide = 2 if entry[0] == 3 else 0
            number = int.from_bytes(entry[4 : 6 + wide], "big")
            kinds[number] = entry[8 + wide : 12 + wide]
            if kinds[number] == b"mime" and b"application/rdf+xml" not in entry:
                kinds[number] = b""
    left = len(data)
    for number, start, size in _heif_places(data[slice(*boxes[b"iloc"])]):
        body = data[start : start + min(size, LONGEST)] if number in kinds else b""
        left -= len(body)
        if left < 0:  # items have the same bytes
            return
        if kinds.get(number) == b"Exif" and len(body) > 4:
            found.exif.append(body[4 + int.from_bytes(body[:4], "big") :])
        elif kinds.get(number) == b"mime":
            found.xmp.append(body)


def _heif_places(box: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each item, and where its bytes begin, and how many they are (ISO/IEC 14496-12, 8.11.3)."""
    if len(box) < 8:
        return
    version, sizes = box[0], int.from_bytes(box[4:6], "big")
    offset, length, base, index = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    at, wide = 6, 4 if version == 2 else 2

    def number(size: int) -> int:
        nonlocal at
        value = int.from_bytes(box[at : at + size], "big")
        at += size
        return value

    for _ in range(min(number(wide), MOST_PARTS)):
        item = number(wide)
        number(2 if version else 0)  # how the offsets are meant
        number(2)
        start = number(base)
        for extent in range(min(number(2), MOST_PARTS)):
            number(index if version else 0)
            place, size = number(offset), number(length)
            if extent == 0:
                yield item, start + place, size
        if at >= len(box):
            return


_READERS: Mapping[bytes, Callable[[bytes], Found]] = {
    b"\xff\xd8": _jpeg,
    b"\x89PNG\r\n\x1a\n": _png,
    b"GIF8": _gif,
    b"II*\0": _tiff,
    b"MM\0*": _tiff,
}
"""The reader for each beginning of a file."""
