"""SFTP by fsspec and paramiko, with known hosts only, and a time-out for every step."""

import os
import shlex
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from queue import Empty, LifoQueue
from threading import Lock, Thread, local
from typing import IO, Any
from urllib.parse import urlsplit

import paramiko
from fsspec.implementations.sftp import SFTPFileSystem

from bbfs.model.errors import BbfsError, ConfigError, Denied, LoginRequired
from bbfs.sources.content.memory import digest_of
from bbfs.sources.options import local_path
from bbfs.sources.storage.options import Configured
from bbfs.sources.storage.sftp.requests import Attributes, Requests
from bbfs.sources.storage.sftp.ssh_config import Host, host_of

_OF_NOTHING = digest_of(b"")


class _RefuseUnknown(paramiko.MissingHostKeyPolicy):
    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        raise Denied(
            f"the key of the host {hostname!a} ({key.get_name()}) is in no known_hosts file: "
            "connect once with ssh, or name a file with the option known_hosts"
        )


class _Transport(paramiko.Transport):
    """A transport that prefers ciphers of one pass. They take half the time of ciphers with a separate MAC."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        options = self.get_security_options()
        options.ciphers = sorted(options.ciphers, key=lambda name: "-gcm@" not in name)


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
        self._numbers = count()
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
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # each packet may be one to answer
        else:
            self._socket = _started(place.command)
            self._socket.settimeout(timeout)
        try:
            self.client.connect(self.host, sock=self._socket, transport_factory=_Transport, **self.ssh_kwargs)
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
        """Have a session for this thread. The thread waits for a session if all are in use."""
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

    def part(self, path: str, offset: int, length: int) -> tuple[bytes, dict[str, Any]]:
        """Return bytes of a file, and its entry after that, in two waits.

        They are fewer at the end of the file. A server may also send fewer than it was asked for.
        """
        requests, name = self._requests(), path.encode()
        data, now = _part(requests, requests.handle(requests.open_old(name)), name, offset, length)
        return data, _entry(now)

    def has(self, path: str, version: str, most: int) -> bool:
        """Return whether a path has a file with the bytes of this digest, in two waits; in one if these are none.

        False also if the file has more than `most` bytes, is changed meanwhile, or cannot be opened.
        """
        requests, name = self._requests(), path.encode()
        looked = requests.lstat(name)
        if version == _OF_NOTHING:  # that of a pipe, too, and a server would wait in the open
            with suppress(FileNotFoundError):
                return _is_file(requests.attributes(looked), 0)
            return False
        opened = requests.open_old(name)
        try:
            handle = requests.handle(opened)
        except OSError as error:
            if not (isinstance(error, FileNotFoundError | PermissionError) or self.has_refused(error)):
                raise
            return False
        try:
            said = requests.attributes(looked)
            length = said.size if _is_file(said, most) else 0
            data, now = _part(requests, handle, name, 0, length or 0)
        except FileNotFoundError:
            return False
        return now == said and digest_of(data) == version

    # -- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def uploading(self, path: str, beside: str) -> Iterator["_Upload"]:
        """Look at a file and open a new one beside it, by requests that are sent together."""
        requests = self._requests()
        upload = _Upload(requests, beside.encode(), path.encode())
        looked, opened = requests.lstat(upload.target), requests.open_new(upload.path)
        try:
            upload.handle = requests.handle(opened)
        except (FileNotFoundError, PermissionError) as error:
            upload.refusal = error
        except OSError as error:
            if not self.has_refused(error):
                raise
            upload.refusal = PermissionError()  # of no bytes, no disk is full
        try:
            with suppress(FileNotFoundError):
                upload.replaced = requests.attributes(looked)
            yield upload
        finally:
            upload.end()

    def dressed(self, path: str, target: str) -> tuple[Any, Any]:
        """Give a file the mode of the file that it is to replace. Return the entries of both, None for a missing
        one."""
        requests = self._requests()
        asked = [requests.lstat(each.encode()) for each in (path, target)]
        found: list[Attributes | None] = []
        for each in asked:
            try:
                found.append(requests.attributes(each))
            except FileNotFoundError:
                found.append(None)
        own, old = found
        if own is not None and old is not None and old.mode is not None:
            try:
                requests.finish(requests.set_mode(path.encode(), stat.S_IMODE(old.mode)))
            except OSError as error:
                if not (isinstance(error, PermissionError) or self.has_refused(error)):
                    raise
        return None if own is None else _entry(own), None if old is None else _entry(old)

    def relabel(self, path: str, to: str, *, replace: bool) -> None:
        """Rename. A server without OpenSSH's extension cannot replace in one step, and is not made to."""
        (self.ftp.posix_rename if replace else self.ftp.rename)(path, to)

    def erase(self, path: str) -> None:
        self.ftp.remove(path)

    def add_directory(self, path: str) -> None:
        self.ftp.mkdir(path)

    def drop_directory(self, path: str) -> None:
        self.ftp.rmdir(path)

    def stamp(self, path: str, seconds: int) -> dict[str, Any]:
        requests = self._requests()
        stamped, looked = requests.set_time(path.encode(), seconds), requests.lstat(path.encode())
        requests.finish(stamped)
        return _entry(requests.attributes(looked))

    def _requests(self) -> Requests:
        channel = self.ftp.get_channel()
        assert channel is not None
        return Requests(channel, self._numbers)

    def has_refused(self, error: Exception) -> bool:
        """Return whether an error is an answer of the server. As those of a closed channel, it has no number."""
        channel = self.ftp.get_channel()
        is_answer = isinstance(error, OSError) and error.errno is None and not isinstance(error, TimeoutError)
        return is_answer and channel is not None and not channel.closed

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


