"""The servers that most people have, from their host's own file: what they offer, by path and by `bbfs call` (S31)."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import Mount, Mounts, mcp
from http_server import HttpServer
from programs import Done, run, shell
from repository import SERVERS
from thirdparty_servers import FETCH, FILESYSTEM, GIT, NODE, THINKING, TIME, Page

RECORDING = SERVERS / "recording.py"
START = 40.0
"""Seconds for a command whose servers may have to start."""


@dataclass(frozen=True, slots=True)
class Usual:
    """A mount of the five servers, what they were asked, and a folder, a repository and a web page for them."""

    mount: Mount
    logs: Path
    folder: Path
    repository: Path
    page: str

    def tool(self, server: str, name: str) -> Path:
        return self.mount / f"mcp-server+{server}" / "tool" / name

    def calls(self) -> list[str]:
        """The tools that were run."""
        lines = [line for log in sorted(self.logs.iterdir()) for line in log.read_text().splitlines()]
        return [line.split()[1] for line in lines if line.startswith("tools/call ")]

    def bbfs(self, *words: str | Path, status: int = 0) -> Done:
        line = [sys.executable, "-m", "bbfs", *words]
        return run(*line, env=self.mount.environ(), status=status, timeout=START)


@pytest.fixture(scope="module")
def usual(thirdparty: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Usual]:
    home = tmp_path_factory.mktemp("usual")
    folder, repository, logs = home / "files", home / "repository", home / "logs"
    for each in (folder / "my notes", repository, logs):
        each.mkdir(parents=True)
    (folder / "my notes/plan.md").write_text("# Plan\n")
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", "init", "-q", repository], check=True)
    subprocess.run(["git", "-C", repository, *author, "commit", "-q", "--allow-empty", "-m", "the first"], check=True)
    servers = {
        "filesystem": [NODE, FILESYSTEM, folder],
        "git": [GIT, "--repository", repository],
        "time": [TIME, "--local-timezone", "UTC"],
        # With node on its PATH, it would install packages from npm for itself.
        "fetch": ["/usr/bin/env", "PATH=/nonexistent", FETCH, "--allow-private-ips"],
        "sequential-thinking": [NODE, THINKING],
    }
    with closing(HttpServer(Page)) as web, closing(Mounts()) as mounts:
        record = [sys.executable, "-I", RECORDING]
        recorded = [mcp(n, [*record, logs / n, "--", *command]) for n, command in servers.items()]
        mount = mounts(*recorded)
        # Their first start takes its time; what follows is about their answers.
        shell('ls "$1"/*/tool > /dev/null', mount.path, timeout=2 * START)
        yield Usual(mount, logs, folder, repository, f"{web.url}/guide/brewing")


WALKS = {
    "ls -R": 'ls -R "$1"',
    "ls --color -R": 'ls --color=always -R "$1"',
    "ls -lR": 'ls -lR "$1"',
    "find": 'find "$1" -ls',
    "grep -r": 'grep -r "no such text anywhere" "$1" || true',
    "rg": 'if command -v rg; then rg "no such text anywhere" "$1" || true; fi',
    "du": 'du -a "$1"',
    "tar": 'tar -C "$1" -cf "$2/all.tar" .',
    "cp -a": 'cp -a "$1" "$2/copy"',
    "rsync": 'rsync -a "$1/" "$2/synchronised/"',
    "getfattr -Rd": 'if command -v getfattr; then getfattr -Rd "$1"; fi',
    "file": 'find "$1" -type f -print0 | xargs -0 file',
    "git status": 'mkdir "$2/repository" && git -C "$2/repository" init -q && '
    'GIT_DIR="$2/repository/.git" GIT_WORK_TREE="$1" git status --porcelain',
    "updatedb": 'updatedb -U "$1" -o "$2/files.db" --require-visibility no --prune-bind-mounts no --prunefs "" '
    '--prunenames "" --prunepaths "" && plocate -d "$2/files.db" description.md | grep -q sequentialthinking',
}


@pytest.mark.semantics("S31", "S12")
@pytest.mark.parametrize("name", WALKS)
def test_commands_that_walk_run_no_tool(usual: Usual, tmp_path: Path, name: str) -> None:
    if name == "updatedb" and shutil.which(name) is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("run `scripts/install test`: there is no updatedb")
    before = usual.calls()
    shell(f"({WALKS[name]}) > /dev/null", usual.mount.path, tmp_path, timeout=3 * START)
    assert usual.calls() == before


def test_every_tool_is_described(usual: Usual) -> None:
    listed = json.loads(usual.bbfs("tools", "--json").out)
    assert len({tool["source"] for tool in listed}) == 5
    for tool in listed:
        described = usual.mount / tool["source"] / "tool" / tool["name"]
        assert run("head", "-1", described / "description.md").text.startswith("# ")
        properties = json.loads(run("cat", described / "input.schema.json").out).get("properties", {})
        assert set(properties) == {argument["name"] for argument in tool["arguments"]}


@pytest.mark.semantics("S31")
def test_each_is_called_by_path(usual: Usual) -> None:
    plan = usual.tool("filesystem", f"read_text_file?path={usual.folder}/my notes/plan.md")
    assert run("cat", plan, timeout=START).text == "# Plan\n"
    assert str(usual.folder) in run("cat", usual.tool("filesystem", "list_allowed_directories?"), timeout=START).text
    log = usual.tool("git", f"git_log?repo_path={usual.repository}&max_count=5")
    assert "the first" in run("cat", log, timeout=START).text
    now = run("cat", usual.tool("time", "get_current_time?timezone=Europe%2FBerlin"), timeout=START).out
    assert json.loads(now)["timezone"] == "Europe/Berlin"
    thought = "sequentialthinking?thought=x&nextThoughtNeeded=false&thoughtNumber=1&totalThoughts=1"
    assert json.loads(run("cat", usual.tool("sequential-thinking", thought), timeout=START).out)["thoughtNumber"] == 1
    assert "hops and yeast" in run("cat", usual.tool("fetch", f"fetch?url={usual.page}"), timeout=START).text


@pytest.mark.semantics("S31")
def test_each_is_called_by_command(usual: Usual) -> None:
    plan = usual.folder / "my notes/plan.md"
    assert usual.bbfs("call", "filesystem", "read_text_file", f"path={plan}").text == "# Plan\n"
    log = usual.bbfs("call", "git", "git_log", f"repo_path={usual.repository}", "max_count=1")
    assert "the first" in log.text
    now = usual.bbfs("call", "time", "get_current_time", "--json", '{"timezone": "Asia/Tokyo"}')
    assert json.loads(now.out)["timezone"] == "Asia/Tokyo"
    numbers = ("nextThoughtNeeded=false", "thoughtNumber=2", "totalThoughts=2")
    thought = usual.bbfs("call", "sequential-thinking", "sequentialthinking", "thought=y", *numbers)
    assert json.loads(thought.out)["thoughtNumber"] == 2
    assert "hops and yeast" in usual.bbfs("call", "fetch", "fetch", f"url={usual.page}").text


@pytest.mark.semantics("S31")
def test_a_tool_that_writes_is_refused_and_then_allowed(usual: Usual) -> None:
    new = usual.folder / "new.txt"
    before = usual.calls()
    run("cat", usual.tool("filesystem", f"write_file?path={new}&content=x"), status=1)
    words = ("call", "filesystem", "write_file", f"path={new}", "content=written")
    refused = usual.bbfs(*words, status=2)
    assert "write_file does not declare to be read-only: it needs --yes" in refused.err.decode()
    assert usual.calls() == before
    assert not new.exists()
    usual.bbfs(*words, "--yes")
    assert new.read_text() == "written"


def test_an_error_of_a_tool_has_a_status_of_its_own(usual: Usual) -> None:
    failed = usual.bbfs("call", "filesystem", "read_text_file", "path=/etc/hostname", status=3)
    assert "Access denied" in failed.err.decode()
    assert failed.out == b""
