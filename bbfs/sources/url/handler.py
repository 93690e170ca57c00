"""Web pages (`type = "url"`): a list of URLs, the links of an `llms.txt`, the pages of a sitemap.

Native URIs are the URLs. The handler loads pages that the configuration names without further checks, and pages found
in an llms.txt or a sitemap as the robots.txt of their site allows. Of a page it keeps only the validators.
"""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from importlib.util import find_spec
from typing import Any

import trio

from bbfs.model.errors import ConfigError, NotFound, NotSupported, ProtocolViolation, Unreachable
from bbfs.model.uri import source_uri
from bbfs.model.values import Content, DataSource, Listing, Loaded, Part, ResourceMetadata, SourceState, Unchanged
from bbfs.runtime.extras import needs
from bbfs.sources import Services
from bbfs.sources.bounded.turns import InTurns
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.ranges import BLOCK, Blocks, RangedContent
from bbfs.sources.content.spool import spooled
from bbfs.sources.http.client import WebClient, WebStream
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
from bbfs.sources.http.ranges import LargeBody, Ranges, is_pinned, whole_size
from bbfs.sources.http.responses import shown_url
from bbfs.sources.media_types import content_type_of, mime_type_of_name
from bbfs.sources.options import as_given, made_of_references, parse_options
from bbfs.sources.url.listing import Search, Where
from bbfs.sources.url.options import Credentials, UrlOptions, llms_txt_place, refuse_secrets_in_urls
from bbfs.sources.url.pages import MARKDOWN, WebPage, expected_type, page_name

_HTML = ("text/html", "application/xhtml+xml")
_LIBRARIES = ("bs4", "markdownify")
"""Modules that render a page, in a worker process."""


