"""Inode numbers: hashes of a path and a version. Pure."""

from hashlib import blake2b

ROOT = 1
"""The inode number of the mount's root, fixed by FUSE (FUSE_ROOT_ID)."""
PASSED = 1 << 62
"""The lowest number of a file in a local folder that the mount passes through. Below are the hashes."""
_FIRST = 2
_NUMBERS = PASSED - _FIRST


def inode_number(path: tuple[str, ...], version: str = "") -> int:
    """Return the number of the inode at `path` (names below the mount's root) in the version `version`.

    1 for the root; otherwise from 2 up to 2**62 - 1, never 0. Names are legal file names (not empty, no NUL); equal
    arguments give equal numbers on every machine and in every release.
    """
    if not path:
        return ROOT
    # Names are neither empty nor hold NUL: the first pair of NULs ends the path, so no two keys hash the same text.
    text = "\0".join(path) + "\0\0" + version
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return _FIRST + int.from_bytes(digest, "big") % _NUMBERS
