"""Options of a source of vectors."""

from importlib.util import find_spec

from pydantic import Field, SecretStr, field_validator

from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource
from bbfs.sources.database.backend import Access
from bbfs.sources.database.options import AT_ONCE, BUSY
from bbfs.sources.database.queries import Query
from bbfs.sources.embeddings.options import EmbeddingOptions
from bbfs.sources.options import Bytes, SourceOptions, local_path
from bbfs.sources.vector_search.databases import DatabaseVectors
from bbfs.sources.vector_search.values import MOST_MATCHES, VectorBackend

LISTED_POINTS = 10_000
MEMORY = 256 << 20


class VectorSearchOptions(SourceOptions):
    """Options of a source of vectors.

    url: `sqlite:///path`. collections: those that are shown, instead of all. payload: ordinary
    tables of a SQLite file that have the payload, by the names of the tables of vectors. embeddings: what makes vectors
    of texts. limit: results of a search that names no other number. listed_points: names in `point/`. max_memory: bytes
    of a process that reads a database.
    """

    url: SecretStr
    collections: tuple[str, ...] | None = None
    payload: dict[str, str] = Field(default_factory=dict)
    embeddings: EmbeddingOptions | None = None
    limit: int = Field(default=10, ge=1, le=MOST_MATCHES)
    listed_points: int = Field(default=LISTED_POINTS, ge=0, le=1_000_000)
    max_memory: Bytes = Field(default=MEMORY, ge=64 << 20, le=4 << 30)

    @field_validator("url")
    @classmethod
    def _has_scheme(cls, url: SecretStr) -> SecretStr:
        if backend_of(url.get_secret_value()) is None:
            raise ValueError("must be a URL: sqlite:///path")
        return url


def backend_of(url: str) -> str | None:
    """Return the kind of backend of a URL, which is the scheme of its native URIs; None for no such URL."""
    scheme, found, _ = url.partition("://")
    return {"sqlite": "sqlite"}.get(scheme.lower()) if found else None


def backend(source: DataSource, options: VectorSearchOptions) -> VectorBackend:
    """Return the backend of a source, without connecting. Raise ConfigError."""
    where = f"sources[{source.id}].config.url"
    return _sqlite(source, options, where)


def _sqlite(source: DataSource, options: VectorSearchOptions, where: str) -> VectorBackend:
    path = options.url.get_secret_value().partition("://")[2]
    if not path.startswith("/") or path == "/" or "?" in path:
        raise ConfigError(f"{where}: names no file: sqlite:///relative/path or sqlite:////absolute/path")
    if source.auth:
        raise ConfigError(f"sources[{source.id}].auth.{min(source.auth)}: a SQLite file takes no secrets")
    if find_spec("sqlite_vec") is None:
        raise ConfigError(f"{where}: needs the extra 'vector' (pip install 'bbfs[vector]')")
    file = local_path(source, path[1:])
    access = Access(
        "sqlite",
        "bbfs.sources.vector_search.sqlite",
        {"path": file, "wait": min(source.policy.timeout, BUSY), "payload": options.payload},
        sql=Query.named,
        at_once=min(source.policy.concurrency, AT_ONCE),
        memory=options.max_memory,
        file=file,
        file_size=1 << 30,
    )
    return DatabaseVectors(access)
