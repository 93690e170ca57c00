"""The local index: documents indexed a second, its size and memory, searches, their quality, and `bbfs grep`.

Method: documents of 2 KB from words drawn by Zipf's law with a fixed seed, 20 of them with a rare word. The index is
written in batches as the daemon does, without reads, from documents that are made on the way; beside it FTS5 by hand,
and tantivy, with words alone. Searches of one to three words are timed one by one. Then the same documents are a folder
on a real mount: `bbfs index` reads them, the daemon is asked for words and for meaning, and the rare word is looked for
by `grep -r` on the warm mount, by `bbfs grep` as a command, by the daemon alone, and by `rg` on the plain folder. What
they print is compared.

Quality: a second folder of documents made by rule. Each has words of three concepts among common words; a concept has
four words, its synonyms. A query has one word of each concept of a document, at random: one in four is the document's
own. The static model (256 dimensions) knows by the same rule that synonyms are near, and that all other words are not.
So this shows what the search does with a good model, not how good a model is. recall@10: the share of queries whose
document is among the first ten.

    python benchmarks/search.py [--documents 10000] [--rounds 5] [--parts index,hand,tantivy,mount]
"""

import argparse
import itertools
import json
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from harness import Mount, folder
from vectors import written_model

from bbfs.cli.operands import control_client
from bbfs.resources.commands import table
from bbfs.resources.search.index.store import Document, IndexStore

A = TypeVar("A")
Mode = Literal["words", "meaning", "both"]
BOUND = 3600
SIZE = 2000
BATCH = 1024
VOCABULARY = 20_000
RARE, RARE_TIMES = "zqxneedle", 20
SOURCE, TOPICS = "bb-filesystem+notes+file", "bb-filesystem+topics+file"
DIMENSIONS = 256
CONCEPTS, SYNONYMS, OF_DOCUMENT = 400, 4, 3
TOPIC_DOCUMENTS, TOPIC_QUERIES = 2000, 200
BESIDE = Path(__file__).parent / "rivals"


def vocabulary(chance: random.Random, count: int = VOCABULARY) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["".join(chance.choices(letters, k=chance.randint(3, 10))) for _ in range(count)]


