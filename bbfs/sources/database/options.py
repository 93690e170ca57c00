"""Options of a database source."""

import os
from importlib.util import find_spec
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator

from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource, Policy
from bbfs.runtime.extras import needs
from bbfs.sources.database.backend import Access
from bbfs.sources.database.queries import Query, QueryOptions, valid_name
from bbfs.sources.database.search.columns import valid_column
from bbfs.sources.options import Bytes, SourceOptions, local_path

ROW_LIMIT = 100_000
LISTED_ROWS = 10_000
MEMORY = 192 << 20
BUSY = 5.0
"""Seconds to wait, at most, for a program that writes a SQLite file."""
LOCKED = 2.0
"""Seconds to wait, at most, for another process that has a DuckDB file open."""
AT_ONCE = 2
"""Processes that read one file at once, since each may take as much memory as `max_memory` allows."""
_FILE_SIZE = 1 << 30
"""Bytes of a file with which SQLite sorts, or of a result in Parquet."""
_DUCKDB = 512 << 20
"""Bytes of address space that DuckDB's library and threads take beside the memory that it counts."""


class DatabaseOptions(SourceOptions):
    """Options of a database."""

    url: SecretStr
    """The address in SQLAlchemy's form: `sqlite:///relative.db` (relative to the configuration file; a path is not
    percent-encoded), `sqlite:////absolute.db`, `postgresql://user@host:5432/database`, `duckdb:///file.duckdb`,
    `duckdb:///folder`."""
    schemas: tuple[str, ...] | None = None
    """The schemas to show. Without it, all but the system's, which show only if they are named."""
    row_limit: int = Field(default=ROW_LIMIT, ge=0)
    """A table with more rows (by estimate) is large: bbfs lists its rows in parts of about this size."""
    listed_rows: int = Field(default=LISTED_ROWS, ge=0, le=1_000_000)
    """Most names that `row/`, `rows/` and each directory in `by/` list. Other names can still be opened."""
    queries: dict[str, QueryOptions] = Field(default_factory=dict)
    """A table from name to named query: SQL, or a table with the keys below."""
    search: Literal["scan"] | tuple[str, ...] | None = None
    """Columns that a search scans where there is no full-text index, as `"TABLE.COLUMN"`; `"scan"` stands for the texts
    of all tables with at most `row_limit` rows. Without it, a search asks full-text indexes only."""
    max_memory: Bytes = Field(default=MEMORY, ge=64 << 20, le=4 << 30)
    """Memory of a process that reads the database. One value of SQLite may have a sixth of it."""

    @field_validator("url")
    @classmethod
    def _has_scheme(cls, url: SecretStr) -> SecretStr:
        if "://" not in url.get_secret_value():
            raise ValueError("must be a URL such as sqlite:///path or postgresql://user@host/database")
        return url

    @field_validator("search")
    @classmethod
    def _columns(cls, search: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for name in search if isinstance(search, tuple) else ():
            valid_column(name)
        return search

    @field_validator("queries")
    @classmethod
    def _named(cls, queries: dict[str, Any]) -> dict[str, Any]:
        for name in queries:
            valid_name(name)
        return queries


def access_of(source: DataSource, url: str, memory: int) -> Access:
    """Return how to reach the database of a URL, without connecting. memory: limit of a process (bytes).

    Raises ConfigError.
    """
    if unknown := sorted(set(source.auth) - {"password"}):
        raise ConfigError(f"sources[{source.id}].auth.{unknown[0]}: 'password' is the only key of this type")
    where = f"sources[{source.id}].config.url"
    scheme, _, rest = url.partition("://")
    dialect, _, driver = scheme.lower().partition("+")
    if dialect == "sqlite":
        if driver not in ("", "pysqlite"):
            raise ConfigError(f"{where}: SQLite is read by Python's own driver: sqlite:///path")
        if not rest.startswith("/") or rest in ("/", "/:memory:"):
            raise ConfigError(f"{where}: names no file: sqlite:///relative/path or sqlite:////absolute/path")
        if "?" in rest:
            raise ConfigError(f"{where}: SQLite takes no options; the file is opened read-only in any case")
        return _sqlite(local_path(source, rest[1:]), source, memory)
    if dialect == "duckdb":
        if not rest.startswith("/") or "?" in rest or driver:
            raise ConfigError(f"{where}: expected a file or folder, without options: duckdb:///path")
        if find_spec("duckdb") is None:
            raise ConfigError(f"{where}: {needs('duckdb')}")
        return _duckdb(local_path(source, rest[1:]), source.policy, memory)
    password = source.auth.get("password")
    try:
        from bbfs.sources.database.servers import generic, postgres  # noqa: PLC0415 - of the extra "database"

        if dialect in ("mysql", "mariadb") and not driver:
            url = f"{dialect}+pymysql://{rest}"
        if dialect not in ("postgres", "postgresql"):
            return generic(where, url, password, source.policy, memory)
        if driver not in ("", "psycopg"):
            raise ConfigError(f"{where}: PostgreSQL is reached through psycopg: postgresql://user@host/database")
        url = "postgresql+psycopg://" + rest
        return postgres(where, url, password, source.policy, memory)
    except ImportError as error:
        extra = "mysql" if dialect in ("mysql", "mariadb") else "database"
        raise ConfigError(f"{where}: {needs(extra)}: {error}") from None


def _duckdb(path: str, policy: Policy, memory: int) -> Access:
    return Access(
        "duckdb",
        "bbfs.sources.database.duckdb.database",
        {"path": path, "memory": memory, "wait": min(policy.timeout / 2, LOCKED)},
        sql=Query.dollars,
        at_once=min(policy.concurrency, AT_ONCE),
        memory=memory,
        library=_DUCKDB,
        file=path,
        file_size=_FILE_SIZE,
        writes=not os.path.isdir(path),
        writes_alone=True,
        formats=("csv", "ndjson", "parquet"),
    )


def _sqlite(path: str, source: DataSource, memory: int) -> Access:
    policy = source.policy
    return Access(
        "sqlite",
        "bbfs.sources.database.sqlite.database",
        {"path": path, "wait": min(policy.timeout, BUSY), "recovers": source.capabilities.write},
        sql=Query.named,
        at_once=min(policy.concurrency, AT_ONCE),
        memory=memory,
        file=path,
        file_size=_FILE_SIZE,
        searches=True,
        writes=True,
    )
