"""The tools and prompts of a server, through its connection."""

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from odd_servers import until
from repository import SERVERS

from bbfs.model.errors import BbfsError, Denied, InvalidUri, NotFound, NotSupported, Unreachable
from bbfs.model.values import Change, DataSource, Loaded, McpServer, Policy, Tools
from bbfs.sources import CanComplete, CanLoad, Services
from bbfs.sources.factory import build
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.handler import McpHandler


@dataclass
class Server:
    """A server with tools as a data source, and the log that it writes."""

    handler: McpHandler
    path: Path
    manager: MCPManager

    def log(self, *starts: str) -> list[str]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [line for line in lines if line.startswith(starts or "call")]

    async def text(self, uri: str) -> bytes | None:
        loaded: Loaded = await self.handler.load(uri)
        assert len(loaded.parts) == 1
        return loaded.parts[0].content.read(0, 1 << 20)


@pytest.fixture
def server(manager: MCPManager, tmp_path: Path) -> Any:
    def make(tools: Tools = "read-only", prompts: bool = True, name: str = "s") -> Server:
        log = tmp_path / f"{name}.log"
        command = McpServer("stdio", command=sys.executable, args=("-I", str(SERVERS / "calls.py"), str(log)))
        source = DataSource(
            name, name, "server", "mcp", f"mcp-server+{name}", policy=Policy(timeout=20), mcp=command, tools=tools,
            prompts=prompts,
        )  # fmt: skip
        handler = build(source, Services(mcp=manager))
        assert isinstance(handler, McpHandler)
        return Server(handler, log, manager)

    return make


@pytest.mark.semantics("S31")
async def test_only_what_is_allowed_is_listed(server: Any) -> None:
    read_only, named, off = server(), server(("write", "echo", "missing"), False, "n"), server("off", False, "o")
    listing = await read_only.handler.list()
    tools = [t.name for t in listing.templates if t.on_open and not t.refused]
    names = ["echo", "count", "convert", "page", "picture", "record", "several", "fail", "refuse", "keep"]
    assert tools == [*names, "crash", "wait", "odd/name %41"]
    assert [t.uri_template for t in listing.templates if t.uri_template.startswith("prompt:")] == [
        "prompt://greet{?who,how}",
        "prompt://plain?",
        "prompt://talk?",
    ]
    assert listing.problem == "1 invalid entry left out"
    assert read_only.log("tools") == ["tools"] * 3  # pages
    listing = await named.handler.list()
    assert [t.name for t in listing.templates if t.on_open and not t.refused] == ["write", "echo"]
    assert listing.problem == "1 invalid entry left out; no such tool: missing"
    listing = await off.handler.list()
    assert {r.native_uri for r in listing.resources} == {"doc://guide", "tool://echo/input.schema.json"}
    assert off.log("") == []  # neither tools nor prompts were asked for
    for each in (read_only, named, off):
        assert each.log("call") == []
        assert each.manager.connection(each.handler.source.id).counts["call"] == 0


@pytest.mark.semantics("S31")
async def test_a_load_is_a_call(server: Any) -> None:
    s = server()
    assert isinstance(s.handler, CanLoad)
    assert await s.text("tool://echo?text=h%C3%AB%20%22&times=2&tags=a,b") == 'hë "hë "'.encode()
    assert s.log() == ['call echo {"text": "hë \\"", "times": 2, "tags": ["a", "b"]}']
    assert [await s.text("tool://count?") for _ in range(2)] == [b"call 2 ..", b"call 3 ..."]
    assert (await s.handler.load("tool://picture?")).parts[0].mime_type == "image/png"
    assert s.manager.connection("s").counts["call"] == 4
    assert await s.text("tool://odd%2Fname%20%2541?an%20argument%2E=x") == b"odd/name %41 5"
    with pytest.raises(BbfsError, match=r"^the disk is full$"):
        await s.handler.load("tool://fail?")
    with pytest.raises(BbfsError, match="refused, as told"):
        await s.handler.load("tool://refuse?")


@pytest.mark.semantics("S31")
async def test_what_is_not_allowed_is_not_run(server: Any) -> None:
    s = server()
    with pytest.raises(InvalidUri, match="no argument 'txt'; did you mean 'text'"):
        await s.handler.load("tool://echo?txt=1")
    with pytest.raises(InvalidUri, match="needed but not given: text"):
        await s.handler.load("tool://echo")
    for name in ("write", "contradiction", "silent"):
        with pytest.raises(
            Denied, match=rf"^the option tools of .* tool '{name}' by path; `bbfs call s {name}` calls it$"
        ):
            await s.handler.load(f"tool://{name}?text=x")
    # What is none of the tools may be a resource: the server is asked for that.
    for uri in ("tool://nobody?", "tool://echo/x"):
        assert await s.text(uri) == f"content of {uri}\n".encode()
    off = server("off", False, "o")
    assert await off.text("tool://echo?text=x") == b"content of tool://echo?text=x\n"
    with pytest.raises(Denied, match=r"tools of this source are off \(its option tools\)$"):
        await off.handler.load("tool://echo%3Ftext%3Dx")
    assert s.log() == off.log() == []
    assert await server(("silent",), False, "n").text("tool://silent?") == b"silent 1"


