"""The daemon's side of the toucher: starts it, learns its number, sends it one call at a time, kills it if it hangs.

A request of the kernel names the thread that made it by a number in the PID namespace of the mount. The daemon does not
take the number of its child for that: in another namespace it is that of a stranger. The first request of each process
looks a name up that only the daemon and this process know, and so brings the number. It counts as long as the kernel
knows that very process (pidfd_open(2)): a number that another process has got since means nothing.
"""

import errno
import logging
import os
import secrets
import signal
import struct
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import trio
from cachetools import LRUCache

from bbfs.fuse.helper_process import started
from bbfs.fuse.watchers import toucher_process
from bbfs.resources.catalog.record import Path

log = logging.getLogger(__name__)

Kind = Literal["modify", "touch", "file", "folder", "link", "unlink", "rmdir"]
WITHIN = 10.0
"""Seconds for a call. It waits for locks of the kernel, never for a source."""
REPORTED_WITHIN = 1.0
LOOKED_WITHIN = 10.0
"""Seconds for a look at the watches of all programs."""
ENDS_WITHIN = 1.0
PAUSE, LONGEST_PAUSE = 0.2, 60.0
"""Seconds until a toucher that was killed is started again, at first and at most."""
STATUSES_KEPT = 10_000
_LARGEST = 1 << 18


class Status(NamedTuple):
    """The attributes of an inode in the cache of the kernel. Times: seconds and nanoseconds."""

    ino: int
    size: int
    blocks: int
    accessed: int
    accessed_ns: int
    modified: int
    modified_ns: int
    changed: int
    changed_ns: int
    mode: int
    uid: int
    gid: int
    links: int


@dataclass(slots=True)
class Call:
    """One call. parent: the inode of its directory. path: of the name, from the mount's root.

    target: of a symbolic link. token: the modification time, in nanoseconds, that only this call sets. earlier: what
    the kernel has of an earlier version of the file, which programs watch; no name leads to that any more.
    """

    kind: Kind
    parent: int
    path: Path
    target: bytes = b""
    earlier: Status | None = None
    token: int = field(default_factory=lambda: 1 + secrets.randbits(60))
    status: Status | None = None
    reported: trio.Event = field(default_factory=trio.Event)

    @property
    def name(self) -> bytes:
        return self.path[-1].encode() if self.earlier is None else b"%d" % self.earlier.ino

    @property
    def hidden(self) -> bytes:
        """The name at the root of a directory that only this call finds, so that no program watches it."""
        return b".bbfs-%x" % self.token

    def changes_names(self) -> bool:
        return self.kind not in ("modify", "touch")


@dataclass(frozen=True, slots=True)
class _Process:
    """A process that was started. descriptor: of the process itself, a pidfd."""

    link: trio.socket.SocketType
    process: subprocess.Popen[bytes]
    descriptor: int


