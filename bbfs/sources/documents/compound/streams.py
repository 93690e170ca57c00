"""The streams of a compound file."""

from collections.abc import Sequence
from io import BytesIO

import olefile

from bbfs.model.errors import ProtocolViolation, TooLarge

_MOST_REPEATED = 4
"""How many times the bytes of the file its streams may have, together: several may be in the same sectors."""


class Streams:
    """The streams of a compound file by their paths, without regard to case. Raise ProtocolViolation, TooLarge."""

    def __init__(self, document: bytes) -> None:
        self._left = _MOST_REPEATED * len(document)
        self._names: dict[tuple[str, ...], list[str]] = {}
        self._paths: set[tuple[str, ...]] = set()
        try:
            self._file = olefile.OleFileIO(BytesIO(document))
            # Its own search goes through all names for each one.
            for path in self._file.listdir(streams=True, storages=True):
                *above, _ = key = _key(path)
                self._paths.add(key)
                self._names.setdefault(tuple(above), []).append(path[-1])
        except (OSError, ValueError, RecursionError) as error:
            raise ProtocolViolation("is a damaged compound file") from error
        if self.has("EncryptedPackage"):
            raise ProtocolViolation("is encrypted")

    def names(self, *path: str) -> list[str]:
        """Return the names of the streams and storages in a storage."""
        return self._names.get(_key(path), [])

    def has(self, *path: str) -> bool:
        return _key(path) in self._paths

    def read(self, *path: str) -> bytes:
        """Return the bytes of a stream, or b"" if there is none."""
        if not self.has(*path):
            return b""
        try:
            with self._file.openstream(list(path)) as stream:
                data = stream.read()
        except (OSError, ValueError) as error:
            raise ProtocolViolation(f"has no readable stream {path[-1]!r}") from error
        self._left -= len(data)
        if self._left < 0:
            raise TooLarge("its streams repeat more than the file has")
        return data


def _key(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in path)
