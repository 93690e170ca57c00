"""Undoing the content coding of an HTTP body (RFC 9110, section 8.4.1) piece by piece, so that no piece is large."""

import zlib
from collections.abc import Callable, Iterator

from bbfs.model.errors import ProtocolViolation

ACCEPTED = "gzip"
_PIECE = 1 << 20
"""Bytes of one piece. A coded byte may stand for a thousand."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS

Inflate = Callable[[bytes], Iterator[bytes]]


def inflater(coding: str | None) -> Inflate:
    """A function from chunks as they came to pieces of at most 1 MiB, for a header `content-encoding`.

    It raises ProtocolViolation for what is not so coded, and this does for a coding that was not asked for.
    """
    name = (coding or "identity").strip().lower()
    if name == "identity":
        return lambda chunk: iter((chunk,))
    if name not in (ACCEPTED, "x-gzip", "deflate"):
        raise ProtocolViolation(f"an answer in a content coding that was not asked for: {name[:40]}")
    decompressor = zlib.decompressobj(_GZIP_OR_ZLIB)

    def inflate(chunk: bytes) -> Iterator[bytes]:
        try:
            while piece := decompressor.decompress(chunk, _PIECE):
                yield piece
                chunk = decompressor.unconsumed_tail
        except zlib.error as exc:
            raise ProtocolViolation(f"an answer that cannot be decoded: {exc}") from exc

    return inflate
