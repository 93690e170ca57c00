"""Web pages from a real server: what is listed, how it loads, what is asked of whom, and what goes wrong."""

import gzip
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from web_site import WebSite

from bbfs.model.errors import (
    BbfsError,
    Busy,
    DeadlineExceeded,
    Denied,
    LoginRequired,
    NotFound,
    NotSupported,
    Outdated,
    ProtocolViolation,
    TooLarge,
    Unreachable,
)
from bbfs.model.values import Content, DataSource, Loaded, Policy, Unchanged
from bbfs.sources import Services
from bbfs.sources.bounded.workers import WorkerPool
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.ranges import BLOCK, RangedContent
from bbfs.sources.content.spool import Spool
from bbfs.sources.url.handler import UrlHandler
from bbfs.testing import read_whole

Make = Callable[..., UrlHandler]
BYTES = {"content_type": "application/octet-stream", "accept_ranges": "bytes"}


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes handlers, which are closed in the end: `make(urls=[…], auth={…}, timeout=…)`."""
    async with AsyncExitStack() as stack:

        def made(
            *, auth: dict[str, str] | None = None, timeout: float = 10, spool: Any = Spool, **config: Any
        ) -> UrlHandler:
            given = {"allow_private": True, **config}
            policy = Policy(timeout=timeout)
            source = DataSource("web", "web", "url", "bb", "bb-url+web", config=given, auth=auth or {}, policy=policy)
            handler = UrlHandler(source, Services(spool=spool))
            stack.push_async_callback(handler.aclose)
            return handler

        yield made


async def data_of(loaded: Loaded | Unchanged) -> bytes:
    assert isinstance(loaded, Loaded)
    return await read_whole(loaded.parts[0].content)


def content_of(loaded: Loaded | Unchanged) -> Content:
    assert isinstance(loaded, Loaded)
    return loaded.parts[0].content


async def listed(handler: UrlHandler) -> list[str]:
    return [entry.native_uri for entry in (await handler.list()).resources]


async def test_a_list_of_urls_asks_for_nothing(site: WebSite, make: Make) -> None:
    urls = [f"{site.url}/b/", f"{site.url}/a.html#part", f"{site.url}/a.html"]
    entries = (await make(urls=urls).list()).resources
    assert [(entry.native_uri, entry.mime_type) for entry in entries] == [
        (f"{site.url}/b/", "text/html"),
        (f"{site.url}/a.html", None),
    ]
    assert site.requests() == []


async def test_the_pages_of_an_llms_txt(site: WebSite, make: Make, tmp_path: Path) -> None:
    text = f"# T\n- [A page](a.html): Its words\n- [Mail](mailto:x@h)\n- [Again]({site.url}/a.html)\n"
    url = site.write("docs/llms.txt", text)
    listing = await make(llms_txt=url).list()
    assert [(entry.native_uri, entry.title, entry.description) for entry in listing.resources] == [
        (url, None, None),
        (f"{site.url}/docs/a.html", "A page", "Its words"),
        (f"{site.url}/a.html", "Again", None),
    ]
    assert listing.problem == "llms.txt: 1 links are no web addresses"
    local = tmp_path / "llms.txt"
    local.write_text(f"- [A page]({site.url}/x)\n- [Relative](y)\n")
    listing = await make(llms_txt=str(local)).list()
    assert [entry.native_uri for entry in listing.resources] == [f"{site.url}/x"]
    assert listing.problem == "llms.txt: 1 links are no web addresses"
    local.unlink()
    with pytest.raises(Unreachable, match="there is no such file"):
        await make(llms_txt=str(local)).list()


@pytest.mark.semantics("S22")
async def test_a_pipe_in_the_place_of_an_llms_txt_is_not_waited_for(make: Make, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "llms.txt")
    with trio.fail_after(60), pytest.raises(ProtocolViolation, match="no regular file"):
        await make(llms_txt=str(tmp_path / "llms.txt")).list()


def sitemap(*urls: str, index: bool = False) -> str:
    outer, inner = ("sitemapindex", "sitemap") if index else ("urlset", "url")
    return f"<{outer}>{''.join(f'<{inner}><loc>{url}</loc></{inner}>' for url in urls)}</{outer}>"


async def test_an_index_of_sitemaps(site: WebSite, make: Make) -> None:
    pages = [f"{site.url}/{name}" for name in "abcd"]
    packed = site.write("2.xml.gz", gzip.compress(sitemap(pages[1], pages[2]).encode()))
    html = site.write("3.xml", "<html>not found</html>")
    text = site.write("4.txt", f"{pages[3]}\nhttp://user:pw@h/\n")
    index = f"{site.url}/index.xml"
    first = site.write("1.xml", sitemap(pages[0], pages[1]))
    below = [first, packed, html, f"{site.url}/missing.xml", text, index, "ftp://h/x.xml"]
    site.write("index.xml", sitemap(*below, index=True))
    listing = await make(sitemap=index, urls=[pages[3]]).list()
    assert [entry.native_uri for entry in listing.resources] == [pages[3], pages[0], pages[1], pages[2]]
    assert listing.problem is not None
    for part in ("1 entries are no web addresses", "3.xml: is no sitemap", "missing.xml: HTTP 404", "ftp://h/x.xml"):
        assert part in listing.problem


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'<!DOCTYPE x [<!ENTITY a "' + b"x" * 1000 + b'">]><urlset>&a;</urlset>', ProtocolViolation),
        (b"<html/>", ProtocolViolation),
        (gzip.compress(b"<urlset>", mtime=0)[:-9], ProtocolViolation),
        (lambda: gzip.compress(b"<urlset>" + b" " * (65 << 20)), ProtocolViolation),
        (lambda: gzip.compress(b"<urlset>" + b"".join(b"%x" % 7**n * 200 for n in range(500, 1200)), 1), TooLarge),
        (None, Unreachable),
    ],
)
async def test_a_sitemap_that_cannot_be_used(
    site: WebSite, make: Make, content: bytes | Callable[[], bytes] | None, error: type[BbfsError]
) -> None:
    if content is not None:
        site.write("sitemap.xml", content() if callable(content) else content)
    with pytest.raises(error):
        await make(sitemap=f"{site.url}/sitemap.xml").list()


async def test_an_outage_of_a_part_is_one_of_the_listing(site: WebSite, make: Make) -> None:
    """A page must not vanish because a server is down."""
    url = site.write("index.xml", sitemap(f"{site.url}/status/503", index=True))
    with pytest.raises(Unreachable):
        await make(sitemap=url, urls=[f"{site.url}/a"]).list()


async def test_more_pages_than_there_may_be(site: WebSite, make: Make) -> None:
    url = site.write("sitemap.xml", sitemap(*(f"{site.url}/{number}" for number in range(30))))
    listing = await make(sitemap=url, max_urls=10).list()
    assert len(listing.resources) == 10
    assert listing.problem is not None
    assert "more than 10 URLs (option max_urls)" in listing.problem


async def test_nothing_but_what_is_listed_is_asked_for(site: WebSite, make: Make) -> None:
    site.write("private", "x")
    named = make(urls=[f"{site.url}/a"])
    with pytest.raises(NotFound):
        await named.load(f"{site.url}/private")
    found = make(sitemap=site.write("sitemap.xml", sitemap(site.write("b", "b"))))
    with pytest.raises(NotFound):
        await found.load(f"{site.url}/private")
    assert await data_of(await found.load(f"{site.url}/b")) == b"b"
    assert not site.requests("/private")


async def test_what_a_load_says(site: WebSite, make: Make) -> None:
    url = site.write("a", "h\u00e9".encode("latin-1"), content_type="text/HTML; charset=ISO-8859-1", etag='W/"1"')
    os.utime(site.root / "a", (1_000_000_000, 1_000_000_000))
    loaded = await make(urls=[url]).load(url)
    assert await data_of(loaded) == b"h\xe9"
    metadata, part = loaded.metadata, loaded.parts[0]
    assert metadata is not None
    assert (part.mime_type, part.content_type, metadata.modified_ns) == ("text/html", "text", 10**18)
    assert metadata.etag is None
    assert metadata.properties == {"charset": "iso-8859-1", "etag_weak": 'W/"1"'}
    assert not loaded.once
    url = site.write("b.json", "{}", content_type=None, cache_control="no-store, max-age=9")
    loaded = await make(urls=[url]).load(url)
    assert (loaded.parts[0].mime_type, loaded.ttl, loaded.once) == ("application/json", 5, True)


async def test_bodies_are_asked_for_as_they_are(site: WebSite, make: Make) -> None:
    url = site.write("a", "x")
    plain, coded = make(urls=[url]), make(urls=[f"{site.url}/coded/gzip"])
    assert await data_of(await plain.load(url)) == b"x"
    assert site.await_requests("/a", 1)[0]["headers"]["accept-encoding"] == "identity"
    loaded = await coded.load(f"{site.url}/coded/gzip")
    assert content_of(loaded).size == 7000
    assert await data_of(loaded) == b"hello, " * 1000


async def test_a_page_elsewhere(site: WebSite, make: Make) -> None:
    url = f"{site.url}/to?url=/echo%3Fsignature%3Dsecret"
    loaded = await make(urls=[url]).load(url)
    assert loaded.metadata is not None
    assert loaded.metadata.properties == {"final_url": f"{site.url}/echo"}


async def test_what_has_not_changed_is_not_sent_again(site: WebSite, make: Make) -> None:
    urls = [
        site.write("tag", "one"),
        site.write("weak", "one", etag='W/"1"'),
        site.write("time", "one", etag=None),
        site.write("none", "one", etag=None, last_modified=None),
    ]
    handler = make(urls=urls)
    for url in urls:
        path = url.removeprefix(site.url)
        content = content_of(await handler.load(url))
        again = await handler.load_if_changed(url, content.version)
        if path == "/none":
            assert await data_of(again) == b"one"
            continue
        assert again == Unchanged(), url
        assert [each["sent"] for each in site.await_requests(path, 2)] == [3, 0]
        assert await data_of(await handler.load_if_changed(url, "another version")) == b"one"
    site.write("tag", "two")
    version = content_of(await handler.load(urls[0])).version
    site.write("tag", "three", cache_control="max-age=77")
    changed = await handler.load_if_changed(urls[0], version)
    assert await data_of(changed) == b"three"
    assert await handler.load_if_changed(urls[0], content_of(changed).version) == Unchanged(77.0)


async def test_a_large_body_without_ranges_goes_through_the_spool(site: WebSite, make: Make, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    urls = [site.write("no-ranges", data), site.write("weak", data, accept_ranges="bytes", etag='W/"1"')]
    handler = make(urls=urls, spool=lambda: Spool(tmp_path, 1 << 30, "[cache] disk"))
    for url in urls:
        loaded = await handler.load(url)
        assert isinstance(content_of(loaded), StoredContent)
        assert await data_of(loaded) == data
    narrow = make(urls=urls, spool=lambda: Spool(tmp_path, 2_000_000, "[cache] disk"))
    with pytest.raises(TooLarge, match=r"2000000 bytes \(\[cache\] disk\)"):
        await narrow.load(urls[0])
    small = make(urls=urls, max_body=1_000_000)
    with pytest.raises(TooLarge, match="option max_body"):
        await small.load(urls[0])


def ranges(site: WebSite, path: str, number: int) -> list[str | None]:
    """What was asked for, once there are so many requests."""
    return [each["headers"].get("range") for each in site.await_requests(path, number)]


@pytest.mark.semantics("S15")
async def test_a_large_body_is_read_in_ranges(site: WebSite, make: Make) -> None:
    data = os.urandom(5 * BLOCK + 123)
    url = site.write("large", data, **BYTES)
    handler = make(urls=[url], max_body=10)
    content = content_of(await handler.load(url))
    assert isinstance(content, RangedContent)
    assert content.size == len(data)
    assert content.read(0, 100) == data[:100]
    assert content.read(BLOCK, 100) is None
    assert await content.read_waiting(len(data) - 50, 100) == data[-50:]
    assert content.read(len(data) - 50, 100) == data[-50:]
    assert await content.read_waiting(BLOCK - 10, BLOCK + 20) == data[BLOCK - 10 : 2 * BLOCK + 10]
    assert ranges(site, "/large", 4) == [
        None,
        f"bytes={5 * BLOCK}-{len(data) - 1}",
        f"bytes={BLOCK}-{2 * BLOCK - 1}",
        f"bytes={2 * BLOCK}-{4 * BLOCK - 1}",
    ]
    again = content_of(await handler.load(url))
    assert (again.version, again.size, ranges(site, "/large", 5)[-1]) == (
        *(content.version, content.size, f"bytes=0-{BLOCK - 1}"),
    )
    assert site.requests("/large")[-1]["sent"] == 0
    assert await read_whole(again, 131072) == data


async def test_a_range_that_many_want_is_asked_for_once(site: WebSite, make: Make) -> None:
    data = os.urandom(3 * BLOCK)
    url = site.write("large", data, **BYTES)
    content = content_of(await make(urls=[url]).load(url))
    async with trio.open_nursery() as nursery:
        for offset in range(2 * BLOCK, 3 * BLOCK, BLOCK // 8):
            nursery.start_soon(content.read_waiting, offset, 1000)
    assert ranges(site, "/large", 2) == [None, f"bytes={2 * BLOCK}-{3 * BLOCK - 1}"]


@pytest.mark.semantics("S13")
@pytest.mark.parametrize("validator", ["etag", "last_modified"])
async def test_no_two_versions_are_mixed(site: WebSite, make: Make, validator: str) -> None:
    given = {**BYTES, "etag": None} if validator == "last_modified" else BYTES
    url = site.write("large", b"a" * (3 * BLOCK), **given)
    os.utime(site.root / "large", (1_000_000_000, 1_000_000_000))
    handler = make(urls=[url])
    content = content_of(await handler.load(url))
    assert isinstance(content, RangedContent)
    site.write("large", b"b" * (3 * BLOCK), **given)
    for _ in range(2):
        with pytest.raises(Outdated):
            await content.read_waiting(BLOCK, 10)
    asked = len(site.await_requests("/large", 2))
    with pytest.raises(Outdated):
        await content.read_waiting(2 * BLOCK, 10)
    assert len(site.requests("/large")) == asked
    assert content.read(0, 3) == b"aaa"
    os.utime(site.root / "large", (1_000_000_100, 1_000_000_100))
    new = content_of(await handler.load(url))
    assert new.version != content.version
    assert await new.read_waiting(BLOCK, 3) == b"bbb"


async def test_a_large_body_that_becomes_small(site: WebSite, make: Make) -> None:
    url = site.write("page", b"a" * (3 * BLOCK), **BYTES)
    handler = make(urls=[url])
    content = content_of(await handler.load(url))
    for data in (b"small", b""):
        site.write("page", data, **BYTES)
        assert await data_of(await handler.load(url)) == data
    with pytest.raises(Outdated):
        await content.read_waiting(BLOCK, 10)
    (site.root / "page").unlink()
    again = make(urls=[url])
    with pytest.raises(NotFound):
        await again.load(url)


@pytest.mark.semantics("S22")
async def test_a_range_that_does_not_come(site: WebSite, make: Make) -> None:
    url = site.write("large", os.urandom(3 * BLOCK), **BYTES)
    content = content_of(await make(urls=[url], timeout=2).load(url))
    site.stall()
    with trio.fail_after(30):  # the first waits for two seconds, and the others for nothing
        for number in range(30):
            with pytest.raises(DeadlineExceeded):
                await content.read_waiting((1 + number % 2) * BLOCK, 10)
    assert content.read(0, 10) is not None
    site.go_on()


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("wrong-range", ProtocolViolation),
        ("short-range", ProtocolViolation),
        ("other-size", Outdated),
        ("no-if-range", Outdated),
    ],
)
async def test_a_server_that_answers_other_ranges(site: WebSite, make: Make, path: str, error: type[BbfsError]) -> None:
    url = f"{site.url}/odd-ranges/{path}"
    content = content_of(await make(urls=[url]).load(url))
    assert isinstance(content, RangedContent)
    with pytest.raises(error):
        await content.read_waiting(BLOCK, 10)


async def test_renderings(site: WebSite, make: Make) -> None:
    page = site.write("a.html", "<h1>Title</h1><p>x<br>", content_type="text/html")
    text = site.write("notes", "# plain", content_type="text/plain")
    image = site.write("image", b"\x89PNG", content_type="image/png")
    handler = make(urls=[page, text, image, f"{site.url}/b.pdf"], markdown=True)
    assert await listed(handler) == [
        *(page, f"{page}.md", text, f"{text}.md", image, f"{image}.md", f"{site.url}/b.pdf")
    ]
    rendered = await handler.load(f"{page}.md")
    assert await data_of(rendered) == b"# Title\n\nx\n"
    assert rendered.parts[0].mime_type == "text/markdown"
    assert rendered.metadata is not None
    assert rendered.metadata.properties == {"charset": "utf-8", "rendered_from": page}
    assert await data_of(await handler.load(page)) == b"<h1>Title</h1><p>x<br>"
    assert await data_of(await handler.load(f"{text}.md")) == b"# plain"
    with pytest.raises(NotSupported, match="image/png, which has no Markdown"):
        await handler.load(f"{image}.md")
    assert await handler.load_if_changed(f"{page}.md", content_of(rendered).version) == Unchanged()
    assert await data_of(await handler.load_if_changed(f"{page}.md", content_of(await handler.load(page)).version))


async def test_a_page_that_renders_long_fails_alone(site: WebSite, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = WorkerPool.run.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "seconds", 0.2)  # a hundredth of what the page takes
    page = site.write("a.html", '<a b="' * 200_000, content_type="text/html")
    large = site.write("b.html", "<p>" + "x" * 5000, content_type="text/html")
    small = site.write("c.html", "<p>text", content_type="text/html")
    handler = make(urls=[page, large, small], markdown=True, maxMarkdown=4 << 20)
    with pytest.raises(TooLarge, match=r"a\.html: takes more than 0.2 s of CPU time to read"):
        await handler.load(f"{page}.md")
    monkeypatch.setitem(defaults, "seconds", 100)
    assert await data_of(await handler.load(f"{small}.md")) == b"text\n"
    handler = make(urls=[large], markdown=True, maxMarkdown="4KiB")
    with pytest.raises(TooLarge, match=r"more than 4096 bytes \(option max_markdown\)"):
        await handler.load(f"{large}.md")


ROBOTS = "User-agent: *\nDisallow: /closed\nAllow: /closed/but*open$\n\nUser-agent: other\nDisallow: /\n"


async def test_what_was_found_is_asked_for_as_its_site_allows(site: WebSite, make: Make) -> None:
    site.write("robots.txt", ROBOTS)
    pages = [site.write(path, path) for path in ("open", "closed/a", "closed/but-open", "closed/named")]
    url = site.write("sitemap.xml", sitemap(*pages))
    handler = make(sitemap=url, urls=[pages[3]])
    for allowed in (pages[0], pages[2], pages[3]):
        assert await data_of(await handler.load(allowed))
    with pytest.raises(Denied, match=r"robots\.txt asks to leave it alone"):
        await handler.load(pages[1])
    assert not site.requests("/closed/a")
    assert len(site.requests("/robots.txt")) == 1
    assert await data_of(await make(sitemap=url, robots=False).load(pages[1]))
    other = make(sitemap=url, user_agent="Other/2.0 (x)")
    with pytest.raises(Denied):
        await other.load(pages[0])
    assert site.await_requests("/robots.txt", 2)[-1]["headers"]["user-agent"] == "Other/2.0 (x)"


async def test_pages_that_are_named_need_no_robots_txt(site: WebSite, make: Make) -> None:
    site.write("robots.txt", "User-agent: *\nDisallow: /\n")
    url = site.write("a", "x")
    assert await data_of(await make(urls=[url]).load(url)) == b"x"
    assert not site.requests("/robots.txt")


@pytest.mark.parametrize(
    ("status", "error"), [(404, None), (403, None), (500, Unreachable), (503, Unreachable), (429, Busy)]
)
async def test_a_site_without_rules_or_without_an_answer(
    site: WebSite, make: Make, status: int, error: type[BbfsError] | None
) -> None:
    site.answer_robots(status)
    url = site.write("sitemap.xml", sitemap(site.write("a", "x")))
    handler = make(sitemap=url)
    if error is None:
        assert await data_of(await handler.load(f"{site.url}/a")) == b"x"
    else:
        with pytest.raises(error):
            await handler.load(f"{site.url}/a")
        assert not site.requests("/a")


@pytest.mark.parametrize("rule", ["Crawl-delay: 0.4", "Request-rate: 5/2"])
async def test_pages_are_asked_for_as_slowly_as_their_site_wants(site: WebSite, make: Make, rule: str) -> None:
    site.write("robots.txt", f"User-agent: *\n{rule}\n")
    pages = [site.write(name, name) for name in "abc"]
    handler = make(sitemap=site.write("sitemap.xml", sitemap(*pages)))
    started = trio.current_time()
    for page in pages:
        await handler.load(page)
    assert trio.current_time() - started >= 0.8


@pytest.mark.semantics("S30")
@pytest.mark.parametrize(
    ("auth", "header"),
    [
        ({"token": "s3cr3t"}, "Bearer s3cr3t"),
        ({"username": "me", "password": "s3cr3t"}, "Basic bWU6czNjcjN0"),
    ],
)
async def test_credentials_go_to_the_sites_that_are_named(
    site: WebSite, make: Make, tmp_path: Path, auth: dict[str, str], header: str
) -> None:
    (tmp_path / "other").mkdir()
    other = WebSite(tmp_path / "other")
    try:
        linked = other.write("linked", "x")
        url = site.write("llms.txt", f"- [There]({linked})\n- [Here](here)\n")
        site.write("here", "x")
        handler = make(llms_txt=url, auth=auth, headers={"X-Key": "k3y", "Accept-Encoding": "br"})
        for page in await listed(handler):
            await handler.load(page)
        for path in ("/llms.txt", "/here"):
            sent = site.await_requests(path, 1)[0]["headers"]
            assert (sent["authorization"], sent["x-key"]) == (header, "k3y")
        assert site.requests("/here")[0]["headers"]["accept-encoding"] == "identity"
        for request in other.await_requests("/linked", 1):
            assert not {"authorization", "x-key"} & request["headers"].keys()
        with pytest.raises(LoginRequired) as raised:
            await make(urls=[f"{site.url}/status/401?body=s3cr3t+k3y"], auth=auth).load(
                f"{site.url}/status/401?body=s3cr3t+k3y"
            )
        assert "s3cr3t" not in str(raised.value)
    finally:
        other.stop()


async def test_private_addresses_are_refused_however_they_are_reached(site: WebSite, make: Make) -> None:
    port = site.host.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "[::1]", "169.254.169.254"):
        url = f"http://{host}:{port}/a"
        with pytest.raises(Denied, match="option allow_private is false"):
            await make(urls=[url], allow_private=False).load(url)
    with pytest.raises(Denied):
        await make(sitemap=f"{site.url}/sitemap.xml", allow_private=False).list()
    assert site.requests() == []


class Made(str):
    """A string made from a reference, as the configuration makes them."""

    secrets = frozenset({"s3cr3t"})


@pytest.mark.semantics("S30")
async def test_a_secret_in_the_place_of_a_sitemap_is_in_no_message(site: WebSite, make: Make) -> None:
    with pytest.raises(Unreachable, match=r"sitemap-\*\*\*\.xml"):
        await make(sitemap=Made(f"{site.url}/sitemap-s3cr3t.xml")).list()


@pytest.mark.semantics("S22")
async def test_one_page_that_hangs_keeps_no_other_waiting(site: WebSite, make: Make) -> None:
    url = site.write("a", "x")
    handler = make(urls=[url, f"{site.url}/never"], timeout=2)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def hang() -> None:
                with pytest.raises(DeadlineExceeded):
                    await handler.load(f"{site.url}/never")

            nursery.start_soon(hang)
            for _ in range(20):
                assert await data_of(await handler.load(url)) == b"x"
    assert handler.state.state == "down"
    await handler.load(url)
    assert handler.state.state == "up"
