"""The local index on disk: what is found, what is not any more, and what a damaged file costs."""

import logging
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbfs.resources.search.index.entries import Document, Entry, Remove, Seen, Stale, decoded
from bbfs.resources.search.index.ranking import MOST_RANKED
from bbfs.resources.search.index.store import IndexStore
from bbfs.resources.search.index.text import CHUNK, LONGEST_PIECE, Terms, chunks, is_unspaced, runs, terms
from bbfs.resources.search.literals import plan
from bbfs.resources.search.words import tokens

BUDGET = 1 << 30


def document(uri: str, text: str, *, title: str = "", source: str = "one", name: str = "a.md") -> Document:
    return Document(source, uri, text[:20], None, title, name, text)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[IndexStore]:
    with closing(IndexStore(tmp_path / "cache" / "index.sqlite", BUDGET)) as opened:
        yield opened


def found(store: IndexStore, query: str, *sources: str, limit: int = 20) -> list[str]:
    return [hit.native_uri for _, hit in store.search(query, limit, sources or ("one",), 30.0).hits]


def excluded(store: IndexStore, pattern: str, *, ignore_case: bool = False) -> set[str]:
    query = plan(pattern, "extended", ignore_case=ignore_case)
    found = store.candidates("one", query, 30.0, versions=True)
    return set() if found.uris is None else {*(found.versions or ())} - found.uris


def test_words_are_found_with_their_place(store: IndexStore) -> None:
    text = "# Start\n\nhello\n\n## Certificates\n\nRenew the certificate every year.\n"
    store.write([document("a", text, title="Guide"), document("b", "something else")], 1.0)
    ((source, hit),) = store.search("renew certificate", 5, ("one",), 30.0).hits
    assert (source, hit.native_uri, hit.title, hit.where) == ("one", "a", "Guide", "Certificates")
    assert "Renew the certificate every year" in (hit.snippet or "")


def test_words_match_without_diacritics_and_as_beginnings(store: IndexStore) -> None:
    store.write([document("a", "Der Schlüssel liegt im Café")], 1.0)
    assert found(store, "schlussel") == found(store, "CAFE") == found(store, "schlü") == ["a"]


@pytest.mark.parametrize(
    ("text", "query", "snippet"),
    [
        ("x " * 500 + "der Schlüssel\n liegt " + "y " * 500, "SCHLUSSEL", "der Schlüssel liegt y"),
        ("a word " + "x " * 500 + "a word and another " + "y " * 500, "another word", "a word and another"),
        ("İ" * 30 + " word " + "y " * 500, "word", "İ word y"),
        ("x " * 30, "title", "x x x"),
        ("x " * 500 + "int maxRetryCount = 3;\n" + "y " * 500, "retry", "int maxRetryCount = 3"),
        ("x " * 500 + "set max_retry_count\n" + "y " * 500, "retry", "set max_retry_count"),
        ("entry " + "x " * 500 + "the HTTPRetry of it\n" + "y " * 500, "retries of HTTP", "the HTTPRetry of it"),
    ],
)
def test_a_snippet_has_the_words(store: IndexStore, text: str, query: str, snippet: str) -> None:
    store.write([document("a", text, title="title")], 1.0)
    ((_, hit),) = store.search(query, 5, ("one",), 30.0).hits
    assert snippet in (hit.snippet or "")
    assert len(hit.snippet or "") < 210


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("rows.csv", "id,name\n" + "".join(f"{n},name{n}\n" for n in range(200)), "line 152"),
        ("a.txt", "".join(f"paragraph {n}\n\n" for n in range(400)) + "here is name150\n", "line 801"),
        ("a.md", "# Head\n\nbefore\n\nname150\n", "Head"),
        ("a.html", "<p>before</p>\n<p>name150</p>\n", "line 1"),
    ],
)
def test_a_hit_names_the_line_of_its_match(store: IndexStore, name: str, text: str, where: str) -> None:
    store.write([document(f"x://{name}", text, name=name)], 1.0)
    ((_, hit),) = store.search("name150", 5, ("one",), 30.0).hits
    assert hit.where == where


