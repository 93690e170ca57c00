"""The daemon's control socket: one a mount. Other programs of its user watch and refresh through it.

A Unix stream socket in the user's runtime directory; the attribute `user.bbfs.control` of the mount's root is its
path. Both sides write JSON objects, one a line, in ASCII. The daemon begins with `{"bbfs": "control", "version": 1}`.
A client then sends requests, each with an `id` of its choice that all answers repeat:

    {"id": 1, "request": "watch", "paths": ["mcp-server+docs/guide"], "recursive": true}
    {"id": 2, "request": "refresh", "paths": [""]}

`bbfs.resources.commands.table` has all requests and their answers. The last answer is `{"id": 1, "ok": true}`, or
`error` with a text and `errno` with its name. A request that lasts begins with `ok`, as a watch does: it then gets
`{"id": 1, "event": "changed", "path": …, "uri": …, "source": …, "time": …}` (events: added, changed, removed; and
missed, without the rest, for a client that was too slow for some), and `{"id": 1, "note": …}` for people. It ends with
the connection. A content that is longer than a line comes in several requests with one id, each with `more` but the
last; the daemon answers each before the client sends the next one.

Only the daemon's user and root may connect. No client can make the daemon wait: a client that reads too slowly misses
events, and one that does not read at all is disconnected.
"""

import errno
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import trio

from bbfs.fuse.audit.auditor import Auditor
from bbfs.fuse.control.address import bind
from bbfs.fuse.control.link import MessageStream
from bbfs.fuse.control.messages import VERSION, peer
from bbfs.fuse.control.reload import Reloading
from bbfs.fuse.scratch.directory import Scratch
from bbfs.fuse.scratch.shown import Shown
from bbfs.model.errors import BbfsError, Denied, ProtocolViolation, ToolFailed
from bbfs.resources.catalog.record import Path
from bbfs.resources.commands import table
from bbfs.resources.commands.answers import ANSWERS, Answering
from bbfs.resources.commands.put import joined
from bbfs.resources.manager import ResourceManager
from bbfs.resources.offline.pins import Pins
from bbfs.runtime.changes import ClientQueue
from bbfs.vfs.xattrs import ExtendedAttributes

log = logging.getLogger(__name__)

MOST_PIECES = 8
"""Messages with pieces of a result that wait for a client to read them."""
_METADATA = "user.bbfs.metadata"
_GREETING = {"bbfs": "control", "version": VERSION}
Noting = Callable[[table.Request[Any], Awaitable[None]], Awaitable[None]]
"""Awaits the answer to a request, and may record it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of the clients of a control socket.

    requests: of one client under way at once, its watches included. queued: messages that wait for a client to read
    them. stuck_after: seconds after which a client that reads nothing is disconnected.
    """

    clients: int = 64
    requests: int = 256
    queued: int = 1000
    stuck_after: float = 30.0


