"""The handler of storage sources (`type = "storage"`), between the tree of bbfs and one backend.

Native URIs are those of the store, such as `s3://bucket/prefix/key`. The tree begins at the root of the scheme: each
directory above the configured place has one entry, the next name on the way to it.
"""

import logging
import os
from collections.abc import Awaitable, Collection
from typing import TypeVar

from bbfs.model.errors import (
    ConfigError,
    DeadlineExceeded,
    IsADirectory,
    LoginRequired,
    NotFound,
    NotSupported,
    ProtocolViolation,
    Unreachable,
)
from bbfs.model.uri import source_uri
from bbfs.model.values import Content, DataSource, Listing, Loaded, Part, ResourceMetadata, SourceState, WriteOperation
from bbfs.model.versions import Expected
from bbfs.sources import Services
from bbfs.sources.bounded.turns import InTurns
from bbfs.sources.content.ranges import LARGEST
from bbfs.sources.health import Health
from bbfs.sources.media_types import content_type_of, mime_type_of_name
from bbfs.sources.storage.addresses import Names, name_of, shown
from bbfs.sources.storage.archives.backend import ArchiveBackend
from bbfs.sources.storage.backend import StorageBackend, StoredItem
from bbfs.sources.storage.file_servers import FileServerBackend
from bbfs.sources.storage.filesystems import FilesystemBackend
from bbfs.sources.storage.objects import ObjectBackend
from bbfs.sources.storage.options import Configured, StorageOptions, configure
from bbfs.sources.storage.s3.backend import S3Backend
from bbfs.sources.storage.webdav.backend import WebDavBackend

T = TypeVar("T")
_log = logging.getLogger(__name__)


