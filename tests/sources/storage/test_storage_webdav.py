"""WebDAV servers that answer otherwise than the real one of the other tests: bounds, redirects, odd entries."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from itertools import chain, count

import pytest
import trio
from hostile_storage import DAV_PAGES, ODD_DAV, dav_entry, dav_page
from http_server import Answers, HttpServer

from bbfs.model.errors import (
    BbfsError,
    Busy,
    Conflict,
    Denied,
    IsADirectory,
    NoSpace,
    NotADirectory,
    NotSupported,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import DataSource, Policy
from bbfs.model.versions import Expected
from bbfs.sources import Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.storage.handler import StorageHandler
from bbfs.testing import read_whole

OWN = dav_entry("/d/", "<resourcetype><collection/></resourcetype>")
Pieces = Callable[[], Iterator[bytes]]


class Dav(HttpServer):
    """A server that answers each method by one status, headers and body, and keeps what it was asked."""

    def __init__(self, answers: Mapping[str, tuple[int, Mapping[str, str], Pieces]]) -> None:
        self.asked: list[tuple[str, str, Mapping[str, str], bytes]] = []
        outer = self

        class Given(Answers):
            protocol_version = "HTTP/1.0"  # a body without a length ends with its connection
            wbufsize = 0

            def answer(self) -> None:
                outer.asked.append((self.command, self.path, dict(self.headers.items()), self.body()))
                status, headers, pieces = answers[self.command]
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(ConnectionError):  # the client has enough
                    self.wfile.writelines(pieces())

        super().__init__(Given)


def listing(*pieces: bytes) -> Mapping[str, tuple[int, Mapping[str, str], Pieces]]:
    return {"PROPFIND": (207, {}, lambda: iter(pieces))}


@asynccontextmanager
async def opened(
    server: Dav, *, auth: Mapping[str, str] | None = None, **config: object
) -> AsyncIterator[StorageHandler]:
    made = DataSource(
        "far", "far", "storage", "bb", "bb-storage+far+webdav",
        policy=Policy(timeout=20), config={"url": f"webdav://{server.host}/d", **config}, auth=dict(auth or {}),
    )  # fmt: skip
    handler = StorageHandler(made, Services())
    with closing(server), trio.fail_after(60):
        try:
            yield handler
        finally:
            await handler.aclose()


async def test_long_facts_of_an_entry_are_left_out() -> None:
    long = "\U0001f600" + "x" * 255
    entry = dav_entry("/d/a.qqq", f"<getetag>{long}</getetag><getcontenttype>a/{long}</getcontenttype>")
    server = Dav(listing(dav_page(OWN, entry)))
    async with opened(server) as handler:
        (found,) = (await handler.list_directory((server.host, "d"))).resources
    assert (found.etag, found.mime_type, found.properties) == (None, None, None)


async def test_a_listing_asks_for_what_it_needs_and_shows_it() -> None:
    file = (
        "<getcontentlength>7</getcontentlength><getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</getlastmodified>"
        '<getetag>"e"</getetag><getcontenttype>text/x-test; charset=utf-8</getcontenttype>'
    )
    failed = "<propstat><prop><getetag>no</getetag></prop><status>HTTP/1.1 404 Not Found</status></propstat>"
    entries = (
        OWN,
        dav_entry("http://other.example/d/%C3%BC%20a", file).replace("</response>", failed + "</response>"),
        dav_entry("/d/sub/", "<resourcetype><collection/></resourcetype>"),
        dav_entry("/d/deep/er"),
    )
    server = Dav(listing(dav_page(*entries).replace(b"multistatus", b"D:multistatus")))
    async with opened(server, auth={"username": "me", "password": "pw"}) as handler:
        found = await handler.list_directory((server.host, "d"))
    assert [(each.name, each.kind) for each in found.resources] == [("\u00fc a", "resource"), ("sub", "directory")]
    one = found.resources[0]
    assert (one.size, one.modified_ns, one.etag) == (7, 784111777 * 10**9, "e")
    assert one.mime_type == "text/x-test; charset=utf-8"
    method, path, headers, body = server.asked[0]
    assert (method, path, headers["depth"], headers["authorization"]) == ("PROPFIND", "/d/", "1", "Basic bWU6cHc=")
    assert b"<getetag/>" in body


@pytest.mark.parametrize("name", DAV_PAGES)
@pytest.mark.semantics("S23")
async def test_a_listing_that_is_none_is_an_error(name: str) -> None:
    server = Dav(listing(DAV_PAGES[name]()))
    async with opened(server) as handler:
        with pytest.raises(ProtocolViolation):
            await handler.list_directory((server.host, "d"))


@pytest.mark.parametrize("name", ODD_DAV)
@pytest.mark.semantics("S3", "S23")
async def test_an_odd_entry_harms_no_other(name: str) -> None:
    server = Dav(listing(dav_page(OWN, ODD_DAV[name], dav_entry("/d/good"))))
    async with opened(server) as handler:
        try:
            found = await handler.list_directory((server.host, "d"))
        except ProtocolViolation:
            return
    assert {each.name for each in found.resources} in ({"a", "good"}, {"good"})
    assert found.resources[0].size in (None, 1)


@pytest.mark.semantics("S25")
async def test_a_listing_that_never_ends_is_cut_and_says_so() -> None:
    numbers = count()

    def names() -> Iterator[bytes]:
        return chain([b"<multistatus>"], (dav_entry(f"/d/{number}").encode() for number in numbers))

    server = Dav({"PROPFIND": (207, {}, names)})
    async with opened(server, list_limit=500) as handler:
        found = await handler.list_directory((server.host, "d"))
    assert len(found.resources) == 500
    assert found.problem is not None
    assert "list_limit" in found.problem


@pytest.mark.parametrize(
    ("first", "error"),
    [(dav_entry("/d/a"), None), ("", TooLarge)],
)
@pytest.mark.semantics("S23", "S25")
async def test_the_bytes_of_a_listing_are_bounded(first: str, error: type[BbfsError] | None) -> None:
    pieces = chain([b"<multistatus>", first.encode()], (b"<response><href/></response>" * 2000 for _ in range(100)))
    server = Dav({"PROPFIND": (207, {}, lambda: pieces)})
    async with opened(server, list_limit=10) as handler:
        if error is not None:
            with pytest.raises(error, match="list_limit"):
                await handler.list_directory((server.host, "d"))
            return
        found = await handler.list_directory((server.host, "d"))
    assert [each.name for each in found.resources] == ["a"]
    assert found.problem is not None


@pytest.mark.parametrize(
    ("answers", "error", "said"),
    [
        ({"PROPFIND": (405, {}, lambda: iter([]))}, ProtocolViolation, "no WebDAV"),
        ({"PROPFIND": (200, {}, lambda: iter([b"<html>"]))}, ProtocolViolation, "no WebDAV"),
        (
            {"PROPFIND": (301, {"location": "https://u:pw@h/d/?x"}, lambda: iter([]))},
            ProtocolViolation,
            "https://h/d/$",
        ),
        (listing(dav_page(dav_entry("/d/"))), NotADirectory, "/d"),
    ],
)
@pytest.mark.semantics("S23")
async def test_what_is_no_collection_says_why(
    answers: Mapping[str, tuple[int, Mapping[str, str], Pieces]], error: type[BbfsError], said: str
) -> None:
    server = Dav(answers)
    async with opened(server) as handler:
        with pytest.raises(error, match=said):
            await handler.list_directory((server.host, "d"))


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (507, {}, NoSpace),
        (413, {}, TooLarge),
        (423, {}, Busy),
        (403, {}, Denied),
        (404, {}, Denied),  # the directory is there
        (405, {"allow": "GET, PROPFIND"}, NotSupported),
        (405, {}, BbfsError),  # Go's package, whatever went wrong
        (409, {}, Denied),
        (412, {}, Conflict),
        (500, {}, Unreachable),
    ],
)
@pytest.mark.semantics("S23", "S32")
async def test_each_refusal_of_a_file_is_told(status: int, headers: Mapping[str, str], error: type[BbfsError]) -> None:
    server = Dav({"PUT": (status, headers, lambda: iter([])), **listing(dav_page(OWN))})
    async with opened(server) as handler:
        with pytest.raises(error) as caught:
            await handler.write(f"webdav://{server.host}/d/a", MemoryContent(b"x"), Expected(exists=False))
    assert type(caught.value) is error


@pytest.mark.parametrize("size", [0, 2])
@pytest.mark.semantics("S32")
async def test_a_file_that_was_stored_in_part_is_an_error(size: int) -> None:
    """Whatever the answer to the PUT says: the program must not take it for saved."""
    stored = dav_entry("/d/a", f"<getcontentlength>{size}</getcontentlength>")
    server = Dav({"PUT": (201, {}, lambda: iter([])), **listing(dav_page(stored))})
    async with opened(server) as handler:
        with pytest.raises(ProtocolViolation, match=f"has {size} bytes of the 4"):
            await handler.write(f"webdav://{server.host}/d/a", MemoryContent(b"1234"), Expected(exists=False))


@pytest.mark.semantics("S32.12")
async def test_a_longer_file_after_a_write_is_that_of_another_program() -> None:
    """A server keeps no more bytes than it is sent: the write is stored, and its version is not known."""
    theirs = dav_entry("/d/a", "<getcontentlength>9</getcontentlength><getetag>&quot;theirs&quot;</getetag>")
    server = Dav({"PUT": (201, {}, lambda: iter([])), **listing(dav_page(theirs))})
    async with opened(server) as handler:
        told = await handler.write(f"webdav://{server.host}/d/a", MemoryContent(b"1234"), Expected(exists=False))
        assert (told.size, told.etag) == (4, None)


@pytest.mark.parametrize(
    "get",
    [
        (200, {"content-type": "text/html", "content-length": "6"}, lambda: iter([b"<html>"])),
        (200, {"content-type": "text/html"}, lambda: iter([b"<html>"])),
        (301, {"location": "/d/"}, lambda: iter([])),
    ],
)
@pytest.mark.semantics("S23")
async def test_a_page_about_a_collection_is_no_file(get: tuple[int, Mapping[str, str], Pieces]) -> None:
    server = Dav({"GET": get, **listing(dav_page(OWN))})
    async with opened(server) as handler:
        with pytest.raises(IsADirectory):
            await handler.load(f"webdav://{server.host}/d")


async def test_a_file_of_html_is_one() -> None:
    html = (200, {"content-type": "text/html", "content-length": "6"}, lambda: iter([b"<html>"]))
    server = Dav({"GET": html, **listing(dav_page(dav_entry("/d/a")))})
    async with opened(server) as handler:
        loaded = await handler.load(f"webdav://{server.host}/d/a")
        assert await read_whole(loaded.parts[0].content) == b"<html>"
