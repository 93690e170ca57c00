"""Pictures in fewer pixels, as models take them, by worker processes of their own."""

from importlib.util import find_spec

from bbfs.model.errors import NotSupported, TooLarge
from bbfs.model.values import Content
from bbfs.runtime.extras import needs
from bbfs.sources.bounded.workers import WorkerPool

MEMORY = 640 << 20
"""Address space of a worker (bytes): the pixels of the largest picture, decoded and converted."""
LARGEST = 64 << 20
"""Bytes of a picture."""
LARGEST_RESULT = 8 << 20
"""Bytes of a scaled one."""
_JPEG, _PNG = b"\xff\xd8", b"\x89PNG"
_AT_ONCE = 1


class PictureScaler:
    """Scales pictures down. One is decoded at a time, in a process with limits. memory: as `MEMORY`."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._workers = WorkerPool(_AT_ONCE, memory)

    async def scaled(self, content: Content, side: int, *, what: str) -> tuple[bytes, str] | None:
        """Return a picture whose longest side has at most `side` pixels, and its MIME type; None if it has already.

        what: begins the texts of errors. Raise NotSupported where the extra is not installed, TooLarge,
        ProtocolViolation, and what a read raises.
        """
        if find_spec("PIL") is None:
            raise NotSupported(f"scaling it {needs('documents')}")
        if content.size > LARGEST:
            raise TooLarge(f"{what}: a picture of more than {LARGEST} bytes is not scaled")
        data = await content.read_waiting(0, content.size)
        options = {"side": side}
        made = await self._workers.run("picture", data, options, owner=what, what=what, max_result=LARGEST_RESULT)
        if not made:
            return None
        assert made.startswith((_JPEG, _PNG))
        return made, "image/jpeg" if made.startswith(_JPEG) else "image/png"
