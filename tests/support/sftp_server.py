"""A server of SFTP in this process, over a folder, that fails or hangs up at a request of one's choice."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED
from paramiko.sftp import CMD_NAMES, SFTP_FAILURE, SFTP_OK
from paramiko.sftp_attr import SFTPAttributes

KEY = paramiko.ECDSAKey.generate()
USER, PASSWORD = "user", "password-of-tests-5d11"
Meet = Callable[[str, paramiko.Transport], int | None]
"""Called with the name of each request, and its connection. Returns the status of a refusal, or None."""


class SshServer:
    """A server in threads of this process, whose sessions and files are made with it and with their connection.

    `down` and `up` end it and start it again.
    """

    session: type[paramiko.SFTPServer]
    files: type[paramiko.SFTPServerInterface]

    def __init__(self, directory: Path) -> None:
        self.port = 0
        self._transports: list[paramiko.Transport] = []
        self.up()
        self.known_hosts = directory / "known_hosts"
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {KEY.get_name()} {KEY.get_base64()}\n")

    def up(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, args=(self._listening,), daemon=True)
        self._thread.start()

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            transport = paramiko.Transport(connection)
            transport.add_server_key(KEY)
            transport.set_subsystem_handler("sftp", self.session, self.files, self, transport)
            self._transports.append(transport)
            with suppress(paramiko.SSHException, EOFError, OSError):
                transport.start_server(event=threading.Event(), server=_Login())

    def down(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(5)
        for transport in self._transports:
            transport.close()
        self._transports.clear()


class SftpServer(SshServer):
    """meet: see above. asked: the names of all requests, as paramiko has them.

    together: sizes of groups of requests. The answers of a group are sent after its last request has come.
    """

    def __init__(self, root: Path, directory: Path) -> None:
        self.root = root
        self.meet: Meet = lambda name, transport: None
        self.asked: list[str] = []
        self.together: Iterator[int] = iter(())
        self.left: int | None = None
        self.session, self.files = _Session, _Folder
        super().__init__(directory)

    def group(self, *sizes: int) -> None:
        """Answer so many requests together, then so many, and the rest one by one."""
        self.together = iter(sizes)
        self.left = next(self.together)


@contextmanager
def sftp_server(root: Path, directory: Path) -> Iterator[SftpServer]:
    server = SftpServer(root, directory)
    try:
        yield server
    finally:
        server.down()


class _Login(paramiko.ServerInterface):
    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        return AUTH_SUCCESSFUL if (username, password) == (USER, PASSWORD) else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED


class _Session(paramiko.SFTPServer):
    """Passes each request to `meet` first, and holds answers back as `group` says."""

    def __init__(self, channel: Any, name: str, server: Any, kind: Any, ours: SftpServer, transport: Any) -> None:
        super().__init__(channel, name, server, kind, ours)
        self._ours, self._transport, self._held = ours, transport, list[tuple[int, Any]]()

    def _process(self, t: int, request_number: int, msg: Any) -> None:
        name, ours = CMD_NAMES[t], self._ours
        counts = ours.left is not None  # else its answer may be there before the groups begin
        ours.asked.append(name)
        status = ours.meet(name, self._transport)
        if status is None:
            super()._process(t, request_number, msg)  # pyright: ignore[reportAttributeAccessIssue]
        else:
            self._send_status(request_number, status)  # pyright: ignore[reportAttributeAccessIssue]
        if counts and ours.left is not None:
            ours.left -= 1
        if ours.left == 0:
            ours.left = next(ours.together, None)
            held, self._held = self._held, []
            for kind, packet in held:
                super()._send_packet(kind, packet)  # pyright: ignore[reportAttributeAccessIssue]

    def _send_packet(self, t: int, packet: Any) -> None:
        if self._ours.left is None:
            super()._send_packet(t, packet)  # pyright: ignore[reportAttributeAccessIssue]
        else:
            self._held.append((t, packet))


class _Folder(paramiko.SFTPServerInterface):
    def __init__(self, server: Any, ours: SftpServer, *_: Any) -> None:
        self._root = ours.root

    def _path(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def lstat(self, path: str) -> Any:
        try:
            return SFTPAttributes.from_stat(os.lstat(self._path(path)))
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)

    def list_folder(self, path: str) -> Any:
        found = self._path(path).iterdir()
        return [paramiko.SFTPAttributes.from_stat(each.lstat(), each.name) for each in found]

    def stat(self, path: str) -> Any:
        return self.lstat(path)

    def open(self, path: str, flags: int, attr: Any) -> Any:
        try:
            reads = flags & os.O_ACCMODE == os.O_RDONLY
            file = os.fdopen(os.open(self._path(path), flags, 0o600), "rb" if reads else "wb")
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)
        handle = paramiko.SFTPHandle(flags)
        handle.stat = lambda: SFTPAttributes.from_stat(os.fstat(file.fileno()))  # type: ignore[method-assign]
        setattr(handle, "readfile" if reads else "writefile", file)
        return handle

    def chattr(self, path: str, attr: Any) -> int:
        paramiko.SFTPServer.set_file_attr(str(self._path(path)), attr)
        return SFTP_OK

    def remove(self, path: str) -> int:
        return self._answer(self._path(path).unlink)

    def rmdir(self, path: str) -> int:
        return self._answer(self._path(path).rmdir)

    @staticmethod
    def _answer(change: Callable[[], None]) -> int:
        try:
            change()
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)
        return SFTP_OK

    def rename(self, oldpath: str, newpath: str) -> int:
        if self._path(newpath).exists():
            return SFTP_FAILURE
        return self.posix_rename(oldpath, newpath)

    def posix_rename(self, oldpath: str, newpath: str) -> int:
        self._path(oldpath).rename(self._path(newpath))
        return SFTP_OK
