"""What servers tell of changes, in both eras and over every transport."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio
from forked_daemon import forked
from odd_servers import Odd, until
from repository import SERVERS

from bbfs.model.values import Change, McpServer, Policy
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.client.subscriptions import MAX_INTERESTS, Interests

PATIENT = Policy(timeout=20)
ITEM = "test://items/0000.txt"


@pytest.mark.semantics("S18")
async def test_notifications_of_the_handshake_era(manager: MCPManager, odd: Callable[..., Odd]) -> None:
    server = odd("changing")
    events: list[Change] = []
    manager.add("odd", server.server, PATIENT)
    manager.connection("odd").changes.subscribe(
        lambda change: None if change.event == "missed" and change.uri else events.append(change)
    )
    manager.connection("odd").interests.add("odd://a")
    await manager.load_resource("odd", "odd://a")
    await until(lambda: server.lines("resources/subscribe") == ["resources/subscribe odd://a"])
    assert events == []
    manager.connection("odd").interests.add("odd://c")
    manager.connection("odd").interests.add("odd://a")
    await until(lambda: "resources/subscribe odd://c" in server.lines())
    assert len(server.lines("resources/subscribe")) == 2
    await manager.load_resource("odd", "odd://b")
    await until(lambda: len(events) == 2)
    assert set(events) == {Change("odd", "listed"), Change("odd", "changed", "odd://a")}


@pytest.mark.semantics("S18")
def test_what_was_answered_before_its_changes_are_reported_is_named_once() -> None:
    begun: list[str | None] = []
    interests = Interests(begun.append)
    interests.requested("a")
    interests.requested("a")
    interests.requested("refused")
    interests.answered(listing=True, told=("a", "b"), asked=("a", "b", "refused"))
    interests.requested("b")
    interests.answered(listing=True, told=("a", "b"), asked=("a", "b", "refused"))
    assert begun == ["a"]
    interests.disconnected()
    interests.requested("b")
    interests.answered(listing=True, told=("b",), asked=("b",))
    assert begun == ["a", "b"]
    for number in range(3 * MAX_INTERESTS):
        interests.requested(str(number))
    interests.answered(listing=True, told=map(str, range(3 * MAX_INTERESTS)), asked=None)
    assert len(begun) == 2 + MAX_INTERESTS


@pytest.mark.semantics("S18.6")
def test_a_listing_that_was_requested_before_its_changes_are_reported_is_named_once() -> None:
    begun: list[str | None] = []
    interests = Interests(begun.append)
    interests.answered(listing=True, told=(), asked=())
    assert begun == [], "there is no listing yet"
    interests.listed()
    interests.disconnected()
    interests.answered(listing=True, told=(), asked=())
    assert begun == [], "this one was requested from a server that reports changes"
    interests.disconnected()
    interests.listed()
    interests.answered(listing=False, told=(), asked=())
    assert begun == []
    for _ in range(2):
        interests.answered(listing=True, told=(), asked=())
        assert begun == [None]


@pytest.mark.semantics("S18")
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (("--transport", "stdio"), "listen"),
        (("--transport", "http"), "listen"),
        (("--transport", "http", "--handshake-only"), "subscribe"),
        (("--transport", "sse"), "listen"),
    ],
    ids=str,
)
async def test_updates_reach_the_sink(
    manager: MCPManager,
    serve: Callable[..., AbstractAsyncContextManager[str]],
    tmp_path: Path,
    options: tuple[str, ...],
    asked: str,
) -> None:
    counters = tmp_path / "counters"
    events: list[Change] = []

    async def exercise(server: McpServer) -> None:
        manager.add("sdk", server, PATIENT)
        manager.connection("sdk").changes.subscribe(events.append)
        await manager.list_resources("sdk")
        manager.connection("sdk").interests.add(ITEM)
        await until(lambda: f"{asked} {ITEM}" in counters.read_text().splitlines())
        await manager.load_resource("sdk", "test://control/touch")
        await until(lambda: {Change("sdk", "listed"), Change("sdk", "changed", ITEM)} <= set(events))

    arguments = (*options, "--counters", str(counters))
    if "stdio" in options:
        command, *args = forked(SERVERS / "resources.py", *arguments)
        await exercise(McpServer("stdio", command=command, args=tuple(args)))
    else:
        async with serve("resources.py", *arguments) as url:
            await exercise(McpServer("sse" if "sse" in options else "http", url=url))


@pytest.mark.semantics("S18.4")
async def test_reconnecting_says_that_anything_may_have_changed(manager: MCPManager, odd: Callable[..., Odd]) -> None:
    events: list[Change] = []
    manager.add("odd", odd("crash-idle").server, PATIENT)
    manager.connection("odd").changes.subscribe(events.append)
    await manager.load_resource("odd", "odd://a")
    await until(lambda: manager.connection("odd").state.state == "down")
    assert events == []
    await manager.list_resources("odd")
    assert events == [Change("odd", "missed")]


async def test_listener_that_fails_harms_nobody(
    manager: MCPManager, odd: Callable[..., Odd], caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Change] = []
    manager.add("odd", odd("changing").server, PATIENT)
    manager.connection("odd").changes.subscribe(lambda event: [][1])
    manager.connection("odd").changes.subscribe(events.append)
    await manager.load_resource("odd", "odd://b")
    await until(lambda: len(events) == 2)
    assert "IndexError" in caplog.text
    await manager.list_resources("odd")


async def test_interests_are_the_latest_ones() -> None:
    interests = Interests()
    for number in range(MAX_INTERESTS):
        interests.add(f"u:{number}")
    changed = interests.changed
    interests.add("u:0")
    assert not changed.is_set()
    interests.add("u:new")
    assert changed.is_set()
    assert len(interests.uris) == MAX_INTERESTS
    assert "u:0" in interests.uris
    assert "u:1" not in interests.uris


async def test_thousands_of_interests_are_bounded(manager: MCPManager, odd: Callable[..., Odd]) -> None:
    server = odd("none")
    manager.add("odd", server.server, PATIENT)
    for number in range(3 * MAX_INTERESTS):
        manager.connection("odd").interests.add(f"odd://{number}")
    await manager.list_resources("odd")
    with trio.fail_after(60):
        await until(lambda: len(server.lines("resources/subscribe")) == MAX_INTERESTS)
    assert server.lines("resources/unsubscribe") == []
