"""The texts of documents as files beside them (S38)."""

import errno
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import FlatSource, TreeSource, World, data_source

from bbfs.model.errors import NotFound, TooLarge
from bbfs.model.values import Content
from bbfs.resources.cache.disk import DiskCache
from bbfs.sources.documents.converter import DocumentReader
from bbfs.vfs.texts import TextHandler

TREE, DOCS = "bb-scripted+tree+file", "mcp-server+docs"


class Reader(DocumentReader):
    """A reader that needs no worker process. asked: the names of the documents that it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def text(self, content: Content, kind: str, *, owner: str, what: str) -> bytes:
        self.asked.append(what)
        data = content.read(0, content.size)
        assert data is not None
        if data == b"huge":
            raise TooLarge(f"{what}: too large")
        return b"text of " + data


async def with_texts(world: World) -> Reader:
    reader = Reader()
    handler = TextHandler(world.manager, reader)
    await world.manager.add_view(handler)
    return reader


def tree(**contents: bytes) -> TreeSource:
    """Return a folder with a document and a text, or with these files."""
    files = contents or {"a/report.pdf": b"one", "a/x.txt": b"x"}
    return TreeSource(contents={f"file:./{name}": data for name, data in files.items()})


def flat(**policy: Any) -> FlatSource:
    return FlatSource(contents={"x://a.pdf": b"1"}, source=data_source(DOCS, **policy))


@pytest.mark.semantics("S9", "S38.1")
async def test_a_text_is_found_by_name_with_its_true_size(nursery: trio.Nursery) -> None:
    async with World(nursery, tree()) as world:
        reader = await with_texts(world)
        text = f"{TREE}/a/report.pdf.md"
        assert (await world.kernel.stat(text)).size == len(b"text of one")
        assert await world.kernel.cat(text) == b"text of one"
        assert reader.asked == ["report.pdf"]
        assert await world.kernel.ls(f"{TREE}/a") == ["report.pdf", "x.txt"]
        assert await world.kernel.xattr(text, "user.mime_type") == "text/markdown"
        assert await world.kernel.xattr(text, "user.bbfs.uri") == await world.kernel.xattr(
            f"{TREE}/a/report.pdf", "user.bbfs.uri"
        )
        assert await world.kernel.xattr(text, "user.xdg.origin.url") == "file:./a/report.pdf"


@pytest.mark.semantics("S12", "S38.1")
async def test_a_lookup_converts_nothing(nursery: trio.Nursery) -> None:
    source = tree()
    async with World(nursery, source) as world:
        reader = await with_texts(world)
        await world.kernel.walk(f"{TREE}/a/report.pdf.md")
        assert (reader.asked, source.loaded) == ([], [])


@pytest.mark.semantics("S38")
@pytest.mark.parametrize("name", ["x.txt.md", "gone.pdf.md", ".md", "report.pdf.md.md", "report.md"])
async def test_what_is_no_document_has_no_text(nursery: trio.Nursery, name: str) -> None:
    async with World(nursery, tree()) as world:
        await with_texts(world)
        with pytest.raises(NotFound):
            await world.kernel.stat(f"{TREE}/a/{name}")


@pytest.mark.semantics("S38")
async def test_a_resource_of_that_name_comes_first_and_off_is_off(nursery: trio.Nursery) -> None:
    off = flat()
    off.source = replace(off.source, text="off")
    both = tree(**{"a.pdf": b"1", "a.pdf.md": b"its own"})
    async with World(nursery, both, off) as world:
        await with_texts(world)
        assert await world.kernel.cat(f"{TREE}/a.pdf.md") == b"its own"
        with pytest.raises(NotFound):
            await world.kernel.stat(f"{DOCS}/x/a.pdf.md")


@pytest.mark.semantics("S9", "S38.3")
async def test_listed_texts_are_in_the_listing(nursery: trio.Nursery) -> None:
    both = tree(**{"a.pdf": b"1", "b.pdf": b"2", "b.pdf.md": b"its own"})
    listing = flat()
    both.source, listing.source = replace(both.source, text="listed"), replace(listing.source, text="listed")
    async with World(nursery, both, listing) as world:
        reader = await with_texts(world)
        assert sorted(await world.kernel.ls(TREE)) == ["a.pdf", "a.pdf.md", "b.pdf", "b.pdf.md"]
        assert await world.kernel.ls(f"{DOCS}/x") == ["a.pdf", "a.pdf.md"]
        assert reader.asked == []
        assert (await world.kernel.stat(f"{DOCS}/x/a.pdf.md")).size == len(b"text of 1")
        assert await world.kernel.cat(f"{TREE}/a.pdf.md") == b"text of 1"


@pytest.mark.semantics("S38")
async def test_the_mime_type_makes_a_document_too(nursery: trio.Nursery) -> None:
    described = {"x://report": {"mime_type": "application/pdf"}}
    source = FlatSource(contents={"x://report": b"1"}, described=described)
    async with World(nursery, source) as world:
        await with_texts(world)
        assert await world.kernel.cat(f"{DOCS}/x/report.md") == b"text of 1"


@pytest.mark.semantics("S38", "S34")
async def test_a_name_that_a_template_makes_leads_to_the_text_if_the_source_has_no_such_resource(
    nursery: trio.Nursery,
) -> None:
    source = flat()
    source.template("x://{name}")
    async with World(nursery, source) as world:
        await with_texts(world)
        text = f"{DOCS}/x/a.pdf.md"
        assert (await world.kernel.stat(text)).size == len(b"text of 1")
        assert await world.kernel.cat(text) == b"text of 1"
        assert source.loads["x://a.pdf.md"] == 1
        source.contents["x://b.pdf.md"] = b"its own"
        assert await world.kernel.cat(f"{DOCS}/x/b.pdf.md") == b"its own"
        with pytest.raises(NotFound):
            await world.kernel.stat(f"{DOCS}/x/c.txt.md")


@pytest.mark.semantics("S18", "S38.2")
async def test_a_change_of_the_document_is_one_of_its_text(nursery: trio.Nursery) -> None:
    source = flat(content_ttl=3600.0)
    async with World(nursery, source) as world:
        reader = await with_texts(world)
        text = f"{DOCS}/x/a.pdf.md"
        assert await world.kernel.cat(text) == b"text of 1"
        source.announce("x://a.pdf")
        assert "a.pdf.md" in world.forgotten()
        assert await world.kernel.cat(text) == b"text of 1"
        assert (reader.asked, source.loads["x://a.pdf"]) == (["a.pdf"], 2)
        source.contents["x://a.pdf"] = b"two"
        source.announce("x://a.pdf")
        assert (await world.kernel.stat(text)).size == len(b"text of two")
        assert await world.kernel.cat(text) == b"text of two"
        assert reader.asked == ["a.pdf", "a.pdf"]


@pytest.mark.semantics("S17", "S38.1")
async def test_an_expired_document_of_the_same_version_is_not_converted_again(nursery: trio.Nursery) -> None:
    source = flat(content_ttl=10.0)
    async with World(nursery, source) as world:
        reader = await with_texts(world)
        text = f"{DOCS}/x/a.pdf.md"
        for _ in range(2):
            assert await world.kernel.cat(text) == b"text of 1"
            world.clock.advance(60)
        assert (reader.asked, source.loads["x://a.pdf"]) == (["a.pdf"], 2)
        del source.contents["x://a.pdf"]
        with pytest.raises(NotFound):
            await world.kernel.cat(text)


@pytest.mark.semantics("S23", "S38.4")
async def test_a_document_over_a_bound_fails_with_its_errno(nursery: trio.Nursery) -> None:
    async with World(nursery, tree(**{"a.pdf": b"huge"})) as world:
        reader = await with_texts(world)
        with pytest.raises(TooLarge) as caught:
            await world.kernel.stat(f"{TREE}/a.pdf.md")
        world.clock.advance(60)
        with pytest.raises(TooLarge):
            await world.kernel.cat(f"{TREE}/a.pdf.md")
        assert reader.asked == ["a.pdf"]  # the same version is not read again
        assert caught.value.errno == errno.EFBIG
        assert await world.kernel.xattr(f"{TREE}/a.pdf.md", "user.bbfs.error") == "a.pdf: too large"


@pytest.mark.semantics("S17", "S38.1")
@pytest.mark.parametrize("on_disk", [True, False])
async def test_the_next_mount_converts_nothing_again(nursery: trio.Nursery, tmp_path: Path, on_disk: bool) -> None:
    source = flat(disk=on_disk, content_ttl=0.0)
    text = f"{DOCS}/x/a.pdf.md"
    with closing(DiskCache(tmp_path / "contents", 1 << 20)) as disk:
        async with World(nursery, source, disk=disk) as world:
            reader = await with_texts(world)
            assert await world.kernel.cat(text) == b"text of 1"
            await world.manager.flush()
        for content, converted in ((b"1", not on_disk), (b"two", True)):
            source.contents["x://a.pdf"] = content
            async with World(nursery, source, disk=disk) as world:
                reader = await with_texts(world)
                assert (await world.kernel.stat(text)).size == len(b"text of " + content)
                assert await world.kernel.cat(text) == b"text of " + content
                assert reader.asked == ["a.pdf"] * converted
