"""Compact listings: the same tree whatever the order and the pages."""

from typing import Any

import pytest
from folded import folded, places
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.listing import Rows
from bbfs.sources.mcp.client.decode import add_resources, resource_entry

PREFIX = "mcp-server+docs"
PARTS = st.sampled_from(["a", "b", "a%20b", "a b", "%41", "", ".", "index.txt"])
URIS = st.lists(st.lists(PARTS, min_size=1, max_size=3).map(lambda parts: "x://" + "/".join(parts)), unique=True)


@pytest.mark.semantics("S4")
@given(URIS, st.randoms())
def test_the_order_does_not_matter_and_leaves_may_be_uris(uris: list[str], random: Any) -> None:
    expected = places(folded(uris))
    random.shuffle(uris)
    assert places(folded(uris)) == expected


@pytest.mark.semantics("S4")
@given(URIS, URIS)
def test_a_tree_changed_in_place_is_the_one_folded_anew(before: list[str], after: list[str]) -> None:
    tree = folded(before)
    was = places(tree)
    added = [uri for uri in after if uri not in before]
    told = tree.change(added, [uri for uri in before if uri not in after])
    assert places(tree) == (was if told is None else places(folded(after)))
    if told is not None:
        now = places(tree)
        assert set(told) == {path for path in was.keys() | now.keys() if was.get(path) != now.get(path)}


def test_of_the_same_uri_the_first_counts() -> None:
    rows = Rows(PREFIX)
    rows.add("x://a", ("one",))
    rows.add("x://a", ("two",))
    assert list(rows.descriptions.items()) == [("x://a", ("one",))]


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["a", "other", "", 5, "\ud800"]),
        "mimeType": st.sampled_from(["text/plain", None, 7, "\ud800"]),
        "size": st.sampled_from([0, 1, 5.0, "5", True]),
        "title": st.just("T"),
        "annotations": st.just({"lastModified": "2026-01-02T03:04:05Z"}),
    },
)


@given(st.lists(st.tuples(URIS.filter(bool).map(lambda uris: uris[0]), FIELDS)), st.integers(1, 5))
def test_rows_say_what_entries_say_whatever_the_pages(given_: list[tuple[str, dict[str, Any]]], page: int) -> None:
    raw = [{"uri": uri, **fields} for uri, fields in given_]
    rows = Rows(PREFIX)
    for start in range(0, len(raw), page):
        assert add_resources(raw[start : start + page], rows).invalid == 0
    expected = {}
    for item in raw:
        entry = resource_entry(item)
        assert entry is not None
        expected.setdefault(entry.uri, entry)
    for metadata, entry in zip(rows, expected.values(), strict=True):
        for field in ("name", "title", "mime_type", "size", "modified_ns", "annotations", "mcp_data"):
            assert getattr(metadata, field) == getattr(entry, field)
        assert metadata.uri == f"{PREFIX}+{entry.uri}"
