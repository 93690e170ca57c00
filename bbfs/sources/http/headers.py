"""What the headers of an answer say of its content: which version it is, of what type, and how long it holds. Pure.

RFC 9110 (semantics, sections 8 and 13) and RFC 9111 (caching, section 5.2).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any

from bbfs.sources.http.responses import shown_url

SHORTEST_TTL, LONGEST_TTL = 5.0, 86400.0
"""Seconds. Many servers say 0 of everything, as browsers ask once a click; here a program looks at a file and then
opens it, which is to be one request. One that says more than a day is asked again all the same."""
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+", re.ASCII)
_SECONDS = re.compile(r"(?:^|[,\s])(max-age|s-maxage)\s*=\s*\"?(\d{1,10})")


@dataclass(frozen=True, slots=True)
class Validators:
    """By what the server is asked whether it still has a version of a content (`Content.version`)."""

    version: str
    etag: str | None
    last_modified: str | None

    @classmethod
    def of(cls, headers: Mapping[str, str], version: str) -> "Validators | None":
        """None where the server gave none."""
        made = cls(version, headers.get("etag"), headers.get("last-modified"))
        return made if made.etag or made.last_modified else None

    @property
    def conditions(self) -> dict[str, str]:
        """The headers of a request that is answered 304 if nothing has changed. An ETag counts alone (13.1.3)."""
        if self.etag:
            return {"if-none-match": self.etag}
        return {"if-modified-since": self.last_modified} if self.last_modified else {}


def strong_etag(headers: Mapping[str, str]) -> str | None:
    """The entity tag, if equal ones mean equal bytes."""
    etag = headers.get("etag", "")
    return etag if len(etag) > 2 and etag.startswith('"') and etag.endswith('"') else None


def range_validator(headers: Mapping[str, str]) -> str | None:
    """What `If-Range` may pin a version by, or None (RFC 9110, section 13.1.5).

    A time of modification will do only if the answer was made later, so that no second change falls in its second.
    """
    etag = strong_etag(headers)
    if etag is not None:
        return etag
    if "etag" in headers:
        return None
    modified, made = _time(headers.get("last-modified")), _time(headers.get("date"))
    return headers["last-modified"] if modified is not None and made is not None and modified + 1 <= made else None


def modified_ns(headers: Mapping[str, str]) -> int | None:
    """`Last-Modified` in nanoseconds since the epoch."""
    modified = _time(headers.get("last-modified"))
    return None if modified is None else int(modified) * 1_000_000_000


def _time(value: str | None) -> float | None:
    try:
        return None if value is None else parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None


def media_type(headers: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The media type without parameters, and its charset, both in lower case, as far as they are said."""
    value = headers.get("content-type", "")
    name = value.partition(";")[0].strip().lower()
    if not _MEDIA_TYPE.fullmatch(name):
        return None, None
    message = Message()
    message["content-type"] = value
    return name, message.get_content_charset()


def time_to_live(headers: Mapping[str, str]) -> float | None:
    """Seconds for which the answer is fresh, within bounds, or None where the server leaves that open."""
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
    """Whether the content may be kept beyond this process (`no-store`)."""
    return "no-store" not in headers.get("cache-control", "").lower()


def properties(url: str, final_url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """What is shown of an answer besides its type, time and entity tag. Nothing of it is secret."""
    _, charset = media_type(headers)
    given = {
        "charset": charset,
        "final_url": shown_url(final_url) if final_url != url else None,
        "content_language": headers.get("content-language"),
        "cache_control": headers.get("cache-control"),
        "etag_weak": headers.get("etag") if strong_etag(headers) is None else None,
    }
    return {key: value for key, value in given.items() if value is not None}