def texts(count: int) -> Iterator[str]:
    """Yield documents of the words of `vocabulary`, the most frequent first."""
    chance = random.Random(1)
    words = vocabulary(chance)
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(VOCABULARY)))
    for number in range(count):
        drawn = chance.choices(words, cum_weights=weights, k=290)
        if number % max(1, count // RARE_TIMES) == 7:
            drawn[100] = RARE
        lines = "\n".join(" ".join(drawn[at : at + 12]) for at in range(0, len(drawn), 12))
        yield f"# Title {number}\n\n{lines}"[:SIZE] + "\n"


def queries() -> Mapping[str, Sequence[str]]:
    """Return queries of one to three words, by their kind."""
    words, chance = vocabulary(random.Random(1)), random.Random(2)
    kinds = {"rare words": words[2000:], "common words": words[100:1000], "the ten commonest": words[:10]}
    return {
        kind: [" ".join(chance.sample(some, count)) for count in (1, 2, 3) for _ in range(20)]
        for kind, some in kinds.items()
    }


def topics(chance: random.Random) -> tuple[list[list[str]], list[str], list[tuple[str, int]]]:
    """Return concepts of synonyms, documents, and queries with the numbers of the documents that they mean."""
    concepts = [["s" + word for word in vocabulary(chance, SYNONYMS)] for _ in range(CONCEPTS)]
    filler = vocabulary(random.Random(1), 300)
    chosen = [chance.sample(concepts, OF_DOCUMENT) for _ in range(TOPIC_DOCUMENTS)]
    made: list[str] = []
    for some in chosen:
        words = [chance.choice(concept) for concept in some] * 4 + chance.choices(filler, k=12)
        chance.shuffle(words)
        made.append(" ".join(words) + "\n")
    asked = chance.sample(range(TOPIC_DOCUMENTS), TOPIC_QUERIES)
    return concepts, made, [(" ".join(chance.choice(concept) for concept in chosen[at]), at) for at in asked]


def model(place: Path, concepts: Sequence[Sequence[str]]) -> Path:
    """Write the static model: a direction for each concept and each other word; synonyms differ a little."""
    chance = random.Random(3)

    def direction() -> list[float]:
        return [chance.gauss(0, 1) for _ in range(DIMENSIONS)]

    vectors = {word: direction() for word in (*vocabulary(random.Random(1)), RARE)}
    for concept in concepts:
        common = direction()
        for word in concept:
            vectors[word] = [a + 0.5 * b for a, b in zip(common, direction(), strict=True)]
    return written_model(place, vectors)


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def shown(what: str, samples: Sequence[float]) -> None:
    ordered = sorted(samples)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(f"{what:<52} median {statistics.median(ordered) * 1e3:8.1f} ms   99 % {last * 1e3:8.1f} ms", flush=True)


def memory(process: int) -> float:
    """Return the resident memory of a process (MB)."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def processor_time(process: int) -> float:
    """Return the processor time of a process (seconds)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_index(directory: Path, count: int) -> None:
    store = IndexStore(directory / "index.sqlite", 1 << 40)
    made = enumerate(texts(count))
    wall, cpu, size, resident = 0.0, 0.0, 0, []
    while some := [
        Document("s", f"u{n}", "v", None, f"Title {n}", "a.md", text) for n, text in itertools.islice(made, BATCH)
    ]:
        size += sum(len(each.text) for each in some)
        begun = time.process_time()
        wall += timed(lambda some=some: store.write(some, 1.0))
        cpu += time.process_time() - begun
        resident.append(memory(os.getpid()))
    print(f"indexed: {count / wall:.0f} documents/s, {count / cpu:.0f} a second of processor time")
    print(f"memory: {resident[len(resident) // 10]:.0f} MB after a tenth, {max(resident):.0f} MB at most")
    print(f"size: {store.bytes() / 1e6:.1f} MB for {size / 1e6:.1f} MB of text", flush=True)
    for kind, asked in queries().items():
        shown(f"index, {kind}", [timed(lambda query=query: store.search(query, 20, ("s",), BOUND)) for query in asked])
    store.close()


def measure_by_hand(directory: Path, count: int) -> None:
    """FTS5 as people use it, with the texts in it. A search reads the titles of its best 20."""
    file = directory / "hand.sqlite"
    by_hand = sqlite3.connect(file)
    by_hand.execute("CREATE VIRTUAL TABLE f USING fts5(title, text)")
    made, wall = enumerate(texts(count)), 0.0
    while rows := [(f"Title {n}", text) for n, text in itertools.islice(made, BATCH)]:
        wall += timed(lambda rows=rows: (by_hand.executemany("INSERT INTO f VALUES (?, ?)", rows), by_hand.commit()))
    print(f"FTS5 by hand, words alone: {count / wall:.0f} documents/s, {file.stat().st_size / 1e6:.1f} MB")
    best = "SELECT title FROM f WHERE f MATCH ? ORDER BY rank LIMIT 20"
    for kind, asked in queries().items():
        samples = [timed(lambda query=query: by_hand.execute(best, (query,)).fetchall()) for query in asked]
        shown(f"FTS5 by hand, {kind}", samples)
    by_hand.close()


def measure_tantivy(directory: Path, count: int) -> None:
    python = BESIDE / ".venv" / "bin" / "python"
    if not python.exists():
        print(f"tantivy: left out, as {python} is missing (make .venv/.installed-bench)")
        return
    place = directory / "tantivy"
    place.mkdir()
    kinds = queries()
    lines = itertools.chain([count], texts(count), *kinds.values())
    script = BESIDE / "tantivy_search.py"
    with subprocess.Popen([python, script, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # its exit status says it
            for line in lines:
                process.stdin.write(json.dumps(line) + "\n")
            process.stdin.close()
        told = process.stdout.read()
    if process.returncode != 0:
        print(f"tantivy: left out, as its process ended with {process.returncode}")
        return
    answer = json.loads(told)
    print(f"tantivy, words alone, two threads: {answer['rate']:.0f} documents/s, {answer['bytes'] / 1e6:.1f} MB")
    seconds = iter(answer["seconds"])
    for kind, asked in kinds.items():
        shown(f"tantivy, {kind}", [next(seconds) for _ in asked])


def measure_mount(directory: Path, count: int, rounds: int) -> None:
    root = directory / "texts"
    for number, text in enumerate(texts(count)):
        place = root / f"{number // 1000:03}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.md").write_text(text)
    concepts, documents, asked = topics(random.Random(4))
    small = directory / "topics"
    small.mkdir()
    for number, text in enumerate(documents):
        (small / f"{number}.txt").write_text(text)
    tables = {"embeddings": {"folder": str(model(directory / "model", concepts))}}
    mount = Mount([folder("notes", root, ttl="1h"), folder("topics", small, ttl="1h")], tables=tables)
    try:
        env = mount.environ() | {"LC_ALL": "C.UTF-8", "BBFS_MOUNT": str(mount.path)}
        wall = timed(lambda: output(env, *BBFS, "index", "notes"))
        print(f"bbfs index, with the reads and the vectors: {count / wall:.0f} documents/s")
        output(env, *BBFS, "index", "topics")
        for kind, some in queries().items():
            for mode in ("words", "both"):
                spent = processor_time(mount.process.pid)
                times = [timed(lambda query=query, mode=mode: hits(mount, query, mode, SOURCE)) for query in some]
                spent = (processor_time(mount.process.pid) - spent) / len(some)
                shown(f"search in the daemon, {mode}, {kind}", times)
                print(f"{'':<52} {spent * 1e3:.1f} ms of the daemon's processor time each")
        for mode in ("words", "meaning", "both"):
            well = sum(f"{at}.txt" in hits(mount, query, mode, TOPICS, 10) for query, at in asked)
            print(f"recall@10, {mode}: {well / len(asked):.3f}")
        print(f"memory of the daemon: {memory(mount.process.pid):.0f} MB", flush=True)
        measure_grep(mount, root, env, rounds)
    finally:
        mount.stop()


BBFS = (sys.executable, "-m", "bbfs")


def output(env: Mapping[str, str], *command: str) -> list[str]:
    ran = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=BOUND)
    return sorted(ran.stdout.decode().splitlines())


def measure_grep(mount: Mount, root: Path, env: Mapping[str, str], rounds: int) -> None:
    where = f"{mount.path}/{SOURCE}"
    first = timed(lambda: output(env, *BBFS, "grep", RARE, where))
    ways: dict[str, Callable[[], object]] = {
        "grep -r on the warm mount": lambda: output(env, "grep", "-rnE", RARE, where),
        "bbfs grep, the command": lambda: output(env, *BBFS, "grep", RARE, where),
        "bbfs grep, the daemon's part": lambda: read_by_grep(mount),
        "grep -r on the plain folder": lambda: output(env, "grep", "-rnE", RARE, str(root)),
    }
    if shutil.which("rg"):
        ways["ripgrep on the plain folder"] = lambda: output(env, "rg", "-n", RARE, str(root))
    else:
        print("ripgrep: left out, as there is no program rg")
    assert output(env, "grep", "-rnE", RARE, where) == output(env, *BBFS, "grep", RARE, where)
    shown("bbfs grep, the command, the first time", [first])
    for name, way in ways.items():
        shown(name, [timed(way) for _ in range(rounds)])
    measure_mirage(root)


def measure_mirage(root: Path) -> None:
    """The search of mirage's shell, which has no index of a folder. One round: it takes minutes."""
    python = BESIDE / ".venv" / "bin" / "python"
    if not python.exists():
        print(f"mirage: left out, as {python} is missing (make .venv/.installed-bench)")
        return
    command = [python, BESIDE / "mirage_grep.py", root, RARE, "1"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=BOUND)
    if ran.returncode != 0:
        print(f"mirage: left out, as its process ended with {ran.returncode}")
        return
    answer = json.loads(ran.stdout)
    plain = output(dict(os.environ), "grep", "-rnE", RARE, str(root))
    assert answer["lines"] == sorted(line.removeprefix(f"{root}/") for line in plain)
    shown("mirage's shell, grep -rn, without its start", answer["seconds"])


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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", default="index,hand,tantivy,mount")
    given = parser.parse_args()
    print(f"{given.documents} documents, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)
    with tempfile.TemporaryDirectory(prefix="bbfs-search-") as directory:
        parts: dict[str, Callable[[Path, int], None]] = {
            "index": measure_index,
            "hand": measure_by_hand,
            "tantivy": measure_tantivy,
            "mount": lambda place, count: measure_mount(place, count, given.rounds),
        }
        for part in given.parts.split(","):
            parts[part](Path(directory), given.documents)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
