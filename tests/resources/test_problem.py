"""What a source says is wrong: the latest fault, in one line, until a request succeeds; and how much it lists."""

import logging

import pytest
import trio
from fakes import FlatSource, World, settled
from trio.testing import MockClock

from bbfs.model.errors import BbfsError, DeadlineExceeded
from bbfs.model.redaction import one_line
from bbfs.model.values import Listing, SourceState
from bbfs.resources.cache.metadata import MetadataStore

DOCS = "mcp-server+docs"


class Describing(FlatSource):
    """Lists one file that describes a tool beside its resources."""

    async def list(self) -> Listing:
        listed = await super().list()
        return Listing(listed.resources, listed.ttl, listed.problem, listed.templates, descriptions=1)


class Holding(FlatSource):
    """Has the description of a tool itself."""

    def holds(self, native_uri: str) -> bool:
        return native_uri == "x://tool.md"


async def test_what_a_handler_has_itself_is_no_request_to_its_source(nursery: trio.Nursery) -> None:
    docs = Holding(contents={"x://a": b"a", "x://tool.md": b"a tool"})
    async with World(nursery, docs) as world:
        await world.manager.by_uri.list_below("docs")
        source = world.manager.sources[DOCS]
        before = source.slots.tally.ended
        for uri, requests in (("x://tool.md", 0), ("x://a", 1)):
            await world.manager.by_uri.load(f"{DOCS}+{uri}")
            assert (source.loads_from["source"], source.slots.tally.ended - before) == (requests, requests)
        assert docs.loaded == ["x://tool.md", "x://a"]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("no such\n  table\r\n", "no such table"),
        ("failed:\nTraceback (most recent call last):\n  File 'a'\n    x()\nKeyError: 'x'\n", "failed: KeyError: 'x'"),
        ("\x1b[31mred", "[31mred"),
        ("plain", "plain"),
    ],
)
def test_a_fault_is_one_line_without_a_stack(said: str, shown: str) -> None:
    assert one_line(said) == shown


async def test_the_latest_fault_is_told_until_a_request_succeeds(nursery: trio.Nursery) -> None:
    contents = {"x://a": BbfsError("first\nof two lines"), "x://b": BbfsError("second"), "x://c": b"fine"}
    docs = FlatSource(contents=contents)  # type: ignore[arg-type]
    async with World(nursery, docs) as world:
        source = world.manager.sources["mcp-server+docs"]
        for name, problem in (("a", "x://a: first of two lines"), ("b", "x://b: second")):
            with pytest.raises(BbfsError):
                await world.kernel.stat(f"{DOCS}/x/{name}")
            assert source.problem is not None
            assert source.problem.startswith(problem)
            assert "\n" not in source.problem
        assert "first" not in source.problem
        docs.state = SourceState("down", "the server exited with status 1: no KEY\nTraceback of\nsomething else")
        assert source.problem == "the server exited with status 1: no KEY"
        docs.state = SourceState("up")
        assert await world.kernel.cat(f"{DOCS}/x/c") == b"fine"
        assert source.problem is None


async def test_a_time_out_is_logged_once_with_its_resource(
    nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    docs = FlatSource(contents={"x://slow": b"late"})
    async with World(nursery, docs) as world:
        await world.kernel.ls(DOCS)
        docs.hold("x://slow")

        async def read() -> None:
            with pytest.raises(DeadlineExceeded):
                await world.kernel.cat(f"{DOCS}/x/slow")

        with caplog.at_level(logging.INFO, "bbfs"):
            async with trio.open_nursery() as readers:
                for _ in range(3):
                    readers.start_soon(read)
        assert [each.message for each in caplog.records] == ["docs: x://slow: no answer within 30 s"]
        assert world.manager.sources["mcp-server+docs"].problem == "x://slow: no answer within 30 s"


async def test_files_that_describe_tools_are_no_resources_after_a_restart_either(nursery: trio.Nursery) -> None:
    store = MetadataStore(None)
    for listed in (1, 0):
        docs = Describing(contents={"x://a": b"1", "x://b": b"2", "tool://t/description.md": b"3"})
        async with World(nursery, docs, store=store) as world:
            assert await world.kernel.ls(DOCS) == ["tool", "x"]
            assert world.manager.sources["mcp-server+docs"].resources == 2
            assert len(docs.listed) == listed, "the next mount has recalled the listing"
            await settled()
            await world.manager.flush()
    store.close()
