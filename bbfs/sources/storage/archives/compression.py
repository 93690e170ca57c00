"""Compressed files as streams, with bounds on the memory that they can take."""

import bz2
import gzip
import io
import lzma
import zlib
from importlib import import_module
from typing import Any, BinaryIO, cast

from bbfs.model.errors import NotSupported

XZ_MEMORY = 256 << 20
"""Bytes that a decoder of xz may take: its dictionaries are as large as the writer chose (xz -9: 65 MiB)."""
_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zst"}
_CHUNK = 1 << 16


def compression_of(beginning: bytes) -> str | None:
    """Return the compression that the first bytes of a file name, or None."""
    return next((name for magic, name in _MAGIC.items() if beginning.startswith(magic)), None)


def decompressed(file: BinaryIO, compression: str) -> BinaryIO:
    """Return the decompressed bytes of a file as a stream. Its reads raise the errors of `faults`."""
    if compression == "gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))
    if compression == "bz2":
        return cast(BinaryIO, bz2.BZ2File(file, "rb"))
    if compression == "xz":
        return io.BufferedReader(_Xz(file), 1 << 18)
    return cast(BinaryIO, _zstandard().ZstdFile(file, "rb"))


def _zstandard() -> Any:
    """Return Python's own module (3.14 and later), or the package for older versions. Raises NotSupported."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise NotSupported("compressed with zstd: needs the package backports.zstd (pip install 'bbfs[storage]')")


class _Xz(io.RawIOBase):
    """An xz file of one or more streams with padding, decoded within `XZ_MEMORY`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder: lzma.LZMADecompressor | None = self._new()
        self._rest = b""

    @staticmethod
    def _new() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._decoder is None:
                self._rest = (self._rest or self._file.read(_CHUNK)).lstrip(b"\0")
                if not self._rest:
                    return 0
                self._decoder = self._new()
            piece = self._rest
            self._rest = b""
            if self._decoder.needs_input and not piece:
                piece = self._file.read(_CHUNK)
                if not piece:
                    raise EOFError("the compressed file ends too early")
            data = self._decoder.decompress(piece, len(buffer))
            if self._decoder.eof:
                self._rest, self._decoder = self._decoder.unused_data, None
            if data:
                buffer[: len(data)] = data
                return len(data)


def faults(compression: str | None) -> tuple[type[Exception], ...]:
    """Return the errors of reading a damaged compressed file, besides OSError without a number."""
    known: tuple[type[Exception], ...] = (EOFError, lzma.LZMAError, zlib.error, ValueError)
    return (*known, _zstandard().ZstdError) if compression == "zst" else known
