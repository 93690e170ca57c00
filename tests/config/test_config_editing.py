"""The configuration file, changed by commands: its comments stay, and a wrong change is none."""

import os
import shlex
import stat
from pathlib import Path

import pytest

from bbfs.config.command_line.targets import source_table
from bbfs.config.editing import ConfigFile
from bbfs.model.errors import BbfsError, ConfigError

TEXT = """\
# top
log_level = "info" # level

# about notes
[[sources]]
name = "notes" # x
type = "filesystem"
config = { root = "/srv/notes" }

# about kb
# in two lines
[[sources]]
name = "kb"
id = "base"
mcpConfig = { url = "https://user:pw@kb.example/mcp" }
auth = { client_secret = "s3cr3t", client_id = "${env:ID}" }
[sources.ttl]
content = "3s"

# about the cache
[cache]
memory = "1MiB"

[[sources]]
name = "last"
type = "memory"
[sources.config.resources]
a = '''
text

# no comment
'''
"""
SOURCE = {"name": "git", "accessMethod": "mcp", "mcpConfig": {"command": "uvx", "args": ["x"], "env": {"A": "b"}}}


def opened(tmp_path: Path, text: str | None = TEXT) -> ConfigFile:
    path = tmp_path / "config.toml"
    if text is not None:
        path.write_text(text)
    return ConfigFile(str(path), {"ID": "id", "HOME": "/home/someone"})


def test_a_source_is_added_at_the_end_and_nothing_else_changes(tmp_path: Path):
    file = opened(tmp_path)
    file.add(SOURCE)
    assert file.text.startswith(TEXT)
    assert file.text[len(TEXT) :].startswith('\n[[sources]]\nname = "git"\n')
    assert [source.name for source in file.config().sources] == ["notes", "kb", "last", "git"]
    file.save()
    assert opened(tmp_path, None).text == file.text


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("notes", TEXT[TEXT.index("# about notes") : TEXT.index("# about kb")]),
        ("base", TEXT[TEXT.index("# about kb") : TEXT.index("# about the cache")]),
        ("last", TEXT[TEXT.index('[[sources]]\nname = "last"') :]),
    ],
)
def test_a_source_is_removed_with_its_tables_and_its_own_comment(tmp_path: Path, name: str, gone: str):
    file = opened(tmp_path)
    file.remove(name)
    assert file.text.strip() == TEXT.replace(gone, "").strip()
    assert len(file.config().sources) == 2


@pytest.mark.parametrize("name", ["notes", "kb", "last"])
def test_adding_and_removing_leaves_the_text(tmp_path: Path, name: str):
    file = opened(tmp_path)
    file.add(SOURCE)
    file.remove("git")
    assert file.text.rstrip("\n") == TEXT.rstrip("\n")


def test_sources_in_an_array(tmp_path: Path):
    file = opened(tmp_path, '# a\nsources = [\n    { name = "a", type = "memory" }, # b\n]\n')
    file.add(SOURCE)
    assert [source.name for source in file.config().sources] == ["a", "git"]
    file.remove("a")
    assert [source.name for source in file.config().sources] == ["git"]
    assert file.text.startswith("# a\n")


def test_a_form_that_no_command_can_change_is_left_as_it_is(tmp_path: Path):
    text = '[[sources]]\nname = "a"\ntype = "memory"\n[mount]\nuid = 1\n[sources.config]\nmax_bytes = 1\n'
    file = opened(tmp_path, text)
    with pytest.raises(BbfsError, match="no command can change a file of this form"):
        file.remove("a")
    assert file.text == text


def test_names_that_are_taken_or_missing(tmp_path: Path):
    file = opened(tmp_path)
    with pytest.raises(ConfigError, match=r"config\.toml:5: there is a source 'notes' already"):
        file.add({"name": "notes", "type": "memory"})
    with pytest.raises(ConfigError, match="no source 'note'; did you mean 'notes'"):
        file.remove("note")


def test_a_new_file_is_of_this_user_alone_and_an_old_one_keeps_its_mode(tmp_path: Path):
    file = ConfigFile(str(tmp_path / "new/config.toml"), os.environ)
    file.add(SOURCE)
    file.save()
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600
    os.chmod(file.path, 0o640)
    again = ConfigFile(file.path, os.environ)
    again.remove("git")
    again.save()
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o640
    assert os.listdir(tmp_path / "new") == ["config.toml"]


def test_a_link_stays_one(tmp_path: Path):
    (tmp_path / "dotfiles.toml").write_text(TEXT)
    (tmp_path / "config.toml").symlink_to("dotfiles.toml")
    file = opened(tmp_path, None)
    file.add(SOURCE)
    file.save()
    assert (tmp_path / "config.toml").is_symlink()
    assert "git" in (tmp_path / "dotfiles.toml").read_text()


def test_what_is_shown_has_no_secret_and_all_references(tmp_path: Path):
    shown = opened(tmp_path).shown()
    assert "s3cr3t" not in shown
    assert "pw" not in shown
    assert "${env:ID}" in shown
    assert "# about kb" in shown


def test_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/server").write_text("#!/bin/sh\n")
    (tmp_path / "bin/server").chmod(0o755)
    environ = {"HOME": str(tmp_path), "PATH": f"{tmp_path}/bin"}

    def of(*target: str) -> dict[str, object]:
        table = source_table("x", target, environ=environ)
        assert table.pop("name") == "x"
        return table

    assert of("notes") == {"type": "filesystem", "config": {"root": "~/notes"}}
    assert of("/") == {"type": "filesystem", "config": {"root": "/"}}
    assert of("shop.db") == {"type": "database", "config": {"url": f"sqlite:///{tmp_path}/shop.db"}}
    assert of("s3://a/b") == {"type": "storage", "config": {"url": "s3://a/b"}}
    assert of("https://x.example/a") == {"type": "url", "config": {"urls": ["https://x.example/a"]}}
    assert of("https://x.example/openapi.json")["type"] == "api"
    assert of("https://x.example/mcp") == {"accessMethod": "mcp", "mcpConfig": {"url": "https://x.example/mcp"}}
    assert of("sse+https://x.example/a")["mcpConfig"] == {"url": "https://x.example/a", "transport": "sse"}
    assert of("server --flag 'a b'")["mcpConfig"] == {"command": "server", "args": ["--flag", "a b"]}
    words = ["bin/server", "--repository", "."]
    assert of(*words)["mcpConfig"] == {
        "command": f"{tmp_path}/bin/server",
        "args": ["--repository", "."],
        "cwd": str(tmp_path),
    }
    assert of(shlex.join(words)) == of(*words)
    assert of("notes", "--x") == {"accessMethod": "mcp", "mcpConfig": {"command": "notes", "args": ["--x"]}}
    assert source_table("x", ["https://x.example/a"], "mcp", environ=environ)["accessMethod"] == "mcp"
    with pytest.raises(ConfigError, match="no folder, no known URL or file, and no program") as caught:
        of("s3cr3t")
    assert "s3cr3t" not in str(caught.value)
