"""The conformance suite, handed each source type."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from conformance import SourceConformance

from bbfs.model import DataSource
from bbfs.sources import Handler, Services
from bbfs.sources.filesystem import FilesystemHandler


class TestFilesystem(SourceConformance):
    known: ClassVar = {
        "file:./a.txt": b"alpha\n",
        "file:./empty": b"",
        "file:./deep/er/b%20c%23.md": b"# beta\n",
        "file:./deep/%FF%0A": b"\x00\xff",
        "file:./large.bin": os.urandom(70_000),
    }
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
