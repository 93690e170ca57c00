"""Hostile REST APIs: their OpenAPI documents in JSON and YAML, and their answers."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness import SourceTable
from hostile import Case, walk, walk_part
from hostile_documents import HOSTILE_YAML
from hostile_messages import VALUES
from hostile_sources import JSON, PATIENCE, Reply, Source, serve

MIB = 1 << 20
FEW = 15 * MIB
LONG = 60 * MIB
DOCUMENT = "GET /openapi*"
QUICK = {"a document of arrays", "merging_yaml as a document", "a write that is answered for ever"}
MANY_FILES = {"a document with fifty thousand paths", "a document with a million values"}
"""Documents of which at least 10 000 files are kept: the API is asked for each that is read, 20 times a second."""
OPERATION = {"responses": {"200": {"description": "", "content": {JSON: {}}}}}


def api(replies: Mapping[str, Reply], name: str = "openapi.json", **config: Any) -> Source:
    """Return the source of an API whose document is at `name`."""

    def source(directory: Path) -> SourceTable:
        options = {"document": f"{serve(directory, replies)}/{name}", "allow_private": True, **config}
        return {"name": "hostile", "type": "api", "config": options, "timeout": PATIENCE}

    return source


def case(name: str, source: Source) -> Case:
    programs = walk_part if name in MANY_FILES else walk
    return Case(name, source, "bb-api+hostile", programs, quick=name in QUICK)


def document(paths: Mapping[str, Any], **more: Any) -> bytes:
    info = {"title": "hostile", "version": "1"}
    return json.dumps({"openapi": "3.0.3", "info": info, "paths": dict(paths), **more}).encode()


def get(*parameters: Any, **more: Any) -> dict[str, Any]:
    return {"get": {**OPERATION, "parameters": list(parameters), **more}}


def parameter(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, **more}


def laughing(levels: int = 30) -> dict[str, Any]:
    """Return schemas that each refer to the one before ten times."""
    schemas: dict[str, Any] = {"s0": {"type": "string"}}
    for level in range(1, levels):
        schemas[f"s{level}"] = {"allOf": [{"$ref": f"#/components/schemas/s{level - 1}"}] * 10}
    return {"components": {"schemas": schemas}}


def chain(length: int = 20_000) -> dict[str, Any]:
    """Return parameters that each refer to the next one."""
    made = {f"p{n}": {"$ref": f"#/components/parameters/p{n + 1}"} for n in range(length)}
    return {"components": {"parameters": {**made, f"p{length}": parameter("x")}}}


def values_in_documents() -> Iterator[Case]:
    """Yield documents with a value that costs a parser much."""
    before = b'{"openapi":"3.0.3","info":{"title":"x","version":"1"},"paths":{},"x-more":'
    for value in ("arrays", "members", "equal members", "deep arrays", "one integer", "one text of escapes", "one key"):
        reply = Reply(lambda value=value: before + VALUES[value](FEW) + b"}", headers={"content-type": JSON})
        yield case(f"a document of {value}", api({DOCUMENT: reply}))
    for name, made in HOSTILE_YAML.items():
        reply = Reply(made, headers={"content-type": "application/yaml"})
        yield case(f"{name} as a document", api({DOCUMENT: reply}, "openapi.yaml"))


def structures() -> Iterator[Case]:
    """Yield documents that are small, but lead an interpreter round and round."""
    ref = {"$ref": "#/components/schemas/s29"}
    dots = get(parameter("z"), parameter("x"), parameter("y"))
    names = [f"v{number}" for number in range(60)]
    documents: Mapping[str, Callable[[], bytes]] = {
        "schemas that refer to ten others": lambda: document(
            {"/x": get({"name": "q", "in": "query", "required": True, "schema": ref})}, **laughing()
        ),
        "a chain of references": lambda: document({"/x": get({"$ref": "#/components/parameters/p0"})}, **chain()),
        "a reference to itself": lambda: document({"/x": {"$ref": "#/paths/~1x"}, "/y": get(ref)}),
        "malformed references": lambda: document({"/x": {"$ref": "http://[bad"}, "/y": get({"$ref": 7}), "/z": get()}),
        "fifty thousand paths": lambda: document({f"/p{number}/x": get() for number in range(50_000)}),
        "deep paths": lambda: document({f"/{number}" + "/d" * 2000: get() for number in range(100)}),
        "paths of many variables": lambda: document(
            {f"/{n}" + "".join(f"/{{a{k}}}" for k in range(190)): {"$ref": "#/components/x"} for n in range(300)},
            components={"x": get(*(parameter(f"a{k}") for k in range(190)))},
        ),
        "segments of many variables": lambda: document(
            {"/" + ".".join(f"{{{name}}}" for name in names): get(*map(parameter, names))}
        ),
        "three variables and dots": lambda: document({"/tiles/{z}.{x}.{y}/info": dots}),
        "a million values": lambda: document(
            {"/{a}": get(parameter("a", schema={"enum": [f"v{n}" for n in range(900_000)]}))}
        ),
        "values that multiply": lambda: document(
            {"/x": get(*({"name": n, "in": "query", "required": True, "schema": {"enum": [*"abcdef"]}} for n in names))}
        ),
        "many servers": lambda: document(
            {"/x": get()}, servers=[{"url": "/{a}", "variables": {"a": {"default": "x" * 9000}}}] * 5_000
        ),
        "a long description": lambda: document({"/x": get(description="x" * 9 * MIB, summary="y" * 9 * MIB)}),
        "patterns": lambda: document({"/{a}": get(parameter("a", schema={"pattern": "^(a+)+$", "type": "string"}))}),
    }
    for name, made in documents.items():
        replies = {
            DOCUMENT: Reply(made, headers={"content-type": JSON}),
            "GET /*": Reply(b'["%s"]' % (b"." * 2000), harmless=True),
        }
        yield case(f"a document with {name}", api(replies, values={"z": ["." * 200]}))


def answers() -> Iterator[Case]:
    """Yield answers of an API whose document is harmless."""
    plain = Reply(lambda: document({"/x": get(), "/x/{id}": get(parameter("id"))}), headers={"content-type": JSON})
    for value in ("arrays", "objects", "equal members", "texts", "deep arrays", "one integer", "spaces", "short trees"):
        reply = Reply(lambda value=value: VALUES[value](LONG), headers={"content-type": JSON}, encodings=["gzip"])
        yield case(f"an answer of {value}, gzip", api({DOCUMENT: plain, "GET /x*": reply}))
    pages = {
        "pages for ever": Reply(b'{"items":[{"id":"@N@"}],"next":"/x?page=@N@"}', headers={"content-type": JSON}),
        "empty pages for ever": Reply(b'{"items":[],"next":"/x?page=@N@"}', headers={"content-type": JSON}),
        "linked pages for ever": Reply(b"[1]", headers={"content-type": JSON, "link": '</x?p=2>; rel="next"'}),
        "links without an end": Reply(b"[1]", headers={"content-type": JSON, "link": "<a>; b=c, " * 5_000}),
        "links of commas": Reply(b"[1]", headers={"content-type": JSON, "link": "," * 60_000}),
        "half a million items": Reply(
            lambda: b"[" + b",".join(b'{"id":"i%d"}' % n for n in range(500_000)) + b"]", headers={"content-type": JSON}
        ),
        "spaces for ever": Reply(b" " * MIB, headers={"content-type": JSON}, endless=True),
        "a gzip for ever": Reply(
            b"[]," * 100_000,
            begins=b"[",
            headers={"content-type": JSON, "content-encoding": "gzip"},
            encodings=["gzip"],
            endless=True,
        ),
        "an error for ever": Reply(b"x" * MIB, status=500, endless=True),
        "an odd charset": Reply(b"+AAAAAA-" * 100_000, headers={"content-type": "application/json; charset=utf-7"}),
    }
    for name, reply in pages.items():
        # Each item is a file, and `ls -l` loads every file.
        yield case(f"an answer of {name}", api({DOCUMENT: plain, "GET /x*": reply}, max_items=200))


def written(replies: Mapping[str, Reply], document: Callable[[], bytes]) -> Source:
    """Return the source of an API that is written by all of its operations."""
    made = api({DOCUMENT: Reply(document, headers={"content-type": JSON}), **replies}, write=["PUT /x", "PATCH /y"])
    return lambda directory: {**made(directory), "capabilities": ["read", "list", "write"]}


def save(directory: Path) -> list[list[str | Path]]:
    """Return programs that read and replace each document of an API, append to it and remove it."""
    lines = (
        "cat {0}; echo '{{\"a\": 2}}' > {0}",
        "sed -i s/1/2/ {0}",
        "echo ' ' >> {0}",
        "mv {0} {0}.bak; rm -f {0}.bak",
    )
    return [["sh", "-c", f"cd '{directory}'/http/*; {line.format(name)}"] for name in "xy" for line in lines]


def written_document(schema: Any = None, other: Any = None) -> bytes:
    """Return a document with a PUT and a PATCH. schema: of what GET answers. other: of the body of PUT."""
    made = {"schema": {"type": "object"} if schema is None else schema}
    body = {"schema": made["schema"] if other is None else other}
    answer = {"get": {"responses": {"200": {"description": "", "content": {JSON: made}}}}}
    patch = {"requestBody": {"content": {"application/merge-patch+json": {"schema": {"type": "object"}}}}}
    put = {"requestBody": {"content": {JSON: body}}}
    tree = {"type": "object", "properties": {f"p{n}": {"$ref": "#/components/schemas/tree"} for n in range(500)}}
    components = {"schemas": {**laughing()["components"]["schemas"], "tree": tree}}
    return document({"/x": {**answer, "put": put}, "/y": {**answer, "patch": patch}}, components=components)


def writes() -> Iterator[Case]:
    """Yield answers to writes, and to what is read before one."""
    small = {"GET /*": Reply(b'{"a": 1}', headers={"content-type": JSON, "etag": '"v1"'}, harmless=True)}
    found = {
        "a write that is answered for ever": {"P* /*": Reply(b" " * MIB, headers={"content-type": JSON}, endless=True)},
        "a write that is refused for ever": {"P* /*": Reply(b"x" * MIB, status=422, endless=True)},
        "a write that is refused with arrays": {
            "P* /*": Reply(lambda: VALUES["deep arrays"](FEW), status=400, headers={"content-type": JSON})
        },
        "a write that is refused with control characters": {
            "P* /*": Reply(b"\x1b[2J\n\xff" * 10_000, status=409, headers={"content-type": "text/plain"})
        },
        "a write that is sent elsewhere": {
            "P* /*": Reply(status=307, headers={"location": "http://169.254.169.254/latest"})
        },
        "a write that is sent round and round": {"P* /*": Reply(status=308, headers={"location": "?@N@"})},
        "a write that is put off": {"P* /*": Reply(status=503, headers={"retry-after": "0"})},
        "a write of a document that always differs": {
            "P* /*": Reply(b"{}", harmless=True),
            "GET /*": Reply(b'{"a": @N@}', headers={"content-type": JSON, "etag": '"v1"'}),
        },
        "a write of a document of a million values": {
            "P* /*": Reply(b"{}", harmless=True),
            "GET /*": Reply(b'{"a":[%s1]}' % (b"1," * 999_000), headers={"content-type": JSON}),
        },
        "a write of a document of spaces": {
            "P* /*": Reply(b"{}", harmless=True),
            "GET /*": Reply(lambda: VALUES["spaces"](LONG), headers={"content-type": JSON}),
        },
    }
    for name, replies in found.items():
        source = written({**replies, **small}, written_document)
        yield Case(name, source, "bb-api+hostile", save, quick=name in QUICK)
    trees = [{"$ref": "#/components/schemas/tree"}, {"allOf": [{"$ref": "#/components/schemas/tree"}]}]
    tens = [{"$ref": f"#/components/schemas/s{number}"} for number in (29, 28)]
    for name, schemas in {"refer to ten others": tens, "hold themselves": trees}.items():
        source = written({"P* /*": Reply(b"{}", harmless=True), **small}, partial(written_document, *schemas))
        yield Case(f"a document to write, with schemas that {name}", source, "bb-api+hostile", save)


ALL = [*values_in_documents(), *structures(), *answers(), *writes()]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_hostile_api_harms_nobody(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)
