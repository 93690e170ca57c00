"""The daemon's control socket: one a mount. Other programs of its user watch and refresh through it.

A Unix stream socket in the user's runtime directory; the attribute `user.bbfs.control` of the mount's root is its
path. Both sides write JSON objects, one a line, in ASCII. The daemon begins with `{"bbfs": "control", "version": 1}`.
A client then sends requests, each with an `id` of its choice that all answers repeat:

    {"id": 1, "request": "watch", "paths": ["mcp-server+docs/guide"], "recursive": true}
    {"id": 2, "request": "refresh", "paths": [""]}
    {"id": 3, "request": "describe", "paths": ["mcp-server+docs"]}
    {"id": 4, "request": "note", "scratch": "/home/me/try"}

`bbfs.resources.commands` describes the requests that list, search, index, put and call. Paths are from the
mount's root, without symbolic links. The answer is `{"id": 1, "ok": true}`, or `error` with a text and `errno` with its
name; that to `describe` has the metadata of one path as its `document`. After that, a watch gets
`{"id": 1, "event": "changed", "path": …, "uri": …, "source": …, "time": …}` (events: added, changed, removed; and
missed, without the rest, for a client that was too slow for some), and `{"id": 1, "note": …}` for people. It ends with
the connection, as does the noting of versions for a scratch that lies over the mount.

Only the daemon's user and root may connect. No client can make the daemon wait: a client that reads too slowly misses
events, and one that does not read at all is disconnected.
"""

import base64
import errno
import json
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from typing import Any, cast

import trio

from bbfs.fuse.control.address import bind
from bbfs.fuse.control.link import MessageStream
from bbfs.fuse.control.messages import VERSION, peer
from bbfs.fuse.scratch.directory import Scratch
from bbfs.fuse.scratch.shown import Shown
from bbfs.model.errors import BbfsError, Denied, NameTooLong, ProtocolViolation, ToolFailed
from bbfs.model.uri_paths import MAX_DEPTH
from bbfs.resources.catalog.record import Path
from bbfs.resources.commands.calls import PIECE, Calls, described
from bbfs.resources.commands.grep import Grep
from bbfs.resources.commands.indexing import indexed
from bbfs.resources.commands.listing import entries
from bbfs.resources.commands.pending import retry
from bbfs.resources.commands.put import Puts
from bbfs.resources.commands.search import search
from bbfs.resources.manager import ResourceManager
from bbfs.resources.watch import Watch, change_message
from bbfs.serving.changes import ClientQueue
from bbfs.vfs.xattrs import XattrCache

log = logging.getLogger(__name__)

MOST_CLIENTS = 64
MOST_REQUESTS = 256
"""Requests of one client under way at once, its watches included."""
MOST_QUEUED = 1000
"""Messages that wait for a client to read them."""
MOST_PIECES = 8
"""Messages with pieces of a result that wait for a client to read them."""
STUCK_AFTER = 30.0
"""Seconds after which a client that reads nothing is disconnected."""
_METADATA = b"user.bbfs.metadata"
_GREETING = {"bbfs": "control", "version": VERSION}


