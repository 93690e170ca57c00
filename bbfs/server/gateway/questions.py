"""Questions of a server behind this one to the user or the model of a client: elicitation and sampling."""

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from bbfs.model.errors import NotSupported
from bbfs.server.gateway.entries import characters
from bbfs.server_parts.subscribers import Context

LARGEST = 256 << 10
"""Characters of a question as JSON."""
ELICIT, SAMPLE = "elicitation/create", "sampling/createMessage"


def declared(*clients: types.ClientCapabilities) -> dict[str, Any]:
    """Return the capabilities that any of these clients has, as far as a server may use them."""
    found: dict[str, dict[str, Any]] = {}
    for client in clients:
        for name in ("elicitation", "sampling"):
            capability = getattr(client, name)
            if capability is not None:
                found.setdefault(name, {}).update(capability.model_dump(by_alias=True, exclude_none=True))
    return found


def suspends(ctx: Context) -> bool:
    """Return whether the client of a request may be asked in the answer to it, and offers answers."""
    client = ctx.session.client_capabilities
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and client is not None and bool(declared(client))


def can_answer(ctx: Context, method: str, params: Mapping[str, Any]) -> bool:
    """Return whether the client of a request takes this question."""
    client = ctx.session.client_capabilities
    if client is None or not (ctx.session.can_send_request or suspends(ctx)):
        return False
    if method == SAMPLE:
        wants_tools = params.get("tools") is not None or params.get("toolChoice") is not None
        return client.sampling is not None and (not wants_tools or client.sampling.tools is not None)
    if method != ELICIT or client.elicitation is None:
        return False
    by_url = client.elicitation.url is not None
    # A client that names no mode has forms, as before there were modes.
    return by_url if params.get("mode") == "url" else client.elicitation.form is not None or not by_url


def question_of(
    source: str, method: str, params: Mapping[str, Any]
) -> types.ElicitRequest | types.CreateMessageRequest:
    """Return a question of a server. Raise NotSupported for one that is too large, MCPError for one that is malformed.

    The message of an elicitation begins with the name of the source, so that the user knows who asks.
    """
    if characters(dict(params), LARGEST) > LARGEST:
        raise NotSupported(f"a question of more than {LARGEST} characters")
    given = {key: value for key, value in params.items() if key not in ("_meta", "task")}
    if method == ELICIT:
        given["message"] = f"{source}: {given.get('message')}"
    kind = types.ElicitRequest if method == ELICIT else types.CreateMessageRequest
    try:
        return kind.model_validate({"method": method, "params": given}, by_name=False)
    except ValidationError:
        raise MCPError(types.INVALID_PARAMS, "Invalid request parameters") from None


async def put(ctx: Context, request: types.ElicitRequest | types.CreateMessageRequest) -> types.Result:
    """Put a question to a client of the handshake era, and return the answer. Raise MCPError."""
    kind: type[types.ElicitResult | types.CreateMessageResult | types.CreateMessageResultWithTools]
    if isinstance(request, types.ElicitRequest):
        kind = types.ElicitResult
    elif request.params.tools is not None or request.params.tool_choice is not None:
        kind = types.CreateMessageResultWithTools
    else:
        kind = types.CreateMessageResult
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    return await ctx.session.send_request(request, kind, metadata=related)
