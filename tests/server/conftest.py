"""`bbfs serve` in processes of its own, and its service in this one, over folders, MCP servers and memory."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from forked_daemon import forked
from harness import State, config_text, folder, mcp
from mcp import Client
from repository import SERVERS
from served import BOUND, FILES, serving

from bbfs.config.toml import load_config
from bbfs.knowledge.database.store import Store
from bbfs.resources.open import compose, resource_manager
from bbfs.server.service import Service


@pytest.fixture(params=("legacy", "auto"))
def era(request: pytest.FixtureRequest) -> str:
    """How a client connects: by the handshake (up to 2025-11-25), or as 2026-07-28 has it."""
    return request.param


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A folder with `FILES`, and a symbolic link, which is not followed."""
    root = tmp_path / "project"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / "link").symlink_to("package.json")
    return root


@pytest.fixture
def knowledge(tmp_path: Path) -> Iterator[Store]:
    """A knowledge base with the collection `docker`."""
    with Store(tmp_path / "kb.sqlite") as store:
        store.put("docker", "ssl-setup", b"# SSL\n", name="ssl-setup.md")
        store.put("docker", "install", b"# Install\n", name="install.md")
        yield store


@pytest.fixture
def sources(local: Path, knowledge: Store) -> list[dict[str, Any]]:
    """A folder, a knowledge base and a plain MCP server."""
    serve_knowledge = forked("-m", "bbfs.knowledge", "serve", "--interval", "0.05", "--ttl", "0")
    return [
        folder("local", local),
        mcp("kb", [*serve_knowledge, "--db", knowledge.path], tools="off"),
        mcp("items", forked(SERVERS / "resources.py")),
    ]


@pytest.fixture
def service(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Service]]:
    """The service over some sources, in this process: `async with service(*tables, depth=2) as one`.

    A test with it ends within `BOUND`. It waits for all sources: several servers that start on a busy machine take more
    than five seconds.
    """

    @asynccontextmanager
    async def open_service(*tables: dict[str, Any], **options: Any) -> AsyncGenerator[Service]:
        written = tmp_path / "sources.toml"
        written.write_text(config_text(tables, {}))
        config = load_config(str(written), environ={})
        with trio.fail_after(BOUND):
            async with resource_manager(config, compose(config)) as manager, trio.open_nursery() as nursery:
                yield Service(manager, nursery, **{"wait": BOUND, **options})
                nursery.cancel_scope.cancel()

    return open_service


@pytest.fixture
def state() -> Iterator[State]:
    """Where `bbfs serve` keeps things. At the end nothing of it runs any more."""
    state = State()
    try:
        yield state
        assert state.processes() == []
    finally:
        state.remove()


@pytest.fixture
def stdio(state: State, tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Client]]:
    """A client of `bbfs serve`, as `served.serving` has it: `async with stdio(era, *tables, options=[…]) as client`."""
    return partial(serving, state, tmp_path)
