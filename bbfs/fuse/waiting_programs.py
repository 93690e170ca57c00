"""Programs that wait for the answer to a request: what /proc shows of the thread that sent it (proc(5)).

**Interrupts** (S22). The kernel can take a waiting program out of a FUSE request only with the daemon's help, and
pyfuse3 does not pass its INTERRUPT requests on. But a request names the thread that waits, and a signal for it shows in
`/proc/PID/status`: pending, and neither blocked nor ignored. Then the wait is cancelled here and the request answered
`EINTR`.

**System calls** (S12). The kernel sends GETATTR whenever attributes have expired: also for the permission check of a
path, and for a `statx` of the mode alone. The request does not say why, but `/proc/PID/syscall` shows the system call
(proc_pid_syscall(5)). Where it does not (Yama, another owner), the command line of the program may tell. All other
cases count as `Wanted.ALL`: the size is loaded. Nor does LOOKUP say whether a program creates the name or goes through
it to another one (S22, S34): the path that the system call points to does, in `/proc/PID/mem` (proc_pid_mem(5)).

The event loop reads no file of /proc that takes the memory lock of the program: a thread that has the lock may wait for
the daemon. `cmdline` and `mem` take it, so another thread reads those.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from bbfs.vfs.filesystem import Wanted
from bbfs.vfs.names import Aim

LOOK_EVERY = 0.25
"""Seconds between two looks at the waiting programs."""
_MASKS = frozenset((b"SigPnd", b"ShdPnd", b"SigBlk", b"SigIgn", b"SigCgt"))
"""The signals of a thread in its file `status` of /proc, each as a mask."""


def _mask(*signals: int) -> int:
    return sum(1 << (number - 1) for number in signals)


_HARMLESS = _mask(
    signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGPROF, signal.SIGVTALRM, signal.SIGIO,
    signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip
"""Signals of a program's ordinary work, or that stop it for a while: they end no wait. (A program that is stopped while
it waits stops when the wait is over.)"""
_ENDING = _mask(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end a wait although the program handles them. Any other that it handles, such as the timer of a progress
meter, would make calls fail that never fail on a local disk."""


def wants_out(pid: int, proc: Path = Path("/proc")) -> bool:
    """Return whether the thread `pid` has a signal that should end its wait, or is gone."""
    if pid <= 0:  # a process of another PID namespace, which has no number here
        return False
    try:
        # Bytes: the first line is the name of the program, which need not be text.
        status = (proc / str(pid) / "status").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:  # another user's process under hidepid (proc(5)), or no descriptor is free
        return False
    masks: dict[bytes, int] = {}
    for line in status.split(b"\n"):
        key, _, value = line.partition(b":")
        if key in _MASKS:
            masks[key] = int(value, 16)
    pending = (masks[b"SigPnd"] | masks[b"ShdPnd"]) & ~masks[b"SigBlk"] & ~masks[b"SigIgn"] & ~_HARMLESS
    return bool(pending & (~masks.get(b"SigCgt", 0) | _ENDING))


def name_of(thread: int) -> str | None:
    """Return the name of a thread (proc_pid_comm(5)), or None. Its command line could not be read without waiting."""
    if thread <= 0:
        return None
    try:
        return Path("/proc", str(thread), "comm").read_bytes().decode("utf-8", "replace").rstrip("\n")
    except OSError:
        return None


def _is_there(pid: int) -> bool:
    return Path("/proc", str(pid)).exists()


class Interrupts:
    """The requests that wait, with the threads that sent them. `run` looks at them all, in one task."""

    def __init__(self) -> None:
        self._waiting: dict[trio.CancelScope, tuple[int, bool, float, tuple[Any, ...]]] = {}
        self._some = trio.Event()

    @contextmanager
    def watching(self, pid: int, *, until_gone: bool = True, what: tuple[Any, ...] = ()) -> Iterator[trio.CancelScope]:
        """Yield a scope that is cancelled when the thread `pid` should not wait any longer.

        until_gone: whether the end of the thread also cancels it; not so if another thread may be waiting. what: the
        inode that the request is about, and the name in it if it is about one.
        """
        with trio.CancelScope() as scope:
            self._waiting[scope] = (pid, until_gone, time.monotonic(), what)
            self._some.set()
            try:
                yield scope
            finally:
                del self._waiting[scope]

    def waiting(self) -> list[tuple[int, float, tuple[Any, ...]]]:
        """Return the threads that wait (0: unknown), the longest first; for how many seconds each has, and `what`."""
        now = time.monotonic()
        return [(pid, now - since, what) for pid, _, since, what in self._waiting.values()]

    async def run(self) -> None:
        while True:
            await self._some.wait()
            await trio.sleep(LOOK_EVERY)
            if not self._waiting:
                self._some = trio.Event()
            for scope, (pid, until_gone, *_) in list(self._waiting.items()):
                if wants_out(pid) and (until_gone or _is_there(pid)):
                    scope.cancel()