class Control:
    """The control socket of one mount. refresh: drops all cached state at and below a path.

    is_lower: a scratch is over the mount, so no client may change a source past it. shown: notes the versions that are
    shown for the scratches of clients.
    """

    def __init__(
        self,
        manager: ResourceManager,
        refresh: Callable[[Path], None],
        mount_point: str,
        shown: Shown | None = None,
        *,
        is_lower: bool = False,
    ) -> None:
        self._manager = manager
        self._refresh = refresh
        self._mount_point = mount_point
        self._shown = Shown() if shown is None else shown
        self._is_lower = is_lower
        self._clients = 0

    async def run(self, *, task_status: trio.TaskStatus[str | None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, then remove the socket. Report its path as the task status.

        The path is None if no socket can be made; the log then has the reason.
        """
        try:
            bound, address = bind(self._mount_point, MOST_CLIENTS)
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
                client = _Client(link, self._manager, self._refresh, self._shown, is_lower=self._is_lower)
                if self._clients > MOST_CLIENTS:
                    with trio.move_on_after(1.0):
                        await MessageStream(stream).send(
                            [_GREETING, _failure(None, f"{MOST_CLIENTS} clients are here already")]
                        )
                    return
                await client.serve()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            log.debug("a client of the control socket is gone")
        except* Exception:
            log.exception("unforeseen error on the control socket")  # the mount goes on
        finally:
            self._clients -= 1


class _Client:
    """One connected client: a reader, a writer, and a task for each request."""

    def __init__(
        self,
        link: MessageStream,
        manager: ResourceManager,
        refresh: Callable[[Path], None],
        shown: Shown,
        *,
        is_lower: bool,
    ) -> None:
        self._link = link
        self._shown = shown
        self._is_lower = is_lower
        self._manager = manager
        self._refresh = refresh
        self._puts = Puts(manager)
        self._calls = Calls(manager)
        self._queue: ClientQueue[str] = ClientQueue(MOST_QUEUED, _missed)
        self._under_way = 0

    async def serve(self) -> None:
        """Serve until the client leaves or is disconnected."""
        self._answer(_GREETING)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, nursery.cancel_scope)
            try:
                while (request := await self._link.receive()) is not None:
                    self._under_way += 1
                    if self._under_way > MOST_REQUESTS:
                        raise ProtocolViolation(f"more than {MOST_REQUESTS} requests under way")
                    nursery.start_soon(self._take, request)
                    await self._queue.fewer_than(MOST_QUEUED)
            except ProtocolViolation as error:
                self._answer(_failure(None, str(error), error))
                with trio.move_on_after(1.0):
                    await self._queue.fewer_than(1)
            nursery.cancel_scope.cancel()

    async def _write(self, client: trio.CancelScope) -> None:
        while True:
            lines = await self._queue.take()
            with trio.move_on_after(STUCK_AFTER) as bound:
                await self._link.send_lines(lines)
            if bound.cancelled_caught:
                log.info("a client of the control socket reads nothing and is let go")
                client.cancel()

    def _answer(self, message: dict[str, Any]) -> None:
        self._queue.answer(json.dumps(message))

    def _offer(self, id: Any, message: dict[str, Any]) -> None:
        self._queue.offer(json.dumps({"id": id, **message}))

    async def _take(self, request: dict[str, Any]) -> None:
        asked = request.get("id")
        try:
            match request.get("request"):
                case "watch":
                    recursive = request.get("recursive", True) is not False
                    async with trio.open_nursery() as nursery:
                        watch = Watch(
                            self._manager,
                            _paths(request),
                            lambda change: self._offer(asked, change_message(change, self._manager.clock())),
                            lambda text: self._offer(asked, {"note": text}),
                            recursive=recursive,
                        )
                        await nursery.start(watch.run)
                        self._answer({"id": asked, "ok": True})
                case "refresh":
                    self._refresh_all(_paths(request))
                    self._answer({"id": asked, "ok": True})
                case "list":
                    for page in await entries(self._manager, request):
                        await self._answer_with_room({"id": asked, "entries": page})
                        await trio.lowlevel.checkpoint()  # a large directory takes its time
                    self._answer({"id": asked, "ok": True})
                case "grep":
                    async with aclosing(Grep(self._manager, request).answers()) as answers:
                        async for answer in answers:
                            await self._answer_with_room({"id": asked, **answer})
                    self._answer({"id": asked, "ok": True})
                case "index":
                    done = await indexed(self._manager, request, lambda told: self._offer(asked, {"indexed": told}))
                    await self._queue.fewer_than(1)  # answers would go before the progress that waits
                    self._answer({"id": asked, "indexed": done})
                    self._answer({"id": asked, "ok": True})
                case "put" | "retry" if self._is_lower:
                    raise Denied("this mount has a scratch: write in it, and 'bbfs apply' writes to the sources")
                case "put":
                    self._answer({"id": asked, "ok": True, **await self._puts.take(request)})
                case "retry":
                    self._answer({"id": asked, "ok": True, **await retry(self._manager, request)})
                case "describe":
                    self._answer({"id": asked, "ok": True, "document": await self._described(_paths(request))})
                case "tools":
                    for tool in await self._calls.tools(request):
                        await self._answer_with_room({"id": asked, "tool": tool})
                    self._answer({"id": asked, "ok": True})
                case "call":
                    await self._call(asked, request)
                case "note":
                    with self._shown.noted(Scratch.of(str(request.get("scratch")))):
                        self._answer({"id": asked, "ok": True})
                        await trio.sleep_forever()  # until the client leaves
                case "search":
                    for message in await search(self._manager, request, _paths(request)):
                        await self._answer_with_room({"id": asked, **message})
                    self._answer({"id": asked, "ok": True})
                case other:
                    self._answer(_failure(asked, f"unknown request {other!r:.80}"))
        except* BbfsError as group:
            error = _first(group)
            self._answer(_failure(asked, str(error), error))
        finally:
            self._under_way -= 1

    def _refresh_all(self, paths: list[Path]) -> None:
        """Refresh all paths. Raise the first error afterwards."""
        errors: list[BbfsError] = []
        for path in paths:
            try:
                self._refresh(path)
            except BbfsError as error:
                errors.append(error)
        for error in errors[:1]:
            raise error

    async def _call(self, asked: Any, request: dict[str, Any]) -> None:
        """Call a tool and send the parts of its result. It is cancelled if the client leaves."""
        if self._is_lower:
            request = {**request, "confirmed": False}  # a tool that may change something would go past the scratch
        loaded = await self._calls.call(request, lambda told: self._offer(asked, {"progress": told}))
        await self._queue.fewer_than(1)  # answers would go before the progress that waits
        for part in loaded.parts:
            size = part.content.size
            await self._answer_with_room({"id": asked, "part": described(part)})
            for at in range(0, size, PIECE):
                data = await part.content.read_waiting(at, min(PIECE, size - at))
                await self._answer_with_room({"id": asked, "data": base64.b64encode(data).decode()})
        self._answer({"id": asked, "ok": True})

    async def _described(self, paths: list[Path]) -> dict[str, Any]:
        """Return the metadata of one path, bounded as the attribute that has them. Raise BbfsError."""
        if len(paths) != 1 or not paths[0]:
            raise ProtocolViolation("expected the path of a source, or one below it")
        node = await self._manager.tree.find(paths[0])
        attributes = XattrCache(self._manager.tree, self._manager.contents, self._manager.clock).make(0, paths[0], node)
        return cast(dict[str, Any], json.loads(attributes.values.get(_METADATA, b"{}")))

    async def _answer_with_room(self, message: dict[str, Any]) -> None:
        await self._queue.fewer_than(MOST_PIECES)
        self._answer(message)


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


def _paths(request: dict[str, Any]) -> list[Path]:
    paths = request.get("paths")
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ProtocolViolation("paths must be a list of strings")
    found = [tuple(name for name in path.split("/") if name) for path in paths]
    if any(len(path) > MAX_DEPTH + 1 for path in found):
        raise NameTooLong(f"a path of more than {MAX_DEPTH + 1} names")
    return found


def _is_ours(stream: trio.SocketStream) -> bool:
    """Return whether the client runs as the daemon's user or root."""
    pid, uid = peer(stream.socket)
    if uid in (0, os.geteuid()):
        return True
    log.warning("process %d of user %d was refused at the control socket", pid, uid)
    return False
