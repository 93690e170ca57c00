"""The answers of an S3 server: listings and errors in XML, and the headers of objects. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree

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
from bbfs.sources.http.statuses import STORAGE_ERRORS, status_error
from bbfs.sources.storage.addresses import shown

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


def page_of(body: bytes) -> Page:
    """Return a page of ListObjectsV2. Raises ProtocolViolation."""
    root = _parsed(body)
    if _plain(root.tag) != "ListBucketResult":
        raise ProtocolViolation(f"the answer to a listing is <{shown(_plain(root.tag))}>")
    encoded = _text(root, "EncodingType") == "url"

    def key(text: str) -> str:
        return unquote_plus(text, errors="surrogateescape") if encoded else text

    objects: list[ListedObject] = []
    prefixes: list[str] = []
    for element in root:
        name = _plain(element.tag)
        if name == "CommonPrefixes":
            prefixes.append(key(_text(element, "Prefix")))
        elif name == "Contents":
            size = _text(element, "Size")
            if not size.isascii() or not size.isdigit():
                raise ProtocolViolation("a listing with a size that is no number")
            modified = _text(element, "LastModified")
            objects.append(
                ListedObject(
                    key(_text(element, "Key")),
                    int(size),
                    _from_iso(modified),
                    _text(element, "ETag").strip('"') or None,
                    _text(element, "StorageClass") or None,
                )
            )
    truncated = _text(root, "IsTruncated") == "true"
    token = _text(root, "NextContinuationToken") or None
    if truncated and token is None:
        raise ProtocolViolation("a listing that goes on, without the token that asks for more")
    return Page(tuple(objects), tuple(prefixes), token if truncated else None)


def error_of(status: int, headers: Mapping[str, str], body: bytes, what: str) -> BbfsError:
    """Return the error for an answer. Its text has no part of a request's signature."""
    code = message = ""
    if body.lstrip()[:1] == b"<":
        try:
            root = _parsed(body)
            code, message = _text(root, "Code"), _text(root, "Message")
        except ProtocolViolation:
            pass  # a proxy's page: the status decides
    if _SECRET.search(message):
        message = ""
    region = headers.get("x-amz-bucket-region")
    if status in (301, 307) or code in ("PermanentRedirect", "AuthorizationHeaderMalformed"):
        hint = f"; the bucket is in the region {shown(region)} (options.region)" if region else ""
        return ProtocolViolation(f"{what}: the server sends us elsewhere{hint}")
    kind = _CODES.get(code) or status_error(status, STORAGE_ERRORS)
    said = ": ".join(text for text in (code, message) if text) or f"status {status}"
    return kind(f"{what}: {shown(said)}")


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
    if not size.isascii() or not size.isdigit():
        raise ProtocolViolation("an object whose size the server does not say")
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
        int(size),
        headers.get("etag", "").strip('"') or None,
        _from_http(headers.get("last-modified", "")),
        None if mime_type.partition(";")[0].strip().lower() in _GENERIC else mime_type,
        {key: value for key, value in properties.items() if value is not None},
    )


def _parsed(body: bytes) -> ElementTree.Element:
    # Only XML in UTF-16 has zero bytes, and these words would not be found in it.
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body or b"\0" in body:
        raise ProtocolViolation("an answer that defines entities of its own, or may")
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise ProtocolViolation(f"an answer that is no XML: {error}") from None


def _plain(tag: str) -> str:
    return tag.rpartition("}")[2]


def _text(element: ElementTree.Element, name: str) -> str:
    """Return the text of a child, whatever its namespace, or an empty text."""
    return next((child.text or "" for child in element if _plain(child.tag) == name), "")


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
