"""Compressed data as streams, with bounds on the memory of a decoder and on the bytes that one step yields."""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, BinaryIO, Protocol

from bbfs.model.errors import NotSupported
from bbfs.runtime.extras import needs

XZ_MEMORY = 80 << 20
"""Bytes that a decoder of xz or LZMA may take: its dictionary is as large as the writer chose (xz -9: 65 MiB)."""
_ZSTD_WINDOW = 27
"""Logarithm of the bytes that a zstd frame may refer back to: 128 MiB, the largest without `--long=31`."""
_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zst"}
_CHUNK = 1 << 16
_GZIP, _RAW = 31, -15  # wbits of zlib


class Decoder(Protocol):
    """The interface of the decoders of bz2, lzma and zstd."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Deflate:
    """A decoder of zlib with that interface."""

    def __init__(self, wbits: int) -> None:
        self._decoder = zlib.decompressobj(wbits)

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def needs_input(self) -> bool:
        return not self._decoder.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._decoder.decompress(self._decoder.unconsumed_tail + data, max_length)


def compression_of(beginning: bytes) -> str | None:
    """Return the compression that the first bytes of a file name, or None."""
    return next((name for magic, name in _MAGIC.items() if beginning.startswith(magic)), None)


def decompressed(file: io.RawIOBase, compression: str) -> BinaryIO:
    """Return the decompressed bytes of a file as a stream. Its reads raise the errors of `faults`."""
    return io.BufferedReader(Decompressed(file, decoder_of(compression)), 1 << 18)


def decoder_of(compression: str) -> Callable[[], Decoder]:
    """Return the function that makes a decoder. compression: of a file, or `deflate`. Raises NotSupported for zstd."""
    if compression == "zst":
        zstandard = _zstandard()
        options = {zstandard.DecompressionParameter.window_log_max: _ZSTD_WINDOW}
        return lambda: zstandard.ZstdDecompressor(options=options)
    return {
        "gz": lambda: _Deflate(_GZIP),
        "deflate": lambda: _Deflate(_RAW),
        "bz2": bz2.BZ2Decompressor,
        "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY),
        "lzma": lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=XZ_MEMORY),
    }[compression]


def _zstandard() -> Any:
    """Return Python's own module (3.14 and later), or the package for older versions. Raises NotSupported."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise NotSupported(f"compressed with zstd: {needs('storage')}")


class Decompressed(io.RawIOBase):
    """The decoded bytes of a file. Several compressed streams may follow each other, with zeros between them.

    is_one: only one stream is decoded, and the bytes after it are ignored.
    """

    def __init__(self, file: io.RawIOBase, make: Callable[[], Decoder], *, is_one: bool = False) -> None:
        self._file = file
        self._make = make
        self._is_one = is_one
        self._decoder: Decoder | None = make()
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            while self._decoder is None:
                piece = b"" if self._is_one else (self._rest or self._piece())
                if not piece:
                    return 0
                self._rest = piece.lstrip(b"\0")
                if self._rest:
                    self._decoder = self._make()
            piece, self._rest = self._rest, b""
            if self._decoder.needs_input and not piece:
                piece = self._piece()
            data = self._decoder.decompress(piece, len(buffer))
            if self._decoder.eof:
                self._rest, self._decoder = self._decoder.unused_data, None
            elif not data and not piece:
                raise EOFError("the compressed file ends too early")
            if data:
                buffer[: len(data)] = data
                return len(data)

    def _piece(self) -> bytes:
        return self._file.read(_CHUNK) or b""


def faults(compression: str | None) -> tuple[type[Exception], ...]:
    """Return the errors of reading damaged compressed data, besides OSError without a number."""
    known: tuple[type[Exception], ...] = (EOFError, lzma.LZMAError, zlib.error, ValueError)
    return (*known, _zstandard().ZstdError) if compression == "zst" else known
