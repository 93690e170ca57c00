"""What URL sources are made of, without a server: pages, llms.txt, sitemaps, headers, pacing, Markdown."""

import gzip
from collections.abc import Callable, Mapping

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.errors import Busy, ConfigError, ProtocolViolation, Unreachable
from bbfs.model.values import DataSource
from bbfs.sources import Services
from bbfs.sources.documents.html_markdown import job
from bbfs.sources.http.headers import (
    Validators,
    may_be_kept,
    media_type,
    modified_ns,
    properties,
    range_validator,
    strong_etag,
    time_to_live,
)
from bbfs.sources.http.pacing import Pace, Pause, retry_after
from bbfs.sources.http.redirects import origin
from bbfs.sources.http.responses import BodyDecoder, number_in
from bbfs.sources.url.handler import UrlHandler
from bbfs.sources.url.listing import Link, link_in, with_renderings
from bbfs.sources.url.pages import WebPage, page_url, rendering_uri
from bbfs.sources.url.robots import rules_for
from bbfs.sources.url.sitemaps import SitemapEntry, SitemapParser


@pytest.mark.parametrize(
    ("url", "of_it"),
    [
        ("https://example.com/a?b", "https://example.com:443"),
        ("http://[::1]/a", "http://[::1]:80"),
        ("http://[2001:db8::2]:8080/", "http://[2001:db8::2]:8080"),
    ],
)
def test_an_origin_is_a_url_of_the_same_server(url: str, of_it: str) -> None:
    assert origin(httpx2.URL(url)) == of_it
    assert httpx2.URL(f"{of_it}/robots.txt").host == httpx2.URL(url).host


@pytest.mark.parametrize(
    ("text", "base", "url"),
    [
        ("HTTPS://Example.COM:443", None, "https://example.com/"),
        ("https://example.com/a b?q=é#part", None, "https://example.com/a%20b?q=%C3%A9"),
        ("https://example.com/%7Euser/%2F", None, "https://example.com/%7Euser/%2F"),
        ("../up.html", "https://example.com/a/b/", "https://example.com/a/up.html"),
        ("//other.example/x", "https://example.com/a", "https://other.example/x"),
        ("https://bücher.example/", None, "https://xn--bcher-kva.example/"),
        ("https://me:pw@example.com/", None, None),
        ("mailto:me@example.com", None, None),
        ("javascript:alert(1)", "https://example.com/", None),
        ("file:///etc/passwd", "https://example.com/", None),
        ("guide.html", None, None),
        ("https://", None, None),
        ("https://example.com:99999/", None, None),
        ("https://example.com/" + "x" * 9000, None, None),
        ("https://example.com?q=/", None, "https://example.com/?q=/"),
        ("", None, None),
    ],
)
def test_urls_in_their_normal_form(text: str, base: str | None, url: str | None) -> None:
    assert page_url(text, base) == url


@given(st.text(max_size=60), st.sampled_from([None, "https://example.com/a/b"]))
def test_whatever_text_is_a_page_or_none(text: str, base: str | None) -> None:
    for candidate in (text, f"https://example.com/{text}"):
        url = page_url(candidate, base)
        if url is not None:
            assert page_url(url) == url
            assert url.startswith(("http://", "https://"))
            assert "#" not in url


async def test_a_rendering_takes_no_name_of_a_page() -> None:
    uris = ("https://h/", "https://h/a", "https://h/a.md", "https://h/index.html", "https://h/b.png", "https://h/p?q=1")
    pages = {uri: WebPage(uri, named=True) for uri in uris}
    found = await with_renderings(pages)
    made = {uri: page.url for uri, page in found.items() if page.rendering}
    assert made == {
        "https://h/index.html.md": "https://h/",
        "https://h/a~2.md": "https://h/a",
        "https://h/index.html~2.md": "https://h/index.html",
        "https://h/p?q=1.md": "https://h/p?q=1",
    }
    backwards = await with_renderings(dict(reversed(pages.items())))
    assert {uri: page.url for uri, page in backwards.items() if page.rendering} == made
    assert rendering_uri("https://h/x/", ()) == "https://h/x/index.html.md"


