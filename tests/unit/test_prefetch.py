"""The window policy: what a walk loads ahead, and that random access loads nothing."""

from hypothesis import given
from hypothesis import strategies as st

from bbfs.cache.prefetch import FIRST_WINDOW, REACH, Window

LIMITS = st.integers(FIRST_WINDOW, 64)


def walk(window: Window, indices: list[int]) -> list[range]:
    return [window.access(index) for index in indices]


@given(LIMITS, st.integers(0, 400), st.integers(1, 100))
def test_a_walk_loads_every_entry_once(limit: int, length: int, start: int) -> None:
    for first in (0, start):
        window = Window(limit)
        ahead: list[int] = []
        wanted: set[int] = set()
        for index in range(first, first + length):
            batch = list(window.access(index))
            assert not set(batch) & wanted, "an entry loaded before it was reached is not loaded again"
            assert all(index < entry <= index + limit for entry in batch)
            wanted |= {index, *batch}
            ahead.extend(batch)
        assert len(ahead) == len(set(ahead))
        if length > 2:
            assert set(range(first + 2, first + length)) <= set(ahead), "from the third on nobody waits"


@given(LIMITS, st.lists(st.integers(0, 60), max_size=80))
def test_whatever_the_order_a_batch_is_ahead_and_bounded(limit: int, indices: list[int]) -> None:
    window = Window(limit)
    for index in indices:
        batch = window.access(index)
        assert batch.step == 1
        assert len(batch) <= limit
        assert all(index < entry <= index + limit for entry in batch)


@given(LIMITS, st.lists(st.integers(REACH + 1, 500), max_size=50), st.data())
def test_jumps_load_nothing(limit: int, jumps: list[int], data: st.DataObject) -> None:
    window = Window(limit)
    place = 1000 * data.draw(st.integers(1, 10))
    assert not window.access(place)
    for jump in jumps:
        place += jump if data.draw(st.booleans()) or place < 1000 else -jump
        assert not window.access(place)


def test_one_access_or_the_same_again_loads_nothing() -> None:
    assert walk(Window(32), [0, 0, 0]) == [range(0)] * 3
    assert walk(Window(32), [7]) == [range(0)]


def test_the_window_doubles_as_it_is_used_up_to_the_limit() -> None:
    window = Window(16)
    batches = [(index, batch) for index, batch in enumerate(walk(window, list(range(60)))) if batch]
    assert [(batch.start, batch.stop) for _, batch in batches][:3] == [(2, 6), (6, 11), (11, 23)]
    assert [batch.stop - 1 - index for index, batch in batches][:2] == [FIRST_WINDOW, 2 * FIRST_WINDOW]
    assert {batch.stop - 1 - index for index, batch in batches[2:]} == {16}


def test_several_readers_of_one_walk_do_not_close_the_window() -> None:
    """Four readers take the next entry each, and arrive a little out of order."""
    window = Window(32)
    order = [index ^ 1 if index % 3 else index for index in range(200)]
    ahead = [entry for batch in walk(window, order) for entry in batch]
    assert len(ahead) == len(set(ahead))
    assert set(range(8, 200)) <= set(ahead)


def test_a_walk_that_begins_again_is_loaded_ahead_again() -> None:
    """Contents expire: a second walk through a directory, however small, is a walk like the first."""
    for length in (6, 20, 30, 100):
        window = Window(32)
        first = [entry for batch in walk(window, list(range(length))) for entry in batch]
        second = [entry for batch in walk(window, list(range(length))) for entry in batch]
        assert set(second) >= set(range(REACH, length)), length
        assert set(first) >= set(range(2, length))
