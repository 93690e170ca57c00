"""Tables of sqlite-vec as collections: their layouts, searches and filters, and files that are damaged or lie."""

import json
import math
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from embedding_endpoint import KEY, MODEL, Endpoint, config, endpoint
from fakes import data_source
from vectors import DIMENSIONS, NOTES, embedded, found, loaded, notes_file, packed, vector_file, vectors_of

from bbfs.config.toml import load_config
from bbfs.model.errors import (
    BbfsError,
    ConfigError,
    InvalidUri,
    IsADirectory,
    NotFound,
    NotSupported,
    ProtocolViolation,
    Unreachable,
)
from bbfs.resources.open import compose
from bbfs.sources import Services
from bbfs.sources.factory import build
from bbfs.sources.vector_search.handler import VectorSearchHandler
from bbfs.sources.vector_search.queries import parse_search
from bbfs.sources.vector_search.stored import floats_json, shortened
from bbfs.sources.vector_search.vec0 import declaration


@asynccontextmanager
async def over(url: str, **options: Any) -> AsyncIterator[VectorSearchHandler]:
    source = data_source("bb-vector_search+v+sqlite", timeout=10, config={"url": url, **options})
    async with vectors_of(source) as made:
        yield made


async def names(made: VectorSearchHandler, *path: str) -> list[str]:
    return [entry.name for entry in (await made.list_directory(path)).resources]


@pytest.fixture
def running() -> Iterator[Endpoint]:
    with endpoint() as started:
        yield started


async def test_the_columns_of_a_table_are_its_payload_and_its_filters(tmp_path: Path, running: Endpoint) -> None:
    async with over(notes_file(tmp_path / "v.db"), embeddings=config(running)) as made:
        assert await names(made) == ["notes"]
        assert await names(made, "notes") == ["info.json", "point", "near"]
        assert await names(made, "notes", "point") == ["1.json", "2.json", "3.json", "7.json"]
        assert await names(made, "notes", "near") == []
        assert (await loaded(made, "notes/info.json"))["model"] == MODEL
        assert await found(made, "notes/search?text=expired&limit=1.json") == ["1"]
        assert await found(made, "notes/search?text=brew&year=2026&topic=kitchen.json") == ["7"]
        assert await found(made, "notes/search?text=brew&body=brew%20coffee.json") == ["2"]
        assert (await found(made, "notes/near/2/results.json"))[0] == "7"
        links = (await made.list_directory(("notes", "search?text=beans&limit=2"))).resources
        assert {link.target for link in links} == {"../point/2.json", "../point/7.json"}
        assert [link.name[:3] for link in links] == ["01 ", "02 "]
        near = (await made.list_directory(("notes", "near", "2"))).resources
        assert (near[0].name, near[1].name, near[1].target) == ("results.json", "01 7.json", "../../point/7.json")


@pytest.mark.semantics("S31.7")
async def test_a_search_that_costs_runs_only_when_it_is_opened(tmp_path: Path, running: Endpoint) -> None:
    async with over(notes_file(tmp_path / "v.db"), embeddings=config(running)) as made:
        entry = await made.find(("notes",), "search?text=beans and coffee.json")
        assert (entry.on_open, entry.native_uri) == (True, "sqlite://notes/search?text=beans%20and%20coffee.json")
        assert (await made.find(("notes",), "search?text=beans")).kind == "directory"
        assert running.requests == []
        await made.load(entry.native_uri)
        assert running.requests[0]["input"] == ["beans and coffee"]


async def test_without_a_model_words_are_searched_for_and_nothing_is_refused(tmp_path: Path) -> None:
    async with over(notes_file(tmp_path / "v.db")) as made:
        assert await found(made, "notes/search?text=COFFEE%20beans.json") == ["7", "2"]
        assert await found(made, "notes/search?text=coffee&year=2025.json") == ["2"]
        assert await found(made, "notes/search?text=nowhere.json") == []
        assert (made.searches, made.by_meaning) == (True, False)
        assert [hit.snippet for hit in await made.search("certificate", 5)] == ["renew certificate"]
        assert "set [embeddings] to url" in " ".join(made.notes)


