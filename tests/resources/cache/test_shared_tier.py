"""The shared tier on a real server: what is kept, for whom, for how long, and what an outage costs."""

import json
import logging
import math
from dataclasses import replace

import pytest
import trio
from cache_server import CacheServer
from shared_machines import BOUND, OTHER, SOURCE, headers, machines, made, whole

from bbfs.model.errors import Unreachable
from bbfs.model.values import SharedCache
from bbfs.resources.cache.shared.connection import probe
from bbfs.resources.cache.shared.scripts import FORMAT
from bbfs.resources.cache.tier import EVERYTHING


@pytest.mark.parametrize("contents", [(b"the first", b"\0\xff"), (bytes(range(256)) * (1 << 14),)])
async def test_what_one_machine_puts_the_others_get(
    settings: SharedCache, server: CacheServer, contents: tuple[bytes, ...]
) -> None:
    async with machines(*[replace(settings, max_content=1 << 23)] * 2) as (one, two):
        kept = await one.put("test://a", *contents)
        for found in (
            await two.tier.get(SOURCE, "test://a"),
            await two.tier.claim(SOURCE, "test://a", timeout=1),
        ):
            assert found is not None
            assert (headers(found), found.ttl, whole(found)) == (headers(kept), kept.ttl, contents)
            assert 0 <= kept.fetched_at - found.fetched_at < BOUND
        assert await two.tier.get(SOURCE, "test://b") is None
        assert await two.tier.get(OTHER, "test://a") is None
    assert server.keys("loading") == []


async def test_everything_expires_by_itself(settings: SharedCache, server: CacheServer) -> None:
    async with machines(settings, replace(settings, longest=30.0)) as (one, two):
        await one.put("test://a", b"a" * 20_000, ttl=100)
        await two.put("test://b", b"b" * 20_000, ttl=100)
        await one.tier.drop(SOURCE, None)
        await one.tier.claim(SOURCE, "test://c", timeout=1)
        left = {key: int(server.ask("TTL", key)) for key in server.ask("KEYS", "*").split("\n")}
        entries = sorted(seconds for key, seconds in left.items() if ":entry:" in key)
        contents = sorted(seconds for key, seconds in left.items() if ":content:" in key)
        assert all(seconds > 0 for seconds in left.values())
        assert entries[0] in range(28, 31)
        assert entries[1] in range(3690, 3701)
        assert contents[0] > entries[0]
        assert contents[1] > entries[1]


async def test_equal_bytes_are_kept_once_and_as_long_as_the_last_entry(
    settings: SharedCache, server: CacheServer
) -> None:
    same = b"same" * 8192
    async with machines(replace(settings, longest=30.0), settings) as (short, long):
        await short.put("test://a", same)
        await long.put("test://b", same, same)
        await short.put("test://c", same, source=OTHER)
    [content] = server.keys("content")
    assert len(server.keys("entry")) == 3
    assert int(server.ask("TTL", content)) > 3000


async def test_ages_are_those_of_the_server_whatever_the_clocks_say(settings: SharedCache) -> None:
    async with machines(settings, settings) as (one, two):
        one.clock.now, two.clock.now = 1e9, 2e9
        await one.put("test://a", b"x", ttl=1000)
        found = await two.tier.get(SOURCE, "test://a")
        assert found is not None
        assert 0 <= 2e9 - found.fetched_at < 5
        assert found.fresh(two.clock())


async def test_what_has_expired_is_still_got_but_claimed_anew(settings: SharedCache) -> None:
    async with machines(settings, settings) as (one, two):
        assert await one.tier.claim(SOURCE, "test://a", timeout=1) is None
        await one.tier.put(SOURCE, "test://a", made(b"x", at=one.clock() - 99.95, ttl=100))
        await trio.sleep(0.1)  # it expires by the server's clock, which no test can set
        found = await two.tier.get(SOURCE, "test://a")
        assert found is not None
        assert await two.tier.claim(SOURCE, "test://a", timeout=1) is None


async def test_what_is_too_old_for_the_asker_is_claimed(settings: SharedCache) -> None:
    async with machines(settings, settings) as (one, two):
        await one.put("test://a", b"x")
        assert await two.tier.claim(SOURCE, "test://a", timeout=1, newer_than=two.clock() - 10) is not None
        two.clock.now += 20
        assert await two.tier.claim(SOURCE, "test://a", timeout=1, newer_than=two.clock()) is None


