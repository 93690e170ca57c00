"""Tantivy over the documents of benchmarks/search.py: `tantivy_search.py FOLDER < LINES`

LINES: the number of documents, one JSON string a document, then one a query. Prints one JSON object: documents a
second, bytes of the index, and the seconds of each query for its best 20 documents.
"""

import json
import sys
import time
from pathlib import Path

import tantivy


def main() -> None:
    folder = Path(sys.argv[1])
    schema = tantivy.SchemaBuilder().add_text_field("text", stored=True).build()
    index = tantivy.Index(schema, path=str(folder))
    writer = index.writer(heap_size=64 << 20, num_threads=2)
    count = int(sys.stdin.readline())
    begun = time.perf_counter()
    for _ in range(count):
        writer.add_document(tantivy.Document(text=json.loads(sys.stdin.readline())))
    writer.commit()
    writer.wait_merging_threads()
    rate = count / (time.perf_counter() - begun)
    index.reload()
    searcher = index.searcher()
    seconds = []
    for line in sys.stdin:
        begun = time.perf_counter()
        found = searcher.search(index.parse_query(json.loads(line), ["text"]), 20)
        [searcher.doc(address) for _, address in found.hits]
        seconds.append(time.perf_counter() - begun)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(json.dumps({"rate": rate, "bytes": size, "seconds": seconds}))


if __name__ == "__main__":
    main()
