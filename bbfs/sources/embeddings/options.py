"""The options of embeddings."""

from pydantic import Field, SecretStr, model_validator

from bbfs.sources.options import Bytes, SourceOptions

MOST_DIMENSIONS = 65_536
"""Numbers of one vector."""
BATCH = 64
MODEL_MEMORY = 1 << 30
"""Bytes of address space for the process that has a static model."""


class EmbeddingOptions(SourceOptions):
    """Options of the embeddings: an endpoint that speaks OpenAI's protocol, or a static model (model2vec)."""

    url: str | None = Field(default=None, pattern=r"^https?://[^/?#@]+(/[^?#]*)?$")
    """The endpoint. bbfs adds `/embeddings`."""
    model: str | None = Field(default=None, min_length=1, max_length=200)
    """The name of the endpoint's model."""
    key: SecretStr | None = None
    """The endpoint's API key: `"${env:KEY}"`."""
    dimensions: int | None = Field(default=None, ge=1, le=MOST_DIMENSIONS)
    """Numbers of a vector. An answer with another number is `EPROTO`. Without it, as many as the first answer has."""
    send_dimensions: bool = False
    """Ask the endpoint for `dimensions`."""
    batch: int = Field(default=BATCH, ge=1, le=512)
    """Texts in one request."""
    allow_private: bool | None = None
    """Allow a host on this machine or in a private network. Without it, only if the URL itself names `localhost` or
    such an address."""
    folder: str | None = Field(default=None, min_length=1)
    """The folder of a static model, instead of an endpoint."""
    max_memory: Bytes = Field(default=MODEL_MEMORY, ge=256 << 20, le=16 << 30)
    """Memory of the process that has the static model."""

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
