"""The stdio transport: a server as a child process, one JSON-RPC message a line.

The SDK has one too; this one takes time linear in a line's length, bounds it, survives bytes that are not UTF-8, keeps
the end of the server's stderr, tells when the child is gone, and lets go of a stubborn child in two seconds.
"""

import codecs
import json
import logging
import os
import re
import signal
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from subprocess import PIPE
from typing import Any

import anyio
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream
from pydantic import ValidationError
from pydantic_core import from_json

from bbfs.model.errors import BbfsError, ProtocolViolation, Unreachable
from bbfs.model.redaction import Redactor
from bbfs.model.values import McpServer
from bbfs.sources.mcp.client.errors import invalid_answer
from bbfs.sources.mcp.transport.jsonrpc import Inbox, Outbox, ServerStreams
from bbfs.sources.mcp.transport.lines import LineSplitter
from bbfs.sources.mcp.transport.long_strings import LONG, Line, put_back, take_out

_INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG")
_GRACE = 1.0
"""Seconds a server has to end by itself after its stdin closes, and again after SIGTERM."""
_LEFTOVER_GRACE = 0.3
"""Seconds the rest of the process group has after SIGTERM, once the server itself is gone."""
_EXIT_STATUS_WAIT = 0.3
"""Seconds between the end of stdout and the exit of the process, for the exit status to be part of the reason."""
_WRITE_STALL = 30.0
"""Seconds after which a server that does not read its input is given up."""
_UNSENT_MESSAGES = 1024
"""Messages waiting for a server to read them; buffered so that cancelling a request never waits for the server."""
_THREAD_FROM = 1 << 20
"""Bytes of a line from which it is parsed in a thread, so that other servers go on meanwhile."""
_STDERR_LINES = 20
_STDERR_LINE_LENGTH = 4096
_STDERR_LINES_PER_SECOND = 100
_FOREIGN_LINES_LOGGED = 5
_DEEPEST = 200
"""Levels of nesting; about what pydantic's parser takes."""
_LENIENT = json.JSONDecoder(strict=False)
_ANSWER_START = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,\s*"(?:result|error)"')
_ANSWER_END = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*\}\s*\Z')
"""How most servers begin or end an answer: where the rest of it cannot be read, it tells at least whose it was."""


