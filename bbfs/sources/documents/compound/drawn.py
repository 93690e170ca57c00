"""The pictures of a PowerPoint file that are metafiles: what the charts and objects on its slides look like."""

import zlib

from bbfs.sources.documents.pictures.metafiles import text_of

MOST_BYTES = 32 << 20
"""Of all metafiles of a file together, unpacked: those beyond are left out."""
_HEADER = 8
_KINDS = (0xF01A, 0xF01B)
"""Records of EMF and WMF pictures."""
_UID, _DESCRIBED = 16, 34
_PLAIN = b"\xfe"
"""How a metafile is stored that is not compressed."""


class Drawn:
    """The texts of metafiles in the stream "Pictures" ([MS-ODRAW] 2.2.23), each made once."""

    def __init__(self, pictures: bytes) -> None:
        self._pictures = pictures
        self._left = MOST_BYTES
        self._texts: dict[int, str] = {}

    def text(self, at: int) -> str:
        """Return the text of the picture whose record begins at a place, or "" if it is none, or no metafile."""
        if at not in self._texts:
            self._texts[at] = text_of(self._metafile(at))
        return self._texts[at]

    def _metafile(self, at: int) -> bytes:
        header = self._pictures[at : at + _HEADER]
        kind = int.from_bytes(header[2:4], "little")
        if len(header) < _HEADER or kind not in _KINDS:
            return b""
        end = at + _HEADER + int.from_bytes(header[4:8], "little")
        described = at + _HEADER + (2 if header[0] & 0x10 else 1) * _UID
        data = self._pictures[described + _DESCRIBED : end]
        if self._pictures[described + 32 : described + 33] != _PLAIN:
            unpacking = zlib.decompressobj()
            try:
                data = unpacking.decompress(data, max(1, self._left))
            except zlib.error:
                return b""
        self._left -= len(data)
        return data if self._left > 0 else b""
