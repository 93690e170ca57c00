"""The headers of a tar archive, by POSIX.1-2017 (pax, "ustar" and "pax Header Block") and GNU tar's manual.

Python's tarfile keeps what a stranger's headers say without bounds, and reads some of them in quadratic time. In a
worker process it is slower (100,000 members take it 1.7 s, and 1.4 s here with their tree), and each compressed archive
is decompressed twice.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Protocol

BLOCK = 512
LARGEST_EXTENSION = 1 << 20
"""Bytes that the extended headers and the sparse map of one member may have, together."""
LARGEST_GLOBAL = 4096
"""Bytes of what global headers say: it is read again for each member."""
_MOST_DIGITS = 20
"""Digits of a number in an extended header; the largest of 64 bits has as many."""
_DIRECTORY, _HARD, _SYMBOLIC, _SPARSE = b"5", b"1", b"2", b"S"
_FILES = (b"0", b"\0", b"7", _SPARSE)
_WITHOUT_DATA = (_HARD, _SYMBOLIC, b"3", b"4", _DIRECTORY, b"6")
_PAX = (b"x", b"X", b"g")
_LONG = {b"L": b"path", b"K": b"linkpath"}
_KEYS = frozenset(
    {b"path", b"linkpath", b"size", b"mtime"}
    | {b"GNU.sparse." + key for key in (b"major", b"name", b"realsize", b"size", b"map")}
)
_KINDS: Mapping[bytes, Literal["directory", "hard link", "symlink"]] = {
    _DIRECTORY: "directory",
    _HARD: "hard link",
    _SYMBOLIC: "symlink",
}
Sparse = tuple[tuple[int, int], ...]


class TarError(ValueError):
    """A file that is no tar archive, or a damaged one."""


class HeaderFile(Protocol):
    """The archive, read forwards."""

    @property
    def at(self) -> int: ...

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer only at the end."""
        ...

    def skip_to(self, offset: int) -> None:
        """Go on at an offset. Raises TarError if the archive ends before it."""
        ...


@dataclass(frozen=True, slots=True)
class TarHeader:
    """One member. offset: of its data. sparse: offsets in the file, and the bytes stored at each.

    size: of the file, negative if the headers do not tell which bytes the file has.
    """

    name: str
    kind: Literal["file", "directory", "hard link", "symlink", "other"]
    target: str
    offset: int
    size: int
    modified_ns: int | None
    sparse: Sparse | None


def read_headers(file: HeaderFile) -> Iterator[TarHeader]:
    """Yield the members in their order. Raises ValueError."""
    globally: dict[bytes, bytes] = {}
    while (member := _Member(file, globally)).block is not None:
        yield member.header()
        file.skip_to(member.offset + member.stored)


