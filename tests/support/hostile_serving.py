"""Hostile requests to the two MCP servers, over HTTP/1.1 on plain sockets. Each function returns the bytes to send."""

import base64
import json
from collections.abc import Iterator
from typing import Any

HEAD = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
ACCEPT = b"Accept: application/json, text/event-stream\r\n"
GREETING = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "hostile", "version": "1"},
}
_LATER = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "hostile", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def post(body: bytes, session: str | None = None) -> bytes:
    own = b"" if session is None else b"Mcp-Session-Id: %s\r\n" % session.encode()
    return HEAD + ACCEPT + own + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def listen() -> bytes:
    """Return the request for a stream of the stateless era."""
    body = request("subscriptions/listen", {"_meta": _LATER, "notifications": {"resourcesListChanged": True}})
    return post(body).replace(
        ACCEPT, ACCEPT + b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n"
    )


def bodies() -> dict[str, bytes]:
    """Return JSON of a megabyte and more by what is wrong with it."""
    return {
        "many lists": b"[" + b"[]," * 1_000_000 + b"[]]",
        "deep lists": b"[" * 40_000 + b"]" * 40_000,
        "deep objects": b'{"a":' * 40_000 + b"1" + b"}" * 40_000,
        "many keys": b"{" + b",".join(b'"%d":0' % number for number in range(300_000)) + b"}",
        "a long number": b"9" * 1_000_000,
        "an open string": b'"' + b"\\u0000" * 300_000,
        "not UTF-8": b'"' + b"\xff" * 1_000_000 + b'"',
    }


def byte_by_byte() -> bytes:
    """Return a chunked body of four hundred thousand chunks of a byte."""
    return HEAD + ACCEPT + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 400_000


def other_protocols() -> dict[str, bytes]:
    """Return the ways to another protocol than HTTP/1.1."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    upgrade = b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    return {
        "the preface of HTTP/2": preface + b"\x00\x00\x08\x06\x00\x00\x00\x00\x00ponypony" * 1000,
        "an upgrade to HTTP/2": upgrade + b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        "an upgrade to WebSocket": upgrade.replace(b", HTTP2-Settings", b"")
        + b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    }


def cursors() -> Iterator[str]:
    """Yield cursors that look like those of a server."""
    for text in ("[" * 30_000, "{}", '["collection", 1, 2]', '["x", "", ""]', "9" * 6000, '"\\ud800"', "null", "\0"):
        yield base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    yield "=" * 100
    yield "A" * 2_000_000
    yield "ä"


def calls(source: str) -> dict[str, dict[str, Any]]:
    """Return the parameters of calls of the tools of both servers. source: the id of a data source."""
    long, load, look, search = "x" * 2_000_000, "load_resources", "load_datasource", "search_knowledge"
    template = f"bb-filesystem+{source}+file:./" + "{a}" * 2000
    return {
        "long id": {"name": look, "arguments": {"dataSourceId": long}},
        "long path": {"name": look, "arguments": {"dataSourceId": source, "path": "a/" * 1_000_000}},
        "long token": {"name": look, "arguments": {"dataSourceId": source, "pageToken": long}},
        "large numbers": {"name": look, "arguments": {"dataSourceId": source, "depth": 10**4000, "pageSize": -1}},
        "long URI": {"name": load, "arguments": {"mode": "direct", "directUris": [long]}},
        "many URIs": {"name": load, "arguments": {"mode": "direct", "directUris": ["a:b"] * 40_000}},
        "wrong URIs": {"name": load, "arguments": {"mode": "direct", "directUris": [1] * 1000}},
        "many variables": {
            "name": load,
            "arguments": {
                "mode": "template",
                "uriTemplate": template,
                "templateResources": [{"a": "y" * 10_000}] * 100,
            },
        },
        "unknown variables": {
            "name": load,
            "arguments": {
                "mode": "template",
                "uriTemplate": template,
                "templateResources": [{f"v{number}": "" for number in range(20_000)}],
            },
        },
        "unknown tool": {"name": long, "arguments": {}},
        "unknown arguments": {"name": search, "arguments": {f"a{number}": 0 for number in range(20_000)}},
        "long query": {"name": search, "arguments": {"query": long}},
        "syntax of FTS5": {"name": search, "arguments": {"query": 'NEAR("a" b, 1) OR ^c* AND {body}: -d "'}},
        "a lone surrogate": {"name": search, "arguments": {"query": "a", "collection": "\ud800"}},
        "NUL": {"name": search, "arguments": {"query": "a\0b", "collection": "\0"}},
    }
