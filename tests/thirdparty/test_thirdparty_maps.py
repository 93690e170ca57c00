"""Servers of others that have tools alone, as trees by the maps that come with bbfs. (`make maps` has many of them.)"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness import Mount, Mounts, mcp
from programs import run, shell
from thirdparty_servers import FILESYSTEM, NODE


@pytest.fixture
def folder(thirdparty: None, tmp_path: Path) -> Path:
    found = tmp_path / "files"
    (found / "a b").mkdir(parents=True)
    (found / "a b/ü.md").write_text("first\n")
    (found / "picture.png").write_bytes(b"\x89PNG\0\xff")
    (found / "bytes").write_bytes(b"\xff\xfe")
    return found


@pytest.fixture
def mount(folder: Path) -> Iterator[Mount]:
    by_map = {"use": "server-filesystem", "values": {"root": str(folder)}}
    with closing(Mounts()) as mounts:
        yield mounts(mcp("files", [NODE, FILESYSTEM, folder], map=by_map, capabilities=["read", "list", "write"]))


@pytest.mark.semantics("S31.12")
def test_the_files_of_server_filesystem_are_a_tree(mount: Mount, folder: Path) -> None:
    root = mount / "mcp-server+files+tree"
    found = run("find", root, "-not", "-name", ".about.md", "-printf", "%P %y %s\\n", status=1)
    assert sorted(found.text.splitlines()) == [" d 0", "a b d 0", "a b/ü.md f 6", "picture.png f 6"]
    assert found.err.endswith(b"bytes\xe2\x80\x99: Operation not supported\n"), "the tool answers texts alone"
    assert run("grep", "-rhs", "firs", root / "a b").text == "first\n"
    assert (root / "picture.png").read_bytes() == (folder / "picture.png").read_bytes()
    shell('sed -i s/first/second/ "$1/a b/ü.md"; mkdir "$1/new"; echo third > "$1/new/c.md"', root)
    assert (folder / "a b/ü.md").read_text() == "second\n"
    assert (folder / "new/c.md").read_text() == "third\n"
    shell('cd "$1"; mv new renamed; mv "a b/ü.md" renamed/ü.md; test ! -e new', root)
    assert {path.name for path in (folder / "renamed").iterdir()} == {"c.md", "ü.md"}
    for refused in (["mv", "-T", root / "renamed/c.md", root / "renamed/ü.md"], ["rmdir", root / "a b"]):
        assert run(*refused, status=1).err.endswith(b"Operation not supported\n"), "no tool replaces or removes"
    assert (folder / "renamed/ü.md").read_text() == "second\n"
    assert run("rm", root / "picture.png", status=1).err.endswith(b"Operation not supported\n")
