"""A Notion workspace on a real mount: what programs see, what it costs, and that its faults are its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Mounts, SourceTable
from notion_server import TOKEN, NotionServer, id_of, notion_server
from programs import errno_of, run, shell, wait_until

DIRECTORY = "bb-notion+work+x-notion"
RULES = "# Rules\n\ntext of rules\n"


@pytest.fixture
def server() -> Iterator[NotionServer]:
    with notion_server() as running:
        yield running


def work(server: NotionServer, config: dict[str, Any] | None = None, **options: Any) -> SourceTable:
    config = server.config(**(config or {}))
    return {"name": "work", "type": "notion", "config": config, "auth": {"token": TOKEN}, **options}


def requests(server: NotionServer) -> list[str]:
    return [path for _, path, _ in server.control()]


@pytest.mark.semantics("S2", "S5", "S9")
def test_the_tree_reads_as_a_folder_does(server: NotionServer, mounted: Mounts, tmp_path: Path) -> None:
    tree = mounted(work(server)) / DIRECTORY
    assert run("ls", tree).text.split("\n")[:-1] == ["Handbook", "Lone.md", "Two sources"]
    assert run("cat", tree / "Handbook" / "a%2Fb.md").text == "# a/b\n\ntext of slash\n"
    run("cp", "-r", tree, tmp_path / "copy", timeout=40)
    run("diff", "-r", "-x", ".about.md", tree, tmp_path / "copy", timeout=40)  # it counts what is listed by then
    sizes = shell("find . -type f -printf '%P %s\\n' | sort", directory=tmp_path / "copy").text
    assert shell("find . -type f -printf '%P %s\\n' | sort", directory=tree, timeout=40).text == sizes
    assert shell("grep -rl 'in Berlin' .", directory=tree).text == "./Handbook/Offices/Berlin.md\n"
    assert run("grep", "-c", '"Name": "Task', tree / "Handbook/Tasks/rows.ndjson").text == "7\n"


@pytest.mark.semantics("S12", "S17")
def test_names_cost_no_page_and_what_is_fresh_is_not_asked_for_again(server: NotionServer, mounted: Mounts) -> None:
    tree = mounted(work(server, ttl=600)) / DIRECTORY
    run("find", tree, "-maxdepth", "3", timeout=30)
    assert not [path for path in requests(server) if "properties" in path or id_of("rules") in path]
    assert run("cat", tree / "Handbook" / "Rules.md").text == RULES
    assert requests(server) == [f"/v1/pages/{id_of('rules')}", f"/v1/blocks/{id_of('rules')}/children"]
    for _ in range(3):
        run("cat", tree / "Handbook" / "Rules.md")
        run("ls", tree / "Handbook")
    assert requests(server) == []


@pytest.mark.semantics("S7", "S18", "S19")
def test_what_was_edited_is_seen_when_the_time_to_live_is_over(server: NotionServer, mounted: Mounts) -> None:
    tree = mounted(work(server, ttl=0.2)) / DIRECTORY
    assert run("cat", tree / "Handbook" / "Rules.md").text == RULES
    server.control(page={"name": "late", "title": "Late", "in": _dashed("rules")})
    wait_until(lambda: errno_of("os.listdir(sys.argv[1])", tree / "Handbook" / "Rules").startswith("OK"), "a directory")
    assert run("ls", tree / "Handbook" / "Rules").text.split() == ["Late.md", "index.md"]
    assert "[Late]" in run("cat", tree / "Handbook" / "Rules" / "index.md").text
    assert errno_of("os.stat(sys.argv[1])", tree / "Handbook" / "Rules.md") == "ENOENT"


def _dashed(name: str) -> str:
    own = id_of(name)
    return "-".join((own[:8], own[8:12], own[12:16], own[16:20], own[20:]))
