"""Real servers of WebDAV, SFTP and FTP over a folder: rclone, and for FTP pyftpdlib."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import paramiko
from harness import Mount
from object_stores import Relay
from programs import answers, free_port, wait_until

USER, PASSWORD = "user", "password-of-tests-91cc"
SCHEMES = ("webdav", "sftp", "ftp")
_FTP = """
import os, runpy, signal
from pyftpdlib import filesystems
from pyftpdlib.handlers.ftp import data
class Failed(OSError):
    def __init__(self, error):
        super().__init__(error.errno, error.strerror)
data._FileReadWriteError, data.strerror = Failed, os.strerror  # else it says: 426 None; transfer aborted
filesystems.AbstractedFS.open = lambda self, name, mode: open(name, mode, 0)  # it cannot close a buffered one when full
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # die of a file that is too large, see `dying`
runpy.run_module("pyftpdlib", run_name="__main__", alter_sys=True)
"""


class FileServer:
    """A server of a folder, in a process of its own. It keeps its port and key when it is started again.

    home: for its own files. full_at: bytes of a disk of its own, if any, in a namespace of mounts that ends with it.
    """

    def __init__(self, scheme: str, root: Path, home: Path, *, read_only: bool = False, full_at: int = 0) -> None:
        self.scheme, self.root, self.port = scheme, root, free_port()
        self._home = home
        self._command = _command(scheme, root, home, self.port, read_only)
        if full_at:
            script = 'mount -t tmpfs -o "size=$0" none "$1" && shift && exec "$@"'
            own = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-U", "-r", "-m"]
            self._command = [*own, "sh", "-c", script, str(full_at), str(root), *self._command]
        self.process = self.start()

    def set_read_only(self, read_only: bool) -> None:
        """Let the next start refuse writes, or take them again."""
        self._command = _command(self.scheme, self.root, self._home, self.port, read_only)

    def start(self) -> "subprocess.Popen[bytes]":
        quiet = subprocess.DEVNULL
        environ = {**os.environ, "HOME": str(self._home)}
        self.process = subprocess.Popen(self._command, stdin=quiet, stdout=quiet, stderr=quiet, env=environ)
        wait_until(lambda: answers(self.port), "the server listens", 20)
        return self.process

    @contextmanager
    def dying(self) -> Iterator[tuple[int, Callable[[int], None]]]:
        """Yield the port for a source, and a function that has the server killed after it got so many bytes of a file.

        FTP has connections for data past a relay: there the kernel kills the server at a file of that size.
        """
        if self.scheme == "ftp":

            def limit(size: int) -> None:
                resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, size))

            yield self.port, limit
            return
        relay = Relay(self.port)
        with closing(relay):

            def die_at(size: int) -> None:
                end, process = relay.received + size, self.process
                relay.receives = lambda received: process.kill() if received > end else None

            yield relay.port, die_at

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def path(self, name: str) -> Path:
        """Return where this machine finds a file of the server."""
        return Path(f"/proc/{self.process.pid}/root") / (self.root / name).relative_to("/")

    def source(self, port: int | None = None, **options: Any) -> dict[str, Any]:
        """Return the table of a source that may write there. port: of a relay to it."""
        port = port or self.port
        config: dict[str, Any] = {"url": f"{self.scheme}://127.0.0.1:{port}/"}
        if self.scheme == "sftp":
            config["options"] = {"known_hosts": known_hosts(port, self._home)}
        return {
            "name": "far",
            "type": "storage",
            "capabilities": ["read", "list", "write"],
            "config": config,
            "auth": {"username": USER, "password": PASSWORD},
            **options,
        }

    def folder(self, mount: Mount, port: int | None = None) -> Path:
        """Return the path of its folder in a mount with this source."""
        return mount / f"bb-storage+far+{self.scheme}/127.0.0.1:{port or self.port}"


def _command(scheme: str, root: Path, home: Path, port: int, read_only: bool) -> list[str]:
    if scheme == "ftp":
        server = [sys.executable, "-W", "ignore", "-c", _FTP, "-i", "127.0.0.1", "-p", str(port)]
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
