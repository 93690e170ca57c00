"""Servers of HTTP that keep a journal of every state they ever had, and fail as a plan says: WebDAV, S3 and MCP.

They compare strictly (If-Match, If-None-Match) and store in one step. A fault is by the number of a request.
"""

import contextlib
import copy
import hashlib
import json
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from fault_contents import Plain, Records, Torn, names_in
from fault_oracle import Asked, Seen, State
from hostile_storage import dav_entry, dav_page
from http_server import Answers

_CONDITIONS = ("if-match", "if-none-match", "destination", "overwrite")
_LATE = 0.15
"""Seconds after which a server stores what it has only accepted."""


class Refused(Exception):
    """A request that the store refuses, with a status of HTTP."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True)
class Held:
    """A file of the store. position: of this state among those of its name."""

    data: bytes
    etag: str
    position: int
    modified: float
    """Seconds since the epoch."""


class JournalStore:
    """Files in memory, with each state that they had. Every method is one step. clock: gives times of files.

    by, how: of the changed state (`fault_oracle.State`).
    """

    def __init__(self, codec: Plain, clock: Callable[[], float] = time.time) -> None:
        self.codec = codec
        self.clock = clock
        self.lock = threading.RLock()
        self.held: dict[str, Held] = {}
        self.states: list[State] = []
        self.seen: list[Seen] = []
        self.asked: list[Asked] = []
        self.notes: list[str] = []
        self._positions: dict[str, int] = defaultdict(lambda: -1)

    def names_in(self, name: str, data: bytes) -> Records:
        """Return the records of the content of a file, of which a torn one has none. Note what is torn."""
        try:
            return names_in(self.codec, data, name)
        except Torn as torn:
            self.notes.append(f"{time.monotonic():.3f} torn: {torn}")
            return ()

    def _note(self, name: str, data: bytes | None, by: str, how: str = "", modified: float | None = None) -> None:
        self._positions[name] += 1
        records = None if data is None else self.names_in(name, data)
        self.states.append(State(time.monotonic(), name, records, by, how))
        if data is None:
            self.held.pop(name, None)
        else:
            etag = hashlib.sha256(f"{name} {self._positions[name]}".encode()).hexdigest()[:16]
            self.held[name] = Held(data, etag, self._positions[name], modified or self.clock())

    def look(self, name: str) -> Held | None:
        """Return a file, and note that the mount has seen it."""
        with self.lock:
            found = self.held.get(name)
            self.seen.append(Seen(time.monotonic(), name, self._positions[name]))
            return found

    def check(self, name: str, match: str | None, none_match: str | None) -> None:
        """Raise Refused unless the conditions of a request hold."""
        found = self.held.get(name)
        if match is not None and (found is None or (match != "*" and match.strip('"') != found.etag)):
            raise Refused(412)
        if none_match == "*" and found is not None:
            raise Refused(412)

    def put(
        self,
        name: str,
        data: bytes,
        by: str,
        match: str | None = None,
        none_match: str | None = None,
        *,
        how: str = "",
        modified: float | None = None,
    ) -> Held:
        with self.lock:
            self.check(name, match, none_match)
            self._note(name, data, by, how, modified)
            return self.held[name]

    def remove(self, name: str, by: str, match: str | None = None, *, how: str = "") -> None:
        with self.lock:
            self.check(name, match, None)
            if name not in self.held:
                raise Refused(404)
            self._note(name, None, by, how)

    def move(self, name: str, to: str, by: str, *, how: str = "", replace: bool = True) -> None:
        with self.lock:
            if name not in self.held:
                raise Refused(404)
            if to in self.held and not replace:
                raise Refused(412)
            self._note(to, self.held[name].data, by, how, self.held[name].modified)
            self._note(name, None, by, how)

    def edit(self, name: str, change: Callable[[str], str]) -> None:
        """Change the text of a file in one step, as the stranger."""
        with self.lock:
            old = self.codec.decode(self.held[name].data)
            self._note(name, self.codec.encode(name, change(old)), "stranger")


@dataclass
class Faults:
    """What happens to requests. changes, looks: by number. stall: seconds after which a client has given up."""

    changes: Mapping[int, str] = field(default_factory=dict[int, str])
    looks: Mapping[int, str] = field(default_factory=dict[int, str])
    stall: float = 1.5
    quiet: bool = False
    changed: int = 0
    looked: int = 0
    met: list[str] = field(default_factory=list[str])

    def next(self, what: str, *, is_change: bool) -> str:
        """Count a request, and return the fault that it meets."""
        if self.quiet:
            return ""
        if is_change:
            self.changed += 1
            fault = self.changes.get(self.changed, "")
        else:
            self.looked += 1
            fault = self.looks.get(self.looked, "")
        if fault:
            self.met.append(f"{time.monotonic():.3f} {what}: {fault}")
        return fault


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class JournalServer:
    """A server in threads of this process. `down` and `up` kill and start it again."""

    def __init__(self, handler: "type[Handler]", store: JournalStore, faults: Faults) -> None:
        self.store, self.faults = store, faults
        self._class = type("Bound", (handler,), {"store": store, "faults": faults, "server_of": self})
        self.open: set[socket.socket] = set()
        self.port = 0
        self._server: _Listening | None = None
        self.up()

    def up(self) -> None:
        self._server = _Listening(("127.0.0.1", self.port), self._class)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def down(self) -> None:
        """End all connections, and refuse new ones."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        for each in list(self.open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections end here all the time."""


