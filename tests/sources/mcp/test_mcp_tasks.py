"""Calls that a server answers with a task. The clock jumps, the server is in memory."""

from typing import Any

import mcp_types as types
import pytest
import trio
from memory_server import Linked
from trio.testing import MockClock

from bbfs.model.calls import Progress
from bbfs.model.errors import BbfsError, NotSupported, ProtocolViolation
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.client.tool_entries import ToolEntry

RESULT = {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}
ROOTS = {"key": {"method": "roots/list"}}
TOOL = ToolEntry("slow", needs_task=True)


def state(status: str, **fields: Any) -> dict[str, Any]:
    return {"resultType": "complete", "taskId": "t", "status": status, **fields}


def begun(**fields: Any) -> dict[str, Any]:
    return state("working", **{"pollIntervalMs": 5000, **fields, "resultType": "task"})


async def call(manager: MCPManager, told: list[Progress] | None = None) -> dict[str, Any]:
    heard = None if told is None else told.append
    return await manager.call_tool("memory", TOOL, {"a": 1}, heard)


@pytest.mark.semantics("S31.11")
async def test_a_task_is_asked_for_until_it_has_its_result(linked: Linked, autojump_clock: MockClock) -> None:
    (server, manager), told = await linked(modern=True), list[Progress]()
    server.results["tools/call"] = begun(statusMessage="begun")
    last = state("completed", result=RESULT)
    server.results["tasks/get"] = [state("working", statusMessage="half", pollIntervalMs=1e400), last]
    began = trio.current_time()
    assert await call(manager, told) == RESULT
    assert trio.current_time() - began == 5 + 10, "as the server proposes, within a bound"
    assert told == [Progress(0, None, "begun"), Progress(5, None, "half"), Progress(15, None, None)]
    asked = [params for method, params in server.sent if method in ("tools/call", "tasks/get")]
    assert "task" not in asked[0]
    assert [params.get("taskId") for params in asked] == [None, "t", "t"]
    declared = [params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"] for params in asked]
    assert declared == [{"io.modelcontextprotocol/tasks": {}}] * 3
    assert "tasks/cancel" not in server.methods()


@pytest.mark.semantics("S31.11")
async def test_a_task_is_cancelled_with_its_caller(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(modern=True)
    server.results["tools/call"] = begun()
    server.results["tasks/get"] = state("working")
    server.results["tasks/cancel"] = {"resultType": "complete"}
    with trio.move_on_after(60) as given_up:
        await call(manager)
    assert given_up.cancelled_caught
    assert server.sent[-1][0] == "tasks/cancel"
    assert server.sent[-1][1]["taskId"] == "t"
    assert 30 <= len(server.methods("tasks/get")) < 40, "where the server proposes no pause, they grow to two seconds"


ENDS: dict[str, tuple[dict[str, Any], type[BbfsError], str]] = {
    "failed": (state("failed", error={"code": -32000, "message": "no room"}), BbfsError, r"no room \(code -32000\)"),
    "failed with nothing said": (state("failed", error=7), BbfsError, "no message"),
    "cancelled": (state("cancelled", statusMessage="too late"), BbfsError, "has cancelled the task: too late"),
    "without a result": (state("completed", result=[]), ProtocolViolation, "without a result"),
    "in no known state": (state("asleep"), ProtocolViolation, "usable id and status"),
    "asking what nobody answers": (
        state("input_required", inputRequests={"q": {"method": "elicitation/create"}}),
        NotSupported,
        "elicitation/create",
    ),
}


@pytest.mark.parametrize("end", ENDS)
async def test_the_other_ends_of_a_task(linked: Linked, autojump_clock: MockClock, end: str) -> None:
    answer, error, said = ENDS[end]
    server, manager = await linked(modern=True)
    server.results["tools/call"] = begun()
    server.results["tasks/get"] = answer
    server.results["tasks/cancel"] = {"resultType": "complete"}
    with pytest.raises(error, match=said):
        await call(manager)
    is_over = answer["status"] in ("failed", "cancelled", "completed")
    assert server.methods("tasks/cancel") == ([] if is_over else ["tasks/cancel"])


async def test_a_task_without_an_id_is_no_task(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(modern=True)
    server.results["tools/call"] = begun(taskId="")
    with pytest.raises(ProtocolViolation, match="usable id"):
        await call(manager)


@pytest.mark.semantics("S31.11")
async def test_a_question_of_a_task_is_answered_once(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(modern=True, roots=("/n",))
    server.results["tools/call"] = begun()
    asking = state("input_required", inputRequests=ROOTS)
    server.results["tasks/get"] = [asking, asking, state("completed", result=RESULT)]
    server.results["tasks/update"] = {"resultType": "complete"}
    assert await call(manager) == RESULT
    (answered,) = (params for method, params in server.sent if method == "tasks/update")
    assert answered["inputResponses"] == {"key": {"roots": [{"uri": "file:///n", "name": "n"}]}}


@pytest.mark.parametrize("has_tasks", [True, False])
async def test_before_2026_a_tool_says_it_is_a_task(linked: Linked, autojump_clock: MockClock, has_tasks: bool) -> None:
    server, manager = await linked()
    plain = {"content": RESULT["content"]}
    if has_tasks:
        server.capabilities["tasks"] = {"requests": {"tools": {"call": {}}}}  # pyright: ignore[reportArgumentType]
        server.results["tools/call"] = {"task": {"taskId": "t", "status": "working", "pollInterval": 1000}}
        server.results["tasks/get"] = [{"taskId": "t", "status": "working"}, {"taskId": "t", "status": "completed"}]
        server.results["tasks/result"] = plain
    else:
        server.results["tools/call"] = plain
    assert await call(manager) == plain
    expected = ["tools/call", "tasks/get", "tasks/get", "tasks/result"] if has_tasks else ["tools/call"]
    assert server.methods("tools/call", "tasks/get", "tasks/result") == expected
    assert ("task" in next(params for method, params in server.sent if method == "tools/call")) is has_tasks


async def test_a_task_outlives_its_connection(linked: Linked, autojump_clock: MockClock) -> None:
    server, manager = await linked(modern=True)
    server.results["tools/call"] = begun()
    lost = types.ErrorData(code=types.INVALID_REQUEST, message="no such session")
    server.results["tasks/get"] = [lost, state("completed", result=RESULT)]
    assert await call(manager) == RESULT
    assert server.tries == 2
