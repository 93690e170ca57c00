"""Contents that are a part of another one: a range of it, or what is loaded of it."""

from typing import Final

from bbfs.model.errors import Outdated
from bbfs.model.values import Content


class Slice:
    """A part of another content, or the whole content. Caches do not hold it: the owner of the other content keeps the
    bytes."""

    __slots__ = ("_offset", "_whole", "size", "version")

    def __init__(self, whole: Content, offset: int, size: int, version: str) -> None:
        self._whole = whole
        self._offset = offset
        self.size: Final = size
        self.version: Final = version

    def read(self, offset: int, length: int) -> bytes | None:
        length = max(0, min(length, self.size - offset))
        return self._whole.read(self._offset + offset, length) if length else b""

    async def read_waiting(self, offset: int, length: int) -> bytes:
        length = max(0, min(length, self.size - offset))
        return await self._whole.read_waiting(self._offset + offset, length) if length else b""

    def close(self) -> None:
        """Do nothing: the other content stays open for others."""


class EndedContent:
    """What is loaded of a content whose source was removed. A read of anything else raises Outdated."""

    __slots__ = ("_content", "size", "version")

    def __init__(self, content: Content) -> None:
        self._content = content
        self.size: Final = content.size
        self.version: Final = content.version

    def read(self, offset: int, length: int) -> bytes | None:
        return self._content.read(offset, length)

    async def read_waiting(self, offset: int, length: int) -> bytes:
        """As `read`. Raise Outdated where the source would have to be asked."""
        data = self._content.read(offset, length)
        if data is None:
            raise Outdated("the source of this file was removed from the mount")
        return data

    def close(self) -> None:
        self._content.close()
