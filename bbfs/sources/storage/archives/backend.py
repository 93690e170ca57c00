"""Archives on a local disk (`zip:///path`, `tar:///path`), read in worker threads once for each version of the file."""

import errno
import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

import trio

from bbfs.model.errors import BbfsError, Denied, NotFound, ProtocolViolation, Unreachable
from bbfs.model.values import Content
from bbfs.sources.content.fd import Descriptor
from bbfs.sources.content.spool import Spool
from bbfs.sources.filesystem.content import FileContent, Stamp, require_regular, stamp_of
from bbfs.sources.storage.addresses import Names, shown
from bbfs.sources.storage.archives.files import ArchiveFile, Patience, of_disk
from bbfs.sources.storage.archives.tar import TarArchive
from bbfs.sources.storage.archives.zip import ZipArchive
from bbfs.sources.storage.backend import Collected, ListedItems, Opened, StorageBackend, StoredItem, Threads
from bbfs.sources.storage.options import Configured

T = TypeVar("T")
_Archive: TypeAlias = ZipArchive | TarArchive
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class ArchiveBackend(StorageBackend):
    """One archive. Each request stats its file, and reads the members again if it is another version."""

    def __init__(self, configured: Configured, spool: Callable[[], Spool]) -> None:
        assert configured.file is not None
        source = configured.source
        self._file = configured.file
        self._place = configured.place
        self._limit = configured.common.list_limit
        self._what = shown(configured.file)
        self._timeout = source.policy.timeout
        self.threads = Threads(source.policy.concurrency)
        self._spool = spool
        self._max_memory = configured.common.max_memory
        self.archive: _Archive | None = None
        self._reading = trio.Lock()
        self._make: Callable[[ArchiveFile, Patience], _Archive] = TarArchive
        if configured.place.scheme == "zip":
            self._make = partial(ZipArchive, encoding=configured.options.encoding)

    async def list(self, path: Names) -> ListedItems:
        archive = await self._current()
        return await self.threads.run(self._listed, archive, path)

    def _listed(self, archive: _Archive, path: Names) -> ListedItems:
        members, collected = archive.members, Collected(self._place, path, self._limit)
        members.list(path, collected)
        problems = [text for text in (collected.problem, None if path else members.problem) if text is not None]
        return ListedItems((*members.own(path), *collected.items), "; ".join(problems) or None)

    async def stat(self, path: Names, *, is_directory: bool) -> StoredItem:
        members = (await self._current()).members
        return members.directory(path) if is_directory else members.find(path)[0]

    async def open(self, path: Names) -> Opened:
        archive = await self._current()
        item, member = archive.members.find(path)
        what = f"{self._what}: {shown('/'.join(path))}"
        if item.kind != "resource":
            raise Denied(f"{what}: a symbolic link, and links are not followed")
        return Opened(await self._patiently(self._load, archive, member, what), item)

    async def aclose(self) -> None:
        """Drop the archive. Its file is closed with the last content that reads from it."""
        self.archive = None

    async def _current(self) -> Any:
        """Return the current version of the archive. Raises BbfsError."""
        async with self._reading:
            stamp = await self.threads.run(self._look)
            archive = self.archive
            if archive is None or archive.file.stamp != stamp:
                self.archive = None  # its memory is free before the next one takes as much
                archive = self.archive = await self._patiently(self._read)
            return archive

    async def _patiently(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function in a thread, and tell it to end when the request is given up."""
        patience = Patience(self._timeout)
        try:
            return await self.threads.run(function, *arguments, patience=patience)
        finally:
            patience.stop()

    def _look(self) -> Stamp:
        try:
            status = os.stat(self._file)
        except OSError as error:
            raise self._error(error) from error
        return stamp_of(status)

    def _read(self, *, patience: Patience) -> _Archive:
        try:
            descriptor = Descriptor(os.open(self._file, _OPEN))
            status = os.fstat(descriptor.number)
            require_regular(status, self._what)
            content = FileContent(descriptor, status, self._what, self.threads.limiter)
            stamp = stamp_of(status)
            file = ArchiveFile(descriptor, content, stamp, self._what, self._spool, self._max_memory)
            return self._make(file, patience)
        except NotFound as error:
            raise Unreachable(str(error)) from error
        except OSError as error:
            raise self._error(error) from error

    def _load(self, archive: Any, member: Any, what: str, *, patience: Patience) -> Content:
        try:
            content = archive.load(member, what, patience)
        except OSError as error:
            raise of_disk(error, what) from error
        except BbfsError:
            raise
        except archive.faults as error:
            raise ProtocolViolation(f"{what}: damaged: {error}") from error
        archive.file.require_unchanged()
        return content

    def _error(self, error: OSError) -> BbfsError:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return Unreachable(f"{self._what}: the archive is not there")
        if error.errno in (errno.EACCES, errno.EPERM):
            return Denied(f"{self._what}: {error.strerror}")
        return BbfsError(f"{self._what}: {error.strerror}")
