"""The requests that a write to a server of SFTP takes, and a failure at each of them."""

import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import paramiko
import pytest
from paramiko.sftp import SFTP_FAILURE
from sftp_server import PASSWORD, USER, SftpServer, sftp_server

from bbfs.model.errors import Conflict, Denied, NoSpace, NotEmpty, NotFound, Unreachable
from bbfs.model.values import DataSource, Policy
from bbfs.model.versions import Expected
from bbfs.sources import Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.storage.handler import StorageHandler
from bbfs.sources.unfinished import new_name

OLD, NEW = b"old", b"the new bytes"
CREATION = ["lstat", "open", "write", "close", "lstat", "lstat", "rename"]
REPLACEMENT = ["lstat", "open", "write", "close", "setstat", "lstat", "lstat", "extended"]
LARGE = os.urandom(3 << 20)
NO_PROCESS = 0x7FFF_FFFF


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SftpServer]:
    root = tmp_path / "root"
    root.mkdir()
    with sftp_server(root, tmp_path) as server:
        yield server


@pytest.fixture
async def handler(server: SftpServer) -> AsyncIterator[StorageHandler]:
    config = {"url": f"sftp://127.0.0.1:{server.port}/", "options": {"known_hosts": str(server.known_hosts)}}
    auth = {"username": USER, "password": PASSWORD}
    policy = Policy(timeout=5)
    made = StorageHandler(
        DataSource("far", "far", "storage", "bb", "bb-storage+far+sftp", policy=policy, config=config, auth=auth),
        Services(),
    )
    with pytest.raises(NotFound):
        await made.stat(f"{config['url']}none")  # which connects
    server.asked.clear()
    yield made
    await made.aclose()


def uri_of(handler: StorageHandler) -> str:
    return f"{handler.source.config['url']}a"


def parts(server: SftpServer) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in server.root.iterdir()}


async def write(handler: StorageHandler, data: bytes = NEW, *, is_new: bool = False) -> int | None:
    return (await handler.write(uri_of(handler), MemoryContent(data), Expected(exists=not is_new))).size


@pytest.mark.semantics("S33")
@pytest.mark.parametrize("is_new", [True, False])
async def test_a_file_is_written_in_three_waits(handler: StorageHandler, server: SftpServer, is_new: bool) -> None:
    if not is_new:
        (server.root / "a").write_bytes(OLD)
        (server.root / "a").chmod(0o640)
    server.group(2, 4 if is_new else 5, 1)
    told = await handler.write(uri_of(handler), MemoryContent(NEW), Expected(exists=not is_new))
    assert server.asked == (CREATION if is_new else REPLACEMENT)
    assert await handler.stat(uri_of(handler)) == told
    assert parts(server) == {"a": NEW}
    assert is_new or (server.root / "a").stat().st_mode & 0o777 == 0o640


async def test_a_time_is_set_in_two_waits(handler: StorageHandler, server: SftpServer) -> None:
    (server.root / "a").write_bytes(OLD)
    server.group(1, 2)
    told = await handler.set_time(uri_of(handler), 1_500_000_000_000_000_000)
    assert server.asked == ["lstat", "setstat", "lstat"]
    assert told.modified_ns == 1_500_000_000_000_000_000
    assert await handler.stat(uri_of(handler)) == told


@pytest.mark.semantics("S13")
@pytest.mark.parametrize(("size", "reads"), [(5, 1), (100 << 10, 4)])
async def test_a_small_file_is_three_waits(handler: StorageHandler, server: SftpServer, size: int, reads: int) -> None:
    data = os.urandom(size)
    (server.root / "a").write_bytes(data)
    server.group(1, 1, reads + 2)
    loaded = await handler.load(uri_of(handler))
    assert server.asked == ["lstat", "open", *["read"] * reads, "close", "lstat"]
    assert loaded.parts[0].content.read(0, size) == data


@pytest.mark.semantics("S13")
@pytest.mark.parametrize("change", ["longer", "shorter", "link", "gone"])
async def test_a_file_that_changes_meanwhile_is_reread(
    handler: StorageHandler, server: SftpServer, change: str
) -> None:
    file = server.root / "a"
    file.write_bytes(OLD)

    def meet(name: str, transport: paramiko.Transport) -> None:
        if len(server.asked) == 2:
            file.unlink()
            if change == "link":
                file.symlink_to("b")
            elif change != "gone":
                file.write_bytes(NEW if change == "longer" else b"")

    (server.root / "b").write_bytes(OLD)
    server.meet = meet
    if change in ("link", "gone"):
        with pytest.raises(Denied if change == "link" else NotFound):
            await handler.load(uri_of(handler))
        return
    [part] = (await handler.load(uri_of(handler))).parts
    assert part.content.read(0, 100) == (NEW if change == "longer" else b"")


