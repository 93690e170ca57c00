"""An MCP server as a data source."""

from collections.abc import Callable

import pytest
from odd_servers import Odd

from bbfs.model.errors import ConfigError
from bbfs.model.values import DataSource, Policy
from bbfs.sources import CanList, Services
from bbfs.sources.factory import build
from bbfs.sources.mcp.client.manager import MCPManager


def make(odd: Odd) -> DataSource:
    return DataSource("o", "odd", "server", "mcp", "mcp-server+odd", policy=Policy(timeout=20), mcp=odd.server)


async def test_metadata_of_entries(manager: MCPManager, odd: Callable[..., Odd]) -> None:
    handler = build(make(odd("invalid-entry")), Services(mcp=manager))
    assert isinstance(handler, CanList)
    listing = await handler.list()
    assert listing.problem == "3 invalid entries left out"
    assert [resource.name for resource in listing.resources] == ["a", "odd://b"]
    assert listing.resources[0].modified_ns == 1795255200 * 10**9


async def test_a_template_without_variables_is_a_resource(manager: MCPManager, odd: Callable[..., Odd]) -> None:
    handler = build(make(odd("fixed-templates")), Services(mcp=manager))
    assert isinstance(handler, CanList)
    listing = await handler.list()
    assert (listing.problem, [each.uri_template for each in listing.templates]) == (None, ["odd://by/{name}"])
    listed = [(each.native_uri, each.name, each.mime_type) for each in listing.resources]
    assert listed[0][:2] == ("odd://a", "a")
    assert listed[-1] == ("odd://now", "Now", "text/x")
    assert len({uri for uri, _, _ in listed}) == len(listed)


@pytest.mark.parametrize("missing", ["server", "manager"])
async def test_what_is_missing_is_said(manager: MCPManager, odd: Callable[..., Odd], missing: str) -> None:
    source = make(odd("none")) if missing == "manager" else DataSource("o", "o", "server", "mcp", "mcp-server+o")
    with pytest.raises(ConfigError, match="'o'"):
        build(source, Services(mcp=None if missing == "manager" else manager))
