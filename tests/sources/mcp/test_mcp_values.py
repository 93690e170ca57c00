"""The pure parts: lines and events out of bytes, entries out of JSON, secrets out of texts, errors out of codes."""

import gzip
import json
import zlib
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp_types import SERVER_INFO_META_KEY

from bbfs.model.calls import Progress
from bbfs.model.errors import BbfsError, ProtocolViolation, TooLarge
from bbfs.model.listing import Rows
from bbfs.model.redaction import Redactor
from bbfs.model.values import McpServer, ResourceMetadata, ResourceTemplate
from bbfs.resources.catalog.record import Record
from bbfs.sources.http.responses import BodyDecoder
from bbfs.sources.mcp.client.decode import (
    add_resources,
    completion,
    discovered,
    initialized,
    loaded,
    next_cursor,
    page,
    progress_of,
    resource_entry,
    template_cost,
    template_entry,
    ttl_seconds,
)
from bbfs.sources.mcp.client.errors import request_error, server_redactor
from bbfs.sources.mcp.client.paging import MAX_REPEATED_PAGES, Course, Taken
from bbfs.sources.mcp.client.tool_entries import prompt_entry, tool_entry
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
        for read in (lambda result: loaded(result, None), lambda result: page(result, "resources"), next_cursor):
            try:
                read(result)
            except BbfsError:
                pass
        assert (ttl_seconds(result) or 1) > 0


def test_a_list_that_is_left_out_is_empty_and_another_result_is_no_listing() -> None:
    for result in ({}, {"resources": None}, {"resultType": "complete", "ttlMs": 0, "_meta": {}}, {"nextCursor": "2"}):
        assert page(result, "resources") == []
    for result in ({"tools": []}, {"resource": [1]}, {"error": "down"}, {"resources": {}}):
        with pytest.raises(ProtocolViolation, match="without 'resources'"):
            page(result, "resources")


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


def test_a_coded_body_may_not_grow_without_bound() -> None:
    body = gzip.compress(bytes(80 << 20))
    sizes: list[int] = []
    with pytest.raises(ProtocolViolation, match="grows more than 250 times"):
        sizes.extend(len(piece) for piece in BodyDecoder("gzip").feed(body))
    assert sum(len(piece) for piece in BodyDecoder("gzip").feed(gzip.compress(bytes(60 << 20)))) == 60 << 20


def test_batch_is_its_messages() -> None:
    messages = decode(b'[{"jsonrpc": "2.0", "id": 1, "result": {}}, 7, {"id": 2, "result": null}]')
    assert messages is not None
    assert [type(message).__name__ for message in messages] == ["JSONRPCResponse", "JSONRPCError"]


@pytest.mark.semantics("S25")
def test_a_listing_ends_at_each_of_its_bounds() -> None:
    def course() -> Course:
        return Course("server", "resources/list", 100, 10_000, "list_limit")

    entries = course()
    assert entries.take(Taken(new=99, invalid=1, bytes=10))
    assert not entries.take(Taken(new=1, invalid=0, bytes=10))
    problem = "1 invalid entry left out; the server lists 100 entries or more (option list_limit)"
    assert (entries.end().problem or "").startswith(problem)
    sizes = course()
    assert not sizes.take(Taken(new=1, invalid=0, bytes=10_000))
    assert "10000 bytes or more (option list_limit)" in (sizes.end().problem or "")
    empty = course()
    for page_number in range(MAX_REPEATED_PAGES):
        assert not empty.ends_at(f"{page_number}")
        empty.turn(None)
    assert empty.ends_at("next"), "pages with no entry bring nothing new"


@pytest.mark.parametrize("cursor", [10**30, 7.5, True, ["a"], {"a": 1}, "x" * 70_000, "\ud800"], ids=repr)
def test_a_cursor_that_is_no_usable_text_is_a_protocol_error(cursor: Any) -> None:
    with pytest.raises(ProtocolViolation, match="cursor"):
        next_cursor({"nextCursor": cursor})
    assert [next_cursor({"nextCursor": cursor}) for cursor in ("a", 7)] == ["a", 7]
    assert [next_cursor({"nextCursor": end}) for end in (None, "", 0, False)] == [None] * 4


@pytest.mark.parametrize(
    ("template", "cost"), [("x://{a}/{b}", 2), ("x://{+a}", 1), ("x://{+a}{b}", 20), ("x://{a}{/b*}", 20)]
)
def test_templates_that_take_long_to_match_cost_more(template: str, cost: int) -> None:
    assert template_cost(ResourceTemplate(template, "t")) == cost


