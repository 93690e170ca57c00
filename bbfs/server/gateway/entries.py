"""Listed tools and prompts of the servers behind this one, as entries of this server's own lists."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import mcp_types as types
from mcp_types import methods
from pydantic import BaseModel, ValidationError

from bbfs.model.redaction import printable
from bbfs.resources.documents import plain
from bbfs.sources.gateway import OfferedKind

EntryT = TypeVar("EntryT", types.Tool, types.Prompt)
LARGEST = 256 << 10
"""Characters of one entry as JSON; a larger one is left out."""
LONGEST_DESCRIPTION = 16 << 10
"""Characters; a longer one is cut."""
LARGEST_BESIDES = 8 << 10
"""Characters of the icons of a listed resource, and of its metadata, as JSON; larger ones are left out."""
LONGEST_TITLE = 200
OF_THE_PROTOCOL = "io.modelcontextprotocol/"
"""What the names of metadata begin with that concern the connection to the server behind alone."""
MOST_ICONS = 8
_LONGEST_ICON = 64 << 10
"""Characters of the address of an icon, which may hold the picture itself."""
_ICON_SCHEMES = ("https:", "http:", "data:")
_OPTIONAL = ("outputSchema", "annotations", "icons", "_meta")
"""Fields that are left out where they do not fit the client's version of the protocol."""
_METHODS: Mapping[OfferedKind, Literal["tools/list", "prompts/list"]] = {
    "tools": "tools/list",
    "prompts": "prompts/list",
}
_REST = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
"""What a result of each version needs besides."""


def entry_of(
    kind: OfferedKind, model: type[EntryT], raw: Mapping[str, Any], public: str, version: str
) -> EntryT | None:
    """Return an entry for clients of a version of the protocol; None if it is too large or does not fit."""
    entry = {**_bounded(raw), "name": public}
    if kind == "tools":
        entry["inputSchema"] = {"type": "object", **raw["inputSchema"]}
    if characters(entry, LARGEST) > LARGEST:
        return None
    held = [name for name in _OPTIONAL if name in entry]
    for dropped in ((), *((name,) for name in held), tuple(held)):
        fitting = {key: value for key, value in entry.items() if key not in dropped}
        if fits(_METHODS[kind], version, {kind: [fitting]}):
            return validated(model, fitting)
    return None


def characters(value: Any, limit: int) -> int:
    """Return about how many characters a value has as JSON. Counts no further than `limit`."""
    pending, size = [value], 0
    while pending and size <= limit:
        each = pending.pop()
        size += 2
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            pending.extend(each.keys())
            pending.extend(each.values())
        elif isinstance(each, list):
            pending.extend(each)
    return size


def fits(method: str, version: str, result: Mapping[str, Any]) -> bool:
    """Return whether a result is valid in a version of the protocol."""
    try:
        methods.validate_server_result(method, version, {**_REST, **result})
    except (ValidationError, KeyError, ValueError):
        return False
    return True


ModelT = TypeVar("ModelT", bound=BaseModel)


def validated(model: type[ModelT], value: Any) -> ModelT | None:
    """Return a value of the protocol, or None if it is invalid."""
    try:
        return model.model_validate(value, by_name=False)
    except ValidationError:
        return None


def _bounded(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with texts and icons within the bounds."""
    entry = dict(raw)
    if isinstance(title := entry.get("title"), str):
        entry["title"] = printable(title)[:LONGEST_TITLE]
    if isinstance(description := entry.get("description"), str) and len(description) > LONGEST_DESCRIPTION:
        entry["description"] = description[: LONGEST_DESCRIPTION - 1] + "…"
    if "icons" in entry:
        entry["icons"] = _icons(entry["icons"])
    return entry


def _icons(given: Any) -> Sequence[Any]:
    usable = [
        icon
        for icon in (given if isinstance(given, list) else ())
        if isinstance(icon, dict)
        and isinstance(src := icon.get("src"), str)
        and src.startswith(_ICON_SCHEMES)
        and len(src) <= _LONGEST_ICON
    ]
    return usable[:MOST_ICONS]


def besides(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the icons and the metadata of a listed resource or template, as far as they are within the bounds."""
    said: dict[str, Any] = plain(given) or {}
    icons = [each for each in _icons(said.get("icons")) if validated(types.Icon, each) is not None]
    found = {"icons": icons, "_meta": own_meta(said)}
    return {key: each for key, each in found.items() if each and characters(each, LARGEST_BESIDES) <= LARGEST_BESIDES}


def own_meta(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an answer without those of the connection to its server."""
    meta = raw.get("_meta")
    kept = meta.items() if isinstance(meta, dict) else ()
    return {key: value for key, value in kept if not key.startswith(OF_THE_PROTOCOL)}
