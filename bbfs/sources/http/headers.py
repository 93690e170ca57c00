"""Version, type and lifetime of a content, from the headers of an answer. Pure.

RFC 9110 (semantics, sections 8 and 13) and RFC 9111 (caching, section 5.2).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any

from bbfs.sources.http.responses import shown_url

SHORTEST_TTL, LONGEST_TTL = 5.0, 86400.0
"""Seconds. Many servers send 0 with everything, since a browser asks once a click. A program stats a file and then
opens it, which should take one request; hence the shortest. The longest is a day, whatever the server sends."""
_LONGEST = 500
"""Characters of a media type or a date; the parsers for both are quadratic."""
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+", re.ASCII)
_VALIDATORS = ("etag", "last-modified")
_SECONDS = re.compile(r"(?:^|[,\s])(max-age|s-maxage)\s*=\s*\"?(\d{1,10})")


@dataclass(frozen=True, slots=True)
class Validators:
    """The validators of one version of a content (`Content.version`), for revalidating it."""

    version: str
    etag: str | None
    last_modified: str | None

    @classmethod
    def of(cls, headers: Mapping[str, str], version: str) -> "Validators | None":
        """Return the validators in the headers, or None if there are none."""
        etag, modified = (said if is_sendable(said := headers.get(name, "")) else None for name in _VALIDATORS)
        made = cls(version, etag, modified)
        return made if made.etag or made.last_modified else None

    @property
    def conditions(self) -> dict[str, str]:
        """The headers that make a request conditional: 304 if nothing has changed. An ETag has precedence (13.1.3)."""
        if self.etag:
            return {"if-none-match": self.etag}
        return {"if-modified-since": self.last_modified} if self.last_modified else {}


def is_sendable(value: str) -> bool:
    """Return whether a value that a server states can be sent back as it is.

    An entity tag may have any bytes from 0x80 on (RFC 9110, section 8.8.3), which no text tells.
    """
    return value.isascii() and value.isprintable()


def strong_etag(headers: Mapping[str, str]) -> str | None:
    """Return the entity tag if it is strong: equal tags mean equal bytes. None for an ETag that cannot be sent back."""
    etag = headers.get("etag", "")
    is_strong = len(etag) > 2 and etag.startswith('"') and etag.endswith('"')
    return etag if is_strong and is_sendable(etag) else None


def range_validator(headers: Mapping[str, str]) -> str | None:
    """Return the validator for `If-Range`, or None (RFC 9110, section 13.1.5).

    A time of modification counts only if the answer is at least a second younger: then no later change has that time.
    """
    etag = strong_etag(headers)
    if etag is not None:
        return etag
    if "etag" in headers:
        return None
    modified, made = _time(headers.get("last-modified")), _time(headers.get("date"))
    return headers["last-modified"] if modified is not None and made is not None and modified + 1 <= made else None


def modified_ns(headers: Mapping[str, str]) -> int | None:
    """Return `Last-Modified` in nanoseconds since the epoch."""
    modified = _time(headers.get("last-modified"))
    return None if modified is None else int(modified) * 1_000_000_000


def _time(value: str | None) -> float | None:
    try:
        return None if value is None or len(value) > _LONGEST else parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None


def iso_ns(text: str) -> int | None:
    """Return a time as ISO 8601 has it in nanoseconds since the epoch: whole seconds, in UTC if it names no zone."""
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * 1_000_000_000
    except (ValueError, OverflowError):
        return None


def media_type(headers: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the media type without parameters and the charset, both in lower case, None for each that is missing."""
    value = headers.get("content-type", "")[:_LONGEST]
    name = value.partition(";")[0].strip().lower()
    if not _MEDIA_TYPE.fullmatch(name):
        return None, None
    message = Message()
    message["content-type"] = value
    return name, message.get_content_charset()


def time_to_live(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an answer stays fresh, within bounds, or None if the server does not tell."""
    said = headers.get("cache-control", "").lower()
    if "no-cache" in said or "no-store" in said:
        return SHORTEST_TTL
    found = dict(_SECONDS.findall(said))
    if "max-age" not in found:
        return None
    age = headers.get("age", "")
    spent = float(age[:10]) if age.isascii() and age.isdigit() else 0.0
    return min(max(float(found["max-age"]) - spent, SHORTEST_TTL), LONGEST_TTL)


def may_be_kept(headers: Mapping[str, str]) -> bool:
    """Return whether the content may outlive this process (`no-store`)."""
    return "no-store" not in headers.get("cache-control", "").lower()


def properties(url: str, final_url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties of an answer besides its type, time and entity tag. No property is secret."""
    _, charset = media_type(headers)
    given = {
        "charset": charset,
        "final_url": shown_url(final_url) if final_url != url else None,
        "content_language": headers.get("content-language"),
        "cache_control": headers.get("cache-control"),
        "etag_weak": headers.get("etag") if strong_etag(headers) is None else None,
    }
    return {key: value for key, value in given.items() if value is not None}
