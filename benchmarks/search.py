"""The local index: documents indexed a second, its size and memory, searches, their quality, and `bbfs grep`.

Method: documents of 2 KB from words drawn by Zipf's law with a fixed seed, 20 of them with a rare word. The index is
written in batches as the daemon does, without reads, from documents that are made on the way; beside it FTS5 by hand
and tantivy, with words alone, and bm25s where `--parts` names it. Searches of one to three words are timed one by one.
Then the same documents are a folder on a real mount: `bbfs index` reads them, the daemon is asked for words and for
meaning, and the rare word is looked for by `grep -r` on the warm mount, by `bbfs grep` as a command, by the daemon
alone, and by `rg` on the plain folder. What they print is compared.

Quality: a second folder of documents made by rule. Each has words of three concepts among common words; a concept has
four words, its synonyms. A query has one word of each concept of a document, at random: one in four is the document's
own. The static model (256 dimensions) knows by the same rule that synonyms are near, and that all other words are not.
So this shows what the search does with a good model, not how good a model is. recall@10: the share of queries whose
document is among the first ten.

    python benchmarks/search.py [--documents 10000] [--rounds 5] [--parts index,hand,tantivy,bm25s,mount] [--json FILE]
"""

import argparse
import itertools
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from figures import Missing, Sheet
from harness import Mount, folder
from places import RIVALS, RIVALS_PYTHON
from rounds import Bench, Sizes, ask
from vectors import written_model

from bbfs.cli.operands import control_client
from bbfs.resources.commands import table
from bbfs.resources.search.index.store import Document, IndexStore

A = TypeVar("A")
Mode = Literal["words", "meaning", "both"]
BOUND = 3600
SIZE = 2000
BATCH = 1024
RARE, RARE_TIMES = "zqxneedle", 20
SOURCE, TOPICS = "bb-filesystem+notes+file", "bb-filesystem+topics+file"
DIMENSIONS = 256
SYNONYMS, OF_DOCUMENT = 4, 3
INDEX, DAEMON, GREP = "search, the index", "search, the daemon", "search, one literal"
INDEXED, INDEX_SIZE, MEMORY = "all documents indexed", "size", "memory"
KINDS = ("rare words", "common words", "the ten commonest words")
LAST = ", 99th percentile"
RECALL, LITERAL = "recall@10", "20 matches"
OURS, BY_HAND, TANTIVY, BM25S = "bbfs", "FTS5 by hand", "tantivy", "bm25s"
MODES: Mapping[Mode, str] = {"words": "by words", "meaning": "by meaning", "both": "by both"}
COMMAND, FIRST, PART, WARM = (
    "bbfs grep",
    "bbfs grep, the first time",
    "bbfs grep, the daemon's part",
    "grep -r, warm mount",
)
PLAIN, RIPGREP, MIRAGE = "grep -r, plain folder", "ripgrep, plain folder", "mirage's shell, plain folder"


def plan(sheet: Sheet, _sizes: Sizes) -> None:
    timed_cases = [*KINDS, *(kind + LAST for kind in KINDS)]
    for places, rival in (([OURS, BY_HAND], False), ([TANTIVY], True)):
        sheet.plan(INDEX, [INDEXED], places, rival=rival)
        sheet.plan(INDEX, [INDEX_SIZE], places, unit="MB", rival=rival)
        sheet.plan(INDEX, timed_cases, places, rival=rival)
    sheet.plan(INDEX, [MEMORY], [OURS], unit="MB")
    sheet.plan(DAEMON, timed_cases, [MODES["words"], MODES["both"]])
    sheet.plan(DAEMON, [RECALL], list(MODES.values()), unit="")
    sheet.plan(DAEMON, [INDEXED], [MODES["both"]])
    sheet.plan(DAEMON, [MEMORY], [MODES["both"]], unit="MB")
    sheet.plan(GREP, [LITERAL], [COMMAND, FIRST, PART, WARM, PLAIN, RIPGREP])
    sheet.plan(GREP, [LITERAL], [MIRAGE], rival=True)


