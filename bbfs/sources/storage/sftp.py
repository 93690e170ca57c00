"""SFTP by fsspec and paramiko, with known hosts only, and a time-out for every step."""

import os
import shlex
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, LifoQueue
from threading import Lock, Thread, local
from typing import IO, Any

import paramiko
from fsspec.implementations.sftp import SFTPFileSystem
from paramiko.sftp import CMD_CLOSE

from bbfs.model.errors import BbfsError, ConfigError, Denied, LoginRequired
from bbfs.sources.storage.ssh_config import Host, host_of

_PIECE = 1 << 18
"""Bytes of a file that are read at a time."""


class _RefuseUnknown(paramiko.MissingHostKeyPolicy):
    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        raise Denied(
            f"the key of the host {hostname!a} ({key.get_name()}) is in no known_hosts file: "
            "connect once with ssh, or name a file with the option known_hosts"
        )


def _started(command: str) -> socket.socket:
    """Start a program that makes the connection (`ProxyCommand`), without a shell. It ends with the socket.

    Not by paramiko's own class: its reads spin after the program has ended.
    """
    arguments = shlex.split(command)
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                arguments,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise ConfigError(f"ProxyCommand or ProxyJump: {arguments[0]!a}: {error.strerror}") from None
    Thread(target=process.wait, daemon=True).start()  # so that it is reaped
    return ours


