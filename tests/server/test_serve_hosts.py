"""The entries for MCP hosts in docs/serve.md: bbfs itself reads the hosts' files, so it must understand each."""

import re
from pathlib import Path

import pytest
from repository import DOCS

from bbfs.cli.commands.serve import serve
from bbfs.config.hosts.files import import_mcp_hosts

DOCUMENT = DOCS / "serve.md"
ENTRIES = re.findall(r"^```json\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)


def test_every_host_has_an_entry() -> None:
    text = DOCUMENT.read_text()
    for host in ("Claude Desktop", "Claude Code", "VS Code", "Cursor", "Windsurf", "Zed", "Continue"):
        assert re.search(rf"^\*\*{host}\*\*:", text, re.MULTILINE), host
    assert len(ENTRIES) == 9


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_is_understood(entry: str, tmp_path: Path) -> None:
    written = tmp_path / (".vscode/mcp.json" if "${workspaceFolder}" in entry else "mcp.json")
    written.parent.mkdir(exist_ok=True)
    written.write_text(entry)
    environ = {"HOME": str(tmp_path), "BBFS_TOKEN": "t0ken", "BBFS_INPUT_BBFS_TOKEN": "t0ken"}
    (source,) = import_mcp_hosts(str(written), environ=environ)
    assert source.name == "bbfs"
    assert source.mcp is not None
    if source.mcp.transport == "http":
        assert source.mcp.url == "http://127.0.0.1:8765/mcp"
        assert source.mcp.headers == {"Authorization": "Bearer t0ken"}
        return
    assert (source.mcp.command, source.mcp.args[0]) == ("bbfs", "serve")
    assert "${" not in " ".join(source.mcp.args)
    with serve.make_context("serve", list(source.mcp.args[1:])) as context:
        assert context.params["folders"] or context.params["config_file"]
