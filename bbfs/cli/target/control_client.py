"""The client of a daemon's control socket."""

import errno
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio

from bbfs.cli.target.rule import Path, components
from bbfs.fuse import control_link, mountpoint
from bbfs.fuse.control_link import MessageStream
from bbfs.fuse.mountpoint import DeadMount, MountError
from bbfs.model.errors import BbfsError, Denied, NotFound, NotSupported, ToolFailed, Unreachable

T = TypeVar("T")

_ANSWERS_WITHIN = 5.0
"""Seconds for an answer that a daemon gives from memory."""


@asynccontextmanager
async def daemon_of(mount: str) -> AsyncGenerator[MessageStream]:
    """Yield a connection to the daemon of a mount.

    Raise DeadMount, ForeignMount, MountError, NotSupported, Unreachable, ProtocolViolation, and Denied if the
    socket is of another user than the mount, which may name any socket.
    """
    await trio.to_thread.run_sync(mountpoint.names, mount)
    held = mountpoint.mount_at(mount)
    async with control_link.connect(await _address(mount), None if held is None else held.user) as link:
        yield link


async def answers(mount: str | None, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
    """Yield what the daemon of a mount answers to a request, until it is done. Raise as `daemon_of`, and its error."""
    assert mount is not None
    async with daemon_of(mount) as link:
        await link.send([{"id": 1, **request}])
        while not (message := await link.receive() or {}).get("ok"):
            if message.get("failed"):
                raise ToolFailed(str(message.get("error")))
            if "error" in message or not message:
                require_ok(message or None)
            yield message


async def _address(mount: str) -> str:
    try:
        return os.fsdecode(await _asked(mount, lambda: os.getxattr(mount, control_link.ATTRIBUTE)))
    except OSError as error:
        if error.errno in (errno.ENOTCONN, errno.ECONNABORTED):
            raise DeadMount(f"{mount} is dead: its daemon is gone") from None
        if error.errno == errno.ENODATA:
            raise NotSupported(f"the daemon of {mount} has no control socket; its log says why") from None
        raise


async def resolved(mount: str, path: Path) -> Path:
    """Return a path of a mount without symbolic links. Raise Denied if they lead out of it, OSError, MountError."""
    here = os.path.join(mount, *path)
    real = await _asked(mount, lambda: os.path.realpath(here))
    if real != mount and not real.startswith(mount.rstrip("/") + "/"):
        raise Denied(f"leads out of the mount, to {real}")
    return components(real[len(mount) :])


def require_ok(answer: dict[str, Any] | None, about: str | None = None) -> None:
    """Raise the error in a daemon's answer, unless it is `ok`. about: the operand of the request."""
    if answer is None:
        raise Unreachable("the daemon has ended")
    if "error" in answer:
        text = ": ".join(filter(None, (about, str(answer["error"]))))
        raise NotFound(text) if answer.get("errno") == "ENOENT" else BbfsError(text)


async def _asked(mount: str, ask: Callable[[], T]) -> T:
    with trio.move_on_after(_ANSWERS_WITHIN):
        return await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
    raise MountError(f"{mount} does not answer")
