"""What the tests of the shared tier have: a server of their own."""

import pytest
from cache_server import CacheServer
from shared_machines import BOUND

from bbfs.model.values import SharedCache


@pytest.fixture
def settings(server: CacheServer) -> SharedCache:
    return SharedCache(socket=str(server.socket), timeout=BOUND)  # a busy machine is no outage
