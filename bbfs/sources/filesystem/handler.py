"""Local folders (`type = "filesystem"`).

A native URI is `file:./` and the path below the root, percent-encoded from the raw bytes of the names; `file:path` and
`file:///root/path` mean the same. Nothing outside the root is ever opened, and no symbolic link is followed: links are
shown as links. Sockets, pipes and devices are left out.
"""

import errno
import logging
import os
import stat
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, get_args
from urllib.parse import quote_from_bytes, unquote_to_bytes

import trio
from pydantic import Field, field_validator

from bbfs.model.errors import BbfsError, ConfigError, Denied, IsADirectory, NotFound, NotSupported, Unreachable
from bbfs.model.redaction import shown
from bbfs.model.uri import source_uri
from bbfs.model.values import (
    Change,
    Content,
    DataSource,
    Listing,
    Loaded,
    Part,
    ResourceMetadata,
    SourceState,
    WriteOperation,
)
from bbfs.model.versions import Expected
from bbfs.sources import Services
from bbfs.sources.content.fd import Descriptor
from bbfs.sources.filesystem import writing
from bbfs.sources.filesystem.beneath import AtMountPoint, Components, MountPoint, Root, error_of
from bbfs.sources.filesystem.content import etag_of, exact_size, open_content, require_regular
from bbfs.sources.filesystem.watching import FolderWatch
from bbfs.sources.health import Health
from bbfs.sources.media_types import content_type_of, mime_type_of_name
from bbfs.sources.options import Bytes, SourceOptions, parse_options, refuse_auth

T = TypeVar("T")
_SUB_DELIMS = "!$&'()*+,;="  # RFC 3986, section 2.2; left alone, as the unreserved characters are
_PIECE = 1 << 20
"""Bytes of a content that are written at once."""
_LOOK = os.O_PATH
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_log = logging.getLogger(__name__)


class FilesystemOptions(SourceOptions):
    """Options of a local folder."""

    root: str
    """The folder. `~` is the home directory. The folder may vanish and return (with `--dir` it has to exist when bbfs
    starts)."""
    hidden: bool = True
    """Show names that begin with a dot."""
    max_memory: Bytes = Field(default=1 << 20, ge=0, le=1 << 30)
    """Largest file that is read whole when it is opened. Larger ones are read in ranges."""

    @field_validator("root")
    @classmethod
    def _absolute(cls, root: str) -> str:
        if not root or "\0" in root:
            raise ValueError("must be the path of a folder")
        path = os.path.expanduser(root)
        if path.startswith("~"):
            raise ValueError(f"no home directory is known for {root.split('/')[0]!r}")
        return os.path.join(os.getcwd(), path)


