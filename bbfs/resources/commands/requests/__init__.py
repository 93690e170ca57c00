"""The base of all requests of commands, and their messages. The requests themselves are in the modules beside it.

A command that asks a mount imports its own request alone; `bbfs.resources.commands.table` has all of them.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, TypeVar

from bbfs.model.calls import UserTime
from bbfs.resources.commands.encoding import decoded, encoded

A = TypeVar("A", covariant=True)
T = TypeVar("T")


class Request(Generic[A]):
    """A request with answers of type `A`.

    name: in messages. answers: their classes by their keys. lasts: the request goes on until its client leaves, and
    `Begun` is among its answers. changes: it may change a source.
    """

    name: ClassVar[str]
    answers: ClassVar[Mapping[str, type[Any]]]
    lasts: ClassVar[bool]
    changes: ClassVar[bool]

    def __init_subclass__(cls, name: str, lasts: bool = False, changes: bool = False, **answers: type[Any]) -> None:
        cls.name, cls.answers, cls.lasts, cls.changes = name, answers, lasts, changes

    def parts(self) -> "Iterator[Request[A]]":
        """Yield the requests to send in place of this one, where it is too long for one message."""
        yield self


@dataclass(frozen=True, slots=True)
class Replies(Generic[T]):
    """Takes the answers to one request. give: waits until the client has room.

    tell: for progress and changes. It never waits, and a slow client misses some. user_time: of the user of the client.
    """

    give: Callable[[T], Awaitable[None]]
    tell: Callable[[T], None]
    user_time: UserTime = field(default_factory=UserTime)


@dataclass(frozen=True, slots=True)
class Begun:
    """The first answer of a request that goes on: nothing is missed that happens from now on."""

    ok: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """A sentence about what the other answers may lack."""

    problem: str


def unheard(_: object) -> None:
    """Drop an answer."""


def message_of(request: Request[Any]) -> dict[str, Any]:
    """Return a request as a JSON object, without an id."""
    return {"request": request.name, **encoded(request)}


def answer_message(request: Request[Any], answer: object) -> dict[str, Any]:
    """Return an answer to a request as a JSON object, without an id."""
    key = next(key for key, kind in request.answers.items() if type(answer) is kind)
    return encoded(answer) if _is_flat(key, type(answer)) else {key: encoded(answer)}


def answer_in(request: Request[A], message: Mapping[str, Any]) -> A | None:
    """Return the answer in a message, or None. Raise ProtocolViolation."""
    for key, kind in request.answers.items():
        if key in message:
            found: A = decoded(kind, message if _is_flat(key, kind) else message[key])
            return found
    return None


def _is_flat(key: str, kind: type[Any]) -> bool:
    return any(each.name == key for each in fields(kind))
