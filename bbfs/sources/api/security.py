"""The security schemes of an OpenAPI document, and what of the configured secrets goes with which request. Pure."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bbfs.model.errors import ConfigError
from bbfs.sources.api.document import TOKEN, DocumentNode, is_unicode

Requirement: TypeAlias = tuple[str, ...]
"""The names of schemes that a request must satisfy together; none of them is a request without credentials."""


@dataclass(frozen=True, slots=True)
class SecurityScheme:
    """One security scheme. kind: `bearer` (also OAuth 2 and OpenID Connect, of which the token is given), `basic`,
    `header`, `query`, `cookie` (API keys, with the `name` they go by), or None for one that bbfs cannot speak."""

    kind: str | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """What a request carries beyond its URL. Never printed."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Sequence[tuple[str, str]] = field(default=(), repr=False)
    cookies: Sequence[tuple[str, str]] = field(default=(), repr=False)


def schemes(components: DocumentNode) -> dict[str, SecurityScheme]:
    """The schemes of a document by name, from its `components`."""
    found: dict[str, SecurityScheme] = {}
    for name, node in components.get("securitySchemes").items():
        kind, place, key = node.text("type"), node.text("in"), node.text("name")
        spoken = (node.text("scheme") or "").lower()
        sendable = key is not None and (is_unicode(key) if place == "query" else TOKEN.fullmatch(key))
        if kind == "apiKey" and key is not None and place in ("header", "query", "cookie") and sendable:
            found[name] = SecurityScheme(place, key)
        elif kind in ("oauth2", "openIdConnect") or (kind, spoken) == ("http", "bearer"):
            found[name] = SecurityScheme("bearer")
        elif (kind, spoken) == ("http", "basic"):
            found[name] = SecurityScheme("basic")
        else:
            found[name] = SecurityScheme(None)
    return found


def requirements(node: DocumentNode) -> tuple[Requirement, ...] | None:
    """The alternatives of a `security` field; None where there is none."""
    if not isinstance(node.value, list):
        return None
    return tuple(tuple(map(str, each)) for each in node.value if isinstance(each, dict))


def check(auth: Mapping[str, str], where: str) -> None:
    """Raises ConfigError, which names the key and not its value, for what no request could carry."""
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
    """The secrets of one source, put into requests by the document's schemes."""

    def __init__(self, auth: Mapping[str, str]) -> None:
        self._auth = dict(auth)
        self.secrets = frozenset(value for key, value in auth.items() if key != "username")
        if "username" in auth and "password" in auth:
            self.secrets |= {_basic(auth["username"], auth["password"])}

    def _value(self, name: str, scheme: SecurityScheme) -> str | None:
        """The secret for a scheme, if there is one."""
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
        """The keys of `auth` that no scheme of the document takes."""
        kinds = {scheme.kind for scheme in known.values()}
        taken = {"token": "bearer" in kinds, "username": "basic" in kinds, "password": "basic" in kinds}
        taken["apiKey"] = taken["api_key"] = not kinds.isdisjoint(("header", "query", "cookie"))
        return [key for key in self._auth if key not in known and not taken.get(key, False)]

    def credentials(
        self, alternatives: Iterable[Requirement], known: Mapping[str, SecurityScheme]
    ) -> RequestCredentials:
        """Those of the first alternative of which all secrets are there; none where there is no such.

        The server then says what it wants. An alternative without credentials counts last.
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