class _Member:
    """The blocks of one member before its data. block: the last block, None at the end of the archive."""

    def __init__(self, file: HeaderFile, globally: dict[bytes, bytes]) -> None:
        self._file = file
        self._said = dict(globally)
        self._parts: list[bytes] = []
        self._left = LARGEST_EXTENSION
        is_required = file.at == 0
        while (block := self._header_block(is_required)) is not None:
            kind, size = block[156:157], _number(block[124:136])
            if kind not in _PAX and kind not in _LONG:
                break
            data = self._extension(size)
            if kind in _LONG:
                self._said[_LONG[kind]] = data.partition(b"\0")[0]
            else:
                self._read_pax(data, globally if kind == b"g" else {})
                if sum(map(len, globally.values())) > LARGEST_GLOBAL:
                    raise TarError(f"global headers of more than {LARGEST_GLOBAL} bytes")
            is_required = True
        self.block = block
        self.offset, self.stored = file.at, 0
        if block is not None:
            self._kind = block[156:157]
            stored = self._decimal(b"size", _number(block[124:136]))
            if self._kind not in _WITHOUT_DATA:
                self.stored = -(-max(0, stored) // BLOCK) * BLOCK
            self._stored = stored

    def _header_block(self, is_required: bool) -> bytes | None:
        block = self._file.read(BLOCK)
        if not block and not is_required:
            return None
        if len(block) < BLOCK:
            raise TarError("ends within a header")
        if not block.strip(b"\0"):
            return None
        values, checksum = block[:148] + b" " * 8 + block[156:], _number(block[148:156])
        # Some programs added the bytes as numbers with a sign.
        if checksum != sum(values) and checksum != sum(values) - 256 * sum(byte > 127 for byte in values):
            raise TarError(f"no header at byte {self._file.at - BLOCK}")
        return block

    def _extension(self, size: int) -> bytes:
        """Return the data of an extended header."""
        whole = -(-max(0, size) // BLOCK) * BLOCK
        self._left -= whole + BLOCK
        if self._left < 0:
            raise TarError(f"extended headers of more than {LARGEST_EXTENSION} bytes before one member")
        data = self._file.read(whole)
        if len(data) < whole:
            raise TarError("ends within an extended header")
        return data[:size]

    def _read_pax(self, data: bytes, also: dict[bytes, bytes]) -> None:
        """Note the records that matter here. Each is `LENGTH KEY=VALUE` and a line feed."""
        at = 0
        while at < len(data) and data[at]:
            space = data.find(b" ", at, at + 20)
            length = int(data[at:space]) if space > at else 0
            if length <= max(0, space + 1 - at) or data[at + length - 1 : at + length] != b"\n":
                raise TarError("an extended header with a record that has another length")
            key, _, value = data[space + 1 : at + length - 1].partition(b"=")
            at += length
            if key in (b"GNU.sparse.offset", b"GNU.sparse.numbytes"):
                self._parts.append(value)
            elif key in _KEYS:
                self._said[key] = also[key] = value

    def _decimal(self, key: bytes, otherwise: int) -> int:
        """Return the number of an extended header, or the other number if the header is missing or no number."""
        value = self._said.get(key, b"")
        return int(value) if value.isdigit() and len(value) <= _MOST_DIGITS else otherwise

    def _modified_ns(self, block: bytes) -> int | None:
        """Return the time in nanoseconds since the epoch, or None if no header has a usable one."""
        said = self._said.get(b"mtime")
        for value, number in ((said, float), (block[136:148], _number)):
            with suppress(ValueError):
                if value and math.isfinite(nanoseconds := number(value) * 1_000_000_000):
                    return int(nanoseconds)
        return None

    def header(self) -> TarHeader:
        """Return the member. Reads the rest of a sparse map, which is before the data."""
        assert self.block is not None
        block, kind, said = self.block, self._kind, self._said
        name = said.get(b"GNU.sparse.name") or said.get(b"path") or self._name(block)
        is_directory = kind == b"\0" and name.endswith(b"/")
        sparse, size = None, self._stored
        try:
            sparse = self._sparse() if kind in _FILES and not is_directory else None
            if sparse is not None:
                size = _number(block[483:495]) if kind == _SPARSE else size
                size = self._decimal(b"GNU.sparse.realsize", self._decimal(b"GNU.sparse.size", size))
        except TarError:
            raise  # the place of the next member is unknown
        except ValueError:
            size = -1
        return TarHeader(
            _text(name),
            "directory" if is_directory else "file" if kind in _FILES else _KINDS.get(kind, "other"),
            _text(said.get(b"linkpath") or _until_zero(block[157:257])),
            self._file.at,
            size,
            self._modified_ns(block),
            sparse,
        )

    def _name(self, block: bytes) -> bytes:
        name, prefix = _until_zero(block[:100]), _until_zero(block[345:500])
        return prefix + b"/" + name if prefix and self._kind != _SPARSE else name

    # -- sparse files ------------------------------------------------------------------------------------------------

    def _sparse(self) -> Sparse | None:
        """Return the parts of a sparse file in one of GNU tar's four formats, or None for another file."""
        if self._kind == _SPARSE:
            numbers = list(self._old_map())
        elif self._said.get(b"GNU.sparse.major") == b"1":
            numbers = self._map_before_data()
        elif b"GNU.sparse.map" in self._said:
            numbers = [int(number) for number in self._said[b"GNU.sparse.map"].split(b",")]
        elif b"GNU.sparse.size" in self._said:
            numbers = [int(number) for number in self._parts]
        else:
            return None
        return tuple((at, size) for at, size in zip(numbers[::2], numbers[1::2], strict=True) if size)

    def _old_map(self) -> Iterator[int]:
        assert self.block is not None
        block, begin, parts, goes_on = self.block, 386, 4, 482
        while True:
            for at in range(begin, begin + 24 * parts, 12):
                yield _number(block[at : at + 12])
            if not block[goes_on]:
                return
            block, begin, parts, goes_on = self._extension(BLOCK), 0, 21, 504
            self.offset += BLOCK

    def _map_before_data(self) -> list[int]:
        """Return the numbers of a map in lines of decimals, the first of which says how many pairs follow."""
        blocks = [self._extension(BLOCK)]
        lines, wanted = blocks[0].count(b"\n"), 1 + 2 * int(blocks[0].partition(b"\n")[0])
        while lines < wanted:
            blocks.append(self._extension(BLOCK))
            lines += blocks[-1].count(b"\n")
        return [int(line) for line in b"".join(blocks).split(b"\n")[1:wanted]]


def _number(field: bytes) -> int:
    """Return a number of a header: octal digits, or base 256 as GNU tar writes what has no room."""
    if field[0] in (0o200, 0o377):
        return int.from_bytes(field[1:], "big") - (256 ** (len(field) - 1) if field[0] == 0o377 else 0)
    return int(_until_zero(field).strip() or b"0", 8)


def _until_zero(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