def test_a_long_document_of_one_word_hides_no_other(store: IndexStore) -> None:
    store.write([document("long", "word " * (1 << 17)), document("short", "the word is among others here")], 1.0)
    assert found(store, "word", limit=2) == ["long", "short"]


def test_a_title_weighs_more_than_a_text(store: IndexStore) -> None:
    store.write([document("a", "about the backup"), document("b", "about the plan", title="backup")], 1.0)
    assert found(store, "backup") == ["b", "a"]
    store.write([document("scans/lease%202031.pdf", "", title="signed", name="lease 2031.pdf.md")], 2.0)
    [hit] = [hit for _, hit in store.search("lease 2031", 5, ("one",), 30.0).hits]
    assert (hit.title, hit.snippet, hit.where) == ("signed", "", "")
    assert found(store, "signed") == found(store, "lease") == ["scans/lease%202031.pdf"]
    store.write([Remove("one", "scans/lease%202031.pdf")], 3.0)
    assert found(store, "signed") == []


def test_documents_with_all_words_come_first(store: IndexStore) -> None:
    store.write([document("a", "alpha alpha alpha"), document("b", "alpha and beta"), document("c", "gamma")], 1.0)
    assert found(store, "alpha beta") == ["b", "a"]


@pytest.mark.parametrize("query", ['"', "a AND", "NEAR(", "title:x", "*", "-", "", "^x", "a" * 1000, "\ud800 x"])
def test_nothing_in_a_query_is_syntax(store: IndexStore, query: str) -> None:
    store.write([document("a", "some text")], 1.0)
    assert found(store, query) == []


def test_only_the_given_sources_are_searched(store: IndexStore) -> None:
    store.write([document("a", "word"), document("a", "word", source="two")], 1.0)
    assert store.search("word", 5, ("two",), 30.0).hits[0][0] == "two"
    assert found(store, "word", "three") == []


def test_a_changed_document_is_out_of_the_results_until_it_is_indexed_again(store: IndexStore) -> None:
    store.write([document("a", "oldword here"), document("b", "oldword there")], 1.0)
    store.write([Stale("one", "a")], 2.0)
    assert found(store, "oldword") == ["b"]
    assert excluded(store, "nowhere") == {"b"}
    store.write([document("a", "newword here")], 3.0)
    assert found(store, "oldword") == ["b"]
    assert found(store, "newword") == ["a"]
    assert excluded(store, "oldword") == {"a"}


def test_another_version_or_stamp_makes_a_document_stale(store: IndexStore) -> None:
    store.write([Document("one", uri, "1", "monday", "", uri, "word") for uri in "abcd"], 1.0)
    seen = [("a", "1", "monday"), ("b", "2", None), ("c", None, "friday"), ("d", None, None)]
    store.write([Seen("one", *each) for each in seen], 2.0)
    assert sorted(found(store, "word")) == ["a", "d"]
    assert {uri for uri, known in (store.indexed("one", None).documents or {}).items() if known.stale} == {"b", "c"}
    store.write([Document("one", "b", "1", None, "", "b", "word")], 3.0)  # it is again as it was
    assert sorted(found(store, "word")) == ["a", "b", "d"]


def test_a_removed_document_is_gone(store: IndexStore) -> None:
    store.write([document("a", "word"), document("b", "word")], 1.0)
    store.write([Remove("one", "a")], 2.0)
    assert found(store, "word") == ["b"]
    store.clear("one")
    assert found(store, "word") == []
    assert store.usage() == []


def test_nothing_of_a_removed_source_stays_in_the_file(store: IndexStore, tmp_path: Path) -> None:
    store.write([document("a", "confidential plan"), document("b", "public", source="two")], 1.0)
    store.clear("one")
    store.shrink()
    files = b"".join(path.read_bytes() for path in (tmp_path / "cache").iterdir())
    assert b"onfidentia" not in files
    assert b"public" in files
    assert store.candidates("two", plan("ubli", "extended"), 30.0, versions=False).uris == {"b"}


