"""The options of a REST API (`[sources.config]`)."""

from typing import Annotated
from urllib.parse import urljoin, urlsplit

from pydantic import Field, field_validator

from bbfs.model.errors import ConfigError
from bbfs.model.redaction import shown
from bbfs.model.values import DataSource
from bbfs.sources.api.document import TOKEN
from bbfs.sources.api.loading import MAX_DOCUMENT, file_url
from bbfs.sources.http.client import MAX_BODY
from bbfs.sources.http.proxies import ProxyUrl
from bbfs.sources.options import Bytes, SourceOptions, as_given, local_path, made_of_references

MAX_PAGES, MAX_ITEMS = 10, 10_000
WRITING = ("PUT", "PATCH", "POST", "DELETE")
"""Methods of operations that write."""


class ValuesFrom(SourceOptions):
    """The source of values: a member of the items of an operation."""

    path: str
    """The path of the operation in the document."""
    field: str | None = None
    """The member, with dots for nesting."""


class SearchOptions(SourceOptions):
    """The operation that searches the API."""

    operation: str
    """Its path in the document."""
    query: str | None = None
    """Its parameter for the words. Without it, the one with a usual name."""
    limit: str | None = None
    """Its parameter for the number of hits. Without it, the one with a usual name."""
    uri: str | None = None
    """The member of an item with the URL of its resource (`links.self`). Without it, the first of `uri`, `url`, `href`,
    `self` and `link`."""
    resource: str | None = None
    """Instead of `uri`, the path of the operation that has the resource. The last variable of the path is the key of
    the item."""
    arguments: dict[str, str | int | float | bool] = Field(default={})
    """Values that every search sends."""


class ApiOptions(SourceOptions):
    """Options of a REST API."""

    document: str = Field(min_length=1)
    """The OpenAPI document: a URL, or a path (relative to the configuration file). bbfs reads the document again when
    the listing's `ttl` is over."""
    server: str | None = None
    """Base URL of the paths, instead of the document's `servers`."""
    server_variables: dict[str, str] = Field(default={})
    """Values for the variables in the document's servers, instead of their defaults."""
    headers: dict[str, str] = Field(default={})
    """Headers for every request to the API."""
    document_headers: dict[str, str] = Field(default={})
    """Headers for requests for the document. These get neither `headers` nor `auth`."""
    include: tuple[str, ...] = ()
    """Globs over the document's paths (`/pets/**`; `*` matches no slash). Without it, everything."""
    exclude: tuple[str, ...] = ()
    """Globs over paths to leave out."""
    search: SearchOptions | None = None
    """The operation that searches the API, with the keys below. Without it, the source is not searched."""
    write: tuple[str, ...] = ()
    """The operations that bbfs may send to write, by method and path (`"PUT /pets/{petId}"`) or `operationId`. Without
    it, bbfs sends only GET."""
    values: dict[str, tuple[str | int, ...] | ValuesFrom] = Field(default={})
    """Values of variables, by the variable's name or by `PATH#NAME`: an array, or a table with `path` (an operation of
    the document) and `field` (a member of its items, with dots for nesting). Without it, the API's own lists."""
    max_pages: int = Field(default=MAX_PAGES, ge=1, le=1000)
    """Most pages of one list."""
    max_items: int = Field(default=MAX_ITEMS, ge=1)
    """bbfs asks for no further page of a list once it has so many items."""
    max_body: Annotated[Bytes, Field(ge=1)] = MAX_BODY
    """Largest answer, and most bytes of all pages of a list together."""
    max_document: Annotated[Bytes, Field(ge=1, le=1 << 30)] = MAX_DOCUMENT
    """Largest document, with all documents that it refers to."""
    per_second: float | None = Field(default=None, gt=0)
    """Most requests per second."""
    allow_private: bool = False
    """Allow addresses that are not public (this machine, the local network)."""
    proxy: ProxyUrl | None = None
    """URL of an HTTP proxy for all requests."""

    @field_validator("headers", "document_headers")
    @classmethod
    def _sendable(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not TOKEN.fullmatch(name):
                raise ValueError(f"{shown(name, 40)} is no name of a header")
            if not (value.isascii() and value.isprintable()) or value != value.strip():
                raise ValueError(f"the value of {name} cannot be sent")
        return headers

    @field_validator("write")
    @classmethod
    def _of_a_method_that_writes(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            method, space, path = name.partition(" ")
            if not name or name.startswith("/") or (space and path.startswith("/") and method not in WRITING):
                raise ValueError(f"should be operationIds, or {', '.join(WRITING[:-1])} or {WRITING[-1]} and a path")
        return names

    @field_validator("server")
    @classmethod
    def _absolute(cls, server: str | None) -> str | None:
        if server is not None and (urlsplit(server).scheme not in ("http", "https") or not urlsplit(server).hostname):
            raise ValueError("should be an http or https URL")
        return server


def refuse_secrets_in_urls(source: DataSource) -> None:
    """Raise ConfigError for a secret in a URL of the API: paths on the mount show that URL (S30)."""
    for key in ("server", "server_variables", "document"):
        value = as_given(source, key)
        is_document = key == "document" and isinstance(value, str)
        shown_of_it = urljoin(document_url(source, value), ".") if is_document else str(value)
        is_shown = key != "document" or "://" in str(value)
        if is_shown and any(secret in shown_of_it for secret in made_of_references(value)):
            raise ConfigError(
                f"sources[{source.id}].config.{key}: made from a reference, its value would show in paths; what is "
                "secret belongs in auth or headers"
            )


def document_url(source: DataSource, document: str) -> str:
    """Return the URL of a document, given its URL or path. Raise ConfigError."""
    where = f"sources[{source.id}].config.document"
    scheme, separator, _ = document.partition("://")
    if not separator:
        return file_url(local_path(source, document))
    try:
        parts = urlsplit(document)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    if scheme.lower() not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{where}: should be an http or https URL, or a path")
    if parts.username is not None:
        raise ConfigError(f"{where}: a user name belongs in document_headers, not in a URL")
    return parts._replace(fragment="").geturl()
