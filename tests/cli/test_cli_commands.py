"""The commands without a mount."""

import ast
import errno
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import tty
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from cache_server import CacheServer
from click.testing import CliRunner, Result
from forked_daemon import forked
from repository import SERVERS

from bbfs.cli import COMMANDS, GROUPS, lazy, main, options
from bbfs.cli.operands import attributes
from bbfs.fuse import mountpoint
from bbfs.model.versions import Expected
from bbfs.resources.writing.pending import PendingStore, PendingWrite, new_id, pending_path
from bbfs.sources.content.memory import MemoryContent

Run = Callable[..., Result]
Process = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_every_help_shows_examples_line_by_line(bbfs: Run, command: str | None) -> None:
    result = bbfs(*([command] if command else []), "--help")
    assert result.exit_code == 0
    examples = result.stdout.partition("Examples:\n")[2].splitlines()
    assert examples
    assert examples[0].lstrip().startswith("bbfs ")
    assert "\b" not in result.stdout


def test_the_help_has_each_command_once_below_what_it_is_for(bbfs: Run) -> None:
    shown = bbfs("--help").stdout.partition("Begin:\n")[2].partition("Examples:")[0]
    listed = [line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line.strip()]
    assert sorted(listed) == sorted(set(COMMANDS) - {"unmount"})
    assert re.findall(r"^(\S.*):$", shown, re.MULTILINE) == list(GROUPS)[1:]


def test_without_a_command_the_help_is_shown(bbfs: Run) -> None:
    result = bbfs()
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == bbfs("--help").stdout


@pytest.mark.parametrize("platform", ["darwin", "win32", "freebsd14"])
def test_on_another_system_the_command_ends_with_one_line(platform: str) -> None:
    code = f"import sys; sys.platform = {platform!r}\nfrom bbfs.cli import main\nmain(['--version'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("bbfs: bbfs runs on Linux only")


def test_help_imports_nothing_slow() -> None:
    code = "import sys; from bbfs.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "bbfs.cli.commands.doctor" in loaded
    assert not loaded & {"mcp", "trio", "pyfuse3", "pydantic", "httpx2"}


@pytest.mark.parametrize("kind", ["filesystem", "database"])
def test_without_a_mount_only_the_source_in_question_is_imported(kind: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "name").touch()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("CREATE TABLE name (id INTEGER PRIMARY KEY)")
    options = {
        "filesystem": ["--dir", f"a={tmp_path}/folder", "a"],
        "database": ["--source", f"a=sqlite:///{tmp_path}/shop.db", "a/main"],
    }
    code = (
        "import sys; from bbfs.cli import main\ntry: main(sys.argv[1:])\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    environ = os.environ | {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CACHE", "CONFIG", "STATE", "DATA")}
    line = [sys.executable, "-c", code, "ls", *options[kind]]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False, env=environ)
    assert (done.returncode, done.stdout.rstrip("/\n")) == (0, "name"), done.stderr
    loaded = set(done.stderr.splitlines()[-1].split())
    assert not loaded & {"mcp", "pyfuse3", "httpx2", "sqlalchemy", "keyring", "tomllib", "html", "bbfs.config.schema"}
    assert not loaded & {"bbfs.resources.search.index.store", "bbfs.sources.embeddings.options"}
    assert not [name for name in loaded if name.startswith("bbfs.resources.commands.requests.")]
    handlers = {name for name in loaded if re.fullmatch(r"bbfs\.sources\.(\w+)\.handler", name)}
    assert handlers == {f"bbfs.sources.{kind}.handler"}


def test_version(bbfs: Run) -> None:
    assert re.fullmatch(r"bbfs \d+\.\d+\.\d+\n", bbfs("--version").stdout)


