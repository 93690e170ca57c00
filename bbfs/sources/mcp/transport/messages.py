"""JSON-RPC messages out of bytes that come in any pieces: one bounded reader for every transport.

A parser makes objects of a hundred times the size of a hostile document, and holds Python's global lock meanwhile. So
each step here has a bound: the bytes of a message, its structure before it is parsed, the bytes that are no message,
and the time until other tasks run. `long_texts` cuts long texts out while the message arrives.
"""

import codecs
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Protocol

import mcp_types as types
import trio
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from bbfs.model.errors import BbfsError, ProtocolViolation, TooLarge
from bbfs.sources.bounded.json import SHORT, JsonBounds, parse_json
from bbfs.sources.content.spool import Spool
from bbfs.sources.mcp.client.errors import HttpFault, invalid_answer
from bbfs.sources.mcp.transport.long_texts import (
    LENIENT,
    LONG,
    MAX_TEXT,
    LongText,
    ReceivedText,
    closed_end,
    resolved,
    whole_piece,
)

encoded = partial(to_json, inf_nan_mode="null")
"""Returns a message as JSON in one line: a number that JSON does not have is null."""
STRUCTURE = JsonBounds(size=32 << 20, values=1_000_000, depth=200)
"""Bounds of a message without its long texts."""
_BLOB = re.compile(rb'"(?:blob|data)"\s{0,8}:\s{0,8}\Z')
_NO_STRING = b'"\\x"'
_INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*', re.DOTALL)
PIECE = 1 << 16
"""Bytes that are handled before other tasks may run: about a millisecond."""
_LARGE = 4 << 20
"""Bytes from which a message is large: of one server, one large message is read at a time."""
_LINE = 64
"""Bytes that a line which is no message counts on top of its own."""
_MAX_BATCH = 1000
"""Messages of one batch."""
_TURN = 0.001
"""Seconds after which tasks of others run."""
_LENIENT_AT_MOST = 1 << 20
"""Bytes of a message that may be read in spite of mistakes. That reader holds the global lock to its end."""
_MAX_ERROR = 2000
"""Characters of a long text in an error."""

_ANSWER_START = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,\s*"(?:result|error)"')
_ANSWER_END = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*\}\s*\Z')
"""The beginning or end of an answer from most servers: it names the request even if the rest is not readable."""
_OF_A_MESSAGE = frozenset(("method", "result", "error"))


