"""The control socket: who may come, what is asked and told, and that no client harms the daemon."""

import json
import os
import socket
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import FlatSource, World

from bbfs.fuse.control import messages
from bbfs.fuse.control import server as control
from bbfs.fuse.control.link import MessageStream, connect
from bbfs.fuse.control.server import Control, Limits
from bbfs.model.errors import Denied, ProtocolViolation, Unreachable

BOUND = 60.0

USUAL = Limits()


@pytest.fixture(autouse=True)
def runtime(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory of the test's own."""
    directory = short_path / "run"
    directory.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    return directory / "bbfs"


@asynccontextmanager
async def serving(
    source: FlatSource, mount_point: str = "/a mount", limits: Limits = USUAL
) -> AsyncGenerator[tuple[World, str]]:
    """A world with a control socket, and the socket's path. Everything has a bound."""
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery, World(nursery, source) as world:
            served = Control(world.manager, world.files.refresh, mount_point, limits=limits)
            address = await nursery.start(served.run)
            yield world, address
            nursery.cancel_scope.cancel()


def flat(**contents: bytes) -> FlatSource:
    return FlatSource(contents={f"x://{name}": data for name, data in contents.items()})


async def raw(address: str) -> trio.SocketStream:
    return await trio.open_unix_socket(address)


async def until_end(stream: trio.SocketStream) -> list[Any]:
    received = b""
    try:
        while chunk := await stream.receive_some():
            received += chunk
    except trio.BrokenResourceError:
        pass  # let go while something of ours was unread
    return [json.loads(line) for line in received.splitlines()]


def watch(*paths: str, number: object = 1) -> dict[str, Any]:
    return {"id": number, "request": "watch", "paths": list(paths)}


async def test_the_socket_is_this_users_alone_and_gone_in_the_end(runtime: Path) -> None:
    async with serving(flat(a=b"1")) as (_, address):
        assert Path(address).parent == runtime
        assert stat.S_IMODE(os.stat(address).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(runtime).st_mode) == 0o700
        async with connect(address):
            pass
    assert os.listdir(runtime) == []


async def test_what_a_killed_daemon_left_is_cleared_and_a_living_one_is_left_alone(runtime: Path) -> None:
    async with serving(flat()) as (_, address):
        stale = Path(address.replace(f"-{os.getpid()}", "-1"))
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(stale))
        other = Path(address.replace(f"-{os.getpid()}", "-2"))
        with socket.socket(socket.AF_UNIX) as living:
            living.bind(str(other))
            living.listen()
            os.unlink(address)
            async with serving(flat()) as (_, again):
                assert sorted(os.listdir(runtime)) == sorted([os.path.basename(again), other.name])