# -- system calls ------------------------------------------------------------------------------------------------------

_STATX = "statx"
SYSTEM_CALLS: dict[str, dict[int, Wanted | str]] = {
    "x86_64": {
        332: _STATX,
        **dict.fromkeys((21, 269, 439), Wanted.EXISTENCE),  # access, faccessat, faccessat2
        **dict.fromkeys((191, 192, 194, 195), Wanted.XATTRS),  # getxattr, lgetxattr, listxattr, llistxattr
        **dict.fromkeys((464, 465), Wanted.XATTRS),  # getxattrat, listxattrat
        **dict.fromkeys((76, 82, 86, 264, 265, 316), Wanted.CHANGE),  # truncate, rename, link … renameat2
        **dict.fromkeys((90, 92, 94, 260, 268, 452), Wanted.CHANGE),  # chmod, chown, lchown … fchmodat2
        **dict.fromkeys((132, 235, 261, 280), Wanted.CHANGE),  # utime, utimes, futimesat, utimensat
        **dict.fromkeys((188, 189, 197, 198, 463, 466), Wanted.CHANGE),  # setxattr … removexattrat
    },
    "aarch64": {
        291: _STATX,
        **dict.fromkeys((48, 439), Wanted.EXISTENCE),
        **dict.fromkeys((8, 9, 11, 12), Wanted.XATTRS),
        **dict.fromkeys((464, 465), Wanted.XATTRS),
        **dict.fromkeys((37, 38, 45, 53, 54, 88, 276, 452), Wanted.CHANGE),
        **dict.fromkeys((5, 6, 14, 15, 463, 466), Wanted.CHANGE),
    },
}
"""The system calls that may need no content, and those that change a file by its name, by number. `open` is not among
them: it loads the content anyway, and `sendfile` from the open file reads no further than the size that the kernel had
before the open."""
PATHS: dict[str, dict[int, tuple[int, ...]]] = {
    "x86_64": {
        **dict.fromkeys((2, 4, 6, 21, 59, 76, 80, 83, 84, 85, 87, 89, 90, 92, 94, 133, 137), (0,)),
        **dict.fromkeys((188, 189, 191, 192, 194, 195), (0,)),  # setxattr … llistxattr
        **dict.fromkeys((88, 254, 257, 258, 259, 260, 262, 263, 267, 268, 269, 280, 332, 437, 439, 452), (1,)),
        **dict.fromkeys((82, 86), (0, 1)),  # rename, link
        **dict.fromkeys((264, 265, 316), (1, 3)),  # renameat, linkat, renameat2
        266: (2,),  # symlinkat
    },
    "aarch64": {
        **dict.fromkeys((5, 6, 8, 9, 11, 12, 43, 45, 49, 221), (0,)),
        **dict.fromkeys((27, 33, 34, 35, 48, 53, 54, 56, 78, 79, 88, 291, 437, 439, 452), (1,)),
        **dict.fromkeys((37, 38, 276), (1, 3)),
        36: (2,),
    },
}
"""The system calls that take paths, by number: which of their arguments those are."""
OPENS: dict[str, dict[int, int]] = {"x86_64": {2: 1, 257: 2}, "aarch64": {56: 2}}
"""`open` and `openat`, by number: which of their arguments the flags are."""
MAKES: dict[str, dict[int, int]] = {
    "x86_64": {82: 1, 83: 0, 86: 1, 88: 1, 133: 0, 258: 1, 259: 1, 264: 3, 265: 3, 266: 2, 316: 3},
    "aarch64": {33: 1, 34: 1, 36: 2, 37: 3, 38: 3, 276: 3},
}
"""`rename`, `mkdir`, `link`, `symlink`, `mknod` and those like them, by number: which argument the new path is."""
_PATH_MAX = 4096
_CONTENT_FIELDS = 0x020 | 0x040 | 0x080 | 0x200 | 0x400
"""STATX_ATIME, MTIME, CTIME, SIZE and BLOCKS (linux/stat.h): what a load may change."""
_LOW = 1 << 32
"""Address below which the stack of a program of 32 bits is, whose calls have other numbers. A worker of the kernel has
none (0)."""
_MOST = 1 << 63
"""Addresses must be less: pread(2) takes them as an offset."""
_PAUSES = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
"""Seconds before each look at a thread that has sent its request and is not asleep yet."""
_BY_NAME = {b"getfattr\n": Wanted.XATTRS, b"stat\n": Wanted.ALL}
"""Programs that need other fields than they ask for, by name: getfattr(1) asks for all and needs the type; stat(1) does
not ask for the size, and calls a file empty (`%F`)."""
_DROPPED = b" (deleted)"
"""The end of a link of /proc/PID/fd whose name the kernel has dropped (proc_pid_fd(5))."""
_LONGEST = 1 << 16
"""Bytes read of a file of /proc. A longer command line counts as cut off."""
_ARGUMENTS_WITHIN = 0.5
"""Seconds for the command line of a program."""
_LS_LETTERS = frozenset(b"1aAbBCdFhHiLmNpqQrRUvxX")
_LS_WORDS = frozenset(
    b"""
    --all --almost-all --classify --color --directory --escape --file-type --group-directories-first
    --hide-control-chars --hyperlink --indicator-style --inode --literal --quote-name --quoting-style --recursive
    """.split()
)
"""Options of ls(1) that show neither sizes nor times, and do not sort by them."""