async def test_a_large_file_is_written_whole(handler: StorageHandler, server: SftpServer) -> None:
    assert await write(handler, LARGE, is_new=True) == len(LARGE)
    assert parts(server) == {"a": LARGE}
    assert server.asked.count("write") == 96


@pytest.mark.semantics("S33")
@pytest.mark.parametrize("step", range(len(REPLACEMENT)))
async def test_a_refusal_at_any_step_leaves_the_old_file(
    handler: StorageHandler, server: SftpServer, step: int
) -> None:
    (server.root / "a").write_bytes(OLD)
    assert await write(handler, OLD) == len(OLD)
    server.asked.clear()

    def refuse(name: str, transport: paramiko.Transport) -> int | None:
        return SFTP_FAILURE if len(server.asked) == step + 1 else None

    server.meet = refuse
    kind = (None, Denied, NoSpace, NoSpace, None, NoSpace, Denied, Denied)[step]
    if kind is None:  # it connects again before anything is done, or goes on without the mode
        assert await write(handler) == len(NEW)
        assert parts(server) == {"a": NEW}
    else:
        with pytest.raises(kind):
            await write(handler)
        assert parts(server) == {"a": OLD}
        server.asked = [*REPLACEMENT]
        assert await write(handler) == len(NEW), "the session can be used again"


@pytest.mark.semantics("S32.11")
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("step", range(1, CREATION.index("rename")))
async def test_a_change_by_somebody_else_before_the_rename_stays(
    handler: StorageHandler, server: SftpServer, step: int, is_new: bool
) -> None:
    if not is_new:
        (server.root / "a").write_bytes(OLD)
    theirs = OLD + b" and theirs"

    def change(name: str, transport: paramiko.Transport) -> None:
        if len(server.asked) == step + 1:
            (server.root / "a").write_bytes(theirs)

    server.meet = change
    with pytest.raises(Conflict):
        await write(handler, is_new=is_new)
    assert parts(server) == {"a": theirs}


@pytest.mark.semantics("S33")
@pytest.mark.parametrize("step", range(len(REPLACEMENT)))
async def test_a_lost_connection_leaves_the_old_file(handler: StorageHandler, server: SftpServer, step: int) -> None:
    (server.root / "a").write_bytes(OLD)
    assert await write(handler, OLD) == len(OLD)
    server.asked.clear()

    def end(name: str, transport: paramiko.Transport) -> None:
        if len(server.asked) == step + 1:
            transport.close()

    server.meet = end
    if step < 2:  # nothing is done yet: it connects again
        assert await write(handler) == len(NEW)
        assert parts(server) == {"a": NEW}
        return
    with pytest.raises(Unreachable):
        await write(handler)
    there = parts(server)
    assert there.pop("a") == (NEW if REPLACEMENT[step] == "extended" else OLD)
    assert len(there) == (REPLACEMENT[step] != "extended"), "it cannot be removed any more"


@pytest.mark.semantics("S32.11")
async def test_a_change_during_a_long_upload_is_a_conflict(handler: StorageHandler, server: SftpServer) -> None:
    (server.root / "a").write_bytes(OLD)
    assert await write(handler, LARGE) == len(LARGE)

    def change(name: str, transport: paramiko.Transport) -> None:
        if name == "write":
            (server.root / "a").write_bytes(b"theirs")

    server.meet = change
    with pytest.raises(Conflict):
        await write(handler, LARGE)
    assert parts(server) == {"a": b"theirs"}


async def test_a_file_that_somebody_else_has_made_is_kept(handler: StorageHandler, server: SftpServer) -> None:
    (server.root / "a").write_bytes(OLD)
    with pytest.raises(Conflict):
        await write(handler, is_new=True)
    assert parts(server) == {"a": OLD}
    assert "write" not in server.asked
    assert await write(handler) == len(NEW)


async def test_a_server_that_keeps_less_than_it_says_gets_no_file(handler: StorageHandler, server: SftpServer) -> None:
    def cut(name: str, transport: paramiko.Transport) -> None:
        if name == "lstat":
            for each in server.root.glob("*.part"):
                os.truncate(each, 1)

    server.meet = cut
    with pytest.raises(Unreachable, match="not kept all"):
        await write(handler, is_new=True)
    assert parts(server) == {}


