"""The search of an API by one of its operations."""

import json
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from web_site import WebSite

from bbfs.model.errors import ConfigError, NotSupported, ProtocolViolation
from bbfs.model.values import DataSource
from bbfs.sources import Services
from bbfs.sources.api.handler import ApiHandler

QUERY = [{"name": "q", "in": "query", "required": True}, {"name": "per_page", "in": "query"}]
PATHS = {
    "/files/search": {"get": {"parameters": [*QUERY, {"name": "kind", "in": "query"}]}},
    "/files/other": {"get": {"parameters": [{"name": "words", "in": "query"}]}},
    "/files/plain": {"get": {"parameters": QUERY}},
    "/files/strange": {"get": {"parameters": QUERY}},
    "/pets/{petId}": {"get": {"parameters": [{"name": "petId", "in": "path", "schema": {"type": "integer"}}]}},
    "/shops/{shop}/pets/{petId}": {"get": {}},
}
ITEMS = [
    {"id": 7, "name": "Rex", "description": "A dog\u001b[31m that\nbarks.", "score": 2.5, "url": "/pets/7"},
    {"id": 8, "title": "Tom", "links": {"self": "../pets/8"}, "score": 1},
    {"id": 7, "url": "/pets/7"},
    {"id": "../x", "url": "https://elsewhere.example.com/pets/9", "links": []},
    "no object",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSite]:
    site = WebSite(tmp_path_factory.mktemp("site"))
    for name, answer in {"search": {"total": 5, "items": ITEMS}, "other": [], "plain": {"a": 1}}.items():
        site.write(name, json.dumps(answer), content_type="application/json")
    yield site
    site.stop()


@asynccontextmanager
async def api(site: WebSite, directory: Path, search: Mapping[str, Any] | None, **config: Any) -> AsyncIterator[Any]:
    document = directory / "api.json"
    document.write_text(json.dumps({"openapi": "3.1.0", "servers": [{"url": site.url}], "paths": PATHS}))
    given = {"document": str(document), "allow_private": True, **({} if search is None else {"search": search})}
    made = ApiHandler(DataSource("pets", "pets", "api", "bb", "bb-api+pets", config={**given, **config}), Services())
    try:
        with trio.fail_after(30):
            yield made
    finally:
        await made.aclose()


async def test_hits_are_resources_of_the_api(site: WebSite, tmp_path: Path) -> None:
    async with api(site, tmp_path, {"operation": "/files/search", "arguments": {"kind": "dog&x"}}) as made:
        assert made.searches
        [hit] = await made.search(" a  dog &kind=cat", 20)
        assert site.await_requests("/files/search?q=a%20dog%20%26kind%3Dcat&per_page=20&kind=dog%26x", 1)
        assert hit.native_uri == f"{site.url}/pets/7"
        assert (hit.title, hit.snippet, hit.score) == ("Rex", "A dog [31m that barks.", 2.5)
        assert await made.search("  ", 20) == ()
    async with api(site, tmp_path, {"operation": "/files/search", "uri": "links.self", "limit": "per_page"}) as made:
        assert [hit.native_uri for hit in await made.search("x", 20)] == [f"{site.url}/pets/8"]


async def test_a_resource_may_be_given_by_its_key(site: WebSite, tmp_path: Path) -> None:
    async with api(site, tmp_path, {"operation": "/files/search", "resource": "/pets/{petId}"}) as made:
        hits = await made.search("dog", 20)
        assert [hit.native_uri for hit in hits] == [f"{site.url}/pets/7", f"{site.url}/pets/8"]
        assert len(await made.search("dog", 1)) == 1, "the API may ignore the limit"


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"operation": "/nothing"}, "search.operation: the document has no GET /nothing"),
        ({"operation": "/files/other"}, "takes no query of a usual name"),
        ({"operation": "/files/search", "query": "kind"}, "needs the query parameter q"),
        ({"operation": "/files/search", "arguments": {"none": 1}}, "has no parameter none"),
        ({"operation": "/files/search", "resource": "/nothing"}, "search.resource: the document has no GET /nothing"),
        ({"operation": "/files/search", "uri": "name"}, "no item of GET /files/search leads to another operation"),
        ({"operation": "/files/search", "resource": "/shops/{shop}/pets/{petId}"}, "no item of GET /files/search"),
    ],
)
async def test_an_option_that_does_not_fit_the_document_says_so(
    site: WebSite, tmp_path: Path, option: dict[str, Any], says: str
) -> None:
    async with api(site, tmp_path, option) as made:
        with pytest.raises(NotSupported, match=says):
            await made.search("dog", 10)


async def test_an_answer_without_hits_or_without_a_list(site: WebSite, tmp_path: Path) -> None:
    async with api(site, tmp_path, {"operation": "/files/other", "query": "words"}) as made:
        assert list(await made.search("dog", 10)) == []
    async with api(site, tmp_path, {"operation": "/files/plain"}) as made:
        with pytest.raises(ProtocolViolation, match="answers no list of hits"):
            await made.search("dog", 10)
    async with api(site, tmp_path, None) as made:
        assert not made.searches
        assert made.proposed_search is None, "nothing is asked for it"
        await made.list()
        assert tomllib.loads(made.proposed_search or "") == {"search": {"operation": "/files/search", "query": "q"}}
        with pytest.raises(NotSupported):
            await made.search("dog", 10)
    with pytest.raises(ConfigError, match="search"):
        async with api(site, tmp_path, {"query": "q"}):
            pass


STRANGE = [
    "http://[", "\ud800", "x" * 20_000, "/pets/" + "7" * 5000, 5, None, {"a": 1}, [], "", "?q=1", "//[::1",
    "javascript:1", "/pets/%00", "/pets/..", "/pets/7#fragment", "/pets/7?x=1", "/pets/7/", "/pets/a/b", "/pets/7\n", "file:///etc/passwd",
]  # fmt: skip


async def test_strange_urls_are_no_hits(site: WebSite, tmp_path: Path) -> None:
    items = [{"url": url, "id": url, "name": url, "score": 10**400} for url in STRANGE]
    site.write("strange", json.dumps({"items": [*items, {"url": "/pets/9", "id": 9}]}), content_type="application/json")
    async with api(site, tmp_path, {"operation": "/files/strange", "query": "q"}) as made:
        found = [hit.native_uri for hit in await made.search("dog", 100)]
        assert found == [f"{site.url}/pets/{each}" for each in ("%00", "7", "9")]
    async with api(site, tmp_path, {"operation": "/files/strange", "resource": "/pets/{petId}"}) as made:
        for hit in await made.search("dog", 100):
            assert hit.native_uri.startswith(f"{site.url}/pets/")
            assert "/" not in hit.native_uri.removeprefix(f"{site.url}/pets/")
