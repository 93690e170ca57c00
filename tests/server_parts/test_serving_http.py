"""HTTP of both servers: who is let in, and that slow clients keep no other out."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from forked_daemon import forked

from bbfs.knowledge.database.store import Store
from bbfs.server_parts.http import ListenError, token_of_file

MOST_FILES = 1024
SLOW_CLIENTS = 1100
UNREAD = 200
BOUND = 60.0
GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"accept": "application/json, text/event-stream"}


@dataclass(frozen=True)
class Served:
    """A server that runs. said: what it has written to standard error so far."""

    process: subprocess.Popen[str]
    errors: Path
    url: str

    @property
    def said(self) -> str:
        return self.errors.read_text()

    @property
    def token(self) -> str:
        """The token it has printed."""
        (token,) = re.findall(r"^bbfs\S*: clients show this token, which is new each time: (\S+)$", self.said, re.M)
        return token


Serve = Callable[..., AbstractContextManager[Served]]


@pytest.fixture(params=("data sources", "knowledge base"))
def serve_command(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The command line of a server, without the options of HTTP."""
    if request.param == "knowledge base":
        with Store(tmp_path / "kb.sqlite"):
            pass
        return ["bbfs.knowledge", "serve", "--db", str(tmp_path / "kb.sqlite")]
    return ["bbfs", "serve", "--config", os.devnull, "--dir", f"here={tmp_path}"]


@pytest.fixture
def serve(serve_command: list[str], tmp_path: Path) -> Serve:
    """Start it: `with serve("--http", …, files=1024) as served`; at the end it goes on SIGTERM, with success."""

    @contextmanager
    def run(*options: str, files: int | None = None, is_forked: bool = True) -> Iterator[Served]:
        def limit() -> None:
            if files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        environ = os.environ | {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "CACHE", "DATA")}
        errors = tmp_path / "stderr"
        words = ["-m", *serve_command, *options]
        line = forked(*words) if is_forked else [sys.executable, *words]  # a stand-in has another PID
        with (
            errors.open("w") as written,
            subprocess.Popen(
                line, stdout=subprocess.PIPE, stderr=written, text=True, env=environ, preexec_fn=limit
            ) as process,
        ):
            try:
                assert process.stdout is not None
                yield Served(process, errors, process.stdout.readline().strip())
                process.send_signal(signal.SIGTERM)
                assert process.wait(15) == 0
            finally:
                process.kill()

    return run


def status(url: str, **headers: str) -> int:
    """The status that a request with these headers gets; 200 for a proper one."""
    return httpx2.post(url, json=GREETING, headers={**ACCEPT, **headers}, timeout=BOUND).status_code


def reachable(url: str) -> str:
    return url.replace("0.0.0.0", "127.0.0.1")


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """This process may hold the connections of all slow clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * SLOW_CLIENTS)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def slow_clients(url: str, *begins: bytes) -> Iterator[None]:
    """Connections that have sent one of these, and then nothing more."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    with ExitStack() as stack:
        for begin in islice(cycle(begins), SLOW_CLIENTS):
            connection = stack.enter_context(socket.create_connection((parts.hostname, parts.port or 80), BOUND))
            connection.sendall(begin)
        yield


def test_beyond_loopback_a_token_and_a_known_name_are_needed(serve: Serve) -> None:
    with serve("--http", "0.0.0.0:0") as served:
        url = reachable(served.url)
        assert status(url) == 401
        bearer = {"authorization": f"Bearer {served.token}"}
        assert status(url, authorization=f"Bearer {served.token[:-1]}") == 401
        assert status(url, **bearer) == 200
        assert status(url, **bearer, host="rebound.example") == 421
        assert status(url, **bearer, host=f"{socket.gethostname()}:8000") == 200
        assert status(url, **bearer, origin="https://elsewhere.example") == 403
        assert status(url, **bearer, origin="http://localhost:3000") == 200


def test_on_loopback_without_a_token_no_web_page_gets_in(serve: Serve) -> None:
    with serve("--http", "127.0.0.1:0", "--no-token") as served:
        assert status(served.url) == 200
        assert status(served.url, host="rebound.example") == 421
        assert status(served.url, origin="https://elsewhere.example") == 403
        port = urlsplit(served.url).port
        for host in (f"127.0.0.1:{port}@evil", "127.0.0.1:", "127.0.0.1:x", "localhost:1/", "a@localhost"):
            assert status(served.url, host=host) == 421, host
        for origin in (
            "http://127.0.0.1:1.evil",
            "http://localhost:1@evil",
            "null",
            "http://localhost:1/x",
            "localhost",
        ):
            assert status(served.url, origin=origin) == 403, origin
        large = httpx2.post(served.url, content=b" " * ((4 << 20) + 1), headers=ACCEPT, timeout=BOUND)
        assert large.status_code == 413
        assert status(served.url) == 200


