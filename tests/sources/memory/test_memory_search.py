"""The search of a source in memory: which resources it finds, in which order, and with which snippet."""

import pytest
import trio

from bbfs.model.values import DataSource, Hit
from bbfs.sources import Services
from bbfs.sources.memory.handler import MemoryHandler
from bbfs.sources.memory.search import SEARCHED

RESOURCES = {
    "tls/renew.md": "# Certificates\n\nRenew the certificate\twith `certbot renew`.\n",
    "tls/issue.md": "How a certificate is issued.",
    "grüße.txt": "Ein GRUSS an alle",
    "lunch.txt": "soup",
}


async def found(query: str, limit: int = 10, **resources: str) -> list[Hit]:
    config = {"resources": resources or RESOURCES}
    source = DataSource("scratch", "scratch", "memory", "bb", "bb-memory+scratch+memory", config=config)
    with trio.fail_after(20):
        return list(await MemoryHandler(source, Services()).search(query, limit))


async def test_more_words_come_before_fewer() -> None:
    hits = await found("renew CERTIFICATE")
    assert [hit.native_uri for hit in hits] == ["memory://tls/renew.md", "memory://tls/issue.md"]
    assert hits[0].title == "renew.md"
    assert hits[0].snippet == "# Certificates Renew the certificate with `certbot renew`."


async def test_names_are_searched_and_letters_are_folded() -> None:
    assert [hit.native_uri for hit in await found("lunch")] == ["memory://lunch.txt"]
    assert (await found("lunch"))[0].snippet is None
    assert [hit.native_uri for hit in await found("grüsse gruß")] == ["memory://gr%C3%BC%C3%9Fe.txt"]


@pytest.mark.parametrize("query", ["", "  ", "()*", "nothing", '"'])
async def test_a_query_without_a_word_that_is_there_finds_nothing(query: str) -> None:
    assert await found(query) == []


async def test_only_the_beginning_of_a_large_text_is_searched() -> None:
    assert await found("needle", 10, **{"large.txt": "x " * SEARCHED + "needle"}) == []
    assert len(await found("needle", 1, **{"a.txt": "needle", "b.txt": "needle"})) == 1
