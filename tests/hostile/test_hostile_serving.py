"""A hostile client of the two MCP servers locks no other out, takes bounded memory, and gets an error that says why."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hostile_serving as hostile
import pytest

from bbfs.knowledge.database.store import Store

BOUND = 30.0
MEMORY = 300 << 20
"""Bytes that a server may take above its idle state."""
CONNECTIONS = 1100


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    port: int
    idle: int = 0
    session: str | None = None

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), BOUND)

    def send(self, data: bytes) -> bytes:
        """Send bytes on a connection of their own; return what comes back until it is closed, or its last chunk."""
        with self.connect() as connection:
            with suppress(OSError):
                connection.sendall(data)
            found = b""
            with suppress(OSError):
                while not found.endswith(b"\r\n0\r\n\r\n") and (piece := connection.recv(1 << 16)):
                    found += piece
            return found

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        head, _, body = self.send(hostile.post(hostile.request(method, params), self.session)).partition(b"\r\n\r\n")
        found = re.search(rb"\{.*\}", body, re.DOTALL)
        assert found is not None, (head, body[:1000])
        return json.loads(found[0])

    def memory(self) -> int:
        fields = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", fields)
        assert found is not None
        return int(found[1]) << 10

    def serves(self) -> None:
        """Check that another client is served at once, and that the memory is bounded."""
        begin = time.monotonic()
        assert "result" in self.ask("resources/list", {})
        assert time.monotonic() - begin < BOUND
        assert self.memory() - self.idle < MEMORY


@pytest.fixture(params=("data sources", pytest.param("knowledge base", marks=pytest.mark.thorough)))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "knowledge base":
        with Store(tmp_path / "kb.sqlite") as store:
            store.put("a", "b", b"text")
        line = ["bbfs.knowledge", "serve", "--db", str(tmp_path / "kb.sqlite")]
    else:
        (tmp_path / "here").mkdir()
        (tmp_path / "here/a.txt").write_text("text")
        (tmp_path / "empty.toml").touch()
        line = ["bbfs", "serve", "--config", str(tmp_path / "empty.toml"), "--dir", f"here={tmp_path / 'here'}"]
    environ = os.environ | {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "CACHE", "DATA")}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * CONNECTIONS)), hard))
    with (tmp_path / "log").open("w") as log, subprocess.Popen(
        ["/bin/sh", "-c", 'ulimit -n 1024; exec "$@"', "-", sys.executable, "-m", *line, "--http", "127.0.0.1:0",
         "--no-token"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=environ,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().rpartition(":")[2].partition("/")[0])
            served = Server(process, port)
            head = served.send(hostile.post(hostile.request("initialize", hostile.GREETING))).decode()
            found = re.search(r"mcp-session-id: (\S+)", head, re.IGNORECASE)
            assert found is not None
            served = Server(process, port, 0, found[1])
            served.send(hostile.post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', found[1]))
            assert "result" in served.ask("resources/list", {})
            yield Server(process, port, served.memory(), found[1])
            process.send_signal(signal.SIGTERM)
            assert process.wait(BOUND) == 0
            assert "Traceback" not in (tmp_path / "log").read_text()
        finally:
            process.kill()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.thorough
def test_bodies(server: Server) -> None:
    for name, body in hostile.bodies().items():
        answer = server.send(hostile.post(body))
        assert answer.startswith(b"HTTP/1.1 4"), (name, answer[:300])
        server.serves()
    server.send(hostile.byte_by_byte())
    server.serves()


def test_other_protocols(server: Server) -> None:
    for name, data in hostile.other_protocols().items():
        answer = server.send(data)
        assert not re.match(rb"HTTP/1.1 (101|2)|\x00\x00", answer), (name, answer[:300])
        server.serves()


def test_cursors(server: Server) -> None:
    for cursor in hostile.cursors():
        error = server.ask("resources/list", {"cursor": cursor})["error"]
        assert error["code"] == -32602, (cursor[:100], error)
        assert len(error["message"]) < 1000
    server.serves()


def test_calls(server: Server) -> None:
    for name, call in hostile.calls("here").items():
        answer = server.ask("tools/call", call)
        assert len(json.dumps(answer)) < 4 << 20, name
        if "error" in answer:
            assert answer["error"]["code"] in (-32602, -32700), (name, answer)
    server.serves()


def test_long_uris(server: Server) -> None:
    for uri in (
        "x" * 2_000_000,
        "resource://knowledge/" + "x" * 2_000_000 + "/stats",
        "bb-filesystem+here+file:./" + "a/" * 900_000,
    ):
        reference = {"type": "ref/resource", "uri": uri}
        for method, params in (
            ("resources/read", {"uri": uri}),
            ("completion/complete", {"ref": reference, "argument": {"name": "a", "value": "b"}}),
            ("resources/subscribe", {"uri": uri}),
        ):
            answer = server.ask(method, params)
            assert "error" in answer, (method, uri[:50])
            assert len(answer["error"]["message"]) < 1000
    answers = [
        server.ask("resources/subscribe", {"uri": f"{prefix}{number}"})
        for prefix in ("bb-filesystem+here+file:./", "resource://knowledge/a/document/")
        for number in range(3)
    ]
    assert sum("result" in answer for answer in answers) == 3
    server.serves()


def test_streams_and_sessions_that_are_never_closed(server: Server) -> None:
    initialize = hostile.post(hostile.request("initialize", hostile.GREETING))
    with ExitStack() as stack:
        for number in range(CONNECTIONS):
            connection = stack.enter_context(server.connect())
            with suppress(ConnectionError):
                connection.sendall(hostile.listen() if number % 2 else initialize)
            if number % 200 == 0:
                server.serves()
        server.serves()
