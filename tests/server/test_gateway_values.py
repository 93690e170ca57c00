"""Names of tools of servers behind `bbfs serve`, and the bounds of what these servers say."""

import re
from types import SimpleNamespace
from typing import Any, cast

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.errors import BbfsError, ProtocolViolation, TooLarge
from bbfs.resources.source import Source
from bbfs.server.excerpts import HEAD
from bbfs.server.excerpts import MOST as MOST_CHARACTERS
from bbfs.server.gateway.entries import (
    LARGEST,
    LARGEST_BESIDES,
    LONGEST_DESCRIPTION,
    LONGEST_TITLE,
    MOST_ICONS,
    besides,
    entry_of,
    fits,
)
from bbfs.server.gateway.names import LONGEST, Names
from bbfs.server.gateway.results import in_parts, prompt_result, tool_result
from bbfs.server.kept import KeptResults

_SOURCE = st.from_regex(r"[a-c][a-c._-]{0,5}", fullmatch=True)
_NAME = st.one_of(st.text("abc_", min_size=1, max_size=6), st.text(min_size=1, max_size=80))
SCHEMA = {"type": "object", "properties": {}}


@given(st.lists(st.tuples(_SOURCE, _NAME), min_size=2, max_size=6, unique=True))
def test_no_two_tools_share_a_name(found: list[tuple[str, str]]) -> None:
    names = Names({source: source for source, _ in found}, ("a_b",))
    public = [names.public(*each) for each in found]
    assert len(set(public)) == len(public)
    assert "a_b" not in public
    for (source, _), name in zip(found, public, strict=True):
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
        assert source in names.sources_of(name)


@given(_SOURCE, _NAME, st.lists(_SOURCE, max_size=3))
def test_a_name_is_plain_or_marked(source: str, name: str, others: list[str]) -> None:
    public = Names({each: each for each in (source, *others)}).public(source, name)
    assert public == f"{source}_{name}" or re.search(r"_[0-9a-f]{8}$", public)


def test_names_by_example() -> None:
    names = Names({"git": "git", "git_hub": "git_hub", "a.b": "a.b", "n1": "same", "n2": "same"}, ("git_grep",))
    assert names.public("git", "log") == "git_log"
    assert names.public("git_hub", "x") == "git_hub_x"
    assert re.fullmatch(r"git_hub_x_[0-9a-f]{8}", names.public("git", "hub_x"))
    assert re.fullmatch(r"git_grep_[0-9a-f]{8}", names.public("git", "grep"))
    assert re.fullmatch(r"git_l_g_[0-9a-f]{8}", names.public("git", "l g"))
    assert re.fullmatch(r"a_b_c_[0-9a-f]{8}", names.public("a.b", "c"))
    assert re.fullmatch(r"git_c_0123abcd_[0-9a-f]{8}", names.public("git", "c_0123abcd"))
    assert names.public("n1", "t") != names.public("n2", "t")
    long = [names.public("git", "x" * 70 + end) for end in "ab"]
    assert len({*long}) == 2
    assert {len(each) for each in long} == {LONGEST}


def tool(version: str = "2025-11-25", **fields: Any) -> types.Tool | None:
    return entry_of("tools", types.Tool, {"name": "t", "inputSchema": SCHEMA, **fields}, "s_t", version)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28"])
def test_an_entry_keeps_what_fits(version: str) -> None:
    whole = {"title": "T", "description": "d", "annotations": {"readOnlyHint": True}, "outputSchema": SCHEMA}
    found = tool(version, **whole, icons=[{"src": "https://x/y.png"}], _meta={"a": 1})
    assert found is not None
    assert (found.name, found.description, found.input_schema, found.meta) == ("s_t", "d", SCHEMA, {"a": 1})
    assert found.annotations is not None
    assert found.annotations.read_only_hint


def test_an_entry_loses_only_what_does_not_fit() -> None:
    found = tool(annotations={"readOnlyHint": "of course"}, outputSchema=SCHEMA)
    assert found is not None
    assert found.annotations is None
    assert found.output_schema == SCHEMA
    array = {"type": "array"}
    assert (earlier := tool("2025-06-18", outputSchema=array)) is not None
    assert earlier.output_schema is None
    assert (modern := tool("2026-07-28", outputSchema=array)) is not None
    assert modern.output_schema == array


def test_an_entry_is_bounded() -> None:
    icons = [{"src": src} for src in ("javascript:x", "data:" + "x" * 100_000, *[f"https://{n}" for n in range(99)])]
    found = tool(title="\x1b[31m" + "t" * 1000, description="d" * 100_000, icons=icons)
    assert found is not None
    assert found.title is not None
    assert "\x1b" not in found.title
    assert len(found.title) == LONGEST_TITLE
    assert len(found.description or "") == LONGEST_DESCRIPTION
    assert [icon.src for icon in found.icons or ()] == [f"https://{n}" for n in range(MOST_ICONS)]
    assert tool(inputSchema={**SCHEMA, "description": "x" * LARGEST}) is None


