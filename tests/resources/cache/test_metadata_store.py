"""What is remembered across mounts, and that losing it never harms."""

import json
import logging
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.model.listing import Rows, base_prefix
from bbfs.model.values import Listing, ResourceMetadata, ResourceTemplate
from bbfs.resources.cache.metadata import SCHEMA_VERSION, MetadataStore, Remembered

ROW = Remembered("x://a", 5, "digest", "salt", 1_700_000_000_000_000_001, 1.5, 10.0, "shown")
NEVER_LOADED = Remembered("x://b", None, None, "", 7, None, None)


def metadata(uri: str, **fields: Any) -> ResourceMetadata:
    return ResourceMetadata(f"mcp-server+docs+{uri}", uri, "name", **fields)


def remember_listing(store: MetadataStore, source: str, fetched_at: float, listing: Listing) -> None:
    rows = Rows(base_prefix(listing.resources[0].uri), listing.resources)
    number = store.begin_listing(source, fetched_at, listing, rows.base_prefix)
    store.add_listed(number, list(rows.descriptions.items()))
    store.end_listing(source, number)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "metadata.sqlite"


def test_what_is_remembered_is_recalled_by_another_mount(path: Path) -> None:
    store = MetadataStore(path)
    assert store.recall("docs") == ([], None)
    store.remember("docs", [ROW, NEVER_LOADED])
    store.remember("other", [Remembered("x://a", 9, None, "", 0, None, None)])
    listed = (metadata("x://a", size=5, annotations={"priority": 0.5, "audience": ["user"]}), metadata("x://b"))
    remember_listing(store, "docs", 12.5, Listing(tuple(listed)))
    store.close()

    store = MetadataStore(path)
    rows, listing = store.recall("docs")
    assert sorted(rows, key=lambda row: row.uri) == [ROW, NEVER_LOADED]
    assert listing is not None
    assert (listing[0], listing[1].resources) == (12.5, listed)
    assert store.recall("other")[0][0].size == 9
    assert store.recall("other")[1] is None
    store.close()


def test_the_templates_of_a_listing_are_remembered_with_it(path: Path) -> None:
    store = MetadataStore(path)
    templates = (
        ResourceTemplate("x://{a}", "A", description="all of a", on_open=True),
        ResourceTemplate("x:{+b}", "B", slashed=("b",), needed=("b",), choices=("c=d/e",)),
    )
    remember_listing(store, "docs", 1.0, Listing((metadata("x://a", variables={"a": "b"}),), templates=templates))
    _, listing = store.recall("docs")
    assert listing is not None
    assert (listing[1].templates, listing[1].resources[0].variables) == (templates, {"a": "b"})
    store.close()


def test_a_newer_row_replaces_the_older(path: Path) -> None:
    store = MetadataStore(path)
    store.remember("docs", [ROW])
    newer = Remembered(ROW.uri, 6, "other", "other", 8, 2.5, 0.0)
    store.remember("docs", [newer])
    assert store.recall("docs")[0] == [newer]
    store.close()


def test_what_a_listing_no_longer_holds_is_forgotten_of_that_source_alone(path: Path) -> None:
    store = MetadataStore(path)
    for source in ("docs", "other"):
        store.remember(source, [ROW, NEVER_LOADED])
    remember_listing(store, "docs", 1.0, Listing((metadata("x://b"), metadata("x://b"))))
    assert [row.uri for row in store.recall("docs")[0]] == ["x://b"]
    assert len(store.recall("other")[0]) == 2
    store.close()


def test_annotations_may_be_any_mapping(path: Path) -> None:
    store = MetadataStore(path)
    remember_listing(store, "docs", 1.0, Listing((metadata("x://a", annotations=MappingProxyType({"priority": 1})),)))
    listing = store.recall("docs")[1]
    assert listing is not None
    assert listing[1].resources[0].annotations == {"priority": 1}
    store.close()


# A parser of JSON makes one character of two surrogates that belong together; single ones stay.
TEXT = st.text(st.characters(exclude_categories=())).map(lambda text: json.loads(json.dumps(text)))


