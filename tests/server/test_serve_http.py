"""`bbfs serve` as a program: over HTTP with its token, and its end."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from click.testing import CliRunner
from forked_daemon import forked
from harness import State, config_text, folder, mcp, unexpected_lines
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from programs import wait_until
from repository import SERVERS
from served import BOUND

from bbfs.cli import main

Start = Callable[..., Any]


@pytest.fixture
def start(state: State, tmp_path: Path) -> Start:
    """Starts `bbfs serve`; at the end it must end by itself or on SIGTERM, with success."""

    @contextmanager
    def run(
        *options: str, tables: tuple[dict[str, Any], ...] = (), prelude: str = ""
    ) -> Iterator[subprocess.Popen[str]]:
        config = tmp_path / "serve.toml"
        config.write_text(config_text(tables, {}))
        patient = f"import sys, bbfs.server.listing.resource_list\nbbfs.server.listing.resource_list.WAIT = {BOUND}"
        program = f"{patient}\n{prelude}\nfrom bbfs.cli import main\nmain(['serve', *sys.argv[1:]])"
        line = [sys.executable, "-c", program, "--config", str(config), *options]
        pipe = subprocess.PIPE
        process = subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=state.environ())
        with process:
            try:
                yield process
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                assert process.wait(15) == 0
                assert process.stderr is not None
                assert unexpected_lines(process.stderr.read(), [r"^bbfs: clients show this token"]) == []
            finally:
                process.kill()

    return run


def url_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def ask(url: str, **headers: str) -> int:
    """The status that a request with these headers gets, which is 200 for a proper one."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    async with httpx2.AsyncClient() as client:
        return (await client.post(url, json=body, headers={**accept, **headers})).status_code


# The SDK's HTTP client leaves generators to the garbage collector, which trio warns of.
@pytest.mark.filterwarnings("ignore:Async generator .* was garbage collected:ResourceWarning")
async def test_http(start: Start, local: Path, tmp_path: Path, sources: list[dict[str, Any]]) -> None:
    token_file = tmp_path / "token"
    with start("--http", "127.0.0.1:0", "--token-file", str(token_file), tables=tuple(sources)) as process:
        url = url_of(process)
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", url)
        assert token_file.stat().st_mode & 0o777 == 0o600
        token = token_file.read_text().strip()
        bearer = {"authorization": f"Bearer {token}"}
        with trio.fail_after(BOUND):
            assert await ask(url) == 401
            assert await ask(url, authorization="Bearer other") == 401
            assert await ask(url, authorization=f"Basic {token}") == 401
            assert await ask(url, **bearer, host="rebound.example") == 421
            assert await ask(url, **bearer, origin="https://elsewhere.example") == 403
            for era in ("legacy", "auto"):
                async with httpx2.AsyncClient(headers=bearer, timeout=BOUND) as http:
                    transport = streamable_http_client(url, http_client=http)
                    async with Client(transport, mode=era) as client:
                        arguments = {"format": "json", "directUris": ["bb-filesystem+local+file:./package.json"]}
                        result = await client.call_tool("load_resources", arguments)
                        assert result.structured_content is not None
                        (outcome,) = result.structured_content["resources"]
                        assert outcome["contents"][0]["text"] == '{"name": "demo"}\n'
                        arguments = {
                            "format": "json",
                            "uriTemplate": "mcp-server+kb+resource://knowledge/{collectionId}/document/{docId}",
                            "templateResources": [{"collectionId": "docker", "docId": "install"}],
                        }
                        result = await client.call_tool("load_resources", arguments)
                        assert result.structured_content is not None
                        (outcome,) = result.structured_content["resources"]
                        assert outcome["contents"][0]["text"] == "# Install\n"
                        listed = (await client.list_resources()).resources
                        assert len([each for each in listed if each.mime_type != "inode/directory"]) == 17


