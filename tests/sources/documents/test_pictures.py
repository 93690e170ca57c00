"""What pictures become as text: their metadata; and what is refused of those."""

import struct
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress

import made_pictures as made
import pytest

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.sources.documents.markdown import job


def text(picture: bytes) -> str:
    return job(picture, {"kind": "picture", "max_unpacked": 1 << 20, "max_text": 1 << 20}).decode()


CAMERA: made.Tags = {
    270: b"A fjord\0",
    271: b"ACME\0",
    34665: {33434: (1, 60), 33437: (28, 10), 34855: 400, 37386: (35, 1), 37510: b"ASCII\0\0\0at dawn"},
    34853: {1: b"N\0", 2: (59, 1, 54, 1, 0, 1), 3: b"W\0", 4: (10, 1, 30, 1, 36, 1)},
}


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_photo_has_its_words_first_then_its_camera(order: str) -> None:
    iptc = made.iptc({120: "A fjord", 25: "sea", 90: "Bærum"})
    segments = (
        *((0xE1, b"Exif\0\0" + made.exif(CAMERA, order)), (0xE1, b"http://ns.adobe.com/xap/1.0/\0" + made.XMP)),
        *((0xED, b"Photoshop 3.0\0" + iptc), (0xFE, b"made by hand")),
    )
    assert text(made.jpeg(*segments)) == (
        "JPEG picture, 4 × 3 pixels\n\n- Title: Fjord\n- Description: A fjord\n- Keywords: sea; water; boat\n"
        "- Comment: made by hand\n- User comment: at dawn\n- City: Bærum; Oslo\n- Exposure: 1/60 s\n- F-number: 2.8\n"
        "- Focal length: 35 mm\n- ISO: 400\n- Make: ACME\n- Position: 59.90000, -10.51000\n"
    )


def test_each_container_is_read() -> None:
    picture = made.png(
        (b"tEXt", b"Title\0caf\xe9"),
        (b"zTXt", b"Comment\0\0" + zlib.compress(b"packed")),
        (b"iTXt", b"Author\0\0\0nb\0Forfatter\0" + "Bjørn".encode()),
        (b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + made.XMP),
        (b"eXIf", made.exif({272: b"Model X\0"})),
        (b"tEXt", b"Raw profile type exif\0\nexif\n  9\n" + made.exif({271: b"ACME\0"}).hex().encode()),
        (b"tEXt", b"Raw profile type iptc\0\niptc\n  9\nnone"),
    )
    assert text(picture) == (
        "PNG picture, 4 × 3 pixels\n\n- Title: Fjord; café\n- Keywords: water; boat\n- Comment: packed\n"
        "- Author: Bjørn\n- City: Oslo\n- Make: ACME\n- Model: Model X\n"
    )
    block = made.exif({272: b"Model X\0"})
    words = "- Title: Fjord\n- Keywords: water; boat\n- City: Oslo\n- Model: Model X\n"
    assert text(made.webp((b"EXIF", block), (b"XMP ", made.XMP))) == f"WebP picture, 4 × 3 pixels\n\n{words}"
    assert text(made.heic(block, made.XMP)) == f"HEIC picture\n\n{words}"
    assert (
        text(made.exif({256: 4, 257: 3, 272: b"Model X\0", 700: made.XMP})) == f"TIFF picture, 4 × 3 pixels\n\n{words}"
    )
    gif = b"GIF89a\4\0\3\0\x80\0\0" + bytes(6) + b"\x21\xfe\4hand\0" + b"\x21\xff\x0bXMP DataXMP" + made.XMP
    assert "- Comment: hand\n" in text(gif + b"\1\xff\xfe\0\0;")


BLANK = b"<a>" + b"<b/>" * 100_000 + b"</a>"


