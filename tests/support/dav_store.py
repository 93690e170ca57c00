"""A WebDAV server in this process whose every step a test decides: ETags, statuses, lost answers, other clients."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from threading import Lock
from typing import ClassVar
from urllib.parse import quote, unquote, urlsplit

from hostile_storage import dav_entry, dav_page
from http_server import Answers, HttpServer

MODIFIED = "Sun, 06 Nov 1994 08:49:37 GMT"


@dataclass
class DavStore:
    """What the server has, and how it answers.

    states_etag: whether the answer to a PUT has one. compares: whether conditions count. form: of each ETag, such as
    `W/"{}"`; `{}` is a hash of the bytes and of the change. is_odd: each look states another ETag. statuses: of
    answers to methods, after the change is made unless the status is an error or 202. keeps: what it stores of a
    body. after: called with method and path after each change, before its answer. loses: methods whose answers are
    lost after the change, each once.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    states_etag: bool = False
    compares: bool = True
    form: str = '"{}"'
    is_odd: bool = False
    statuses: Mapping[str, int] = field(default_factory=dict)
    keeps: Callable[[bytes], bytes] = bytes
    after: Callable[[str, str], None] = lambda _method, _path: None
    loses: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    connections: int = 0
    directories: set[str] = field(default_factory=lambda: {"", "d"})
    port: int = 0

    def __post_init__(self) -> None:
        self.lock = Lock()
        self._changes: dict[str, int] = {}
        self._counter = count(1)

    def etag(self, path: str) -> str:
        number = next(self._counter) if self.is_odd else self._changes.get(path, 0)
        return self.form.format(blake2b(self.files[path] + b"%d" % number, digest_size=6).hexdigest())

    def put(self, path: str, data: bytes) -> None:
        """Change a file as another client does."""
        with self.lock:
            self.store(path, data)

    def append(self, path: str, data: bytes) -> None:
        """Change a file as another client does that reads it, and writes it if nobody has changed it since."""
        with self.lock:
            self.store(path, self.files[path] + data)

    def store(self, path: str, data: bytes) -> None:
        self.files[path] = self.keeps(data)
        self._changes[path] = next(self._counter)

    def allows(self, path: str, headers: Mapping[str, str]) -> bool:
        """Return whether the conditions of a request hold."""
        if not self.compares:
            return True
        wanted, unwanted = headers.get("if-match"), headers.get("if-none-match")
        if unwanted == "*" and path in self.files:
            return False
        return wanted is None or (path in self.files and not self.is_odd and wanted == self.etag(path))

    @contextmanager
    def serving(self) -> Iterator["DavStore"]:
        with closing(HttpServer(type("Bound", (_Answers,), {"store": self}))) as server:
            self.port = server.port
            yield self


class _Answers(Answers):
    store: ClassVar[DavStore]

    def setup(self) -> None:
        super().setup()
        self.store.connections += 1

    def answer(self) -> None:
        store = self.store
        body = self.body()
        path = unquote(urlsplit(self.path).path).removeprefix("/")
        headers = {name.lower(): value for name, value in self.headers.items()}
        with store.lock:
            store.asked.append(f"{self.command} {path}")
            status, given, data = self._answer(path, headers, body)
        if self.command not in ("GET", "PROPFIND") and status < 300:
            store.after(self.command, path)
            if self.command in store.loses:
                store.loses.remove(self.command)
                self.close_connection = True
                return
        self.reply(status, data, given)

    def _answer(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        store, status = self.store, self.store.statuses.get(self.command)
        if status is not None and (status >= 300 or status == 202):
            return status, {}, b""
        if self.command == "PROPFIND":
            return self._described(path.rstrip("/"), headers)
        if self.command == "MKCOL":
            is_there = path.rstrip("/") in {*store.directories, *store.files}
            store.directories.add(path.rstrip("/"))
            return 405 if is_there else status or 201, {}, b""
        if self.command == "DELETE" and path.rstrip("/") in store.directories:
            store.directories.discard(path.rstrip("/"))
            return status or 204, {}, b""
        if self.command == "PUT":
            if not store.allows(path, headers):
                return 412, {}, b""
            is_new = path not in store.files
            store.store(path, body)
            given = {"etag": store.etag(path)} if store.states_etag else {}
            return status or (201 if is_new else 204), given, b""
        if path not in store.files:
            return 404, {}, b""
        if self.command == "GET":
            data = store.files[path]
            return 200, {"etag": store.etag(path), "last-modified": MODIFIED}, data
        if not store.allows(path, headers):
            return 412, {}, b""
        to = unquote(urlsplit(headers.get("destination", "")).path).removeprefix("/")
        if headers.get("overwrite") == "F" and to in store.files:
            return 412, {}, b""
        data = store.files.pop(path)
        if self.command == "MOVE":
            store.store(to, data)
        return status or 204, {}, b""

    def _described(self, path: str, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        store = self.store
        if path in store.files:
            return 207, {}, dav_page(self._entry(path))
        if path not in store.directories:
            return 404, {}, b""
        names = [path]
        if headers.get("depth") == "1":
            names += [each for each in (*store.directories, *store.files) if each and each.rpartition("/")[0] == path]
        return 207, {}, dav_page(*map(self._entry, names))

    def _entry(self, path: str) -> str:
        store = self.store
        if path in store.directories:
            return dav_entry(f"/{quote(path)}/", "<resourcetype><collection/></resourcetype>")
        etag = store.etag(path).replace('"', "&quot;")
        return dav_entry(
            f"/{quote(path)}",
            f"<getcontentlength>{len(store.files[path])}</getcontentlength><getetag>{etag}</getetag>"
            f"<getlastmodified>{MODIFIED}</getlastmodified>",
        )