def test_another_process_may_remove_terms(store: IndexStore, tmp_path: Path) -> None:
    other = IndexStore(tmp_path / "cache" / "index.sqlite", BUDGET)
    store.write([document("a", "needle")], 1.0)
    other.clear("one")
    other.shrink()
    other.close()
    store.write([document("b", "needle"), document("c", "other")], 2.0)
    assert excluded(store, "eedl") == {"c"}


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of all connections that the test opens."""
    noted: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        opened = connect(*args, **options)
        opened.set_trace_callback(noted.append)
        return opened

    monkeypatch.setattr(sqlite3, "connect", traced)
    return noted


def transactions(statements: list[str], store: IndexStore, entries: list[Entry]) -> list[int]:
    """Write entries. Return how many terms were tried in each transaction."""
    statements.clear()
    store.write(entries, 1.0)
    terms: list[int] = []
    for statement in statements:
        if statement.startswith("BEGIN"):
            terms.append(0)
        elif statement.startswith("INSERT OR IGNORE INTO term"):
            terms[-1] += 1
    return terms


def test_a_document_of_many_terms_lets_others_write(statements: list[str], tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(1000)]
    with closing(IndexStore(tmp_path / "index.sqlite", BUDGET, terms_at_once=100)) as store:
        for uri in "ab":  # the second has no new ones
            terms = transactions(statements, store, [document(uri, f"{uri} " + " ".join(words))])
            assert max(terms) <= 100
            assert len(terms) == (12 if uri == "a" else 2)
        assert found(store, "word999") == ["a", "b"]
        assert excluded(store, "ord999") == set()
        assert excluded(store, "ord1000") == {"a", "b"}


def test_entries_that_take_long_are_several_transactions(
    statements: list[str], store: IndexStore, tmp_path: Path
) -> None:
    entries = [document(str(number), f"word{number}") for number in range(10)]
    assert len(transactions(statements, store, [*entries])) == 1
    with closing(IndexStore(tmp_path / "cache" / "index.sqlite", BUDGET, write_for=0.0)) as slow:
        assert len(transactions(statements, slow, [Remove("one", entry.uri) for entry in entries])) == 10
        slow.write(entries, 2.0)
        slow.clear("one")
        assert slow.usage() == []


def test_only_documents_that_cannot_match_are_excluded(store: IndexStore) -> None:
    store.write([document("a", "int mainLoop(void)"), document("b", "int other(void)")], 1.0)
    assert excluded(store, "ainLoo") == {"b"}
    assert excluded(store, "ainLoo|oth") == set()
    assert excluded(store, "MAINLOOP") == {"b"}  # terms have no case: grep decides
    assert excluded(store, ".*") == excluded(store, "in") == set()
    assert excluded(store, "neither") == {"a", "b"}


def test_letters_that_equal_ascii_letters_without_case_are_never_excluded_then(store: IndexStore) -> None:
    store.write([document("a", "\u212aelvin"), document("b", "other")], 1.0)
    assert excluded(store, "kelvin", ignore_case=True) == {"b"}


@pytest.mark.parametrize("size", [2_000, 200_000])
def test_the_bound_is_kept_whatever_the_documents_are(tmp_path: Path, size: int) -> None:
    path, bound, chosen = tmp_path / "index.sqlite", 4 << 20, Random(size)
    store = IndexStore(path, bound)
    left_out = 0
    while not left_out:  # no word comes twice, which costs most
        texts = [" ".join(f"{chosen.getrandbits(40):x}" for _ in range(size // 11)) for _ in range(400_000 // size)]
        found = [Document("s", f"x://{chosen.random()}", "1", None, "t", "t.txt", text) for text in texts]
        left_out = store.write(found, 1.0)
    store.close()
    assert bound // 2 < path.stat().st_size <= bound


def test_a_full_index_takes_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = IndexStore(tmp_path / "index.sqlite", 1)
    assert store.write([document("a", "word")], 1.0) == 1
    assert store.write([document("b", "word")], 1.0) == 1
    assert found(store, "word") == []
    store.close()
    assert [record.message for record in caplog.records] == [
        "the index has its 1 bytes ([cache] index): new documents are left out"
    ]


def test_a_word_that_is_everywhere_costs_no_hit(store: IndexStore) -> None:
    store.write([document("old", "needle"), document("first", "the", source="two")], 1.0)
    early = [str(number) for number in range(9)]
    store.write([document(uri, "number the", source="early") for uri in early], 1.0)
    store.write([document(f"b{number}", "the number of the") for number in range(MOST_RANKED)], 1.0)
    store.write([document(f"c{number}", "the number of the others") for number in range(9)], 1.0)
    newest = [f"b{number}" for number in range(9, MOST_RANKED)] + [f"c{number}" for number in range(9)]
    assert {*found(store, "the", "early", "one", limit=20)} <= {*newest}
    assert {*found(store, "the", "early", limit=20)} == {*early}
    assert found(store, "the", "two") == ["first"]
    assert found(store, "needle the", limit=3)[0] == "old"
    assert {*found(store, "number the absent", "early", limit=20)} == {*early}


def test_a_whole_word_comes_before_the_beginning_of_one(store: IndexStore) -> None:
    store.write([document("b", "certificates certify certain"), document("a", "a cert and other words")], 1.0)
    assert found(store, "cert") == ["a", "b"]


@pytest.mark.parametrize("damage", ["cut", "garbage", "middle"])
def test_a_damaged_file_is_put_aside_and_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    path = tmp_path / "index.sqlite"
    store = IndexStore(path, BUDGET)
    store.write([document(str(number), f"word{number} " * 300) for number in range(200)], 1.0)
    store.close()
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[: len(data) // 3]
    elif damage == "garbage":
        data = bytearray(os.urandom(len(data)))
    else:
        data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    store = IndexStore(path, BUDGET)
    found(store, "word7")
    store.write([document("new", "freshword")], 2.0)
    assert found(store, "freshword") == ["new"]
    store.close()
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    assert path.with_suffix(".broken").exists()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_slow_search_ends(store: IndexStore) -> None:
    store.write([document(str(number), "word " * 400) for number in range(300)], 1.0)
    with pytest.raises(TimeoutError):
        store.search("word", 20, ("one",), 0.0)


def test_readers_go_on_while_documents_are_written(store: IndexStore) -> None:
    counts: list[int] = []

    def read() -> None:
        for _ in range(50):
            counts.append(len(found(store, "word", limit=100)))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(50):
        store.write([document(str(number), "word")], 1.0)
    reader.join(30)
    assert len(counts) == 50
    assert counts == sorted(counts)
    assert len(found(store, "word", limit=100)) == 50


def as_of_version_4(path: Path) -> None:
    """Make a database look as the version before left it: the texts are there, and words by another tokenizer."""
    with closing(sqlite3.connect(path)) as db, db:
        for table in ("words", "grams", "termgrams", "term", "analysed", "rules", "unfit"):
            db.execute(f"DROP TABLE {table}")
        db.execute("ALTER TABLE source DROP COLUMN walked")
        db.execute("DELETE FROM chunk WHERE text = ''")
        db.execute("CREATE VIEW passage AS SELECT id, text FROM chunk")
        db.execute("CREATE VIRTUAL TABLE words USING fts5(text, content = 'passage', content_rowid = 'id')")
        db.execute("PRAGMA user_version = 4")


def test_an_index_of_an_earlier_version_is_made_of_its_texts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "index.sqlite"
    store = IndexStore(path, BUDGET)
    store.write([document("a", "Die Schlüssel"), document("b", "<p>certificates", name="b.html")], 1.0)
    store.write([document("c", "", title="lease")], 1.0)
    store.close()
    as_of_version_4(path)
    store = IndexStore(path, BUDGET)
    assert found(store, "schlussel") == ["a"]
    assert found(store, "certificate") == ["b"]
    assert found(store, "lease") == ["c"]
    assert excluded(store, "ertif") == {"a", "c"}
    store.write([Remove("one", "a")], 2.0)
    assert found(store, "schlussel") == []
    store.close()
    assert [record.message for record in caplog.records] == [
        "this version finds more in texts: the index makes its words again, of 3 documents"
    ]


def test_other_rules_make_the_words_again_while_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index.sqlite"
    before = IndexStore(path, BUDGET)
    before.write([document(str(number), f"word{number} here") for number in range(3)], 1.0)
    monkeypatch.setattr(tokens, "rules", lambda: "newer ones")
    after = IndexStore(path, BUDGET, read_at_once=0.0)
    after.write([document("3", "word3 here")], 2.0)
    assert found(after, "here") == ["3"]
    assert after.search("here", 5, ("one",), 30.0).said == [
        "the index makes its words again: 3 documents are missing yet"
    ]
    assert excluded(after, "nowhere") == {"3"}  # a grep reads the others
    after.read_again(30.0)
    assert sorted(found(after, "here")) == ["0", "1", "2", "3"]
    with pytest.raises(sqlite3.OperationalError, match="another version"):
        before.write([Remove("one", "0")], 2.0)
    before.close()
    after.close()


def test_a_phrase_in_quotation_marks_is_found_as_it_is_written(store: IndexStore) -> None:
    texts = ("renewing the certificates", "renew the certificate", "the certificate, renew the other")
    store.write([document(str(number), text) for number, text in enumerate(texts)], 1.0)
    assert found(store, '"renew the certificate"') == ["1"]
    assert found(store, 'certificate "Renew The"') == ["1", "2"]
    assert found(store, "renew the certificate")[0] == "1"
    assert found(store, '"renew nothing"') == []


def test_a_mistyped_word_finds_what_is_like_it_and_says_so(store: IndexStore) -> None:
    store.write([document("a", "renew the certificate"), document("b", "certify nothing")], 1.0)
    answer = store.search("certifciate", 5, ("one",), 30.0)
    assert [hit.native_uri for _, hit in answer.hits] == ["a"]
    assert answer.said == ["no text has 'certifciate': searched for 'certificate'"]
    assert store.search("certificates", 5, ("one",), 30.0).said == []
    assert found(store, "xqzt") == []


def test_of_equal_texts_the_one_changed_last_comes_first(store: IndexStore) -> None:
    times = {"a": 2, "b": 3, "c": 1}
    store.write([Document("one", uri, "1", None, "", "a", "word", at) for uri, at in times.items()], 1.0)
    assert found(store, "word") == ["b", "a", "c"]


@given(text=st.text(st.sampled_from("aZ9_ -.\t\n\x1c\x85\xa0éßЖ日本ไท—\u2028\U0001f389")))
def test_the_terms_of_a_text_are_its_runs(text: str) -> None:
    found = set(runs(text))
    unspaced = {run for run in found if is_unspaced(run)}
    pairs = {one + other for run in unspaced for one, other in pairwise(run)}
    assert terms(text) == Terms(found - unspaced, pairs)


def test_grep_finds_inside_of_scripts_without_spaces(store: IndexStore) -> None:
    store.write(
        [document("a", "服务器的安全证书"), document("b", "ใบรับรองต้องต่ออายุ"), document("c", "abc証明書def")], 1.0
    )
    assert excluded(store, "安全证书") == {"b", "c"}
    assert excluded(store, "รับรอง") == {"a", "c"}
    assert excluded(store, "c証明書d") == {"a", "b"}
    assert excluded(store, "書") == set()


def test_a_killed_writer_leaves_whole_documents(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    program = textwrap.dedent(
        """
        import itertools, sys
        from pathlib import Path
        from bbfs.resources.search.index.entries import Document
        from bbfs.resources.search.index.store import IndexStore
        store = IndexStore(Path(sys.argv[1]), 1 << 30)
        for batch in itertools.count():
            uris = [f"{batch}-{number}" for number in range(20)]
            store.write([Document("one", uri, "v", None, "", "a", f"word {uri}") for uri in uris], 1.0)
            print(batch, flush=True)
        """
    )
    writer = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(5):
        writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    store = IndexStore(path, BUDGET)
    (usage,) = store.usage()
    assert usage.documents >= 100
    assert len(found(store, "word", limit=100_000)) == usage.documents
    assert excluded(store, "word") == set()
    assert len(excluded(store, "nothing")) == usage.documents
    store.close()


@given(st.text(alphabet="ab# \n`~\t-é<>!/", max_size=300), st.sampled_from(["a.md", "a.txt", "a.py", "a", "a.html"]))
def test_the_chunks_of_a_text_are_the_text(text: str, name: str) -> None:
    assert "".join(chunk.text if chunk.markup is None else chunk.markup for chunk in chunks(text, name)) == text


def words_of(text: str) -> list[str]:
    return [chunk.text for chunk in chunks(text, "a.html")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<p>one<p>two<br>three", "one two three"),
        ("<H1>R&eacute;new</H1>a c<b>ert</b>ificate &amp; more", "Rénew a certificate & more"),
        ("<style>p { colour: red }</STYLE>shown<script>if (a < b) hidden()</script> again", "shown again"),
        ('a<!-- <b>hidden</b> -->b<img alt="x">c', "a b c"),
        ("1 < 2 and <b>3</b>", "1 < 2 and 3"),
        ("<script>never closed", ""),
        ("kept <b", "kept <b"),
        ("<!-- never closed", ""),
        ("&#" + "9" * 5000 + ";", "&#" + "9" * 5000 + ";"),
    ],
)
def test_of_html_the_words_are_indexed(text: str, words: str) -> None:
    assert words_of(text) == [words]


def test_a_tag_over_the_end_of_a_chunk_is_no_word() -> None:
    text = "<p>word " * 400 + '<a href="' + "x/" * 3000 + '">link</a> end'
    assert len(words_of(text)) == 2
    assert " ".join(words_of(text)).split() == ["word"] * 400 + ["link", "end"]


@pytest.mark.parametrize("text", ["<", "<b", "<!--", "<script>", "<script></script", "&", "&#", "<b>", "</"])
def test_hostile_html_takes_linear_time(text: str) -> None:
    assert len(words_of(text * ((1 << 20) // len(text)))) < 4000  # quadratic time would take minutes


def test_html_is_found_by_its_words_and_grep_reads_it_by_its_markup(store: IndexStore) -> None:
    store.write([document("a", '<p class="notice">Renew the <b>certi</b>ficate', name="a.html")], 1.0)
    assert found(store, "certificate") == ["a"]
    assert found(store, "notice") == []
    assert excluded(store, "notice") == excluded(store, "ficate") == set()
    assert excluded(store, "certificate") == {"a"}  # no line has it
    store.write([document("a", "<p>other", name="a.html")], 2.0)
    assert found(store, "certificate") == []
    assert found(store, "other") == ["a"]


@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.py"])
def test_long_texts_are_cut(name: str) -> None:
    for text in ("word " * 5000, "a line\n" * 5000, "a paragraph\n\n" * 3000, "# heading\n" * 3000, "x" * 100_000):
        cut = chunks(text, name)
        assert "".join(chunk.text for chunk in cut) == text
        assert max(len(chunk.text) for chunk in cut) <= LONGEST_PIECE
        if name != "a.md":
            assert len(cut) <= 2 * len(text) / CHUNK + 1


@pytest.mark.parametrize(
    "text", ["x\n" * (1 << 19), "```" + "\n#" * (1 << 18), "# h\n" * (1 << 18), "# h\n \t" * (1 << 17)]
)
@pytest.mark.parametrize("name", ["a.md", "a.txt"])
def test_the_number_of_chunks_is_bounded(text: str, name: str) -> None:
    cut = chunks(text, name)
    assert len(cut) < 4000
    assert "".join(chunk.text for chunk in cut) == text


def test_a_hash_in_code_is_no_heading() -> None:
    text = "# One\n```\n# not one\n```\n## Two\nend\n"
    assert [chunk.place for chunk in chunks(text, "a.md")] == ["One", "Two"]


def test_what_is_no_text_is_left_out() -> None:
    assert decoded(b"a\0b") is decoded(b"\xff\xfe") is decoded(b"a" * (2 << 20)) is None
    assert decoded("é".encode()) == "é"