def test_the_links_of_an_llms_txt() -> None:
    text = """# Project

> What it is, [a link](https://example.com/not-in-a-list) in between

## Docs

- [Quick start](https://example.com/start.md): How to   begin
* [No words](/relative.html)
  - [Nested](<https://example.com/n.md> "title")
-[Tight](https://example.com/t.md) : Also
- no link
- [](empty.md)

## Optional
- [More](more.md): x
"""
    assert [found for line in text.split("\n") if (found := link_in(line))] == [
        Link("https://example.com/start.md", "Quick start", "How to begin"),
        Link("/relative.html", "No words", None),
        Link("https://example.com/n.md", "Nested", None),
        Link("https://example.com/t.md", "Tight", "Also"),
        Link("empty.md", None, None),
        Link("more.md", "More", "x"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        *("- [" * 500_000, "- [a](" + "(" * 2_000_000, "- [a](" + "x" * 2_000_000, "- [a](x" + " " * 2_000_000),
        *(" " * 2_000_000 + "x", "- [" + "]" * 2_000_000),
    ],
    ids=range(6),
)
def test_a_line_of_an_llms_txt_takes_linear_time(line: str) -> None:
    for _ in range(10):
        assert link_in(line) is None


def feed(document: bytes) -> SitemapParser:
    parser = SitemapParser("sitemap", 100)
    for at in range(0, len(document), 1 << 15):
        parser.feed(document[at : at + (1 << 15)])
    parser.end()
    return parser


@pytest.mark.parametrize(
    "document",
    [
        b"<urlset>" + b"<a>" * 100_000,
        b"<urlset " + b"a" * 2_000_000,
        b"<urlset><url a='" + b"x" * 2_000_000,
        b"<urlset><!--" + b"-" * 2_000_000,
        lambda: b"<urlset>" + b"".join(b"<u" + b" x%d=''" * 1 % n for n in range(200_000)),
        b"<?xml version='1.0' encoding='utf-7'?><urlset/>",
        b"<!DOCTYPE x [<!ENTITY a 'b'>]><urlset>&a;</urlset>",
        b"<urlset>&a;</urlset>",
        b"\xff\xfe<\0u\0",
        b"x" * 100_000,
    ],
    ids=["deep", "name", "attribute", "comment", "attributes", "utf-7", "entity", "unknown", "utf-16", "line"],
)
def test_a_sitemap_that_means_harm_is_none(document: bytes | Callable[[], bytes]) -> None:
    with pytest.raises(ProtocolViolation):
        feed(document() if callable(document) else document)


def test_a_sitemap_needs_no_namespaces() -> None:
    """Each name of an element would be made with the whole text of its namespace."""
    found = feed(
        b"<s:urlset><s:url><s:loc>http://a/</s:loc><i:image><i:loc>http://b/</i:loc></i:image></s:url></s:urlset>"
    )
    assert found.entries == [SitemapEntry("http://a/")]


def test_a_sitemap_of_other_elements_is_empty() -> None:
    found = feed(b"<urlset>" + b"<a/>" * 100_000 + b"<url><loc>" + b"x" * 100_000 + b"</loc></url></urlset>")
    assert found.entries == []


ALL, OURS = "User-agent: *\n", "User-agent: bbfs\n"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"{ALL}Disallow: /a\n\n{OURS}Disallow: /b", f"{ALL}Disallow: /a\n{OURS}Disallow: /b"),
        (f"User-agent: x\n# c\n\n{OURS}Sitemap: /s\nAllow: /b # c\nUser-agent: y\nDisallow: /", f"{OURS}Allow: /b"),
        ("useragent b\nDisallow: /1\nUser-agent: bb*\nDisallow: /2", "User-agent: bb\nDisallow: /2"),
        ("User-agent: fs\nDisallow: /3", ""),
        ("Disallow: /", ""),
        (f"{ALL}" + "Disallow: /x\n" * 6000, f"{ALL}Disallow: /\n"),
        ("".join(f"User-agent: {n}\n" for n in range(20_000)) + "Disallow: /x\n" * 20_000, ""),
    ],
    ids=range(7),
)
def test_the_rules_for_a_program_are_few(text: str, kept: str) -> None:
    assert rules_for("bbfs", text) == kept


