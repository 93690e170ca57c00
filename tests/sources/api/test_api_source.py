"""The handler of REST APIs against a real server with a real document (FastAPI), and a hand-written one."""

import json
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from pets_server import AUTH, PetsServer
from web_site import WebSite

from bbfs.config.interpolation import Interpolated
from bbfs.model.errors import (
    BbfsError,
    Busy,
    ConfigError,
    DeadlineExceeded,
    Denied,
    NotFound,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import Completion, DataSource, Loaded, Policy, Unchanged
from bbfs.sources import Services
from bbfs.sources.api.handler import ApiHandler


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PetsServer]:
    server = PetsServer(tmp_path_factory.mktemp("pets"))
    yield server
    server.stop()


def source(config: Mapping[str, Any], auth: Mapping[str, str] | None = None, **policy: Any) -> DataSource:
    return DataSource(
        "pets", "pets", "api", "bb", "bb-api+pets", policy=Policy(**policy), config=config, auth=auth or {}
    )


@asynccontextmanager
async def handler(
    document: str, auth: Mapping[str, str] | None = None, timeout: float = 10.0, **config: Any
) -> AsyncIterator[ApiHandler]:
    made = ApiHandler(
        source({"document": document, "allow_private": True, **config}, auth, timeout=timeout), Services()
    )
    try:
        with trio.fail_after(30):
            yield made
    finally:
        await made.aclose()


def said(loaded: Loaded) -> Any:
    return json.loads(loaded.parts[0].content.read(0, 1 << 30) or b"")


def properties(loaded: Loaded) -> Mapping[str, Any]:
    assert loaded.metadata is not None
    return loaded.metadata.properties or {}


@pytest.mark.parametrize(
    ("path", "items", "requests"),
    [
        ("/zero", [0, 1, 10, 11, 20, 21], 4),
        ("/one", [10, 20, 30], 5),
        ("/deaf", ["always the same"], 2),
    ],
)
async def test_numbers_are_tried_to_the_end(server: PetsServer, path: str, items: list[Any], requests: int) -> None:
    before = len(server.requests(path))
    async with handler(server.document) as api:
        loaded = await api.load(server.url + path)
    assert said(loaded) == items
    assert "truncated" not in properties(loaded)
    assert len(server.requests(path)) - before == requests


@pytest.mark.parametrize(
    ("path", "items", "why"),
    [
        ("/limited", [1, 2], "refuses the next page: .*422.*only the first 2 pages"),
        ("/circle", ["a", "b", "c"], "read already"),
        ("/echo", [1, 2], "the same again"),
        ("/linked", list(range(1, 11)), "10 pages with 10 items were read .max_pages.; there is more"),
    ],
)
async def test_a_list_that_is_not_whole_says_why(server: PetsServer, path: str, items: Any, why: str) -> None:
    async with handler(server.document) as api:
        loaded = await api.load(server.url + path)
    found = properties(loaded)
    assert loaded.once
    items_of = said(loaded)
    assert (items_of["items"] if isinstance(items_of, dict) else items_of) == items
    assert re.search(why, found["truncated"])
    assert found["error"].endswith(found["truncated"])


async def test_bounds_are_those_of_the_options(server: PetsServer) -> None:
    async with handler(server.document, max_pages=2) as api:
        assert said(await api.load(f"{server.url}/linked")) == [1, 2]
    async with handler(server.document, max_items=12) as api:
        loaded = await api.load(f"{server.url}/pets")
        assert len(said(loaded)) == 20
        assert properties(loaded)["truncated"] == "20 items were read (max_items); there may be more"
    async with handler(server.document, max_pages=1) as api:
        loaded = await api.load(f"{server.url}/orders/")
        assert len(said(loaded)["orders"]) == 4
        assert said(loaded)["meta"]["next_cursor"] == "after-4"
        assert "max_pages" in properties(loaded)["truncated"]


@pytest.mark.parametrize(
    ("path", "error", "why"),
    [("/large", TooLarge, "max_body"), ("/broken", ProtocolViolation, "no array where the first one has")],
)
async def test_an_answer_that_is_no_content(server: PetsServer, path: str, error: type[BbfsError], why: str) -> None:
    async with handler(server.document, max_body="500kB") as api:
        with pytest.raises(error, match=why):
            await api.load(server.url + path)


