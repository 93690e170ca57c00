"""The table of source types: the types of bbfs, and the types that installed packages add.

A package adds a type by an entry point of the group `bbfs.sources`. The name of the entry point is the type, and its
object is the class of the handler. Where the native URIs of such a source have one fixed scheme, the class gives it as
an attribute `scheme`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from importlib import import_module
from typing import Any

from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource, Policy

GROUP = "bbfs.sources"
_Scheme = str | Callable[[Mapping[str, Any]], str | None] | None


@dataclass(frozen=True, slots=True)
class SourceType:
    """One type of sources.

    handler: the class of its handlers, as `module:name`.
    resource_type: the type of its resources in the data model, if that is not the name.
    scheme: the one scheme of its native URIs, or a function that returns it for the options of a source. None where
        each URI of a source may have another scheme.
    opening: the characters that follow the scheme in its native URIs.
    is_local: its handler answers at once, so loading ahead of the reader gains nothing.
    describes_itself: the file that describes such a source is in its listing. Elsewhere it is found by name alone, so
        that a copy of a folder, a store or a site stays a copy.
    policy: defaults of `Policy` that differ for this type.
    url_schemes: the schemes of the URLs that stand for such a source (`--source URL`), as the option `url`.
    other_names: words that users write for this type.
    """

    name: str
    handler: str
    scheme: _Scheme = None
    opening: str = "://"
    is_local: bool = False
    policy: Mapping[str, Any] = field(default_factory=dict)
    resource_type: str | None = None
    describes_itself: bool = False
    url_schemes: tuple[str, ...] = ()
    other_names: tuple[str, ...] = ()

    def handler_class(self) -> Any:
        """Import and return the class of the handlers. Raise ConfigError if that fails."""
        try:
            module, _, names = self.handler.partition("[")[0].strip().partition(":")  # without extras of an entry point
            return reduce(getattr, names.split("."), import_module(module))
        except Exception as error:
            raise ConfigError(
                f"type {self.name!r}: {self.handler} cannot be imported: {type(error).__name__}: {error}"
            ) from error


def _database_scheme(config: Mapping[str, Any]) -> str | None:
    """Return the kind of database in a URL of SQLAlchemy: `postgres` for `postgresql+psycopg://…`."""
    dialect = str(config.get("url", "")).partition(":")[0].partition("+")[0].lower()
    return {"postgresql": "postgres", "": None}.get(dialect, dialect)


def vector_backend(scheme: str) -> str | None:
    """Return the kind of backend of vectors that URLs with a scheme name, or None."""
    kinds = {"sqlite": "sqlite", "http": "qdrant", "https": "qdrant", "qdrant": "qdrant"}
    return {**kinds, "postgres": "pgvector", "postgresql": "pgvector", "pgvector": "pgvector"}.get(scheme.lower())


def _vector_scheme(config: Mapping[str, Any]) -> str | None:
    """Return the kind of backend in the option `url` of a source of vectors."""
    return vector_backend(str(config.get("url", "")).partition(":")[0])


def _url_scheme(config: Mapping[str, Any]) -> str | None:
    """Return the scheme of the option `url`, or None where it has none; the handler then refuses the URL."""
    scheme, found, _ = str(config.get("url", "")).partition("://")
    return scheme.lower() if found else None


_OWN = {
    each.name: each
    for each in (
        SourceType(
            "api",
            "bbfs.sources.api.handler:ApiHandler",
            describes_itself=True,
            other_names=("openapi", "rest", "swagger"),
        ),
        SourceType(
            "database",
            "bbfs.sources.database.handler:DatabaseHandler",
            _database_scheme,
            describes_itself=True,
            url_schemes=("sqlite", "duckdb", "postgres", "postgresql", "mysql", "mariadb", "mssql", "oracle"),
            other_names=("sqlite", "sqlite3", "duckdb", "parquet", "postgres", "postgresql", "mysql", "sql", "db"),
        ),
        SourceType(
            "filesystem",
            "bbfs.sources.filesystem.handler:FilesystemHandler",
            "file",
            ":./",
            is_local=True,
            resource_type="file",
            # One system call revalidates a file, and its content is on a disk already.
            policy={"listing_ttl": 1.0, "content_ttl": 1.0, "disk": False},
            other_names=("dir", "directory", "file", "folder", "fs", "local"),
        ),
        SourceType(
            "memory",
            "bbfs.sources.memory.handler:MemoryHandler",
            "memory",
            is_local=True,
            policy={"disk": False},
            other_names=("mem", "ram"),
        ),
        SourceType(
            "notion",
            "bbfs.sources.notion.handler:NotionHandler",
            "x-notion",
            describes_itself=True,
            # Notion answers three requests a second, and a page may take many.
            policy={"timeout": 120.0, "listing_ttl": 60.0, "content_ttl": 60.0},
        ),
        SourceType(
            "storage",
            "bbfs.sources.storage.handler:StorageHandler",
            _url_scheme,
            url_schemes=("s3", "gs", "az", "sftp", "ftp", "github", "webdav", "webdavs", "zip", "tar"),
            other_names=("archive", "azure", "bucket", "ftp", "gcs", "gs", "s3", "sftp", "tar", "webdav", "zip"),
        ),
        SourceType(
            "url",
            "bbfs.sources.url.handler:UrlHandler",
            # Web servers expect a program to ask now and then, not all the time.
            policy={"listing_ttl": 600.0, "content_ttl": 60.0},
            other_names=("http", "https", "llms_txt", "page", "sitemap", "site", "web", "website"),
        ),
        SourceType(
            "vector_search",
            "bbfs.sources.vector_search.handler:VectorSearchHandler",
            _vector_scheme,
            describes_itself=True,
            other_names=("vector", "vectors", "sqlite-vec", "sqlite_vec", "qdrant", "pgvector"),
        ),
    )
}
MCP = SourceType("mcp", "bbfs.sources.mcp.handler:McpHandler", describes_itself=True)
"""All sources with the access method `mcp`. Every MCP server speaks one protocol, whatever type the user gives it."""
MCP_MAP = SourceType("mcp", "bbfs.sources.mcp.maps.handler:MapHandler", "tree", describes_itself=True)
"""Those with a map, which makes a tree of the server's tools."""


