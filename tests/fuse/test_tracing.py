"""The traces of a mount: which requests have spans, what these say, and what the variables decide."""

import errno
import inspect
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pyfuse3
import pytest
import trio
import trio.testing
from fakes import FlatSource, TreeSource, World
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bbfs.fuse.adapter import Operations
from bbfs.fuse.backings.attributes import Ownership
from bbfs.fuse.tracing import setting
from bbfs.fuse.tracing.setting import is_wanted, traces, unsupported
from bbfs.fuse.tracing.spans import REQUESTS, Tracing
from bbfs.fuse.waiting_programs import name_of
from bbfs.model.errors import Unreachable
from bbfs.model.values import Loaded, Part
from bbfs.sources import abilities
from bbfs.sources.content.ranges import Blocks, RangedContent

ME = cast(pyfuse3.RequestContext, SimpleNamespace(pid=os.getpid(), uid=0, gid=0, umask=0))
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


class Traced:
    """A world with traces. `spans` returns those that have ended since the last call."""

    def __init__(self, world: World) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracing = Tracing(SimpleSpanProcessor(self._exporter))
        plain = Operations(world.core, Ownership(0, 0), self.tracing.interrupts)
        self.operations = self.tracing.begin(plain, world.manager, world.core.names.path)

    async def walk(self, path: str) -> pyfuse3.InodeT:
        inode = pyfuse3.ROOT_INODE
        for name in path.split("/"):
            inode = (await self.operations.lookup(inode, name.encode(), ME)).st_ino
        return inode

    async def read(self, inode: pyfuse3.InodeT, size: int = 100) -> bytes:
        opened = await self.operations.open(inode, os.O_RDONLY, ME)
        try:
            return await self.operations.read(opened.fh, 0, size)
        finally:
            await self.operations.release(opened.fh)

    def spans(self) -> list[ReadableSpan]:
        found = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        return found


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and parent.context is not None and span.parent.span_id == parent.context.span_id


@asynccontextmanager
async def walked(nursery: trio.Nursery) -> AsyncIterator[tuple[FlatSource, Traced, pyfuse3.InodeT]]:
    """A source with a resource that a program has looked up, and not opened. The spans of that are gone."""
    source = FlatSource(contents={"x://a": b"bytes"})
    async with World(nursery, source) as world:
        traced = Traced(world)
        inode = await traced.walk("mcp-server+docs/x/a")
        traced.spans()
        yield source, traced, inode


async def test_a_request_that_asks_a_source_is_a_span_with_a_child(nursery: trio.Nursery) -> None:
    async with World(nursery, FlatSource(contents={"x://a": b"bytes", "x://b": b""})) as world:
        traced = Traced(world)
        inode = await traced.walk("mcp-server+docs/x/a")
        listing, lookup = traced.spans()
        assert (listing.name, lookup.name) == ("source list", "fuse lookup")
        assert is_child(listing, lookup)
        assert lookup.parent is None
        assert told(listing) == {"bbfs.source": "docs", "bbfs.outcome": "ok"}
        assert told(lookup) == {
            "bbfs.source": "docs",
            "bbfs.pid": os.getpid(),
            "bbfs.program": name_of(os.getpid()),
            "bbfs.path": "mcp-server+docs/x",
            "bbfs.outcome": "ok",
        }
        assert listing.start_time is not None
        assert lookup.start_time is not None
        assert lookup.end_time is not None
        assert listing.end_time is not None
        assert lookup.start_time <= listing.start_time <= listing.end_time <= lookup.end_time

        assert await traced.read(inode) == b"bytes"
        loading, opening = traced.spans()
        assert (loading.name, opening.name) == ("source load", "fuse open")
        assert is_child(loading, opening)
        assert told(opening)["bbfs.path"] == "mcp-server+docs/x/a"
        assert not any("bytes" in each.to_json() for each in (loading, opening))


async def test_what_is_answered_from_memory_has_no_span(nursery: trio.Nursery) -> None:
    async with World(nursery, FlatSource(contents={"x://a": b"bytes"})) as world:
        traced = Traced(world)
        inode = await traced.walk("mcp-server+docs/x/a")
        await traced.read(inode)
        assert traced.spans()
        await traced.walk("mcp-server+docs/x/a")
        await traced.read(inode)
        assert not traced.spans()


async def test_a_failure_is_told_by_its_kind_alone(nursery: trio.Nursery) -> None:
    async with walked(nursery) as (source, traced, inode):
        source.down = Unreachable("no way to secret@host")
        with pytest.raises(pyfuse3.FUSEError):
            await traced.read(inode)
        loading, opening = traced.spans()
        assert told(loading) == {"bbfs.source": "docs", "bbfs.outcome": "EHOSTDOWN", "error.type": "Unreachable"}
        assert told(opening)["bbfs.outcome"] == "EHOSTDOWN"
        for span in (loading, opening):
            assert not span.status.is_ok
            assert "secret" not in span.to_json()


async def test_what_a_source_does_not_have_is_no_failure(nursery: trio.Nursery) -> None:
    async with walked(nursery) as (source, traced, inode):
        source.contents.clear()
        with pytest.raises(pyfuse3.FUSEError) as raised:
            await traced.read(inode)
        assert raised.value.errno == errno.ENOENT
        loading, *_, opening = traced.spans()
        assert told(loading) == {"bbfs.source": "docs", "bbfs.outcome": "ENOENT", "error.type": "NotFound"}
        assert told(opening)["bbfs.outcome"] == "ENOENT"
        assert loading.status.is_unset
        assert opening.status.is_unset


