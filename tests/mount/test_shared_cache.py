"""Machines that share their contents: each a daemon with a home of its own, over the same server's definition."""

import contextlib
import re
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from cache_server import CacheServer
from harness import Mount, Mounts, SourceTable, State, mcp
from programs import Program, run, shell, wait_until, waits_in_fuse
from repository import SERVERS
from scripted import ScriptedServer

CALLS = SERVERS / "calls.py"
FILES = [f"test://d/{number}" for number in range(20)]


@pytest.fixture
def cache() -> Iterator[CacheServer]:
    server = CacheServer()
    yield server
    server.close()


@pytest.fixture
def guarded() -> Iterator[CacheServer]:
    server = CacheServer(password="correct horse")
    yield server
    server.close()


def fill(server: ScriptedServer) -> None:
    for uri in FILES:
        server.add(uri, f"the content of {uri}\n")


class Machines:
    """Mounts the same source, each time as another machine."""

    def __init__(self, mounted: Mounts, server: ScriptedServer, url: str) -> None:
        self._mounted, self._server, self._url = mounted, server, url

    def __call__(
        self,
        *,
        expected: tuple[str, ...] = (),
        state: State | None = None,
        source: SourceTable | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
        **cache: Any,
    ) -> Mount:
        """options: of the source. cache: keys of the table `cache`."""
        given = {"shared": True, "ttl": {"content": 3600, "listing": 3600}, "timeout": 10, **options}
        table = {"shared": self._url, "shared_timeout": 10, **cache}  # a busy machine is no outage
        source = source or self._server.source("docs", **given)
        mount = self._mounted(source, state=state, tables={"cache": table}, expected=expected)
        wait_until(lambda: "shared cache" in mount.log(), "the cache was tried", timeout=30)
        return mount


def file(mount: Mount, name: str = "0") -> Path:
    return mount / f"mcp-server+docs/test/d/{name}"


def everything(mount: Mount) -> str:
    return shell("cat mcp-server+docs/test/d/*", directory=mount.path).text


def lines_about_the_cache(mount: Mount) -> list[str]:
    return [line for line in mount.log().splitlines() if "shared cache" in line and "warning" in line.lower()]


def test_the_second_machine_reads_nothing_from_the_source(
    cache: CacheServer, mounted: Mounts, server: ScriptedServer
) -> None:
    fill(server)
    machine = Machines(mounted, server, cache.url)
    one, two = machine(), machine()
    expected = everything(one)
    assert server.reads() == len(FILES)
    wait_until(lambda: len(cache.keys("entry")) == len(FILES), "all contents are shared")
    assert everything(two) == expected
    assert run("stat", "-c", "%s", file(two)).text == run("stat", "-c", "%s", file(one)).text
    assert server.reads() == len(FILES)
    one.stop()
    two.stop()
    cache.stop()
    again = machine(state=two.state, expected=("shared cache",))  # it has all of it on a disk of its own
    assert everything(again) == expected
    assert server.reads() == len(FILES)


def test_what_two_miss_at_once_is_read_once(
    cache: CacheServer, mounted: Mounts, server: ScriptedServer, programs: type[Program]
) -> None:
    server.add("test://d/0", "slow\n")
    server.hang("test://d/0")
    machine = Machines(mounted, server, cache.url)
    one, two = machine(), machine()
    first = programs("cat", file(one))
    wait_until(lambda: server.reads() == 1, "the first machine asks the source")
    second = programs("cat", file(two))
    wait_until(lambda: waits_in_fuse(second.pid), "the second waits")
    server.release("test://d/0")
    assert (first.wait().text, second.wait().text) == ("slow\n", "slow\n")
    assert server.reads() == 1


def test_a_machine_that_dies_while_it_loads_holds_nobody_up(
    cache: CacheServer, mounted: Mounts, server: ScriptedServer, programs: type[Program]
) -> None:
    server.add("test://d/0", "slow\n")
    server.hang("test://d/0")
    machine = Machines(mounted, server, cache.url)
    one, two = machine(), machine()
    programs("cat", file(one))
    wait_until(lambda: server.reads() == 1, "the first machine asks the source")
    second = programs("cat", file(two))
    wait_until(lambda: waits_in_fuse(second.pid), "the second waits")
    one.kill()
    one.destroy()
    wait_until(lambda: server.reads() == 2, "the second machine asks the source")
    server.release("test://d/0")
    assert second.wait().text == "slow\n"


def test_a_change_that_one_is_told_of_reaches_the_other(
    cache: CacheServer, mounted: Mounts, server: ScriptedServer
) -> None:
    fill(server)
    machine = Machines(mounted, server, cache.url)
    one, two = machine(), machine()
    for mount in (one, two):
        everything(mount)
    before = server.reads()
    server.add("test://d/0", "something else, and longer than it was\n")
    server.say("notifications/resources/updated", uri="test://d/0")  # one of the two processes of the server says it
    for mount in (one, two):
        wait_until(lambda mount=mount: run("cat", file(mount)).text.startswith("something"), "the change is seen")
    assert "content of" in run("cat", file(one, "1")).text
    assert server.reads() == before + 1


