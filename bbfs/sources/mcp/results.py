"""Results of tools and prompts as the parts of a content. Pure.

A text, an image, a sound, an embedded resource and structured content are a part each; a link to a resource is a link.
Structured content that a text repeats is one part: servers do that for clients that only show text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from bbfs.model import uri_paths
from bbfs.model.errors import ProtocolViolation, TooLarge, ToolFailed
from bbfs.model.values import Loaded, Part
from bbfs.sources.bounded.json import JsonBounds, parse_json
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.mcp.client.decode import content_part, text_of, usable_text, utf8, weight
from bbfs.sources.mcp.client.tool_entries import require_complete, result_ttl

MAX_ERROR = 2000
"""Characters of a tool's error message."""
_TEXTS = JsonBounds(size=64 << 20, depth=100)
"""Bounds of a text that may be JSON; a larger one is a plain text."""
_INDENTED = 16 << 20
"""Bytes of memory of a value from which its JSON is not indented: deep values would grow with each level."""
_ABSENT: Any = object()
_CONTROL = re.compile(r"[\x00-\x20\x7f-\x9f]")
_JSON = "application/json"
_SHORTCUT = "application/x-mswinurl"


def tool_result(result: Mapping[str, Any]) -> Loaded:
    """Decode the result of a tool. Its time to live is 0 unless the server gives one.

    Raises ToolFailed with the tool's own message if it failed, ProtocolViolation, NotSupported.
    """
    is_failure = is_error(result)
    blocks = _blocks(result.get("content"))
    if is_failure:
        raise ToolFailed(_failure(blocks, result.get("structuredContent")))
    structured = result.get("structuredContent", _ABSENT)
    ttl = result_ttl(result) or 0.0
    if structured is None or structured is _ABSENT:
        parts = [_part(number, block) for number, block in enumerate(blocks, 1)]
        return Loaded(tuple(parts) or (_text_part("", "1"),), ttl)
    once = _said_once(blocks, structured)
    if once is not None:
        return Loaded((once,), ttl)
    parts = [_part(number, block) for number, block in enumerate(blocks, 1)]
    return Loaded((*parts, _json_part(structured, "structured.json")), ttl)


def is_error(result: Mapping[str, Any]) -> bool:
    """Return whether a tool reports an error of its own. Raise ProtocolViolation if that is unclear, NotSupported."""
    require_complete(result)
    said = result.get("isError")
    if not isinstance(said, bool | None):
        raise ProtocolViolation("a result whose isError is neither true nor false")
    return said is True


def parsed_result(result: Mapping[str, Any]) -> Any:
    """Return the structured content of a result, else the value of its only text, if that is JSON, else None."""
    structured = result.get("structuredContent")
    if structured is not None:
        return structured
    blocks = _blocks(result.get("content"))
    text = _text(blocks[0]) if len(blocks) == 1 else None
    value = _ABSENT if text is None else _parsed(text)
    return None if value is _ABSENT else value


def texts_of(result: Mapping[str, Any]) -> list[str]:
    """Return the texts of a result, one for each block. Raise ProtocolViolation."""
    return [text for block in _blocks(result.get("content")) if (text := _text(block)) is not None]


def prompt_result(result: Mapping[str, Any]) -> Loaded:
    """Decode a rendered prompt: one text if all its messages are texts, otherwise one part per message.

    Of several messages, each stands below a heading with its role.
    """
    require_complete(result)
    messages = result.get("messages")
    if not isinstance(messages, list):
        raise ProtocolViolation("a prompt without messages")
    said = [(_role(message), block) for message in messages for block in _contents(message)]
    ttl = result_ttl(result)
    texts = [text for _, block in said if (text := _text(block)) is not None]
    if len(texts) < len(said):
        parts = (_part(number, block, f"-{role}") for number, (role, block) in enumerate(said, 1))
        return Loaded(tuple(parts), ttl)
    if len(said) == 1:
        return Loaded((_text_part(texts[0], "prompt"),), ttl)
    document = "\n\n".join(f"# {role}\n\n{text.rstrip()}" for (role, _), text in zip(said, texts, strict=True))
    content = MemoryContent(utf8(document + "\n" if document else ""))
    return Loaded((Part(None, "text/markdown", content, "text", name="prompt.md"),), ttl)


def call_size(result: Mapping[str, Any], limit: int) -> int:
    """Return about how many characters and values `tool_result` and `prompt_result` have to decode, up to a bound."""
    pending: list[Any] = [result.get("content"), result.get("structuredContent"), result.get("messages")]
    size = 0
    while pending and size < limit:
        value = pending.pop()
        size += 1
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return size


def _blocks(content: Any) -> list[Mapping[str, Any]]:
    if content is None:
        return []
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise ProtocolViolation("a result whose content is no list of objects")
    return content


