"""The files that a grep reads: all that match, and no others that the index knows."""

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import Clock, FlatSource, data_source
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bbfs.model.values import McpServer
from bbfs.resources.cache.metadata import MetadataStore
from bbfs.resources.commands import table
from bbfs.resources.commands.answers import ask
from bbfs.resources.commands.indexing import walk
from bbfs.resources.manager import ResourceManager
from bbfs.resources.search.index.entries import Document
from bbfs.resources.search.index.local import LocalIndex
from bbfs.resources.search.index.store import IndexStore


class Tree:
    """A source with an index, and a clock."""

    def __init__(self, manager: ResourceManager, handler: FlatSource, clock: Clock) -> None:
        self.manager = manager
        self.handler = handler
        self.clock = clock

    async def index(self, *, dry_run: bool = False) -> table.Walked:
        source = self.manager.roots.named(self.handler.source.id)
        return await walk(self.manager, source, lambda _: None, dry_run=dry_run)

    async def read(self, pattern: str, path: str = "", **options: Any) -> list[str]:
        found: list[str] = []

        def hear(answer: object) -> None:
            if isinstance(answer, table.MayMatch):
                found.extend(answer.read)

        await ask(self.manager, table.Grep(path, pattern, **{"syntax": "extended", **options}), hear)
        return [each.rpartition("/")[2] for each in found]


@asynccontextmanager
async def tree(path: Path, texts: dict[str, bytes], **policy: Any) -> AsyncIterator[Tree]:
    handler = FlatSource(data_source(**policy), contents={f"docs://all/{name}": text for name, text in texts.items()})
    clock = Clock()
    index = LocalIndex(path, 1 << 30, clock=clock)
    async with trio.open_nursery() as nursery:
        manager = ResourceManager(nursery, cache_bytes=1 << 24, store=MetadataStore(None), index=index, clock=clock)
        await manager.add(handler.source, handler)
        yield Tree(manager, handler, clock)
        nursery.cancel_scope.cancel()
    await index.aclose()


TEXTS = {"a": b"renew the certificate", "b": b"nothing", "c": b"binary renew\0", "d": b"certificates"}


async def test_only_files_that_can_match_are_read(tmp_path: Path) -> None:
    async with tree(tmp_path / "index.sqlite", TEXTS) as docs:
        assert await docs.read("renew") == ["a", "b", "c", "d"]
        assert (await docs.index()).loaded == 4
        assert await docs.read("renew") == ["a", "c"]
        assert await docs.read("ertif") == ["a", "c", "d"]
        assert await docs.read("r[e]n") == ["a", "b", "c", "d"]


async def test_an_announced_change_is_read(tmp_path: Path) -> None:
    async with tree(tmp_path / "index.sqlite", TEXTS) as docs:
        await docs.index()
        docs.handler.announce("docs://all/b")
        assert await docs.read("renew") == ["a", "b", "c"]
        assert await docs.read("renew", cached=True) == ["a", "b", "c"]


async def test_a_second_grep_walks_no_directory_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with tree(tmp_path / "index.sqlite", TEXTS, content_ttl=10.0) as docs:
        await docs.index()
        assert await docs.read("renew") == ["a", "c"]

        async def no_walk(path: Path) -> None:
            raise AssertionError(path)

        with monkeypatch.context() as patched:
            patched.setattr(docs.manager.tree, "view", no_walk)
            assert await docs.read("nothing") == ["b", "c"]  # c is no text
            assert await docs.read("renew") == ["a", "c"]
        assert await docs.read("[", syntax="fixed") == ["a", "b", "c", "d"]  # no literal to look for
        docs.clock.advance(11)
        assert await docs.read("renew") == ["a", "b", "c", "d"]
        assert await docs.read("renew", cached=True) == ["a", "c"]


async def test_a_new_file_is_read_though_its_directory_was_remembered(tmp_path: Path) -> None:
    async with tree(tmp_path / "index.sqlite", TEXTS) as docs:
        await docs.index()
        assert await docs.read("renew") == ["a", "c"]
        docs.handler.contents["docs://all/e"] = b"new"
        docs.handler.announce(None)
        assert await docs.read("renew") == ["a", "c", "e"]
        await docs.index()
        assert await docs.read("renew") == ["a", "c"]
        assert await docs.read("new") == ["a", "c", "e"]