class Share:
    """The share of the event loop and of memory that all connections to one server have together."""

    def __init__(self, spool: Callable[[], Spool] = Spool) -> None:
        """spool: makes spools for the longest texts."""
        self.spool = spool
        self.large = trio.CapacityLimiter(1)
        """Held while a large message is read."""
        self._turn = trio.Lock()
        self._since = time.perf_counter()

    async def turn(self) -> None:
        """Let other tasks run if the tasks of this server have worked for a while. Then one of its own goes on."""
        if time.perf_counter() - self._since > _TURN:
            async with self._turn:
                await trio.lowlevel.checkpoint()
                self._since = time.perf_counter()


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message with a placeholder for each long text, and the texts by placeholder."""

    rest: bytes | bytearray
    texts: dict[str, LongText]


class MessageReader:
    """Collects one message. limit: its bytes; more raise ProtocolViolation. Raises TooLarge for too much beside texts.

    size: bytes so far. spool: for the longest texts; then the methods block. long: bytes from which a text is long.
    scanned: bytes that are searched for long texts at once, with the beginning of a string before them.
    """

    def __init__(self, limit: int, spool: Callable[[], Spool], long: int = LONG, scanned: int = 1 << 14) -> None:
        self._limit = limit
        self._long = long
        self._scanned = scanned
        self._spool = spool
        self._text: ReceivedText | None = None
        self._begin()

    def _begin(self) -> None:
        self.size = 0
        self._rest = bytearray()  # one block: its memory goes back to the system when freed
        self._tail = b""
        self._fresh = bytearray()
        if self._text is not None:
            self._text.close()
        self._text = None
        self._texts: dict[str, LongText] = {}
        self._mark = ""

    def feed(self, piece: bytes) -> None:
        """Take the next bytes, `PIECE` at most."""
        self.size += len(piece)
        if self.size > self._limit:
            self._begin()  # otherwise the traceback would keep it all
            raise ProtocolViolation(f"the server sent a message of more than {self._limit} bytes")
        self._fresh += piece
        if self.size <= self._long or len(self._fresh) < self._scanned:
            return
        self._scan()
        if len(self._rest) > STRUCTURE.size:
            self._begin()
            raise TooLarge(f"the server sent a message of more than {STRUCTURE.size} bytes without its long texts")

    def end(self) -> RawMessage:
        """Return the message, and begin the next one."""
        if self._mark:
            self._scan()
        rest, texts = self._rest, self._texts
        rest += self._tail + self._fresh
        self._begin()
        return RawMessage(rest, texts)

    def _scan(self) -> None:
        """Pass long texts on to where they are collected, and all else to the rest. Keep a string that is cut off."""
        self._mark = self._mark or secrets.token_hex(16)
        data = self._tail + self._fresh
        at, self._tail, self._fresh = 0, b"", bytearray()
        while at < len(data):
            if self._text is not None:
                at = self._inside(self._text, data, at)
                if self._text is not None:
                    return
                continue
            end = closed_end(data, at)
            self._rest += data[at:end]
            at = end
            if len(data) - at < self._long:
                self._tail = data[at:]
                return
            is_blob = _BLOB.search(self._rest, max(0, len(self._rest) - 24)) is not None
            self._text = ReceivedText(is_blob, self._spool, self._limit)
            at += 1

    def _inside(self, text: ReceivedText, data: bytes, at: int) -> int:
        """Collect a piece of a long text; return where it ends."""
        found = _INSIDE.match(data, at) if data.find(b'"', at) >= 0 else None
        end = len(data) if found is None else found.end()
        is_closed = data[end : end + 1] == b'"'
        piece = data[at:end]
        if not is_closed:
            piece = whole_piece(piece)
            self._tail = data[at + len(piece) :]
        try:
            text.write(resolved(piece))
        except ValueError:
            self._rest += _NO_STRING
        if is_closed:
            placeholder = f"{self._mark}-{len(self._texts)}"
            self._texts[placeholder] = text.end()
            self._rest += b'"%s"' % placeholder.encode()
            self._text = None
        return end + 1


class Intake:
    """The messages of one stream of bytes, read within all bounds. A context: memory is given back at its end.

    limit: bytes of a message. on_foreign: gets what is no message, without its long texts. most_foreign: bytes between
    two messages that may belong to none; more end the stream.
    """

    def __init__(
        self,
        limit: int,
        share: Share,
        on_foreign: Callable[[bytes | bytearray], None] = lambda _: None,
        most_foreign: int = 16 << 20,
    ) -> None:
        self._reader = MessageReader(limit, share.spool)
        self._share = share
        self._on_foreign = on_foreign
        self._most_foreign = most_foreign
        self._is_large = False
        self._foreign = 0

    def __enter__(self) -> "Intake":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.end()
        self._release()

    def _release(self) -> None:
        if self._is_large:
            self._is_large = False
            self._share.large.release_on_behalf_of(self)

    async def feed(self, data: bytes) -> None:
        """Take the next bytes of a message. Raises ProtocolViolation, TooLarge."""
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE] if len(data) > PIECE else data
            if self._is_large:
                await trio.to_thread.run_sync(self._reader.feed, piece)  # it may write to a disk
            else:
                self._reader.feed(piece)
            if self._reader.size > _LARGE and not self._is_large:
                await self._share.large.acquire_on_behalf_of(self)
                self._is_large = True
            await self._share.turn()

    async def skip(self, size: int) -> None:
        """Note bytes that belong to no message. Raises ProtocolViolation after too many of them."""
        self._foreign += size + _LINE
        if self._foreign > self._most_foreign:
            raise ProtocolViolation(f"the server sent more than {self._most_foreign} bytes that are no messages")
        await self._share.turn()

    def text(self) -> str:
        """Return what was fed, without its long texts, and begin the next message."""
        return self._reader.end().rest.decode("utf-8", "replace")

    async def end(self) -> list[types.JSONRPCMessage] | None:
        """Return the messages in what was fed, or None if it is none, and begin the next. Raises TooLarge."""
        size = self._reader.size
        try:
            message = await trio.to_thread.run_sync(self._reader.end) if self._is_large else self._reader.end()
            if len(message.rest) > SHORT or self._is_large:
                found = await trio.to_thread.run_sync(decode, message, abandon_on_cancel=True)
            else:
                found = decode(message) if message.rest.strip() else []
        finally:
            self._release()
        if found:
            self._foreign = 0
            await self._share.turn()
        else:
            if found is None:
                self._on_foreign(message.rest)
            await self.skip(size)
        return found


def decode(message: RawMessage) -> list[types.JSONRPCMessage] | None:
    """Return the messages in a piece of JSON (several in a batch), or None if it holds no message.

    Mistakes are tolerated: bytes that are not UTF-8 are replaced, halves of surrogate pairs and control characters in
    texts are kept, a byte order mark is skipped. An answer with an id but no valid shape fails its request at once,
    instead of at its deadline. Parsing first and validating then takes a fifth of the time of
    `jsonrpc_message_adapter.validate_json`. Long texts in a result are `LongText`.

    Raises TooLarge for a structure over a bound, unless the message tells at once which request it answers.
    """
    rest = message.rest
    if rest.startswith(codecs.BOM_UTF8):
        rest = rest[len(codecs.BOM_UTF8) :]
    try:
        value = _parsed(rest)
    except (ValueError, RecursionError, BbfsError) as exc:
        answers = _ANSWER_START.match(rest) or _ANSWER_END.search(rest[-100:])
        if isinstance(exc, TooLarge):
            if answers is None:
                raise
            error = HttpFault("size", f"the server's answer is too large: {exc}").error_data()
            return [types.JSONRPCError(jsonrpc="2.0", id=int(answers[1]), error=error)]
        return [invalid_answer(int(answers[1]), "not JSON")] if answers else None
    items = value if isinstance(value, list) else [value]
    if len(items) > _MAX_BATCH:
        return None
    is_long = len(rest) > SHORT
    found = [one for item in items if (one := _message(item, is_long)) is not None]
    return [_complete(one, message.texts) for one in found] if message.texts else found or None


def _parsed(rest: bytes | bytearray) -> Any:
    """Return the value of a JSON document with any mistakes that have only one meaning."""
    try:
        return from_json(rest) if len(rest) <= SHORT else parse_json(rest, STRUCTURE)
    except (ValueError, ProtocolViolation):
        if len(rest) > _LENIENT_AT_MOST:
            raise
        value = LENIENT.decode(rest.decode("utf-8", "replace").strip())
        _require_shallow(value)
        return value


def _require_shallow(value: Any) -> None:
    """Raise ValueError for a value nested so deep that encoding it as JSON could fail."""
    level = [value]
    for _ in range(STRUCTURE.depth):
        inner = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list))
        level = [item for items in inner for item in items]
        if not level:
            return
    raise ValueError("nested too deep")


def _message(item: Any, is_long: bool) -> types.JSONRPCMessage | None:
    """Return the message that an object is. Of the long ones bbfs wants answers only."""
    if not isinstance(item, dict) or _OF_A_MESSAGE.isdisjoint(item) or (is_long and "method" in item):
        return None
    number, result = item.get("id"), item.get("result")
    if type(number) is int and type(result) is dict and item.get("jsonrpc") == "2.0" and len(item) == 3:
        # Most are. Validation would copy a result, and keep the global lock meanwhile.
        return types.JSONRPCResponse.model_construct(jsonrpc="2.0", id=number, result=result)
    try:
        return types.jsonrpc_message_adapter.validate_python(item, by_name=False)
    except ValidationError:
        return _answer(item)


def _answer(item: dict[str, Any]) -> types.JSONRPCMessage | None:
    """Return the answer that a malformed object is meant to be, or None: programs log in JSON too."""
    request_id, result, error = item.get("id"), item.get("result"), item.get("error")
    if isinstance(request_id, float) and request_id.is_integer():
        request_id = int(request_id)  # some languages have no other numbers than floats
    if item.get("method") is not None or not ("result" in item or "error" in item):
        return None
    if not isinstance(request_id, int | str) or isinstance(request_id, bool):
        return None
    match error:
        case None if isinstance(result, dict):
            return types.JSONRPCResponse(jsonrpc="2.0", id=request_id, result=result)
        case {"code": int(code)} if not isinstance(code, bool):
            text = error.get("message")
            data = types.ErrorData(code=code, message=text if isinstance(text, str) else "")
            return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=data)
    return invalid_answer(request_id, "not a JSON-RPC response")


def _complete(message: types.JSONRPCMessage, texts: dict[str, LongText]) -> types.JSONRPCMessage:
    """Put the texts back: as `LongText` into the contents of a result, else as plain texts, cut off in an error."""
    try:
        if isinstance(message, types.JSONRPCError) and message.error.message in texts:
            message.error.message = texts[message.error.message].text()[:_MAX_ERROR]
        elif isinstance(message, types.JSONRPCResponse):
            contents = message.result.get("contents")
            for content in contents if isinstance(contents, list) else ():
                for key in ("text", "blob") if isinstance(content, dict) else ():
                    value = content.get(key)
                    if isinstance(value, str) and value in texts:
                        content[key] = texts.pop(value)
            if texts:
                if sum(text.content.size for text in texts.values()) > MAX_TEXT:
                    raise TooLarge(f"texts of more than {MAX_TEXT} bytes, which are no contents of a resource")
                _put_back(message.result, texts)
    except TooLarge as exc:
        error = HttpFault("size", f"the server's answer is too large: {exc}").error_data()
        return types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)  # type: ignore[union-attr]
    except ValueError:
        return invalid_answer(message.id, "a blob that is not base64")  # type: ignore[union-attr]
    return message  # bbfs needs no long text of a request or notification


def _put_back(value: Any, texts: dict[str, LongText]) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        if isinstance(item, str) and item in texts:
            value[key] = texts[item].text()
        elif isinstance(item, dict | list):
            _put_back(item, texts)


class Inbox:
    """The receiving end of a transport, which calls its peer directly.

    take: called with each message; a peer sets it. ended: set when no more messages can come.
    """

    def __init__(self) -> None:
        self.take: Callable[[types.JSONRPCMessage], None] = lambda _: None
        self.ended = trio.Event()


class Transport(Protocol):
    """One connection to a server. inbox: its messages. ending: why it ended, if it ended before the caller left it."""

    inbox: Inbox
    ending: BbfsError | None

    async def send(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """Send a JSON-RPC message. headers: for a transport that has them.

        Raises trio's errors of a closed or broken channel.
        """
        ...
