"""Answers to requests of a server: it gets the configured roots, and what clients of `bbfs serve` offer.

In the handshake era a server sends requests (`roots/list`, `sampling/createMessage`, `elicitation/create`). Since
protocol 2026-07-28 it answers a request with `resultType: input_required` and puts these requests inside; the client
sends the first request again with their answers (specification, "Multi round-trip requests").
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import PurePosixPath
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from bbfs.model.errors import NotSupported
from bbfs.model.redaction import Cut
from bbfs.sources.gateway import Audience

log = logging.getLogger("bbfs.mcp")

MAX_ROUNDS = 10
"""Times that a server may ask for input for one request; other clients have the same bound."""
_WITHOUT = {
    "sampling/createMessage": "bbfs has no language model",
    "elicitation/create": "a file system cannot ask its user questions; `bbfs call --config FILE`, on a terminal, can",
    "roots/list": "the source has no roots configured",
}
_PASSED = ("sampling/createMessage", "elicitation/create")
"""Requests that clients of `bbfs serve` answer, if they offer that."""


class ClientFeatures:
    """Answers requests of one server. server_id: for the log. roots: absolute paths of folders.

    A refusal is logged once per method. audience: the clients of `bbfs serve`, if there are any. follow_level: has the
    connected server send the log messages that they want.
    """

    def __init__(self, server_id: str, roots: tuple[str, ...]) -> None:
        self._id = server_id
        self._roots = roots
        self._logged: set[str] = set()
        self.audience: Audience | None = None
        self.follow_level: Callable[[], Awaitable[None]] = _nothing

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities to declare. The roots do not change while the server runs."""
        offered = self.audience.capabilities if self.audience is not None else {}
        return {**({"roots": {}} if self._roots else {}), **offered}

    @property
    def level(self) -> str | None:
        return self.audience.level if self.audience is not None else None

    def logged(self, params: Mapping[str, Any], cut: Cut) -> None:
        if self.audience is not None:
            self.audience.logged(params, cut)

    def list_changed(self, kind: str) -> None:
        if self.audience is not None and (kind == "tools" or kind == "prompts"):
            self.audience.list_changed(kind)

    def refusal(self, method: str) -> str | None:
        """Return why requests of this method are refused, or None if they are not, or are unknown."""
        if method == "roots/list" and self._roots:
            return None
        reason = _WITHOUT.get(method)
        if reason is not None and method not in self._logged:
            self._logged.add(method)
            log.info("%s: the server's requests for %s are refused: %s", self._id, method, reason)
        return reason

    def answer(
        self, method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any] | Coroutine[Any, Any, dict[str, Any]]:
        """Return the result of a request of the server, or what waits for it: a client answers it.

        Both raise MCPError for a request that is refused or malformed.
        """
        if self.audience is not None and method in _PASSED:
            return self._ask(self.audience, method, params or {})
        reason = self.refusal(method)
        if reason is not None:
            raise MCPError(types.METHOD_NOT_FOUND, f"{method} is not supported: {reason}", method)
        if method not in ("ping", "roots/list"):
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", method[:100])
        if params is not None and not isinstance(params.get("_meta", {}), Mapping):
            raise MCPError(types.INVALID_PARAMS, "Invalid request parameters", "")
        return self._list_roots() if method == "roots/list" else {}

    async def _ask(self, audience: Audience, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask a client. A refusal is that of a client without the feature."""
        try:
            return await audience.ask(method, params)
        except NotSupported as error:
            self.refusal(method)
            raise MCPError(types.METHOD_NOT_FOUND, f"{method} is not supported: {error}", method) from error

    def _list_roots(self) -> dict[str, Any]:
        paths = [PurePosixPath(path) for path in self._roots]
        return {"roots": [{"uri": path.as_uri(), "name": path.name or "/"} for path in paths]}

    async def input_responses(self, requested: Any) -> dict[str, Any]:
        """Return answers to the `inputRequests` of a result, under the same keys. Raises NotSupported, MCPError."""
        answers: dict[str, Any] = {}
        for key, request in requested.items() if isinstance(requested, Mapping) else ():
            method = request.get("method") if isinstance(request, Mapping) else None
            if self.audience is not None and method in _PASSED:
                params = request.get("params")
                answers[key] = await self.audience.ask(method, params if isinstance(params, Mapping) else {})
                continue
            if method != "roots/list" or self.refusal(method) is not None:
                reason = self.refusal(method) if isinstance(method, str) else None
                raise NotSupported(f"the server asks for input first ({method}): {reason or 'unknown to bbfs'}")
            answers[key] = self._list_roots()
        return answers


async def _nothing() -> None:
    """Tell no server of a level: none is connected."""
