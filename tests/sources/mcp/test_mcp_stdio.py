"""Servers as child processes: good ones, and each way to be a bad one."""

import logging
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing
from odd_servers import ManualClock, Odd, descriptors_of, environment, exists, given_up, runs, text, until
from repository import SERVERS

from bbfs.model.errors import BbfsError, NotFound, NotSupported, ProtocolViolation, Unreachable
from bbfs.model.values import McpServer, Policy
from bbfs.sources.mcp.client.manager import MCPManager

MakeOdd = Callable[..., Odd]
PATIENT = Policy(timeout=20)


async def test_handshake_era(manager: MCPManager, odd: MakeOdd) -> None:
    server = odd("none")
    manager.add("odd", server.server, PATIENT)
    assert manager.connection("odd").state.state == "idle"
    listing = await manager.list_resources("odd")
    assert [entry.uri for entry in listing.entries] == ["odd://a", "odd://b", "odd://c"]
    assert listing.problem is None
    assert listing.ttl is None
    assert text(await manager.load_resource("odd", "odd://b")) == "content of odd://b\n"
    state = manager.connection("odd").state
    assert (state.state, state.protocol_version, state.server) == ("up", "2025-06-18", "odd 1")
    assert (manager.connection("odd").counts["list"], manager.connection("odd").counts["read"]) == (1, 1)
    assert len(server.pids) == 1


async def test_modern_era(manager: MCPManager, tmp_path: Path) -> None:
    counters = tmp_path / "counters"
    args = (str(SERVERS / "resources.py"), "--count", "5", "--page-size", "2", "--counters", str(counters))
    args += ("--ttl-ms", "1500")
    manager.add("sdk", McpServer("stdio", command=sys.executable, args=args), PATIENT)
    listing = await manager.list_resources("sdk")
    assert [entry.uri for entry in listing.entries][-2:] == ["test://binary.bin", "test://many"]
    assert len(listing.entries) == 7
    assert listing.ttl == 1.5
    binary, many = listing.entries[-2:]
    assert (binary.title, binary.size, binary.modified_ns) == ("All bytes", 256, 1767323045_678_000_000)
    assert binary.annotations is not None
    assert binary.annotations["priority"] == 0.5
    assert many.mcp_data == {"_meta": {"test/kind": "several"}}
    assert manager.connection("sdk").state.protocol_version == "2026-07-28"

    loaded = await manager.load_resource("sdk", "test://binary.bin")
    assert loaded.ttl == 1.5
    (part,) = loaded.parts
    assert part.content_type == "binary"
    assert part.content.read(0, 1000) == bytes(range(256))
    several = await manager.load_resource("sdk", "test://many")
    assert [part.native_uri for part in several.parts] == ["test://many/one.txt", "test://many/two.txt"]
    templates = await manager.list_resource_templates("sdk")
    assert [entry.uri_template for entry in templates.entries] == ["test://items/{number}.txt"]
    asked = [line for line in counters.read_text().splitlines() if line != "listen"]
    assert asked == ["list"] * 4 + ["read test://binary.bin", "read test://many"]


async def test_concurrent_requests_share_one_connection(manager: MCPManager, odd: MakeOdd) -> None:
    server = odd("none")
    manager.add("odd", server.server, PATIENT)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(manager.load_resource, "odd", "odd://a")
    assert len(server.pids) == 1
    assert manager.connection("odd").counts["read"] == 20


@pytest.mark.semantics("S23")
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (-32002, NotFound),
        (-32602, NotFound),
        (-32601, NotSupported),
        (-32603, BbfsError),
        (0, BbfsError),
        (-32000, BbfsError),
        (-32700, ProtocolViolation),
    ],
)
async def test_errors_of_a_read(manager: MCPManager, odd: MakeOdd, code: int, error: type[BbfsError]) -> None:
    manager.add("odd", odd("error", code).server, PATIENT)
    with pytest.raises(BbfsError, match="as ordered") as caught:
        await manager.load_resource("odd", "odd://a")
    assert type(caught.value) is error
    assert manager.connection("odd").state.state == "up"


async def test_server_without_resources_lists_none(manager: MCPManager, odd: MakeOdd) -> None:
    manager.add("odd", odd("error", -32601).server, PATIENT)
    assert (await manager.list_resources("odd")).entries == ()
    assert (await manager.list_resource_templates("odd")).entries == ()


async def test_failing_list_is_no_empty_list(manager: MCPManager, odd: MakeOdd) -> None:
    manager.add("odd", odd("error", -32603).server, PATIENT)
    with pytest.raises(BbfsError, match="as ordered"):
        await manager.list_resources("odd")


async def test_unknown_server_is_not_found(manager: MCPManager) -> None:
    with pytest.raises(NotFound):
        await manager.list_resources("nobody")