class FilesystemHandler:
    """One local folder, read in worker threads, at most `policy.concurrency` at once.

    Raises ConfigError for options that cannot be used, and if the root is the mount point or below it. Construct it
    before the mount: afterwards nothing looks at the mount point. A missing root raises `Unreachable` at each request
    until it is there.
    """

    options = FilesystemOptions
    detects_conflicts = True
    """A file is compared by its etag just before another one takes its name."""

    def __init__(self, source: DataSource, services: Services) -> None:
        self.source = source
        refuse_auth(source)
        self._options = parse_options(FilesystemOptions, source)
        root = os.fsencode(self._options.root)
        mount_point = MountPoint.named(services.mount_point) if services.mount_point is not None else None
        if mount_point is not None and mount_point.holds(root):
            raise ConfigError(f"sources[{source.id}].config.root: {mount_point.refusal(root)}")
        self.root = Root(root, mount_point)
        self.shows_hidden = self._options.hidden
        self._limiter = trio.CapacityLimiter(source.policy.concurrency)
        self._health = Health(Unreachable, NotSupported, ConfigError)
        self._made_watch: FolderWatch | None = None
        self._watch: FolderWatch | None = None

    @property
    def state(self) -> SourceState:
        """`down` after the folder as a whole could not be used, `up` after all other requests."""
        return self._health.state

    async def list_directory(self, path: tuple[str, ...]) -> Listing:
        """Return the entries of a directory, sorted by the bytes of their names. path: percent-encoded names below the
        root."""
        names = tuple(file_name(segment) for segment in path)
        self._refuse_hidden(names)
        listing = await self._in_thread(self._list, names)
        self.begin()
        return listing

    async def stat(self, native_uri: str) -> ResourceMetadata:
        return await self._in_thread(self._stat, self._components(native_uri))

    async def load(self, native_uri: str) -> Loaded:
        """Load a regular file: a snapshot, or the open file if it has more than `max_memory` bytes."""
        return await self._in_thread(self._load, self._components(native_uri))

    # -- what others change ------------------------------------------------------------------------------------------

    def watch(self, sink: Callable[[Change], None]) -> None:
        """Report what changes in the directories that were listed last, once a program watches one (`follow`)."""
        self._made_watch = FolderWatch(self.source.id, sink, native_uri_of, segment_of)

    def interested(self, native_uri: str) -> None:
        """Do nothing: directories are watched, and not files."""

    def announces(self, native_uri: str | None) -> bool:
        """Return False: only directories that a program watches are watched, and not every change is an event."""
        return False

    async def confirmed(self) -> None:
        """Return at once: no change is promised to be reported."""

    def follow(self, path: tuple[str, ...]) -> None:
        """Watch a directory that a program watches on the mount. path: as it is shown. Called in a thread."""
        self._watch = self._made_watch
        if self._watch is not None:
            names = tuple(os.fsencode(name) for name in path)
            with suppress(OSError, BbfsError, AtMountPoint), self.root.open(names, _LIST) as directory:
                self._watch.watch(names, directory)

    def begin(self) -> None:
        """Begin to report, if a directory is watched by now."""
        if self._watch is not None:
            self._watch.begin()

    async def aclose(self) -> None:
        """Report nothing more."""
        if self._watch is not None:
            self._watch.end()

    # -- changes -----------------------------------------------------------------------------------------------------

    @property
    def beginning(self) -> str:
        return native_uri_of(())

    def writes(self, native_uri: str) -> Collection[WriteOperation]:
        return get_args(WriteOperation)

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        """Write a file beside the old file, and rename it over the old file once it is on disk. It keeps the mode."""
        path = self._components(native_uri)
        new = await self._in_thread(partial(writing.Replacement, self.root), path)
        try:
            offset = 0
            while offset < content.size:
                piece = content.read(offset, _PIECE)
                piece = await content.read_waiting(offset, _PIECE) if piece is None else piece
                if not piece:
                    raise BbfsError(f"{shown(native_uri)}: the content ends before its size")
                await self._in_thread(lambda _, data=piece: new.write(data), path)
                offset += len(piece)
            status = await self._in_thread(lambda _: new.take_place(expected), path)
        finally:
            with trio.CancelScope(shield=True):
                await self._in_thread(lambda _: new.drop(), path)
        return self._file(path, status)

    async def remove(self, native_uri: str, expected: Expected) -> None:
        await self._change(writing.remove, native_uri, expected)

    async def rename(self, native_uri: str, to: str, *, replace: bool) -> ResourceMetadata:
        await self._change(partial(writing.rename, replace=replace), native_uri, self._components(to))
        return await self.stat(to)

    async def make_directory(self, native_uri: str) -> ResourceMetadata:
        await self._change(writing.make_directory, native_uri)
        return await self.stat(native_uri)

    async def remove_directory(self, native_uri: str) -> None:
        await self._change(writing.remove_directory, native_uri)

    async def set_time(self, native_uri: str, modified_ns: int) -> ResourceMetadata:
        await self._change(writing.set_time, native_uri, modified_ns)
        return await self.stat(native_uri)

    async def _change(self, change: Callable[..., None], native_uri: str, *arguments: object) -> None:
        await self._in_thread(lambda path: change(self.root, path, *arguments), self._components(native_uri))

    async def _in_thread(self, function: Callable[[Components], T], path: Components) -> T:
        with self._health:
            # A thread that hangs on a dead network file system is abandoned; what it opens goes with its result.
            return await trio.to_thread.run_sync(
                partial(with_errors, function), path, abandon_on_cancel=True, limiter=self._limiter
            )

    def _components(self, native_uri: str) -> Components:
        """Return the path below the root for a native URI. A slash at its end stays with the last name."""
        scheme, colon, rest = native_uri.partition(":")
        if not colon or scheme.lower() != "file":
            raise NotFound(f"{shown(native_uri)}: the URIs of this source begin with file:")
        if not rest:
            raise NotFound(f"{shown(native_uri)}: names nothing")
        if rest.startswith(("//localhost/", "///")):
            rest = "/" + rest[2:].partition("/")[2]
        is_absolute = rest.startswith("/")
        rest = rest.removeprefix("/") if is_absolute else rest.removeprefix("./")
        segments = [] if rest in ("", ".") else rest.removesuffix("/").split("/")
        names = [file_name(segment) for segment in segments]
        if is_absolute:
            root = [name for name in os.path.normpath(self.root.path).split(b"/") if name]
            if names[: len(root)] != root:
                raise NotFound(f"{shown(native_uri)}: not in the folder of this source")
            del names[: len(root)]
        self._refuse_hidden(names)
        if names and rest.endswith("/"):
            # The slash makes the kernel insist on a directory.
            names[-1] += b"/"
        return tuple(names)

    def _refuse_hidden(self, names: Iterable[bytes]) -> None:
        for name in names:
            if not self._options.hidden and name.startswith(b"."):
                raise NotFound(f"{shown(os.fsdecode(name))}: hidden, and the option hidden is false")

    def _list(self, path: Components) -> Listing:
        try:
            directory = self.root.open(path, _LIST)
        except AtMountPoint as mount_point:
            _refuse_below(mount_point, path)
            return Listing(())
        resources: list[ResourceMetadata] = []
        problems: list[str] = []
        if self._watch is not None:
            self._watch.watch(path, directory)
        with directory, os.scandir(directory.number) as scan:
            untouchable = self.root.mount_point_in(os.fstat(directory.number))
            for name, entry in sorted((os.fsencode(entry.name), entry) for entry in scan):
                if not self._options.hidden and name.startswith(b"."):
                    continue
                below = (*path, name)
                metadata = (
                    self._directory(below) if name == untouchable else self._entry(below, directory, entry, problems)
                )
                if metadata is not None:
                    resources.append(metadata)
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        return Listing(tuple(resources), problem="; ".join(problems[:3]) + more or None)

    def _entry(
        self, path: Components, directory: Descriptor, entry: os.DirEntry[str], problems: list[str]
    ) -> ResourceMetadata | None:
        """Return an entry of a directory, or None if it vanished or is special. Append errors to `problems`."""
        try:
            status = entry.stat(follow_symlinks=False)
            target = os.readlink(path[-1], dir_fd=directory.number) if stat.S_ISLNK(status.st_mode) else None
            return self._metadata(path, status, target)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINVAL):
                return None  # it was removed, or is no longer a link, since the directory was read
            problems.append(str(error_of(error, shown(native_uri_of(path)))))
        try:
            # Mostly known from the directory itself, without another system call.
            is_directory, is_file = entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False)
        except OSError:
            return None  # `problems` has the error already
        return self._directory(path) if is_directory else self._file(path) if is_file else None

    def _stat(self, path: Components) -> ResourceMetadata:
        try:
            with self.root.open(path, _LOOK) as found:
                status = os.fstat(found.number)
                is_link = stat.S_ISLNK(status.st_mode)
                target = os.readlink(b"", dir_fd=found.number) if is_link else None
        except AtMountPoint as mount_point:
            _refuse_below(mount_point, path)
            return self._directory(path)
        metadata = self._metadata(path, status, target)
        if metadata is None:
            raise NotFound(f"{shown(native_uri_of(path))}: is no regular file")
        return metadata

    def _load(self, path: Components) -> Loaded:
        what = shown(native_uri_of(path))
        try:
            # Check first: opening a device may have effects.
            with self.root.open(path, _LOOK) as found:
                status = os.fstat(found.number)
                if stat.S_ISLNK(status.st_mode):
                    raise Denied(f"{what}: a symbolic link, and links are not followed")
                require_regular(status, what)
            descriptor = self.root.open(path, _READ)
        except AtMountPoint as mount_point:
            _refuse_below(mount_point, path)
            raise IsADirectory(f"{what}: is a directory") from None
        content, status = open_content(descriptor, what, self._options.max_memory, self._limiter)
        metadata = replace(self._file(path, status), size=content.size)
        part = Part(metadata.native_uri, metadata.mime_type, content, metadata.content_type)
        return Loaded((part,), metadata=metadata)

    def _metadata(self, path: Components, status: os.stat_result, target: bytes | None) -> ResourceMetadata | None:
        if target is not None:
            return self._described(path, status, kind="symlink", size=len(target), target=os.fsdecode(target))
        if stat.S_ISDIR(status.st_mode):
            return self._directory(path, status)
        if stat.S_ISREG(status.st_mode):
            return self._file(path, status)
        _log.debug("%s: left out, no file, directory or link", native_uri_of(path))
        return None

    def _directory(self, path: Components, status: os.stat_result | None = None) -> ResourceMetadata:
        return self._described(path, status, kind="directory")

    def _file(self, path: Components, status: os.stat_result | None = None) -> ResourceMetadata:
        mime_type = mime_type_of_name(_readable(path[-1]))
        size = exact_size(status) if status is not None else None
        return self._described(path, status, mime_type=mime_type, content_type=content_type_of(mime_type), size=size)

    def _described(self, path: Components, status: os.stat_result | None, **fields: Any) -> ResourceMetadata:
        native_uri = native_uri_of(path)
        return ResourceMetadata(
            uri=source_uri(self.source.base_prefix, native_uri),
            native_uri=native_uri,
            name=_readable(path[-1].rstrip(b"/")) if path else self.source.name,
            modified_ns=status.st_mtime_ns if status is not None else None,
            etag=etag_of(status) if status is not None else None,
            **fields,
        )