async def test_the_embeddings_of_the_configuration_serve_sources_that_name_none(
    tmp_path: Path, running: Endpoint
) -> None:
    file = tmp_path / "config.toml"
    url = notes_file(tmp_path / "v.db")
    file.write_text(
        f'[embeddings]\nurl = "{running.url}"\nmodel = "{MODEL}"\nkey = "${{env:KEY}}"\n'
        f'[[sources]]\nname = "v"\ntype = "vector_search"\nconfig = {{ url = "{url}" }}\n'
    )
    composed = compose(load_config(str(file), environ={"KEY": KEY}))
    made = composed.handlers[0]
    assert isinstance(made, VectorSearchHandler)
    assert made.by_meaning
    assert (await found(made, "notes/search?text=expired certificate.json"))[0] == "1"
    assert running.keys == [f"Bearer {KEY}"]
    await made.aclose()
    assert composed.embedder is not None
    assert len(await composed.embedder.embed(["a handler leaves what all share open"])) == 1
    await composed.embedder.aclose()


async def test_vectors_alone_need_a_model_and_the_refusal_says_how(tmp_path: Path, running: Endpoint) -> None:
    path = tmp_path / "v.db"
    with vector_file(path) as connection:
        connection.execute("CREATE VIRTUAL TABLE bare USING vec0(e float[4])")
        connection.execute("INSERT INTO bare(rowid, e) VALUES (1, ?)", (packed(1, 2, 3, 4),))
    async with over(f"sqlite:///{path}") as made:
        with pytest.raises(NotSupported, match=r"bare: nothing makes vectors of texts.*set \[embeddings\] to url = "):
            await loaded(made, "bare/search?text=x.json")
        with pytest.raises(NotSupported, match=r"set \[embeddings\]"):
            await made.search("x", 3)
        assert not made.searches
    async with over(f"sqlite:///{path}", embeddings=config(running)) as made:
        with pytest.raises(
            NotSupported, match=f"bare: its vectors have 4 dimensions, and the model '{MODEL}' makes 32"
        ):
            await loaded(made, "bare/search?text=x.json")
        running.close()
        with pytest.raises(Unreachable) as caught:
            await loaded(made, "bare/search?text=y.json")
        assert KEY not in str(caught.value)
        assert made.state.state == "up"  # the points can be read
        assert (await loaded(made, "bare/point/1.json"))["vector"] == [1, 2, 3, 4]


async def test_the_table_beside_one_of_vectors_has_the_payload(tmp_path: Path) -> None:
    path = tmp_path / "v.db"
    with vector_file(path) as connection:
        connection.executescript(
            f"CREATE TABLE langs (rowid INTEGER PRIMARY KEY, text TEXT, metadata BLOB, text_embedding BLOB);"
            f"CREATE VIRTUAL TABLE langs_vec USING vec0(rowid INTEGER PRIMARY KEY, text_embedding float[{DIMENSIONS}]);"
            "CREATE TABLE docs (id INTEGER PRIMARY KEY, title TEXT);"
            "CREATE VIRTUAL TABLE embedded USING vec0(doc integer primary key, a float[2], b int8[2], c bit[16]);"
        )
        for key, text in ((1, "coffee beans"), (2, "renew certificate")):
            metadata = json.dumps({"source": f"{key}.md", "deep": {"page": key}})
            connection.execute("INSERT INTO langs VALUES (?, ?, ?, ?)", (key, text, metadata, embedded(text)))
            connection.execute("INSERT INTO langs_vec VALUES (?, ?)", (key, embedded(text)))
            connection.execute("INSERT INTO docs VALUES (?, ?)", (key, text))
            connection.execute(
                "INSERT INTO embedded VALUES (?, ?, vec_int8(?), vec_bit(?))",
                (key, packed(key, 0), bytes([key, 2]), b"\x0f\xf0"),
            )
    async with over(f"sqlite:///{path}", payload={"embedded": "docs"}) as made:
        assert await names(made) == ["embedded.a", "embedded.b", "embedded.c", "langs_vec"]
        point = await loaded(made, "langs_vec/point/2.json")
        assert point["payload"] == {"text": "renew certificate", "metadata": {"source": "2.md", "deep": {"page": 2}}}
        assert await found(made, "langs_vec/search?text=certificate.json") == ["2"]
        assert await found(made, "langs_vec/search?text=e&metadata.deep.page=1.json") == ["1"]
        assert (await loaded(made, "embedded.b/point/2.json"))["vector"] == [2, 2]
        assert (await loaded(made, "embedded.c/point/1.json"))["vector"] == "0ff0"
        assert await found(made, "embedded.a/near/1/results.json") == ["2"]
        assert await found(made, "embedded.b/near/1/results.json") == ["2"]
        assert await found(made, "embedded.a/search?text=beans&title=coffee%20beans.json") == ["1"]


