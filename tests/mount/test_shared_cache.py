"""Machines that share their contents: each a daemon with a home of its own, over the same server's definition."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from cache_server import CacheServer
from harness import Mount, Mounts, SourceTable, State, mcp
from programs import run, shell, wait_until
from repository import SERVERS
from scripted import ScriptedServer

CALLS = SERVERS / "calls.py"
FILES = [f"test://d/{number}" for number in range(20)]


@pytest.fixture
def cache() -> Iterator[CacheServer]:
    with closing(CacheServer()) as server:
        yield server


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
        # Their configurations lie in different directories, where each would start the server.
        source = {**source, "mcpConfig": {"cwd": "/", **source["mcpConfig"]}}
        mount = self._mounted(source, state=state, tables={"cache": table}, expected=expected)
        wait_until(lambda: "shared cache" in mount.log(), "the cache was tried")
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
    wait_until(lambda: len(cache.keys("entry")) == len(FILES) + 1, "all contents and the listing are shared")
    assert everything(two) == expected
    assert run("stat", "-c", "%s", file(two)).text == run("stat", "-c", "%s", file(one)).text
    assert server.reads() == len(FILES)
    one.stop()
    two.stop()
    cache.stop()
    again = machine(state=two.state, expected=("shared cache",))  # it has all of it on a disk of its own
    assert everything(again) == expected
    assert server.reads() == len(FILES)


def names(mount: Mount) -> list[str]:
    return run("ls", mount / "mcp-server+docs/test/d").text.split()


def test_the_second_machine_takes_the_listing_of_the_first(
    cache: CacheServer, mounted: Mounts, server: ScriptedServer
) -> None:
    fill(server)
    machine = Machines(mounted, server, cache.url)
    one, two = machine(), machine()
    assert len(names(one)) == len(FILES)
    wait_until(lambda: len(cache.keys("entry")) == 1, "the listing is shared")
    assert names(two) == names(one)
    assert server.lists() == 1
    server.add("test://d/new", "after a refresh\n")
    two.bbfs("refresh", two.path)
    wait_until(lambda: "new" in names(two), "a refresh asks the server itself")
    assert server.lists() == 2
    three = machine()
    wait_until(lambda: "new" in names(three), "the later listing is taken")
    assert server.lists() == 2
    assert run("cat", file(three, "new")).text == "after a refresh\n"
    server.add("test://d/announced", "announced\n")
    server.say("notifications/resources/list_changed")
    for mount in (one, two, three):
        wait_until(lambda mount=mount: "announced" in names(mount), "what is announced is seen")


def test_a_listing_that_is_damaged_or_written_to_is_each_machines_own(
    cache: CacheServer, mounted: Mounts, server: ScriptedServer
) -> None:
    fill(server)
    machine = Machines(mounted, server, cache.url)
    writing = {"capabilities": ["read", "list", "write"]}
    assert len(names(machine())) == len(names(machine(options=writing))) == len(FILES)
    assert server.lists() == 2
    wait_until(lambda: len(cache.keys("entry")) == 1, "the listing is shared")
    (entry,) = cache.keys("entry")
    cache.ask("hset", entry, "bytes", "damaged")
    assert len(names(machine(expected=("wrong digest",)))) == len(FILES)
    assert server.lists() == 3


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
    server.add("test://d/new", "after the outage\n")
    for mount in (one, two):
        mount.bbfs("refresh", mount.path)
    assert run("cat", file(one, "new")).text == run("cat", file(two, "new")).text == "after the outage\n"


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
    wait_until(lambda: len(cache.keys("entry")) == 2, "it and the listing are shared")
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
        wait_until(lambda: len(cache.keys("entry")) == 2, "a resource and the listing are shared, and nothing else")
        mount.stop()
    assert log.read_text().count("call count") == 2
    assert len(cache.keys("entry")) == 2
