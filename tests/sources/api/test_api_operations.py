"""OpenAPI documents as operations: their URLs, templates, parameters, servers, and what has no path."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_parts import places, with_part

from bbfs.model.errors import NotFound, ProtocolViolation, TooLarge
from bbfs.sources.api.document import Documents
from bbfs.sources.api.operations import LISTED_AT_MOST, MAX_OPERATIONS, Api, Operation, read
from bbfs.sources.api.options import ApiOptions
from bbfs.sources.api.yaml_document import job

DEEP = {"type": "object"}
AT = "https://docs.example.com/v2/openapi.yaml"
PETSTORE = b"""
openapi: 3.0.3
info: {title: Petstore, version: 1.0.27}
servers:
  - url: /api/v3
tags: [{name: pet}]
paths:
  /pet:
    put: {responses: {"200": {description: ok}}}
  /pet/findByStatus:
    get:
      tags: [pet]
      summary: Finds Pets by status
      operationId: findPetsByStatus
      parameters:
        - name: status
          in: query
          explode: true
          schema: {type: string, default: available, enum: [available, pending, sold]}
          required: true
      responses:
        "200": {description: ok, content: {application/xml: {}, application/json: {}}}
        "400": {description: bad}
      security: [{petstore_auth: ["read:pets"]}]
  /pet/findByTags:
    get:
      parameters:
        - {name: tags, in: query, explode: true, schema: {type: array, items: {type: string}}}
      responses: {"200": {$ref: "#/components/responses/pets"}}
  /pet/{petId}:
    parameters:
      - {$ref: "#/components/parameters/petId"}
    get:
      operationId: getPetById
      description: Returns a single pet
      responses: {default: {content: {application/json: {}}}}
      security: [{api_key: []}, {petstore_auth: []}]
  /store/inventory: {get: {responses: {}, deprecated: true}}
components:
  parameters:
    petId: {name: petId, in: path, required: true, schema: {type: integer, format: int64, example: 10}}
  responses:
    pets: {description: ok, content: {application/json: {}}}
  securitySchemes:
    petstore_auth: {type: oauth2, flows: {}}
    api_key: {type: apiKey, name: api_key, in: header}
