"""Archives on a local disk (`zip:///path`, `tar:///path`), read in worker threads once for each version of the file."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import trio

from bbfs.model.errors import BbfsError, Denied, NotFound, Unreachable
from bbfs.sources.content.fd import Descriptor
from bbfs.sources.content.spool import Spool
from bbfs.sources.filesystem.content import Stamp, require_regular, stamp_of
from bbfs.sources.storage.addresses import Names, shown
from bbfs.sources.storage.archives.files import Patience
from bbfs.sources.storage.archives.tar import TarArchive
from bbfs.sources.storage.archives.zip import ZipArchive
from bbfs.sources.storage.backend import Item, Listed, Opened, Threads
from bbfs.sources.storage.options import Configured

T = TypeVar("T")
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _Version:
    """The archive as it was read. stamp: what differs when the file does."""

    stamp: Stamp
    archive: Any


class ArchiveBackend:
    """One archive. Its file is looked at for each request, and read anew when it is another one."""

    def __init__(self, configured: Configured, spool: Callable[[], Spool]) -> None:
        assert configured.file is not None
        source = configured.source
        self._file = configured.file
        self._what = shown(configured.file)
        self._timeout = source.policy.timeout
        self._threads = Threads(source.policy.concurrency)
        self._version: _Version | None = None
        self._reading = trio.Lock()
        common: dict[str, Any] = {
            "spool": spool,
            "limiter": self._threads.limiter,
            "max_memory": configured.common.max_memory,
        }
        if configured.place.scheme == "zip":
            self._make: Callable[..., Any] = partial(ZipArchive, encoding=configured.options.encoding, **common)
        else:
            self._make = partial(TarArchive, **common)

    async def list(self, path: Names) -> Listed:
        return (await self._current()).archive.members.list(path)

    async def stat(self, path: Names, *, is_directory: bool) -> Item:
        members = (await self._current()).archive.members
        return members.directory(path) if is_directory else members.find(path)[0]

    async def open(self, path: Names) -> Opened:
        version = await self._current()
        item, member = version.archive.members.find(path)
        if item.kind != "resource":
            raise Denied(f"{self._what}: {shown('/'.join(path))}: a symbolic link, and links are not followed")
        content = await self._patiently(version.archive.load, member)
        return Opened(content, item)

    async def aclose(self) -> None:
        """The file is closed with the last content that is read from it."""
        self._version = None

    async def _current(self) -> _Version:
        """The archive as it is now. Raises BbfsError."""
        async with self._reading:
            stamp = await self._threads.run(self._look)
            version = self._version
            if version is None or version.stamp != stamp:
                self._version = None  # its memory is free before the next one takes as much
                version = self._version = await self._patiently(self._read)
            return version

    async def _patiently(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run in a thread what ends by itself soon after nobody waits for it any more."""
        patience = Patience(self._timeout)
        try:
            return await self._threads.run(function, *arguments, patience=patience)
        finally:
            patience.stop()

    def _look(self) -> Stamp:
        try:
            status = os.stat(self._file)
        except OSError as error:
            raise self._error(error) from error
        return stamp_of(status)

    def _read(self, *, patience: Patience) -> _Version:
        try:
            descriptor = Descriptor(os.open(self._file, _OPEN))
            status = os.fstat(descriptor.number)
            require_regular(status, self._what)
            return _Version(stamp_of(status), self._make(descriptor, status, self._what, patience=patience))
        except NotFound as error:
            raise Unreachable(str(error)) from error
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> BbfsError:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return Unreachable(f"{self._what}: the archive is not there")
        if error.errno in (errno.EACCES, errno.EPERM):
            return Denied(f"{self._what}: {error.strerror}")
        return BbfsError(f"{self._what}: {error.strerror}")
