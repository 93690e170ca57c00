"""A restart that keeps the mount: the next daemon gets the connection to the kernel, and what the kernel holds.

The kernel greets a connection once (FUSE_INIT), and libfuse serves none that has not greeted it. So a daemon that may
hand its mount over lets libfuse be greeted through a pair of sockets, and keeps both messages: the question of the
kernel, and the answer of libfuse, which it passes on. Afterwards the descriptor that libfuse reads is the connection
itself, and no request costs anything more. The next daemon is the same process: execve(2) keeps the descriptor, the PID
and the service. It plays the question to its libfuse, and goes on if the answer is the same, on which the kernel acts.

A request that was read and not answered would hang its program: FUSE_NOTIFY_RESEND (Linux 6.9) has the kernel send all
of these again. One that was not read waits in the kernel.
"""

import json
import logging
import os
import re
import signal
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import trio

from bbfs.config import Config
from bbfs.fuse.adapter import Operations
from bbfs.fuse.kernel_notices import Notifier
from bbfs.fuse.mount_options import can_be_written, passed_folders
from bbfs.fuse.service import passed_files
from bbfs.fuse.service.quiet import Quiet
from bbfs.fuse.watchers.setting import Watchers
from bbfs.model.errors import BbfsError
from bbfs.sources import Handler
from bbfs.vfs.filesystem import FileSystem
from bbfs.vfs.names import answered

log = logging.getLogger(__name__)

SIGNAL = signal.SIGUSR2
"""Has a daemon start bbfs again under its mount."""
VARIABLE = "BBFS_HANDED_OVER"
"""Two descriptors, for the next daemon: the connection, and what `Handover.keep` has written."""
_RESENDS_SINCE = (6, 9)
_RESEND = struct.pack("=IiQ", 16, 7, 0)
"""struct fuse_out_header with FUSE_NOTIFY_RESEND."""
_ATTRIBUTES = struct.Struct("=IiQQqq")
"""struct fuse_out_header with FUSE_NOTIFY_INVAL_INODE: the inode, -1 for its attributes alone, no length."""
_LARGEST_GREETING = 1 << 17
"""Bytes. The kernel refuses a read with less room than for the largest request."""
_OPENED_WITHIN = 10.0
"""Seconds for the contents of the files that programs have open. A file that takes longer is stale afterwards."""


class Refused(Exception):
    """The mount cannot be kept; the text says why."""


