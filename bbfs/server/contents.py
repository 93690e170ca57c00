"""Contents as the protocol has them: text, images, and blobs, within a bound.

Bytes that are UTF-8 are passed on as text, unless their MIME type is binary. All else is Base64.
"""

import base64
from dataclasses import dataclass

import mcp_types as types

from bbfs.model.errors import TooLarge
from bbfs.model.uri import source_uri
from bbfs.model.values import Content, Part
from bbfs.resources.by_uri import LoadedResource
from bbfs.sources.media_types import content_type_of

CHUNK = 1 << 20


class Budget:
    """The bytes of contents that one answer may still hold."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.left = most

    def take(self, size: int) -> None:
        """Take `size` bytes. Raises TooLarge, naming the limit."""
        if size > self.most:
            raise TooLarge(
                f"{size} bytes; one answer has at most {self.most} (--max-result): "
                "load_resources has a text in parts (offset, limit)"
            )
        if size > self.left:
            raise TooLarge(
                f"{size} bytes, of which {self.left} are left of the {self.most} of one answer: ask for it alone"
            )
        self.left -= size


@dataclass(frozen=True, slots=True)
class ContentItem:
    """One content. text: None for a binary one."""

    uri: str
    mime_type: str | None
    data: bytes
    text: str | None

    def block(self) -> types.ContentBlock:
        """Return the content as a block of a tool's result."""
        if self.text is not None:
            return types.TextContent(text=self.text)
        if is_perceived(self.mime_type):
            kind = types.ImageContent if is_picture(self.mime_type) else types.AudioContent
            return kind(data=self.base64, mime_type=self.mime_type or "")
        return types.EmbeddedResource(resource=self.contents())

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode()

    def contents(self, version: str | None = None) -> types.TextResourceContents | types.BlobResourceContents:
        """Return the content as an item of `resources/read`. version: for a write that replaces exactly this."""
        meta = {"etag": version} if version is not None else None
        if self.text is not None:
            return types.TextResourceContents(uri=self.uri, mime_type=self.mime_type, text=self.text, _meta=meta)
        return types.BlobResourceContents(uri=self.uri, mime_type=self.mime_type, blob=self.base64, _meta=meta)


def is_perceived(mime_type: str | None) -> bool:
    """Return whether a model can take a content that is no text: a picture or a sound."""
    return _essence(mime_type).startswith(("image/", "audio/"))


def is_picture(mime_type: str | None) -> bool:
    return _essence(mime_type).startswith("image/")


def _essence(mime_type: str | None) -> str:
    return (mime_type or "").partition(";")[0].strip().lower()


async def items_of(loaded: LoadedResource, base_prefix: str, budget: Budget) -> list[ContentItem]:
    """Return the contents of a resource, in order. Raises TooLarge, and the errors of reading."""
    budget.take(sum(part.content.size for part in loaded.parts))
    return [await item_of(loaded, part, base_prefix) for part in loaded.parts]


async def item_of(loaded: LoadedResource, part: Part, base_prefix: str) -> ContentItem:
    """Return one content of a resource, read whole. Raise BbfsError."""
    uri, mime_type = identity(loaded, part, base_prefix)
    data = await _bytes(part.content)
    text: str | None = None
    if content_type_of(mime_type) != "binary":
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = None
    return ContentItem(uri, mime_type, data, text)


def identity(loaded: LoadedResource, part: Part, base_prefix: str) -> tuple[str, str | None]:
    """Return the URI and the MIME type of a content. One of several has its own URI."""
    uri = loaded.uri
    if len(loaded.parts) > 1 and part.native_uri is not None:
        uri = source_uri(base_prefix, part.native_uri)
    return uri, part.mime_type or (loaded.metadata.mime_type if loaded.metadata is not None else None)


async def _bytes(content: Content) -> bytes:
    chunks: list[bytes] = []
    offset = 0
    while offset < content.size:
        chunk = await content.read_waiting(offset, CHUNK)
        if not chunk:
            break
        chunks.append(chunk)
        offset += len(chunk)
    return b"".join(chunks)
