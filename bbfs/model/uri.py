"""The bbfs URI: the name of a data source in front of the source's own URI.

    mcp-database+supabase-prod+postgres://database/customers/schema
    └┬┘ └──┬───┘ └────┬──────┘ └───────────────┬──────────────────┘
     │    type       name                 the native URI
    access method

Grammar (`scheme` is that of RFC 3986, section 3.1):

    uri           = base-prefix "+" ( native-uri / "_:" native-text )
    base-prefix   = access-method "-" type "+" name
    access-method = "bb" / "mcp"
    type          = [a-z] [a-z0-9_-]*
    name          = [A-Za-z0-9] [A-Za-z0-9._-]*
    native-uri    = scheme ":" any text

A native text that does not begin with a scheme stands behind the marker `_:`, so every text that a server may call a
URI has exactly one bbfs URI and comes back from it unchanged: nothing is escaped, folded or trimmed. What real servers
send (spaces, `..`, control characters, no text at all, lone surrogates) is therefore accepted in the native part; only
the prefix is held to the grammar. Making legal file names of all that is the business of `bbfs.model.uri_paths`.
"""

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args
from urllib.parse import quote, unquote

from bbfs.model.errors import InvalidUri

NO_SCHEME = "_"
"""Stands for the scheme of a native URI that has none."""

NAME_MAX = 255
"""The longest file name on Linux, in bytes; a URI prefix is the name of a directory (ASCII, so a byte a character)."""

ABOUT = ".about.md"
"""The name of the file that describes a source, and of the one at the root that describes all."""
SEARCH = ".search"
"""The name of the directory whose names are queries: at the root and in each directory, and in no listing."""

AccessMethod = Literal["bb", "mcp"]
_ACCESS_METHODS: tuple[str, ...] = get_args(AccessMethod)
_TYPE = re.compile(r"[a-z][a-z0-9_-]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*|_")
_PREFIX_END = re.compile(r":(?://)?\Z")
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class UriPrefix:
    """`{access_method}-{type}+{name}`, with `+{scheme}` where there is a scheme. `str()` gives the text."""

    access_method: AccessMethod
    type: str
    name: str
    scheme: str | None = None

    @property
    def base(self) -> str:
        """The prefix without its scheme."""
        return f"{self.access_method}-{self.type}+{self.name}"

    def __str__(self) -> str:
        return self.base if self.scheme is None else f"{self.base}+{self.scheme}"


@dataclass(frozen=True, slots=True)
class ParsedUri:
    """The parts of a bbfs URI. `str()` gives exactly the text that it was parsed from.

    uri_prefix: `{access_method}-{data_source_type}+{data_source_name}+{resource_type}`.
    original_uri: the source's own URI, exactly as the source gave it.
    resource_type: the scheme of the source's own URI, or `_` where it has none.
    """

    uri_prefix: str
    access_method: AccessMethod
    data_source_type: str
    data_source_name: str
    original_uri: str
    resource_type: str

    @property
    def base_prefix(self) -> str:
        """The prefix without its scheme, as `source_uri` takes it."""
        return f"{self.access_method}-{self.data_source_type}+{self.data_source_name}"

    def __str__(self) -> str:
        if self.resource_type == NO_SCHEME:
            return f"{self.uri_prefix}:{self.original_uri}"
        return f"{self.base_prefix}+{self.original_uri}"