def _resends() -> bool:
    """Return whether the kernel sends requests again."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return release is not None and (int(release[1]), int(release[2])) >= _RESENDS_SINCE


@dataclass(slots=True)
class Handover:
    """A connection to the kernel that the next daemon may get, or that this one has got.

    device: its descriptor. question, answer: the messages of the greeting. state: of the daemon before, if any.
    options: those of the mount. children: processes that the daemon before has started, which are children of this one.
    """

    device: int = -1
    question: bytes = b""
    answer: bytes = b""
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    options: list[str] = field(default_factory=list[str])
    children: list[int] = field(default_factory=list[int])
    lack: str = ""
    """Why no next daemon can have the mount; empty if one can."""
    is_wanted: bool = False
    """Whether a next daemon is to begin."""

    @classmethod
    def received(cls) -> "Handover | None":
        """Return what the daemon before has handed over to this process; None if there was none."""
        given = os.environ.pop(VARIABLE, None)
        if given is None:
            return None
        device, state = map(int, given.split())
        os.set_inheritable(device, False)
        with os.fdopen(state, "rb") as file:
            file.seek(0)
            said = json.load(file)
        for number in passed_files.descriptors(said["passed"]):
            os.set_inheritable(number, False)
        children = [int(child) for each in Path("/proc/self/task").iterdir() for child in _children(each)]
        return cls(device, bytes.fromhex(said["question"]), bytes.fromhex(said["answer"]), said, children=children)

    def prepare(self, config: Config, handlers: Sequence[Handler], options: set[str], *, is_able: bool) -> bool:
        """Note whether a mount with these options can be handed over. Return whether it was, to this daemon.

        is_able: whether nothing else keeps it from that. Raise Refused if it was handed over and cannot be kept.
        """
        if not is_able:
            self.lack = "it is one of a scratch, or in the background"
        elif not _resends():
            self.lack = f"Linux {os.uname().release} sends no request again, as Linux 6.9 does"
        self.options = sorted(options)
        if not self.state:
            return False
        folders = {str(number): prefix for number, prefix in enumerate(passed_folders(config, handlers))}
        others = any(folders.get(number) != kept[0] for number, kept in self.state["passed"]["folders"].items())
        flushes = can_be_written(each for each in handlers if each.source.type != "filesystem")
        if self.lack or others or self.state["options"] != self.options or (self.state["is_unflushed"] and flushes):
            os.close(self.device)  # what waits for the daemon before fails now
            for number in passed_files.descriptors(self.state["passed"]):
                os.close(number)
            raise Refused(self.lack or "its options or its folders are others now")
        return True

    def greet(self, device: int, serve: Callable[[], Awaitable[None]]) -> None:
        """Let libfuse be greeted. Raise Refused if it agrees on something else than the kernel acts upon.

        device: the descriptor that libfuse reads, which stands for the connection. serve: serves that until the
        greeting is answered.
        """
        signal.signal(SIGNAL, lambda _number, _frame: None)  # until `hear`: by itself it kills
        if self.lack:
            return
        self.device = device
        connection = os.dup(device)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with ours:
                with theirs:
                    question = self.question or os.read(connection, _LARGEST_GREETING)
                    os.dup2(theirs.fileno(), device, inheritable=False)
                ours.send(question)
                trio.run(serve)
                answer = ours.recv(_LARGEST_GREETING)
            os.dup2(connection, device, inheritable=False)
            if self.question and answer != self.answer:
                raise Refused("this libfuse agrees on something else with the kernel")
            if not self.question:
                os.write(connection, answer)
        finally:
            os.close(connection)
        self.question, self.answer = question, answer

    async def restore(self, files: FileSystem, operations: Operations) -> None:
        """Let the kernel go on with what it holds, and have it send again what the daemon before has not answered.

        An open file whose source has another version by now, or does not answer, is stale from now on.
        """
        if not self.state:
            return
        for number, path, version, lookups in self.state["inodes"]:
            files.inodes.hold(number, tuple(path), version, lookups)
            self._expire(number)
        passed_files.restore(self.state["passed"], files, operations, self._expire)
        files.is_unflushed = self.state["is_unflushed"]
        files.handles.begin_at(self.state["next_file"])
        files.directories.begin_at(self.state["next_directory"])
        with trio.move_on_after(_OPENED_WITHIN):
            async with trio.open_nursery() as nursery:
                for handle, inode in self.state["files"]:
                    nursery.start_soon(_reopen, files, handle, inode)
        self.state = {}
        os.write(self.device, _RESEND)

    def _expire(self, inode: int) -> None:
        """Have the kernel ask for the attributes of an inode again. With another size or time it drops its pages.

        What counts its versions, as the state of the mount does, counts from the beginning in each daemon, and may give
        a number to another content. (Its pages cannot be dropped now: one may wait for a read that nobody answers yet.)
        """
        with suppress(FileNotFoundError):  # the kernel has just forgotten it
            os.write(self.device, _ATTRIBUTES.pack(_ATTRIBUTES.size, 2, 0, inode, -1, 0))

    def keep(self, files: FileSystem, operations: Operations, notifier: Notifier, watchers: Watchers) -> None:
        """Note what the kernel holds, for the next daemon. Kill the notifier, which would answer requests for it."""
        notifier.kill()
        self.state = {
            "question": self.question.hex(),
            "answer": self.answer.hex(),
            "options": self.options,
            "inodes": [*files.inodes.counted()],
            "files": [*files.handles.numbered()],
            "next_file": files.handles.next,
            "next_directory": files.directories.next,
            "passed": passed_files.keep(files, operations),
            "is_unflushed": files.is_unflushed,
            "watchers": watchers.kept(),
        }

    def start_next(self) -> NoReturn:
        """Become the next daemon. Raise OSError."""
        state = os.memfd_create("bbfs-handover", 0)
        with os.fdopen(os.dup(state), "wb") as file:
            file.write(json.dumps(self.state).encode())
        for number in (self.device, *passed_files.descriptors(self.state["passed"])):
            os.set_inheritable(number, True)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, SIGNAL):
            signal.signal(number, signal.SIG_DFL)  # a program inherits what is ignored
        environ = os.environ | {VARIABLE: f"{self.device} {state}"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ)


def _children(task: Path) -> list[str]:
    """Return the processes that a thread has started. A kernel without CONFIG_PROC_CHILDREN lists none."""
    with suppress(FileNotFoundError):
        return (task / "children").read_text().split()
    return []


async def _reap(child: int) -> None:
    """Wait for the end of a process that the daemon before has started, which stays a zombie otherwise."""
    ended = os.pidfd_open(child)
    try:
        await trio.lowlevel.wait_readable(ended)
        os.waitpid(child, 0)  # noqa: ASYNC222 - it has ended
    finally:
        os.close(ended)


async def _reopen(files: FileSystem, handle: int, inode: int) -> None:
    try:
        found = await answered(files.open_files.open(inode), files.open_files.open, inode)
    except BbfsError as error:
        log.info("a file that was open is stale now: %s", error)
        return
    files.open_files.renumber(found, handle)


async def begin(
    handed: Handover | None,
    files: FileSystem,
    operations: Operations,
    quiet: Quiet,
    ended: trio.Event,
    nursery: trio.Nursery,
) -> None:
    """Take over what the kernel holds, and hear in the nursery when the next daemon is to."""
    if handed is not None:
        for child in handed.children:
            nursery.start_soon(_reap, child)
        nursery.start_soon(hear, handed, quiet, ended)
        await handed.restore(files, operations)


async def hear(handover: Handover, quiet: Quiet, ended: trio.Event) -> None:
    """Set an event when the next daemon is to begin."""
    with trio.open_signal_receiver(SIGNAL) as received:
        async for _ in received:
            if handover.lack:
                log.error("%s: the mount cannot be handed over: %s", SIGNAL.name, handover.lack)
                continue
            if busy := await quiet.begins():
                log.error("%s: the mount is not handed over now: %s; it goes on as it is", SIGNAL.name, busy)
                continue
            log.info("%s: handing the mount over", SIGNAL.name)
            handover.is_wanted = True
            ended.set()
