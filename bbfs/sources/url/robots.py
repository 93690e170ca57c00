"""The rules of sites for programs (RFC 9309): the pages to leave alone, and the pace."""

import re
from collections.abc import Iterator

import httpx2
import trio
from cachetools import LRUCache, TTLCache
from protego import Protego

from bbfs.model.errors import Denied, ProtocolViolation
from bbfs.sources.http.client import WebClient
from bbfs.sources.http.redirects import origin
from bbfs.sources.http.responses import shown_url

KEPT = 3600.0
"""Seconds that a robots.txt stays cached. RFC 9309 (section 2.4) allows a day."""
_LIMIT = 500 << 10
"""Bytes of a robots.txt to parse (RFC 9309, section 2.5)."""
_MOST_RULES = 5000
"""Rules of a site for one program. More forbid everything."""
_SITES = 64
"""Sites whose rules are cached."""
_AGENT = re.compile(r"user[- ]?agent\s*:?\s*(\S*)", re.IGNORECASE)
_SITE_WIDE = re.compile(r"(?:sitemaps?|site-map|host)\b", re.IGNORECASE)
_LONGEST_DELAY = 30.0
"""Limit for the seconds between two requests; a longer delay would exceed deadlines."""
_UNAVAILABLE = frozenset(range(400, 500)) - {408, 425, 429}
"""Statuses that mean that there are no rules (RFC 9309, section 2.3.1.3). Others are errors and allow nothing."""


class Robots:
    """The rules of all sites that a source leads to. agent: the name for which rules are looked up.

    heeded: False allows everything.
    """

    def __init__(self, client: WebClient, agent: str, *, heeded: bool = True) -> None:
        self._heeded = heeded
        self._client = client
        self._agent = agent
        self._rules: TTLCache[str, Protego] = TTLCache(_SITES, KEPT, trio.current_time)
        self._asking: LRUCache[str, trio.Lock] = LRUCache(_SITES)

    async def allow(self, url: str) -> None:
        """Raise Denied if the rules forbid the page, and BbfsError if they cannot be loaded."""
        if not self._heeded:
            return
        site = origin(httpx2.URL(url))
        asking = self._asking[site] = self._asking.get(site) or trio.Lock()
        async with asking:
            rules = self._rules.get(site)
            if rules is None:
                rules = self._rules[site] = await self._ask(site)
        if not rules.can_fetch(url, self._agent):
            raise Denied(f"{shown_url(url)}: robots.txt asks to leave it alone (option robots)")

    async def _ask(self, site: str) -> Protego:
        said = bytearray()
        async with self._client.stream(f"{site}/robots.txt", accept=_UNAVAILABLE) as stream:
            if not 200 <= stream.status < 300:
                return Protego.parse("")  # everything is allowed
            async for piece in stream:
                said += piece
                if len(said) >= _LIMIT:
                    break
        text = bytes(said[:_LIMIT]).decode("utf-8", "replace")
        try:
            rules = await trio.to_thread.run_sync(lambda: Protego.parse(rules_for(self._agent, text)))
        except ValueError as exc:
            raise ProtocolViolation(f"{site}/robots.txt: cannot be understood: {exc}") from exc
        delay = rules.crawl_delay(self._agent)
        rate = rules.request_rate(self._agent)
        if rate is not None and rate.requests:
            delay = max(delay or 0.0, rate.seconds / rate.requests)
        if delay:
            self._client.slow_down(site, min(float(delay), _LONGEST_DELAY))
        return rules


def rules_for(agent: str, text: str) -> str:
    """Return the part of a robots.txt for one program, with one group for its name and another group for all programs.

    The parser makes an object for each rule of each program that a group names. Of several names that fit, the longest
    counts, as in the parser.
    """
    agent = agent.lower()
    starts = [0, *(found.end() for found in re.finditer(r"[^\w-]", agent))]
    fitting = (name for name in _names(text) if name != "*" and any(agent.startswith(name, at) for at in starts))
    wanted = {"*", max(fitting, key=len, default="*")}
    lines: list[str] = []
    for names, rules in _groups(text):
        if wanted.isdisjoint(names):
            continue
        lines += [f"User-agent: {name}" for name in sorted(wanted & names)]
        lines += rules
        if len(lines) > _MOST_RULES:
            return "User-agent: *\nDisallow: /\n"
    return "\n".join(lines)


def _names(text: str) -> Iterator[str]:
    for names, _ in _groups(text):
        yield from names


def _groups(text: str) -> Iterator[tuple[set[str], list[str]]]:
    """Yield the names of each group in lower case, and its rules."""
    names: set[str] = set()
    rules: list[str] = []
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if not line or _SITE_WIDE.match(line):
            continue
        found = _AGENT.match(line)
        if found is None:
            rules.append(line)
            continue
        if rules:
            yield names, rules
            names, rules = set(), []
        name = found[1].lower()
        names.add(name.replace("*", "") or name)
    yield names, rules
