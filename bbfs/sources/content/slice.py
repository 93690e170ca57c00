"""Contents that are a part of another one."""

from typing import Final

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
        """As the other content's."""
        length = max(0, min(length, self.size - offset))
        return self._whole.read(self._offset + offset, length) if length else b""

    async def read_waiting(self, offset: int, length: int) -> bytes:
        """As the other content's."""
        length = max(0, min(length, self.size - offset))
        return await self._whole.read_waiting(self._offset + offset, length) if length else b""

    def close(self) -> None:
        """Do nothing: the other content stays open for others."""
