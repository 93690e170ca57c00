"""The life of connections to real processes: what servers see of idleness, cancellation and broken streams."""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx2
import pytest
import trio
from odd_servers import Odd, given_up, until

from bbfs.model.errors import Unreachable
from bbfs.model.values import Change, McpServer, Policy
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.client.peer import CANCEL_NOTICE

Serve = Callable[..., AbstractAsyncContextManager[str]]
MakeOdd = Callable[..., Odd]
PATIENT = Policy(timeout=20)
MISSED = Change("web", "missed")
ERAS = pytest.mark.parametrize("era", [(), ("--modern",)], ids=["handshake", "modern"])


async def control(url: str, action: str) -> None:
    async with httpx2.AsyncClient() as client:
        (await client.post(url.replace("/mcp", f"/control/{action}"))).raise_for_status()


def with_options(server: McpServer, **options: object) -> McpServer:
    fields = {name: getattr(server, name) for name in ("transport", "command", "args", "env", "url")}
    return McpServer(**fields, **options)  # pyright: ignore[reportArgumentType]


@ERAS
@pytest.mark.semantics("S22")
async def test_cancelled_read_is_told_to_the_server(manager: MCPManager, serve: Serve, era: tuple[str, ...]) -> None:
    output: list[str] = []
    async with serve("streams.py", *era, output=output) as url:
        manager.add("web", McpServer("http", url=url), PATIENT)
        await manager.list_resources("web")
        await given_up(lambda: manager.load_resource("web", "odd://hung"), lambda: "hung" in output)
        # The connection of the read is closed in both eras, so that nothing piles up; in the older one this alone
        # would not mean that the server may stop.
        await until(lambda: "closed" in output)
        assert ("cancelled" in output) == (not era)
        assert (await manager.load_resource("web", "odd://a")).parts


@ERAS
@pytest.mark.semantics("S22")
async def test_a_read_under_way_holds_up_no_end(nursery: trio.Nursery, serve: Serve, era: tuple[str, ...]) -> None:
    reading, ended = trio.CancelScope(), trio.Event()

    async def live(url: str) -> None:
        with reading:
            async with trio.open_nursery() as inner:
                manager = MCPManager()
                await inner.start(lambda task_status: manager.run(task_status=task_status))
                manager.add("web", McpServer("http", url=url), PATIENT)
                await manager.list_resources("web")
                inner.start_soon(manager.load_resource, "web", "odd://hung")
        ended.set()

    output: list[str] = []
    async with serve("streams.py", *era, output=output) as url:
        nursery.start_soon(live, url)
        await until(lambda: "hung" in output)
        reading.cancel()
        with trio.fail_after(CANCEL_NOTICE - 1):
            await ended.wait()


@pytest.mark.semantics("S18", "S24")
async def test_forgotten_session_is_made_again_with_its_subscriptions(manager: MCPManager, serve: Serve) -> None:
    output: list[str] = []
    events: list[Change] = []
    async with serve("streams.py", output=output) as url:
        manager.add("web", McpServer("http", url=url), PATIENT)
        manager.connection("web").changes.subscribe(
            lambda change: None if change.event == "missed" and change.uri else events.append(change)
        )
        manager.connection("web").interests.add("odd://a")
        await manager.list_resources("web")
        await until(lambda: "resources/subscribe" in output and "stream" in output)
        await control(url, "forget")
        assert (await manager.load_resource("web", "odd://a")).parts, "noticed by the read"
        assert events == [MISSED]
        await until(lambda: output.count("resources/subscribe") >= 2 and output.count("stream") >= 2)
        await control(url, "changed")
        await until(lambda: len(events) == 3)
        assert output.count("initialize") == 2


async def test_forgotten_session_is_noticed_by_its_stream(manager: MCPManager, serve: Serve) -> None:
    output: list[str] = []
    async with serve("streams.py", output=output) as url:
        manager.add("web", McpServer("http", url=url), PATIENT)
        await manager.list_resources("web")
        await until(lambda: "stream" in output)
        await control(url, "forget")
        await until(lambda: manager.connection("web").state.state == "down")
        assert "forgotten the session" in (manager.connection("web").state.reason or "")
        assert len((await manager.list_resources("web")).entries) == 1
        assert manager.connection("web").state.state == "up"


async def test_last_words_of_a_server_that_dies_between_requests(
    manager: MCPManager, odd: MakeOdd, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bbfs")
    server = odd("last-words")
    manager.add("odd", server.server, PATIENT)
    await manager.load_resource("odd", "odd://a")
    await until(lambda: manager.connection("odd").state.state == "down")
    reason = manager.connection("odd").state.reason or ""
    assert reason.splitlines() == [
        "the server exited with status 5: out of memory, goodbye",
        "warming up",
        "out of memory, goodbye",
    ]
    said = [record.message for record in caplog.records if record.name == "bbfs.server.odd"]
    assert said == ["warming up", "out of memory, goodbye"]


async def test_last_words_of_a_server_that_dies_when_greeted(manager: MCPManager, odd: MakeOdd) -> None:
    manager.add("odd", odd("last-words", "greeting").server, PATIENT)
    with pytest.raises(Unreachable, match="exited with status 5: out of memory, goodbye"):
        await manager.list_resources("odd")
    assert (manager.connection("odd").state.reason or "").splitlines()[1:] == ["warming up", "out of memory, goodbye"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Error: no such context\nUsage:\n" + "  --flag  sets something\n" * 60, "Error: no such context"),
        ("/a.js:1\n\nTypeError [ERR_X]: bad key\n    at a.js:1\n\nNode.js v20.1.0\n", "TypeError [ERR_X]: bad key"),
        (
            "pydantic.ValidationError: 1 error for Key\nKEY\n  Field required",
            "pydantic.ValidationError: 1 error for Key",
        ),
        ("an error: in words\nplease set KEY", "please set KEY"),
        ("warming up\nerror: no KEY", "error: no KEY"),
    ],
)
async def test_the_reason_of_an_exit_is_the_line_that_says_what_is_wrong(
    manager: MCPManager, tmp_path: Path, said: str, reason: str
) -> None:
    (tmp_path / "said").write_text(said)
    command = McpServer("stdio", command="sh", args=("-c", 'cat "$0" >&2; exit 1', str(tmp_path / "said")))
    manager.add("odd", command, PATIENT)
    with pytest.raises(Unreachable) as caught:
        await manager.list_resources("odd")
    assert str(caught.value).endswith(f"exited with status 1: {reason}")
