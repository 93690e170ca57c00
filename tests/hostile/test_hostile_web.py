"""Hostile web sites: pages, renderings, sitemaps, lists of links and robots.txt."""

import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import SourceTable
from hostile import Case
from hostile_sources import PATIENCE, Reply, Source, serve

MIB = 1 << 20
HTML = {"content-type": "text/html"}
XML = {"content-type": "application/xml"}
QUICK = {"a rendering of attributes"}


def site(replies: Mapping[str, Reply], **options: str) -> Source:
    """Return the source of a site. options: of the source; `URL` in them stands for the site's URL."""

    def source(directory: Path) -> SourceTable:
        url = serve(directory, replies)
        config: dict[str, Any] = {key: text.replace("URL", url) for key, text in options.items()}
        config = config or {"urls": [f"{url}/page.html"], "markdown": True}
        table = {"name": "hostile", "type": "url", "config": {**config, "allow_private": True}}
        return {**table, "timeout": PATIENCE}

    return source


def case(name: str, source: Source) -> Case:
    return Case(name, source, "bb-url+hostile", quick=name in QUICK)


def repeated(piece: bytes, size: int) -> Callable[[], bytes]:
    return lambda: piece * (size // len(piece))


def sitemap(inside: Callable[[], bytes] | bytes, root: bytes = b"urlset") -> Callable[[], bytes]:
    namespace = b' xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'

    def made() -> bytes:
        text = inside if isinstance(inside, bytes) else inside()
        return b"<" + root + namespace + b">" + text + b"</" + root + b">"

    return made


def renderings() -> Iterator[Case]:
    """Yield pages that a renderer to Markdown would take long for."""
    bodies = {
        "attributes": repeated(b'<a b="', 8 * MIB),
        "attributes, within the limit": repeated(b'<a b="', 2 * MIB - 100),
        "nested elements": repeated(b"<div>", 2 * MIB - 100),
        "nested lists": repeated(b"<ul><li>", 2 * MIB - 100),
        "nested quotes": repeated(b"<blockquote>", 2 * MIB - 100),
        "nested tables": repeated(b"<table><tr><td>", 2 * MIB - 100),
        "unclosed comments": repeated(b"<!--", 2 * MIB - 100),
        "unclosed declarations": repeated(b"<![", 2 * MIB - 100),
        "entities": repeated(b"&#x1F600;", 2 * MIB - 100),
        "table cells": repeated(b"<td>x", 2 * MIB - 100),
        "a title": lambda: b"<title>" + b"x" * (2 * MIB - 100),
        "charset declarations": repeated(b'<meta charset="utf-7">', 2 * MIB - 100),
    }
    for name, made in bodies.items():
        yield case(f"a rendering of {name}", site({"GET /page.html": Reply(made, headers=HTML)}))
    headers: Mapping[str, Mapping[str, str]] = {
        "an odd charset": {"content-type": "text/html; charset=idna"},
        "a long charset": {"content-type": "text/html; charset=" + "x" * 30_000},
        "many parameters": {"content-type": "text/html" + "; a=b" * 10_000},
        "many links": {**HTML, "link": "<a>; rel=b, " * 5_000},
        "a long name": {**HTML, "content-disposition": "attachment; filename*=utf-8''" + "%41" * 15_000},
    }
    for name, given in headers.items():
        yield case(f"a page with {name}", site({"GET /page.html": Reply(b"<p>x", headers=given)}))
    pages = {
        "text for ever": Reply(b"x" * MIB, headers=HTML, endless=True),
        "a gzip for ever": Reply(
            b"x" * MIB, headers={**HTML, "content-encoding": "gzip"}, encodings=["gzip"], endless=True
        ),
        "a redirect to itself": Reply(status=302, headers={"location": "/page.html"}),
        "a redirect to longer and longer paths": Reply(status=302, headers={"location": "page.html/x" + "y" * 3_000}),
    }
    for name, reply in pages.items():
        yield case(f"a page of {name}", site({"GET /page.html*": reply}))


def maps() -> Iterator[Case]:
    """Yield sitemaps."""
    entry = b"<url><loc>URL/%d</loc></url>"
    bodies: Mapping[str, tuple[Callable[[], bytes], Sequence[str]]] = {
        "elements": (sitemap(repeated(b"<a/>", 40 * MIB)), ()),
        "elements, gzipped": (lambda: gzip.compress(sitemap(repeated(b"<a/>", 45 * MIB))()), ()),
        "attributes": (sitemap(lambda: b"<a " + b"".join(b'a%d="" ' % n for n in range(400_000)) + b"/>"), ()),
        "nested elements": (lambda: b"<a>" * 5_000_000, ()),
        "entities": (lambda: b'<!DOCTYPE a [<!ENTITY b "%s">]>' % (b"c" * 99) + sitemap(b"&b;" * 100_000)(), ()),
        "a million entries": (sitemap(lambda: b"".join(entry % n for n in range(900_000))), ()),
        "one location": (sitemap(lambda: b"<url><loc>" + b"x" * 40 * MIB + b"</loc></url>"), ()),
        "a comment": (sitemap(lambda: b"<!--" + b"<" * 40 * MIB + b"-->"), ()),
        "lines of text": (repeated(b"http://x/\n", 45 * MIB), ()),
    }
    for name, (made, encodings) in bodies.items():
        replies = {"GET /sitemap*": Reply(made, headers=XML, encodings=encodings)}
        yield case(f"a sitemap of {name}", site(replies, sitemap="URL/sitemap.xml"))
    index = sitemap(b"<sitemap><loc>/sitemap-@N@.xml</loc></sitemap>" * 2, b"sitemapindex")
    replies = {"GET /sitemap*": Reply(index, headers=XML)}
    yield case("a sitemap of sitemaps for ever", site(replies, sitemap="URL/sitemap.xml"))


def lists() -> Iterator[Case]:
    """Yield an llms.txt, and a robots.txt beside one."""
    bodies = {
        "brackets": repeated(b"- [", 4 * MIB),
        "parentheses": lambda: b"- [a](" + b"(" * 4 * MIB,
        "spaces": lambda: b"- [a]" + b" " * 4 * MIB + b"x",
        "lists": repeated(b"- [a](http://x/)\n", 4 * MIB),
        "headings": repeated(b"## a\n", 4 * MIB),
        "one line": lambda: b"- " + b"[a](b) " * 500_000,
        "line separators": repeated("\u2028\x0c\x1e".encode(), 4 * MIB),
    }
    for name, made in bodies.items():
        replies = {"GET /llms.txt": Reply(made, headers={"content-type": "text/markdown"})}
        yield case(f"an llms.txt of {name}", site(replies, llms_txt="URL/llms.txt"))
    robots = {
        "rules": repeated(b"Disallow: /*a*b*c*d$\n", 4 * MIB),
        "one pattern": lambda: b"User-agent: *\nDisallow: /" + b"*a" * 200_000 + b"$",
        "agents": repeated(b"User-agent: *\n", 4 * MIB),
    }
    found = Reply(b"# t\n## l\n- [a](/" + b"a" * 2000 + b")\n", headers={"content-type": "text/markdown"})
    for name, made in robots.items():
        replies = {"GET /llms.txt": found, "GET /robots.txt": Reply(made, headers={"content-type": "text/plain"})}
        yield case(f"a robots.txt of {name}", site(replies, llms_txt="URL/llms.txt"))
    endless = {"GET /llms.txt": found, "GET /robots.txt": Reply(b"#" * MIB, endless=True)}
    yield case("a robots.txt for ever", site(endless, llms_txt="URL/llms.txt"))


@pytest.mark.parametrize("case", [*renderings(), *maps(), *lists()], ids=str)
def test_a_hostile_site_harms_nobody(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)