class _Sftp(SFTPFileSystem):
    """The file system of fsspec, which refuses unknown hosts, and ends all that waits for the server by `cut`.

    Each thread has a session of its own while it works: of two that share one, paramiko drops the answer to the other.
    """

    def _connect(self) -> None:
        self._own, self._lock, self._allowed = local(), Lock(), self.ssh_kwargs.pop("sessions")
        self._sessions: LifoQueue[paramiko.SFTPClient | None] = LifoQueue()
        for _ in range(self._allowed):
            self._sessions.put(None)  # one that may be opened
        place: Host = self.ssh_kwargs.pop("place")
        known_hosts, timeout = self.ssh_kwargs.pop("known_hosts"), self.ssh_kwargs["timeout"]
        self._socket: socket.socket | None = None
        self.client = paramiko.SSHClient()
        self.ssh_kwargs.pop("started")(self)
        self.client.load_system_host_keys()
        for file in known_hosts:
            self.client.load_host_keys(file)
        self.client.set_missing_host_key_policy(_RefuseUnknown())
        if place.command is None:
            self._socket = socket.create_connection((self.host, self.ssh_kwargs["port"]), timeout)
        else:
            self._socket = _started(place.command)
            self._socket.settimeout(timeout)
        try:
            self.client.connect(self.host, sock=self._socket, **self.ssh_kwargs)
        except paramiko.BadHostKeyException:
            raise
        except paramiko.SSHException as error:
            # paramiko raises the error of the last key that it tried, which may be any; the connection then holds.
            transport = self.client.get_transport()
            if not isinstance(error, paramiko.AuthenticationException) and not (transport and transport.is_active()):
                raise
            raise LoginRequired(f"{self.host!a}: {self._why_no_login(str(error))}") from None
        with self.session():
            pass  # that there is one belongs to the connection

    @property
    def ftp(self) -> paramiko.SFTPClient:
        """The session of this thread."""
        return self._own.session

    @contextmanager
    def session(self) -> Iterator[None]:
        """Have a session for this thread, which waits for one if all are in use."""
        self._own.session = session = self._taken()
        is_usable = False
        try:
            yield
            is_usable = True
        except BbfsError:
            is_usable = True
            raise
        except OSError as error:
            is_usable = not isinstance(error, TimeoutError)  # else it is an answer, or the channel is closed
            raise
        finally:
            channel = session.get_channel()
            if not is_usable:
                session.close()
            self._sessions.put(session if channel is not None and not channel.closed else None)

    def _taken(self) -> paramiko.SFTPClient:
        while True:
            try:
                session = self._sessions.get(timeout=self.ssh_kwargs["timeout"])
            except Empty:
                raise TimeoutError from None
            if session is not None:
                return session
            try:
                return self._opened()
            except BaseException as error:
                with self._lock:
                    is_fewer = isinstance(error, paramiko.ChannelException) and self._allowed > 1
                    self._allowed -= is_fewer
                if not is_fewer:
                    self._sessions.put(None)
                    raise  # else the server allows no more than there are

    def _opened(self) -> paramiko.SFTPClient:
        session = self.client.open_sftp()
        channel = session.get_channel()
        if channel is not None:
            channel.settimeout(self.ssh_kwargs["timeout"])
        return session

    def entries(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of a directory as they come."""
        for attributes in self.ftp.listdir_iter(path):
            if "/" not in attributes.filename:
                yield self._decode_stat(attributes, path)

    # -- writing -----------------------------------------------------------------------------------------------------

    def store(self, path: str, file: IO[bytes], like: str | None) -> None:
        """Store a new file, with the mode of another one."""
        try:
            new = self.ftp.open(path, "wb")
        except OSError as error:
            raise PermissionError if self.has_refused(error) else error from None  # of no bytes, no disk is full
        with new as out:
            piece, following = file.read(_PIECE), file.read(_PIECE)
            while piece:
                out.set_pipelined(bool(following))  # the last write waits for the answers to all
                out.write(piece)
                piece, following = following, file.read(_PIECE)
            # Some servers say only now that they could not store it, and paramiko's own close passes over that.
            self.ftp._request(CMD_CLOSE, out.handle)  # pyright: ignore[reportAttributeAccessIssue]
        if like is not None:
            with suppress(OSError):
                self.ftp.chmod(path, stat.S_IMODE(self.ftp.lstat(like).st_mode or 0o644))

    def relabel(self, path: str, to: str, *, replace: bool) -> None:
        """Rename. A server without OpenSSH's extension cannot replace in one step, and is not made to."""
        (self.ftp.posix_rename if replace else self.ftp.rename)(path, to)

    def erase(self, path: str) -> None:
        self.ftp.remove(path)

    def add_directory(self, path: str) -> None:
        self.ftp.mkdir(path)

    def drop_directory(self, path: str) -> None:
        self.ftp.rmdir(path)

    def stamp(self, path: str, seconds: int) -> None:
        self.ftp.utime(path, (seconds, seconds))

    def has_refused(self, error: Exception) -> bool:
        """Return whether an error is an answer of the server. As those of a closed channel, it has no number."""
        channel = self.ftp.get_channel()
        return isinstance(error, OSError) and error.errno is None and channel is not None and not channel.closed

    def _why_no_login(self, said: str) -> str:
        passphrase: str | None = self.ssh_kwargs["passphrase"]
        for file in self.ssh_kwargs["key_filename"] or ():
            try:
                paramiko.PKey.from_path(file, passphrase)
            except TypeError:
                return f"the key {file} is encrypted: set auth.passphrase, or use an agent"
            except Exception:  # noqa: BLE001 - paramiko and cryptography have many for this
                return f"{file} is no private key that can be read"
        if "No authentication methods" in said:
            return "there is no password, key or agent to log in with"
        return "the server refuses this user with this password, these keys and this agent"

    def cut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self.client.close()


def connect(
    started: Callable[[Any], None],
    host: str,
    port: int | None,
    username: str | None,
    password: str | None,
    passphrase: str | None,
    known_hosts: str | None,
    key_file: str | None,
    timeout: float,
    sessions: int,
) -> SFTPFileSystem:
    """Connect. started: gets the file system before it connects. timeout: seconds for each step and each answer.

    sessions: of the connection, at most. A server may allow fewer.

    Options that are None are those of `~/.ssh/config`, if it has them. Raises Denied, ConfigError and the errors of
    paramiko.
    """
    for option, file in (("known_hosts", known_hosts), ("key_file", key_file)):
        if file is not None and not os.path.isfile(file):
            raise ConfigError(f"options.{option}: {file}: no such file")
    place = host_of(host, port, username)
    return _Sftp(
        place.name,
        place=place,
        started=started,
        sessions=sessions,
        port=place.port or 22,
        username=place.user,
        password=password,
        passphrase=passphrase,
        key_filename=[key_file] if key_file is not None else list(place.keys) or None,
        known_hosts=[known_hosts] if known_hosts is not None else place.known_hosts,
        timeout=timeout,
        banner_timeout=timeout,
        auth_timeout=timeout,
        channel_timeout=timeout,
        skip_instance_cache=True,
    )
