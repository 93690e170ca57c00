"""Hashes of what a source is, and of where it is."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b, scrypt
from typing import Any, cast

from bbfs.model.values import DataSource

_THREE_SLASHES = re.compile(r"(?:sqlite|duckdb)(?:\+\w+)?:///(?!/)", re.IGNORECASE)
"""The beginning of the URL of a database in a file whose path is relative: an absolute one has a slash more."""
_FILES = re.compile(r"(?:zip|tar)://(?!/)", re.IGNORECASE)
"""The beginning of the URL of an archive whose path is relative."""
_PLACES = frozenset(("url", "root", "file", "document", "server", "servervariables", "endpoint", "baseurl", "account"))
"""The options that say where a source is, without underscores and in small letters."""


def fingerprint(source: DataSource) -> str:
    """Return the name of a source where its contents are kept. Only the same definition is the same source.

    The definition is all that decides what the source answers: the values that references gave included, so a source
    that is asked with another user's token is another one, and so is a program that is started in another directory,
    and a relative path that begins in another one. How the definition was given (a file, an option) is no part of it.
    It is the same on every machine that is configured alike.
    It is a hash, so nothing of the definition can be read from it; where secrets are part of it, one that is slow to
    compute, since others may see it (`cache.shared`) and try out what it could be made from.
    """
    server, where = source.mcp, None
    personal: dict[str, Any] = {"auth": dict(source.auth)}
    secret = bool(source.auth)
    if server is not None:
        cwd = server.cwd or (_current_directory() if server.command is not None else None)
        where = [server.transport, server.command, server.args, cwd, server.url, server.roots]
        personal["env"] = dict(server.env)
        personal["headers"] = {name.lower(): value for name, value in server.headers.items()}
        in_url = server.url is not None and not {"?", "@"}.isdisjoint(server.url)
        secret = bool(secret or server.env or server.headers or server.secrets or in_url)
    if source.map is not None:
        personal["map"] = dict(source.map)
    if _may_have_relative_path(source.config):
        personal["base"] = source.base or _current_directory()
    text = _canonical([source.uri_prefix, dict(source.config), where, source.tools, source.prompts, personal])
    if secret:
        text = scrypt(text, salt=b"bbfs source", n=1 << 12, r=8, p=1, dklen=32)
    return f"{source.base_prefix} {blake2b(text, digest_size=12).hexdigest()}"


def place(source: DataSource) -> str:
    """Return a hash of where a source is, whatever user, token or bounds its definition has: these may be corrected."""
    server = source.mcp
    named = [*_places(source.config)]
    places: list[object] = [each for pair in named for each in pair]
    if server is not None:
        places += [server.command, list(server.args), _address(server.url or "")]
    if server is not None and server.command is not None:
        places.append(server.cwd or _current_directory())
    elif _may_have_relative_path([value for _, value in named]):
        places.append(source.base or _current_directory())
    return blake2b(_canonical([source.base_prefix, places]), digest_size=12).hexdigest()


def _places(options: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the names of the options that say where a source is, each with its value."""
    for name, value in sorted(options.items()):
        if name.replace("_", "").lower() in _PLACES:
            yield name, _address(value) if isinstance(value, str) else value
        elif isinstance(value, Mapping):
            yield from _places(cast(Mapping[str, Any], value))


def _address(text: str) -> str:
    """Return a path, or a URL without what may be a secret or a setting: its user, its query and its fragment."""
    scheme, is_url, rest = text.partition("://")
    if not is_url:
        return os.path.expanduser(text).rstrip("/")
    host, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}".rstrip("/")


def _current_directory() -> str:
    """Return the current directory, also one that is gone."""
    return os.readlink("/proc/self/cwd")


def _may_have_relative_path(value: object) -> bool:
    """Return whether a text among options may be a path that starts at the current directory."""
    if isinstance(value, str):
        if "://" in value:
            return bool(_THREE_SLASHES.match(value) or _FILES.match(value))
        return not value.startswith(("/", "~"))
    if isinstance(value, Mapping):
        return any(map(_may_have_relative_path, cast(Mapping[str, object], value).values()))
    return isinstance(value, list | tuple) and any(map(_may_have_relative_path, cast(Iterable[object], value)))


def _canonical(value: Any) -> bytes:
    """Return equal bytes for equal values. Their `repr` does not: a string made from references shows them."""
    return json.dumps(value, sort_keys=True, default=str).encode()
