"""`bbfs tools` and `bbfs call`, with and without a mount: what they print, ask, refuse and complete."""

import json
import os
import pty
import select
import shlex
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from forked_daemon import forked
from repository import SERVERS

from bbfs.cli import main
from bbfs.cli.commands import tools
from bbfs.cli.completion import WholeWords
from bbfs.fuse import mountpoint
from bbfs.model.calls import Progress, Tool, ToolArgument

Process = Callable[..., subprocess.CompletedProcess[bytes]]
PICTURE = b"\x89PNG\r\n\x1a\nno more than a beginning"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "calls.log"


@pytest.fixture
def server(log: Path) -> list[str]:
    """Options for a server with tools as the one source, named `t`."""
    return ["--mcp", f"t={shlex.join([sys.executable, '-I', str(SERVERS / 'calls.py'), str(log)])}", "-q"]


def calls(log: Path) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.removeprefix("call ") for line in lines if line.startswith("call ")]


def test_tools_are_listed_with_what_may_run(process: Process, server: list[str], log: Path) -> None:
    table = process("tools", *server).stdout.decode().splitlines()
    assert table[0].split() == ["SOURCE", "TOOL", "READS", "ONLY", "PATH", "ARGUMENTS"]
    rows = {line.split()[1]: line.split()[2:] for line in table[1:]}
    assert rows["echo"] == ["yes", "yes", "text", "[times]", "[tags]"]
    assert rows["write"] == ["no", "no", "[text]"]
    listed = {tool["name"]: tool for tool in json.loads(process("tools", "t", "--json", *server).stdout)}
    assert listed["echo"]["arguments"][1] == {"name": "times", "type": "integer", "required": False, "choices": []}
    assert (listed["echo"]["readOnly"], listed["write"]["hasPath"]) == (True, False)
    assert calls(log) == []


@pytest.mark.semantics("S31")
def test_a_call_prints_its_result(process: Process, server: list[str], log: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("größer")
    done = process("call", "t", "echo", f"text=@{tmp_path / 'text'}", "times=2", "tags=a,b", *server)
    assert (done.returncode, done.stdout) == (0, "größergrößer".encode())
    assert process("call", "t", "echo", "text=@@home", *server).stdout == b"@home"
    assert process("call", "t", "echo", "--json", '{"text": "x", "times": 3}', *server).stdout == b"xxx"
    assert process("call", "t", "picture", *server).stdout == PICTURE
    given = [json.loads(line.partition(" ")[2]) for line in calls(log)]
    assert given == [
        {"text": "größer", "times": 2, "tags": ["a", "b"]},
        {"text": "@home"},
        {"text": "x", "times": 3},
        {},
    ]


@pytest.mark.semantics("S31.4")
def test_what_must_be_confirmed_is_not_called_without_that(process: Process, server: list[str], log: Path) -> None:
    for tool in ("write", "silent", "contradiction"):
        refused = process("call", "t", tool, *(["text=x"] if tool == "write" else []), *server)
        assert refused.returncode == 2
        assert f"{tool} does not declare to be read-only: it needs --yes" in refused.stderr.decode()
    assert calls(log) == []
    assert process("call", "t", "write", "text=x", "--yes", *server).returncode == 0
    assert calls(log) == ['write {"text": "x"}']


@pytest.mark.semantics("S23")
def test_mistakes_are_said_before_anything_runs(process: Process, server: list[str], log: Path) -> None:
    for words, status, said in (
        (["ech", "text=x"], 1, "has no tool 'ech'; did you mean 'echo'?"),
        (["nothing"], 1, "'bbfs tools t' lists those that it has"),
        (["echo", "text=x", "text=y"], 1, "argument 'text' is given 2 times"),
        (["echo", "text=x", "--json", '{"text": "y"}'], 1, "argument 'text' is given twice"),
        (["echo", "--json", '{"text": "x", "tims": 2}'], 1, "did you mean 'times'?"),
        (["echo"], 1, "needed but not given: text"),
        (["echo", "text=x", "times=many"], 1, "argument 'times' should be an integer"),
        (["echo", "txt=x"], 1, "did you mean 'text'?"),
        (["write", "txt=x"], 1, "did you mean 'text'?"),
        (["echo", "text"], 2, "is no KEY=VALUE"),
        (["echo", "--json", "[1]"], 2, "no JSON object"),
        (["echo", "text=@/nonexistent"], 1, "No such file"),
    ):
        done = process("call", "t", *words, *server)
        assert (done.returncode, said in done.stderr.decode()) == (status, True), done.stderr
    assert calls(log) == []


def test_an_error_of_the_tool_is_status_3(process: Process, server: list[str]) -> None:
    done = process("call", "t", "fail", *server)
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr == b"bbfs: fail: the disk is full\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no such table: häm\nbbfs: did you mean ham?\x1b[2J", "no such table: häm\n  bbfs: did you mean ham?\\x1b[2J"),
        ('{"error": "no \\"x\\" in\\n\\tfile"}', 'no "x" in\n  \\tfile'),
        ('{"code": 7, "error": "gr\\u00f6\\u00dfer"}', '{\n    "code": 7,\n    "error": "größer"\n  }'),
        ("{broken", "{broken"),
        ("1.10", "1.10"),
        ("[" * 400 + "]" * 400, "[" * 400 + "]" * 400),
    ],
)
def test_an_error_of_the_tool_is_text(process: Process, server: list[str], log: Path, text: str, said: str) -> None:
    log.with_suffix(".error").write_text(text)
    done = process("call", "t", "fail", *server)
    assert (done.returncode, done.stderr.decode()) == (3, f"bbfs: fail: {said}\n")


