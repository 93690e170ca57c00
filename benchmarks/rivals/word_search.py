"""A library for searching words over the documents of benchmarks/search.py: `word_search.py NAME FOLDER < LINES`

NAME: tantivy, or bm25s, which has its index in memory and writes it at the end. LINES: the number of documents, one
JSON string a document, then one a query. Prints one JSON object: documents a second, bytes of the index, and the
seconds of each query for its best 20 documents.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

Search = Callable[[str], object]
MOST = 20


def by_tantivy(folder: Path, documents: Iterator[str]) -> Search:
    import tantivy  # noqa: PLC0415 - a process measures one library

    schema = tantivy.SchemaBuilder().add_text_field("text", stored=True).build()
    index = tantivy.Index(schema, path=str(folder))
    writer = index.writer(heap_size=64 << 20, num_threads=2)
    for text in documents:
        writer.add_document(tantivy.Document(text=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(query: str) -> Sequence[object]:
        hits = searcher.search(index.parse_query(query, ["text"]), MOST).hits
        return [searcher.doc(address) for _, address in hits]

    return search


def by_bm25s(folder: Path, documents: Iterator[str]) -> Search:
    import bm25s  # noqa: PLC0415

    texts = [*documents]
    retriever = bm25s.BM25(corpus=texts)
    retriever.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    retriever.save(str(folder), corpus=texts)

    def search(query: str) -> object:
        asked = bm25s.tokenize([query], show_progress=False, return_ids=False)
        return retriever.retrieve(asked, k=MOST, show_progress=False)

    return search


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    count = int(sys.stdin.readline())
    begun = time.perf_counter()
    search = {"tantivy": by_tantivy, "bm25s": by_bm25s}[name](folder, map(json.loads, islice(sys.stdin, count)))
    rate = count / (time.perf_counter() - begun)
    seconds = []
    for line in sys.stdin:
        begun = time.perf_counter()
        search(json.loads(line))
        seconds.append(time.perf_counter() - begun)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(json.dumps({"rate": rate, "bytes": size, "seconds": seconds}))


if __name__ == "__main__":
    main()
