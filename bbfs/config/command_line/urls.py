"""Sources named by a URL: `--source [NAME=]URL`. The URL decides the type."""

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from bbfs.config.interpolation import Interpolator, UnresolvedReference, expand_user
from bbfs.config.naming import VALID_NAME, slug
from bbfs.model.errors import ConfigError
from bbfs.model.source_types import fixed_scheme, of_url_scheme, policy, url_schemes
from bbfs.model.uri import build_uri_prefix, native_scheme
from bbfs.model.values import DataSource

_FILES = (
    (re.compile(r"\.(?:db|sqlite|sqlite3)\Z"), "sqlite:///"),
    (re.compile(r"\.(?:duckdb|parquet)\Z"), "duckdb:///"),
    (re.compile(r"\.(?:zip|jar|whl|epub|docx|xlsx|pptx|odt|ods)\Z"), "zip://"),
    (re.compile(r"\.(?:tar|tgz|tbz2|txz|tar\.(?:gz|bz2|xz))\Z"), "tar://"),
)
"""Patterns of file names, with the beginning of the URL that each stands for."""
_PAGES = (
    (re.compile(r"/llms(?:-\w+)?\.txt\Z"), "url", "llms_txt"),
    (re.compile(r"/sitemap[\w.-]*\.xml(?:\.gz)?\Z"), "url", "sitemap"),
    (re.compile(r"/(?:openapi|swagger)[\w.-]*\.(?:json|ya?ml)\Z|/openapi\Z"), "api", "document"),
)
"""Patterns of the paths of URLs, with the type and option of each. Any other URL is a single page."""
_LOCAL = ("sqlite", "duckdb", "zip", "tar")
"""Schemes of URLs of local files. In the first two, a relative path begins after the third slash."""
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})=(.*)", re.DOTALL)


def source_from_url_argument(text: str, *, environ: Mapping[str, str] | None = None) -> DataSource:
    """Return the source of `NAME=URL`, of a URL, or of the path of a database or archive.

    Without `NAME=`, the URL gives the name. References (`${env:…}`) are resolved. Raise ConfigError, whose text names
    the argument by its name alone: the rest may hold a secret.
    """
    environ = os.environ if environ is None else environ
    named = _NAMED.fullmatch(text.strip())
    name, written = named.groups() if named else ("", text.strip())
    label = f"--source {name}" if name else "--source"
    try:
        url = as_url(Interpolator(environ, os.getcwd()).resolve(written), environ)
    except UnresolvedReference as error:
        raise ConfigError(f"{label}: {error}") from None
    kind, option = type_of_url(url)
    if kind is None:
        if native_scheme(written) is None and os.path.isdir(expand_user(written, environ)):
            other = "--source duckdb:///PATH shows data files in it as tables"
            raise ConfigError(f"{label}: this is a folder, which --dir [NAME=]PATH mounts; {other}")
        known = ", ".join(f"{scheme}://" for scheme in ("https", *url_schemes()))
        raise ConfigError(f"{label}: expected NAME=URL with one of {known}, or a database or archive file")
    config: dict[str, Any] = {option: [url] if option == "urls" else url}
    name = name or _name(url)
    scheme = fixed_scheme(kind, config)
    prefix = build_uri_prefix("bb", kind, name, scheme)
    return DataSource(name, name, kind, "bb", uri_prefix=prefix, policy=policy(kind), config=MappingProxyType(config))


def as_url(text: str, environ: Mapping[str, str]) -> str:
    """Return the URL of a file that is named by its path, and any other text unchanged."""
    if native_scheme(text) is None:
        path = os.path.abspath(expand_user(text, environ))
        for pattern, opening in _FILES:
            if pattern.search(path):
                return opening + path
    return text


def local_file(url: object) -> str | None:
    """Return the path of the file or folder of this machine that is all of a URL; None if it is elsewhere."""
    scheme, is_url, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if not is_url or scheme not in _LOCAL or not rest.startswith("/"):
        return None
    path = rest[1:].partition("?")[0] if scheme in ("sqlite", "duckdb") else rest
    return path if path not in ("", ":memory:") else None


def type_of_url(url: str) -> tuple[str | None, str]:
    """Return the type of a source at a URL, and the option that takes it; no type if it is unknown."""
    scheme = (native_scheme(url) or "").partition("+")[0].lower()
    found = of_url_scheme(scheme)
    if found is not None:
        return found, "url"
    if scheme in ("http", "https") and urlsplit(url).netloc:
        path = urlsplit(url).path
        return next(((kind, option) for pattern, kind, option in _PAGES if pattern.search(path)), ("url", "urls"))
    return None, ""


def _name(url: str) -> str:
    """Return the name of a source without one: the database, the archive, the bucket, or the host."""
    parts = urlsplit(url)
    last = parts.path.rstrip("/").rpartition("/")[2]
    is_file = any(pattern.search(last) for pattern, _ in _FILES)
    is_database = type_of_url(url)[0] == "database"
    try:
        host = parts.hostname or ""
    except ValueError:
        host = ""
    text = re.sub(r"(?<=.)(?:\.tar)?\.\w+\Z", "", last) if is_file else last if is_database and last else host or last
    found = slug(text)
    return found if VALID_NAME.fullmatch(found) else "source"
