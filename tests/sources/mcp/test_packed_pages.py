"""The pages of a listing that machines share: what is packed is unpacked, and nothing else is taken."""

import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from odd_servers import Odd
from shared_machines import Exchange

from bbfs.model.errors import BbfsError, ProtocolViolation, TooLarge
from bbfs.model.values import DataSource, Listing, Policy
from bbfs.sources import CanShareListing, Services
from bbfs.sources.factory import build
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.client.paging import BOUNDS, ENTRIES, packed, unpacked

LISTED = ["odd://a", "odd://b", "odd://c"]


Lists = Callable[[Exchange], Any]


@pytest.fixture
def lists(manager: MCPManager, odd: Callable[..., Odd]) -> Callable[..., Lists]:
    """Makes what lists an odd server through an exchange."""

    def make(*words: object) -> Lists:
        data = DataSource(
            "o", "odd", "server", "mcp", "mcp-server+odd", policy=Policy(timeout=20), mcp=odd(*words).server
        )
        handler = build(data, Services(mcp=manager))
        assert isinstance(handler, CanShareListing)
        return handler.list_through

    return make


def uris(listing: Listing) -> list[str]:
    return sorted(resource.native_uri for resource in listing.resources)


async def test_one_lists_and_another_takes_its_pages(lists: Callable[..., Lists]) -> None:
    one, list_one = Exchange(), lists("changing")
    first = await list_one(one)
    assert (uris(first), one.outcome) == (LISTED, [("put", None), "give up"])
    other = Exchange(one.pages)
    second = await list_one(other)
    assert (second.resources[0], second.ttl) == (first.resources[0], 7.0)
    assert (other.pages, other.outcome) == ([], [])


async def test_an_incomplete_listing_is_kept_from_other_machines(lists: Callable[..., Lists]) -> None:
    exchange = Exchange()
    listing = await lists("invalid-entry")(exchange)
    assert listing.problem == "3 invalid entries left out"
    assert exchange.outcome == ["give up"]


BAD = {
    "no zlib": b"[]",
    "cut off": zlib.compress(json.dumps([{"uri": "odd://x", "name": "x"}] * 50).encode())[:-8],
    "no JSON": zlib.compress(b"[{"),
    "no array": zlib.compress(b"{}"),
    "a bomb": zlib.compress(b" " * (BOUNDS.size + 1)),
    "too many values": zlib.compress(b"[" + b"[]," * BOUNDS.values + b"[]]"),
    "too deep": zlib.compress(b"[" * 1000 + b"]" * 1000),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_is_no_page_is_refused(bad: bytes) -> None:
    with pytest.raises((ProtocolViolation, TooLarge)):
        unpacked(bad)


async def test_of_a_damaged_list_nothing_is_left(lists: Callable[..., Lists], caplog: pytest.LogCaptureFixture) -> None:
    stranger = next(packed([{"uri": "odd://stranger", "name": "s"}]))
    exchange = Exchange([stranger, b"damaged"])
    assert uris(await lists("changing")(exchange)) == LISTED
    assert "a listing of another machine is of no use" in caplog.text
    assert exchange.outcome == []


async def test_shared_entries_are_decoded_like_a_servers(lists: Callable[..., Lists]) -> None:
    entries = [
        {"uri": 1},
        "x",
        {"uri": "odd://kept", "name": "k", "size": "large"},
        {"uri": "odd://\ud800", "name": "n"},
    ]
    listing = await lists("changing")(Exchange(list(packed(entries))))
    assert uris(listing) == ["odd://kept"]
    assert "invalid entries left out" in (listing.problem or "")


def test_pages_are_of_bounded_length() -> None:
    entries = [{"uri": f"odd://{number}", "name": "n"} for number in range(2 * ENTRIES + 1)]
    pages = list(packed(entries))
    assert len(pages) == 3
    assert [entry for page in pages for entry in unpacked(page)] == entries
    with pytest.raises(BbfsError):
        list(packed([{"text": "x" * BOUNDS.size}]))
