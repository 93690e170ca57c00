"""Requests that may have to wait for a source: a plain function is asked, and again when what it needs is there.

The function returns its answer or a `Wait`. The caller awaits that and asks again with all waits that have ended. So an
answer that is cached costs no coroutine.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, TypeVarTuple, final

from bbfs.model.errors import BbfsError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@final
class Wait:
    """A request to a source that another request waits for, and its outcome once it has ended."""

    __slots__ = ("arguments", "error", "request", "value")

    def __init__(self, request: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]) -> None:
        self.request = request
        self.arguments = arguments
        self.value: Any = None
        self.error: BbfsError | None = None


Ended = tuple[Wait, ...]
"""The waits of one request that have ended."""


def after(ended: Ended, request: Callable[[*Ts], Awaitable[T]], *arguments: *Ts) -> T | Wait:
    """Return the outcome of a request that has ended, else the wait for it. Raise its error."""
    for wait in ended:
        if wait.request == request and wait.arguments == arguments:
            if wait.error is not None:
                raise wait.error
            return wait.value
    return Wait(request, arguments)


async def answered(answer: T | Wait, ask: Callable[..., T | Wait], *arguments: Any) -> T:
    """Await what `answer` waits for and ask again, until there is an answer. Raise BbfsError.

    ask: takes the waits that have ended after its arguments. No request is awaited twice, so this ends.
    """
    ended: Ended = ()
    while isinstance(answer, Wait):
        try:
            answer.value = await answer.request(*answer.arguments)
        except BbfsError as error:
            answer.error = error
        ended = (*ended, answer)
        answer = ask(*arguments, ended)
    return answer
