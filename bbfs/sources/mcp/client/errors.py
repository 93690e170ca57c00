"""Failures at a server as errors of bbfs (`docs/semantics.md` S23).

A failed request is an `MCPError` with a JSON-RPC code. Codes of the protocol mean: -32602 and -32002 on a read, no
such resource; -32601, not served; -32600 and -32022, the session is lost. JSON-RPC has no code for faults of HTTP: they
travel as `HTTP_FAULT` with the `HttpFault` as data, so that they fail one request and not the connection.
"""

from dataclasses import dataclass
from typing import Any, Literal

import mcp_types as types
from mcp.shared.exceptions import MCPError

from bbfs.model.errors import (
    BbfsError,
    Denied,
    LoginRequired,
    NotFound,
    NotSupported,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.model.redaction import Cut, Redactor, header_secrets, plain_cut, printable, url_secrets
from bbfs.model.values import McpServer

HTTP_FAULT = -32019
"""In the implementation-defined band of JSON-RPC codes, which the protocol leaves free."""
RESOURCE_NOT_FOUND = -32002
"""Replaced by -32602 in protocol 2026-07-28; most older servers answer it."""

_MAX_MESSAGE = 500
_SESSION_LOST = (types.INVALID_REQUEST, types.UNSUPPORTED_PROTOCOL_VERSION)
"""Codes of a server that has forgotten the session, or speaks another version since: bbfs greets it again."""

Consequence = Literal["fail", "retry", "reconnect", "disconnect"]
"""The effect of a failed request on the connection.

fail: none. retry: the same connection may answer a second try. reconnect: the connection is gone, a new one may
answer. disconnect: the connection is gone, and a new one would fail too.
"""


@dataclass(frozen=True, slots=True)
class HttpFault:
    """Why an HTTP exchange gave no answer.

    kind: `connect` (no connection came about), `network` (it broke), `session` (the server forgot us), `status`
    (`status` says no), `format` (the answer is no JSON-RPC message or too long), `size` (its structure is too large).
    """

    kind: Literal["connect", "network", "session", "status", "format", "size"]
    reason: str
    status: int | None = None

    def error_data(self) -> types.ErrorData:
        return types.ErrorData(code=HTTP_FAULT, message=self.reason, data=self)

    def error(self) -> BbfsError:
        """Return the error of a request that ended with this fault."""
        if self.status == 401:
            return LoginRequired(self.reason)
        if self.status == 403:
            return Denied(self.reason)
        if self.status == 413:
            return TooLarge(self.reason)
        by_kind: dict[str, type[BbfsError]] = {"format": ProtocolViolation, "size": TooLarge}
        return by_kind.get(self.kind, Unreachable)(self.reason)


class ConnectionClosed(MCPError):
    """The connection closed before the answer came."""

    def __init__(self) -> None:
        super().__init__(types.CONNECTION_CLOSED, "Connection closed")


def http_fault(error: types.ErrorData) -> HttpFault | None:
    """Return the HTTP fault that an error stands for, or None."""
    return error.data if isinstance(error.data, HttpFault) else None


def consequence(exc: MCPError) -> Consequence:
    """Return the effect of a failed request on the connection."""
    fault = http_fault(exc.error)
    if fault is not None:
        by_kind: dict[str, Consequence] = {"connect": "disconnect", "network": "retry", "session": "reconnect"}
        return by_kind.get(fault.kind, "fail")
    if isinstance(exc, ConnectionClosed) or exc.code in _SESSION_LOST:
        return "reconnect"
    return "fail"


def was_refused(exc: MCPError) -> bool:
    """Return whether the server certainly ignored the request, because it did not know the session or the version."""
    fault = http_fault(exc.error)
    return exc.code in _SESSION_LOST if fault is None else fault.kind == "session"


def request_error(exc: MCPError, *, reading: bool, cut: Cut = plain_cut) -> BbfsError:
    """Return the error of a failed request for its caller. cut: shortens a text (`Redactor.cut`)."""
    fault = http_fault(exc.error)
    if fault is not None:
        return fault.error()
    text = printable(cut(exc.error.message, _MAX_MESSAGE)) or "no message"
    code = exc.code
    if reading and code in (types.INVALID_PARAMS, RESOURCE_NOT_FOUND):
        return NotFound(text)
    if isinstance(exc, ConnectionClosed):
        return Unreachable(text)
    classes: dict[int, type[BbfsError]] = {
        types.METHOD_NOT_FOUND: NotSupported,
        types.MISSING_REQUIRED_CLIENT_CAPABILITY: NotSupported,
        types.URL_ELICITATION_REQUIRED: LoginRequired,
        types.PARSE_ERROR: ProtocolViolation,
        types.INVALID_REQUEST: ProtocolViolation,
        types.UNSUPPORTED_PROTOCOL_VERSION: ProtocolViolation,
    }
    return classes.get(code, BbfsError)(f"{text} (code {code})")


def again(error: BbfsError) -> BbfsError:
    """Return a copy of an error: one instance raised in several tasks would mix their tracebacks."""
    return type(error)(*error.args)


def invalid_answer(request_id: Any, problem: str) -> types.JSONRPCError:
    """Return an error for a waiting request whose real answer cannot be used."""
    error = types.ErrorData(code=types.PARSE_ERROR, message=f"invalid answer: {problem}")
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


def server_redactor(server: McpServer) -> Redactor:
    """Return what masks a server's secrets in texts: headers, environment, parts of its URL, references (S30)."""
    found = {*server.env.values(), *server.secrets, *header_secrets(server.headers)}
    if server.url is not None:
        found |= url_secrets(server.url)
    return Redactor(found)