class Toucher:
    """The process that makes calls for one mount. It is started again, after a pause, if it was killed or hung.

    path, device: of the mount. has_other_users: whether others than the daemon's user may have it. recognise: called
    before the first start, so that the daemon recognises the calls. Until then, no request costs anything more.
    """

    def __init__(self, path: str, device: int, recognise: Callable[[], None], *, has_other_users: bool) -> None:
        self._path = path
        self._device = device
        self._recognise: Callable[[], None] | None = recognise
        self._others = b"1" if has_other_users else b"0"
        self._started: _Process | None = None
        self._ended: list[_Process] = []
        self._pause = PAUSE
        self._not_before = 0.0
        self.lack = ""
        """Why no call can be made; empty while they can."""
        self.numbers: dict[int, int] = {}
        """By the number that a request has: the descriptor of the process."""
        self.greeting: bytes | None = None
        """The name that the process looks up first, until it has."""
        self.expected: Call | None = None
        self.statuses: LRUCache[int, Status] = LRUCache(STATUSES_KEPT)
        """The attributes of touched inodes in the cache of the kernel. No inode changes: each version has its own."""

    # -- the process -------------------------------------------------------------------------------------------------

    def made(self, number: int) -> bool:
        """Return whether a request with the number of a thread is one of a process of this daemon."""
        descriptor = self.numbers.get(number)
        if descriptor is None:
            return False
        try:
            signal.pidfd_send_signal(descriptor, 0)
        except ProcessLookupError:  # it is reaped: another process has the number
            del self.numbers[number]
            return False
        return True

    def greet(self, number: int) -> None:
        """Note the number of the process. 0: it has none where the mount was made."""
        self.greeting = None
        if number == 0:
            self.lack = "the processes of the daemon have no number in the PID namespace of the mount"
            log.warning("%s: no events for programs that watch: %s", self._path, self.lack)
        elif self._started is not None:
            self.numbers[number] = self._started.descriptor

    def recognised(self) -> None:
        """Have the daemon recognise the calls, if it does not yet."""
        if self._recognise is not None:
            self._recognise()
            self._recognise = None

    def kept(self) -> dict[str, Any]:
        """Return what the next daemon of the mount needs, once the process is killed: it may have a call under way."""
        pids = {each.descriptor: each.process.pid for each in self._ended}
        numbers = [(number, pids[held]) for number, held in self.numbers.items() if held in pids]
        return {"numbers": numbers, "statuses": [*self.statuses.values()]}

    def take_over(self, kept: dict[str, Any]) -> None:
        """Recognise the calls of the process of the daemon before, and refuse them, as long as it has not ended."""
        self.statuses.update((each[0], Status(*each)) for each in kept["statuses"])
        for number, pid in kept["numbers"]:
            with suppress(ProcessLookupError):
                self.numbers[number] = os.pidfd_open(pid)

    async def _start(self) -> _Process:
        """Start the process, and learn its number. Raise OSError."""
        self.recognised()
        link, process = started(toucher_process.__file__)
        try:
            made = self._started = _Process(link, process, os.pidfd_open(process.pid))
        except OSError:
            link.close()
            process.kill()
            raise
        self.greeting = b".bbfs-" + secrets.token_hex(16).encode()
        said = await self._exchange(made, toucher_process.GREET, b"0", b"", self.greeting, b"")
        if self.greeting is not None or self.lack:  # another mount is there by now, or none
            raise OSError(int(said), "no number")
        return made

    def end(self) -> None:
        """Kill the process. It is reaped later: it may wait for the kernel."""
        self.expected = self.greeting = None
        if self._started is not None:
            self._started.link.close()
            self._started.process.kill()
            self._ended.append(self._started)
            self._started = None

    def reap(self, within: float = 0.0) -> None:
        """Reap the processes that have ended. within: seconds for each to end."""
        for each in list(self._ended):
            with suppress(subprocess.TimeoutExpired):
                each.process.wait(within)
                self._ended.remove(each)
                for number in [number for number, its in self.numbers.items() if its == each.descriptor]:
                    del self.numbers[number]
                os.close(each.descriptor)

    # -- what it is asked for ----------------------------------------------------------------------------------------

    async def perform(self, call: Call) -> int:
        """Have a call made. Return its errno, or 0. ETIMEDOUT, EPIPE: the process had to be killed, or was."""
        directory = "/".join(call.path[:-1]).encode()
        if call.kind == "touch":
            directory, name = "/".join(call.path).encode(), b"."
        else:
            name = call.name
            directory = call.hidden if call.earlier is not None else directory
        request = call.kind.encode(), str(call.token).encode(), directory, name, call.target
        try:
            return int(await self._ask(*request, within=WITHIN, call=call))
        finally:
            self.expected = None

    async def watched(self) -> tuple[set[int], bool] | None:
        """Return the inodes of the mount that programs watch, as far as they are seen, and whether all are.

        None: the process had to be killed, or was.
        """
        said = await self._ask(toucher_process.WATCHED, self._others, b"", b"", b"", within=LOOKED_WITHIN)
        if said[:1] not in (toucher_process.ALL, toucher_process.SOME):
            return None
        are_all, numbers = said[:1] == toucher_process.ALL, said[1:]
        return set(struct.unpack(toucher_process.NUMBERS % (len(numbers) // 8), numbers)), are_all

    async def _ask(self, kind: bytes, token: bytes, *parts: bytes, within: float, call: Call | None = None) -> bytes:
        """Send a request to the process, started if need be, and return its last answer; an errno if it is killed."""
        self.reap()
        failed = errno.EPIPE
        try:
            if self.lack:
                raise OSError(errno.EPERM, self.lack)
            await trio.sleep(max(0.0, self._not_before - trio.current_time()))
            with trio.move_on_after(within):
                made = self._started or await self._start()
                self.expected = call
                return await self._exchange(made, kind, token, *parts)
            failed = errno.ETIMEDOUT
        except OSError as error:
            log.debug("the toucher has ended: %s", error)
        log.info("the process that touches names for programs that watch is killed, and started again")
        self.end()
        self._not_before = trio.current_time() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return str(failed).encode()

    async def _exchange(self, made: _Process, kind: bytes, token: bytes, *parts: bytes) -> bytes:
        """Send a request, and return its last answer. Raise OSError."""
        place = os.fsencode(self._path)
        await made.link.send(b"\0".join((kind, str(self._device).encode(), token, place, *parts)))
        while said := await made.link.recv(_LARGEST):
            if said[:1] != toucher_process.STATUS:
                self._pause = PAUSE
                return said[1:]
            self._take_status(said[1:])
        raise ConnectionResetError

    def _take_status(self, said: bytes) -> None:
        if self.expected is not None:
            self.expected.status = status = Status(*toucher_process.STATUS_FORM.unpack(said))
            self.statuses[status.ino] = status
            self.expected.reported.set()
