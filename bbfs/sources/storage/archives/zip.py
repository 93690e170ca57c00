"""zip files, whose directory is read once for each version of a file."""

import io
import stat
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from bbfs.model.errors import NotSupported, ProtocolViolation
from bbfs.model.values import Content
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.slice import Slice
from bbfs.sources.storage.addresses import Names
from bbfs.sources.storage.archives.compression import Decompressed, decoder_of, faults
from bbfs.sources.storage.archives.files import COPY, ArchiveFile, Bytes, Patience, Positioned
from bbfs.sources.storage.archives.members import LONGEST_NAME, Members
from bbfs.sources.storage.archives.zip_directory import ZipMember, data_of, read_directory
from bbfs.sources.storage.backend import StoredItem

_ENCRYPTED = 0x1  # of the general purpose flags, APPNOTE 4.4.4
_LZMA_ENDS = 0x2
_STORED, _LZMA = 0, 14  # APPNOTE 4.4.5
_METHODS = {_STORED: "stored", 8: "deflate", 12: "bzip2", _LZMA: "lzma", 93: "zstd"}
_DECODERS = {8: "deflate", 12: "bz2", _LZMA: "lzma", 93: "zst"}


class ZipArchive:
    """One version of an archive. Made in a thread, as `load` is called in one."""

    faults = (*faults(None), struct.error)

    def __init__(self, file: ArchiveFile, patience: Patience, encoding: str | None) -> None:
        """Read the directory. Raises ProtocolViolation for a file that is no archive."""
        self.file = file
        self._bytes = Bytes(file.descriptor, file.what)
        self.members = Members(file.what, self._described)
        try:
            for name, member in read_directory(self._bytes.read, file.content.size, encoding):
                patience.check()
                self._add(name, member, patience)
        except (*self.faults, LookupError) as error:
            raise ProtocolViolation(f"{file.what}: no zip file, or a damaged one: {error}") from error
        self.members.finish()

    def _add(self, name: str, member: ZipMember, patience: Patience) -> None:
        if name.endswith("/"):
            self.members.add_directory(name, member.modified_ns)
        elif stat.S_ISLNK(member.mode):
            target = self._target(member, patience)
            if target is None:
                self.members.leave_out(name, "a link that cannot be read")
            else:
                self.members.add_link(name, target, member.modified_ns)
        elif stat.S_IFMT(member.mode) not in (0, stat.S_IFREG):
            self.members.leave_out(name, "no file, directory or link")
        else:
            try:
                self.members.add(name, member.packed())
            except struct.error:
                self.members.leave_out(name, "has numbers that no archive has")

    def _described(self, path: Names, packed: bytes) -> StoredItem:
        member = ZipMember.unpacked(packed)
        said: dict[str, Any] = {
            "compressed_size": member.compressed_size,
            "compression": _METHODS.get(member.method, str(member.method)),
            "crc32": f"{member.crc:08x}",
        }
        if member.comment:
            said["comment"] = member.comment.decode("utf-8", "replace")
        if member.flags & _ENCRYPTED:
            said["encrypted"] = True
        return StoredItem(path, "resource", member.size, member.modified_ns, self._etag(member), properties=said)

    def _etag(self, member: ZipMember) -> str:
        return f"{self.file.content.version}-{member.offset:x}-{member.crc:x}"

    def _target(self, member: ZipMember, patience: Patience) -> str | None:
        """Return the target of a symbolic link, or None if it cannot be read."""
        if member.size > LONGEST_NAME or member.flags & _ENCRYPTED:
            return None
        try:
            return b"".join(self._pieces(member, patience)).decode("utf-8", "surrogateescape")
        except (*self.faults, NotSupported, ProtocolViolation):
            return None

    def load(self, packed: bytes, what: str, patience: Patience) -> Content:
        """Return the content of a file. what: names it in errors. Raises BbfsError, OSError and `faults`."""
        member = ZipMember.unpacked(packed)
        if member.flags & _ENCRYPTED:
            raise NotSupported(f"{what}: is encrypted, and bbfs reads no encrypted members")
        if member.method == _STORED and member.size > self.file.max_memory:
            return self._stored(member)
        return self._decompressed(member, what, patience)

    def _stored(self, member: ZipMember) -> Slice:
        """Return an uncompressed member as a range of the archive."""
        begin = data_of(self._bytes.read, member)
        if member.compressed_size != member.size:
            raise ValueError("its two sizes differ, and it is not compressed")
        if begin + member.size > self.file.content.size:
            raise ValueError("ends beyond the archive")
        return Slice(self.file.content, begin, member.size, self._etag(member))

    def _decompressed(self, member: ZipMember, what: str, patience: Patience) -> MemoryContent | StoredContent:
        """Return the bytes of a member, at most as many as its header says, after checking their checksum."""
        with self.file.spool() as spool:
            crc = 0
            for piece in self._pieces(member, patience):
                crc = zlib.crc32(piece, crc)
                spool.write(piece)
            if spool.size != member.size:
                raise ProtocolViolation(f"{what}: {spool.size} bytes, not the {member.size} that it says it has")
            if crc != member.crc:
                raise ProtocolViolation(f"{what}: damaged: another checksum than it says")
            return spool.content()

    def _pieces(self, member: ZipMember, patience: Patience) -> Iterator[bytes]:
        """Yield the bytes of a member, at most one more than its header says."""
        file = Positioned(self.file.descriptor, patience, data_of(self._bytes.read, member))
        stream: io.RawIOBase = _Part(file, member.compressed_size)
        if member.method != _STORED:
            if member.method not in _DECODERS:
                raise NotSupported(f"compression {member.method} of zip files is not supported")
            if member.method == _LZMA:
                stream = _as_lzma_file(stream, member)
            stream = Decompressed(stream, decoder_of(_DECODERS[member.method]), is_one=True)
        left = member.size + 1
        while left > 0 and (piece := stream.read(min(COPY, left))):
            patience.check()
            left -= len(piece)
            yield piece


class _Part(io.RawIOBase):
    """Some bytes, and then so many bytes of a file."""

    def __init__(self, file: io.RawIOBase, size: int, before: bytes = b"") -> None:
        self._file = file
        self._left = size
        self._before = before

    def read(self, size: int = -1) -> bytes:
        if self._before:
            data, self._before = self._before[:size], self._before[size:]
            return data
        data = self._file.read(min(size, self._left)) or b""
        self._left -= len(data)
        return data


def _as_lzma_file(part: io.RawIOBase, member: ZipMember) -> io.RawIOBase:
    """Return the data of a member with the header of an .lzma file, whose decoder has a bound on its memory.

    The data begin with a version and the length of the properties (APPNOTE 5.8.8).
    """
    version = part.read(4) or b""
    length = int.from_bytes(version[2:], "little")
    properties = part.read(5) or b""
    if length != 5 or len(properties) != 5:
        raise ValueError("LZMA with other properties than five bytes")
    size = -1 if member.flags & _LZMA_ENDS else member.size
    return _Part(part, member.compressed_size, properties + size.to_bytes(8, "little", signed=True))
