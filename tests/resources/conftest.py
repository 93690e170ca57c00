"""Fixtures of the tests of resources: the caches on disk, each in a directory of its own, and a shared cache."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cache_server import CacheServer

from bbfs.resources.cache.disk import DiskCache
from bbfs.resources.cache.metadata import MetadataStore


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DiskCache]:
    with closing(DiskCache(tmp_path / "contents", 1 << 20)) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    with closing(MetadataStore(tmp_path / "metadata.sqlite")) as opened:
        yield opened


@pytest.fixture
def server() -> Iterator[CacheServer]:
    with closing(CacheServer()) as server:
        yield server
