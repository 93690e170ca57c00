"""Hostile answers to a search: what an MCP server makes of the hits, shown by `.search` on a real mount."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hostile import Case
from hostile_messages import ID, VALUES, Made, line
from hostile_sources import Reply, stdio

DIRECTORY = "mcp-server+hostile"
MIB = 1 << 20
FIND = {
    "name": "find",
    "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    "annotations": {"readOnlyHint": True},
}
TOOLS = Reply(line(ID + b'"result":{"tools":[' + json.dumps(FIND).encode() + b"]}}"), harmless=True)
HIT = b'{"uri":"hostile://a","title":"a"}'
QUICK = {"a flood of equal hits"}


def search(directory: Path) -> Sequence[Sequence[str | Path]]:
    """Return the programs that list the source and search it."""
    here = directory / ".search" / "a word"
    return [("ls", "-R", directory), ("ls", "-l", here), ("cat", here / "results.md", here / "results.ndjson")]


def hits(made: bytes | Made) -> Made:
    """Return what makes the result of a search from its list of hits."""
    before, after = ID + b'"result":{"content":[],"structuredContent":{"hits":', b"}}}"
    return line(lambda: before + (made if isinstance(made, bytes) else made()) + after)


def member(key: str, value: bytes | Made) -> Made:
    return lambda: b'[{"uri":"hostile://a","%b":%b}]' % (key.encode(), value if isinstance(value, bytes) else value())


def of(value: str, size: int = 15 * MIB) -> Made:
    return lambda: VALUES[value](size)


def cases() -> Iterator[Case]:
    made: dict[str, bytes | Made] = {
        "a flood of equal hits": lambda: b"[" + b",".join([HIT] * 200_000) + b"]",
        "many different hits": lambda: b"[" + b",".join(b'{"uri":"hostile://%d"}' % n for n in range(200_000)) + b"]",
        "arrays as hits": of("arrays"),
        "one text as a snippet": member("snippet", of("one text")),
        "one text as a title": member("title", of("one text")),
        "one text as a URI": lambda: b'[{"uri":%b}]' % VALUES["one text"](15 * MIB),
        "arrays as a title": member("title", of("arrays")),
        "a score without end": member("score", b"1e999"),
        "controls in a title": member("title", b'"\\u001b[2J\\u0000\\n../../\\u202e"'),
        "hits of other sources": b'[{"uri":"bb-filesystem+healthy+file:./a"},{"uri":"../../x"},{"uri":""},{"uri":7}]',
    }
    for name, each in made.items():
        yield Case(name, source(Reply(hits(each))), DIRECTORY, search, quick=name in QUICK)
    endless = Reply(b" " * 10_000, endless=True)
    yield Case("an answer without end", source(endless), DIRECTORY, search)


def source(reply: Reply) -> Callable[[Path], dict[str, Any]]:
    return stdio({"tools/list": TOOLS, "tools/call": reply}, search={"tool": "find", "query": "q"})


@pytest.mark.semantics("S27", "S36.4")
@pytest.mark.parametrize("case", [*cases()], ids=str)
def test_a_hostile_answer_to_a_search_harms_nobody(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)