async def test_keys_may_be_texts_of_any_kind(tmp_path: Path) -> None:
    path, keys = tmp_path / "v.db", ["a/b", "..", "x y?&=%41", "~tilde", "é", "1", "01"]
    with vector_file(path) as connection:
        connection.execute("CREATE VIRTUAL TABLE odd USING vec0(name text primary key, e float[2], +body text)")
        for number, key in enumerate(keys):
            connection.execute("INSERT INTO odd VALUES (?, ?, ?)", (key, packed(number, 1), key))
    async with over(f"sqlite:///{path}") as made:
        listed = (await made.list_directory(("odd", "point"))).resources
        assert [(await loaded(made, entry.native_uri[9:]))["id"] for entry in listed] == keys
        for entry in listed:
            assert (await made.find(("odd", "point"), entry.name)).native_uri == entry.native_uri
        links = (await made.list_directory(("odd", "near", "1"))).resources[1:]
        assert {link.target for link in links} <= {f"../../point/{entry.name}" for entry in listed}
        assert await found(made, "odd/search?text=tilde&body=~tilde.json") == ["~tilde"]


async def test_what_is_not_there_or_no_search_is_one_sentence(tmp_path: Path) -> None:
    async with over(notes_file(tmp_path / "v.db"), collections=["notes"]) as made:
        for path, kind, words in (
            ("nothing/info.json", NotFound, "collections says which"),
            ("notes/point/9.json", NotFound, "9: no such point in notes"),
            (
                "notes/search?text=x&color=red.json",
                InvalidUri,
                "no field 'color' to filter by; there are: topic, year, body",
            ),
            ("notes/search?text=x&year=soon.json", InvalidUri, "'soon' is no int"),
            ("notes/search?text=x&year=99999999999999999999.json", InvalidUri, "is no int"),
            ("notes/search?text=x&limit=0.json", InvalidUri, "a number from 1 to 1000"),
            ("notes/search?limit=3.json", InvalidUri, "no text to search for"),
            ("notes/search?text=%FF.json", InvalidUri, "not UTF-8"),
            ("notes/search?text=x", IsADirectory, "ends with .json"),
            ("notes/point", IsADirectory, "is a directory"),
        ):
            with pytest.raises(kind, match=words):
                await made.load(f"sqlite://{path}")
    async with over(f"sqlite:///{tmp_path}/missing.db") as made:
        with pytest.raises(Unreachable):
            await made.list_directory(())
        assert made.state.state == "down"


