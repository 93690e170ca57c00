"""What people type finds what they mean, in ten scripts and in code: `special_queries.toml` has texts and queries."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bbfs.resources.search.index.entries import Document
from bbfs.resources.search.index.store import IndexStore

SPECIAL = tomllib.loads(Path(__file__).with_name("special_queries.toml").read_text())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexStore]:
    opened = IndexStore(tmp_path_factory.mktemp("special") / "index.sqlite", 1 << 30)
    opened.write([Document("one", name, "1", None, "", "a.txt", text) for name, text in SPECIAL["texts"].items()], 1.0)
    yield opened
    opened.close()


@pytest.mark.parametrize(("query", "name"), SPECIAL["queries"].items())
def test_the_first_hit_is_what_is_meant(store: IndexStore, query: str, name: str) -> None:
    assert [hit.native_uri for _, hit in store.search(query, 5, ("one",), 30.0).hits][:1] == [name]
