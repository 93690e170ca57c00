"""The shared tier on a Valkey or Redis server: machines need not load what one of them has loaded.

On the server, under a prefix:
  `entry:{SOURCE}:URI`        the answer of a load: parts with their digests, time and time to live; the bytes, if few
  `content:DIGEST`            the bytes of other parts, stored once for all resources that have them
  `loading:{SOURCE}:URI`      the claim of the machine that loads it now and renews the claim
  `epoch:{SOURCE}`            a random word; entries made under another epoch are void
All keys expire. Ages are measured by the server's clock, so the machines' clocks may differ. In a cluster, the braces
put all keys of a source but its contents on one node, where a script may use them together.

An entry counts only with all of its contents, each with the digest in the entry; anything else is a miss. Invalidating
a resource removes the claim on it (`DROP`), so the result of a load that began before is not stored.

Between two awaits a task is alone; the tables here have no lock.
"""

import json
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import trio

from bbfs.model.values import Content, SharedCache
from bbfs.resources.cache.shared import scripts
from bbfs.resources.cache.shared.connection import USUAL_WAITS, Valkey, Waits
from bbfs.resources.cache.shared.together import Together
from bbfs.resources.cache.tier import EVERYTHING, LISTING, LISTING_BYTES, Cached, PartHeader
from bbfs.sources.content.memory import MemoryContent, digest_of

if TYPE_CHECKING:
    from coredis.client import Client

log = logging.getLogger(__name__)

FIRST_LOOK, LONGEST_LOOK = 0.01, 0.1
"""Shortest and longest pause (seconds) between looks for another machine's result; each is 1.5 times the one before."""
ALONE = 1.0
"""Seconds for which machines do not wait for a resource whose claim was released without a result."""
STALE_FOR = 3600.0
"""Seconds for which a stale entry is kept, unless `SharedCache.longest` ends sooner."""
SPARE = 60.0
"""Seconds that a content outlives its entry."""
UNDELIVERED = 10_000
"""Invalidations that wait for a connection; beyond that, whole sources are invalidated."""
ASKED_TOGETHER = 1 << 20
"""Bytes of contents that one request asks for, if they are several."""
IN_ENTRY = 16 << 10
"""Bytes of a resource that its entry has: fewer cost less than another request."""
PUTS_APART = 8
"""Contents that are stored apart at a time: fewer than requests under way, so that no reader waits for write-behind."""
THREAD_FROM = 1 << 20
"""Bytes from which digests are computed in a thread."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim of this machine. since: the server's time, in ms. until: trio's clock, end of its renewal.

    token: the value of the claim on the server; empty if there is no claim there: then the result is not stored, since
    an invalidation meanwhile would go unnoticed.
    """

    token: str
    epoch: bytes
    since: bytes
    until: float


