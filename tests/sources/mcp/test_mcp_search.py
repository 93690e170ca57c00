"""The search of a server by one of its tools."""

import tomllib
from typing import Any

import pytest

from bbfs.model.errors import ProtocolViolation, ToolFailed
from bbfs.model.values import Hit, SearchTool
from bbfs.sources.mcp.client.tool_entries import ToolEntry
from bbfs.sources.mcp.search import ServerSearch, hits, proposal, proposed, server_search

READ_ONLY = {"readOnlyHint": True}
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
URIS = {
    "type": "object",
    "properties": {"results": {"type": "array", "items": {"type": "object", "properties": {"uri": {}}}}},
}
REFERRED = {
    "type": "object",
    "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/Hit"}}},
    "$defs": {"Hit": {"type": "object", "properties": {"uri": {"type": "string"}}}},
}


def tool(name: str = "search_docs", *, schema: Any = QUERY, output: Any = URIS, hints: Any = READ_ONLY) -> ToolEntry:
    return ToolEntry(name, input_schema=schema, output_schema=output, annotations=hints)


def found(result: dict[str, Any], limit: int = 10, **options: Any) -> list[Hit]:
    return hits(result, ServerSearch(tool(), "query", **options), limit)


@pytest.mark.parametrize("name", ["search", "search_docs", "docs-search", "searchDocs", "find", "kb.query"])
@pytest.mark.parametrize("output", [URIS, REFERRED])
def test_a_tool_that_declares_a_list_of_uris_is_a_search(name: str, output: Any) -> None:
    search = server_search(None, [tool("other", output=None), tool(name, output=output)])
    assert search is not None
    assert (search.tool.name, search.query, search.call("a b", 7)) == (name, "query", {"query": "a b"})


@pytest.mark.parametrize(
    "other",
    [
        tool("research"),
        tool("list_docs"),
        tool(hints=None),
        tool(hints={"readOnlyHint": True, "destructiveHint": True}),
        tool(output=None),
        tool(output={"type": "object", "properties": {"results": {"type": "array", "items": {"type": "string"}}}}),
        tool(schema={"type": "object", "properties": {"query": {"type": "integer"}}}),
        tool(schema={**QUERY, "required": ["query", "repository"]}),
        tool(schema={"type": "object"}),
    ],
)
def test_no_other_tool_is_a_search_by_itself(other: ToolEntry) -> None:
    assert server_search(None, [other]) is None


def test_a_tool_that_only_looks_like_a_search_is_proposed() -> None:
    assert proposed([tool(output=None), tool("search_all"), tool("write", output=None)]) == ("search_docs",)
    line = proposal([tool('search_"all"', output=None)])
    assert tomllib.loads(line or "") == {"search": {"tool": 'search_"all"'}}
    assert proposal([tool("write", output=None)]) is None


def test_the_option_names_any_tool_and_its_arguments() -> None:
    schema = {"type": "object", "properties": {"what": {"type": "string"}, "repo": {}, "max": {"maximum": 5}}}
    option = SearchTool("grep", query="what", limit="max", uri="path", arguments={"repo": "r"})
    search = server_search(option, [tool(), tool("grep", schema=schema, output=None, hints=None)])
    assert search is not None
    assert search.call("x", 20) == {"repo": "r", "what": "x", "max": 5}
    assert server_search(SearchTool("missing"), [tool()]) is None


def test_usual_names_are_understood_where_the_option_gives_none() -> None:
    schema = {"type": "object", "properties": {"top_k": {"type": "integer"}, "q": {"type": "string"}}}
    search = server_search(SearchTool("grep"), [tool("grep", schema=schema, output=None)])
    assert search is not None
    assert search.call("x", 3) == {"q": "x", "top_k": 3}


def test_hits_come_from_structured_content() -> None:
    rows = [
        {"uri": "a:1", "title": "One", "score": 2.5, "snippet": "x\n y\x1b[31m", "section": "Intro"},
        {"uri": "a:1", "title": "Again"},
        {"uri": "", "title": "None"},
        {"uri": "a:2", "name": "two", "score": 1},
        {"uri": "a:3", "score": 0.5},
    ]
    assert found({"structuredContent": {"total": 3, "results": rows}, "content": []}) == [
        Hit("a:1", 2.5, "One", "x y [31m", "Intro"),
        Hit("a:2", 1.0, "two"),
        Hit("a:3", 0.5),
    ]
    assert len(found({"structuredContent": {"results": rows}}, limit=2)) == 2


def test_hits_come_from_a_text_that_is_json() -> None:
    text = '[{"path": "docs/a.md", "text": "about"}]'
    assert found({"content": [{"type": "text", "text": text}]}, uri="path") == [Hit("docs/a.md", None, None, "about")]


def test_hits_come_from_links_and_embedded_resources() -> None:
    content = [
        {"type": "text", "text": "2 found"},
        {"type": "resource_link", "uri": "a:1", "name": "one", "description": "first"},
        {"type": "resource", "resource": {"uri": "a:2", "text": "whole text"}},
    ]
    assert found({"content": content}) == [Hit("a:1", None, "one", "first"), Hit("a:2", None, None, "whole text")]


@pytest.mark.parametrize("scores", [[0.1, 0.9], [1, float("nan")], [True, 1], ["9", 1], [10**400, 1]])
def test_scores_that_do_not_rank_are_left_out(scores: list[Any]) -> None:
    rows = [{"uri": f"a:{number}", "score": score} for number, score in enumerate(scores)]
    assert [hit.score for hit in found({"structuredContent": {"results": rows}})] == [None, None]


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"content": []},
        {"content": [{"type": "text", "text": "nothing found"}]},
        {"structuredContent": {"results": []}},
        {"structuredContent": [["uri"], "uri", {"uri": {"uri": 1}}]},
        {"structuredContent": {"results": [{"uri": "\ud800"}, {"uri": "x" * 70_000}, {"uri": 5}]}},
    ],
)
def test_other_results_have_no_hits(result: dict[str, Any]) -> None:
    assert found(result) == []


def test_long_texts_are_cut() -> None:
    (hit,) = found({"structuredContent": {"results": [{"uri": "a:1", "title": "t" * 9999, "text": "s " * 9999}]}})
    assert len(hit.title or "") == 300
    assert len(hit.snippet or "") <= 500


def test_a_failed_tool_is_an_error() -> None:
    with pytest.raises(ToolFailed, match="no index"):
        found({"isError": True, "content": [{"type": "text", "text": "no index"}]})
    with pytest.raises(ProtocolViolation, match="isError"):
        found({"isError": "true", "content": [{"type": "text", "text": "no index"}]})
