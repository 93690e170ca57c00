"""The directory at the end of a zip file, by APPNOTE.TXT 6.3.10 of PKWARE (the sections are named below).

Python's zipfile makes an object of half a kilobyte of each entry, before anything can bound their number. In a worker
process it is no faster (100,000 entries take both 0.5 s), and it replaces fifty lines: names, times and packed entries
stay.
"""

import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bbfs.model.errors import TooLarge

LARGEST = 64 << 20
"""Bytes that the directory may have."""
_END = struct.Struct("<4s4H2LH")  # 4.3.16
_ZIP64_END = struct.Struct("<4sQ2H2L4Q")  # 4.3.14
_ZIP64_LOCATOR = struct.Struct("<4sLQL")  # 4.3.15
_ENTRY = struct.Struct("<4sHHHHHHLLLHHHHHLL")  # 4.3.12
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # 4.3.7
_PACKED = struct.Struct("<QQQLHHLq")
_NEVER = -(1 << 63)
_LONGEST_COMMENT = 1 << 16
_UTF8 = 0x800  # 4.4.4
_UNIX = 3  # 4.4.2
_ZIP64, _TIMESTAMP = 0x1, 0x5455  # 4.5.3; Info-ZIP's extra field with times in UTC
_ELSEWHERE = 0xFFFFFFFF
"""The value of a field that is in the extra field for zip64 instead."""

Read = Callable[[int, int], bytes]
"""Returns exactly the bytes at an offset, of a length."""


@dataclass(frozen=True, slots=True)
class ZipMember:
    """One entry. offset: of its local header. mode: of Unix, 0 if the archive states no mode. comment: as it is
    stored."""

    offset: int
    size: int
    compressed_size: int
    crc: int
    method: int
    flags: int
    mode: int
    modified_ns: int | None
    comment: bytes

    def packed(self) -> bytes:
        """Return the member in bytes. Raises struct.error for numbers that no archive has."""
        numbers = (self.offset, self.size, self.compressed_size, self.crc, self.method, self.flags, self.mode)
        return _PACKED.pack(*numbers, _NEVER if self.modified_ns is None else self.modified_ns) + self.comment

    @staticmethod
    def unpacked(data: bytes) -> "ZipMember":
        offset, size, compressed, crc, method, flags, mode, modified_ns = _PACKED.unpack_from(data)
        modified_ns = None if modified_ns == _NEVER else modified_ns
        return ZipMember(offset, size, compressed, crc, method, flags, mode, modified_ns, data[_PACKED.size :])


def read_directory(read: Read, size: int, encoding: str | None) -> Iterator[tuple[str, ZipMember]]:
    """Yield names and entries. size: of the file. encoding: of names without the flag for UTF-8.

    Raises ValueError, LookupError for an unknown encoding, and TooLarge.
    """
    begin, length, before = _place(read, size)
    if length > LARGEST:
        raise TooLarge(f"a directory of {length} bytes, and the limit is {LARGEST}")
    directory = read(begin, length)
    at = 0
    while at < length:
        if length - at < _ENTRY.size:
            raise ValueError("ends within its directory")
        (
            signature, made_by, _, flags, method, clock, day, crc, compressed, plain, name, extra, comment, _, _,
            attributes, offset,
        ) = _ENTRY.unpack_from(directory, at)  # fmt: skip
        if signature != b"PK\1\2":
            raise ValueError("a directory with something else in it")
        at += _ENTRY.size
        name, at = directory[at : at + name], at + name
        extra, at = directory[at : at + extra], at + extra
        comment, at = directory[at : at + comment], at + comment
        modified_ns = _local_time(day, clock)
        for kind, data in _extra_fields(extra):
            if kind == _ZIP64:
                plain, compressed, offset = _sizes(data, plain, compressed, offset)
            elif kind == _TIMESTAMP and len(data) >= 5 and data[0] & 1:
                modified_ns = int(struct.unpack_from("<i", data, 1)[0]) * 1_000_000_000
        mode = attributes >> 16 if made_by >> 8 == _UNIX else 0
        member = ZipMember(offset + before, plain, compressed, crc, method, flags, mode, modified_ns, comment)
        yield _name(name, flags, encoding), member


def data_of(read: Read, member: ZipMember) -> int:
    """Return the offset of a member's data. Raises ValueError."""
    signature, name, extra = _LOCAL_HEADER.unpack(read(member.offset, _LOCAL_HEADER.size))
    if signature != b"PK\3\4":
        raise ValueError("no header where the directory says")
    return member.offset + _LOCAL_HEADER.size + name + extra


def _place(read: Read, size: int) -> tuple[int, int, int]:
    """Return offset and length of the directory, and the bytes before the archive, of a self-extracting program."""
    length = min(size, _END.size + _LONGEST_COMMENT)
    tail = read(size - length, length)
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < _END.size:
        raise ValueError("has no directory")
    *_, length, offset, _ = _END.unpack_from(tail, at)
    end = size - len(tail) + at
    record = end - _ZIP64_LOCATOR.size - _ZIP64_END.size
    if record >= 0 and read(end - _ZIP64_LOCATOR.size, 4) == b"PK\6\7":
        signature, *_, length64, offset64 = _ZIP64_END.unpack(read(record, _ZIP64_END.size))
        if signature == b"PK\6\6":
            length, offset, end = length64, offset64, record
    before = end - length - offset
    if before < 0 or end < length:
        raise ValueError("a directory that begins before the file")
    return end - length, length, before


def _extra_fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        yield kind, extra[at + 4 : at + 4 + length]
        at += 4 + length


def _sizes(data: bytes, plain: int, compressed: int, offset: int) -> tuple[int, int, int]:
    """Return the sizes and the offset. The extra field has the numbers that have no room in the entry."""
    at = 0
    values = [plain, compressed, offset]
    for index, value in enumerate(values):
        if value == _ELSEWHERE and at + 8 <= len(data):
            values[index] = struct.unpack_from("<Q", data, at)[0]
            at += 8
    return values[0], values[1], values[2]


def _name(name: bytes, flags: int, encoding: str | None) -> str:
    """Return the name of a member. Without the flag for UTF-8 the standard says code page 437."""
    name = name.partition(b"\0")[0]
    if flags & _UTF8 or name.isascii():
        return name.decode("utf-8", "surrogateescape")
    if encoding is not None:
        return name.decode(encoding, "surrogateescape")
    try:
        return name.decode()  # many programs write UTF-8 without the flag
    except UnicodeDecodeError:
        return name.decode("cp437")


def _local_time(day: int, clock: int) -> int | None:
    """Return the time in the fields of MS-DOS, the local time of the writer (4.4.6)."""
    parts = (day >> 9) + 1980, day >> 5 & 15, day & 31, clock >> 11, clock >> 5 & 63, (clock & 31) * 2
    try:
        return int(time.mktime((*parts, 0, 0, -1))) * 1_000_000_000
    except (ValueError, OverflowError):
        return None
