"""Archives whose parts unpack to far more than they have: streams and members of every compression."""

import bz2
import gzip
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

MIB = 1 << 20
ZEROS = bytes(16 * MIB)
TIMES = 400
"""Streams of 16 MiB in a row: 6.25 GiB when unpacked."""


def zstd_frame(window_log: int, blocks: int) -> bytes:
    """Return a frame of zeros (RFC 8878): each block is four bytes for 128 KiB. window_log: of its window."""
    block = ((128 << 10) << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (1 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\0" + bytes([(window_log - 10) << 3]) + block * blocks + last


def xz_with_dictionary(code: int) -> bytes:
    """Return a stream of xz whose header wants a dictionary. code: its size as the format has it; 40 is 4 GiB - 1."""
    packed = bytearray(lzma.compress(ZEROS, check=lzma.CHECK_NONE, filters=[{"id": lzma.FILTER_LZMA2}]))
    length = (packed[12] + 1) * 4  # of the header of the first block, after that of the stream
    at = packed.index(b"\x21\x01", 12, 12 + length) + 2
    packed[at] = code
    packed[8 + length : 12 + length] = struct.pack("<L", zlib.crc32(packed[12 : 8 + length]))
    return bytes(packed)


STREAMS: Mapping[str, Callable[[], bytes]] = {
    "gz": lambda: gzip.compress(ZEROS) * TIMES,
    "bz2": lambda: bz2.compress(ZEROS) * TIMES,
    "xz": lambda: lzma.compress(ZEROS) * TIMES,
    "zst": lambda: zstd_frame(23, 50_000),
}
"""Streams of zeros, by the suffix of a tar. A tar of zeros has ended at its second block."""
EMPTY: Mapping[str, Callable[[], bytes]] = {
    "gz": lambda: gzip.compress(b"") * 2_000_000,
    "bz2": lambda: bz2.compress(b"") * 2_000_000,
    "xz": lambda: lzma.compress(b"") * 1_000_000,
    "zst": lambda: zstd_frame(10, 0)[:6] * 2_000_000,
}
"""Streams of nothing, one after the other."""


def bomb(path: Path, head: bytes) -> None:
    """Write a compressed tar of one member that is far larger than the file. head: the header of the member."""
    packers = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
    suffix = path.suffix[1:]
    if suffix == "zst":  # a raw block for the header
        frame = zstd_frame(23, 50_000)
        path.write_bytes(frame[:6] + (len(head) << 3).to_bytes(3, "little") + head + frame[6:])
    else:
        path.write_bytes(packers[suffix](head) + STREAMS[suffix]())


def zip_of(entries: list[tuple[bytes, int, bytes, int]], *, count: int | None = None, overlap: bool = False) -> bytes:
    """Return a zip. entries: name, method, packed data, size. count: what its end says. overlap: all share one data."""
    parts: list[bytes] = []
    directory: list[bytes] = []
    at = 0
    for name, method, data, size in entries:
        start = 0 if overlap else at
        if not overlap or not parts:
            local = struct.pack("<4sHHHHHLLLHH", b"PK\3\4", 20, 0, method, 0, 0x5821, 0, len(data), size, len(name), 0)
            parts.append(local + name + data)
            at += len(parts[-1])
        directory.append(
            struct.pack(
                *("<4sHHHHHHLLLHHHHHLL", b"PK\1\2", 20, 20, 0, method, 0, 0x5821, 0, len(data), size),
                *(len(name), 0, 0, 0, 0, 0, start),
            )
            + name
        )
    made = b"".join(directory)
    number = min(len(entries) if count is None else count, 0xFFFF)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, number, number, len(made), at, 0)
    return b"".join(parts) + made + end


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()
