"""Running programs on a mount, each within a bound that cannot take the test run along.

A system call on a FUSE mount can wait for as long as the daemon lets it, and the waiting process may not even die of
SIGKILL meanwhile. So a test never touches a mount itself: a program of its own does, and is given up when its time is
over. Not even `cwd=` may name a mount: the child would enter it before it becomes the program, while the parent waits.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from random import SystemRandom

import forked_daemon

DEFAULT_TIMEOUT = 60.0
"""Seconds for a program on a busy machine: fewer than a source has, so one that waits for a source that hangs fails."""
KILL_WAIT = 3.0
SERVER_START = 30.0
"""Seconds until a server of a test has printed its URL."""
POLL = 0.01


@dataclass(frozen=True, slots=True)
class Done:
    """How a program ended: exit status (negative for a signal), and what it wrote."""

    status: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode()


class Program:
    """A program under way, in a session of its own."""

    def __init__(self, *command: str | Path, env: dict[str, str] | None = None) -> None:
        self.command = [os.fspath(word) for word in command]
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})},
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait(self, timeout: float = DEFAULT_TIMEOUT) -> Done:
        """Its end. Raises AssertionError, and kills it, when that does not come within `timeout` seconds."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as expired:
            state = _state(self.pid)
            self.kill()
            said = (expired.stdout or b"") + (expired.stderr or b"")
            raise AssertionError(
                f"{self.command} did not end within {timeout:g} s ({state}); it said {said[-1000:]!r}"
            ) from None
        return Done(self.process.returncode, out, err)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it and whatever it started; where even SIGKILL does not help in time, leave it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(KILL_WAIT)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


def run(
    *command: str | Path, timeout: float = DEFAULT_TIMEOUT, status: int | None = 0, env: dict[str, str] | None = None
) -> Done:
    """Run a program to its end. status: the one it must end with, None for any. Raises AssertionError."""
    return _checked(Program(*command, env=env).wait(timeout), command, status)


def _checked(done: Done, command: Sequence[str | Path], status: int | None) -> Done:
    if status is not None and done.status != status:
        shown = done.err.decode(errors="replace") or done.out[-500:].decode(errors="replace")
        raise AssertionError(f"{list(map(str, command))} ended with {done.status}, not {status}: {shown}")
    return done


