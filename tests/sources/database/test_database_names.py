"""Keys and identifiers of databases as names: whatever their text, there and back, and no two alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.errors import NotFound
from bbfs.model.uri_paths import names, show_component
from bbfs.sources.database.names import (
    Key,
    KeyValue,
    TaggedText,
    identifier_text,
    key_text,
    named,
    schema_text,
    segment_of,
    text_identifier,
    text_key,
    text_of,
    text_schema,
    text_value,
    value_text,
)

# What means something in a path, a URI, this notation or SQL, beside any text; and bytes that were no UTF-8.
PIECES = st.sampled_from(
    ["~", ",", "/", "..", ".", "%", "%2F", "%41", "~null", "~x", "?", "#", " ", "\n", "'", '"', "e\u0301"]
)
TEXTS = st.lists(PIECES | st.text(max_size=4) | st.sampled_from(["\udcff", "\udc80"]), max_size=5).map("".join).filter(
    lambda text: all(not "\ud800" <= character <= "\udc7f" for character in text)
    and text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") == text
)  # fmt: skip
VALUES: st.SearchStrategy[KeyValue] = st.none() | TEXTS | st.binary(max_size=6) | TEXTS.map(TaggedText)
KEYS: st.SearchStrategy[Key] = st.lists(VALUES, min_size=1, max_size=3).map(tuple)


@given(KEYS)
def test_a_key_comes_back_from_its_name(key: Key) -> None:
    segment = segment_of(key_text(key) + ".json")
    assert text_key(text_of(segment).removesuffix(".json"), len(key)) == key
    name = show_component(segment)
    if len(segment) <= 255:
        assert text_key(named(name).removesuffix(".json"), len(key)) == key


@given(st.lists(KEYS, unique=True, max_size=8))
def test_different_keys_have_different_names(keys: list[Key]) -> None:
    for parts in {len(key) for key in keys}:
        alike = [segment_of(key_text(key)) for key in keys if len(key) == parts]
        shown = [show_component(segment) for segment in alike if len(segment) <= 255]
        assert len(set(shown)) == len(shown)
        assert set(names(alike).values()) == set(alike)


@given(VALUES)
def test_a_value_comes_back_from_the_name_of_its_directory(value: KeyValue) -> None:
    segment = segment_of(value_text(value))
    assert text_value(text_of(segment)) == value
    if len(segment) <= 255:
        assert text_value(named(show_component(segment))) == value


@given(TEXTS)
def test_an_identifier_comes_back_from_its_name(name: str) -> None:
    assert text_identifier(text_of(segment_of(identifier_text(name)))) == name
    assert text_schema(text_of(segment_of(schema_text(name)))) == name
    assert schema_text(name) != "query"


@given(TEXTS, st.integers(1, 3))
def test_whatever_is_asked_for_is_a_key_written_as_it_must_be_or_is_not_found(text: str, parts: int) -> None:
    try:
        key = text_key(text, parts)
    except NotFound:
        return
    assert key_text(key) == text


@given(TEXTS)
def test_whatever_name_is_asked_for_is_shown_as_it_is_or_is_not_found(name: str) -> None:
    try:
        text = named(name)
    except NotFound:
        return
    assert show_component(segment_of(text)) == name


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (("7",), "7"),
        (("Smith, John",), "Smith, John"),
        (("Smith, John", "7"), "Smith~, John,7"),
        (("a~b",), "a~~b"),
        ((None, ""), "~null,~empty"),
        ((b"\x00\xff",), "~x00ff"),
        ((TaggedText("7"), "7"), "~t7,7"),
        (("~null",), "~~null"),
    ],
)
def test_keys_are_written_as_the_documentation_says(key: Key, text: str) -> None:
    assert key_text(key) == text


def test_the_schema_called_query_is_told_from_the_named_queries() -> None:
    assert [schema_text(name) for name in ("query", "~query", "Query")] == ["~query", "~~query", "Query"]
    with pytest.raises(NotFound):
        text_schema("query")
