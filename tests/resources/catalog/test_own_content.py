"""The own content of a directory in a source that lists a directory at a time (S5)."""

from dataclasses import dataclass, replace

import pytest
import trio
from fakes import TreeSource, World, data_source

from bbfs.model.errors import NoAttribute
from bbfs.model.values import Listing

ROOT = "bb-scripted+store+s3"


@dataclass
class Store(TreeSource):
    """Lists what it is told for each directory, objects and directories that share a name included."""

    def __post_init__(self) -> None:
        self.source = data_source(ROOT)
        uris = ("s3://w", "s3://x", "s3://x/%2F", "s3://x/index", "s3://x/y", "s3://z")
        self.contents = {uri: uri.encode() for uri in uris}

    async def list_directory(self, path: tuple[str, ...]) -> Listing:
        self.listed.append(path)
        if path == ():
            directory = [self.metadata("s3://x/", kind="directory"), self.metadata("s3://w/", kind="directory")]
            return Listing((*directory, self.metadata("s3://z")))
        if path == ("w",):
            return Listing((self.metadata("s3://w", mime_type="text/html"),))
        uris = ("s3://x", "s3://x/%2F", "s3://x/index", "s3://x/y")
        return Listing(tuple(self.metadata(uri, mime_type=None) for uri in uris))


@pytest.mark.semantics("S4", "S5")
async def test_it_is_called_index_and_gives_way_to_what_has_that_name(nursery: trio.Nursery) -> None:
    async with World(nursery, Store()) as world:
        uris = {
            name: node.record.metadata.native_uri
            for name, node in (await world.manager.tree.children((ROOT, "x"))).items()
            if node.record is not None
        }
        assert uris["index"] == "s3://x/index"
        assert uris["y"] == "s3://x/y"
        own = {uri for name, uri in uris.items() if name.startswith("index~")}
        assert own == {"s3://x", "s3://x/%2F"}
        assert list(await world.manager.tree.children((ROOT, "w"))) == ["index.html"]


@pytest.mark.semantics("S25")
async def test_what_is_missing_from_a_directory_is_told_until_that_is_listed_whole(nursery: trio.Nursery) -> None:
    class Cut(Store):
        missing: str | None = "cut"

        async def list_directory(self, path: tuple[str, ...]) -> Listing:
            return replace(await super().list_directory(path), problem=self.missing if path == ("w",) else None)

    store = Cut()
    async with World(nursery, store) as world:
        await world.manager.tree.children((ROOT, "w"))
        await world.manager.tree.children((ROOT, "x"))
        assert await world.kernel.xattr(ROOT, "user.bbfs.error") == "cut"
        store.missing = None
        world.clock.advance(3600)
        await world.manager.tree.children((ROOT, "w"))
        with pytest.raises(NoAttribute):
            await world.kernel.xattr(ROOT, "user.bbfs.error")


@pytest.mark.semantics("S5")
async def test_it_is_found_and_loaded_by_its_name(nursery: trio.Nursery) -> None:
    async with World(nursery, Store()) as world:
        node = await world.manager.tree.find((ROOT, "w", "index.html"))
        assert node.record is not None
        content = await world.manager.contents.open(node.record)
        assert content.read(0, 99) == b"s3://w"
