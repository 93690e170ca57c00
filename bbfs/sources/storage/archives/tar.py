"""tar archives, compressed or not, by the standard library's `tarfile`, which here reads headers only.

A compressed archive cannot be read from the middle. So each version is decompressed once, into a file of the disk cache
whose ranges are the members. If it is too large for the cache, reading a member decompresses all before it.
"""

import io
import math
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.model.values import Content
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.slice import Slice
from bbfs.sources.content.spool import Spool
from bbfs.sources.storage.archives.compression import compression_of, decompressed, faults
from bbfs.sources.storage.archives.files import (
    COPY,
    LARGEST_HEADER,
    ArchiveFile,
    Bytes,
    Patience,
    Positioned,
    of_disk,
)
from bbfs.sources.storage.archives.members import Members, names_of, stays_inside


@dataclass(frozen=True, slots=True)
class TarMember:
    """The range of a member in the decompressed archive. sparse: offsets in the member, and the bytes at each."""

    offset: int
    size: int
    etag: str
    sparse: tuple[tuple[int, int], ...] | None = None


class TarArchive:
    """One version of an archive. Made in a thread, as `load` is called in one."""

    def __init__(self, file: ArchiveFile, patience: Patience) -> None:
        """Read all headers. Raises ProtocolViolation for a file that is no archive."""
        self.file, self._what = file, file.what
        self._compression = compression_of(os.pread(file.descriptor.number, 6, 0))
        self.faults = faults(self._compression)
        self._whole: Content | None = None
        self._bytes: Bytes | None = None
        self.members: Members[TarMember] = Members(file.what)
        what = file.what
        with file.spool() as kept, self._stream() as stream:
            if self._compression is None:
                self._index(_Forward(stream, what, patience, seeks=True))
                self._whole, self._bytes = file.content, Bytes(file.descriptor, what)
                return
            keep = _Keep(kept)
            self._index(_Forward(stream, what, patience, keep))
            if not keep.is_too_large:
                content = kept.content()
                self._whole, self._bytes = content, Bytes(content, what)

    def _stream(self) -> BinaryIO:
        """Return the decompressed archive as a stream."""
        file = cast(BinaryIO, io.BufferedReader(Positioned(self.file.descriptor), COPY))
        return file if self._compression is None else decompressed(file, self._compression)

    def _index(self, file: "_Forward") -> None:
        try:
            self._read_headers(file)
            file.finish()
        except tarfile.TarError as error:
            self._damaged(str(error))
        except self.faults as error:
            self._damaged(str(error) or type(error).__name__)
        except OSError as error:
            if error.errno is not None:
                raise of_disk(error, self._what) from error
            self._damaged(str(error))
        self.members.finish()

    def _damaged(self, how: str) -> None:
        """Note damage; the members before it can be used. Raises ProtocolViolation if there are none."""
        if not len(self.members):
            raise ProtocolViolation(f"{self._what}: no tar archive, or a damaged one: {how}")
        self.members.damage = f"damaged, members may be missing: {how}"

    def _read_headers(self, file: "_Forward") -> None:
        with tarfile.TarFile(fileobj=cast(Any, file), mode="r", encoding="utf-8", errors="surrogateescape") as archive:
            while (info := archive.next()) is not None:
                cast(Any, archive).members = []  # else it keeps all of them
                self._add(info)
            # The library takes a bad header for the end; the real end is a block of zeros.
            if file.last.strip(b"\0"):
                raise tarfile.ReadError(f"no header at byte {archive.offset}")

    def _add(self, info: tarfile.TarInfo) -> None:
        modified_ns = _nanoseconds(info.mtime)
        if info.isdir():
            self.members.add_directory(info.name, modified_ns)
        elif info.isreg():
            parts: Any = info.sparse
            sparse = None if parts is None else tuple((int(at), int(size)) for at, size in parts if size)
            member = TarMember(info.offset_data, info.size, f"{self.file.content.version}-{info.offset_data:x}", sparse)
            if info.size < 0:
                self.members.leave_out(info.name, "has no size")
            else:
                self.members.add(info.name, member, size=info.size, modified_ns=modified_ns, etag=member.etag)
        elif info.islnk():
            member, item = self.members.member(info.linkname), self.members.item(info.linkname)
            if member is None or item is None or item.kind != "resource":
                self.members.leave_out(info.name, "a link to what is not in the archive")
            else:
                self.members.add(info.name, member, size=item.size, modified_ns=item.modified_ns, etag=item.etag)
        elif info.issym():
            if not stays_inside(names_of(info.name), info.linkname):
                self.members.leave_out(info.name, "a link that leads out of the archive")
            else:
                nothing = TarMember(0, 0, "")
                self.members.add(info.name, nothing, kind="symlink", target=info.linkname, modified_ns=modified_ns)
        else:
            self.members.leave_out(info.name, "no file, directory or link")

    def what(self, member: TarMember) -> str:
        """Return what names a member in errors."""
        return self._what

    def load(self, member: TarMember, patience: Patience) -> Content:
        """Return the content of a file. Raises BbfsError, OSError and `faults`."""
        if member.sparse is not None:
            return self._spooled(self._expanded(member, member.sparse, patience))
        if self._whole is None or self._bytes is None:
            return self._spooled(self._from_stream(member.offset, member.size, patience))
        if member.offset + member.size > self._whole.size:
            raise ProtocolViolation(f"{self._what}: ends before a member that it has")
        if member.size <= self.file.max_memory:
            return MemoryContent(self._bytes.read(member.offset, member.size))
        return Slice(self._whole, member.offset, member.size, member.etag)

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
        with self._stream() as stream:
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
    """A file for `tarfile` to read headers from, which only goes forward."""

    def __init__(
        self, stream: BinaryIO, what: str, patience: Patience, keep: _Keep | None = None, *, seeks: bool = False
    ) -> None:
        """keep: gets all bytes that are read or skipped. seeks: the stream can seek."""
        self._stream = stream
        self._what = what
        self._patience = patience
        self._keep = keep
        self._seeks = seeks
        self._at = 0
        self.last = b""

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        self._patience.check()
        if size < 0 or size > LARGEST_HEADER:
            raise TooLarge(f"{self._what}: a header of more than {LARGEST_HEADER} bytes")
        data = self.last = self._stream.read(size)
        self._at += len(data)
        if self._keep is not None:
            self._keep.write(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET or offset < self._at:
            raise tarfile.ReadError("a header that leads backwards")
        self.skip_to(offset)
        return self._at

    def skip_to(self, offset: int) -> None:
        if self._seeks:
            self._at = self._stream.seek(offset)
            return
        while self._at < offset and self.read(min(COPY, offset - self._at)):
            pass

    def finish(self) -> None:
        """Read to the end, where the checksum is, unless much follows the archive."""
        if self._keep is not None:
            for _ in range(4):
                if not self.read(COPY):
                    break

    def close(self) -> None:
        """Do nothing: the opener closes the stream."""


def _nanoseconds(seconds: float) -> int | None:
    nanoseconds = seconds * 1_000_000_000  # may be infinite although the seconds are not
    return int(nanoseconds) if math.isfinite(nanoseconds) else None
