"""Directories and skills of an MCP server (S44, S45) on a real mount."""

import hashlib
from pathlib import Path

import pytest
from harness import Mounts, mcp
from programs import run
from trees_server import asked, server_of_trees

SKILL = "---\nname: pdf\ndescription: Fill documents\n---\n\nFill it.\n"


@pytest.mark.semantics("S44", "S45", "S45.1")
def test_a_tree_and_a_skill_are_read_as_they_are_looked_at(mounted: Mounts, tmp_path: Path) -> None:
    skill, log = tmp_path / "skills/pdf", tmp_path / "log"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(SKILL)
    (skill / "form.txt").write_text("name:\n")
    mount = mounted(mcp("t", server_of_trees(tmp_path, "--width", "20", "--skills", skill.parent)))
    tree, files = mount / "mcp-server+t/tree/root", mount / "mcp-server+t/skill/pdf"

    names = [f"{number:02}" for number in range(20)]
    assert run("ls", tree / "07").text.split() == names
    assert run("cat", tree / "07/13/19").text == "content of tree://root/07/13/19\n"
    assert run("stat", "-c", "%F", tree, tree / "07/13").text.split("\n")[:2] == ["directory"] * 2
    assert asked(log, "resources/directory/read") == ["tree://root", "tree://root/07", "tree://root/07/13"]

    assert run("stat", "-c", "%s", files / "SKILL.md", files / "form.txt").text.split() == [str(len(SKILL)), "6"]
    digest = hashlib.sha256(b"name:\n").hexdigest()
    shown = run("getfattr", "--only-values", "-n", "user.bbfs.digest", files / "form.txt").text
    assert shown == f"sha256:{digest}"
    assert not any(uri.startswith("skill:") for uri in asked(log, "resources/read"))
    assert run("cat", files / "SKILL.md").text == SKILL
    (skill / "form.txt").write_text("rm -r\n")
    refused = run("cat", files / "form.txt", status=None)
    assert (refused.status, refused.out) == (1, b"")
    assert b"Protocol error" in refused.err
