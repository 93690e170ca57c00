"""The streams of a compound file."""

from io import BytesIO

import olefile

from bbfs.model.errors import ProtocolViolation


class Streams:
    """The streams of a compound file by their paths, without regard to case. Raise ProtocolViolation."""

    def __init__(self, document: bytes) -> None:
        try:
            self._file = olefile.OleFileIO(BytesIO(document))
        except (OSError, ValueError) as error:
            raise ProtocolViolation("is a damaged compound file") from error
        if self.has("EncryptedPackage"):
            raise ProtocolViolation("is encrypted")

    def names(self) -> list[list[str]]:
        """Return the paths of all streams and storages."""
        return self._file.listdir(streams=True, storages=True)

    def has(self, *path: str) -> bool:
        return bool(self._file.exists(list(path)))

    def read(self, *path: str) -> bytes:
        """Return the bytes of a stream, or b"" if there is none."""
        if not self.has(*path):
            return b""
        try:
            with self._file.openstream(list(path)) as stream:
                return stream.read()
        except (OSError, ValueError) as error:
            raise ProtocolViolation(f"has no readable stream {path[-1]!r}") from error
