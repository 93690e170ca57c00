"""Hostile MCP servers: one value at every place of a message, floods beside honest answers, templates and completion.

`test_hostile_mcp.py` has what comes in place of one answer. This adds the other places, streams and transports.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from harness import Mounts
from hostile import Case, walk_part
from hostile_messages import (
    ID,
    PLACES,
    Made,
    at,
    event,
    line,
    page,
    portion,
    portion_of_events,
    text,
)
from hostile_sources import EVENTS, JSON, Reply, Source, over_http, over_sse, stdio
from programs import Program

DIRECTORY = "mcp-server+hostile"
MIB = 1 << 20
FEW = 15 * MIB
"""Bytes of a message that is not long."""
LONG = 200 * MIB
"""Bytes of a message below the limit of one message."""

QUICK = {"empty data lines for ever in the stream of notifications, over HTTP"}


def touch(directory: Path) -> Sequence[Sequence[str | Path]]:
    """Return the programs that list the source, read the attacked resource and walk."""
    return [("cat", directory / "hostile" / "a"), ("ls", "-lR", directory)]


def case(name: str, source: Source) -> Case:
    return Case(name, source, DIRECTORY, touch, quick=name in QUICK)


METHODS = {
    "the entries": "resources/list",
    "an entry": "resources/list",
    "the cursor": "resources/list",
    "the templates": "resources/templates/list",
    "a template": "resources/templates/list",
    "the capabilities": "initialize",
    "the instructions": "initialize",
    "the server's name": "initialize",
    "the tools": "tools/list",
    "a tool's schema": "tools/list",
    "the prompts": "prompts/list",
}
"""The methods whose answers have a place, by the beginning of its name; those of the others are reads."""


def method_of(place: str) -> str:
    return next((method for begin, method in METHODS.items() if place.startswith(begin)), "resources/read")


def places() -> Iterator[Case]:
    """Yield one value at each place, over stdio."""
    for place in PLACES:
        reply = Reply(line(at(place, "arrays", FEW)), aside=place in ("a notification", "an update", "a ping"))
        yield case(f"arrays in {place}, over stdio", stdio({method_of(place): reply}))


def descriptions() -> Iterator[Case]:
    """Yield tools whose descriptions would be far larger than their schemas."""
    large = ",".join(f'"{"x" * 50}{number}"' for number in range(5000))
    properties = ",".join(f'"p{number}":{{"$ref":"#/$defs/large"}}' for number in range(3000))
    schema = f'{{"type":"object","properties":{{{properties}}},"$defs":{{"large":{{"enum":[{large}]}}}}}}'
    tool = '{"name":"t@N@%d","inputSchema":' + schema + ',"annotations":{"readOnlyHint":true}}'
    tools = ",".join(tool.replace("%d", str(number)) for number in range(20))
    made = line(ID + b'"result":{"tools":[' + tools.encode() + b"]}}")
    yield case("tools whose arguments refer to a large enumeration, over stdio", stdio({"tools/list": Reply(made)}))


def streams() -> Iterator[Case]:
    """Yield streams without an end beside the answers to all requests."""
    for stream in ("pings", "unknown requests", "updates", "changes of the list", "log messages", "answers to nothing"):
        reply = Reply(portion(stream), endless=True, aside=True)
        yield case(f"{stream} for ever beside the answers, over stdio", stdio({"resources/list": reply}))


def listings() -> Iterator[Case]:
    """Yield listings of odd URIs, templates and completions without an end."""
    schemes = page(200, uri="s@N@x%d://a")
    listed = stdio({"resources/list": Reply(line(schemes))})
    yield Case("other schemes for ever, over stdio", listed, DIRECTORY, walk_part)  # 100 000 directories, if in time
    templates: Mapping[str, Made] = {
        "templates of many variables": page(200, key="resourceTemplates", uri="hostile://t%d/" + "{a}.{b}-" * 40),
        "templates of many queries": page(1, key="resourceTemplates", uri="hostile://a{?" + ",".join(
            f"v{number}" for number in range(5000)) + "}"),
        "templates that overlap": page(200, key="resourceTemplates", uri="{+a}/%d{/b*}{;c}"),
    }  # fmt: skip
    for name, made in templates.items():
        yield case(f"{name}, over stdio", stdio({"resources/templates/list": Reply(line(made))}))
    one = ID + b'"result":{"resourceTemplates":[{"uriTemplate":"hostile://c/{a}","name":"t"}]}}\n'
    values = b",".join(b'"@N@%04d"' % number for number in range(100))
    more = ID + b'"result":{"completion":{"values":[' + values + b'],"hasMore":true}}}\n'
    completing = {"resources/templates/list": Reply(one), "completion/complete": Reply(more)}
    yield Case("values for ever, over stdio", stdio(completing), DIRECTORY, walk_part)  # 10 000 names, a read for each
    yield from completions()
    changing = page(500, key="resourceTemplates", uri="hostile://@N@/%d/" + "y" * 900)
    replies = {
        "resources/list": Reply(portion("changes of the list"), endless=True, aside=True),
        "resources/templates/list": Reply(line(changing)),
    }
    yield case("invalid templates that change for ever, over stdio", stdio(replies))


def completions() -> Iterator[Case]:
    """Yield completions of many and of long values, beside one template and beside many."""
    templates = ["hostile://c/{v}"]
    many = [*templates, *(f"hostile://c/{{v}}/k{number}" for number in range(450))]
    for name, beside, size, count in (
        ("long values", templates, 2900, 10_000),
        ("values of 64 KiB", templates, 64 << 10, 400),
        ("values of a name's length", templates, 240, 10_000),
        ("values beside many templates", many, 0, 10_000),
    ):
        listed = text({"resourceTemplates": [{"uriTemplate": each, "name": "t"} for each in beside]})
        values = b",".join(b'"@N@-%d-%b"' % (number, b"y" * size) for number in range(count))
        replies = {
            "resources/templates/list": Reply(ID + b'"result":' + listed + b"}\n"),
            "completion/complete": Reply(
                ID + b'"result":{"completion":{"values":[' + values + b'],"hasMore":true}}}\n'
            ),
        }
        yield Case(f"{name}, over stdio", stdio(replies), DIRECTORY, list_completed)


def list_completed(directory: Path) -> Sequence[Sequence[str | Path]]:
    """Return the programs that list the names that the server completes."""
    return [("ls", directory / "hostile" / "c")] * 2


def over_web() -> Iterator[Case]:
    """Yield what only HTTP has: codings of a body, and a stream for notifications."""
    codings = {"deflate": ["deflate"], "ten gzips": ["gzip"] * 10}
    for name, encodings in codings.items():
        reply = Reply(at("the result", "arrays", LONG), headers={"content-type": JSON}, encodings=encodings)
        yield case(f"arrays in the result, {name} over HTTP", over_http({"resources/read": reply}))
    coded = {"content-type": JSON, "content-encoding": "gzip"}
    spaces = Reply(b" " * MIB, headers=coded, endless=True, encodings=["gzip"])
    yield case("a gzip of spaces for ever, over HTTP", over_http({"resources/read": spaces}))
    events = {"content-type": EVENTS}
    packed = {**events, "content-encoding": "gzip"}
    lines = Reply(b"data:\n" * 100_000, headers=packed, endless=True, encodings=["gzip"])
    yield case("empty data lines for ever, gzip over HTTP", over_http({"resources/read": lines}))
    for stream in ("pings", "unknown requests", "updates", "answers to nothing"):
        reply = Reply(portion_of_events(stream), headers=events, endless=True)
        yield case(f"{stream} for ever in the stream of notifications, over HTTP", over_http({"GET /": reply}))
    empty = Reply(b"data:\n" * 10_000, headers=events, endless=True)
    yield case("empty data lines for ever in the stream of notifications, over HTTP", over_http({"GET /": empty}))
    again = Reply(b"id: @N@\nretry: 0\ndata:\n\n", headers=events)
    yield case("streams that end at once, over HTTP", over_http({"GET /": again, "resources/read": again}))
    one = Reply(event(at("the result", "arrays", FEW)), headers=events)
    yield case("arrays in an event, over HTTP", over_http({"resources/read": one}))


def older() -> Iterator[Case]:
    """Yield what the older transport makes of the same."""
    replies = {
        "arrays in the result": Reply(event(at("the result", "arrays", FEW))),
        "one text": Reply(event(at("the text", "one text", FEW))),
        "pings for ever": Reply(portion_of_events("pings"), endless=True),
        "empty data lines for ever": Reply(b"data:\n" * 10_000, endless=True),
        "endpoints for ever": Reply(b"event: endpoint\ndata: /@N@\n\n", endless=True),
    }
    for name, reply in replies.items():
        yield case(f"{name}, over SSE", over_sse({"resources/read": reply}))


ALL = [*places(), *descriptions(), *streams(), *listings(), *over_web(), *older()]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_hostile_mcp_server_harms_nobody(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)


@pytest.mark.semantics("S30")
def test_a_secret_at_the_cut_of_the_instructions_stays_out(fuse: None, tmp_path: Path) -> None:
    secret = "sk-0123456789abcdef0123456789abcdef"
    told = b'"' + b"x" * ((64 << 10) - 30) + secret.encode() + b'"'
    source = stdio({"initialize": Reply(line(PLACES["the instructions"].replace(b"@@", told)))})(tmp_path)
    source["mcpConfig"]["env"] = {"TOKEN": secret}
    mounts = Mounts()
    try:
        mount = mounts(source, expected=[""])
        Program("ls", mount / DIRECTORY).wait(20)
        described = (mount / DIRECTORY / ".about.md").read_text()
        assert "xxx***" in described
        assert "sk-0" not in described + mount.log()
    finally:
        mounts.close()
