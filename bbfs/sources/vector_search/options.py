"""Options of a source of vectors."""

from dataclasses import replace
from importlib.util import find_spec
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from bbfs.model.errors import ConfigError
from bbfs.model.source_types import vector_backend
from bbfs.model.values import DataSource
from bbfs.runtime.extras import needs
from bbfs.sources.database.options import access_of
from bbfs.sources.embeddings.options import EmbeddingOptions
from bbfs.sources.http.addresses import names_private
from bbfs.sources.http.client import WebClient
from bbfs.sources.options import Bytes, SourceOptions
from bbfs.sources.vector_search.databases import DatabaseVectors
from bbfs.sources.vector_search.qdrant import QdrantVectors
from bbfs.sources.vector_search.values import MOST_MATCHES, VectorBackend

LISTED_POINTS = 10_000
MEMORY = 256 << 20


class VectorSearchOptions(SourceOptions):
    """Options of a source of vectors."""

    url: SecretStr
    """`sqlite:///relative.db` (relative to the configuration file) or `sqlite:////absolute.db`;
    `postgresql://user@host:5432/database` (pgvector); `http://HOST:6333`, `https://…` or `qdrant://HOST:6333` (Qdrant
    over HTTP)."""
    collections: tuple[str, ...] | None = None
    """The collections to show. Without it, all."""
    payload: dict[str, str] = Field(default_factory=dict)
    """SQLite: a table from a table of vectors to the ordinary table that has its payload."""
    text: str | None = Field(default=None, min_length=1, max_length=200)
    """Qdrant: the field of the payload that has the words, for searches without embeddings and for snippets."""
    allow_private: bool | None = None
    """Qdrant: allow a host on this machine or in a private network. Without it, only if the URL itself names
    `localhost` or such an address."""
    embeddings: EmbeddingOptions | None = None
    """The model that makes vectors of texts, with the keys below. Without it, the table `[embeddings]` of the file;
    without that, searches are for words."""
    limit: int = Field(default=10, ge=1, le=MOST_MATCHES)
    """Results of `near/`, and of a search that names no `limit`."""
    listed_points: int = Field(default=LISTED_POINTS, ge=0, le=1_000_000)
    """Most names that `point/` lists. Others can still be opened."""
    max_memory: Bytes = Field(default=MEMORY, ge=64 << 20, le=4 << 30)
    """Memory of a process that reads a database."""

    @field_validator("url")
    @classmethod
    def _has_scheme(cls, url: SecretStr) -> SecretStr:
        if backend_of(url.get_secret_value()) is None:
            raise ValueError("must be a URL: sqlite:///path, postgresql://user@host/database or http://host:6333")
        return url


def backend_of(url: str) -> str | None:
    """Return the kind of backend of a URL, which is the scheme of its native URIs; None for no such URL."""
    scheme, found, _ = url.partition("://")
    return vector_backend(scheme) if found else None


def backend(source: DataSource, options: VectorSearchOptions) -> VectorBackend:
    """Return the backend of a source, without connecting. Raise ConfigError."""
    where, url = f"sources[{source.id}].config.url", options.url.get_secret_value()
    scheme = backend_of(url)
    if scheme == "qdrant":
        return _qdrant(source, options, where)
    if scheme == "sqlite" and find_spec("sqlite_vec") is None:
        raise ConfigError(f"{where}: {needs('vector')}")
    if scheme == "pgvector":
        url = f"postgresql://{url.partition('://')[2]}"
    access = access_of(source, url, options.max_memory)
    module = f"bbfs.sources.vector_search.{scheme}"
    arguments = dict(access.arguments)
    if scheme == "sqlite":
        arguments = {"path": access.file, "wait": arguments["wait"], "payload": options.payload}
    return DatabaseVectors(replace(access, scheme=scheme or "", module=module, arguments=arguments))


def _qdrant(source: DataSource, options: VectorSearchOptions, where: str) -> VectorBackend:
    given = options.url.get_secret_value()
    scheme, _, rest = given.partition("://")
    url = f"http://{rest}" if scheme.lower() == "qdrant" else given
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0 or parts.query or parts.fragment:
            raise ValueError
    except ValueError:
        raise ConfigError(f"{where}: expected the URL of a Qdrant server: http://host:6333") from None
    if parts.username is not None:
        raise ConfigError(f"{where}: a secret belongs in auth.api_key, not in a URL")
    if unknown := sorted(set(source.auth) - {"apiKey", "api_key"}):
        raise ConfigError(f"sources[{source.id}].auth.{unknown[0]}: 'api_key' is the only key of this type")
    key = source.auth.get("apiKey", source.auth.get("api_key", ""))
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"sources[{source.id}].auth.api_key: cannot be sent")
    allow = names_private(url) if options.allow_private is None else options.allow_private
    client = WebClient(source, headers={"api-key": key} if key else {}, allow_private=allow)
    return QdrantVectors(client, url, options.text)
