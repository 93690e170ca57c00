"""Renames with flags (renameat2(2)), which Python has no function for."""

import ctypes
import os

NOREPLACE = 1
"""Flag: the new name must not exist."""
_libc = ctypes.CDLL(None, use_errno=True)


def rename_with(at: int, name: bytes, to: int, to_name: bytes, flags: int) -> None:
    """Rename between two directories, given as descriptors. Raise OSError."""
    if _libc.renameat2(at, name, to, to_name, flags) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
