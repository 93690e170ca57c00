"""Writing to SFTP and FTP servers.

A file goes to a name of its own beside the old one (`.bbfs-….part`) and is renamed then, so that the server has the old
file or the new one, whatever breaks. The next write in the directory removes a file that a killed process or a broken
connection left, if a listing has shown it. (No listing of bbfs shows the files that processes of this machine write.) A
change is never sent twice: after its connection broke, it is not known if the server has made it.
"""

import ftplib
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Protocol

from bbfs.model.errors import (
    BbfsError,
    Busy,
    Conflict,
    DeadlineExceeded,
    Denied,
    Exists,
    IsADirectory,
    LoginRequired,
    NoSpace,
    NotEmpty,
    NotFound,
    NotSupported,
    Unreachable,
)
from bbfs.model.values import Content, WriteOperation
from bbfs.model.versions import Expected
from bbfs.sources.content.memory import DIGEST_BYTES
from bbfs.sources.storage.addresses import Names
from bbfs.sources.storage.backend import ListedItems, StoredItem, file_of
from bbfs.sources.storage.filesystems import PART, FilesystemBackend, described
from bbfs.sources.storage.options import Configured
from bbfs.sources.unfinished import is_idle, is_left, is_of_others, is_own, new_name

_FTP_ERRORS: dict[str, type[BbfsError]] = {
    "421": Unreachable, "425": Unreachable, "426": Unreachable, "450": Busy, "452": NoSpace, "500": NotSupported,
    "501": NotSupported, "502": NotSupported, "504": NotSupported, "530": LoginRequired, "552": NoSpace,
}  # fmt: skip
"""By the code of a reply (RFC 959, section 4.2). All others refuse: 550 is for most reasons."""
_DIGEST = re.compile(f"[0-9a-f]{{{2 * DIGEST_BYTES}}}")
"""The version of a content that was read whole. That of a larger one is its time and its size."""
_FULL = ("no space left", "quota exceeded")
"""What servers write of ENOSPC and EDQUOT, whatever the code of the reply."""


class Upload(Protocol):
    """A new file at a server, before it gets the name that it is for."""

    @property
    def old(self) -> Any:
        """The entry of the file that has this name, or None."""
        ...

    @property
    def now(self) -> Any:
        """The same, after all bytes were stored."""
        ...

    def store(self, file: IO[bytes], size: int) -> Any:
        """Store all bytes, with the mode of the old file where the protocol has modes. Return the new entry."""
        ...


