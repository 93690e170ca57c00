"""The conformance suite over resources held in memory, with and without a file."""

import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from bbfs.model.values import DataSource
from bbfs.sources import Handler, Services
from bbfs.sources.memory.handler import LARGE, MemoryHandler
from bbfs.testing import SourceConformance


class TestMemory(SourceConformance):
    known: ClassVar = {
        "memory://notes/a.md": b"# A\n",
        "memory://notes": b"of notes\n",
        "memory://a%20b%2525%23%3F.txt": b"odd\n",
        "memory://gr%C3%BC%C3%9Fe": "grüße".encode(),
        "memory://empty": b"",
        "memory://deep/er/large.bin": os.urandom(LARGE + 70_000),
    }
    searched: ClassVar = ("notes", "memory://notes")
    written: ClassVar = ("memory://new/a%20b.txt", "memory://new/c.txt")
    unknown: ClassVar = ("memory://nothing", "memory://notes/", "memory://deep", "memory://notes/a.md/x", "file:./a")

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        yield MemoryHandler(
            DataSource("scratch", "scratch", "memory", "bb", "bb-memory+scratch+memory", config=self.config(directory)),
            Services(),
        )

    def config(self, directory: Path) -> dict[str, Any]:
        resources = {uri: {"base64": base64.b64encode(data).decode()} for uri, data in self.known.items()}
        return {"resources": resources}


class TestMemoryWithFile(TestMemory):
    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        async with super().handler(directory) as empty:
            assert isinstance(empty, MemoryHandler)
            for uri, data in self.known.items():
                await empty.put(uri, data)
        async with super().handler(directory) as again:
            yield again

    def config(self, directory: Path) -> dict[str, Any]:
        return {"file": str(directory / "kept.json")}
