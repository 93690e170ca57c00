"""What is recorded of a request: who asked, for what, with which outcome."""

import errno
import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyfuse3 import FUSEError

from bbfs.fuse.audit.trail import Record, Trail
from bbfs.fuse.waiting_programs import name_of
from bbfs.model.errors import BbfsError
from bbfs.resources.commands.table import CallTool, Put, Request
from bbfs.resources.manager import ResourceManager

T = TypeVar("T")
_PLACES = ("path", "uri", "paths", "source", "write")
"""The fields of requests of commands that say where: the first that has a value."""


def named(number: int | None) -> str:
    """Return an errno by its name."""
    return errno.errorcode.get(number or errno.EIO, str(number))


@dataclass(slots=True)
class Asked:
    """A request to record. bytes: of the content that it hands over. began: seconds of the monotonic clock."""

    operation: str
    pid: int
    uid: int | None
    command: str | None
    path: str
    to: str | None = None
    bytes: int | None = None
    began: float = field(default_factory=time.monotonic)

    def record(self, outcome: str, source: str | None, took: float | None) -> Record:
        took = time.monotonic() - self.began if took is None else took
        who = (self.pid, self.uid, self.command)
        ms = round(took * 1000, 3)
        return Record(time.time() - took, self.operation, *who, source, self.path, self.to, outcome, self.bytes, ms)


class Auditor:
    """Records requests. manager: knows the source of a path."""

    def __init__(self, trail: Trail, manager: ResourceManager) -> None:
        self.reads = trail.reads
        self._trail = trail
        self._manager = manager

    async def noted(self, asked: Asked, request: Awaitable[T]) -> T:
        """Await a request, and record it with its outcome."""
        outcome = named(errno.EINTR)  # if it is cancelled
        try:
            answer = await request
            outcome = "ok"
            return answer
        except (FUSEError, BbfsError) as error:
            outcome = named(error.errno)
            raise
        finally:
            self.note(asked, outcome)

    def note(self, asked: Asked, outcome: str = "ok", took: float | None = None) -> None:
        """Record a request that has ended. took: seconds, by default since it began."""
        self._trail.note(asked.record(outcome, self._source(asked.path), took))

    async def of_client(self, pid: int, uid: int, request: Request[Any], answer: Awaitable[None]) -> None:
        """Await the answer to a request of the control socket, and record it as one of a program."""
        may_change = request.changes or getattr(request, "confirmed", False)
        where = next(filter(None, (getattr(request, name, None) for name in _PLACES)), None)
        if where is None or not (may_change or self.reads):
            await answer
            return
        path = where if isinstance(where, str) else " ".join(where)
        if isinstance(request, CallTool):
            path = f"{path}/tool/{request.tool}"
        size = len(request.data) if isinstance(request, Put) else None
        await self.noted(Asked(request.name, pid, uid, name_of(pid), path, bytes=size), answer)

    def _source(self, path: str) -> str | None:
        with suppress(BbfsError):
            names = tuple(name for name in path.split("/") if name)
            return self._manager.tree.place(names)[0].data.id if names else None
        return None
