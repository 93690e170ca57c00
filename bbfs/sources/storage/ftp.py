"""FTP by fsspec and ftplib, with a bound on the lines of a listing, and a way to end a transfer from another thread."""

import ftplib
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fsspec.implementations.ftp import FTPFileSystem


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


class _Ftp(FTPFileSystem):
    """The file system of fsspec over such a connection. started: gets it before it connects."""

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

    def cut(self) -> None:
        """End what waits for the server, in whichever thread."""
        self.ftp.cut()


def connect(started: Callable[[Any], None], most: int, **options: Any) -> FTPFileSystem:
    """Connect. started: gets the file system before it connects. most: lines of a listing. Raises errors of ftplib."""
    return _Ftp(started, most, **options)
