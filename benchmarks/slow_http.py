"""A folder over HTTP/1.1 on 127.0.0.1, each file a while after it is asked for: `slow_http.py FOLDER --delay SECONDS`

The first line on stdout is the URL. Directories are answered at once, as pages of links; GET (with one range or none)
and HEAD of a file take the delay. Connections are kept, any number are served at once, and nothing waits for
acknowledgements (Nagle's algorithm is off).
"""

import argparse
import functools
import http.server
import re
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote

RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, root: Path, delay: float, *arguments: Any) -> None:
        self._root, self._delay = root, delay
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        path = self._root / unquote(self.path).strip("/")
        if path.is_dir():
            names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in path.iterdir())
            page = "".join(f'<a href="{name}">{name}</a>\n' for name in names).encode()
            self._send(HTTPStatus.OK, page, {"Content-Type": "text/html"}, body=body)
            return
        time.sleep(self._delay)
        data = path.read_bytes() if path.is_file() else None
        if data is None:
            self._send(HTTPStatus.NOT_FOUND, b"", {}, body=body)
            return
        headers = {"Accept-Ranges": "bytes", "Last-Modified": self.date_time_string(int(path.stat().st_mtime))}
        if asked := RANGE.fullmatch(self.headers.get("Range", "")):
            first, last = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            self._send(HTTPStatus.PARTIAL_CONTENT, data[first : last + 1], headers, body=body)
        else:
            self._send(HTTPStatus.OK, data, headers, body=body)

    def _send(self, status: HTTPStatus, data: bytes, headers: dict[str, str], *, body: bool) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(data))}).items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: it would be part of what is measured."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--delay", type=float, default=0.02)
    options = parser.parse_args()
    handler = functools.partial(Handler, options.folder, options.delay)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
