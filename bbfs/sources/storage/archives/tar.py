"""tar archives, compressed or not.

A compressed archive cannot be read from the middle. So each version is decompressed once, into a file of the disk cache
whose ranges are the members. If it is too large for the cache, reading a member decompresses all before it.
"""

import io
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.model.values import Content
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.ranges import LARGEST
from bbfs.sources.content.slice import Slice
from bbfs.sources.content.spool import Spool
from bbfs.sources.storage.addresses import Names
from bbfs.sources.storage.archives.compression import compression_of, decompressed, faults
from bbfs.sources.storage.archives.files import COPY, ArchiveFile, Bytes, Patience, Positioned, of_disk
from bbfs.sources.storage.archives.members import Members
from bbfs.sources.storage.archives.tar_headers import Sparse, TarError, TarHeader, read_headers
from bbfs.sources.storage.backend import StoredItem

MOST_PARTS = 100_000
"""Limit on the parts of all sparse files of an archive, together."""
_NEVER = -LARGEST


@dataclass(frozen=True, slots=True)
class TarMember:
    """The range of a member in the decompressed archive. sparse: offsets in the member, and the bytes at each."""

    offset: int
    size: int
    modified_ns: int | None
    sparse: Sparse | None = None

    def packed(self) -> bytes:
        """Return the member in bytes. Numbers without room in 64 bits are cut, so that its content is an error."""
        numbers = [number for part in self.sparse or () for number in part]
        values = (self.offset, self.size, _NEVER if self.modified_ns is None else self.modified_ns, *numbers)
        bounded = (max(-LARGEST, min(value, LARGEST - 1)) for value in values)
        return struct.pack(f"<?{len(values)}q", self.sparse is not None, *bounded)

    @staticmethod
    def unpacked(data: bytes) -> "TarMember":
        is_sparse, offset, size, modified_ns, *numbers = struct.unpack(f"<?{len(data) // 8}q", data)
        sparse = tuple(zip(numbers[::2], numbers[1::2], strict=True)) if is_sparse else None
        return TarMember(offset, size, None if modified_ns == _NEVER else modified_ns, sparse)


