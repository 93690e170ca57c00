"""The values of a row's columns as plain JSON, and the columns of a data source. Pure.

A value becomes what a person would write: text, number, truth value, date as ISO 8601, or a list of names. A relation
becomes the ids of its pages.
"""

from collections.abc import Mapping
from typing import Any

from bbfs.sources.notion.inline import date_text
from bbfs.sources.notion.values import (
    Json,
    NotionItem,
    as_id,
    file_url,
    items,
    mapping,
    plain,
    string,
    user_text,
    web_url,
)

MOST_AT_ONCE = 25
"""References of one value in the answer for a page or a query. A longer value needs a request of its own."""
_LONG = ("title", "rich_text", "people", "relation")
_NAMED = ("id", "url", "created_time", "last_edited_time")


def flat(value: Any) -> Any:
    """Return the value of one column as JSON."""
    value = mapping(value)
    kind = string(value.get("type"))
    what = value.get(kind)
    match kind:
        case "title" | "rich_text":
            return plain(what if isinstance(what, list) else [what])
        case "select" | "status":
            return string(mapping(what).get("name")) or None
        case "multi_select":
            return [string(option.get("name")) for option in items(what)]
        case "date":
            return date_text(mapping(what)) or None
        case "people":
            return [user_text(person) for person in (items(what) or items([what]))]
        case "created_by" | "last_edited_by":
            return user_text(what)
        case "files":
            return [file_url(file) or string(file.get("name")) for file in items(what)]
        case "relation":
            return [as_id(string(page.get("id"))) for page in (items(what) or items([what]))]
        case "formula":
            return flat(what)
        case "rollup":
            return _rollup(mapping(what))
        case "unique_id":
            parts = (mapping(what).get("prefix"), mapping(what).get("number"))
            return "-".join(str(part) for part in parts if part is not None) or None
        case "verification":
            return string(mapping(what).get("state")) or None
        case "place":
            place = mapping(what)
            return {key: place[key] for key in ("name", "address", "lat", "lon") if place.get(key) is not None} or None
        case "button" | "unsupported" | "":
            return None
    return what  # number, checkbox, url, email, phone_number, created_time, last_edited_time, string, boolean


def _rollup(rollup: Json) -> Any:
    if rollup.get("type") != "array":
        return flat(rollup)
    found: list[Any] = []
    for value in items(rollup.get("array")):
        one = flat(value)
        found.extend(one if isinstance(one, list) else [one])
    return found


def incomplete(properties: Json) -> list[tuple[str, str]]:
    """Return name and id of the columns whose values may be truncated."""
    found: list[tuple[str, str]] = []
    for name, value in properties.items():
        value = mapping(value)
        kind, key = string(value.get("type")), string(value.get("id"))
        what = value.get(kind)
        if kind == "rollup":
            what = mapping(what).get("array")
        is_long = isinstance(what, list) and len(what) >= MOST_AT_ONCE
        if key and (kind in _LONG or kind == "rollup") and (value.get("has_more") is True or is_long):
            found.append((name, key))
    return found


def joined(pieces: list[Json]) -> Any:
    """Join the parts of a long value. The API answers one part for each reference."""
    values = [flat(piece) for piece in pieces]
    if all(string(piece.get("type")) in ("title", "rich_text") for piece in pieces):
        return "".join(value for value in values if isinstance(value, str))
    found: list[Any] = []
    for value in values:
        found.extend(value if isinstance(value, list) else [value])
    return found


def row(item: NotionItem, completed: Mapping[str, Any]) -> dict[str, Any]:
    """Return one row as a JSON object: id, url, times, and the columns by name. completed: full values of truncated
    columns.

    A column with one of the former names gets a `_` at its end.
    """
    facts = {"id": item.id, "url": item.url or web_url(item.id), "created_time": item.created}
    facts["last_edited_time"] = item.edited
    return facts | {column(name): value for name, value in values(item, completed).items()}


def column(name: str) -> str:
    """Return the key of a column in `rows.ndjson`."""
    return f"{name}_" if name.rstrip("_") in _NAMED else name


def values(item: NotionItem, completed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row by name, sorted by name."""
    found = {
        name: completed[name] if name in completed else flat(value) for name, value in (item.properties or {}).items()
    }
    return dict(sorted(found.items()))


def schema(source: NotionItem) -> dict[str, Any]:
    """Return the schema of a data source: title, description, and columns with their types and options."""
    columns = {}
    for name, value in sorted((source.properties or {}).items()):
        value = mapping(value)
        kind = string(value.get("type"))
        described = {"id": value.get("id"), "type": kind, "description": value.get("description")}
        described |= {"key": column(name), "options": _options(kind, mapping(value.get(kind)))}
        columns[name] = {key: what for key, what in described.items() if what not in (None, "", {}, [])}
    facts = {
        "id": source.id,
        "database": source.parent.id,
        "title": source.title,
        "description": source.description,
        "url": source.url,
        "created_time": source.created,
        "last_edited_time": source.edited,
        "columns": columns,
    }
    return {key: what for key, what in facts.items() if what not in (None, "")}


def _options(kind: str, config: Json) -> Any:
    if kind in ("select", "multi_select", "status"):
        return [string(option.get("name")) for option in items(config.get("options"))]
    return dict(config)