async def test_values_come_from_where_they_are_configured(server: PetsServer) -> None:
    values = {
        "pet_id": {"path": "/pets", "field": "name"},
        "/kinds/{kind}#kind": ["a b"],
        "code": [404, "500"],
        "photo": {"path": "/nothing"},
    }
    async with handler(server.document, values=values) as api:

        async def complete(path: str, variable: str, value: str = "", **context: str) -> Completion:
            return await api.complete(server.url + path, variable, value, context)

        assert (await complete("/pets/{pet_id}", "pet_id")).values[:2] == ("pet 1", "pet 2")
        assert (await complete("/pets/{pet_id}", "pet_id", "pet 2")).values[:2] == ("pet 2", "pet 20")
        assert await complete("/kinds/{kind}", "kind") == Completion(("a b",))
        assert await complete("/status/{code}", "code", "5") == Completion(("500",))
        assert await complete("/pets/{pet_id}/photos", "pet_id") == Completion()
        with pytest.raises(ProtocolViolation, match="/nothing"):
            await complete("/pets/{pet_id}/photos/{photo}", "photo", pet_id="1")
        assert await complete("/elsewhere{?page}", "page") == Completion()


async def test_values_beyond_the_bounds_are_told(server: PetsServer) -> None:
    async with handler(server.document, max_pages=1) as api:
        found = await api.complete(f"{server.url}/pets/{{pet_id}}", "pet_id", "", {})
        assert (len(found.values), found.more, found.final) == (10, True, True)


@pytest.mark.semantics("S23")
@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/status/404", NotFound),
        ("/status/403", Denied),
        ("/status/400", ProtocolViolation),
        ("/status/500", Unreachable),
        ("/status/504", DeadlineExceeded),
        ("/status/429", Busy),
    ],
)
async def test_statuses_are_errors(server: PetsServer, path: str, error: type[BbfsError]) -> None:
    async with handler(server.document) as api:
        with pytest.raises(error):
            await api.load(server.url + path)
        assert api.state.state == "up"


async def test_an_api_that_does_not_answer_is_down(server: PetsServer, tmp_path: Path) -> None:
    async with handler(server.document, timeout=0.3) as api:
        assert api.state.state == "idle"
        with pytest.raises(DeadlineExceeded):
            await api.load(f"{server.url}/hang")
        assert api.state.state == "down"
        while api.state.state == "down":
            with suppress(DeadlineExceeded):  # the time is short for a busy machine
                await api.load(f"{server.url}/plain")
        assert (api.state.state, api.state.server) == ("up", "Pets")
    async with handler(str(tmp_path / "nothing.yaml")) as api:
        with pytest.raises(Unreachable):
            await api.list()
        assert api.state.state == "down"
        assert "nothing.yaml" in (api.state.reason or "")