@given(uris=st.lists(TEXT, min_size=1, max_size=4, unique=True), title=TEXT)
def test_any_text_that_a_server_sends_is_kept(uris: list[str], title: str) -> None:
    store = MetadataStore(None)
    listed = tuple(metadata(uri, title=title, size=len(uri)) for uri in uris)
    store.remember("docs", [Remembered(uri, len(uri), None, "", 0, None, None) for uri in uris])
    remember_listing(store, "docs", 1.0, Listing(tuple(listed)))
    rows, listing = store.recall("docs")
    assert listing is not None
    assert sorted(listing[1].resources, key=lambda each: each.native_uri) == sorted(
        listed, key=lambda each: each.native_uri
    )
    assert len(rows) <= len(uris)
    plain = {uri for uri in uris if uri.isascii()}
    assert {row.uri: row.size for row in rows if row.uri in plain}.keys() == plain
    store.close()


def usable(path: Path) -> None:
    store = MetadataStore(path)
    store.remember("docs", [ROW])
    store.close()
    store = MetadataStore(path)
    assert store.recall("docs")[0] == [ROW]
    store.close()


def test_what_is_no_database_is_set_aside(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is no database" * 100)
    usable(path)
    assert path.with_suffix(".broken").read_bytes().startswith(b"this is no database")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize("where", ["pages", "listing", "deep", "fields"])
def test_what_is_damaged_inside_costs_no_more_than_what_was_remembered(path: Path, where: str) -> None:
    store = MetadataStore(path)
    rows = [Remembered(f"x://{number}", number, "digest", "salt", 1, 1.0, 1.0) for number in range(500)]
    store.remember("docs", rows)
    remember_listing(store, "docs", 1.0, Listing(tuple([metadata(row.uri) for row in rows])))
    store.close()
    if where == "pages":
        data = bytearray(path.read_bytes())
        assert len(data) > 6 * 4096
        data[4096:] = os.urandom(len(data) - 4096)
        path.write_bytes(data)
    else:
        head = {"listing": "{", "deep": "[" * 100_000}.get(where)
        change = "UPDATE listed SET description = '5'" if head is None else f"UPDATE listing SET head = '{head}'"
        with sqlite3.connect(path) as database:
            database.execute(change)
        database.close()
    store = MetadataStore(path)
    recalled, listing = store.recall("docs")
    assert listing is None
    assert len(recalled) in (0, 500)
    store.close()
    if where == "pages":
        usable(path)


def test_another_version_of_the_schema_is_begun_anew(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE resource (something TEXT)")
        database.execute("CREATE TABLE listing (other TEXT)")
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.close()
    usable(path)
    assert not path.with_suffix(".broken").exists()


@pytest.mark.parametrize("obstacle", ["directory", "parent is a file"])
def test_nothing_is_remembered_on_a_read_only_disk(path: Path, obstacle: str, caplog: pytest.LogCaptureFixture) -> None:
    if obstacle == "directory":
        path.mkdir(parents=True)
    else:
        path.parent.write_text("")
    store = MetadataStore(path)
    store.remember("docs", [ROW])
    assert store.recall("docs")[0] == [ROW]
    store.close()
    assert "metadata is not remembered" in caplog.text


def test_the_file_is_the_users_own(path: Path) -> None:
    MetadataStore(path).close()
    assert path.parent.stat().st_mode & 0o077 == 0


WRITER = """
import sys
from pathlib import Path
from bbfs.resources.cache.metadata import MetadataStore, Remembered
from bbfs.model.listing import Rows
from bbfs.model.values import Listing, ResourceMetadata
path, source = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
store = MetadataStore(path)
for turn in range(40):
    store.remember(source, [Remembered(f"x://{number}", turn, "d", "s", 1, 1.0, 1.0) for number in range(20)])
    listed = [ResourceMetadata("u", f"x://{number}", "n") for number in range(10)]
    rows = Rows("mcp-server+docs", listed)
    number = store.begin_listing(source, float(turn), Listing(rows), rows.base_prefix)
    store.add_listed(number, list(rows.descriptions.items()))
    store.end_listing(source, number)
    rows, listing = store.recall(source)
    assert len(rows) == 10 and listing is not None and listing[0] == turn, (len(rows), listing)
store.close()
"""


def test_processes_share_the_file_from_its_first_moment_on(path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), f"source {number}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in range(3)
    ]  # fmt: skip
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        said = []
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            _, errors = writer.communicate(timeout=60)
            said.append((writer.returncode, errors))
        assert said == [(0, "")] * 3
    finally:
        for writer in writers:
            if writer.poll() is None:
                writer.kill()
                writer.wait(10)
    store = MetadataStore(path)
    assert [len(store.recall(f"source {number}")[0]) for number in range(3)] == [10] * 3
    store.close()
