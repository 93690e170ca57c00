"""The tools of a source: through the daemon of a mount, or of the sources that this process opens."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bbfs.cli.operands import control_client
from bbfs.cli.operands.access import SourceTree, Target
from bbfs.cli.operands.direct import DirectTree
from bbfs.model.errors import ProtocolViolation


@dataclass(frozen=True, slots=True)
class ResultPart:
    """One part of a result. text: whether its bytes are UTF-8 text. link: the native URI that it stands for."""

    name: str | None
    mime_type: str | None
    text: bool
    link: str | None
    data: bytes


async def directory_of(target: Target) -> str | None:
    """Return the directory of the source that an operand names, None for the root. Raise BbfsError, OSError.

    A short name such as `git` is a link in a mount, and leads to `mcp-server+git`.
    """
    path = (await target.located())[:1]
    if path and target.tree.mount is not None:
        path = (await control_client.resolved(target.tree.mount, path))[:1]
    return path[0] if path else None


async def tools(tree: SourceTree, source: str) -> list[dict[str, Any]]:
    """Return the tools of the source with this directory at the root. Raise BbfsError, OSError."""
    request = {"request": "tools", "source": source}
    if isinstance(tree, DirectTree):
        from bbfs.resources.commands.calls import Calls  # noqa: PLC0415 - the handlers

        return await Calls(tree.manager).tools(request)
    answers = control_client.answers(tree.mount, request)
    return [message["tool"] async for message in answers if isinstance(message.get("tool"), dict)]


async def call(
    tree: SourceTree, request: dict[str, Any], progress: Callable[[dict[str, Any]], None]
) -> list[ResultPart]:
    """Call a tool and return the parts of its result. Raise ToolFailed with the tool's own error; BbfsError, OSError.

    request: as `bbfs.resources.commands.calls` describes it. progress: gets what the source reports meanwhile.
    """
    if isinstance(tree, DirectTree):
        from bbfs.resources.commands.calls import Calls, described  # noqa: PLC0415 - the handlers

        loaded = await Calls(tree.manager).call(request, progress)
        found = [(described(part), part.content) for part in loaded.parts]
        return [_part(fields, await content.read_waiting(0, content.size)) for fields, content in found]
    parts: list[tuple[dict[str, Any], bytearray]] = []
    async for message in control_client.answers(tree.mount, {"request": "call", **request}):
        match message:
            case {"progress": dict(made)}:
                progress(made)
            case {"part": dict(fields)}:
                parts.append((fields, bytearray()))
            case {"data": str(data)} if parts:
                parts[-1][1].extend(base64.b64decode(data))
    return [_part(fields, bytes(data)) for fields, data in parts]


def _part(fields: dict[str, Any], data: bytes) -> ResultPart:
    name, mime_type, link = (fields.get(key) for key in ("name", "mimeType", "link"))
    if not all(isinstance(each, str | None) for each in (name, mime_type, link)):
        raise ProtocolViolation("a part of a result whose fields are no texts")
    return ResultPart(name, mime_type, fields.get("text") is True, link, data)
