"""Contents in memory: the whole bytes of one version of a resource, and the digests that name contents."""

from collections.abc import Sequence
from hashlib import blake2b

DIGEST_BYTES = 16
"""Bytes of the BLAKE2b digest that names a content."""


def digest_of(data: bytes) -> str:
    """Return 128 bits of BLAKE2b over the bytes, in hex."""
    return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def version_of(digests: Sequence[str]) -> str:
    """Return the version of a resource with these contents: the digest of the only content, or a digest of all
    digests."""
    return digests[0] if len(digests) == 1 else digest_of("".join(digests).encode())


class MemoryContent:
    """The bytes of one version of a resource, whole and in memory. Its version is a hash of the bytes."""

    __slots__ = ("_version", "data", "size")

    def __init__(self, data: bytes, version: str | None = None) -> None:
        """version: the hash of `data`, if known."""
        self.data = data
        """All the bytes, not a copy."""
        self.size = len(data)
        self._version = version

    def __repr__(self) -> str:
        return f"<MemoryContent of {self.size} bytes>"

    @property
    def version(self) -> str:
        """128 bits of BLAKE2b over the bytes, in hex; computed when first asked for."""
        if self._version is None:
            self._version = digest_of(self.data)
        return self._version

    def read(self, offset: int, length: int) -> bytes:
        if offset == 0 and length >= self.size:
            return self.data
        return self.data[offset : offset + length]

    async def read_waiting(self, offset: int, length: int) -> bytes:
        return self.read(offset, length)

    def close(self) -> None:
        """Do nothing: the last reference frees the memory."""
