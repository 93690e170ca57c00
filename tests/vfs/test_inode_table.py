"""Inode numbers and the table of those that the kernel holds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bbfs.model.errors import Outdated
from bbfs.resources.catalog.record import PASSED, ROOT, inode_number
from bbfs.vfs.inode_table import InodeKey, InodeTable

NAMES = st.text(alphabet=st.characters(exclude_characters="\0/", exclude_categories=()), min_size=1, max_size=5)
PATHS = st.lists(NAMES, max_size=4).map(tuple)


@pytest.mark.semantics("S7")
def test_numbers_are_the_same_for_ever() -> None:
    assert inode_number(()) == inode_number((), "v1") == ROOT == 1
    # Worked out apart: 2 + BLAKE2b-64 of the names joined by NUL, two NULs and the version, modulo 2**62 - 2.
    assert inode_number(("mcp-server+docs", "resource", "a"), "v1") == 1673963577709122479
    assert inode_number(("café",)) == 1463022552171559210
    assert inode_number(("a", "b")) != inode_number(("a/b",)) != inode_number(("ab",))
    assert inode_number(("a",), "b") != inode_number(("a", "b")) != inode_number(("a",), "c")


@pytest.mark.semantics("S7")
@given(PATHS, st.text(), PATHS, st.text())
def test_a_number_follows_from_path_and_version_alone(
    path: tuple[str, ...], version: str, other: tuple[str, ...], other_version: str
) -> None:
    number = inode_number(path, version)
    assert number == inode_number(path, version)
    assert (number == ROOT) == (not path)
    assert 1 <= number < PASSED
    if path and (path, version) != (other, other_version):
        assert number != inode_number(other, other_version)


@pytest.mark.semantics("S7.1")
def test_new_content_is_a_new_inode_and_the_forgotten_one_is_outdated() -> None:
    table = InodeTable()
    old = table.remember(("a",), "v1")
    new = table.remember(("a",), "v2")
    assert old != new
    assert table.get(old) == InodeKey(("a",), "v1")
    assert table.forget(old)
    with pytest.raises(Outdated):
        table.get(old)
    assert table.get(new) == InodeKey(("a",), "v2")
    assert table.remember(("a",), "v1") == old


def test_the_root_is_always_there() -> None:
    table = InodeTable()
    assert table.remember(()) == table.remember((), "v2") == table.number(()) == ROOT
    assert not table.forget(ROOT, 1000)
    assert table.get(ROOT) == InodeKey(())
    assert len(table) == 1


def test_numbers_that_collide_take_the_next_free_one() -> None:
    last = PASSED - 1
    table = InodeTable(lambda path, version: last)
    assert [table.remember((name,)) for name in "abc"] == [last, 2, 3]
    assert table.number(("d",)) == 4
    table.forget(2)
    assert table.number(("d",)) == table.remember(("d",)) == 2
    assert table.remember(("c",)) == 3


def test_what_is_not_held_cannot_be_taken_back() -> None:
    table = InodeTable()
    for attempt in (table.forget, table.get):
        with pytest.raises(Outdated):
            attempt(7)
    ino = table.remember(("a",))
    with pytest.raises(ValueError, match="has 1 lookups, 2 cannot be forgotten"):
        table.forget(ino, 2)
    inode = table.inode(ino)
    assert inode.lookups == 1


@pytest.mark.semantics("S7")
def test_a_renamed_inode_takes_the_place_of_another_one_with_the_same_version() -> None:
    table = InodeTable()
    replaced, moved = table.remember(("a",), "v"), table.remember(("b",), "v")
    table.rename(("b",), ("a",))
    assert table.get(moved) == table.get(replaced) == InodeKey(("a",), "v")
    assert table.held(("a",), "v") == moved
    assert table.held(("b",), "v") is None
    assert table.forget(replaced)
    assert table.remember(("a",), "v") == moved
    assert table.forget(moved, 2)
    assert table.remember(("a",), "v") == replaced


def test_a_detached_inode_is_found_under_no_later_name() -> None:
    table = InodeTable()
    replaced = table.remember(("a",), "v")
    table.detach(replaced)
    table.rename(("a",), ("b",))
    assert table.held(("b",), "v") is None
    assert table.remember(("b",), "v") != replaced


class InodeTableMachine(RuleBasedStateMachine):
    """The table against a model that counts; a hash of two bits makes numbers collide all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.table = InodeTable(lambda path, version: 2 + len("".join(path) + version) % 4)
        self.lookups: dict[InodeKey, int] = {}
        self.numbers: dict[InodeKey, int] = {}

    def settle(self, key: InodeKey, dropped: bool) -> None:
        gone = not self.lookups[key]
        assert dropped == gone
        if gone:
            ino = self.numbers.pop(key)
            del self.lookups[key]
            assert ino not in self.table

    @rule(
        path=st.lists(st.sampled_from("abcd"), min_size=1, max_size=3).map(tuple),
        version=st.sampled_from(["", "1", "22"]),
    )
    def remember(self, path: tuple[str, ...], version: str) -> None:
        key = InodeKey(path, version)
        expected = self.table.number(path, version)
        ino = self.table.remember(path, version)
        assert ino == expected
        assert self.numbers.setdefault(key, ino) == ino
        self.lookups[key] = self.lookups.get(key, 0) + 1

    @rule(
        path=st.lists(st.sampled_from("abcd"), min_size=1, max_size=3).map(tuple),
        version=st.sampled_from(["", "1", "22"]),
    )
    def show(self, path: tuple[str, ...], version: str) -> None:
        key = InodeKey(path, version)
        expected, ino = self.table.number(path, version), self.table.hashed(path, version)
        assert self.table.held(path, version) == self.numbers.get(key)
        assert self.table.show(ino, path, version) == (ino == expected)
        if ino == expected:
            assert self.numbers.setdefault(key, ino) == ino
            self.lookups[key] = self.lookups.get(key, 0) + 1

    @precondition(lambda self: self.numbers)
    @rule(data=st.data())
    def find(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.numbers)))
        found = self.table.inode(self.numbers[key])
        assert (found.key, found.lookups) == (key, self.lookups[key])

    @precondition(lambda self: self.numbers)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.numbers)))
        count = data.draw(st.integers(0, self.lookups[key]))
        self.lookups[key] -= count
        self.settle(key, self.table.forget(self.numbers[key], count))

    @invariant()
    def numbers_and_keys_agree(self) -> None:
        assert len(self.table) == 1 + len(self.numbers)
        assert len(set(self.numbers.values())) == len(self.numbers)
        for key, ino in self.numbers.items():
            assert ino > ROOT
            assert self.table.get(ino) == key
            assert self.table.number(*key) == ino
            assert self.table.held(*key) == ino


TestInodeTable = InodeTableMachine.TestCase
TestInodeTable.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_another_table_takes_over_what_is_held() -> None:
    before, after = InodeTable(), InodeTable()
    shown = before.hashed(("d", "a"), "1")
    assert before.show(shown, ("d", "a"), "1")
    assert before.show(shown, ("d", "a"), "1")
    told = [before.remember(("d",), "dir"), before.remember(("d",), "dir"), before.remember(("d", "b"), "2")]
    for inode in before.counted():
        after.hold(*inode)
    assert sorted(after.counted()) == sorted(before.counted())
    assert after.get(shown) == (("d", "a"), "1")
    assert after.remember(("d", "b"), "2") == told[-1]
    assert not after.forget(shown, 1)
    assert after.forget(shown, 1)
