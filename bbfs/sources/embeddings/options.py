"""The options of embeddings."""

from pydantic import Field, SecretStr, model_validator

from bbfs.sources.options import Bytes, SourceOptions

MOST_DIMENSIONS = 65_536
"""Numbers of one vector."""
BATCH = 64
MODEL_MEMORY = 1 << 30
"""Bytes of address space for the process that has a static model."""


class EmbeddingOptions(SourceOptions):
    """Options of the embeddings.

    url, model: an endpoint that speaks OpenAI's protocol, with `/embeddings` below the URL, and the model to name.
    key: its API key. dimensions: of its vectors; by default the first answer says it. send_dimensions: ask the endpoint
    for that many. batch: texts in one request. allow_private: allow a host on this machine or in a private network; by
    default only where the URL itself names such an address. folder: a static model (model2vec), instead. max_memory:
    bytes of the process that reads it.
    """

    url: str | None = Field(default=None, pattern=r"^https?://[^/?#@]+(/[^?#]*)?$")
    model: str | None = Field(default=None, min_length=1, max_length=200)
    key: SecretStr | None = None
    dimensions: int | None = Field(default=None, ge=1, le=MOST_DIMENSIONS)
    send_dimensions: bool = False
    batch: int = Field(default=BATCH, ge=1, le=512)
    allow_private: bool | None = None
    folder: str | None = Field(default=None, min_length=1)
    max_memory: Bytes = Field(default=MODEL_MEMORY, ge=256 << 20, le=16 << 30)

    @model_validator(mode="after")
    def _one_way(self) -> "EmbeddingOptions":
        if (self.url is None) == (self.folder is None):
            raise ValueError("needs either url and model, or folder")
        if self.url is not None and self.model is None:
            raise ValueError("needs the model that the endpoint of url shall use")
        if self.send_dimensions and self.dimensions is None:
            raise ValueError("send_dimensions needs dimensions")
        key = "" if self.key is None else self.key.get_secret_value()
        if not (key.isascii() and key.isprintable()):
            raise ValueError("the key cannot be sent")
        return self
