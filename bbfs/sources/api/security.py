"""The security schemes of an OpenAPI document, and the configured secrets for each request. Pure."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from bbfs.model.errors import ConfigError, ProtocolViolation
from bbfs.sources.api.document import TOKEN, UNSENDABLE, DocumentNode, is_unicode

Requirement: TypeAlias = tuple[str, ...]
"""The names of schemes that a request must satisfy together. An empty one allows requests without credentials."""

_MAX_SCHEMES, _MAX_ALTERNATIVES = 20, 100
"""Schemes that one request may need, and alternatives of an operation. Others are left out."""


@dataclass(frozen=True, slots=True)
class SecurityScheme:
    """One security scheme. kind: `bearer` (also OAuth 2 and OpenID Connect, with a configured token), `basic`,
    `header`, `query`, `cookie` (API keys, with their `name`), or None for an unsupported scheme."""

    kind: str | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """The credentials of one request. Never printed."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Sequence[tuple[str, str]] = field(default=(), repr=False)
    cookies: Sequence[tuple[str, str]] = field(default=(), repr=False)


def schemes(components: DocumentNode) -> dict[str, SecurityScheme]:
    """Return the schemes of a document by name, from its `components`."""
    found: dict[str, SecurityScheme] = {}
    try:
        named = list(components.get("securitySchemes").raw_items())
    except ProtocolViolation:
        return found
    for name, node in named:
        try:
            found[name] = _scheme(node.followed())
        except ProtocolViolation:
            found[name] = SecurityScheme(None)
    return found


def _scheme(node: DocumentNode) -> SecurityScheme:
    kind, place, key = node.text("type"), node.text("in"), node.text("name")
    spoken = (node.text("scheme") or "").lower()
    if kind == "apiKey" and key is not None and place in ("header", "query", "cookie"):
        is_sendable = is_unicode(key) if place == "query" else TOKEN.fullmatch(key) and key.lower() not in UNSENDABLE
        return SecurityScheme(place, key) if is_sendable else SecurityScheme(None)
    if kind in ("oauth2", "openIdConnect") or (kind, spoken) == ("http", "bearer"):
        return SecurityScheme("bearer")
    return SecurityScheme("basic" if (kind, spoken) == ("http", "basic") else None)


def requirements(node: DocumentNode) -> tuple[Requirement, ...] | None:
    """Return the alternatives of a `security` field, or None without the field."""
    if not isinstance(node.value, list):
        return None
    node.documents.visit(len(node.value))
    usable = (each for each in node.value if isinstance(each, dict) and len(each) <= _MAX_SCHEMES)
    return tuple(tuple(map(str, each)) for each in islice(usable, _MAX_ALTERNATIVES))


def check(auth: Mapping[str, str], where: str) -> None:
    """Raise ConfigError for a secret that no request can carry. It names the key and not the value."""
    for key, value in auth.items():
        if not value:
            raise ConfigError(f"{where}.{key}: is empty")
        if any(ord(character) < 32 or ord(character) == 127 for character in value):
            raise ConfigError(f"{where}.{key}: holds a line break or another control character")
        if not value.isascii() and key not in ("username", "password"):
            raise ConfigError(f"{where}.{key}: holds a character that no header can carry")
    if ("username" in auth) != ("password" in auth):
        raise ConfigError(f"{where}: username and password go together")
    if ":" in auth.get("username", ""):
        raise ConfigError(f"{where}.username: holds a colon, which HTTP's basic scheme cannot carry")


class Keyring:
    """The secrets of one source, and how they go into requests."""

    def __init__(self, auth: Mapping[str, str]) -> None:
        self._auth = dict(auth)
        self.secrets = frozenset(value for key, value in auth.items() if key != "username")
        if "username" in auth and "password" in auth:
            self.secrets |= {_basic(auth["username"], auth["password"])}

    def _value(self, name: str, scheme: SecurityScheme) -> str | None:
        """Return the secret for a scheme, or None."""
        if scheme.kind is None:
            return None
        if name in self._auth and name not in ("username", "password"):
            return self._auth[name]  # a key of `auth` may be the name of a scheme
        if scheme.kind == "basic":
            given = self._auth.get("username"), self._auth.get("password")
            return None if given[0] is None or given[1] is None else ":".join(map(str, given))
        return (
            self._auth.get("token") if scheme.kind == "bearer" else self._auth.get("apiKey", self._auth.get("api_key"))
        )

    def unused(self, known: Mapping[str, SecurityScheme]) -> list[str]:
        """Return the keys of `auth` that no scheme of the document uses."""
        kinds = {scheme.kind for scheme in known.values()}
        taken = {"token": "bearer" in kinds, "username": "basic" in kinds, "password": "basic" in kinds}
        taken["apiKey"] = taken["api_key"] = not kinds.isdisjoint(("header", "query", "cookie"))
        return [key for key in self._auth if key not in known and not taken.get(key, False)]

    def credentials(
        self, alternatives: Iterable[Requirement], known: Mapping[str, SecurityScheme]
    ) -> RequestCredentials:
        """Return the credentials of the first alternative whose secrets are all configured, else none.

        Without credentials the server itself says what it needs. An alternative without credentials comes last.
        """
        for alternative in sorted(alternatives, key=lambda each: not each):
            asked = [(name, known.get(name, SecurityScheme(None))) for name in alternative]
            given = [(scheme, value) for name, scheme in asked if (value := self._value(name, scheme)) is not None]
            if len(given) == len(asked):
                return _combined(given)
        return RequestCredentials()


def _combined(given: Iterable[tuple[SecurityScheme, str]]) -> RequestCredentials:
    headers: dict[str, str] = {}
    query: list[tuple[str, str]] = []
    cookies: list[tuple[str, str]] = []
    for scheme, value in given:
        match scheme.kind:
            case "bearer":
                headers["Authorization"] = f"Bearer {value}"
            case "basic":
                headers["Authorization"] = f"Basic {_basic(*value.split(':', 1))}"
            case "header":
                headers[scheme.name] = value
            case "query":
                query.append((scheme.name, value))
            case "cookie":
                cookies.append((scheme.name, value))
    return RequestCredentials(headers, tuple(query), tuple(cookies))


def _basic(username: str, password: str = "") -> str:
    """RFC 7617."""
    return b64encode(f"{username}:{password}".encode()).decode()
