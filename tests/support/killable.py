"""Sources that a test kills and starts again, each with one file in it, `note.txt`."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from file_servers import FileServer
from harness import Mount
from object_stores import WRITE, Relay, S3Server, stored_at
from programs import answers, free_port, wait_until

from bbfs.knowledge.database.store import Store
from bbfs.knowledge.documents import NotFound
from bbfs.sources.memory.file import MemoryFile

NAME = "note.txt"


class Killable:
    """One source. kind and wires: of its handler, see `breakpoints`. directory: of the file, from the mount's root."""

    kind: str
    wires: str
    directory: str
    relay: Relay | None = None
    """Through which the daemon reaches it, if it is asked for."""
    is_whole = True
    """Whether a source that breaks off in an upload has the old file or the new one."""

    def table(self) -> dict[str, Any]:
        """Return the source as the configuration has it."""
        raise NotImplementedError

    def put(self, data: bytes | None) -> None:
        """Store the file, or remove it."""
        raise NotImplementedError

    def get(self) -> bytes | None:
        raise NotImplementedError

    def names(self) -> set[str]:
        """Return the names of all files that the source has."""
        return {NAME}

    def kill(self, mount: Mount) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Start it again, unless it runs."""

    def refuse_writes(self, refuses: bool = True) -> None:
        """Take the right to write away, or give it back."""
        raise NotImplementedError

    def close(self) -> None:
        """End it."""


class KilledServer(Killable):
    """WebDAV, SFTP and FTP. rclone stores what WebDAV uploads in place."""

    kind = "storage"

    def __init__(self, scheme: str, home: Path, *, relayed: bool = False) -> None:
        for each in ("root", "home"):
            (home / each).mkdir(parents=True)
        self._server = FileServer(scheme, home / "root", home / "home")
        self.wires = scheme if scheme in ("ftp", "sftp") else "streams"
        self.relay = Relay(self._server.port) if relayed else None
        self._port = self._server.port if self.relay is None else self.relay.port
        self.directory = f"bb-storage+far-{scheme}+{scheme}/127.0.0.1:{self._port}"
        self.is_whole = scheme != "webdav"

    def table(self) -> dict[str, Any]:
        return self._server.source(self._port, name=f"far-{self._server.scheme}", timeout="5s")

    def put(self, data: bytes | None) -> None:
        for each in self._server.root.iterdir():
            each.unlink()
        if data is not None:
            (self._server.root / NAME).write_bytes(data)

    def get(self) -> bytes | None:
        with suppress(FileNotFoundError):
            return (self._server.root / NAME).read_bytes()
        return None

    def names(self) -> set[str]:
        return {each.name for each in self._server.root.iterdir()}

    def kill(self, mount: Mount) -> None:
        self._server.close()

    def start(self) -> None:
        if self._server.process.poll() is not None:
            self._server.start()

    def refuse_writes(self, refuses: bool = True) -> None:
        self._server.close()
        self._server.set_read_only(refuses)
        self._server.start()

    def close(self) -> None:
        if self.relay is not None:
            self.relay.close()
        self._server.close()


class KilledStore(Killable):
    """S3, behind a relay that ends all connections: the server has nothing on disk."""

    kind, wires, directory = "storage", "streams", "bb-storage+store+s3/data"

    def __init__(self) -> None:
        self.server = S3Server()
        self.server.make_bucket("data")
        self._relay = self.relay = Relay(self.server.port)

    def table(self) -> dict[str, Any]:
        return stored_at(self._relay.url, capabilities=WRITE, timeout="5s")

    def put(self, data: bytes | None) -> None:
        if data is None:
            self.server.delete("data", NAME)
        else:
            self.server.put("data", NAME, data)

    def get(self) -> bytes | None:
        answer = self.server.client.get(f"/data/{NAME}")
        return answer.content if answer.status_code == 200 else None

    def kill(self, mount: Mount) -> None:
        self._relay.refuse()

    def start(self) -> None:
        self._relay.refuse(False)

    def refuse_writes(self, refuses: bool = True) -> None:
        checked_from = "0" if refuses else "inf"
        self.server.client.post("/moto-api/reset-auth", content=checked_from).raise_for_status()

    def close(self) -> None:
        self._relay.close()
        self.server.close()


class KilledKnowledge(Killable):
    """A knowledge base: over HTTP, or over stdio as a child of the daemon."""

    kind, directory = "mcp", "mcp-server+kb/resource/knowledge/docs/document"

    def __init__(self, wires: str, home: Path, *, relayed: bool = False) -> None:
        home.mkdir(parents=True)
        self.wires, self._path = wires, home / "kb.sqlite"
        self._store = Store(self._path)
        self._store.put("docs", "other.txt", b"other\n")
        self._port = free_port()
        self.relay = Relay(self._port) if relayed else None
        self._line = [sys.executable, "-m", "bbfs.knowledge", "serve", "--db", str(self._path), "--writable"]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def table(self) -> dict[str, Any]:
        tools = {"version": "version", "template": "resource://knowledge/{collectionId}/document/{docId}"}
        over_http = self.wires == "streams"
        place = {"command": self._line[0], "args": self._line[1:]}
        port = self._port if self.relay is None else self.relay.port
        return {
            "name": "kb",
            "mcpConfig": {"url": f"http://127.0.0.1:{port}/mcp"} if over_http else place,
            "capabilities": WRITE,
            "timeout": "10s",
            "write": {"tool": "put_document", **tools},
            "remove": {"tool": "remove_document", **tools},
        }

    def put(self, data: bytes | None) -> None:
        if data is not None:
            self._store.put("docs", NAME, data)
        else:
            with suppress(NotFound):
                self._store.remove("docs", NAME)

    def get(self) -> bytes | None:
        with suppress(NotFound), self._store.snapshot() as snapshot:
            return snapshot.content("docs", NAME)
        return None

    def kill(self, mount: Mount) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            return
        for child in mount.children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def refuse_writes(self, refuses: bool = True) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)
        self._serve(*([] if refuses else ["--no-token"]))

    def start(self) -> None:
        if self.wires != "pipes" and (self._process is None or self._process.poll() is not None):
            self._serve("--no-token")

    def _serve(self, *options: str) -> None:
        line = [*self._line, "--http", f"127.0.0.1:{self._port}", *options]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(line, stdin=quiet, stdout=quiet, stderr=quiet)
        wait_until(lambda: answers(self._port), "the knowledge base listens", 20)

    def close(self) -> None:
        if self.relay is not None:
            self.relay.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
        self._store.close()


class KilledMemory(Killable):
    """A source of type memory with a file. It lives in the daemon and cannot be killed alone."""

    kind, wires, directory = "memory", "", "bb-memory+pad+memory"

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True)
        self._file = home / "pad.file"

    def table(self) -> dict[str, Any]:
        config = {"file": str(self._file), "max_bytes": "8MiB"}
        return {"name": "pad", "type": "memory", "capabilities": WRITE, "config": config}

    def put(self, data: bytes | None) -> None:
        held = [] if data is None else [{"uri": f"memory://{NAME}", "text": data.decode()}]
        self._file.write_text(json.dumps({"bbfs": "memory", "version": 1, "resources": held}))

    def get(self) -> bytes | None:
        held = MemoryFile(str(self._file), 1 << 30).read().contents.held.get(f"memory://{NAME}")
        return None if held is None or held.content is None else held.content.data


def killable(name: str, home: Path, *, relayed: bool = False) -> Killable:
    """Return the source of a name. home: for its files. relayed: it is reached through a relay."""
    match name:
        case "memory":
            return KilledMemory(home)
        case "s3":
            return KilledStore()
        case "mcp-http" | "mcp-stdio":
            return KilledKnowledge("streams" if name == "mcp-http" else "pipes", home, relayed=relayed)
    return KilledServer(name, home, relayed=relayed)


KILLABLE = ("mcp-http", "mcp-stdio", "webdav", "sftp", "ftp", "s3")
"""The names of the sources that can be killed alone."""
