"""A mapping in buckets against a dict, with buckets of four keys."""

from collections.abc import Iterator

import pytest
from folded import folded, places
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model import listing
from bbfs.model.listing import Buckets
from bbfs.resources.catalog import folding
from bbfs.resources.catalog.folding import Directory

KEYS = st.text(alphabet="ab\udc80\U0010ffff", max_size=4)
STEPS = st.lists(st.tuples(st.sampled_from(["set", "default", "delete"]), KEYS, st.integers(0, 9)), max_size=60)


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "LARGEST", 4)
        patch.setattr(folding, "LARGEST", 4)
        yield


def change(mapping: "dict[str, int] | Buckets[int]", step: str, key: str, value: int) -> "int | None":
    if step == "set":
        mapping[key] = value
        return None
    if step == "default":
        return mapping.setdefault(key, value)
    return mapping.pop(key, None)


@given(STEPS)
def test_it_holds_what_a_dict_does(steps: list[tuple[str, str, int]]) -> None:
    expected: dict[str, int] = {}
    found: Buckets[int] = Buckets()
    for step, key, value in steps:
        assert change(found, step, key, value) == change(expected, step, key, value)
        assert len(found) == len(expected)
        assert found.get(key) == expected.get(key)
        assert (key in found) == (key in expected)
    assert dict(found) == expected == found
    assert [item for items in found.portions() for item in items] == list(found.items())
    assert [item for items in found.in_order() for item in items] == sorted(expected.items())
    assert [found.key_at(place) for place in range(len(found))] == sorted(expected)
    assert [found.position(key) for key in sorted(expected)] == list(range(len(expected)))
    assert found.position("none") is None
    assert all(len(items) <= 4 for items in found.portions())


@given(st.lists(KEYS, unique=True), STEPS)
def test_what_stays_comes_once_whatever_changes_meanwhile(keys: list[str], steps: list[tuple[str, str, int]]) -> None:
    found = Buckets(dict.fromkeys(keys, 0))
    seen: list[str] = []
    staying = set(keys)
    for items in found.in_order():
        seen += [key for key, _ in items]
        for step in steps[:3]:
            change(found, *step)
            staying &= set(found)  # a key that was deleted and set again did not stay
        del steps[:3]
    assert seen == sorted(set(seen))
    assert staying <= set(seen)


NAMES = st.sampled_from(["a", "b", "a%20b", "a b", "%41", "A", "", ".", "index.txt", "c", "d", "e"])
URIS = st.lists(st.lists(NAMES, min_size=1, max_size=2).map(lambda parts: "x://" + "/".join(parts)), unique=True)


@pytest.mark.semantics("S4")
@given(URIS)
def test_large_directories_are_folded_as_others_are(uris: list[str]) -> None:
    large = folded(uris)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folding, "LARGEST", 1000)
        plain = folded(uris)
    assert places(large) == places(plain)
    below: list[Directory] = [large]
    for directory in below:
        names = [name for items in directory.sorted_children() for name, _ in items]
        assert names == sorted(names)
        assert isinstance(directory.children, Buckets) == (len(names) > 4)
        below += [child for child in directory.children.values() if isinstance(child, Directory)]
