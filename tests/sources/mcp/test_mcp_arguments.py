"""Texts of a query as the values that a tool's schema wants."""

import json
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.errors import InvalidUri
from bbfs.model.uri_templates.expand import expand_template, template_variables
from bbfs.sources.mcp.arguments import prompt_arguments, properties, tool_arguments, type_text, variable_of
from bbfs.sources.mcp.client.tool_entries import ToolEntry, prompt_entry


def tool(needed: tuple[str, ...] = (), defs: dict[str, Any] | None = None, **properties: Any) -> ToolEntry:
    schema = {"type": "object", "properties": properties, "required": list(needed), "$defs": defs or {}}
    return ToolEntry("t", input_schema=schema)


def value(schema: Any, *texts: str, defs: dict[str, Any] | None = None) -> Any:
    query = "&".join(f"x={quote(text, safe='')}" for text in texts)
    return tool_arguments(tool(defs=defs, x=schema), query)["x"]


STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        (STRING, "5", "5"),
        (STRING, "", ""),
        (STRING, "a+b c&d/ü%41", "a+b c&d/ü%41"),
        (INTEGER, "-12", -12),
        ({"type": "number"}, "2.5e1", 25.0),
        ({"type": "number"}, "3", 3),
        ({"type": "boolean"}, "true", True),
        (NULL, "null", None),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": "array", "items": STRING}, "a,b", ["a", "b"]),
        ({"type": "array", "items": INTEGER}, "1,2", [1, 2]),
        ({"type": "array", "items": STRING}, "", []),
        ({"type": "array", "items": STRING}, '["a,b"]', ["a,b"]),
        ({"enum": ["a", 2, None]}, "a", "a"),
        ({"enum": ["a", 2, None]}, "2", 2),
        ({"enum": ["a", 2, None]}, "null", None),
        ({"const": "k"}, "k", "k"),
        ({"anyOf": [INTEGER, NULL]}, "null", None),
        ({"oneOf": [INTEGER, STRING]}, "7", 7),
        ({"oneOf": [INTEGER, STRING]}, "seven", "seven"),
        ({"type": ["null", "integer"]}, "7", 7),
        ({"anyOf": [{"type": "array", "items": STRING}, NULL]}, "null", ["null"]),
        ({"anyOf": [NULL, {"type": "array", "items": STRING}]}, "null", None),
        ({"allOf": [{"$ref": "#/$defs/N"}], "default": 1}, "7", 7),
        ({"$ref": "#/$defs/N", "description": "x"}, "7", 7),
        ({"$ref": "#/$defs/Loop"}, "7", 7),
        ({"$ref": "https://example.org/schema.json"}, "7", 7),
        ({"items": INTEGER}, "1", [1]),
        ({}, "7", 7),
        ({}, "seven", "seven"),
        ({}, "NaN", "NaN"),
        (True, '{"a": 1}', {"a": 1}),
        ({"type": "str"}, "seven", "seven"),
    ],
)
def test_a_text_is_read_as_its_type_wants(schema: Any, text: str, expected: Any) -> None:
    found = value(schema, text, defs={"N": INTEGER, "Loop": {"$ref": "#/$defs/Loop"}})
    assert found == expected
    assert type(found) is type(expected)


def test_a_repeated_argument_is_a_list() -> None:
    schema = {"type": "array", "items": INTEGER}
    assert value(schema, "1", "2", "3") == [1, 2, 3]


@pytest.mark.parametrize(
    ("schema", "text", "wanted"),
    [
        (INTEGER, "5.0", "an integer"),
        (INTEGER, " 5", "an integer"),
        (INTEGER, "", "an integer"),
        (INTEGER, "0x5", "an integer"),
        (INTEGER, "9" * 5000, "an integer"),
        ({"type": "number"}, "Infinity", "a number"),
        ({"type": "number"}, "1e999", "a number"),
        ({"type": "boolean"}, "yes", "a boolean"),
        ({"type": "object"}, "[1]", r"an object \(JSON\)"),
        ({"type": "object"}, '{"a": "\\ud800"}', r"an object \(JSON\)"),
        ({"type": "object"}, '{"a":' * 100_000, r"an object \(JSON\)"),
        ({"type": "array", "items": {"type": "object"}}, "a,b", r"an array of objects \(JSON\)"),
        ({"type": "array", "items": INTEGER}, "1,b", "an array of integer"),
        ({"type": "array", "items": STRING}, '["a', "an array of string"),
        ({"enum": ["a", "b"]}, "c", "one of a, b"),
        ({"enum": ["", "b"]}, "c", "one of nothing, b"),
        ({"anyOf": [INTEGER, NULL]}, "x", "an integer or null"),
    ],
)
def test_a_text_that_does_not_fit_is_told(schema: Any, text: str, wanted: str) -> None:
    with pytest.raises(InvalidUri, match=f"argument 'x' should be {wanted}, not ") as caught:
        value(schema, text)
    assert len(str(caught.value)) < 300


