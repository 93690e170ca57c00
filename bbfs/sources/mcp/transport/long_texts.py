"""Long texts of a JSON-RPC message, which are cut out of it while it arrives.

The escapes of a text are resolved piece by piece, and base64 is decoded; memory holds each text once, and a spool the
longest.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

from pydantic_core import from_json

from bbfs.model.errors import TooLarge
from bbfs.sources.content.fd import read_at
from bbfs.sources.content.file import StoredContent
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.content.spool import Spool

LONG = 1 << 16
"""Bytes from which a text is cut out of its message."""
_SPOOLED = 16 << 20
"""Bytes from which a text goes to the spool."""
_MAX_BACK = 1 << 20
"""Bytes of a text that may turn out to be no base64 after all."""
MAX_TEXT = 64 << 20
"""Bytes of texts of a message that are no contents of a resource, and so are held in memory."""
_CLOSED = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*"){0,1000}', re.DOTALL)
"""Strings that are closed, and all else; not more at once, as each takes memory."""
_HIGH_SURROGATE = re.compile(rb"\\u[Dd][89ABab][0-9A-Fa-f]{2}")
_LONGEST_ESCAPE = 6
LENIENT = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class LongText:
    """A text of a message.

    content: its bytes in UTF-8, or its decoded bytes if it is plain base64 (`is_decoded`), perhaps without its
    padding. is_broken: it began as base64 and did not go on so, and its bytes are lost.
    """

    content: MemoryContent | StoredContent
    is_decoded: bool = False
    is_unpadded: bool = False
    is_broken: bool = False

    def text(self) -> str:
        """Return the text. Blocks. Raises TooLarge if it is too long to be held in memory, ValueError if it is lost."""
        if self.is_broken:
            raise ValueError("a text that is lost")
        if self.content.size > MAX_TEXT:
            raise TooLarge(f"a text of {self.content.size} bytes, more than {MAX_TEXT}")
        content = self.content
        is_stored = isinstance(content, StoredContent)
        data = read_at(content.fileno(), 0, content.size) if is_stored else content.data
        if self.is_decoded:
            data = b64encode(data)
        return (data.rstrip(b"=") if self.is_unpadded else data).decode()


class ReceivedText:
    """A long text that is being received: in memory first, then in a file of the spool.

    is_blob: it may be base64, which is decoded as it comes. limit: bytes; more raise TooLarge.
    """

    def __init__(self, is_blob: bool, spool: Callable[[], Spool], limit: int) -> None:
        self._out: BytesIO | Spool = BytesIO()
        self._size = 0
        self._make_spool = spool
        self._limit = limit
        self._digits: bytes | None = b"" if is_blob else None
        self._is_broken = False

    def write(self, piece: bytes) -> None:
        if self._digits is None:
            self._keep(piece)
            return
        digits = self._digits + piece
        padding = digits.find(b"=")
        whole = (len(digits) if padding < 0 else padding) & ~3
        try:
            self._keep(b64decode(digits[:whole], validate=True))
        except ValueError:
            whole = 0
        self._digits = digits[whole:]
        if len(self._digits) > 4:
            self._as_text()

    def end(self) -> LongText:
        digits, is_unpadded = self._digits, False
        if digits:
            padded = digits + b"=" * (-len(digits) % 4)
            is_unpadded = padded != digits
            try:
                last = b64decode(padded, validate=True)
            except ValueError:
                last = b""
            if b64encode(last) == padded:
                self._keep(last)
            else:
                is_unpadded = False
                self._as_text()
        out = self._out
        content = out.content() if isinstance(out, Spool) else MemoryContent(out.getvalue())
        return LongText(content, self._digits is not None, is_unpadded, self._is_broken)

    def close(self) -> None:
        self._out.close()

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._is_broken:
            return
        if self._size > self._limit:
            raise TooLarge(f"the server sent a text of more than {self._limit} bytes")
        if isinstance(self._out, BytesIO) and self._size > _SPOOLED:
            spool, held = self._make_spool(), self._out.getvalue()
            self._out = spool
            for start in range(0, len(held), LONG):
                spool.write(held[start : start + LONG])
        self._out.write(data)

    def _as_text(self) -> None:
        """Go on as a text: it is no base64, or base64 in another spelling. Late in a text, what came before is lost."""
        digits, self._digits = self._digits or b"", None
        decoded = self._out.getvalue() if isinstance(self._out, BytesIO) else None
        if decoded is None or len(decoded) > _MAX_BACK:
            self._is_broken = True
            return
        self._out, self._size = BytesIO(), 0
        self._keep(b64encode(decoded))
        self._keep(digits)


def resolved(piece: bytes) -> bytes:
    """Return a piece of a JSON string with its escapes resolved, in UTF-8. Raises ValueError if it is none."""
    try:
        if b"\\" not in piece:
            piece.decode()
            return piece
        return from_json(b'"' + piece + b'"', cache_strings=False).encode()
    except ValueError:
        text: str = LENIENT.decode('"' + piece.decode("utf-8", "replace") + '"')
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def closed_end(data: bytes, at: int) -> int:
    """Return where the first string begins that has no end, or the end of the data."""
    while (found := _CLOSED.match(data, at)) is not None and found.end() > at:
        at = found.end()
    return at


def whole_piece(piece: bytes) -> bytes:
    """Cut a piece of a string where no escape, pair of surrogates or character is split."""
    last = piece.rfind(b"\\", max(0, len(piece) - _LONGEST_ESCAPE))
    if last >= 0 and _begins_escape(piece, last):
        escape = piece[last : last + 6]
        if len(escape) < (6 if escape[1:2] == b"u" else 2):
            high = last - 6
            if high >= 0 and _HIGH_SURROGATE.match(piece, high) and _begins_escape(piece, high):
                return piece[:high]
            return piece[:last]
        if _HIGH_SURROGATE.match(escape):
            return piece[:last]
    size = len(piece)
    while size > len(piece) - 3 and size and piece[size - 1] & 0xC0 == 0x80:
        size -= 1
    return piece[: size - 1] if size and piece[size - 1] >= 0xC0 else piece


def _begins_escape(piece: bytes, at: int) -> bool:
    """Return whether the backslash at a position begins an escape, and is not itself escaped."""
    return (at - len(piece[:at].rstrip(b"\\"))) % 2 == 0
