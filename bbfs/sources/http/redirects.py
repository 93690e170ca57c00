"""Redirects: the next request and its headers (RFC 9110, section 15.4). Pure."""

import httpx2

from bbfs.model.errors import ProtocolViolation
from bbfs.sources.http.responses import shown_url

FOLLOWED = frozenset({301, 302, 303, 307, 308})
HARMLESS = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-type", "if-match", "if-modified-since", "if-none-match"}
    | {"if-range", "if-unmodified-since", "range", "user-agent"}
)
"""Headers that bbfs sends to another origin after a redirect. All others may be credentials."""


def redirected(request: httpx2.Request, status: int, location: str) -> httpx2.Request:
    """Return the request that a redirect asks for. Raises ProtocolViolation."""
    what = f"{request.method} {shown_url(request.url)}: HTTP {status}"
    try:
        url = request.url.join(location).copy_with(userinfo=b"", fragment=None)
    except (httpx2.InvalidURL, ValueError) as exc:
        raise ProtocolViolation(f"{what} to something that is no URL") from exc
    if not is_web(url):
        raise ProtocolViolation(f"{what} to {shown_url(url)}, which is neither http nor https")
    is_same = origin(url) == origin(request.url)
    method = request.method
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method = "GET"
    if not is_same and method not in ("GET", "HEAD"):
        raise ProtocolViolation(f"{what} to another server, {shown_url(url)}, not followed")
    keeps_body = method == request.method
    headers = {
        name: value
        for name, value in request.headers.items()
        if (is_same or name in HARMLESS)
        and name not in ("host", "content-length", "transfer-encoding")
        and (keeps_body or name != "content-type")
    }
    return httpx2.Request(method, url, headers=headers, content=(request.content or None) if keeps_body else None)


def origin(url: httpx2.URL) -> str:
    """Return scheme, host and port (RFC 6454, section 4)."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}:{url.port or (443 if url.scheme == 'https' else 80)}"


def is_web(url: httpx2.URL) -> bool:
    """Return whether a URL is for HTTP and has a host and a valid port."""
    return url.scheme in ("http", "https") and bool(url.host) and (url.port or 80) < 1 << 16