class SystemCalls:
    """The system calls of waiting programs. proc: where proc(5) is mounted. machine: as `uname -m` names it."""

    def __init__(self, proc: Path = Path("/proc"), machine: str = os.uname().machine) -> None:
        self._proc = str(proc)
        self._calls = SYSTEM_CALLS.get(machine, {})
        self._paths = PATHS.get(machine, {})
        self._opens = OPENS.get(machine, {})
        self._makes = MAKES.get(machine, {})
        try:
            self._numbers_match = os.readlink(f"{proc}/self") == str(os.getpid())
        except OSError:
            self._numbers_match = False  # no /proc, or that of another PID namespace

    async def wanted(self, thread: int) -> Wanted:
        """Return what a thread that waits for attributes has asked for."""
        if thread <= 0 or not self._numbers_match:
            return Wanted.ALL
        try:
            wanted = _meant(await self._system_call(thread), self._calls, self._opens)
            name = self._read(thread, "comm")
        except PermissionError:
            return await self._by_arguments(thread)
        except OSError:
            return Wanted.ALL
        return _BY_NAME.get(name, wanted)

    async def aim(self, thread: int, name: bytes) -> Aim:
        """Return what a thread that waits for a lookup of a name does with it."""
        if thread <= 0 or not self._numbers_match:
            return Aim.UNKNOWN
        with trio.move_on_after(_ARGUMENTS_WITHIN):
            try:
                call = _call(await self._system_call(thread))
                if call is None:
                    return Aim.UNKNOWN
                number, arguments = call
                addresses = {position: arguments[position] for position in self._paths.get(number, ())}
                paths = await trio.to_thread.run_sync(self._texts, thread, addresses, abandon_on_cancel=True)
            except OSError:
                return Aim.UNKNOWN
            if not paths:
                return Aim.UNKNOWN
            names = {position: [each for each in path.split(b"/") if each] for position, path in paths.items()}
            ending = [position for position, path in names.items() if path[-1:] == [name]]
            if ending:
                creates = number in self._opens and arguments[self._opens[number]] & os.O_CREAT
                makes = ending == [self._makes.get(number)]
                return Aim.CREATES if creates else Aim.MAKES if makes else Aim.OTHER
            return Aim.PASSES if any(name in path for path in names.values()) else Aim.OTHER
        return Aim.UNKNOWN

    def _texts(self, thread: int, addresses: dict[int, int]) -> dict[int, bytes]:
        """Return the texts in the memory of a thread, up to their NUL. addresses: by argument. Raise OSError."""
        if not addresses:
            return {}
        descriptor = os.open(f"{self._proc}/{thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = {each: os.pread(descriptor, _PATH_MAX, at) for each, at in addresses.items() if at < _MOST}
        finally:
            os.close(descriptor)
        return {each: text.partition(b"\0")[0] for each, text in found.items() if b"\0" in text}

    def _read(self, thread: int, name: str) -> bytes:
        descriptor = os.open(f"{self._proc}/{thread}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _LONGEST)
        finally:
            os.close(descriptor)

    async def _system_call(self, thread: int) -> bytes:
        """Return the line of a thread. Raise OSError."""
        line = b""
        for pause in _PAUSES:
            if pause:
                await trio.sleep(pause)
            line = self._read(thread, "syscall")
            if not line.startswith(b"running"):
                break
        return line

    async def _by_arguments(self, thread: int) -> Wanted:
        """Return what the command line of a program tells."""
        with trio.move_on_after(_ARGUMENTS_WITHIN):
            try:
                line = await trio.to_thread.run_sync(self._read, thread, "cmdline", abandon_on_cancel=True)
            except OSError:
                return Wanted.ALL
            return Wanted.ALL if len(line) == _LONGEST else _of_program(line.split(b"\0")[:-1])
        return Wanted.ALL


def _call(line: bytes) -> tuple[int, list[int]] | None:
    """Return number and arguments of a line of /proc/PID/syscall: these, the stack pointer, the program counter."""
    fields = line.split()
    if len(fields) != 9 or int(fields[7], 16) < _LOW:  # "running", "-1 …" outside a call
        return None
    return int(fields[0]), [int(field, 16) for field in fields[1:7]]


def _meant(line: bytes, calls: dict[int, Wanted | str], opens: dict[int, int]) -> Wanted:
    """Return what a line of /proc/PID/syscall asks for. opens: by number, which argument the flags are."""
    found = _call(line)
    if found is None:
        return Wanted.ALL
    number, arguments = found
    if number in opens:
        flags = arguments[opens[number]]
        return Wanted.CHANGE if flags & os.O_ACCMODE and not flags & os.O_TRUNC else Wanted.ALL
    call = calls.get(number, Wanted.ALL)
    if isinstance(call, Wanted):
        return call
    return Wanted.ALL if arguments[3] & _CONTENT_FIELDS else Wanted.EXISTENCE


def _of_program(words: list[bytes]) -> Wanted:
    """Return what a program with these words is known to need; `Wanted.ALL` for any other."""
    name = os.path.basename(words[0]) if words else b""
    if name == b"getfattr":
        return Wanted.XATTRS
    if name != b"ls":
        return Wanted.ALL
    for word in words[1:]:
        if word == b"--":
            break
        known = word.partition(b"=")[0] in _LS_WORDS if word.startswith(b"--") else _LS_LETTERS.issuperset(word[1:])
        if word.startswith(b"-") and not known:
            return Wanted.ALL
    return Wanted.EXISTENCE


def has_open(pid: int, path: str) -> bool:
    """Return whether a program has a descriptor that can write a file. path: its end, from the mount's root.

    False if unknown. Nothing here touches the file: the kernel makes the text of these links from the names that it has
    cached, and the flags are its own. It adds a word to a name that it has dropped since the open, as it does with that
    of an expired file when the daemon notifies it of another version.
    """
    end = os.fsencode("/" + path)
    try:
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            return any(
                _link(each.path).removesuffix(_DROPPED).endswith(end) and _can_write(pid, each.name)
                for each in descriptors
            )
    except OSError:
        return False


def _can_write(pid: int, descriptor: str) -> bool:
    """Return whether a descriptor of a program can write, by its flags (proc_pid_fdinfo(5))."""
    try:
        lines = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_bytes().splitlines()
    except OSError:
        return False
    return any(line.startswith(b"flags:") and int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY for line in lines)


def _link(path: str) -> bytes:
    try:
        return os.fsencode(os.readlink(path))
    except OSError:
        return b""
