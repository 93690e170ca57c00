"""Messages and events out of bytes that come in any pieces, and the bounds on them."""

import json
import os
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from bbfs.model.errors import BbfsError, ProtocolViolation, TooLarge
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.spool import Spool
from bbfs.sources.mcp.client.decode import loaded
from bbfs.sources.mcp.transport.events import Event, EventParser
from bbfs.sources.mcp.transport.long_texts import LongText
from bbfs.sources.mcp.transport.messages import Intake, MessageReader, RawMessage, Share, decode

LIMIT = 1 << 20


def read(document: bytes, size: int = 1 << 14, limit: int = LIMIT, **bounds: int) -> RawMessage:
    """Read a message that comes in pieces of this size."""
    reader = MessageReader(limit, Spool, **bounds)
    for start in range(0, len(document), size):
        reader.feed(document[start : start + size])
    return reader.end()


def answer(result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


def first(found: list[types.JSONRPCMessage] | None) -> types.JSONRPCMessage:
    assert found is not None
    assert len(found) == 1
    return found[0]


def only(raw: RawMessage) -> types.JSONRPCMessage:
    return first(decode(raw))


@given(st.text(st.sampled_from(list('a"\\\né😀u/\x01')), min_size=300), st.integers(1, 200), st.booleans())
def test_a_long_text_is_the_same_in_pieces(text: str, size: int, ascii_only: bool) -> None:
    result = {"contents": [{"uri": "x", "text": text}], "deeper": [{"text": text}]}
    message = {"jsonrpc": "2.0", "id": 1, "result": result}
    raw = read(json.dumps(message, ensure_ascii=ascii_only).encode(), size, long=90, scanned=20)
    assert len(raw.texts) == 2
    found = only(raw)
    assert isinstance(found, types.JSONRPCResponse)
    content = found.result["contents"][0]["text"]
    assert isinstance(content, LongText)
    assert content.text() == text
    assert found.result["deeper"] == [{"text": text}]


@given(
    st.binary(min_size=300).map(lambda data: b64encode(data).decode())
    | st.binary(min_size=300).map(lambda data: b64encode(data).rstrip(b"=").decode())
    | st.text(st.sampled_from("AQgw=+/-_ "), min_size=300),
    st.integers(1, 200),
)
def test_a_long_blob_is_decoded_as_it_comes_and_stays_the_same_text(text: str, size: int) -> None:
    document = answer({"contents": [{"uri": "x", "blob": text}], "deeper": {"blob": text}})
    found = only(read(document, size, long=90, scanned=20))
    assert isinstance(found, types.JSONRPCResponse)
    content = found.result["contents"][0]["blob"]
    assert isinstance(content, LongText)
    assert content.text() == text
    assert found.result["deeper"] == {"blob": text}
    assert part_of({"uri": "x", "blob": content}) == part_of({"uri": "x", "blob": text})


def part_of(content: dict[str, Any]) -> bytes | None:
    try:
        found = loaded({"contents": [content]}, None).parts[0].content
    except ProtocolViolation:
        return None
    return found.read(0, found.size)


@given(st.binary(min_size=80, max_size=300), st.integers(1, 100))
def test_any_bytes_are_read_in_pieces_as_at_once(data: bytes, size: int) -> None:
    document = b'{"jsonrpc": "2.0", "id": 1, "result": {"x": "' + data + b'"}}'
    in_pieces, at_once = decode(read(document, size, long=70, scanned=20)), decode(RawMessage(document, {}))
    if at_once and isinstance(at_once[0], types.JSONRPCResponse) and in_pieces:
        assert isinstance(in_pieces[0], types.JSONRPCResponse)
        assert in_pieces[0].result.keys() == at_once[0].result.keys()


@settings(max_examples=20)
@given(st.integers(1, 7), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_events(size: int, end: bytes) -> None:
    stream = (
        b"\xef\xbb\xbf: hello\n\nevent: endpoint\ndata: /x\n\nid: 7\ndata: a\ndata:b\n\ndata\nretry: 3\n\ndata: cut"
    )
    stream = stream.replace(b"\n", end)
    parser, found, data = EventParser(), [], b""
    for start in range(0, len(stream), size):
        for part in parser.feed(stream[start : start + size]):
            if isinstance(part, bytes):
                data += part
            elif isinstance(part, Event):
                found.append((part, data))
                data = b""
    assert found == [
        (Event("endpoint", None), b"/x"),
        (Event("message", "7"), b"a\nb"),
        (Event("message", "7"), b""),
    ]


def test_an_id_that_no_header_can_repeat_is_no_id() -> None:
    parser = EventParser()
    list(parser.feed("id: gr\u00fcn\nid: a\x07b\nretry: x\nretry: 99999999999\ndata:\n\n".encode()))
    assert (parser.last_id, parser.retry) == (None, None)
    list(parser.feed(b"id: green\nretry: 250\n\n"))
    assert (parser.last_id, parser.retry) == ("green", 0.25)


@pytest.mark.parametrize(
    "line", [b"data\n", b"data:\n", b"event: " + b"x" * 20_000, b"id:" + b"x" * 20_000], ids=lambda line: line[:8]
)
def test_fields_of_events_are_bounded(line: bytes) -> None:
    parser = EventParser(most_lines=1000)
    with pytest.raises(ProtocolViolation):
        [list(parser.feed(line)) for _ in range(2000)]


def test_a_comment_may_have_any_length_and_is_not_kept() -> None:
    parser = EventParser()
    sizes = [part for _ in range(1000) for part in parser.feed(b":" + b"x" * 1000)]
    assert sum(part for part in sizes if isinstance(part, int)) > 900_000
    assert [part for part in parser.feed(b"\ndata: a\n\n") if not isinstance(part, int)] == [
        b"a",
        Event("message", None),
    ]


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (lambda: answer({"x": "y" * (40 << 20)}), ProtocolViolation),
        (lambda: answer({"x": ["y" * 1000] * 35_000}), TooLarge),
        (lambda: b" " * (35 << 20), TooLarge),
    ],
    ids=["bytes", "texts", "spaces"],
)
def test_a_message_is_bounded_by_its_bytes_and_by_those_beside_long_texts(
    document: Callable[[], bytes], error: type[BbfsError]
) -> None:
    with pytest.raises(error, match="bytes"):
        read(document(), limit=40 << 20)


