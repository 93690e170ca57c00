"""Writing to REST APIs: which operations qualify, the bodies of requests, and the handler against a real server."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from pets_server import PetsServer

from bbfs.model.errors import (
    BbfsError,
    Busy,
    ConfigError,
    Conflict,
    DeadlineExceeded,
    Denied,
    LoginRequired,
    NoSpace,
    NotFound,
    NotSupported,
    ProtocolViolation,
    Rejected,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import Capabilities, DataSource, Policy
from bbfs.model.versions import Expected
from bbfs.sources import Services
from bbfs.sources.api.document import Documents
from bbfs.sources.api.handler import ApiHandler
from bbfs.sources.api.options import ApiOptions
from bbfs.sources.api.writing import bodies
from bbfs.sources.api.writing.plan import MERGE_PATCH, Plan, read_with_plan
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.options import parse_options
from bbfs.testing import HOSTILE

AT = "https://h/openapi.json"
PET = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
ONE = "/pets/{id}"


def content(schema: Any, media_type: str = "application/json") -> dict[str, Any]:
    return {"content": {media_type: {"schema": schema} if schema is not None else {}}}


def plan(paths: dict[str, Any], *write: str, **components: Any) -> Plan:
    document = {"openapi": "3.1.0", "servers": [{"url": "https://h"}], "paths": paths, "components": components}
    options = ApiOptions(document=AT, write=write)
    return read_with_plan(Documents(AT, {AT: document}, {}).root, options)[1]


def item(answer: Any = PET, body: Any = PET, method: str = "put", **more: Any) -> dict[str, Any]:
    """Return the item of a path with GET and one operation that writes."""
    sent = {"requestBody": content(body), **more}
    return {"get": {"responses": {"200": content(answer)}}, method: sent}


def why(path: str, given: dict[str, Any], method: str = "put", **components: Any) -> str:
    """Return why an operation is not sent; "" if it is."""
    [*refused] = plan({path: given}, f"{method.upper()} {path}", **components).refused
    return refused[0] if refused else ""


def properties(**types: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()}}


def test_operations_are_named_by_method_and_path_or_by_their_id() -> None:
    made = plan({ONE: {**item(operationId="put it"), "delete": {}}}, "put it", f"DELETE {ONE}")
    assert made.sent == (f"PUT {ONE}", f"DELETE {ONE}")
    assert made.writable[ONE].operations == ("create", "replace", "remove")
    assert plan({ONE: item()}).writable == {}
    [refused] = plan({ONE: item()}, "patchPet").refused
    assert refused == "write: patchPet: the document has no such operation"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"put": item()["put"]}, "no GET operation of the same path"),
        (item(parameters=[{"name": "q", "in": "query", "required": True}]), "needs the query parameter q"),
        (item(parameters=[{"name": "X-T", "in": "header", "required": True}]), "needs a value for header x-t"),
        (item(servers=[{"url": "https://h/v2"}]), "its server or the form of its parameters"),
        (item(body=None), "no schema of its body"),
        (item(answer=None), "no schema of its body"),
        ({**item(), "put": {"requestBody": content(PET, "application/xml")}}, "its body is no JSON"),
        ({**item(), "put": {}}, "its body is no JSON"),
        (item(body=properties(id="integer", name="integer")), "the type of name differs"),
        (item(body=properties(id="integer")), "the body has no property name"),
        (item(body=properties(id="integer", name="string", more="string")), "the answer has no property more"),
        (item(body={"type": "array", "items": PET}), "the type differs"),
        (item(answer={"type": "array", "items": PET}, body={"type": "array", "items": properties(id="integer")}),
         r"the body has no property \*.name"),
        (item(body={"anyOf": [PET, {"type": "null"}]}), "differ"),
        (item(answer={"$ref": "#/components/schemas/no"}), "leads nowhere"),
    ],
)  # fmt: skip
def test_what_does_not_qualify_says_why(given: dict[str, Any], reason: str) -> None:
    assert re.search(f"^write: PUT /pets/{{id}} is not sent: .*{reason}", why(ONE, given))


def test_an_operation_of_get_needs_no_query_and_has_no_pages() -> None:
    paged = {"name": "page", "in": "query", "schema": {"type": "integer"}}
    listed = {"type": "array", "items": PET}
    given = item(listed, listed)
    given["get"]["parameters"] = [paged]
    assert "in pages" in why("/pets", given)
    given["get"]["parameters"] = [{"name": "q", "in": "query", "required": True}]
    assert "GET needs the query parameter q" in why("/pets", given)
    assert why("/tags", item(listed, listed)) == ""
    assert "it needs a body" in why(ONE, {**item(), "delete": {"requestBody": {"required": True}}}, "delete")


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        ({**PET, "required": ["id"], "title": "Pet"}, {**PET, "required": ["name"], "description": "x", "x-y": 1}),
        ({"$ref": "#/components/schemas/Pet"}, PET),
        ({"allOf": [{"$ref": "#/components/schemas/Pet"}], "description": "x"}, {"$ref": "#/components/schemas/Pet"}),
        ({"allOf": [properties(id="integer"), properties(name="string")]}, PET),
        ({**PET, "properties": {**PET["properties"], "at": {"type": "string", "readOnly": True}}}, PET),
        (PET, {**PET, "properties": {**PET["properties"], "password": {"type": "string", "writeOnly": True}}}),
        ({"type": ["object", "null"], "properties": {}}, {"type": "object", "nullable": True}),
        ({"anyOf": [PET, {"type": "null"}]}, {"anyOf": [{"$ref": "#/components/schemas/Pet"}, {"type": "null"}]}),
        ({"$ref": "#/components/schemas/Tree"}, {"$ref": "#/components/schemas/Same"}),
        ({"type": "string", "enum": ["a", "b"]}, {"type": "string", "enum": ["b", "a"], "maxLength": 1}),
    ],
)
def test_schemas_are_the_same_whatever_they_are_called(answer: Any, body: Any) -> None:
    trees = {
        name: {**PET, "properties": {"below": {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}},
                                     "first": {"$ref": f"#/components/schemas/{name}", "description": name}}}
        for name in ("Tree", "Same")
    }  # fmt: skip
    assert why(ONE, item(answer, body), schemas={"Pet": PET, **trees}) == ""


def test_schemas_that_multiply_are_not_compared_for_ever() -> None:
    def schema(name: str, number: int) -> dict[str, Any]:
        inner = {"$ref": f"#/components/schemas/{name}{number + 1}", "readOnly": True}
        return {"type": "object", "properties": dict.fromkeys("abcdefghijklmnopqrstuvwxyz", inner)}

    schemas = {f"{name}{number}": schema(name, number) for name in "xy" for number in range(30)}
    schemas |= {"x30": PET, "y30": PET}
    given = item({"$ref": "#/components/schemas/x0"}, {"$ref": "#/components/schemas/y0"})
    assert "more than 20000 schemas to compare" in why(ONE, given, schemas=schemas)
    rounds = {"x": {"allOf": [{"$ref": "#/components/schemas/x"}] * 2}}
    given = item({"$ref": "#/components/schemas/x"}, {"$ref": "#/components/schemas/x"})
    assert "schemas in its allOf" in why(ONE, given, schemas=rounds)


def test_a_patch_is_a_merge_patch() -> None:
    assert "is no application/merge-patch+json" in why(ONE, item(method="patch"), "patch")
    for schema in (PET, {"type": "object"}, {}):
        given = {**item(), "patch": {"requestBody": content(schema, MERGE_PATCH)}}
        made = plan({ONE: given}, f"PATCH {ONE}")
        assert made.writable[ONE].operations == ("replace",)
    given = {**item(), "patch": {"requestBody": content(properties(a="string"), MERGE_PATCH)}}
    assert "is not what GET answers" in why(ONE, given, "patch")


def test_a_post_to_the_list_makes_what_has_its_name_in_the_body() -> None:
    listed = {"get": {"responses": {"200": content({"type": "array", "items": PET})}}}
    post = {"post": {"requestBody": content(PET)}}
    made = plan({"/pets": {**listed, **post}, "/pets/{petId}": item()}, "POST /pets")
    assert made.writable["/pets/{petId}"].operations == ("create",)
    assert made.writable["/pets/{petId}"].key == "id"
    named = {**PET, "properties": {**PET["properties"], "id": {"type": "integer", "readOnly": True}}}
    paths = {"/pets": {**listed, "post": {"requestBody": content(named)}}, "/pets/{petId}": item(named, named)}
    paths["/pets/{petId}"]["get"]["responses"]["200"] = content(named)
    [refused] = plan(paths, "POST /pets").refused
    assert refused.endswith("no property for {petId}, so the API chooses the names of what it makes")
    assert "is not what GET answers" in why("/pets", {**listed, **post}, "post")
    assert plan({ONE: item(method="post")}, f"POST {ONE}").writable[ONE].operations == ("create", "replace")


@pytest.mark.parametrize("name", ["GET /pets", "get /pets", "OPTIONS /x", "/pets", ""])
def test_a_name_that_can_be_no_operation_is_refused(name: str) -> None:
    config = {"document": AT, "write": [name]}
    with pytest.raises(ConfigError, match=r"sources\[a\].config.write: .*should be"):
        parse_options(ApiOptions, DataSource("a", "a", "api", "bb", "bb-api+a", config=config))


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.decimals(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
)
objects = st.dictionaries(st.sampled_from("abc"), documents)


def patched(old: Any, patch: Any) -> Any:
    """RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return patch
    kept = {name: value for name, value in old.items() if name not in patch} if isinstance(old, dict) else {}
    of = old if isinstance(old, dict) else {}
    return kept | {name: patched(of.get(name), value) for name, value in patch.items() if value is not None}


