"""The answers of an S3 server: listings and errors in XML, and the headers of objects."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree

import trio

from bbfs.model.errors import (
    BbfsError,
    Busy,
    DeadlineExceeded,
    Denied,
    LoginRequired,
    NotFound,
    NotSupported,
    Outdated,
    ProtocolViolation,
    Unreachable,
)
from bbfs.sources.content.ranges import LARGEST
from bbfs.sources.http.statuses import STORAGE_ERRORS, status_error
from bbfs.sources.storage.addresses import shown
from bbfs.sources.storage.backend import A_TURN
from bbfs.sources.storage.xml import local_name, parse_small_xml, parse_xml

_CODES: dict[str, type[BbfsError]] = {
    "NoSuchKey": NotFound,
    "NoSuchBucket": NotFound,
    "NoSuchVersion": NotFound,
    "AccessDenied": Denied,
    "AllAccessDisabled": Denied,
    "AccountProblem": Denied,
    "InvalidObjectState": Denied,
    "RequestTimeTooSkewed": Denied,
    "InvalidAccessKeyId": LoginRequired,
    "SignatureDoesNotMatch": LoginRequired,
    "ExpiredToken": LoginRequired,
    "InvalidToken": LoginRequired,
    "TokenRefreshRequired": LoginRequired,
    "MissingSecurityHeader": LoginRequired,
    "PreconditionFailed": Outdated,
    "SlowDown": Busy,
    "RequestTimeout": DeadlineExceeded,
    "InternalError": Unreachable,
    "ServiceUnavailable": Unreachable,
    "NotImplemented": NotSupported,
    "KeyTooLongError": NotFound,
}
"""By the code in the body ("Error responses" of the Amazon S3 API reference); answers to HEAD have none."""
_GENERIC = ("", "binary/octet-stream", "application/octet-stream", "application/x-www-form-urlencoded")
"""Types without meaning, which servers send for objects that were stored without one."""
_LONGEST_TOKEN = 2048
"""Characters of a token that asks for the next page; Amazon's have about a hundred."""
_SECRET = re.compile(r"(?i)(signature|accesskeyid|token|stringtosign|canonicalrequest)")


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object in a page of a listing. size: bytes."""

    key: str
    size: int
    modified_ns: int | None
    etag: str | None
    storage_class: str | None


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a listing. token: asks for the next one; None on the last."""

    objects: tuple[ListedObject, ...]
    prefixes: tuple[str, ...]
    token: str | None


async def page_of(body: bytes) -> Page:
    """Return a page of ListObjectsV2. Raises ProtocolViolation."""
    root = await parse_xml(body)
    if local_name(root) != "ListBucketResult":
        raise ProtocolViolation(f"the answer to a listing is <{shown(local_name(root))}>")
    listing = _texts(root)
    encoded = listing.get("EncodingType") == "url"

    def key(text: str) -> str:
        return unquote_plus(text, errors="surrogateescape") if encoded else text

    objects: list[ListedObject] = []
    prefixes: list[str] = []
    for number, element in enumerate(root, 1):
        name = local_name(element)
        if name == "CommonPrefixes":
            prefixes.append(key(_texts(element).get("Prefix", "")))
        elif name == "Contents":
            objects.append(_object(_texts(element), key))
        if number % A_TURN == 0:
            await trio.lowlevel.checkpoint()
    truncated, token = listing.get("IsTruncated") == "true", listing.get("NextContinuationToken")
    if truncated and (not token or len(token) > _LONGEST_TOKEN):
        raise ProtocolViolation("a listing that goes on, without a usable token that asks for more")
    return Page(tuple(objects), tuple(prefixes), token if truncated else None)


def _object(said: Mapping[str, str], key: Callable[[str], str]) -> ListedObject:
    return ListedObject(
        key(said.get("Key", "")),
        _size(said.get("Size", ""), "a listing with a size that is no number"),
        _from_iso(said.get("LastModified", "")),
        said.get("ETag", "").strip('"') or None,
        said.get("StorageClass") or None,
    )


def _size(text: str, problem: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < LARGEST:
        return int(text)
    raise ProtocolViolation(problem)


def error_of(status: int, headers: Mapping[str, str], body: bytes, what: str) -> BbfsError:
    """Return the error for an answer. Its text has no part of a request's signature."""
    code = message = ""
    if body.lstrip()[:1] == b"<":
        try:
            said = _texts(parse_small_xml(body))
            code, message = said.get("Code", ""), said.get("Message", "")
        except ProtocolViolation:
            pass  # a proxy's page: the status decides
    if _SECRET.search(message):
        message = ""
    region = headers.get("x-amz-bucket-region")
    if status in (301, 307) or code in ("PermanentRedirect", "AuthorizationHeaderMalformed"):
        hint = f"; the bucket is in the region {shown(region)} (options.region)" if region else ""
        return ProtocolViolation(f"{what}: the server sends us elsewhere{hint}")
    kind = _CODES.get(code) or status_error(status, STORAGE_ERRORS)
    told = ": ".join(text for text in (code, message) if text) or f"status {status}"
    return kind(f"{what}: {shown(told)}")


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts in the headers of an object. size: bytes of the whole object."""

    size: int
    etag: str | None
    modified_ns: int | None
    mime_type: str | None
    properties: Mapping[str, Any]


def facts_of(status: int, headers: Mapping[str, str]) -> Facts:
    """Return the facts in the headers of an answer to HEAD or GET, also of a part. Raises ProtocolViolation.

    The ETag is without quotes, which some servers leave out of listings.
    """
    size = headers.get("content-length", "")
    if status == 206:
        size = headers.get("content-range", "").rpartition("/")[2]
    mime_type = headers.get("content-type", "")
    version = headers.get("x-amz-version-id")
    properties: dict[str, Any] = {
        "stored_type": mime_type or None,
        "storage_class": headers.get("x-amz-storage-class"),
        "version_id": version if version != "null" else None,
        "content_encoding": headers.get("content-encoding"),
        "content_disposition": headers.get("content-disposition"),
        "content_language": headers.get("content-language"),
        "cache_control": headers.get("cache-control"),
        "expires": headers.get("expires"),
        "encryption": headers.get("x-amz-server-side-encryption"),
        "restore": headers.get("x-amz-restore"),
    }
    prefix = "x-amz-meta-"
    user = {key[len(prefix) :]: value for key, value in headers.items() if key.startswith(prefix)}
    properties["user_metadata"] = user or None
    return Facts(
        _size(size, "an object whose size the server does not say, or that no file can have"),
        headers.get("etag", "").strip('"') or None,
        _from_http(headers.get("last-modified", "")),
        None if mime_type.partition(";")[0].strip().lower() in _GENERIC else mime_type,
        {key: value for key, value in properties.items() if value is not None},
    )


def _texts(element: ElementTree.Element) -> dict[str, str]:
    """Return the texts of the children by their names, the first of each, whatever its namespace."""
    return {local_name(child): child.text or "" for child in reversed(element)}


def _from_iso(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _nanoseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _from_http(text: str) -> int | None:
    try:
        return _nanoseconds(parsedate_to_datetime(text))
    except (ValueError, TypeError, IndexError):
        return None


def _nanoseconds(moment: datetime) -> int:
    whole = moment.replace(microsecond=0)
    return int(whole.timestamp()) * 1_000_000_000  # listings have fractions of a second, headers do not
