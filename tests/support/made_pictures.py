"""Small pictures with metadata, made when a test needs them. None has a picture in it."""

import struct
import zlib
from collections.abc import Mapping

XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
    b' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:crs="http://ns.adobe.com/camera-raw-settings/1.0/"'
    b' xmlns:photoshop="http://ns.adobe.com/photoshop/1.0/"><rdf:Description photoshop:City="Oslo" crs:Tint="9">'
    b"<dc:title><rdf:Alt><rdf:li xml:lang='x-default'>Fjord</rdf:li></rdf:Alt></dc:title>"
    b"<dc:subject><rdf:Bag><rdf:li>water</rdf:li><rdf:li>boat</rdf:li></rdf:Bag></dc:subject>"
    b"</rdf:Description></rdf:RDF></x:xmpmeta>"
)

Tags = Mapping[int, "bytes | int | tuple[int, ...] | Tags"]


def exif(tags: Tags, order: str = "<") -> bytes:
    """Return the tags as a TIFF file without a picture: texts, whole numbers, fractions, and directories of tags."""
    return struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, 8) + _directory(tags, order, 8)


def _directory(tags: Tags, order: str, at: int) -> bytes:
    entries, data = b"", b""
    begin = at + 2 + 12 * len(tags) + 4
    for tag, value in sorted(tags.items()):
        place = begin + len(data)
        if isinstance(value, bytes):
            entries += struct.pack(f"{order}HHI", tag, 2 if tag < 37000 else 7, len(value))
            entries += struct.pack(f"{order}I", place) if len(value) > 4 else value.ljust(4, b"\0")
            data += value if len(value) > 4 else b""
        elif isinstance(value, int):
            entries += struct.pack(f"{order}HHIHH", tag, 3, 1, value, 0)
        elif isinstance(value, tuple):
            entries += struct.pack(f"{order}HHII", tag, 5, len(value) // 2, place)
            data += struct.pack(f"{order}{len(value)}I", *value)
        else:
            entries += struct.pack(f"{order}HHII", tag, 4, 1, place)
            data += _directory(value, order, place)
    return struct.pack(f"{order}H", len(tags)) + entries + bytes(4) + data


def iptc(records: Mapping[int, str]) -> bytes:
    """Return records of IPTC in UTF-8, in a resource of Photoshop."""
    said = [(1, 90, b"\x1b%G"), *((2, number, text.encode()) for number, text in records.items())]
    block = b"".join(b"\x1c" + struct.pack(">BBH", part, number, len(text)) + text for part, number, text in said)
    return b"8BIM\x04\x04\0\0" + struct.pack(">I", len(block)) + block


def jpeg(*segments: tuple[int, bytes]) -> bytes:
    """Return a JPEG file with these segments: the marker of each, and what it has."""
    frame = (0xC0, struct.pack(">BHHB", 8, 3, 4, 1) + bytes(3))
    body = b"".join(struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data for marker, data in (*segments, frame))
    return b"\xff\xd8" + body + b"\xff\xda\0\2picture\xff\xd9"


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    """Return a PNG file with these chunks."""
    parts = ((b"IHDR", struct.pack(">II", 4, 3) + bytes(5)), *chunks, (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def webp(*chunks: tuple[bytes, bytes]) -> bytes:
    parts = ((b"VP8X", bytes(4) + b"\3\0\0\2\0\0"), *chunks)
    body = b"".join(kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2) for kind, data in parts)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body) + 8) + kind + body


def heic(block: bytes, packet: bytes) -> bytes:
    """Return a HEIC file with Exif and XMP."""
    items = box(b"infe", b"\2\0\0\0\0\1\0\0Exif\0") + box(b"infe", b"\2\0\0\0\0\2\0\0mime\0application/rdf+xml\0")
    begin = box(b"ftyp", b"heic\0\0\0\0")
    block = bytes(4) + block
    size = len(begin) + 8 + 4 + len(box(b"iinf", b"\0\0\0\0\0\2" + items)) + 8 + 8 + 2 * 14 + 8
    places = b"".join(
        struct.pack(">HHHII", number, 0, 1, at, length)
        for number, at, length in ((1, size, len(block)), (2, size + len(block), len(packet)))
    )
    meta = box(b"iinf", b"\0\0\0\0\0\2" + items) + box(b"iloc", b"\0\0\0\0\x44\0\0\2" + places)
    return begin + box(b"meta", bytes(4) + meta) + box(b"mdat", block + packet)