@pytest.mark.parametrize(
    "result",
    [
        b"[" + b"[]," * 1_000_001 + b"0]",
        b"[" + b"{}," * 1_000_001 + b"0]",
        b"[" * 200_000 + b"]" * 200_000,
        b'{"a":' * 200_000 + b"0" + b"}" * 200_000,
    ],
    ids=lambda result: result[:4],
)
@pytest.mark.parametrize("answers", [True, False])
def test_a_structure_over_a_bound_is_refused_unparsed(result: bytes, answers: bool) -> None:
    document = b'{"jsonrpc": "2.0", "id": 7, ' * answers + b'"result": ' + result + b"}"
    if not answers:
        with pytest.raises(TooLarge):
            decode(RawMessage(b"{" + document, {}))
        return
    found = only(RawMessage(document, {}))
    assert isinstance(found, types.JSONRPCError)
    assert found.id == 7
    assert "too large" in found.error.message


def test_a_batch_of_too_many_is_none() -> None:
    one = b'{"jsonrpc": "2.0", "method": "x"}'
    assert len(decode(RawMessage(b"[" + b",".join([one] * 1000) + b"]", {})) or ()) == 1000
    assert decode(RawMessage(b"[" + b",".join([one] * 1001) + b"]", {})) is None


def test_a_long_text_of_an_error_is_cut() -> None:
    error = {"code": 1, "message": "m" * 100_000, "data": {"deep": "d" * 100_000}}
    found = only(read(json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode()))
    assert isinstance(found, types.JSONRPCError)
    assert found.error.message == "m" * 2000


