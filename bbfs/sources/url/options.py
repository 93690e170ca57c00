"""The options and the credentials of a URL source."""

import base64
from collections.abc import Mapping

import httpx2
from pydantic import Field, field_validator, model_validator

from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource
from bbfs.sources.http.client import MAX_BODY, USER_AGENT
from bbfs.sources.http.proxies import ProxyUrl
from bbfs.sources.http.redirects import origin
from bbfs.sources.options import Bytes, SourceOptions, as_given, local_path, made_of_references
from bbfs.sources.url.pages import page_url


class UrlOptions(SourceOptions):
    """Options of a URL source. At least one of the first three is required."""

    urls: tuple[str, ...] = ()
    """Pages, by their URLs."""
    llms_txt: str | None = None
    """An llms.txt (<https://llmstxt.org>), as a URL or a file. The file and the links in its lists are pages, with
    their titles and descriptions."""
    sitemap: str | None = None
    """URL of a sitemap or of an index of sitemaps (XML or text, also gzipped). Its entries are pages, with `lastmod` as
    their time."""
    markdown: bool = False
    """Add a rendering as Markdown beside each page that may be HTML."""
    robots: bool = True
    """Obey the robots.txt of a site for pages found in an llms.txt or a sitemap."""
    per_second: float | None = Field(default=None, gt=0, le=1000)
    """Most requests to one site per second."""
    max_urls: int = Field(default=50_000, ge=1, le=1_000_000)
    """Most pages to list. If there are more, `user.bbfs.error` of the source's directory says so."""
    max_body: Bytes = Field(default=MAX_BODY, ge=1, le=1 << 40)
    """Largest page that is loaded whole."""
    max_markdown: Bytes = Field(default=2 << 20, ge=1, le=64 << 20)
    """Largest page that is rendered as Markdown. The rendering of a larger one is `EFBIG`."""
    max_memory: Bytes = Field(default=1 << 20, ge=0, le=1 << 30)
    """Larger pages are read in ranges, if the server supports ranges."""
    headers: Mapping[str, str] = Field(default_factory=dict)
    """Headers for the sites in `urls`, `llms_txt` and `sitemap`."""
    user_agent: str = Field(default=USER_AGENT, min_length=1, max_length=500, pattern=r"^[\x20-\x7e]+$")
    """The `User-Agent`. Its part before the first `/` is the name in robots.txt."""
    allow_private: bool = False
    """Allow addresses of this machine and of private networks."""
    proxy: ProxyUrl | None = None
    """URL of an HTTP proxy."""

    @field_validator("urls")
    @classmethod
    def _pages(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_page(url) for url in urls)

    @field_validator("sitemap")
    @classmethod
    def _sitemap_page(cls, sitemap: str | None) -> str | None:
        return None if sitemap is None else _page(sitemap)

    @model_validator(mode="after")
    def _something(self) -> "UrlOptions":
        if not (self.urls or self.llms_txt or self.sitemap):
            raise ValueError("one of urls, llms_txt and sitemap is required")
        return self


def _page(text: str) -> str:
    url = page_url(text)
    if url is None:
        raise ValueError("must be http:// or https:// URLs without user and password (those belong in auth)")
    return url


def llms_txt_place(options: UrlOptions, source: DataSource) -> tuple[str | None, str | None]:
    """Return the URL of the llms.txt, or its path."""
    text = options.llms_txt
    if text is None:
        return None, None
    if text.lower().startswith(("http://", "https://")):
        url = page_url(text)
        if url is None:
            raise ConfigError(f"sources[{source.id}].config.llms_txt: is no URL that can be asked for")
        return url, None
    return None, local_path(source, text)


def refuse_secrets_in_urls(source: DataSource) -> None:
    """Raise ConfigError for a secret in a URL, which is the visible path of a page (S30)."""
    given = as_given(source, "urls")
    for text in (*(given if isinstance(given, list | tuple) else ()), as_given(source, "llms_txt")):
        if any(secret in str(text) for secret in made_of_references(text)):
            raise ConfigError(
                f"sources[{source.id}].config: a URL made from a reference would show its value in a path; "
                "what is secret belongs in auth or headers"
            )


class Credentials:
    """The headers for the sites that the configuration names, and for no other site.

    `auth` has `token` (a bearer token), or `username` and `password`. Raises ConfigError.
    """

    def __init__(self, source: DataSource, headers: Mapping[str, str], named: frozenset[str]) -> None:
        """named: URLs."""
        self._sites = frozenset(origin(httpx2.URL(url)) for url in named)
        self._headers = {name.lower(): value for name, value in {**headers, **_authorization(source)}.items()}

    @property
    def secrets(self) -> frozenset[str]:
        """The parts to redact in messages."""
        return frozenset(part for value in self._headers.values() for part in (value, value.partition(" ")[2]) if part)

    def for_url(self, url: str) -> dict[str, str]:
        return dict(self._headers) if origin(httpx2.URL(url)) in self._sites else {}


def _authorization(source: DataSource) -> dict[str, str]:
    keys = frozenset(source.auth)
    if not keys:
        return {}
    if keys == {"token"}:
        return {"Authorization": f"Bearer {source.auth['token']}"}
    if keys == {"username", "password"}:
        pair = f"{source.auth['username']}:{source.auth['password']}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    raise ConfigError(f"sources[{source.id}].auth: expected token, or username and password")
