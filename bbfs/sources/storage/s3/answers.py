"""The answers of an S3 server: listings and errors in XML, and the headers of objects."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree
from xml.sax.saxutils import escape

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
from bbfs.sources.bounded.turns import InTurns
from bbfs.sources.http.headers import iso_ns
from bbfs.sources.http.responses import number_in
from bbfs.sources.http.statuses import STORAGE_ERRORS, status_error
from bbfs.sources.storage import web_objects
from bbfs.sources.storage.addresses import shown
from bbfs.sources.storage.backend import StoredItem, short
from bbfs.sources.storage.web_objects import Facts, etag_in
from bbfs.sources.storage.xml import local_name, parse_small_xml, parse_xml

_CODES: dict[str, type[BbfsError]] = {
    **dict.fromkeys(("NoSuchKey", "NoSuchBucket", "NoSuchVersion", "KeyTooLongError"), NotFound),
    **dict.fromkeys(("AccessDenied", "AllAccessDisabled", "AccountProblem", "InvalidObjectState"), Denied),
    **dict.fromkeys(("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"), LoginRequired),
    **dict.fromkeys(("TokenRefreshRequired", "MissingSecurityHeader"), LoginRequired),
    **dict.fromkeys(("InternalError", "ServiceUnavailable"), Unreachable),
    "RequestTimeTooSkewed": Denied,
    "PreconditionFailed": Outdated,
    "SlowDown": Busy,
    "RequestTimeout": DeadlineExceeded,
    "NotImplemented": NotSupported,
}
"""By the code in the body ("Error responses" of the Amazon S3 API reference); answers to HEAD have none."""
_MOVED = (301, 307, 400)
"""Statuses of a request to, or signed for, another region than that of the bucket."""
_REGION = re.compile(r"[a-z0-9-]{1,40}")
_LONGEST_TOKEN = 2048
"""Characters of a token that asks for the next page; Amazon's have about a hundred."""
_SECRET = re.compile(r"(?i)(signature|accesskeyid|token|stringtosign|canonicalrequest)")

_LONGEST_UPLOAD = 4096
"""Characters of the id of an upload."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a listing. token: asks for the next page; None on the last.

    objects: by their keys, without a path. The size of an object is None if it is stated as no number.
    """

    objects: tuple[tuple[str, StoredItem], ...]
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

    objects: list[tuple[str, StoredItem]] = []
    prefixes: list[str] = []
    async for element in InTurns(root):
        name = local_name(element)
        if name == "CommonPrefixes":
            prefixes.append(key(_texts(element).get("Prefix", "")))
        elif name == "Contents":
            said = _texts(element)
            objects.append((key(said.get("Key", "")), _object(said)))
    truncated, token = listing.get("IsTruncated") == "true", listing.get("NextContinuationToken")
    if truncated and (not token or len(token) > _LONGEST_TOKEN):
        raise ProtocolViolation("a listing that goes on, without a usable token that asks for more")
    return Page(tuple(objects), tuple(prefixes), token if truncated else None)


def _object(said: Mapping[str, str]) -> StoredItem:
    size, modified = number_in(said.get("Size", "")), iso_ns(said.get("LastModified", ""))
    storage_class = short(said.get("StorageClass"))
    properties = {"storage_class": storage_class} if storage_class else None
    return StoredItem((), "resource", size, modified, etag_in(said.get("ETag", "")), properties=properties)


def region_of(status: int, headers: Mapping[str, str]) -> str | None:
    """Return the region of the bucket that a refusal names, None if it names no region."""
    region = headers.get("x-amz-bucket-region", "")
    return region if status in _MOVED and _REGION.fullmatch(region) else None


def error_of(status: int, headers: Mapping[str, str], body: bytes, what: str) -> BbfsError:
    """Return the error for an answer. Its text has no part of a request's signature."""
    code = message = ""
    if body.lstrip()[:1] == b"<":
        with suppress(ProtocolViolation):  # a proxy's page: the status decides
            said = _texts(parse_small_xml(body))
            code, message = said.get("Code", ""), said.get("Message", "")
    if _SECRET.search(message):
        message = ""
    region = headers.get("x-amz-bucket-region")
    if status in (301, 307) or code in ("PermanentRedirect", "AuthorizationHeaderMalformed"):
        hint = f"; the bucket is in the region {shown(region)} (options.region)" if region else ""
        return ProtocolViolation(f"{what}: the server sends us elsewhere{hint}")
    kind = _CODES.get(code) or status_error(status, STORAGE_ERRORS)
    told = ": ".join(text for text in (code, message) if text) or f"status {status}"
    return kind(f"{what}: {shown(told)}")


def facts_of(status: int, headers: Mapping[str, str]) -> Facts:
    """Return the facts in the headers of an answer to HEAD or GET, also of a part. Raises ProtocolViolation."""
    facts = web_objects.facts_of(status, headers)
    version = headers.get("x-amz-version-id")
    given: dict[str, Any] = {
        "storage_class": short(headers.get("x-amz-storage-class")),
        "version_id": version if version != "null" else None,
        "encryption": headers.get("x-amz-server-side-encryption"),
        "restore": headers.get("x-amz-restore"),
    }
    prefix = "x-amz-meta-"
    user = {key[len(prefix) :]: value for key, value in headers.items() if key.startswith(prefix)}
    given["user_metadata"] = user or None
    said = {key: value for key, value in given.items() if value is not None}
    return replace(facts, properties={**facts.properties, **said})


def upload_of(body: bytes) -> str:
    """Return the id of a multipart upload that has begun. Raises ProtocolViolation."""
    upload = _texts(parse_small_xml(body)).get("UploadId", "")
    if not upload or len(upload) > _LONGEST_UPLOAD:
        raise ProtocolViolation("an upload without an id")
    return upload


def parts_document(etags: Iterable[str]) -> bytes:
    """Return the list of all parts that ends a multipart upload."""
    parts = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag></Part>"
        for number, etag in enumerate(etags, 1)
    )
    return f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()


def etag_of_upload(body: bytes, result: str, what: str) -> str:
    """Return the ETag of an object that was made from parts, or by a copy. Raises the error that is in the answer.

    result: the name of the document that says that the object is made.
    """
    document = _document(body)
    if document is None or local_name(document) != result:
        raise _not_made(document, body, what)
    return _texts(document).get("ETag", "")


def require_no_document(body: bytes, what: str) -> None:
    """Raise the error that is in the answer to a change which is answered without a document once it is made."""
    if body.lstrip()[:1] == b"<":
        raise _not_made(_document(body), body, what)


def _document(body: bytes) -> ElementTree.Element | None:
    """Return the root of a document, None if it is not XML, as most pages of proxies."""
    try:
        return parse_small_xml(body)
    except ProtocolViolation:
        return None


def _not_made(document: ElementTree.Element | None, body: bytes, what: str) -> BbfsError:
    """Return the error for an answer that has a status of success, and a document that says something else."""
    if document is not None and local_name(document) == "Error":
        return error_of(500, {}, body, what)
    return ProtocolViolation(f"{what}: the server has not said that it is done: its answer is no answer of S3")


def _texts(element: ElementTree.Element) -> dict[str, str]:
    """Return the texts of the children by their names, the first of each, whatever its namespace."""
    return {local_name(child): child.text or "" for child in reversed(element)}
