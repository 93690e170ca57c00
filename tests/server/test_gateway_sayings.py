"""What servers behind `bbfs serve` say while they work: progress, log messages, changed lists, questions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio
from forked_daemon import forked
from harness import mcp
from listening_client import subscribed
from mcp import Client
from mcp.shared.subscriptions import ToolsListChanged
from repository import SERVERS
from served import BOUND

pytestmark = pytest.mark.filterwarnings("ignore:The logging capability is deprecated")
Opened = Callable[..., Any]


@pytest.fixture(params=((), ("--handshake",)), ids=("modern-server", "handshake-server"))
def everything(request: pytest.FixtureRequest, log: Path) -> dict[str, Any]:
    """The source `e`: a server with something of everything, of either era."""
    return mcp("e", forked(SERVERS / "everything.py", "--log", log, *request.param), timeout=BOUND)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "everything.log"


async def until_logged(log: Path, line: str) -> None:
    """Wait until the server has written a line."""
    while not log.exists() or line not in log.read_text().splitlines():  # noqa: ASYNC110, ASYNC240 - of another process
        await trio.sleep(0.01)


async def test_progress_and_cancelling(service: Opened, everything: dict[str, Any], log: Path, era: str) -> None:
    made: list[tuple[float, float | None, str | None]] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        made.append((progress, total, message))

    async with service(everything) as served, Client(served, mode=era, cache=None) as client:
        await client.call_tool("e_steps", {}, progress_callback=progressed)
        assert made == [(number, 3, f"step {number}") for number in (1, 2, 3)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "e_wait", {})
            await until_logged(log, "wait")
            nursery.cancel_scope.cancel()
        await until_logged(log, "cancelled wait")
        assert not (await client.call_tool("e_echo", {"text": "x"})).is_error


async def test_messages_of_the_level_that_a_client_wants(service: Opened, everything: dict[str, Any], era: str) -> None:
    heard: list[types.LoggingMessageNotificationParams] = []
    all_heard = trio.Event()

    async def hear(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params)
        if len(heard) == 4:
            all_heard.set()

    level = None if era == "legacy" else "error"
    async with (
        service(everything) as served,
        Client(served, mode=era, cache=None, logging_callback=hear, log_level=level) as client,
        Client(served, mode=era, cache=None, logging_callback=hear) as other,
    ):
        await other.call_tool("e_chatter", {})
        assert heard == []
        if era == "legacy":
            await client.session.set_logging_level("error")
        await client.call_tool("e_chatter", {})
        await all_heard.wait()
    assert [each.data for each in heard] == [{"said": level} for level in ("error", "critical", "alert", "emergency")]
    assert {each.logger for each in heard} == {"e/mouth"}


async def test_a_changed_list_of_tools_is_announced(service: Opened, everything: dict[str, Any], era: str) -> None:
    async with (
        service(everything) as served,
        subscribed(served, era, set(), lists_first=True) as (client, told),
    ):
        assert "e_grown" not in {tool.name for tool in (await client.list_tools()).tools}
        await client.call_tool("e_grow", {})
        await told.until(ToolsListChanged())
        assert "e_grown" in {tool.name for tool in (await client.list_tools()).tools}


async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": params.message})


async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    (message,) = params.messages
    assert isinstance(message.content, types.TextContent)
    return types.CreateMessageResult(role="assistant", model="m", content=types.TextContent(text=message.content.text))


async def test_questions_reach_a_client_that_takes_them(service: Opened, everything: dict[str, Any], era: str) -> None:
    async with (
        service(everything) as served,
        Client(served, mode=era, cache=None, elicitation_callback=answer, sampling_callback=sample) as client,
    ):
        (text,) = (await client.call_tool("e_ask", {})).content
        assert text == types.TextContent(text="accept: {'name': 'e: Who are you?'}")
        (text,) = (await client.call_tool("e_sample", {})).content
        assert text == types.TextContent(text="m: Say something.")


async def test_questions_that_no_client_takes_fail(service: Opened, everything: dict[str, Any], era: str) -> None:
    async with service(everything) as served, Client(served, mode=era, cache=None) as client:
        for tool in ("e_ask", "e_sample"):
            refused = await client.call_tool(tool, {})
            assert refused.is_error
            (text,) = refused.content
            assert isinstance(text, types.TextContent)
            assert "the client does not offer it" in text.text


async def test_a_question_reaches_no_other_client(service: Opened, log: Path) -> None:
    """A server of the handshake era does not say which of the requests under way its question belongs to."""
    server = mcp("e", forked(SERVERS / "everything.py", "--handshake", "--log", log), timeout=BOUND)
    asked: list[str] = []

    async def note(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "x"})

    async with (
        service(server) as served,
        Client(served, mode="legacy", cache=None, elicitation_callback=note) as waiting,
        Client(served, mode="legacy", cache=None, elicitation_callback=note) as other,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(waiting.call_tool, "e_wait", {})
        await until_logged(log, "wait")
        refused = await other.call_tool("e_ask", {})
        nursery.cancel_scope.cancel()
    assert refused.is_error
    assert asked == []
