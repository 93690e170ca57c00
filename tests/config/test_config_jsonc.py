"""The comment stripper changes nothing that is JSON, and everything JSONC adds."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.config.hosts import jsonc

texts = st.text(alphabet=st.one_of(st.sampled_from('"\\/*,]}[{:\n #'), st.characters(codec="utf-8")), max_size=20)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
fillers = st.sampled_from(["", " ", "\n", '// a, ] } " line\n', '/* "block" // ,] */', "/***/", "/* two\nlines */\t"])


@given(values, st.sampled_from([None, 0, 2]), st.booleans())
def test_plain_json_is_left_as_it_is(value: Any, indent: int | None, ascii_only: bool):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert jsonc.strip_comments(text) == text
    assert jsonc.loads(text) == jsonc.loads(f"\ufeff{text}") == value


@given(values, st.data())
def test_comments_and_trailing_commas_change_nothing(value: Any, data: st.DataObject):
    def filler() -> str:
        return data.draw(fillers)

    def write(item: Any) -> str:
        if isinstance(item, list | dict) and item:
            members = (
                [f"{filler()}{json.dumps(key)}{filler()}:{write(inner)}" for key, inner in item.items()]
                if isinstance(item, dict)
                else [write(inner) for inner in item]
            )
            comma = data.draw(st.sampled_from(["", ","]))
            opening, closing = "{}" if isinstance(item, dict) else "[]"
            return f"{filler()}{opening}{','.join(members)}{comma}{filler()}{closing}{filler()}"
        return f"{filler()}{json.dumps(item)}{filler()}"

    text = write(value)
    assert jsonc.loads(text) == value
    assert len(jsonc.strip_comments(text)) == len(text)


@pytest.mark.parametrize("text", ["[,]", "[1,,]", "{,}", '{"a":,}', "[1 /* open", "[1] /", '"open', ",", "[1]]", ""])
def test_what_is_not_json_stays_refused(text: str):
    with pytest.raises(json.JSONDecodeError):
        jsonc.loads(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["/* ", "/*/", '/* "', '"\\', "/", "[,", '"/*', "// /*"])
def test_what_is_never_closed_takes_time_in_proportion_to_its_length(piece: str):
    with pytest.raises((json.JSONDecodeError, RecursionError)):
        jsonc.loads(piece * 200_000)


def test_errors_are_at_their_place_in_the_file():
    with pytest.raises(json.JSONDecodeError) as caught:
        jsonc.loads("// one\n/* two\n three */ [1,\n 2 x]")
    assert (caught.value.lineno, caught.value.colno) == (4, 4)
