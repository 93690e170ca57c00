"""The errors for HTTP statuses (RFC 9110, section 15; `docs/semantics.md` S23). Pure."""

from collections.abc import Mapping
from http import HTTPStatus

from bbfs.model.errors import (
    BbfsError,
    Busy,
    DeadlineExceeded,
    Denied,
    LoginRequired,
    NoSpace,
    NotFound,
    Outdated,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)

STATUS_ERRORS: dict[int, type[BbfsError]] = {
    401: LoginRequired,
    403: Denied,
    404: NotFound,
    407: Denied,
    408: DeadlineExceeded,
    410: NotFound,
    429: Busy,
    451: Denied,
    504: DeadlineExceeded,
}
STORAGE_ERRORS = STATUS_ERRORS | {412: Outdated, 413: TooLarge, 423: Busy, 503: Busy, 507: NoSpace}
"""For stores, which answer 503 to a client that is too fast, 412 if an object was replaced, and 423 if it is locked."""


def status_error(status: int, errors: Mapping[int, type[BbfsError]] = STATUS_ERRORS) -> type[BbfsError]:
    """Return the error class for a status that the request does not accept."""
    return errors.get(status, Unreachable if status >= 500 else ProtocolViolation)


def status_line(status: int) -> str:
    """Return a status as messages show it: `HTTP 404 Not Found`."""
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"