@pytest.mark.semantics("S30")
async def test_secrets_are_in_nothing_that_is_told(server: PetsServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    headers = {"X-Tenant": "tenant-s3cret"}
    async with handler(server.document, AUTH, headers=headers, exclude=["/hang", "/large", "/broken"]) as api:
        listing = await api.list()
        told.append(repr(listing))
        for resource in listing.resources:
            try:
                told.append(repr((await api.load(resource.native_uri)).metadata))
            except BbfsError as error:
                told.append(repr(error))
        told += [repr(api.source), repr(api), repr(api.state)]
    said = "\n".join([*told, *caplog.messages])
    assert "the key *** is a teapot" in said
    assert server.requests("/needs-header")[-1]["headers"]["x-tenant"] == "tenant-s3cret"
    secrets = ("tenant-s3cret", AUTH["token"], AUTH["password"], AUTH["apiKey"], "k3y%26of%3Dapi", "YW5uOnBhc3M6dzByZA")
    assert [secret for secret in secrets if secret in said] == []
    document = [each for each in server.requests("/openapi.json") if "x-tenant" in each["headers"]]
    assert document == []  # the document may be another server's


async def test_a_document_by_hand_stands_in_a_file_and_changes(server: PetsServer, tmp_path: Path) -> None:
    document = tmp_path / "petstore.yaml"
    text = f"""
openapi: 3.0.3
info: {{title: Petstore, version: 1.0.0}}
servers: [{{url: "{server.url}"}}]
paths:
  /pets:
    get:
      summary: List all pets
      operationId: listPets
      parameters:
        - {{$ref: "parts.yaml#/limit"}}
      responses: {{"200": {{content: {{application/json: {{}}}}}}}}
  /pets/{{petId}}:
    get:
      operationId: showPetById
      parameters: [{{name: petId, in: path, required: true, schema: {{type: string}}}}]
      responses: {{"200": {{content: {{application/json: {{}}}}}}}}
"""
    document.write_text(text)
    (tmp_path / "parts.yaml").write_text("limit: {name: limit, in: query, schema: {type: integer, format: int32}}")
    async with handler("petstore.yaml") as api:
        with pytest.raises(Unreachable):
            await api.list()
    made = ApiHandler(
        DataSource(
            "p", "p", "api", "bb", "bb-api+p", base=str(tmp_path),
            config={"document": "petstore.yaml", "allow_private": True},
        ),
        Services(),
    )  # fmt: skip
    listing = await made.list()
    assert listing.problem is None
    assert [each.native_uri for each in listing.resources] == [f"{server.url}/pets"]
    assert [each.uri_template for each in listing.templates] == [
        f"{server.url}/pets{{?limit}}",
        f"{server.url}/pets/{{petId}}",
    ]
    assert (listing.resources[0].title, listing.resources[0].mime_type) == ("List all pets", "application/json")
    found = await made.complete(f"{server.url}/pets/{{petId}}", "petId", "", {})
    assert found.values[:2] == ("pet 1", "pet 2")  # texts, as the document wants
    document.write_text(text.replace("/pets/{petId}", "/kinds/{petId}"))
    assert next(each.uri_template for each in (await made.list()).templates) == f"{server.url}/kinds/{{petId}}"
    document.write_text("openapi: 3.0.3\npaths:\n  - none")
    with pytest.raises(ProtocolViolation, match=r"petstore\.yaml#/paths: no object"):
        await made.list()
    assert said(await made.load(f"{server.url}/kinds/cat")) == "cat"  # by the last one that could be read
    await made.aclose()


def document_of(site: WebSite, directory: Path, paths: Mapping[str, Any], **more: Any) -> str:
    """Write a document of an API at a web site. Return its path."""
    document = directory / "api.json"
    document.write_text(json.dumps({"openapi": "3.1.0", "servers": [{"url": site.url}], "paths": paths, **more}))
    return str(document)


async def test_a_key_is_sent_to_no_other_server(site: WebSite, tmp_path: Path) -> None:
    schemes = {"k": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    paths = {"/redirect-to": {"get": {"security": [{"k": []}], "parameters": [{"name": "url", "in": "query"}]}}}
    document = document_of(site, tmp_path, paths, components={"securitySchemes": schemes})
    secrets: dict[str, Any] = {"auth": {"apiKey": "s3cret-key"}, "headers": {"X-Other": "s3cret-too"}}
    async with handler(document, **secrets) as api:
        listing = await api.list()
        assert listing.resources == ()
        assert "another server than the document's" in (listing.problem or "")
    assert site.requests() == []
    async with handler(document, **secrets, server=site.url) as api:
        with pytest.raises(BbfsError):
            await api.load(f"{site.url}/redirect-to?url=http://127.0.0.2:1/")
    asked = site.await_requests("/redirect-to?url=http://127.0.0.2:1/", 1)
    assert asked[0]["headers"]["x-key"] == "s3cret-key"
    assert asked[0]["headers"]["x-other"] == "s3cret-too"


@pytest.mark.parametrize(
    ("config", "auth", "said"),
    [
        ({}, {}, "config.document: this option is required"),
        ({"document": "ftp://h/x"}, {}, "config.document"),
        ({"document": "https://u:pw@h/x"}, {}, "document_headers"),
        ({"document": "x", "servr": "y"}, {}, "did you mean 'server'"),
        ({"document": "x", "server": "h/x"}, {}, "config.server: should be an http or https URL"),
        ({"document": "http://[x]/openapi.json"}, {}, "config.document: "),
        ({"document": "x", "headers": {"A b": "c"}}, {}, "no name of a header"),
        ({"document": "x", "headers": {"A": "s3cr\net"}}, {}, "the value of A cannot be sent"),
        ({"document": "x", "max_pages": 0}, {}, "config.max_pages"),
        ({"document": "x", "max_body": "much"}, {}, "config.max_body"),
        ({"document": "x", "proxy": "socks5://h"}, {}, "URL of a proxy"),
        ({"document": "x"}, {"token": ""}, "auth.token: is empty"),
    ],
)
async def test_options_that_cannot_be_used_are_refused(config: dict[str, Any], auth: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ApiHandler(source(config, auth), Services())
    assert said in str(caught.value)
    assert "pw" not in str(caught.value)
    assert "s3cr" not in str(caught.value)


@pytest.mark.semantics("S17")
async def test_the_time_to_live_of_an_answer_is_the_servers(site: WebSite, tmp_path: Path) -> None:
    document = document_of(site, tmp_path, {f"/files/{name}": {"get": {}} for name in ("a", "b", "c")})
    site.write("a", "x", cache_control="max-age=60")
    site.write("b", "x", cache_control="no-store")
    site.write("c", "x", content_type="text/plain; charset=ISO-8859-1", etag='W/"1"')
    async with handler(document) as api:
        a, b, c = [await api.load(f"{site.url}/files/{name}") for name in "abc"]
    assert (a.ttl, a.once) == (60, False)
    assert b.once
    assert (c.ttl, c.once, properties(c)["charset"]) == (None, False, "iso-8859-1")
    assert a.metadata is not None
    assert a.metadata.etag is not None
    assert c.metadata is not None
    assert (c.metadata.etag, c.metadata.mime_type, c.metadata.content_type) == (None, "text/plain", "text")


async def test_the_api_is_asked_whether_something_has_changed(site: WebSite, tmp_path: Path) -> None:
    paths = {
        "/files/one.json": {"get": {}},
        "/files/list.json": {"get": {"parameters": [{"name": "page", "in": "query"}]}},
    }
    document = document_of(site, tmp_path, paths)
    site.write("one.json", "{}", content_type="application/json", cache_control="max-age=7")
    site.write("list.json", "[1]", content_type="application/json")
    one, several = f"{site.url}/files/one.json", f"{site.url}/files/list.json"
    async with handler(document) as api:
        version = (await api.load(one)).parts[0].content.version
        assert await api.load_if_changed(one, version) == Unchanged(7)
        assert isinstance(await api.load_if_changed(one, "another"), Loaded)
        site.write("one.json", "[]")
        changed = await api.load_if_changed(one, version)
        assert isinstance(changed, Loaded)
        assert said(changed) == []
        version = (await api.load(several)).parts[0].content.version
        assert isinstance(await api.load_if_changed(several, version), Loaded)  # there may be a second page now


async def test_a_cookie_of_the_configuration_stays_beside_that_of_a_scheme(server: PetsServer) -> None:
    async with handler(server.document, AUTH, headers={"cookie": "theme=dark"}) as api:
        assert said(await api.load(f"{server.url}/secure/cookie")) == "cookie"
    assert server.requests("/secure/cookie")[-1]["headers"]["cookie"] == "theme=dark; session=k3y&of=api"


@pytest.mark.semantics("S30")
async def test_a_reference_does_not_become_a_path() -> None:
    def reference(text: str) -> str:
        return Interpolated.of(text, text, ["hush"])

    for config in (
        {"document": reference("https://hush.example.com/api.json")},
        {"document": "a.json", "server": reference("https://h/hush")},
        {"document": "a.json", "server_variables": {"tenant": reference("hush")}},
        {"document": "a.json", "serverVariables": {"tenant": reference("hush")}},
    ):
        with pytest.raises(ConfigError, match="belongs in auth or headers") as caught:
            ApiHandler(source(config), Services())
        assert "hush" not in str(caught.value)
    ApiHandler(source({"document": reference("https://h/api.json?key=hush")}), Services())
    ApiHandler(source({"document": reference("/srv/hush/api.json")}), Services())


async def test_private_addresses_are_refused_unless_they_are_allowed(server: PetsServer) -> None:
    async with handler(server.document, allow_private=False) as api:
        with pytest.raises(Denied, match="allow_private"):
            await api.list()


LISTS = {
    "values": b"[" + b"[]," * 1_000_000 + b"1]",
    "depth": b"[" * 10_000 + b"]" * 10_000,
    "bytes": b"[" + b" " * (17 << 20) + b"]",
    "numbers": b'{"next": ' + b"9" * 5000 + b', "items": [1]}',
    "members": b"{" + b",".join(b'"next%d":1' % number for number in range(100_000)) + b',"items":[1]}',
    "url": b'{"next": "/' + b"x" * 1_000_000 + b'", "items": [1]}',
    "cursor": b'{"next_cursor": "' + b"x" * 1_000_000 + b'", "items": [1]}',
}


@pytest.mark.parametrize("name", LISTS)
async def test_an_answer_that_is_no_list_to_read_is_the_content_itself(
    site: WebSite, tmp_path: Path, name: str
) -> None:
    """Whatever is in it, its bytes are served, and where there may be more pages, the file says so."""
    get = {"get": {"parameters": [{"name": "cursor", "in": "query"}], "responses": {}}}
    document = document_of(site, tmp_path, {"/files/list": get})
    site.write("list", LISTS[name], content_type="application/json")
    async with handler(document) as api:
        loaded = await api.load(f"{site.url}/files/list")
        assert loaded.parts[0].content.read(0, 1 << 30) == LISTS[name]
        assert ("truncated" in properties(loaded)) == (name not in ("numbers", "members"))