class FileServerBackend(FilesystemBackend):
    """One directory of a server that can be written.

    A connection (`fs`) is a file system of `ftp` or `sftp`: its methods block and raise errors of its library.
    """

    detects_existing = True

    def __init__(self, configured: Configured) -> None:
        super().__init__(configured)
        self._left: dict[Names, set[str]] = {}
        """Files that are not whole, and never will be, by directory."""
        self._others: dict[Names, set[str]] = {}
        """Files that processes of other machines write, or have left behind, by directory."""

    def _listed(self, fs: Any, path: Names) -> ListedItems:
        listed = super()._listed(fs, path)
        names = [item.path[-1] for item in listed.items]
        if left := {*filter(is_left, names)}:
            self._left.setdefault(path, set()).update(left)
        self._others.pop(path, None)
        if others := {*filter(is_of_others, names)}:
            self._others[path] = others
        return ListedItems(tuple(item for item in listed.items if not is_own(item.path[-1])), listed.problem)

    def operations(self, path: Names, *, is_directory: bool) -> Collection[WriteOperation]:
        return ("create", "replace", "remove", "rename", "make_directory", "remove_directory", "set_time", "stage")

    async def put(self, path: Names, content: Content, expected: Expected, mime_type: str | None) -> StoredItem:
        return await self._call(path, self._put, path, content, expected)

    async def stage(self, path: Names, content: Content) -> Names:
        return await self._call(path, self._stage, path, content)

    async def put_staged(
        self, staged: Names, path: Names, content: Content, expected: Expected, mime_type: str | None
    ) -> StoredItem:
        return await self._call(path, self._put_staged, staged, path, content, expected)

    async def unstage(self, staged: Names) -> None:
        try:
            await self._call(staged, self._erase, staged)
        except BbfsError:
            self._left.setdefault(staged[:-1], set()).add(staged[-1])
            raise

    def detects_removed(self, expected: Expected) -> bool:
        is_digest = expected.version is not None and _DIGEST.fullmatch(expected.version) is not None
        return is_digest and expected.exists is True and self._place.scheme == "sftp"

    async def delete(self, path: Names, expected: Expected) -> None:
        if self.detects_removed(expected):
            await self._call(path, self._delete_version, path, expected.version)
        else:
            await self._changed(path, lambda fs: fs.erase(self._path(path)), is_directory=False)

    async def make_directory(self, path: Names) -> None:
        await self._call(path, self._make_directory, path)

    async def remove_directory(self, path: Names) -> None:
        await self._require_empty(path)
        await self._changed(path, lambda fs: fs.drop_directory(self._path(path)), is_directory=True)

    async def _require_empty(self, path: Names) -> None:
        """Raise NotEmpty if a directory has entries, hidden ones too. Remove what no process goes on writing."""
        listed = await self._call(path, super()._listed, path)
        if not all(is_left(item.path[-1]) for item in listed.items):
            raise NotEmpty(self._what(path))
        for item in listed.items:
            await self._call(path, self._erase, item.path)

    async def move(self, path: Names, to: Names, *, replace: bool, is_directory: bool) -> StoredItem:
        if is_directory:
            with suppress(NotFound):
                await self._require_empty(to)
        return await self._call(path, self._move, path, to, replace, is_directory)

    async def set_time(self, path: Names, modified_ns: int) -> StoredItem:
        """Set a time, in whole seconds. A server of FTP without the command keeps its own."""
        seconds = min(max(0, modified_ns // 1_000_000_000), 0xFFFFFFFF)
        return await self._call(path, self._stamp, path, seconds)

    # -- in a thread -------------------------------------------------------------------------------------------------

    def _delete_version(self, fs: Any, path: Names, version: str) -> None:
        """Remove a file just after it was compared, by the same thread. Raise Conflict unless it has these bytes."""
        if not fs.has(self._path(path), version, PART):
            raise Conflict(f"{self._what(path)}: somebody else has changed it")
        with self._changing(fs, path):
            fs.erase(self._path(path))

    async def _changed(self, path: Names, change: Callable[[Any], None], *, is_directory: bool) -> None:
        """Make a change to something that is there."""

        def made(fs: Any) -> None:
            self._require(fs, path, is_directory)
            with self._changing(fs, path):
                change(fs)

        await self._call(path, made)

    def _put(self, fs: Any, path: Names, content: Content, expected: Expected) -> StoredItem:
        """Store a file under a name beside its own, and rename it then."""
        is_new = expected.exists is False
        with self._beside(fs, path) as beside:
            with fs.uploading(self._path(path), self._path(beside)) as upload:
                self._may_replace(path, upload.old, is_new)
                stored = self._stored(fs, path, upload, content)
                with self._changing(fs, path):
                    now = _item(path, upload.now)
                if now != _item(path, upload.old):
                    raise Conflict(f"{self._what(path)}: somebody else has changed it")
            return self._renamed(fs, beside, path, stored, is_new=is_new)

    def _stage(self, fs: Any, path: Names, content: Content) -> Names:
        """Store a file beside a path. Return its own path."""
        with self._beside(fs, path) as beside:
            name = self._path(beside)
            with fs.uploading(name, name) as upload:
                self._stored(fs, path, upload, content)
            return beside

    def _put_staged(self, fs: Any, staged: Names, path: Names, content: Content, expected: Expected) -> StoredItem:
        """Rename a staged file, or store the content if the staged file is not there as it was left."""
        is_new = expected.exists is False
        entry, old = fs.dressed(self._path(staged), self._path(path))
        self._may_replace(path, old, is_new)
        stored = _item(path, entry)
        if stored is not None and (stored.kind, stored.size) == ("resource", content.size):
            return self._renamed(fs, staged, path, stored, is_new=is_new)
        self._erase(fs, staged)
        return self._put(fs, path, content, expected)

    @contextmanager
    def _beside(self, fs: Any, path: Names) -> Iterator[Names]:
        """Yield the path for a new file beside another one, and remove the file after an error."""
        directory, beside = path[:-1], (*path[:-1], new_name())
        for name in self._left.pop(directory, ()):
            self._erase(fs, (*directory, name))
        try:
            yield beside
        except BaseException as error:
            holds = self.connection is fs and not isinstance(error, TimeoutError)
            self._erase(fs if holds else None, beside)
            if holds and isinstance(error, Denied) and directory and self._found(fs, directory) is None:
                raise NotFound(f"{self._what(path)}: there is no directory for it") from None
            raise

    def _stored(self, fs: Any, path: Names, upload: Upload, content: Content) -> StoredItem:
        """Store all bytes of a new file. Return it as an item of the path that it is for."""
        with self._changing(fs, path, NoSpace), file_of(content) as file:
            stored = described(path, upload.store(file, content.size))
        if stored.size != content.size:
            raise Unreachable(f"{self._what(path)}: the server has not kept all of {content.size} bytes")
        return stored

    def _renamed(self, fs: Any, beside: Names, path: Names, stored: StoredItem, *, is_new: bool) -> StoredItem:
        """Give a file that is whole the name that it is for."""
        with self._changing(fs, path):
            fs.relabel(self._path(beside), self._path(path), replace=not is_new)
        self._erase_idle(fs, path[:-1], stored.modified_ns)
        return stored

    def _erase_idle(self, fs: Any, directory: Names, now_ns: int | None) -> None:
        """Remove what other machines have left behind. now_ns: the time of a new file, by the server's clock."""
        for name in self._others.pop(directory, ()):
            with suppress(*self._failures, BbfsError):  # the file is stored, whatever becomes of these
                found = self._found(fs, (*directory, name))
                times = (found.modified_ns if found is not None else None), now_ns
                if times[0] is not None and times[1] is not None and is_idle(times[0] / 1e9, times[1] / 1e9):
                    fs.erase(self._path((*directory, name)))

    def _erase(self, fs: Any, path: Names) -> None:
        """Remove a file that is not whole: the next write in its directory does so if there is no connection now."""
        try:
            if fs is not None:
                fs.erase(self._path(path))
                return
        except (FileNotFoundError, PermissionError, ftplib.error_perm):
            return
        except (*self._failures, BbfsError):
            pass
        self._left.setdefault(path[:-1], set()).add(path[-1])

    def _may_replace(self, path: Names, entry: Any, is_new: bool) -> None:
        """Raise the error for an entry that a new file cannot replace."""
        if entry is None:
            return
        if entry["type"] == "directory":
            raise IsADirectory(self._what(path))
        if entry["type"] == "link":
            raise Denied(f"{self._what(path)}: a symbolic link, and links are not followed")
        if is_new:
            raise Conflict(f"{self._what(path)}: somebody else has made it")

    def _make_directory(self, fs: Any, path: Names) -> None:
        if self._found(fs, path) is not None:
            raise Exists(self._what(path))
        with self._changing(fs, path):
            fs.add_directory(self._path(path))

    def _stamp(self, fs: Any, path: Names, seconds: int) -> StoredItem:
        self._require(fs, path, is_directory=False)
        with self._changing(fs, path):
            return described(path, fs.stamp(self._path(path), seconds))

    def _move(self, fs: Any, path: Names, to: Names, replace: bool, is_directory: bool) -> StoredItem:
        self._require(fs, path, is_directory)
        there = self._found(fs, to)
        if there is not None and not replace:
            raise Exists(f"{self._what(to)}: is there already")
        if there is not None:
            self._of_kind(there, is_directory=is_directory)
        with self._changing(fs, path):
            if there is not None and is_directory:
                fs.drop_directory(self._path(to))  # empty; only some servers rename to it
            fs.relabel(self._path(path), self._path(to), replace=replace)
            return described(to, self._info(fs, to))

    def _found(self, fs: Any, path: Names) -> StoredItem | None:
        try:
            return described(path, self._info(fs, path))
        except FileNotFoundError:
            return None

    def _require(self, fs: Any, path: Names, is_directory: bool) -> None:
        found = self._found(fs, path)
        if found is None:
            raise NotFound(self._what(path))
        self._of_kind(found, is_directory=is_directory)

    @contextmanager
    def _changing(self, fs: Any, path: Names, refused: type[BbfsError] = Denied) -> Iterator[None]:
        """Raise errors of the library as bbfs's errors. Nothing is sent again after them.

        refused: for an answer without a reason, as SFTP and 451 of FTP are for a full disk.
        """
        what = self._what(path)
        try:
            yield
        except BbfsError:
            raise
        except ftplib.Error as error:
            code = str(error)[:3]
            if code == "421":
                self._drop(fs)
            is_full = any(text in str(error).lower() for text in _FULL)
            kind = NoSpace if is_full else refused if code == "451" else _FTP_ERRORS.get(code, Denied)
            raise kind(f"{what}: the server answers {code}") from None
        except (FileNotFoundError, PermissionError) as error:
            raise self._translated(error, what) from None
        except self._failures as error:
            if fs.has_refused(error):
                reason = ", for its disk is full perhaps" if refused is NoSpace else ""
                raise refused(f"{what}: the server refuses it{reason}") from None
            self._drop(fs)
            kind = DeadlineExceeded if isinstance(error, TimeoutError) else Unreachable
            raise kind(f"{what}: the connection broke ({type(error).__name__})") from None


def _item(path: Names, entry: Any) -> StoredItem | None:
    return None if entry is None else described(path, entry)