def test_an_error_of_the_tool_takes_little_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line of indented JSON grows with its depth."""
    text = f"[{','.join(['[' * 300 + ']' * 300] * 90)}]"
    tools.print_error("{}", "odd")  # what it imports is no part of it
    tracemalloc.start()
    try:
        tools.print_error(text, "odd")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 20 * len(text)
    assert capsys.readouterr().err == f"bbfs: odd: {{}}\nbbfs: odd: {text}\n"


def test_on_a_terminal_it_asks_and_bytes_go_to_files(server: list[str], log: Path, tmp_path: Path) -> None:
    def answered(*words: str, answer: bytes = b"") -> str:
        ours, theirs = pty.openpty()
        line = forked("-m", "bbfs", "call", "t", *words, *server)
        child = subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path)
        os.close(theirs)
        said, deadline = b"", time.monotonic() + 60
        while time.monotonic() < deadline:
            ready, _, _ = select.select([ours], [], [], 1)
            try:
                said += os.read(ours, 4096) if ready else b""
            except OSError:  # the other end is closed
                break
            if answer and b"Call it?" in said:
                os.write(ours, answer)
                answer = b""
        child.wait(10)
        os.close(ours)
        return said.decode()

    assert "write may change or destroy something" in answered("write", "text=x", answer=b"n\n")
    assert calls(log) == []
    answered("write", "text=x", answer=b"y\n")
    assert calls(log) == ['write {"text": "x"}']
    for name in ("picture-1.png", "picture-1-1.png"):
        assert name in answered("picture")
        assert (tmp_path / name).read_bytes() == PICTURE


@pytest.mark.semantics("S31")
def test_the_daemon_of_a_mount_calls(process: Process, mount: Callable[..., tuple[Path, object]], server: list[str],
                                     log: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    point, _ = mount(*server)
    monkeypatch.setenv("BBFS_MOUNT", str(point))
    listed = json.loads(process("tools", "t", "--json").stdout)
    assert {"echo", "write"} <= {tool["name"] for tool in listed}
    echoed = process("call", "t", "echo", "text=x")
    assert (echoed.stdout, echoed.stderr) == (b"x", b"bbfs: 1 of 2: half of it\n")
    assert process("call", "t", "picture", "-q").stderr == b""
    several = process("call", "t", "several").stdout
    assert several.startswith(b"number 3\n" + PICTURE)
    places = ["doc/guide", "doc/page/7", "doc/unlisted/notes"]
    assert [line for line in several.decode(errors="replace").split("\n") if line.startswith(str(point))] == [
        f"{point}/mcp-server+t/{place}" for place in places
    ]
    assert process("cat", point / "mcp-server+t/doc/unlisted/notes").stdout == b"content of doc://unlisted/notes\n"
    assert process("call", "t", "fail").returncode == 3
    assert process("call", "t", "write").returncode == 2
    assert process("call", "t", "echo", "times=1").returncode == 1
    assert [line.split()[0] for line in calls(log)] == ["echo", "picture", "several", "fail"]

    def completed(*words: str) -> set[str]:
        environ = {**os.environ, "_BBFS_COMPLETE": "bash_complete", "COMP_WORDS": shlex.join(["bbfs", *words]),
                   "COMP_CWORD": str(len(words))}  # fmt: skip
        line = [sys.executable, "-c", "from bbfs.cli import main; main(prog_name='bbfs')"]
        done = subprocess.run(line, env=environ, capture_output=True, timeout=60, check=False)
        return {each.partition(",")[2] for each in done.stdout.decode().splitlines()}

    # The short name is a link in the mount: a path to it means the source, also from inside of the mount.
    monkeypatch.chdir(point)
    for named in ("t", str(point / "t"), "mcp-server+t"):
        assert json.loads(process("tools", named, "--json").stdout) == listed
        assert process("call", named, "echo", "text=x", "-q").stdout == b"x"
    assert json.loads(process("tools", ".", "--json").stdout) == listed
    refused = process("call", str(point), "echo", "text=x")
    assert (refused.returncode, b"names no source" in refused.stderr) == (1, True), refused.stderr
    assert completed("call", "t", "ec") == {"echo"}
    assert completed("call", "t", "echo", "t") == {"text=", "times=", "tags="}


@pytest.mark.parametrize(
    "evil", ["echo$(id)", "echo;id", "echo`id`", "echo x", "echo\nplain,id", "echo*", "echo\x1b[2J"]
)
def test_completion_offers_no_word_that_a_shell_reads_otherwise(evil: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both = ("echo", evil)
    arguments = tuple(ToolArgument(name, "string\x1b", choices=both) for name in both)
    monkeypatch.setattr(tools, "known_tools", lambda source: [Tool(name, arguments=arguments) for name in both])
    completion = ShellComplete(main, {}, "bbfs", "_BBFS_COMPLETE")

    def offered(*words: str, begun: str = "") -> list[tuple[str, str | None]]:
        return [(item.value, item.help) for item in completion.get_completions(["call", "t", *words], begun)]

    assert offered() == [("echo", None)]
    assert offered("echo") == [("echo=", "string\\x1b")]
    assert offered("echo", begun="echo=") == [("echo=echo", None)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bbfs call t pa", "plain,page"),
        ("bbfs call t page fo", "plain,format="),
        ("bbfs call t page format=te", "plain,text/html\nplain,text/plain"),
        ("bbfs call t page format=text/h", "plain,text/html"),
        ("bbfs call t page ", "plain,format="),
        ("bbfs ls no", "plain,notes\nfile,no"),
        ("bbfs ls ./no", "file,./no"),
        ("bbfs login no", "plain,notes"),
    ],
)
def test_completion_in_bash_reads_the_line_and_answers_what_follows_the_last_break(
    line: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    choices = ("text/html", "text/plain")
    page = Tool("page", arguments=(ToolArgument("format", "string", choices=choices),))
    monkeypatch.setattr(tools, "known_tools", lambda source: [page])
    monkeypatch.setattr(mountpoint, "own_mounts", list)
    config = tmp_path / "config/bbfs/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[[sources]]\nname = "notes"\ntype = "filesystem"\nconfig = {{ root = "{tmp_path}" }}\n')
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_WORDBREAKS", " \t\n\"'><=;|&(:")
    assert WholeWords(main, {}, "bbfs", "_BBFS_COMPLETE").complete() == said


def test_progress_with_ever_new_texts_prints_a_line_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    progress = tools.ProgressLines(quiet=False, clock=lambda: now)
    for number in range(3000):
        now = 100.0 + number / 1000
        progress.show(Progress(float(number), text=f"text {number}"))
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["0", "1000", "2000"]
