"""A parser of server-sent events (`text/event-stream`), in time linear in their length."""

from codecs import BOM_UTF8 as _BOM
from collections.abc import Iterator
from dataclasses import dataclass

from bbfs.model.errors import ProtocolViolation

_LONGEST_FIELD = 1 << 14
"""Bytes of a line that is not data."""
_MOST_DIGITS = 9
"""Of the milliseconds in the field `retry`."""


@dataclass(frozen=True, slots=True)
class Event:
    """The end of a server-sent event. id: the latest that the stream gave so far."""

    type: str
    id: str | None


class EventParser:
    """Parses chunks (HTML Standard, section 9.2.6) into pieces of data and the ends of events.

    Its memory is bounded. Raises ProtocolViolation for a field that is too long. most_lines: of data of one event.
    last_id: the latest id; one that no HTTP header can repeat is ignored. retry: seconds to wait before a stream is
    resumed, None if the server has not said.
    """

    def __init__(self, most_lines: int = 1_000_000, *, last_id: str | None = None, retry: float | None = None) -> None:
        self._most_lines = most_lines
        self.last_id = last_id
        self.retry = retry
        self._line = bytearray()
        self._in_data = self._after_return = False
        self._type = ""
        self._lines = 0

    def feed(self, chunk: bytes) -> Iterator[bytes | Event | int]:
        """Yield pieces of data as they come, each event at its end, and the size of each line that is neither."""
        at = 1 if self._after_return and chunk.startswith(b"\n") else 0
        self._after_return = chunk.endswith(b"\r") or (self._after_return and not chunk)
        chunk = chunk[at:].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        at = 0
        while at < len(chunk):
            end = chunk.find(b"\n", at)
            yield from self._part(chunk[at : end if end >= 0 else len(chunk)], is_end=end >= 0)
            at = end + 1 if end >= 0 else len(chunk)

    def _part(self, part: bytes, *, is_end: bool) -> Iterator[bytes | Event | int]:
        """Take a part of a line."""
        if self._in_data:
            yield part
            self._in_data = not is_end
            return
        self._line += part
        if not is_end and len(self._line) <= len(_BOM + b"data: "):
            return
        field, colon, value = self._line.removeprefix(_BOM).partition(b":")
        if field == b"data" and (colon or is_end):
            self._lines += 1
            if self._lines > self._most_lines:
                raise ProtocolViolation(f"the server sent an event of more than {self._most_lines} lines")
            yield (b"\n" if self._lines > 1 else b"") + value.removeprefix(b" ")
            self._in_data = not is_end
        elif is_end:
            yield self._end_of_line(bytes(field), bytes(value.removeprefix(b" ")))
        elif len(self._line) <= _LONGEST_FIELD:
            return
        elif field:
            raise ProtocolViolation(f"the server sent a field of more than {_LONGEST_FIELD} bytes")
        else:
            yield len(self._line)
            self._line = bytearray(b":")  # the rest of a comment
            return
        self._line = bytearray()

    def _end_of_line(self, field: bytes, value: bytes) -> Event | int:
        """Return the event that a line ends, or the line's size."""
        size = len(self._line)
        if not self._line:
            event = Event(self._type or "message", self.last_id)
            had_data, self._type, self._lines = self._lines, "", 0
            return event if had_data else 0
        match field:
            case b"event":
                self._type = value.decode("utf-8", "replace")
            case b"id" if value.isascii() and (text := value.decode()).isprintable():
                self.last_id = text or None
            case b"retry" if value.isdigit() and len(value) <= _MOST_DIGITS:
                self.retry = int(value) / 1000
        return size