@pytest.mark.parametrize("harm", ["missing", "wrong", "short", "forged", "entry"])
async def test_a_damaged_entry_is_a_miss_and_removed(settings: SharedCache, server: CacheServer, harm: str) -> None:
    async with machines(settings, settings) as (one, two):
        await one.put("test://a", b"one", b"two" if harm in ("short", "forged") else b"two" * 8192)
        entry, *contents = [*server.keys("entry"), *server.keys("content")]
        match harm:
            case "missing":
                server.ask("DEL", contents[0])
            case "wrong":
                server.ask("SET", contents[0], "forged", "KEEPTTL")
            case "short":
                server.ask("HSET", entry, "bytes", "onetw")
            case "forged":
                server.ask("HSET", entry, "bytes", "oneTWO")
            case "entry":
                server.ask("HSET", entry, "parts", json.dumps([["..", -1, None, None, "text", None]]))
        assert await two.tier.get(SOURCE, "test://a") is None
        assert server.keys("entry") == []
        assert two.tier.problem is None
        await one.put("test://a", b"one", b"two")
        assert await two.tier.get(SOURCE, "test://a") is not None


async def test_a_damaged_entry_is_claimed_by_who_finds_it(settings: SharedCache, server: CacheServer) -> None:
    async with machines(settings) as (one,):
        await one.put("test://a", b"one")
        server.ask("HSET", server.keys("entry")[0], "bytes", "")
        assert await one.tier.claim(SOURCE, "test://a", timeout=1) is None
        await one.put("test://a", b"one")
        assert await one.tier.get(SOURCE, "test://a") is not None


async def test_large_contents_are_not_shared(settings: SharedCache, server: CacheServer) -> None:
    async with machines(replace(settings, max_content=10), settings) as (small, large):
        await small.put("test://a", b"12345", b"123456")
        assert server.keys("entry") == server.keys("content") == []
        await large.put("test://b", b"12345", b"123456")
        with trio.fail_after(BOUND):
            assert await small.tier.get(SOURCE, "test://b") is None
            assert await small.tier.claim(SOURCE, "test://b", timeout=math.inf) is None
        assert len(server.keys("entry")) == 1


async def test_many_at_once_are_no_outage(settings: SharedCache) -> None:
    async with machines(settings) as (one,):
        await one.put("test://a", b"x" * 4096)
        found: list[object] = []

        async def get() -> None:
            found.append(await one.tier.get(SOURCE, "test://a"))

        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(get)
        assert len(found) == 200
        assert one.tier.problem is None


async def test_many_loads_at_once_are_few_requests(settings: SharedCache, server: CacheServer) -> None:
    async with machines(settings, settings) as (one, two):
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(one.put, f"test://{number}", b"%d" % number)
        called = server.ask("INFO", "commandstats").partition("evalsha:calls=")[2].partition(",")[0]
        assert 0 < int(called) < 20
        for number in (0, 99):
            found = await two.tier.get(SOURCE, f"test://{number}")
            assert found is not None
            assert whole(found) == (b"%d" % number,)


async def test_a_drop_reaches_the_others_and_not_itself(settings: SharedCache) -> None:
    async with machines(settings, settings) as (one, two):
        await one.put("test://a", b"a")
        await one.put("test://b", b"b")
        await one.tier.drop(SOURCE, "test://a")
        await two.hears((SOURCE, "test://a"))
        assert await two.tier.get(SOURCE, "test://a") is None
        assert await two.tier.get(SOURCE, "test://b") is not None
        await one.put("test://c", b"c", source=OTHER)
        await two.tier.drop(SOURCE, None)
        await one.hears((SOURCE, None))
        assert await one.tier.get(SOURCE, "test://b") is None
        assert await one.tier.get(OTHER, "test://c") is not None
        assert two.heard == [(SOURCE, "test://a")]


