"""Remote file systems through fsspec: SFTP, FTP, GitHub, and fsspec's own memory.

They run in threads; the time-out of its connection ends each. If a connection has died since its last use, the backend
connects again, once.
"""

import ftplib
import struct
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

import trio

from bbfs.model.errors import (
    BbfsError,
    DeadlineExceeded,
    Denied,
    IsADirectory,
    LoginRequired,
    NotADirectory,
    NotFound,
    Outdated,
    ProtocolViolation,
    Unreachable,
)
from bbfs.sources.http.statuses import STATUS_ERRORS
from bbfs.sources.storage.addresses import Names, shown
from bbfs.sources.storage.archives.members import stays_inside
from bbfs.sources.storage.backend import LibraryBackend, ListedItems, StoredItem
from bbfs.sources.storage.options import Configured

T = TypeVar("T")
_PACKAGES = {
    "sftp": ("fsspec", "paramiko"),
    "ftp": ("fsspec",),
    "github": ("fsspec", "requests"),
    "memory": ("fsspec",),
}
_ERRORS: dict[str, type[BbfsError]] = {
    "FileNotFoundError": NotFound,
    "NotADirectoryError": NotADirectory,
    "IsADirectoryError": IsADirectory,
    "AuthenticationException": LoginRequired,
    **dict.fromkeys(("PermissionError", "BadHostKeyException", "UnknownHost"), Denied),
    **dict.fromkeys(("TimeoutError", "Timeout"), DeadlineExceeded),
    **dict.fromkeys(("SSHException", "EOFError", "ConnectionError", "OSError"), Unreachable),
    **dict.fromkeys(("RequestException", "Error"), Unreachable),  # of requests, of ftplib
    **dict.fromkeys(("UnicodeError", "ValueError"), ProtocolViolation),
}
"""By the names of exception classes and their bases, the nearest first, so that no package need be installed."""


_SAID = {
    "BadHostKeyException": "the server has another key than the known_hosts file says",
    "gaierror": "there is no such host",
    "ConnectionRefusedError": "no server listens there",
}
"""Sentences for errors whose own text may have secrets in it, by the names of their classes and bases."""
_AT_ONCE = {"ftp": 1, "sftp": 8}
"""Requests of one connection at once: ftplib takes one, paramiko one in each session. OpenSSH allows ten sessions."""
PART = 256 << 10
"""Bytes of a file that are asked of a server of SFTP together."""
_FEW = 4
"""Lines of a listing beyond its limit: one more, the directory, and the one above."""
_ODD = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, struct.error)
"""Errors of a library that stumbles over an answer."""


