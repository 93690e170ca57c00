"""Worker processes for strangers' documents that only a library without bounds can read.

CPython's parsers hold the GIL from beginning to end, and a thread cannot be ended: such a document would stop the whole
daemon. A worker has limits of memory, CPU time and files, no network where the kernel can take it away, and dies at the
deadline of its job, or with the daemon.
"""

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

from bbfs.model.errors import BbfsError, ProtocolViolation, TooLarge, Unreachable
from bbfs.model.redaction import shown
from bbfs.sources.bounded.worker_process import ANSWER, DONE

MEMORY = 192 << 20
"""Address space of one worker (bytes). Python and its libraries take 30 MB."""
SECONDS = 10
"""CPU time of one job, unless it says another."""
MAX_RESULT = 16 << 20
"""Bytes of a result, unless the job says another limit."""
_AT_ONCE = min(2, os.cpu_count() or 1)
_LAST_WORDS = 1.0
"""Seconds to take what a process has said that has ended."""
_PIECE = 1 << 16
_MAX_ERROR = 1 << 14
_PROGRAM = str(Path(__file__).with_name("worker_process.py"))
_ONE_THREAD = ("BLIS", "GOTO", "MKL", "NUMEXPR", "OMP", "OPENBLAS", "POLARS_MAX", "RAYON", "VECLIB_MAXIMUM")
"""Libraries that take the number of their threads from NAME_NUM_THREADS or NAME_THREADS. A worker may start none: the
kernel counts threads as processes, and excepts root alone."""
_ENVIRONMENT = {
    **{f"{name}_THREADS" if "MAX" in name else f"{name}_NUM_THREADS": "1" for name in _ONE_THREAD},
    "TOKENIZERS_PARALLELISM": "false",
}
_OVER_TIME = {signal.SIGPROF, signal.SIGXCPU}
_ERRORS: Mapping[str, type[BbfsError]] = {"TooLarge": TooLarge, "ProtocolViolation": ProtocolViolation}


class WorkerPool:
    """The worker processes of one daemon. A job starts a process if all are busy; the end of the event loop ends all
    processes.

    size: workers at once. memory: limit for each (bytes). rest: seconds after which a worker without a job ends.
    """

    def __init__(self, size: int = _AT_ONCE, memory: int = MEMORY, rest: float = 30.0) -> None:
        self._size = size
        self._rest_for = rest
        self._memory = memory
        self._turns: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)
        self._room = trio.CapacityLimiter(size)
        self._idle: list[_Worker] = []

    async def run(
        self,
        job: str,
        data: bytes,
        options: Mapping[str, Any] | None = None,
        *,
        owner: str,
        what: str,
        seconds: float = SECONDS,
        max_result: int = MAX_RESULT,
    ) -> bytes:
        """Return the result of a job. When cancelled, end its worker first.

        job: a key of JOBS. options: JSON. owner: the source, which has one job at a time. what: begins the texts of
        errors. seconds: limit of CPU time. max_result: bytes. Raise TooLarge if the job exceeds a limit or kills its
        worker, ProtocolViolation if the document is invalid, Unreachable if no process can be started, BbfsError if
        the worker ends by itself.
        """
        request = {
            "job": job,
            "size": len(data),
            "seconds": seconds,
            "max_result": max_result,
            "options": options or {},
        }
        async with self._turns[owner], self._room:
            worker = self._taken() or _Worker(self._memory, what)
            goes_on = False
            try:
                is_done, goes_on, answer = await worker.ask(request, data, max(max_result, _MAX_ERROR))
            except (trio.BrokenResourceError, EOFError):
                await worker.end()
                raise _death(worker, what, seconds, self._memory) from None
            finally:
                if goes_on:
                    self._rest(worker)
                else:
                    await worker.end()
        if is_done:
            return answer
        refusal = json.loads(answer)
        raise _ERRORS.get(refusal["error"], ProtocolViolation)(f"{what}: {shown(refusal['text'], 1000)}")

    def _taken(self) -> "_Worker | None":
        while self._idle:
            worker = self._idle.pop()
            worker.wanted.set()
            if worker.is_alive:
                return worker
        return None

    def _rest(self, worker: "_Worker") -> None:
        worker.wanted = trio.Event()
        self._idle.append(worker)
        trio.lowlevel.spawn_system_task(self._expire, worker, worker.wanted, name="an idle worker process")

    async def _expire(self, worker: "_Worker", wanted: trio.Event) -> None:
        """End a worker that is not wanted for a while, or when the event loop ends."""
        try:
            with trio.move_on_after(self._rest_for):
                await wanted.wait()
        finally:
            if not wanted.is_set():
                self._idle.remove(worker)
                await worker.end()


_OUT_OF_MEMORY = ("MemoryError", "SystemError: error return without exception set")
"""How the last words of a worker begin that got no memory. C code that forgets to say so is a SystemError."""


