"""The databases that SQLAlchemy's URLs name, and their servers: PostgreSQL by psycopg, others by SQLAlchemy itself."""

from collections.abc import Callable
from importlib.util import find_spec
from math import ceil
from urllib.parse import quote, quote_plus

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from bbfs.model.errors import ConfigError
from bbfs.model.values import Policy
from bbfs.runtime.extras import needs
from bbfs.sources.database.backend import Access
from bbfs.sources.database.queries import Query

HIDDEN = "***"
AT_ONCE = 4
"""Connections to one database, each in a process of its own."""
_IDLE = 300
"""Seconds for which a connection stays open unused."""
_SYSTEM = {"information_schema", "pg_catalog", "performance_schema", "mysql", "sys", "system"}


def postgres(where: str, url: str, password: str | None, policy: Policy, memory: int) -> Access:
    """Return the access to PostgreSQL. where: names the option in errors. Raises ConfigError."""
    if find_spec("psycopg") is None:
        raise ImportError("No module named 'psycopg'")
    parsed = _parsed(where, url, password)
    hidden = _hiding(parsed)
    try:
        _, settings = parsed.get_dialect()().create_connect_args(parsed)
    except ArgumentError as error:
        raise ConfigError(f"{where}: {hidden(str(error))}") from None
    given = {
        "connect_timeout": str(max(2, ceil(policy.timeout))),
        "application_name": "bbfs",
        "client_encoding": "UTF8",
        "keepalives_idle": "30",
        "tcp_user_timeout": str(ceil(policy.timeout * 1000)),
    }
    return Access(
        "postgres",
        "bbfs.sources.database.postgres.database",
        {"settings": {**given, **settings}, "timeout": policy.timeout},
        sql=Query.pyformat,
        at_once=min(policy.concurrency, AT_ONCE),
        memory=memory,
        server=True,
        searches=True,
        writes=True,
        idle=_IDLE,
        is_system=lambda schema: schema == "information_schema" or schema.startswith("pg_"),  # a reserved prefix
        hidden=hidden,
    )


def generic(where: str, url: str, password: str | None, policy: Policy, memory: int) -> Access:
    """Return the access by SQLAlchemy. where: names the option in errors. Raises ConfigError."""
    parsed = _parsed(where, url, password)
    hidden = _hiding(parsed)
    scheme = parsed.get_backend_name()
    try:
        dialect = parsed.get_dialect()
        dialect.import_dbapi()
    except NoSuchModuleError:
        known = "sqlite, postgresql, or one that an installed package adds to SQLAlchemy"
        raise ConfigError(f"{where}: unknown kind of database {parsed.drivername!r}; there are {known}") from None
    except ImportError as error:
        is_ours = parsed.drivername.endswith("+pymysql")
        lack = needs("mysql") if is_ours else f"needs the driver of {scheme}, a Python package"
        raise ConfigError(f"{where}: {lack}: {error}") from None
    except SQLAlchemyError as error:
        raise ConfigError(f"{where}: {hidden(str(error))}") from None
    if dialect.is_async:
        raise ConfigError(f"{where}: {parsed.drivername} is a driver for asyncio; name one that is not")
    return Access(
        scheme,
        "bbfs.sources.database.generic.database",
        {"url": parsed.render_as_string(hide_password=False)},
        sql=Query.escaped,
        at_once=min(policy.concurrency, AT_ONCE),
        memory=memory,
        server=True,
        searches=scheme in ("mysql", "mariadb"),
        writes=scheme in ("mysql", "mariadb"),
        idle=_IDLE,
        is_system=lambda schema: schema.lower() in _SYSTEM,
        hidden=hidden,
    )


def _parsed(where: str, url: str, password: str | None) -> URL:
    """Parse a URL, with a password from elsewhere. Raises ConfigError, whose text has no secret."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigError(f"{where}: not a URL such as postgresql://user@host:5432/database") from None
    return parsed if password is None else parsed.set(password=password)


def _hiding(url: URL) -> Callable[[str], str]:
    """Return a function that takes the secrets of a URL out of a text."""
    given = [url.password, *(value for name, value in url.query.items() if "password" in name.lower())]
    plain = [text for text in given if isinstance(text, str) and text]
    texts = {form for text in plain for form in (text, quote(text, safe=""), quote_plus(text))}

    def hidden(text: str) -> str:
        for secret in sorted(texts, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    return hidden
