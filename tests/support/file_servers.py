"""Real servers of WebDAV, SFTP and FTP over a folder: rclone, and for FTP pyftpdlib."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import paramiko
from programs import answers, free_port, wait_until

USER, PASSWORD = "user", "password-of-tests-91cc"
SCHEMES = ("webdav", "sftp", "ftp")


class FileServer:
    """A server of a folder, in a process of its own. It keeps its port and key when it is started again.

    full_at: bytes of a disk of its own, in a namespace of mounts that ends with the process. home: for its own files.
    """

    def __init__(
        self, scheme: str, root: Path, home: Path, *, read_only: bool = False, full_at: int | None = None
    ) -> None:
        self.scheme, self.root, self.port = scheme, root, free_port()
        self._home = home
        self._command = _command(scheme, root, home, self.port, read_only)
        if full_at is not None:
            script = 'mount -t tmpfs -o "size=$0" none "$1" && shift && exec "$@"'
            own = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-U", "-r", "-m"]
            self._command = [*own, "sh", "-c", script, str(full_at), str(root), *self._command]
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        quiet = subprocess.DEVNULL
        environ = {**os.environ, "HOME": str(self._home)}
        self.process = subprocess.Popen(self._command, stdin=quiet, stdout=quiet, stderr=quiet, env=environ)
        wait_until(lambda: answers(self.port), "the server listens", 20)
        return self.process

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def source(self, **options: Any) -> dict[str, Any]:
        """Return the table of a source that may write there."""
        config: dict[str, Any] = {"url": f"{self.scheme}://127.0.0.1:{self.port}/"}
        if self.scheme == "sftp":
            config["options"] = {"known_hosts": known_hosts(self.port, self._home)}
        return {
            "name": "far",
            "type": "storage",
            "capabilities": ["read", "list", "write"],
            "config": config,
            "auth": {"username": USER, "password": PASSWORD},
            **options,
        }

    @property
    def directory(self) -> str:
        """The path of its folder from the root of a mount with this source."""
        return f"bb-storage+far+{self.scheme}/127.0.0.1:{self.port}"


def _command(scheme: str, root: Path, home: Path, port: int, read_only: bool) -> list[str]:
    if scheme == "ftp":
        server = [sys.executable, "-W", "ignore", "-m", "pyftpdlib", "-i", "127.0.0.1", "-p", str(port)]
        return [*server, "-d", str(root), "-u", USER, "-P", PASSWORD, *([] if read_only else ["-w"])]
    return [
        "rclone", "serve", scheme, str(root), "--addr", f"127.0.0.1:{port}", "--user", USER, "--pass", PASSWORD,
        "--dir-cache-time", "0s", "--config", str(home / "none"), "--cache-dir", str(home),
        *(["--read-only"] if read_only else []),
    ]  # fmt: skip


def known_hosts(port: int, directory: Path) -> str:
    """Return the path of a file with the key of the server of SFTP on this port."""
    file = directory / f"known_hosts-{port}"
    if not file.exists():
        with closing(paramiko.Transport(("127.0.0.1", port))) as transport:
            transport.start_client(timeout=10)
            key = transport.get_remote_server_key()
        file.write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
    return str(file)
