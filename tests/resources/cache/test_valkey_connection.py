"""What is said where there is no server, or nothing to speak with it."""

import pytest

from bbfs.model.errors import ConfigError, Unreachable
from bbfs.model.values import SharedCache
from bbfs.resources.cache.shared import connection as valkey
from bbfs.resources.cache.shared.connection import probe
from bbfs.resources.cache.shared.valkey_tier import ValkeyTier


async def test_probe_says_what_is_wrong() -> None:
    with pytest.raises(Unreachable, match="No such file"):
        await probe(SharedCache(socket="/nonexistent/socket"))
    with pytest.raises(Unreachable):
        await probe(SharedCache(host="127.0.0.1", port=1))


def test_without_the_client_the_configuration_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="shared needs the extra 'shared'"):
        ValkeyTier(SharedCache())
