"""What went wrong, as whoever asked can tell it apart: one code for each kind of error. Pure."""

import errno
from typing import Any, Literal

from bbfs.model.errors import (
    BbfsError,
    Busy,
    DeadlineExceeded,
    Denied,
    InvalidUri,
    IsADirectory,
    NotADirectory,
    NotFound,
    NotSupported,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)

_CODES: tuple[tuple[type[BbfsError], str], ...] = (
    (NotFound, "resource_not_found"),
    (Denied, "access_denied"),
    (IsADirectory, "type_mismatch"),
    (NotADirectory, "type_mismatch"),
    (InvalidUri, "invalid_uri"),
    (Unreachable, "unreachable"),
    (DeadlineExceeded, "timeout"),
    (TooLarge, "too_large"),
    (ProtocolViolation, "invalid_answer"),
    (NotSupported, "not_supported"),
    (Busy, "busy"),
)
_ERRNO = {"data_source_not_found": errno.ENOENT, "type_mismatch": errno.EINVAL, "invalid_token": errno.EINVAL}
_OTHER = "source_error"
CODES = (*dict.fromkeys([*_ERRNO, *(code for _, code in _CODES), _OTHER]),)


class Fault(Exception):
    """Something that only who asks in this way can do wrong, and that no errno alone tells.

    data_source_not_found: no source of the configuration is meant. type_mismatch: there is something, but of another
    kind than was asked for: another type of source, another scheme, a directory. invalid_token: a page token or cursor
    that was not given out, or not for this request.
    """

    def __init__(self, code: Literal["data_source_not_found", "type_mismatch", "invalid_token"], message: str) -> None:
        super().__init__(message)
        self.code = code
        self.errno = _ERRNO[code]


def code_of(error: BbfsError | Fault) -> str:
    """The code of an error: one of `CODES`."""
    if isinstance(error, Fault):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), _OTHER)


def described(error: BbfsError | Fault) -> dict[str, Any]:
    """An error as JSON has it: its code, the errno that a program on a mount would see, and its words."""
    name = errno.errorcode.get(error.errno, str(error.errno))
    return {"code": code_of(error), "errno": name, "message": str(error) or type(error).__name__}