def measure(bench: Bench) -> None:
    """Measure in a process of its own, so that its memory is that of the index, and that it has a bound."""
    sizes = bench.sizes
    options = {
        "documents": sizes.documents,
        "vocabulary": sizes.vocabulary,
        "topics": sizes.topics,
        "queries": sizes.queries,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    words += ["--rounds", str(sizes.rounds), *([] if bench.rivals else ["--no-rivals"])]
    said = ask("search.py", *words, scratch=bench.disk, bound=max(240.0, 2 * bench.seconds))
    for group, case, place, value in said["figures"]:
        bench.sheet.add(0, group, case, place, value)
    for group, place, why in said["missing"]:
        for cell in list(bench.sheet.cells.values()):
            if (cell.group, cell.place) == (group, place):
                bench.sheet.fail(group, cell.case, place, Missing(why))


@dataclass
class Figures:
    """What was measured: group, case, place and value; and of the rivals that are missing group, place and reason."""

    figures: list[tuple[str, str, str, float]] = field(default_factory=list)
    missing: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, group: str, case: str, place: str, value: float) -> None:
        self.figures.append((group, case, place, value))
        print(f"{group:<22} {place:<30} {case:<42} {value:12.4f}", flush=True)

    def times(self, group: str, case: str, place: str, samples: Sequence[float]) -> None:
        """Add the median, and the 99th percentile."""
        ordered = sorted(samples)
        self.add(group, case, place, statistics.median(ordered))
        self.add(group, case + LAST, place, ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))])


@dataclass(frozen=True)
class Corpus:
    """documents: of the words of the vocabulary. topics: documents of concepts; a tenth of them is asked for.

    queries: of each kind of words, with one word, with two, and with three.
    """

    documents: int
    vocabulary: int
    topics: int
    queries: int

    @property
    def concepts(self) -> int:
        return self.topics // 5


def vocabulary(chance: random.Random, count: int) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["".join(chance.choices(letters, k=chance.randint(3, 10))) for _ in range(count)]


