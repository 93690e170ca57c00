"""`bbfs serve` on standard input and output, byte by byte: what no proper client sends."""

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from forked_daemon import forked
from harness import State, unexpected_lines

GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
FLOOD = 8000
"""Requests: more than twice as many as are taken before an answer is read (pipes hold 64 KiB, pipe(7))."""
Serve = Callable[..., Any]


def message(method: str, number: int | None = None, **params: Any) -> bytes:
    numbered = {} if number is None else {"id": number}
    return json.dumps({"jsonrpc": "2.0", **numbered, "method": method, "params": params}).encode() + b"\n"


@pytest.fixture
def serve(state: State, local: Path) -> Serve:
    """Runs `bbfs serve` over a folder; it must end by itself with its input, with success and without complaint."""

    @contextmanager
    def run() -> Iterator[subprocess.Popen[bytes]]:
        line = forked("-m", "bbfs", "serve", "--config", os.devnull, "--dir", f"local={local}")
        pipe = subprocess.PIPE
        process = subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, env=state.environ())
        with process:
            try:
                assert process.stdin is not None
                assert process.stderr is not None
                process.stdin.write(message("initialize", 0, **GREETING) + message("notifications/initialized"))
                process.stdin.flush()
                assert answer(process)["id"] == 0
                yield process
                process.stdin.close()
                assert process.wait(15) == 0
                assert unexpected_lines(process.stderr.read().decode(), []) == []
            finally:
                process.kill()

    return run


def answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


@pytest.mark.parametrize(
    ("line", "code", "number"),
    [
        (b"no json", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[" * 5_000, -32700, None),
        (b"[" * 100_000, -32600, None),  # refused unparsed
        (b"[]", -32600, None),
        (b"null", -32600, None),
        (b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": {"uri": "\\ud800"}}', -32600, 7),
        (b'{"jsonrpc": "2.0", "id": "x", "method": 5}', -32600, "x"),
    ],
)
def test_what_is_no_message_is_answered(serve: Serve, line: bytes, code: int, number: int | str | None) -> None:
    with serve() as process:
        process.stdin.write(line + b"\n" + message("ping", 1))
        process.stdin.flush()
        refusal = answer(process)
        assert (refusal["id"], refusal["error"]["code"]) == (number, code)
        assert answer(process) == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_no_response_is_answered(serve: Serve) -> None:
    """Or two sides could go on telling each other of errors."""
    with serve() as process:
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 5, "result": 5}\n{"jsonrpc": "1.0"}\n' + message("ping", 1))
        process.stdin.flush()
        assert answer(process)["id"] == 1


def test_a_flood_of_requests_waits_until_its_answers_are_read(serve: Serve) -> None:
    """No more is read than is answered: what a client does not read takes no memory without end."""
    with serve() as process:
        flood = b"".join(message("ping", number) for number in range(1, FLOOD + 1))
        descriptor = process.stdin.fileno()
        os.set_blocking(descriptor, False)
        sent = 0
        while select.select([], [descriptor], [], 0.5)[1]:  # until nothing more is taken
            sent += os.write(descriptor, flood[sent : sent + 4096])
            assert sent < len(flood)
        os.set_blocking(descriptor, True)
        rest = threading.Thread(target=lambda: _write_all(descriptor, flood[sent:]))
        rest.start()
        seen = {answer(process)["id"] for _ in range(FLOOD)}
        rest.join(30)
        assert seen == set(range(1, FLOOD + 1))


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


@pytest.mark.parametrize(("closed", "said"), [("<&-", "standard input"), (">&-", "standard output")])
def test_without_an_input_or_output_it_says_so(state: State, local: Path, closed: str, said: str) -> None:
    line = f'exec "$0" -m bbfs serve --config /dev/null --dir local="$1" {closed}'
    ended = subprocess.run(
        ["sh", "-c", line, sys.executable, str(local)],
        env=state.environ(),
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode in (1, 2)
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Warning" not in ended.stderr
