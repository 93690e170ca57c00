"""The store: what is put in comes out, changes are recorded exactly, and any query is safe."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.knowledge.database import schema
from bbfs.knowledge.database.store import ImportReport, Store
from bbfs.knowledge.documents import (
    MAX_DOCUMENT_BYTES,
    ChangeSet,
    InvalidName,
    KnowledgeError,
    NotFound,
    StoreError,
    TooLarge,
)
from bbfs.knowledge.importing import source_files


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Store]:
    start = datetime(2026, 11, 21, tzinfo=UTC)
    ticks = iter(range(1_000_000))
    with Store(tmp_path / "empty.sqlite", now=lambda: start + timedelta(seconds=next(ticks))) as store:
        yield store


def _import(store: Store, *folders: Path, prune: bool = False) -> ImportReport:
    return store.import_files("docs", source_files(folders), prune=prune)


def _ids(store: Store, collection: str = "docs") -> list[str]:
    with store.snapshot() as snapshot:
        return [one.id for one in snapshot.documents(collection)]


def test_put_keeps_bytes_and_metadata(empty: Store) -> None:
    assert empty.put("docs", "logo", b"\x89PNG", name="logo.png") == "added"
    assert empty.put("docs", "logo", b"\x89PNG", name="logo.png") == "unchanged"
    assert empty.put("docs", "logo", b"\x89PNG2") == "updated"
    with empty.snapshot() as snapshot:
        document = snapshot.document("docs", "logo")
        assert snapshot.content("docs", "logo") == b"\x89PNG2"
        assert snapshot.collection("docs").updated_at == document.updated_at
    assert (document.name, document.mime_type, document.is_text, document.size) == ("logo.png", "image/png", False, 5)
    assert (document.created_at, document.updated_at) == ("2026-11-21T00:00:00.000000Z", "2026-11-21T00:00:02.000000Z")


@pytest.mark.parametrize(
    ("name", "content", "mime", "is_text"),
    [
        ("a.md", b"x", "text/markdown", True),
        ("README.MD", b"x", "text/markdown", True),
        ("a.json", b"{}", "application/json", True),
        ("a.yaml", b"a: 1", "application/yaml", True),
        ("a.txt", b"\xff", "text/plain", False),
        ("a.tar.gz", b"x", "application/gzip", False),
        ("a.svg", b"<svg/>", "image/svg+xml", True),
        ("LICENSE", b"x", "text/plain", True),
        ("data", b"x\0", "application/octet-stream", False),
        ("logo", b"\x89PNG\r\n\x1a\n\0", "image/png", False),
        ("paper", b"%PDF-1.7\n", "application/pdf", False),
        ("photo.unknown", b"\xff\xd8\xff\xe0", "image/jpeg", False),
        ("data:text/html,x", b"x", "text/plain", True),
    ],
)
def test_mime_type_and_text(empty: Store, name: str, content: bytes, mime: str, is_text: bool) -> None:
    empty.put("docs", "a", content, name=name)
    with empty.snapshot() as snapshot:
        document = snapshot.document("docs", "a")
    assert (document.mime_type, document.is_text) == (mime, is_text)


@pytest.mark.parametrize("bad", ["", ".", "..", "a\nb", "a\0b", "\ud800", "x" * 256, "\u202e"])
def test_ids_that_cannot_be(empty: Store, bad: str) -> None:
    with pytest.raises(InvalidName):
        empty.put("docs", bad, b"")
    with pytest.raises(InvalidName):
        empty.put(bad, "a", b"")
    with empty.snapshot() as snapshot:
        assert snapshot.collections() == []


def test_ids_are_normalised(empty: Store) -> None:
    empty.put("docs", "u\u0308", b"1")
    assert empty.put("docs", "\u00fc", b"1") == "unchanged"
    empty.remove("docs", "u\u0308")
    assert _ids(empty) == []


def test_too_large_is_refused(empty: Store) -> None:
    with pytest.raises(TooLarge, match=f"more than {MAX_DOCUMENT_BYTES} bytes"):
        empty.put("docs", "a", bytes(MAX_DOCUMENT_BYTES + 1))
    with empty.snapshot() as snapshot, pytest.raises(NotFound):
        snapshot.collection("docs")


def test_removal(empty: Store) -> None:
    empty.put("docs", "a", b"1")
    empty.put("docs", "b", b"1")
    with pytest.raises(NotFound, match="document"):
        empty.remove("docs", "c")
    with pytest.raises(NotFound, match="collection"):
        empty.remove("none", "a")
    empty.remove("docs", "a")
    assert _ids(empty) == ["b"]
    assert empty.remove_collection("docs") == 1
    with empty.snapshot() as snapshot:
        assert snapshot.collections() == []
        assert snapshot.problems() == {}


def test_import_keeps_ids_and_tells_what_it_did(empty: Store, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    for path in ("ssl-setup.md", "guides/SSL setup.md", "a/b.md", "a-b.md", ".hidden/x.md", "sub/.hidden"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    (folder / "link.md").symlink_to("/etc/hostname")
    assert _import(empty, folder) == ImportReport(added=4, updated=0, unchanged=0, removed=0)
    assert _ids(empty) == ["a-b", "a-b-2", "guides-ssl-setup", "ssl-setup"]

    (folder / "ssl-setup.md").write_text("new")
    (folder / "0-a-b.md").write_text("sorts first, takes no id of another")
    (folder / "guides/SSL setup.md").unlink()
    assert _import(empty, folder) == ImportReport(added=1, updated=1, unchanged=2, removed=0)
    assert _import(empty, folder, prune=True) == ImportReport(added=0, updated=0, unchanged=4, removed=1)
    with empty.snapshot() as snapshot:
        names = {one.id: one.name for one in snapshot.documents("docs")}
        assert names == {"0-a-b": "0-a-b.md", "a-b": "a-b.md", "a-b-2": "b.md", "ssl-setup": "ssl-setup.md"}
        assert snapshot.content("docs", "ssl-setup") == b"new"


def test_import_is_all_or_nothing(empty: Store, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for name in ("a.md", "b.md"):
        (tmp_path / "notes" / name).write_text(name)
    files = source_files([tmp_path / "notes"])
    (tmp_path / "notes/b.md").unlink()
    with pytest.raises(FileNotFoundError):
        empty.import_files("docs", files)
    with empty.snapshot() as snapshot:
        assert snapshot.collections() == []


def test_import_refuses_two_files_for_one_document(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "README.md").touch()
    with pytest.raises(KnowledgeError, match=r"README\.md"):
        source_files([tmp_path / "one", tmp_path / "two"])


def test_feed_tells_exactly_what_changed(empty: Store) -> None:
    empty.put("docs", "a", b"1")
    feed = empty.feed()
    try:
        assert feed.poll() is None
        empty.put("docs", "a", b"1")
        assert feed.poll() is None
        empty.put("docs", "a", b"2")
        assert feed.poll() == ChangeSet(frozenset({("docs", "a")}), listed=False)
        empty.put("docs", "b", b"1")
        empty.put("docs", "b", b"2")
        assert feed.poll() == ChangeSet(frozenset({("docs", "b")}), listed=True)
        empty.remove("docs", "b")
        assert feed.poll() == ChangeSet(frozenset({("docs", "b")}), listed=True)
        empty.remove_collection("docs")
        assert feed.poll() == ChangeSet(frozenset({("docs", "a"), ("docs", "")}), listed=True)
        assert feed.poll() is None
    finally:
        feed.close()


def test_a_snapshot_does_not_move(empty: Store) -> None:
    empty.put("docs", "a", b"1")
    with empty.snapshot() as snapshot:
        assert snapshot.content("docs", "a") == b"1"
        empty.put("docs", "a", b"2")
        assert snapshot.content("docs", "a") == b"1"
    with empty.snapshot() as snapshot:
        assert snapshot.content("docs", "a") == b"2"


def test_many_threads_and_first_openings(tmp_path: Path) -> None:
    errors: list[Exception] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            start.wait(10)
            with Store(tmp_path / "shared.sqlite") as store:
                for one in range(10):
                    store.put("docs", f"{number}-{one}", b"x")
        except (sqlite3.Error, KnowledgeError) as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    with Store(tmp_path / "shared.sqlite") as store, store.snapshot() as snapshot:
        assert snapshot.collection("docs").document_count == 40


def _newer(path: Path) -> None:
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
    connection.close()


def _of_something_else(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_newer, "version"),
        (_of_something_else, "something else"),
        (lambda path: path.write_bytes(b"no database at all" * 100), "not a database"),
        (lambda path: path.mkdir(), "unable to open"),
    ],
)
def test_files_that_are_no_knowledge_base(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    path = tmp_path / "file"
    make(path)
    with pytest.raises(StoreError, match=message):
        Store(path)


def test_a_missing_file_is_made_only_on_request(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such file"):
        Store(tmp_path / "none", create=False)
    assert list(tmp_path.iterdir()) == []


def test_search_ranks_and_quotes(store: Store) -> None:
    with store.snapshot() as snapshot:
        hits = snapshot.search("setting up SSL certificates")
        assert [hit.document.id for hit in hits] == ["ssl-setup"]
        assert "**certificate**" in (hits[0].snippet or "")
        assert [hit.document.id for hit in snapshot.search("grosse größe")] == ["guides-install"]
        assert [hit.document.id for hit in snapshot.search("number 7", "many", limit=3)][:1] == ["note-007"]
        assert len(snapshot.search("number", "many", limit=3)) == 3
        assert snapshot.search("number", "docs") == []
        assert snapshot.search("logo")[0].snippet is None
        with pytest.raises(NotFound):
            snapshot.search("number", "none")


def test_the_index_follows_updates_and_removals(empty: Store) -> None:
    empty.put("docs", "a", b"alpha")
    empty.put("docs", "a", b"beta")
    with empty.snapshot() as snapshot:
        assert snapshot.search("alpha") == []
        assert [hit.document.id for hit in snapshot.search("beta")] == ["a"]
    empty.remove("docs", "a")
    with empty.snapshot() as snapshot:
        assert snapshot.search("beta") == []


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("searched") / "kb.sqlite") as store:
        store.put("docs", "a", b'alpha AND beta OR "gamma" NEAR(delta) name:x * ^ - + { } ( )')
        yield store


@given(query=st.one_of(st.text(), st.text(alphabet='ab AND OR NOT NEAR "*^:(){}+-\0_\ud800')))
def test_any_query_is_safe(searched: Store, query: str) -> None:
    with searched.snapshot() as snapshot:
        for hit in snapshot.search(query):
            assert hit.document.id == "a"


@given(word=st.sampled_from(["alpha", "AND", "NEAR", "x", "gamma"]), around=st.sampled_from('"*^:(){}+-,;\0 '))
def test_syntax_around_a_word_hides_nothing(searched: Store, word: str, around: str) -> None:
    with searched.snapshot() as snapshot:
        assert [hit.document.id for hit in snapshot.search(f"{around}{word}{around}")] == ["a"]
