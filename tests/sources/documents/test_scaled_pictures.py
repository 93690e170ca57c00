"""Pictures in fewer pixels: what models take, and hostile ones within their limits."""

import random
import struct
import zlib
from io import BytesIO
from typing import Any

import pytest
import trio
from PIL import Image

from bbfs.model.errors import BbfsError, ProtocolViolation, TooLarge
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.documents.pictures import scaling
from bbfs.sources.documents.pictures.scaler import PictureScaler

BOUND = 60.0


def picture(form: str, size: tuple[int, int] = (400, 200), mode: str = "RGB", **options: Any) -> bytes:
    made = Image.linear_gradient("L").resize(size).convert(mode)
    if mode == "RGBA":
        made.putalpha(100)
    out = BytesIO()
    made.save(out, form, **options)
    return out.getvalue()


def opened(data: bytes) -> Image.Image:
    found = Image.open(BytesIO(data))
    found.load()
    return found


@pytest.mark.parametrize(
    ("form", "mode", "becomes"),
    [
        ("PNG", "RGB", "PNG"),
        ("PNG", "RGBA", "PNG"),
        ("PNG", "P", "PNG"),
        ("PNG", "LA", "PNG"),
        ("PNG", "I;16", "PNG"),
        ("PNG", "1", "PNG"),
        ("GIF", "P", "PNG"),
        ("BMP", "RGB", "PNG"),
        ("JPEG", "RGB", "JPEG"),
        ("JPEG", "L", "JPEG"),
        ("JPEG", "CMYK", "JPEG"),
        ("WEBP", "RGB", "JPEG"),
        ("WEBP", "RGBA", "PNG"),
        ("TIFF", "RGB", "JPEG"),
    ],
)
def test_a_picture_gets_fewer_pixels_and_keeps_its_form(form: str, mode: str, becomes: str) -> None:
    found = opened(scaling.job(picture(form, mode=mode), {"side": 100}))
    assert (found.format, found.size) == (becomes, (100, 50))


def test_a_small_picture_stays_and_one_that_models_do_not_take_gets_another_form() -> None:
    assert scaling.job(picture("PNG"), {"side": 400}) == b""
    assert opened(scaling.job(picture("TIFF"), {"side": 400})).format == "JPEG"


def test_a_picture_stands_as_its_metadata_say_and_the_metadata_go() -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a secret place"  # orientation: turned by 90 degrees; a description
    data = scaling.job(picture("JPEG", exif=exif), {"side": 100})
    assert opened(data).size == (50, 100)
    assert b"secret" not in data


def test_what_would_be_a_large_png_becomes_a_jpeg() -> None:
    noise = Image.frombytes("RGB", (700, 600), random.Random(1).randbytes(700 * 600 * 3))
    noise.putalpha(200)
    out = BytesIO()
    noise.save(out, "PNG", compress_level=0)
    assert opened(scaling.job(out.getvalue(), {"side": 690})).format == "JPEG"


def png(width: int, height: int, data: bytes, depth: int = 8, colours: int = 2) -> bytes:
    """Return a picture with this header and these rows, whether or not they fit. colours: 2 is RGB, 0 is grey."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


HOSTILE = {
    "a bomb": (png(60_000, 60_000, bytes(1 << 20)), TooLarge),
    "a bomb of one line": (png(1, 60_000_000, bytes(1 << 20)), TooLarge),
    "a bomb of a few pixels too many": (png(6000, 9000, bytes(1 << 20)), TooLarge),
    "a header that says more than there is": (png(2000, 2000, bytes(1000)), ProtocolViolation),
    "a header that says nothing": (png(0, 0, b""), ProtocolViolation),
    "truncated": (picture("JPEG", (1000, 1000))[:500], ProtocolViolation),
    "truncated GIF": (picture("GIF", (1000, 1000))[:300], ProtocolViolation),
    "truncated WEBP": (picture("WEBP", (1000, 1000))[:60], ProtocolViolation),
    "no picture": (b"<svg/>", ProtocolViolation),
    "nothing": (b"", ProtocolViolation),
    "another format": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", ProtocolViolation),
}


@pytest.mark.parametrize(("data", "error"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_picture_is_refused(data: bytes, error: type[BbfsError]) -> None:
    with pytest.raises(error):
        scaling.job(data, {"side": 100})


async def test_a_process_with_limits_does_it() -> None:
    made = PictureScaler()
    with trio.fail_after(BOUND):
        found = await made.scaled(MemoryContent(picture("JPEG")), 100, what="a")
        assert found is not None
        assert (opened(found[0]).size, found[1]) == ((100, 50), "image/jpeg")
        assert await made.scaled(MemoryContent(picture("PNG")), 400, what="a") is None
        one_bit = png(7000, 7000, bytes(7000 * 876), depth=1, colours=0)
        with pytest.raises(TooLarge):  # 49 million pixels: within the bound, and too many for this process
            await PictureScaler(200 << 20).scaled(MemoryContent(one_bit), 100, what="a")
