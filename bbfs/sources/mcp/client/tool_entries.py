"""Entries of `tools/list` and `prompts/list`, decoded and checked as in `decode`. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

from bbfs.model.errors import NotSupported
from bbfs.sources.mcp.client.decode import mcp_data, text_of, ttl_seconds, usable_text, weight

_MAX_WEIGHT = 1 << 20
"""Bytes of memory that one tool or prompt may take: some ten thousand values of a schema."""
ParameterHeaders = dict[tuple[str, ...], str]
"""The arguments of a tool (paths of property names) that HTTP requests of protocol 2026-07-28 repeat in headers."""


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """One tool of `tools/list`. input_schema: JSON Schema of its arguments, as the server gave it.

    needs_task: whether a server of protocol 2025-11-25 runs it only as a task, not as a plain call.
    """

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    output_schema: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] | None = None
    needs_task: bool = False
    mcp_data: Mapping[str, Any] | None = None

    @property
    def read_only(self) -> bool:
        """Return whether the server declares the tool read-only, and not destructive at the same time."""
        hints = self.annotations or {}
        return hints.get("readOnlyHint") is True and hints.get("destructiveHint") is not True

    @property
    def repeatable(self) -> bool:
        """Return whether running the tool twice with the same arguments has the effect of one run."""
        return self.read_only or (self.annotations or {}).get("idempotentHint") is True


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """One prompt of `prompts/list`. input_schema: JSON Schema of its arguments, all of them texts."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Mapping[str, Any] = field(default_factory=lambda: _of_texts({}, []))
    mcp_data: Mapping[str, Any] | None = None


def tool_entry(raw: Any) -> ToolEntry | None:
    """Decode a listed tool; None if it has no usable name or no schema, or is too large.

    By protocol 2026-07-28 a client leaves out tools whose schema names illegal headers (`x-mcp-header`).
    """
    name = usable_text(raw, "name")
    if name is None:
        return None
    schema = raw.get("inputSchema")
    if weight(raw, _MAX_WEIGHT) > _MAX_WEIGHT:
        return None
    if not isinstance(schema, dict) or find_invalid_x_mcp_header(schema) is not None:
        return None
    output_schema, annotations, execution = (raw.get(key) for key in ("outputSchema", "annotations", "execution"))
    annotations = annotations if isinstance(annotations, dict) else None
    title = text_of(raw.get("title")) or (text_of(annotations.get("title")) if annotations else None)
    return ToolEntry(
        name=name,
        title=title,
        description=text_of(raw.get("description")),
        input_schema=schema,
        output_schema=output_schema if isinstance(output_schema, dict) else None,
        annotations=annotations,
        needs_task=isinstance(execution, dict) and execution.get("taskSupport") == "required",
        mcp_data=mcp_data(raw),
    )


def prompt_entry(raw: Any) -> PromptEntry | None:
    """Decode a listed prompt; None if it or one of its arguments has no usable name, or if it is too large."""
    name = usable_text(raw, "name")
    if name is None or weight(raw, _MAX_WEIGHT) > _MAX_WEIGHT:
        return None
    texts: dict[str, dict[str, str]] = {}
    required: list[str] = []
    listed = raw.get("arguments")
    for argument in listed if isinstance(listed, list) else []:
        own = usable_text(argument, "name")
        if own is None:
            return None
        if own not in texts:
            told = {key: text_of(argument.get(key)) for key in ("title", "description")}
            texts[own] = {key: text for key, text in told.items() if text is not None}
            required += [own] if argument.get("required") is True else []
    title, description = text_of(raw.get("title")), text_of(raw.get("description"))
    return PromptEntry(name, title, description, _of_texts(texts, required), mcp_data(raw))


def _of_texts(texts: Mapping[str, Mapping[str, str]], required: list[str]) -> dict[str, Any]:
    """Return the schema of arguments that are texts. texts: what is said of each."""
    properties = {name: {"type": "string", **told} for name, told in texts.items()}
    return {"type": "object", "properties": properties, "required": required}


def parameter_headers(tool: ToolEntry) -> ParameterHeaders:
    """Return the arguments of a tool that headers repeat."""
    return x_mcp_header_map(dict(tool.input_schema))


def require_complete(result: Mapping[str, Any]) -> None:
    """Raise NotSupported for an answer that asks for input instead of giving a result."""
    if result.get("resultType") == "input_required":
        raise NotSupported("the server asks for input before it answers")


def result_ttl(result: Mapping[str, Any]) -> float | None:
    """Return the time to live (seconds) of a result, from `ttlMs` or its `_meta`, or None."""
    meta = result.get("_meta")
    found = ttl_seconds(result)
    return found if found is not None or not isinstance(meta, dict) else ttl_seconds(meta)
