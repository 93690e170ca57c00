"""The files of pending writes: what a full disk, a kill and a damaged file leave of them (S32)."""

import fcntl
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import trio

from bbfs.model.errors import BbfsError, NoSpace, NotFound
from bbfs.model.versions import Expected
from bbfs.resources.writing import pending
from bbfs.resources.writing.pending import PendingStore, PendingWrite, new_id
from bbfs.sources.content.fd import Descriptor
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent

CONTENT = MemoryContent(b"kept")


@pytest.fixture
def store(tmp_path: Path) -> PendingStore:
    return PendingStore(tmp_path / "pending")


def item(write_id: str) -> PendingWrite:
    return PendingWrite(write_id, "one", "file:./a", "bb-one+file:./a", ("one", "a"), Expected(exists=True), 4, 1.5)


def files(store: PendingStore) -> set[str]:
    return set(os.listdir(store.directory))


@pytest.mark.semantics("S32")
def test_an_item_that_is_handed_over_again_has_no_second_name(store: PendingStore) -> None:
    store.keep(kept := item(new_id()), CONTENT)
    file = Descriptor(os.open(store.content_path(kept), os.O_RDONLY))
    store.keep(kept, StoredContent(file, CONTENT.size, kept.id, trio.CapacityLimiter(1)))
    assert files(store) == {kept.id, f"{kept.id}.json"}