async def test_a_file_that_another_machine_uploads_is_not_removed(handler: StorageHandler, server: SftpServer) -> None:
    other = f"{'1' * 8}-1-{'0' * 8}"
    begun, idle = f".bbfs-1-{other}.part", f".bbfs-{int(time.time()) + 10**6:x}-{other}.part"
    for name, age in ((begun, 3600), (idle, 2 * 24 * 3600)):
        (server.root / name).write_bytes(b"half")
        os.utime(server.root / name, (time.time() - age, time.time() - age))
    await handler.list_directory((uri_of(handler).split("/")[2],))
    await write(handler, is_new=True)
    assert parts(server) == {begun: b"half", "a": NEW}


REMOVAL = ["lstat", "open", "read", "close", "lstat", "remove"]


def seen(data: bytes) -> Expected:
    """Return the state of a file whose bytes the mount has loaded or stored."""
    return Expected(exists=True, version=MemoryContent(data).version)


@pytest.mark.semantics("S32.20")
@pytest.mark.parametrize(
    ("data", "waits", "asked"),
    [(OLD, (2, 3, 1), REMOVAL), (b"", (1, 1), ["lstat", "remove"])],
    ids=["small", "empty"],
)
async def test_a_file_is_compared_and_removed_in_few_waits(
    handler: StorageHandler, server: SftpServer, data: bytes, waits: tuple[int, ...], asked: list[str]
) -> None:
    (server.root / "a").write_bytes(data)
    assert handler.detects_removed(seen(data))
    server.group(*waits)
    await handler.remove(uri_of(handler), seen(data))
    assert server.asked == asked
    assert parts(server) == {}


@pytest.mark.semantics("S32.11", "S32.20")
@pytest.mark.parametrize("step", range(REMOVAL.index("remove")))
@pytest.mark.parametrize("theirs", [b"OLD", b"theirs", b"", None])
async def test_a_change_by_somebody_else_before_a_removal_stays(
    handler: StorageHandler, server: SftpServer, step: int, theirs: bytes | None
) -> None:
    """All of them but one: of the same size, within the second, after the bytes were read."""
    file = server.root / "a"
    file.write_bytes(OLD)

    def change(name: str, transport: paramiko.Transport) -> None:
        if len(server.asked) == step + 1:
            file.unlink()
            if theirs is not None:
                file.write_bytes(theirs)
                os.utime(file, (1, 1))

    server.meet = change
    with pytest.raises(Conflict):
        await handler.remove(uri_of(handler), seen(OLD))
    assert parts(server) == ({} if theirs is None else {"a": theirs})
    assert "remove" not in server.asked


@pytest.mark.semantics("S32.20")
@pytest.mark.parametrize(
    ("kind", "data"), [("link", OLD), ("link", b""), ("directory", OLD), ("directory", b""), ("pipe", b"")]
)
async def test_what_is_no_file_is_not_removed(
    handler: StorageHandler, server: SftpServer, kind: str, data: bytes
) -> None:
    (server.root / "b").write_bytes(data)
    if kind == "link":
        (server.root / "a").symlink_to("b")
    elif kind == "directory":
        (server.root / "a").mkdir()
    else:  # no program has seen it with bytes; an open would hold the server
        os.mkfifo(server.root / "a")
    with pytest.raises(Conflict):
        await handler.remove(uri_of(handler), seen(data))
    assert {"a", "b"} == {each.name for each in server.root.iterdir()}


@pytest.mark.semantics("S32.20")
async def test_a_large_file_is_not_compared_by_its_removal(handler: StorageHandler, server: SftpServer) -> None:
    (server.root / "a").write_bytes(LARGE)
    with pytest.raises(Conflict):
        await handler.remove(uri_of(handler), seen(LARGE))
    assert server.asked == ["lstat", "open", "close", "lstat"]
    assert not handler.detects_removed(Expected(exists=True, version=f"{1:x}-{len(LARGE):x}"))
    await handler.remove(uri_of(handler), Expected(exists=True))
    assert parts(server) == {}


@pytest.mark.semantics("S32")
@pytest.mark.parametrize("step", range(len(REMOVAL)))
@pytest.mark.parametrize("is_cut", [True, False])
async def test_a_failure_at_any_step_of_a_removal_removes_the_file_or_says_why_not(
    handler: StorageHandler, server: SftpServer, step: int, is_cut: bool
) -> None:
    (server.root / "a").write_bytes(OLD)

    def fail(name: str, transport: paramiko.Transport) -> int | None:
        if len(server.asked) != step + 1:
            return None
        return transport.close() if is_cut else SFTP_FAILURE

    server.meet = fail
    if REMOVAL[step] == "remove":
        with pytest.raises(Unreachable if is_cut else Denied):
            await handler.remove(uri_of(handler), seen(OLD))
        assert parts(server) == ({} if is_cut else {"a": OLD})
    elif REMOVAL[step] == "open" and not is_cut:
        with pytest.raises(Conflict):
            await handler.remove(uri_of(handler), seen(OLD))
        assert parts(server) == {"a": OLD}
    else:  # it connects again before anything is done
        await handler.remove(uri_of(handler), seen(OLD))
        assert parts(server) == {}
    assert server.asked.count("remove") == (0 if REMOVAL[step] == "open" and not is_cut else 1), "none is sent again"


