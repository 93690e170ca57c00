"""Sitemaps (sitemaps.org, protocol 0.9): XML, XML indexes, plain text; each may be gzipped. All within bounds.

XML is parsed while it arrives. A document type is refused, so there are no entities that could grow.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

import trio

from bbfs.model.errors import Denied, InvalidUri, NotFound, ProtocolViolation, TooLarge
from bbfs.sources.http.client import WebClient
from bbfs.sources.http.headers import iso_ns
from bbfs.sources.http.responses import BodyDecoder, WebStream, shown_url

MAX_SITEMAP = 64 << 20
"""Limit for one unpacked sitemap (bytes). The protocol allows 50 MB."""
MAX_ALL = 256 << 20
"""Limit for all sitemaps below one, unpacked (bytes)."""
MAX_URLS_TEXT = 32 << 20
"""Limit for the URLs in all of them (characters)."""
MAX_SITEMAPS = 1000
"""Limit for the sitemaps below one. The protocol allows 50 000 in an index."""
_LONGEST_TEXT = 8192
"""Limit for one URL (characters)."""
_LONGEST_TOKEN = 1 << 16
"""Limit for one tag with its attributes, comment or the like (bytes). expat holds it, and reads it again and again."""
_PORTION = 1 << 13
"""Bytes that are parsed at once, for about a millisecond."""
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class SitemapEntry:
    """A page in a sitemap. url: maybe no web address. modified_ns: its `lastmod`, nanoseconds since the epoch."""

    url: str
    modified_ns: int | None = None


@dataclass(slots=True)
class Sitemap:
    """The pages of a sitemap and of the sitemaps below it. problems: in words, the missing parts."""

    entries: list[SitemapEntry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


async def read_sitemap(
    client: WebClient, url: str, headers: Callable[[str], Mapping[str, str]], max_urls: int
) -> Sitemap:
    """Return the pages of a sitemap and of the sitemaps below it, `max_urls` at most.

    headers: return the headers of a request for a URL. Raises BbfsError if the sitemap cannot be loaded, or is no
    sitemap. For a sitemap in an index only passing errors raise; the others become problems.
    """
    found = Sitemap()
    ahead, seen = deque([url]), {url}
    size = length = 0
    while ahead:
        current = ahead.popleft()
        try:
            parser = await _read(client, current, headers(current), max_urls - len(found.entries))
            size += parser.size
            length += sum(len(entry.url) for entry in parser.entries)
            if size > MAX_ALL or length > MAX_URLS_TEXT:
                found.problems.append(
                    f"{shown_url(url)}: is larger than {MAX_ALL >> 20} MiB with all below it, or has URLs "
                    f"of more than {MAX_URLS_TEXT >> 20} MiB"
                )
                break
        except (NotFound, Denied, ProtocolViolation, TooLarge, InvalidUri) as error:
            if current == url:
                raise
            found.problems.append(str(error))
            continue
        found.entries += parser.entries
        if parser.is_full:
            found.problems.append(f"{shown_url(url)}: has more than {max_urls} URLs (option max_urls)")
            break
        for below in parser.sitemaps:
            if below not in seen and len(seen) >= MAX_SITEMAPS:
                found.problems.append(f"{shown_url(url)}: leads to more than {MAX_SITEMAPS} sitemaps")
                break
            if below not in seen:
                seen.add(below)
                ahead.append(below)
    return found


async def _read(client: WebClient, url: str, headers: Mapping[str, str], room: int) -> "SitemapParser":
    parser = SitemapParser(shown_url(url), room)
    async with client.stream(url, headers=headers, max_body=MAX_SITEMAP) as stream:
        await _feed(parser, stream, shown_url(url))
    return parser


async def _feed(parser: "SitemapParser", stream: WebStream, what: str) -> None:
    decoder: BodyDecoder | None = None
    async for piece in stream:
        if decoder is None:
            decoder = BodyDecoder("gzip" if piece.startswith(_GZIP) else None, what)
        for plain in decoder.feed(piece):
            for at in range(0, len(plain), _PORTION):
                parser.feed(plain[at : at + _PORTION])
                if parser.size > MAX_SITEMAP:
                    raise TooLarge(f"{what}: a sitemap of more than {MAX_SITEMAP} bytes")
                if parser.is_full:
                    return
                await trio.lowlevel.checkpoint()
    if decoder is not None:
        decoder.end()
    parser.end()


class SitemapParser:
    """A parser for one sitemap in pieces. It keeps `room` entries. Raises ProtocolViolation for another format."""

    def __init__(self, what: str, room: int) -> None:
        self.entries: list[SitemapEntry] = []
        self.sitemaps: list[str] = []
        self.size = 0
        self.is_full = False
        self._what = what
        self._room = room
        self._expat: expat.XMLParserType | None = None
        self._lines: bytes | None = None
        self._open: list[str] = []
        self._text: list[str] | None = None
        self._length = 0
        self._said: dict[str, str] = {}

    def feed(self, piece: bytes) -> None:
        self.size += len(piece)
        if self._expat is None and self._lines is None:
            if piece.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<":
                self._expat = self._xml()
            else:
                self._lines = b""
        if self._expat is not None:
            self._parse(piece, is_last=False)
            return
        *lines, self._lines = ((self._lines or b"") + piece).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._lines) > _LONGEST_TEXT:
            if not self.entries:
                raise ProtocolViolation(f"{self._what}: is no sitemap")
            self._lines = self._lines[: _LONGEST_TEXT + 1]  # no web address, whatever follows

    def end(self) -> None:
        if self._expat is not None:
            self._parse(b"", is_last=True)
        elif self._lines:
            self._line(self._lines)

    def _line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").removeprefix("\ufeff").strip()
        if not text:
            return
        if not self.entries and not text.startswith(("http://", "https://")):
            raise ProtocolViolation(f"{self._what}: is no sitemap")
        self._add(SitemapEntry(text))

    def _add(self, entry: SitemapEntry) -> None:
        if len(self.entries) >= self._room:
            self.is_full = True
        else:
            self.entries.append(entry)

    # -- XML ---------------------------------------------------------------------------------------------------------

    def _xml(self) -> expat.XMLParserType:
        parser = expat.ParserCreate()  # each name in a namespace would be made with all of it
        parser.StartDoctypeDeclHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        return parser

    def _parse(self, piece: bytes, *, is_last: bool) -> None:
        assert self._expat is not None
        try:
            self._expat.Parse(piece, is_last)
        except (expat.ExpatError, ValueError, LookupError) as exc:  # the last two for an encoding that it lacks
            raise ProtocolViolation(f"{self._what}: is no sitemap: {exc}") from exc
        if self.size - max(0, self._expat.CurrentByteIndex) > _LONGEST_TOKEN + len(piece):
            raise ProtocolViolation(f"{self._what}: is no sitemap: a tag of more than {_LONGEST_TOKEN} bytes")

    def _refuse(self, *_: object) -> None:
        raise ProtocolViolation(f"{self._what}: a sitemap with a document type is refused")

    def _start(self, name: str, _: object) -> None:
        local = name.rpartition(":")[2]
        if not self._open and local not in ("urlset", "sitemapindex"):
            raise ProtocolViolation(f"{self._what}: is no sitemap, but {local[:40]!a}")
        self._open.append(local)
        if len(self._open) == 2:
            self._said = {}
        elif len(self._open) == 3 and local in ("loc", "lastmod"):
            self._text, self._length = [], 0
        elif len(self._open) > 64:
            raise ProtocolViolation(f"{self._what}: is no sitemap: too deep")

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._length += len(text)
            if self._length <= _LONGEST_TEXT:
                self._text.append(text)

    def _end(self, _: str) -> None:
        local = self._open.pop()
        if self._text is not None and len(self._open) == 2:
            self._said[local] = "".join(self._text).strip() if self._length <= _LONGEST_TEXT else ""
            self._text = None
        elif len(self._open) == 1 and self._said.get("loc"):
            if self._open[0] == "urlset" and local == "url":
                self._add(SitemapEntry(self._said["loc"], iso_ns(self._said.get("lastmod", ""))))
            elif self._open[0] == "sitemapindex" and local == "sitemap" and len(self.sitemaps) <= MAX_SITEMAPS:
                self.sitemaps.append(self._said["loc"])
