"""Names and the tree on a real mount (S1 to S6)."""

from pathlib import Path

import pytest
from harness import Mount, Mounts, folder, mcp
from programs import errno_of, run, shell
from scripted import ScriptedServer

URIS = {
    "test://a.txt": "a",
    "test://read%20me.md": "a name with a space",
    "test://host/f%C3%BC.txt": "a name in Unicode",
    "Mixed-Case://Host/X": "case",
    "memo:opaque": "no slashes at all",
    "no scheme": "no scheme",
    "git+ssh://host/repo": "a plus in the scheme",
}


@pytest.fixture(scope="module")
def docs(module_mounted: Mounts, tmp_path_factory: pytest.TempPathFactory) -> Mount:
    base = tmp_path_factory.mktemp("names")
    scripted = ScriptedServer(base / "server")
    for uri, text in URIS.items():
        scripted.add(uri, text)
    local = base / "local"
    local.mkdir()
    (local / "file").write_text("local")
    return module_mounted(
        folder("local", local),
        scripted.source("docs"),
        scripted.source("other", uriPrefix="mcp-wiki+handbook"),
    )


@pytest.mark.semantics("S1")
def test_the_root_holds_a_directory_for_each_source_by_its_prefix(docs: Mount) -> None:
    names = ["bb-filesystem+local+file", "mcp-server+docs", "mcp-wiki+handbook"]
    assert run("ls", "-A", docs.path).text.split() == [".about.md", *names]
    assert run("cat", docs / "bb-filesystem+local+file/file").text == "local"
    schemes = {"test", "Mixed-Case", "memo", "_", "git+ssh"}
    assert set(run("ls", "-A", docs / "mcp-server+docs").text.split()) == {".about.md", *schemes}


@pytest.mark.semantics("S2.1")
def test_the_name_of_a_source_is_a_link_that_lookup_finds_and_readdir_does_not_list(docs: Mount) -> None:
    assert run("readlink", docs / "docs").text.strip() == "mcp-server+docs"
    assert run("cat", docs / "local/file").text == "local"
    assert run("ls", f"{docs / 'local'}/").text.split() == ["file"]
    inside = shell("cd local && pwd -P", directory=docs.path).text.strip()
    assert inside == str(docs / "bb-filesystem+local+file")
    listed = run("ls", "-AU", docs.path).text.split()
    assert not {"docs", "local", "handbook"} & {*listed}
    assert errno_of("os.lstat(sys.argv[1])", docs / "elsewhere") == "ENOENT"
    assert run("find", docs.path, "-maxdepth", "1", "-type", "l").text == ""


@pytest.mark.semantics("S2.1")
def test_a_name_of_two_sources_is_no_link(mounted: Mounts, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    mount = mounted(folder("twice", tmp_path / "a"), {"name": "twice", "id": "other", "type": "memory"})
    assert errno_of("os.lstat(sys.argv[1])", mount / "twice") == "ENOENT"
    assert run("readlink", mount / "other").text.strip() == "bb-memory+twice+memory"


@pytest.mark.semantics("S2.2")
@pytest.mark.parametrize("uri", ["test://a.txt", "test://read%20me.md", "test://host/f%C3%BC.txt", "memo:opaque"])
def test_the_uri_as_it_is_printed_leads_to_the_file(docs: Mount, uri: str) -> None:
    for prefix, separator in (("mcp-server+docs/", "/"), ("mcp-server+docs+", "/")):
        scheme, _, rest = uri.partition(":")
        path = docs / (prefix + scheme + separator + rest.removeprefix("//"))
        assert run("cat", path).text == URIS[uri]
        assert run("getfattr", "--only-values", "-n", "user.bbfs.uri", path).text == f"mcp-server+docs+{uri}"


@pytest.mark.semantics("S6", "S23")
def test_a_source_that_is_not_there_has_its_directory_and_harms_no_sibling(mounted: Mounts, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("here")
    mount = mounted(
        folder("gone", tmp_path / "gone"), mcp("missing", ["/nonexistent/server"]), folder("there", tmp_path / "there")
    )
    names = ["bb-filesystem+gone+file", "bb-filesystem+there+file", "mcp-server+missing"]
    assert run("ls", mount.path).text.split() == names
    for name in ("bb-filesystem+gone+file", "mcp-server+missing"):
        assert run("stat", "-c", "%F", mount / name).text.strip() == "directory"
        assert errno_of("os.listdir(sys.argv[1])", mount / name) == "EHOSTDOWN"
        assert errno_of("open(sys.argv[1])", mount / name / "test/file") == "EHOSTDOWN"
    assert run("cat", mount / "bb-filesystem+there+file/file").text == "here"
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "late").write_text("came later")
    assert run("cat", mount / "bb-filesystem+gone+file/late").text == "came later"
