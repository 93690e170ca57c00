"""The conformance suite, handed each source type."""

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import trio
from forked_daemon import forked
from repository import SERVERS

from bbfs.knowledge.database.store import Store
from bbfs.model.values import Capabilities, DataSource, McpServer, RemoveTool, WriteTool
from bbfs.sources import Handler, Services
from bbfs.sources.filesystem.handler import FilesystemHandler
from bbfs.sources.mcp.client.manager import MCPManager
from bbfs.sources.mcp.handler import McpHandler
from bbfs.testing import SourceConformance


class TestFilesystem(SourceConformance):
    known: ClassVar = {
        "file:./a.txt": b"alpha\n",
        "file:./empty": b"",
        "file:./deep/er/b%20c%23.md": b"# beta\n",
        "file:./deep/%FF%0A": b"\x00\xff",
        "file:./large.bin": os.urandom(70_000),
    }
    written: ClassVar = ("file:./deep/n%20ew.txt", "file:./deep/other.txt")
    unknown: ClassVar = ("file:./nothing", "file:./a.txt/below", "file:./deep/nothing", "resource://a.txt", "file:")

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        names = {"b%20c%23.md": b"b c#.md", "%FF%0A": b"\xff\n"}
        for native_uri, data in self.known.items():
            *above, last = native_uri.removeprefix("file:./").split("/")
            folder = directory.joinpath(*above)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / os.fsdecode(names.get(last, last.encode()))).write_bytes(data)
        config = {"root": str(directory), "max_memory": 50_000}
        source = DataSource("fs", "local", "filesystem", "bb", "bb-filesystem+local+file", config=config)
        yield FilesystemHandler(source, Services())


class TestMcpServer(SourceConformance):
    known: ClassVar = {f"odd://{name}": f"content of odd://{name}\n".encode() for name in "abc"}
    unknown: ClassVar = ("odd://nothing", "other://a")

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        async with _served(sys.executable, "-S", str(SERVERS / "odd.py"), "none") as handler:
            yield handler


DOCUMENT = "resource://knowledge/{collectionId}/document/{docId}"
TOOLS: Mapping[str, Any] = {
    "capabilities": Capabilities(write=True),
    "write": WriteTool("put_document", version="version", template=DOCUMENT, blob="blob"),
    "remove": RemoveTool("remove_document", version="version", template=DOCUMENT),
}


class TestKnowledgeBase(SourceConformance):
    """The knowledge base as it is served, with its tools for searches and writes."""

    known: ClassVar = {
        "resource://knowledge/docs/document/certificates": b"# Certificates\n\nRenew the certificate each March.\n",
        "resource://knowledge/docs/document/coffee": b"# Coffee\n\nThe machine is on floor two.\n",
    }
    unknown: ClassVar = ("resource://knowledge/docs/document/nothing", "other://a")
    searched: ClassVar = ("renew certificate", "resource://knowledge/docs/document/certificates")
    written: ClassVar = ("resource://knowledge/docs/document/n%20ew", "resource://knowledge/docs/document/other")

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        database = directory / "kb.sqlite"
        with Store(database) as store:
            for native_uri, data in self.known.items():
                store.put("docs", native_uri.rpartition("/")[2], data)
        command = forked("-m", "bbfs.knowledge", "serve", "--db", database, "--writable")
        async with _served(*command, tools=TOOLS) as handler:
            await handler.list()
            yield handler


@asynccontextmanager
async def _served(*command: str, tools: Mapping[str, Any] | None = None) -> AsyncIterator[McpHandler]:
    mcp = McpServer("stdio", command=command[0], args=command[1:])
    source = replace(DataSource("odd", "odd", "server", "mcp", "mcp-server+odd", mcp=mcp), **(tools or {}))
    manager = MCPManager()
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: manager.run(task_status=task_status))
        yield McpHandler(source, Services(mcp=manager))
        nursery.cancel_scope.cancel()
