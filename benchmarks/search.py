"""The local index: documents indexed a second, searches, and `bbfs grep` beside `grep -r` and what people would use.

Method: documents of 2 KB from words drawn by Zipf's law with a fixed seed, 20 of them with a rare word. The index is
written in batches as the daemon does, without reads; beside it FTS5 by hand, with words alone. Searches of one to three
words, rare and common, are timed one by one. Then the same documents are a folder on a real mount: it is indexed by
`bbfs index`, and the rare word is looked for by `grep -r` on the warm mount, by `bbfs grep` as a command, by the daemon
alone, and by `rg` on the plain folder if there is one. Outputs are compared.

    python benchmarks/search.py [--documents 20000] [--rounds 5]
"""

import argparse
import itertools
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from harness import Mount, folder

from bbfs.cli.target import control_client
from bbfs.resources.search.index.store import Document, IndexStore

BOUND = 600
SIZE = 2000
BATCH = 1024
VOCABULARY = 20_000
RARE, RARE_TIMES = "zqxneedle", 20
SOURCE = "bb-filesystem+notes+file"


def texts(count: int) -> tuple[list[str], list[str]]:
    """Return documents, and the words that they are made of, the most frequent first."""
    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(3, 10))) for _ in range(VOCABULARY)]
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(VOCABULARY)))
    made: list[str] = []
    for number in range(count):
        drawn = chance.choices(words, cum_weights=weights, k=290)
        if number % max(1, count // RARE_TIMES) == 7:
            drawn[100] = RARE
        lines = "\n".join(" ".join(drawn[at : at + 12]) for at in range(0, len(drawn), 12))
        made.append(f"# Title {number}\n\n{lines}"[:SIZE] + "\n")
    return made, words


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def shown(what: str, samples: Sequence[float]) -> None:
    ordered = sorted(samples)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(f"{what:<44} median {statistics.median(ordered) * 1e3:8.1f} ms   99 % {last * 1e3:8.1f} ms")


def measure_index(directory: Path, made: Sequence[str], words: Sequence[str]) -> None:
    documents = [Document("s", f"u{at}", "v", None, f"Title {at}", "a.md", text) for at, text in enumerate(made)]
    store = IndexStore(directory / "index.sqlite", 1 << 40)
    cpu = time.process_time()
    wall = timed(lambda: [store.write(documents[at : at + BATCH], 1.0) for at in range(0, len(made), BATCH)])
    cpu = time.process_time() - cpu
    print(f"indexed: {len(made) / wall:.0f} documents/s, {len(made) / cpu:.0f} a second of processor time")
    print(f"size: {store.bytes() / 1e6:.1f} MB for {sum(map(len, made)) / 1e6:.1f} MB of text")
    by_hand = sqlite3.connect(directory / "hand.sqlite")
    by_hand.execute("CREATE VIRTUAL TABLE f USING fts5(title, text)")
    rows = ((f"Title {at}", text) for at, text in enumerate(made))
    wall = timed(lambda: (by_hand.executemany("INSERT INTO f VALUES (?, ?)", rows), by_hand.commit()))
    print(f"FTS5 by hand, words alone: {len(made) / wall:.0f} documents/s")
    by_hand.close()
    chance = random.Random(2)
    for kind, some in (
        ("rare words", words[2000:]),
        ("common words", words[100:1000]),
        ("the ten commonest", words[:10]),
    ):
        queries = [" ".join(chance.sample(some, count)) for count in (1, 2, 3) for _ in range(20)]
        shown(
            f"search, {kind}", [timed(lambda query=query: store.search(query, 20, ("s",), BOUND)) for query in queries]
        )
    store.close()


def measure_grep(directory: Path, made: Sequence[str], rounds: int) -> None:
    root = directory / "texts"
    for number, text in enumerate(made):
        place = root / f"{number // 1000:03}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.md").write_text(text)
    mount = Mount([folder("notes", root, ttl="1h")])
    try:
        env = mount.environ() | {"LC_ALL": "C.UTF-8", "BBFS_MOUNT": str(mount.path)}
        where = f"{mount.path}/{SOURCE}"

        def output(*command: str) -> list[str]:
            ran = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=BOUND)
            return sorted(ran.stdout.decode().splitlines())

        bbfs = [sys.executable, "-m", "bbfs"]
        wall = timed(lambda: output(*bbfs, "index", "notes"))
        print(f"bbfs index, with the reads: {len(made) / wall:.0f} documents/s")
        ways: dict[str, Callable[[], object]] = {
            "grep -r on the warm mount": lambda: output("grep", "-rnE", RARE, where),
            "bbfs grep, the command": lambda: output(*bbfs, "grep", RARE, where),
            "bbfs grep, the daemon's part": lambda: trio.run(ask, str(mount.path)),
            "grep -r on the plain folder": lambda: output("grep", "-rnE", RARE, str(root)),
        }
        if shutil.which("rg"):
            ways["ripgrep on the plain folder"] = lambda: output("rg", "-n", RARE, str(root))
        assert output("grep", "-rnE", RARE, where) == output(*bbfs, "grep", RARE, where)
        for name, way in ways.items():
            shown(name, [timed(way) for _ in range(rounds)])
    finally:
        mount.stop()


async def ask(mount: str) -> int:
    """Return the number of files that the daemon says to read."""
    request = {"request": "grep", "path": SOURCE, "pattern": RARE, "syntax": "extended"}
    return sum([len(answer.get("read", ())) async for answer in control_client.answers(mount, request)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    made, words = texts(given.documents)
    print(f"{given.documents} documents, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory(prefix="bbfs-search-") as directory:
        measure_index(Path(directory), made, words)
        measure_grep(Path(directory), made, given.rounds)


if __name__ == "__main__":
    main()
