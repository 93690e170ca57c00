"""The one private name of the SDK that the servers need."""

import importlib

import click
import pytest
from mcp.server.session import ServerSession

from bbfs.server_parts import subscribers


def test_an_sdk_that_keeps_connections_elsewhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerSession, "__init__", lambda self: None)
    with pytest.raises(click.ClickException, match=r"^the MCP SDK \(mcp \d+\.\S+\) keeps a session's connection"):
        importlib.reload(subscribers)