async def test_without_a_server_nothing_waits(settings: SharedCache, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with machines(replace(settings, socket="/nonexistent/socket")) as (one,):
            with trio.fail_after(BOUND):
                for _ in range(1000):
                    assert await one.tier.claim(SOURCE, "test://a", timeout=1000) is None
                    await one.put("test://a", b"a")
                    assert await one.tier.get(SOURCE, "test://a") is None
                    one.tier.give_up(SOURCE, "test://a")
                await trio.sleep(0.3)
            assert "No such file" in (one.tier.problem or "")
    assert len(caplog.records) == 1
    assert "unix:///nonexistent/socket" in caplog.text


async def test_an_outage_is_one_line_and_afterwards_everything_is_suspect(
    settings: SharedCache, server: CacheServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with machines(settings, settings) as (one, two):
            await one.put("test://a", b"a")
            server.stop()
            with trio.fail_after(BOUND):
                assert await one.tier.get(SOURCE, "test://a") is None
            await one.tier.drop(SOURCE, "test://b")
            await one.tier.drop(OTHER, None)
            server.start()
            await one.back()
            await two.back()
            assert one.heard == [(EVERYTHING, None)]
            assert two.heard[-1] == (EVERYTHING, None) or (EVERYTHING, None) in two.heard
            await two.put("test://a", b"a")
            assert await one.tier.get(SOURCE, "test://a") is not None
    assert sorted(record.levelname for record in caplog.records) == ["INFO"] * 4 + ["WARNING"] * 2


async def test_what_could_not_be_told_is_told_later(settings: SharedCache) -> None:
    async with machines(settings, settings) as (one, two):
        await one.put("test://a", b"a")
        one.tier.server.fail("cut off by the test")
        await one.tier.drop(SOURCE, "test://a")
        await two.hears((SOURCE, "test://a"))
        assert await two.tier.get(SOURCE, "test://a") is None
        two.heard.clear()
        one.tier.undelivered[SOURCE, "test://b"] = None  # as by a request that was not answered in time
        await two.hears((SOURCE, "test://b"))
        assert one.tier.undelivered == {}


async def test_a_server_that_hangs_costs_one_wait_and_is_left_alone(
    settings: SharedCache, server: CacheServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with machines(replace(settings, timeout=1.0)) as (one,):
        await one.put("test://a", b"a")
        server.pause()
        try:
            with trio.fail_after(BOUND):
                async with trio.open_nursery() as nursery:
                    for _ in range(50):
                        nursery.start_soon(one.tier.get, SOURCE, "test://a")
            assert one.tier.problem == "no answer within 1 s"
            with trio.fail_after(BOUND):  # a second for each would be too much
                for _ in range(100):
                    assert await one.tier.get(SOURCE, "test://a") is None
            with trio.fail_after(BOUND):
                while not caplog.records:  # noqa: ASYNC110 - it sets no event
                    await trio.sleep(0.01)
            assert len(caplog.records) == 1
        finally:
            server.go_on()
        await one.back()
        assert await one.tier.get(SOURCE, "test://a") is not None


async def test_a_wrong_password_is_one_line_without_it(caplog: pytest.LogCaptureFixture) -> None:
    server = CacheServer(password="right horse")
    try:
        wrong = SharedCache(socket=str(server.socket), password="wrong staple")
        with caplog.at_level(logging.DEBUG):
            async with machines(wrong, replace(wrong, password="right horse")) as (one, two):
                await trio.sleep(0.2)
                assert await one.tier.get(SOURCE, "test://a") is None
                await two.put("test://a", b"a")
                assert await two.tier.get(SOURCE, "test://a") is not None
        assert len([record for record in caplog.records if record.levelno > logging.INFO]) == 1
        assert "invalid username-password pair" in caplog.text
        assert "staple" not in caplog.text
        assert "horse" not in caplog.text
        with pytest.raises(Unreachable, match="invalid username-password"):
            await probe(wrong)
        assert (await probe(replace(wrong, password="right horse"))).startswith(("Redis ", "Valkey "))
    finally:
        server.close()


async def test_prefixes_and_databases_keep_apart(settings: SharedCache) -> None:
    async with machines(settings, replace(settings, prefix="team"), replace(settings, database=3)) as (a, b, c):
        await a.put("test://a", b"a")
        assert await b.tier.get(SOURCE, "test://a") is None
        assert await c.tier.get(SOURCE, "test://a") is None
        await b.tier.drop(SOURCE, "test://a")
        assert await a.tier.get(SOURCE, "test://a") is not None


async def test_strange_messages_are_left_alone(settings: SharedCache, server: CacheServer) -> None:
    async with machines(settings, settings) as (one, two):
        for message in ("", "no json", "[]", '{"by": 1}', '{"by": "x", "source": 2, "uri": null}'):
            server.ask("PUBLISH", f"bbfs:{FORMAT}:dropped", message)
        await one.tier.drop(SOURCE, "test://a")
        await two.hears((SOURCE, "test://a"))
        assert two.tier.problem is None