async def test_a_document_that_another_process_indexes_is_a_candidate_then(tmp_path: Path) -> None:
    async with tree(tmp_path / "index.sqlite", TEXTS) as docs:
        await docs.index()
        assert await docs.read("other") == ["c"]
        source = docs.manager.roots.named(docs.handler.source.id)
        other = IndexStore(tmp_path / "index.sqlite", 1 << 30)
        entry = Document(source.fingerprint, "docs://all/b", "another", None, "b", "b", "the other text")
        other.write([entry], 1.0)
        other.close()
        assert await docs.read("other") == ["b", "c"]


async def test_a_walk_loads_what_has_changed_and_removes_what_is_gone(tmp_path: Path) -> None:
    async with tree(tmp_path / "index.sqlite", TEXTS, content_ttl=0.5, listing_ttl=0.5) as docs:
        docs.handler.described = {f"docs://all/{name}": {"etag": "1"} for name in TEXTS}
        assert (await docs.index(dry_run=True)).to_load == 4
        await docs.index()
        docs.clock.advance(5)
        docs.handler.described["docs://all/a"] = {"etag": "2"}
        docs.handler.contents["docs://all/a"] = b"changed"
        del docs.handler.contents["docs://all/d"]
        docs.handler.loaded.clear()
        walked = await docs.index()
        assert (walked.unchanged, walked.removed) == (2, 1)
        assert docs.handler.loaded == ["docs://all/a"]  # c is no text, and has not changed either


async def test_an_interrupted_walk_goes_on(tmp_path: Path) -> None:
    texts = {f"{number:03}": b"word" for number in range(100)}
    path = tmp_path / "index.sqlite"
    async with tree(path, texts, concurrency=1) as docs:
        docs.handler.hold("docs://all/050")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(docs.index)
            with trio.fail_after(30):
                while "docs://all/050" not in docs.handler.loaded:  # noqa: ASYNC110 - a thread is on the way to it
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    async with tree(path, texts, concurrency=1) as docs:
        walked = await docs.index()
        assert walked.unchanged + walked.loaded == 100
        assert walked.unchanged >= 40
        assert (await docs.index()).unchanged == 0  # that one ended: this source states no versions


_WORDS = st.lists(
    st.sampled_from(["foo", "foobar", "bar", "Bar", "BAZ", "ba", "k", "K", "s", "été", "x1", "_", "-", "."]), max_size=8
)
_TEXTS = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.tuples(_WORDS, st.sampled_from([" ", "\n", "", "\n\n"])).map(lambda made: made[1].join(made[0]).encode()),
    min_size=1,
)
_PATTERN = st.lists(
    st.sampled_from(["foo", "bar", "oba", "Ba", "ét", "(foo|bar)", "a+", "x?", ".", " ", "k", "^", "$", "[bB]a", "|"]),
    min_size=1,
    max_size=4,
).map("".join)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(_TEXTS, st.lists(st.tuples(_PATTERN, st.booleans()), min_size=1, max_size=5))
def test_no_file_that_grep_finds_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[str, bytes], patterns: list[tuple[str, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("plain")
    for name, text in texts.items():
        (folder / name).write_bytes(text)

    async def check() -> None:
        async with tree(folder / "cache" / "index.sqlite", texts) as docs:
            await docs.index()
            for pattern, ignore_case in patterns:
                command = ["grep", "-lE", *(["-i"] if ignore_case else []), "-e", pattern, *texts]
                ran = subprocess.run(command, cwd=folder, capture_output=True, env={"LC_ALL": "C.UTF-8"})  # noqa: ASYNC221
                if ran.returncode < 2:
                    assert {*ran.stdout.decode().split()} <= {*await docs.read(pattern, ignore_case=ignore_case)}

    trio.run(check)


@pytest.mark.semantics("S36.9")
@pytest.mark.parametrize("apps", [False, True])
async def test_pages_of_apps_are_indexed_and_matched_only_where_the_source_says_so(tmp_path: Path, apps: bool) -> None:
    async with tree(tmp_path / "index.sqlite", TEXTS) as docs:
        source = docs.manager.roots.named("docs")
        source.data = replace(source.data, mcp=McpServer("stdio", command="s"), apps=apps)
        docs.handler.contents["ui://app/page"] = b"renew"
        assert (await docs.index()).loaded == 4 + apps
        assert await docs.read("renew") == ["a", "c", *(["page"] if apps else [])]
        assert await docs.read("renew", path="mcp-server+docs/ui") == ["page"], "it is named itself"