"""


def read_document(value: Any, **options: Any) -> Api:
    return read(Documents(AT, {AT: value}, {}).root, ApiOptions(document=AT, **options))


def api(paths: Mapping[str, Any], **more: Any) -> Api:
    options = more.pop("options", {})
    return read_document({"openapi": "3.1.0", "servers": [{"url": "https://h"}], "paths": paths, **more}, **options)


def operation(path: str, *parameters: Mapping[str, Any], **get: Any) -> Operation:
    found = api({path: {"get": {"parameters": list(parameters), "responses": {}, **get}}})
    assert not found.left_out
    return found.operations[0]


def left_out(path: str, *parameters: Mapping[str, Any], **get: Any) -> str:
    found = api({path: {"get": {"parameters": list(parameters), "responses": {}, **get}}})
    assert not found.operations
    return found.left_out[0]


def query(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", **more}


def test_a_petstore_is_read() -> None:
    found = read_document(json.loads(job(PETSTORE, {"depth": 100, "size": 1 << 20})))
    base = "https://docs.example.com/api/v3"
    assert (found.title, found.version, found.left_out) == ("Petstore", "3.0.3", ())
    assert [each.base for each in found.operations] == [
        f"{base}/pet/findByStatus",
        f"{base}/pet/findByTags",
        f"{base}/pet/{{petId}}",
        f"{base}/store/inventory",
    ]
    by_status, by_tags, pet, inventory = found.operations
    assert list(by_status.resources()) == [
        f"{base}/pet/findByStatus?status={s}" for s in ("available", "pending", "sold")
    ]
    assert by_status.returns == ("application/json", "application/xml")
    assert (by_status.title, by_status.operation_id, by_status.tags) == (
        "Finds Pets by status", "findPetsByStatus", ("pet",),
    )  # fmt: skip
    assert by_status.security == (("petstore_auth",),)
    assert by_tags.query_template == f"{base}/pet/findByTags{{?tags*}}"
    assert list(by_tags.resources()) == [f"{base}/pet/findByTags"]
    assert by_tags.mime_type == pet.mime_type == "application/json"
    assert list(pet.resources()) == []
    assert pet.in_path[0].samples == ("10",)
    assert pet.security == (("api_key",), ("petstore_auth",))
    assert inventory.deprecated


def test_what_is_no_openapi_document_is_refused() -> None:
    for value, said in (
        ({"swagger": "2.0", "paths": {}}, "Swagger 2"),
        ({"openapi": "4.0.0", "paths": {}}, "no OpenAPI document"),
        ([], "no OpenAPI document"),
        ("text", "no OpenAPI document"),
        ({"openapi": "3.0.0"}, "/paths: no object"),
    ):
        with pytest.raises(ProtocolViolation, match=said):
            read_document(value)
    assert read_document({"openapi": 3.0, "paths": {}}).operations == ()


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        (query("q"), "{?q}"),
        (query("a.b-c"), "{?a.b-c}"),
        (query("ids[]", schema={"type": "array"}), "{?ids%5B%5D*}"),
        (query("~x y"), "{?%7Ex%20y}"),
        (query("l", schema={"type": "array"}), "{?l*}"),
        (query("l", explode=False, schema={"type": "array"}), "{?l}"),
        (query("l", style="pipeDelimited", schema={"type": "array"}), "{?l}"),
        (query("l", schema={"type": ["array", "null"]}), "{?l*}"),
        (query("l", schema={"anyOf": [{"type": "null"}, {"type": "array"}]}), "{?l*}"),
        (query("o", schema={"type": "object", "properties": {"a": {}, "b": {"type": "array"}}}), "{?a,b*}"),
        (
            query("f", style="deepObject", schema={"type": "object", "properties": {"x.y": {}, "z": DEEP}}),
            "{?f%5Bx%2Ey%5D}",
        ),
        (query("j", content={"application/json": {}}), "{?j}"),
    ],
)  # fmt: skip
def test_query_parameters_are_variables(parameter: dict[str, Any], expected: str) -> None:
    assert operation("/x", parameter).query_template == f"https://h/x{expected}"


@pytest.mark.parametrize(
    ("path", "parameter", "template", "url", "value"),
    [
        ("/x/{id}", {}, "/x/{id}", "/x/a%2Fb", "a/b"),
        ("/x/{id}.json", {}, "/x/{id}.json", "/x/7.json", "7"),
        ("/x/{id}/", {}, "/x/{id}/", "/x/7/", "7"),
        ("/x/{id}", {"style": "label"}, "/x/{.id}", "/x/.7", "7"),
        ("/x/{id}", {"style": "matrix"}, "/x/{;id}", "/x/;id=7", "7"),
        ("/x/{id}", {"style": "label", "explode": True, "schema": {"type": "array"}}, "/x/{.id*}", "/x/.a.b", "a.b"),
        ("/x/{an id}", {"name": "an id"}, "/x/{an%20id}", "/x/7", "7"),
        ("/ä b/{id}", {}, "/%C3%A4%20b/{id}", "/%C3%A4%20b/7", "7"),
    ],
)
def test_path_parameters_are_variables(
    path: str, parameter: dict[str, Any], template: str, url: str, value: str
) -> None:
    given = {"name": "id", "in": "path", "required": True, **parameter}
    found = api({path: {"get": {"parameters": [given], "responses": {}}}})
    assert found.operations[0].base == f"https://h{template}"
    call = found.call(f"https://h{url}")
    assert (list(call.values.values()), call.url) == ([value], f"https://h{url}")


def test_lists_with_commas_go_out_with_commas() -> None:
    paths = {
        "/x/{ids}": {
            "get": {
                "parameters": [
                    {"name": "ids", "in": "path", "required": True, "schema": {"type": "array"}},
                    query("f", explode=False, schema={"type": "array"}),
                    query("t"),
                ]
            }
        }
    }
    call = api(paths).call("https://h/x/1%2C2?f=a%2Cb&t=a%2Cb")
    assert call.url == "https://h/x/1,2?f=a,b&t=a%2Cb"


def test_one_name_in_path_and_query_is_two_variables() -> None:
    found = operation("/x/{id}", query("id"))
    assert found.query_template == "https://h/x/{id_}{?id}"


def test_parameters_of_the_operation_come_before_those_of_the_path() -> None:
    item = {"parameters": [query("a", required=True), query("b")], "get": {"parameters": [query("a")], "responses": {}}}
    found = api({"/x": item}).operations[0]
    assert [(each.name, each.required) for each in found.in_query] == [("a", False), ("b", False)]


@pytest.mark.parametrize(
    ("path", "parameters", "said"),
    [
        ("/x", [{"name": "X-Tenant", "in": "header", "required": True}], "header x-tenant"),
        ("/x", [{"name": "session", "in": "cookie", "required": True}], "cookie session"),
        ("/x", [{"name": "q"}], "a parameter without a usable name or place"),
        ("/x", [{"$ref": "#/nothing"}], "leads nowhere"),
        ("/x?a=b", [], "a query or a fragment"),
        ("/x#a", [], "a query or a fragment"),
        ("/x/{a}/{a}", [], "twice"),
        ("/x/{}", [], "without a name"),
        ("/x/{a", [], "a brace without another"),
        ("/x/{a}{b}{c}{d}", [], "too many variables"),
    ],
)
def test_what_no_path_says_is_left_out_with_the_reason(path: str, parameters: list[dict[str, Any]], said: str) -> None:
    reason = left_out(path, *parameters)
    assert reason.startswith("GET /x")
    assert said in reason


def test_streams_without_end_are_left_out() -> None:
    assert "stream without end" in left_out("/x", responses={"200": {"content": {"text/event-stream": {}}}})


def test_headers_that_are_known_are_sent() -> None:
    header = {"in": "header", "required": True}
    parameters = [
        {"name": "X-Version", **header, "schema": {"enum": ["2026-01-01"]}},
        {"name": "X-Default", **header, "schema": {"default": 3}},
        {"name": "Accept", **header},
        {"name": "x-given", **header},
        {"name": "X-Any", "in": "header"},
    ]
    found = api({"/x": {"get": {"parameters": parameters}}}, options={"headers": {"X-Given": "1"}})
    assert found.operations[0].headers == {"X-Version": "2026-01-01", "X-Default": "3"}


def test_a_key_in_the_query_is_no_variable() -> None:
    schemes = {"securitySchemes": {"k": {"type": "apiKey", "in": "query", "name": "api_key"}}}
    found = api({"/x": {"get": {"parameters": [query("api_key"), query("q")]}}}, components=schemes)
    assert found.operations[0].query_template == "https://h/x{?q}"
    with pytest.raises(NotFound, match="no query parameter api_key"):
        found.call("https://h/x?api_key=secret")


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        (None, "https://docs.example.com/x"),
        ([{"url": "v1/"}], "https://docs.example.com/v2/v1/x"),
        ([{"url": "//other.example.com:8443/a b"}], "https://other.example.com:8443/a%20b/x"),
        ([{"url": "https://{r}.h/{v}", "variables": {"r": {"default": "eu"}, "v": {"default": 1}}}], "https://eu.h/1/x"),
    ],
)  # fmt: skip
def test_servers_are_where_paths_go_on_from(servers: Any, expected: str) -> None:
    document = {"openapi": "3.1.0", "paths": {"/x": {"get": {}}}, **({"servers": servers} if servers else {})}
    assert read_document(document).operations[0].base == expected


def test_servers_of_an_operation_come_first_and_the_option_before_them() -> None:
    own = {"url": "https://op/{v}", "variables": {"v": {"default": "1"}}}
    paths = {
        "/a": {"get": {"servers": [own]}, "servers": [{"url": "/i"}]},
        "/b": {"get": {}, "servers": [{"url": "https://item"}]},
        "/c": {"get": {}},
    }  # fmt: skip
    bases = [each.base for each in api(paths, options={"server_variables": {"v": "2"}}).operations]
    assert sorted(bases) == ["https://h/c", "https://item/b", "https://op/2/a"]
    bases = [each.base for each in api(paths, options={"server": "http://local:1/z/"}).operations]
    assert bases == ["http://local:1/z/a", "http://local:1/z/b", "http://local:1/z/c"]


@pytest.mark.parametrize(
    "url", ["ftp://h", "https://u:p@h", "https://h/?q", "https://{x}.h", "https://", "https://h:x"]
)
def test_a_server_that_cannot_be_used_is_named(url: str) -> None:
    document = {"openapi": "3.1.0", "servers": [{"url": url}], "paths": {"/x": {"get": {}}}}
    found = read_document(document)
    assert "openapi.yaml#/servers/0" in found.left_out[0]
    assert "u:p" not in found.left_out[0]


def test_globs_choose_paths() -> None:
    paths = {path: {"get": {}} for path in ("/a", "/a/{x}", "/a/{x}/b", "/c", "/cd")}

    def chosen(**options: Any) -> list[str]:  # fmt: skip
        return [each.path for each in api(paths, options=options).operations]

    assert chosen(include=("/a/**",)) == ["/a", "/a/{x}", "/a/{x}/b"]
    assert chosen(include=("/a/*",)) == ["/a/{x}"]
    assert chosen(exclude=("/a/**", "/c?")) == ["/c"]
    assert chosen(include=("**",), exclude=("**/b",)) == ["/a", "/a/{x}", "/c", "/cd"]


def test_only_urls_of_the_document_are_calls() -> None:
    found = api(
        {
            "/x/{id}": {"get": {"parameters": [query("q")]}},
            "/x/list": {"get": {"parameters": [query("r", required=True)]}},
        }
    )
    assert found.call("https://h/x/7?q=1&q=2").asked == ("q",)
    for url, said in (
        ("https://h/x/7?p=1", "no query parameter p"),
        ("https://h/x/list", "needs the query parameter r"),
        ("https://h/x/7/8", "no operation"),
        ("https://h/x/", "no operation"),
        ("https://h/x/7#f", "no operation"),
        ("https://h/x/a b", "no operation"),
        ("https://other/x/7", "no operation"),
        ("http://h/x/7", "no operation"),
        ("https://h/x/..", "leads out"),
        ("https://h/x/%2e%2e%2fadmin", "leads out"),
        ("https://h/x/" + "7" * 20_000, "too long"),
    ):
        with pytest.raises(NotFound, match=said):
            found.call(url)


def test_the_values_of_required_parameters_are_listed_where_they_are_few() -> None:
    few = query("a", required=True, schema={"enum": [1, 2]})
    flag = query("b", required=True, schema={"type": "boolean"})
    assert list(operation("/x", few, flag, query("c")).resources()) == [
        f"https://h/x?a={a}&b={b}" for a in (1, 2) for b in ("true", "false")
    ]
    many = query("a", required=True, schema={"type": "integer", "enum": list(range(101))})
    assert list(operation("/x", many).resources()) == []
    assert list(operation("/x", query("a", required=True)).resources()) == []
    assert list(operation("/x", query("a", required=True, schema={"default": "d"})).resources()) == ["https://h/x?a=d"]


def server_of(url: Any, at: str, *, has_credentials: bool, variables: Mapping[str, Any] | None = None) -> str:
    """The base of the one operation of a document at `at`, or the reason why it has none."""
    server = {"url": url, "variables": variables or {}}
    value = {"openapi": "3.1.0", "servers": [server], "paths": {"/x": {"get": {"responses": {}}}}}
    found = read(Documents(at, {at: value}, {}).root, ApiOptions(document=at), has_credentials)
    return found.operations[0].base if found.operations else found.left_out[0]


@pytest.mark.parametrize(
    ("at", "url", "base"),
    [
        ("https://h/a/openapi.json", "/v1", "https://h/v1/x"),
        ("https://h/a/openapi.json", "https://H:443/v1", "https://H:443/v1/x"),
        ("https://h/openapi.json", "https://other", None),
        ("https://h/openapi.json", "https://h:444", None),
        ("https://h/openapi.json", "//other/v1", None),
        ("https://h/openapi.json", "http://h", None),
        ("https://h/openapi.json", "https://h.other", None),
        ("http://h/openapi.json", "https://h", None),
        ("file:///tmp/openapi.json", "https://h", None),
    ],
)
def test_credentials_go_to_the_documents_own_server_alone(at: str, url: str, base: str | None) -> None:
    found = server_of(url, at, has_credentials=True)
    assert found == base if base is not None else "the option server" in found


def test_a_document_over_https_names_no_server_without_it() -> None:
    assert server_of("https://other", "https://h/openapi.json", has_credentials=False) == "https://other/x"
    assert "not https" in server_of("http://h", "https://h/openapi.json", has_credentials=False)
    assert "not https" in server_of("http://other", "https://h/openapi.json", has_credentials=False)


def test_variables_of_a_server_are_put_in_once() -> None:
    at = "https://h/openapi.json"
    laugh = {"a": {"default": "{b}" * 80}, "b": {"default": "{a}" * 80}}
    assert "variable without a value" in server_of("https://h/{a}", at, has_credentials=False, variables=laugh)
    long = {"a": {"default": "x" * 256}}
    assert "more than 255 characters" in server_of("https://h/{a}", at, has_credentials=False, variables=long)
    assert "more than 2048 characters" in server_of("https://h/" + "x" * 2048, at, has_credentials=False)


@pytest.mark.parametrize("key", ["Host", "Content-Length", "transfer-encoding", "Connection"])
def test_a_document_names_no_header_that_http_needs(key: str) -> None:
    found = operation("/x", {"name": key, "in": "header", "required": True, "schema": {"enum": ["evil"]}})
    assert found.headers == {}
    schemes = {"k": {"type": "apiKey", "in": "header", "name": key}}
    assert api({}, components={"securitySchemes": schemes}).schemes["k"].kind is None


@pytest.mark.parametrize(
    ("path", "segment"),
    [
        ("/tiles/{z}.{x}.{y}/info", "." * 4000),
        ("/tiles/{z}.{x}.{y}/info", "a." * 2000),
        ("/t/{a}{b}{c}/info", "x" * 4000),
        ("/t/{a}aa{b}aa{c}/info", "a" * 4000),
        ("/t/{a}aa{b}aa{c}aab", "a" * 4000),
    ],
)
def test_urls_are_matched_in_linear_time(path: str, segment: str) -> None:
    """A polynomial of the third degree would take longer than a test may."""
    found = api({path: {"get": {"responses": {}}}})
    for _ in range(100):
        with pytest.raises(NotFound):
            found.call(f"https://h{path.partition('{')[0]}{segment}/nothing")
    made = found.call("https://h" + path.replace("{z}", "1").replace("{x}", "2").replace("{y}", "3.4")
                      .replace("{a}", "b").replace("{b}", "c").replace("{c}", "de"))  # fmt: skip
    assert list(made.values.values()) in (["1", "2", "3.4"], ["b", "c", "de"])


@given(
    st.text(alphabet="ab.-", min_size=1, max_size=8),
    st.sampled_from(["{x}.{y}", "{x}{y}", "a{x}-{y}b", "{x}.{y}-{z}a", "{x}ab{y}", "{x}aa"]),
)
def test_what_a_backtracking_match_finds_is_found(segment: str, path: str) -> None:
    lazy = re.compile(re.sub(r"\\{[a-z]\\}", "([^/?#]+?)", re.escape(path)))
    names = re.findall(r"{(.)}", path)
    expected = lazy.fullmatch(segment)
    try:
        found = api({f"/{path}": {"get": {"responses": {}}}}).call(f"https://h/{segment}")
    except NotFound:
        assert expected is None or any(part in (".", "..") for part in expected.groups())
    else:
        assert expected is not None
        assert dict(zip(names, expected.groups(), strict=True)) == found.values


def test_references_that_multiply_a_document_are_counted() -> None:
    many = [{"name": f"p{number}", "in": "query"} for number in range(400)]
    shared = {"x": {"parameters": many, "get": {"responses": {}}}}
    paths = {f"/{number}": {"$ref": "#/components/pathItems/x"} for number in range(20_000)}
    value = {"openapi": "3.1.0", "paths": paths, "components": {"pathItems": shared}}
    with pytest.raises(TooLarge, match="references lead to more than 20000 places"):
        read(Documents(AT, {AT: value}, {}, most_places=20_000).root, ApiOptions(document=AT))


def test_operations_are_bounded() -> None:
    found = api({f"/{number}": {"get": {"responses": {}}} for number in range(MAX_OPERATIONS + 5)})
    assert len(found.operations) == MAX_OPERATIONS
    assert found.left_out == (f"all after the first {MAX_OPERATIONS}",)
    assert "more than 500 parameters" in left_out("/x", *[query(f"p{number}") for number in range(501)])
    assert "more than 2048 characters" in left_out("/" + "x" * 2048)
    described = operation("/x", description="d" * 100_000, tags=["t"] * 1000)
    assert len(described.description or "") == 16_384
    assert len(described.tags) == 100


def test_a_broken_reference_spoils_no_more_than_what_it_stands_in() -> None:
    broken = {"$ref": "http://[bad"}
    found = api(
        {"/a": {"get": {"responses": {}, "parameters": [broken]}}, "/b": {"get": {"responses": {}}}, "/c": broken},
        components={"securitySchemes": {"k": broken, "l": {"type": "http", "scheme": "basic"}}}, info=broken,
    )  # fmt: skip
    assert [each.path for each in found.operations] == ["/b"]
    assert len(found.left_out) == 2
    assert (found.schemes["k"].kind, found.schemes["l"].kind) == (None, "basic")


ODD: list[Any] = [
    None, True, -1, 1.5, "", "\x00", "//[", "http://[::1", "http://h:99999", "http://h:x", "http://h\n/", "{x",
    "{a}{a}", [], {}, [None], {"": None}, {"$ref": "#/nowhere"}, {"$ref": "//["}, {"$ref": 1}, {"url": "//["},
    "x" * 5000, "é", "http://h/%", 10**400, float("inf"), "http://\u2100/", "http://[v1.x]/",
]  # fmt: skip
WHOLE = {
    "servers": [{"url": "https://o/{v}", "variables": {"v": {"default": "1", "enum": ["1", "2"]}}}],
    "parameters": [
        {"name": "q", "in": "query", "required": True, "schema": {"type": "string", "enum": ["a"], "default": "a"}},
        {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}, "style": "simple"},
    ],
    "get": {
        "operationId": "b",
        "summary": "s",
        "security": [{"k": []}],
        "tags": ["t"],
        "responses": {
            "200": {
                "content": {"application/json": {"schema": {"type": "array", "items": {"type": "object"}}}},
                "links": {"l": {"operationId": "a", "parameters": {"id": "$response.body#/id"}}},
            }
        },
    },
}


@pytest.mark.parametrize("place", list(places(WHOLE)), ids=lambda place: "/".join(map(str, place)))
def test_one_odd_operation_takes_no_other_away(place: tuple[Any, ...], caplog: pytest.LogCaptureFixture) -> None:
    for odd in ODD:
        found = api({"/a": {"get": {"operationId": "a"}}, "/b/{id}": with_part(WHOLE, place, odd)})
        assert found.call("https://h/a").operation.operation_id == "a"
        assert len(found.operations) + len(found.left_out) <= 2
        for operation in found.operations:
            assert len(list(operation.resources())) <= LISTED_AT_MOST
    assert not caplog.records  # each fault was foreseen