class ValkeyTier:
    """A `SharedTier`. Without a connection, every call is a miss at once. clock: seconds since the epoch."""

    def __init__(
        self, settings: SharedCache, *, clock: Callable[[], float] = time.time, waits: Waits = USUAL_WAITS
    ) -> None:
        """Raises ConfigError if the client library is not installed."""
        self._settings = settings
        self._clock = clock
        self._keys = _Keys(settings.prefix)
        self._lease = waits.lease
        self.server = Valkey(settings, self._keys.channel, waits)
        self._instance = secrets.token_hex(8)
        self.claims: dict[tuple[str, str], _Claim] = {}
        self.undelivered: dict[tuple[str, str | None], None] = {}
        self._dropped: Callable[[str, str | None], None] | None = None
        self._nursery: trio.Nursery | None = None
        self._together = Together(self._exchange_all)
        self._puts_apart = trio.CapacityLimiter(PUTS_APART)

    @property
    def problem(self) -> str | None:
        """Why there is no connection, without secrets; None while there is one."""
        return self.server.problem

    # -- reading -----------------------------------------------------------------------------------------------------

    async def get(self, source: str, uri: str) -> Cached | None:
        now = self._clock()
        answer = await self._find(source, uri, token="", newest=None)
        return await self._whole(source, uri, answer, now) if answer is not None and answer[0] == b"found" else None

    async def claim(self, source: str, uri: str, *, timeout: float, newer_than: float = 0.0) -> Cached | None:
        began = trio.current_time()
        pause, damaged = FIRST_LOOK, False
        token, epoch = f"{self._instance} {secrets.token_hex(4)}", b""
        since = b""
        while True:
            now = self._clock()
            answer = await self._find(source, uri, token=token, newest=max(0.0, now - newer_than))
            state = b"alone" if answer is None else answer[0]
            if answer is not None and state == b"found":
                whole = await self._whole(source, uri, answer, now)
                if whole is not None:
                    return whole
                state, damaged = (b"alone" if damaged else b"damaged"), True
            elif answer is not None and state == b"claimed":
                _, epoch, since = answer
                break
            elif state == b"held" and trio.current_time() < began + timeout / 2:
                await trio.sleep(pause)
                pause = min(1.5 * pause, LONGEST_LOOK)
                continue
            if state != b"damaged":
                token = ""
                break
        self.claims[source, uri] = _Claim(token, epoch, since, began + 2 * timeout)
        return None

    async def _find(self, source: str, uri: str, *, token: str, newest: float | None) -> list[Any] | None:
        """Find an entry. token: the claim to make if there is none. newest: largest age (seconds) of its claim."""
        age = "" if newest is None else str(_ms(newest))
        return await self._exchange(source, uri, token, age)

    async def _exchange(self, source: str, uri: str, *arguments: Any, urgent: bool = True) -> Any:
        """Return the answer of `EXCHANGE` to one resource, or None."""
        if self._nursery is None or not self.server.up:
            return None
        return await self._together.ask(self._nursery, source, (uri, arguments), urgent=urgent)

    async def _exchange_all(self, source: str, asked: Sequence[tuple[str, Sequence[Any]]]) -> Any:
        keys = [key for uri, _ in asked for key in self._keys.of(source, uri)]
        arguments = [_ms(self._lease)]
        for _, each in asked:
            arguments += [len(each), *each]
        return await self._run(scripts.EXCHANGE, [*keys, self._keys.epoch(source)], arguments)

    async def _whole(self, source: str, uri: str, answer: list[Any], now: float) -> Cached | None:
        """Return the entry of an answer, with its contents; remove a damaged one.

        now: a time before the request, so that the entry never seems younger than it is.
        """
        _, text, age, ttl, data = answer
        headers = scripts.parse_parts(text) or ()
        size = sum(header.size for header in headers)
        if size > self._largest(uri):
            return None  # the limit of the other machine is larger
        apart = [self._keys.content(header.digest) for header in headers] if size > IN_ENTRY else []
        found = await self._contents(headers) if apart else _split(headers, data)
        if found is None:
            return None
        contents = [content for content in found if content is not None]
        if headers and len(contents) == len(headers):
            digests = await _digests(contents)
            wrong = [at for at, header in enumerate(headers) if header.digest != digests[at]]
            if not wrong:
                whole = zip(headers, contents, strict=True)
                parts = tuple(header.part(MemoryContent(data, header.digest)) for header, data in whole)
                return Cached(parts, now - age / 1000, ttl / 1000)
            log.warning("shared cache %s: a content with a wrong digest was removed", self._settings)
            if apart:
                await self.server.ask(lambda client: client.delete([apart[at] for at in wrong]))
        entry = self._keys.of(source, uri)[0]
        await self.server.ask(lambda client: client.delete([entry]))
        return None

    async def _contents(self, headers: Sequence[PartHeader]) -> Sequence[bytes | None] | None:
        """Return contents that are stored apart from their entry, None for missing ones; or None without an answer."""
        found: list[bytes | None] = []
        for some in _in_requests(headers):
            asked = [self._keys.content(header.digest) for header in some]
            answers: Sequence[bytes | None] | None = await self.server.ask(partial(_get, asked))
            if answers is None:
                return None
            found += answers
        return found

    def _largest(self, uri: str) -> int:
        """Return how many bytes may be shared under a URI."""
        return LISTING_BYTES if uri == LISTING else self._settings.max_content

    # -- writing -----------------------------------------------------------------------------------------------------

    async def put(self, source: str, uri: str, cached: Cached) -> None:
        """Store the answer of a load that was claimed, unless it is too large, stale, or was invalidated meanwhile."""
        claim = self.claims.pop((source, uri), None)
        if claim is None or not claim.token:
            return
        age = max(0.0, self._clock() - cached.fetched_at)
        life = min(cached.ttl + STALE_FOR, self._settings.longest) - age
        fits = cached.parts and cached.size <= self._largest(uri)
        apart = {part.content.version: part.content for part in cached.parts} if cached.size > IN_ENTRY else {}
        if not (fits and cached.ttl > age and life > 0 and self.server.up) or not all(
            [await self._put_content(digest, content, life) for digest, content in apart.items()]
        ):
            self._release(source, uri, claim)
            return
        text = scripts.parts_text(map(PartHeader.of, cached.parts))
        data = b"" if apart else b"".join(part.content.read(0, part.content.size) or b"" for part in cached.parts)
        age = max(0.0, self._clock() - cached.fetched_at)  # the bytes may have been long on their way
        claimed = claim.token, claim.epoch, claim.since
        arguments = [*claimed, _ms(age), _ms(cached.ttl), _ms(life), text, data]
        await self._exchange(source, uri, *arguments, urgent=False)

    async def _put_content(self, digest: str, content: Content, life: float) -> bool:
        """Have the server keep a content for `life` seconds at least; send its bytes only if they are not there."""
        key, lasting = self._keys.content(digest), _ms(life + SPARE)
        async with self._puts_apart:
            left = await self.server.ask(lambda client: client.pttl(key))
            if left is None or left >= _ms(life):
                return left is not None
            if left > 0 and await self.server.ask(lambda client: client.pexpire(key, lasting)):
                return True
            data = content.read(0, content.size) or b""
            return bool(await self.server.ask(lambda client: client.set(key, data, px=lasting)))

    def give_up(self, source: str, uri: str) -> None:
        self._release(source, uri, self.claims.pop((source, uri), None))

    def _release(self, source: str, uri: str, claim: _Claim | None) -> None:
        if claim is not None and claim.token and self._nursery is not None and self.server.up:
            keys = [self._keys.of(source, uri)[1]]
            self._nursery.start_soon(self._run, scripts.RELEASE, keys, [claim.token, _ms(ALONE)])

    # -- what changes ------------------------------------------------------------------------------------------------

    async def drop(self, source: str, uri: str | None) -> None:
        """Invalidate a resource (None: all of the source) on all machines, as soon as there is a connection."""
        if await self.server.ask(lambda client: self._deliver(client, source, uri)) is None:
            self.undelivered[source, uri] = None
            if len(self.undelivered) > UNDELIVERED:
                self.undelivered = dict.fromkeys((each, None) for each, _ in self.undelivered)

    async def _deliver(self, client: "Client[bytes]", source: str, uri: str | None) -> int:
        message = json.dumps({"by": self._instance, "source": source, "uri": uri})
        if uri is None:
            arguments = [secrets.token_hex(8), _ms(2 * self._settings.longest), self._keys.channel, message]
            return await self.server.run_script(client, scripts.DROP_ALL, [self._keys.epoch(source)], arguments)
        arguments = [self._keys.channel, message]
        return await self.server.run_script(client, scripts.DROP, self._keys.of(source, uri), arguments)

    async def run(
        self,
        dropped: Callable[[str, str | None], None],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep the connection, renew claims, and report invalidations by other machines, until cancelled.

        Has started after the first try to connect, or after three seconds.
        """
        self._dropped = dropped
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await nursery.start(self.server.run, self._hear, self._ready)
                task_status.started()
                await self._keep_renewing()
            finally:
                self._nursery = None

    async def _ready(self, client: "Client[bytes]", again: bool) -> None:
        """Prepare a new connection: deliver waiting invalidations, and report that some may have been missed."""
        while self.undelivered:
            source, uri = next(iter(self.undelivered))
            await self._deliver(client, source, uri)
            self.undelivered.pop((source, uri), None)
        if again and self._dropped is not None:
            self._dropped(EVERYTHING, None)

    def _hear(self, message: bytes) -> None:
        told = scripts.parse_dropped(message)
        if told is None:
            log.debug("shared cache: an unknown message was left alone")
        elif told.by != self._instance and self._dropped is not None:
            self._dropped(told.source, told.uri)

    async def _keep_renewing(self) -> None:
        """Renew the claims and deliver waiting invalidations, again and again."""
        while True:
            await trio.sleep(self._lease / 3)
            now = trio.current_time()
            if held := {key: claim for key, claim in self.claims.items() if claim.token and claim.until > now}:
                for source in {source for source, _ in held}:  # a script runs on the node of one source
                    mine = {key: claim.token for key, claim in held.items() if key[0] == source}
                    keys = [self._keys.of(*key)[1] for key in mine]
                    await self._run(scripts.RENEW, keys, [_ms(self._lease), *mine.values()])
            for source, uri in tuple(self.undelivered):
                if not self.server.up:
                    break
                if self.undelivered.pop((source, uri), self) is None:
                    await self.drop(source, uri)

    async def _run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        return await self.server.ask(lambda client: self.server.run_script(client, script, keys, arguments))


class _Keys:
    """The keys on the server. They have a digest of the URI, which may be of any length."""

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix}:{scripts.FORMAT}:"
        self.channel = f"{self._prefix}dropped"

    def content(self, digest: str) -> str:
        return f"{self._prefix}content:{digest}"

    def epoch(self, source: str) -> str:
        return f"{self._prefix}epoch:{{{source}}}"

    def of(self, source: str, uri: str) -> list[str]:
        """Return the keys of the entry and of its claim."""
        name = f"{{{source}}}:{blake2b(uri.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
        return [f"{self._prefix}entry:{name}", f"{self._prefix}loading:{name}"]


def _in_requests(headers: Sequence[PartHeader]) -> Iterator[Sequence[PartHeader]]:
    """Yield the parts that one request asks for: large ones in requests of their own, each within the time of one."""
    begun, size = 0, 0
    for place, header in enumerate(headers):
        if size and size + header.size > ASKED_TOGETHER:
            yield headers[begun:place]
            begun, size = place, 0
        size += header.size
    yield headers[begun:]


def _split(headers: Sequence[PartHeader], data: bytes) -> Sequence[bytes]:
    """Return the contents in the bytes of an entry; none if those are fewer or more."""
    ends = list(accumulate(header.size for header in headers))
    whole = bool(ends) and ends[-1] == len(data)
    return [data[end - header.size : end] for header, end in zip(headers, ends, strict=True)] if whole else []


async def _get(keys: Sequence[str], client: "Client[bytes]") -> Sequence[bytes | None]:
    return await client.mget(keys)


async def _digests(contents: Sequence[bytes]) -> list[str]:
    if sum(map(len, contents)) >= THREAD_FROM:
        return await trio.to_thread.run_sync(lambda: list(map(digest_of, contents)), abandon_on_cancel=True)
    return list(map(digest_of, contents))


def _ms(seconds: float) -> int:
    return int(1000 * min(seconds, 1e9))
