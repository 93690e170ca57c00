"""The conformance suite over web pages, from a real server."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import ClassVar

from web_site import WebSite

from bbfs.model.values import DataSource
from bbfs.sources import Handler, Services
from bbfs.sources.url.handler import UrlHandler
from bbfs.testing import SourceConformance

PAGES = {
    "a.txt": b"alpha\n",
    "empty": b"",
    "guide/intro.html": b"<h1>Intro</h1>\n",
    "guide/b%20c~d.md": b"# beta\n",
    "large.bin": bytes(range(256)) * 9000,
    "search?q=%C3%A9&page=2": b"found\n",
}


class _Url(SourceConformance):
    """The server's port is another one each time, so the URIs are made when it is known."""

    config: ClassVar[dict[str, object]] = {}

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        site = WebSite(directory)
        try:
            for path, data in PAGES.items():
                site.write(path.partition("?")[0].replace("%20", " "), data, accept_ranges="bytes")
            made = {f"{site.url}/{path}": data for path, data in PAGES.items()}
            self.known = made  # pyright: ignore[reportAttributeAccessIssue] - what the class promises is of one test
            self.unknown = (  # pyright: ignore[reportAttributeAccessIssue] - as above
                f"{site.url}/nothing",
                f"{site.url}/a.txt/below",
                f"{site.url}/a.txt?x=1",
                "http://h/",
            )
            config = {**self.options(site, list(made)), "allow_private": True, **self.config}
            source = DataSource("web", "web", "url", "bb", "bb-url+web", config=config)
            async with aclosing(UrlHandler(source, Services())) as handler:
                yield handler
        finally:
            site.stop()

    def options(self, site: WebSite, urls: list[str]) -> dict[str, object]:
        return {"urls": urls}

    known: ClassVar = {}
    unknown: ClassVar = ()


class TestUrls(_Url):
    pass


class TestSitemap(_Url):
    def options(self, site: WebSite, urls: list[str]) -> dict[str, object]:
        entries = "".join(f"<url><loc>{url.replace('&', '&amp;')}</loc></url>" for url in urls)
        return {"sitemap": site.write("sitemap.xml", f"<urlset>{entries}</urlset>")}


class TestLlmsTxt(_Url):
    def options(self, site: WebSite, urls: list[str]) -> dict[str, object]:
        return {"llms_txt": site.write("llms.txt", "".join(f"- [page]({url}): a page\n" for url in urls))}


class TestInRanges(_Url):
    config: ClassVar[dict[str, object]] = {"max_memory": 5}


del _Url
