"""How well a search finds what people judged to be relevant: the collections Cranfield, CISI and CACM.

Method: each document is indexed with its title, and each query with judgements is searched, cut at the 1000
characters that a search takes. nDCG@10 compares the first ten hits with the best order there could be; a judged
document is relevant, whatever its grade. recall@100 is the share of the relevant documents among the first hundred.
Beside the local index: FTS5 as it is, with the words of the query joined by OR; tantivy with its English stemmer; and
bm25s with stop words and Snowball, all in one run. Milliseconds are of one query, by the clock.

With a static model in a folder, the index is searched by meaning as well, and by both, merged as a search merges them.
The vectors of the queries are made before the clock starts. `benchmarks/rivals/wordllama_model.py` writes such a model.

    python benchmarks/retrieval.py FOLDER [--model FOLDER] [--rivals-python PYTHON] [--json FILE]

FOLDER has `cran.all.1400`, `cran.qry` and `cranqrel`, `CISI.ALL`, `CISI.QRY` and `CISI.REL`, and `cacm.all`,
`query.text` and `qrels.text`: docs/benchmarks/by-hand.md says where they are. A collection that is not there is left
out, and stderr says so.
"""

import argparse
import json
import math
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import trio
from places import RIVALS, RIVALS_PYTHON

from bbfs.resources.search.engine import rank_score
from bbfs.resources.search.index.store import Document, IndexStore
from bbfs.sources.abilities import LONGEST_QUERY
from bbfs.sources.embeddings.static_model import StaticEmbedder

COUNT = 100
"""Hits that each program is asked for."""
SHOWN = 10
"""Hits that a reader looks at."""
BOUND = 600
AT_ONCE = 64
"""Texts whose vectors are asked for at once."""
MODEL_MEMORY = 1 << 30
_FIELD = re.compile(r"\.([A-Z])\s*")


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents with titles, by number, queries, and the numbers of the documents that are relevant for each query."""

    name: str
    documents: Mapping[int, tuple[str, str]]
    queries: Sequence[tuple[str, frozenset[int]]]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one program found. ndcg, recall: of all queries. milliseconds: of one query."""

    ndcg: float
    recall: float
    milliseconds: float


def records(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the records of a file in SMART's format: the number, and the text of each field by its letter."""
    number, fields, field = 0, dict[str, str](), ""
    for line in path.read_text("latin-1").splitlines():
        if line.startswith(".I"):
            if number:
                yield number, fields
            number, fields, field = int(line.split()[1]), {}, ""
        elif found := _FIELD.fullmatch(line):
            field = found[1]
        elif field:
            fields[field] = f"{fields.get(field, '')}{line}\n"
    yield number, fields


def collection(name: str, folder: Path, documents: str, queries: str, judged: str, *, in_order: bool) -> Collection:
    """Read a collection. in_order: the judgements number the queries by their order, and not by their own numbers."""
    relevant: dict[int, set[int]] = {}
    for line in (folder / judged).read_text().splitlines():
        if len(words := line.split()) >= 2:
            relevant.setdefault(int(words[0]), set()).add(int(words[1]))
    asked = [
        (" ".join(fields.get("W", "").split())[:LONGEST_QUERY], frozenset(relevant[number]))
        for at, (own, fields) in enumerate(records(folder / queries), 1)
        if (number := at if in_order else own) in relevant
    ]
    texts = {
        number: (" ".join(fields.get("T", "").split()), fields.get("W", ""))
        for number, fields in records(folder / documents)
    }
    return Collection(name, texts, asked)


def ndcg(found: Sequence[int], relevant: frozenset[int]) -> float:
    """Return the discounted gain of the first hits, as a share of the best there could be."""
    gain = sum(1 / math.log2(rank + 1) for rank, number in enumerate(found[:SHOWN], 1) if number in relevant)
    return gain / sum(1 / math.log2(rank + 1) for rank in range(1, min(SHOWN, len(relevant)) + 1))


def figures(of: Collection, found: Sequence[Sequence[int]], seconds: float) -> Figures:
    rows = [(hits, relevant) for hits, (_, relevant) in zip(found, of.queries, strict=True)]
    return Figures(
        sum(ndcg(hits, relevant) for hits, relevant in rows) / len(rows),
        sum(len(relevant.intersection(hits[:COUNT])) / len(relevant) for hits, relevant in rows) / len(rows),
        1000 * seconds / len(rows),
    )


def timed(of: Collection, search: Callable[[str], Sequence[int]]) -> Figures:
    begun = time.perf_counter()
    found = [search(query) for query, _ in of.queries]
    return figures(of, found, time.perf_counter() - begun)


def by_words(of: Collection, place: Path) -> Figures:
    with closing(index(of, place)) as store:
        return timed(of, partial(words, store))


def index(of: Collection, place: Path) -> IndexStore:
    """Return the index of a collection, made by the first who asks."""
    path = place / f"{of.name}.sqlite"
    is_new = not path.exists()
    store = IndexStore(path, 1 << 40)
    if is_new:
        texts = of.documents.items()
        store.write([Document("s", str(number), "1", None, title, "a.txt", text) for number, (title, text) in texts], 1)
    return store


def words(store: IndexStore, query: str) -> list[int]:
    return [int(hit.native_uri) for _, hit in store.search(query, COUNT, ("s",), BOUND).hits]


def by_meaning(model: Path, *, both: bool) -> Callable[[Collection, Path], Figures]:
    """Return what measures a search by the vectors of a model. both: by words as well."""

    def measure(of: Collection, place: Path) -> Figures:
        with closing(index(of, place)) as store:
            name, vectors = trio.run(embedded, store, str(model.absolute()), [query for query, _ in of.queries])

            def search(query: str) -> list[int]:
                found = store.nearest(name, vectors[query], query, COUNT, ("s",), BOUND) or []
                near = [int(hit.native_uri) for _, hit in found]
                return merged(words(store, query), near) if both else near

            return timed(of, search)

    return measure


async def embedded(store: IndexStore, model: str, queries: Sequence[str]) -> tuple[str, Mapping[str, bytes]]:
    """Make the vectors that an index lacks. Return the name of the model, and the vectors of queries."""
    embedder = StaticEmbedder(model, MODEL_MEMORY)
    try:
        while (chunks := store.pending(embedder.name, AT_ONCE)).texts:
            made = await embedder.embed([*chunks.texts.values()])
            store.put_vectors(embedder.name, chunks, made, first=chunks.after == 0)
        return embedder.name, dict(zip(queries, await embedder.embed(queries), strict=True))
    finally:
        await embedder.aclose()


def merged(by_words: Sequence[int], by_meaning: Sequence[int]) -> list[int]:
    scores: dict[int, float] = {}
    for ranking, meaning in ((by_words, False), (by_meaning, True)):
        for rank, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + rank_score(rank, by_meaning=meaning)
    return sorted(scores, key=lambda number: -scores[number])


def by_fts5(of: Collection, place: Path) -> Figures:
    db = sqlite3.connect(place / f"{of.name}.fts5")
    db.execute("CREATE VIRTUAL TABLE f USING fts5(title, text)")
    rows = ((number, *texts) for number, texts in of.documents.items())
    db.executemany("INSERT INTO f (rowid, title, text) VALUES (?, ?, ?)", rows)

    def search(query: str) -> list[int]:
        words = " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", query)))
        return [
            row[0] for row in db.execute(f"SELECT rowid FROM f WHERE f MATCH ? ORDER BY rank LIMIT {COUNT}", (words,))
        ]

    try:
        return timed(of, search)
    finally:
        db.close()


