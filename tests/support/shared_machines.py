"""Machines that share a tier on a real server, each with a clock of its own."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import trio

from bbfs.model.values import Part, SharedCache
from bbfs.resources.cache.shared.connection import Waits
from bbfs.resources.cache.shared.valkey_tier import ValkeyTier
from bbfs.resources.cache.tier import Cached, PartHeader
from bbfs.sources.content.memory import MemoryContent

SOURCE = "mcp-server+docs 0123"
OTHER = "mcp-server+more 4567"
BOUND = 10.0
PATIENT = Waits(connecting=BOUND, start=BOUND)
"""A busy machine is no outage."""
QUICK = replace(PATIENT, first_pause=0.02, longest_pause=0.05)


class Clock:
    """Seconds since the epoch that a test sets."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Machine:
    """One machine's end of the tier, and what it has heard of the others' invalidations."""

    def __init__(self, settings: SharedCache, clock: Clock, waits: Waits) -> None:
        self.clock = clock
        self.tier = ValkeyTier(settings, clock=clock, waits=waits)
        self.heard: list[tuple[str, str | None]] = []
        self._news = trio.Event()

    def dropped(self, source: str, uri: str | None) -> None:
        self.heard.append((source, uri))
        self._news.set()
        self._news = trio.Event()

    async def hears(self, *expected: tuple[str, str | None]) -> None:
        with trio.fail_after(BOUND):
            while self.heard != list(expected):
                await self._news.wait()

    async def put(self, uri: str, *contents: bytes, source: str = SOURCE, ttl: float = 60.0) -> Cached:
        """As the load that was claimed, or is claimed now."""
        if (source, uri) not in self.tier.claims:
            assert await self.tier.claim(source, uri, timeout=BOUND, newer_than=self.clock()) is None
        cached = made(*contents, at=self.clock(), ttl=ttl)
        await self.tier.put(source, uri, cached)
        return cached

    async def back(self) -> None:
        """Until it has a connection (again)."""
        with trio.fail_after(BOUND):
            while self.tier.problem is not None or not self.tier.server.up:  # noqa: ASYNC110 - it sets no event
                await trio.sleep(0.01)


def made(*contents: bytes, at: float, ttl: float = 60.0) -> Cached:
    parts = [Part(f"test://{i}", "text/plain", MemoryContent(c), "text") for i, c in enumerate(contents)]
    return Cached(tuple(parts), at, ttl)


def headers(cached: Cached) -> list[PartHeader]:
    return [PartHeader.of(part) for part in cached.parts]


def whole(cached: Cached) -> tuple[bytes | None, ...]:
    """The bytes of all contents."""
    return tuple(part.content.read(0, part.content.size) for part in cached.parts)


@asynccontextmanager
async def machines(*settings: SharedCache, waits: Waits = QUICK) -> AsyncIterator[list[Machine]]:
    """As many machines, each with a clock of its own, at work."""
    async with trio.open_nursery() as nursery:
        made = [Machine(each, Clock(), waits) for each in settings]
        for machine in made:
            await nursery.start(machine.tier.run, machine.dropped)
        yield made
        nursery.cancel_scope.cancel()


class Exchange:
    """What machines know of one listing: nothing, or pages; and what becomes of the listing of this one."""

    def __init__(self, known: Sequence[bytes] | None = None) -> None:
        self.known = known
        self.pages: list[bytes] = []
        self.outcome: list[Any] = []

    async def claim(self) -> tuple[Sequence[bytes], float] | None:
        return None if self.known is None else (self.known, 7.0)

    def add(self, page: bytes) -> None:
        self.pages.append(page)

    def put(self, ttl: float | None) -> None:
        self.outcome.append(("put", ttl))

    def give_up(self) -> None:
        self.outcome.append("give up")