@pytest.mark.semantics("S22")
async def test_hung_read_is_cancelled_cleanly(manager: MCPManager, odd: MakeOdd) -> None:
    server = odd("hung-read", "odd://a")
    manager.add("odd", server.server, PATIENT)
    await manager.list_resources("odd")
    await given_up(lambda: manager.load_resource("odd", "odd://a"), lambda: server.lines("resources/read"))
    assert text(await manager.load_resource("odd", "odd://b")) == "content of odd://b\n"
    await until(lambda: server.lines("notifications/cancelled"))
    assert len(server.pids) == 1


@pytest.mark.semantics("S22")
async def test_hung_greeting_is_bounded(manager: MCPManager, odd: MakeOdd, short: Policy, clock: ManualClock) -> None:
    server = odd("hung")
    manager.add("odd", server.server, short)
    with trio.fail_after(60):
        with pytest.raises(Unreachable, match=r"greeting within 0\.6 seconds"):
            await manager.list_resources("odd")
    started = len(server.pids)
    with pytest.raises(Unreachable, match="greeting"):
        await manager.load_resource("odd", "odd://a")
    assert len(server.pids) == started, "a request during the pause waits for nothing"
    await until(lambda: not any(map(exists, server.pids)))


@pytest.mark.semantics("S24.4")
async def test_program_that_starts_slowly_goes_on(manager: MCPManager, odd: MakeOdd, tmp_path: Path) -> None:
    server, loading = odd("none"), tmp_path / "loading"
    loading.touch()
    runner = ("-c", 'while [ -e "$0" ]; do sleep 0.1; done; exec "$@"', str(loading), str(server.server.command))
    slow = replace(server.server, command="sh", args=(*runner, *server.server.args))
    manager.add("odd", slow, Policy(timeout=3))
    with trio.fail_after(60):  # the first waits for three seconds, and the others for nothing
        for _ in range(30):
            with pytest.raises(Unreachable, match="within 3 seconds; it may be starting still"):
                await manager.list_resources("odd")
    loading.unlink()
    await until(lambda: manager.connection("odd").state.state == "up")
    assert text(await manager.load_resource("odd", "odd://a")) == "content of odd://a\n"
    assert len(server.pids) == 1


async def test_caller_that_gives_up_does_not_end_the_connecting(manager: MCPManager, odd: MakeOdd) -> None:
    server = odd("hung-discover")
    manager.add("odd", server.server, Policy(timeout=2))
    await given_up(lambda: manager.list_resources("odd"), lambda: server.lines("server/discover"))
    # The probe of the modern era is left unanswered; after half the time the old greeting works.
    await until(lambda: manager.connection("odd").state.state == "up")
    assert len(server.pids) == 1


async def test_server_that_dies_on_the_modern_probe_is_greeted_the_old_way(manager: MCPManager, odd: MakeOdd) -> None:
    server = odd("dies-on-discover")
    manager.add("odd", server.server, PATIENT)
    assert len((await manager.list_resources("odd")).entries) == 3
    assert len(server.pids) == 2
    assert server.lines("server/discover") == ["server/discover"]


async def test_answers_only_to_the_greeting(manager: MCPManager, odd: MakeOdd) -> None:
    server = odd("initialize-only")
    manager.add("odd", server.server, PATIENT)
    await given_up(lambda: manager.list_resources("odd"), lambda: server.lines("resources/list"))
    assert manager.connection("odd").state.state == "up"


@pytest.mark.semantics("S24")
async def test_request_that_dies_with_the_server_is_tried_once_more(manager: MCPManager, odd: MakeOdd) -> None:
    server = odd("crash-after", 1)
    manager.add("odd", server.server, PATIENT)
    for _ in range(2):
        assert text(await manager.load_resource("odd", "odd://a")) == "content of odd://a\n"
    assert len(server.pids) == 2
    await until(lambda: not exists(server.pids[0]))


@pytest.mark.semantics("S23", "S24")
async def test_server_that_always_crashes(manager: MCPManager, odd: MakeOdd, clock: ManualClock) -> None:
    server = odd("crash-after", 0)
    manager.add("odd", server.server, PATIENT)
    with pytest.raises(Unreachable, match=r"exited with status 3: Traceback: the odd server is out of luck"):
        await manager.load_resource("odd", "odd://a")
    assert len(server.pids) == 2, "one retry"
    assert manager.connection("odd").state.state == "down"
    with pytest.raises(Unreachable):
        await manager.load_resource("odd", "odd://a")
    assert len(server.pids) == 2, "no process is started during the pause"
    clock.now += 2
    assert len((await manager.list_resources("odd")).entries) == 3
    assert len(server.pids) == 3


