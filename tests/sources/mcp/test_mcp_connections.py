"""The life of a connection: made, kept, given up, made again. The clock jumps, the server is in memory."""

import itertools
import logging

import mcp_types as types
import pytest
import trio
import trio.testing
from memory_server import Linked, MemoryServer
from trio.testing import MockClock

from bbfs.model.errors import NotSupported, ProtocolViolation, Unreachable
from bbfs.model.values import Change, DataSource, Loaded, McpServer
from bbfs.sources import Services
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.handler import McpHandler

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
LISTED = ["memory://a"]
MISSED = Change("memory", "missed")


def heard(manager: MCPManager) -> list[Change]:
    events: list[Change] = []
    manager.connection("memory").changes.subscribe(events.append)
    return events


async def listed(manager: MCPManager) -> list[str]:
    return [entry.uri for entry in (await manager.list_resources("memory")).entries]


async def test_lazy_server_is_not_started_without_a_request(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked()
    await trio.sleep(1000)
    assert (server.tries, manager.connection("memory").state.state) == (0, "idle")


@pytest.mark.semantics("S24")
async def test_eager_server_is_started_and_kept(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(start="eager", idle_timeout=60.0)
    await trio.sleep(0.1)
    assert manager.connection("memory").state.state == "up"
    await trio.sleep(3600)
    assert (server.tries, server.connected) == (1, 1), "idleness does not end it"
    server.crash()
    await trio.sleep(0.1)
    assert (server.tries, server.connected) == (2, 1), "the first loss may be an accident"
    assert server.methods("resources/list", "resources/read") == []
    assert manager.connection("memory").counts["list"] == 0


@pytest.mark.semantics("S24.1")
async def test_eager_server_that_is_dead_is_tried_less_and_less(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(obstacle=Unreachable("not yet"), start="eager")
    tries: list[int] = []
    for _ in range(10):
        await trio.sleep(60)
        tries.append(server.tries)
        assert manager.connection("memory").state.state in ("down", "connecting")
    assert 6 <= tries[0] <= 8
    assert all(later - earlier == 1 for earlier, later in itertools.pairwise(tries[4:]))
    server.obstacle = None
    await trio.sleep(60)
    assert manager.connection("memory").state.state == "up"


REFUSED = types.ErrorData(
    code=types.UNSUPPORTED_PROTOCOL_VERSION,
    message="not this one",
    data={"supported": ["2026-07-28"], "requested": "?"},
)


@pytest.mark.semantics("S24.4")
async def test_version_that_a_server_refuses_and_names_is_offered_again(
    linked: Linked, autojump_clock: MockClock
) -> None:
    server, manager = await linked(modern=True)
    server.results["server/discover"] = [REFUSED, None, None]
    assert await listed(manager) == LISTED
    assert server.methods("server/discover", "initialize") == ["server/discover"] * 2
    server.results["resources/list"] = [REFUSED, None]
    assert await listed(manager) == LISTED, "a server that was replaced is greeted again"
    assert (server.tries, manager.connection("memory").state.protocol_version) == (2, "2026-07-28")


@pytest.mark.semantics("S24.4")
async def test_modern_server_that_is_slow_at_first_is_not_given_up(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(modern=True)
    server.delays["server/discover"] = 12
    server.results["initialize"] = types.ErrorData(code=-32020, message="Missing MCP-Protocol-Version header")
    assert await listed(manager) == LISTED
    assert server.methods("server/discover", "initialize") == ["server/discover", "initialize", "server/discover"]


async def test_server_that_works_between_crashes_starts_again_soon(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked()
    for crash in range(20):
        assert await listed(manager) == LISTED
        server.crash()
        await trio.testing.wait_all_tasks_blocked()
        assert manager.connection("memory").state.state == "down"
        await trio.sleep(0.76 if crash else 0)
    assert server.tries == 20


@pytest.mark.semantics("S24")
async def test_server_that_never_works_is_started_less_and_less(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(start="eager")
    for _ in range(2000):
        if server.connected:
            server.crash()
        await trio.sleep(0.1)
    assert server.tries <= 12
    assert manager.connection("memory").state.state == "down"


async def test_idle_connection_is_ended_and_made_again(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(idle_timeout=100.0)
    events = heard(manager)
    assert await listed(manager) == LISTED
    await trio.sleep(99)
    assert await listed(manager) == LISTED
    await trio.sleep(99)
    assert server.connected == 1
    assert server.methods("ping"), "pings do not count as use"
    await trio.sleep(2)
    assert server.connected == 0
    state = manager.connection("memory").state
    assert (state.state, state.reason, state.protocol_version) == ("idle", None, "2025-06-18")
    assert await listed(manager) == LISTED
    assert server.tries == 2
    assert manager.connection("memory").counts["list"] == 3
    assert events == [], "a server that tells of nothing has told of nothing meanwhile"


async def test_idle_timeout_of_zero_is_never(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(idle_timeout=0.0)
    await listed(manager)
    await trio.sleep(80_000)
    assert (server.tries, server.connected) == (1, 1)


async def test_long_request_is_not_idle(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(idle_timeout=100.0, timeout=2000)
    server.delays["resources/read"] = 1000
    assert (await manager.load_resource("memory", "memory://a")).parts
    assert server.tries == 1


@ERAS
async def test_a_connection_that_subscribes_is_not_idle(
    linked: Linked, autojump_clock: MockClock, modern: bool
) -> None:
    server, manager = await linked(modern=modern, subscribe=True, idle_timeout=100.0)
    manager.connection("memory").interests.add("memory://a")
    await listed(manager)
    await trio.sleep(1000)
    assert (server.tries, server.connected) == (1, 1)


async def test_refused_subscriptions_do_not_keep_a_connection(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(subscribe=True, idle_timeout=100.0)
    server.results["resources/subscribe"] = types.ErrorData(code=types.INVALID_PARAMS, message="no")
    manager.connection("memory").interests.add("memory://a")
    await listed(manager)
    await trio.sleep(101)
    assert server.connected == 0
    assert len(server.methods("resources/subscribe")) == 1


@pytest.mark.semantics("S18")
async def test_changes_may_be_missed_while_idle(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(listed=True, idle_timeout=100.0)
    events = heard(manager)
    await listed(manager)
    await trio.sleep(101)
    assert (server.connected, events) == (0, [])
    await listed(manager)
    assert events == [MISSED]


@pytest.mark.parametrize(("modern", "method"), [(False, "ping"), (True, "server/discover")])
async def test_silent_server_is_pinged(linked: Linked, autojump_clock: MockClock, modern: bool, method: str) -> None:
    server, manager = await linked(modern=modern, idle_timeout=0.0)
    await listed(manager)
    before = len(server.sent)
    await trio.sleep(301)
    assert server.methods()[before:] == [method] * 10
    assert (manager.connection("memory").counts["list"], manager.connection("memory").counts["read"]) == (1, 0)


async def test_server_that_talks_is_not_pinged(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(idle_timeout=0.0)
    await listed(manager)
    for _ in range(20):
        await trio.sleep(20)
        server.say("notifications/message", level="info", data="here")
    assert server.methods("ping") == []


@ERAS
async def test_refusal_of_a_ping_is_an_answer(linked: Linked, autojump_clock: MockClock, modern: bool) -> None:
    server, manager = await linked(modern=modern, idle_timeout=0.0)
    await listed(manager)
    refusal = types.ErrorData(code=types.METHOD_NOT_FOUND, message="no such method")
    server.results |= {"ping": refusal, "server/discover": refusal}
    await trio.sleep(1000)
    assert (server.tries, manager.connection("memory").state.state) == (1, "up")


@pytest.mark.semantics("S24.2")
async def test_server_that_answers_nothing_is_given_up(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked()
    await listed(manager)
    server.thawed = trio.Event()
    await trio.sleep(59)
    assert (server.connected, manager.connection("memory").state.state) == (1, "up")
    await trio.sleep(2)
    assert (server.connected, manager.connection("memory").state.state) == (0, "down")
    assert "answered nothing for 60 seconds" in (manager.connection("memory").state.reason or "")
    server.thawed.set()
    assert await listed(manager) == LISTED
    assert server.tries == 2


@pytest.mark.semantics("S24.2")
async def test_requests_that_keep_coming_do_not_keep_a_hung_server(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked()
    await listed(manager)
    server.thawed = trio.Event()
    lost: list[float] = []

    async def ask() -> None:
        with trio.move_on_after(30):
            await listed(manager)

    async with trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(ask)
            await trio.sleep(5)
            if server.tries > 1:
                lost.append(trio.current_time())
                server.thawed.set()
                break
    assert lost
    assert await listed(manager) == LISTED


async def test_request_on_a_lost_connection_fails_or_is_tried_again(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked()
    await listed(manager)
    server.thawed = trio.Event()
    await trio.sleep(40)  # the ping is under way
    server.obstacle = Unreachable("gone for good")
    started = trio.current_time()
    with pytest.raises(Unreachable):
        await listed(manager)
    assert trio.current_time() - started < 30, "it does not wait for its own deadline"


async def test_what_was_read_outlives_its_connection(
    linked: Linked, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load asks nothing of a server that has answered it and has left since."""
    server, manager = await linked()
    read = manager.load_resource

    async def leave(server_id: str, native_uri: str) -> Loaded:
        loaded = await read(server_id, native_uri)
        server.obstacle = Unreachable("gone")
        server.crash()
        await trio.testing.wait_all_tasks_blocked()
        return loaded

    monkeypatch.setattr(manager, "load_resource", leave)
    mcp = McpServer("stdio", command="memory")
    source = DataSource("read", "read", "server", "mcp", "mcp-server+read", mcp=mcp)
    handler = McpHandler(source, Services(mcp=manager))
    loaded = await handler.load("memory://a")
    assert (loaded.parts[0].content.read(0, 9), server.tries) == (b"text", 1)


async def test_server_that_is_busy_is_not_given_up(linked: Linked, autojump_clock: MockClock) -> None:
    """It does one thing after the other: the ping waits behind a long read."""
    server, manager = await linked(timeout=30)
    server.delays["resources/read"] = 250
    assert (await manager.load_resource("memory", "memory://a")).parts
    assert (server.tries, manager.connection("memory").state.state) == (1, "up")
    await trio.sleep(200)
    assert server.tries == 1


async def test_roots_are_told_where_configured(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(roots=("/home/me/notes", "/srv/a b"))
    await listed(manager)
    _, params = next(sent for sent in server.sent if sent[0] == "initialize")
    assert params["capabilities"] == {"roots": {}}
    server.ask("roots/list")
    await trio.testing.wait_all_tasks_blocked()
    (answer,) = server.answers
    assert isinstance(answer, types.JSONRPCResponse)
    assert answer.result["roots"] == [
        {"uri": "file:///home/me/notes", "name": "notes"},
        {"uri": "file:///srv/a%20b", "name": "a b"},
    ]


async def test_what_bbfs_cannot_do_is_refused_and_logged_once(
    linked: Linked, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bbfs")
    server, manager = await linked()
    await listed(manager)
    _, params = next(sent for sent in server.sent if sent[0] == "initialize")
    assert params["capabilities"] == {}
    asked = ("roots/list", "sampling/createMessage", "elicitation/create", "tasks/unheard-of")
    for _ in range(5):
        for method in asked:
            server.ask(method, messages=[], maxTokens=1)
        await trio.testing.wait_all_tasks_blocked()
    server.crash()
    await listed(manager)
    server.ask("sampling/createMessage")
    await trio.testing.wait_all_tasks_blocked()
    assert len(server.answers) == 21
    for answer in server.answers:
        assert isinstance(answer, types.JSONRPCError)
        assert answer.error.code == types.METHOD_NOT_FOUND
    lines = [record.message for record in caplog.records if "refused" in record.message]
    assert len(lines) == 3
    assert all(line.startswith("memory: ") for line in lines)
    assert sum("sampling/createMessage" in line and "no language model" in line for line in lines) == 1


async def test_malformed_request_of_a_server_gets_an_error(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(roots=("/srv",))
    await listed(manager)
    server.ask("roots/list", _meta=7)
    await trio.testing.wait_all_tasks_blocked()
    (answer,) = server.answers
    assert isinstance(answer, types.JSONRPCError)
    assert answer.error.code == types.INVALID_PARAMS
    assert await listed(manager) == LISTED


def asks_for(state: str | None = None, **requests: str) -> dict[str, object]:
    """A result of protocol 2026-07-28 that needs input first."""
    inputs = {key: {"method": method, "params": {}} for key, method in requests.items()}
    result: dict[str, object] = {"resultType": "input_required"}
    return result | ({"inputRequests": inputs} if inputs else {}) | ({"requestState": state} if state else {})


async def test_input_that_bbfs_has_is_given(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(modern=True, roots=("/srv",))
    server.results["resources/read"] = [asks_for("s1", where="roots/list"), asks_for("s2"), None]
    assert (await manager.load_resource("memory", "memory://a")).parts
    first, second, third = (params for method, params in server.sent if method == "resources/read")
    assert first["_meta"]["io.modelcontextprotocol/clientCapabilities"]["roots"] == {}
    assert "inputResponses" not in first
    assert second["inputResponses"] == {"where": {"roots": [{"uri": "file:///srv", "name": "srv"}]}}
    assert (second["requestState"], second["uri"]) == ("s1", "memory://a")
    assert (third["requestState"], third.get("inputResponses")) == ("s2", None)
    assert manager.connection("memory").counts["read"] == 1


@pytest.mark.parametrize(
    ("roots", "requests", "reason"),
    [
        ((), {"a": "elicitation/create"}, "cannot ask its user"),
        ((), {"a": "sampling/createMessage"}, "no language model"),
        ((), {"a": "roots/list"}, "no roots configured"),
        (("/srv",), {"a": "roots/list", "b": "elicitation/create"}, "elicitation/create"),
        (("/srv",), {"a": "dance/now"}, "dance/now"),
    ],
)
@pytest.mark.semantics("S23")
async def test_input_that_bbfs_has_not_is_an_error(
    linked: Linked, autojump_clock: MockClock, roots: tuple[str, ...], requests: dict[str, str], reason: str
) -> None:
    server, manager = await linked(modern=True, roots=roots)
    server.results["resources/read"] = asks_for(**requests)
    with pytest.raises(NotSupported, match=reason):
        await manager.load_resource("memory", "memory://a")
    assert len(server.methods("resources/read")) == 1
    assert manager.connection("memory").state.state == "up"


async def test_server_that_asks_for_input_without_end(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(modern=True)
    server.results["resources/read"] = asks_for("again")
    with pytest.raises(NotSupported, match="still asks"):
        await manager.load_resource("memory", "memory://a")
    assert len(server.methods("resources/read")) == 11


def subscribed(server: MemoryServer) -> list[list[str]]:
    """The URIs that each request so far subscribed to."""
    return [
        [params["uri"]] if "uri" in params else params["notifications"].get("resourceSubscriptions", [])
        for method, params in server.sent
        if method in ("resources/subscribe", "subscriptions/listen")
    ]


@ERAS
@pytest.mark.semantics("S18.7")
async def test_a_walk_through_thousands_of_resources_is_a_handful_of_subscriptions(
    linked: Linked, autojump_clock: MockClock, modern: bool
) -> None:
    server, manager = await linked(modern=modern, subscribe=True)
    await listed(manager)
    uris = [f"memory://{number}" for number in range(2000)]
    for uri in uris:  # in 20 seconds
        manager.connection("memory").interests.add(uri)
        await manager.load_resource("memory", uri)
        await trio.sleep(0.01)
    asked = subscribed(server)
    assert len(asked) <= (7 if modern else 5 * 64)
    await trio.sleep(16)
    asked = subscribed(server)
    latest = asked[-1] if modern else [uri for uris in asked for uri in uris]
    assert set(latest) >= set(uris[-256:])
    unsubscribed = len(server.methods("resources/unsubscribe"))
    assert len(latest) - unsubscribed == 256


@ERAS
@pytest.mark.semantics("S18.6", "S18.7")
async def test_the_first_read_after_a_calm_second_comes_after_its_subscription_and_others_do_not_wait(
    linked: Linked, autojump_clock: MockClock, modern: bool
) -> None:
    server, manager = await linked(modern=modern, subscribe=True)
    server.delays = {"resources/subscribe": 0.05, "subscriptions/listen": 0.05}
    events = heard(manager)
    await listed(manager)
    await trio.sleep(2)
    connection = manager.connection("memory")
    began = trio.current_time()
    for name in "ab":
        connection.interests.add(f"memory://{name}")
        await manager.load_resource("memory", f"memory://{name}")
    assert trio.current_time() - began == pytest.approx(0.05)
    assert (subscribed(server)[-1], events) == (["memory://a"], [])
    await trio.sleep(1.1)
    assert "memory://b" in subscribed(server)[-1]
    assert events == [Change("memory", "missed", "memory://b")]
    connection.interests.add("memory://c")
    with trio.fail_after(1.1):
        await connection.interests.confirmed()


@ERAS
@pytest.mark.semantics("S18.4")
async def test_reconnecting_subscribes_and_tells_a_gap(linked: Linked, autojump_clock: MockClock, modern: bool) -> None:
    server, manager = await linked(modern=modern, subscribe=True)
    events = heard(manager)
    for name in "abc":
        manager.connection("memory").interests.add(f"memory://{name}")
    await listed(manager)
    await trio.sleep(1)
    server.crash()
    await trio.testing.wait_all_tasks_blocked()
    before = len(server.sent)
    await listed(manager)
    assert events == [MISSED]
    await trio.sleep(1)
    if modern:
        (asked,) = (params for method, params in server.sent[before:] if method == "subscriptions/listen")
        uris = asked["notifications"]["resourceSubscriptions"]
    else:
        uris = [params["uri"] for method, params in server.sent[before:] if method == "resources/subscribe"]
    assert set(uris) == {"memory://a", "memory://b", "memory://c"}
    server.say("notifications/resources/updated", uri="memory://b")
    await trio.testing.wait_all_tasks_blocked()
    assert events == [MISSED, Change("memory", "changed", "memory://b")]


@ERAS
@pytest.mark.semantics("S18.4")
async def test_what_a_server_without_subscriptions_has_answered_is_asked_for_again_once_it_takes_them(
    linked: Linked, autojump_clock: MockClock, modern: bool
) -> None:
    server, manager = await linked(modern=modern)
    events, told = heard(manager), []
    for capabilities in ({}, {}, {"subscribe": True}, {"subscribe": True}):
        server.capabilities = {"resources": capabilities}
        await listed(manager)
        await trio.sleep(15)
        assert manager.connection("memory").interests.takes_uris == bool(capabilities)
        told.append(len(events))
        server.crash()
    assert told == [0, 0, 1, 1]
    assert events == [MISSED]


@pytest.mark.semantics("S18")
async def test_dropped_stream_is_opened_again_and_the_gap_told(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(modern=True, listed=True)
    events = heard(manager)
    await listed(manager)
    await trio.sleep(1)
    assert len(server.methods("subscriptions/listen")) == 1
    for drop in range(1, 4):
        server.drop_streams()
        await trio.sleep(10)
        assert len(server.methods("subscriptions/listen")) == drop + 1
        assert events == [MISSED] * drop
    assert server.tries == 1


@pytest.mark.semantics("S18")
async def test_stream_that_cannot_be_opened_again_at_once(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(modern=True, subscribe=True)
    events = heard(manager)
    manager.connection("memory").interests.add("memory://a")
    await listed(manager)
    await trio.sleep(1)
    server.results["subscriptions/listen"] = types.ErrorData(code=types.INTERNAL_ERROR, message="later")
    server.drop_streams()
    await trio.sleep(20)
    assert 3 <= len(server.methods("subscriptions/listen")) <= 7
    assert events == []
    del server.results["subscriptions/listen"]
    await trio.sleep(60)
    assert events == [MISSED]


async def test_refused_stream_is_not_asked_for_again(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(modern=True, subscribe=True, idle_timeout=1000.0)
    server.results["subscriptions/listen"] = types.ErrorData(code=types.METHOD_NOT_FOUND, message="no")
    manager.connection("memory").interests.add("memory://a")
    await listed(manager)
    manager.connection("memory").interests.add("memory://b")
    await trio.sleep(900)
    assert len(server.methods("subscriptions/listen")) == 1
    await trio.sleep(200)
    assert server.connected == 0


@pytest.mark.semantics("S18.3")
async def test_flood_of_one_change_is_a_few_events(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(listed=True, subscribe=True)
    events = heard(manager)
    await listed(manager)
    for _ in range(100):
        for _ in range(100):
            server.say("notifications/resources/updated", uri="memory://a")
            server.say("notifications/resources/list_changed")
        await trio.sleep(0.01)
    await trio.sleep(1)
    for change in (Change("memory", "changed", "memory://a"), Change("memory", "listed")):
        assert 19 <= events.count(change) <= 22
    assert MISSED not in events


async def test_unusable_notifications_are_ignored(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(subscribe=True)
    events = heard(manager)
    await listed(manager)
    server.say("notifications/resources/updated")
    server.say("notifications/resources/updated", uri=7)
    server.say("notifications/unheard-of", uri="memory://a")
    await trio.sleep(1)
    assert events == []
    assert await listed(manager) == LISTED


@pytest.mark.semantics("S23")
async def test_a_refused_number_as_cursor_breaks_the_protocol(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked()
    refusal = types.ErrorData(code=types.INVALID_PARAMS, message="cursor: expected string")
    server.results["resources/list"] = [{"resources": [{"uri": "x://a"}], "nextCursor": 7}, refusal]
    with pytest.raises(ProtocolViolation, match="the server refuses it"):
        await listed(manager)
