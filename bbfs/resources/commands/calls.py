"""Lists and calls the tools of sources (`bbfs tools`, `bbfs call`).

    {"id": 1, "request": "tools", "source": "mcp-server+git"}
    {"id": 2, "request": "call", "source": "mcp-server+git", "tool": "git_log", "values": {"max_count": ["5"]},
     "arguments": {}, "confirmed": false}

`values` are texts, which the schema of the tool converts; `arguments` are any values. Each tool comes as `{"id": 1,
"tool": {…}}`. During a call come `{"id": 2, "progress": {…}}`, then for each part of the result `{"id": 2, "part":
{…}}` and its bytes as `{"id": 2, "data": BASE64}`. If the tool itself failed, the error has `"failed": true`.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import trio

from bbfs.model.errors import DeadlineExceeded, NotSupported, ProtocolViolation
from bbfs.model.values import Call, Loaded, Part, Progress
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.sources import CanCall

PIECE = 512 << 10
"""Bytes of a result in one message."""
LONGEST = 3600.0
"""Seconds of one call, however often the source reports that it goes on; the source's `timeout` if that is longer."""


class Calls:
    """The tools of the sources of one manager."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager

    async def tools(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the tools of a source; none for one that has no such things. Raise BbfsError."""
        source = self._source(request)
        if not isinstance(source.handler, CanCall):
            return []
        with source.waiters, trio.move_on_after(source.data.policy.timeout):
            return [_document(asdict(tool)) for tool in await source.handler.tools()]
        raise DeadlineExceeded(f"no answer within {source.data.policy.timeout:g} s")

    async def call(self, request: dict[str, Any], told: Callable[[dict[str, Any]], None]) -> Loaded:
        """Call a tool once. Raise BbfsError. told: gets each progress.

        A progress begins the source's `timeout` again, within the bound of `LONGEST` for the whole call.
        """
        source, call = self._source(request), _call(request)
        if not isinstance(source.handler, CanCall):
            raise NotSupported(f"{source.data.id} has no tools")
        timeout = source.data.policy.timeout
        longest = max(timeout, LONGEST)
        end = trio.current_time() + longest
        with source.waiters, trio.move_on_after(timeout) as bound:

            def progress(made: Progress) -> None:
                bound.deadline = min(trio.current_time() + timeout, end)
                told(_document(asdict(made)))

            async with source.slots.ask():
                return await source.handler.call(call, progress)
        within = longest if trio.current_time() >= end else timeout
        raise DeadlineExceeded(f"no answer within {within:g} s (option timeout)")

    def _source(self, request: dict[str, Any]) -> Source:
        name = request.get("source")
        if not isinstance(name, str):
            raise ProtocolViolation("source must be a string")
        return self._manager.tree.place((name,))[0]


def described(part: Part) -> dict[str, Any]:
    """Return what precedes the bytes of one part of a result."""
    kind = {"name": part.name, "mimeType": part.mime_type, "link": part.link}
    return _document({**kind, "text": part.content_type == "text"})


def _document(fields: dict[str, Any]) -> dict[str, Any]:
    plain = {key: list(map(_document, value)) if key == "arguments" else value for key, value in fields.items()}
    return {key: value for key, value in plain.items() if value is not None}


def _call(request: dict[str, Any]) -> Call:
    tool, values, given = (request.get(key) for key in ("tool", "values", "arguments"))
    if not isinstance(tool, str):
        raise ProtocolViolation("tool must be a string")
    values, given = ({} if each is None else each for each in (values, given))
    if not isinstance(values, dict) or not isinstance(given, dict):
        raise ProtocolViolation("values and arguments must be objects")
    texts: dict[str, tuple[str, ...]] = {}
    for name, each in values.items():
        if not isinstance(each, list) or not all(isinstance(text, str) for text in each):
            raise ProtocolViolation("each of the values must be an array of strings")
        texts[name] = tuple(each)
    return Call(tool, texts, given, request.get("confirmed") is True)
