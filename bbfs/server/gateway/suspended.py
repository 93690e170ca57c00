"""Requests of clients that wait for an answer of the client itself.

Since 2026-07-28 a server sends no requests: it answers a request with what it wants to know and a state, and the client
sends the request again with its answers and the state. Meanwhile the request to the server behind goes on.
"""

import secrets
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, TypeVar

import mcp_types as types
import trio

from bbfs.model.errors import Busy
from bbfs.server.errors import Fault
from bbfs.server_parts.subscribers import Context

T = TypeVar("T")

MOST = 64
"""Requests that wait for answers of clients."""
LONGEST = 600.0
"""Seconds that a client has for its answers."""


@dataclass(eq=False, slots=True)
class _Question:
    """A question of the server behind. answer: of the client; None until `answered`."""

    request: types.InputRequest
    answer: types.InputResponse | None = None
    answered: trio.Event = field(default_factory=trio.Event)


@dataclass(eq=False, slots=True)
class Suspendable(Generic[T]):
    """A request of a client that may stop at questions. key: which request it is; it goes on with the same one only.

    ctx: of the client's request; None while the client has to answer. token: of the state that the client has then.
    answer, failure: its outcome. moved: set when there is an outcome or a question.
    """

    key: Hashable
    ctx: Context | None
    token: str | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    questions: dict[str, _Question] = field(default_factory=dict)
    answer: list[T] = field(default_factory=list)
    failure: Exception | None = None
    moved: trio.Event = field(default_factory=trio.Event)

    async def ask(self, request: types.InputRequest) -> types.InputResponse:
        """Put a question to the client, and return its answer."""
        question = _Question(request)
        name = secrets.token_hex(8)
        self.questions[name] = question
        self.moved.set()
        try:
            await question.answered.wait()
        finally:
            self.questions.pop(name, None)
        assert question.answer is not None
        return question.answer

    def take(self, responses: Mapping[str, types.InputResponse]) -> None:
        """Take answers of the client."""
        for name, response in responses.items():
            if (question := self.questions.pop(name, None)) is not None:
                question.answer = response
                question.answered.set()
        self.moved = trio.Event()
        if self.questions:  # the client has not answered all
            self.moved.set()


class Suspended:
    """The requests of one server that wait for answers. nursery: runs them."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._waiting: dict[str, Suspendable[Any]] = {}

    async def begin(self, state: Suspendable[T], run: Callable[[], Awaitable[T]]) -> T | types.InputRequiredResult:
        """Run a request; return its answer, or what the client has to answer first. Raise what the request raises."""
        self._nursery.start_soon(self._run, state, run)
        return await self._outcome(state)

    async def resume(
        self, ctx: Context, token: str, key: Hashable, responses: Mapping[str, types.InputResponse]
    ) -> Any:
        """Go on with a request, as `begin` does. Raise Fault for a state that is unknown, or of another request."""
        state = self._waiting.get(token)
        if state is None or state.key != key:
            raise Fault("invalid_token", "not a state of this server, or the answer came too late")
        del self._waiting[token]
        state.ctx, state.token, state.scope.deadline = ctx, None, inf
        state.take(responses)
        return await self._outcome(state)

    async def _run(self, state: Suspendable[T], run: Callable[[], Awaitable[T]]) -> None:
        with state.scope:
            try:
                state.answer.append(await run())
            except Exception as error:  # noqa: BLE001 - the task of the client's request raises it
                state.failure = error
        if state.token is not None:
            self._waiting.pop(state.token, None)
        state.moved.set()

    async def _outcome(self, state: Suspendable[T]) -> T | types.InputRequiredResult:
        while True:
            try:
                await state.moved.wait()
            except trio.Cancelled:
                state.scope.cancel()
                raise
            if state.failure is not None:
                raise state.failure
            if state.answer:
                return state.answer[0]
            if state.questions:
                return self._suspend(state)
            state.moved = trio.Event()  # the server has taken its question back

    def _suspend(self, state: Suspendable[T]) -> types.InputRequiredResult:
        """Return the questions for the client. It has `LONGEST` to answer. Raise Busy."""
        if len(self._waiting) >= MOST:
            state.scope.cancel()
            raise Busy(f"{MOST} requests wait for answers of clients already")
        state.ctx, state.token = None, secrets.token_urlsafe(16)
        self._waiting[state.token] = state
        state.scope.deadline = trio.current_time() + LONGEST
        requests = {name: question.request for name, question in state.questions.items()}
        return types.InputRequiredResult(input_requests=requests, request_state=state.token)
