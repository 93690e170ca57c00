"""SFTP by fsspec and paramiko, with known hosts only, and a time-out for every step."""

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import paramiko
from fsspec.implementations.sftp import SFTPFileSystem

from bbfs.model.errors import Denied


class _RefuseUnknown(paramiko.MissingHostKeyPolicy):
    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        raise Denied(
            f"the key of the host {hostname!a} ({key.get_name()}) is in no known_hosts file: "
            "connect once with ssh, or name a file with the option known_hosts"
        )


class _Sftp(SFTPFileSystem):
    """The file system of fsspec, which refuses unknown hosts, and ends all that waits for the server by `cut`."""

    def _connect(self) -> None:
        known_hosts, timeout = self.ssh_kwargs.pop("known_hosts"), self.ssh_kwargs["timeout"]
        self._socket: socket.socket | None = None
        self.client = paramiko.SSHClient()
        self.ssh_kwargs.pop("started")(self)
        self.client.load_system_host_keys()
        if known_hosts is not None:
            self.client.load_host_keys(known_hosts)
        self.client.set_missing_host_key_policy(_RefuseUnknown())
        self._socket = socket.create_connection((self.host, self.ssh_kwargs["port"]), timeout)
        self.client.connect(self.host, sock=self._socket, **self.ssh_kwargs)
        self.ftp = self.client.open_sftp()
        channel = self.ftp.get_channel()
        if channel is not None:
            channel.settimeout(timeout)

    def entries(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of a directory as they come."""
        for attributes in self.ftp.listdir_iter(path):
            if "/" not in attributes.filename:
                yield self._decode_stat(attributes, path)

    def cut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self.client.close()


def connect(
    started: Callable[[Any], None],
    host: str,
    port: int,
    username: str | None,
    password: str | None,
    passphrase: str | None,
    known_hosts: str | None,
    key_file: str | None,
    timeout: float,
) -> SFTPFileSystem:
    """Connect. started: gets the file system before it connects. timeout: seconds for each step and each answer.

    Raises Denied, and the errors of paramiko.
    """
    return _Sftp(
        host,
        started=started,
        port=port,
        username=username,
        password=password,
        passphrase=passphrase,
        key_filename=key_file,
        known_hosts=known_hosts,
        timeout=timeout,
        banner_timeout=timeout,
        auth_timeout=timeout,
        channel_timeout=timeout,
        skip_instance_cache=True,
    )
