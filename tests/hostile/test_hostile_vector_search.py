"""Hostile sources of vectors: files of sqlite-vec that lie, and servers that answer for Qdrant and for embeddings."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from harness import SourceTable
from hostile import Case
from hostile_sources import JSON, PATIENCE, Reply, serve
from vectors import DIMENSIONS, notes_file, vector_file

QUICK = {"points without an end", "a vector of a million numbers"}
FEW = 31 << 20
HEADERS = {"content-type": JSON}
SEARCH = f"search?text={'a' * 100}.json"


def touch(directory: Path) -> Sequence[Sequence[str | Path]]:
    """Return the programs that walk through a source, and then search it in each way."""
    notes = directory / "notes"
    return [
        ("ls", "-lR", directory),
        ("grep", "-rc", "x", directory),
        ("cat", notes / SEARCH),
        ("cat", notes / "near" / "1" / "results.json", notes / "point" / "1.json"),
        ("ls", "-l", notes / SEARCH.removesuffix(".json"), notes / "near" / "1"),
    ]


def case(name: str, source: Callable[[Path], SourceTable], scheme: str) -> Case:
    return Case(name, source, f"bb-vector_search+hostile+{scheme}", touch, quick=name in QUICK)


def table(url: str, **config: object) -> SourceTable:
    return {"name": "hostile", "type": "vector_search", "config": {"url": url, **config}, "timeout": PATIENCE}


def files() -> Iterator[Case]:
    """Yield files whose tables are large, or are not what they say."""
    other = f"UPDATE sqlite_master SET sql = replace(sql, 'float[{DIMENSIONS}]', 'float[%d]') WHERE name = 'notes'"
    ten = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
    statements: Mapping[str, Sequence[str]] = {
        "texts of megabytes": (
            f"INSERT INTO notes {ten} SELECT 100 + x, zeroblob({DIMENSIONS * 4}), 'a', 1, hex(zeroblob(2000000))"
            " FROM c LIMIT 30",
        ),
        "a text of eighty megabytes": ("UPDATE notes_auxiliary SET value00 = hex(zeroblob(40000000))",),
        "dimensions of a thousand million": (other % 999_999_999,),
        "other dimensions": (other % 8191,),
        "a chunk of a thousand million": ("UPDATE notes_chunks SET size = 1000000000",),
        "rowids of megabytes": ("UPDATE notes_chunks SET rowids = zeroblob(30000000), validity = zeroblob(30000000)",),
        "offsets beyond": ("UPDATE notes_rowids SET chunk_offset = 9223372036854775807",),
        "a view for its chunks": (
            "DROP TABLE notes_chunks",
            f"CREATE VIEW notes_chunks AS {ten} SELECT x AS chunk_id, 8 AS size, zeroblob(9) AS validity,"
            " zeroblob(99) AS rowids FROM c",
        ),
        "a view for its texts": (
            "DROP TABLE notes_auxiliary",
            f"CREATE VIEW notes_auxiliary AS {ten} SELECT x AS rowid, hex(zeroblob(x)) AS value00 FROM c",
        ),
    }
    for name, each in statements.items():

        def source(directory: Path, each: Sequence[str] = each) -> SourceTable:
            url = notes_file(directory / "v.db")
            with vector_file(directory / "v.db") as connection:
                connection.execute("PRAGMA writable_schema = ON")
                for statement in each:
                    connection.execute(statement)
            return table(url)

        yield case(name, source, "sqlite")


def _collection(size: object = DIMENSIONS) -> dict[str, object]:
    return {"config": {"params": {"vectors": {"size": size, "distance": "Dot"}}}, "points_count": 4}


PLAIN: Mapping[str, object] = {
    "POST /collections/notes/points/query": {"points": [{"id": 2, "score": 1.0, "payload": {"body": "x"}}]},
    "POST /collections/notes/points/scroll": {"points": [{"id": 1}], "next_page_offset": None},
    "POST /collections/notes/points": [{"id": 1, "vector": [0.5] * DIMENSIONS, "payload": {}}],
    "GET /collections/notes": _collection(),
    "GET /collections": {"collections": [{"name": "notes"}]},
}
QUERY, SCROLL, POINTS, ONE, ALL = PLAIN
BODIES: Mapping[str, tuple[str, Callable[[], bytes]]] = {
    "results of megabytes": (QUERY, lambda: _result({"points": [{"id": 2, "payload": {"body": "x" * FEW}}]})),
    "payloads that are deep": (QUERY, lambda: b'{"result": {"points": [{"id": 2, "payload": ' + b'{"a":' * 9_000_000),
    "payloads of many values": (QUERY, lambda: _result({"points": [{"id": 2, "payload": {"a": [0] * 10_000_000}}]})),
    "points without an end": (SCROLL, lambda: b'{"result": {"points": [{"id": @N@}], "next_page_offset": @N@}}'),
    "pages that bring nothing": (SCROLL, lambda: b'{"result": {"points": [], "next_page_offset": @N@}}'),
    "a million collections": (ALL, lambda: _result({"collections": [{"name": str(n)} for n in range(900_000)]})),
    "a name of megabytes": (ALL, lambda: _result({"collections": [{"name": "x" * FEW}]})),
    "a point of a million numbers": (POINTS, lambda: _result([{"id": 1, "vector": [0.1] * 900_000}])),
    "dimensions without an end": (ONE, lambda: _result(_collection(10**4000))),
    "no JSON": (ALL, lambda: b"\xff" * FEW),
}


def _result(value: object) -> bytes:
    return json.dumps({"result": value}).encode()


def servers() -> Iterator[Case]:
    """Yield servers that stand for Qdrant."""
    for name, (part, body) in BODIES.items():

        def source(directory: Path, part: str = part, body: Callable[[], bytes] = body) -> SourceTable:
            replies = {key: Reply(_result(value), headers=HEADERS, harmless=True) for key, value in PLAIN.items()}
            wrong = Reply(body, headers=HEADERS, harmless=True)
            return table(serve(directory, {**replies, part: wrong}), text="body")

        yield case(name, source, "qdrant")


EMBEDDINGS: Mapping[str, Reply] = {
    "a vector of a million numbers": Reply(lambda: b'{"data": [{"embedding": [' + b"0.5," * 7_000_000 + b"1]}]}"),
    "a number of megabytes": Reply(lambda: b'{"data": [{"embedding": [' + b"1" * FEW + b"]}]}"),
    "vectors that are deep": Reply(lambda: b'{"data": ' + b"[" * FEW),
    "vectors without an end": Reply(b"0.5,", begins=b'{"data": [{"embedding": [', endless=True),
    "silence": Reply(b" ", begins=b" ", endless=True),
}


def endpoints() -> Iterator[Case]:
    """Yield endpoints of embeddings."""
    for name, reply in EMBEDDINGS.items():

        def source(directory: Path, reply: Reply = reply) -> SourceTable:
            url = serve(directory, {"POST /v1/embeddings": reply})
            embeddings = {"url": f"{url}/v1", "model": "m"}
            return table(notes_file(directory / "v.db"), embeddings=embeddings)

        yield case(name, source, "sqlite")


@pytest.mark.parametrize("case", [*files(), *servers(), *endpoints()], ids=str)
def test_a_hostile_source_of_vectors_harms_nobody(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)
