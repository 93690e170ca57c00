"""Who loads what machines share, who waits for that, and what is not kept because something was told meanwhile."""

from dataclasses import replace

import pytest
import trio
from cache_server import CacheServer
from shared_machines import BOUND, QUICK, SOURCE, machines, made, whole

from bbfs.model.values import SharedCache


async def test_what_was_asked_for_before_a_doubt_is_too_old_however_late_it_came(settings: SharedCache) -> None:
    async with machines(settings, settings) as (one, two):
        assert await one.tier.claim(SOURCE, "test://a", timeout=BOUND) is None
        await trio.sleep(0.05)  # by the server's clock, which no test can set
        await one.put("test://a", b"from before")
        assert await two.tier.claim(SOURCE, "test://a", timeout=1, newer_than=two.clock() - 0.04) is None
        await two.put("test://a", b"asked for since then")
        assert await one.tier.claim(SOURCE, "test://a", timeout=1) is not None


async def test_what_nobody_has_claimed_is_not_kept(settings: SharedCache, server: CacheServer) -> None:
    async with machines(settings) as (one,):
        await one.tier.put(SOURCE, "test://a", made(b"x", at=one.clock()))
        assert server.ask("DBSIZE") == "0"


async def test_a_claim_that_was_not_renewed_is_not_put_without_one(settings: SharedCache, server: CacheServer) -> None:
    async with machines(settings, settings, waits=replace(QUICK, lease=0.06)) as (one, two):
        assert await one.tier.claim(SOURCE, "test://a", timeout=0.01) is None
        with trio.fail_after(BOUND):
            while server.keys("loading"):  # noqa: ASYNC110 - another process
                await trio.sleep(0.01)
        await two.tier.drop(SOURCE, "test://a")
        await one.tier.put(SOURCE, "test://a", made(b"from before", at=one.clock()))
        assert await two.tier.get(SOURCE, "test://a") is None


@pytest.mark.parametrize("uri", ["test://a", None])
async def test_what_was_being_loaded_when_it_changed_is_not_kept(settings: SharedCache, uri: str | None) -> None:
    async with machines(settings, settings) as (one, two):
        assert await one.tier.claim(SOURCE, "test://a", timeout=1) is None
        await two.tier.drop(SOURCE, uri)
        await one.put("test://a", b"from before")
        assert await two.tier.get(SOURCE, "test://a") is None
        assert await one.tier.claim(SOURCE, "test://a", timeout=1) is None
        await one.tier.drop(SOURCE, uri)
        await one.put("test://a", b"from before")
        assert await two.tier.get(SOURCE, "test://a") is None


async def test_two_that_miss_at_once_load_once(settings: SharedCache) -> None:
    async with machines(settings, settings) as (one, two):
        assert await one.tier.claim(SOURCE, "test://a", timeout=BOUND) is None
        async with trio.open_nursery() as nursery:

            async def second() -> None:
                found = await two.tier.claim(SOURCE, "test://a", timeout=2 * BOUND)
                assert found is not None
                assert whole(found) == (b"x",)

            nursery.start_soon(second)
            await trio.sleep(0.05)
            await one.put("test://a", b"x")


async def test_who_waits_is_told_when_nothing_comes(settings: SharedCache) -> None:
    async with machines(settings, settings) as (one, two):
        assert await one.tier.claim(SOURCE, "test://a", timeout=BOUND) is None
        with trio.fail_after(BOUND / 2):
            async with trio.open_nursery() as nursery:

                async def second() -> None:
                    assert await two.tier.claim(SOURCE, "test://a", timeout=2 * BOUND) is None

                nursery.start_soon(second)
                await trio.sleep(0.05)
                one.tier.give_up(SOURCE, "test://a")
            one.tier.give_up(SOURCE, "test://a")


async def test_nobody_waits_for_longer_than_half_its_own_time(settings: SharedCache) -> None:
    async with machines(settings, settings) as (one, two):
        assert await one.tier.claim(SOURCE, "test://a", timeout=BOUND) is None
        with trio.fail_after(BOUND):
            assert await two.tier.claim(SOURCE, "test://a", timeout=0.2) is None
        await two.put("test://a", b"two")
        assert await two.tier.get(SOURCE, "test://a") is None, "only who holds the claim may put"
        await one.put("test://a", b"one")
        found = await two.tier.get(SOURCE, "test://a")
        assert found is not None
        assert whole(found) == (b"one",)


async def test_a_machine_that_died_holds_nobody_up(settings: SharedCache) -> None:
    async with machines(settings) as (two,):
        async with machines(settings) as (one,):
            assert await one.tier.claim(SOURCE, "test://a", timeout=1000) is None
            assert await two.tier.claim(SOURCE, "test://a", timeout=4.5) is None, "it is renewed while one lives"
            two.tier.give_up(SOURCE, "test://a")
        with trio.fail_after(BOUND):
            assert await two.tier.claim(SOURCE, "test://a", timeout=1000) is None
        await two.put("test://a", b"two")
        assert await two.tier.get(SOURCE, "test://a") is not None
