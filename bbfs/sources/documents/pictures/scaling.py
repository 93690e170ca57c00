"""A picture in fewer pixels. A worker process runs it: `job` is all that it calls. It needs Pillow.

The header of a picture says how many pixels it has, and that is compared with a bound before anything is decoded. The
limits of the process hold for what a header does not say.
"""

import warnings
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from PIL import Image, ImageOps

from bbfs.model.errors import ProtocolViolation, TooLarge

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
TAKEN = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif"}
"""The formats that models take, with their MIME types."""
MOST_PIXELS = 50_000_000
"""A progressive JPEG of so many takes 300 MB while it is decoded."""
Image.MAX_IMAGE_PIXELS = MOST_PIXELS  # Pillow compares it with the header, and warns of up to twice as many
_DRAWN = ("PNG", "GIF", "BMP")
"""Formats of drawings and screens, which JPEG would blur."""
_LARGE_PNG = 1 << 20
"""Bytes of a PNG from which on its pixels are no drawing, and JPEG is smaller."""
_QUALITY = 85


def job(document: bytes, options: Mapping[str, Any]) -> bytes:
    """Return a picture whose longest side has at most `side` pixels, as PNG or JPEG, or nothing if it has already.

    Raise TooLarge for one of too many pixels, ProtocolViolation for what cannot be read as a picture.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damage that it passes over
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(BytesIO(document), formats=FORMATS) as picture:
                return _scaled(picture, options["side"])
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError) as error:
        raise TooLarge(f"too many pixels: {error}") from error
    except (OSError, ValueError, SyntaxError, EOFError, ArithmeticError, LookupError, TypeError) as error:
        # What Pillow raises for damaged files: its readers check little of what they unpack.
        raise ProtocolViolation(f"not a picture that can be read: {error}") from error


def _scaled(picture: Image.Image, side: int) -> bytes:
    form = picture.format
    if max(picture.size) <= side and form in TAKEN:
        return b""
    picture.draft("RGB", (side, side))  # a JPEG is decoded at an eighth, a quarter or half of its size
    is_clear = picture.has_transparency_data
    made = picture.convert("RGBA" if is_clear else "RGB") if picture.mode not in ("L", "RGB", "RGBA") else picture
    made.thumbnail((side, side))
    made = ImageOps.exif_transpose(made)
    if form in _DRAWN or is_clear:
        as_png = _written(made, "PNG", optimize=True)
        if len(as_png) <= _LARGE_PNG:
            return as_png
    if is_clear:
        ground = Image.new("RGBA", made.size, "white")
        made = Image.alpha_composite(ground, made.convert("RGBA"))
    return _written(made.convert("RGB"), "JPEG", quality=_QUALITY)


def _written(picture: Image.Image, form: str, **options: Any) -> bytes:
    """Return the bytes of a picture, without metadata of the original one."""
    out = BytesIO()
    plain = picture.copy()
    plain.info = {}
    plain.save(out, form, **options)
    return out.getvalue()