@pytest.mark.semantics("S24")
async def test_idle_death_is_noticed_and_reaped(manager: MCPManager, odd: MakeOdd) -> None:
    server = odd("crash-idle")
    manager.add("odd", server.server, PATIENT)
    assert text(await manager.load_resource("odd", "odd://a")) == "content of odd://a\n"
    await until(lambda: manager.connection("odd").state.state == "down")
    assert "SIGKILL" in (manager.connection("odd").state.reason or "")
    await until(lambda: not exists(server.pids[0]))
    assert len((await manager.list_resources("odd")).entries) == 3
    assert len(server.pids) == 2


@pytest.mark.semantics("S24.1")
async def test_pauses_double_to_a_minute(manager: MCPManager, odd: MakeOdd, clock: ManualClock, tmp_path: Path) -> None:
    obstacle = tmp_path / "obstacle"
    obstacle.touch()
    server = odd("fails-while", obstacle)
    manager.add("odd", server.server, PATIENT)
    lower = 0.5
    for _ in range(9):
        with pytest.raises(Unreachable, match="not yet"):
            await manager.list_resources("odd")
        tries = len(server.pids)
        clock.now += min(lower, 60) - 0.01
        with pytest.raises(Unreachable, match="not yet"):
            await manager.list_resources("odd")
        assert len(server.pids) == tries
        clock.now += min(lower * 0.5, 60) + 0.02
        lower *= 2
    for _ in range(2):  # a try, and its error again
        with pytest.raises(Unreachable, match="not yet"):
            await manager.list_resources("odd")
        obstacle.unlink(missing_ok=True)
    manager.connection("odd").end_pause()  # as a user does, by `bbfs refresh`
    assert len((await manager.list_resources("odd")).entries) == 3


@pytest.mark.parametrize("command", ["/nonexistent/server", "", "/etc/hostname"])
async def test_command_that_cannot_start(manager: MCPManager, command: str) -> None:
    manager.add("odd", McpServer("stdio", command=command, args=("--token=hush-hush",)), PATIENT)
    with pytest.raises(Unreachable, match="cannot start") as caught:
        await manager.list_resources("odd")
    assert "hush-hush" not in str(caught.value)
    assert manager.connection("odd").state.state == "down"


@pytest.mark.semantics("S30")
async def test_no_secret_in_messages_and_logs(
    manager: MCPManager, odd: MakeOdd, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "bbfs")
    manager.add("odd", odd("fails-to-start", ODD_SECRET="hush-hush").server, PATIENT)
    with pytest.raises(Unreachable, match=r"no such database: token=\*\*\*") as caught:
        await manager.list_resources("odd")
    shown = f"{caught.value!r} {manager.connection('odd').state} {caplog.text}"
    assert "hush-hush" not in shown
    assert "no such database" in caplog.text