VERSIONS = ("2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28")
MOST = 10_000
UNLISTED = cast(
    Source,
    SimpleNamespace(
        catalog=SimpleNamespace(record=lambda _: None), data=SimpleNamespace(base_prefix="mcp-server+s", name="s")
    ),
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
_BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "audio", "resource", "resource_link", "video"])},
    optional=dict.fromkeys(("text", "data", "mimeType", "resource", "uri", "name", "annotations", "_meta"), _JSON),
)
_RESULT = st.fixed_dictionaries(
    {},
    optional={
        "content": st.lists(_BLOCK, max_size=3) | _JSON,
        "messages": st.lists(st.fixed_dictionaries({"role": _JSON, "content": _BLOCK}), max_size=3) | _JSON,
        "structuredContent": _JSON,
        "isError": _JSON,
        "_meta": _JSON,
        "description": _JSON,
    },
)


@given(_RESULT, st.sampled_from(VERSIONS))
def test_any_result_is_valid_or_an_error(raw: dict[str, Any], version: str) -> None:
    for method, read in (("tools/call", tool_result), ("prompts/get", prompt_result)):
        try:
            found = read(UNLISTED, raw, version, MOST)
        except BbfsError:
            continue
        assert fits(method, version, found.model_dump(by_alias=True, mode="json", exclude_none=True))


@given(
    st.dictionaries(st.sampled_from(["title", "description", "annotations", "outputSchema", "icons", "_meta"]), _JSON)
)
def test_any_entry_is_valid_or_left_out(fields: dict[str, Any]) -> None:
    for version in VERSIONS:
        found = tool(version, **fields)
        assert found is None or found.name == "s_t"


def test_what_the_protocol_does_not_have_becomes_a_text() -> None:
    audio = {"type": "audio", "data": "AAEC", "mimeType": "audio/wav"}
    raw = {
        "content": [audio, {"type": "hologram"}],
        "structuredContent": [1],
        "_meta": {"io.modelcontextprotocol/x": 1},
    }
    modern = tool_result(UNLISTED, raw, "2026-07-28", MOST)
    assert isinstance(modern.content[0], types.AudioContent)
    assert modern.content[1] == types.TextContent(text='{"type": "hologram"}')
    assert modern.meta is None
    early = tool_result(UNLISTED, raw, "2025-11-25", MOST)
    assert early.content == modern.content
    assert early.structured_content is None


def test_a_result_is_refused_beyond_its_bounds() -> None:
    with pytest.raises(TooLarge, match="--max-result"):
        tool_result(UNLISTED, {"content": [{"type": "text", "text": "x" * MOST}]}, "2025-11-25", MOST)
    with pytest.raises(TooLarge, match="10001 parts"):
        tool_result(UNLISTED, {"content": [{}] * 10_001}, "2025-11-25", MOST)
    with pytest.raises(ProtocolViolation, match="no list"):
        prompt_result(UNLISTED, {"messages": "hello"}, "2025-11-25", MOST)


async def test_long_texts_of_a_result_come_in_parts() -> None:
    kept = KeptResults()
    text, short = "x" * (HEAD + 1), {"type": "text", "text": "short"}
    one = {
        "content": [{"type": "text", "text": text}, short, 7],
        "structuredContent": {"result": text},
        "isError": True,
    }
    cut = await in_parts(one, kept)
    said, part, *others = cut["content"]
    assert (part["text"], others, cut["isError"]) == ("x" * HEAD, [short, 7], True)
    assert cut["structuredContent"] == {"result": "x" * HEAD}
    uri = said["text"].rpartition(" ")[2]
    assert kept.loaded(uri).parts[0].content.size == HEAD + 1
    embedded = {"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/x", "text": text}}
    many = await in_parts({"content": [embedded] * 7, "structuredContent": {"whole": [text]}}, kept)
    assert many["structuredContent"] == {"whole": [text]}
    assert [each["resource"]["text"] for each in many["content"][1::2]] == ["x" * HEAD] * 5 + ["", ""]
    assert many["content"][-2]["text"].startswith(f"left out: {MOST_CHARACTERS} characters are in this answer already,")
    assert await in_parts(one, KeptResults(most_bytes=HEAD)) == one, "what cannot be kept stays whole"
    assert await in_parts({"content": "no list"}, kept) == {"content": "no list"}


def test_icons_and_metadata_of_a_resource_are_passed_on_within_bounds() -> None:
    icon, meta = {"src": "https://x/i.png"}, {"a": [1]}
    said = {"icons": [icon, {"src": 7}, {"src": "javascript:x"}], "_meta": {**meta, "io.modelcontextprotocol/x": 1}}
    assert besides(said) == {"icons": [icon], "_meta": meta}
    large = "data:" + "x" * LARGEST_BESIDES
    assert besides({"icons": [{"src": large}], "_meta": {"a": large, "b": 1}}) == {}
    assert besides(None) == besides({"icons": 7, "_meta": []}) == {}
