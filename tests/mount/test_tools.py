"""Tools and prompts on a real mount (S31): what runs them, what does not, and what their results are."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Mount, Mounts, mcp
from programs import Program, bbfs, errno_of, python, run, shell, wait_until, waits_in_fuse
from repository import SERVERS

CALLS = SERVERS / "calls.py"
INVALID_ENTRY = "1 invalid entry left out"


class Calls:
    """A mounted server with tools, the source `name`, and what it was asked."""

    def __init__(self, mount: Mount, name: str, log: Path) -> None:
        self.mount, self.name, self._log = mount, name, log
        self.root = mount / f"mcp-server+{name}"
        self.tool = self.root / "tool"

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def calls(self) -> list[str]:
        """Every call of a tool, in order."""
        return [line.removeprefix("call ") for line in self.log().splitlines() if line.startswith("call ")]

    def cat(self, name: str) -> bytes:
        return run("cat", self.tool / name).out


@pytest.fixture(scope="module")
def servers(module_mounted: Mounts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    """Servers with tools on one mount: each test takes one that nothing was asked of."""
    logs = {f"t{number}": tmp_path_factory.mktemp("calls") / "log" for number in range(9)}
    sources = (mcp(name, [sys.executable, "-I", CALLS, log]) for name, log in logs.items())
    mount = module_mounted(*sources, expected=[INVALID_ENTRY])
    return iter([Calls(mount, name, log) for name, log in logs.items()])


@pytest.fixture
def tools(servers: Iterator[Calls]) -> Calls:
    return next(servers)


LOOKING = {
    "ls": 'ls -lR "$1"; ls -la "$1"/tool/*; ls -ld "$1"/tool/echo?text=x "$1"/tool/*/* || true',
    "find": 'find "$1" -ls; find "$1" -type f -size +1k; find -L "$1" -newer /etc/passwd',
    "grep": 'grep -r "no such text" "$1" || true; grep -rl properties "$1"',
    "cat": 'cat "$1"/tool/*/*',
    "du and tar": 'du -a "$1"; tar -C "$1" -cf /dev/null tool',
    "stat": 'cd "$1/tool"; stat "count?" "echo?text=x" "several?" "echo?times=2&text=x"; stat "nothing?" || true',
    "stat of the refused": 'cd "$1/tool"; stat "write?text=x" "write?text=/a/b"; find "write?text=x"',
    "attributes": """python3 -c 'import os, sys
for name in os.listxattr(sys.argv[1]): os.getxattr(sys.argv[1], name)' "$1/tool/count?"; test -r "$1/tool/count?" """,
    "completion": 'compgen -f "$1/tool/" ; compgen -f "$1/tool/count/"; cd "$1/tool"; echo *?* count*',
}


@pytest.mark.semantics("S12", "S31.1")
def test_looking_around_runs_no_tool(tools: Calls) -> None:
    for name, script in LOOKING.items():
        shell(script, tools.root, timeout=30)
        assert {"echo", "write"} < {*run("ls", tools.tool).text.split()}
        assert tools.calls() == [], name


@pytest.mark.semantics("S31")
def test_names_of_results_show_as_empty_files_until_they_are_opened(tools: Calls) -> None:
    path = tools.tool / "count?"
    seen = run("stat", "-c", "%F %s %a %i", path).text
    assert seen.startswith("regular empty file 0 444 ")
    assert tools.cat("count?") == b"call 1 ."
    assert run("stat", "-c", "%F %s %a %i", path).text == seen


@pytest.mark.semantics("S31", "S13")
def test_each_open_is_one_call(tools: Calls) -> None:
    assert [tools.cat("count?") for _ in range(3)] == [f"call {n} {'.' * n}".encode() for n in (1, 2, 3)]
    assert tools.calls() == ["count {}"] * 3
    # Two that are open at once each keep their own, whatever their sizes.
    code = """
first, second = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[1], os.O_RDONLY)
print(os.fstat(second).st_size)
for fd in (first, second, first):
    print(os.pread(fd, 100, 0).decode(), os.pread(fd, 3, 5).decode(), os.pread(fd, 9, 100))
"""
    assert python(code, tools.tool / "count?").text.splitlines() == [
        str(len("call 5 .....")),
        "call 4 .... 4 . b''",
        "call 5 ..... 5 . b''",
        "call 4 .... 4 . b''",
    ]
    assert len(tools.calls()) == 5


READERS = {
    "cat": 'cat "$1"',
    "head": 'head -c 100 "$1"',
    "tail": 'tail -c 100 "$1"',
    "dd": 'dd if="$1" bs=3 status=none',
    "cp": 'cp "$1" "$2" && cat "$2"',
    "redirection": 'cat < "$1"',
    "python": """python3 -c 'import sys; print(open(sys.argv[1]).read(), end="")' "$1" """,
    "mmap": """python3 -c 'import mmap, sys
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as m:
    sys.stdout.buffer.write(m[:])' "$1" """,
    "sendfile": """python3 -c 'import os, sys
with open(sys.argv[1], "rb") as file, open(sys.argv[2], "wb") as copy:
    while os.sendfile(copy.fileno(), file.fileno(), None, 4): pass
sys.stdout.write(open(sys.argv[2]).read())' "$1" "$2" """,
}


@pytest.mark.semantics("S31")
def test_programs_read_a_result_whole(tools: Calls, tmp_path: Path) -> None:
    for count, (name, script) in enumerate(READERS.items(), 1):
        read = shell(script, tools.tool / "count?", tmp_path / "copy")
        assert read.text == f"call {count} {'.' * count}", name
        assert len(tools.calls()) == count, name


