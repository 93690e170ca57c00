"""Resources held in memory: what is put, what is kept in a file, and what becomes of a file that is broken."""

import json
import logging
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from bbfs.model.errors import BbfsError, Busy, ConfigError, InvalidUri, NotFound, TooLarge
from bbfs.model.values import Capabilities, Change, DataSource, ResourceMetadata
from bbfs.model.versions import Expected
from bbfs.sources import CanAnnounce, CanDescribe, Services
from bbfs.sources.content.memory import MemoryContent
from bbfs.sources.memory.file import MemoryFile
from bbfs.sources.memory.handler import MemoryHandler

BOUND = 60.0


def handler(**config: Any) -> MemoryHandler:
    named = ("scratch", "scratch", "memory", "bb", "bb-memory+scratch+memory")
    return MemoryHandler(DataSource(*named, capabilities=Capabilities(write=True), config=config), Services())


def kept(directory: Path, **config: Any) -> MemoryHandler:
    return handler(file=str(directory / "kept.json"), **config)


async def content(source: MemoryHandler, native_uri: str) -> bytes:
    with trio.fail_after(BOUND):
        return (await source.load(native_uri)).parts[0].content.read(0, 1 << 30) or b""


async def listed(source: MemoryHandler) -> dict[str, ResourceMetadata]:
    with trio.fail_after(BOUND):
        return {entry.native_uri: entry for entry in (await source.list()).resources}


async def test_what_is_put_is_described_exactly() -> None:
    source = handler()
    before = time.time_ns()
    put = await source.put("/notes/a b.md", b"# A\n", description="first")
    assert before <= (put.modified_ns or 0) <= time.time_ns()
    assert (await listed(source))["memory://notes/a%20b.md"] == put
    assert (put.uri, put.name, put.size) == ("bb-memory+scratch+memory://notes/a%20b.md", "a b.md", 4)
    assert (put.mime_type, put.content_type, put.description) == ("text/markdown", "text", "first")
    same = await source.put("memory://notes/a%20b.md", b"# A\n")
    assert same.etag == put.etag
    assert (await source.put("memory://notes/%61%20b.md", b"# B\n")).etag != put.etag
    assert list(await listed(source)) == ["memory://notes/a%20b.md"]


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("x", b"text \xc3\xbc", "text/plain"),
        ("x", b"\0", "application/octet-stream"),
        ("x", b"\xff", "application/octet-stream"),
        ("x.html", b"\0", "text/html"),
    ],
)
async def test_the_mime_type_is_told_by_the_name_or_else_by_the_content(name: str, data: bytes, expected: str) -> None:
    assert (await handler().put(name, data)).mime_type == expected
    assert (await handler().put(name, data, mime_type="a/b")).mime_type == "a/b"


@pytest.mark.parametrize(
    "where", ["", "/", "a//b", "a/", "../a", "a/./b", "a\0b", "memory://", "memory://a%2Fb", "x" * 5000]
)
async def test_what_is_no_path_is_refused(where: str) -> None:
    with pytest.raises(InvalidUri):
        await handler().put(where, b"")
    with pytest.raises(NotFound):
        await handler().remove(where)


@pytest.mark.semantics("S18")
async def test_what_changes_is_told_at_once_and_nothing_else() -> None:
    source = handler(resources={"a": "1", "b": "2"})
    assert isinstance(source, CanAnnounce)
    assert isinstance(source, CanDescribe)
    told: list[Change] = []
    source.watch(told.append)
    assert told == [Change("scratch", "missed")]  # what an earlier process knew is not there any more
    told.clear()
    await source.put("a", b"other")
    assert told == [Change("scratch", "changed", "memory://a"), Change("scratch", "listed")]
    told.clear()
    await source.remove("b")
    assert told == [Change("scratch", "changed", "memory://b"), Change("scratch", "listed")]
    told.clear()
    with pytest.raises(NotFound):
        await source.remove("b")
    uri = "memory://a"
    await source.write(uri, MemoryContent(b"written"), Expected(exists=True))
    await source.rename(uri, "memory://c", replace=False)
    await source.remove("memory://c", Expected(exists=True))
    assert told == []  # who writes takes note itself
    with pytest.raises(NotFound):
        await content(source, "memory://b")