class _Upload:
    """A new file at a server, which has a handle of it, or has refused to open it."""

    def __init__(self, requests: Requests, path: bytes, target: bytes) -> None:
        self.path, self.target = path, target
        self.handle: bytes | None = None
        self.refusal: OSError | None = None
        self.replaced: Attributes | None = None
        self._requests = requests
        self._looked = 0

    @property
    def old(self) -> dict[str, Any] | None:
        """The entry of the file that this one is for, as fsspec has it."""
        return None if self.replaced is None else _entry(self.replaced)

    @property
    def now(self) -> dict[str, Any] | None:
        """The entry of that file, after all bytes were stored: the answer came with theirs."""
        with suppress(FileNotFoundError):
            return _entry(self._requests.attributes(self._looked))
        return None

    def store(self, file: IO[bytes], size: int) -> dict[str, Any]:
        """Store all bytes, with the mode of the old file. Return the entry."""
        if self.handle is None:
            raise self.refusal or PermissionError
        requests = self._requests
        writes = requests.write(self.handle, file)
        closed, self.handle = requests.close(self.handle), None
        mode = self.replaced.mode if self.replaced is not None else None
        labelled = None if mode is None else requests.set_mode(self.path, stat.S_IMODE(mode))
        looked, self._looked = requests.lstat(self.path), requests.lstat(self.target)
        for each in (*writes, closed):  # some servers say only at the end that they could not store it
            requests.finish(each)
        if labelled is not None:
            with suppress(OSError):
                requests.finish(labelled)
        stored = requests.attributes(looked)
        if stored.size != size:  # a server that does not keep to the order has looked before it wrote
            stored = requests.attributes(requests.lstat(self.path))
        return _entry(stored)

    def end(self) -> None:
        """Close the file if it was given up, without waiting for the answer."""
        if self.handle is not None:
            with suppress(OSError, EOFError):
                self._requests.close(self.handle)
                self._requests.send()


def _part(requests: Requests, handle: bytes, name: bytes, offset: int, length: int) -> tuple[bytes, Attributes]:
    """Read bytes of an open file and close it, by requests that are sent together. Return what its path has then."""
    asked = requests.read(handle, offset, length)
    closed, looked = requests.close(handle), requests.lstat(name)
    data = b"".join([requests.data(each) for each in asked])
    with suppress(FileNotFoundError, PermissionError):
        requests.finish(closed)
    return data, requests.attributes(looked)


def _is_file(said: Attributes, most: int) -> bool:
    """Return whether a path is a file, no link or pipe, of at most so many bytes."""
    return stat.S_ISREG(said.mode or 0) and said.size is not None and said.size <= most


def _entry(said: Attributes) -> dict[str, Any]:
    kinds = {stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    modified = None if said.modified is None else datetime.fromtimestamp(said.modified, UTC)
    return {"type": kinds.get(stat.S_IFMT(said.mode or 0), "file"), "size": said.size, "mtime": modified}


def connect(started: Callable[[Any], None], configured: Configured, sessions: int) -> SFTPFileSystem:
    """Connect. started: gets the file system before it connects.

    sessions: of the connection, at most. A server may allow fewer. The time-out of the source (seconds) is for each
    step and each answer.

    `~/.ssh/config` gives the options that are None, if it has them. Raises Denied, ConfigError and the errors of
    paramiko.
    """
    source, auth, timeout = configured.source, configured.auth, configured.source.policy.timeout
    files: dict[str, str] = {}
    for option in ("known_hosts", "key_file"):
        if given := getattr(configured.options, option):
            file = files[option] = local_path(source, given)
            if not os.path.isfile(file):
                raise ConfigError(f"options.{option}: {file}: no such file")
    url = urlsplit(f"sftp://{configured.place.authority}")
    place = host_of(url.hostname or "", url.port, auth.username or url.username)
    return _Sftp(
        place.name,
        place=place,
        started=started,
        sessions=sessions,
        port=place.port or 22,
        username=place.user,
        password=auth.password,
        passphrase=auth.passphrase,
        key_filename=[files["key_file"]] if "key_file" in files else list(place.keys) or None,
        known_hosts=[files["known_hosts"]] if "known_hosts" in files else place.known_hosts,
        timeout=timeout,
        banner_timeout=timeout,
        auth_timeout=timeout,
        channel_timeout=timeout,
        skip_instance_cache=True,
    )
