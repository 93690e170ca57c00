"""AWS Signature Version 4 for requests without a body, as Amazon S3 and those that speak its protocol want it. Pure.

The rule is "Authenticating Requests (AWS Signature Version 4)" of the Amazon S3 API reference.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from urllib.parse import quote

_UNRESERVED = "-._~"
_NO_BODY = sha256(b"").hexdigest()
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who asks. session_token: of temporary credentials."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def encoded_path(path: str) -> str:
    """A path as it is signed: each byte but unreserved characters and slashes is percent-encoded, none twice."""
    return quote(path, safe=_UNRESERVED + "/", errors="surrogateescape")


def encoded_query(query: Mapping[str, str]) -> str:
    """A query as it is signed and sent: sorted, with percent-encoded names and values."""
    pairs = sorted((quote(key, safe=_UNRESERVED), quote(value, safe=_UNRESERVED)) for key, value in query.items())
    return "&".join(f"{key}={value}" for key, value in pairs)


def signing_headers(credentials: Credentials, host: str, now: datetime) -> dict[str, str]:
    """The headers that a signature covers. host: as in the header Host. now: in UTC."""
    headers = {"host": host, "x-amz-content-sha256": _NO_BODY, "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ")}
    if credentials.session_token is not None:
        headers["x-amz-security-token"] = credentials.session_token
    return headers


def authorization(
    credentials: Credentials,
    region: str,
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
) -> str:
    """The header Authorization over all of `headers`, whose names are in lower case."""
    names = ";".join(sorted(headers))
    canonical = "\n".join(
        [
            method,
            encoded_path(path),
            encoded_query(query),
            *(f"{name}:{' '.join(headers[name].split())}" for name in sorted(headers)),
            "",
            names,
            headers["x-amz-content-sha256"],
        ]
    )
    moment = headers["x-amz-date"]
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    to_sign = "\n".join([_ALGORITHM, moment, scope, sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + credentials.secret_key.encode()
    for part in (moment[:8], region, "s3", "aws4_request"):
        key = _hmac(key, part)
    signature = _hmac(key, to_sign).hex()
    return f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