def test_all_problems_are_told_at_once() -> None:
    entry = tool(("owner", "repo"), owner=STRING, repo=STRING, limit=INTEGER, page=INTEGER)
    with pytest.raises(InvalidUri) as caught:
        tool_arguments(entry, "ownr=x&limit=ten&page&page=1&page=2&%ff=1")
    text = str(caught.value)
    for part in (
        "no argument 'ownr'; did you mean 'owner'?",
        "argument 'limit' should be an integer, not 'ten'",
        "argument 'page' has no value (write page=…)",
        "argument 'page' is given 2 times",
        "'%ff=1' is not UTF-8",
        "needed but not given: owner, repo",
    ):
        assert part in text


@pytest.mark.semantics("S27")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("branches", [["anyOf"], ["oneOf", "items"]])
def test_a_schema_that_is_made_of_itself_many_times_takes_no_longer(branches: list[str]) -> None:
    itself = {"$ref": "#/$defs/x"}
    node: dict[str, Any] = {"anyOf": [itself] * 4} if branches == ["anyOf"] else {"oneOf": [{"items": itself}] * 6}
    entry = tool(defs={"x": node}, a=itself)
    for text in ("1", "[1]", "[" * 10 + "]" * 10):
        with suppress(InvalidUri):
            tool_arguments(entry, f"a={text}")
    assert type_text(itself, entry.input_schema)


def test_a_tool_without_arguments_takes_none() -> None:
    with pytest.raises(InvalidUri, match="no argument 'x'; it takes none"):
        tool_arguments(ToolEntry("t"), "x=1")
    assert tool_arguments(ToolEntry("t"), "") == {}


def test_a_slash_is_a_path_below_a_result() -> None:
    with pytest.raises(InvalidUri, match="%2F"):
        tool_arguments(tool(x=STRING), "x=1/structured.json")


def test_arguments_of_prompts_are_texts() -> None:
    prompt = prompt_entry({"name": "p", "arguments": [{"name": "a b", "required": True}, {"name": "n"}]})
    assert prompt is not None
    assert prompt_arguments(prompt, "n=5&a%20b=%C3%BC") == {"n": "5", "a b": "ü"}
    with pytest.raises(InvalidUri, match=r"argument 'n' is given 2 times; needed but not given: a b"):
        prompt_arguments(prompt, "n=1&n=2")


@given(st.text(max_size=20))
def test_every_name_that_can_be_sent_is_a_variable(name: str) -> None:
    variable = variable_of(name)
    if variable is None:
        assert not name or any("\ud800" <= char <= "\udfff" for char in name)
        return
    assert template_variables(f"tool://t{{?{variable}}}") == (variable,)
    query = expand_template(f"tool://t{{?{variable}}}", {variable: "v"}).partition("?")[2]
    entry = ToolEntry("t", input_schema={"type": "object", "properties": {name: STRING}})
    assert tool_arguments(entry, query) == {name: "v"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "enum", "items", "anyOf", "$ref", "allOf", "const", "properties"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=6,
    ),
    st.text(max_size=5),
)
def test_any_schema_takes_or_refuses_any_text(schema: Any, text: str) -> None:
    """Whatever a server calls a schema: a value that can be sent, or words."""
    try:
        json.dumps(value(schema, text))
    except InvalidUri:
        assert type_text(schema if isinstance(schema, dict) else {}, {})


def test_references_to_many_parts_are_followed_a_bounded_number_of_times() -> None:
    class Counted(dict[str, Any]):
        asked = 0

        def __getitem__(self, key: str) -> Any:
            Counted.asked += 1
            return super().__getitem__(key)

    parts = {"allOf": [{"$ref": "#/$defs/leaf"}] * 1200}
    definitions = Counted(all=parts, leaf={"type": "string"})
    schema = {"properties": {f"a{n}": {"$ref": "#/$defs/all"} for n in range(1100)}, "$defs": definitions}
    assert len(properties(schema)) == 1100
    assert Counted.asked < 5000