def by_rival(name: str, python: Path) -> Callable[[Collection, Path], Figures]:
    def measure(of: Collection, _place: Path) -> Figures:
        documents = [(number, *texts) for number, texts in of.documents.items()]
        given = {"documents": documents, "queries": [query for query, _ in of.queries], "count": COUNT}
        ran = subprocess.run(
            [python, RIVALS / "retrieval.py", name],
            input=json.dumps(given), stdout=subprocess.PIPE, text=True, timeout=BOUND, check=True,
        )  # fmt: skip
        answer = json.loads(ran.stdout)
        return figures(of, answer["found"], answer["seconds"])

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path, help="a static model (model2vec) in a folder")
    parser.add_argument("--rivals-python", type=Path, default=RIVALS_PYTHON)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    programs: dict[str, Callable[[Collection, Path], Figures]] = {"bbfs": by_words}
    if given.model:
        programs["bbfs, by meaning"] = by_meaning(given.model, both=False)
        programs["bbfs, by both"] = by_meaning(given.model, both=True)
    programs["FTS5 as it is"] = by_fts5
    if given.rivals_python.exists():
        programs |= {name: by_rival(name, given.rivals_python) for name in ("tantivy", "bm25s")}
    else:
        print("retrieval: without tantivy and bm25s: no rivals are installed (make bench)", file=sys.stderr)
    result: dict[str, dict[str, Figures]] = {}
    with tempfile.TemporaryDirectory(prefix="bbfs-retrieval-") as place:
        for name, files, in_order in (
            ("Cranfield", ("cran.all.1400", "cran.qry", "cranqrel"), True),
            ("CISI", ("CISI.ALL", "CISI.QRY", "CISI.REL"), False),
            ("CACM", ("cacm.all", "query.text", "qrels.text"), False),
        ):
            try:
                read = collection(name, given.folder, *files, in_order=in_order)
            except FileNotFoundError as error:
                print(f"retrieval: without {name}: {error}", file=sys.stderr)
                continue
            print(
                f"\n| {name}, {len(read.queries)} queries | nDCG@10 | recall@100 | a query |\n| --- | --- | --- | --- |"
            )
            for program, measure in programs.items():
                one = measure(read, Path(place))
                result.setdefault(name, {})[program] = one
                print(f"| {program} | {one.ndcg:.3f} | {one.recall:.3f} | {one.milliseconds:.1f} ms |", flush=True)
    if not result:
        raise SystemExit(1)
    if given.json:
        rows = {
            name: {program: [one.ndcg, one.recall, one.milliseconds] for program, one in by.items()}
            for name, by in result.items()
        }
        given.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