class Stdio:
    """Runs one server process for one connection.

    `ending` says why the connection ended, once it has; its notes hold the last lines of the server's stderr.
    """

    def __init__(self, name: str, server: McpServer, redact: Redactor, max_message: int) -> None:
        self._server = server
        self._redact = redact
        self._max_message = max_message
        self._log = logging.getLogger(f"bbfs.server.{name}")
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._foreign_lines = 0
        self.ending: BbfsError | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[ServerStreams]:
        """The streams of a running server; the server and all it started are gone at the end. Raises Unreachable."""
        process = await self._spawn()
        backlog, outgoing = anyio.create_memory_object_stream[bytes](_UNSENT_MESSAGES)
        assert process.stdin is not None
        inbox, outbox = Inbox(), Outbox(process.stdin.fileno(), backlog)  # type: ignore[attr-defined]
        # No await between the spawn and this `try`, or a cancellation there would leave the process behind.
        try:
            with backlog, outgoing:
                async with trio.open_nursery() as nursery:
                    stderr_done = trio.Event()
                    nursery.start_soon(self._drain_stderr, process, stderr_done)
                    nursery.start_soon(self._read, process, inbox, stderr_done)
                    nursery.start_soon(self._write, process, outbox, outgoing, inbox)
                    yield inbox, outbox
                    nursery.cancel_scope.cancel()
        finally:
            outbox.closed = True
            with trio.CancelScope(shield=True):
                await _end(process)

    async def _spawn(self) -> trio.Process:
        server = self._server
        env = {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(server.env)
        try:
            return await trio.lowlevel.open_process(
                [server.command or "", *server.args],
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=env,
                cwd=server.cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else "not a usable command line"
            where = server.cwd if isinstance(exc, OSError) and exc.filename == server.cwd else server.command
            raise Unreachable(self._redact(f"cannot start '{where}': {reason}")) from None

    async def _read(self, process: trio.Process, inbox: Inbox, stderr_done: trio.Event) -> None:
        try:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._stop_reading_after_exit, process, nursery.cancel_scope)
                    await self._read_lines(process, inbox)
                    nursery.cancel_scope.cancel()
            except* ProtocolViolation as group:
                self.ending = next(exc for exc in group.exceptions if isinstance(exc, ProtocolViolation))
            except* trio.BrokenResourceError:
                pass  # the pipe broke: the end like any other
            with trio.move_on_after(_EXIT_STATUS_WAIT):
                await process.wait()
                await stderr_done.wait()
            if self.ending is None:
                self.ending = Unreachable(self._exit_reason(process.returncode))
                self.ending.add_note("\n".join(self._stderr))
        finally:
            inbox.ended.set()

    async def _stop_reading_after_exit(self, process: trio.Process, reading: trio.CancelScope) -> None:
        # A descendant may hold stdout open for ever after the server itself is gone.
        await process.wait()
        await trio.sleep(_EXIT_STATUS_WAIT)
        reading.cancel()

    async def _read_lines(self, process: trio.Process, inbox: Inbox) -> None:
        assert process.stdout is not None
        splitter = LineSplitter(self._max_message)
        async for chunk in process.stdout:
            for line in splitter.feed(bytes(chunk)):
                await self._deliver(line, inbox)

    async def _deliver(self, line: Line, inbox: Inbox) -> None:
        if len(line) < _THREAD_FROM and not line.strip():
            return
        messages = await decode_aside(line)
        if messages is None:
            self._foreign_lines += 1
            if self._foreign_lines <= _FOREIGN_LINES_LOGGED:
                text = line[: 1000 + 4 * self._redact.longest].decode("utf-8", "replace")
                self._log.info("on stdout, not a JSON-RPC message: %s", self._redact.cut(text, 200))
            return
        for message in messages:
            inbox.take(message)

    async def _write(
        self,
        process: trio.Process,
        outbox: Outbox,
        outgoing: MemoryObjectReceiveStream[bytes],
        inbox: Inbox,
    ) -> None:
        assert process.stdin is not None
        async for data in outgoing:
            try:
                with trio.move_on_after(_WRITE_STALL) as stall:
                    await process.stdin.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                # Most often the server is gone: the reader sees the end of stdout, and knows more about the reason.
                await trio.sleep(2 * _EXIT_STATUS_WAIT)
                if self.ending is None:
                    self.ending = Unreachable("the server closed its input")
                    inbox.ended.set()
                return
            if stall.cancelled_caught:
                self.ending = Unreachable(f"the server has not read its input for {_WRITE_STALL:.0f} seconds")
                inbox.ended.set()
                return
            outbox.waiting -= 1

    async def _drain_stderr(self, process: trio.Process, done: trio.Event) -> None:
        """Keep the pipe empty (a full one blocks the server), the last lines, and the log within a bound."""
        assert process.stderr is not None
        pending = b""
        budget, refilled, dropped = _STDERR_LINES_PER_SECOND, trio.current_time(), 0
        try:
            async for chunk in process.stderr:
                *lines, pending = (pending + chunk).split(b"\n")
                pending = pending[: self._longest_line]
                if trio.current_time() - refilled >= 1:
                    if dropped:
                        self._log.info("%d more lines on stderr", dropped)
                    budget, refilled, dropped = _STDERR_LINES_PER_SECOND, trio.current_time(), 0
                shown = lines[:budget]
                for line in shown:
                    self._log.info("%s", self._line(line))
                self._stderr.extend(map(self._line, lines[-_STDERR_LINES:]))
                budget -= len(shown)
                dropped += len(lines) - len(shown)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the end of the pipe like any other
        finally:
            if pending:
                self._stderr.append(self._line(pending))
                self._log.info("%s", self._line(pending))
            done.set()

    def _line(self, line: bytes) -> str:
        return self._redact.cut(line[: self._longest_line].decode("utf-8", "replace"), _STDERR_LINE_LENGTH).rstrip()

    @property
    def _longest_line(self) -> int:
        """Bytes of a line on stderr that are kept, so that a secret at its cut is known for one."""
        return 4 * (_STDERR_LINE_LENGTH + self._redact.longest)

    def _exit_reason(self, status: int | None) -> str:
        if status is None:
            return "the server closed its output"
        ending = f"exited with status {status}" if status >= 0 else f"was killed by {_signal_name(-status)}"
        last = next((line for line in reversed(self._stderr) if line), None)
        return f"the server {ending}" + (f": {last[:200]}" if last else "")


def decode(line: Line) -> list[types.JSONRPCMessage] | None:
    """The messages on one line (several in a batch), or None when it holds none.

    What the SDK's parser refuses gets a second chance: bytes that are not UTF-8 are replaced, halves of surrogate pairs
    and control characters in texts let through, a byte order mark is skipped, and an answer with an id but no valid
    shape fails its request instead of leaving it to its deadline. Parsing first and validating then takes a fifth of
    the time of `jsonrpc_message_adapter.validate_json`. Long texts in a result are `LongText`.
    """
    if len(line) >= LONG and (parted := take_out(line)) is not None:
        rest, texts = parted
        found = decode(rest)
        for message in found or ():
            if isinstance(message, types.JSONRPCResponse):
                put_back(message.result, texts)
        return found
    if line.startswith(codecs.BOM_UTF8):
        line = line[len(codecs.BOM_UTF8) :]
    try:
        value = from_json(line)
    except ValueError:
        try:
            value = _LENIENT.decode(line.decode("utf-8", "replace").strip())
            _require_shallow(value)
        except (ValueError, RecursionError):
            broken = _ANSWER_START.match(line) or _ANSWER_END.search(line[-100:])
            return [invalid_answer(int(broken[1]), "not JSON")] if broken else None
    found = [message for item in (value if isinstance(value, list) else [value]) if (message := _message(item))]
    return found or None


async def decode_aside(line: Line) -> list[types.JSONRPCMessage] | None:
    """As `decode`, a long line in a thread."""
    return await trio.to_thread.run_sync(decode, line) if len(line) >= _THREAD_FROM else decode(line)


def _require_shallow(value: Any) -> None:
    """Raises ValueError for what is nested so deep that writing it as JSON again could fail."""
    level = [value]
    for _ in range(_DEEPEST):
        inner = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list))
        level = [item for items in inner for item in items]
        if not level:
            return
    raise ValueError("nested too deep")


