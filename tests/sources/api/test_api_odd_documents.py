"""Documents that are wrong somewhere: whatever stands there, they are read in part or refused, and nothing else."""

import copy
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bbfs.model.errors import NotFound, ProtocolViolation
from bbfs.model.uri_templates.patterns import Pattern
from bbfs.sources.api.document import TOKEN, Documents
from bbfs.sources.api.following import Paging
from bbfs.sources.api.operations import read
from bbfs.sources.api.options import ApiOptions
from bbfs.sources.api.security import Keyring
from bbfs.sources.api.values import answers_for, hinted, lister

AT = "https://h/openapi.json"
GOOD: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Odd", "version": "1"},
    "servers": [{"url": "https://{r}.h/v1", "variables": {"r": {"default": "eu", "enum": ["eu", "us"]}}}],
    "security": [{"key": []}],
    "paths": {
        "/pets": {
            "parameters": [{"$ref": "#/components/parameters/limit"}],
            "get": {
                "operationId": "list",
                "tags": ["a"],
                "parameters": [
                    {"name": "f", "in": "query", "style": "deepObject",
                     "schema": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
                    {"name": "ids", "in": "query", "explode": False, "schema": {"type": "array", "items": {}}},
                    {"name": "X-V", "in": "header", "required": True, "schema": {"default": "1"}},
                ],
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"type": "array"}}},
                            "links": {"one": {"operationId": "get", "parameters": {"id": "$response.body#/0/id"}}}}
                },
                "servers": [{"url": "/other"}],
            },
        },
        "/pets/{id}": {
            "get": {
                "operationId": "get",
                "summary": "One",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "examples": {"e": {"value": 7}},
                     "x-ms-dynamic-values": {"operationId": "list", "value-path": "id"},
                     "schema": {"anyOf": [{"type": "null"}, {"type": "integer", "enum": [1, 2]}]}},
                    {"name": "all", "in": "query", "required": True, "schema": {"type": "boolean", "default": True}},
                ],
                "security": [{"key": [], "basic": []}, {}],
                "responses": {"default": {"$ref": "#/components/responses/ok"}},
            }
        },
    },
    "components": {
        "parameters": {"limit": {"name": "limit", "in": "query", "schema": {"$ref": "#/components/schemas/n"}}},
        "schemas": {"n": {"type": "integer", "minimum": 1}},
        "responses": {"ok": {"description": "ok", "content": {"text/plain": {}}}},
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "query", "name": "k"},
            "basic": {"type": "http", "scheme": "basic"},
        },
    },
}  # fmt: skip
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(
        ["", "x", "{", "}", "{a}{b}", "/", "//", "https://[", "%zz", "\ud800", "a\nb", "é", "..", "query", "path"]
    ),
    st.sampled_from(["object", "array", "matrix", "label", "https://u:p@h", "http://h:99999", "$response.body#/x"]),
    st.just([]),
    st.just({}),
    st.just([None]),
    st.just([[]]),
    st.just({"": None}),
    st.just({200: {1: 2}}),
    st.sampled_from(
        ["#", "#/", "#/paths", "#/components/parameters/limit", "#/nothing", "x.json", "#/paths/~1pets/get"]
    ).map(lambda reference: {"$ref": reference}),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The steps to each value in a document, itself left out."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


PLACES = list(places(GOOD))


def spoilt(changes: list[tuple[tuple[Any, ...], Any, bool]]) -> dict[str, Any]:
    """The document with other values, or other keys, in some places."""
    document = copy.deepcopy(GOOD)
    for steps, junk, as_key in changes:
        around: Any = document
        try:
            for step in steps[:-1]:
                around = around[step]
            if as_key and isinstance(around, dict) and isinstance(junk, str):
                around[junk] = around.pop(steps[-1])
            else:
                around[steps[-1]] = copy.deepcopy(junk)  # a later change may go into this one
        except (LookupError, TypeError):
            continue  # spoilt further up already
    return json.loads(json.dumps(document))  # as `parse` gives it: all keys are texts


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(PLACES), JUNK, st.booleans()), min_size=1, max_size=4))
@example([(("paths", "/pets/{id}"), "/pets/{a}{b}{a}", True)])
@example([(("paths", "/pets", "get", "parameters", 1, "name"), "\ud800", False)])
@example([(("paths", "/pets/{id}", "get", "parameters", 1, "schema"), {"enum": ["\ud800", {}]}, False)])
def test_a_document_with_anything_anywhere_is_read_or_refused(changes: list[tuple[tuple[Any, ...], Any, bool]]) -> None:
    try:
        api = read(Documents(AT, {AT: spoilt(changes)}, {}).root, ApiOptions(document=AT))
    except ProtocolViolation:
        return
    assert all(len(reason) < 1000 for reason in api.left_out)
    keyring = Keyring({"apiKey": "k", "username": "u", "password": "p"})
    keyring.unused(api.schemes)
    for operation in api.operations:
        for template in filter(None, (operation.base, operation.query_template)):
            if operation.in_path or template != operation.base:
                Pattern(template)
        for uri in operation.resources():
            assert uri.startswith("http")
            try:
                assert api.call(uri).url
            except NotFound:
                continue  # more than one operation has this URL, and another one comes first
        found = keyring.credentials(operation.security, api.schemes)
        assert all(map(TOKEN.fullmatch, found.headers))
        assert all(quote(name) for name, _ in found.query)
        assert Paging.of(operation.in_query)
        assert all(each.isascii() and each.count("/") == 1 for each in operation.returns)
        assert all(TOKEN.fullmatch(name) and value.isprintable() for name, value in operation.headers.items())
        for index, parameter in enumerate(operation.in_path):
            hinted(api, parameter)
            lister(api, operation, index)
            answers_for(api, operation, operation.base, index)


def test_the_document_that_is_spoilt_is_a_good_one() -> None:
    api = read(Documents(AT, {AT: GOOD}, {}).root, ApiOptions(document=AT))
    assert api.left_out == ()
    assert [each.path for each in api.operations] == ["/pets/{id}", "/pets"]
