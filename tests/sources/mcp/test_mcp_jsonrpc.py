"""The JSON-RPC peer on the streams of a transport, and the guard before the SDK."""

import math
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import mcp_types as types
import pytest
import trio
import trio.testing
from mcp.shared.exceptions import MCPError
from repository import ROOT

from bbfs.model.errors import BbfsError, ConfigError
from bbfs.sources.mcp import require_sdk
from bbfs.sources.mcp.client.errors import ConnectionClosed
from bbfs.sources.mcp.client.peer import MAX_ANSWERS, Peer
from bbfs.sources.mcp.transport.messages import Inbox
from bbfs.sources.mcp.transport.stdio import Outbox


class Wire:
    """The other end of a peer's streams, and what the peer reported. room: for messages that nobody has received."""

    def __init__(self, nursery: trio.Nursery, room: float = math.inf) -> None:
        self.inbox = Inbox()
        self.ending: BbfsError | None = None
        self.to_wire, self.from_peer = trio.open_memory_channel[tuple[Any, Any]](room)
        self.notifications: list[tuple[str, Mapping[str, Any]]] = []
        self.closed = trio.Event()
        self.peer = Peer(
            self,
            nursery,
            answer=self._answer,
            notified=lambda method, params: self.notifications.append((method, params)),
            closed=self.closed.set,
        )

    async def send(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """Take a message of the peer, as the sending end of a transport does."""
        await self.to_wire.send((message, headers))

    @staticmethod
    def _answer(method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        if method == "ping":
            return {}
        if method != "add":
            raise MCPError(types.METHOD_NOT_FOUND, "no such method", method)
        return {"sum": sum((params or {}).get("numbers", ()))}

    def say(self, **fields: Any) -> None:
        self.inbox.take(types.jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **fields}))

    async def sent(self) -> dict[str, Any]:
        message, _ = await self.from_peer.receive()
        return message