async def test_a_directory_of_another_users_is_not_used(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery, World(nursery, flat()) as world:
            assert await nursery.start(Control(world.manager, world.files.refresh, "/m").run) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_another_user_is_refused(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(flat()) as (_, address):
        monkeypatch.setattr(control, "peer", lambda _: (1, 12345))
        with pytest.raises(Unreachable):
            async with connect(address):
                pass
        monkeypatch.undo()
        with pytest.raises(Denied, match="belongs to another user"):
            async with connect(address, 12345):
                pass
        async with connect(address):
            pass
    assert "of user 12345 was refused" in caplog.text


async def receive(link: MessageStream) -> dict[str, Any]:
    message = await link.receive()
    assert message is not None
    return message


@pytest.mark.semantics("S18", "S21")
async def test_changes_are_told_and_refreshes_done() -> None:
    source = flat(a=b"old", b=b"2")
    async with serving(source) as (world, address), connect(address) as link:
        await link.send([watch("", number="all"), watch("mcp-server+docs/x/b")])
        answers = [await receive(link) for _ in range(2)]
        assert {answer["id"]: answer["ok"] for answer in answers} == {"all": True, 1: True}
        source.contents["x://a"] = b"new"
        source.announce("x://a")
        told = await receive(link)
        assert told.pop("time").startswith("2023-11-14T22:13:2")
        assert told == {
            "id": "all",
            "event": "changed",
            "path": "mcp-server+docs/x/a",
            "uri": "mcp-server+docs+x://a",
            "source": "docs",
        }
        before = len(source.loaded)
        await link.send([{"id": 3, "request": "refresh", "paths": ["none", "mcp-server+docs/x/b"]}])
        assert (await receive(link))["errno"] == "ENOENT"
        await world.kernel.cat("mcp-server+docs/x/b")
        assert len(source.loaded) == before + 1


@pytest.mark.parametrize(
    ("request_", "errno", "says"),
    [
        (watch("mcp-server+docs/none"), "ENOENT", "no such"),
        (watch("none"), "ENOENT", "no such source"),
        ({"id": 1, "request": "refresh", "paths": ["none"]}, "ENOENT", "no such source"),
        ({"id": 1, "request": "watch"}, "EPROTO", "paths"),
        ({"id": 1, "request": "watch", "paths": [7]}, "EPROTO", "paths"),
        ({"id": 1, "request": "destroy", "paths": []}, "EINVAL", "unknown request 'destroy'"),
        ({"id": 1, "request": "grep"}, "EPROTO", "path is missing"),
        (
            {"id": 1, "request": "grep", "path": "", "pattern": "a", "syntax": "basic"},
            "EPROTO",
            "syntax must be one of",
        ),
        ({"id": 1, "request": "search", "query": "a", "limit": True}, "EPROTO", "limit must be an integer"),
        ({"id": 1, "request": "search", "query": "a", "within": float("inf")}, "EPROTO", "within must be a number"),
        ({"id": 1}, "EINVAL", "unknown request"),
        (watch("a/" * 100_000), "ENAMETOOLONG", "more than"),
        ({"id": 1, "request": "list", "path": "mcp-server+docs/none"}, "ENOENT", "none"),
        ({"id": 1, "request": "list", "path": "/"}, "EPROTO", "path"),
        ({"id": 1, "request": "list"}, "EPROTO", "path"),
        ({"id": 1, "request": "list", "path": "a/" * 100_000}, "ENAMETOOLONG", "more than"),
        ({"id": 1, "request": "describe", "paths": [""]}, "EPROTO", "path"),
        ({"id": 1, "request": "describe", "paths": ["mcp-server+docs", "mcp-server+docs"]}, "EPROTO", "path"),
        ({"id": 1, "request": "describe"}, "EPROTO", "paths"),
        ({"id": 1, "request": "describe", "paths": ["mcp-server+docs/none"]}, "ENOENT", "none"),
        ({"id": 1, "request": "describe", "paths": ["a/" * 100_000]}, "ENAMETOOLONG", "more than"),
    ],
    ids=lambda value: str(value)[:80],
)
async def test_what_cannot_be_done_is_answered_and_the_next_request_is_served(
    request_: dict[str, Any], errno: str, says: str
) -> None:
    async with serving(flat(a=b"1")) as (_, address), connect(address) as link:
        await link.send([request_])
        answer = await receive(link)
        assert (answer["id"], answer["errno"]) == (1, errno)
        assert says in answer["error"]
        await link.send([{"id": 2, "request": "refresh", "paths": [""]}])
        assert await receive(link) == {"id": 2, "ok": True}


@pytest.mark.semantics("S12")
async def test_metadata_are_told_and_nothing_is_loaded() -> None:
    source = flat(a=b"1")
    async with serving(source) as (_, address), connect(address) as link:
        for path, found in (
            ("mcp-server+docs", {"id": "docs"}),
            ("mcp-server+docs/x", {}),  # only URIs make this directory
            ("mcp-server+docs/x/a", {"uri": "mcp-server+docs+x://a"}),
        ):
            await link.send([{"id": path, "request": "describe", "paths": [path]}])
            answer = await receive(link)
            assert answer["id"] == path
            assert found.items() <= answer["document"].items()
            assert await receive(link) == {"id": path, "ok": True}
    assert source.loaded == []


@pytest.mark.semantics("S12")
async def test_a_directory_is_described_in_pages_and_loads_nothing() -> None:
    source = FlatSource(contents={f"x://d/{'😀' * 60}{number:03}": b"" for number in range(250)})
    source.contents["x://d/e/f"] = b"below"
    async with serving(source) as (world, address), connect(address) as link:
        await link.send([{"id": 1, "request": "list", "path": "mcp-server+docs/x/d"}])
        pages: list[list[dict[str, Any]]] = []
        while "ok" not in (message := await receive(link)):
            pages.append(message["entries"])
        assert [len(page) for page in pages] == [100, 100, 51]
        assert max(len(json.dumps(page)) for page in pages) < messages.LONGEST_LINE
        found = {entry["name"]: entry for page in pages for entry in page}
        assert sorted(found) == sorted(await world.kernel.ls("mcp-server+docs/x/d"))
        assert found["e"] == {"name": "e"}
        for name in [name for name in found if name != "e"][:3]:
            document = json.loads(await world.kernel.xattr(f"mcp-server+docs/x/d/{name}", "user.bbfs.metadata"))
            told = {key: document.get(key) for key in ("size", "lastModified", "mimeType", "uri")}
            assert {key: value for key, value in told.items() if value is not None} | {"name": name} == found[name]
        assert source.loaded == []


@pytest.mark.parametrize(
    "line", [b"no json\n", b"[1]\n", b"\xff\n", b"[" * 100_000 + b"\n", b"x" * (messages.LONGEST_LINE + 1)], ids=len
)
async def test_who_does_not_keep_to_the_protocol_is_let_go(line: bytes) -> None:
    async with serving(flat()) as (_, address):
        stream = await raw(address)
        async with stream:
            await stream.send_all(line)
            messages = await until_end(stream)
        assert messages[0] == {"bbfs": "control", "version": 1}
        assert messages[1]["errno"] == "EPROTO"
        async with connect(address) as link:
            await link.send([{"id": 1, "request": "refresh", "paths": []}])
            assert await receive(link) == {"id": 1, "ok": True}


async def test_more_clients_than_there_is_room_for_are_sent_away() -> None:
    async with serving(flat(), limits=Limits(clients=2)) as (_, address), connect(address), connect(address):
        async with connect(address) as third:
            answer = await receive(third)
            assert "2 clients" in answer["error"]
            assert await third.receive() is None


async def test_more_requests_than_one_client_may_have_under_way_end_it() -> None:
    async with serving(flat(a=b"1"), limits=Limits(requests=3)) as (_, address), connect(address) as link:
        await link.send([watch("mcp-server+docs/x/a", number=n) for n in range(4)])
        answers: list[dict[str, Any]] = []
        while (message := await link.receive()) is not None:
            answers.append(message)
        assert any("requests under way" in answer.get("error", "") for answer in answers)


@pytest.mark.semantics("S22")
async def test_who_reads_too_slowly_is_told_what_it_missed_and_delays_nobody() -> None:
    name = "n" * 200
    source = FlatSource(contents={f"x://{name}/{number:03}": b"" for number in range(100)})
    async with serving(source, limits=Limits(queued=50)) as (world, address), connect(address) as slow:
        await slow.send([watch("")])
        assert (await receive(slow))["ok"]
        for turn in range(20):  # about 1.5 MB, more than a socket holds
            for uri in source.contents:
                source.contents[uri] = b"%d" % turn
                source.announce(uri)
            await world_settled(world)
        events: list[str] = []
        with trio.fail_after(BOUND):
            while "missed" not in events:
                events.append((await receive(slow))["event"])
        assert len(events) < 2000


@pytest.mark.semantics("S22")
async def test_who_reads_nothing_is_let_go(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", control.log.name)
    source = FlatSource(contents={f"x://{'n' * 200}/{number:03}": b"" for number in range(100)})
    async with serving(source, limits=Limits(stuck_after=0.2)) as (world, address), await raw(address) as stuck:
        await stuck.send_all(json.dumps(watch("")).encode() + b"\n")
        for turn in range(30):
            for uri in source.contents:
                source.contents[uri] = b"%d" % turn
                source.announce(uri)
            await world_settled(world)
        while "reads nothing and is let go" not in caplog.text:  # noqa: ASYNC110 - nothing else tells
            await trio.sleep(0.01)
        assert (await until_end(stuck))[0] == {"bbfs": "control", "version": 1}
        async with connect(address):
            pass


async def world_settled(world: World) -> None:
    """Until nothing is under way at the sources any more."""
    for _ in range(50):
        await trio.lowlevel.checkpoint()


async def test_whoever_is_no_daemon_of_ours_is_found_out(tmp_path: Path) -> None:
    address = str(tmp_path / "socket")
    with pytest.raises(Unreachable):
        async with connect(address):
            pass
    said = b'{"bbfs": "control", "version": 99}\n'

    async def foreign(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.send_all(said)

    listener = trio.socket.socket(socket.AF_UNIX)
    await listener.bind(address)
    listener.listen()
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, foreign, [trio.SocketListener(listener)])
            with pytest.raises(ProtocolViolation, match="another version"):
                async with connect(address):
                    pass
            said = b""
            with pytest.raises(Unreachable):
                async with connect(address):
                    pass
            nursery.cancel_scope.cancel()
