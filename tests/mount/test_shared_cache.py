"""Machines that share their contents: each a daemon with a home of its own, over the same server's definition."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cache_server import CacheServer
from harness import Mount, Mounts
from programs import Program, run, shell, wait_until, waits_in_fuse
from scripted import ScriptedServer

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

    def __call__(self, *, expected: tuple[str, ...] = (), ttl: int = 3600, **cache: Any) -> Mount:
        source = self._server.source("docs", shared=True, ttl={"content": ttl, "listing": ttl}, timeout=10)
        table = {"shared": self._url, "shared_timeout": 10, **cache}  # a busy machine is no outage
        mount = self._mounted(source, tables={"cache": table}, expected=expected)
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
        wait_until(lambda mount=mount: "is there again" in mount.log(), "the cache is used again")


def test_a_cache_that_hangs_is_not_waited_for(cache: CacheServer, mounted: Mounts, server: ScriptedServer) -> None:
    fill(server)
    mount = Machines(mounted, server, cache.url)(expected=("shared cache",), shared_timeout=1)
    cache.pause()
    try:
        assert everything(mount).count("content of") == len(FILES)
        assert len(lines_about_the_cache(mount)) == 1
    finally:
        cache.go_on()


def test_a_wrong_password_is_one_line_and_nothing_else(
    guarded: CacheServer, mounted: Mounts, server: ScriptedServer
) -> None:
    fill(server)
    mount = Machines(mounted, server, guarded.url)(expected=("shared cache",), shared_password="battery staple")
    assert everything(mount).count("content of") == len(FILES)
    assert len(lines_about_the_cache(mount)) == 1
    assert "staple" not in mount.log()
