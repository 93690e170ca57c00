"""The address of the cache that machines share: `[cache] shared` and the keys beside it.

Messages name the wrong part and never its value, which may be or hold a secret.
"""

import os
import re
from collections.abc import Callable
from ipaddress import ip_network
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic.alias_generators import to_camel

from bbfs.config.problems import KeyPath
from bbfs.config.schema import CacheTable
from bbfs.model.values import SharedCache

_PORT, _SENTINEL_PORT = 6379, 26379
_FORMS = "expected redis://HOST:PORT/DATABASE, rediss://… for TLS, or unix:///PATH?db=DATABASE"
_CLUSTER_FORM = "expected redis+cluster://HOST:PORT,HOST:PORT"
_SENTINEL_FORM = "expected redis+sentinel://HOST:PORT,HOST:PORT/NAME/DATABASE"
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9._-]{0,252})")
_SERVICE = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""The names of primaries that a sentinel accepts."""


def shared_cache(
    table: CacheTable, resolved: dict[str, str | None], problem: Callable[[KeyPath, str], None]
) -> SharedCache | None:
    """Return the shared cache of a table, or None. `problem(path, message)` gets its faults.

    resolved: the values of `shared` and of the passwords beside it with their references resolved.
    """
    url = resolved["shared"]
    given_keys = sorted(key for key in table.model_fields_set if key.startswith("shared_"))
    if url is None:
        for key in given_keys:
            problem((to_camel(key),), "belongs to a shared cache, and 'shared' names none")
        return None
    try:
        given = _nodes(url) if "+" in url.partition("://")[0] else _address(urlsplit(url))
    except ValueError as error:
        problem(("shared",), str(error))
        return None
    faults = [*_misplaced(given.get("form", "server"), given_keys), *_wrong_hosts(table.shared_nodes)]
    password = resolved["shared_password"]
    if password is not None and given.get("password") is not None:
        faults.append(("shared_password", "is also in the URL of 'shared'; leave one of them out"))
    for key, message in faults:
        problem((to_camel(key),), message)
    if faults:
        return None
    if password is not None:
        given["password"] = password
    return SharedCache(
        **given,  # type: ignore[arg-type]
        announced=tuple(table.shared_nodes),
        sentinel_username=table.shared_sentinel_user,
        sentinel_password=resolved["shared_sentinel_password"],
        prefix=table.shared_prefix,
        max_content=table.shared_max_content,
        longest=table.shared_ttl,
        timeout=table.shared_timeout,
    )


def _misplaced(form: object, keys: list[str]) -> list[tuple[str, str]]:
    """Return the keys that say nothing about this form of a shared cache."""
    faults = []
    for key in keys:
        if key.startswith("shared_sentinel_") and form != "sentinel":
            faults.append((key, "belongs to redis+sentinel://…"))
        elif key == "shared_nodes" and form == "server":
            faults.append((key, "belongs to redis+cluster://… and redis+sentinel://…"))
    return faults


def _wrong_hosts(hosts: list[str]) -> list[tuple[str, str]]:
    for host in hosts:
        try:
            ip_network(host)
        except ValueError:
            if not _HOST.fullmatch(host):
                return [("shared_nodes", "expected host names, *.DOMAIN, addresses, or networks as 10.1.0.0/16")]
    return []


def _nodes(url: str) -> dict[str, object]:
    """Return what the URL of a cluster or of sentinels says. Raise ValueError, whose text holds no part of the URL."""
    scheme, _, rest = url.partition("://")  # urlsplit refuses lists with IPv6 addresses
    scheme, _, form = scheme.partition("+")
    if scheme not in ("redis", "rediss") or form not in ("cluster", "sentinel"):
        raise ValueError(_FORMS)
    forms, port = (_CLUSTER_FORM, _PORT) if form == "cluster" else (_SENTINEL_FORM, _SENTINEL_PORT)
    if "?" in rest or "#" in rest:
        raise ValueError(f"has parameters that are not known here; {forms}")
    netloc, _, path = rest.partition("/")
    user, password = _login(netloc)
    nodes = tuple(_host_port(text, port, forms) for text in netloc.rpartition("@")[2].split(","))
    found: dict[str, object] = {"form": form, "nodes": nodes, "tls": scheme == "rediss"}
    found |= {"username": user, "password": password}
    if form == "cluster":
        if path:
            raise ValueError(f"names a database; a cluster has only one; {forms}")
        return found
    service, _, database = path.partition("/")
    if not _SERVICE.fullmatch(service):
        raise ValueError(f"should name the primary as the sentinels do; {forms}")
    return {**found, "service": service, "database": _database(database, forms)}


def _host_port(text: str, port: int, forms: str) -> tuple[str, int]:
    try:
        node = urlsplit(f"//{text}")
        host, given = node.hostname, node.port
    except ValueError:
        raise ValueError(f"has no usable port; {forms}") from None
    if not host:
        raise ValueError(f"has no host; {forms}")
    return host, given or port


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
    host, port = _host_port(parts.netloc.rpartition("@")[2], _PORT, _FORMS)
    database = _database(query.get("db", "") or parts.path.removeprefix("/"))
    return {**found, "host": host, "port": port, "database": database, "tls": parts.scheme == "rediss"}


def _login(netloc: str) -> tuple[str | None, str | None]:
    """Return user and password of a URL, percent-decoded (RFC 3986, 3.2.1)."""
    userinfo, at, _ = netloc.rpartition("@")
    user, colon, password = userinfo.partition(":")
    return (unquote(user) or None if at else None), (unquote(password) if colon else None)


def _database(text: str, forms: str = _FORMS) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise ValueError(f"should name the database by its number; {forms}")
    return int(text)
