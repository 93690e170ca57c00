"""Errors with a code for each kind, and the search for the source that a name or URI means."""

import errno
from typing import Any, Literal

from bbfs.model import errors
from bbfs.model.errors import BbfsError, ConfigError, InvalidUri, NotFound
from bbfs.model.uri import SKILL, ParsedUri, native_scheme, parse_data_source_uri
from bbfs.resources.manager import ResourceManager
from bbfs.resources.source import Source
from bbfs.server.kept import is_kept

_CODES: tuple[tuple[type[BbfsError], str], ...] = (
    (errors.NotFound, "resource_not_found"),
    (errors.Denied, "access_denied"),
    (errors.IsADirectory, "type_mismatch"),
    (errors.NotADirectory, "type_mismatch"),
    (errors.InvalidUri, "invalid_uri"),
    (errors.Unreachable, "unreachable"),
    (errors.DeadlineExceeded, "timeout"),
    (errors.TooLarge, "too_large"),
    (errors.ProtocolViolation, "invalid_answer"),
    (errors.NotSupported, "not_supported"),
    (errors.ReadOnly, "read_only"),
    (errors.Conflict, "conflict"),
    (errors.Exists, "conflict"),
    (errors.NoSpace, "no_space"),
    (errors.Rejected, "rejected"),
    (errors.Busy, "busy"),
)
_ERRNO = {"data_source_not_found": errno.ENOENT, "type_mismatch": errno.EINVAL, "invalid_token": errno.EINVAL}
_OTHER = "source_error"
CODES = (*dict.fromkeys([*_ERRNO, *(code for _, code in _CODES), _OTHER]),)


class Fault(Exception):
    """A mistake of the client that only this server knows, and that an errno could not express.

    data_source_not_found: the configuration has no such source. type_mismatch: the source has another type or scheme,
    or the resource is a directory. invalid_token: the page token or cursor is not from this server, or is for another
    request.
    """

    def __init__(self, code: Literal["data_source_not_found", "type_mismatch", "invalid_token"], message: str) -> None:
        super().__init__(message)
        self.code = code
        self.errno = _ERRNO[code]


def code_of(error: BbfsError | Fault) -> str:
    """Return the code of an error, one of `CODES`."""
    if isinstance(error, Fault):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), _OTHER)


def described(error: BbfsError | Fault) -> dict[str, Any]:
    """Return an error as JSON: its code, the errno that a program on a mount would see, its message."""
    name = errno.errorcode.get(error.errno, str(error.errno))
    return {"code": code_of(error), "errno": name, "message": str(error) or type(error).__name__}


def source_called(manager: ResourceManager, called: str) -> Source:
    """Return the source with this id, or else with this name or URI prefix. Raises Fault, ConfigError for several."""
    sources = list(manager.sources.values())
    found = [source for source in sources if source.data.id == called]
    if not found:
        names = {called, called.rstrip(":/")}
        found = [s for s in sources if not names.isdisjoint((s.data.name, s.data.uri_prefix, s.data.base_prefix))]
    if len(found) > 1:
        raise ConfigError(f"{called!r} names several data sources: {', '.join(source.data.id for source in found)}")
    if not found:
        raise Fault("data_source_not_found", f"data source not found: {called}; there are: {_there(manager)}")
    return found[0]


def certain(manager: ResourceManager, uri: str, error: BbfsError) -> BbfsError | Fault:
    """Return a more exact error for a bbfs URI if its source or scheme does not exist, or else `error`."""
    if not isinstance(error, NotFound) or is_kept(uri) or uri.startswith(SKILL):
        return error
    try:
        parsed = parse_data_source_uri(uri)
    except InvalidUri as invalid:
        return invalid
    source = manager.sources.get(parsed.base_prefix)
    if source is None:
        return _without_source(manager, parsed)
    scheme = source.data.scheme
    if scheme is not None and native_scheme(parsed.original_uri) != scheme:
        return Fault("type_mismatch", f"{uri}: the URIs of {source.data.id} begin with {source.data.uri_prefix}:")
    return error


def _without_source(manager: ResourceManager, parsed: ParsedUri) -> Fault:
    named = [s.data.base_prefix for s in manager.sources.values() if s.data.name == parsed.data_source_name]
    if named:
        name = parsed.data_source_name
        return Fault("type_mismatch", f"{parsed}: {name} is {' or '.join(named)}, not {parsed.base_prefix}")
    known = f"data source not found: {parsed.base_prefix}; there are: {_there(manager)}"
    return Fault("data_source_not_found", known)


def _there(manager: ResourceManager) -> str:
    return ", ".join(sorted(source.data.id for source in manager.sources.values())) or "none"