def _message(item: Any) -> types.JSONRPCMessage | None:
    if not isinstance(item, dict):
        return None
    try:
        return types.jsonrpc_message_adapter.validate_python(item, by_name=False)
    except ValidationError:
        return _answer(item)


def _answer(item: dict[str, Any]) -> types.JSONRPCMessage | None:
    """The answer that an object which is no JSON-RPC message is meant to be, or None: programs log in JSON too."""
    request_id, result, error = item.get("id"), item.get("result"), item.get("error")
    if isinstance(request_id, float) and request_id.is_integer():
        request_id = int(request_id)  # all numbers of some languages are floats
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


async def _end(process: trio.Process) -> None:
    """End a server and its process group: close its stdin, then SIGTERM, then SIGKILL. Takes 3 seconds at most."""
    streams = [stream for stream in (process.stdin, process.stdout, process.stderr) if stream is not None]
    async with trio.open_nursery() as nursery:
        # A server that writes its last words into a full or closed pipe might not get to tidy up.
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                nursery.start_soon(_discard, stream)
        if process.stdin is not None:
            await process.stdin.aclose()
        if await _exits(process, _GRACE):
            await _end_leftovers(process.pid)
        else:
            _signal_group(process.pid, signal.SIGTERM)
            await _exits(process, _GRACE)
            _signal_group(process.pid, signal.SIGKILL)
            await _exits(process, _GRACE)
        nursery.cancel_scope.cancel()
    for stream in streams:
        await stream.aclose()


async def _end_leftovers(pid: int) -> None:
    """End what a server that is gone by itself has left running in its group."""
    if not _signal_group(pid, signal.SIGTERM):
        return
    with trio.move_on_after(_LEFTOVER_GRACE):
        while _signal_group(pid, 0):  # noqa: ASYNC110 - nothing tells of the end of a process group
            await trio.sleep(0.02)
    _signal_group(pid, signal.SIGKILL)


async def _discard(stream: trio.abc.ReceiveStream) -> None:
    try:
        async for _ in stream:
            pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # nothing left to read


async def _exits(process: trio.Process, seconds: float) -> bool:
    with trio.move_on_after(seconds):
        await process.wait()
    return process.returncode is not None


def _signal_group(pid: int, number: int) -> bool:
    """Whether there was anybody to signal. The group keeps the server's id taken for as long as it has members."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
