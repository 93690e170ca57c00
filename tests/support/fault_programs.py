"""The programs of a model of writing with faults. Run as a script: each program is a process of its own on the mount.

`python fault_programs.py FILE`: a JSON object with `programs` (a list of steps by program), `directory` (on the mount),
`codec`, `locks` (a directory for locks among the programs), `log` (a directory for what they were told), `state` (a
file whose first byte is odd while no mount is there), `bound` (seconds for a program in all).
"""

import contextlib
import errno
import fcntl
import json
import mmap
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from fault_contents import CODECS, Records, Torn, names_in, record

_PIECE = 1 << 16
_GONE = 0.01
"""Seconds between two looks if the mount is back."""


class Failed(Exception):
    """A step that a system call has ended. stage: the call."""

    def __init__(self, stage: str, error: OSError) -> None:
        super().__init__(stage)
        self.stage = stage
        self.error = errno.errorcode.get(error.errno or 0, str(error.errno))


@contextlib.contextmanager
def calling(stage: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failed(stage, error) from None


class Worker:
    """One program. generation: of the mount; odd while there is none."""

    def __init__(self, name: str, given: dict[str, Any]) -> None:
        self.name = name
        self._given = given
        self._codec = CODECS[given["codec"]]
        self._locks = {}
        self._log = os.open(os.path.join(given["log"], name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(given["state"], "rb") as file:
            self._state = mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ)
        self._number = 0
        self._wrote: Records = ()

    @property
    def generation(self) -> int:
        return self._state[0]

    def path(self, name: str) -> str:
        return os.path.join(self._given["directory"], name)

    def run(self, steps: list[dict[str, Any]]) -> None:
        for self._number, step in enumerate(steps):
            time.sleep(step["pause"])
            while self.generation % 2:
                time.sleep(_GONE)
            self._step(step)

    def _step(self, step: dict[str, Any]) -> None:
        action: Callable[[dict[str, Any]], dict[str, Any]] = getattr(self, step["action"])
        with self._locked(step):
            told: dict[str, Any] = {"who": self.name, "number": self._number, **step}
            self._wrote = ()
            generation, told["began"] = self.generation, time.monotonic()
            try:
                told |= action(step)
            except Failed as failed:
                told |= {"error": failed.error, "stage": failed.stage}
            except Torn as torn:
                told["torn"] = str(torn)
            told["ended"] = time.monotonic()
            told["interrupted"] = bool(generation % 2) or self.generation != generation
            if self._wrote:
                told["wrote"] = self._wrote
            os.write(self._log, json.dumps(told).encode() + b"\n")

    @contextlib.contextmanager
    def _locked(self, step: dict[str, Any]) -> Iterator[None]:
        """Hold the locks of the names that a step changes, against the other programs of this machine."""
        with contextlib.ExitStack() as stack:
            for name in sorted(step["locks"]):
                file = stack.enter_context(open(os.path.join(self._given["locks"], name), "w"))
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _new(self, step: dict[str, Any]) -> tuple[str, str]:
        name = f"{self.name}.{self._number}"
        return name, record(name, step["size"])

    def _put(self, descriptor: int, step: dict[str, Any], names: Records, data: bytes) -> None:
        """Write a whole content and close. Note what was written once a close or fsync is what fails."""
        try:
            with calling("write"):
                while data:
                    data = data[os.write(descriptor, data) :]
            self._wrote = names
            if step["syncs"]:
                with calling("fsync"):
                    os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            raise
        with calling("close"):
            os.close(descriptor)

    def _content(self, descriptor: int) -> bytes:
        pieces: list[bytes] = []
        with calling("read"):
            while piece := os.read(descriptor, _PIECE):
                pieces.append(piece)
        return b"".join(pieces)

    # -- steps -------------------------------------------------------------------------------------------------------

    def read(self, step: dict[str, Any]) -> dict[str, Any]:
        with calling("open"):
            descriptor = os.open(self.path(step["name"]), os.O_RDONLY)
        try:
            data = self._content(descriptor)
        finally:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        return {"read": names_in(self._codec, data, step["name"])}

    def list(self, step: dict[str, Any]) -> dict[str, Any]:
        with calling("list"), os.scandir(self._given["directory"]) as entries:
            return {"listed": sorted(each.name for each in entries)}

    def stat(self, step: dict[str, Any]) -> dict[str, Any]:
        with calling("stat"):
            return {"size_seen": os.stat(self.path(step["name"])).st_size}

    def append(self, step: dict[str, Any]) -> dict[str, Any]:
        """`>>`"""
        name, text = self._new(step)
        with calling("open"):
            descriptor = os.open(self.path(step["name"]), os.O_WRONLY | os.O_APPEND)
        self._put(descriptor, step, (name,), text.encode())
        return {}

    def rewrite(self, step: dict[str, Any]) -> dict[str, Any]:
        """Read a file and write it again in place with one more record, by one descriptor."""
        name, text = self._new(step)
        with calling("open"):
            descriptor = os.open(self.path(step["name"]), os.O_RDWR)
        try:
            old = self._codec.decode(self._content(descriptor))
            names = (*names_in(self._codec, self._codec.encode(step["name"], old)), name)
            if not old:
                raise Torn("a file that no program empties is empty")
            with calling("write"):
                os.ftruncate(descriptor, 0)
                os.lseek(descriptor, 0, os.SEEK_SET)
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            raise
        self._put(descriptor, step, names, self._codec.encode(step["name"], old + text))
        return {}

    def redirect(self, step: dict[str, Any]) -> dict[str, Any]:
        """`>`"""
        name, text = self._new(step)
        with calling("create"):
            descriptor = os.open(self.path(step["name"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self._put(descriptor, step, (name,), self._codec.encode(step["name"], text))
        return {}

    def replace(self, step: dict[str, Any]) -> dict[str, Any]:
        """Write a file beside it, which then gets its name."""
        name, text = self._new(step)
        beside = self.path(f".tmp-{self.name}-{self._number}")
        with calling("create"):
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._put(descriptor, step, (name,), self._codec.encode(step["name"], text))
        try:
            with calling("rename"):
                os.rename(beside, self.path(step["name"]))
        except Failed as failed:
            return {"error": failed.error, "stage": failed.stage, "held": self._held(beside)}
        return {}

    def _held(self, path: str) -> bool:
        """Return whether a temporary file still has its content. Remove it."""
        try:
            with open(path, "rb") as file:
                held = names_in(self._codec, file.read())
            os.unlink(path)
        except (OSError, Torn):
            return False
        return held == self._wrote

    def backup(self, step: dict[str, Any]) -> dict[str, Any]:
        """Rename the old file to a backup, write a new one, and remove the backup."""
        name, text = self._new(step)
        path = self.path(step["name"])
        with calling("set aside"):
            os.rename(path, path + "~")
        try:
            with calling("create"):
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            self._put(descriptor, step, (name,), self._codec.encode(step["name"], text))
        except Failed:
            with contextlib.suppress(OSError):
                os.rename(path + "~", path)  # as editors do
            raise
        with calling("remove the backup"):
            os.unlink(path + "~")
        return {}

    def remove(self, step: dict[str, Any]) -> dict[str, Any]:
        with calling("unlink"):
            os.unlink(self.path(step["name"]))
        return {}

    def move(self, step: dict[str, Any]) -> dict[str, Any]:
        with calling("rename"):
            os.rename(self.path(step["name"]), self.path(step["to"]))
        return {}


def _become(name: str, given: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    """Run a program to its end, and this process with it."""
    status = 1
    try:
        signal.alarm(given["bound"])
        Worker(name, given).run(steps)
        status = 0
    except Exception:  # noqa: BLE001 - the parent tells that it failed
        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        given = json.load(file)
    children: dict[int, str] = {}
    for name, steps in given["programs"].items():
        pid = os.fork()
        if pid == 0:
            _become(name, given, steps)
        children[pid] = name
    failed: list[str] = []
    while children:
        pid, status = os.wait()
        if os.waitstatus_to_exitcode(status):
            failed.append(f"{children[pid]}: {os.waitstatus_to_exitcode(status)}")
        del children[pid]
    sys.exit(", ".join(failed) or 0)


if __name__ == "__main__":
    main()
