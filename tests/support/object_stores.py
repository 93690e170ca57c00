"""A real S3 server for tests, and a relay before it that counts, stalls, cuts and refuses."""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx2
import trio
from fakes import data_source
from programs import started_server
from repository import SERVERS

from bbfs.model.values import DataSource
from bbfs.sources import Services
from bbfs.sources.storage.handler import StorageHandler

PROGRAM = SERVERS / "s3.py"
WRITE = ["read", "list", "write"]
KEY, SECRET = "key-of-tests", "secret-of-tests-7f3a"
_SIGNED = f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


def stored_at(endpoint: str, **options: Any) -> dict[str, Any]:
    """Return the table of a source of the bucket `data`. options: of the source."""
    config = {"url": "s3://data/", "options": {"endpoint": endpoint}}
    auth = {"accessKey": KEY, "secretKey": SECRET}
    return {"name": "store", "type": "storage", "config": config, "auth": auth, **options}


def handler_at(endpoint: str, **options: Any) -> StorageHandler:
    """Return the handler of a source of the bucket `data`. options: of S3."""
    config = {"url": "s3://data/", "options": {"endpoint": endpoint, **options}}
    auth = {"accessKey": KEY, "secretKey": SECRET}
    return StorageHandler(data_source("bb-storage+data+s3", config=config, auth=auth), Services())


@asynccontextmanager
async def opened(made: DataSource) -> AsyncIterator[StorageHandler]:
    """Make the handler of a source and close it after the block, for five seconds at most."""
    handler = StorageHandler(made, Services())
    try:
        yield handler
    finally:
        with trio.move_on_after(5):
            await handler.aclose()


class S3Server:
    """The server in a process of its own. Requests of the test are not checked unless it is `strict`."""

    def __init__(self, *arguments: str) -> None:
        self._process, self.url = started_server(sys.executable, PROGRAM, *arguments, errors=subprocess.DEVNULL)
        self.port = int(self.url.rpartition(":")[2])
        self.client = httpx2.Client(base_url=self.url, headers={"authorization": _SIGNED}, timeout=20)

    def make_bucket(self, name: str) -> None:
        self.client.put(f"/{name}").raise_for_status()

    def put(self, bucket: str, key: str, data: bytes, headers: Mapping[str, str] | None = None) -> str:
        """Store an object. Returns its ETag."""
        answer = self.client.put(self._path(bucket, key), content=data, headers=headers)
        answer.raise_for_status()
        return answer.headers["etag"]

    def delete(self, bucket: str, key: str) -> None:
        self.client.delete(self._path(bucket, key)).raise_for_status()

    def form(self, path: str = "/", service: str = "iam", **fields: str) -> str:
        """The answer to a request of another AWS service that the server imitates."""
        signed = {"authorization": _SIGNED.replace("/s3/", f"/{service}/")}
        answer = self.client.post(path, data=fields, headers=signed)
        answer.raise_for_status()
        return answer.text

    @staticmethod
    def _path(bucket: str, key: str) -> str:
        names = (
            quote(name, safe="") if name not in (".", "..") else name.replace(".", "%2E") for name in key.split("/")
        )
        return f"/{bucket}/" + "/".join(names)

    def close(self) -> None:
        self.client.close()
        self._process.kill()
        self._process.communicate(timeout=10)


class Relay:
    """Passes connections on to a server. Counts what the server sends; can stop sending, or end connections."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.sent = 0
        self.connections = 0
        self._flows = threading.Event()
        self._flows.set()
        self._after: int | None = None
        self._refuses = False
        self.received = 0
        self.receives: Callable[[int], object] = lambda _: None
        """Called with the bytes that clients have sent, before the server gets the latest of them."""
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stall(self, after: int = 0) -> None:
        """Send nothing more, or nothing more after so many bytes; what is open stays open."""
        self._after = self.sent + after
        if not after:
            self._flows.clear()

    def flow(self) -> None:
        self._after = None
        self._flows.set()

    def refuse(self, refuses: bool = True) -> None:
        """End all connections, and each new one until this is taken back.

        The server gets nothing more of an ended connection, not even what the client had sent before.
        """
        self._refuses = refuses
        ended, self._open = self._open, set()
        for each in ended:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all connections, and refuse new ones."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self._flows.set()
        self.refuse()
        self._thread.join(5)

    @property
    def open(self) -> int:
        """Connections of clients that are open."""
        return len(self._open)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuses:
                client.close()
                continue
            self.connections += 1
            self._open.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, socket.create_connection(self._target) as server:
                back = threading.Thread(target=self._back, args=(server, client), daemon=True)
                back.start()
                with contextlib.suppress(OSError):
                    while data := client.recv(1 << 16):
                        self.received += len(data)
                        self.receives(self.received)
                        if client not in self._open:
                            break
                        server.sendall(data)
                with contextlib.suppress(OSError):
                    server.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # one side is gone
        finally:
            self._open.discard(client)

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if self._after is not None and self.sent >= self._after:
                    self._flows.clear()
                self._flows.wait()
                client.sendall(data)
                self.sent += len(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