async def test_a_request_that_is_shared_is_a_child_of_the_first_program(nursery: trio.Nursery) -> None:
    async with walked(nursery) as (source, traced, inode):
        source.hold("x://a")
        async with trio.open_nursery() as readers:
            for _ in range(3):
                readers.start_soon(traced.read, inode)
            await trio.testing.wait_all_tasks_blocked()
            source.release("x://a")
        assert sorted(span.name for span in traced.spans()) == ["fuse open", "source load"]


async def test_what_goes_on_after_the_answer_ends_by_itself(nursery: trio.Nursery) -> None:
    async with walked(nursery) as (source, traced, inode):
        source.hold("x://a")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as readers:
                readers.start_soon(traced.read, inode)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        (opening,) = traced.spans()
        assert told(opening)["bbfs.outcome"] == "EINTR"
        source.release("x://a")
        await trio.testing.wait_all_tasks_blocked()
        (loading,) = traced.spans()
        assert is_child(loading, opening)
        assert told(loading)["bbfs.outcome"] == "ok"


async def test_ranges_of_a_large_content_are_requests(nursery: trio.Nursery) -> None:
    data = bytes(range(256)) * 8

    async def fetch(offset: int, length: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return data[offset : offset + length]

    content = RangedContent(fetch, len(data), "v", "large", 30.0, Blocks(), block=1024)
    source = FlatSource(contents={"x://a": (Part(None, "text/plain", content, "text"),)})
    async with World(nursery, source) as world:
        traced = Traced(world)
        inode = await traced.walk("mcp-server+docs/x/a")
        traced.spans()
        assert await traced.read(inode, 100) == data[:100]
        spans = {span.name: span for span in traced.spans()}
        assert spans.keys() == {"source load", "fuse open", "source read", "fuse read"}
        assert is_child(spans["source read"], spans["fuse read"])
        assert told(spans["fuse read"])["bbfs.path"] == "mcp-server+docs/x/a"


async def test_a_request_within_another_one_is_a_part_of_it(nursery: trio.Nursery) -> None:
    class Relisting(TreeSource):
        async def stat(self, native_uri: str) -> Any:
            await self.list_directory(())
            return await super().stat(native_uri)

        async def load(self, native_uri: str) -> Loaded:
            await self.stat(native_uri)
            return await super().load(native_uri)

    async with World(nursery, Relisting(contents={"file:./a": b"bytes"})) as world:
        traced = Traced(world)
        inode = await traced.walk("bb-scripted+tree+file/a")
        traced.spans()
        await traced.read(inode)
        assert [span.name for span in traced.spans()] == ["source load", "fuse open"]


async def test_a_source_that_is_added_later_is_traced(nursery: trio.Nursery) -> None:
    async with World(nursery) as world:
        traced = Traced(world)
        source = FlatSource(contents={"x://a": b"bytes"})
        await world.manager.add(source.source, source)
        await traced.walk("mcp-server+docs/x/a")
        assert [span.name for span in traced.spans()] == ["source list", "fuse lookup"]


def test_every_ability_that_asks_a_source_is_traced() -> None:
    protocols = {
        each for _, each in inspect.getmembers(abilities, inspect.isclass) if each.__module__ == abilities.__name__
    }
    asking = {
        name
        for protocol in protocols - {abilities.ListingExchange}
        for name, method in vars(protocol).items()
        if inspect.iscoroutinefunction(method)
    }
    assert asking - {"confirmed", "aclose"} == set(REQUESTS)


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://h/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, True),
    ],
)
def test_the_variables_decide(environ: dict[str, str], wanted: bool) -> None:
    assert is_wanted(environ) == wanted


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        (ENDPOINT, None),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, None),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, None),
    ],
)
def test_an_exporter_that_bbfs_does_not_have_is_named(environ: dict[str, str], named: str | None) -> None:
    assert unsupported(environ) == named


async def test_without_variables_nothing_is_imported_and_nothing_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    for environ in ({}, {**ENDPOINT, "OTEL_SDK_DISABLED": "true"}):
        async with traces(environ) as tracing:
            assert tracing is None


@pytest.mark.parametrize(
    ("environ", "missing", "said"),
    [
        (ENDPOINT, True, "no traces: OpenTelemetry needs the extra 'otel' ("),
        (
            {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            False,
            "no traces: OTEL_EXPORTER_OTLP_PROTOCOL=grpc, but",
        ),
    ],
)
async def test_a_mount_without_the_wanted_traces_says_so_in_a_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, environ: dict[str, str], missing: bool, said: str
) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    if missing:
        monkeypatch.setattr(setting, "import_module", absent)
    async with traces(environ) as tracing:
        assert tracing is None
    (record,) = caplog.records
    assert record.getMessage().startswith(said)


async def test_the_end_of_a_mount_does_not_wait_for_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    forever = threading.Event()
    stuck = SimpleNamespace(exporting=lambda: SimpleNamespace(end=forever.wait))
    monkeypatch.setattr(setting, "import_module", lambda _name: stuck)
    try:
        with trio.fail_after(30):
            async with traces(ENDPOINT, ends_within=0.01) as tracing:
                assert tracing is not None
    finally:
        forever.set()
