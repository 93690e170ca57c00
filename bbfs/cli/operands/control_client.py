"""The client of a daemon's control socket, for tasks and (`answers_now`) for commands without an event loop."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from bbfs.cli.operands import location
from bbfs.cli.operands.rule import Path
from bbfs.fuse import mountpoint
from bbfs.fuse.control import blocking
from bbfs.model.errors import BbfsError, NotFound, ToolFailed, Unreachable

if TYPE_CHECKING:
    from bbfs.fuse.control.link import MessageStream

T = TypeVar("T")


@asynccontextmanager
async def daemon_of(mount: str) -> "AsyncGenerator[MessageStream]":
    """Yield a connection to the daemon of a mount.

    Raise DeadMount, ForeignMount, MountError, NotSupported, Unreachable, ProtocolViolation, and Denied if the
    socket is of another user than the mount, which may name any socket.
    """
    import trio  # noqa: PLC0415 - a command without an event loop does not need it

    from bbfs.fuse.control import link  # noqa: PLC0415 - trio

    await trio.to_thread.run_sync(mountpoint.names, mount)
    address = await _asked(mount, lambda: location.control_address(mount))
    async with link.connect(address, _user_of(mount)) as connection:
        yield connection


async def answers(mount: str | None, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
    """Yield what the daemon of a mount answers to a request, until it is done. Raise as `daemon_of`, and its error."""
    assert mount is not None
    async with daemon_of(mount) as link:
        await link.send([{"id": 1, **request}])
        while not _is_last(message := await link.receive()):
            yield message or {}


def answers_now(mount: str, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """As `answers`. It blocks."""
    mountpoint.names(mount)
    address = location.asked(mount, lambda: location.control_address(mount))
    with blocking.connect(address, _user_of(mount)) as link:
        try:
            link.send({"id": 1, **request})
            while not _is_last(message := link.receive()):
                yield message or {}
        except ConnectionError:
            require_ok(None)


def answer_now(mount: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the one answer of the daemon to a request. It blocks. Raise BbfsError, OSError."""
    address = location.asked(mount, lambda: location.control_address(mount))
    with blocking.connect(address, _user_of(mount)) as link:
        link.send({"id": 1, **request})
        answer = link.receive()
        require_ok(answer)
        return answer or {}


async def resolved(mount: str, path: Path) -> Path:
    """Return a path of a mount without symbolic links. Raise Denied if they lead out of it, OSError, MountError."""
    return await _asked(mount, lambda: location.without_links(mount, path))


def require_ok(answer: dict[str, Any] | None, about: str | None = None) -> None:
    """Raise the error in a daemon's answer, unless it is `ok`. about: the operand of the request."""
    if answer is None:
        raise Unreachable("the daemon has ended")
    if "error" in answer:
        text = ": ".join(filter(None, (about, str(answer["error"]))))
        raise NotFound(text) if answer.get("errno") == "ENOENT" else BbfsError(text)


def _is_last(message: dict[str, Any] | None) -> bool:
    """Return whether an answer is the last one. Raise the error in it."""
    if message is not None and message.get("failed"):
        raise ToolFailed(str(message.get("error")))
    require_ok(message)
    return bool(message and message.get("ok"))


def _user_of(mount: str) -> int | None:
    held = mountpoint.mount_at(mount)
    return None if held is None else held.user


async def _asked(mount: str, ask: Callable[[], T]) -> T:
    import trio  # noqa: PLC0415 - as above

    with trio.move_on_after(location.ANSWERS_WITHIN):
        return await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
    raise location.no_answer(mount)
