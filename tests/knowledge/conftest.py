"""A small knowledge base, its commands, and clients of both eras of the protocol."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest
import trio
from forked_daemon import forked
from mcp import Client

from bbfs.knowledge.database.store import Store
from bbfs.knowledge.server.service import KnowledgeServer

BOUND = 60.0

DOCUMENTS: dict[tuple[str, str], tuple[str, bytes]] = {
    ("docs", "ssl-setup"): ("ssl-setup.md", b"# SSL setup\r\n\r\nCreate a certificate, then restart the proxy.\n"),
    ("docs", "guides-install"): ("install.md", "# Installieren — über Größe \u2028 und \x85 Zeilen\n".encode()),
    ("docs", "empty"): ("empty.md", b""),
    ("docs", "logo"): ("logo.png", bytes(range(256))),
    ("docs", "broken"): ("broken.txt", b"not UTF-8: \xff\xfe"),
    ("a/b ü%?", "x/../y z#%41"): ("odd name.md", "\ufeffodd ids, \0 and all".encode()),
} | {("many", f"note-{number:03}"): (f"note-{number:03}", f"Note number {number}.\n".encode()) for number in range(230)}


@pytest.fixture
def documents() -> Mapping[tuple[str, str], tuple[str, bytes]]:
    """Name and bytes of each document of the knowledge base by (collection, id); some odd, in all several pages."""
    return DOCUMENTS


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "kb.sqlite"


@pytest.fixture
def store(database: Path) -> Iterator[Store]:
    """The store with `documents`."""
    with Store(database) as store:
        for (collection, document), (name, content) in DOCUMENTS.items():
            store.put(collection, document, content, name=name)
        yield store


@pytest.fixture(params=("legacy", "auto"))
def era(request: pytest.FixtureRequest) -> str:
    """How a client connects: by the handshake (up to 2025-11-25), or as 2026-07-28 has it."""
    return request.param


@pytest.fixture
async def client(store: Store, era: str) -> AsyncIterator[Client]:
    """A client of a server in this process."""
    async with Client(KnowledgeServer(store, ttl=0, interval=0.05), mode=era) as client:
        yield client


@pytest.fixture
def command(database: Path) -> Callable[..., Awaitable[str]]:
    """Runs a command of the module on the database, in a process of its own; answers what it prints."""

    async def run(name: str, *arguments: str, stdin: bytes = b"") -> str:
        line = forked("-m", "bbfs.knowledge", name, "--db", database, *arguments)
        with trio.fail_after(BOUND):
            done = await trio.run_process(line, stdin=stdin, capture_stdout=True)
        return done.stdout.decode()

    return run
