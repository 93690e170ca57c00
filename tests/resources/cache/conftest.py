"""What the tests of the shared tier have: a server of their own, and little patience."""

import pytest
from cache_server import CacheServer
from shared_machines import BOUND

from bbfs.model.values import SharedCache
from bbfs.resources.cache.shared import connection as valkey


@pytest.fixture
def settings(server: CacheServer) -> SharedCache:
    return SharedCache(socket=str(server.socket), timeout=BOUND)  # a busy machine is no outage


@pytest.fixture
def quick_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(valkey, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(valkey, "CONNECTING", BOUND)
    monkeypatch.setattr(valkey, "START_WITHIN", BOUND)
