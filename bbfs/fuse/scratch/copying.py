"""One entry of an upper layer, written to the source below: contents with their holes, links, permission bits.

An entry that is made or replaced gets no more rights than a new file of the user who applies it: no setuid, setgid or
sticky bit, and nothing that the umask takes. All functions raise OSError.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from bbfs.fuse.scratch.entries import open_file
from bbfs.model.errors import Conflict
from bbfs.runtime.files import closed_after
from bbfs.runtime.renaming import NOREPLACE, rename_with

_BLOCK = 1 << 20
_UNIT = 512
"""The unit of st_blocks, in bytes (stat(2))."""
_PRIVILEGED = ((stat.S_ISUID, "setuid"), (stat.S_ISGID, "setgid"), (stat.S_ISVTX, "sticky"))
"""Permission bits that no change carries to a source."""


def applied_mode(wanted: int, before: int | None, umask: int) -> int:
    """Return the permission bits that an entry gets. before: those that the source's entry has and keeps."""
    kept = 0 if before is None else before
    return wanted & (0o777 & ~umask | kept)


def refused_bits(wanted: int, before: int | None) -> str | None:
    """Return the names of the privileged bits that a mode has and the source's entry does not; None without any."""
    added = wanted & ~(before or 0)
    return ", ".join(name for bit, name in _PRIVILEGED if added & bit) or None


def require_room(wanted: os.stat_result, beneath: int) -> None:
    """Raise ENOSPC if the source has no room for the data of a file."""
    room = os.fstatvfs(beneath)
    needed = min(wanted.st_size, wanted.st_blocks * _UNIT)
    free = room.f_bavail * room.f_frsize
    if needed > free:
        raise OSError(errno.ENOSPC, f"{needed} bytes, and the source has room for {free}")


@dataclass(frozen=True, slots=True)
class Place:
    """The name that an entry gets in a directory of the lower layer.

    temporary: the name that it is made under. Its rename keeps any name at the source. replaces: what has the name.
    """

    name: str
    lower: int
    temporary: str
    replaces: bool


def put_file(name: str, upper: int, mode: int, place: Place, check: Callable[[], None]) -> None:
    """Create or replace a file by the one of the upper layer.

    check: raises if the source has changed the file. It is called again once all is copied, which may take long.
    """
    lower = place.lower
    with closed_after(open_file(name, upper)) as content:
        wanted = os.fstat(content)
        if wanted.st_size > _BLOCK:
            require_room(wanted, lower)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(place.temporary, flags, mode, dir_fd=lower)
        with _taking(place, check):
            with closed_after(file):
                copy_data(content, file, wanted, lower)
                with suppress(OSError):  # not every source has times
                    os.utime(file, ns=(wanted.st_atime_ns, wanted.st_mtime_ns))
                os.fsync(file)


def copy_data(content: int, file: int, wanted: os.stat_result, lower: int) -> None:
    """Copy the data of a file and keep its holes.

    A source that stores holes as zeros must have room for them: a sparse file of 10 TB takes 8 KiB here.
    """
    size = wanted.st_size
    if wanted.st_blocks * _UNIT >= size:
        _copy_range(content, file, 0, size)
        return
    os.ftruncate(file, size)
    made, room = os.fstat(file), os.fstatvfs(lower)
    if made.st_blocks * _UNIT >= size > room.f_bavail * room.f_frsize:
        raise OSError(errno.ENOSPC, f"{size} bytes with its holes, which this source does not keep as holes")
    for start, end in _data(content, size):
        _copy_range(content, file, start, end)


def _data(content: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file that are no holes (lseek(2))."""
    end = 0
    while end < size:
        try:
            start = os.lseek(content, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return
        end = os.lseek(content, start, os.SEEK_HOLE)
        yield start, end


def _copy_range(content: int, file: int, start: int, end: int) -> None:
    while start < end:
        data = os.pread(content, min(_BLOCK, end - start), start)
        if not data:
            raise OSError(errno.EIO, "it has become shorter meanwhile")
        while data:
            written = os.pwrite(file, data, start)
            start += written
            data = data[written:]


def put_symlink(target: str, place: Place, check: Callable[[], None]) -> None:
    """Create or replace a symbolic link; as `put_file`."""
    os.symlink(target, place.temporary, dir_fd=place.lower)
    with _taking(place, check):
        pass


@contextmanager
def _taking(place: Place, check: Callable[[], None]) -> Iterator[None]:
    """Rename an entry to its name once the block has filled it. Remove it if block, check or rename fail."""
    try:
        yield
        check()
        _rename(place)
    except BaseException:
        with suppress(OSError):
            os.unlink(place.temporary, dir_fd=place.lower)
        raise


def _rename(place: Place) -> None:
    if not place.replaces:
        try:
            old, new = os.fsencode(place.temporary), os.fsencode(place.name)
            return rename_with(place.lower, old, place.lower, new, NOREPLACE)
        except FileExistsError:
            raise Conflict("the source has made it meanwhile") from None
        except OSError as error:
            if error.errno != errno.EINVAL:  # not every file system of a folder can compare
                raise
    return os.rename(place.temporary, place.name, src_dir_fd=place.lower, dst_dir_fd=place.lower)


def set_mode(name: str, beneath: int, mode: int) -> None:
    """Set a mode, but not by way of a symbolic link, which may have taken the name just now and lead anywhere."""
    with closed_after(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=beneath)) as descriptor:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        os.chmod(f"/proc/self/fd/{descriptor}", mode)
