"""Names that programs have changed, over those of a catalog."""

from typing import Any, cast

import pytest

from bbfs.resources.catalog.overlay import Overlay
from bbfs.resources.catalog.record import DIRECTORY, Node, Path

FILE = Node("file")


class Listings:
    """A catalog of directories that were listed at times of their own."""

    def __init__(self) -> None:
        self.times: dict[Path, float] = {}
        self.nodes: dict[Path, Node] = {}

    def listed_at(self, path: Path) -> float:
        return self.times.get(path, 0.0)

    def last_cached(self, path: Path) -> Node | None:
        return self.nodes.get(path)

    cached = last_cached


@pytest.mark.parametrize("is_found_first", [True, False])
def test_a_listed_name_in_a_made_directory_is_there_while_the_listing_above_is_older(is_found_first: bool) -> None:
    listings, now = Listings(), 0.0
    overlay = Overlay(cast("Any", listings), lambda: now, derived=True, ttl=30)
    overlay.put(("a", "made"), DIRECTORY, made=True)
    overlay.put(("a", "made", "file"), FILE, stored=True)
    overlay.put(("a", "made", "draft"), FILE)
    assert overlay.find(("a", "made", "file")) == FILE
    assert overlay.is_made(("a", "made"))
    now, listings.times["a", "made"] = 40.0, 40.0
    listings.nodes["a", "made", "file"] = FILE
    if is_found_first:
        assert overlay.find(("a", "made", "file")) is None, "the catalog has it"
    assert not overlay.is_made(("a", "made"))
    assert overlay.find(("a", "made")) == DIRECTORY, "the older listing above does not show it"
    assert overlay.find(("a", "made", "draft")) == FILE