def bbfs(
    *arguments: str | Path, timeout: float = DEFAULT_TIMEOUT, status: int | None = 0,
    env: Mapping[str, str] | None = None, directory: Path | None = None,
) -> Done:  # fmt: skip
    """Run `bbfs ARGUMENTS` to its end, as `run` does a program, in a process that need not import it first."""
    words, environ = [*map(str, arguments)], {**os.environ, "LC_ALL": "C.UTF-8", **(env or {})}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = forked_daemon.start(words, environ, out.fileno(), err.fileno(), directory and str(directory))
        try:
            number = started.wait(timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            raise AssertionError(f"bbfs {words} did not end within {timeout:g} s") from None
        out.seek(0)
        err.seek(0)
        return _checked(Done(number, out.read(), err.read()), ["bbfs", *words], status)


def shell(
    script: str, *arguments: str | Path, directory: Path | None = None, timeout: float = DEFAULT_TIMEOUT,
    status: int | None = 0, env: dict[str, str] | None = None,
) -> Done:  # fmt: skip
    """Run a bash script, in `directory` if given; a failure anywhere in it is a failure of the whole."""
    enter = [] if directory is None else ["env", "-C", directory]
    words = [*enter, "bash", "-euo", "pipefail", "-c", script, "bash", *arguments]
    return run(*words, timeout=timeout, status=status, env=env)


PACKAGES = "import site; site.main(); "
"""What a program that uses installed packages begins with."""


def python(code: str, *arguments: str | Path, timeout: float = DEFAULT_TIMEOUT, status: int | None = 0) -> Done:
    """Run a Python program of a few lines; `sys` and `os` are imported. It has the standard library only."""
    return run(sys.executable, "-I", "-S", "-c", f"import os, sys\n{code}", *arguments, timeout=timeout, status=status)


_SAVE = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
os.pread(descriptor, 9, 0)
print(flush=True)
input()
os.ftruncate(descriptor, 0)
os.pwrite(descriptor, sys.argv[2].encode(), 0)
os.close(descriptor)
"""
_WRITERS = """
import json, subprocess, sys
save, then, *saves = sys.argv[1:]
pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
writers = [
    subprocess.Popen([sys.executable, "-c", save, *each], text=True, **pipes) for each in zip(saves[::2], saves[1::2])
]
for writer in writers:
    writer.stdout.readline()
exec(then)
told = [writer.communicate("\\n", timeout=20)[1] for writer in writers]
assert all("Stale file handle" in each for each in told if each), told
print(json.dumps([each != "" for each in told]))
"""


def conflicts_of(*saves: tuple[str | Path, str], then: str = "") -> list[bool]:
    """Let programs open and read files, and then save each its text, one after another. Return which got ESTALE.

    then: a statement to execute once all have read.
    """
    words = [each for save in saves for each in save]
    return json.loads(run(sys.executable, "-c", _WRITERS, _SAVE, then, *words, timeout=60).out)


def errno_of(operation: str, *arguments: str | Path, timeout: float = DEFAULT_TIMEOUT) -> str:
    """The name of the errno that a Python expression over `sys.argv` ends with, or `OK` and its value.

    Where one number has two names, it is the one of the error table in docs/semantics.md.
    """
    code = f"""
import errno
try:
    print("OK", {operation})
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    answer = python(code, *arguments, timeout=timeout).text.strip()
    return {"ENOTSUP": "EOPNOTSUPP", "EWOULDBLOCK": "EAGAIN"}.get(answer, answer)


def wait_until(condition: Callable[[], object], what: str, timeout: float = DEFAULT_TIMEOUT) -> None:
    """Look at a condition again and again until it holds. Raises AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}")
        time.sleep(POLL)


def _state(pid: int) -> str:
    try:
        wchan = Path(f"/proc/{pid}/wchan").read_text()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "gone"
    return f"state {fields[0]}, waiting in {wchan or 'nothing'}"


def waits_in_fuse(pid: int) -> bool:
    """Whether a program waits for the answer to a FUSE request."""
    try:
        return "request_wait_answer" in Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return False


def children_of(pid: int | str) -> list[int]:
    """Return the processes that the threads of a process have started, as far as these threads are still there."""
    found: list[int] = []
    for children in glob(f"/proc/{pid}/task/*/children"):
        with suppress(OSError):
            found += map(int, Path(children).read_text().split())
    return found


def zombies_of(pid: int | str) -> list[int]:
    """Return the children of a process that have ended, and that it has not reaped."""
    found: list[int] = []
    for child in children_of(pid):
        with suppress(OSError):
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                found.append(child)
    return found


def descriptors_of(pid: int | str) -> dict[int, str]:
    """Return where the descriptors of a process lead, but for those that it closes meanwhile."""
    found: dict[int, str] = {}
    for descriptor in glob(f"/proc/{pid}/fd/*"):
        with suppress(OSError):
            found[int(os.path.basename(descriptor))] = os.readlink(descriptor)
    return found


def started_server(*line: str | Path, errors: int | None = None) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server that prints its URL. Return its process, in a session of its own, and the URL."""
    process = subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
    )
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], SERVER_START)
    assert ready, f"the server did not start: {line}"
    url = process.stdout.readline().decode().strip()
    assert url
    return process, url


@contextmanager
def printed_url(*line: str | Path, errors: int | None = subprocess.DEVNULL, ends: bool = False) -> Iterator[str]:
    """Run a server until the end of the block. Yield the URL that it prints. ends: with status 0, after SIGTERM."""
    process, url = started_server(*line, errors=errors)
    try:
        yield url
        if ends:
            process.terminate()
            assert process.wait(SERVER_START) == 0
    finally:
        process.kill()
        process.communicate(timeout=SERVER_START)


def free_port() -> int:
    """Return a port on which nothing listens, below those that the kernel gives to connections meanwhile (ip(7))."""
    while True:
        port = SystemRandom().randrange(10_000, 32_768)
        with suppress(OSError), closing(socket.create_server(("127.0.0.1", port))):
            return port


def answers(port: int) -> bool:
    """Return whether a server listens on a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