async def test_no_more_is_taken_in_than_there_is_room_for() -> None:
    source = handler(max_bytes="64KiB", resources={"a": "x" * 60_000})
    with pytest.raises(TooLarge, match="65536 bytes"):
        await source.put("b", b"x" * 6000)
    assert list(await listed(source)) == ["memory://a"]
    await source.put("a", b"")  # which makes room
    await source.put("b", b"x" * 6000)
    source = handler(max_bytes=100)
    await source.put("n" * 30, b"")  # names count as well
    await source.put("m" * 30, b"")
    with pytest.raises(TooLarge):
        await source.put("o" * 30, b"")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"resources": {"a": {"text": "x", "base64": "eA=="}}}, "one of text, base64 and file"),
        ({"resources": {"a": {}}}, "one of text, base64 and file"),
        ({"resources": {"a": {"base64": "%"}}}, "base64"),
        ({"resources": {"a": {"file": "/nonexistent/x"}}}, "No such file"),
        ({"resources": {"../a": "x"}}, "no name"),
        ({"resources": {"a b": "1", "memory://a%20b": "2"}}, "same resource"),
        ({"resources": {"a": "x" * 100}, "max_bytes": 50}, "max_bytes"),
        ({"max_bytes": "much"}, "expected bytes"),
        ({"resource": {}}, "did you mean 'resources'"),
        ({"resources": {"a": {"txt": "x"}}}, r"resources.a.txt: unknown option; did you mean 'text'"),
        ({"resources": {"a": {"zzz": "x"}}}, "known options are base64, description, file, mime_type, text"),
        ({"resources": {"a": 5}}, r"resources.a: should be a table"),
    ],
)
def test_options_that_cannot_be_used_are_refused(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        handler(**config)


async def test_a_file_among_the_options_gives_content_and_time(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("content")
    os.utime(tmp_path / "there.txt", ns=(0, 1_600_000_000_000_000_123))
    source = handler(resources={"x/here.txt": {"file": str(tmp_path / "there.txt")}})
    assert await content(source, "memory://x/here.txt") == b"content"
    assert (await listed(source))["memory://x/here.txt"].modified_ns == 1_600_000_000_000_000_123


async def test_what_is_put_outlives_a_restart_over_what_the_options_give(tmp_path: Path) -> None:
    options = {"a": "1", "b": "2", "c": "3"}
    source = kept(tmp_path, resources=options)
    await source.put("a", b"changed", mime_type="text/x", description="d")
    await source.put("new", b"\0\xff")
    await source.remove("b")
    before = await listed(source)
    assert stat.S_IMODE((tmp_path / "kept.json").stat().st_mode) == 0o600
    again = kept(tmp_path, resources={**options, "c": "other"})
    after = await listed(again)
    assert {uri: entry for uri, entry in after.items() if uri != "memory://c"} == {
        uri: entry for uri, entry in before.items() if uri != "memory://c"
    }
    assert "memory://b" not in after
    assert await content(again, "memory://c") == b"other"
    assert await content(again, "memory://new") == b"\0\xff"
    await again.put("b", b"back")
    assert await content(kept(tmp_path, resources=options), "memory://b") == b"back"


async def test_two_processes_with_one_file_lose_nothing_of_each_other(tmp_path: Path) -> None:
    one, other = kept(tmp_path), kept(tmp_path)
    told: list[Change] = []
    other.watch(told.append)
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(one.put, f"one/{number}", b"1")
            nursery.start_soon(other.put, f"other/{number}", b"2")
    assert len(await listed(one)) == len(await listed(other)) == 20
    assert {event.uri for event in told} >= {f"memory://one/{number}" for number in range(10)}
    assert not one.announces(None)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"no json",
        b"[]",
        b'{"bbfs": "memory", "version": 99, "resources": []}',
        b'{"bbfs": "memory", "version": 1, "resources": [{"uri": "memory://../x", "text": ""}]}',
        b'{"bbfs": "memory", "version": 1, "resources": [{"uri": "memory://x", "base64": "%"}]}',
        b'{"bbfs": "memory", "version": 1, "resources": [{"uri": "memory://x", "text": "", "modified": "then"}]}',
        b"[" * 100_000,
    ],
    ids=range(8),
)
async def test_a_broken_file_is_set_aside_and_told_and_never_lost(
    tmp_path: Path, broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kept.json").write_bytes(broken)
    (tmp_path / "kept.json.broken-1").write_bytes(b"an older one")
    source = kept(tmp_path)
    with caplog.at_level(logging.WARNING):
        listing = await source.list()
    assert "kept.json.broken-2" in (listing.problem or "")
    assert "kept.json.broken-2" in caplog.text
    assert (tmp_path / "kept.json.broken-2").read_bytes() == broken
    await source.put("a", b"1")
    assert json.loads((tmp_path / "kept.json").read_bytes())["resources"][0]["uri"] == "memory://a"
    assert (tmp_path / "kept.json.broken-1").read_bytes() == b"an older one"


async def test_a_put_that_cannot_be_kept_has_not_happened(tmp_path: Path) -> None:
    source = kept(tmp_path)
    await source.put("a", b"1")
    (tmp_path / "kept.json.new").mkdir()  # in the way of what is written beside the file
    with pytest.raises(BbfsError, match=r"kept\.json"):
        await source.put("a", b"2")
    (tmp_path / "kept.json.new").rmdir()
    assert await content(source, "memory://a") == b"1"
    await source.put("a", b"3")
    assert await content(kept(tmp_path), "memory://a") == b"3"


async def test_a_file_that_cannot_be_read_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / "kept.json").mkdir()
    source = kept(tmp_path)
    with pytest.raises(BbfsError, match="directory"):
        await source.list()
    assert source.state.state == "down"
    with pytest.raises(BbfsError):
        await kept(Path("/proc/1")).put("a", b"")  # where nobody may make a file


@pytest.mark.semantics("S22")
async def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kept.json")
    source = kept(tmp_path)
    with trio.fail_after(BOUND):
        with pytest.raises(BbfsError, match="no regular file"):
            await source.list()
        with pytest.raises(BbfsError, match="no regular file"):
            await source.put("a", b"")
    with pytest.raises(ConfigError, match="no regular file"):
        handler(resources={"a": {"file": str(tmp_path / "kept.json")}})


async def test_a_file_that_another_process_has_locked_is_not_waited_for_without_end(tmp_path: Path) -> None:
    import fcntl

    lock = os.open(tmp_path / "kept.json.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(Busy):
        MemoryFile(str(tmp_path / "kept.json"), 1 << 20, locked_within=0.05).change(lambda contents: contents)
    os.close(lock)
    await kept(tmp_path).put("a", b"")
