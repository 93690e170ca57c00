"""Results of tools and prompts of the servers behind this one, with URIs that this server loads."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as types

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.model.uri import encodable, source_uri
from bbfs.resources.source import Source
from bbfs.server.excerpts import HEAD, Wanted, excerpt
from bbfs.server.excerpts import MOST as MOST_CHARACTERS
from bbfs.server.gateway.entries import characters, fits, own_meta, validated
from bbfs.server.kept import KeptResults
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.mcp.client.decode import utf8

MOST_BLOCKS = 10_000
"""Blocks of a result, or messages of a prompt."""
_WEB = ("https:", "http:")


async def in_parts(raw: Mapping[str, Any], kept: KeptResults) -> Mapping[str, Any]:
    """Return a result of a tool in which each text that is longer than a part has its first part.

    A line before it says which part it is, and under which URI the whole text is kept. A text that cannot be kept stays
    whole. Structured content that has the text as its only value has the same part. Raise BbfsError.
    """
    left, blocks, parts = MOST_CHARACTERS, list[Any](), dict[str, str]()
    content = raw.get("content")
    for block in content if isinstance(content, list) else ():
        holder = block.get("resource") if isinstance(block, dict) and block.get("type") == "resource" else block
        text = holder.get("text") if isinstance(holder, dict) else None
        if not isinstance(holder, dict) or not isinstance(text, str) or len(text) <= min(HEAD, left):
            left -= len(text) if isinstance(text, str) else 0
            blocks.append(block)
            continue
        whole, mime_type = MemoryContent(utf8(text)), holder.get("mimeType")
        uri = kept.keep(whole, mime_type if isinstance(mime_type, str) else "text/plain")
        if uri is None:
            blocks.append(block)
            continue
        found = await excerpt(whole, Wanted(), min(HEAD, left)) if left > 0 else None
        said = str(found) if found is not None else f"left out: {MOST_CHARACTERS} characters are in this answer already"
        parts[text] = found.text if found is not None else ""
        left -= len(parts[text])
        blocks.append({"type": "text", "text": f"{said}, kept for later calls as {uri}"})
        cut = {**holder, "text": parts[text]}
        blocks.append(cut if holder is block else {**block, "resource": cut})
    return {**raw, "content": blocks, **_structured(raw, parts)} if parts else raw


def _structured(raw: Mapping[str, Any], parts: Mapping[str, str]) -> dict[str, Any]:
    """Return the structured content in which the only value is a text of which there is a part."""
    given = raw.get("structuredContent")
    if not isinstance(given, dict) or len(given) != 1:
        return {}
    ((key, value),) = given.items()
    return {"structuredContent": {key: parts[value]}} if isinstance(value, str) and value in parts else {}


def tool_result(source: Source, raw: Mapping[str, Any], version: str, most: int) -> types.CallToolResult:
    """Return the result of a tool. most: characters of it as JSON. Raise TooLarge, ProtocolViolation."""
    content = _list(raw.get("content"), "content")
    result: dict[str, Any] = {
        "content": [_block(source, each) for each in content],
        "isError": raw.get("isError") is True,
    }
    if "structuredContent" in raw and raw["structuredContent"] is not None:
        result["structuredContent"] = raw["structuredContent"]
    return _fitting("tools/call", types.CallToolResult, {**result, **_meta(raw)}, version, most)


def prompt_result(source: Source, raw: Mapping[str, Any], version: str, most: int) -> types.GetPromptResult:
    """Return a rendered prompt. most: characters of it as JSON. Raise TooLarge, ProtocolViolation."""
    messages = _list(raw.get("messages"), "messages")
    result: dict[str, Any] = {"messages": [_message(source, each) for each in messages], **_meta(raw)}
    if isinstance(description := raw.get("description"), str):
        result["description"] = description
    return _fitting("prompts/get", types.GetPromptResult, result, version, most)


def _fitting(method: str, model: Any, result: dict[str, Any], version: str, most: int) -> Any:
    """Return a result for clients of a version of the protocol.

    A block that the version does not have becomes a text of its JSON, and structured content that is no object is left
    out where only objects may be. (A text of the result repeats it, as the protocol says.)
    """
    if characters(result, most) > most:
        raise TooLarge(f"a result that is too large; one answer has at most {most} characters (--max-result)")
    changes: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (
        lambda given: given,
        _without_values,
        lambda given: _texts_only(method, given, version),
        lambda given: _texts_only(method, _without_values(given), version),
    )
    for change in changes:
        changed = change(result)
        if fits(method, version, changed) and (found := validated(model, changed)) is not None:
            return found
    raise ProtocolViolation(f"an answer to {method} that does not fit the protocol")


def _without_values(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in ("structuredContent", "_meta")}


def _texts_only(method: str, result: dict[str, Any], version: str) -> dict[str, Any]:
    """Return a result whose unfit blocks are texts."""

    def fitted(block: Any) -> Any:
        alone = {"content": [block]}
        if fits("tools/call", version, alone) and validated(types.CallToolResult, alone) is not None:
            return block
        return {"type": "text", "text": json.dumps(block, ensure_ascii=False)}

    if method == "tools/call":
        return {**result, "content": [fitted(block) for block in result["content"]]}
    return {**result, "messages": [{**each, "content": fitted(each["content"])} for each in result["messages"]]}


def _list(value: Any, name: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ProtocolViolation(f"a result whose {name} is no list")
    if len(value) > MOST_BLOCKS:
        raise TooLarge(f"a result of {len(value)} parts, more than {MOST_BLOCKS}")
    return value


def _message(source: Source, message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise ProtocolViolation("a prompt with a message that is no object")
    role = "assistant" if message.get("role") == "assistant" else "user"
    return {"role": role, "content": _block(source, message.get("content"))}


def _block(source: Source, block: Any) -> Any:
    """Return a block of content, with a URI that this server loads in a link and an embedded resource."""
    if not isinstance(block, dict):
        return block
    resource = block.get("resource")
    if block.get("type") == "resource_link":
        return {**block, **_uri(source, block)}
    if block.get("type") == "resource" and isinstance(resource, dict):
        return {**block, "resource": {**resource, **_uri(source, resource)}}
    return block


def _uri(source: Source, holder: Mapping[str, Any]) -> dict[str, str]:
    """Return the URI of a resource under its bbfs URI.

    An address in the web stays as it is unless the server lists it: clients load it themselves, as the protocol says.
    """
    uri = holder.get("uri")
    if not isinstance(uri, str) or not encodable(uri):
        return {}
    if uri.startswith(_WEB):
        record = source.catalog.record(uri)
        if record is None or not record.path:
            return {}
    return {"uri": source_uri(source.data.base_prefix, uri)}


def _meta(raw: Mapping[str, Any]) -> dict[str, Any]:
    kept = own_meta(raw)
    return {"_meta": kept} if kept else {}