def test_fields_of_entries_are_bounded() -> None:
    long = "x" * 70_000
    assert resource_entry({"uri": long}) is None
    assert template_entry({"uriTemplate": "x://" + "a" * 2000}) is None
    assert template_entry({"uriTemplate": "x://" + "{a}/" * 17}) is None
    assert template_entry({"uriTemplate": "x://" + "{a}/" * 16}) is not None
    entry = resource_entry({"uri": "x://a", "mimeType": long})
    assert entry is not None
    assert entry.mime_type is None
    assert tool_entry({"name": "t", "inputSchema": {"properties": {f"{n}": {} for n in range(100_000)}}}) is None
    assert prompt_entry({"name": "p", "arguments": [{"name": f"{n}"} for n in range(100_000)]}) is None
    rows = Rows("mcp-server+x")
    deep = [{"uri": f"x://{n}", "name": f"{n}", "_meta": {"a": [[]] * 100}} for n in range(10)]
    assert add_resources(deep, rows).bytes > 60_000
    assert add_resources([{"uri": f"y://{n}", "name": f"{n}"} for n in range(10)], rows).bytes < 1000


@pytest.mark.parametrize("large", [{"x": [1.5] * 990_000}, {"x": [[]] * 2000}, {"x": "x" * (1 << 21)}])
def test_data_that_fit_into_no_attribute_are_left_out(large: dict[str, Any]) -> None:
    light = {"k": [[]] * 100}
    given = {"uri": "x://a", "uriTemplate": "x://{a}", "name": "a", "annotations": large, "_meta": large}
    for entry in (resource_entry({**given, "icons": light}), template_entry({**given, "icons": light})):
        assert entry is not None
        assert (entry.annotations, entry.mcp_data) == (None, {"icons": light})
    assert add_resources([given] * 3, Rows("mcp-server+x")).bytes < 5000


def test_the_meta_of_a_content_is_a_property_until_a_content_has_none() -> None:
    listed = ResourceMetadata("docs+x://a", "x://a", "a", title="A", properties={"digest": "sha256:1"})
    record = Record("docs", listed, ("a",), 0.0)
    met = []
    for meta in ({"k": [1]}, None, {"k": "x" * (1 << 20)}):
        said = loaded({"contents": [{"uri": "x://a", "text": "", "_meta": meta}]}, None).metadata
        assert said is not None
        record.adopt(said)
        met.append(record.metadata.properties)
    assert met == [{"digest": "sha256:1", "content_meta": {"k": [1]}}, *[{"digest": "sha256:1"}] * 2]
    assert (record.metadata.uri, record.metadata.title) == ("docs+x://a", "A")


def test_parts_and_completions_are_bounded() -> None:
    with pytest.raises(TooLarge, match="20000 parts"):
        loaded({"contents": [{"uri": "x", "text": ""}] * 20_000}, None)
    values = completion({"completion": {"values": [f"{n}" for n in range(1_000_000)]}})
    assert (len(values.values), values.more) == (10_000, True)
    long = completion({"completion": {"values": ["a", "y" * 1024, "\u00e9" * 1025, "y" * (64 << 10), "b"]}})
    assert long.values == ("a", "y" * 1024, "b")


def test_a_greeting_keeps_nothing_that_is_large() -> None:
    stated = {f"{n}": {"x": True} for n in range(10_000)} | {"resources": {"subscribe": True, "x" * 1000: True}}
    result = {"protocolVersion": "1", "capabilities": stated, "serverInfo": {"name": "\x1b[31m" * 10_000, "version": 1}}
    greeting = initialized(result, ("1",))
    assert greeting.capabilities == {"resources": {"subscribe"}}
    assert len(greeting.server or "") < 300
    assert (greeting.server or "").isprintable()
    with pytest.raises(ProtocolViolation) as caught:
        initialized({"protocolVersion": "9" * 1_000_000}, ("1",))
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("before", [10, 25, 185, 199, (64 << 10) - 30, (64 << 10) - 1])
def test_a_greeting_keeps_no_part_of_a_secret(before: int) -> None:
    secret = "sk-0123456789abcdef0123456789abcdef"
    cut, text = Redactor([secret]).cut, "x" * before + secret
    told: dict[str, Any] = {"instructions": text, "serverInfo": {"name": text, "version": text}}
    for greeting in (
        initialized({"protocolVersion": "1", **told}, ("1",), cut),
        discovered({"supportedVersions": ["2"], "_meta": {SERVER_INFO_META_KEY: told["serverInfo"]}, **told}, "2", cut),
    ):
        assert "sk" not in (greeting.server or "")
        assert "sk" not in (greeting.instructions or "")
    with pytest.raises(ProtocolViolation) as caught:
        initialized({"protocolVersion": text}, ("1",), cut)
    assert "sk" not in str(caught.value)


def test_an_error_of_a_server_is_short_and_printable() -> None:
    error = request_error(MCPError(-32000, "\x1b]0;title\x07\r\n" * 1000), reading=True)
    assert len(str(error)) < 600
    assert str(error).isprintable()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1971-01-01T00:00:01Z", 31536001),
        ("1971-01-01T01:00:01+01:00", 31536001),
        ("1971-01-01T00:00:01", 31536001),
        ("1971-01-02", 31622400),
        ("1970-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00Z", None),
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


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e999", "NaN", "true", '"1"', "[]"])
def test_a_progress_that_is_no_number_is_left_out(number: str) -> None:
    value = json.loads(number)
    assert progress_of({"progress": value}) is None
    assert progress_of({"progress": 1, "total": value, "message": "x"}) == Progress(1.0, None, "x")