@pytest.mark.semantics("S30")
async def test_server_gets_only_its_own_environment(
    manager: MCPManager, odd: MakeOdd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BBFS_TEST_SECRET", "of the daemon")
    network = {"https_proxy", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"}
    for name in [each for each in os.environ if re.search("(?i)proxy$|cert|bundle$", each)]:
        monkeypatch.delenv(name)
    for name in network:
        monkeypatch.setenv(name, f"/nowhere/{name}")
    server = odd("none", GIVEN="yes")
    manager.add("odd", server.server, PATIENT)
    await manager.list_resources("odd")
    names, files = environment(server.pids[0]), descriptors_of(server.pids[0])
    assert {"GIVEN", *network} <= names
    assert names <= {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "GIVEN", "BBFS_SERVER", *network}
    assert files == {0, 1, 2}


async def test_garbage_between_messages(manager: MCPManager, odd: MakeOdd, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bbfs.server.odd")
    manager.add("odd", odd("garbage").server, PATIENT)
    for _ in range(10):
        assert text(await manager.load_resource("odd", "odd://a")) == "content of odd://a\n"
    assert "DEBUG: got a request" in caplog.text
    assert len(caplog.records) == 5, "what the server says there is logged a few times, not for ever"


async def test_bytes_that_are_no_unicode_are_replaced(manager: MCPManager, odd: MakeOdd) -> None:
    manager.add("odd", odd("bad-bytes").server, PATIENT)
    assert text(await manager.load_resource("odd", "odd://a")) == "a\ufffdb"
    assert text(await manager.load_resource("odd", "odd://b")) == "a\ufffdb"


@pytest.mark.semantics("S25")
async def test_templates_that_are_left_out_are_told(manager: MCPManager, odd: MakeOdd) -> None:
    manager.add("odd", odd("many-templates", "60").server, PATIENT)
    templates = await manager.list_resource_templates("odd")
    assert len(templates.entries) == 50
    assert templates.problem == (
        "templates of more than 1000 expressions, where those with slashes in values count tenfold: 10 of 60 left out"
    )


async def test_large_answer(manager: MCPManager, odd: MakeOdd) -> None:
    manager.add("odd", odd("huge-line", 32 << 20).server, PATIENT)
    with trio.fail_after(60):
        loaded = await manager.load_resource("odd", "odd://a")
    assert loaded.parts[0].content.size == 32 << 20


@pytest.mark.semantics("S23")
async def test_too_large_an_answer(nursery: trio.Nursery, odd: MakeOdd) -> None:
    manager = MCPManager(max_message=1 << 20)
    await nursery.start(lambda task_status: manager.run(task_status=task_status))
    server = odd("huge-line", 2 << 20)
    manager.add("odd", server.server, PATIENT)
    with pytest.raises(ProtocolViolation, match="more than 1048576 bytes"):
        await manager.load_resource("odd", "odd://a")
    assert len(server.pids) == 1, "the same answer would come again"
    assert len((await manager.list_resources("odd")).entries) == 3


async def test_flood_on_stderr_blocks_nothing(
    manager: MCPManager, odd: MakeOdd, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bbfs.server.odd")
    manager.add("odd", odd("flood-stderr").server, PATIENT)
    begun = trio.current_time()
    for _ in range(2):
        assert text(await manager.load_resource("odd", "odd://a")) == "content of odd://a\n"
        await trio.sleep(1.1)
    lines = [record for record in caplog.records if record.message.startswith("line ")]
    assert len(lines) <= 100 + 5 * (trio.current_time() - begun), "a hundred at once, then five a second"


async def test_child_of_the_server_that_holds_stdout(manager: MCPManager, odd: MakeOdd) -> None:
    server = odd("family")
    manager.add("odd", server.server, PATIENT)
    with trio.fail_after(60):
        with pytest.raises(Unreachable, match="exited with status 0"):
            await manager.load_resource("odd", "odd://a")
    children = [int(line.split()[1]) for line in server.lines("child ")]
    assert len(children) == 2
    await until(lambda: not any(map(runs, children)))


@pytest.mark.semantics("S24.3")
async def test_nothing_is_left_at_the_end(odd: MakeOdd, descriptors: Callable[[], int]) -> None:
    servers = [odd("none"), odd("hung-read"), odd("hung"), *(odd("stubborn") for _ in range(5))]
    manager = MCPManager()
    before = 0
    for _ in range(2):  # the first round opens what trio keeps open for itself
        before = descriptors()
        for server in servers:
            server.log.unlink(missing_ok=True)
        manager = MCPManager(random=Random(1))
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda task_status, manager=manager: manager.run(task_status=task_status))
            for number, server in enumerate(servers):
                manager.add(str(number), server.server, PATIENT)
            for number in (0, 1, *range(3, len(servers))):
                await manager.list_resources(str(number))
            nursery.start_soon(_ignore, manager, "1", "odd://a")
            nursery.start_soon(_ignore, manager, "2", "odd://a")
            await until(lambda: servers[1].lines("resources/read") and servers[2].lines("server/discover"))
            nursery.cancel_scope.cancel()
        signs = [line for server in servers[3:] for line in (*server.lines("end of input"), *server.lines("SIGTERM"))]
        signs.sort(key=lambda line: int(line.split()[-1]))
        # One after the other, each would get SIGTERM before the next one's input ends.
        assert "ee" in "".join(sign[0] for sign in signs), "stubborn servers are ended in parallel"
        for server in servers:
            assert not any(map(exists, server.pids))
    assert descriptors() == before
    with pytest.raises(Unreachable, match="shutting down"):
        await manager.list_resources("0")


async def _ignore(manager: MCPManager, server_id: str, uri: str) -> None:
    with trio.move_on_after(20), pytest.raises(Unreachable):
        await manager.load_resource(server_id, uri)


async def test_server_that_ends_politely_is_not_signalled(odd: MakeOdd) -> None:
    server = odd("none")
    manager = MCPManager()
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: manager.run(task_status=task_status))
        manager.add("odd", server.server, PATIENT)
        await manager.list_resources("odd")
        nursery.cancel_scope.cancel()
    assert server.lines("exit") == ["exit"]


async def test_servers_may_be_added_before_the_manager_runs(nursery: trio.Nursery, odd: MakeOdd) -> None:
    manager = MCPManager()
    manager.add("odd", odd("none").server, PATIENT)
    found: list[int] = []

    async def ask() -> None:
        found.append(len((await manager.list_resources("odd")).entries))

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    await nursery.start(lambda task_status: manager.run(task_status=task_status))
    await until(lambda: found == [3])
    with pytest.raises(ValueError, match="already"):
        manager.add("odd", odd("none").server, PATIENT)
