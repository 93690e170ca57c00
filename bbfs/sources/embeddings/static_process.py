"""The static model inside its process: files with bounds, read by model2vec.

A model is a stranger's file: its header says how much memory to take, and its tokenizer is a program of regular
expressions. The process has a limit of memory, no network, and ends at the deadline of the search.
"""

import os
from collections.abc import Sequence
from typing import Any

from bbfs.model.errors import BbfsError, ProtocolViolation, TooLarge, Unreachable
from bbfs.sources.database.process import memory_limit

_WEIGHTS, _TOKENIZER, _CONFIG = "model.safetensors", "tokenizer.json", "config.json"
_LARGEST_TOKENIZER, _LARGEST_CONFIG = 64 << 20, 1 << 20
"""Bytes."""
_SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "JOBLIB_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}
"""Environment of the libraries: nothing is downloaded, and one thread does the work."""


class StaticModels:
    """The model of a folder, loaded at its first use."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._model: Any = None

    def begin(self) -> "StaticModels":
        if self._model is None:
            self._check()
            os.environ.update(_SETTINGS)
            from model2vec import StaticModel  # noqa: PLC0415 - of the extra "embeddings", and only in this process

            self._model = StaticModel.from_pretrained(self._folder)
        return self

    def _check(self) -> None:
        """Raise BbfsError where a file of the model is missing, or larger than its limit."""
        if not os.path.isdir(self._folder):
            raise Unreachable("no such folder (embeddings.folder)")
        largest = {_WEIGHTS: memory_limit() // 3, _TOKENIZER: _LARGEST_TOKENIZER, _CONFIG: _LARGEST_CONFIG}
        for name, limit in largest.items():
            path = os.path.join(self._folder, name)
            if not os.path.isfile(path):
                raise ProtocolViolation(f"is no static model: {name} is missing")
            if os.path.getsize(path) > limit:
                raise TooLarge(f"{name} has more than {limit} bytes (embeddings.max_memory)")

    def end(self) -> None:
        """Keep the model for the next request."""

    def embed(self, texts: Sequence[str]) -> bytes:
        vectors = self._model.encode(list(texts), show_progress_bar=False, use_multiprocessing=False)
        return vectors.astype("float32").tobytes()

    def fault(self, error: Exception) -> BbfsError | None:
        return ProtocolViolation(f"cannot be read as a static model ({type(error).__name__}: {str(error)[:200]})")


open_database = StaticModels
