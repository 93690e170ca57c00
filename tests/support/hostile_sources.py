"""Sources that answer as the author of an attack says: MCP over stdio, over HTTP and over SSE, and any HTTP server."""

import atexit
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import SourceTable, mcp
from programs import started_server
from repository import SERVERS

Source = Callable[[Path], SourceTable]
PATIENCE = 3
"""Seconds that a hostile source has for an answer."""
JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. `@ID@` in it stands for the id of the request, and `@N@` for a new number.

    body: made when the server starts. begins: bytes before it. endless: the body is sent again and again. aside: it
    comes beside the answer of a plain server. raw: body and beginning are all that is sent, without status and headers.
    harmless: the attack is another reply, so this one need not be asked for.
    """

    body: Callable[[], bytes] | bytes = b""
    begins: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    encodings: Sequence[str] = ()
    endless: bool = False
    aside: bool = False
    raw: bool = False
    harmless: bool = False

    def written(self, directory: Path, number: int) -> dict[str, Any]:
        """Write the bytes to files. Return the reply as JSON."""
        reply = {**asdict(self), "headers": dict(self.headers), "encodings": list(self.encodings)}
        made = {"body": self.body if isinstance(self.body, bytes) else self.body(), "begins": self.begins}
        for part, data in made.items():
            path = directory / f"{number}.{part}"
            path.write_bytes(data)
            reply[part] = str(path)
        return {**reply, "sent": str(directory / f"{number}.sent")}


def unsent(directory: Path) -> list[str]:
    """Return which of the replies in a directory were never asked for: such an attack has attacked nothing."""
    found: list[str] = []
    for path in directory.glob("plan*.json"):
        plan = json.loads(path.read_text())
        replies = plan.items() if isinstance(plan, dict) else plan
        found += [key for key, reply in replies if not reply["harmless"] and not Path(reply["sent"]).exists()]
    return found


def stdio(replies: Mapping[str, Reply], **options: Any) -> Source:
    """Return the source of an MCP server over stdio. replies: by method."""

    def source(directory: Path) -> SourceTable:
        plan = {method: reply.written(directory, number) for number, (method, reply) in enumerate(replies.items())}
        path = directory / "plan.json"
        path.write_text(json.dumps(plan))
        command = [sys.executable, "-E", "-S", SERVERS / "hostile_stdio.py", path]
        return mcp("hostile", command, **{"timeout": PATIENCE, **options})

    return source


def over_http(replies: Mapping[str, Reply], **options: Any) -> Source:
    """Return the source of an MCP server over Streamable HTTP. replies: by pattern of methods or `METHOD PATH`."""
    return lambda directory: _remote(serve(directory, replies), **options)


def over_sse(replies: Mapping[str, Reply], **options: Any) -> Source:
    """Return the source of an MCP server over HTTP+SSE. replies: by method; their bodies are events."""
    return lambda directory: _remote(
        serve(directory, {"GET /sse": Reply(harmless=True), **replies}) + "/sse", **options
    )


def _remote(url: str, **options: Any) -> SourceTable:
    return {"name": "hostile", "mcpConfig": {"url": url}, "timeout": PATIENCE, **options}


def serve(directory: Path, replies: Mapping[str, Reply]) -> str:
    """Start a server that lasts until `end_servers`. Return its URL. replies: by pattern of `METHOD PATH`."""
    plan = [(key, reply.written(directory, number)) for number, (key, reply) in enumerate(replies.items())]
    path = directory / f"plan-{len(_servers)}.json"
    path.write_text(json.dumps(plan))
    return f"http://127.0.0.1:{started('-S', SERVERS / 'hostile_http.py', path)}"


_servers: "list[subprocess.Popen[bytes]]" = []
"""The servers of the case at hand. Each is a process of its own: one that breaks harms no other case."""


def started(*words: str | Path) -> str:
    """Start a Python program that lasts until `end_servers`. Return its first line."""
    process, line = started_server(sys.executable, "-E", *words)
    _servers.append(process)
    return line


@atexit.register
def end_servers() -> None:
    while _servers:
        process = _servers.pop()
        process.kill()
        process.communicate()
