"""YAML as JSON: the same values that PyYAML makes, and bounds for what it has none for."""

import json
import re
from typing import Any

import hostile_documents
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.errors import ProtocolViolation, TooLarge
from bbfs.sources.api.yaml_document import job
from bbfs.sources.bounded.workers import MEMORY, WorkerPool

BOUNDS = {"depth": 128, "size": 1 << 20}


def read(text: str | bytes) -> Any:
    return json.loads(job(text.encode() if isinstance(text, str) else text, BOUNDS))


CHARACTERS = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])  # PyYAML writes some others wrongly
TEXTS = st.text(CHARACTERS).filter(lambda text: not re.match(r"[-+.]*[0-9]", text))
"""Texts that are no number in any version of YAML: PyYAML knows 1.1, and writes 0E0 without quotes."""
SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | TEXTS
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(SCALARS | FLOATS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=30)


@given(VALUES)
def test_any_value_comes_back(value: Any) -> None:
    assert read(yaml.safe_dump(value, allow_unicode=True)) == value
    text = json.dumps(value, ensure_ascii=False)
    assert not text.isprintable() or read(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# only a comment", None),
        ("a: &x {b: [1, &y two]}\nc: *x\nd: *y\n*y : e", {"a": {"b": [1, "two"]}, "c": {"b": [1, "two"]},
                                                      "d": "two", "two": "e"}),
        ("a: &x {k: 1, l: 1}\nb: {l: 2, <<: *x}", {"a": {"k": 1, "l": 1}, "b": {"k": 1, "l": 2}}),
        ("a: &x {k: 1}\nb: {<<: [{k: 2, m: 3}, *x], z: 0}", {"a": {"k": 1}, "b": {"k": 2, "m": 3, "z": 0}}),
        ("b: {<<: &x {k: &y [1]}}\nc: *x\nd: *y", {"b": {"k": [1]}, "c": {"k": [1]}, "d": [1]}),
        ("{\"<<\": 1}", {"<<": 1}),
        ("null: 1\n1.5: 2\ntrue: 3\n? a\n: b", {"None": 1, "1.5": 2, "True": 3, "a": "b"}),
        ("[!!str 1, !!int '2', !!float 3, !!bool true, !!null x, ! 4]", ["1", 2, 3.0, True, None, "4"]),
        ("[+5, -0, .5, 1., 1e999, -1e999, .inf, 9" + "9" * 2000 + "]",
         [5, 0, 0.5, 1.0, "1e999", "-1e999", ".inf", "9" * 2001]),
        ("a: 1\na: 2", {"a": 2}),
    ],
)  # fmt: skip
def test_what_becomes_what(text: str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 129, "nested more than 128 deep"),
        ("a: &a [" + "x, " * 1000 + "]\nb: &b [" + "*a, " * 1000 + "]", "becomes more than 1048576 bytes"),
    ],
)
def test_bounds(text: str, said: str) -> None:
    with pytest.raises(TooLarge, match=said):
        read(text)


@given(st.text(alphabet="ab:&*<-[]{},!?|>'\"#%@~ \n\t01.", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read(text)
    except (ProtocolViolation, TooLarge):
        pass


@pytest.mark.parametrize("name", hostile_documents.HOSTILE_YAML)
async def test_no_document_takes_more_than_its_worker_may(name: str) -> None:
    pool, document = WorkerPool(size=1, memory=MEMORY), hostile_documents.HOSTILE_YAML[name]()
    bounds = {"depth": 128, "size": 8 << 20}
    try:
        await pool.run("yaml", document, bounds, owner="a", what="api.yaml", seconds=2, max_result=8 << 20)
    except (ProtocolViolation, TooLarge):
        pass
    assert await pool.run("yaml", b"a: 1", bounds, owner="a", what="api.yaml") == b'{"a":1}'
