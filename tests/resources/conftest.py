"""Fixtures of the tests of resources: the caches on disk, each in a directory of its own, and a shared cache."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cache_server import CacheServer

from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.metadata import MetadataStore


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DiskCache]:
    opened = DiskCache(tmp_path / "contents", 1 << 20)
    yield opened
    opened.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    opened = MetadataStore(tmp_path / "metadata.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def server() -> Iterator[CacheServer]:
    server = CacheServer()
    yield server
    server.close()
