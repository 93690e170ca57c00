"""Where a host has its MCP server: the URL itself, the documents that hosts publish about it, and customary paths.

Server Cards (SEP-2127, https://github.com/modelcontextprotocol/experimental-ext-server-card) say where a server is. A
host names its cards in `/.well-known/ai-catalog.json`; drafts (SEP-1649) had one at fixed places. A document is a
stranger's: it is small, and a server or card that it names elsewhere is told and never asked. So all requests go to
the origin that the user has named, as many as `_MOST` documents and `_MOST` greetings at most.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import trio

from bbfs.model.errors import BbfsError, LoginRequired, ProtocolViolation, Unreachable
from bbfs.model.redaction import one_line
from bbfs.model.values import DataSource, McpServer
from bbfs.sources.bounded.json import JsonBounds
from bbfs.sources.http.client import WebClient, WebResponse
from bbfs.sources.http.redirects import FOLLOWED, origin
from bbfs.sources.http.responses import shown_url
from bbfs.sources.http.statuses import status_line
from bbfs.sources.mcp.client.manager import MCPManager

CATALOG = "/.well-known/ai-catalog.json"
CARDS = ("/.well-known/mcp/server-card.json", "/.well-known/mcp.json")
CARD_TYPE = "application/mcp-server-card+json"
CARD = JsonBounds(size=256 << 10, values=10_000, depth=32)
"""Of a card or a catalog."""
BOUND = 60.0
"""Seconds for all requests; each has the time of the source as well."""
_MOST = 8
"""Documents that are read, and URLs that are greeted."""
_CUSTOMS = (("mcp", "http"), ("sse", "sse"))
_TRANSPORTS = {"streamable-http": "http", "streamableHttp": "http", "http": "http", "sse": "sse"}
_SAID = 200
"""Characters of an answer in a message."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A server over HTTP that a document describes. described: its description, in the form of `server.json`."""

    url: str
    transport: str
    described: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """A server that has answered. by: what has led to it, for a message. needs_login: it has asked for a login."""

    remote: Remote
    by: str
    needs_login: bool = False


class NoServer(Unreachable):
    """No server, or several of them. The text names all that was asked, with the answers, one a line."""


async def find_server(source: DataSource) -> Found:
    """Return the server of a source whose URL names a host, or a part of one. Raises NoServer.

    The headers of the source go with each request.
    """
    search = _Search(source)
    with trio.move_on_after(BOUND) as bound:
        return await search.found()
    assert bound.cancelled_caught
    raise search.nothing(f"no server within {BOUND:g} seconds")


