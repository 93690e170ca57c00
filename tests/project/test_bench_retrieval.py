"""`benchmarks/retrieval.py` reads the collections, and counts what is found as the literature does."""

from pathlib import Path

import pytest
import retrieval

DOCUMENTS = (
    ".I 1\n.T\nThe lift\nof wings\n.A\nA. N. Other\n.W\nlift is measured\n.I 2\n.T\nHeat\n.W\nheat is conducted\n"
)
QUERIES = ".I 007\n.W\nwhat conducts\nheat .\n.I 9\n.W\nlift\n.I 11\n.W\nnothing judged\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("all", DOCUMENTS), ("qry", QUERIES), ("rel", "1 2 3\n2 1 -1\n")):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_collection_is_read_and_searched(folder: Path) -> None:
    read = retrieval.collection("small", folder, "all", "qry", "rel", in_order=True)
    assert read.documents == {1: ("The lift of wings", "lift is measured\n"), 2: ("Heat", "heat is conducted\n")}
    assert read.queries == [("what conducts heat .", frozenset({2})), ("lift", frozenset({1}))]
    for measure in (retrieval.by_words, retrieval.by_fts5):
        found = measure(read, folder)
        assert (found.ndcg, found.recall) == (1.0, 1.0)


def test_the_gain_falls_with_the_rank() -> None:
    assert retrieval.ndcg([1, 2], frozenset({1, 2})) == 1.0
    assert retrieval.ndcg([3, 1], frozenset({1})) == pytest.approx(0.6309, abs=1e-4)
    assert retrieval.ndcg([*range(10), 99], frozenset({99})) == 0.0
