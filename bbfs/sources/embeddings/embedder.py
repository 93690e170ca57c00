"""The interface of what makes vectors of texts, and the choice of it by options."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol

from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource
from bbfs.runtime.extras import needs
from bbfs.sources.embeddings.endpoint import EndpointEmbedder
from bbfs.sources.embeddings.options import EmbeddingOptions
from bbfs.sources.embeddings.static_model import StaticEmbedder
from bbfs.sources.options import local_path


class Embedder(Protocol):
    """Makes vectors of texts. Any number of tasks may use it at once. The caller's cancel scopes bound a request.

    name: of the model. dimensions: numbers of each vector, None before the first. costs: whether a request leaves this
    machine's own processes, and may cost money.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int | None: ...

    @property
    def costs(self) -> bool: ...

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """Return the vector of each text, as finite 32-bit floats in this machine's byte order. Raise BbfsError."""
        ...

    async def aclose(self) -> None: ...


def made(source: DataSource, options: EmbeddingOptions, where: str) -> Embedder:
    """Return the embedder of a source. where: names the options in errors. Raise ConfigError."""
    if options.folder is None:
        return EndpointEmbedder(source, options)
    if find_spec("model2vec") is None:
        raise ConfigError(f"{where}.folder: {needs('embeddings')}")
    return StaticEmbedder(local_path(source, options.folder), options.max_memory)
