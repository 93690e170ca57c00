"""The table of requests: what a message says, and what is not understood."""

import json
from typing import Any

import pytest

from bbfs.model.calls import Progress, Tool, ToolArgument
from bbfs.model.errors import NameTooLong, ProtocolViolation, Rejected
from bbfs.model.versions import Expected
from bbfs.resources.commands import table
from bbfs.resources.commands.answers import ANSWERS

EXAMPLES: list[tuple[table.Request[Any], list[object]]] = [
    (table.Search("a b", ("x", "y/z"), 3, "words", 1.5),
     [table.Hit("x/a", "x+s://a", "x", "a", None, "line 1", 0.5), table.Problem("slow")]),
    (table.Grep("x", "a|b", "extended", ignore_case=True),
     [table.MayMatch(("x/a",)), table.NoMatch(("x/b",)), table.Unlisted("x/c", "down")]),
    (table.Match("x", "a"), [table.Matched("u", "n", None, (table.Line(1, "a", True),)), table.Problem("late")]),
    (table.Index("x", dry_run=True), [table.Walked(3, to_load=2)]),
    (table.ListDirectory("x"), [table.Entries((table.Entry("a"), table.Entry("b", 3, "2026", "text/plain", "u")))]),
    (table.Describe(("x",)), [table.Described({"uri": "u", "properties": {"Some": 1}})]),
    (table.Refresh(("",)), []),
    (table.Watch(("x",), recursive=False),
     [table.Begun(), table.Event("added", "x/a", "u", "x", "2026"), table.Event("missed"), table.Note("a fault")]),
    (table.NoteShown("/scratch"), [table.Begun()]),
    (table.Tools("x"), [Tool("t", arguments=(ToolArgument("n", "text", choices=("a",)),), read_only=True)]),
    (table.CallTool("x", "t", {"n": ("a", "b")}, {"deep": {"some_key": [None, 1.5]}}, True),
     [Progress(1.0, 2.0), table.ResultPart("a", "text/plain", True), table.Piece(b"\0\xff")]),
    (table.Put("x/a", data=b"\0\xff", expected=Expected(True, "e"), mime_type="text/x"), [table.Stored("u", 2, "v")]),
    (table.Remove(uri="u", by_owner=False), []),
    (table.Retry("0b90", force=True), [table.Stored("u")]),
    (table.Status(), [table.State({"sources": [{"id": "a"}], "loads": 3})]),
    (table.Reload(), [table.SourcesChanged(("a",), (), ("b",), 3, ("a note",))]),
    (table.AddSources("[[sources]]", "/tmp", {"KEY": "1"}), [table.SourcesChanged(("a",))]),
    (table.Fetch(("a/b",), 3, 4), [table.Fetched(2, loaded=1, bytes=3), table.Problem("down")]),
    (table.Pin(("a/b",), is_pinned=False), []),
    (table.RemoveSource("a"), [table.SourcesChanged(removed=("a",))]),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "answers"), EXAMPLES, ids=lambda value: getattr(value, "name", ""))
def test_a_message_says_all_of_a_request_and_its_answers(request_: table.Request[Any], answers: list[object]) -> None:
    message = json.loads(json.dumps({"id": 1, **table.message_of(request_), "unknown": 1}))
    assert table.request_in(message) == request_
    for answer in answers:
        told = json.loads(json.dumps({"id": 1, **table.answer_message(request_, answer)}))
        assert table.answer_in(request_, told) == answer
    assert {type(answer) for answer in answers} == set(request_.answers.values())


def test_every_request_has_an_example_and_somebody_who_answers_it() -> None:
    of_the_mount = {table.Describe, table.Refresh, table.NoteShown}
    of_the_mount |= {table.Pin, table.Status, table.Reload, table.AddSources, table.RemoveSource}
    assert {type(request) for request, _ in EXAMPLES} == {*ANSWERS, *of_the_mount} == set(table.REQUESTS.values())


@pytest.mark.parametrize(
    ("message", "error", "says"),
    [
        ({}, Rejected, "unknown request None"),
        ({"request": ["search"]}, Rejected, "unknown request"),
        ({"request": "search"}, ProtocolViolation, "query is missing"),
        ({"request": "search", "query": 1}, ProtocolViolation, "query must be a string"),
        ({"request": "search", "query": "a", "mode": "all"}, ProtocolViolation, "mode must be one of words, meaning"),
        ({"request": "search", "query": "a", "limit": True}, ProtocolViolation, "limit must be an integer"),
        ({"request": "search", "query": "a", "within": float("nan")}, ProtocolViolation, "within must be a number"),
        ({"request": "search", "query": "a", "paths": "a"}, ProtocolViolation, "paths must be an array"),
        ({"request": "call", "source": "x", "tool": "t", "values": {"a": "b"}}, ProtocolViolation, "values must be an"),
        ({"request": "put", "data": "%"}, ProtocolViolation, "data: "),
        ({"request": "put", "expected": []}, ProtocolViolation, "expected must be an object"),
    ],
)
def test_a_request_not_understood_is_refused(message: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        table.request_in(message)


def test_a_path_has_a_bound() -> None:
    assert table.names("/a//b/") == ("a", "b")
    with pytest.raises(NameTooLong):
        table.names("a/" * 100_000)
