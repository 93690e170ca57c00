"""zip files, by the standard library's `zipfile`, whose directory is read once for each version of a file."""

import stat
import struct
import time
import zipfile
import zlib
from typing import Any, cast

from bbfs.model.errors import NotSupported, ProtocolViolation
from bbfs.model.values import Content
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.slice import Slice
from bbfs.sources.storage.archives.files import COPY, ArchiveFile, Bounded, Bytes, Patience
from bbfs.sources.storage.archives.members import Members, names_of, stays_inside

_ENCRYPTED = 0x1  # of the general purpose flags, APPNOTE 4.4.4
_UTF8 = 0x800
_UNIX = 3
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # APPNOTE 4.3.7
_TIMESTAMP = 0x5455  # Info-ZIP's extra field with times in UTC
_LONGEST_TARGET = 4096
_METHODS = {
    zipfile.ZIP_STORED: "stored",
    zipfile.ZIP_DEFLATED: "deflate",
    zipfile.ZIP_BZIP2: "bzip2",
    zipfile.ZIP_LZMA: "lzma",
    93: "zstd",
}
_FAULTS = (zipfile.BadZipFile, EOFError, struct.error, zlib.error, ValueError, OverflowError)


class ZipArchive:
    """One version of an archive. Made in a thread, as `load` is called in one."""

    faults = _FAULTS

    def __init__(self, file: ArchiveFile, patience: Patience, encoding: str | None) -> None:
        """Read the directory. Raises ProtocolViolation for a file that is no archive."""
        self.file = file
        what = file.what
        self.members: Members[zipfile.ZipInfo] = Members(what)
        bounded = Bounded(file.descriptor, what, patience)
        try:
            self._zip = zipfile.ZipFile(cast(Any, bounded), metadata_encoding=encoding)
            for info in self._zip.infolist():
                patience.check()
                self._add(info, encoding, patience)
        except (*_FAULTS, NotImplementedError, LookupError) as error:
            raise ProtocolViolation(f"{what}: no zip file, or a damaged one: {error}") from error
        bounded.patience = None
        self.members.finish()

    def _add(self, info: zipfile.ZipInfo, encoding: str | None, patience: Patience) -> None:
        name = _name(info, encoding)
        modified_ns = _modified_ns(info)
        mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
        if info.is_dir():
            self.members.add_directory(name, modified_ns)
        elif stat.S_ISLNK(mode):
            target = self._target(info, patience)
            if target is None or not stays_inside(names_of(name), target):
                self.members.leave_out(name, "a link that leads out of the archive")
            else:
                self.members.add(name, info, kind="symlink", target=target, modified_ns=modified_ns)
        elif stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            self.members.leave_out(name, "no file, directory or link")
        else:
            self.members.add(
                name, info, size=info.file_size, modified_ns=modified_ns, etag=self._etag(info), properties=_said(info)
            )

    def _etag(self, info: zipfile.ZipInfo) -> str:
        return f"{self.file.content.version}-{info.header_offset:x}-{info.CRC:x}"

    def _target(self, info: zipfile.ZipInfo, patience: Patience) -> str | None:
        """Return the target of a symbolic link, or None if it cannot be read."""
        if info.file_size > _LONGEST_TARGET or info.flag_bits & _ENCRYPTED:
            return None
        try:
            patience.check()
            return self._zip.read(info).decode("utf-8", "surrogateescape")
        except (*_FAULTS, NotImplementedError):
            return None

    def what(self, info: zipfile.ZipInfo) -> str:
        """Return what names a member in errors."""
        return f"{self.file.what}: {info.filename[:200]!a}"

    def load(self, info: zipfile.ZipInfo, patience: Patience) -> Content:
        """Return the content of a file. Raises BbfsError, OSError and `faults`."""
        what = self.what(info)
        if info.flag_bits & _ENCRYPTED:
            raise NotSupported(f"{what}: is encrypted, and bbfs reads no encrypted members")
        try:
            if info.compress_type == zipfile.ZIP_STORED and info.file_size > self.file.max_memory:
                return self._stored(info)
            return self._decompressed(info, what, patience)
        except NotImplementedError as error:
            raise NotSupported(f"{what}: {error}") from error

    def _stored(self, info: zipfile.ZipInfo) -> Slice:
        """Return an uncompressed member as a range of the archive."""
        header = Bytes(self.file.descriptor, self.file.what).read(info.header_offset, _LOCAL_HEADER.size)
        signature, name, extra = _LOCAL_HEADER.unpack(header)
        begin = info.header_offset + _LOCAL_HEADER.size + name + extra
        if signature != b"PK\3\4" or info.compress_size != info.file_size:
            raise zipfile.BadZipFile("its two headers differ")
        if begin + info.file_size > self.file.content.size:
            raise zipfile.BadZipFile("ends beyond the archive")
        return Slice(self.file.content, begin, info.file_size, self._etag(info))

    def _decompressed(self, info: zipfile.ZipInfo, what: str, patience: Patience) -> MemoryContent | StoredContent:
        """Return the bytes of a member, at most as many as its header says, after checking their checksum."""
        with self.file.spool() as spool, self._zip.open(info) as member:
            while piece := member.read(COPY):
                patience.check()
                spool.write(piece)
            if spool.size != info.file_size:
                raise ProtocolViolation(f"{what}: {spool.size} bytes, not the {info.file_size} that it says it has")
            return spool.content()


def _name(info: zipfile.ZipInfo, encoding: str | None) -> str:
    """Return the name of a member. Without the flag for UTF-8 the standard says code page 437."""
    if info.flag_bits & _UTF8 or encoding is not None or info.filename.isascii():
        return info.filename
    try:
        return info.filename.encode("cp437").decode()  # many programs write UTF-8 without the flag
    except UnicodeError:
        return info.filename


def _modified_ns(info: zipfile.ZipInfo) -> int | None:
    """Return the time of the extra field (UTC), else of the header (the local time of the writer)."""
    extra = info.extra
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        if kind == _TIMESTAMP and size >= 5 and len(extra) >= 9 and extra[4] & 1:
            return int(struct.unpack_from("<i", extra, 5)[0]) * 1_000_000_000
        extra = extra[4 + size :]
    try:
        return int(time.mktime((*info.date_time, 0, 0, -1))) * 1_000_000_000
    except (ValueError, OverflowError):
        return None


def _said(info: zipfile.ZipInfo) -> dict[str, Any]:
    method = _METHODS.get(info.compress_type, str(info.compress_type))
    said: dict[str, Any] = {"compressed_size": info.compress_size, "compression": method, "crc32": f"{info.CRC:08x}"}
    if info.comment:
        said["comment"] = info.comment.decode("utf-8", "replace")
    if info.flag_bits & _ENCRYPTED:
        said["encrypted"] = True
    return said
