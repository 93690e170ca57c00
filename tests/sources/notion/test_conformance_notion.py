"""The conformance suite over a local server that follows Notion's API."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from notion_server import TOKEN, NotionServer, id_of, notion_server

from bbfs.model import source_types
from bbfs.model.values import DataSource
from bbfs.sources import Handler, Services
from bbfs.sources.notion.handler import NotionHandler
from bbfs.testing import SourceConformance


@pytest.fixture(scope="module")
def server() -> Iterator[NotionServer]:
    with notion_server() as running:
        yield running


class TestNotion(SourceConformance):
    known: ClassVar = {
        "x-notion://Handbook/Rules.md": b"# Rules\n\ntext of rules\n",
        "x-notion://Handbook/a%2Fb.md": b"# a/b\n\ntext of slash\n",
        "x-notion://Handbook/Empty.md": b"# Empty\n",
        "x-notion://Handbook/Deep.md": b"# Deep\n\ndeep down\n",
        "x-notion://Handbook/Offices/Berlin.md": b"# Berlin\n\nin Berlin\n",
        "x-notion://Handbook/Tasks/Task%202/Draft.md": b"# Draft\n\na draft\n",
        "x-notion://Two%20sources/Right/rows.ndjson": b"",
        "x-notion://Lone.md": b"# Lone\n\nalone\n",
    }
    unknown: ClassVar = (
        "x-notion://Nothing.md",
        "x-notion://Handbook/Nothing.md",
        "x-notion://Handbook/Rules.md/below.md",
        "x-notion://Handbook/Gone.md",
        "x-notion://",
        "x-notion://Handbook/",
        "x-notion://" + "0" * 32,
        "x-notion://" + id_of("gone"),
        "notion://Handbook",
    )

    searched: ClassVar = ("Berlin", "x-notion://" + id_of("berlin"))

    @pytest.fixture(autouse=True)
    def running(self, server: NotionServer) -> None:
        self.server = server

    @asynccontextmanager
    async def handler(self, directory: Path) -> AsyncIterator[Handler]:
        source = DataSource(
            "work",
            "work",
            "notion",
            "bb",
            "bb-notion+work+x-notion",
            policy=source_types.policy("notion"),
            config=self.server.config(),
            auth={"token": TOKEN},
        )
        async with aclosing(NotionHandler(source, Services())) as handler:
            yield handler