def parsed(text: bytes, room: int = 100, step: int = 7) -> SitemapParser:
    parser = SitemapParser("sitemap", room)
    for at in range(0, len(text), step):
        parser.feed(text[at : at + step])
    parser.end()
    return parser


SITEMAP = b"""<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
  <url><loc> https://h/a?x=1&amp;y=2 </loc><lastmod>2024-05-06</lastmod><changefreq>daily</changefreq></url>
  <url><lastmod>2024-05-06T07:08:09+02:00</lastmod><loc>https://h/b</loc>
    <image:image><image:loc>https://h/b.png</image:loc></image:image></url>
  <url><loc>https://h/c</loc><lastmod>yesterday</lastmod></url>
  <url><loc></loc></url><url/>
</urlset>"""


def test_a_sitemap() -> None:
    for text in (SITEMAP, b"\xef\xbb\xbf" + SITEMAP):
        assert parsed(text).entries == [
            SitemapEntry("https://h/a?x=1&y=2", 1714953600 * 10**9),
            SitemapEntry("https://h/b", 1714972089 * 10**9),
            SitemapEntry("https://h/c"),
        ]
    index = b"<sitemapindex><sitemap><loc>https://h/1.xml</loc></sitemap><url><loc>x</loc></url></sitemapindex>"
    assert parsed(index).sitemaps == ["https://h/1.xml"]
    assert parsed(b"https://h/a\r\n\r\nhttps://h/b").entries == [
        SitemapEntry("https://h/a"),
        SitemapEntry("https://h/b"),
    ]


def test_a_sitemap_with_more_than_there_is_room_for() -> None:
    full = parsed(SITEMAP, room=2)
    assert (len(full.entries), full.is_full) == (2, True)
    assert not parsed(SITEMAP, room=3).is_full


LAUGHS = b'<!DOCTYPE urlset [<!ENTITY a "ha">' + b"".join(
    b'<!ENTITY %c "&%c;&%c;&%c;">' % (n + 1, n, n, n) for n in range(ord("a"), ord("y"))
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS + b"]><urlset><url><loc>&y;</loc></url></urlset>", "document type"),
        (b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><urlset/>', "document type"),
        (b"<html><body>404</body></html>", "is no sitemap"),
        (b"<urlset><url>", "is no sitemap"),
        (b"<urlset>" + b"<x>" * 100, "too deep"),
        (b"just some words", "is no sitemap"),
        (b"x" * 100_000, "is no sitemap"),
        (b"<urlset>\xff\xfe</urlset>", "is no sitemap"),
    ],
)
def test_what_is_no_sitemap(text: bytes, message: str) -> None:
    with pytest.raises(ProtocolViolation, match=message):
        parsed(text, step=1000)


def test_a_huge_text_is_not_kept() -> None:
    assert parsed(b"<urlset><url><loc>https://h/" + b"x" * 10**6 + b"</loc></url></urlset>", step=65536).entries == []


def headers(**given: str) -> Mapping[str, str]:
    return httpx2.Headers({name.replace("_", "-"): value for name, value in given.items()})


def test_validators() -> None:
    strong, weak, time = '"abc"', 'W/"abc"', "Wed, 21 Oct 2015 07:28:00 GMT"
    assert strong_etag(headers(ETag=strong)) == strong
    assert [strong_etag(headers(ETag=tag)) for tag in (weak, "abc", '""', "")] == [None] * 4
    assert range_validator(headers(ETag=strong, Last_Modified=time)) == strong
    assert range_validator(headers(ETag=weak, Last_Modified=time, Date="Wed, 21 Oct 2015 08:00:00 GMT")) is None
    assert range_validator(headers(Last_Modified=time, Date="Wed, 21 Oct 2015 07:28:01 GMT")) == time
    assert range_validator(headers(Last_Modified=time, Date=time)) is None
    assert range_validator(headers(Last_Modified=time)) is None
    assert modified_ns(headers(Last_Modified=time)) == 1445412480 * 10**9
    assert modified_ns(headers(Last_Modified="soon")) is None
    assert Validators.of(headers(), "v") is None
    both = Validators.of(headers(ETag=weak, Last_Modified=time), "v")
    assert both is not None
    assert both.conditions == {"if-none-match": weak}
    assert Validators("v", None, time).conditions == {"if-modified-since": time}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ('text/HTML; Charset="UTF-8"', ("text/html", "utf-8")),
        ("text/plain", ("text/plain", None)),
        ("application/ld+json;charset=utf-16;x=y", ("application/ld+json", "utf-16")),
        ("", (None, None)),
        ("nonsense", (None, None)),
        ("text/html, text/plain", (None, None)),
    ],
)
def test_media_types(value: str, found: tuple[str | None, str | None]) -> None:
    assert media_type(headers(Content_Type=value)) == found


