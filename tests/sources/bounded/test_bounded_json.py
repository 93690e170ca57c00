"""The JSON parser with bounds: what it refuses, and that it parses all else as the standard parser does."""

import json
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.errors import ProtocolViolation, Rejected, TooLarge
from bbfs.sources.bounded import json as bounded
from bbfs.sources.bounded.json import JsonBounds, LongDocument, check_json, parse_json, parse_written

texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\\"[]{},'), max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
documents = st.recursive(scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5))


def depth(value: Any) -> int:
    match value:
        case dict():
            return 1 + max(map(depth, value.values()), default=0)
        case list():
            return 1 + max(map(depth, value), default=0)
        case _:
            return 0


@given(documents, st.booleans())
def test_it_parses_what_the_standard_parser_does(value: Any, ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(documents)
def test_the_bounds_are_exact(value: Any) -> None:
    data = json.dumps(value).encode()
    structure = _without_strings(value)
    deep, count = depth(value), len(structure) - structure.count("]") - structure.count("}")
    assert parse_json(data, JsonBounds(depth=deep, values=count)) == value
    if deep:
        with pytest.raises(TooLarge, match="nested"):
            check_json(data, JsonBounds(depth=deep - 1))
        with pytest.raises(TooLarge, match="values"):
            check_json(data, JsonBounds(values=count - 1))


def _without_strings(value: Any) -> str:
    match value:
        case dict():
            return "{" + ",".join(map(_without_strings, value.values())) + "}"
        case list():
            return "[" + ",".join(map(_without_strings, value)) + "]"
        case _:
            return ""


@pytest.mark.parametrize("item", ["[]", "{}", '{"a":[0]}', '"[,{"', "1.5", "12345678901234567890,-0.5", '"\\u00e4\\""'])
def test_a_document_of_many_values_is_the_same(item: str) -> None:
    data = ("[" + ",".join([item] * 60_000) + "]").encode()
    assert parse_json(data) == json.loads(data)


@given(documents, st.integers(1, 40), st.sampled_from([None, 1]), st.floats(0, 0.99))
def test_values_longer_than_a_piece_are_the_same(value: Any, size: int, indent: int | None, cut: float) -> None:
    data = json.dumps([value, value], indent=indent)
    assert LongDocument(data, size).parsed() == [value, value]
    with pytest.raises(json.JSONDecodeError):
        LongDocument(data[: int(len(data) * cut)], size).parsed()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"[" + b"[]," * 1_000_000 + b"0]", "values"),
        (b"[" + b"0," * 1_100_000 + b"0]", "values"),
        (b'{"a":' * 500_000 + b"0" + b"}" * 500_000, "deep"),
        (b"[" * 900_000, "deep"),
        (b"[{" * 400_000, "deep"),
        (b'["' + b"\\\\" * 70_000 + b'",' + b"[" * 200, "deep"),
        (b'["' + b'\\"' * 70_000 + b'",' + b"[" * 200, "deep"),
    ],
)
def test_many_or_deep_values_are_refused_unparsed(data: bytes, words: str) -> None:
    with pytest.raises(TooLarge, match=words):
        parse_json(data)


def test_marks_in_strings_do_not_count() -> None:
    value = ["[{," * 1_000_000, '\\"[' * 50_000]
    assert parse_json(json.dumps(value).encode()) == value


def test_a_long_document_is_refused() -> None:
    with pytest.raises(TooLarge, match="11 bytes, more than 10"):
        parse_json(b"0123456789 ", JsonBounds(size=10))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1,]",
        b"NaN",
        b"[-Infinity]",
        b"1 2",
        b"\xff",
        b'"a',
        b"9" * 5_000,
        b"[" + b"[]," * 30_000,
        b"[" + b"[]," * 30_000 + b"0] 1",
        b"[" + b"NaN," * 30_000 + b"0]",
        b'["\xff"' + b",[]" * 30_000 + b"]",
        b"[" + b"[]," * 30_000 + b"9" * 5_000 + b"]",
    ],
)
def test_what_is_no_json_breaks_the_protocol(data: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="no JSON"):
        parse_json(data)


def test_deep_values_are_parsed_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = 0

    class Failed(json.JSONDecodeError):
        def __init__(self, msg: str, doc: str, pos: int) -> None:
            nonlocal failed
            failed += 1
            super().__init__(msg, doc, pos)

    monkeypatch.setattr(json.decoder, "JSONDecodeError", Failed)
    chain = b"[" * 120 + b",".join([b'"%s"' % (b"x" * 30)] * 2500) + b"]" * 120
    data = b"[" + b",".join([chain] * 20) + b"]"
    assert parse_json(data) == json.loads(data)
    assert 0 < failed < 8 * len(data) / (1 << 16)


def test_a_name_twice_is_found_in_linear_time() -> None:
    data, begin = json.dumps(dict.fromkeys(range(100_000))).encode(), time.process_time()
    with pytest.raises(Rejected, match="twice: 99999"):
        parse_written(data[:-1] + b', "99999": 0}')
    assert time.process_time() - begin < 20, "no time that grows faster than the document"


def test_a_document_of_the_event_loop_does_not_wait_for_a_large_one() -> None:
    data = b"[" + b"[]," * 40_000 + b"0]"
    assert len(data) <= bounded.SHORT
    done = threading.Thread(target=parse_json, args=(data,))
    with bounded.one_at_a_time:
        done.start()
        done.join(5)
        assert not done.is_alive()
