"""A web site of a test's own (`tests/support/servers/pages_http.py`), in a process of its own."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from programs import started_server
from repository import SERVERS

SCRIPT = SERVERS / "pages_http.py"


class WebSite:
    """A running server. root: the directory whose files it serves."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "site"
        self.root.mkdir()
        self._log = directory / "requests.log"
        self._log.touch()
        self._process, self.url = started_server(sys.executable, SCRIPT, self.root, "--log", self._log)

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def write(self, path: str, content: str | bytes, **headers: str | None) -> str:
        """Put a page there, whole or not at all; answers its URL. headers: `_` for `-`; None leaves one out."""
        where = self.root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        beside = where.with_name(where.name + ".headers")
        if headers:
            beside.write_text(json.dumps(headers))
        part = where.with_name(where.name + ".part")
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(part, where)
        return f"{self.url}/{path}"

    def requests(self, path: str | None = None) -> list[dict[str, Any]]:
        """The requests that were answered up to now: method, path, headers, status, sent."""
        found = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [each for each in found if path in (None, each["path"])]

    def await_requests(self, path: str, number: int, timeout: float = 10) -> list[dict[str, Any]]:
        """The requests for a path, once there are so many: an answer is noted after it was sent."""
        deadline = time.monotonic() + timeout
        while len(found := self.requests(path)) < number:
            assert time.monotonic() < deadline, f"only {len(found)} requests for {path}"
            time.sleep(0.01)
        return found

    def answer_robots(self, status: int) -> None:
        """From now on `/robots.txt` is answered with a status and nothing else."""
        (self.root / "robots.txt.status").write_text(str(status))

    def stall(self) -> None:
        """Let it answer nothing until `go_on`, though it takes connections."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=10)