@given(objects, objects)
def test_a_merge_patch_makes_the_new_document_or_there_is_none(old: Any, new: Any) -> None:
    try:
        patch = bodies.merge_patch(old, new)
    except NotSupported:
        assert "None" in repr(new)
        return
    assert bodies.same(patched(old, patch), new)
    if bodies.same(old, new):
        assert patch == {}


@given(documents.filter(lambda value: isinstance(value, dict | list)))
def test_a_document_keeps_its_values(value: Any) -> None:
    text = bodies.text_of(value)
    again = bodies.parsed(text.encode())
    assert bodies.text_of(again) == text


def test_numbers_keep_their_digits() -> None:
    text = '{"a": 1.10, "b": 12345678901234567890, "c": 1E+400, "d": [-0.0, 1e-7]}'
    assert bodies.text_of(bodies.parsed(text.encode())) == text.replace("1e-7", "1E-7")
    assert bodies.same(Decimal("1.10"), Decimal("1.1"))
    assert not bodies.same(True, 1)
    assert bodies.same(1, Decimal("1.0"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a": 1,\n "b": }', "line 2 column 7"),
        (b"", "line 1 column 1"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": 1, "a": 2}', "a name twice: a"),
        (b"\xff", "utf-8"),
        ("{}".encode("utf-16"), "utf-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'"text"', "object or array"),
        (b"[" * 5000, "nested more than"),
        (b"[" + b"1," * 200_000 + b"1]", "more than 100000 values"),
        (b"[" + b"1" * 5000 + b"]", "no JSON"),
        (b"[1E" + b"9" * 50 + b"]", "no JSON"),
    ],
)
def test_what_is_no_document_says_where(data: bytes, reason: str) -> None:
    with pytest.raises(Rejected, match=reason):
        bodies.parsed(data)


def test_read_only_properties_are_left_out_unless_they_were_changed() -> None:
    paths = [("at",), ("owner", "id"), ("gone", "x")]
    old = {"at": Decimal("1.0"), "owner": {"id": 1, "name": "a"}}
    new = {"at": Decimal("1.00"), "owner": {"id": 1, "name": "b"}}
    assert bodies.without(new, paths, old) == {"owner": {"name": "b"}}
    assert bodies.without({"owner": {"name": "b"}}, paths, old) == {"owner": {"name": "b"}}
    assert bodies.without(new, paths) == {"owner": {"name": "b"}}
    for wrong in ({"at": 2}, {"owner": {"id": 2}}, {"gone": {"x": None}}):
        with pytest.raises(Rejected, match=r"writes (at|owner\.id|gone\.x) itself"):
            bodies.without(wrong, paths, old)
    same = {"name": "a"}
    assert bodies.without(same, paths, old) is same


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PetsServer]:
    server = PetsServer(tmp_path / "notes", "notes_api.py")
    yield server
    server.stop()


@asynccontextmanager
async def handler(document: str, *write: str, timeout: float = 10.0, **config: Any) -> AsyncIterator[ApiHandler]:
    options = {"document": document, "allow_private": True, "write": write, **config}
    granted, policy = Capabilities(write=True), Policy(timeout=timeout)
    made = ApiHandler(
        DataSource("n", "n", "api", "bb", "bb-api+n", capabilities=granted, policy=policy, config=options), Services()
    )
    try:
        with trio.fail_after(30):
            yield made
    finally:
        await made.aclose()


async def loaded(api: ApiHandler, uri: str) -> tuple[Any, Expected]:
    """Return the document at a URI, and its state."""
    found = await api.load(uri)
    part, metadata = found.parts[0].content, found.metadata
    data = await part.read_waiting(0, part.size)
    etag = metadata.etag if metadata is not None else None
    return json.loads(data), Expected(True, etag, part.version if etag is None else None)


def text(value: Any) -> MemoryContent:
    return MemoryContent(json.dumps(value).encode())


def sent(server: PetsServer, path: str, method: str) -> list[dict[str, Any]]:
    return [each["headers"] for each in server.requests(path) if each["method"] == method]


async def test_a_put_has_the_condition_of_the_version_that_it_replaces(server: PetsServer) -> None:
    async with handler(server.document, "putNote", "deleteNote") as api:
        uri = f"{server.url}/notes/a"
        note, state = await loaded(api, uri)
        told = await api.write(uri, text({**note, "text": "two"}), state)
        assert (told.native_uri, told.kind, told.size, told.etag) == (uri, "resource", None, None)
        again, now = await loaded(api, uri)
        assert again == {**note, "text": "two", "revision": 2}
        for wrong in (state, Expected(exists=False)):
            with pytest.raises(Conflict):
                await api.write(uri, text({**again, "text": "three"}), wrong)
        with pytest.raises(Conflict):
            await api.remove(uri, state)
        await api.remove(uri, now)
        with pytest.raises(NotFound):
            await api.remove(uri, Expected())
        await api.write(uri, text({"id": "a", "text": "new", "revision": 7}), Expected(exists=False))
    assert [each.get("if-none-match") for each in sent(server, "/notes/a", "PUT")] == [None, "*", "*"]


async def test_bytes_are_sent_as_they_were_written(server: PetsServer) -> None:
    async with handler(server.document, "PUT /plain/{name}") as api:
        uri = f"{server.url}/plain/new"
        await api.write(uri, MemoryContent(b'{ "n": 1.10,\n "u": "\xc3\xbc"}\n'), Expected(exists=False))
        [headers] = sent(server, "/plain/new", "PUT")
        assert headers["content-type"] == "application/json"
        assert headers["content-length"] == "25"
        assert (await loaded(api, uri))[0] == {"n": 1.1, "u": "ü"}
        for odd in ('"a\r\nX-Odd: 1"', "W/weak", '"\N{OWL}"'):  # from a client of `bbfs serve`
            await api.write(uri, text({}), Expected(exists=True, etag=odd))
        assert not any({"x-odd", "if-match"} & each.keys() for each in sent(server, "/plain/new", "PUT"))


async def test_a_patch_has_what_differs(server: PetsServer) -> None:
    async with handler(server.document, "PATCH /patched/{name}") as api:
        uri = f"{server.url}/patched/a"
        assert api.writes(uri) == ("create", "replace", "remove"), "as long as the document was not read"
        note, state = await loaded(api, uri)
        assert api.writes(uri) == ("replace",)
        await api.write(uri, text({"text": "two", "owner": {"name": "Zoe"}, "more": [None]}), state)
        assert (await loaded(api, uri))[0] == {"text": "two", "owner": {"name": "Zoe"}, "more": [None]}
        with pytest.raises(Conflict):
            await api.write(uri, text(note), state)
        _, state = await loaded(api, uri)
        with pytest.raises(NotSupported, match="null"):
            await api.write(uri, text({"text": None}), state)
        requests = len(sent(server, "/patched/a", "PATCH"))
        await api.write(uri, text((await loaded(api, uri))[0]), state)
        assert len(sent(server, "/patched/a", "PATCH")) == requests == 1
        with pytest.raises(NotSupported, match="no operation makes it"):
            await api.write(f"{server.url}/patched/b", text({}), Expected(exists=False))


async def test_a_post_replaces_a_document_or_makes_one_of_the_list(server: PetsServer) -> None:
    async with handler(server.document, "POST /posted/{name}", "postNote", "POST /chosen") as api:
        await api.write(f"{server.url}/posted/a", text({"id": "b"}), Expected(exists=True))
        assert (await loaded(api, f"{server.url}/posted/a"))[0] == {"id": "b"}
        uri = f"{server.url}/notes/n"
        assert api.writes(uri) == ("create",)
        with pytest.raises(NotSupported, match="id of the document should be the name"):
            await api.write(uri, text({"id": "other", "text": "x"}), Expected(exists=False))
        assert sent(server, "/notes", "POST") == []
        await api.write(uri, text({"id": "n", "text": "x"}), Expected(exists=False))
        assert (await loaded(api, uri))[0]["text"] == "x"
        with pytest.raises(Conflict):
            await api.write(uri, text({"id": "n", "text": "x"}), Expected(exists=False))
        with pytest.raises(BbfsError, match="gave it another name"):
            await api.write(f"{server.url}/chosen/9", text({"id": "9", "text": "x"}), Expected(exists=False))


async def test_nothing_else_is_written(server: PetsServer) -> None:
    names = ["PUT /plain/{name}", "PUT /listed", "PUT /other", "putNote", "PUT /answers/{status}"]
    async with handler(server.document, *names) as api:
        listing = await api.list()
        assert "write: PUT /listed is not sent: GET answers a list in pages" in (listing.problem or "")
        assert "write: PUT /other is not sent: its body is not what GET answers" in (listing.problem or "")
        assert any("`PUT /plain/{name}`" in note for note in api.notes)
        for path in ("plain/a?x=1", "plain", "listed", "other", "no", "plain/a/b"):
            uri = f"{server.url}/{path}"
            assert api.writes(uri) == (), path
            with pytest.raises((NotSupported, NotFound)):
                await api.write(uri, text({}), Expected())
            with pytest.raises((NotSupported, NotFound)):
                await api.remove(uri, Expected())
        with pytest.raises(NotSupported):
            await api.remove(f"{server.url}/plain/a", Expected())
        with pytest.raises(TooLarge):
            await api.write(f"{server.url}/plain/a", MemoryContent(b" " * (5 << 20)), Expected())
        with pytest.raises(NotSupported, match="the API makes nothing by this operation"):
            await api.write(f"{server.url}/answers/404", text({}), Expected(exists=False))
    assert [each for each in server.requests() if each["method"] != "GET" and each["path"] != "/answers/404"] == []
    async with handler(server.document) as api:
        assert api.writes(f"{server.url}/plain/a") == ()
        assert any("No operation that writes" in note for note in [*(await api.list() and api.notes)])


async def test_a_write_is_sent_to_no_other_server_and_taken_for_done_only_if_it_is(server: PetsServer) -> None:
    async with handler(server.document, "PUT /answers/{status}", "DELETE /answers/{status}", timeout=3) as api:

        async def write(status: int) -> None:
            await api.write(f"{server.url}/answers/{status}", text({"to": status}), Expected(exists=True))

        for status, error, reason in (
            (301, BbfsError, "leads elsewhere"),
            (302, BbfsError, "leads elsewhere"),
            (303, BbfsError, "leads elsewhere"),
            (308, ProtocolViolation, "to another server, http://localhost:[0-9]*/plain/a, not followed"),
            (202, BbfsError, "has not said that it is done"),
            (418, ProtocolViolation, "status 418"),
            (400, Rejected, "status 400"),
            (401, LoginRequired, "status 401"),
            (403, Denied, "status 403"),
            (405, NotSupported, "status 405"),
            (409, Conflict, "status 409"),
            (413, TooLarge, "status 413"),
            (507, NoSpace, "status 507"),
            (429, Busy, "status 429"),
            (503, Unreachable, "status 503"),
            (504, DeadlineExceeded, "status 504"),
            (428, Conflict, "status 428"),
        ):
            before = len(server.requests(f"/answers/{status}"))
            with pytest.raises(error, match=reason):
                await write(status)
            assert len(server.requests(f"/answers/{status}")) == before + 1, "a write is not repeated"
        with pytest.raises(BbfsError, match="has not said that it is done"):
            await api.remove(f"{server.url}/answers/202", Expected())
        assert sent(server, "/plain/a", "PUT") == []
        await write(307)
        assert (await loaded(api, f"{server.url}/plain/a"))[0] == {"to": 307}
        before = server.requests()
        await api.load(f"{server.url}/answers/1")
        server.answer_all("hang")
        with pytest.raises(DeadlineExceeded):
            await write(200)
        assert len(server.requests()) == len(before) + 1


async def test_hostile_uris_are_sent_nowhere(server: PetsServer) -> None:
    async with handler(server.document, "PUT /plain/{name}", "DELETE /plain/{name}") as api:
        await api.list()
        odd = [
            f"{server.url}/plain/{name}" for name in ("..", "%2e%2e", "a/../b", "a%2F..%2Fb", "a#b", "a b", "\0", "")
        ]
        for uri in (*HOSTILE, *odd, f"{server.url}@h/plain/a", "http://h/plain/a"):
            assert api.writes(uri) == (), uri
            for state in (Expected(), Expected(exists=False)):
                with pytest.raises(BbfsError):
                    await api.write(uri, text({}), state)
                with pytest.raises(BbfsError):
                    await api.remove(uri, state)
    assert {each["method"] for each in server.requests()} == {"GET"}
