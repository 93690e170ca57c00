"""The stdio transport: a server as a child process, one JSON-RPC message a line.

Unlike the SDK's, it takes time linear in a line's length, bounds that length, tolerates bytes that are not UTF-8, keeps
the end of the server's stderr, reports the exit of the child, and kills a stubborn child after two seconds.
"""

import logging
import os
import re
import signal
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from math import inf
from subprocess import PIPE
from typing import Any

import trio

from bbfs.model.errors import BbfsError, ProtocolViolation, TooLarge, Unreachable
from bbfs.model.redaction import Redactor, shortened
from bbfs.model.values import McpServer
from bbfs.sources.bounded.workers import describe_signal
from bbfs.sources.content.spool import Spool
from bbfs.sources.mcp.transport import leftovers
from bbfs.sources.mcp.transport.messages import Inbox, Intake, Share, Transport, encoded

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_INHERITED = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG"),
    *_PROXIES,
    *map(str.lower, _PROXIES),
    *_CERTIFICATES,
)
"""What the SDK's clients pass on, and how this machine reaches the network: npx and uvx load a server's packages."""
_GRACE = 1.0
"""Seconds for a server to exit after its stdin closes, and again after SIGTERM."""
_LEFTOVER_GRACE = 0.3
"""Seconds for the rest of the process group to exit after SIGTERM, once the server itself is gone."""
_LEFTOVERS_TAKE = 1.0
"""Seconds at most to kill what has left the process group; the process that outlives bbfs kills the rest."""
_EXIT_STATUS_WAIT = 0.3
"""Seconds to wait for the exit status after the end of stdout, to make it part of the reason."""
_WRITE_STALL = 30.0
"""Seconds after which a server that does not read its input is given up."""
_UNSENT_MESSAGES = 1024
"""Messages that may wait for a server to read them: cancelling a request must not wait for the server."""
_STDERR_LINES = 20
_STDERR_LINE_LENGTH = 4096
_ERROR_LINE = re.compile(rb"(?:[\w.$]*(?:Error|Exception)|ERROR|error|FATAL|[Ff]atal|panic)(?: \[\w+\])?: *\S")
"""The beginning of a line on stderr that says what is wrong. Usage, a hint or a stack often follows it."""
_ERROR_LASTS = 5.0
"""Seconds before the exit of a server in which such a line tells its reason."""
_STDERR_BURST, _STDERR_LINES_PER_SECOND = 100, 5
"""Lines on stderr that are logged at once, and a second in the long run: a server must not fill the disk."""
_FOREIGN_LINES_LOGGED = 5
_numbers = count(1)


class Outbox:
    """The sending end of a pipe to a server. It writes at once as much as the pipe takes.

    The rest waits in `backlog`, in order, and the transport drains that. descriptor: the pipe's, in non-blocking mode.
    waiting: pieces in the backlog or being written from it. unsent_bytes: that these may have together; a single piece
    may have more.
    """

    def __init__(self, descriptor: int, backlog: trio.MemorySendChannel[bytes], unsent_bytes: int = 16 << 20) -> None:
        self._descriptor = descriptor
        self._unsent_bytes = unsent_bytes
        self._backlog = backlog
        self.waiting = 0
        self._unsent = 0
        self.closed = False

    async def send(self, message: Mapping[str, Any]) -> None:
        """Write a message and a line feed. Raises trio's errors of a closed or broken channel, also for a message that
        would be over the bounds of the backlog."""
        await trio.lowlevel.checkpoint_if_cancelled()
        data = encoded(message) + b"\n"
        if self.waiting and (self.waiting >= _UNSENT_MESSAGES or self._unsent + len(data) > self._unsent_bytes):
            raise trio.BrokenResourceError
        if not self.waiting and not self.closed:
            data = data[self._write(data) :]
            if not data:
                return
        self._backlog.send_nowait(data)
        self.waiting += 1
        self._unsent += len(data)

    def sent(self, piece: bytes) -> None:
        """Note that the transport has written a piece of the backlog."""
        self.waiting -= 1
        self._unsent -= len(piece)

    def _write(self, data: bytes) -> int:
        """Return how many bytes the pipe took. A broken one takes none: draining the backlog finds that out."""
        try:
            return os.write(self._descriptor, data)
        except OSError:
            return 0