class UrlHandler:
    """One set of web pages. Raises ConfigError for options that cannot be used."""

    options = UrlOptions

    def __init__(self, source: DataSource, services: Services) -> None:
        self.source = source
        self._options = options = parse_options(UrlOptions, source)
        refuse_secrets_in_urls(source)
        where = Where(options, *llms_txt_place(options, source))
        credentials = Credentials(source, options.headers, where.named)
        self._headers = credentials.for_url
        self._client = WebClient(
            source,
            headers={"user-agent": options.user_agent},
            allow_private=options.allow_private,
            max_body=options.max_body,
            per_second=options.per_second,
            secrets=credentials.secrets | made_of_references([as_given(source, key) for key in ("sitemap", "proxy")]),
            proxy=options.proxy,
        )
        self._search = Search(where, self._client, self._headers)
        self._named = where.named_pages()
        self._pages: Mapping[str, WebPage] | None = None
        self._large: dict[str, LargeBody] = {}
        self._searching = trio.Lock()
        self._validators: dict[str, Validators] = {}
        self._crowd = services.crowd
        self._blocks = Blocks()
        self._spool = services.spool
        self._threads = trio.CapacityLimiter(2)
        self._robots = _robots(source, self._client, options) if not where.is_complete else None
        self._workers = services.workers
        if options.markdown and not all(map(find_spec, _LIBRARIES)):
            raise ConfigError(f"sources[{source.id}].config.markdown: {needs('web')}")

    @property
    def state(self) -> SourceState:
        return self._client.state

    async def aclose(self) -> None:
        await self._client.aclose()

    # -- what there is -----------------------------------------------------------------------------------------------

    async def list(self) -> Listing:
        """Return all pages. Loads the llms.txt and the sitemap, if there are any, and no page."""
        try:
            pages, problem = await self._search.all()
        except NotFound as error:  # a missing list does not mean that its pages are gone
            raise Unreachable(str(error)) from error
        self._pages = pages
        for uri in (self._validators.keys() | self._large.keys()) - pages.keys():
            self._validators.pop(uri, None)
            self._large.pop(uri, None)
        resources = tuple([self._listed(uri, page) async for uri, page in InTurns(pages.items())])
        return Listing(resources, problem=problem)

    def _listed(self, uri: str, page: WebPage) -> ResourceMetadata:
        mime_type = expected_type(page, uri)
        return ResourceMetadata(
            uri=source_uri(self.source.base_prefix, uri),
            native_uri=uri,
            name=page_name(uri) or uri,
            title=page.title,
            description=page.description,
            mime_type=mime_type,
            content_type=content_type_of(mime_type),
            modified_ns=page.modified_ns,
        )

    async def _page(self, native_uri: str) -> WebPage:
        """Return a page. Raises NotFound for a page that is not listed: this source gives access to no other page."""
        page = self._named.get(native_uri)
        if page is None and self._pages is None:
            async with self._searching:
                if self._pages is None:
                    await self.list()  # listed by an earlier mount, or requested by its URI
        page = page or (self._pages or {}).get(native_uri)
        if page is None:
            raise NotFound(f"{shown_url(native_uri)}: is none of the pages of this source")
        return page

    # -- contents ----------------------------------------------------------------------------------------------------

    async def load(self, native_uri: str) -> Loaded:
        """Load a page as its server sends it, or its rendering."""
        loaded = await self._load(native_uri, None)
        assert isinstance(loaded, Loaded)
        return loaded

    async def load_if_changed(self, native_uri: str, version: str) -> Loaded | Unchanged:
        """Load a page unless the server still has `version`."""
        validators = self._validators.get(native_uri)
        return await self._load(
            native_uri, validators if validators is not None and validators.version == version else None
        )

    async def _load(self, native_uri: str, known: Validators | None) -> Loaded | Unchanged:
        page = await self._page(native_uri)
        if self._robots is not None and not page.named:
            await self._robots.allow(page.url)
        # Without a content coding the stated length and the ranges are those of the content.
        headers = {**self._headers(page.url), "accept-encoding": "identity"}
        large = self._large.get(native_uri)
        conditions = large.conditions if large is not None else {}
        accept = {int(HTTPStatus.NOT_MODIFIED)} if large is not None or known is not None else set[int]()
        if large is not None:
            accept.add(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
        if known is not None:
            conditions.update(known.conditions)
        async with self._client.stream(page.url, headers={**headers, **conditions}, accept=accept) as stream:
            ttl = time_to_live(stream.headers)
            if stream.status == HTTPStatus.NOT_MODIFIED:
                if large is None or known is not None:
                    return Unchanged(ttl)
                content = self._in_ranges(page, headers, large, b"")
                return Loaded((Part(native_uri, large.mime_type, content, content_type_of(large.mime_type)),), ttl)
            if large is not None and not self._is_large(stream):
                # It has become small, or has lost its validator.
                del self._large[native_uri]
                return await self._load(native_uri, None)
            mime_type, _ = media_type(stream.headers)
            mime_type = mime_type or mime_type_of_name(page_name(page.url))
            if page.rendering:
                content, mime_type = await self._rendering(page, stream, mime_type)
            else:
                content = await self._content(native_uri, page, stream, headers, mime_type)
            validators = Validators.of(stream.headers, content.version)
            if validators is not None:
                self._validators[native_uri] = validators
            else:
                self._validators.pop(native_uri, None)
            metadata = self._loaded(native_uri, page, stream, mime_type)
        part = Part(native_uri, mime_type, content, content_type_of(mime_type))
        return Loaded((part,), ttl, metadata, once=not may_be_kept(stream.headers))

    def _loaded(self, native_uri: str, page: WebPage, stream: WebStream, mime_type: str | None) -> ResourceMetadata:
        said: dict[str, Any] = properties(page.url, stream.url, stream.headers)
        if page.rendering:
            said = {**said, "charset": "utf-8", "rendered_from": page.url}
        return replace(
            self._listed(native_uri, page),
            mime_type=mime_type,
            content_type=content_type_of(mime_type),
            modified_ns=modified_ns(stream.headers),
            etag=None if page.rendering else strong_etag(stream.headers),
            properties=said,
        )

    async def _content(
        self, native_uri: str, page: WebPage, stream: WebStream, headers: Mapping[str, str], mime_type: str | None
    ) -> Content:
        validator, size = range_validator(stream.headers), whole_size(stream)
        if validator is None or size is None or not self._is_large(stream):
            if stream.status == HTTPStatus.PARTIAL_CONTENT:
                raise ProtocolViolation(f"{shown_url(page.url)}: answers with a part that was not requested")
            return await spooled(self._spool, b"", stream, self._threads)
        large = self._large[native_uri] = LargeBody(size, validator, mime_type)
        first = bytearray()
        stream.limit = size
        async for piece in stream:
            first += piece
            if len(first) >= BLOCK:
                break
        return self._in_ranges(page, headers, large, bytes(first[:BLOCK]))

    def _in_ranges(self, page: WebPage, headers: Mapping[str, str], large: LargeBody, first: bytes) -> RangedContent:
        timeout = self.source.policy.timeout
        ranges = Ranges(self._client, page.url, headers, large, timeout=timeout, crowd=self._crowd)
        return ranges.content(first, self._blocks)

    def _is_large(self, stream: WebStream) -> bool:
        return is_pinned(stream) and (whole_size(stream) or 0) > self._options.max_memory

    async def _rendering(self, page: WebPage, stream: WebStream, mime_type: str | None) -> tuple[Content, str]:
        if mime_type not in _HTML and content_type_of(mime_type) != "text":
            raise NotSupported(f"{shown_url(page.url)}: {mime_type or 'of no type'}, which has no Markdown")
        if mime_type in _HTML:
            stream.bound(self._options.max_markdown, "max_markdown")
        body = await stream.read()
        if mime_type not in _HTML:
            return MemoryContent(body), mime_type or MARKDOWN
        _, charset = media_type(stream.headers)
        text = await self._workers.run(
            "html_markdown",
            body,
            {"charset": charset},
            owner=self.source.id,
            what=shown_url(page.url),
            max_result=self._options.max_body,
        )
        return MemoryContent(text), MARKDOWN


def _robots(source: DataSource, client: WebClient, options: UrlOptions) -> Any:
    """Return the rules of the sites, which allow everything with `robots = false`."""
    try:
        from bbfs.sources.url.robots import Robots  # noqa: PLC0415 - of the extra "web"
    except ImportError as exc:
        raise ConfigError(f"sources[{source.id}].config: llms_txt and sitemap: {needs('web')}") from exc
    return Robots(client, options.user_agent.partition("/")[0], heeded=options.robots)