@pytest.mark.filterwarnings("ignore:Async generator .* was garbage collected:ResourceWarning")
async def test_streams_end_properly_when_the_server_stops(start: Start, local: Path) -> None:
    with start("--http", "127.0.0.1:0", tables=(folder("local", local),)) as process:
        url = url_of(process)
        assert process.stderr is not None
        token = process.stderr.readline().split()[-1]
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}) as http:
            with trio.fail_after(BOUND):
                async with (
                    Client(streamable_http_client(url, http_client=http), mode="auto") as client,
                    client.listen(resources_list_changed=True) as events,
                ):
                    process.send_signal(signal.SIGTERM)
                    # Raises SubscriptionLost if the stream just breaks off.
                    assert [event async for event in events] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--http", "0.0.0.0:0", "--no-token"], "without a token"),
        (["--http", "127.0.0.1:0", "--token-file", "readable"], "chmod 600"),
        (["--http", "127.0.0.1:0", "--token-file", "short"], "16 printable"),
        (["--http", "127.0.0.1:0", "--token-file", "short", "--no-token"], "either"),
        (["--token-file", "short"], "are for --http"),
        (["--http", "nowhere"], "HOST:PORT"),
    ],
)
def test_refusals(local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text, mode in (("readable", "0123456789abcdef0123\n", 0o644), ("short", "secret\n", 0o600)):
        Path(name).write_text(text)
        Path(name).chmod(mode)
    result = CliRunner().invoke(main, ["serve", "--config", os.devnull, "--dir", f"local={local}", *options])
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert "secret" not in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_an_address_that_is_taken_is_named(local: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(main, ["serve", "--config", os.devnull, "--dir", f"l={local}", "--http", address])
    assert result.exit_code == 1
    assert result.stderr == f"bbfs: --http {address}: Address already in use\n"


@pytest.mark.parametrize("way", ["end of input", "signal"])
def test_the_end_takes_all_along(start: Start, state: State, local: Path, way: str) -> None:
    """Without FUSE, too: the binding cannot be imported, and nothing asks for it."""
    tables = (folder("local", local), mcp("items", [sys.executable, SERVERS / "resources.py"]))
    greeting = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"name": "load_datasource", "arguments": {"dataSourceId": "items", "format": "json"}}
    with start(tables=tables, prelude="sys.modules['pyfuse3'] = None") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in (
            {"id": 1, "method": "initialize", "params": greeting},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": call},
        ):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()
        while "nextPageToken" not in (line := process.stdout.readline()) and "totalCount" not in line:
            assert line
        assert len(state.processes()) == 2
        if way == "end of input":
            process.stdin.close()
            assert process.wait(15) == 0
        else:
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
        assert state.processes() == []


@pytest.mark.parametrize("command", [("serve",), ("serve", "--http", "127.0.0.1:0"), ("mount", "mnt")])
def test_a_wrong_configuration_is_said_in_a_line(state: State, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Also where the log is as long as a configuration file has it."""
    (tmp_path / "mnt").mkdir()
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('[[sources]]\nname = "one"\ntype = "memory"\nconfig = {colour = "red"}\n')
    line = forked("-m", "bbfs", *command, "--config", wrong)
    ended = subprocess.run(
        line,
        env=state.environ(),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    (said,) = ended.stderr.splitlines()
    assert ": sources[one].config.colour: unknown option" in said


def test_a_host_gets_what_the_servers_of_the_sources_say_only_with_v(state: State, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    program = (
        f"import pathlib, sys; print('chatter', file=sys.stderr, flush=True); pathlib.Path({str(begun)!r}).touch()"
    )
    config = tmp_path / "chatty.toml"
    server = {"command": sys.executable, "args": ["-c", f"{program}; sys.stdin.read()"]}
    config.write_text(config_text(({"name": "a", "start": "eager", "mcpConfig": server},), {}))
    for options in (("-v",), ()):
        line = forked("-m", "bbfs", "serve", *options, "--config", config)
        with subprocess.Popen(
            line,
            env=state.environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as serving:
            assert serving.stderr is not None
            if options:
                assert "bbfs: info: bbfs.server.a: chatter\n" in iter(serving.stderr.readline, "")
            else:
                wait_until(begun.exists, "the server of the source has said something", 30)
            serving.terminate()
            assert ("chatter" in serving.communicate(timeout=60)[1], serving.returncode) == (False, 0)
        begun.unlink(missing_ok=True)


def test_an_output_that_nobody_reads_ends_it_quietly(state: State, local: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    line = forked("-m", "bbfs", "serve", "--config", os.devnull, "--dir", f"local={local}")
    with os.fdopen(writing, "wb") as output:
        ended = subprocess.run(
            [*line, "--http", "127.0.0.1:0"],
            env=state.environ(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (ended.returncode, ended.stderr) == (1, "")