class Handler(Answers):
    """Answers requests, or fails them. What is answered is in `changed` and `looked`."""

    disable_nagle_algorithm = True
    timeout = 30
    store: ClassVar[JournalStore]
    faults: ClassVar[Faults]
    server_of: ClassVar[JournalServer]
    CHANGES: ClassVar[frozenset[str]] = frozenset({"PUT", "DELETE", "MOVE", "MKCOL", "POST"})

    def setup(self) -> None:
        super().setup()
        self.server_of.open.add(self.connection)

    def finish(self) -> None:
        self.server_of.open.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def answer(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(size)
        if len(body) < size:  # the connection was ended: nothing is stored
            self.close_connection = True
            return
        is_change = self.is_change(body)
        if is_change:
            self.note_asked(body)
        fault = self.faults.next(f"{self.command} {self.path}", is_change=is_change)
        asked_at = time.monotonic()
        answer = self._met(fault, body)
        told = "no answer" if answer is None else f"{answer.status} {answer.headers.get('etag', '')}"
        conditions = " ".join(f"{name}: {self.headers[name]}" for name in _CONDITIONS if name in self.headers)
        self.store.notes.append(f"{asked_at:.3f} {self.command} {self.path} {conditions} {fault}: {told}")
        if answer is None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.reply(answer.status, answer.body, answer.headers)

    def _met(self, fault: str, body: bytes) -> Answer | None:
        """Return the answer to a request that meets a fault, None if its connection ends."""
        kind, _, status = fault.partition(" ")
        match kind:
            case "drop":
                if status == "after":
                    self.done(body)
                return None
            case "accept":
                if status == "late":
                    later = copy.copy(self)  # the connection has other requests by then
                    threading.Timer(_LATE, later.done, (body,)).start()
                return Answer(202)
            case "refuse":
                return self.failure(int(status))
            case "fail":
                self.done(body)
                return self.failure(500)
            case "stall":
                if status == "after":
                    self.done(body)
                time.sleep(self.faults.stall)
                return None
            case "delay":
                time.sleep(0.05)
        return self.done(body)

    def done(self, body: bytes) -> Answer:
        try:
            return self.changed(body) if self.is_change(body) else self.looked(body)
        except Refused as refused:
            return self.failure(refused.status)

    def failure(self, status: int) -> Answer:
        return Answer(status, b"the server fails" if status >= 500 else b"")

    def is_change(self, body: bytes) -> bool:
        return self.command in self.CHANGES

    def name(self) -> str:
        """Return the name of the file that a request is for."""
        raise NotImplementedError

    def note_asked(self, body: bytes) -> None:
        """Note what the mount asks to store."""
        if self.command == "PUT" and "x-amz-copy-source" not in self.headers:
            asked = Asked(time.monotonic(), self.name(), self.store.names_in(self.name(), body))
            self.store.asked.append(asked)

    def changed(self, body: bytes) -> Answer:
        raise NotImplementedError

    def looked(self, body: bytes) -> Answer:
        raise NotImplementedError

    def content(self) -> Answer:
        """Return the answer to GET and HEAD, also of a range."""
        found = self.store.look(self.name())
        if found is None:
            raise Refused(404)
        match = self.headers.get("if-match")
        if match is not None and match.strip('"') != found.etag:
            raise Refused(412)
        headers = {
            "etag": f'"{found.etag}"',
            "last-modified": formatdate(found.modified, usegmt=True),
            "content-type": "text/plain",
        }
        wanted = self.headers.get("range")
        if self.command == "HEAD" or not wanted:
            return Answer(200, found.data, headers | {"content-length": str(len(found.data))})
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        begin, end = int(first), min(int(last) + 1, len(found.data))
        if begin >= len(found.data):
            return Answer(416, b"", {"content-range": f"bytes */{len(found.data)}"})
        headers["content-range"] = f"bytes {begin}-{end - 1}/{len(found.data)}"
        return Answer(206, found.data[begin:end], headers)

    def conditions(self) -> tuple[str | None, str | None]:
        """Return the headers If-Match and If-None-Match."""
        return self.headers.get("if-match"), self.headers.get("if-none-match")


class WebDav(Handler):
    """WebDAV (RFC 4918) with one collection."""

    def name(self) -> str:
        return unquote(urlsplit(self.path).path).strip("/")

    def changed(self, body: bytes) -> Answer:
        match self.command:
            case "PUT":
                with self.store.lock:
                    is_new = self.name() not in self.store.held
                    held = self.store.put(self.name(), body, "mount", *self.conditions(), how="PUT")
                return Answer(201 if is_new else 204, b"", {"etag": f'"{held.etag}"'})
            case "DELETE":
                self.store.remove(self.name(), "mount", self.conditions()[0], how="DELETE")
                return Answer(204)
            case "MOVE":
                to = unquote(urlsplit(self.headers["destination"]).path).strip("/")
                replace = self.headers.get("overwrite") != "F"
                self.store.move(self.name(), to, "mount", how="MOVE", replace=replace)
                return Answer(201)
            case _:
                raise Refused(405)

    def looked(self, body: bytes) -> Answer:
        if self.command == "PROPFIND":
            return self._described()
        if not self.name():
            raise Refused(405)
        return self.content()

    def _described(self) -> Answer:
        name = self.name()
        entries: list[str] = []
        with self.store.lock:
            if name:
                found = self.store.look(name)
                if found is None:
                    raise Refused(404)
                entries.append(_entry(name, found))
            else:
                entries.append(_entry("", None))
                if self.headers.get("depth") != "0":
                    for each in sorted(self.store.held):
                        found = self.store.look(each)
                        assert found is not None
                        entries.append(_entry(each, found))
        return Answer(207, dav_page(*entries), {"content-type": "application/xml"})


def _entry(name: str, held: Held | None) -> str:
    kind = "<resourcetype><collection/></resourcetype>"
    if held is not None:
        kind = (
            f"<resourcetype/><getcontentlength>{len(held.data)}</getcontentlength>"
            f"<getetag>&quot;{held.etag}&quot;</getetag>"
            f"<getlastmodified>{formatdate(held.modified, usegmt=True)}</getlastmodified>"
        )
    return dav_entry(f"/{quote(name)}", kind)


class S3(Handler):
    """S3 with one bucket, `data`."""

    def name(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/data").strip("/")

    def changed(self, body: bytes) -> Answer:
        if self.command == "DELETE":
            with contextlib.suppress(Refused):
                self.store.remove(self.name(), "mount", self.conditions()[0], how="DELETE")
                return Answer(204)
            self.store.check(self.name(), self.conditions()[0], None)
            return Answer(204)
        origin = self.headers.get("x-amz-copy-source")
        if origin is not None:
            return self._copied(unquote(origin).removeprefix("/data/"))
        if "content-md5" in self.headers:  # which clients send to find out if conditions come first
            self.store.check(self.name(), *self.conditions())
            return self.failure(400)
        held = self.store.put(self.name(), body, "mount", *self.conditions(), how="PUT")
        return Answer(200, b"", {"etag": f'"{held.etag}"'})

    def _copied(self, origin: str) -> Answer:
        with self.store.lock:
            found = self.store.held.get(origin)
            if found is None:
                raise Refused(404)
            self.store.check(origin, self.headers.get("x-amz-copy-source-if-match"), None)
            held = self.store.put(self.name(), found.data, "mount", *self.conditions(), how="COPY")
        text = f"<CopyObjectResult><ETag>&quot;{held.etag}&quot;</ETag></CopyObjectResult>"
        return Answer(200, text.encode(), {"content-type": "application/xml"})

    def looked(self, body: bytes) -> Answer:
        if self.name():
            return self.content()
        asked = parse_qs(urlsplit(self.path).query)
        prefix = asked.get("prefix", [""])[0]
        with self.store.lock:
            found = {name: self.store.look(name) for name in sorted(self.store.held) if name.startswith(prefix)}
        entries = "".join(
            f"<Contents><Key>{escape(quote(name))}</Key><Size>{len(held.data)}</Size>"
            f"<ETag>&quot;{held.etag}&quot;</ETag><StorageClass>STANDARD</StorageClass>"
            f"<LastModified>{_iso(held.modified)}</LastModified></Contents>"
            for name, held in found.items()
            if held is not None
        )
        space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
        text = (
            f"<ListBucketResult {space}><Name>data</Name><Prefix>{escape(prefix)}</Prefix><EncodingType>url"
            f"</EncodingType><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        )
        return Answer(200, text.encode(), {"content-type": "application/xml"})

    def failure(self, status: int) -> Answer:
        code = {404: "NoSuchKey", 412: "PreconditionFailed", 503: "SlowDown", 400: "BadDigest"}.get(
            status, "InternalError"
        )
        return Answer(status, f"<Error><Code>{code}</Code></Error>".encode(), {"content-type": "application/xml"})


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


class Mcp(Handler):
    """An MCP server over HTTP with the tools `put` and `drop`, which take a version."""

    CHANGES = frozenset()
    BEGINNING: ClassVar[str] = "mem://box/"

    def is_change(self, body: bytes) -> bool:
        return b'"tools/call"' in body

    def _asked(self, body: bytes) -> tuple[str, dict[str, Any]]:
        """Return the method and parameters of a request."""
        request = json.loads(body)
        return request["method"], request.get("params") or {}

    def _file(self, uri: str) -> str:
        return unquote(uri.removeprefix(self.BEGINNING))

    def note_asked(self, body: bytes) -> None:
        _, params = self._asked(body)
        if params["name"] == "put":
            name, data = self._file(params["arguments"]["uri"]), params["arguments"]["content"].encode()
            self.store.asked.append(Asked(time.monotonic(), name, self.store.names_in(name, data)))

    def looked(self, body: bytes) -> Answer:
        if self.command != "POST":
            raise Refused(405)
        request = json.loads(body)
        if "id" not in request:
            return Answer(202)
        try:
            return self._result(request["id"], result=self._answered(*self._asked(body)))
        except Refused as refused:
            return self._result(request["id"], error={"code": -32002, "message": f"refused: {refused.status}"})
        except KeyError as unknown:
            return self._result(request["id"], error={"code": -32601, "message": f"unknown: {unknown}"})

    def changed(self, body: bytes) -> Answer:
        request = json.loads(body)
        params = request["params"]
        given = params["arguments"]
        name, version = self._file(given["uri"]), given.get("version")
        match, none_match = (None, "*") if version == "" else (version, None)
        try:
            if params["name"] == "put":
                held = self.store.put(name, given["content"].encode(), "mount", match, none_match)
                done = {"uri": given["uri"], "size": len(held.data), "_meta": {"etag": held.etag}}
            else:
                self.store.remove(name, "mount", match)
                done = {}
        except Refused as refused:
            code = "conflict" if refused.status == 412 else "not_found"
            text = {"type": "text", "text": code}
            failed = {"content": [text], "structuredContent": {"code": code}, "isError": True}
            return self._result(request["id"], result=failed)
        return self._result(request["id"], result={"content": [], "structuredContent": done})

    @staticmethod
    def _result(number: Any, **answer: Any) -> Answer:
        text = json.dumps({"jsonrpc": "2.0", "id": number, **answer})
        return Answer(200, text.encode(), {"content-type": "application/json"})

    def _answered(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a request. Raise KeyError for a method that is not served."""
        match method:
            case "initialize":
                info = {"name": "box", "version": "1"}
                capabilities: dict[str, Any] = {"resources": {}, "tools": {}}
                return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            case "resources/list":
                with self.store.lock:
                    return {"resources": [self._listed(name) for name in sorted(self.store.held)]}
            case "resources/templates/list":
                return {"resourceTemplates": [{"uriTemplate": self.BEGINNING + "{name}", "name": "file"}]}
            case "resources/read":
                found = self.store.look(self._file(params["uri"]))
                if found is None:
                    raise Refused(404)
                content = {"uri": params["uri"], "text": found.data.decode(), "_meta": {"etag": found.etag}}
                return {"contents": [content]}
            case "tools/list":
                return {"tools": [_tool("put", "uri", "content", "version"), _tool("drop", "uri", "version")]}
            case "ping":
                return {}
            case _:
                raise KeyError(method)

    def _listed(self, name: str) -> dict[str, Any]:
        return {"uri": self.BEGINNING + quote(name), "name": name, "mimeType": "text/plain"}


def _tool(name: str, *arguments: str) -> dict[str, Any]:
    properties = {each: {"type": "string"} for each in arguments}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties, "required": ["uri"]}}
