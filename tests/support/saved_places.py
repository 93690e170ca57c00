"""The sources that the matrix of saves writes to: each as a place that says what it has, without the mount."""

import json
import os
import sqlite3
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from ctypes import CDLL
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, unquote
from urllib.request import urlopen
from xml.etree import ElementTree

from file_servers import FileServer
from forked_daemon import forked
from harness import SourceTable, folder, mcp
from mariadb_server import PASSWORD as MARIADB_PASSWORD
from mariadb_server import mariadb_server
from notion_server import TOKEN, id_of, notion_server
from object_stores import WRITE, S3Server, stored_at
from pets_server import PetsServer
from postgres_server import PASSWORD, postgres_server
from repository import SERVERS

from bbfs.knowledge.database.store import Store
from bbfs.sources.memory.file import MemoryFile

NANOSECOND, SECOND = 1, 10**9
_IN_CREATE, _IN_MOVED_TO = 0x100, 0x80


class Place(ABC):
    """A directory of a source that is written.

    table: of the source. directory: where the mount has it. has_directories: whether it has some of its own. keeps:
    the precision of times (nanoseconds), None if it keeps none. more: what may be appended to a file.
    """

    has_directories: ClassVar[bool] = False
    keeps: ClassVar[int | None] = None
    more: ClassVar[str] = "more\n"

    def __init__(self, table: SourceTable, directory: str) -> None:
        self.table = table
        self.directory = directory

    def name(self, number: int) -> str:
        """Return the name of a file that the source takes, another one for each number."""
        return f"note {number}.md"

    def text(self, number: int) -> str:
        """Return a content for the file of that number. It has the word `one`."""
        return f"number {number} is one\nand ends\n"

    def canonical(self, data: bytes) -> Any:
        """Return what a source with this content has."""
        return data

    @abstractmethod
    def snapshot(self, prefix: str) -> dict[str, Any]:
        """Return what the source has: a content by each name below the directory that begins so."""

    def modified(self, name: str) -> int:
        """Return the time of a file, in nanoseconds since the epoch."""
        raise NotImplementedError

    def arrived(self) -> set[str]:
        """Return the last parts of the names that the source has, or has had for a while."""
        return {name.rpartition("/")[2] for name in self.snapshot("")}


class Arrivals:
    """Notes each name that appears in a folder, however short (inotify(7))."""

    def __init__(self, folder: Path) -> None:
        libc = CDLL(None, use_errno=True)
        self._descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._names: set[str] = set()
        watch = libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _IN_CREATE | _IN_MOVED_TO)
        assert watch >= 0, os.strerror(struct.pack("i", watch)[0])

    def names(self) -> set[str]:
        while True:
            try:
                events = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                return self._names
            while events:
                (length,) = struct.unpack_from("I", events, 12)
                self._names.add(os.fsdecode(events[16 : 16 + length].rstrip(b"\0")))
                events = events[16 + length :]

    def close(self) -> None:
        os.close(self._descriptor)


class FolderPlace(Place):
    """A folder of this machine, or one that a server has. `arrived` looks at the directory `saves` in it."""

    has_directories = True
    keeps: int | None = NANOSECOND  # type: ignore[misc]

    def __init__(self, table: SourceTable, directory: str, root: Path, keeps: int | None = NANOSECOND) -> None:
        super().__init__(table, f"{directory}/saves")
        self.root, self.keeps = root / "saves", keeps  # type: ignore[misc]
        self.root.mkdir(exist_ok=True)
        self._arrivals = Arrivals(self.root)

    def snapshot(self, prefix: str) -> dict[str, Any]:
        paths = [path for path in (self.root / prefix).rglob("*") if path.is_file()]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in paths}

    def modified(self, name: str) -> int:
        return (self.root / name).stat().st_mtime_ns

    def arrived(self) -> set[str]:
        return self._arrivals.names()


class MemoryPlace(Place):
    has_directories = True
    keeps = NANOSECOND

    def __init__(self, directory: Path) -> None:
        self._file = directory / "pad.file"
        config = {"file": str(self._file), "max_bytes": "256MiB"}
        table = {"name": "pad", "type": "memory", "capabilities": WRITE, "config": config}
        super().__init__(table, "bb-memory+pad+memory")

    def _held(self) -> Mapping[str, Any]:
        return MemoryFile(str(self._file), 1 << 30).read().contents.held

    def snapshot(self, prefix: str) -> dict[str, Any]:
        found = {unquote(uri.removeprefix("memory://")): held.content.data for uri, held in self._held().items()}
        return {name: data for name, data in found.items() if name.startswith(prefix)}

    def modified(self, name: str) -> int:
        return next(held.modified_ns for uri, held in self._held().items() if unquote(uri) == f"memory://{name}")


