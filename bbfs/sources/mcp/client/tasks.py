"""Tasks: calls of tools that a server answers with a handle at once, and with the result when it is asked later.

Protocol 2025-11-25 has them itself: the client asks for one (`task` in the request) where a tool declares to need that,
and `tasks/result` has the result. Since 2026-07-28 they are an extension, which bbfs declares with each request: the
server decides which calls are tasks, and `tasks/get` has the result, an error, or questions for the user.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import mcp_types as types
import trio
from mcp.shared.exceptions import MCPError

from bbfs.model.calls import Progress
from bbfs.model.errors import BbfsError, NotSupported, ProtocolViolation
from bbfs.model.redaction import printable
from bbfs.sources.mcp.client.client_features import MAX_ROUNDS
from bbfs.sources.mcp.client.connection import Connection
from bbfs.sources.mcp.client.decode import usable_text
from bbfs.sources.mcp.client.errors import request_error
from bbfs.sources.mcp.client.session import McpSession
from bbfs.sources.mcp.client.tool_entries import ToolEntry

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two questions for a task whose server proposes none; doubling."""
LEAST_PROPOSED, MOST_PROPOSED = 0.05, 10.0
"""Bounds (seconds) on the pause that a server proposes: a slower answer would miss the deadlines of readers."""
_CANCEL_WITHIN = 1.0
"""Seconds to cancel a task at the server."""
_LONGEST_TEXT = 500
"""Characters of what a server says of a task."""
_ENDED = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class _Task:
    """The state of a task. pause: seconds until the next question, if the server proposes that. raw: its answer."""

    id: str
    status: str
    text: str | None
    pause: float | None
    raw: Mapping[str, Any]


def of_call(session: McpSession, tool: ToolEntry) -> dict[str, Any]:
    """Return the parameters that make a call a task, where the tool needs that and the server has tasks."""
    return {"task": {}} if tool.needs_task and "tasks" in session.server.capabilities else {}


def handle(session: McpSession, tool: ToolEntry, result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the description of the task that an answer to a call stands for, or None for a result."""
    if session.modern:
        return result if result.get("resultType") == "task" else None
    task = result.get("task")
    return task if isinstance(task, dict) and of_call(session, tool) else None


async def result_of(
    connection: Connection, session: McpSession, described: Mapping[str, Any], tell: Callable[[Progress], None] | None
) -> dict[str, Any]:
    """Wait for the result of a task, and return it. Raises BbfsError. Where the caller gives up, cancel the task.

    described: as `handle` returns it. tell: called with each state that the server reports; `done` is the number of
    seconds since the beginning. It must not raise.
    """
    task = _decoded(session, described, None)
    began, pause, answered = trio.current_time(), FIRST_PAUSE, set[str]()
    try:
        while True:
            if tell is not None:
                tell(Progress(round(trio.current_time() - began, 2), None, task.text))
            if task.status in _ENDED and task.raw is not described:
                return await _ended(connection, session, task)
            if task.status == "input_required":
                if not session.modern:  # `tasks/result` waits, and the questions come as requests of the server
                    return await _ask(connection, "tasks/result", task.id)
                await _answer(connection, session, task, answered)
            if task.status not in _ENDED:
                await trio.sleep(pause if task.pause is None else task.pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
            session, raw = await connection.request("tasks/get", {"taskId": task.id}, kind="call")
            task = _decoded(session, raw, task)
    except BaseException:
        if task.status not in _ENDED:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CANCEL_WITHIN), suppress(MCPError):
                await session.exchange("tasks/cancel", {"taskId": task.id})
        raise


async def _ask(connection: Connection, method: str, task: str) -> dict[str, Any]:
    return (await connection.request(method, {"taskId": task}, kind="call"))[1]


async def _ended(connection: Connection, session: McpSession, task: _Task) -> dict[str, Any]:
    """Return the result of a task that has ended. Raises BbfsError."""
    if task.status == "cancelled":
        raise BbfsError(": ".join(filter(None, ("the server has cancelled the task", task.text))))
    if not session.modern:
        return await _ask(connection, "tasks/result", task.id)
    if task.status == "failed":
        error = task.raw.get("error")
        code, text = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
        said = text if isinstance(text, str) else task.text or ""
        failure = MCPError(code if type(code) is int else types.INTERNAL_ERROR, said)
        raise request_error(failure, reading=False, cut=session.cut)
    result = task.raw.get("result")
    if not isinstance(result, dict):
        raise ProtocolViolation("a completed task without a result")
    return result


async def _answer(connection: Connection, session: McpSession, task: _Task, answered: set[str]) -> None:
    """Answer the questions of a task that have not been answered yet. Raises BbfsError."""
    asked = task.raw.get("inputRequests")
    new = {key: each for key, each in asked.items() if key not in answered} if isinstance(asked, dict) else {}
    if not new:
        return
    if len(answered) >= MAX_ROUNDS:
        raise NotSupported(f"the server still asks for input after {len(answered)} answers")
    try:
        responses = await session.input_responses(new)
    except MCPError as error:
        raise request_error(error, reading=False, cut=session.cut) from error
    answered.update(new)
    await connection.request("tasks/update", {"taskId": task.id, "inputResponses": responses}, kind="call")


def _decoded(session: McpSession, raw: Mapping[str, Any], before: _Task | None) -> _Task:
    """Return the state of a task that a server describes. Raises ProtocolViolation.

    before: the last state; the server need not repeat the id.
    """
    name = usable_text(raw, "taskId") if before is None else before.id
    status, text = raw.get("status"), raw.get("statusMessage")
    if name is None or status not in ("working", "input_required", *_ENDED):
        raise ProtocolViolation("a task without a usable id and status")
    said = printable(session.cut(text, _LONGEST_TEXT)) if isinstance(text, str) else None
    pause = _pause(raw.get("pollIntervalMs" if session.modern else "pollInterval"))
    return _Task(name, status, said, pause, raw)


def _pause(milliseconds: Any) -> float | None:
    """Return the pause in seconds that a server proposes, within the bounds; None for anything but a number."""
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return None
    return max(LEAST_PROPOSED, min(1000 * MOST_PROPOSED, milliseconds) / 1000)