def encodable(text: str) -> bool:
    """Return whether a text is valid Unicode: without halves of surrogate pairs."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_data_source_uri(uri: str) -> ParsedUri:
    """Return the parts of a bbfs URI. Raise InvalidUri, whose text names the wrong part."""
    if not uri:
        raise InvalidUri("empty URI: expected {accessMethod}-{type}+{name}+{scheme}://…")
    head, colon, rest = uri.partition(":")
    prefix = _split_prefix(head, what="URI", text=uri)
    if prefix.scheme is None:
        raise _invalid("URI", uri, f"missing scheme: expected '+{{scheme}}:' after '{prefix.base}'")
    if not colon:
        raise _invalid("URI", uri, f"no ':' after the scheme {prefix.scheme!r}")
    return ParsedUri(
        uri_prefix=head,
        access_method=prefix.access_method,
        data_source_type=prefix.type,
        data_source_name=prefix.name,
        original_uri=rest if prefix.scheme == NO_SCHEME else f"{prefix.scheme}:{rest}",
        resource_type=prefix.scheme,
    )


def parse_uri_prefix(prefix: str) -> UriPrefix:
    """Return the parts of a URI prefix, with or without a scheme; `://` or `:` may end it. Raise InvalidUri."""
    if not prefix:
        raise InvalidUri(
            "empty URI prefix: expected {accessMethod}-{type}+{name} or {accessMethod}-{type}+{name}+{scheme}"
        )
    parsed = _split_prefix(_PREFIX_END.sub("", prefix), what="URI prefix", text=prefix)
    if len(str(parsed)) > NAME_MAX:
        raise _invalid("URI prefix", prefix, f"longer than {NAME_MAX} characters, it could not name a directory")
    return parsed


def build_uri_prefix(access_method: str, type: str, name: str, scheme: str | None = None) -> str:
    """Return the URI prefix of these parts. Raise InvalidUri if one of them breaks the grammar."""
    text = f"{access_method}-{type}+{name}" + ("" if scheme is None else f"+{scheme}")
    built = parse_uri_prefix(text)
    # A separator inside a part would move the border between two parts.
    if (built.access_method, built.type, built.name, built.scheme) != (access_method, type, name, scheme):
        raise _invalid("URI prefix", text, "a part of it contains '-', '+' or ':' where it may not")
    return text


def source_uri(base_prefix: str, native_uri: str) -> str:
    """Return the bbfs URI of a native URI. Total: `parse_data_source_uri` gives it back as `original_uri`.

    base_prefix: a valid prefix without a scheme (`UriPrefix.base`, `DataSource.base_prefix`). It is not checked here,
    because listings call this once a resource.
    """
    if _HAS_SCHEME.match(native_uri):
        return f"{base_prefix}+{native_uri}"
    return f"{base_prefix}+{NO_SCHEME}:{native_uri}"


def native_scheme(native_uri: str) -> str | None:
    """Return the scheme of a native URI in its own spelling (case included), or None if it has none."""
    match = _HAS_SCHEME.match(native_uri)
    return native_uri[: match.end() - 1] if match else None


def _split_prefix(head: str, *, what: str, text: str) -> UriPrefix:
    method, dash, rest = head.partition("-")
    if method not in _ACCESS_METHODS:
        expected = " or ".join(f"'{known}-'" for known in _ACCESS_METHODS)
        raise _invalid(what, text, f"unknown access method {_shown(method)}: expected {expected} at the start")
    if not dash:
        raise _invalid(what, text, f"missing type: expected '-{{type}}' after '{method}'")
    type_, plus, rest = rest.partition("+")
    _require(_TYPE, type_, "type", "a lower-case letter, then a-z 0-9 _ -", what, text)
    if not plus:
        raise _invalid(what, text, f"missing name: expected '+{{name}}' after '{method}-{type_}'")
    name, plus, scheme = rest.partition("+")
    _require(_NAME, name, "name", "a letter or digit, then A-Z a-z 0-9 . _ -", what, text)
    if plus:
        _require(_SCHEME, scheme, "scheme", "a letter, then A-Z a-z 0-9 + . -, or _ alone", what, text)
    return UriPrefix(cast(AccessMethod, method), type_, name, scheme if plus else None)


def _require(pattern: re.Pattern[str], part: str, label: str, grammar: str, what: str, text: str) -> None:
    if not part:
        raise _invalid(what, text, f"missing {label}: expected {grammar}")
    if pattern.fullmatch(part):
        return
    for character in part:
        if character.isspace():
            raise _invalid(what, text, f"whitespace {character!r} in the {label}")
        if not character.isprintable():
            raise _invalid(what, text, f"control or unprintable character {character!r} in the {label}")
    raise _invalid(what, text, f"illegal {label} {_shown(part)}: expected {grammar}")


def _invalid(what: str, text: str, problem: str) -> InvalidUri:
    return InvalidUri(f"{what} {_shown(text)}: {problem}")


def _shown(text: str) -> str:
    """Return `text` for a message: quoted, escaped to ASCII if need be, and of bounded length."""
    return ascii(text if len(text) <= 120 else text[:119] + "…") if not text.isprintable() else repr(text[:120])


SKILL = "skill://"
"""How the URIs of skills begin. bbfs has the id of a source and the rest of the native URI behind it."""
FOLDER = "file:./"
"""How the native URIs of local folders begin."""


def skill_uri(source_id: str, native_uri: str, *, is_folder: bool) -> str | None:
    """Return the URI `skill://ID/PATH` of a file of a source, or None if its native URI has another beginning."""
    beginning = FOLDER if is_folder else SKILL
    if not native_uri.startswith(beginning):
        return None
    return f"{SKILL}{quote(source_id, safe='')}/{native_uri.removeprefix(beginning)}"


def skill_parts(uri: str) -> tuple[str, str]:
    """Return the id of the source in a URI of `skill_uri`, and what is behind it."""
    source_id, _, rest = uri.removeprefix(SKILL).partition("/")
    return unquote(source_id), rest
