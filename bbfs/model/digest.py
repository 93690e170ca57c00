"""Digests that name contents. Pure."""

from collections.abc import Sequence
from hashlib import blake2b

DIGEST_BYTES = 16
"""Bytes of the BLAKE2b digest that names a content, the same as the version of a content in memory."""


def digest_of(data: bytes) -> str:
    """Return 128 bits of BLAKE2b over the bytes, in hex."""
    return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def version_of(digests: Sequence[str]) -> str:
    """Return the version of a resource with these contents: the digest of the only content, or a digest of all
    digests."""
    return digests[0] if len(digests) == 1 else digest_of("".join(digests).encode())
