"""The types of sources that bbfs reaches itself: bbfs's own, and those that installed packages add.

A package adds a type by an entry point of the group `bbfs.sources`: its name is the type, its object the handler's
class. Where the URIs of such a source have one fixed scheme, the class says so by an attribute `scheme`.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from bbfs.model.errors import ConfigError

GROUP = "bbfs.sources"


def _database_scheme(config: Mapping[str, Any]) -> str | None:
    """The kind of database that a URL of SQLAlchemy names: `postgresql+psycopg://…` is `postgres`."""
    dialect = str(config.get("url", "")).partition(":")[0].partition("+")[0].lower()
    return {"postgresql": "postgres", "": None}.get(dialect, dialect)


def _url_scheme(config: Mapping[str, Any]) -> str | None:
    """The scheme of the option `url`; a URL that has none is refused by the handler."""
    scheme, found, _ = str(config.get("url", "")).partition("://")
    return scheme.lower() if found else None


_OWN: dict[str, str | Callable[[Mapping[str, Any]], str | None] | None] = {
    "api": None,
    "database": _database_scheme,
    "filesystem": "file",
    "memory": "memory",
    "notion": "x-notion",
    "storage": _url_scheme,
    "url": None,
}
"""The fixed scheme of each type, or how it follows from the options; None where the schemes are the source's own."""


_OTHER_NAMES = (
    ("api", ("openapi", "rest", "swagger")),
    ("database", ("sqlite", "sqlite3", "postgres", "postgresql", "mysql", "sql", "db")),
    ("filesystem", ("dir", "directory", "file", "folder", "fs", "local")),
    ("memory", ("mem", "ram")),
    ("storage", ("archive", "azure", "bucket", "ftp", "gcs", "gs", "s3", "sftp", "tar", "webdav", "zip")),
    ("url", ("http", "https", "llms_txt", "page", "sitemap", "site", "web", "website")),
)


def meant(word: str) -> str | None:
    """The type that somebody means who calls it by what it reads, such as `sqlite`; None for other words."""
    return next((name for name, words in _OTHER_NAMES if word.lower() in words), None)


def added() -> dict[str, EntryPoint]:
    """The types that installed packages add. None of them can take the place of one of bbfs's own."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in _OWN}


def own_types() -> tuple[str, ...]:
    """All types, sorted."""
    return tuple(sorted([*_OWN, *added()]))


def handler_class(point: EntryPoint) -> Any:
    """What an entry point names. Raises ConfigError where that cannot be imported."""
    try:
        return point.load()
    except Exception as error:
        raise ConfigError(
            f"type {point.name!r}: {point.value} cannot be imported: {type(error).__name__}: {error}"
        ) from error


def fixed_scheme(type: str, config: Mapping[str, Any]) -> Any:
    """The one scheme (a text) of the URIs of a source, or None. config: its options, which nobody has checked yet."""
    given = config.get("scheme")
    if given is not None:
        return given
    scheme: Any = _OWN.get(type)
    if type not in _OWN and type in added():
        scheme = getattr(handler_class(added()[type]), "scheme", None)
    return scheme(config) if callable(scheme) else scheme