@pytest.mark.parametrize("line", [b"", b" " * 100, b"{}", b"no json", b"[" * 50, b'"' * 50], ids=repr)
async def test_bytes_that_are_no_messages_are_bounded(line: bytes) -> None:
    message = b'{"jsonrpc": "2.0", "method": "x"}'
    with Intake(LIMIT, Share(), most_foreign=100_000) as intake:
        for _ in range(2000):
            await intake.feed(line)
            assert not await intake.end()
            await intake.feed(message)
            assert await intake.end()
        with pytest.raises(ProtocolViolation, match="no messages"):
            await only_lines(intake, line)


async def only_lines(intake: Intake, line: bytes) -> None:
    for _ in range(2000):
        await intake.feed(line)
        await intake.end()


async def test_one_large_message_of_a_server_is_read_at_a_time(autojump_clock: object) -> None:
    share = Share()
    document = answer({"contents": [{"uri": "x", "text": "y" * (6 << 20)}]})
    order: list[str] = []

    async def take(name: str, pause: float) -> None:
        with Intake(16 << 20, share) as intake:
            await intake.feed(document[: 5 << 20])
            order.append(f"{name} begins")
            await trio.sleep(pause)
            await intake.feed(document[5 << 20 :])
            assert await intake.end()
            order.append(f"{name} ends")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take, "first", 10)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(take, "second", 0)
        with trio.move_on_after(1):
            with Intake(16 << 20, share) as given_up:
                await given_up.feed(document)
    assert order == ["first begins", "first ends", "second begins", "second ends"]
    assert share.large.borrowed_tokens == 0


async def test_other_tasks_run_while_a_message_is_read() -> None:
    document = answer({"contents": [{"uri": "x", "text": "y" * (16 << 20)}]})
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        with Intake(32 << 20, Share()) as intake:
            await intake.feed(document)
            assert turns > 3
            assert await intake.end()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("key", ["text", "blob"])
async def test_the_longest_texts_go_to_the_spool(key: str, tmp_path: Path) -> None:
    document = answer({"contents": [{"uri": "x", key: "QUJD" * (6 << 20)}]})
    share = Share(lambda: Spool(tmp_path))
    with Intake(32 << 20, share) as intake:
        await intake.feed(document)
        found = first(await intake.end())
    assert isinstance(found, types.JSONRPCResponse)
    content = loaded(found.result, None).parts[0].content
    assert isinstance(content, StoredContent)
    data = await content.read_waiting(0, content.size)
    assert data == (b"QUJD" if key == "text" else b"ABC") * (6 << 20)
    with Intake(32 << 20, share) as intake:
        await intake.feed(document[:-1000])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("end", ["!", "Q", "=Q", "QR==", "é"])
async def test_a_blob_that_breaks_late_is_an_error_and_takes_no_memory(end: str) -> None:
    for key, result in (
        ("contents", [{"uri": "x", "blob": "QUJD" * (1 << 20) + end}]),
        ("deep", {"blob": "QUJD" * (1 << 20) + end}),
    ):
        with Intake(32 << 20, Share()) as intake:
            await intake.feed(answer({key: result}))
            found = first(await intake.end())
        if key == "deep":
            assert isinstance(found, types.JSONRPCError)
        else:
            assert isinstance(found, types.JSONRPCResponse)
            with pytest.raises(ProtocolViolation, match="not base64"):
                loaded(found.result, None)


async def test_long_texts_that_are_no_contents_are_bounded() -> None:
    with Intake(80 << 20, Share()) as intake:
        await intake.feed(answer({"content": [{"type": "text", "text": "x" * (33 << 20)}] * 2}))
        found = first(await intake.end())
    assert isinstance(found, types.JSONRPCError)
    assert "too large" in found.error.message


def test_replaced_bytes_count_as_what_they_become() -> None:
    document = (
        b'{"jsonrpc": "2.0", "id": 1, "result": {"contents": [{"uri": "x", "text": "' + b"\xff" * 900_000 + b'"}]}}'
    )
    with pytest.raises(TooLarge, match="a text of more than"):
        read(document)