def file_name(segment: str) -> bytes:
    """Return the file name in one percent-encoded segment of a path. Raise NotFound and Denied."""
    try:
        name = unquote_to_bytes(segment)
    except UnicodeEncodeError:
        raise NotFound(f"{shown(segment)}: not a file name") from None
    if name == b"..":
        raise Denied(f"{shown(segment)}: leads out of its directory")
    if name in (b"", b".") or b"/" in name or b"\0" in name:
        raise NotFound(f"{shown(segment)}: not a file name")
    return name


def segment_of(name: bytes) -> str:
    """Return a file name as a percent-encoded segment of a path."""
    return quote_from_bytes(name.rstrip(b"/"), safe="-._~" + _SUB_DELIMS)


def native_uri_of(path: Components) -> str:
    """Return the native URI of a path below the root, given as raw names."""
    return "file:./" + "/".join(map(segment_of, path))


def _readable(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def with_errors(function: Callable[[Components], T], path: Components) -> T:
    """Call a function with a path. Raise BbfsError."""
    try:
        return function(path)
    except OSError as error:
        raise error_of(error, shown(native_uri_of(path))) from error


def _refuse_below(mount_point: AtMountPoint, path: Components) -> None:
    if mount_point.below:
        raise NotFound(f"{shown(native_uri_of(path))}: below the mount point of bbfs") from None