class TarArchive:
    """One version of an archive. Made in a thread, as `load` is called in one."""

    def __init__(self, file: ArchiveFile, patience: Patience) -> None:
        """Read all headers. Raises ProtocolViolation for a file that is no archive."""
        self.file, self._what = file, file.what
        self._compression = compression_of(os.pread(file.descriptor.number, 6, 0))
        self.faults = faults(self._compression)
        self._whole: Content | None = None
        self._bytes: Bytes | None = None
        self._parts = 0
        self.members = Members(file.what, self._described)
        what = file.what
        with file.spool() as kept, self._stream(patience) as stream:
            if self._compression is None:
                self._index(_Forward(stream, what, patience, size=file.content.size))
                self._whole, self._bytes = file.content, Bytes(file.descriptor, what)
                return
            keep = _Keep(kept)
            self._index(_Forward(stream, what, patience, keep))
            if not keep.is_too_large:
                content = kept.content()
                self._whole, self._bytes = content, Bytes(content, what)

    def _stream(self, patience: Patience) -> BinaryIO:
        file = Positioned(self.file.descriptor, patience)
        return io.BufferedReader(file, COPY) if self._compression is None else decompressed(file, self._compression)

    def _index(self, file: "_Forward") -> None:
        try:
            for header in read_headers(file):
                self._add(header)
            file.finish()
        except self.faults as error:
            self._damaged(str(error) or type(error).__name__)
        except OSError as error:
            raise of_disk(error, self._what) from error
        self.members.finish()

    def _damaged(self, how: str) -> None:
        """Note damage; the members before it can be used. Raises ProtocolViolation if there are none."""
        if not len(self.members):
            raise ProtocolViolation(f"{self._what}: no tar archive, or a damaged one: {how}")
        self.members.damage = f"damaged, members may be missing: {how}"

    def _add(self, header: TarHeader) -> None:
        name = header.name
        match header.kind:
            case "directory":
                self.members.add_directory(name, header.modified_ns)
            case "symlink":
                self.members.add_link(name, header.target, header.modified_ns)
            case "hard link":
                member = self.members.member(header.target)
                if member is None:
                    self.members.leave_out(name, "a link to what is not in the archive")
                else:
                    self.members.add(name, member)
            case "file":
                self._parts += len(header.sparse or ())
                if header.size < 0:
                    self.members.leave_out(name, "has no size")
                elif self._parts > MOST_PARTS:
                    self.members.leave_out(name, f"more than {MOST_PARTS} parts of sparse files")
                else:
                    member = TarMember(header.offset, header.size, header.modified_ns, header.sparse)
                    self.members.add(name, member.packed())
            case _:
                self.members.leave_out(name, "no file, directory or link")

    def _described(self, path: Names, packed: bytes) -> StoredItem:
        member = TarMember.unpacked(packed)
        return StoredItem(path, "resource", member.size, member.modified_ns, self._etag(member))

    def _etag(self, member: TarMember) -> str:
        return f"{self.file.content.version}-{member.offset:x}"

    def load(self, packed: bytes, what: str, patience: Patience) -> Content:
        """Return the content of a file. what: names it in errors. Raises BbfsError, OSError and `faults`."""
        member = TarMember.unpacked(packed)
        if member.sparse is not None:
            return self._spooled(self._expanded(member, member.sparse, patience))
        if self._whole is None or self._bytes is None:
            return self._spooled(self._from_stream(member.offset, member.size, patience))
        if member.offset + member.size > self._whole.size:
            raise ProtocolViolation(f"{what}: the archive ends before a member that it has")
        if member.size <= self.file.max_memory:
            return MemoryContent(self._bytes.read(member.offset, member.size))
        return Slice(self._whole, member.offset, member.size, self._etag(member))

    def _spooled(self, pieces: Iterator[bytes]) -> MemoryContent | StoredContent:
        with self.file.spool() as spool:
            for piece in pieces:
                spool.write(piece)
            return spool.content()

    def _expanded(self, member: TarMember, sparse: tuple[tuple[int, int], ...], patience: Patience) -> Iterator[bytes]:
        """Yield the bytes of a sparse file: its data, with zeros between."""
        at = 0
        stored = 0
        for offset, size in (*sparse, (member.size, 0)):
            if offset < at or size < 0 or offset + size > member.size:
                raise ProtocolViolation(f"{self._what}: a sparse file whose parts overlap")
            while at < offset:
                patience.check()
                zeros = min(COPY, offset - at)
                yield bytes(zeros)
                at += zeros
            yield from self._pieces(member.offset + stored, size, patience)
            at += size
            stored += size

    def _pieces(self, offset: int, size: int, patience: Patience) -> Iterator[bytes]:
        if self._bytes is None:
            yield from self._from_stream(offset, size, patience)
            return
        for begin in range(offset, offset + size, COPY):
            patience.check()
            yield self._bytes.read(begin, min(COPY, offset + size - begin))

    def _from_stream(self, offset: int, size: int, patience: Patience) -> Iterator[bytes]:
        with self._stream(patience) as stream:
            file = _Forward(stream, self._what, patience)
            file.skip_to(offset)
            left = size
            while left:
                piece = file.read(min(COPY, left))
                if not piece:
                    raise ProtocolViolation(f"{self._what}: ends before a member that it has")
                left -= len(piece)
                yield piece


class _Keep:
    """Spools the bytes that pass, until they are too many."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.is_too_large = False

    def write(self, data: bytes) -> None:
        if not self.is_too_large:
            try:
                self._spool.write(data)
            except TooLarge:
                self.is_too_large = True


class _Forward:
    """The decompressed archive, which only goes forward."""

    def __init__(
        self, stream: BinaryIO, what: str, patience: Patience, keep: _Keep | None = None, *, size: int | None = None
    ) -> None:
        """keep: gets all bytes that are read or skipped. size: of a stream that can seek."""
        self._stream = stream
        self._what = what
        self._patience = patience
        self._keep = keep
        self._size = size
        self.at = 0

    def read(self, size: int) -> bytes:
        self._patience.check()
        data = self._stream.read(size)
        self.at += len(data)
        if self._keep is not None:
            self._keep.write(data)
        return data

    def skip_to(self, offset: int) -> None:
        """Go on at an offset. Raises TarError if the archive ends before it."""
        if self._size is not None and offset <= self._size:
            self._patience.check()
            self.at = self._stream.seek(offset)
        while self.at < offset:
            if self._size is not None or not self.read(min(COPY, offset - self.at)):
                raise TarError("ends before a member that it has")

    def finish(self) -> None:
        """Read to the end, where the checksum is, unless much follows the archive."""
        if self._keep is not None:
            for _ in range(4):
                if not self.read(COPY):
                    break
