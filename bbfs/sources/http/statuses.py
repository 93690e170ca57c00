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


STORED = frozenset({200, 201, 204})
"""The answers to a change that say that it is made. 202 promises nothing (RFC 9110, section 15.3.3), 207 tells of parts
that may have failed (RFC 4918, section 11.1), and the other ones have no meaning for a change."""


def not_stored(status: int, what: str) -> BbfsError:
    """Return the error for a 2xx status that does not say that a change is made: the server may make it later."""
    return BbfsError(f"{what}: {status_line(status)}: the server has not said that it is done")


def status_error(status: int, errors: Mapping[int, type[BbfsError]] = STATUS_ERRORS) -> type[BbfsError]:
    """Return the error class for a status that the request does not accept."""
    return errors.get(status, Unreachable if status >= 500 else ProtocolViolation)


def status_line(status: int) -> str:
    """Return a status as messages show it: `HTTP 404 Not Found`."""
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"
