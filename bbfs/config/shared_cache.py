"""The address of the cache that machines share: `[cache] shared` and the keys beside it.

Messages name the wrong part and never its value, which may be or hold a secret.
"""

import os
from collections.abc import Callable
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic.alias_generators import to_camel

from bbfs.config.problems import KeyPath
from bbfs.config.schema import CacheTable
from bbfs.model.values import SharedCache

_PORT = 6379
_FORMS = "expected redis://HOST:PORT/DATABASE, rediss://… for TLS, or unix:///PATH?db=DATABASE"


def shared_cache(
    table: CacheTable, resolved: dict[str, str | None], problem: Callable[[KeyPath, str], None]
) -> SharedCache | None:
    """Return the shared cache of a table, or None. `problem(path, message)` gets its faults.

    resolved: the values of `shared` and `shared_password` with their references resolved.
    """
    url = resolved["shared"]
    if url is None:
        for key in ("shared_password", "shared_prefix", "shared_max_content", "shared_ttl", "shared_timeout"):
            if key in table.model_fields_set:
                problem((to_camel(key),), "belongs to a shared cache, and 'shared' names none")
        return None
    try:
        parts = urlsplit(url)
        given = _address(parts)
    except ValueError as error:
        problem(("shared",), str(error))
        return None
    password = resolved["shared_password"]
    if password is not None and given.get("password") is not None:
        problem(("sharedPassword",), "is also in the URL of 'shared'; leave one of them out")
        return None
    if password is not None:
        given["password"] = password
    return SharedCache(
        **given,  # type: ignore[arg-type]
        prefix=table.shared_prefix,
        max_content=table.shared_max_content,
        longest=table.shared_ttl,
        timeout=table.shared_timeout,
    )


def _address(parts: SplitResult) -> dict[str, object]:
    """Return the address of the server. Raise ValueError, whose text holds no part of the URL."""
    if parts.scheme not in ("redis", "rediss", "unix") or parts.fragment:
        raise ValueError(_FORMS)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if set(query) - {"db"}:
        raise ValueError(f"has parameters that are not known here; {_FORMS}")
    user, password = _login(parts.netloc)
    found: dict[str, object] = {"username": user, "password": password}
    if parts.scheme == "unix":
        if not os.path.isabs(parts.path) or parts.netloc.rpartition("@")[2]:
            raise ValueError(f"should have an absolute path after 'unix://'; {_FORMS}")
        return {**found, "socket": unquote(parts.path), "database": _database(query.get("db", ""))}
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"has no usable port; {_FORMS}") from None
    if not host:
        raise ValueError(f"has no host; {_FORMS}")
    database = _database(query.get("db", "") or parts.path.removeprefix("/"))
    return {**found, "host": host, "port": port or _PORT, "database": database, "tls": parts.scheme == "rediss"}


def _login(netloc: str) -> tuple[str | None, str | None]:
    """Return user and password of a URL, percent-decoded (RFC 3986, 3.2.1)."""
    userinfo, at, _ = netloc.rpartition("@")
    user, colon, password = userinfo.partition(":")
    return (unquote(user) or None if at else None), (unquote(password) if colon else None)


def _database(text: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise ValueError(f"should name the database by its number; {_FORMS}")
    return int(text)
