"""The vectors of the local index: makes those that its chunks lack, and finds the chunks nearest to a query."""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from bbfs.model.errors import DeadlineExceeded, NotSupported, Unreachable
from bbfs.model.values import Hit
from bbfs.runtime.extras import needs
from bbfs.runtime.private_files import open_own

if TYPE_CHECKING:
    from bbfs.resources.search.index.store import IndexStore
    from bbfs.sources.embeddings.embedder import Embedder

T = TypeVar("T")
MOST_DIMENSIONS = 8192
"""Numbers of a vector in a table of sqlite-vec."""
EMBEDDED_AT_ONCE = 64
"""Chunks whose vectors are asked for at once."""
EMBEDDED_WITHIN = 60.0
"""Seconds for the vectors of so many chunks from an endpoint."""
MADE_WITHIN = 300.0
"""Seconds for them by a model in a folder: its process, which gives way to all others, starts and reads the model."""
WITHOUT_MODEL = (
    'nothing makes vectors of texts: set [embeddings] to url = "http://localhost:11434/v1" and model = "…", or to'
    ' folder = "…"'
)


class InThread(Protocol):
    """Does work on the database in a thread. Raises BbfsError."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


class Meaning:
    """The vectors of one index.

    path: of its database. embedder: makes vectors; the caller closes it. write, read: do the work. complain: logs.
    lacks: why there is no search by meaning, or None.
    """

    def __init__(
        self, path: Path, embedder: "Embedder | None", write: InThread, read: InThread, complain: Callable[[str], None]
    ) -> None:
        self.has_model = embedder is not None
        self.lacks = WITHOUT_MODEL if embedder is None else None
        self._path = path
        self._embedder = embedder
        self._write = write
        self._read = read
        self._complain = complain
        self._turn = trio.Lock()
        self._has_put = False

    def check(self, store: "IndexStore") -> None:
        """Find out if a database can have vectors."""
        if not store.has_vectors and self.lacks is None:
            self.lacks = f"it {needs('vector')}, and a Python whose SQLite loads extensions"
            self._complain(f"the index has no vectors: {self.lacks}")

    async def make(self, store: "IndexStore", is_busy: Callable[[], bool]) -> None:
        """Make the vectors that are missing, until documents wait to be written (`is_busy`). Raise BbfsError."""
        if self.lacks is not None:
            return
        async with self._turn:
            with self._alone() as alone:
                while alone and not is_busy() and await self._make_some(store):
                    pass

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Yield whether this process makes the vectors now: a second one would pay for the same ones."""
        try:
            lock = open_own(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise Unreachable(f"the index: {error}") from error
        try:
            alone = True
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                alone = False
            yield alone
        finally:
            os.close(lock)

    async def _make_some(self, store: "IndexStore") -> bool:
        """Make the next vectors. Return whether there were any to make."""
        embedder = self._embedder
        assert embedder is not None
        chunks = await self._write(partial(store.pending, embedder.name, EMBEDDED_AT_ONCE))
        if not chunks.texts:
            return False
        vectors: Sequence[bytes] | None = None
        within = EMBEDDED_WITHIN if embedder.costs else MADE_WITHIN
        with trio.move_on_after(within):
            vectors = await embedder.embed([*chunks.texts.values()])
        if vectors is None:
            raise DeadlineExceeded(f"embeddings: no answer within {within:g} s")
        if embedder.dimensions is None or embedder.dimensions > MOST_DIMENSIONS:
            raise NotSupported(f"vectors of {embedder.dimensions} dimensions; there may be {MOST_DIMENSIONS}")
        other = await self._write(partial(store.put_vectors, embedder.name, chunks, vectors, first=not self._has_put))
        self._has_put = True
        if other is not None:
            self.lacks = f"another process has taken it over with vectors of the model {other!r}"
            self._complain(f"the index: {self.lacks}")
        return other is None

    async def nearest(
        self, store: "IndexStore", query: str, limit: int, fingerprints: Sequence[str], within: float
    ) -> list[tuple[str, Hit]]:
        """Return the hits nearest to a query, each with the fingerprint of its source. Raise BbfsError."""
        embedder = self._embedder
        if embedder is None or self.lacks is not None:
            raise NotSupported(self.lacks or WITHOUT_MODEL)
        (vector,) = await embedder.embed([query])
        try:
            found = await self._read(partial(store.nearest, embedder.name, vector, query, limit, fingerprints, within))
        except Unreachable as error:
            await self._write(store.forget_vectors)
            raise Unreachable(f"{error}: its vectors are made again") from error
        if found is None:
            raise Unreachable(f"it has no vectors of the model {embedder.name!r} yet")
        return found
