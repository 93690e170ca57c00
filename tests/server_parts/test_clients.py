"""What each client of an HTTP server may have at once."""

from collections import deque
from typing import Any

import trio
import trio.testing
from starlette.types import Message, Receive, Scope, Send

from bbfs.server_parts.http import clients
from bbfs.server_parts.http.clients import Sessions, Turns

CALL = b'{"jsonrpc": "2.0", "id": 1, "method": "x"}'


def scope(address: str = "10.0.0.1", method: str = "POST", session: bytes = b"") -> Scope:
    headers = [(b"mcp-session-id", session)] if session else []
    return {"type": "http", "method": method, "client": (address, 1), "headers": headers}


async def nothing() -> Message:
    return {"type": "http.request", "body": b""}


class Server:
    """An application with sessions. open: their ids."""

    def __init__(self) -> None:
        self.open: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = next((value for _, value in scope["headers"]), b"")
        if not session:
            session = b"%d" % len(self.open) + scope["client"][0].encode()
            self.open.append(session)
        known = session in self.open
        if scope["method"] == "DELETE" and known:
            self.open.remove(session)
        await send(
            {
                "type": "http.response.start",
                "status": 200 if known else 404,
                "headers": [(b"mcp-session-id", session)] if known else [],
            }
        )


async def test_a_new_session_takes_the_place_of_one_of_who_has_most() -> None:
    server, answers = Server(), deque[Message]()
    sessions = Sessions(server, most=4)

    async def keep(message: Message) -> None:
        answers.append(message)

    await sessions.serve(scope("10.0.0.2"), nothing, keep)
    for _ in range(3):
        await sessions.serve(scope(), nothing, keep)
    one, first, second, third = server.open
    await sessions.serve(scope(session=first), nothing, keep)
    await sessions.serve(scope("10.0.0.3"), nothing, keep)
    assert second not in server.open
    assert {one, first, third} < {*server.open}
    assert all(answer["status"] == 200 for answer in answers)


async def test_a_client_with_many_requests_delays_no_other_and_not_its_own_notices() -> None:
    turns, begun, end = Turns(), deque[Any](), trio.Event()

    async def serve(of: Scope, body: bytes) -> None:
        async with turns.answering(of, body, nobody, print):
            begun.append((of["client"][0], body))
            await end.wait()

    async def nobody(_message: Message) -> None:
        pass

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(serve, scope(), CALL)
        await trio.testing.wait_all_tasks_blocked()
        assert len(begun) == clients.AT_ONCE
        nursery.start_soon(serve, scope("10.0.0.2"), CALL)
        nursery.start_soon(serve, scope(), b'{"jsonrpc": "2.0", "method": "notifications/cancelled"}')
        await trio.testing.wait_all_tasks_blocked()
        assert len(begun) == clients.AT_ONCE + 2
        end.set()
    assert len(begun) == 52


async def test_what_nobody_reads_is_dropped_beyond_a_bound() -> None:
    turns, dropped = Turns(most_unread=100), list[int]()
    closed = [trio.Event() for _ in range(5)]

    async def serve(number: int) -> None:
        async def unread(_message: Message) -> None:
            await closed[number].wait()

        def drop() -> None:
            dropped.append(number)
            closed[number].set()

        async with turns.answering(scope(), CALL, unread, drop) as send:
            await send({"type": "http.response.body", "body": b"x" * 40})

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(serve, number)
            await trio.testing.wait_all_tasks_blocked()
        assert dropped == [0, 1, 2]
        for event in closed:
            event.set()
