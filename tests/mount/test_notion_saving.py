"""Programs save pages and rows of a Notion workspace through a mount: afterwards Notion has them (S32, S33)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Mount, Mounts, SourceTable
from notion_server import TOKEN, NotionServer, id_of, notion_server
from programs import run, shell

DIRECTORY = "bb-notion+work+x-notion/Handbook"
pytestmark = [pytest.mark.timeout(120), pytest.mark.semantics("S32", "S33")]


@pytest.fixture
def server() -> Iterator[NotionServer]:
    with notion_server(100) as running:
        yield running


def work(server: NotionServer, **options: Any) -> SourceTable:
    source = {"name": "work", "type": "notion", "config": server.config(), "auth": {"token": TOKEN}}
    return {**source, "capabilities": ["read", "list", "search", "write"], **options}


@pytest.fixture
def mount(server: NotionServer, mounted: Mounts) -> Mount:
    return mounted(work(server), expected=["not written"])


def stored(server: NotionServer, name: str) -> list[tuple[str, str]]:
    """The types and texts of a page's blocks."""
    found: list[tuple[str, str]] = []
    for block in server.blocks(id_of(name)):
        pieces = block[block["type"]].get("rich_text", [])
        found.append((block["type"], "".join(piece["plain_text"] for piece in pieces)))
    return found


def vim(directory: Path, name: str, *commands: str) -> None:
    lines = [word for command in (*commands, "wq") for word in ("-c", command)]
    run("env", "-C", directory, "vim", "-es", "-N", "-u", "NONE", *lines, name, timeout=30)


def test_shells_and_editors_save_pages(mount: Mount, server: NotionServer) -> None:
    here = mount / DIRECTORY
    first = server.blocks(id_of("rules"))[0]["id"]
    shell("sed -i 's/text of/**words** of/' Rules.md", directory=here)
    assert run("cat", here / "Rules.md").text == "# Rules\n\n**words** of rules\n"
    shell("printf '\\n- one\\n' >> Rules.md; printf -- '- two\\n' >> Rules.md", directory=here)
    assert stored(server, "rules") == [
        ("paragraph", "words of rules"),
        ("bulleted_list_item", "one"),
        ("bulleted_list_item", "two"),
    ]
    for setting in ("nobackup", "backup backupcopy=no", "backup backupcopy=yes"):
        vim(here, "Rules.md", f"set {setting}", "normal Go- saved")
    shell(
        "rm -f Rules.md~; cp Rules.md .Rules.md.tmp; sed -i s/one/first/ .Rules.md.tmp; mv .Rules.md.tmp Rules.md",
        directory=here,
    )
    assert run("cat", here / "Rules.md").text == "# Rules\n\n**words** of rules\n\n- first\n- two\n" + "- saved\n" * 3
    assert [text for _, text in stored(server, "rules")] == ["words of rules", "first", "two", *["saved"] * 3]
    assert server.blocks(id_of("rules"))[0]["id"] == first, "a changed paragraph stays the same block"
    shell("sed -i 's/our offices/their offices/' Offices/index.md", directory=here)
    vim(here / "Offices", "index.md", "set backup", "call append(line('$'), ['', 'end'])")
    assert [text for _, text in stored(server, "offices")] == ["their offices", "", "end"]
    listed = run("ls", "-A", here).text.split()
    assert not [name for name in listed if name.startswith(".") or name.endswith("~")]
    assert run("stat", "-c", "%a", here / "Rules.md", here / "Tasks/rows.ndjson").text.split() == ["644", "444"]
