"""The pure parts: lines and events out of bytes, entries out of JSON, secrets out of texts, errors out of codes."""

import gzip
import json
import zlib
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbfs.model.errors import BbfsError, ProtocolViolation
from bbfs.model.values import McpServer
from bbfs.sources.http.responses import BodyDecoder
from bbfs.sources.mcp.client.decode import (
    discovered,
    initialized,
    loaded,
    next_cursor,
    page,
    resource_entry,
    template_entry,
    ttl_seconds,
)
from bbfs.sources.mcp.client.errors import server_redactor
from bbfs.sources.mcp.transport.messages import RawMessage
from bbfs.sources.mcp.transport.messages import decode as decode_message

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(
    ["uri", "name", "title", "description", "mimeType", "size", "annotations", "_meta", "icons", "uriTemplate"]
)


def decode(line: bytes) -> list[types.JSONRPCMessage] | None:
    return decode_message(RawMessage(line, {}))


@given(st.dictionaries(fields, json_values))
def test_any_entry_is_taken_or_left(raw: dict[str, Any]) -> None:
    for key, parse in (("uri", resource_entry), ("uriTemplate", template_entry)):
        entry = parse(raw)
        usable = isinstance(raw.get(key), str) and raw[key]
        assert (entry is not None) == bool(usable)


@given(json_values)
def test_any_result_is_a_value_or_an_error(raw: Any) -> None:
    for result in ({"contents": raw, "resources": raw, "nextCursor": raw, "ttlMs": raw}, {}):
        for read in (lambda result: loaded(result, None), lambda result: page(result, "resources", resource_entry)):
            try:
                read(result)
            except BbfsError:
                pass
        assert next_cursor(result) is ((raw or None) if result else None)  # a NaN is not equal to itself
        assert (ttl_seconds(result) or 1) > 0


@given(json_values)
def test_any_line_is_messages_or_none(raw: Any) -> None:
    assert decode(json.dumps(raw).encode()) is None or isinstance(raw, dict | list)


@given(st.binary())
def test_any_bytes_are_messages_or_none(line: bytes) -> None:
    decode(line)


@given(st.dictionaries(st.sampled_from(["capabilities", "serverInfo", "instructions", "_meta"]), json_values))
def test_any_greeting_is_one_that_the_sdk_takes(raw: dict[str, Any]) -> None:
    old = initialized({**raw, "protocolVersion": "2025-06-18"}, ("2025-06-18",))
    new = discovered({**raw, "supportedVersions": [raw, "2026-07-28"]}, "2026-07-28")
    assert (old.version, new.version) == ("2025-06-18", "2026-07-28")
    assert old.capabilities == new.capabilities
    for flags in old.capabilities.values():
        assert all(isinstance(flag, str) for flag in flags)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"level": 30, "id": 1, "msg": "a log line"}', None),
        (b'{"jsonrpc": "2.0", "id": true, "result": {}}', None),
        (b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32002}}', -32002),
        (b'{"jsonrpc": "2.0", "id": 1, "error": "gone"}', -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "result": null}', -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {"cut": ', -32700),
        (b'{"result": {"cut": }, "jsonrpc": "2.0", "id": 1}', -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "result": ' + b"[" * 3000 + b"]" * 3000 + b"}", -32700),
    ],
)
def test_what_is_no_message_fails_its_request_if_it_has_one(line: bytes, code: int | None) -> None:
    found = decode(line)
    assert found is None if code is None else [(m.id, m.error.code) for m in _errors(found)] == [(1, code)]


def _errors(messages: list[types.JSONRPCMessage] | None) -> list[types.JSONRPCError]:
    return [message for message in messages or () if isinstance(message, types.JSONRPCError)]


@given(st.binary(max_size=3 << 20), st.integers(1, 1 << 16), st.sampled_from(["gzip", " GZIP ", "deflate", None]))
@settings(max_examples=30, deadline=None)
def test_inflated_is_what_was_deflated(data: bytes, size: int, coding: str | None) -> None:
    packed = data if coding is None else gzip.compress(data) if "deflate" not in coding else zlib.compress(data)
    inflate = BodyDecoder(coding).feed
    pieces = [piece for start in range(0, len(packed), size) for piece in inflate(packed[start : start + size])]
    assert b"".join(pieces) == data
    assert coding is None or all(len(piece) <= 1 << 20 for piece in pieces)


@pytest.mark.parametrize(("coding", "body"), [("br", b""), ("gzip", b"plain"), ("gzip, gzip", b"")])
def test_a_body_that_is_not_coded_as_it_says_is_refused(coding: str, body: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        list(BodyDecoder(coding).feed(body))


def test_batch_is_its_messages() -> None:
    messages = decode(b'[{"jsonrpc": "2.0", "id": 1, "result": {}}, 7, {"id": 2, "result": null}]')
    assert messages is not None
    assert [type(message).__name__ for message in messages] == ["JSONRPCResponse", "JSONRPCError"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:01Z", 1),
        ("1970-01-01T01:00:01+01:00", 1),
        ("1970-01-01T00:00:01", 1),
        ("1970-01-02", 86400),
        ("1969-12-31T23:59:59Z", -1),
        ("yesterday", None),
        ("", None),
        (12, None),
    ],
)
def test_last_modified(text: Any, seconds: int | None) -> None:
    entry = resource_entry({"uri": "u:x", "name": "x", "annotations": {"lastModified": text}})
    assert entry is not None
    assert entry.modified_ns == (None if seconds is None else seconds * 10**9)


@pytest.mark.parametrize(
    ("size", "expected"), [(0, None), (7, 7), (7.0, 7), (-1, None), (True, None), ("7", None), (0.5, None)]
)
def test_size(size: Any, expected: int | None) -> None:
    entry = resource_entry({"uri": "u:x", "name": "x", "size": size})
    assert entry is not None
    assert entry.size == expected


def test_text_keeps_whole_surrogate_pairs() -> None:
    result = {"contents": [{"uri": "u:x", "text": "\ud83d\ude00 \ud83d"}]}
    assert loaded(result, None).parts[0].content.read(0, 100) == "\U0001f600 \ufffd".encode()


@pytest.mark.semantics("S30")
def test_redaction() -> None:
    server = McpServer(
        "http",
        url="https://joe:p%40ssword@host/path?key=query-secret&x=1#piece-of-it",
        headers={"authorization": "Bearer header-secret"},
        env={"TOKEN": "env-secret", "DEBUG": "1"},
    )
    text = "1 Bearer header-secret, header-secret, env-secret, p@ssword, query-secret, piece-of-it at https://host/path"
    assert server_redactor(server)(text) == "1 ***, ***, ***, ***, ***, *** at https://host/path"
    assert "secret" not in repr(server)