def same_bytes(tag: int, kind: int, count: int, number: int, body: bytes, offset: int = 8) -> bytes:
    """Return a directory of a TIFF file at an offset, whose entries all have the same bytes, behind it."""
    entry = struct.pack("<HHII", tag, kind, count, offset + 2 + 12 * number + 4)
    return (b"II*\0\x08\0\0\0" if offset == 8 else b"") + struct.pack("<H", number) + number * entry + bytes(4) + body


def same_items(number: int) -> bytes:
    """Return a HEIC file that has one item again and again."""
    item = made.box(b"infe", b"\2\0\0\0\0\1\0\0mime\0application/rdf+xml\0")
    items = made.box(b"iinf", b"\0\0\0\0\0\1" + item)
    at = 16 + 12 + len(items) + 16 + 14 * number + 8
    place = struct.pack(">HHHII", 1, 0, 1, at, len(BLANK))
    places = made.box(b"iloc", b"\0\0\0\0\x44\0" + struct.pack(">H", number) + number * place)
    return made.box(b"ftyp", b"heic\0\0\0\0") + made.box(b"meta", bytes(4) + items + places) + made.box(b"mdat", BLANK)


def keywords(number: int) -> bytes:
    words = [b"\x1c\2\x19\0\6%06d" % each for each in range(number)]
    blocks = (b"".join(words[at : at + 4000]) for at in range(0, number, 4000))
    return made.jpeg(*((0xED, b"Photoshop 3.0\0" + block) for block in blocks))


HOSTILE: Mapping[str, Callable[[], bytes]] = {
    "directories of the same bytes": lambda: same_bytes(
        34665, 13, 1, 1000, same_bytes(42032, 2, 60_000, 1000, b" " * 60_000, 8 + 2 + 12 * 1000 + 4)
    ),
    "blocks of the same bytes": lambda: same_bytes(700, 1, len(BLANK), 2000, BLANK),
    "items of the same bytes": lambda: same_items(3000),
    "a long namespace": lambda: made.webp((b"XMP ", b"<a xmlns:p='%b'>" % (b"u" * 700_000) + b"<p:b/>" * 100_000)),
    "many keywords": lambda: keywords(150_000),
    "a text that grows": lambda: made.png((b"zTXt", b"Comment\0\0" + zlib.compress(bytes(16 << 20)))),
    "many chunks": lambda: made.png(*[(b"tEXt", b"k\0v")] * 50_000),
    "a directory in itself": lambda: made.exif({34665: {}}).replace(b"\x1a\0\0\0", b"\x08\0\0\0"),
    "a value longer than the file": lambda: made.exif({270: b"x" * 10}).replace(b"\n\0\0\0", b"\xff\xff\xff\xff"),
    "entities": lambda: made.webp((b"XMP ", b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>")),
    "deep XMP": lambda: made.webp((b"XMP ", b"<a>" * 100_000)),
    "a box of no size": lambda: b"\0\0\0\x10ftypheic\0\0\0\0" + b"\0\0\0\1meta" + bytes(8) * 1000,
    "boxes in a row": lambda: b"\0\0\0\x10ftypheic\0\0\0\0" + b"\0\0\0\x08free" * 100_000,
    "segments in a row": lambda: b"\xff\xd8" + b"\xff\xe0\0\2" * 200_000,
    "blocks without an end": lambda: b"GIF89a\4\0\3\0\0\0\0\x21\xfe" + b"\1a" * 200_000,
    "cut": lambda: made.jpeg((0xE1, b"Exif\0\0" + made.exif(CAMERA)))[:60],
    "another kind": lambda: b"%PDF-1.7",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_picture_is_refused_or_read_soon(name: str) -> None:
    data, begin = HOSTILE[name](), time.process_time()
    with suppress(ProtocolViolation, TooLarge):
        assert len(text(data)) <= 1 << 20
    assert time.process_time() - begin < 20


@pytest.mark.parametrize("name", ["entities", "another kind", "deep XMP"])
def test_what_no_picture_has_is_refused(name: str) -> None:
    with pytest.raises(ProtocolViolation):
        text(HOSTILE[name]())
