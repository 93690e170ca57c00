"""The changes that a server has agreed to report (`announces`, `confirmed`), before and since protocol 2026-07-28."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

import pytest
import trio
from forked_daemon import forked
from odd_servers import until
from programs import children_of
from repository import SERVERS

from bbfs.model.values import McpServer, Policy
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.client.subscriptions import Interests

FIRST, SECOND = "resource://knowledge/collections", "resource://knowledge/other"


@pytest.mark.semantics("S18")
@pytest.mark.parametrize("options", [[], ["--handshake-only"]], ids=["modern", "handshake"])
async def test_a_server_announces_what_it_has_agreed_to_as_long_as_it_is_there(
    manager: MCPManager, tmp_path: Path, options: list[str]
) -> None:
    log = tmp_path / "requests"
    arguments = (
        str(SERVERS / "recording.py"),
        str(log),
        *options,
        "--",
        *forked("-m", "bbfs.knowledge", "serve", "--db", tmp_path / "kb.sqlite", "--create"),
    )
    manager.add("kb", McpServer("stdio", command=sys.executable, args=arguments), Policy(timeout=20))
    assert not manager.connection("kb").interests.announces(None)
    with trio.fail_after(30):
        await manager.list_resources("kb")
        await manager.connection("kb").interests.confirmed()
        assert manager.connection("kb").interests.announces(None)
        assert not manager.connection("kb").interests.announces(FIRST)
        for uri in (FIRST, SECOND):
            manager.connection("kb").interests.add(uri)
            await manager.connection("kb").interests.confirmed()
            # The second is no resource, which only a server of the handshake era cares about.
            assert manager.connection("kb").interests.announces(uri) == (uri == FIRST or not options)
        assert manager.connection("kb").interests.announces(FIRST)
        for pid in _children(os.getpid(), tmp_path):
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)
        await until(lambda: not manager.connection("kb").interests.announces(None))
        assert not manager.connection("kb").interests.announces(FIRST)
        await manager.list_resources("kb")
        await manager.connection("kb").interests.confirmed()
        assert manager.connection("kb").interests.announces(None)
        assert manager.connection("kb").interests.announces(FIRST)


def _children(parent: int, directory: Path) -> list[int]:
    """The processes that `parent` has started for the server in a directory, and their own."""
    found: list[int] = []
    for child in children_of(parent):
        with suppress(OSError):
            found += _children(child, directory)
            if str(directory).encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


async def test_interests_are_settled_when_all_is_answered_and_not_before(autojump_clock: object) -> None:
    interests = Interests()
    answers: list[str] = []

    async def settle() -> None:
        with trio.move_on_after(1) as bound:
            await interests.confirmed()
        answers.append("no" if bound.cancelled_caught else "yes")

    await settle()  # no server is connected
    interests.answered(listing=True, told=(), asked=())
    await settle()
    interests.add("a")
    await settle()
    interests.answered(listing=True, told=(), asked=("a",))  # refused
    await settle()
    interests.disconnected()
    await settle()
    interests.answered(listing=False, told=(), asked=None)  # of this one nothing will ever be asked
    interests.add("b")
    await settle()
    assert answers == ["no", "yes", "no", "yes", "no", "yes"]
    assert (interests.listing_told, interests.told) == (False, frozenset())
