"""The client of a daemon's control socket: for commands, and (`follow`) for the tasks of an event loop."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bbfs.cli import lazy
from bbfs.cli.operands import location
from bbfs.fuse import mountpoint
from bbfs.fuse.control import blocking
from bbfs.model.errors import BbfsError, Denied, NotFound, ToolFailed, Unreachable
from bbfs.resources.commands.requests import Request, answer_in, message_of

A = TypeVar("A")
_KINDS: dict[str, type[BbfsError]] = {"ENOENT": NotFound, "EACCES": Denied}
"""The errors in answers that commands tell apart, by the names of their numbers."""


async def follow(mount: str, request: Request[A], hear: Callable[[A], object] | None) -> None:
    """As `ask`, in a task of an event loop: several requests that last can be asked at once."""
    await lazy.trio.to_thread.run_sync(mountpoint.names, mount)
    address = await lazy.trio.to_thread.run_sync(_address, mount, abandon_on_cancel=True)
    async with lazy.link.connect(address, _user_of(mount)) as link:
        try:
            for message in _messages(request):
                await link.send([message])
                while _heard(request, await link.receive(), hear):
                    pass
        except lazy.trio.BrokenResourceError:
            raise _ended() from None


def ask(mount: str, request: Request[A], hear: Callable[[A], object] | None) -> None:
    """Ask the daemon of a mount that is known to answer, and have `hear` called with each answer.

    Raise DeadMount, ForeignMount, MountError, NotSupported, Unreachable, ProtocolViolation, Denied if the socket is of
    another user than the mount, which may name any socket; and the error in an answer.
    """
    for answer in ask_now(mount, request):
        if hear is not None:
            hear(answer)


def ask_now(mount: str, request: Request[A]) -> Iterator[A]:
    """As `ask`. It yields the answers."""
    answers: list[A] = []
    with blocking.connect(_address(mount), _user_of(mount)) as link:
        try:
            for message in _messages(request):
                link.send(message)
                goes_on = True
                while goes_on:
                    goes_on = _heard(request, link.receive(), answers.append)
                    yield from answers
                    answers.clear()
        except ConnectionError:
            raise _ended() from None


def _messages(request: Request[Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a request, each to be sent after the answer to the one before."""
    for part in request.parts():
        yield {"id": 1, **message_of(part)}


def _heard(request: Request[A], message: dict[str, Any] | None, hear: Callable[[A], object] | None) -> bool:
    """Take an answer. Return whether more follow. Raise the error in the answer."""
    if message is None:
        raise _ended()
    if message.get("failed"):
        raise ToolFailed(str(message.get("error")))
    if "error" in message:
        raise _KINDS.get(str(message.get("errno")), BbfsError)(str(message["error"]))
    if (answer := answer_in(request, message)) is not None and hear is not None:
        hear(answer)
    return request.lasts or not message.get("ok")


def _ended() -> Unreachable:
    return Unreachable("the daemon has ended")


def _address(mount: str) -> str:
    return location.asked(mount, lambda: location.control_address(mount))


def _user_of(mount: str) -> int | None:
    held = mountpoint.mount_at(mount)
    return None if held is None else held.user