def test_the_token_of_a_file(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "token"
    with serve("--http", "0.0.0.0:0", "--token-file", str(file), "--host-name", "kb.example") as served:
        assert file.stat().st_mode & 0o777 == 0o600
        url, bearer = reachable(served.url), {"authorization": f"Bearer {file.read_text().strip()}"}
        assert status(url) == 401
        assert status(url, **bearer, host="kb.example") == 200
        assert status(url, **bearer, host=f"{socket.gethostname()}:8000") == 421
        assert "token" not in served.said


def test_slow_clients_lock_no_other_out(serve: Serve) -> None:
    head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    with serve("--http", "127.0.0.1:0", "--no-token", files=MOST_FILES) as served:
        with slow_clients(served.url, b"", head + b"X-Slow: ", head + b"Content-Length: 99\r\n\r\n{"):
            for _ in range(3):
                assert status(served.url) == 200
        assert served.said == ""


def test_a_client_that_reads_nothing_does_not_delay_the_end(serve: Serve) -> None:
    with serve("--http", "127.0.0.1:0", "--no-token") as served:
        parts = urlsplit(served.url)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((parts.hostname, parts.port))
            many = b"GET /none HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 2000
            client.settimeout(0.5)
            with suppress(TimeoutError):  # the server has stopped reading, too
                while True:
                    client.sendall(many)
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait(BOUND) == 0


def test_without_a_token_no_other_machine_is_served(serve_command: list[str], serve: Serve) -> None:
    line = forked("-m", *serve_command, "--http", "0.0.0.0:0", "--no-token")
    ended = subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert ended.returncode == 1
    assert re.search("without a token only programs of this machine may be served, not 0.0.0.0", ended.stderr)
    assert ended.stdout == ""


def test_a_token_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    token = token_of_file(str(file))
    assert token_of_file(str(file)) == token
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ListenError, match="belongs to another user"):
        token_of_file(str(file))


def memory(pid: int) -> int:
    """Return the bytes of a process in memory, at most so far."""
    return int(re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0]) << 10


def opened(url: str) -> str:
    """Begin a session of the handshake era, and return its id."""
    answer = httpx2.post(url, json=GREETING, headers=ACCEPT, timeout=BOUND)
    session = answer.headers["mcp-session-id"]
    notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    httpx2.post(url, json=notice, headers={**ACCEPT, "mcp-session-id": session}, timeout=BOUND)
    return session


@pytest.mark.timeout(240)
@pytest.mark.parametrize("serve_command", ["data sources"], indirect=True)
def test_answers_that_are_not_read_cost_bounded_memory_and_delay_no_other(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "large").write_bytes(b"large text\n" * 300_000)
    with serve("--http", "127.0.0.1:0", "--no-token", is_forked=False) as served, ExitStack() as stack:
        greedy, other = opened(served.url), opened(served.url)
        before, parts = memory(served.process.pid), urlsplit(served.url)
        call = {"uri": "bb-filesystem+here+file:./large"}
        body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": call}).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n"
            f"Content-Type: application/json\r\nmcp-session-id: {greedy}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        whole = httpx2.post(
            served.url, content=body, headers={**ACCEPT, "content-type": "application/json", "mcp-session-id": greedy}
        )
        assert len(whole.content) > 3_000_000, whole.text[:500]
        for _ in range(UNREAD):
            connection = stack.enter_context(socket.create_connection((parts.hostname or "", parts.port or 0), BOUND))
            connection.sendall(head + body)
        waited = 0.0
        for number in range(20):
            began = time.monotonic()
            ping = {"jsonrpc": "2.0", "id": number, "method": "tools/list"}
            answer = httpx2.post(served.url, json=ping, headers={**ACCEPT, "mcp-session-id": other}, timeout=BOUND)
            assert answer.status_code == 200
            waited = max(waited, time.monotonic() - began)
            time.sleep(0.1)
        grown = memory(served.process.pid) - before
        print(f"grown by {grown >> 20} MiB, longest wait {waited:.2f} s")
        assert grown < 400 << 20
        assert waited < 3