class ObjectsPlace(Place):
    """A bucket that keeps all versions: its names are known for ever."""

    has_directories = True

    def __init__(self, server: S3Server) -> None:
        server.make_bucket("data")
        on = '<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>Enabled</Status>'
        server.client.put("/data?versioning", content=on + "</VersioningConfiguration>").raise_for_status()
        super().__init__(stored_at(server.url, capabilities=WRITE), "bb-storage+store+s3/data")
        self._server = server

    def _keys(self, query: str) -> Iterator[str]:
        start = ""
        while True:
            answer = self._server.client.get(f"/data?{query}{start}").raise_for_status()
            tree = ElementTree.fromstring(answer.content)
            names = [each.text or "" for each in tree.iter() if each.tag.rpartition("}")[2] == "Key"]
            yield from names
            if "<IsTruncated>true" not in answer.text:
                return
            after = tree.findtext("{*}NextKeyMarker") or names[-1]
            version = tree.findtext("{*}NextVersionIdMarker")
            marker = (
                f"&key-marker={after}&version-id-marker={version}" if query == "versions" else f"&start-after={after}"
            )
            start = marker

    def snapshot(self, prefix: str) -> dict[str, Any]:
        keys = list(self._keys(f"list-type=2&prefix={prefix}"))
        return {key: self._server.client.get(f"/data/{quote(key)}").raise_for_status().content for key in keys}

    def arrived(self) -> set[str]:
        return {key.rpartition("/")[2] for key in self._keys("versions")}


class JsonPlace(Place):
    """A source of JSON objects."""

    more = " \n"

    def canonical(self, data: bytes) -> Any:
        return json.loads(data)


class RowsPlace(JsonPlace):
    """A table with rows as JSON. rows: returns them, each with key and text."""

    def __init__(self, table: SourceTable, directory: str, rows: Callable[[], list[tuple[Any, ...]]]) -> None:
        super().__init__({**table, "capabilities": WRITE}, directory)
        self._rows = rows

    def name(self, number: int) -> str:
        return f"{number}.json"

    def text(self, number: int) -> str:
        return json.dumps({"id": number, "what": f"number {number} is one"})

    def canonical(self, data: bytes) -> Any:
        return {key: value for key, value in json.loads(data).items() if key != "id"}

    def snapshot(self, prefix: str) -> dict[str, Any]:
        return {f"{key}.json": {"what": what} for key, what in self._rows()}


class ApiPlace(JsonPlace):
    """Documents of a REST API, which knows their names by their property `id`."""

    def __init__(self, server: PetsServer) -> None:
        table = server.source("notes", config={"write": ["putNote", "deleteNote"]}, capabilities=WRITE)
        super().__init__(table, f"{server.root('notes')}/notes")
        self._server = server

    def name(self, number: int) -> str:
        return f"note-{number}"

    def text(self, number: int) -> str:
        return json.dumps({"id": self.name(number), "text": f"number {number} is one"})

    def canonical(self, data: bytes) -> Any:
        note = json.loads(data)
        return {key: note[key] for key in ("id", "text")}

    def snapshot(self, prefix: str) -> dict[str, Any]:
        with urlopen(f"{self._server.url}/notes", timeout=20) as answer:
            return {each["id"]: {"id": each["id"], "text": each["text"]} for each in json.load(answer)}

    def arrived(self) -> set[str]:
        return {each["path"].rpartition("/")[2] for each in self._server.requests() if each["method"] == "PUT"}


class NotionPlace(Place):
    """Pages in a page, as the texts of their paragraphs."""

    more = "\nmore\n"

    def __init__(self, server: Any) -> None:
        table = {"name": "wiki", "type": "notion", "config": server.config(), "auth": {"token": TOKEN}}
        super().__init__({**table, "capabilities": WRITE}, "bb-notion+wiki+x-notion/Handbook")
        self._server = server

    def name(self, number: int) -> str:
        return f"Page {number}.md"

    def text(self, number: int) -> str:
        return f"# Page {number}\n\nnumber {number} is one\n"

    def canonical(self, data: bytes) -> Any:
        return [line for line in data.decode().splitlines() if line and not line.startswith("# ")]

    def snapshot(self, prefix: str) -> dict[str, Any]:
        pages = [each for each in self._server.blocks(id_of("handbook")) if each["type"] == "child_page"]
        return {f"{each['child_page']['title']}.md": self._texts(each["id"]) for each in pages}

    def _texts(self, page: str) -> list[str]:
        blocks = [each[each["type"]].get("rich_text", []) for each in self._server.blocks(page)]
        return [text for each in blocks if (text := "".join(piece["plain_text"] for piece in each))]


class KnowledgePlace(Place):
    """Documents of a knowledge base, an MCP server with flat names."""

    def __init__(self, path: Path, store: Store) -> None:
        template = "resource://knowledge/{collectionId}/document/{docId}"
        tools: dict[str, Any] = {"version": "version", "template": template}
        super().__init__(
            mcp(
                "kb",
                forked("-m", "bbfs.knowledge", "serve", "--db", path, "--writable", "--ttl", "3600"),
                capabilities=WRITE,
                write={"tool": "put_document", "blob": "blob", **tools},
                remove={"tool": "remove_document", **tools},
            ),
            "mcp-server+kb/resource/knowledge/docs/document",
        )
        self._store = store

    def snapshot(self, prefix: str) -> dict[str, Any]:
        with self._store.snapshot() as held:
            return {each.id: held.content("docs", each.id) for each in held.documents("docs")}


