"""SFTP sources as `~/.ssh/config` and the keys of the user configure them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import paramiko
import pytest
from programs import answers, free_port, wait_until

from bbfs.model.errors import BbfsError, ConfigError, Denied, LoginRequired, Unreachable
from bbfs.model.values import DataSource, Policy
from bbfs.sources import Services
from bbfs.sources.storage.handler import StorageHandler
from bbfs.sources.storage.sftp.ssh_config import host_of
from bbfs.testing import read_whole

RELAY = """
import os, socket, sys, threading
host, port = sys.argv[1:]
far = socket.create_connection((host, int(port)))
def back():
    while data := far.recv(65536):
        os.write(1, data)
threading.Thread(target=back, daemon=True).start()
while data := os.read(0, 65536):
    far.sendall(data)
"""
"""A program that connects its input and output to a server."""
SSH = """#!/bin/sh
echo "$@" >> {log}
while [ "$1" != -W ]; do shift; done
exec {python} {relay} $(echo "$2" | tr -d '[]' | tr : ' ')
"""
"""A stand-in of OpenSSH, which goes to the last host without any jump."""


class Server(NamedTuple):
    """A server of SFTP that takes one key. known_hosts: a line with its own key."""

    port: int
    key: Path
    known_hosts: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root, home = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("home")
    (root / "a.txt").write_bytes(b"alpha")
    key = paramiko.RSAKey.generate(2048)
    key.write_private_key_file(str(home / "key"))
    (home / "authorized").write_text(f"{key.get_name()} {key.get_base64()}\n")
    port = free_port()
    process = subprocess.Popen(
        ["rclone", "serve", "sftp", str(root), "--addr", f"127.0.0.1:{port}", "--authorized-keys", home / "authorized",
         "--config", home / "none", "--cache-dir", home],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(home)},
    )  # fmt: skip
    try:
        wait_until(lambda: answers(port), "the server listens", 20)
        with paramiko.Transport(("127.0.0.1", port)) as transport:
            transport.start_client(timeout=10)
            own = transport.get_remote_server_key()
        yield Server(port, home / "key", f"[127.0.0.1]:{port} {own.get_name()} {own.get_base64()}\n")
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], object]:
    """Make an empty home directory. Returns a function that writes a file of `~/.ssh`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir()
    return lambda name, text: (tmp_path / ".ssh" / name).write_text(text)


async def read(place: str, **options: str) -> bytes:
    """Return the content of the one file, after a listing that has it."""
    config = {"url": f"sftp://{place}/", "options": options}
    source = DataSource("far", "far", "storage", "bb", "bb-storage+far+sftp", policy=Policy(timeout=20), config=config)
    handler = StorageHandler(source, Services())
    try:
        listed = await handler.list_directory((place,))
        assert [each.name for each in listed.resources] == ["a.txt"]
        return await read_whole((await handler.load(f"sftp://{place}/a.txt")).parts[0].content)
    finally:
        await handler.aclose()


async def test_a_host_in_the_file_is_one(server: Server, ssh: Callable[[str, str], object]) -> None:
    ssh("known", server.known_hosts)
    ssh("of-work", f"Host far\n  HostName 127.0.0.1\n  Port {server.port}\n  UserKnownHostsFile ~/.ssh/known\n")
    ssh("config", f"Include of-*\nHost *\n  User anyone\n  IdentityFile {server.key}\n  IdentityFile ~/.ssh/none\n")
    assert await read("far") == b"alpha"


async def test_a_command_or_other_hosts_may_lead_there(
    server: Server, ssh: Callable[[str, str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh("known_hosts", server.known_hosts)
    ssh("relay.py", RELAY)
    relay, common = tmp_path / ".ssh/relay.py", f"  HostName 127.0.0.1\n  Port {server.port}\n"
    ssh(
        "config",
        f"Host by-command\n{common}  ProxyCommand {sys.executable} {relay} %h %p\n"
        f"Host by-hosts\n{common}  ProxyJump me@first:2222,second\n"
        f"Host by-nothing\n{common}  ProxyCommand /no/such/program %h\n"
        f"Host direct\n{common}  ProxyCommand none\n  ProxyJump none\n"
        f"Host *\n  IdentityFile {server.key}\n",
    )
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(SSH.format(log=tmp_path / "log", python=sys.executable, relay=relay))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for host in ("by-command", "by-hosts", "direct"):
        assert await read(host) == b"alpha"
    asked = f"-o BatchMode=yes -J ssh://me@first:2222 -W [127.0.0.1]:{server.port} -- ssh://second\n"
    assert (tmp_path / "log").read_text() == asked
    with pytest.raises(ConfigError, match="/no/such/program"):
        await read("by-nothing")


@pytest.mark.semantics("S23", "S30")
async def test_each_wrong_value_is_named(server: Server, ssh: Callable[[str, str], object], tmp_path: Path) -> None:
    place, key = f"127.0.0.1:{server.port}", str(server.key)
    ssh("other", "")
    paramiko.RSAKey.generate(2048).write_private_key_file(str(tmp_path / "other"))
    paramiko.RSAKey.generate(2048).write_private_key_file(str(tmp_path / "locked"), password="geheim")
    cases: list[tuple[str, dict[str, str], type[BbfsError], str]] = [
        (place, {"key_file": key}, Denied, "known_hosts"),
        (place, {"key_file": key, "known_hosts": "/no/file"}, ConfigError, "/no/file"),
        (place, {"key_file": "/no/key"}, ConfigError, "/no/key"),
    ]
    for place, options, kind, said in cases:
        with pytest.raises(kind, match=said):
            await read(place, **options)
    ssh("known_hosts", server.known_hosts)
    assert await read(place, key_file=key) == b"alpha"
    with pytest.raises(LoginRequired, match="there is no password, key or agent"):
        await read(place)
    with pytest.raises(LoginRequired, match="refuses this user"):
        await read(place, key_file=str(tmp_path / "other"))
    with pytest.raises(LoginRequired, match=r"auth\.passphrase"):
        await read(place, key_file=str(tmp_path / "locked"))
    with pytest.raises(LoginRequired, match="no private key"):
        await read(place, key_file="/etc/hostname")
    with pytest.raises(Unreachable, match="no such host"):
        await read("no-such-host.invalid", key_file=key)
    with pytest.raises(Unreachable, match="no server listens"):
        await read(f"127.0.0.1:{free_port()}", key_file=key)


@pytest.mark.parametrize(
    ("text", "said"), [("garbage\n", "garbage"), ("Port x\n", "'x'"), ("HostName -oProxyCommand=x\n", "no name")]
)
def test_a_configuration_that_cannot_be_used_says_why(ssh: Callable[[str, str], object], text: str, said: str) -> None:
    ssh("config", text)
    with pytest.raises(ConfigError, match=said):
        host_of("far", None, None)


def test_files_that_include_each_other_end(ssh: Callable[[str, str], object]) -> None:
    ssh("config", "Include config\nHost *\n  User me\n")
    assert host_of("far", 22, None).user == "me"
    assert host_of("far", 22, "you").user == "you"
