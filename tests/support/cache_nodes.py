"""Valkey or Redis servers of which several are one cache: the nodes of a cluster, and a primary with its sentinel."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cache_server import START_TIMEOUT, server_program
from certificates import certificate

HOST = "127.0.0.1"
STARTS = 5
GREETINGS = ("PONG", "NOAUTH Authentication required.")
USER, PASSWORD = "bbfs", "staple"
ACCESS = [
    *("~bbfs:*", "&bbfs:*", "+@read", "+@write", "+@scripting", "+@connection", "+@pubsub", "+time", "+info"),
    *("+role", "+cluster|slots"),
]
"""Of docs/operations.md."""

SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))
"""Of the nodes of a cluster."""


class Node:
    """One server on a TCP port of this machine. Its default user has no password; bbfs has a user of its own."""

    def __init__(self, directory: Path, *options: str, tls: Path | None = None, sentinel: str | None = None) -> None:
        self._tls = tls
        for _ in range(STARTS):
            self.port = _free_port()
            self._directory = directory / str(self.port)
            self._directory.mkdir()
            self._process = self._start(options, sentinel)
            started = self._until(lambda: self._process.poll() is not None or self.ask("PING") in GREETINGS)
            if started and self._process.poll() is None:
                return  # otherwise another program has taken the port meanwhile
        raise AssertionError(f"the server did not start:\n{self._log()}")

    def _start(self, options: tuple[str, ...], sentinel: str | None) -> "subprocess.Popen[bytes]":
        if sentinel is not None:  # a sentinel keeps its state in its configuration
            configuration = self._directory / "sentinel.conf"
            configuration.write_text(sentinel)
            options = (str(configuration), "--sentinel", *options)
        else:
            options = (*options, "--save", "", "--appendonly", "no", "--user", USER, "on", f">{PASSWORD}", *ACCESS)
        port = ["--port", "0", "--tls-port", str(self.port)] if self._tls else ["--port", str(self.port)]
        if self._tls:
            port += ["--tls-cert-file", str(self._tls), "--tls-key-file", str(self._tls.with_suffix(".key"))]
            port += [
                "--tls-auth-clients",
                "no",
                "--tls-ca-cert-file",
                str(self._tls),
                "--tls-cluster",
                "yes",
                "--tls-replication",
                "yes",
            ]
        command = [server_program(), *options, *port, "--bind", HOST, "--dir", str(self._directory)]
        with (self._directory / "log").open("wb") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def ask(self, *command: str) -> str:
        """What the server answers to a command of its default user."""
        client = shutil.which("valkey-cli") or shutil.which("redis-cli") or "redis-cli"
        tls = ["--tls", "--cacert", str(self._tls)] if self._tls else []
        done = subprocess.run(
            [client, "-h", HOST, "-p", str(self.port), *tls, *command],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def until(self, command: str, expected: str) -> None:
        """Wait until the answer to a command has a text."""
        done = self._until(lambda: expected in self.ask(*command.split()))
        assert done, f"not in time: {command} says {expected}\n{self._log()}"

    def _until(self, done: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.SubprocessError):
                if done():
                    return True
            time.sleep(0.02)
        return False

    def _log(self) -> str:
        return (self._directory / "log").read_text()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)


class Cluster:
    """Three nodes without replicas, with TLS, each with a third of the slots."""

    def __init__(self, directory: Path) -> None:
        self.certificate, _ = certificate(directory, HOST)
        self.nodes: list[Node] = []
        try:
            for _ in range(3):
                self.nodes.append(Node(directory, *_CLUSTER, tls=self.certificate))
            self.ids = [node.ask("CLUSTER", "MYID") for node in self.nodes]
            for node, (first, last) in zip(self.nodes, SLOTS, strict=True):
                node.ask("CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
            for node in self.nodes[1:]:
                port = str(self.nodes[0].port)
                node.ask("CLUSTER", "MEET", HOST, port)
            for node in self.nodes:
                node.until("CLUSTER INFO", "cluster_state:ok")
        except BaseException:
            self.close()
            raise

    def keys(self) -> list[int]:
        """How many keys each node has."""
        return [int(node.ask("DBSIZE")) for node in self.nodes]

    @contextlib.contextmanager
    def moving(self, key: str) -> Iterator[None]:
        """Move the slot of a key to another node; while this lasts, the keys are there, and the slot is on its way."""
        slot = self.nodes[0].ask("CLUSTER", "KEYSLOT", key)
        owner = next(number for number, (_, last) in enumerate(SLOTS) if int(slot) <= last)
        other = (owner + 1) % len(self.nodes)
        source, target = self.nodes[owner], self.nodes[other]
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[owner])
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[other])
        keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, "100").split("\n")
        source.ask("MIGRATE", HOST, str(target.port), "", "0", "10000", "REPLACE", "KEYS", *keys)
        yield
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", self.ids[other])

    def close(self) -> None:
        for node in self.nodes:
            node.kill()


_CLUSTER = ("--cluster-enabled", "yes", "--cluster-node-timeout", "60000", "--cluster-config-file", "nodes.conf")
"""A busy machine is no outage."""


def incomplete_cluster(directory: Path) -> Node:
    """A node of a cluster in which most slots have no node."""
    node = Node(directory, *_CLUSTER)
    node.ask("CLUSTER", "ADDSLOTSRANGE", "0", "100")
    return node


@contextlib.contextmanager
def short_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="bbfs-cache-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _free_port() -> int:
    """A port that is free, and whose port of the cluster's bus (10 000 above) exists and is free."""
    for _ in range(100):
        with socket.socket() as probe, socket.socket() as bus:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1] - 10_000 - os.getpid() % 1000
            with contextlib.suppress(OSError), socket.socket() as third:
                third.bind((HOST, port))
                bus.bind((HOST, port + 10_000))
                return port
    raise AssertionError("no free port")
