"""HTTP proxies: proxies of the environment (`HTTPS_PROXY`, `NO_PROXY`), and options that name a proxy."""

from typing import Annotated
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
from pydantic import AfterValidator

from bbfs.sources.http.redirects import is_web


def has_proxies() -> bool:
    """Return whether the environment names a proxy for any URL."""
    return not {"http", "https", "all"}.isdisjoint(getproxies())


def proxy_of_environment(url: str) -> str | None:
    """Return the URL of the proxy that the environment names for a URL, or None."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def _proxy_url(proxy: str) -> str:
    try:
        usable = is_web(httpx2.Proxy(proxy).url)
    except (httpx2.InvalidURL, ValueError):
        usable = False
    if not usable:
        raise ValueError("must be the http:// or https:// URL of a proxy")
    return proxy


ProxyUrl = Annotated[str, AfterValidator(_proxy_url)]
"""An option that is the URL of an HTTP proxy."""
