"""What tools and prompts answer, as parts."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.errors import BbfsError, NotSupported, ProtocolViolation
from bbfs.model.values import Loaded
from bbfs.sources.mcp.results import MAX_ERROR, call_size, prompt_result, tool_result
from bbfs.sources.mcp.writing import require_done

PICTURE = b"\x89PNG"


def text(*lines: str) -> list[Any]:
    return [{"type": "text", "text": line} for line in lines]


def shown(loaded: Loaded) -> list[tuple[str | None, str | None, bytes]]:
    return [(part.name, part.mime_type, part.content.read(0, 1000) or b"") for part in loaded.parts]


def test_a_text_is_its_bytes() -> None:
    assert shown(tool_result({"content": text("grüß\n")})) == [("1.txt", "text/plain", "grüß\n".encode())]


def test_a_text_that_is_json_is_told_so_and_left_as_it_is() -> None:
    assert shown(tool_result({"content": text('{"a":  1}')})) == [("1.json", "application/json", b'{"a":  1}')]
    assert shown(tool_result({"content": text("[draft]")}))[0][1] == "text/plain"


def test_nothing_is_an_empty_text() -> None:
    assert shown(tool_result({"content": []})) == [("1.txt", "text/plain", b"")]
    assert shown(tool_result({})) == [("1.txt", "text/plain", b"")]


def test_each_kind_of_content_is_a_part() -> None:
    content = [
        *text("see"),
        {"type": "image", "data": base64.b64encode(PICTURE).decode(), "mimeType": "image/png"},
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "doc://a/b.md", "mimeType": "text/markdown", "text": "# b"}},
        {"type": "resource_link", "uri": "doc://c\nd", "name": "c"},
        {"type": "hologram", "x": 1},
    ]
    loaded = tool_result({"content": content, "structuredContent": {"ü": 1}})
    assert shown(loaded) == [
        ("1.txt", "text/plain", b"see"),
        ("2.png", "image/png", PICTURE),
        ("3.wav", "audio/wav", b""),
        ("4.md", "text/markdown", b"# b"),
        ("5", "application/x-mswinurl", b"[InternetShortcut]\nURL=doc://c%0Ad\n"),
        ("6.json", "application/json", b'{\n  "type": "hologram",\n  "x": 1\n}\n'),
        ("structured.json", "application/json", '{\n  "ü": 1\n}\n'.encode()),
    ]
    assert [part.link for part in loaded.parts] == [None, None, None, None, "doc://c\nd", None, None]
    assert [part.native_uri for part in loaded.parts if part.native_uri] == ["doc://a/b.md"]


@pytest.mark.parametrize(
    ("lines", "structured", "expected"),
    [
        (['{"a":1}'], {"a": 1}, ("structured.json", b'{\n  "a": 1\n}\n')),
        (["hello"], {"result": "hello"}, ("1.txt", b"hello")),
        (["5"], {"result": 5}, ("1.txt", b"5")),
        (["a", "7"], {"result": ["a", 7]}, ("structured.json", b'[\n  "a",\n  7\n]\n')),
        ([], {"result": None}, ("1.txt", b"")),
        ([], {"result": []}, ("structured.json", b"[]\n")),
        (["# a file"], {"content": "# a file"}, ("1.txt", b"# a file")),
        (["a", "b"], {"entries": ["a", "b"]}, ("structured.json", b'[\n  "a",\n  "b"\n]\n')),
    ],
)
def test_what_is_said_twice_is_one_file(lines: list[str], structured: Any, expected: tuple[str, bytes]) -> None:
    found = shown(tool_result({"content": text(*lines), "structuredContent": structured}))
    assert [(name, data) for name, _, data in found] == [expected]


def test_a_picture_that_is_repeated_is_one_file() -> None:
    block = {"type": "image", "data": base64.b64encode(PICTURE).decode(), "mimeType": "image/png"}
    for repeated in ([block], block):
        result = {"content": [{**block, "_meta": {"x": 1}}], "structuredContent": {"content": repeated}}
        assert shown(tool_result(result)) == [("1.png", "image/png", PICTURE)]


@pytest.mark.parametrize(
    ("lines", "structured"),
    [(["other"], {"a": 1}), (["hello"], {"result": "bye"}), (["a", "b"], {"result": ["a"]}), (["x"], [1])],
)
def test_what_differs_is_kept_beside_the_structured_content(lines: list[str], structured: Any) -> None:
    names = [part.name for part in tool_result({"content": text(*lines), "structuredContent": structured}).parts]
    assert names == [*(f"{number}.txt" for number in range(1, len(lines) + 1)), "structured.json"]


def test_an_error_is_the_tools_own_words() -> None:
    with pytest.raises(BbfsError, match=r"^no such thing\nsorry$"):
        tool_result({"content": text("no such thing", "sorry"), "isError": True})
    with pytest.raises(BbfsError) as caught:
        tool_result({"content": text("x" * 10_000), "isError": True})
    assert len(str(caught.value)) == MAX_ERROR
    with pytest.raises(BbfsError, match="does not say why"):
        tool_result({"content": [], "isError": True})
    with pytest.raises(BbfsError, match='"code": 7'):
        tool_result({"content": [], "structuredContent": {"code": 7}, "isError": True})


@pytest.mark.parametrize("said", ["true", "false", "", 0, 1, [], {}])
def test_a_result_says_by_true_or_false_if_it_is_an_error(said: Any) -> None:
    for read in (tool_result, require_done):
        with pytest.raises(ProtocolViolation, match="isError"):
            read({"content": text("done"), "isError": said})


def test_a_result_may_leave_out_that_it_is_no_error() -> None:
    require_done({"content": text("done"), "isError": None})
    assert len(tool_result({"content": text("done")}).parts) == 1


def test_input_that_nobody_gives() -> None:
    for read in (tool_result, prompt_result):
        with pytest.raises(NotSupported):
            read({"resultType": "input_required"})


def test_time_to_live_is_the_servers_or_none() -> None:
    assert tool_result({"content": []}).ttl == 0
    assert tool_result({"content": [], "ttlMs": 1500}).ttl == 1.5
    assert tool_result({"content": [], "_meta": {"ttlMs": 1500}}).ttl == 1.5
    assert prompt_result({"messages": []}).ttl is None


def message(role: str, block: Any) -> Any:
    return {"role": role, "content": block}


def test_a_prompt_of_one_message_is_that_message() -> None:
    assert shown(prompt_result({"messages": [message("user", text("Do it.")[0])]})) == [
        ("prompt.txt", "text/plain", b"Do it.")
    ]


def test_a_prompt_of_texts_is_one_text() -> None:
    said = [message("user", text("Do it.\n")[0]), message("assistant", text("Why?")[0])]
    assert shown(prompt_result({"messages": said})) == [
        ("prompt.md", "text/markdown", b"# user\n\nDo it.\n\n# assistant\n\nWhy?\n")
    ]


def test_a_prompt_of_more_than_texts_has_parts() -> None:
    picture = {"type": "image", "data": base64.b64encode(PICTURE).decode(), "mimeType": "image/png"}
    said = [message("user", text("What is it?")[0]), message("assistant", picture)]
    assert [part.name for part in prompt_result({"messages": said}).parts] == ["1-user.txt", "2-assistant.png"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "data", "resource", "uri", "blob", "mimeType", "role", "content"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
blocks = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "audio", "resource", "resource_link", "other"])},
    optional=dict.fromkeys(["text", "data", "uri", "resource", "mimeType"], json_values),
)


@given(json_values | st.lists(blocks, max_size=4), json_values)
def test_any_result_is_parts_or_an_error(content: Any, structured: Any) -> None:
    for result in ({"content": content, "structuredContent": structured}, {"messages": content}):
        for read in (tool_result, prompt_result):
            try:
                loaded = read(result)
            except BbfsError:
                continue
            assert loaded.parts
            assert call_size(result, 1000) >= 0
            for part in loaded.parts:
                assert part.content.size >= 0
                if part.mime_type == "application/json":
                    json.loads(part.content.read(0, 1 << 20) or b"")


def test_a_result_without_a_list() -> None:
    with pytest.raises(ProtocolViolation):
        tool_result({"content": "text"})
    with pytest.raises(ProtocolViolation):
        prompt_result({})


@pytest.mark.parametrize(
    "text", ["[" + "[]," * 2_000_000 + "0]", "[" * 100_000 + "]" * 100_000, "1" * 100_000], ids=len
)
def test_a_text_that_would_be_a_large_value_stays_a_text(text: str) -> None:
    loaded = tool_result({"content": [{"type": "text", "text": text}], "structuredContent": {"result": 1}})
    part = loaded.parts[0]
    assert (part.mime_type, part.content.size) == ("text/plain", len(text))


def test_deep_values_do_not_grow_when_they_are_written() -> None:
    value: list[Any] = [1] * 300_000
    for _ in range(90):
        value = [value]
    (part,) = tool_result({"content": [], "structuredContent": {"x": value}}).parts
    assert part.content.size < 2 << 20