class StorageHandler:
    """One place in an object store, an archive, or a remote file system. Raises ConfigError when it is made."""

    options = StorageOptions
    detects_conflicts = False
    """Stores that ignore a condition (If-Match) answer as if it held."""

    def __init__(self, source: DataSource, services: Services) -> None:
        self.source = source
        configured = configure(source)
        self._place = configured.place
        self.backend = backend_of(configured, services)
        self._health = Health(Unreachable, DeadlineExceeded, LoginRequired, ConfigError)
        if configured.file is not None:
            self._health.look_for(source.id, configured.file)
        self._told: str | None = None  # the latest problem with a listing that the log has

    @property
    def state(self) -> SourceState:
        """`down` after the store could not be reached, or wanted other credentials; `up` after any other answer."""
        return self._health.state

    async def aclose(self) -> None:
        await self.backend.aclose()

    async def list_directory(self, path: tuple[str, ...]) -> Listing:
        """Return the entries of a directory, in the store's order. path: URI segments below the root of the scheme."""
        names = tuple(name_of(segment) for segment in path)
        inner = self._place.inside(names)
        if inner is None:
            following = self._place.above[: len(names) + 1]
            return Listing((self._directory(following),))
        listed = await self._asked(self.backend.list(inner))
        if listed.problem is not None and listed.problem != self._told:
            _log.warning("%s: %s", self.source.id, listed.problem)
            self._told = listed.problem
        entries = tuple([self._metadata(item) async for item in InTurns(listed.items)])
        return Listing(entries, problem=listed.problem)

    async def stat(self, native_uri: str) -> ResourceMetadata:
        names, is_directory = self._place.names(native_uri)
        inner = self._place.inside(names)
        if inner is None or (not inner and is_directory):
            return self._directory(names)
        return self._metadata(await self._asked(self.backend.stat(inner, is_directory=is_directory)))

    async def load(self, native_uri: str) -> Loaded:
        names, is_directory = self._place.names(native_uri)
        inner = self._place.inside(names)
        if inner is not None and is_directory and inner:
            await self._asked(self.backend.stat(inner, is_directory=True))
        if inner is None or is_directory:
            raise IsADirectory(f"{self._place.native_uri(names)}: is a directory")
        opened = await self._asked(self.backend.open(inner))
        metadata = self._metadata(opened.item)
        part = Part(native_uri, metadata.mime_type, opened.content, metadata.content_type)
        return Loaded((part,), metadata=metadata)

    # -- writing -----------------------------------------------------------------------------------------------------

    @property
    def beginning(self) -> str:
        return self._place.native_uri(())

    @property
    def detects_existing(self) -> bool:
        return self.backend.detects_existing

    def detects_removed(self, expected: Expected) -> bool:
        return self.backend.detects_removed(expected)

    def writes(self, native_uri: str) -> Collection[WriteOperation]:
        try:
            names, is_directory = self._place.names(native_uri)
            inner = self._place.inside(names)
        except NotFound:
            return ()
        if not inner:
            below = self.backend.operations(("any",), is_directory=True)
            return ("make_directory",) if "make_directory" in below else ()
        return self.backend.operations(inner, is_directory=is_directory)

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        inner = self._inner(native_uri)
        return await self._kept(self.backend.put(inner, content, expected, _type_of(inner)), content)

    async def stage(self, native_uri: str, content: Content) -> str:
        names = await self._asked(self.backend.stage(self._inner(native_uri), content))
        return self._place.native_uri((*self._place.above, *names))

    async def write_staged(
        self, staged: str, native_uri: str, content: Content, expected: Expected
    ) -> ResourceMetadata:
        inner = self._inner(native_uri)
        moved = self.backend.put_staged(self._inner(staged), inner, content, expected, _type_of(inner))
        return await self._kept(moved, content)

    async def unstage(self, staged: str) -> None:
        await self._asked(self.backend.unstage(self._inner(staged)))

    async def _kept(self, answer: Awaitable[StoredItem], content: Content) -> ResourceMetadata:
        """Return the metadata of an object that was stored. Raises ProtocolViolation if it has another size."""
        item = await self._asked(answer)
        if item.size not in (None, content.size):
            what = shown(self._place.native_uri((*self._place.above, *item.path)))
            raise ProtocolViolation(f"{what}: the server has {item.size} bytes of the {content.size} it was sent")
        return self._metadata(item)

    async def remove(self, native_uri: str, expected: Expected) -> None:
        await self._asked(self.backend.delete(self._inner(native_uri), expected))

    async def rename(self, native_uri: str, to: str, *, replace: bool) -> ResourceMetadata:
        inner, to_inner, is_directory = self._inner(native_uri), self._inner(to), self._place.names(native_uri)[1]
        moved = self.backend.move(inner, to_inner, replace=replace, is_directory=is_directory)
        return self._metadata(await self._asked(moved))

    async def make_directory(self, native_uri: str) -> ResourceMetadata:
        inner = self._inner(native_uri)
        await self._asked(self.backend.make_directory(inner))
        return self._directory((*self._place.above, *inner))

    async def remove_directory(self, native_uri: str) -> None:
        await self._asked(self.backend.remove_directory(self._inner(native_uri)))

    async def set_time(self, native_uri: str, modified_ns: int) -> ResourceMetadata:
        return self._metadata(await self._asked(self.backend.set_time(self._inner(native_uri), modified_ns)))

    def _inner(self, native_uri: str) -> Names:
        """Return the names of a URI below the root of the source. Raises NotFound, NotSupported."""
        inner = self._place.inside(self._place.names(native_uri)[0])
        if not inner:
            raise NotSupported(f"{native_uri}: is the place itself")
        return inner

    async def _asked(self, answer: Awaitable[T]) -> T:
        with self._health:
            return await answer

    def _directory(self, names: Names) -> ResourceMetadata:
        native_uri = self._place.native_uri(names, is_directory=True)
        name = _readable(names[-1]) if names else self.source.name
        return ResourceMetadata(source_uri(self.source.base_prefix, native_uri), native_uri, name, kind="directory")

    def _metadata(self, item: StoredItem) -> ResourceMetadata:
        names = (*self._place.above, *item.path)
        native_uri = self._place.native_uri(names, is_directory=item.kind == "directory")
        name = _readable(names[-1] or names[-2]) if names else self.source.name
        mime_type = None
        if item.kind == "resource":
            # The name comes first: a listing has nothing else, and stat must give the same type.
            mime_type = mime_type_of_name(name) or item.mime_type
        return ResourceMetadata(
            uri=source_uri(self.source.base_prefix, native_uri),
            native_uri=native_uri,
            name=name,
            mime_type=mime_type,
            content_type=content_type_of(mime_type),
            size=_possible(item.size),
            modified_ns=_possible(item.modified_ns),
            etag=item.etag,
            kind=item.kind,
            target=item.target,
            properties=item.properties,
        )


def _type_of(path: Names) -> str | None:
    return mime_type_of_name(_readable(path[-1]))


def _possible(number: int | None) -> int | None:
    """Return a size or time if the kernel has room for it (64 bits with a sign), else None."""
    return number if number is not None and -LARGEST <= number < LARGEST else None


def _readable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def backend_of(configured: Configured, services: Services) -> StorageBackend:
    """Return the backend for the scheme of a source. Raises ConfigError if a package for it is missing."""
    scheme = configured.place.scheme
    if scheme == "s3":
        return S3Backend(configured)
    if scheme in ("zip", "tar"):
        _refuse_mount_point(configured, services.mount_point)
        return ArchiveBackend(configured, services.spool)
    if scheme in ("webdav", "webdavs"):
        return WebDavBackend(configured)
    if scheme in ("sftp", "ftp"):
        return FileServerBackend(configured)
    return ObjectBackend(configured) if scheme in ("gs", "az") else FilesystemBackend(configured)


def _refuse_mount_point(configured: Configured, mount_point: str | None) -> None:
    """Raise ConfigError for an archive below the mount point: a process must not read the mount that it serves."""
    if mount_point is None or configured.file is None:
        return
    mounted, file = os.path.realpath(mount_point), os.path.realpath(configured.file)
    if file == mounted or file.startswith(mounted.rstrip("/") + "/"):
        raise ConfigError(f"sources[{configured.source.id}].config.url: the archive is below the mount point")