@pytest.mark.parametrize(
    ("control", "age", "ttl"),
    [
        ("max-age=600", "", 600),
        ("public, MAX-AGE=600, s-maxage=10", "100", 500),
        ("max-age=600", "9999", 5),
        ("max-age=0, must-revalidate", "", 5),
        ("no-cache", "", 5),
        ("no-store", "", 5),
        ("max-age=99999999", "", 86400),
        ("private", "", None),
        ("", "", None),
        ("max-age=soon", "", None),
    ],
)
def test_how_long_an_answer_holds(control: str, age: str, ttl: float | None) -> None:
    assert time_to_live(headers(Cache_Control=control, Age=age)) == ttl
    assert may_be_kept(headers(Cache_Control=control)) == (control != "no-store")


def test_no_property_holds_what_may_be_secret() -> None:
    said = properties("https://h/a", "https://cdn.example/x?signature=secret", headers(Content_Type="text/html"))
    assert said == {"final_url": "https://cdn.example/x"}


def test_pacing() -> None:
    pace = Pace(0.5)
    assert [pace.turn(10.0, 20.0) for _ in range(3)] == [10.0, 10.5, 11.0]
    with pytest.raises(Busy):
        pace.turn(10.0, 11.2)
    assert pace.turn(10.0, 20.0) == 11.5  # the turn that could not be waited for was not taken
    pace.pause(Pause(15.0, 503))
    pace.pause(Pause(12.0, 429))
    assert pace.turn(11.0, 20.0) == 15.0
    with pytest.raises(Unreachable, match="again in 4 s"):
        pace.paused(11.0, 14.0)
    assert pace.paused(15.0, 20.0) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.5),
        ("99999999999999999999", 300.0),
        ("Wed, 21 Oct 2015 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2015 07:00:00 GMT", 0.5),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
def test_how_long_a_server_wants_to_be_left_alone(value: str, seconds: float | None) -> None:
    assert retry_after(headers(Retry_After=value), 1445412480.0) == seconds


def test_a_page_as_markdown() -> None:
    page = """<!DOCTYPE html><html><head><title>T</title><style>p{}</style></head><body><script>x()</script>
    <h1>Größe &amp; mehr</h1><p>Some <b>bold</b> <a href="x.html">link</a></p><ul><li>one</li><li>two</li></ul>
    <pre><code>a

    b</code></pre></body></html>"""
    text = job(page.encode("latin-1"), {"charset": "iso-8859-1"}).decode()
    assert text.startswith("# Größe & mehr\n\nSome **bold** [link](x.html)\n\n- one\n- two")
    assert "x()" not in text
    assert "T\n" not in text
    assert job(page.encode("utf-8"), {"charset": None}).decode() == text
    assert job(b"no markup", {"charset": "no-such-charset"}) == b"no markup\n"


def test_a_page_that_is_too_deep_for_markdown() -> None:
    with pytest.raises(ProtocolViolation, match="Markdown"):
        job(b"<div>" * 20_000 + b"x", {"charset": "utf-8"})