def test_a_cache_that_dies_is_not_missed(cache: CacheServer, mounted: Mounts, server: ScriptedServer) -> None:
    fill(server)
    machine = Machines(mounted, server, cache.url)
    one, two = (machine(expected=("shared cache",)) for _ in range(2))
    assert "content of" in run("cat", file(one)).text
    cache.stop()
    assert everything(one) == everything(two)
    for mount in (one, two):
        wait_until(lambda mount=mount: lines_about_the_cache(mount), "the outage is in the log")
        assert len(lines_about_the_cache(mount)) == 1
    cache.start()
    for mount in (one, two):
        wait_until(lambda mount=mount: "is there again" in mount.log(), "the cache is used again", timeout=30)
    server.add("test://d/new", "after the outage\n")
    for mount in (one, two):
        mount.bbfs("refresh", mount.path)
    assert run("cat", file(one, "new")).text == run("cat", file(two, "new")).text == "after the outage\n"


@pytest.mark.parametrize("since", ["the mount", "a read"])
def test_a_cache_that_hangs_is_not_waited_for(
    cache: CacheServer, mounted: Mounts, server: ScriptedServer, since: str
) -> None:
    fill(server)
    machine = Machines(mounted, server, cache.url)
    try:
        if since == "the mount":
            cache.pause()
        mount = machine(expected=("shared cache",), shared_timeout=1)
        assert "content of" in run("cat", file(mount)).text
        cache.pause()
        assert everything(mount).count("content of") == len(FILES)
        assert len(lines_about_the_cache(mount)) == 1
    finally:
        cache.go_on()
    wait_until(lambda: re.search("is there again|in use", mount.log()), "the cache is used", timeout=60)
    assert everything(mount).count("content of") == len(FILES)


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[str]:
    """The URL of a server that speaks something else."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(1000)
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"unix://{tmp_path}/s"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    assert not thread.is_alive()


def test_a_server_that_is_none_is_one_line_and_nothing_else(
    stranger: str, mounted: Mounts, server: ScriptedServer
) -> None:
    fill(server)
    mount = Machines(mounted, server, stranger)(expected=("shared cache",))
    assert everything(mount).count("content of") == len(FILES)
    assert len(lines_about_the_cache(mount)) == 1


@pytest.mark.parametrize(
    ("mine", "others"),
    [({"env": {"TOKEN": "mine"}}, {"env": {"TOKEN": "others"}}), ({}, {"shared": False})],
    ids=["another token", "kept out"],
)
def test_what_is_for_one_users_eyes_is_no_other_ones(
    cache: CacheServer, mounted: Mounts, server: ScriptedServer, mine: dict[str, Any], others: dict[str, Any]
) -> None:
    server.add("test://d/0", "for my eyes\n")
    machine = Machines(mounted, server, cache.url)
    one, two = machine(options=mine), machine(options=others)
    assert run("cat", file(one)).text == "for my eyes\n"
    wait_until(lambda: len(cache.keys("entry")) == 1, "it is shared")
    assert all("mine" not in key for kind in ("entry", "epoch", "loading") for key in cache.keys(kind))
    server.add("test://d/0", "for other eyes\n")
    assert run("cat", file(two)).text == "for other eyes\n"
    assert server.reads() == 2


@pytest.mark.semantics("S31")
def test_results_of_tools_are_never_shared(
    cache: CacheServer, mounted: Mounts, server: ScriptedServer, tmp_path: Path
) -> None:
    log = tmp_path / "calls.log"
    source = mcp("docs", [sys.executable, "-I", CALLS, log], tools="read-only", shared=True)
    machine = Machines(mounted, server, cache.url)
    for _ in range(2):
        mount = machine(source=source, expected=("1 invalid entry",))
        assert run("cat", mount / "mcp-server+docs/tool/count?").text == "call 1 ."
        run("cat", mount / "mcp-server+docs/doc/guide")
        wait_until(lambda: len(cache.keys("entry")) == 1, "the resource is shared, and nothing else")
        mount.stop()
    assert log.read_text().count("call count") == 2
    assert len(cache.keys("entry")) == 1


def test_a_wrong_password_is_one_line_and_nothing_else(
    guarded: CacheServer, mounted: Mounts, server: ScriptedServer
) -> None:
    fill(server)
    mount = Machines(mounted, server, guarded.url)(expected=("shared cache",), shared_password="battery staple")
    assert everything(mount).count("content of") == len(FILES)
    assert len(lines_about_the_cache(mount)) == 1
    assert "staple" not in mount.log()
