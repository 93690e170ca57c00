"""A web site and its oddities, in one process: `python pages_http.py ROOT --log FILE` prints the URL it is at.

`/files/PATH` is a file below ROOT, with validators, ranges and conditions (RFC 9110); `PATH.headers` beside it is
an object in JSON, headers to send instead or besides (null leaves one out). Every other path is what the function of
its first name says. Each request becomes a line of JSON in the log: method, path, headers, status, and
bytes of the body sent. It needs nothing but the standard library.
"""

import argparse
import email.utils
import gzip
import hashlib
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

oddities: dict[str, Callable[["Handler"], None]] = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the headers and the body are written apart
    server: "Server"  # pyright: ignore[reportIncompatibleVariableOverride] - no other server has it

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.status, self.sent = 0, 0
        split = urlsplit(self.path)
        self.names = [unquote(name) for name in split.path.split("/")[1:]]
        self.query = dict(parse_qsl(split.query))
        length = int(self.headers["content-length"] or 0)
        self.body = self.rfile.read(length)
        try:
            oddities.get(self.names[0], file)(self)
        finally:
            self.server.note(self)

    do_POST = do_HEAD = do_GET  # noqa: N815 - the names that http.server looks for

    def reply(self, status: int, body: bytes = b"", **headers: str | None) -> None:
        self.begin(status, **{"content_type": "text/plain", "content_length": str(len(body)), **headers})
        if self.command != "HEAD":
            self.send(body)

    def begin(self, status: int, **headers: str | None) -> None:
        """Send the status and the headers, which are written with `_` for `-`."""
        self.status = status
        self.send_response(status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def send(self, data: bytes) -> None:
        self.wfile.write(data)
        self.sent += len(data)

    def count(self) -> int:
        """How many requests for this path have come, this one included."""
        return self.server.count(self.path)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, root: Path, log: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.never = threading.Event()
        self._log = log.open("a", buffering=1)
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def note(self, handler: Handler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        entry = {
            "method": handler.command,
            "path": handler.path,
            "headers": headers,
            "status": handler.status,
            "sent": handler.sent,
        }
        with self._lock:
            self._log.write(json.dumps(entry) + "\n")

    def count(self, path: str) -> int:
        with self._lock:
            self._counts[path] += 1
            return self._counts[path]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go in the middle are what this is for."""


def oddity(function: Callable[[Handler], None]) -> Callable[[Handler], None]:
    oddities[function.__name__.strip("_").replace("_", "-")] = function
    return function


def file(handler: Handler) -> None:
    """A file below the root; `/files/` before its path may be left out."""
    names = handler.names[1:] if handler.names[0] == "files" else handler.names
    path = handler.server.root.joinpath(*names)
    if path.is_dir():
        path /= "index.html"
    told = path.with_name(path.name + ".status")
    if told.exists():
        handler.reply(int(told.read_text()))
        return
    if not path.is_file():
        handler.reply(404, b"no such page")
        return
    data = path.read_bytes()
    etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    modified = email.utils.formatdate(path.stat().st_mtime, usegmt=True)
    headers: dict[str, str | None] = {"content_type": "text/plain", "etag": etag, "last_modified": modified}
    extra = path.with_name(path.name + ".headers")
    if extra.exists():
        headers.update({key.replace("-", "_"): value for key, value in json.loads(extra.read_text()).items()})
    etag = headers["etag"]
    if etag is not None and handler.headers["if-none-match"] == etag:
        handler.begin(304, **{key: value for key, value in headers.items() if key != "content_type"})
        return
    since = handler.headers["if-modified-since"]
    if etag is None and since is not None and since == headers["last_modified"]:
        handler.begin(304, **{key: value for key, value in headers.items() if key != "content_type"})
        return
    wanted = handler.headers["range"]
    if wanted and headers.get("accept_ranges") != "none":
        condition = handler.headers["if-range"]
        if condition in (None, etag, headers["last_modified"]):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or len(data)), len(data) - 1)
            if start >= len(data):
                handler.reply(416, content_range=f"bytes */{len(data)}")
                return
            piece = data[start : end + 1]
            handler.reply(206, piece, **{**headers, "content_range": f"bytes {start}-{end}/{len(data)}"})
            return
    handler.reply(200, data, **headers)


@oddity
def status(handler: Handler) -> None:
    """`/status/CODE`: with `?times=N` only for the first N requests, with `?after=S` with Retry-After."""
    if handler.count() > int(handler.query.get("times", "1000000")):
        handler.reply(200, b"at last")
        return
    body = handler.query.get("body", "").encode()
    handler.reply(int(handler.names[1]), body, retry_after=handler.query.get("after"))


@oddity
def redirect(handler: Handler) -> None:
    """`/redirect/N`: that many redirects, then a page; `?code=CODE` with another status than 302."""
    left = int(handler.names[1])
    if left == 0:
        handler.reply(200, f"{handler.command} arrived".encode())
    else:
        code = handler.query.get("code", "302")
        handler.reply(int(code), b"moved", location=f"../redirect/{left - 1}?code={code}")


@oddity
def to(handler: Handler) -> None:
    """`/to?url=URL`: a redirect to there."""
    handler.reply(int(handler.query.get("code", "302")), location=handler.query["url"])


@oddity
def loop(handler: Handler) -> None:
    handler.reply(302, location="/loop")


@oddity
def echo(handler: Handler) -> None:
    """The request itself, as JSON."""
    headers = {name.lower(): value for name, value in handler.headers.items()}
    said = {"method": handler.command, "path": handler.path, "headers": headers, "body": handler.body.decode()}
    handler.reply(200, json.dumps(said).encode(), content_type="application/json")


@oddity
def never(handler: Handler) -> None:
    """No answer at all."""
    handler.server.never.wait()


@oddity
def stalled(handler: Handler) -> None:
    """A body that begins and does not go on."""
    handler.begin(200, content_length="1000")
    handler.send(b"begun")
    handler.server.never.wait()


@oddity
def held(handler: Handler) -> None:
    """A large body that may be read in ranges. Those from its beginning come, and no other byte."""
    size, (first, _, last) = 40_000_000, (handler.headers["range"] or "bytes=0-").removeprefix("bytes=").partition("-")
    if handler.headers["if-none-match"]:
        handler.begin(304, etag='"1"')
    elif first != "0":
        handler.server.never.wait()
    elif last:
        said = f"bytes 0-{last}/{size}"
        handler.reply(206, bytes(int(last) + 1), content_range=said, etag='"1"')
    else:
        handler.begin(200, content_length=str(size), accept_ranges="bytes", etag='"1"')
        handler.send(bytes(2 << 20))  # the reader takes 1 MiB, and gathers small pieces
        handler.server.never.wait()


@oddity
def cut(handler: Handler) -> None:
    """A body that is shorter than its length."""
    handler.begin(200, content_length="1000")
    handler.send(b"begun")
    handler.close_connection = True


@oddity
def cut_chunks(handler: Handler) -> None:
    handler.begin(200, transfer_encoding="chunked")
    handler.send(b"5\r\nbegun\r\n")
    handler.close_connection = True


@oddity
def chunks(handler: Handler) -> None:
    """`/chunks/N`: that many bytes, of which no length is told."""
    handler.begin(200, transfer_encoding="chunked", content_type="application/octet-stream")
    left = int(handler.names[1])
    while left:
        piece = min(left, 65536)
        handler.send(b"%x\r\n%s\r\n" % (piece, b"x" * piece))
        left -= piece
    handler.send(b"0\r\n\r\n")


@oddity
def coded(handler: Handler) -> None:
    """`/coded/WHAT`: gzip, members (two of them), short (cut off), garbage, other (a coding nobody asked for)."""
    whole = gzip.compress(b"hello, " * 1000)
    bodies = {
        "gzip": whole,
        "members": whole + gzip.compress(b"world"),
        "short": whole[:-20],
        "garbage": b"not gzip at all",
        "bomb": gzip.compress(bytes(8 << 20), 1),
    }
    coding = "zstd" if handler.names[1] == "other" else "gzip"
    handler.reply(200, bodies.get(handler.names[1], whole), content_encoding=coding)


@oddity
def odd_ranges(handler: Handler) -> None:
    """`/odd-ranges/WHAT`: a large body whose ranges are not those that are asked for."""
    size = 3 << 20
    headers = {"etag": '"1"', "accept_ranges": "bytes"}
    if handler.names[1] == "no-if-range" and handler.headers["range"]:
        headers["etag"] = '"2"'
    if not handler.headers["range"]:
        handler.reply(200, b"x" * size, **headers)
        return
    first, last = map(int, handler.headers["range"].removeprefix("bytes=").split("-"))
    right, length = f"bytes {first}-{last}", last - first + 1
    said, body = {
        "wrong-range": (f"bytes 0-{last - first}/{size}", length),
        "short-range": (f"{right}/{size}", 1000),
        "other-size": (f"{right}/{size + 1}", length),
    }.get(handler.names[1], (f"{right}/{size}", length))
    handler.reply(206, b"x" * body, content_range=said, **headers)


@oddity
def no_http(handler: Handler) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    handler.close_connection = True


@oddity
def once(handler: Handler) -> None:
    """Closes the connection after the answer without a word, as servers do with idle ones."""
    handler.reply(200, b"once")
    handler.close_connection = True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--log", type=Path, required=True)
    arguments = parser.parse_args()
    with Server(arguments.root, arguments.log) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
