"""The text of a picture: a list of what its metadata say, each thing once."""

import re
from collections.abc import Iterator

from bbfs.sources.documents.pictures import exif, iptc, xmp
from bbfs.sources.documents.pictures.containers import Found, metadata_of

_FIRST = ("Title", "Headline", "Description", "Keywords", "Comment", "User comment", "Author", "Artist", "Copyright")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def read(document: bytes) -> Iterator[str]:
    """Yield a line for each property of a picture: those in words first."""
    found = metadata_of(document)
    said: dict[str, dict[str, None]] = {}  # each value once
    for name, value in _properties(found):
        said.setdefault(name, {}).update({value: None} if value else {})
    size = found.size or _tiff_size(found)
    yield f"{found.form} picture{f', {size[0]} × {size[1]} pixels' if size else ''}\n\n"
    for name in sorted(said, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)):
        if said[name] and name not in ("Width", "Height"):
            yield f"- {name}: {'; '.join(said[name])}\n"


def _tiff_size(found: Found) -> tuple[int, int] | None:
    return exif.size_of(found.exif[0]) if found.form == "TIFF" and found.exif else None


def _properties(found: Found) -> Iterator[tuple[str, str]]:
    for block in found.exif:
        yield from exif.tags_of(block)
    if found.form == "TIFF":
        for tag, block in exif.blocks_of(found.exif[0]):
            list_of = {exif.XMP: found.xmp, exif.IPTC: found.iptc}.get(tag)
            if list_of is not None:
                list_of.append(block)
    for block in found.iptc:
        yield from iptc.records_of_resources(block) if block[:4] == b"8BIM" else iptc.records(block)
    for block in found.xmp:
        for name, value in xmp.properties_of(block):
            words = _CAMEL.sub(" ", name)
            yield words[:1].upper() + words[1:].lower() if " " in words else words, value
    for name, text in found.texts:
        yield " ".join(name.split()), " ".join(text.split())