class FilesystemBackend(LibraryBackend):
    """One directory of a remote file system."""

    def __init__(self, configured: Configured) -> None:
        place = configured.place
        concurrency = configured.source.policy.concurrency
        self._at_once = min(_AT_ONCE.get(place.scheme, concurrency), concurrency)
        super().__init__(configured, self._at_once)
        self._lock = threading.Lock()
        self.connection: Any = None
        self._started: list[Any] = []
        for package in _PACKAGES[place.scheme]:
            try:
                import_module(package)
            except ImportError:
                raise self._missing(package) from None
        self._failures: tuple[type[Exception], ...] = (OSError, EOFError, ftplib.Error, *_ODD)
        if place.scheme == "sftp":
            self._failures += (import_module("paramiko").SSHException,)

    async def aclose(self) -> None:
        """Close the connection, in a thread: that may wait for the other side."""
        made, self.connection = self.connection, None
        try:
            if made is not None:
                await self.threads.run(_close, made)
        finally:
            self._abandon()

    async def list(self, path: Names) -> ListedItems:
        return await self._call(path, self._listed, path)

    def _listed(self, fs: Any, path: Names) -> ListedItems:
        """Return the entries of a directory. Runs in a thread."""
        listed, left_out = self._collected(path), list[str]()
        if self._place.scheme == "sftp":
            entries = list(islice(fs.entries(self._path(path)), self._limit + 1))
        else:
            entries = fs.ls(self._path(path), detail=True)
        for entry in entries:
            name = entry["name"].rstrip("/").rpartition("/")[2]
            if name in ("", ".", "..") or "\0" in name:
                continue
            item = described((*path, name), entry)
            if item.kind == "symlink":
                item = self._link(fs, item, entry)
            if item is None:
                left_out.append(name)
            elif not listed.add(item):
                break
        if (
            len(entries) == 1
            and entries[0].get("type") == "file"
            and entries[0]["name"].strip("/") == self._path(path).strip("/")
        ):
            raise NotADirectory(self._what(path))
        if listed.problem is not None:
            self._drop(fs)  # the server is about to send the rest
        problems = [listed.problem] if listed.problem is not None else []
        if left_out:
            told = ", ".join(shown(name) for name in left_out[:3])
            problems.append(f"{self._what(path)}: links that lead elsewhere are left out: {told}")
        return ListedItems(tuple(listed.items), "; ".join(problems) or None)

    @staticmethod
    def _link(fs: Any, item: StoredItem, entry: Any) -> StoredItem | None:
        """Return a symbolic link with its target, or None for a link that leads out of the source."""
        target = fs.ftp.readlink(entry["name"])
        if target is None or not stays_inside(item.path, target):
            return None
        return StoredItem(item.path, "symlink", modified_ns=item.modified_ns, target=target)

    async def stat(self, path: Names, *, is_directory: bool) -> StoredItem:
        entry = await self._call(path, lambda fs: self._info(fs, path))
        return self._of_kind(described(path, entry), is_directory=is_directory)

    def _info(self, fs: Any, path: Names) -> Any:
        if self._place.scheme != "sftp":
            return fs.info(self._path(path))
        # fsspec's own request follows links, and the listing does not.
        entry = fs._decode_stat(fs.ftp.lstat(self._path(path)))
        if entry["type"] == "link":
            raise PermissionError("a symbolic link, and links are not followed")
        return entry

    def _object(self, store: Any, path: Names) -> StoredItem:
        return self._of_kind(described(path, self._info(store, path)), is_directory=False)

    def _read(self, store: Any, path: Names, item: StoredItem, offset: int, length: int) -> bytes:
        where, data, now = self._path(path), b"", item
        if self._place.scheme == "sftp" and length <= PART:
            data, entry = store.part(where, offset, length)
            now = described(path, entry)
        if len(data) != length:
            data = bytes(store.cat_file(where, start=offset, end=offset + length))
            now = described(path, self._info(store, path))
        if now != item or len(data) != length:
            raise Outdated(f"{self._what(path)}: was changed while it was open")
        return data

    def _drop(self, fs: Any) -> None:
        """Use another connection from now on, and end this one."""
        if hasattr(fs, "cut"):
            fs.cut()  # first: a thread that connects has the lock
        with self._lock:
            if self.connection is fs:
                self.connection = None

    def _abandon(self) -> None:
        for fs in tuple(self._started):
            trio.lowlevel.start_thread_soon(partial(self._drop, fs), lambda _: None)
        self._started.clear()

    # -- the connection ----------------------------------------------------------------------------------------------

    def _with_store(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        with self._lock:
            fs, is_new = self.connection, self.connection is None
            if fs is None:
                fs = self.connection = self._connected()
        try:
            with _session(fs):
                return function(fs, *arguments, **named)
        except self._failures as error:
            if not _is_of_connection(error):
                raise
            with self._lock:
                if self.connection is fs:
                    self.connection = None
            if is_new or isinstance(error, TimeoutError):
                raise
        with self._lock:
            fs = self.connection = self.connection or self._connected()
        with _session(fs):
            return function(fs, *arguments, **named)

    def _connected(self) -> Any:
        place, auth, options = self._place, self._configured.auth, self._configured.options
        common: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
        if place.scheme == "memory":
            return import_module("fsspec.implementations.memory").MemoryFileSystem(**common)
        if place.scheme == "github":
            owner, _, rest = place.authority.partition(":")
            repository, _, reference = rest.partition("@")
            kind = import_module("fsspec.implementations.github").GithubFileSystem
            login = {"username": auth.username or "x-access-token", "token": auth.token} if auth.token else {}
            return kind(owner, repository, reference or None, timeout=(self._timeout, self._timeout), **login, **common)
        if place.scheme == "sftp":
            sftp = import_module("bbfs.sources.storage.sftp.filesystem")
            return sftp.connect(self._note, self._configured, self._at_once)
        url = urlsplit(f"ftp://{place.authority}")
        return import_module("bbfs.sources.storage.ftp").Ftp(
            self._note, self._limit + _FEW, host=url.hostname, port=url.port or 21,
            username=auth.username or url.username, password=auth.password, timeout=self._timeout,
            encoding=options.encoding, tls=options.tls, **common,
        )  # fmt: skip

    def _note(self, fs: Any) -> None:
        self._started = [fs]

    def _path(self, path: Names) -> str:
        names = (*self._place.prefix, *path)
        self._require_usable(path, path)
        if self._place.scheme == "memory":
            names = (self._place.authority, *names)
        return "/".join(names) if self._place.scheme == "github" else "/" + "/".join(names)

    def _translated(self, error: Exception, what: str) -> BbfsError:
        """Return bbfs's error for an error of a library, whose text may have secrets in it."""
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        if status is not None:
            return STATUS_ERRORS.get(status, Unreachable)(f"{what}: status {status}")
        code = str(error)[:3]
        bases = [kind.__name__ for kind in type(error).__mro__]
        said = next((_SAID[name] for name in bases if name in _SAID), type(error).__name__)
        for name in bases:
            if name == "error_perm":
                return {"530": LoginRequired, "550": NotFound, "553": Denied}.get(code, ProtocolViolation)(
                    f"{what}: {code}"
                )
            known = _ERRORS.get(name)
            if known is not None:
                return known(f"{what}: {said}")
        return ProtocolViolation(f"{what}: {type(error).__name__}")


def described(path: Names, entry: Any) -> StoredItem:
    """Return the item for what fsspec says of a file."""
    kind = {"directory": "directory", "link": "symlink"}.get(entry["type"], "resource")
    sha = entry.get("sha")
    if kind == "directory":
        return StoredItem(path, "directory", modified_ns=_modified_ns(entry))
    properties = {"git_blob": sha} if sha else None
    size = entry.get("size")
    return StoredItem(
        path, "symlink" if kind == "symlink" else "resource", size, _modified_ns(entry), sha, properties=properties
    )


def _modified_ns(entry: Any) -> int | None:
    """Return the time of the last modification: SFTP gives a time, FTP digits in UTC (RFC 3659, section 2.3)."""
    said = entry.get("mtime") or entry.get("modify") or entry.get("modified") or entry.get("created")
    if isinstance(said, str):
        try:
            said = datetime.strptime(said[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        except ValueError:
            return None
    return int(said.timestamp()) * 1_000_000_000 if isinstance(said, datetime) else None


def _session(fs: Any) -> AbstractContextManager[None]:
    """Return what a thread needs to use a connection."""
    return fs.session() if hasattr(fs, "session") else nullcontext()


def _close(made: Any) -> None:
    with suppress(OSError, EOFError):  # the other side closed it
        client = getattr(made, "client", None) or getattr(made, "ftp", None)
        if client is not None:
            client.close()


def _is_of_connection(error: Exception) -> bool:
    if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError | IsADirectoryError | BbfsError):
        return False
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"OSError", "EOFError", "SSHException", "error_temp", "error_proto"})
