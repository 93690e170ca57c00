"""The policy of loading ahead, by simulation: what each kind of reader has loaded for it, and what in vain."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from random import Random
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbfs.resources.readahead.windows import IDLE, YOUNG, YOUNG_WINDOW, Path, Plan, Streams, TreeOrder, window

FILES = 1000
LIMITS = st.sampled_from([4, 32, 64, 128])


def flat_order(count: int = FILES) -> tuple[TreeOrder, list[Path]]:
    names = [f"{number:04}" for number in range(count)]
    entries = [(name, False) for name in names]
    return TreeOrder(lambda directory: entries if directory == () else None), [(name,) for name in names]


def deep_order(directories: int = 200, files: int = 5) -> tuple[TreeOrder, list[Path]]:
    tree: dict[Path, list[tuple[str, bool]]] = {
        (f"d{number:03}",): [(f"f{file}", False) for file in range(files)] for number in range(directories)
    }
    root = [(path[0], True) for path in tree]
    paths = [(*directory, name) for directory, entries in tree.items() for name, _ in entries]
    return TreeOrder(lambda directory: root if directory == () else tree.get(directory)), paths


def scattered_order(count: int = FILES) -> tuple[TreeOrder, list[Path]]:
    """The files of `flat_order` as programs take them that go by inode numbers."""
    entries = [(f"{number:04}", False) for number in range(count)]
    Random(0).shuffle(entries)
    order = TreeOrder(lambda directory: entries if directory == () else None, opens_at=5)
    return order, [(name,) for name, _ in entries]


@dataclass
class Simulation:
    """A source whose loads come at once. waited: accesses of what was not loaded by then."""

    order: TreeOrder
    limit: int = 32
    others: Sequence[TreeOrder] = ()
    streams: Streams = field(init=False)
    loaded: set[Path] = field(default_factory=set)
    waited: list[Path] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.streams = Streams(self.limit)

    def access(self, path: Path, horizon: float = inf) -> Plan:
        if path not in self.loaded:
            self.waited.append(path)
            self.loaded.add(path)
        plan = self.streams.access(
            path,
            self.now,
            [self.order, *self.others],
            lambda other: other not in self.loaded,
            horizon=horizon,
            files=FILES,
        )
        for other in plan.load:
            assert other not in self.loaded, "nothing is loaded twice"
            self.loaded.add(other)
        return plan

    def run(self, paths: Iterable[Path]) -> "Simulation":
        for path in paths:
            self.access(path)
        return self


def extra(paths: Sequence[Path], order: TreeOrder, limit: int = 32, others: Sequence[TreeOrder] = ()) -> int:
    return len(Simulation(order, limit, others).run(paths).loaded) - len(set(paths))


@given(LIMITS, st.integers(0, FILES - 1), st.integers(1, 400), st.booleans())
def test_a_walk_waits_for_its_beginning_only(limit: int, start: int, length: int, backward: bool) -> None:
    order, paths = flat_order()
    walk = paths[start : start + length]
    if backward:
        walk.reverse()
    assert len(Simulation(order, limit).run(walk).waited) <= 3


@given(LIMITS, st.integers(0, FILES - YOUNG), st.integers(1, YOUNG), st.booleans())
def test_a_look_at_a_few_files_in_order_loads_few_in_vain(limit: int, start: int, count: int, backward: bool) -> None:
    order, paths = flat_order()
    look = paths[start : start + count]
    if backward:
        look.reverse()
    assert extra(look, order, limit) <= min(YOUNG_WINDOW, limit)


@given(LIMITS, st.lists(st.integers(0, FILES - 1), max_size=150))
def test_whatever_the_order_loads_are_bounded_and_none_is_repeated(limit: int, numbers: list[int]) -> None:
    order, paths = flat_order()
    simulation = Simulation(order, limit)
    for number in numbers:
        plan = simulation.access(paths[number])
        assert len(plan.load) <= limit


@pytest.mark.parametrize("arranged", [list, sorted], ids=["shuffled", "sorted"])
@pytest.mark.parametrize(
    ("make_order", "others", "rounds"), [(flat_order, 0, 200), (deep_order, 0, 200), (flat_order, 1, 400)]
)
def test_random_access_to_a_tenth_costs_at_most_a_twentieth_more(
    make_order: object, others: int, rounds: int, arranged: object
) -> None:
    order, paths = make_order()  # type: ignore[operator]
    beside = [scattered_order()[0]] * others
    total = sum(
        extra(arranged(Random(seed).sample(paths, FILES // 10)), order, others=beside)  # type: ignore[operator]
        for seed in range(rounds)
    )
    assert total / (rounds * FILES // 10) <= 0.05


@given(LIMITS)
def test_a_walk_in_another_order_is_a_walk_once_its_beginning_is_told(limit: int) -> None:
    order, _ = flat_order()
    other, walk = scattered_order()
    simulation = Simulation(order, limit)
    simulation.access(walk[0])
    simulation.streams.recall(walk[:1], simulation.now, other, FILES)
    simulation.others = [other]
    simulation.run(walk[1:])
    assert len(simulation.waited) <= 2
    assert len(simulation.loaded) == FILES


@given(LIMITS, st.booleans())
def test_a_walk_from_the_edge_of_a_directory_has_the_young_window_at_the_second_file(
    limit: int, backward: bool
) -> None:
    order, paths = flat_order()
    walk = paths[::-1] if backward else paths
    simulation = Simulation(order, limit).run(walk[:2])
    assert len(simulation.loaded) == 2 + min(YOUNG_WINDOW, limit)


@given(st.integers(2, 12), st.integers(0, 50), LIMITS)
def test_every_nth_file_loads_nothing_in_vain(stride: int, start: int, limit: int) -> None:
    order, paths = flat_order()
    assert extra(paths[start::stride], order, limit) == 0


@settings(max_examples=30)  # each walks through all files
@given(st.integers(2, 8), st.randoms(use_true_random=False), st.booleans())
def test_several_readers_that_share_a_walk_are_a_walk(readers: int, random: Random, backward: bool) -> None:
    """Each takes the next file when it has done one, so accesses come a little out of order (`xargs -P`, `rg`)."""
    order, paths = flat_order()
    queue = paths[::-1] if backward else list(paths)
    under_way: list[Path] = []
    accesses: list[Path] = []
    while queue or under_way:
        while queue and len(under_way) < readers:
            under_way.append(queue.pop(0))
        accesses.append(under_way.pop(random.randrange(len(under_way))))
    simulation = Simulation(order).run(accesses)
    assert len(simulation.loaded) == FILES
    assert len(simulation.waited) < FILES // 5


@settings(max_examples=30)
@given(st.integers(2, 16), st.randoms(use_true_random=False))
def test_walks_through_different_parts_do_not_disturb_each_other(readers: int, random: Random) -> None:
    order, paths = flat_order()
    size = FILES // readers
    walks = [iter(paths[number * size : (number + 1) * size]) for number in range(readers)]
    simulation = Simulation(order)
    while walks:
        path = next(walk := random.choice(walks), None)
        if path is None:
            walks.remove(walk)
        else:
            simulation.access(path)
    assert len(simulation.waited) <= 4 * readers


@pytest.mark.parametrize(("directories", "files"), [(200, 5), (1000, 1), (20, 50)])
@pytest.mark.parametrize("backward", [False, True])
def test_a_walk_goes_on_from_one_directory_into_the_next(directories: int, files: int, backward: bool) -> None:
    order, paths = deep_order(directories, files)
    simulation = Simulation(order).run(paths[::-1] if backward else paths)
    assert len(simulation.waited) <= 8
    assert len(simulation.loaded) == directories * files


def test_a_reader_that_stays_in_its_directory_has_nothing_of_others_loaded() -> None:
    order, paths = deep_order(20, 50)
    assert extra(paths[100:150], order) == 0
    tree: dict[Path, list[tuple[str, bool]]] = {
        (): [("a", False), ("b", False), ("c", False), ("sub", True), ("d", False), ("e", False)]
    }
    tree["sub",] = [(f"{number}", False) for number in range(50)]
    order = TreeOrder(tree.get)
    assert extra([("a",), ("b",), ("c",), ("d",), ("e",)], order) == 0


def test_a_walk_goes_down_where_the_directory_stands_and_comes_back() -> None:
    root = [(f"{number:02}", False) for number in range(20)] + [("sub", True)]
    root += [(f"{number:02}", False) for number in range(20, 60)]
    below = [(f"{number:02}", False) for number in range(40)]
    tree: dict[Path, list[tuple[str, bool]]] = {(): root, ("sub",): below}
    order = TreeOrder(tree.get)
    walk: list[Path] = [(f"{number:02}",) for number in range(20)]
    walk += [("sub", name) for name, _ in below]
    walk += [(f"{number:02}",) for number in range(20, 60)]
    simulation = Simulation(order).run(walk)
    assert len(simulation.loaded) == 100
    assert len(simulation.waited) <= 6


def test_a_walk_ends_where_nobody_has_listed() -> None:
    """A hierarchical source is asked for no listing that no program wants."""
    entries: dict[Path, list[tuple[str, bool]]] = {(): [("a", True), ("b", True)]}
    entries["a",] = [(f"{number:02}", False) for number in range(30)]
    order = TreeOrder(entries.get)
    walk = [("a", name) for name, _ in entries["a",]]
    assert Simulation(order).run(walk).loaded == set(walk)


def test_a_window_that_is_not_used_is_closed() -> None:
    order, paths = flat_order()
    simulation = Simulation(order).run(paths[:40])
    assert len(simulation.loaded) == 40 + 32
    simulation.now += IDLE + 0.1
    plan = simulation.access(paths[500])
    assert plan.stream is None
    assert simulation.streams.opened == []
    assert set(paths[40:72]) <= set(plan.dropped), "which count for nothing any more"


def test_a_reader_that_waits_for_a_slow_source_is_not_lost() -> None:
    order, paths = flat_order()
    simulation = Simulation(order)
    simulation.streams.patience = 30.0
    (stream,) = simulation.run(paths[:10]).streams.opened
    stream.waiting = 1
    simulation.now += 20
    assert not stream.idle(simulation.now, 30.0)
    assert stream.idle(simulation.now + 20, 30.0)


def test_a_reader_that_takes_its_time_has_less_loaded_ahead() -> None:
    """What lies for longer than it holds would be loaded twice."""
    order, paths = flat_order()
    simulation = Simulation(order, limit=128)
    for path in paths[:60]:
        simulation.now += 1.0
        simulation.access(path, horizon=5.0)
    assert len(simulation.loaded) <= 60 + YOUNG_WINDOW


@given(st.integers(1, 10_000), st.integers(1, 128), st.booleans())
def test_the_window_grows_with_use_up_to_its_limit(used: int, limit: int, from_edge: bool) -> None:
    assert 0 < window(used, limit, from_edge=from_edge) <= window(used + 1, limit, from_edge=from_edge) <= limit
    assert used > YOUNG or window(used, limit, from_edge=from_edge) <= YOUNG_WINDOW


@given(
    st.lists(st.booleans(), min_size=1, max_size=12), st.integers(0, 11), st.integers(1, 4), st.sampled_from([1, -1])
)
def test_what_lies_amid_its_directory_has_nothing_but_siblings_next(
    directories: list[bool], place: int, count: int, direction: Literal[-1, 1]
) -> None:
    entries = [(f"{number:02}", is_directory) for number, is_directory in enumerate(directories)]
    order = TreeOrder(lambda directory: entries if directory == () else [("inner", False)])
    place %= len(entries)
    following = [place + direction * distance for distance in range(1, count + 1)]
    amid = all(0 <= number < len(entries) and not directories[number] for number in following)
    assert order.amid((entries[place][0],), direction, count) is amid


def test_a_name_that_comes_is_found() -> None:
    names = ["a", "c"]
    order = TreeOrder(lambda directory: [(name, False) for name in names])
    assert order.step(("a",), 1) == ("c",)
    names.insert(1, "b")
    order.changed(("b",))
    assert order.step(("a",), 1) == ("b",)
    assert order.step(("c",), -1) == ("b",)
    assert order.step(("c",), 1) is None


def brute_force(tree: dict[Path, list[tuple[str, bool]]], directory: Path = ()) -> list[Path]:
    found: list[Path] = []
    for name, is_directory in tree[directory]:
        path = (*directory, name)
        found += brute_force(tree, path) if is_directory else [path]
    return found


@given(st.recursive(st.none(), lambda inner: st.lists(inner, max_size=4), max_leaves=30))
def test_the_order_of_a_tree_is_that_of_a_recursive_walk(shape: object) -> None:
    tree: dict[Path, list[tuple[str, bool]]] = {}

    def build(directory: Path, inner: list[object]) -> None:
        tree[directory] = [(str(number), child is not None) for number, child in enumerate(inner)]
        for number, child in enumerate(inner):
            if isinstance(child, list):
                build((*directory, str(number)), child)

    build((), shape if isinstance(shape, list) else [shape])
    order, files = TreeOrder(tree.get), brute_force(tree)
    for before, after in pairwise(files):
        assert order.step(before, 1) == after
        assert order.step(after, -1) == before
    if files:
        assert order.step(files[-1], 1) is None
        assert order.step(files[0], -1) is None