class Control:
    """The control socket of one mount, and its pins. refresh: drops all cached state at and below a path.

    is_lower: a scratch is over the mount, so no client may change a source past it. shown: notes the versions that are
    shown for the scratches of clients. reloading: changes the sources. auditor: records the requests of clients. state:
    returns the state of the mount.
    """

    def __init__(
        self,
        manager: ResourceManager,
        refresh: Callable[[Path], None],
        mount_point: str,
        shown: Shown | None = None,
        reloading: Reloading | None = None,
        auditor: Auditor | None = None,
        *,
        state: Callable[[], dict[str, Any]] | None = None,
        is_lower: bool = False,
        limits: Limits = Limits(),
    ) -> None:
        self._manager = manager
        self._limits = limits
        self._refresh = refresh
        self._mount_point = mount_point
        self._shown = Shown() if shown is None else shown
        self._auditor = auditor
        self._is_lower = is_lower
        self._clients = 0
        self.pins = Pins(manager)
        self._answers: dict[type[table.Request[Any]], Answering] = {
            **ANSWERS,
            table.Refresh: self._refreshed,
            table.Describe: _described,
            table.NoteShown: self._noted,
            table.Pin: self._pinned,
        }
        if state is not None:
            self._answers[table.Status] = partial(_stated, state)
        if reloading is not None:
            self._answers |= {
                table.Reload: reloading.reloaded,
                table.AddSources: reloading.added,
                table.RemoveSource: reloading.removed,
            }

    async def run(self, *, task_status: trio.TaskStatus[str | None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, then remove the socket. Report its path as the task status.

        The path is None if no socket can be made; the log then has the reason.
        """
        try:
            bound, address = bind(self._mount_point, self._limits.clients)
        except OSError as error:
            log.warning("no control socket, so 'bbfs watch' and 'bbfs refresh' will not work here: %s", error)
            task_status.started(None)
            return
        try:
            with trio.socket.from_stdlib_socket(bound) as listener:
                listening = trio.SocketListener(listener)
                async with trio.open_nursery() as nursery:
                    task_status.started(address)
                    while True:
                        await self._accept(listening, nursery)
        finally:
            with suppress(OSError):
                os.unlink(address)

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        try:
            stream = await listener.accept()
        except OSError as error:
            log.warning("a client of the control socket could not be served: %s", error)
            await trio.sleep(1.0)  # out of descriptors, as a rule: some may come free
            return
        nursery.start_soon(self._serve, stream)

    async def _serve(self, stream: trio.SocketStream) -> None:
        self._clients += 1
        try:
            async with stream:
                if not _is_ours(stream):
                    return
                link = MessageStream(stream)
                noted = _as_is if self._auditor is None else partial(self._auditor.of_client, *peer(stream.socket))
                client = _Client(link, self._manager, self._answers, self._limits, noted, is_lower=self._is_lower)
                if self._clients > self._limits.clients:
                    with trio.move_on_after(1.0):
                        await MessageStream(stream).send(
                            [_GREETING, _failure(None, f"{self._limits.clients} clients are here already")]
                        )
                    return
                await client.serve()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            log.debug("a client of the control socket is gone")
        except* Exception:
            log.exception("unforeseen error on the control socket")  # the mount goes on
        finally:
            self._clients -= 1

    # -- the requests that only a mount answers ----------------------------------------------------------------------

    async def _refreshed(self, _: ResourceManager, request: table.Refresh, replies: table.Replies[Any]) -> None:
        """Refresh all paths. Raise the first error afterwards."""
        errors: list[BbfsError] = []
        for path in map(table.names, request.paths):
            try:
                self._refresh(path)
            except BbfsError as error:
                errors.append(error)
        for error in errors[:1]:
            raise error

    async def _pinned(self, _: ResourceManager, request: table.Pin, __: table.Replies[Any]) -> None:
        for path in map(table.names, request.paths):
            if not path:
                raise ProtocolViolation("expected the path of a source, or one below it")
            await self.pins.set(path, is_pinned=request.is_pinned)

    async def _noted(self, _: ResourceManager, request: table.NoteShown, replies: table.Replies[table.Begun]) -> None:
        with self._shown.noted(Scratch.of(request.scratch)):
            await replies.give(table.Begun())
            await trio.sleep_forever()  # until the client leaves


async def _described(
    manager: ResourceManager, request: table.Describe, replies: table.Replies[table.Described]
) -> None:
    """Answer with the metadata of one path, bounded as the attribute that has them. Raise BbfsError."""
    paths = [table.names(path) for path in request.paths]
    if len(paths) != 1 or not paths[0]:
        raise ProtocolViolation("expected the path of a source, or one below it")
    node = await manager.tree.find(paths[0])
    found = ExtendedAttributes(manager.tree, manager.contents).all(paths[0], node)
    await replies.give(table.Described(json.loads(found.get(_METADATA, b"{}"))))


class _Client:
    """One connected client: a reader, a writer, and a task for each request."""

    def __init__(
        self,
        link: MessageStream,
        manager: ResourceManager,
        answers: Mapping[type[table.Request[Any]], Answering],
        limits: Limits,
        noted: "Noting",
        *,
        is_lower: bool,
    ) -> None:
        self._limits = limits
        self._noted = noted
        self._link = link
        self._is_lower = is_lower
        self._manager = manager
        self._answers = answers
        self._arriving: dict[str, bytearray] = {}
        self._queue: ClientQueue[str] = ClientQueue(limits.queued, _missed)
        self._under_way = 0

    async def serve(self) -> None:
        """Serve until the client leaves or is disconnected."""
        self._answer(_GREETING)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, nursery.cancel_scope)
            try:
                while (request := await self._link.receive()) is not None:
                    self._under_way += 1
                    if self._under_way > self._limits.requests:
                        raise ProtocolViolation(f"more than {self._limits.requests} requests under way")
                    nursery.start_soon(self._take, request)
                    await self._queue.fewer_than(self._limits.queued)
            except ProtocolViolation as error:
                self._answer(_failure(None, str(error), error))
                with trio.move_on_after(1.0):
                    await self._queue.fewer_than(1)
            nursery.cancel_scope.cancel()

    async def _write(self, client: trio.CancelScope) -> None:
        while True:
            lines = await self._queue.take()
            with trio.move_on_after(self._limits.stuck_after) as bound:
                await self._link.send_lines(lines)
            if bound.cancelled_caught:
                log.info("a client of the control socket reads nothing and is let go")
                client.cancel()

    def _answer(self, message: dict[str, Any]) -> None:
        self._queue.answer(json.dumps(message))

    async def _take(self, message: dict[str, Any]) -> None:
        asked = message.get("id")
        try:
            request = self._allowed(table.request_in(message))
            if isinstance(request, table.Put):
                request = await joined(self._manager, self._arriving, repr(asked), request)
            if request is not None:
                answer = self._answers[type(request)](self._manager, request, self._replies(asked, request))
                await self._noted(request, answer)
            if request is None or not request.lasts:
                self._answer({"id": asked, "ok": True})
        except* BbfsError as group:
            error = _first(group)
            self._answer(_failure(asked, str(error), error))
        finally:
            self._under_way -= 1

    def _allowed(self, request: table.Request[Any]) -> table.Request[Any]:
        """Return the request as the client may make it. Raise Denied for one that would go past a scratch."""
        if self._is_lower and request.changes:
            raise Denied("this mount has a scratch: write in it, and 'bbfs apply' writes to the sources")
        if self._is_lower and isinstance(request, table.CallTool):
            return replace(request, confirmed=False)  # a tool that may change something would go past the scratch
        return request

    def _replies(self, asked: Any, request: table.Request[Any]) -> table.Replies[Any]:
        has_told = False

        def tell(answer: Any) -> None:
            nonlocal has_told
            has_told = True
            self._queue.offer(json.dumps({"id": asked, **table.answer_message(request, answer)}))

        async def give(answer: Any) -> None:
            nonlocal has_told
            await self._queue.fewer_than(1 if has_told else MOST_PIECES)  # answers go before the progress that waits
            has_told = False
            self._answer({"id": asked, **table.answer_message(request, answer)})

        return table.Replies(give, tell)


def _missed(lines: Iterable[str]) -> list[str]:
    """Return the messages that say to each watch that it has missed these."""
    return [json.dumps({"id": json.loads(line)["id"], "event": "missed"}) for line in lines]


def _failure(id: Any, text: str, error: BaseException | None = None) -> dict[str, Any]:
    number = error.errno if isinstance(error, BbfsError) else errno.EINVAL
    failed = {"failed": True} if isinstance(error, ToolFailed) else {}
    return {"id": id, "error": text, "errno": errno.errorcode.get(number, str(number)), **failed}


def _first(group: BaseExceptionGroup[BbfsError]) -> BbfsError:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


async def _stated(
    state: Callable[[], dict[str, Any]], _: ResourceManager, __: table.Status, replies: table.Replies[table.State]
) -> None:
    await replies.give(table.State(state()))


async def _as_is(request: table.Request[Any], answer: Awaitable[None]) -> None:
    """Await the answer to a request, and note nothing."""
    await answer


def _is_ours(stream: trio.SocketStream) -> bool:
    """Return whether the client runs as the daemon's user or root."""
    pid, uid = peer(stream.socket)
    if uid in (0, os.geteuid()):
        return True
    log.warning("process %d of user %d was refused at the control socket", pid, uid)
    return False
