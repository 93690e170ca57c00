"""The tests that every handler of a source type must pass, to inherit from.

A subclass of `SourceConformance` says what its handler is made over:

    class TestMySource(SourceConformance):
        known = {"my://a": b"content of a"}
        unknown = ("my://nothing",)

        @asynccontextmanager
        async def handler(self, directory: Path) -> AsyncIterator[Handler]:
            yield MyHandler(...)
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import ClassVar, Protocol, cast

import pytest
import trio

from bbfs.sources import (
    BbfsError,
    CanList,
    CanListDirectory,
    CanLoad,
    CanMakeDirectories,
    CanRename,
    CanSearch,
    CanStat,
    CanWrite,
    Conflict,
    Content,
    DetectsExisting,
    Exists,
    Expected,
    Handler,
    Loaded,
    MemoryContent,
    NotEmpty,
    NotFound,
    ResourceMetadata,
    parse_data_source_uri,
)

BOUND = 60.0
ANY_STATE = Expected()
LARGE = bytes(range(256)) * 5000
HOSTILE = (
    "",
    ":",
    "/",
    "..",
    "../../../../etc/passwd",
    "/etc/passwd",
    "file:..",
    "file:./..",
    "file:./../x",
    "file:./a/../../x",
    "file:./%2e%2e/x",
    "file:./%2E%2e%2fetc%2fpasswd",
    "file:./a%00b",
    "file:./a\0b",
    "file:./\ud800",
    "file:.//",
    "file:////",
    "file:///",
    "file:///etc/passwd",
    "file:///proc/self/root/etc/passwd",
    "file://elsewhere/etc/passwd",
    "file:./" + "x" * 300,
    "file:./" + "x/" * 50_000 + "x",
    "file:./%",
    "file:./%zz",
    "unheard-of://host/path?query#fragment",
    "resource://a/../../b",
    "resource://" + "y" * 70_000,
    "resource://\0",
    "postgres://user:password@host/db",
    "with space",
    "line\nbreak",
)


QUERIES = (
    "", " ", '"', "'", '"unbalanced', "a AND", "NOT", "NEAR(", "(", "a:b", "col:*", "*", "%", "_", "\\", "a'b--",
    "; drop", "$1", "?", "{x}", "\0", "\n", "-x", "+", "^", "\N{OWL}", "x" * 1000, "a " * 500, "((((((((((", "' OR 1=1",
)  # fmt: skip


async def read_whole(content: Content, step: int = 1 << 16) -> bytes:
    """Return all bytes of a content, read in ranges as the mount does."""
    data = b""
    while len(data) < content.size:
        piece = content.read(len(data), step)
        if piece is None:
            piece = await content.read_waiting(len(data), step)
        assert piece, f"nothing at byte {len(data)} of {content.size}"
        data += piece
    return data


async def list_all(handler: Handler) -> list[ResourceMetadata]:
    """Return all entries that a handler lists, in all directories, without following links."""
    if isinstance(handler, CanList):
        return list((await handler.list()).resources)
    assert isinstance(handler, CanListDirectory)
    found: list[ResourceMetadata] = []
    ahead: list[tuple[str, ...]] = [()]
    while ahead:
        path = ahead.pop()
        for entry in (await handler.list_directory(path)).resources:
            found.append(entry)
            if entry.kind == "directory":
                ahead.append((*path, entry.native_uri.rstrip("/").rsplit("/", 1)[-1]))
    return found


class _Written(Handler, CanWrite, Protocol):
    """A handler that writes."""


class SourceConformance(ABC):
    """The tests. known: native URIs and bytes of listed resources. unknown: URIs without a resource."""

    known: ClassVar[Mapping[str, bytes]]
    unknown: ClassVar[tuple[str, ...]]
    searched: ClassVar[tuple[str, str]] = ("", "")
    """A query, and the native URI of its best hit, for a handler that searches."""
    written: ClassVar[tuple[str, str]] = ("", "")
    """Two native URIs in one directory that have no resource, for a handler that writes."""
    contents: ClassVar[tuple[bytes, bytes, bytes]] = (b"one\n", b"", LARGE)
    """Contents that are written there, as a load gives them back."""

    @abstractmethod
    def handler(self, directory: Path) -> AbstractAsyncContextManager[Handler]:
        """Make a handler over the known content. directory: empty, for the source's data."""

    def another_client(self, handler: Handler, native_uri: str, data: bytes) -> AbstractContextManager[object] | None:
        """Return a context in which another client replaces a resource once, or None if the test cannot arrange that.

        It does so right after the source has stored a write of the handler, before any later request of the handler.
        """
        return None

    async def load(self, handler: Handler, native_uri: str) -> Loaded:
        assert isinstance(handler, CanLoad)
        with trio.fail_after(BOUND):
            return await handler.load(native_uri)

    async def test_it_lists_what_is_there(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:
            listed = {entry.native_uri for entry in await list_all(handler) if entry.kind == "resource"}
            assert listed >= set(self.known)
            assert listed.isdisjoint(self.unknown)

    async def test_what_is_known_loads_with_its_bytes(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:
            for native_uri, data in self.known.items():
                loaded = await self.load(handler, native_uri)
                assert len(loaded.parts) == 1, native_uri
                assert await read_whole(loaded.parts[0].content) == data, native_uri
                loaded.parts[0].content.close()
            assert handler.state.state == "up"

    async def test_whatever_is_listed_loads_with_the_size_it_gives(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:
            resources = [entry for entry in await list_all(handler) if entry.kind == "resource"]
            assert resources
            for entry in resources:
                loaded = await self.load(handler, entry.native_uri)
                assert loaded.parts, entry.native_uri
                sizes = [len(await read_whole(part.content)) for part in loaded.parts]
                assert sizes == [part.content.size for part in loaded.parts], entry.native_uri
                if entry.size is not None:
                    assert sum(sizes) == entry.size, entry.native_uri
                for part in loaded.parts:
                    part.content.close()

    async def test_a_range_of_a_content_is_that_range(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:
            for native_uri, data in self.known.items():
                content = (await self.load(handler, native_uri)).parts[0].content
                size = len(data)
                for offset, length in ((0, 1), (1, 2), (max(0, size - 1), 5), (size, 5), (size + 9, 5), (0, size + 9)):
                    expected = data[offset : offset + length]
                    assert content.read(offset, length) in (expected, None)
                    assert await content.read_waiting(offset, length) == expected
                content.close()
                content.close()

    async def test_native_uris_are_unique_and_come_back_from_the_uri(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:
            entries = await list_all(handler)
            assert len({entry.native_uri for entry in entries}) == len(entries)
            for entry in entries:
                parsed = parse_data_source_uri(entry.uri)
                assert parsed.original_uri == entry.native_uri
                assert parsed.base_prefix == handler.source.base_prefix

    async def test_listing_twice_gives_the_same(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:
            assert await list_all(handler) == await list_all(handler)

    async def test_the_same_bytes_have_the_same_version(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:
            versions: dict[str, str] = {}
            for _ in range(2):
                for native_uri in self.known:
                    content = (await self.load(handler, native_uri)).parts[0].content
                    assert versions.setdefault(native_uri, content.version) == content.version
                    content.close()

    async def test_stat_agrees_with_the_listing_and_the_load(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:
            if not isinstance(handler, CanStat):
                return
            for entry in await list_all(handler):
                assert await handler.stat(entry.native_uri) == entry
            for native_uri, data in self.known.items():
                assert (await handler.stat(native_uri)).size in (len(data), None)
                metadata = (await self.load(handler, native_uri)).metadata
                assert metadata is None or metadata.size == len(data)
            for native_uri in self.unknown:
                with pytest.raises(NotFound):
                    await handler.stat(native_uri)

    @pytest.mark.semantics("S23")
    async def test_what_is_not_there_is_not_found(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:
            assert self.unknown
            for native_uri in self.unknown:
                with pytest.raises(NotFound):
                    await self.load(handler, native_uri)

    @pytest.mark.semantics("S23", "S27")
    async def test_hostile_uris_get_an_error_of_bbfs_and_nothing_else(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:
            for native_uri in HOSTILE:
                with pytest.raises(BbfsError) as caught:
                    await self.load(handler, native_uri)
                assert str(caught.value), native_uri
                assert len(str(caught.value)) < 2000
                if isinstance(handler, CanStat) and native_uri not in ("file:./", "file:."):
                    with pytest.raises(BbfsError):
                        await handler.stat(native_uri)
            if isinstance(handler, CanListDirectory):
                for path in ((".",), ("..",), ("",), ("a/b",), ("%2e%2e",), ("%00",), ("x" * 300,), ("nothing",) * 99):
                    with pytest.raises(BbfsError):
                        await handler.list_directory(path)
            await self._still_works(handler)

    async def test_loads_at_once_do_not_disturb_each_other(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:

            async def one(native_uri: str, data: bytes) -> None:
                content = (await self.load(handler, native_uri)).parts[0].content
                assert await read_whole(content) == data
                content.close()

            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    for native_uri, data in self.known.items():
                        nursery.start_soon(one, native_uri, data)

    async def test_a_search_ranks_resources_that_load(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:
            if not isinstance(handler, CanSearch) or not handler.searches:
                return
            query, best = self.searched
            with trio.fail_after(BOUND):
                hits = await handler.search(query, 10)
            assert hits[0].native_uri == best
            assert len({hit.native_uri for hit in hits}) == len(hits) <= 10
            scores = [hit.score for hit in hits if hit.score is not None]
            assert scores == sorted(scores, reverse=True)
            for hit in hits:
                for part in (await self.load(handler, hit.native_uri)).parts:
                    part.content.close()
            assert len(await handler.search(query, 1)) == 1

    @pytest.mark.semantics("S27")
    async def test_nothing_in_a_query_is_syntax(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:
            if not isinstance(handler, CanSearch) or not handler.searches:
                return
            for query in QUERIES:
                with trio.fail_after(BOUND):
                    assert len(await handler.search(query, 5)) <= 5, query
            await self._still_works(handler)

    @pytest.mark.semantics("S32", "S33")
    async def test_what_is_written_is_listed_and_loaded(self, tmp_path: Path) -> None:
        async with self._writing(tmp_path) as handler:
            if handler is None:
                return
            uri = self.written[0]
            states = (Expected(exists=False), Expected(exists=True), ANY_STATE)
            for data, expected in zip(self.contents, states, strict=True):
                told = await handler.write(uri, MemoryContent(data), expected)
                assert (told.native_uri, told.kind) == (uri, "resource")
                assert told.size in (len(data), None)
                content = (await self.load(handler, uri)).parts[0].content
                assert await read_whole(content) == data
                content.close()
                assert uri in {entry.native_uri for entry in await list_all(handler)}
                if isinstance(handler, CanStat):
                    assert told.etag in ((await handler.stat(uri)).etag, None)
            await handler.remove(uri, Expected(exists=True))
            with pytest.raises(NotFound):
                await self.load(handler, uri)
            with pytest.raises(NotFound):
                await handler.remove(uri, ANY_STATE)
            assert uri not in {entry.native_uri for entry in await list_all(handler)}

    @pytest.mark.semantics("S32")
    async def test_a_write_of_another_state_is_a_conflict(self, tmp_path: Path) -> None:
        async with self._writing(tmp_path) as handler:
            if handler is None or not handler.detects_conflicts:
                return
            uri, (data, second, third) = self.written[0], self.contents
            missing = Expected(exists=True)
            with pytest.raises(Conflict):
                await handler.write(uri, MemoryContent(data), missing)
            told = await handler.write(uri, MemoryContent(data), Expected(exists=False))
            version = MemoryContent(data).version if told.etag is None else None
            await handler.write(uri, MemoryContent(second), Expected(exists=True, etag=told.etag, version=version))
            for wrong in (Expected(exists=False), Expected(exists=True, etag=told.etag, version=version)):
                with pytest.raises((Conflict, Exists)):
                    await handler.write(uri, MemoryContent(third), wrong)
                with pytest.raises((Conflict, Exists)):
                    await handler.remove(uri, wrong)
            content = (await self.load(handler, uri)).parts[0].content
            assert await read_whole(content) == second
            content.close()
            await handler.remove(uri, ANY_STATE)

    @pytest.mark.semantics("S32")
    async def test_the_version_after_a_write_is_not_that_of_a_later_one(self, tmp_path: Path) -> None:
        async with self._writing(tmp_path) as handler:
            uri, (data, _, theirs) = self.written[0], self.contents
            other = None if handler is None else self.another_client(handler, uri, theirs)
            if handler is None or other is None:
                return
            with other:
                told = await handler.write(uri, MemoryContent(data), Expected(exists=False))
            loaded = await self.load(handler, uri)
            content = loaded.parts[0].content
            assert await read_whole(content) == theirs, "the other client has replaced it"
            content.close()
            assert told.size in (len(data), None)
            assert told.etag is None or (loaded.metadata is not None and told.etag != loaded.metadata.etag)
            await handler.remove(uri, ANY_STATE)

    @pytest.mark.semantics("S32")
    async def test_a_new_resource_replaces_none(self, tmp_path: Path) -> None:
        async with self._writing(tmp_path) as handler:
            if not isinstance(handler, DetectsExisting) or not handler.detects_existing:
                return
            uri, (data, second, _) = self.written[0], self.contents
            await handler.write(uri, MemoryContent(data), Expected(exists=False))
            with pytest.raises((Conflict, Exists)):
                await handler.write(uri, MemoryContent(second), Expected(exists=False))
            content = (await self.load(handler, uri)).parts[0].content
            assert await read_whole(content) == data
            content.close()
            await handler.remove(uri, ANY_STATE)

    @pytest.mark.semantics("S33")
    async def test_what_is_renamed_has_the_other_name_alone(self, tmp_path: Path) -> None:
        async with self._writing(tmp_path) as handler:
            uri, to = self.written
            if handler is None or "rename" not in handler.writes(uri):
                return
            assert isinstance(handler, CanRename)
            for native_uri, data in ((uri, b"moved\n"), (to, b"replaced\n")):
                await handler.write(native_uri, MemoryContent(data), Expected(exists=False))
            with pytest.raises(Exists):
                await handler.rename(uri, to, replace=False)
            assert (await handler.rename(uri, to, replace=True)).native_uri == to
            listed = {entry.native_uri for entry in await list_all(handler)}
            assert (uri in listed, to in listed) == (False, True)
            content = (await self.load(handler, to)).parts[0].content
            assert await read_whole(content) == b"moved\n"
            content.close()
            with pytest.raises(NotFound):
                await handler.rename(uri, to, replace=True)
            await handler.remove(to, ANY_STATE)

    @pytest.mark.semantics("S33")
    async def test_a_directory_is_made_and_removed_while_it_is_empty(self, tmp_path: Path) -> None:
        async with self._writing(tmp_path) as handler:
            uri, inside = self.written[0], f"{self.written[0]}/inside"
            if handler is None or "make_directory" not in handler.writes(uri):
                return
            assert isinstance(handler, CanMakeDirectories)
            made = await handler.make_directory(uri)
            assert (made.kind, made.native_uri.rstrip("/")) == ("directory", uri)
            with pytest.raises(Exists):
                await handler.make_directory(uri)
            await handler.write(inside, MemoryContent(b"x"), Expected(exists=False))
            with pytest.raises(NotEmpty):
                await handler.remove_directory(uri)
            await handler.remove(inside, ANY_STATE)
            await handler.remove_directory(uri)
            with pytest.raises(NotFound):
                await handler.remove_directory(uri)

    @pytest.mark.semantics("S23", "S27", "S33")
    async def test_hostile_uris_are_not_written(self, tmp_path: Path) -> None:
        async with self._writing(tmp_path) as handler:
            if handler is None:
                return
            before = await list_all(handler)
            for native_uri in HOSTILE:
                if "create" not in handler.writes(native_uri):
                    with pytest.raises(BbfsError):
                        await handler.write(native_uri, MemoryContent(b"x"), ANY_STATE)
            assert await list_all(handler) == before

    @pytest.mark.semantics("S16", "S22")
    async def test_a_load_can_be_cancelled_at_any_point(self, tmp_path: Path) -> None:
        async with self.handler(tmp_path) as handler:
            native_uri = next(iter(self.known))
            for checkpoints in range(6):
                with trio.fail_after(BOUND):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self.load, handler, native_uri)
                        for _ in range(checkpoints):
                            await trio.lowlevel.checkpoint()
                        nursery.cancel_scope.cancel()
            await self._still_works(handler)

    @asynccontextmanager
    async def _writing(self, directory: Path) -> AsyncGenerator["_Written | None"]:
        """Yield the handler if it writes something, with a bound on the test."""
        async with self.handler(directory) as handler:
            if not isinstance(handler, CanWrite) or not handler.writes(self.written[0] or next(iter(self.known))):
                yield None
                return
            assert all(self.written), "the test of a source that writes says which URIs it may write"
            with trio.fail_after(3 * BOUND):
                yield cast(_Written, handler)
            await self._still_works(handler)

    async def _still_works(self, handler: Handler) -> None:
        native_uri, data = next(iter(self.known.items()))
        content = (await self.load(handler, native_uri)).parts[0].content
        assert await read_whole(content) == data
        content.close()