def texts(corpus: Corpus) -> Iterator[str]:
    """Yield documents of the words of the vocabulary, the most frequent first."""
    chance = random.Random(1)
    words = vocabulary(chance, corpus.vocabulary)
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(corpus.vocabulary)))
    for number in range(corpus.documents):
        drawn = chance.choices(words, cum_weights=weights, k=290)
        if number % (corpus.documents // RARE_TIMES) == 7:
            drawn[100] = RARE
        lines = "\n".join(" ".join(drawn[at : at + 12]) for at in range(0, len(drawn), 12))
        yield f"# Title {number}\n\n{lines}"[:SIZE] + "\n"


def queries(corpus: Corpus) -> Mapping[str, Sequence[str]]:
    """Return queries of one to three words, by their kind."""
    words, chance = vocabulary(random.Random(1), corpus.vocabulary), random.Random(2)
    kinds = dict(zip(KINDS, (words[corpus.vocabulary // 10 :], words[100:1000], words[:10]), strict=True))
    return {
        kind: [" ".join(chance.sample(some, count)) for count in (1, 2, 3) for _ in range(corpus.queries)]
        for kind, some in kinds.items()
    }


def topics(corpus: Corpus, chance: random.Random) -> tuple[list[list[str]], list[str], list[tuple[str, int]]]:
    """Return concepts of synonyms, documents, and queries with the numbers of the documents that they mean."""
    concepts = [["s" + word for word in vocabulary(chance, SYNONYMS)] for _ in range(corpus.concepts)]
    filler = vocabulary(random.Random(1), 300)
    chosen = [chance.sample(concepts, OF_DOCUMENT) for _ in range(corpus.topics)]
    made: list[str] = []
    for some in chosen:
        words = [chance.choice(concept) for concept in some] * 4 + chance.choices(filler, k=12)
        chance.shuffle(words)
        made.append(" ".join(words) + "\n")
    asked = chance.sample(range(corpus.topics), corpus.topics // 10)
    return concepts, made, [(" ".join(chance.choice(concept) for concept in chosen[at]), at) for at in asked]


def model(place: Path, corpus: Corpus, concepts: Sequence[Sequence[str]]) -> Path:
    """Write the static model: a direction for each concept and each other word; synonyms differ a little."""
    chance = random.Random(3)

    def direction() -> list[float]:
        return [chance.gauss(0, 1) for _ in range(DIMENSIONS)]

    vectors = {word: direction() for word in (*vocabulary(random.Random(1), corpus.vocabulary), RARE)}
    for concept in concepts:
        common = direction()
        for word in concept:
            vectors[word] = [a + 0.5 * b for a, b in zip(common, direction(), strict=True)]
    return written_model(place, vectors)


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def memory(process: int) -> float:
    """Return the resident memory of a process (MB)."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_index(figures: Figures, directory: Path, corpus: Corpus) -> None:
    store = IndexStore(directory / "index.sqlite", 1 << 40)
    made, wall, most = enumerate(texts(corpus)), 0.0, 0.0
    while some := [
        Document("s", f"u{n}", "v", None, f"Title {n}", "a.md", text) for n, text in itertools.islice(made, BATCH)
    ]:
        wall += timed(lambda some=some: store.write(some, 1.0))
        most = max(most, memory(os.getpid()))
    figures.add(INDEX, INDEXED, OURS, wall)
    figures.add(INDEX, MEMORY, OURS, most)
    figures.add(INDEX, INDEX_SIZE, OURS, store.bytes() / 1e6)
    for kind, asked in queries(corpus).items():
        samples = [timed(lambda query=query: store.search(query, 20, ("s",), BOUND)) for query in asked]
        figures.times(INDEX, kind, OURS, samples)
    store.close()


def measure_by_hand(figures: Figures, directory: Path, corpus: Corpus) -> None:
    """FTS5 as people use it, with the texts in it. A search reads the titles of its best 20."""
    file = directory / "hand.sqlite"
    by_hand = sqlite3.connect(file)
    by_hand.execute("CREATE VIRTUAL TABLE f USING fts5(title, text)")
    made, wall = enumerate(texts(corpus)), 0.0
    while rows := [(f"Title {n}", text) for n, text in itertools.islice(made, BATCH)]:
        wall += timed(lambda rows=rows: (by_hand.executemany("INSERT INTO f VALUES (?, ?)", rows), by_hand.commit()))
    figures.add(INDEX, INDEXED, BY_HAND, wall)
    figures.add(INDEX, INDEX_SIZE, BY_HAND, file.stat().st_size / 1e6)
    best = "SELECT title FROM f WHERE f MATCH ? ORDER BY rank LIMIT 20"
    for kind, asked in queries(corpus).items():
        samples = [timed(lambda query=query: by_hand.execute(best, (query,)).fetchall()) for query in asked]
        figures.times(INDEX, kind, BY_HAND, samples)
    by_hand.close()


def measure_library(figures: Figures, directory: Path, corpus: Corpus, name: str) -> None:
    place = directory / name
    place.mkdir()
    kinds = queries(corpus)
    lines = itertools.chain([corpus.documents], texts(corpus), *kinds.values())
    script = [RIVALS_PYTHON, RIVALS / "word_search.py", name, place]
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # its exit status says it
            for line in lines:
                process.stdin.write(json.dumps(line) + "\n")
            process.stdin.close()
        told = process.stdout.read()
    if process.returncode != 0:
        raise SystemExit(f"{name}: its process ended with {process.returncode}")
    answer = json.loads(told)
    figures.add(INDEX, INDEXED, name, corpus.documents / answer["rate"])
    figures.add(INDEX, INDEX_SIZE, name, answer["bytes"] / 1e6)
    seconds = iter(answer["seconds"])
    for kind, asked in kinds.items():
        figures.times(INDEX, kind, name, [next(seconds) for _ in asked])


def measure_mount(figures: Figures, directory: Path, corpus: Corpus, rounds: int) -> None:
    root = directory / "texts"
    for number, text in enumerate(texts(corpus)):
        place = root / f"{number // 1000:03}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.md").write_text(text)
    concepts, documents, asked = topics(corpus, random.Random(4))
    small = directory / "topics"
    small.mkdir()
    for number, text in enumerate(documents):
        (small / f"{number}.txt").write_text(text)
    tables = {"embeddings": {"folder": str(model(directory / "model", corpus, concepts))}}
    mount = Mount([folder("notes", root, ttl="1h"), folder("topics", small, ttl="1h")], tables=tables)
    try:
        env = mount.environ() | {"LC_ALL": "C.UTF-8", "BBFS_MOUNT": str(mount.path)}
        figures.add(DAEMON, INDEXED, MODES["both"], timed(lambda: output(env, *BBFS, "index", "notes")))
        output(env, *BBFS, "index", "topics")
        for kind, some in queries(corpus).items():
            for mode in ("words", "both"):
                times = [timed(lambda query=query, mode=mode: hits(mount, query, mode, SOURCE)) for query in some]
                figures.times(DAEMON, kind, MODES[mode], times)
        for mode, place in MODES.items():
            well = sum(f"{at}.txt" in hits(mount, query, mode, TOPICS, 10) for query, at in asked)
            figures.add(DAEMON, RECALL, place, well / len(asked))
        figures.add(DAEMON, MEMORY, MODES["both"], memory(mount.process.pid))
        measure_grep(figures, mount, root, env, rounds)
    finally:
        mount.stop()


BBFS = (sys.executable, "-m", "bbfs")


def output(env: Mapping[str, str], *command: str) -> list[str]:
    ran = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=BOUND)
    return sorted(ran.stdout.decode().splitlines())


def measure_grep(figures: Figures, mount: Mount, root: Path, env: Mapping[str, str], rounds: int) -> None:
    where = f"{mount.path}/{SOURCE}"
    ways: dict[str, Callable[[], object]] = {
        FIRST: lambda: output(env, *BBFS, "grep", RARE, where),
        COMMAND: lambda: output(env, *BBFS, "grep", RARE, where),
        PART: lambda: read_by_grep(mount),
        WARM: lambda: output(env, "grep", "-rnE", RARE, where),
        PLAIN: lambda: output(env, "grep", "-rnE", RARE, str(root)),
        RIPGREP: lambda: output(env, "rg", "-n", RARE, str(root)),
    }
    for name, way in ways.items():
        figures.add(GREP, LITERAL, name, statistics.median(timed(way) for _ in range(1 if name == FIRST else rounds)))
    assert len(output(env, "grep", "-rnE", RARE, where)) == RARE_TIMES
    assert output(env, "grep", "-rnE", RARE, where) == output(env, *BBFS, "grep", RARE, where)


def measure_mirage(figures: Figures, directory: Path, _corpus: Corpus) -> None:
    """The search of mirage's shell, which has no index of a folder. One round: it takes minutes."""
    root = directory / "texts"
    command = [RIVALS_PYTHON, RIVALS / "mirage_grep.py", root, RARE, "1"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=BOUND, check=True)
    answer = json.loads(ran.stdout)
    plain = output(dict(os.environ), "grep", "-rnE", RARE, str(root))
    assert answer["lines"] == sorted(line.removeprefix(f"{root}/") for line in plain)
    figures.add(GREP, LITERAL, MIRAGE, statistics.median(answer["seconds"]))


def answers(mount: Mount, request: table.Request[A]) -> list[A]:
    """Return the answers of the daemon to a request, as a command gets them."""
    found: list[A] = []
    control_client.ask(str(mount.path), request, found.append)
    return found


def read_by_grep(mount: Mount) -> int:
    """Return the number of files that the daemon says to read."""
    found = answers(mount, table.Grep(SOURCE, RARE, "extended"))
    return sum(len(answer.read) for answer in found if isinstance(answer, table.MayMatch))


def hits(mount: Mount, query: str, mode: Mode, source: str, limit: int = 20) -> list[str]:
    """Return the names of the best hits in a source."""
    found = answers(mount, table.Search(query, (source,), limit, mode, 60.0))
    problems = [answer.problem for answer in found if isinstance(answer, table.Problem)]
    assert not problems, problems
    return [answer.path.rpartition("/")[2] for answer in found if isinstance(answer, table.Hit)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--vocabulary", type=int, default=20_000)
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", default="index,hand,tantivy,mount,mirage")
    parser.add_argument("--no-rivals", dest="rivals", action="store_false")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    corpus, figures = Corpus(given.documents, given.vocabulary, given.topics, given.queries), Figures()
    with tempfile.TemporaryDirectory(prefix="bbfs-search-") as directory:
        parts: dict[str, Callable[[Figures, Path, Corpus], None]] = {
            "index": measure_index,
            "hand": measure_by_hand,
            "tantivy": partial(measure_library, name=TANTIVY),
            "bm25s": partial(measure_library, name=BM25S),
            "mount": partial(measure_mount, rounds=given.rounds),
            "mirage": measure_mirage,
        }
        rivals = {"tantivy": (INDEX, TANTIVY), "bm25s": (INDEX, BM25S), "mirage": (GREP, MIRAGE)}
        for part in given.parts.split(","):
            if part in rivals and not (given.rivals and RIVALS_PYTHON.exists()):
                figures.missing.append((*rivals[part], "not installed" if given.rivals else "left out"))
            else:
                parts[part](figures, Path(directory), corpus)
    if given.json:
        given.json.write_text(json.dumps(asdict(figures)))


if __name__ == "__main__":
    main()