@dataclass
class Pipe:
    """A transport by a pipe, as stdio has one."""

    inbox: Inbox
    outbox: Outbox
    ending: BbfsError | None = None

    async def send(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        await self.outbox.send(message)


@pytest.fixture
async def wire(nursery: trio.Nursery, autojump_clock: object) -> AsyncIterator[Wire]:
    wire = Wire(nursery)
    nursery.start_soon(wire.peer.run)
    yield wire
    wire.inbox.ended.set()
    wire.to_wire.close()
    wire.from_peer.close()


async def test_answers_find_their_requests_in_any_order(wire: Wire) -> None:
    results: dict[str, dict[str, Any]] = {}

    async def ask(method: str) -> None:
        results[method] = await wire.peer.request(method, {"x": 1})

    async with trio.open_nursery() as nursery:
        for method in ("first", "second"):
            nursery.start_soon(ask, method)
        sent = [await wire.sent(), await wire.sent()]
        assert [message["params"] for message in sent] == [{"x": 1}] * 2
        wire.say(id=99, result={"of": "nobody"})
        for message in reversed(sent):
            wire.say(id=str(message["id"]), result={"of": message["method"]})  # some servers write ids as texts
            wire.say(id=message["id"], result={"of": "a second answer"})
    assert results == {"first": {"of": "first"}, "second": {"of": "second"}}


async def test_error_is_raised_with_its_data(wire: Wire) -> None:
    async def refuse() -> None:
        number = (await wire.sent())["id"]
        wire.say(id=number, error={"code": -32001, "message": "no", "data": {"why": "because"}})

    async with trio.open_nursery() as nursery:
        nursery.start_soon(refuse)
        with pytest.raises(MCPError, match="no") as caught:
            await wire.peer.request("ask")
    assert (caught.value.code, caught.value.data) == (-32001, {"why": "because"})
    assert not isinstance(caught.value, ConnectionClosed)


@pytest.mark.parametrize("cancellable", [True, False])
async def test_server_is_notified_of_a_cancelled_request(wire: Wire, cancellable: bool) -> None:
    with trio.move_on_after(1):
        await wire.peer.request("slow", cancellable=cancellable)
    number = (await wire.sent())["id"]
    wire.say(id=number, result={})  # too late, and harmless
    await wire.peer.notify("end")
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    cancelled |= {"params": {"requestId": number, "reason": "caller cancelled"}}
    assert await wire.sent() == (cancelled if cancellable else {"jsonrpc": "2.0", "method": "end"})


async def test_request_that_is_cancelled_before_it_is_sent_never_is(wire: Wire) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await wire.peer.request("never")
    await trio.testing.wait_all_tasks_blocked()
    assert wire.from_peer.statistics().current_buffer_used == 0


async def test_requests_of_the_server_are_answered(wire: Wire) -> None:
    wire.say(id="a", method="add", params={"numbers": [1, 2]})
    assert await wire.sent() == {"jsonrpc": "2.0", "id": "a", "result": {"sum": 3}}
    wire.say(id=7, method="dance")
    error = {"code": types.METHOD_NOT_FOUND, "message": "no such method", "data": "dance"}
    assert await wire.sent() == {"jsonrpc": "2.0", "id": 7, "error": error}


@pytest.mark.parametrize("reads", [True, False])
async def test_a_flood_of_requests_of_the_server_is_answered_in_a_bounded_queue(
    nursery: trio.Nursery, autojump_clock: object, reads: bool
) -> None:
    wire = Wire(nursery, room=0)
    with wire.to_wire, wire.from_peer:
        for number in range(100_000):
            wire.inbox.take(types.JSONRPCRequest(jsonrpc="2.0", id=number, method="ping"))
        await trio.testing.wait_all_tasks_blocked()
        answered = 0
        with trio.move_on_after(10_000):
            while reads:
                await wire.sent()
                answered += 1
            await trio.sleep_forever()
        assert answered in ((MAX_ANSWERS, MAX_ANSWERS + 1) if reads else (0,))
        assert wire.to_wire.statistics().tasks_waiting_send == 0, "the time for each answer has ended"
        wire.say(id="last", method="ping")
        assert (await wire.sent())["id"] == "last"


async def test_notifications_come_in_their_order(wire: Wire) -> None:
    wire.say(method="one", params={"x": 1})
    wire.say(method="two")
    await trio.testing.wait_all_tasks_blocked()
    assert wire.notifications == [("one", {"x": 1}), ("two", {})]


async def test_headers_go_to_the_transport(wire: Wire) -> None:
    await wire.peer.notify("hello", headers={"x": "1"})
    _, headers = await wire.from_peer.receive()
    assert headers == {"x": "1"}


async def test_end_of_the_stream_fails_requests_under_way_and_later_ones(wire: Wire) -> None:
    errors: list[MCPError] = []

    async def ask() -> None:
        with pytest.raises(ConnectionClosed) as caught:
            await wire.peer.request("ask")
        errors.append(caught.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        wire.inbox.ended.set()
    assert len({id(error) for error in errors}) == 2, "one exception in two tasks would mix their tracebacks"
    assert wire.closed.is_set()
    with pytest.raises(ConnectionClosed):
        await wire.peer.request("ask")
    await wire.peer.notify("dropped")


async def test_broken_outgoing_stream_fails_a_request(wire: Wire) -> None:
    wire.from_peer.close()
    with pytest.raises(ConnectionClosed):
        await wire.peer.request("ask")
    await wire.peer.notify("dropped")


async def test_pipe_gets_lines_in_order_and_messages_come_without_a_stream(nursery: trio.Nursery) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    backlog, pieces = trio.open_memory_channel[bytes](math.inf)
    inbox, outbox = Inbox(), Outbox(writing, backlog)
    notified: list[str] = []
    with backlog, pieces:
        peer = Peer(
            Pipe(inbox, outbox),
            nursery,
            answer=lambda method, params: {},
            notified=lambda method, params: notified.append(method),
            closed=lambda: None,
        )
        await peer.notify("short")
        assert os.read(reading, 1000) == b'{"jsonrpc":"2.0","method":"short"}\n'
        await peer.notify("long", {"text": "x" * (1 << 20)})
        await peer.notify("behind it")
        assert outbox.waiting == 2, "what does not fit waits, and what follows waits behind it"
        written = os.read(reading, 1 << 20) + pieces.receive_nowait()
        assert len(written) > 1 << 20
        assert b"behind it" in pieces.receive_nowait()
        inbox.take(types.JSONRPCNotification(jsonrpc="2.0", method="hello"))
        assert notified == ["hello"]
        outbox.closed = True
        await peer.notify("after the end")
        assert b"after the end" in pieces.receive_nowait(), "the descriptor may be another file's by now"
    os.close(reading)
    os.close(writing)


async def test_what_a_server_leaves_unread_is_bounded(nursery: trio.Nursery) -> None:
    """Its own requests make the answers, and their ids make the answers long."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    backlog, pieces = trio.open_memory_channel[bytes](math.inf)
    inbox, outbox = Inbox(), Outbox(writing, backlog, 1 << 20)
    with backlog, pieces:
        Peer(
            Pipe(inbox, outbox),
            nursery,
            answer=lambda method, params: {"text": "x" * 10_000},
            notified=lambda method, params: None,
            closed=lambda: None,
        )
        for number in range(500):
            inbox.take(types.JSONRPCRequest(jsonrpc="2.0", id=number, method="ping"))
            inbox.take(types.JSONRPCRequest(jsonrpc="2.0", id="y" * 60_000, method="ping"))
            await trio.testing.wait_all_tasks_blocked()
        unread = [pieces.receive_nowait() for _ in range(outbox.waiting)]
        assert 1 << 19 < sum(map(len, unread)) <= 1 << 20
        assert not any(b"yyy" in piece for piece in unread), "an id is not repeated without a bound"
        for piece in unread:
            outbox.sent(piece)
        assert outbox.waiting == 0
    os.close(reading)
    os.close(writing)


def test_unknown_sdk_is_refused_in_one_sentence() -> None:
    require_sdk(version("mcp"))
    require_sdk("2.10rc1")
    for installed in ("1.28.0", "2.2.9", "3.0.0a1", "unknown"):
        with pytest.raises(ConfigError, match=rf"from 2\.3 to 2\.x, and {installed} is installed"):
            require_sdk(installed)


def test_no_private_name_of_the_sdk_is_used() -> None:
    """Nor a subclass of its sessions or dispatchers, whose private parts would be in use unseen."""
    for module in (ROOT / "bbfs/sources/mcp").rglob("*.py"):
        for line in module.read_text().splitlines():
            if line.startswith(("import mcp", "from mcp")):
                for private in ("._", "import _", "ClientSession", "Dispatcher", "mcp.client.session"):
                    assert private not in line, module
