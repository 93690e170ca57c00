"""Answers to requests of a server: it gets the configured roots and nothing else.

In the handshake era a server sends requests (`roots/list`, `sampling/createMessage`, `elicitation/create`). Since
protocol 2026-07-28 it answers a request with `resultType: input_required` and puts these requests inside; the client
sends the first request again with their answers (specification, "Multi round-trip requests").
"""

import logging
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from bbfs.model.errors import NotSupported

log = logging.getLogger("bbfs.mcp")

MAX_ROUNDS = 10
"""Times that a server may ask for input for one request; other clients have the same bound."""
_WITHOUT = {
    "sampling/createMessage": "bbfs has no language model",
    "elicitation/create": "a file system cannot ask its user questions",
    "roots/list": "the source has no roots configured",
}


class ClientFeatures:
    """Answers requests of one server. server_id: for the log. roots: absolute paths of folders.

    A refusal is logged once per method.
    """

    def __init__(self, server_id: str, roots: tuple[str, ...]) -> None:
        self._id = server_id
        self._roots = roots
        self._logged: set[str] = set()

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities to declare. The roots do not change while the server runs."""
        return {"roots": {}} if self._roots else {}

    def refusal(self, method: str) -> str | None:
        """Return why requests of this method are refused, or None if they are not, or are unknown."""
        if method == "roots/list" and self._roots:
            return None
        reason = _WITHOUT.get(method)
        if reason is not None and method not in self._logged:
            self._logged.add(method)
            log.info("%s: the server's requests for %s are refused: %s", self._id, method, reason)
        return reason

    def answer(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the result of a request of the server. Raises MCPError for a request that is refused or malformed."""
        reason = self.refusal(method)
        if reason is not None:
            raise MCPError(types.METHOD_NOT_FOUND, f"{method} is not supported: {reason}", method)
        if method not in ("ping", "roots/list"):
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", method[:100])
        if params is not None and not isinstance(params.get("_meta", {}), Mapping):
            raise MCPError(types.INVALID_PARAMS, "Invalid request parameters", "")
        return self._list_roots() if method == "roots/list" else {}

    def _list_roots(self) -> dict[str, Any]:
        paths = [PurePosixPath(path) for path in self._roots]
        return {"roots": [{"uri": path.as_uri(), "name": path.name or "/"} for path in paths]}

    def input_responses(self, requested: Any) -> dict[str, Any]:
        """Return answers to the `inputRequests` of a result, under the same keys. Raises NotSupported."""
        answers: dict[str, Any] = {}
        for key, request in requested.items() if isinstance(requested, Mapping) else ():
            method = request.get("method") if isinstance(request, Mapping) else None
            if method != "roots/list" or self.refusal(method) is not None:
                reason = self.refusal(method) if isinstance(method, str) else None
                raise NotSupported(f"the server asks for input first ({method}): {reason or 'unknown to bbfs'}")
            answers[key] = self._list_roots()
        return answers
