"""What people type finds what they mean, in ten scripts and in code: `special_queries.toml` has texts and queries."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bbfs.resources.search.index.entries import Document
from bbfs.resources.search.index.store import IndexStore
from bbfs.resources.search.words import languages
from bbfs.resources.search.words.question import asked

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


@pytest.mark.parametrize("seed", ["1", "2", "3", "4"])
def test_the_guess_of_a_language_does_not_depend_on_the_hash_seed(seed: str) -> None:
    program = f"from {languages.__name__} import language_of; print(language_of(['avec', 'sich', 'alla', 'muy']))"
    guess = [sys.executable, "-c", program]
    ran = subprocess.run(guess, env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "german\n"


LONG = "find papers that discuss how librarians describe the cataloguing of maps"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (LONG, ["librarians", "cataloguing", "maps"]),
        ("find papers about maps", ["find", "papers", "maps"]),
        ("find and give papers and articles and like it", ["find", "give", "papers", "articles", "like"]),
    ],
)
def test_a_long_question_does_without_the_words_by_which_it_asks(query: str, words: list[str]) -> None:
    assert [unit.word for unit in asked(query, ["english"]).units] == words


@pytest.mark.parametrize(
    ("query", "begins"), [("where is the map", True), ("where is the map?", False), ("map ", False)]
)
def test_the_last_word_may_go_on_unless_something_follows_it(query: str, begins: bool) -> None:
    assert asked(query, ["english"]).last_begins is begins