class Stdio:
    """One server process for one connection.

    `ending`: why the connection ended, once it has; its notes hold the last lines of the server's stderr.
    """

    def __init__(
        self, name: str, server: McpServer, redact: Redactor, max_message: int, spool: Callable[[], Spool]
    ) -> None:
        self._server = server
        self._redact = redact
        self._max_message = max_message
        self._spool = spool
        self._log = logging.getLogger(f"bbfs.server.{name}")
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._error = (-inf, "")
        self._said_at = -inf
        self._foreign_lines = 0
        self.inbox = Inbox()
        self.ending: BbfsError | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Transport]:
        """Start the server; at the end, kill it and all it started. Raises Unreachable."""
        mark = f"{leftovers.mark_of_this_process()}{next(_numbers)}."
        process = await self._spawn(mark)
        backlog, outgoing = trio.open_memory_channel[bytes](inf)
        assert process.stdin is not None
        self._outbox = Outbox(process.stdin.fileno(), backlog)  # type: ignore[attr-defined]
        # No await between the spawn and this `try`: a cancellation there would leave the process behind.
        try:
            with backlog, outgoing:
                async with trio.open_nursery() as nursery:
                    stderr_done = trio.Event()
                    nursery.start_soon(self._drain_stderr, process, stderr_done)
                    nursery.start_soon(self._read, process, stderr_done)
                    nursery.start_soon(self._write, process, outgoing)
                    yield self
                    nursery.cancel_scope.cancel()
        finally:
            self._outbox.closed = True
            with trio.CancelScope(shield=True):
                await _end(process)
                with trio.move_on_after(_LEFTOVERS_TAKE):  # /proc may wait for a process that hangs
                    await trio.to_thread.run_sync(leftovers.end, mark, abandon_on_cancel=True)

    async def _spawn(self, mark: str) -> trio.Process:
        server = self._server
        env = {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(server.env)
        env[leftovers.VARIABLE] = mark
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

    async def send(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """Write a message, as `Outbox.send` does."""
        await self._outbox.send(message)

    async def _read(self, process: trio.Process, stderr_done: trio.Event) -> None:
        try:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._stop_reading_after_exit, process, nursery.cancel_scope)
                    await self._read_lines(process)
                    nursery.cancel_scope.cancel()
            except* (ProtocolViolation, TooLarge) as group:
                self.ending = next(exc for exc in group.exceptions if isinstance(exc, BbfsError))
            except* trio.BrokenResourceError:
                pass  # the pipe broke: the end like any other
            with trio.move_on_after(_EXIT_STATUS_WAIT):
                await process.wait()
                await stderr_done.wait()
            if self.ending is None:
                self.ending = Unreachable(self._exit_reason(process.returncode))
                self.ending.add_note("\n".join(self._stderr))
        finally:
            self.inbox.ended.set()

    async def _stop_reading_after_exit(self, process: trio.Process, reading: trio.CancelScope) -> None:
        # A descendant may keep stdout open for ever after the server is gone.
        await process.wait()
        await trio.sleep(_EXIT_STATUS_WAIT)
        reading.cancel()

    async def _read_lines(self, process: trio.Process) -> None:
        assert process.stdout is not None
        with Intake(self._max_message, Share(self._spool), self._log_foreign) as intake:
            async for received in process.stdout:
                chunk, at = bytes(received), 0
                while (end := chunk.find(b"\n", at)) >= 0:
                    await intake.feed(chunk[at:end])
                    at = end + 1
                    for message in await intake.end() or ():
                        self.inbox.take(message)
                await intake.feed(chunk[at:])

    def _log_foreign(self, line: bytes | bytearray) -> None:
        self._foreign_lines += 1
        if self._foreign_lines <= _FOREIGN_LINES_LOGGED:
            text = line[: 1000 + 4 * self._redact.longest].decode("utf-8", "replace")
            self._log.info("on stdout, not a JSON-RPC message: %s", self._redact.cut(text, 200))

    async def _write(self, process: trio.Process, outgoing: trio.MemoryReceiveChannel[bytes]) -> None:
        assert process.stdin is not None
        async for data in outgoing:
            try:
                with trio.move_on_after(_WRITE_STALL) as stall:
                    await process.stdin.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                # Most often the server is gone: the reader of stdout then has a better reason.
                await trio.sleep(2 * _EXIT_STATUS_WAIT)
                if self.ending is None:
                    self.ending = Unreachable("the server closed its input")
                    self.inbox.ended.set()
                return
            if stall.cancelled_caught:
                self.ending = Unreachable(f"the server has not read its input for {_WRITE_STALL:.0f} seconds")
                self.inbox.ended.set()
                return
            self._outbox.sent(data)

    async def _drain_stderr(self, process: trio.Process, done: trio.Event) -> None:
        """Drain the pipe (a full one blocks the server), keep the last lines, and bound the log."""
        assert process.stderr is not None
        pending = b""
        budget, refilled, dropped = _STDERR_BURST, trio.current_time(), 0
        try:
            async for chunk in process.stderr:
                self._said_at = trio.current_time()
                *lines, pending = (pending + chunk).split(b"\n")
                pending = pending[: self._longest_line]
                if (passed := int(trio.current_time() - refilled)) > 0:
                    if dropped:
                        self._log.info("%d more lines on stderr", dropped)
                    budget = min(_STDERR_BURST, budget + passed * _STDERR_LINES_PER_SECOND)
                    refilled, dropped = refilled + passed, 0
                shown = lines[:budget]
                for line in shown:
                    self._log.info("%s", self._line(line))
                self._stderr.extend(map(self._line, lines[-_STDERR_LINES:]))
                self._find_error(lines)
                budget -= len(shown)
                dropped += len(lines) - len(shown)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the end of the pipe like any other
        finally:
            if pending:
                self._stderr.append(self._line(pending))
                self._log.info("%s", self._line(pending))
                self._find_error([pending])
            done.set()

    def _find_error(self, lines: list[bytes]) -> None:
        found = next((line for line in reversed(lines) if _ERROR_LINE.match(line)), None)
        if found is not None:
            self._error = (trio.current_time(), self._line(found))

    def _line(self, line: bytes) -> str:
        return self._redact.cut(line[: self._longest_line].decode("utf-8", "replace"), _STDERR_LINE_LENGTH).rstrip()

    @property
    def _longest_line(self) -> int:
        """Bytes of a line on stderr to keep, enough to recognise a secret at the cut."""
        return 4 * (_STDERR_LINE_LENGTH + self._redact.longest)

    def _exit_reason(self, status: int | None) -> str:
        if status is None:
            return "the server closed its output"
        ending = f"exited with status {status}" if status >= 0 else f"was killed by {describe_signal(-status)}"
        at, said = self._error
        if trio.current_time() - at > _ERROR_LASTS:
            is_recent = trio.current_time() - self._said_at <= _ERROR_LASTS  # or it is about something else
            said = next((line for line in reversed(self._stderr) if line), "") if is_recent else ""
        return f"the server {ending}" + (f": {shortened(said, 200)}" if said else "")


async def _end(process: trio.Process) -> None:
    """End a server and its process group: close its stdin, then SIGTERM, then SIGKILL. Takes 3 seconds at most."""
    streams = [stream for stream in (process.stdin, process.stdout, process.stderr) if stream is not None]
    async with trio.open_nursery() as nursery:
        # A server that writes into a full or closed pipe while it exits might not finish.
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
    """Kill the processes that a server left running in its group when it exited by itself."""
    if not _signal_group(pid, signal.SIGTERM):
        return
    with trio.move_on_after(_LEFTOVER_GRACE):
        while _signal_group(pid, 0):  # noqa: ASYNC110 - no event reports the end of a process group
            await trio.sleep(0.02)
    _signal_group(pid, signal.SIGKILL)


async def _discard(stream: trio.abc.ReceiveStream) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # nothing left to read
        async for _ in stream:
            pass


async def _exits(process: trio.Process, seconds: float) -> bool:
    with trio.move_on_after(seconds):
        await process.wait()
    return process.returncode is not None


def _signal_group(pid: int, number: int) -> bool:
    """Return whether the group had members to signal. Until it has none, the server's id is not used again."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