STAGED = ["lstat", "lstat", "setstat", "extended"]
"""The requests of a rename over a file whose new content is staged."""


async def staged(handler: StorageHandler, server: SftpServer, old: bytes | None = OLD) -> str:
    """Stage the large content for a file that is there, or for a new one. Return where."""
    if old is not None:
        (server.root / "a").write_bytes(old)
        (server.root / "a").chmod(0o640)
    place = await handler.stage(f"{uri_of(handler)}.tmp", MemoryContent(LARGE))
    assert sorted(map(len, parts(server).values())) == sorted([*([] if old is None else [len(old)]), len(LARGE)])
    server.asked.clear()
    return place


async def write_staged(handler: StorageHandler, place: str, *, is_new: bool = False) -> int | None:
    content = MemoryContent(LARGE)
    return (await handler.write_staged(place, uri_of(handler), content, Expected(exists=not is_new))).size


@pytest.mark.semantics("S33.8")
@pytest.mark.parametrize("is_new", [True, False])
async def test_a_staged_content_gets_its_name_and_mode_without_its_bytes(
    handler: StorageHandler, server: SftpServer, is_new: bool
) -> None:
    place = await staged(handler, server, None if is_new else OLD)
    shown = await handler.list_directory((uri_of(handler).split("/")[2],))
    assert [each.name for each in shown.resources] == ([] if is_new else ["a"]), "no listing shows it"
    server.asked.clear()
    assert await write_staged(handler, place, is_new=is_new) == len(LARGE)
    assert server.asked == (["lstat", "lstat", "rename"] if is_new else STAGED)
    assert parts(server) == {"a": LARGE}
    assert is_new or (server.root / "a").stat().st_mode & 0o777 == 0o640


@pytest.mark.semantics("S32")
@pytest.mark.parametrize("step", range(len(STAGED)))
@pytest.mark.parametrize("is_cut", [True, False])
async def test_a_failure_at_any_step_of_a_staged_rename_leaves_the_old_file(
    handler: StorageHandler, server: SftpServer, step: int, is_cut: bool
) -> None:
    place = await staged(handler, server)

    def fail(name: str, transport: paramiko.Transport) -> int | None:
        if len(server.asked) != step + 1:
            return None
        return transport.close() if is_cut else SFTP_FAILURE

    server.meet = fail
    if step == len(STAGED) - 1:
        with pytest.raises(Unreachable if is_cut else Denied):
            await write_staged(handler, place)
        assert parts(server)["a"] == (LARGE if is_cut else OLD)
    else:  # it connects again before the file is renamed, or goes on without the mode
        assert await write_staged(handler, place) == len(LARGE)
        assert parts(server) == {"a": LARGE}
    server.meet = lambda name, transport: None
    await handler.unstage(place)
    assert {*parts(server)} == {"a"}


@pytest.mark.semantics("S32")
async def test_a_staged_content_that_was_touched_is_sent_again(handler: StorageHandler, server: SftpServer) -> None:
    for spoil in (os.unlink, lambda path: os.truncate(path, 7)):
        place = await staged(handler, server)
        [file] = server.root.glob("*.part")
        spoil(file)
        assert await write_staged(handler, place) == len(LARGE)
        assert parts(server) == {"a": LARGE}


@pytest.mark.semantics("S32")
async def test_a_staged_content_replaces_nothing_made_by_others(handler: StorageHandler, server: SftpServer) -> None:
    place = await staged(handler, server)
    with pytest.raises(Conflict):
        await write_staged(handler, place, is_new=True)
    await handler.unstage(place)
    await handler.unstage(place)
    assert parts(server) == {"a": OLD}


async def test_a_directory_with_what_an_ended_process_has_staged_can_be_removed(
    handler: StorageHandler, server: SftpServer
) -> None:
    uri = f"{uri_of(handler)}-directory"
    (server.root / "a-directory").mkdir()
    begin, at, machine, _, end = new_name().split("-")
    ended = "-".join((begin, at, machine, f"{NO_PROCESS:x}", end))
    place = await handler.stage(f"{uri}/b", MemoryContent(LARGE))
    (server.root / "a-directory" / ended).write_bytes(b"half")
    with pytest.raises(NotEmpty):
        await handler.remove_directory(f"{uri}/")
    await handler.unstage(place)
    await handler.remove_directory(f"{uri}/")
    assert parts(server) == {}