@pytest.mark.parametrize(
    "options", [{"url": "sqlite:///"}, {"url": "ftp://x"}, {"url": "sqlite:///v.db?x"}, {"model": 1}]
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    source = data_source("bb-vector_search+v", config={"url": "sqlite:///v.db", **options})
    with pytest.raises(ConfigError):
        build(source, Services())


async def test_more_points_than_are_listed_can_be_opened(tmp_path: Path) -> None:
    async with over(notes_file(tmp_path / "v.db"), listed_points=2) as made:
        listing = await made.list_directory(("notes", "point"))
        assert ([e.name for e in listing.resources], listing.open) == (["1.json", "2.json"], True)
        assert "listed_points" in (listing.problem or "")
        assert (await made.find(("notes", "point"), "7.json")).name == "7.json"
        with pytest.raises(NotFound):
            await made.find(("notes", "point"), "8.json")
        assert (await made.find(("notes", "near"), "7")).kind == "directory"


@pytest.mark.semantics("S23", "S27")
async def test_vectors_that_are_no_numbers_and_payloads_that_are_deep_harm_nothing(tmp_path: Path) -> None:
    path = tmp_path / "v.db"
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    with vector_file(path) as connection:
        connection.execute("CREATE VIRTUAL TABLE v USING vec0(id integer primary key, e float[2], +body text)")
        rows = [(1, packed(1, 0), "plain"), (2, packed(math.nan, 0), deep), (3, packed(math.inf, 1), "x" * 3_000_000)]
        connection.executemany("INSERT INTO v VALUES (?, ?, ?)", rows)
    async with over(f"sqlite:///{path}") as made:
        assert (await loaded(made, "v/point/2.json"))["vector"] == ["NaN", 0]
        assert (await loaded(made, "v/point/2.json"))["payload"]["body"] == deep
        assert (await loaded(made, "v/point/3.json"))["vector"] == ["Infinity", 1]
        assert set(await found(made, "v/near/1/results.json")) <= {"3"}
        (match,) = await loaded(made, "v/search?text=xxx.json")
        assert len(match["payload"]["body"]) == 1000


@pytest.mark.semantics("S23", "S27")
async def test_damaged_files_and_shadow_tables_that_lie_are_errors_of_that_source(tmp_path: Path) -> None:
    good = tmp_path / "good.db"
    notes_file(good)
    data = good.read_bytes()
    cases: dict[str, bytes] = {
        "cut": data[: len(data) // 2],
        "one page": data[:4096],
        "garbage": data[:100] + b"\xa5" * (len(data) - 100),
        "none": b"no database at all" * 100,
        "middle": data[:8192] + b"\xff" * 4096 + data[12288:],
    }
    for name, damaged in cases.items():
        (tmp_path / f"{name}.db").write_bytes(damaged)
    other = f"UPDATE sqlite_master SET sql = replace(sql, 'float[{DIMENSIONS}]', 'float[%d]') WHERE name = 'notes'"
    lies = {
        "dimensions": other % 8191,
        "more": other % 999_999_999,
        "vectors": "UPDATE notes_vector_chunks00 SET vectors = x'00'",
        "validity": "UPDATE notes_chunks SET validity = zeroblob(1)",
        "size": "UPDATE notes_chunks SET size = 1000000000",
        "offset": "UPDATE notes_rowids SET chunk_offset = 1000000",
        "gone": "DROP TABLE notes_vector_chunks00",
    }
    for name, statement in lies.items():
        (tmp_path / f"{name}.db").write_bytes(data)
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(statement)
            connection.commit()
    for name in (*cases, *lies):
        async with over(f"sqlite:///{tmp_path}/{name}.db") as made:
            for path in (
                "notes/info.json",
                "notes/point/1.json",
                "notes/near/1/results.json",
                "notes/search?text=x.json",
            ):
                with suppress(BbfsError):  # or it is read around the damage
                    await loaded(made, path)
    async with over(f"sqlite:///{good}") as made:
        assert len(await loaded(made, "notes/near/1/results.json")) == len(NOTES) - 1


def test_a_declaration_is_read_as_sqlite_vec_reads_it() -> None:
    table = declaration(
        "create virtual table t using vec0(\n id TEXT primary key, -- a comment, with a comma\n"
        " e FLOAT[768] distance_metric=cosine, user integer partition key, genre text, chunk_size=64, +body, +n int)"
    )
    assert table is not None
    assert (table.key, table.key_is_text, table.vectors[0].size, table.vectors[0].metric) == (
        "id",
        True,
        3072,
        "cosine",
    )
    assert (table.filtered, table.others) == ({"user": "integer", "genre": "text"}, {"body": "", "n": "int"})
    begin = "create virtual table t using vec0("
    open_comment = declaration(f"{begin}e float[4], n int {'/* ' * 4000}, f float[4])")
    assert open_comment is not None
    assert [vector.name for vector in open_comment.vectors] == ["e"]
    for sql in ("", "using fts5(a)", begin, f"{begin}e float[])", begin + "(" * 60_000, begin + "e float[4]," * 9000):
        assert declaration(sql) is None, sql[:50]


def test_numbers_are_written_with_the_digits_that_they_need() -> None:
    assert floats_json(packed(0.1, -1.5, 1e-30, 16777217)) == "[0.1, -1.5, 1e-30, 16777216]"
    assert floats_json(packed(math.inf, math.nan)) == '["Infinity", "NaN"]'
    assert shortened({"a": ["x" * 2000]})["a"][0].endswith("…")


def test_a_search_is_written_as_a_name() -> None:
    query = parse_search("search?text=a%26b c&limit=7&k.x=%2F.json")
    assert (query.text, query.limit, query.filters, query.is_file) == ("a&b c", 7, {"k.x": "/"}, True)
    assert not parse_search("search?text=a.b").is_file
    for name in ("search?", "search?text", "search?text=&limit=1", "search?text=a&text=b", "search?text=a&=b",
                 "search?text=" + "x" * 1001, "search?text=a&limit=1e3"):  # fmt: skip
        with pytest.raises(InvalidUri):
            parse_search(name)


async def test_a_lie_of_the_process_is_a_breach_of_protocol() -> None:
    from bbfs.sources.vector_search.values import Collection, Match

    for value in (
        None,
        {},
        {"name": "", "dimensions": 1, "metric": "l2"},
        {"name": "a", "dimensions": 1, "metric": "x"},
    ):
        with pytest.raises(ProtocolViolation):
            Collection.of(value)
        with pytest.raises(ProtocolViolation):
            Match.of(value)