@dataclass(slots=True)
class _Search:
    """One search. said: each URL that was asked, with its answer."""

    source: DataSource
    said: dict[str, str] = field(default_factory=dict)
    _well: list[Found] = field(default_factory=list)
    _guarded: list[Found] = field(default_factory=list)
    _read: int = 0
    _greeted: int = 0

    @property
    def _server(self) -> McpServer:
        assert self.source.mcp is not None
        return self.source.mcp

    async def found(self) -> Found:
        url = self._server.url or ""
        itself = httpx2.URL(url).copy_with(userinfo=b"", query=None, fragment=None)
        home = origin(itself)
        await self._greet(Remote(url, self._server.transport, {}), "the URL itself")
        if not self._well:
            for remote, by in await self._described(home, str(itself).rstrip("/")):
                await self._greet(remote, by)
        if not self._well and not self._guarded:
            for word, transport in _CUSTOMS:
                await self._greet(Remote(f"{str(itself).rstrip('/')}/{word}", transport, {}), "custom")
                if self._well:
                    break
        # A host may ask for a login at every URL, so one that a document names comes before the URL itself.
        found = self._well or sorted(self._guarded, key=lambda each: each.by == "the URL itself")[:1]
        if len(found) == 1:
            return found[0]
        if found:
            raise self.nothing("there are several servers; add one of them by its URL", found)
        raise self.nothing("no MCP server found")

    def nothing(self, what: str, several: list[Found] | None = None) -> NoServer:
        """Return the error that names all that was asked."""
        lines = [f"  {each.remote.url}: {each.by}" for each in several or ()]
        lines = lines or [f"  {one_line(url)}: {text}" for url, text in self.said.items()]
        return NoServer("\n".join([f"{shown_url(self._server.url or '')}: {what}", *lines]))

    async def _greet(self, remote: Remote, by: str) -> None:
        """Connect to a server and leave it again. Raises NoServer where the host cannot be reached at all."""
        shown = shown_url(remote.url)
        if shown in self.said or self._greeted >= _MOST:
            return
        self._greeted += 1
        answer = await self._answer_of(remote)
        if isinstance(answer, str):
            self.said[shown] = answer
            self._well.append(Found(remote, by))
            return
        self.said[shown] = _text(answer, shown)
        if isinstance(answer, LoginRequired):
            self._guarded.append(Found(remote, by, needs_login=True))
        elif len(self.said) == 1 and str(answer).startswith("cannot connect"):
            raise self.nothing("cannot be reached")

    async def _answer_of(self, remote: Remote) -> str | BbfsError:
        """Return what a server speaks, or the error of a connection."""
        transport = "sse" if remote.transport == "sse" else "http"
        server = replace(self._server, url=remote.url, transport=transport, start="lazy")
        manager = MCPManager()
        connection = manager.add(self.source.id, server, self.source.policy)
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: manager.run(task_status=task_status))
            try:
                return f"MCP {(await connection.session()).server.version}"
            except BbfsError as error:
                return error
            finally:
                nursery.cancel_scope.cancel()
        raise AssertionError("the block returns")

    async def _described(self, home: str, itself: str) -> list[tuple[Remote, str]]:
        """Return the servers of this origin that documents name, each once, with the document's path."""
        web = WebClient(
            self.source,
            headers=self._server.headers,
            allow_private=True,
            max_body=CARD.size,
            secrets=self._server.secrets,
        )
        try:
            remotes: dict[str, tuple[Remote, str]] = {}
            for url in dict.fromkeys((home + CATALOG, f"{itself}/server-card", *(home + each for each in CARDS))):
                for card in await self._cards(web, url, home):
                    for remote in remotes_of(card, home):
                        if origin(httpx2.URL(remote.url)) != home:
                            told = f"{shown_url(remote.url)}: at another host, not asked; to use it, add that URL"
                            self.said[url] = f"names {told}"
                        else:
                            remotes.setdefault(remote.url, (remote, url.removeprefix(home)))
            return list(remotes.values())
        finally:
            await web.aclose()

    async def _cards(self, web: WebClient, url: str, home: str) -> list[Mapping[str, Any]]:
        """Return the cards at a URL: itself, or those of this origin that a catalog names."""
        document = await self._document(web, url)
        if not isinstance(document, Mapping):
            return []
        found: list[Mapping[str, Any]] = []
        for entry in card_entries(document):
            if isinstance(entry, Mapping):
                found.append(entry)
            elif (there := _joined(url, entry)) is None or origin(there) != home:
                self.said[url] = f"names a card at another host, not asked: {shown_url(entry)}"
            elif isinstance(card := await self._document(web, str(there)), Mapping):
                found.append(card)
        return found

    async def _document(self, web: WebClient, url: str) -> Any:
        """Return the value of a JSON document, or None. It may be at another path of the same origin."""
        for _ in range(3):
            if shown_url(url) in self.said or self._read >= _MOST:
                return None
            self._read += 1
            try:
                answer = await web.get(url, headers={"accept": f"{CARD_TYPE}, application/json"}, accept=FOLLOWED)
                if answer.status not in FOLLOWED:
                    value = await answer.json(CARD)
                    self.said[shown_url(url)] = "no server in it"
                    return value
                url = self._led_to(url, answer)
            except BbfsError as error:
                self.said[shown_url(url)] = _text(error, shown_url(url))
                return None
        return None

    def _led_to(self, url: str, answer: WebResponse) -> str:
        """Return where a redirect leads, within the origin. Raises ProtocolViolation."""
        there = _joined(url, answer.headers.get("location", ""))
        if there is None or origin(there) != origin(httpx2.URL(url)):
            where = "no URL" if there is None else shown_url(there)
            raise ProtocolViolation(f"{status_line(answer.status)}: a redirect to {where}, not followed")
        self.said[shown_url(url)] = f"{status_line(answer.status)}: a redirect to {shown_url(there)}"
        return str(there)


def card_entries(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any] | str]:
    """Yield the cards of a catalog, and the URLs of those that are not in it; or the document, if it is a card."""
    entries = document.get("entries")
    if not isinstance(entries, list):
        yield document
        return
    for entry in entries:
        if isinstance(entry, dict) and entry.get("type") == CARD_TYPE:
            place = next((entry[key] for key in ("data", "url") if isinstance(entry.get(key), dict | str)), None)
            if place is not None:
                yield place


def remotes_of(card: Mapping[str, Any], home: str) -> Iterator[Remote]:
    """Yield the servers that a card names: its `remotes`, or the `transport` of an earlier draft. home: an origin."""
    for key in ("remotes", "transports", "transport"):
        value = card.get(key)
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, dict):
                continue
            url = each.get("url", each.get("endpoint"))
            kind = each.get("type")
            transport = _TRANSPORTS.get(kind) if isinstance(kind, str) else None
            if not isinstance(url, str) or transport is None or "{" in url:
                continue  # a URL with variables takes a decision of the user
            there = _joined(home, url)
            if there is not None:
                yield Remote(str(there), transport, {**each, "url": str(there)})


def _joined(base: str, url: str) -> httpx2.URL | None:
    """Return a URL for HTTP that a document names, or None."""
    try:
        found = httpx2.URL(base).join(url).copy_with(userinfo=b"", fragment=None)
        return found if found.scheme in ("http", "https") and found.host and (found.port or 80) < 1 << 16 else None
    except (httpx2.InvalidURL, ValueError, UnicodeError):
        return None


def _text(error: BbfsError, shown: str) -> str:
    text = one_line(str(error)).removeprefix("GET ").removeprefix(f"{shown}: ")
    return text if len(text) <= _SAID else text[:_SAID] + "…"