async def test_resources_of_the_servers_own_are_read(server: Any) -> None:
    s = server()
    assert await s.text("tool://echo/input.schema.json") == b"content of tool://echo/input.schema.json\n"
    assert (await s.text("tool://count/input.schema.json") or b"").startswith(b'{\n  "type": "object"')


async def test_prompts_are_rendered(server: Any) -> None:
    s = server()
    assert await s.text("prompt://greet?who=Ada&how=loudly") == b"Greet Ada loudly."
    assert await s.text("prompt://plain?") == b"Be brief."
    assert s.log("prompt") == ['prompt greet {"who": "Ada", "how": "loudly"}', "prompt plain {}"]
    with pytest.raises(InvalidUri, match="needed but not given: who"):
        await s.handler.load("prompt://greet?")
    assert isinstance(s.handler, CanComplete)
    assert (await s.handler.complete("prompt://greet{?who,how}", "who", "A", {})).values == ("Ada", "Alan")
    assert s.manager.connection("s").counts["call"] == 0


@pytest.mark.semantics("S31.6")
async def test_a_call_that_may_have_run_is_not_repeated(server: Any) -> None:
    writing, reading = server(("crash-writing",)), server(("crash",), name="r")
    with pytest.raises(Unreachable):
        await writing.handler.load("tool://crash-writing?")
    assert writing.log() == ["call crash-writing {}"]
    with pytest.raises(Unreachable):
        await reading.handler.load("tool://crash?")
    assert reading.log() == ["call crash {}", "call crash {}"]


@pytest.mark.semantics("S18")
async def test_a_changed_list_of_tools_is_an_event(server: Any) -> None:
    s, off = server(), server("off", False, "o")
    events: list[Change] = []
    for each in (s, off):
        each.handler.watch(events.append)
        before = await each.handler.list()
        assert "added" not in [t.name for t in before.templates]
        each.path.with_suffix(".add").touch()
        await each.text("doc://guide")
    await until(lambda: events)
    assert [(event.source_id, event.uri) for event in events] == [("s", None)]
    assert "added" in [t.name for t in (await s.handler.list()).templates]


async def test_what_an_earlier_mount_has_listed_is_loaded_without_a_listing(server: Any) -> None:
    s = server()
    assert await s.text("tool://count?") == b"call 1 ."
    assert (await s.text("tool://count/description.md") or b"").startswith(b"# count\n")
    assert b"/*" in (await s.text("tool://count/description.md") or b"")  # where `cat` meets a directory


async def test_a_name_in_the_way_of_no_tool(server: Any) -> None:
    s = server()
    await s.handler.list()
    s.handler.interested("tool://count?")
    assert not s.handler.announces("tool://count?")
    with pytest.raises(NotFound):
        await s.handler.load("tool://\ud800?")


@pytest.mark.semantics("S36")
async def test_a_search_before_the_listing_asks_for_the_tools_once(server: Any) -> None:
    unlisted, off = server(), server("off", False, "o")
    assert (unlisted.handler.searches, off.handler.searches) == (None, False)
    for _ in range(2):
        with pytest.raises(NotSupported, match="no tool of the server searches"):
            await unlisted.handler.search("word", 1)
        assert unlisted.handler.searches is False
    assert unlisted.log("tools") == ["tools"] * 3  # pages


@pytest.mark.semantics("S18")
async def test_tools_over_http(manager: MCPManager, serve: Callable[..., AbstractAsyncContextManager[str]]) -> None:
    """Protocol 2026-07-28: arguments that go into headers as well (else the server refuses), and `listen`."""
    async with serve("calls_http.py") as url:
        policy = Policy(timeout=20)
        source = DataSource("h", "h", "server", "mcp", "mcp-server+h", policy=policy, mcp=McpServer("http", url=url),
                            tools="read-only")  # fmt: skip
        handler = build(source, Services(mcp=manager))
        assert isinstance(handler, McpHandler)
        events: list[Change] = []
        handler.watch(events.append)
        assert [t.uri_template for t in (await handler.list()).templates] == ["tool://where{?city}", "tool://grow?"]
        loaded = await handler.load("tool://where?city=K%C3%B6ln")
        assert [part.content.read(0, 100) for part in loaded.parts] == ['[\n  "in",\n  "Köln"\n]\n'.encode()]
        await until(lambda: handler.announces(None))
        assert (await handler.load("tool://grow?")).parts[0].content.read(0, 100) == b"more"
        await until(lambda: events)
        assert "tool://grown?" in [t.uri_template for t in (await handler.list()).templates]
        assert (await handler.load("tool://grown?")).parts[0].content.size == 0
        assert manager.connection("h").counts["call"] == 3
