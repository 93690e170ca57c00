"""The version after a write is the one in its answer, or unknown: what others change meanwhile is never lost (S32)."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from dav_store import DavStore
from fakes import World
from sftp_server import PASSWORD, USER, sftp_server
from writable import Program, WritableFlat, program_on, writable

from bbfs.model.errors import BbfsError, Conflict, Outdated, Unreachable
from bbfs.model.values import Content, DataSource, Policy, ResourceMetadata
from bbfs.model.versions import Expected
from bbfs.server.tools.write_resources import WriteArguments, Writings
from bbfs.sources import Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.storage.handler import StorageHandler

pytestmark = pytest.mark.semantics("S32")
ROUNDS = int(os.environ.get("BBFS_ROUNDS", "12"))
FILE = "d/a.txt"
NOTE = "mcp-server+docs/test/a.txt"


@asynccontextmanager
async def serving(source: DataSource) -> AsyncIterator[tuple[Program, World]]:
    """Yield a program on a mount of a storage source."""
    handler = StorageHandler(source, Services())
    with trio.fail_after(120):
        try:
            async with program_on(handler) as made:
                yield made
        finally:
            with trio.CancelScope(shield=True):
                await handler.aclose()


@asynccontextmanager
async def mounted(store: DavStore, *, verify: bool = False) -> AsyncIterator[tuple[Program, World, str]]:
    """Yield a program on a mount of a server, and the path of the file there."""
    with store.serving():
        config = {"url": f"webdav://127.0.0.1:{store.port}/d"}
        policy = Policy(timeout=20, verify=verify)
        async with serving(replace(writable("bb-storage+far+webdav"), policy=policy, config=config)) as (
            program,
            world,
        ):
            yield program, world, f"bb-storage+far+webdav/127.0.0.1:{store.port}/{FILE}"


async def held(program: Program, path: str, data: bytes, flags: int = os.O_TRUNC) -> int:
    """Open a file, write, and hand it over: the file stays open."""
    handle = await program.begin(path, os.O_RDWR | flags, data)
    await program.writes.flush(handle)
    return handle


async def lost(program: Program, path: str) -> int:
    """Open a file, write, and hand it over to a source whose answer is lost: the file stays open."""
    handle = await program.begin(path, os.O_RDWR, b"mine!")
    with pytest.raises(Unreachable):
        await program.writes.flush(handle)
    return handle


@pytest.mark.parametrize("form", ['"{}"', 'W/"{}"', '"{}-gzip"', '"\xe9{}"', '"{}", "x"'])
@pytest.mark.parametrize("states_etag", [True, False])
async def test_no_acknowledged_addition_of_two_honest_writers_is_lost(states_etag: bool, form: str) -> None:
    """The other client adds a line between the answer to a PUT and all that the mount asks after it."""
    store = DavStore({FILE: b""}, states_etag=states_etag, form=form)
    acknowledged: list[bytes] = []

    def after(method: str, path: str) -> None:
        if method == "PUT" and len(acknowledged) % 3 == 0:
            acknowledged.append(b"theirs %d\n" % len(acknowledged))
            store.append(path, acknowledged[-1])

    store.after = after
    conflicts = 0
    async with mounted(store) as (program, _, path):
        for number in range(ROUNDS):
            try:
                await program.append(path, b"mine %d\n" % number)
            except (Conflict, Outdated):
                conflicts += 1
            else:
                acknowledged.append(b"mine %d\n" % number)
    lines = store.files[FILE].splitlines(keepends=True)
    assert [each for each in acknowledged if lines.count(each) != 1] == []
    assert conflicts < ROUNDS < 2 * len(acknowledged)


@pytest.mark.parametrize("is_open", [True, False])
async def test_no_addition_of_two_writers_on_sftp_is_lost(is_open: bool, tmp_path: Path) -> None:
    """The server states no version: the bytes are compared. The other client adds a line after each third save."""
    (tmp_path / "root").mkdir()
    file, acknowledged = tmp_path / "root/a.txt", list[bytes]()
    file.write_bytes(b"")
    with sftp_server(tmp_path / "root", tmp_path) as server:
        config = {"url": f"sftp://127.0.0.1:{server.port}/", "options": {"known_hosts": str(server.known_hosts)}}
        source = replace(writable("bb-storage+far+sftp"), policy=Policy(timeout=20), config=config)
        async with serving(replace(source, auth={"username": USER, "password": PASSWORD})) as (program, _):
            path = f"bb-storage+far+sftp/127.0.0.1:{server.port}/a.txt"
            for number in range(ROUNDS):
                held = await program.begin(path, os.O_RDWR) if is_open else None
                try:
                    await program.append(path, b"mine %d\n" % number)
                except (Conflict, Outdated):
                    pass
                else:
                    acknowledged.append(b"mine %d\n" % number)
                if number % 3 == 0:
                    acknowledged.append(b"theirs %d\n" % number)
                    file.write_bytes(file.read_bytes() + acknowledged[-1])
                if held is not None:
                    with suppress(Conflict):  # of what was refused before
                        await program.close(held)
    lines = file.read_bytes().splitlines(keepends=True)
    assert [each for each in acknowledged if lines.count(each) != 1] == []
    assert len(acknowledged) > ROUNDS / 2  # theirs are a third


@pytest.mark.parametrize("states_etag", [True, False])
async def test_a_file_that_stays_open_replaces_only_what_it_has_saved(states_etag: bool) -> None:
    store = DavStore({FILE: b"first"}, states_etag=states_etag)
    store.after = lambda method, path: store.put(path, b"theirs") if method == "PUT" else None
    async with mounted(store) as (program, _, path):
        handle = await held(program, path, b"mine")
        await program.writes.write(handle, 0, b"more")
        with pytest.raises(Conflict):
            await program.close(handle)
        assert store.files == {FILE: b"theirs"}


@pytest.mark.semantics("S7.2")
@pytest.mark.parametrize("states_etag", [True, False])
@pytest.mark.parametrize("data", [b"", b"some bytes"])
async def test_a_new_file_keeps_its_inode_where_the_server_states_versions(states_etag: bool, data: bytes) -> None:
    """GNU tar takes a placeholder of its own for a file of somebody else if its inode or time of change differs."""
    store = DavStore(states_etag=states_etag)
    async with mounted(store) as (program, world, path):
        handle = await program.begin(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, data)
        made = await program.files.getattr(program.files.core.handles[handle].ino)
        await program.close(handle)
        for _ in range(2):
            found = await program.stat(path)
            assert (found.ino, found.changed_ns) == (made.ino, made.changed_ns)
            assert await program.cat(path) == data
            world.core.refresh(())
        store.put(FILE, theirs := b"x" * len(data) or b"of somebody else")
        world.core.refresh(())
        assert await program.cat(path) == theirs
        assert (await program.stat(path)).ino != made.ino


@pytest.mark.parametrize("states_etag", [True, False])
@pytest.mark.semantics("S32.12")
async def test_a_listing_after_a_save_does_not_change_what_the_next_save_replaces(states_etag: bool) -> None:
    store = DavStore({FILE: b"first"}, states_etag=states_etag)
    async with mounted(store) as (program, world, path):
        handle = await held(program, path, b"mine")
        store.put(FILE, b"theirs")
        world.clock.advance(3600)
        await program.ls(path.rpartition("/")[0])
        await program.writes.write(handle, 0, b"more")
        with pytest.raises(Conflict):
            await program.close(handle)
        assert store.files == {FILE: b"theirs"}


@pytest.mark.parametrize("has_changed", [True, False])
@pytest.mark.parametrize("states_etag", [True, False])
async def test_a_file_that_is_renamed_while_it_is_open_replaces_only_itself(
    states_etag: bool, has_changed: bool
) -> None:
    store = DavStore({FILE: b"first"}, states_etag=states_etag)
    if has_changed:
        store.after = lambda method, _: store.put("d/b.txt", b"theirs") if method == "MOVE" else None
    async with mounted(store) as (program, _, path):
        handle = await held(program, path, b"mine")
        await program.rename(path, path.replace("a.txt", "b.txt"))
        await program.writes.write(handle, 0, b"more")
        with pytest.raises(Conflict) if has_changed else nullcontext():
            await program.close(handle)
        assert store.files == {"d/b.txt": b"theirs" if has_changed else b"more"}


@pytest.mark.semantics("S33")
@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("states_etag", [True, False])
async def test_a_file_renamed_over_another_one_opens_at_the_second_try(states_etag: bool, is_open: bool) -> None:
    """The server gives the bytes another ETag under the new name. The kernel has the inode of the renamed file there.

    is_open: whether a program has the replaced file open for writing.
    """
    store = DavStore({FILE: b"old"}, states_etag=states_etag)
    async with mounted(store) as (program, _, path):
        beside = path.replace("a.txt", "b.txt")
        await program.save(beside, b"new")
        if is_open:
            await program.begin(path, os.O_RDWR)
        renamed = await program.stat(beside)
        await program.rename(beside, path)
        store.asked.clear()
        with pytest.raises(Outdated):
            await program.files.open(renamed.ino)
        found = await program.walk(path)
        assert await program.read(await program.files.open(found.ino)) == b"new"
        assert store.asked == ["GET d/a.txt"]


async def save_again(program: Program, world: World, path: str, times: int) -> None:
    """Save a file so often, with a write after it was handed over, and look at it each time."""
    for number in range(times):
        handle = await held(program, path, b"%d" % number)
        await program.writes.write(handle, 1, b"!")
        await program.close(handle)
        assert await program.cat(path) == b"%d!" % number
        world.clock.advance(3600 * (number % 2))


@pytest.mark.parametrize("form", ['"{}"', 'W/"{}"'])
@pytest.mark.parametrize("compares", [True, False])
@pytest.mark.parametrize("states_etag", [True, False])
async def test_a_file_is_saved_again_and_again(states_etag: bool, compares: bool, form: str) -> None:
    store = DavStore({FILE: b"first"}, states_etag=states_etag, compares=compares, form=form)
    async with mounted(store) as (program, world, path):
        await save_again(program, world, path, 5)
        assert store.files == {FILE: b"4!"}
        assert not [*world.manager.writer.pending.items()]


class TwoEtags(DavStore):
    """A server that states one ETag in the answer to a PUT, and another one of the same bytes later."""

    told: str | None = None

    def store(self, path: str, data: bytes) -> None:
        super().store(path, data)
        self.told = path

    def etag(self, path: str) -> str:
        if self.told == path:
            self.told = None
            return '"of the answer"'
        return super().etag(path)


async def test_a_server_with_another_etag_in_its_answers_is_written_again_and_again() -> None:
    store = TwoEtags({FILE: b"first"}, states_etag=True)
    async with mounted(store) as (program, world, path):
        await save_again(program, world, path, 4)
        handle = await held(program, path, b"mine")
        store.put(FILE, b"theirs")
        store.told = None
        await program.writes.write(handle, 0, b"more")
        with pytest.raises(Conflict):
            await program.close(handle)
        assert store.files == {FILE: b"theirs"}


@pytest.mark.parametrize("method", ["PUT", "DELETE", "MOVE", "MKCOL"])
@pytest.mark.parametrize("status", [202, 203, 207])
async def test_an_answer_that_promises_a_change_is_not_one(method: str, status: int) -> None:
    store = DavStore({FILE: b"first"}, statuses={method: status})
    async with mounted(store) as (program, world, path):
        change = {
            "PUT": lambda: program.save(path, b"mine"),
            "DELETE": lambda: program.unlink(path),
            "MOVE": lambda: program.rename(path, path.replace("a.txt", "b.txt")),
            "MKCOL": lambda: program.mkdir(path.replace("a.txt", "new")),
        }[method]
        with pytest.raises(BbfsError, match=r"has not said that it is done|done it in part"):
            await change()
        assert len([*world.manager.writer.pending.items()]) == (method == "PUT")


async def test_a_file_is_removed_by_one_look_and_one_request_on_the_connection_that_is_there() -> None:
    store = DavStore({FILE: b"mine\n"}, states_etag=True)
    async with mounted(store) as (program, _, path):
        await program.save(path, b"saved\n")
        store.asked.clear()
        before = store.connections
        await program.unlink(path)
    assert store.asked == [f"PROPFIND {FILE}", f"DELETE {FILE}"]
    assert store.connections == before
    assert FILE not in store.files


@pytest.mark.parametrize("compares", [True, False])
@pytest.mark.parametrize("theirs", [b"theirs\n", None])
async def test_a_file_that_another_client_has_changed_or_removed_is_not_removed(
    theirs: bytes | None, compares: bool
) -> None:
    store = DavStore({FILE: b"mine\n"}, states_etag=True, compares=compares)
    async with mounted(store) as (program, _, path):
        await program.save(path, b"saved\n")
        if theirs is None:
            del store.files[FILE]
        else:
            store.put(FILE, theirs)
        with pytest.raises(Conflict):
            await program.unlink(path)
    assert store.files.get(FILE) == theirs


@pytest.mark.parametrize("method", ["PUT", "DELETE", "MOVE", "MKCOL"])
@pytest.mark.semantics("S32.13")
async def test_the_names_after_a_lost_answer_are_those_of_the_source(method: str) -> None:
    store = DavStore({FILE: b"first"}, loses=[method])
    async with mounted(store) as (program, _, path):
        above, new = path.rpartition("/")[0], path.replace("a.txt", "new")
        await program.ls(above)
        change, names = {
            "PUT": (lambda: program.save(new, b"mine"), ["a.txt", "new"]),
            "DELETE": (lambda: program.unlink(path), []),
            "MOVE": (lambda: program.rename(path, new), ["new"]),
            "MKCOL": (lambda: program.mkdir(new), ["a.txt", "new"]),
        }[method]
        with pytest.raises(Unreachable):
            await change()
        if method == "PUT":
            assert await program.cat(new) == b"mine"
        assert await program.ls(above) == names
        if method == "MKCOL":
            await program.save(f"{new}/b.txt", b"below")
            assert store.files["d/new/b.txt"] == b"below"


@pytest.mark.semantics("S32.13")
async def test_a_save_after_one_whose_answer_was_lost_replaces_that_one() -> None:
    store = DavStore({FILE: b"first"}, states_etag=True, loses=["PUT"])
    async with mounted(store) as (program, world, path):
        handle = await lost(program, path)
        assert store.files == {FILE: b"mine!"}
        await program.writes.write(handle, 0, b"later")
        await program.close(handle)
        assert store.files == {FILE: b"later"}
        assert not [*world.manager.writer.pending.items()]


async def test_a_save_after_one_whose_answer_was_lost_spares_what_others_made_of_it() -> None:
    store = DavStore({FILE: b"first"}, states_etag=True, loses=["PUT"])
    async with mounted(store) as (program, _, path):
        handle = await lost(program, path)
        store.append(FILE, b" theirs")
        await program.writes.write(handle, 0, b"later")
        with pytest.raises(Conflict, match="somebody else"):
            await program.close(handle)
        assert store.files == {FILE: b"mine! theirs"}


@pytest.mark.semantics("S32.13")
async def test_a_save_that_is_older_than_one_whose_answer_was_lost_is_a_conflict() -> None:
    """That one had what the other client wrote, and this one has not."""
    store = DavStore({FILE: b"first "}, states_etag=True, loses=["PUT"])
    async with mounted(store) as (program, world, path):
        older = await program.begin(path, os.O_RDWR, b"older", 6)
        store.append(FILE, b"theirs ")
        seen = Expected(exists=True, etag=store.etag(FILE).strip('"'))
        uri = f"webdav://127.0.0.1:{store.port}/{FILE}"
        with pytest.raises(Unreachable):
            await world.manager.writer.write(
                world.manager.roots.named("far"), uri, MemoryContent(b"first theirs mine"), seen
            )
        with pytest.raises(Conflict):
            await program.close(older)
        assert store.files == {FILE: b"first theirs mine"}


async def test_a_look_that_fails_after_a_lost_answer_is_no_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    store = DavStore({FILE: b"first"}, states_etag=True, loses=["PUT"])
    async with mounted(store) as (program, _, path):
        handle = await lost(program, path)

        async def down(*_: object) -> None:
            raise Unreachable("down")

        monkeypatch.setattr(StorageHandler, "load", down)
        await program.writes.write(handle, 0, b"later")
        with pytest.raises(Unreachable):
            await program.close(handle)
        assert store.files == {FILE: b"mine!"}


@pytest.mark.parametrize("etag", ['W/"1"', 'W/""', ""])
async def test_a_weak_etag_that_stays_hides_no_change(etag: str) -> None:
    """Apache states one for a file of the last second, whose bytes may change without it."""
    store = DavStore({FILE: b"first"}, states_etag=True, form=etag)
    async with mounted(store) as (program, _, path):
        handle = await program.begin(path, os.O_RDWR, b"mine")
        store.put(FILE, b"other")
        with pytest.raises(Conflict):
            await program.close(handle)
        assert store.files == {FILE: b"other"}


@pytest.mark.semantics("S32.15")
async def test_a_server_whose_etags_do_not_stay_is_named_as_the_reason() -> None:
    store = DavStore({FILE: b"first"}, states_etag=True, is_odd=True)
    async with mounted(store) as (program, world, path):
        with pytest.raises(Conflict, match="another ETag at each request"):
            await program.save(path, b"mine")
        [item] = world.manager.writer.pending.items()
        assert "another ETag at each request" in item.reason


@pytest.mark.parametrize("states_etag", [True, False])
async def test_a_client_of_the_mcp_server_gets_the_version_that_it_has_written(states_etag: bool) -> None:
    store = DavStore({FILE: b"first"}, states_etag=states_etag)
    async with mounted(store) as (_, world, path):
        writings, uri = Writings(world.manager), path.replace("/", "://", 1)

        async def write(text: str, version: str | None) -> dict[str, Any]:
            result = await writings.write(WriteArguments(uri=uri, text=text, ifMatch=version, format="json"))
            assert result.structured_content is not None
            return result.structured_content

        version: str | None = None
        for text in ("one", "two"):
            version = (await write(text, version))["metadata"]["version"]
        store.after = lambda method, changed: store.put(changed, b"theirs") if method == "PUT" else None
        written = await write("three", version)
        refused = await write("four", written["metadata"]["version"])
        assert refused["error"]["code"] == "conflict"
        assert store.files == {FILE: b"theirs"}


class Tool(WritableFlat):
    """A source written by a tool that says nothing of what it stores. keeps: what it makes of old and new bytes."""

    writes_unseen = True

    def keeps(self, _old: bytes, new: bytes) -> bytes:
        return new

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        old = self.contents.get(native_uri, b"")
        told = await super().write(native_uri, content, expected)
        self.contents[native_uri] = self.keeps(old, self.contents[native_uri])
        return told


class Appending(Tool):
    def keeps(self, old: bytes, new: bytes) -> bytes:
        return old + new


class Forgetting(Tool):
    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        return self.told(native_uri)


class Short(Tool):
    """States the size of what it keeps, and perhaps a version."""

    etag: str | None = None

    def keeps(self, _old: bytes, new: bytes) -> bytes:
        return new[:3]

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        told = await super().write(native_uri, content, expected)
        return replace(told, size=len(self.contents[native_uri]), etag=self.etag)


class ShortWithVersion(Short):
    etag = "v2"


class Counting(Tool):
    """States the number of characters."""

    async def write(self, native_uri: str, content: Content, expected: Expected) -> ResourceMetadata:
        told = await super().write(native_uri, content, expected)
        return replace(told, size=len(self.contents[native_uri].decode()))


@pytest.mark.semantics("S32.16")
@pytest.mark.parametrize("kind", [Appending, Forgetting, Short, ShortWithVersion])
async def test_a_tool_that_is_no_put_fails_the_save(kind: type[Tool]) -> None:
    async with program_on(kind(contents={"test://a.txt": b"first"})) as (program, _):
        with pytest.raises(BbfsError, match="other bytes than it was given") as failed:
            await program.save(NOTE, b"mine")
        assert failed.type is BbfsError
        assert program.kept() == [b"mine"]


async def test_a_tool_that_is_a_put_is_read_back_once() -> None:
    source = Tool(contents={"test://a.txt": b"first"})
    async with program_on(source) as (program, _):
        await program.cat(NOTE)
        before = len(source.loaded)
        await program.save(NOTE, b"mine")
        assert await program.cat(NOTE) == b"mine"
        assert len(source.loaded) - before == 2, "to compare before, and after"


@pytest.mark.semantics("S32.16")
@pytest.mark.parametrize(("data", "looks"), [(b"mine", 0), ("für".encode(), 1)])
async def test_only_another_size_than_that_of_the_content_has_a_tool_read_back(data: bytes, looks: int) -> None:
    source = Counting(contents={"test://a.txt": b"first"})
    async with program_on(source) as (program, world):
        await program.cat(NOTE)
        before = len(source.loaded)
        await program.save(NOTE, data)
        assert len(source.loaded) - before == 1 + looks, "to compare before, and perhaps after"
        assert (await world.kernel.stat(NOTE)).size == len(data)
        assert await program.cat(NOTE) == data


@pytest.mark.semantics("S32.16")
async def test_verify_finds_other_bytes_of_the_same_size() -> None:
    store = DavStore({FILE: b"first"}, states_etag=True)
    async with mounted(store, verify=True) as (program, _, path):
        await program.save(path, b"mine")
        store.keeps = bytes.upper
        with pytest.raises(BbfsError, match="other bytes than it was given"):
            await program.save(path, b"other")
        assert program.kept() == [b"other"]


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_content_that_a_server_takes_and_does_not_have_is_no_missing_file(is_new: bool) -> None:
    store = DavStore({} if is_new else {FILE: b"first"})

    def lose(_method: str, path: str) -> None:
        del store.files[path]

    store.after = lose
    async with mounted(store) as (program, _, path):
        with pytest.raises(BbfsError, match="took it") as caught:
            await program.save(path, b"mine!")
        assert type(caught.value) is BbfsError, "close(2) has no ENOENT"
        assert program.kept() == [b"mine!"]
