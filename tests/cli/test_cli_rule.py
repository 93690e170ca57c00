"""URI ↔ path by the rule alone."""

import pytest

from bbfs.cli.operands.rule import components, path_by_rule, uri_by_rule
from bbfs.model.errors import InvalidUri

CASES = [
    ("mcp-server+docs+resource://guide/install", "mcp-server+docs+resource/guide/install"),
    ("mcp-server+docs+resource://guide/a%20b", "mcp-server+docs+resource/guide/a b"),
    ("mcp-server+docs+git+ssh://host/x", "mcp-server+docs+git+ssh/host/x"),
    ("bb-filesystem+notes+file:./sub/a%20b.md", "bb-filesystem+notes+file/sub/a b.md"),
    ("mcp-server+docs+_:plain text", "mcp-server+docs+_/plain text"),
]


@pytest.mark.semantics("S2.2", "S3")
@pytest.mark.parametrize(("uri", "path"), CASES)
def test_a_uri_is_its_path_with_a_slash(uri: str, path: str) -> None:
    assert "/".join(path_by_rule(uri)) == path


@pytest.mark.semantics("S2.2")
@pytest.mark.parametrize(("uri", "path"), CASES[:4])
def test_a_path_is_its_uri(uri: str, path: str) -> None:
    assert uri_by_rule(components(path)) == uri


@pytest.mark.parametrize("path", ["", "mcp-server+docs", "bb-filesystem+notes+file", "docs/resource/x", "../x"])
def test_what_stands_for_no_resource_has_no_uri(path: str) -> None:
    with pytest.raises(InvalidUri):
        uri_by_rule(components(path))


def test_the_root_of_a_mount_has_no_uri() -> None:
    with pytest.raises(InvalidUri, match="the root of a mount"):
        uri_by_rule(())