@pytest.mark.semantics("S31.1")
def test_slashes_may_stay_where_a_value_begins_with_one_and_in_urls(tools: Calls, tmp_path: Path) -> None:
    path = "echo?text=/srv/my notes/a.md"
    shell('stat "$1"; test -d "$1"; find "$1" || true; ls -d "$1"; getfattr -d "$1"', tools.tool / path)
    run("ls", tools.tool / path, status=None)  # it is no directory that can be listed
    assert tools.calls() == []
    assert tools.cat(path) == b"/srv/my notes/a.md"
    for text in ("/srv", "/srv/my notes", "/srv/my notes/a.md"):  # what was opened may still lead on
        assert tools.cat(f"echo?text={text}") == text.encode()
    assert tools.cat("echo?text=https://example.com/a/b") == b"https://example.com/a/b"
    assert tools.cat("echo?text=/a/b&times=2") == b"/a/b/a/b"
    assert run("head", "-c", "4", tools.tool / "echo?text=/a/b/c").text == "/a/b"
    copied = shell('cp "$1" "$2" && cat "$2"', tools.tool / "echo?text=/a/b&", tmp_path / "copy")
    assert copied.text == "/a/b"
    assert tools.cat("echo?text=&") == b""
    assert len(tools.calls()) == 9


@pytest.mark.semantics("S31.1")
def test_slashes_may_stay_where_an_argument_is_missing_without_them(tools: Calls, tmp_path: Path) -> None:
    zones = "source=Europe/Berlin&time=10:00&target=Asia/Tokyo"
    arguments = {"source": "Europe/Berlin", "time": "10:00", "target": "Asia/Tokyo"}
    shell('stat "$1"; find "$1" || true; ls -d "$1"; getfattr -d "$1"', tools.tool / f"convert?{zones}")
    for name in ("convert?source=Europe", "convert?source=Europe/Berlin&time=10:00"):
        shell('stat "$1"; test -d "$1"; ls -d "$1"; getfattr -d "$1"', tools.tool / name)
    assert tools.calls() == []
    assert json.loads(tools.cat(f"convert?{zones}")) == arguments
    assert json.loads(tools.cat(f"convert?exact=true&{zones}")) == {**arguments, "exact": True}
    shell('cp "$1" "$2"', tools.tool / f"convert?{zones}&exact=true", tmp_path / "copy")
    assert json.loads((tmp_path / "copy").read_text()) == {**arguments, "exact": True}
    assert json.loads(tools.cat("page?format=text/html")) == {"format": "text/html"}
    assert run("stat", "-Lc", "%F", tools.tool / "page?format=text/html").text == "regular empty file\n"
    assert len(tools.calls()) == 4
    # What is a call already does not go on, and what lacks an argument is none.
    opened = "os.open(sys.argv[1], os.O_RDONLY)"
    assert errno_of(opened, tools.tool / "echo?text=Europe/Berlin") == "ENOTDIR"
    said = bbfs("cat", tools.tool / "echo?text=Europe/Berlin", status=1).err
    assert b"write a slash in a value as %2F" in said
    assert errno_of(opened, tools.tool / "convert?source=Europe/Berlin&time=10:00") == "EINVAL"
    assert errno_of(opened, tools.tool / "page?format=text/none") in ("EINVAL", "ENOENT")
    assert len(tools.calls()) == 4


@pytest.mark.semantics("S31", "S23")
def test_what_goes_wrong_is_an_errno_and_a_word(tools: Calls) -> None:
    opened = "os.open(sys.argv[1], os.O_RDONLY)"
    expected = {
        "echo?text=x&times=many": "EINVAL",
        "echo?": "EINVAL",
        "echo?unknown=1": "ENOENT",
        "write?text=x": "EACCES",
        "write?text=/etc/hosts": "EACCES",
        "write?unknown=1": "ENOENT",
        "contradiction?": "EACCES",
        "silent?": "EACCES",
        "nothing?": "ENOENT",
        "fail?": "EIO",
        "refuse?": "EIO",
    }
    assert {name: errno_of(opened, tools.tool / name) for name in expected} == expected
    assert tools.calls() == ["fail {}", "refuse {}"]
    said = {
        name: python("print(os.getxattr(sys.argv[1], 'user.bbfs.error').decode())", tools.tool / name).text.strip()
        for name in ("echo?text=x&times=many", "write?text=x", "fail?")
    }
    assert said == {
        "echo?text=x&times=many": "tool 'echo': argument 'times' should be an integer, not 'many'",
        "write?text=x": (
            refusal := "the option tools of this source does not allow tool 'write' by path; "
            f"`bbfs call {tools.name} write` calls it"
        ),
        "fail?": "the disk is full",
    }
    assert "the disk is full" in tools.mount.log()
    assert refusal in tools.mount.log()
    shell('test -e "$1" && ls -d "$1"; ! grep -q . "$1"', tools.tool / "write?text=x")
    assert len(tools.calls()) == 2


@pytest.mark.semantics("S22", "S31")
def test_a_reader_that_is_killed_ends_its_call(tools: Calls, programs: type[Program]) -> None:
    reader = programs("cat", tools.tool / "wait?")
    wait_until(lambda: tools.calls() == ["wait {}"], "the tool runs")
    wait_until(lambda: waits_in_fuse(reader.pid), "the reader waits")
    reader.send(signal.SIGTERM)
    assert reader.wait(10).status == -signal.SIGTERM
    wait_until(lambda: "cancelled" in tools.log(), "the server is told to stop")
