"""Vectors by a static model in a local folder (model2vec), in a process of its own without a network."""

import os
from array import array
from collections.abc import Sequence
from math import isfinite

from bbfs.model.errors import ProtocolViolation
from bbfs.model.redaction import shown
from bbfs.sources.database.backend import Access, DatabaseBackend
from bbfs.sources.database.queries import Query
from bbfs.sources.embeddings.options import MOST_DIMENSIONS

_IDLE = 300
"""Seconds for which the process keeps the model unused."""


class StaticEmbedder:
    """One model. folder: absolute path. memory: limit of its process (bytes)."""

    costs = False

    def __init__(self, folder: str, memory: int) -> None:
        self.name = os.path.basename(folder)
        self.dimensions: int | None = None
        self._folder = folder
        self._backend = DatabaseBackend(
            Access(
                "model",
                "bbfs.sources.embeddings.static_process",
                {"folder": folder},
                sql=Query.named,
                at_once=1,
                memory=memory,
                idle=_IDLE,
                large=memory,
                hidden=lambda text: f"embeddings: {shown(folder, 300)}: {text}",
            )
        )

    async def aclose(self) -> None:
        await self._backend.aclose()

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        data = await self._backend.run(lambda session, _job: session.data("embed", list(texts)))
        vectors = array("f", data or b"")
        dimensions, rest = divmod(len(vectors), max(len(texts), 1))
        if rest or not 1 <= dimensions <= MOST_DIMENSIONS or not all(map(isfinite, vectors)):
            raise ProtocolViolation(f"embeddings: the model in {shown(self._folder, 300)} makes no vectors of numbers")
        self.dimensions = dimensions
        return [vectors[at : at + dimensions].tobytes() for at in range(0, len(vectors), dimensions)]