@pytest.mark.semantics("S32")
def test_two_failures_of_one_request_leave_its_item(store: PendingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline of a write, and the source's own, may pass in one moment."""
    both, dump = threading.Barrier(2), json.dump

    def dumped(described: Any, file: Any) -> None:
        dump(described, file)
        both.wait(60)

    store.keep(kept := item(new_id()), CONTENT)
    monkeypatch.setattr(pending.json, "dump", dumped)
    failed = [replace(kept, error=f"DeadlineExceeded: {number}") for number in range(2)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(store.describe, failed)) == [None, None]
    assert files(store) == {kept.id, f"{kept.id}.json"}
    assert store.get(kept.id) in failed


@pytest.mark.semantics("S32")
def test_an_item_dropped_while_it_is_described_is_gone(store: PendingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.keep(kept := item(new_id()), CONTENT)
    unlink = os.unlink

    def unlinked(path: Any, **options: Any) -> None:
        if str(path) == str(store.content_path(kept)):
            store.describe(kept)
        unlink(path, **options)

    monkeypatch.setattr(pending.os, "unlink", unlinked)
    store.drop(kept.id)
    assert files(store) == set()


@pytest.mark.semantics("S32")
@pytest.mark.parametrize("full", [".bytes", ".new"])
def test_a_full_disk_gets_its_room_back(store: PendingStore, full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(path: str, flags: int) -> int:
        number = os.open(path, flags, 0o600)
        if not path.endswith(full):
            return number
        os.close(number)
        return os.open("/dev/full", os.O_WRONLY)

    earlier = item(new_id())
    store.keep(earlier, CONTENT)
    monkeypatch.setattr(pending, "open_own", opened)
    with pytest.raises(NoSpace):
        store.keep(item(new_id()), CONTENT)
    with pytest.raises(NoSpace):
        store.keep(earlier, MemoryContent(b"again"))
    assert files(store) == {earlier.id, f"{earlier.id}.json"}
    monkeypatch.undo()
    store.keep(later := item(new_id()), CONTENT)
    assert {each.id for each in store.items()} == {earlier.id, later.id}


def test_what_a_kill_left_is_swept_unless_a_process_writes(store: PendingStore) -> None:
    store.sweep()
    store.keep(kept := item(new_id()), CONTENT)
    for name in ("0123456789ab", "0123456789ab.bytes", "0123456789ab.012345.new", f"{kept.id}.bytes", f"{kept.id}.new"):
        (store.directory / name).write_bytes(b"left")
    foreign = {"README", "0123456789ab.txt", "fedcba987654.json", "fedcba987654"}
    for name in foreign:
        (store.directory / name).write_bytes(b"{")
    before = files(store)
    writing = os.open(store.directory, os.O_RDONLY)
    fcntl.flock(writing, fcntl.LOCK_SH)
    store.sweep()
    assert files(store) == before
    os.close(writing)
    store.sweep()
    assert files(store) == {kept.id, f"{kept.id}.json"} | foreign
    assert store.content_path(kept).read_bytes() == CONTENT.data


@pytest.mark.parametrize(
    "damage",
    [
        *({"at": at} for at in ("y", None, True, -1, 1e300, float("nan"), float("inf"), 10**400, [])),
        *({"size": size} for size in ("4", 4.5, -4, None, True)),
        *({name: value} for name in ("uri", "native_uri", "source_id", "error") for value in (1, ["a"], {})),
        *({"path": path} for path in ("abc", [1], {"a": 1}, None, 7)),
        *({"expected": each} for each in (None, [], {"exists": 1}, {"etag": 1}, {"version": []}, {"other": 1})),
        {"id": "fedcba987654"},
        {"other": 1},
    ],
)
def test_a_damaged_description_is_no_item_and_hides_no_other(store: PendingStore, damage: dict[str, object]) -> None:
    store.keep(kept := item(new_id()), CONTENT)
    store.keep(damaged := item(new_id()), CONTENT)
    store.directory.joinpath(f"{damaged.id}.json").write_text(json.dumps({**asdict(damaged), **damage}))
    assert [*store.items()] == [kept]
    assert store.get(kept.id) == kept


@pytest.mark.semantics("S32.1")
@pytest.mark.parametrize("mode", [0o644, 0o666, 0o400])
def test_an_item_with_other_modes_is_an_item_and_private_again(store: PendingStore, mode: int) -> None:
    """As of a home that was copied or restored."""
    store.keep(kept := item(new_id()), CONTENT)
    for name in files(store):
        (store.directory / name).chmod(mode)
    assert [*store.items()] == [kept]
    with store.open_content(kept) as file:
        assert file.read() == CONTENT.data
    assert {each.stat().st_mode & 0o777 for each in store.directory.iterdir()} == {0o600}
    assert store.unreadable() == []


@pytest.mark.semantics("S32.1")
def test_what_cannot_be_read_is_named_and_hides_no_other(store: PendingStore) -> None:
    store.keep(kept := item(new_id()), CONTENT)
    store.keep(lost := item(new_id()), CONTENT)
    description = store.directory / f"{lost.id}.json"
    for damage in (lambda: description.write_text("{"), lambda: description.symlink_to("/dev/zero"), description.mkdir):
        description.unlink()
        damage()
        (store.directory / "README.json").write_text("{")
        assert [*store.items()] == [kept]
        (why,) = store.unreadable()
        assert why.startswith(f"{description}: ")
        assert why.endswith(f"; {store.content_path(lost)} has the bytes")
        with pytest.raises(BbfsError, match=lost.id):
            store.get(lost.id)
        assert store.get(kept.id) == kept


@pytest.mark.semantics("S32.1")
@pytest.mark.parametrize("why", ["another user", "Not a directory", "No such file"])
def test_an_unreadable_directory_is_no_empty_one(
    store: PendingStore, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.unreadable() == []
    if why == "another user":
        store.keep(item(new_id()), CONTENT)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    elif why == "Not a directory":
        store.directory.touch()
    else:
        store.directory.symlink_to("away")
    assert [*store.items()] == []
    (told,) = store.unreadable()
    assert told.startswith(f"{store.directory}: cannot be read: ")
    assert why in told
    with pytest.raises(BbfsError, match="cannot be read"):
        store.get("0123")


def test_an_item_is_found_without_a_look_at_the_others(store: PendingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.keep(kept := item("0b9012345678"), CONTENT)
    for other in ("0b8012345678", "1b9012345678"):
        store.keep(item(other), CONTENT)
    looked: list[str] = []

    def noted(path: Path, *given: Any, **more: Any) -> Any:
        looked.append(path.stem)
        return open(path, *given, **more)

    monkeypatch.setattr(pending, "open", noted, raising=False)
    assert store.get(kept.id) == store.get("0b90") == kept
    assert looked == [kept.id] * 2


def test_the_empty_text_is_no_beginning_of_an_id(store: PendingStore) -> None:
    """A script whose variable is not set drops nothing."""
    store.keep(kept := item(new_id()), CONTENT)
    with pytest.raises(NotFound):
        store.get("")
    assert store.get(kept.id[:4]) == kept


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '"x"', "[" * 60000, "\udcff", "null"])
def test_a_file_that_is_no_description_is_no_item(store: PendingStore, text: str) -> None:
    store.keep(kept := item(new_id()), CONTENT)
    store.directory.joinpath("0123456789ab.json").write_text(text, errors="surrogateescape")
    assert [*store.items()] == [kept]
