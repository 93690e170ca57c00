"""Listings of many pages on a mount: shown whole, shown again, in one directory, and followed while they arrive."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import Mount, Mounts, SourceTable, mcp
from programs import Program, run, shell, wait_until
from repository import SERVERS

SERVER = SERVERS / "many.py"
COUNT = 3000


def many(*options: str | int | Path, **policy: Any) -> SourceTable:
    command = [sys.executable, "-I", "-S", SERVER, "--count", COUNT, "--page-size", 100, *options]
    return mcp("many", [str(part) for part in command], **policy)


def status(root: Mount) -> dict[str, Any]:
    return json.loads(run("cat", root / ".bbfs/status.json").text)


def files(root: Mount) -> list[str]:
    return shell("find . -type f | sort", directory=root / "mcp-server+many/many/shelves").text.splitlines()


@pytest.mark.semantics("S12")
@pytest.mark.parametrize("directory", [100, 10_000])
def test_all_pages_are_shown_and_again_after_a_remount(mounted: Mounts, directory: int) -> None:
    expected = [f"./{number // directory:04}/document-{number:07}.txt" for number in range(COUNT)]
    source, state = many("--per-directory", directory, ttl="1h"), mounted.state()
    first = mounted(source, state=state)
    for _ in range(2):
        assert files(first) == expected
    shelves = first / "mcp-server+many/many/shelves"
    assert "Zeile" in run("cat", shelves / expected[1234]).text
    assert run("stat", "-c", "%s", shelves / expected[1235]).text == "4160\n"
    assert files(first) == expected
    assert status(first)["sources"][0]["resources"] == COUNT
    first.stop()
    second = mounted(source, state=state)
    assert files(second) == expected
    assert status(second)["sources"][0]["listing"] is None, "nobody was asked"


def test_the_status_follows_a_listing_that_arrives(mounted: Mounts, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    root = mounted(many("--gate", gate, "--gate-at", 1500, ttl="1h"))
    before = status(root)["sources"]
    assert [(source["id"], source["listing"]) for source in before] == [("many", None)]
    finding = Program("find", root / "mcp-server+many", "-type", "f", "-name", "document-*")
    wait_until(lambda: (status(root)["sources"][0]["listing"] or {}).get("pages") == 15, "half of it is there")
    arriving = status(root)["sources"][0]
    assert arriving["listing"].items() >= {"resources": 1500, "pages": 15, "complete": False}.items()
    assert (arriving["resources"], arriving["waiting"], arriving["state"]) == (0, 1, "up")
    gate.open("wb").close()
    assert len(finding.wait().text.splitlines()) == COUNT
    wait_until(lambda: status(root)["sources"][0]["listing"]["complete"], "what is said is a second old at most")
    listed = status(root)["sources"][0]
    assert listed["listing"].items() >= {"resources": COUNT, "pages": 30, "complete": True}.items()
    assert (listed["resources"], listed["waiting"]) == (COUNT, 0)


def test_the_status_is_a_file_like_others_that_no_walk_comes_to(mounted: Mounts) -> None:
    root = mounted(many())
    assert run("ls", "-a", root.path).text.split() == [".", "..", ".about.md", "mcp-server+many"]
    assert run("ls", root / ".bbfs").text == "metrics\nstatus.json\n"
    whole = shell("cp .bbfs/status.json /dev/stdout", directory=root.path).text
    assert json.loads(whole).keys() >= {"started", "now", "loads", "memory", "sources"}
    assert json.loads(whole)["loads"] == 0, "to say how it fares is no load"
    assert (
        shell("head -c 1 .bbfs/status.json; stat -c %A .bbfs/status.json", directory=root.path).text == "{-r--r--r--\n"
    )
