"""A parser of server-sent events (`text/event-stream`), in time linear in their length."""

from dataclasses import dataclass

from bbfs.model.errors import ProtocolViolation
from bbfs.sources.mcp.transport.jsonrpc import LineSplitter
from bbfs.sources.mcp.transport.long_strings import Line


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event. id: the latest that the stream gave so far."""

    type: str
    data: bytes
    id: str | None


class EventParser:
    """Parses chunks (HTML Standard, section 9.2.6). limit: bytes of one event; more raise ProtocolViolation."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines = LineSplitter(limit)
        self._type = ""
        self._data: list[bytes] = []
        self._size = 0
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that end within `chunk`."""
        return [event for line in self._lines.feed(chunk) if (event := self._line(line))]

    def _line(self, line: Line) -> Event | None:
        line = bytes(line.removesuffix(b"\r"))
        if not line:
            event = Event(self._type or "message", b"\n".join(self._data), self._id) if self._data else None
            self._type, self._data, self._size = "", [], 0
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                self._data.append(value)
                self._size += len(value)
                if self._size > self._limit:
                    self._data.clear()
                    raise ProtocolViolation(f"the server sent a message of more than {self._limit} bytes")
            case b"event":
                self._type = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        return None
