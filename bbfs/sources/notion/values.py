"""Answers of Notion's API, read defensively: no object has to have its documented shape.

Shapes are those of the API's version 2025-09-03. Pure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from bbfs.model.errors import ProtocolViolation

Kind = Literal["page", "database", "data_source"]
KINDS = ("page", "database", "data_source")
Json = Mapping[str, Any]
_LONGEST = 2000
"""Characters of a title, a description or a URL of an item; Notion's own limit."""
WEB = "https://www.notion.so/"
"""Base of the web addresses of pages and databases; the id follows."""
_ID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")
_ID_AT_END = re.compile(r"(?:\A|[^0-9a-f])([0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z")


def mapping(value: Any) -> Json:
    """Return a JSON object, or an empty one for any other value."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Json]:
    """Return the JSON objects of an array, or none for any other value."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def string(value: Any) -> str:
    """Return a text without halves of surrogate pairs, or an empty text for any other value."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def as_id(text: str) -> str | None:
    """Return an id as 32 hexadecimal digits, or None for any other text."""
    lowered = text.lower()
    return lowered.replace("-", "") if _ID.fullmatch(lowered) else None


def id_in(text: str) -> str | None:
    """Return the id in a text: an id, or the URL of a page or database, whose path ends with it
    (`…/Title-0123…?v=…`)."""
    try:
        lowered = urlsplit(text.strip().lower()).path.rstrip("/") if "/" in text else text.strip().lower()
    except ValueError:
        return None
    match = _ID_AT_END.search(lowered)
    return None if match is None else match[1].replace("-", "")


def web_url(id: str) -> str:
    return WEB + id


def plain(rich_text: Any) -> str:
    """Return a rich text without formatting."""
    return "".join(
        string(item.get("plain_text")) or string(mapping(item.get("text")).get("content")) for item in items(rich_text)
    )


def time_ns(value: Any) -> int | None:
    """Return a time of the API (ISO 8601) in nanoseconds since the epoch, or None."""
    try:
        moment = datetime.fromisoformat(string(value))
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000


def file_url(file: Json) -> str:
    """Return the URL of a file object. A file at Notion loses its signature, which differs in each answer."""
    kind = string(file.get("type"))
    url = string(mapping(file.get(kind)).get("url")) or string(file.get("url"))
    if kind != "file":
        return url
    try:
        return urlunsplit(urlsplit(url)._replace(query="", fragment=""))
    except ValueError:
        return url.partition("?")[0]


def icon_text(icon: Any) -> str | None:
    """Return an icon as text: an emoji, its name, or the URL of its picture."""
    icon = mapping(icon)
    match icon.get("type"):
        case "emoji":
            return string(icon.get("emoji")) or None
        case "custom_emoji":
            name = string(mapping(icon.get("custom_emoji")).get("name"))
            return f":{name}:" if name else None
        case "icon":
            return string(mapping(icon.get("icon")).get("name")) or None
        case "file" | "external":
            return file_url(icon) or None
    return None


def user_text(user: Any) -> str | None:
    """Return a user's name, or the id if the API gives no name."""
    return (string(mapping(user).get("name")) or string(mapping(user).get("id")))[:_LONGEST] or None


@dataclass(frozen=True, slots=True)
class Parent:
    """The parent of a page, database or block. kind: `workspace`, `page`, `database`, `data_source` or `block`."""

    kind: str
    id: str | None = None

    @classmethod
    def of(cls, value: Any) -> "Parent":
        parent = mapping(value)
        kind = string(parent.get("type"))
        return cls(kind.removesuffix("_id"), as_id(string(parent.get(kind))))


@dataclass(frozen=True, slots=True)
class NotionItem:
    """A page, database or data source, as far as bbfs shows it.

    parent: for a data source, its database. holder: the parent of that database. properties: the values of a row, or
    the columns of a data source. data_sources: id and name of a database's data sources.
    """

    kind: Kind
    id: str
    title: str
    parent: Parent
    holder: Parent | None = None
    created: str = ""
    edited: str = ""
    created_by: str | None = None
    edited_by: str | None = None
    url: str | None = None
    icon: str | None = None
    description: str | None = None
    in_trash: bool = False
    properties: Json | None = None
    data_sources: tuple[tuple[str, str], ...] = ()

    @property
    def edited_ns(self) -> int | None:
        return time_ns(self.edited)

    @classmethod
    def of(cls, value: Any) -> "NotionItem":
        """Read an object of the API. Raise ProtocolViolation for objects of other kinds."""
        found = mapping(value)
        kind, own = string(found.get("object")), as_id(string(found.get("id")))
        if kind not in KINDS or own is None:
            raise ProtocolViolation(f"an object of type {kind!r:.40} with id {string(found.get('id'))!r:.60}")
        properties = mapping(found.get("properties"))
        title = found.get("title") if kind != "page" else _title_of(properties)
        sources = (
            (as_id(string(each.get("id"))), string(each.get("name"))) for each in items(found.get("data_sources"))
        )
        return cls(
            kind,  # type: ignore[arg-type]
            own,
            plain(title)[:_LONGEST],
            Parent.of(found.get("parent")),
            holder=Parent.of(found.get("database_parent")) if kind == "data_source" else None,
            created=string(found.get("created_time")),
            edited=string(found.get("last_edited_time")),
            created_by=user_text(found.get("created_by")),
            edited_by=user_text(found.get("last_edited_by")),
            url=string(found.get("url"))[:_LONGEST] or None,
            icon=(icon_text(found.get("icon")) or "")[:_LONGEST] or None,
            description=plain(found.get("description"))[:_LONGEST] or None,
            in_trash=found.get("in_trash") is True or found.get("archived") is True,
            properties=properties or None,
            data_sources=tuple((one, name) for one, name in sources if one is not None),
        )

    @classmethod
    def of_block(cls, block: Json, parent: Parent) -> "NotionItem":
        """Read the page or database behind a block of type `child_page` or `child_database`."""
        kind: Kind = "page" if block.get("type") == "child_page" else "database"
        own = as_id(string(block.get("id")))
        if own is None:
            raise ProtocolViolation(f"a block with id {string(block.get('id'))!r:.60}")
        return cls(
            kind,
            own,
            string(mapping(block.get(string(block.get("type")))).get("title"))[:_LONGEST],
            parent,
            created=string(block.get("created_time")),
            edited=string(block.get("last_edited_time")),
            created_by=user_text(block.get("created_by")),
            edited_by=user_text(block.get("last_edited_by")),
            url=web_url(own),
        )

    def described(self) -> dict[str, Any]:
        """Return further facts by names in snake_case."""
        facts = {
            "notion_id": self.id,
            "notion_url": self.url or web_url(self.id),
            "notion_type": self.kind,
            "created_time": self.created,
            "created_by": self.created_by,
            "last_edited_by": self.edited_by,
            "icon": self.icon,
        }
        return {key: value for key, value in facts.items() if value}


def _title_of(properties: Json) -> Any:
    """Return the value of the property that is a page's title, whatever its name is."""
    for value in properties.values():
        if mapping(value).get("type") == "title":
            return value.get("title")
    return None