def _death(worker: "_Worker", what: str, seconds: float, memory: int) -> BbfsError:
    """Return the error of a job whose worker has ended instead of answering."""
    status = worker.status
    if -status in _OVER_TIME:
        return TooLarge(f"{what}: takes more than {seconds:g} s of CPU time to read, the limit of a document")
    if worker.last_words.startswith(_OUT_OF_MEMORY):
        return TooLarge(f"{what}: takes too much memory to read")
    said = f": {shown(worker.last_words, 300)}" if worker.last_words else ""
    if status < 0 and -status != signal.SIGINT:
        return TooLarge(
            f"{what}: its reader was ended by {describe_signal(-status)}, as by a document that takes more than "
            f"{memory >> 20} MiB or that a library fails at{said}"
        )
    return BbfsError(f"{what}: its reader ended with {describe_status(status)}{said}")


def describe_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe_status(status: int) -> str:
    """Return the end of a process in words. status: as `subprocess.Popen.returncode`."""
    return describe_signal(-status) if status < 0 else f"status {status}"


def run_once(job: str, data: bytes, options: Mapping[str, Any], *, what: str, max_result: int) -> bytes:
    """Do one job as `WorkerPool.run` does, with or without an event loop around, and block until it has ended."""

    async def work() -> bytes:
        return await WorkerPool(1).run(job, data, options, owner="", what=what, max_result=max_result)

    with ThreadPoolExecutor(1) as thread:  # an event loop of its own, and the worker ends with its thread
        return thread.submit(trio.run, work).result()


def start_worker(
    memory: int,
    what: str,
    *,
    file_size: int = 0,
    serve: str | None = None,
    network: bool = False,
    errors: int = subprocess.DEVNULL,
) -> "subprocess.Popen[bytes]":
    """Start a worker process. Only the thread of the event loop may: the worker ends with the thread that started it.

    memory: address space, file_size: of each file that it writes (bytes). what: begins the text of Unreachable. serve:
    a module that serves a protocol of its own, instead of jobs. network: it may reach other hosts. errors: its standard
    error, as for Popen.
    """
    path = [os.path.abspath(each) for each in sys.path]
    settings = {
        "path": path,
        "memory": memory,
        "file_size": file_size,
        "serve": serve,
        "network": network,
        "parent": os.getpid(),
    }
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", _PROGRAM, json.dumps(settings)],  # `path` says what `site` would find out
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd="/",
            env=_ENVIRONMENT,
            bufsize=0,
        )
    except OSError as error:
        raise Unreachable(f"{what}: a worker process could not be started: {error.strerror}") from error


class _Worker:
    """One worker process. wanted: set while it has a job. last_words: the last line of its standard error.

    Raises Unreachable.
    """

    def __init__(self, memory: int, what: str) -> None:
        self._process = start_worker(memory, what, errors=subprocess.PIPE)
        self.wanted = trio.Event()
        self.last_words = ""
        self._errors_end = trio.Event()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._requests = trio.lowlevel.FdStream(os.dup(self._process.stdin.fileno()))
        self._answers = trio.lowlevel.FdStream(os.dup(self._process.stdout.fileno()))
        self._errors = trio.lowlevel.FdStream(os.dup(self._process.stderr.fileno()))
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.stderr.close()
        trio.lowlevel.spawn_system_task(self._listen, name="the errors of a worker process")

    async def _listen(self) -> None:
        """Read the output of a library, so that it never waits for a reader, and keep the end of the output."""
        tail = b""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while piece := await self._errors.receive_some(_MAX_ERROR):
                tail = (tail + piece)[-_MAX_ERROR:]
                self.last_words = tail.strip().rpartition(b"\n")[2].decode("utf-8", "replace")
        self._errors_end.set()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def status(self) -> int:
        """The exit status of a process that has ended, as `subprocess.Popen.returncode`."""
        return self._process.returncode

    async def ask(self, request: Mapping[str, Any], data: bytes, limit: int) -> tuple[bool, bool, bytes]:
        """Return if the job is done, if the worker goes on, and the answer, of at most `limit` bytes.

        Raise BrokenResourceError or EOFError if the worker has died.
        """
        await self._requests.send_all(json.dumps(request).encode() + b"\n")
        await self._requests.send_all(data)
        status, is_last, size = ANSWER.unpack(await self._receive(ANSWER.size))
        if size > limit:
            raise EOFError
        return status == DONE, not is_last, await self._receive(size)

    async def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = await self._answers.receive_some(min(_PIECE, size - len(received)))
            if not piece:
                raise EOFError
            received += piece
        return bytes(received)

    async def end(self) -> None:
        """Kill the process and wait for its end, even if cancelled."""
        self._process.kill()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._process.wait)
            with trio.move_on_after(_LAST_WORDS):
                await self._errors_end.wait()
            await self._requests.aclose()
            await self._answers.aclose()
            await self._errors.aclose()