@cache
def _added() -> Mapping[str, SourceType]:
    """Return the types that installed packages add. No package replaces a type of bbfs."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - it takes 8 ms, and most sources are of our types

    points = entry_points(group=GROUP)
    return {point.name: SourceType(point.name, point.value) for point in points if point.name not in _OWN}


def find(name: str) -> SourceType | None:
    """Return the type with a name, or None."""
    return _OWN.get(name) or _added().get(name)


def of_source(source: DataSource) -> SourceType | None:
    """Return the type of a source, or None if it is unknown."""
    if source.access_method == "mcp":
        return MCP if source.map is None else MCP_MAP
    return find(source.type)


def resource_type(source: DataSource) -> str:
    """Return the type of a source's resources in the data model; `mcp` for the resources of every MCP server."""
    found = of_source(source)
    return source.type if found is None else found.resource_type or found.name


def describes_itself(source: DataSource) -> bool:
    """Return whether the file that describes the source is in its listing."""
    found = of_source(source)
    return found is not None and found.describes_itself


def names() -> tuple[str, ...]:
    """Return the names of all types, sorted."""
    return tuple(sorted([*_OWN, *_added()]))


def meant(word: str) -> str | None:
    """Return the type that a user means by another name for it, such as `sqlite`; None for other words."""
    return next((each.name for each in _OWN.values() if word.lower() in each.other_names), None)


def url_schemes() -> tuple[str, ...]:
    """Return the schemes of all URLs that stand for a source by themselves."""
    return tuple(scheme for each in _OWN.values() for scheme in each.url_schemes)


def of_url_scheme(scheme: str) -> str | None:
    """Return the type of the source that a URL with this scheme stands for, or None."""
    return next((each.name for each in _OWN.values() if scheme in each.url_schemes), None)


def fixed_scheme(type: str, config: Mapping[str, Any]) -> Any:
    """Return the one scheme (a text) of the native URIs of a source, or None. config: its options, not validated."""
    given = config.get("scheme")
    if given is not None:
        return given
    found = find(type)
    if found is None:
        return None
    scheme: Any = found.scheme if type in _OWN else getattr(found.handler_class(), "scheme", None)
    return scheme(config) if callable(scheme) else scheme


def mcp_scheme(config: Mapping[str, Any], map: Mapping[str, Any] | None) -> Any:
    """Return the one scheme (a text) of the native URIs of an MCP server, or None."""
    return config.get("scheme") if map is None else MCP_MAP.scheme


def is_kept_on_disk(type: str) -> bool:
    """Return whether the disk cache keeps contents of sources of a type by default.

    True for every type that is not one of bbfs: no package is searched for it.
    """
    own = _OWN.get(type)
    return own is None or own.policy.get("disk", True)


def policy(type: str, **given: Any) -> Policy:
    """Return the policy of a source: the given fields, then the defaults of its type, then the defaults of all
    types."""
    found = find(type)
    return Policy(**{**(found.policy if found is not None else {}), **given})
