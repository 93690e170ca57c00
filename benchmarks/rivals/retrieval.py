"""What tantivy and bm25s find: `retrieval.py tantivy|bm25s < JSON`

JSON: {"documents": [[ID, TITLE, TEXT], …], "queries": [TEXT, …], "count": N}. Prints one JSON object: the ids of the
best N documents of each query, the seconds of all queries, and the seconds of indexing.
"""

import json
import re
import sys
import tempfile
import time


def by_tantivy(documents, queries, count):
    import tantivy  # noqa: PLC0415 - only one of both programs is measured in a process

    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("id", stored=True)
    for name in ("title", "text"):
        builder.add_text_field(name, tokenizer_name="en_stem")
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        index = tantivy.Index(builder.build(), path=place)
        writer = index.writer(heap_size=64 << 20, num_threads=1)
        for number, title, text in documents:
            writer.add_document(tantivy.Document(id=number, title=title, text=text))
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        indexed, searcher = time.perf_counter(), index.searcher()
        found = []
        for query in queries:
            words = " ".join(re.findall(r"\w+", query.lower()))
            hits = searcher.search(index.parse_query(words, ["title", "text"]), count).hits
            found.append([searcher.doc(address)["id"][0] for _, address in hits])
    return found, time.perf_counter() - indexed, indexed - begun


def by_bm25s(documents, queries, count):
    import bm25s  # noqa: PLC0415
    import Stemmer  # noqa: PLC0415

    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}
    begun = time.perf_counter()
    retriever = bm25s.BM25()
    retriever.index(
        bm25s.tokenize([f"{title}\n{text}" for _, title, text in documents], **options), show_progress=False
    )
    indexed = time.perf_counter()
    numbers, _ = retriever.retrieve(bm25s.tokenize(queries, **options), k=count, show_progress=False)
    return [[documents[at][0] for at in row] for row in numbers], time.perf_counter() - indexed, indexed - begun


def main() -> None:
    given = json.load(sys.stdin)
    ways = {"tantivy": by_tantivy, "bm25s": by_bm25s}
    found, seconds, indexing = ways[sys.argv[1]](given["documents"], given["queries"], given["count"])
    print(json.dumps({"found": found, "seconds": seconds, "indexing": indexing}))


if __name__ == "__main__":
    main()
