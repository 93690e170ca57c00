"""FTP by fsspec and ftplib, with a bound on the lines of a listing, and a way to end a transfer from another thread."""

import ftplib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

from fsspec.implementations.ftp import FTPFileSystem

_PIECE = 1 << 18
"""Bytes of a file that are sent at a time."""


class _Enough(Exception):
    """A listing has as many lines as may be."""


class _Bounded(ftplib.FTP):
    """A connection. most: lines of a listing; a longer one is cut, and the connection is of no more use."""

    most = 0
    is_cut = False
    data: "socket.socket | None" = None

    def retrlines(self, cmd: str, callback: Callable[[str], object] | None = None) -> str:
        lines = 0

        def count(line: str) -> None:
            nonlocal lines
            lines += 1
            if lines > self.most:
                raise _Enough
            if callback is not None:
                callback(line)

        try:
            return super().retrlines(cmd, count)
        except _Enough:
            self.is_cut = True
            return ""

    def ntransfercmd(self, cmd: str, rest: int | str | None = None) -> tuple[socket.socket, int | None]:
        made = super().ntransfercmd(cmd, rest)
        self.data = made[0]
        return made

    def cut(self) -> None:
        for each in (self.sock, self.data):
            with suppress(OSError, AttributeError):
                each.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


class _BoundedTls(_Bounded, ftplib.FTP_TLS):
    pass


class Ftp(FTPFileSystem):
    """The file system of fsspec over such a connection. It connects when it is made, and raises errors of ftplib.

    started: gets it before it connects. most: lines of a listing.
    """

    def __init__(self, started: Callable[[Any], None], most: int, **options: Any) -> None:
        self._started, self._most = started, most
        super().__init__(**options)

    def _connect(self) -> None:
        kind = _BoundedTls if self.tls else _Bounded
        self.ftp = kind(timeout=self.timeout, encoding=self.encoding)
        self.ftp.most = self._most
        self._started(self)
        self.ftp.connect(self.host, self.port)
        self.ftp.login(*self.cred)

    # -- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def uploading(self, path: str, beside: str) -> Iterator["_Upload"]:
        """Look at a file that another one is to replace."""
        yield _Upload(self, beside, path, self.entry(path))

    def dressed(self, path: str, target: str) -> tuple[Any, Any]:
        """Return the entries of both files, None for a missing one. FTP has no modes."""
        return self.entry(path), self.entry(target)

    def entry(self, path: str) -> Any:
        try:
            return self.info(path)
        except FileNotFoundError:
            return None

    def relabel(self, path: str, to: str, *, replace: bool) -> None:
        """Rename. Most servers replace a file then, and the others refuse."""
        self.ftp.rename(path, to)

    def erase(self, path: str) -> None:
        self.ftp.delete(path)

    def add_directory(self, path: str) -> None:
        self.ftp.mkd(path)

    def drop_directory(self, path: str) -> None:
        self.ftp.rmd(path)

    def stamp(self, path: str, seconds: int) -> Any:
        """Set a time, if the server has the command (draft-somers-ftp-mfxx)."""
        when = datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%d%H%M%S")
        with suppress(ftplib.error_perm):
            self.ftp.voidcmd(f"MFMT {when} {path}")
        return self.info(path)

    def has_refused(self, error: Exception) -> bool:
        return False  # ftplib has errors of its own for answers

    def cut(self) -> None:
        """End what waits for the server, in whichever thread."""
        self.ftp.cut()


@dataclass(frozen=True, slots=True)
class _Upload:
    """A new file. old: the entry of the file that it replaces."""

    fs: Ftp
    path: str
    target: str
    old: Any

    @property
    def now(self) -> Any:
        return self.fs.entry(self.target)

    def store(self, file: IO[bytes], size: int) -> Any:
        """Store all bytes. FTP has no modes. Return the entry."""
        try:
            self.fs.ftp.storbinary(f"STOR {self.path}", file, _PIECE)
        except ConnectionError:
            self.fs.ftp.voidresp()  # the server has ended the connection for data, and says why by the other one
            raise
        return self.fs.info(self.path)