def test_no_sources_at_all_names_the_three_ways(bbfs: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty.toml"
    empty.touch()
    for arguments in (["ls"], ["sources"], ["cat", "x"], ["load", "--direct", "x"], ["mount", str(tmp_path / "m")]):
        result = bbfs(*arguments, "--config", empty)
        assert (result.exit_code, result.stdout) == (1, "")
        assert all(line.startswith("bbfs: ") for line in result.stderr.splitlines())
        assert all(way in result.stderr for way in ("--config", "--mcp-config", "--mcp ", "--dir"))


def test_wrong_usage_is_2_and_of_mount_1(bbfs: Run, tmp_path: Path) -> None:
    assert bbfs("ls", "--nonsense").exit_code == 2
    assert bbfs("load").exit_code == 2
    assert bbfs("mount").exit_code == 1
    result = bbfs("mount", tmp_path / "m", "--umask", "999")
    assert result.exit_code == 1
    assert result.stderr.startswith("bbfs: ")


def test_a_configuration_that_is_wrong_is_named_by_file_and_line(bbfs: Run, tmp_path: Path) -> None:
    config = tmp_path / "bad.toml"
    config.write_text('[[sources]]\nname = "a"\ntpye = "filesystem"\n')
    for command in (["ls"], ["mount", str(tmp_path / "m")]):
        result = bbfs(*command, "--config", config)
        assert result.exit_code == 1
        assert f"bbfs: {config}:3: " in result.stderr
        assert "did you mean 'type'?" in result.stderr
    missing = bbfs("ls", "--config", tmp_path / "missing.toml")
    assert (missing.exit_code, "No such file" in missing.stderr) == (1, True)


def test_what_a_mount_refuses_is_one_line(bbfs: Run, tmp_path: Path) -> None:
    config = tmp_path / "bbfs.toml"
    (tmp_path / "mnt").mkdir()
    config.write_text('[[sources]]\nname = "a"\ntype = "url"\nconfig = {urls = ["file:///x"]}\n')
    wrong = bbfs("mount", "--config", str(config), str(tmp_path / "mnt"))
    assert (wrong.exit_code, len(wrong.stderr.splitlines())) == (1, 1)
    assert ":4: sources[a].config.urls: " in wrong.stderr
    config.write_text("")
    wrong = bbfs("mount", "--config", str(config), "--dir", str(tmp_path), str(config))
    assert wrong.exit_code != 0
    assert len(wrong.stderr.splitlines()) == 1


def test_a_server_of_a_host_file_that_cannot_be_used_is_told_and_left_out(bbfs: Run, tmp_path: Path) -> None:
    host = tmp_path / "host.json"
    host.write_text('{"mcpServers": {"bad": {}, "good": {"command": "true"}}}')
    result = bbfs("ls", "--mcp-config", host)
    assert (result.exit_code, result.stdout) == (0, "mcp-server+good/\n")
    assert "left out" in result.stderr
    assert "bad" in result.stderr


def test_ls_of_a_folder(bbfs: Run, only: list[str]) -> None:
    assert bbfs("ls", *only).stdout == "bb-filesystem+notes+file/\n"
    assert bbfs("ls", *only, "notes").stdout == "hello.txt\nsub dir/\n"
    assert bbfs("ls", *only, "bb-filesystem+notes+file/sub dir").stdout == "grüße.md\n"
    long = bbfs("ls", "-l", *only, "notes/hello.txt").stdout
    assert re.fullmatch(r"6  \d{4}-\d\d-\d\d \d\d:\d\d  text/plain  hello\.txt\n", long)
    entries = json.loads(bbfs("ls", "-R", "--json", *only, "notes").stdout)
    assert [entry["name"] for entry in entries] == ["hello.txt", "sub dir", "grüße.md"]
    assert entries[2]["uri"] == "bb-filesystem+notes+file:./sub%20dir/gr%C3%BC%C3%9Fe.md"
    assert [entry.get("size") for entry in entries] == [6, None, 10]


def test_cat_writes_the_bytes_in_order_and_goes_on_after_an_error(bbfs: Run, only: list[str], folder: Path) -> None:
    data = bytes(range(256)) * 9000
    (folder / "large.bin").write_bytes(data)
    result = bbfs(
        "cat", *only, "notes/large.bin", "notes/none", "bb-filesystem+notes+file:./hello.txt", "notes/sub dir"
    )
    assert result.stdout_bytes == data + b"hello\n"
    assert result.exit_code == 1
    told = result.stderr.splitlines()
    assert told[0].startswith("bbfs: notes/none: ")
    assert told[1] == "bbfs: notes/sub dir: is a directory"
    assert "Traceback" not in result.stderr
    assert "Traceback" in bbfs("cat", "-v", *only, "notes/none").stderr


def test_a_link_is_followed_inside_its_source_alone(bbfs: Run, only: list[str], folder: Path) -> None:
    (folder / "sub dir/link").symlink_to("../hello.txt")
    (folder / "away").symlink_to("/etc/passwd")
    (folder / "up").symlink_to("../first.md")
    (folder / "round").symlink_to("round")
    assert bbfs("cat", *only, "notes/sub dir/link").stdout == "hello\n"
    for name in ("away", "up", "round"):
        result = bbfs("cat", *only, f"notes/{name}")
        assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.semantics("S11")
def test_stat_tells_everything(bbfs: Run, only: list[str]) -> None:
    (document,) = json.loads(bbfs("stat", "--json", *only, "notes/hello.txt").stdout)
    assert document["uri"] == "bb-filesystem+notes+file:./hello.txt"
    assert (document["kind"], document["size"], document["mimeType"]) == ("file", 6, "text/plain")
    (source,) = json.loads(bbfs("stat", "--json", *only, "notes").stdout)
    assert (source["id"], source["state"], source["capabilities"]) == ("notes", "up", ["read", "list"])
    assert "mimeType:" in bbfs("stat", *only, "notes/hello.txt").stdout


@pytest.mark.semantics("S2.2")
def test_path_and_uri_ask_the_source_or_follow_the_rule(bbfs: Run, only: list[str]) -> None:
    uri, path = "bb-filesystem+notes+file:./sub%20dir/gr%C3%BC%C3%9Fe.md", "bb-filesystem+notes+file/sub dir/grüße.md"
    assert bbfs("path", *only, uri).stdout == path + "\n"
    assert bbfs("uri", *only, path).stdout == uri + "\n"
    assert bbfs("uri", *only, "notes/sub dir/grüße.md").stdout == uri + "\n"
    missing = bbfs("path", *only, "bb-filesystem+notes+file:./none")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert bbfs("path", "--rule", *only, "bb-filesystem+notes+file:./none").stdout == "bb-filesystem+notes+file/none\n"
    other = bbfs("path", *only, "mcp-server+gone+resource://x")
    assert (other.exit_code, other.stdout) == (0, "mcp-server+gone+resource/x\n")
    assert other.stderr.startswith("bbfs: by the rule alone: ")
    wrong = bbfs("path", *only, "no uri")
    assert (wrong.exit_code, wrong.stdout) == (1, "")


@pytest.mark.semantics("S2")
def test_a_native_uri_is_understood_where_one_source_has_it(bbfs: Run, only: list[str], knowledge: list[str]) -> None:
    uri = "resource://knowledge/guides/document/first"
    first = bbfs("cat", *only, *knowledge, uri)
    assert (first.stdout, first.stderr) == ("# First\n", "")
    missing = bbfs("cat", *only, *knowledge, "--mcp", "broken=false", "memo://none")
    assert (missing.exit_code, missing.stderr.count("SOURCE+URI")) == (1, 1)
    assert "; mcp-server+broken: " in missing.stderr
    again = [each.replace("shelf=", "again=") for each in knowledge]
    several = bbfs("cat", *knowledge, *again, uri)
    assert (several.exit_code, f"mcp-server+again+{uri}" in several.stderr) == (1, True)


def test_a_source_that_is_down_leaves_path_to_the_rule(bbfs: Run, only: list[str], tmp_path: Path) -> None:
    result = bbfs("path", *only, "-o", f"root={tmp_path / 'none'}", "bb-filesystem+notes+file:./a")
    assert (result.exit_code, result.stdout) == (0, "bb-filesystem+notes+file/a\n")
    assert "by the rule alone" in result.stderr


def test_two_sources_of_one_name_are_not_guessed(bbfs: Run, only: list[str]) -> None:
    result = bbfs("ls", *only, "--mcp", "notes=true", "notes")
    assert result.exit_code == 1
    assert "'notes'" in result.stderr


def test_sources_tells_of_each_how_it_fares(bbfs: Run, only: list[str], tmp_path: Path) -> None:
    gone = ["--dir", f"gone={tmp_path}", "-o", f"gone.root={tmp_path / 'none'}"]
    arguments = [*only, *gone, "--mcp", "broken=false"]
    result = bbfs("sources", "--json", *arguments)
    assert result.exit_code == 0
    rows = {row["id"]: row for row in json.loads(result.stdout)}
    assert (rows["notes"]["state"], rows["notes"]["resources"]) == ("up", 2)
    for name in ("gone", "broken"):
        assert (rows[name]["state"], rows[name]["resources"]) == ("down", None)
        assert rows[name]["error"]
    assert bbfs("sources", "--check", *arguments).exit_code == 1
    assert bbfs("sources", "--check", *only).exit_code == 0
    offline = bbfs("sources", "--offline", "--json", *arguments)
    assert {row["state"] for row in json.loads(offline.stdout)} == {"idle"}


def test_sources_lists_the_one_that_is_named(bbfs: Run, only: list[str]) -> None:
    arguments = [*only, "--mcp", "broken=false", "--offline", "--json"]
    for name in ("notes", "bb-filesystem+notes+file"):
        assert [row["id"] for row in json.loads(bbfs("sources", name, *arguments).stdout)] == ["notes"]
    missing = bbfs("sources", "nowhere", *arguments)
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "nowhere" in missing.stderr


def test_sources_answers_in_time_though_a_source_does_not(bbfs: Run, only: list[str]) -> None:
    result = bbfs("sources", "--timeout", "0.5", "--json", *only, "--mcp", "hung=sleep 1000")
    rows = {row["id"]: row for row in json.loads(result.stdout)}
    assert rows["notes"]["resources"] == 2
    assert "0.5 s" in rows["hung"]["error"]


def test_load_direct_gives_contents_or_the_error_of_each(bbfs: Run, only: list[str], folder: Path) -> None:
    (folder / "raw.bin").write_bytes(b"\xff\x00")
    prefix = "bb-filesystem+notes+file:./"
    result = bbfs("load", "--direct", *only, f"{prefix}hello.txt", f"{prefix}raw.bin", f"{prefix}none")
    assert result.exit_code == 1
    text, blob, error = json.loads(result.stdout)
    assert text["contents"] == [{"mimeType": "text/plain", "size": 6, "text": "hello\n"}]
    assert (text["metadata"]["name"], text["metadata"]["size"]) == ("hello.txt", 6)
    assert blob["contents"][0]["blob"] == "/wA="
    assert (error["error"]["class"], error["error"]["errno"]) == ("NotFound", "ENOENT")
    assert bbfs("load", "--direct", *only, f"{prefix}none").exit_code == 2


def test_load_template_expands_each_combination(bbfs: Run, only: list[str], folder: Path) -> None:
    for name in ("ax", "ay", "bx", "by"):
        (folder / name).write_text(name)
    template = ["load", *only, "--template", "bb-filesystem+notes+file:./{first}{second}"]
    result = bbfs(*template, "--each", "first=a,b", "--each", "second=x,y")
    assert result.exit_code == 0
    assert [item["contents"][0]["text"] for item in json.loads(result.stdout)] == ["ax", "ay", "bx", "by"]
    result = bbfs(*template, "--set", "first=b", "--values", '[{"second": "x"}, {"secnd": "y"}]')
    loaded, wrong = json.loads(result.stdout)
    assert (result.exit_code, loaded["contents"][0]["text"], wrong["error"]["class"]) == (1, "bx", "InvalidUri")
    assert bbfs(*template, "--values", "[1]").exit_code == 2


def test_a_server_is_read_without_a_mount(bbfs: Run, knowledge: list[str]) -> None:
    uri = "mcp-server+shelf+resource://knowledge/guides/document/first"
    assert bbfs("ls", *knowledge, "mcp-server+shelf+resource/knowledge/guides/document").stdout == "first\n"
    assert bbfs("cat", *knowledge, uri, "shelf/resource/knowledge/guides/document/first").stdout == "# First\n" * 2


def test_a_resource_of_several_contents_gives_all_of_them(bbfs: Run) -> None:
    options = ["--mcp", f"many={shlex.join(forked(SERVERS / 'resources.py'))}"]
    uri = "mcp-server+many+test://many"
    (item,) = json.loads(bbfs("load", "--direct", *options, uri).stdout)
    assert len(item["contents"]) > 1
    assert bbfs("cat", *options, uri).stdout == "".join(part["text"] for part in item["contents"])


def test_doctor_names_what_is_wrong_and_what_to_do(bbfs: Run, only: list[str]) -> None:
    result = bbfs("doctor", "--json", *only, "--mcp", "odd=no-such-program-anywhere --flag")
    checks = {check["check"]: check for check in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert checks["source odd"]["level"] == "FAIL"
    assert "no-such-program-anywhere" in checks["source odd"]["finding"]
    assert checks["source odd"]["remedy"]
    assert checks["source notes"] == {"check": "source notes", "level": "ok", "finding": "up, 2 resources"}
    assert checks["pyfuse3"]["level"] == checks["mcp"]["level"] == "ok"


@pytest.mark.semantics("S32.1")
def test_pending_writes_that_cannot_be_read_are_not_nothing(bbfs: Run, only: list[str], tmp_path: Path) -> None:
    assert bbfs("pending").stderr == "bbfs: nothing is pending\n"
    directory = tmp_path / "state" / "bbfs" / "pending"
    directory.parent.mkdir(parents=True)
    directory.touch()
    for command in (("pending",), ("pending", "--json"), ("pending", "drop", "--all", "--yes")):
        result = bbfs(*command)
        assert (result.exit_code, result.stdout.strip() in ("", "[]")) == (1, True)
        assert result.stderr == f"bbfs: {directory}: cannot be read: Not a directory\n"
    result = bbfs("doctor", "--json", *only)
    (check,) = (each for each in json.loads(result.stdout) if each["check"] == "pending writes")
    assert (result.exit_code, check["level"], "Not a directory" in check["finding"]) == (1, "FAIL", True)


@pytest.mark.semantics("S32.1")
@pytest.mark.parametrize("command", [["drop", "--yes"], ["retry"], ["diff"]], ids=" ".join)
def test_what_is_handed_over_after_it_was_listed_is_no_failure(
    bbfs: Run, only: list[str], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, listed = PendingStore(pending_path()), PendingStore.items
    uris = [f"bb-filesystem+notes+file:{name}" for name in "ab"]
    gone, kept = (PendingWrite(new_id(), "n", "file:a", uri, ("notes",), Expected(), 4, 1.0) for uri in uris)
    for item in (gone, kept):
        store.keep(item, MemoryContent(b"mine"))

    def items(self: PendingStore) -> Iterator[PendingWrite]:
        found = [*listed(self)]
        store.drop(gone.id)
        return iter(found)

    monkeypatch.setattr(PendingStore, "items", items)
    result = bbfs("pending", *command, "--all", *(only if command != ["drop", "--yes"] else []))
    assert (gone.id in result.stderr, gone.uri in result.stderr) == (False, False), result.stderr
    assert (result.exit_code, kept.id in result.stderr) == ((1, True) if command == ["retry"] else (0, False))
    assert store.has(kept.id) == (command != ["drop", "--yes"])


def test_a_source_that_lists_nothing_is_up_and_has_no_resources(bbfs: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[[sources]]\nname = "scratch"\ntype = "memory"\n', "utf-8")
    [row] = json.loads(bbfs("sources", "--json", "--config", config).stdout)
    assert (row["state"], row["resources"]) == ("up", 0)
    assert "error" not in row


def test_an_empty_listing_says_what_is_wrong_with_its_source(bbfs: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[[sources]]\nname = "site"\ntype = "url"\nconfig.llms_txt = "llms.txt"\n', "utf-8")
    (tmp_path / "llms.txt").write_text("- [Relative](y)\n", "utf-8")
    result = bbfs("ls", "--config", config, "site")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("bbfs: bb-url+site: llms.txt: 1 links are no web addresses\n")


def test_doctor_tells_what_a_source_that_is_up_speaks_and_lacks(bbfs: Run, tmp_path: Path) -> None:
    document = {
        "openapi": "3.0.3",
        "info": {"title": "x", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": {
            "/x": {"get": {}},
            "/pets/search": {"get": {"parameters": [{"name": "q", "in": "query", "required": True}]}},
            "/pets/{id}": {"get": {"parameters": [{"name": "id", "in": "path", "required": True}]}},
        },
    }
    (tmp_path / "openapi.json").write_text(json.dumps(document), "utf-8")
    config = tmp_path / "config.toml"
    source = '[[sources]]\nname = "x"\ntype = "api"\nconfig.document = "openapi.json"\nauth.zzz = "k"\n'
    source += 'config.server = "https://api.example.com"\n'
    config.write_text(source, "utf-8")
    told = [
        each for each in json.loads(bbfs("doctor", "--json", "--config", config).stdout) if "source x" in each.values()
    ]
    assert [check["level"] for check in told] == ["warn", "ok"]
    assert told[0]["finding"].startswith("up, 1 resource, 2 templates, OpenAPI 3.0.3; auth.zzz: no security scheme")
    line = 'search = { operation = "/pets/search", query = "q", resource = "/pets/{id}" }'
    assert told[1]["remedy"].endswith(line)
    config.write_text(f"{source}[sources.config]\n{line}\n".replace("[sources.config]\n", "config."))
    told = json.loads(bbfs("doctor", "--json", "--config", config).stdout)
    assert len([check for check in told if check["check"] == "source x"]) == 1, "it is taken as it was proposed"


def test_doctor_and_a_failed_unmount_say_that_the_table_of_mounts_is_missing(
    bbfs: Run, only: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: path != "/etc/mtab" and exists(path))
    checks = {check["check"]: check for check in json.loads(bbfs("doctor", "--json", *only).stdout)}
    assert checks["mount table"]["level"] == ("warn" if os.geteuid() == 0 else "FAIL")
    assert checks["mount table"]["remedy"] == "as root, 'ln -s ../proc/self/mounts /etc/mtab'"
    stuck = mountpoint.Mount(str(tmp_path), "fuse.bbfs", 0, os.geteuid())
    monkeypatch.setattr(mountpoint, "mounts", lambda: [stuck])
    result = bbfs("umount", tmp_path)
    assert result.exit_code == 1
    assert "/etc/mtab is missing: as root, 'ln -s ../proc/self/mounts /etc/mtab'" in result.stderr


def test_without_the_table_of_mounts_a_user_is_told_before_anything_is_mounted(
    fuse: None, bbfs: Run, only: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: path != "/etc/mtab" and exists(path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    lack = "bbfs: only root can unmount what is mounted here, since /etc/mtab is missing: as root, 'ln -s "
    demo = bbfs("demo")
    assert (demo.exit_code, demo.stdout, demo.stderr.count("\n")) == (1, "", 1)
    assert demo.stderr.startswith(lack)
    (tmp_path / "file").touch()
    told = bbfs("mount", tmp_path / "file", *only).stderr.splitlines()
    assert (told[0].startswith(lack), told[1:]) == (True, [f"bbfs: {tmp_path}/file is not a directory"])


def test_a_folder_that_is_not_there_fails_at_once(bbfs: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, why in (("typo", "No such file or directory"), ("file", "Not a directory")):
        for command in (["ls"], ["cat", "notes/x"], ["mount", str(tmp_path / "mnt")], ["sources"]):
            result = bbfs(*command, "--dir", f"notes={tmp_path}/{path}")
            assert (result.exit_code, result.stdout) == (1, "")
            assert result.stderr == f"bbfs: --dir notes: {tmp_path}/{path}: {why}\n"
    assert not (tmp_path / "mnt").exists()


def test_doctor_without_a_device(bbfs: Run, only: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: path != "/dev/fuse" and exists(path))
    checks = {check["check"]: check for check in json.loads(bbfs("doctor", "--json", *only).stdout)}
    assert checks["FUSE device"]["level"] == "FAIL"
    assert "modprobe fuse" in checks["FUSE device"]["remedy"]
    demo = bbfs("demo")
    assert (demo.exit_code, demo.stdout, demo.stderr.count("\n")) == (1, "", 1)
    assert "modprobe fuse" in demo.stderr
    assert bbfs("mount", tmp_path / "m", *only).exit_code == 32


def test_a_reader_that_has_had_enough_ends_cat_quietly(only: list[str], folder: Path) -> None:
    (folder / "large").write_bytes(b"line\n" * 2_000_000)
    line = [sys.executable, "-m", "bbfs", "cat", *only, "notes/large"]
    cat = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert cat.stdout is not None
    assert cat.stderr is not None
    with cat.stdout, cat.stderr:
        assert cat.stdout.readline() == b"line\n"
        cat.stdout.close()
        assert cat.stderr.read() == b""
    assert cat.wait(30) == 1


def test_colour_is_for_terminals_and_not_for_those_who_want_none(
    only: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b[" in CliRunner().invoke(main, ["ls", *only], color=True).stdout
    assert "\x1b[" not in CliRunner().invoke(main, ["ls", *only]).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in CliRunner().invoke(main, ["ls", *only], color=True).stdout


def test_the_shell_completes_commands() -> None:
    environ = {**os.environ, "_BBFS_COMPLETE": "bash_complete", "COMP_WORDS": "bbfs umo", "COMP_CWORD": "1"}
    line = [sys.executable, "-m", "bbfs"]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "plain,umount\n"


def test_what_a_source_says_cannot_drive_the_terminal(bbfs: Run, only: list[str]) -> None:
    result = bbfs("ls", *only, "notes/\x1b[31mred")
    assert result.exit_code == 1
    assert "\x1b" not in result.stderr
    assert "\\x1b[31mred" in result.stderr


def test_a_closed_standard_output_is_told_in_a_line(only: list[str]) -> None:
    line = shlex.join([sys.executable, "-m", "bbfs", "cat", *only, "notes/hello.txt"])
    done = subprocess.run(["sh", "-c", f"{line} >&-"], stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (1, "bbfs: standard output: Bad file descriptor\n")


def test_stray_schemes_of_a_source_with_a_fixed_one_are_listed(bbfs: Run, tmp_path: Path) -> None:
    server = SERVERS / "odd.py"
    config = tmp_path / "one.toml"
    config.write_text(
        '[[sources]]\nname = "kb"\naccessMethod = "mcp"\ntype = "database"\nconfig = { scheme = "postgres" }\n'
        f"mcpConfig = {{ command = {json.dumps(sys.executable)}, args = [{json.dumps(str(server))}, 'none'] }}\n"
    )
    result = bbfs("ls", "-R", "--config", config)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[:2] == [".:", "mcp-database+kb+odd/"]
    assert "mcp-database+kb+postgres/" in result.stdout
    assert {"a", "b", "c"} <= set(result.stdout.splitlines())
    assert bbfs("ls", "--config", config, "mcp-database+kb+odd").stdout.splitlines() == ["a", "b", "c"]


def test_a_mount_that_went_meanwhile_is_passed_over(bbfs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = [mountpoint.Mount(str(tmp_path), mountpoint.TYPE, 1, os.geteuid())]
    monkeypatch.setattr(mountpoint, "mounts", lambda: table)

    def attribute(path: str, name: str) -> None:
        table.clear()
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(mountpoint, "names", lambda path: ["a"])
    monkeypatch.setattr(attributes, "attribute", attribute)
    result = bbfs("ls", "nowhere")
    assert result.stderr.splitlines()[0] == f"bbfs: passed over: {tmp_path} has been unmounted"


@pytest.mark.parametrize("number", mountpoint.GONE)
def test_a_dying_mount_is_passed_over(bbfs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    answers = iter([["a", "b"]])  # to the search for mounts that answer

    def names(path: str) -> list[str]:
        for answer in answers:
            return answer
        raise mountpoint.DeadMount(f"{path} is dead: its daemon is gone")

    def attribute(path: str, name: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(
        mountpoint, "mounts", lambda: [mountpoint.Mount(str(tmp_path), mountpoint.TYPE, 1, os.geteuid())]
    )
    monkeypatch.setattr(mountpoint, "names", names)
    monkeypatch.setattr(attributes, "attribute", attribute)
    result = bbfs("sources", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])
    assert result.stderr == f"bbfs: passed over: {tmp_path} is dead: its daemon is gone\n"


def test_load_says_that_it_does_not_ask_a_mount(bbfs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        mountpoint, "mounts", lambda: [mountpoint.Mount(str(tmp_path), mountpoint.TYPE, 1, os.geteuid())]
    )
    result = bbfs("load", "--direct", "mcp-server+docs+x://y")
    assert result.exit_code == 1
    assert "not through a mount" in result.stderr
    assert "--mcp-config" in result.stderr


def test_a_malformed_template_is_refused_before_a_server_is_started(bbfs: Run, tmp_path: Path) -> None:
    started = tmp_path / "started"
    result = bbfs("load", "--mcp", f"a=touch {started}", "--template", "mcp-server+a+x://{y", "--set", "y=1")
    assert result.exit_code == 2
    assert "--template" in result.stderr
    assert not started.exists()


def test_doctor_tells_once_what_is_left_out(bbfs: Run, tmp_path: Path) -> None:
    host = tmp_path / "host.json"
    host.write_text('{"mcpServers": {"bad": {}, "good": {"command": "false"}}}')
    result = bbfs("doctor", "--json", "--mcp-config", host)
    checks = [check for check in json.loads(result.stdout) if "bad" in check["finding"]]
    assert [(check["check"], check["level"]) for check in checks] == [("configuration", "warn")]
    assert "bad" not in result.stderr


def test_doctor_looks_at_the_cache_that_machines_share(bbfs: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    server = CacheServer()
    try:
        found: list[tuple[str, str]] = []
        for socket, shared in ((server.socket, "true"), (server.socket, "false"), (tmp_path / "none", "true")):
            config.write_text(
                f'[cache]\nshared = "unix://{socket}"\n[[sources]]\nname = "docs"\nshared = {shared}\n'
                'mcpConfig = { command = "false" }\n'
            )
            checks = {
                check["check"]: check for check in json.loads(bbfs("doctor", "--json", "--config", config).stdout)
            }
            found.append((checks["shared cache"]["level"], checks["shared cache"]["finding"]))
    finally:
        server.close()
    assert [level for level, _ in found] == ["ok", "warn", "warn"]
    assert found[0][1].endswith("shared, unless there is a login: docs")
    assert found[1][1].endswith("no source is shared")
    assert "No such file" in found[2][1]


def test_the_same_server_in_two_host_files_gets_another_name(bbfs: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text('{"mcpServers": {"docs": {"command": "true"}}}')
    hosts = ["--mcp-config", tmp_path / "one.json", "--mcp-config", tmp_path / "two.json"]
    result = bbfs("ls", *hosts)
    assert (result.exit_code, result.stdout) == (0, "mcp-server+docs/\nmcp-server+docs-2/\n")
    assert f"{tmp_path}/two.json: the name 'docs' is taken; its server is 'docs-2' here" in result.stderr
    assert bbfs("ls", *hosts, "--mcp", "docs=true").exit_code == 1


def test_servers_of_other_directories_are_told(bbfs: Run, tmp_path: Path) -> None:
    host = tmp_path / "claude.json"
    servers = {"a": {"command": "true"}}
    host.write_text(json.dumps({"mcpServers": servers, "projects": {"/elsewhere": {"mcpServers": servers}}}))
    result = bbfs("ls", "--mcp-config", host)
    assert result.stdout == "mcp-server+a/\n"
    assert "1 server left out that only apply in another directory: /elsewhere" in result.stderr


def test_path_and_uri_name_what_they_were_given(bbfs: Run, only: list[str]) -> None:
    for arguments, begin in (
        (["uri", *only, "/tmp"], "bbfs: /tmp: not inside a bbfs mount"),
        (["uri", *only, "notes/nope"], "bbfs: notes/nope: "),
        (["uri", "--rule", "x/y"], "bbfs: x/y: "),
        (["path", *only, "bb-filesystem+notes+file:./nope"], "bbfs: bb-filesystem+notes+file:./nope: "),
        (["path", *only, "notes"], "bbfs: notes: expected a bbfs URI, such as "),
    ):
        result = bbfs(*arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(begin)


def test_no_text_of_a_source_controls_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")  # no line of progress, which controls the terminal itself
    odd = shlex.join([sys.executable, str(SERVERS / "odd.py"), "terminal"])
    uri = "mcp-server+odd+odd://b"
    for command in (
        ["ls", "-lR"], ["ls", "-l", "odd"], ["ls", "--json", "odd"], ["stat", "odd", "odd/odd/a", uri], ["cat", uri],
        ["sources"], ["sources", "--json"], ["doctor"], ["path", uri], ["uri", "odd/odd/b"], ["load", "--direct", uri],
        ["watch", "--once", "--timeout", "1", "odd/odd/b"], ["logout", "odd"],
    ):  # fmt: skip
        said = on_a_terminal([*command, "-vv", "--mcp", f"odd={odd}"])
        assert not [c for c in said.replace("\n", "") if not c.isprintable()], (command, said)
        assert "\nbbfs: all is well" not in said, (command, said)


def test_on_a_terminal_a_content_ends_with_the_end_of_a_line(
    process: Process, only: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    (folder / "open.txt").write_text("no end")
    (folder / "empty").touch()
    names = [f"notes/{name}" for name in ("open.txt", "empty", "hello.txt", "open.txt", "none")]
    shown = on_a_terminal(["cat", *only, *names])
    assert shown.startswith("no end\nhello\nno end\nbbfs: notes/none: ")
    assert process("cat", *only, *names[:4]).stdout == b"no endhello\nno end"
    item = PendingWrite(new_id(), "notes", "file:a", "bb-filesystem+notes+file:a", ("notes", "a"), Expected(), 6, 1.0)
    PendingStore(pending_path()).keep(item, MemoryContent(b"no end"))
    assert on_a_terminal(["pending", "show", item.id]) == "no end\n"
    assert process("pending", "show", item.id).stdout == b"no end"


def on_a_terminal(arguments: list[str]) -> str:
    """Run a command whose output is a terminal; return all that it writes."""
    ours, its = os.openpty()
    tty.setraw(its)  # no "\r" of its own
    with (
        subprocess.Popen(forked("-m", "bbfs", *arguments), stdin=subprocess.DEVNULL, stdout=its, stderr=its) as process,
        os.fdopen(ours, "rb") as end,
    ):
        os.close(its)
        said = b""
        with suppress(OSError):  # EIO: the other side has ended
            while piece := end.raw.read(1 << 16):  # type: ignore[attr-defined]
                said += piece
        assert process.wait(60) in (0, 1, 2, 124)
    assert said or arguments[0] == "watch"
    return said.decode()


def test_an_unforeseen_error_is_printable() -> None:
    raised = r"raise KeyError('\x1b') from OSError('x\nbbfs: \x9b')"
    code = f"from bbfs.cli import output; output.set_up_streams(); {raised}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "KeyError" in done.stderr
    assert not re.search("[\x1b\x9b]|^bbfs", done.stderr, re.M)


def test_names_that_are_not_utf_8_are_printed_as_they_are(process: Process, only: list[str]) -> None:
    missing = process("cat", *only, b"notes/\xe9".decode("utf-8", "surrogateescape"))
    assert missing.stderr.startswith(b"bbfs: notes/\xe9: ")
    code = (
        "import click; from bbfs.cli import output; output.set_up_streams(); name = 'caf\\udce9 \\x1b \\ud800'\n"
        "output.line('caf\\udce9'); click.echo(output.printable(name)); output.as_json(name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=True)
    printed = [b"caf\xe9", rb"caf" + b"\xe9" + rb" \x1b \ud800", rb'"caf\udce9 \u001b \ud800"']
    assert done.stdout.splitlines() == printed


def test_options_on_the_command_line(bbfs: Run, only: list[str], folder: Path) -> None:
    (folder / ".hidden").write_text("x")
    assert ".hidden" in bbfs("ls", *only, "notes").stdout
    for option in ("notes.hidden=false", "hidden=false", "notes.config.hidden=false"):
        result = bbfs("ls", *only, "-o", option, "notes")
        assert (result.exit_code, ".hidden" in result.stdout) == (0, False)
    for command in (
        ["ls"],
        ["cat", "notes/hello.txt"],
        ["stat", "notes"],
        ["sources"],
        ["load", "--direct", "x"],
        ["serve"],
    ):
        result = bbfs(*command, *only, "-o", "notes.hiden=false")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "bbfs: -o notes.hiden: unknown option; did you mean 'hidden'?\n"
    refused = bbfs("mount", "/none", *only, "-o", "notes.hiden=false")
    assert (refused.exit_code, "did you mean" in refused.stderr) == (1, True)
    assert "-o notes.hiden: " in bbfs("doctor", *only, "-o", "notes.hiden=false").stdout


def test_a_header_is_for_one_server(bbfs: Run) -> None:
    two = ["--mcp", "a=https://a.invalid/mcp", "--mcp", "b=https://b.invalid/mcp"]
    result = bbfs("ls", *two, "--header", "Authorization: Bearer s3cr3t")
    assert (result.exit_code, "several sources have this option: a, b" in result.stderr) == (1, True)
    assert "s3cr3t" not in result.stderr
    assert bbfs("ls", *two, "--header", "a=Authorization: Bearer s3cr3t", "--tools", "off").exit_code == 0


def test_sources_on_the_command_line_replace_those_of_the_file(bbfs: Run, tmp_path: Path, only: list[str]) -> None:
    """Faults of the file's sources as well: nothing of them is looked at. Its other settings apply."""
    file = tmp_path / "config" / "bbfs" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        'log_level = "error"\n[cache]\nmemory = "3MiB"\n[[sources]]\nname = "private"\ntype = "filesystem"\n'
        f'config = {{ root = "{tmp_path}" }}\n[[sources]]\nname = "faulty"\ntype = "filesystem"\n'
        "config = { root = '${env:BBFS_TEST_UNSET}' }\n"
    )
    (tmp_path / "x.db").touch()
    choice = options.SourceChoice(options.Verbosity())
    for given in (
        replace(choice, folders=(f"notes={tmp_path}",)),
        replace(choice, mcp=("docs=true",)),
        replace(choice, others=(f"data={tmp_path}/x.db",)),
        replace(choice, discover=True),
    ):
        config = given.load(print)
        assert "private" not in [source.name for source in config.sources]
        assert config.cache_bytes == 3 << 20
    assert "private" not in bbfs("ls", *only).stdout
    assert bbfs("ls", *only, "private").exit_code == 1
    told = json.loads(bbfs("doctor", "--json", *only).stdout)
    assert not [check for check in told if "private" in str(check)]
    assert "BBFS_TEST_UNSET" in bbfs("ls", "--config", file).stderr
    file.write_text(file.read_text().replace("${env:BBFS_TEST_UNSET}", str(tmp_path)))
    assert bbfs("ls", "-o", "private.ttl=1m").stdout.split() == [
        "bb-filesystem+faulty+file/",
        "bb-filesystem+private+file/",
    ]
    both = [f"bb-filesystem+{name}+file/" for name in ("faulty", "notes", "private")]
    assert bbfs("ls", "--config", file, *only).stdout.split() == both
    for command in ("mount", "ls", "serve"):
        assert "replace the sources of the default file" in " ".join(bbfs(command, "--help").stdout.split())


def test_the_names_of_slow_modules_are_those_that_a_type_checker_reads() -> None:
    (checked,) = (node for node in ast.parse(Path(lazy.__file__).read_text()).body if isinstance(node, ast.If))
    found: dict[str, str] = {}
    for node in checked.body:
        assert isinstance(node, ast.Import | ast.ImportFrom)
        above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        found |= {each.asname or each.name: above + each.name for each in node.names}
    assert found == lazy.MODULES
    assert all(find_spec(module) is not None for module in found.values())


_AT_ONCE = """
import sys, threading
from bbfs.cli import lazy
sys.setswitchinterval(1e-6)
asked = {"mounted": "MountedTree", "pending": "PendingStore", "operand": "Trees", "control_client": "ask"}
ready, failures = threading.Barrier(8), []
def ask(number):
    ready.wait()
    for name in [*asked][number % 4:] + [*asked][:number % 4]:
        try:
            getattr(getattr(lazy, name), asked[name])
        except Exception as error:
            failures.append(error)
threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(repr(failures) if failures else 0)
"""


def test_threads_that_need_slow_modules_at_once_see_whole_ones() -> None:
    """`bbfs doctor` asks each mount in a thread of its own."""
    done = subprocess.run([sys.executable, "-c", _AT_ONCE], capture_output=True, timeout=60, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")