@given(st.binary(max_size=300))
def test_any_bytes_are_markdown_or_an_error(page: bytes) -> None:
    try:
        job(b"<p>" + page, {"charset": "utf-8"}).decode()
    except ProtocolViolation:
        pass


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=3), st.integers(1, 500))
def test_members_of_gzip_follow_each_other(members: list[bytes], step: int) -> None:
    coded, decoder, found = b"".join(map(gzip.compress, members)), BodyDecoder("gzip"), b""
    for at in range(0, len(coded), step):
        found += b"".join(decoder.feed(coded[at : at + step]))
    decoder.end()
    assert found == b"".join(members)


def test_parts_of_a_coded_body_are_counted() -> None:
    """Each costs a decompressor and a copy of what follows it, and may be empty."""
    decoder = BodyDecoder("gzip")
    with pytest.raises(ProtocolViolation, match="more than 1000 parts"):
        list(decoder.feed(gzip.compress(b"") * 2000))


def test_numbers_in_headers_have_bounds() -> None:
    assert [number_in(text) for text in ("", "12", "-1", "1" * 5000, "٣", "1" * 18)] == [None, 12, None, None, None,
                                                                                         int("1" * 18)]  # fmt: skip


def test_long_headers_are_parsed_in_no_time() -> None:
    long = "text/html" + ';"' * 500_000
    assert media_type({"content-type": long}) in ((None, None), ("text/html", None))
    assert modified_ns({"last-modified": "Mon, " * 500_000}) is None
    assert retry_after({"retry-after": "Mon, " * 500_000}, 0.0) is None


class Made(str):
    """A string made from a reference, as the configuration makes them."""

    secrets = frozenset({"s3cr3t"})


@pytest.mark.parametrize(
    ("config", "auth", "message"),
    [
        ({}, {}, "one of urls, llms_txt and sitemap is required"),
        ({"urls": ["file:///etc/passwd"]}, {}, r"config\.urls: must be http:// or https:// URLs"),
        ({"urls": ["https://me:pw@h/"]}, {}, "those belong in auth"),
        ({"sitemap": "nowhere"}, {}, r"config\.sitemap: must be http"),
        ({"llms_txt": "https://me:pw@h/"}, {}, r"config\.llms_txt: is no URL"),
        ({"urls": ["https://h/"], "url": "x"}, {}, "did you mean 'urls'"),
        ({"urls": "https://h/"}, {}, r"config\.urls: should be an array"),
        (
            {"urls": ["https://h/"], "maxBody": "1 MiB", "max_memory": "2"},
            {},
            r"max_memory: expected bytes as an integer",
        ),
        ({"urls": ["https://h/"], "per_second": 0}, {}, "per_second"),
        ({"urls": ["https://h/"], "user_agent": "a\nb"}, {}, "user_agent"),
        ({"urls": ["https://h/"], "proxy": "socks5://h"}, {}, "must be the http:// or https:// URL of a proxy"),
        ({"urls": ["https://h/"]}, {"key": "x"}, "expected token, or username and password"),
        ({"urls": ["https://h/"]}, {"token": "x", "username": "y"}, "expected token"),
        ({"urls": [Made("https://h/?token=s3cr3t")]}, {}, "would show its value in a path"),
        ({"llmsTxt": Made("https://h/?token=s3cr3t")}, {}, "would show its value in a path"),
    ],
)
def test_options_that_cannot_be_used(config: dict[str, object], auth: dict[str, str], message: str) -> None:
    source = DataSource("web", "web", "url", "bb", "bb-url+web", config=config, auth=auth)
    with pytest.raises(ConfigError, match=message) as raised:
        UrlHandler(source, Services())
    assert "s3cr3t" not in str(raised.value)
    assert "pw" not in str(raised.value)


@pytest.mark.parametrize(
    "odd",
    [
        b"x",
        b"ftp://h/",
        b"<a>",
        b"\x00",
        b"\xff\xfe",
        b"//[",
        b"http://[::1",
        b"http://h:x/",
        b"http://" + b"x" * 40_000,
    ],
)
def test_one_odd_line_of_a_sitemap_takes_no_other_away(odd: bytes) -> None:
    for step in (7, 1 << 13):
        entries = parsed(b"http://h/a\n" + odd + b"\nhttp://h/b\n", step=step).entries
        assert [page_url(entry.url) for entry in entries] == ["http://h/a", None, "http://h/b"]