@contextmanager
def places(directory: Path, wanted: set[str]) -> Iterator[dict[str, Place]]:
    """Yield the wanted places by their names, with servers that end with the block."""
    with ExitStack() as stack:
        made: dict[str, Place] = {}
        for name in PLACES:
            if name in wanted:
                (directory / name.replace(" ", "-")).mkdir()
                made[name] = stack.enter_context(PLACES[name](directory / name.replace(" ", "-")))
        yield made


@contextmanager
def _folder(directory: Path) -> Iterator[Place]:
    yield FolderPlace(folder("work", directory, capabilities=WRITE), "bb-filesystem+work+file", directory)


@contextmanager
def _memory(directory: Path) -> Iterator[Place]:
    yield MemoryPlace(directory)


@contextmanager
def _s3(directory: Path) -> Iterator[Place]:
    server = S3Server()
    with closing(server):
        yield ObjectsPlace(server)


def _files(scheme: str, keeps: int | None) -> "Callable[[Path], Any]":
    @contextmanager
    def made(directory: Path) -> Iterator[Place]:
        root = directory / "root"
        (root / "saves").mkdir(parents=True)
        with closing(FileServer(scheme, root, directory)) as server:
            at = f"bb-storage+{scheme}+{scheme}/127.0.0.1:{server.port}"
            yield FolderPlace(server.source(name=scheme), at, root, keeps)

    return made


@contextmanager
def _sqlite(directory: Path) -> Iterator[Place]:
    with closing(sqlite3.connect(directory / "shop.db")) as connection:
        connection.execute("CREATE TABLE things (id integer PRIMARY KEY, what text)")
        connection.commit()
        table = {"name": "shop", "type": "database", "config": {"url": f"sqlite:///{directory}/shop.db"}}

        def rows() -> list[tuple[Any, ...]]:
            return connection.execute("SELECT id, what FROM things").fetchall()

        yield RowsPlace(table, "bb-database+shop+sqlite/main/things/row", rows)


@contextmanager
def _postgres(directory: Path) -> Iterator[Place]:
    with postgres_server() as server:
        name = server.create("saves", ["CREATE TABLE things (id bigint PRIMARY KEY, what text)"])
        table = {"name": "pg", "type": "database", "config": {"url": server.url(name)}, "auth": {"password": PASSWORD}}

        def rows() -> list[tuple[Any, ...]]:
            with server.connect(name) as connection:
                return connection.execute("SELECT id, what FROM things").fetchall()

        yield RowsPlace(table, "bb-database+pg+postgres/public/things/row", rows)


@contextmanager
def _mariadb(directory: Path) -> Iterator[Place]:
    with mariadb_server() as server:
        url = server.create("saves", ["CREATE TABLE things (id bigint PRIMARY KEY, what text)"], "ALL PRIVILEGES")
        auth = {"password": MARIADB_PASSWORD}
        table = {"name": "maria", "type": "database", "config": {"url": url}, "auth": auth}
        yield RowsPlace(
            table,
            "bb-database+maria+mysql/saves/things/row",
            lambda: server.run("saves", ["SELECT id, what FROM things"]),
        )


@contextmanager
def _api(directory: Path) -> Iterator[Place]:
    server = PetsServer(directory / "notes", "notes_api.py")
    try:
        yield ApiPlace(server)
    finally:
        server.stop()


@contextmanager
def _notion(directory: Path) -> Iterator[Place]:
    with notion_server(100) as server:
        yield NotionPlace(server)


@contextmanager
def _knowledge(directory: Path) -> Iterator[Place]:
    with Store(directory / "kb.sqlite") as store:
        store.put("docs", "first.md", b"first\n")
        yield KnowledgePlace(directory / "kb.sqlite", store)


@contextmanager
def _paths(directory: Path) -> Iterator[Place]:
    """An MCP server with a template of paths, which lists what is there."""
    tools = {"write": {"tool": "save", "blob": "blob"}, "remove": {"tool": "drop"}}
    command = [sys.executable, SERVERS / "notes.py", directory, "list"]
    yield FolderPlace(mcp("n", command, capabilities=WRITE, **tools), "mcp-server+n/notes", directory, None)


PLACES: "dict[str, Callable[[Path], Any]]" = {
    "folder": _folder,
    "memory": _memory,
    "S3": _s3,
    "WebDAV": _files("webdav", None),
    "SFTP": _files("sftp", SECOND),
    "FTP": _files("ftp", SECOND),
    "SQLite row": _sqlite,
    "PostgreSQL row": _postgres,
    "MariaDB row": _mariadb,
    "REST API": _api,
    "Notion page": _notion,
    "MCP flat": _knowledge,
    "MCP paths": _paths,
}