def _contents(message: Any) -> list[Mapping[str, Any]]:
    """Return the contents of a message of a prompt; the protocol has one, but some servers send several."""
    content = message.get("content") if isinstance(message, dict) else None
    return _blocks(content if isinstance(content, list) else [content])


def _role(message: Mapping[str, Any]) -> str:
    role = message.get("role")
    return role if role in ("user", "assistant") else "user"


def _failure(blocks: Sequence[Mapping[str, Any]], structured: Any) -> str:
    texts = [text for block in blocks if (text := _text(block)) is not None]
    if not texts and structured:
        texts = [json.dumps(structured, ensure_ascii=False, default=str)]
    text = text_of("\n".join(texts).strip()) or "the tool failed and does not say why"
    return text if len(text) <= MAX_ERROR else text[: MAX_ERROR - 1] + "…"


def _said_once(blocks: Sequence[Mapping[str, Any]], structured: Any) -> Part | None:
    """Return the one part of a result whose texts only repeat its structured content, or None."""
    texts = [_text(block) for block in blocks]
    if len(texts) == 1 and texts[0] is not None and _parsed(texts[0]) == structured:
        return _json_part(structured, "structured.json")
    if not isinstance(structured, dict) or len(structured) != 1:
        return None
    # Servers wrap results that are no objects, most often as `result` or `content`: a text is one block, each item of a
    # list is one, null has none.
    (inner,) = structured.values()
    if inner is None and not texts:
        return _text_part("", "1")
    if len(blocks) == 1 and _repeats(inner, blocks):
        return _part(1, blocks[0])
    if len(texts) == 1 and texts[0] is not None and _says(texts[0], inner):
        return _text_part(texts[0], "1")
    if isinstance(inner, list) and len(inner) == len(texts) and all(map(_says, texts, inner)):
        return _json_part(inner, "structured.json")
    return None


def _repeats(value: Any, blocks: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a value has the blocks themselves, but for their metadata."""
    plain = [{key: each for key, each in block.items() if key not in ("_meta", "annotations")} for block in blocks]
    return value in (plain, list(blocks), *plain, *blocks)


def _says(text: str | None, value: Any) -> bool:
    return text is not None and value in (text, _parsed(text))


def _part(number: int, block: Mapping[str, Any], suffix: str = "") -> Part:
    """Return the part of one block. `number` and `suffix` make its name."""
    name = f"{number}{suffix}"
    kind = block.get("type")
    if kind == "text" and (text := _text(block)) is not None:
        return _text_part(text, name)
    if kind in ("image", "audio") and isinstance(block.get("data"), str):
        part = content_part({"blob": block["data"], "mimeType": block.get("mimeType")})
        return Part(None, part.mime_type, part.content, "binary", name=_file_name(name, part.mime_type))
    if kind == "resource":
        part = content_part(block.get("resource"))
        return Part(
            part.native_uri, part.mime_type, part.content, part.content_type, name=_file_name(name, part.mime_type)
        )
    if kind == "resource_link" and (uri := usable_text(block, "uri")) is not None:
        one_line = _CONTROL.sub(lambda found: quote(found[0]), uri)
        shortcut = MemoryContent(f"[InternetShortcut]\nURL={one_line}\n".encode())
        return Part(None, _SHORTCUT, shortcut, "text", link=uri, name=name)
    return _json_part(block, f"{name}.json")


def _text(block: Mapping[str, Any]) -> str | None:
    text = block.get("text")
    return text if block.get("type") == "text" and isinstance(text, str) else None


def _parsed(text: str) -> Any:
    """Return the value of a JSON text, or a value that equals no other value."""
    try:
        return parse_json(text.encode(), _TEXTS)
    except (UnicodeEncodeError, ProtocolViolation, TooLarge):
        return _ABSENT


def _text_part(text: str, name: str) -> Part:
    is_json = text.lstrip()[:1] in ("{", "[") and isinstance(_parsed(text), dict | list)
    mime_type = _JSON if is_json else "text/plain"
    return Part(None, mime_type, MemoryContent(utf8(text)), "text", name=_file_name(name, mime_type))


def _json_part(value: Any, name: str) -> Part:
    return Part(None, _JSON, MemoryContent(json_bytes(value)), "text", name=name)


def json_bytes(value: Any) -> bytes:
    """Encode a value as JSON in UTF-8, indented unless it is large. Raises ProtocolViolation for a value that is nested
    too deeply."""
    indent = 2 if weight(value, _INDENTED) <= _INDENTED else None
    try:
        return utf8(json.dumps(value, indent=indent, ensure_ascii=False, default=dict) + "\n")
    except RecursionError as error:
        raise ProtocolViolation("JSON that is nested too deep") from error


def _file_name(stem: str, mime_type: str | None) -> str:
    return stem + uri_paths.index_name(mime_type).removeprefix("index")
