"""Programs save pages and rows of a Notion workspace through a mount: afterwards Notion has them (S32, S33)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Mount, Mounts, SourceTable
from notion_server import TOKEN, NotionServer, id_of, notion_server
from programs import errno_of, run, shell, wait_until

DIRECTORY = "bb-notion+work+x-notion/Handbook"
WRITE = "exec(\"f = open(sys.argv[1], 'wb', 0); f.write(sys.argv[2].encode()); f.close()\")"
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


def kept(mount: Mount) -> set[bytes]:
    """The contents of the pending writes."""
    return {each.with_suffix("").read_bytes() for each in mount.state.home.rglob("pending/*.json")}


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


def test_pages_are_made_renamed_and_removed(mount: Mount, server: NotionServer) -> None:
    here = mount / DIRECTORY
    shell("touch 'Plan B.md'; echo text > New.md; printf '# Third\\n\\nx\\n' > Third.md", directory=here)
    assert run("cat", here / "Plan B.md", here / "New.md", here / "Third.md").text == (
        "# Plan B\n# New\n\ntext\n# Third\n\nx\n"
    )
    shell("mv New.md Newer.md; rm Third.md 'Plan B.md'", directory=here)
    assert run("cat", here / "Newer.md").text == "# Newer\n\ntext\n"
    titles = [
        block["child_page"]["title"] for block in server.blocks(id_of("handbook")) if block["type"] == "child_page"
    ]
    assert "Newer" in titles
    assert not {"New", "Third", "Plan B"} & set(titles)
    shell("mv Offices Bureaus && cat Bureaus/index.md && mv Bureaus/Berlin.md Bureaus/Bonn.md", directory=here)
    assert run("cat", here / "Bureaus/Bonn.md").text == "# Bonn\n\nin Berlin\n"
    assert errno_of("os.rename(sys.argv[1], sys.argv[2])", here / "Newer.md", here / "Bureaus/Newer.md") == "EOPNOTSUPP"
    assert errno_of(WRITE, here / "text.txt", "x") == "EOPNOTSUPP"
    assert errno_of(WRITE, mount / "bb-notion+work+x-notion/Root.md", "x") == "EOPNOTSUPP"


def test_a_page_gets_its_first_page(server: NotionServer, mounted: Mounts) -> None:
    here = mounted(work(server, ttl=0.2)) / DIRECTORY
    shell("mkdir Rules && echo below > Rules/Detail.md", directory=here)
    assert run("cat", here / "Rules/Detail.md").text == "# Detail\n\nbelow\n"
    wait_until(lambda: run("ls", here, here / "Rules").text.endswith("Detail.md\nindex.md\n"), "it is a directory")
    assert run("head", "-n", "3", here / "Rules/index.md").text == "# Rules\n\ntext of rules\n"
    assert errno_of("os.stat(sys.argv[1])", here / "Rules.md") == "ENOENT"


def test_values_of_a_row_are_saved(mount: Mount, server: NotionServer) -> None:
    here = mount / DIRECTORY / "Tasks"
    shell(
        'sed -i -e \'s/^"Number": .*/"Number": 42/\' -e \'s/^"Select": .*/"Select": "High"/\' \'Task 1.md\'',
        directory=here,
    )
    values = server.asked(f"pages/{id_of('task-1')}")["properties"]
    assert (values["Number"]["number"], values["Select"]["select"]["name"]) == (42, "High")
    assert '"Number": 42\n' in run("cat", here / "Task 1.md").text
    computed = run("cat", here / "Task 1.md").text.replace('"Sum": 3', '"Sum": 4')
    assert errno_of(WRITE, here / "Task 1.md", computed) == "EINVAL"
    assert "'Sum' (formula)" in mount.log()
    shell("printf -- '---\\n\"Number\": 1\\n---\\n\\n# Ours\\n\\nto do\\n' > Ours.md", directory=here)
    wait_until(lambda: '"Number": 1\n' in run("cat", here / "Ours.md").text, "the new row")
    assert errno_of(WRITE, here / "rows.ndjson", "{}") == "EOPNOTSUPP"


def test_a_conflict_keeps_both(mount: Mount, server: NotionServer) -> None:
    here = mount / DIRECTORY / "Rules.md"
    assert run("cat", here).text == "# Rules\n\ntext of rules\n"
    server.control(rewrite=server.blocks(id_of("rules"))[0]["id"], **{"with": "theirs"})
    save = "f = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND); os.write(f, b'\\nours\\n'); os.fsync(f)"
    assert errno_of(f"exec({save!r})", here) == "ESTALE"
    assert stored(server, "rules") == [("paragraph", "theirs")]
    assert kept(mount) == {b"# Rules\n\ntext of rules\n\nours\n"}
    wait_until(lambda: run("cat", here).text == "# Rules\n\ntheirs\n", "the mount has the version of Notion")


def test_what_markdown_loses_is_not_saved_and_said(mount: Mount, server: NotionServer) -> None:
    here, before = mount / DIRECTORY, run("cat", mount / DIRECTORY / "index.md").text
    assert errno_of(WRITE, here / "index.md", before + "\nmore\n") == "EOPNOTSUPP"
    assert "would lose something of this page: a block of type 'paragraph': a text with a 'mention'" in mount.log()
    assert run("cat", here / "index.md").text == before
    assert errno_of(WRITE, here / "Rules.md", "# Rules\n\n* a\n") == "EINVAL"
    assert "line 3: " in mount.log()
    assert errno_of(WRITE, here / "Offices" / "index.md", "# Offices\n\nno link\n") == "EOPNOTSUPP"
    assert errno_of(WRITE.replace("sys.argv[2].encode()", "bytes(1 << 20)"), here / "Rules.md") == "EFBIG"
    assert kept(mount) >= {(before + "\nmore\n").encode(), b"# Rules\n\n* a\n"}
    assert run("cat", here / "Rules.md").text == "# Rules\n\ntext of rules\n"


def test_what_notion_refuses_is_kept(mount: Mount, server: NotionServer, tmp_path: Path) -> None:
    here = mount / DIRECTORY
    run("ls", here)
    refusals: dict[str, dict[str, Any]] = {
        "EINVAL": {"status": 400, "code": "validation_error"},
        "EACCES": {"status": 403, "code": "restricted_resource"},
        "ESTALE": {"status": 409, "code": "conflict_error"},
        "EHOSTDOWN": {"status": 500},
    }
    for errno, refusal in refusals.items():
        server.control(fail={"path": "children$", "methods": ["PATCH"], **refusal})
        assert errno_of(WRITE, here / "Rules.md", f"text of rules\n\n{errno}\n") == errno
    assert stored(server, "rules") == [("paragraph", "text of rules")]
    assert len(kept(mount)) == len(refusals)
    assert TOKEN not in mount.log()
    assert run("cat", here / "Rules.md").text == "# Rules\n\ntext of rules\n"
