"""Vectors for tests: a small static model made from text in the repository, and SQLite files of sqlite-vec."""

import json
import sqlite3
import struct
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import sqlite_vec
import trio
from repository import ROOT

from bbfs.model.values import DataSource
from bbfs.sources import Services
from bbfs.sources.factory import build
from bbfs.sources.vector_search.handler import VectorSearchHandler

DIMENSIONS = 32
BOUND = 100.0
"""Seconds for all that a test does with one source."""


@asynccontextmanager
async def vectors_of(source: DataSource) -> AsyncIterator[VectorSearchHandler]:
    """Make the handler of a source of vectors, and close it at the end."""
    made = build(source, Services())
    assert isinstance(made, VectorSearchHandler)
    try:
        with trio.fail_after(BOUND):
            yield made
    finally:
        await made.aclose()


async def loaded(made: VectorSearchHandler, path: str) -> Any:
    """Return the value of a JSON file. path: of its URI, without the scheme."""
    content = (await made.load(f"{made.source.scheme}://{path}")).parts[0].content
    return json.loads(content.read(0, content.size) or b"")


async def found(made: VectorSearchHandler, path: str) -> list[str]:
    """Return the ids of the points in a file of results."""
    return [match["id"] for match in await loaded(made, path)]


def packed(*numbers: float) -> bytes:
    return struct.pack(f"{len(numbers)}f", *numbers)


@contextmanager
def vector_file(path: Path) -> Iterator[sqlite3.Connection]:
    """A SQLite file to write tables of vectors in."""
    with closing(sqlite3.connect(path)) as connection:
        connection.enable_load_extension(True)
        sqlite_vec.load(connection)
        yield connection
        connection.commit()


def words() -> list[str]:
    """The words of the glossary, which are those of the model."""
    text = (ROOT / "docs" / "architecture.md").read_text().lower()
    plain = "".join(letter if letter.isalpha() else " " for letter in text)
    return sorted({*plain.split(), "certificate", "renew", "expired", "coffee", "brew", "beans"})


def topic(word: str) -> int:
    """Words of one topic have one vector, so a model that is made by rule has meaning."""
    topics = [("certificate", "renew", "expired"), ("coffee", "brew", "beans")]
    return next((number for number, of in enumerate(topics) if word in of), 100 + crc32(word.encode()) % 1000)


def vector_of(word: str, dimensions: int = DIMENSIONS) -> list[float]:
    """The vector of a word, made from the number of its topic."""
    bits = crc32(f"topic {topic(word)}".encode()) << 32 | crc32(f"more {topic(word)}".encode())
    return [1.0 if bits >> place % 64 & 1 else -1.0 for place in range(dimensions)]


def static_model(folder: Path, dimensions: int = DIMENSIONS) -> Path:
    """Write the static model of the tests."""
    return written_model(folder, {word: vector_of(word, dimensions) for word in words()})


def written_model(folder: Path, vectors: Mapping[str, Sequence[float]]) -> Path:
    """Write a static model: a tokenizer of words, and a matrix with the vector of each."""
    import numpy as np
    from safetensors.numpy import save_file

    tokens = ["[UNK]", *vectors]
    unknown = [0.01] * len(next(iter(vectors.values())))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = {
        "version": "1.0",
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {token: n for n, token in enumerate(tokens)}, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    save_file({"embeddings": np.array([unknown, *vectors.values()], dtype="float32")}, folder / "model.safetensors")
    return folder


def embedded(text: str, dimensions: int = DIMENSIONS) -> bytes:
    """The vector that the model makes of a text of its words: their mean, normalised."""
    found = [vector_of(word, dimensions) for word in text.lower().split()]
    mean = [sum(column) / len(found) for column in zip(*found, strict=True)]
    length = sum(number * number for number in mean) ** 0.5
    return packed(*(number / length for number in mean))


NOTES: Sequence[tuple[int, str, str, int]] = (
    (1, "renew certificate", "ops", 2024),
    (2, "brew coffee", "kitchen", 2025),
    (3, "source handler catalog", "ops", 2026),
    (7, "coffee beans", "kitchen", 2026),
)


def notes_file(path: Path) -> str:
    """A file with one collection of four notes; the URL of it."""
    with vector_file(path) as connection:
        connection.execute(
            "CREATE VIRTUAL TABLE notes USING vec0(id integer primary key,"
            f" e float[{DIMENSIONS}] distance_metric=cosine, topic text, year int, +body text)"
        )
        for key, body, about, year in NOTES:
            connection.execute("INSERT INTO notes VALUES (?, ?, ?, ?, ?)", (key, embedded(body), about, year, body))
    return f"sqlite:///{path}"
