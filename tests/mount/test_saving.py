"""What editors and other programs do to save a file, on a real mount: afterwards the source has it (S32, S33).

The source is one in memory with a file, so that another process can say what is stored.
"""

import fcntl
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from harness import Mount, Mounts, SourceTable
from programs import Program, conflicts_of, errno_of, run, shell, wait_until

from bbfs.sources.memory.file import LOCKED_WITHIN, MemoryFile

DIRECTORY = "bb-memory+pad+memory"
pytestmark = [pytest.mark.timeout(120), pytest.mark.semantics("S32", "S33")]


def pad(tmp_path: Path, *, capabilities: tuple[str, ...] = ("read", "list", "write")) -> SourceTable:
    return {
        "name": "pad",
        "type": "memory",
        "capabilities": [*capabilities],
        "config": {"file": str(tmp_path / "pad.file"), "resources": {"note.md": "one\n"}},
    }


@pytest.fixture
def mount(mounted: Mounts, tmp_path: Path) -> Mount:
    return mounted(pad(tmp_path))


@pytest.fixture
def here(mount: Mount) -> Path:
    return mount / DIRECTORY


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree with an empty file, a large one, an old one, and odd names."""
    root = tmp_path / "tree"
    (root / "sub/deeper").mkdir(parents=True)
    (root / "empty").touch()
    (root / "large").write_bytes(os.urandom(3 << 20))
    (root / "sub/a b.txt").write_text("text\n" * 100)
    (root / "sub/deeper/ü.txt").write_text("ü\n")
    os.utime(root / "sub/a b.txt", ns=(1_500_000_000_123_456_789, 1_500_000_000_123_456_789))
    return root


def stored(tmp_path: Path, name: str) -> str:
    """What the source has, as another process reads it."""
    kept = MemoryFile(str(tmp_path / "pad.file"), 1 << 30).read()
    return kept.contents.held[f"memory://{name}"].content.data.decode()


def test_shells_and_sed_save_in_place(here: Path, tmp_path: Path) -> None:
    shell("echo two > new.txt; echo three >> new.txt; echo four | tee -a new.txt", directory=here)
    assert run("cat", here / "new.txt").text == stored(tmp_path, "new.txt") == "two\nthree\nfour\n"
    shell("sed -i s/three/3/ new.txt && truncate -s 6 new.txt && : > note.md", directory=here)
    assert stored(tmp_path, "new.txt") == "two\n3\n"
    assert stored(tmp_path, "note.md") == ""
    assert shell("ls -A", directory=here).text.split() == ["new.txt", "note.md"]
    assert shell("stat -c '%s %a' new.txt .", directory=here).text.split() == ["6", "644", "0", "755"]
    assert int(shell("df --output=avail . | tail -n 1", directory=here).text) > 0


def test_a_file_is_there_at_once_after_a_rename_over_the_same_bytes(here: Path) -> None:
    for name in ("a", "b", "a", "b"):  # git replaces its index by the same bytes
        (here / name).write_text("same")
        if name == "b":
            os.rename(here / "b", here / "a")
            assert (here / "a").read_text() == "same"
    (here / "a").write_text("other")
    assert (here / "a").read_text() == "other"


def test_a_redirection_of_a_shell_is_one_write(mounted: Mounts, tmp_path: Path) -> None:
    mount = mounted(pad(tmp_path), tables={"": {"log_level": "debug"}})
    shell("echo text > note.md; date > new.txt; touch empty", directory=mount / DIRECTORY)
    handed_over = re.findall(r"handed over (\S+),", mount.log())
    assert handed_over == [f"{DIRECTORY}://{name}" for name in ("note.md", "new.txt", "empty")]


@pytest.mark.semantics("S32")
def test_a_close_hands_over_while_its_program_reads_the_file(here: Path, tmp_path: Path) -> None:
    code = (
        "from bbfs.sources.memory.file import MemoryFile; r = os.open(sys.argv[1], os.O_RDONLY);"
        "f = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC); os.close(f);"
        "print(MemoryFile(sys.argv[2], 1 << 30).read().contents.held['memory://note.md'].content.data); os.close(r)"
    )
    assert errno_of(f"exec({code!r})", here / "note.md", tmp_path / "pad.file") == "b''\nOK None"


@pytest.mark.parametrize("setting", ["nobackup", "backup backupcopy=no", "backup backupcopy=yes", "nowritebackup"])
def test_vim_saves(here: Path, setting: str, tmp_path: Path) -> None:
    edit = ["-c", f"set {setting}", "-c", "normal Goadded", "-c", "wq", "note.md"]
    run("env", "-C", here, "vim", "-es", "-N", "-u", "NONE", *edit, timeout=30)
    assert stored(tmp_path, "note.md") == "one\nadded\n"
    assert {*shell("ls -A", directory=here).text.split()} <= {"note.md", "note.md~"}


EDITORS = {
    # As traced: VS Code writes in place; with its atomic saves, and GNOME's Text Editor, to a file beside.
    "vscode": "f = os.open(p, os.O_WRONLY | os.O_CREAT | os.O_TRUNC); os.write(f, new); os.fsync(f); os.close(f)",
    "gnome": "f = os.open(t, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600); os.write(f, new); os.fsync(f); "
    "os.fchmod(f, 0o644); os.close(f); os.rename(t, p)",
    "nano": "b = open(p, 'rb').read(); f = os.open(p + '~', os.O_WRONLY | os.O_CREAT | os.O_EXCL); os.write(f, b); "
    "os.close(f); f = os.open(p, os.O_WRONLY | os.O_CREAT | os.O_TRUNC); os.write(f, new); os.close(f)",
    "emacs": "os.open('.#note.md', os.O_CREAT | os.O_EXCL); os.rename(p, p + '~'); "
    "f = os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL); os.write(f, new); os.fsync(f); os.close(f); "
    "os.unlink('.#note.md')",
}


@pytest.mark.parametrize("editor", EDITORS)
def test_editors_save_as_they_were_traced(here: Path, editor: str, tmp_path: Path) -> None:
    program = f"import os; p, t, new = 'note.md', '.goutputstream-X1Y2Z3', b'changed\\n'; {EDITORS[editor]}"
    run("env", "-C", here, sys.executable, "-c", program, timeout=30)
    assert stored(tmp_path, "note.md") == "changed\n"


def test_trees_are_copied_with_their_times(here: Path, tree: Path, tmp_path: Path) -> None:
    shell(f"cp -a {tree} cp && diff -r {tree} cp", directory=here)
    shell(f"rsync -a {tree}/ rs/ && diff -r {tree} rs && echo x >> {tree}/sub/deeper/ü.txt", directory=here)
    shell(f"rsync -a --inplace {tree}/ rs/ && diff -r {tree} rs", directory=here)
    assert shell(f"rsync -ai --omit-dir-times {tree}/ rs/", directory=here).text == "", "sizes and times are the same"
    shell(f"mkdir tar && tar c -C {tree} . | tar x -C tar && diff -r {tree} tar", directory=here)
    shell(f"(cd {tree} && zip -qr ../t.zip .) && unzip -q {tree}/../t.zip -d zip && diff -r {tree} zip", directory=here)
    times = shell("stat -c %.Y 'cp/sub/a b.txt' 'rs/sub/a b.txt' 'tar/sub/a b.txt'", directory=here).text.split()
    assert times[:2] == ["1500000000.123456789"] * 2
    assert times[2].startswith("1500000000.")
    assert stored(tmp_path, "cp/sub/a%20b.txt") == "text\n" * 100
    shell(f"tar c -C {tree} . | tar x && rsync -a {tree}/ ./ && rm -r {' '.join(os.listdir(tree))}", directory=here)
    shell("rm -r cp rs tar zip", directory=here)
    assert shell("ls -A", directory=here).text == "note.md\n"


def test_git_sqlite_and_make_work_in_it(here: Path) -> None:
    git = "git -c user.name=n -c user.email=e@x -c gc.auto=0"
    shell(
        f"git init -q g && cd g && seq 100 > f && {git} add f && {git} commit -qm one && echo x >> f && "
        f"{git} commit -qam two && {git} checkout -q HEAD~1 && {git} gc -q && {git} fsck --strict",
        directory=here,
        timeout=60,
    )
    assert shell("cd g && git log --all --format=%s | cat; tail -n 1 f", directory=here).text == "two\none\n100\n"
    shell("sqlite3 s.db 'create table t(a); insert into t values (1), (2)'", directory=here)
    assert shell("sqlite3 s.db 'select sum(a) from t'", directory=here).text == "3\n"
    shell("printf 'out: in\\n\\tcp in out\\n' > Makefile && echo made > in && make -s", directory=here)
    assert shell("make --no-print-directory; cat out", directory=here).text.endswith("up to date.\nmade\n")


def test_of_two_writers_one_wins_and_the_other_keeps_its_bytes(here: Path, mounted: Mounts, tmp_path: Path) -> None:
    other = mounted(pad(tmp_path), expected=["somebody else has changed it"])
    paths = (here / "note.md", other / DIRECTORY / "note.md")
    assert conflicts_of((paths[0], "first"), (paths[1], "second")) == [False, True]
    assert stored(tmp_path, "note.md") == "first"
    [kept] = other.state.home.rglob("pending/*.json")
    assert kept.with_suffix("").read_text() == "second"
    assert "Conflict" in json.loads(kept.read_text())["error"]
    wait_until(lambda: run("cat", other / DIRECTORY / "note.md").text == "first", "the other mount has it too")


def test_an_append_to_a_file_that_has_another_size_by_then_is_stale(
    here: Path, mounted: Mounts, tmp_path: Path
) -> None:
    """Nothing was read of it: the program goes by the size in the listing."""
    other = mounted(pad(tmp_path)) / DIRECTORY
    code = (
        "f = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND); other = open(sys.argv[2], 'a'); other.write('other\\n');"
        "other.close(); os.write(f, b'own\\n')"
    )
    assert errno_of(f"exec({code!r})", here / "note.md", other / "note.md") == "ESTALE"
    assert stored(tmp_path, "note.md") == "one\nother\n"


CHANGES = {
    "close": "os.close(f)",
    "fsync": "os.fsync(f)",
    "exit": "time.sleep(60)",
    "unlink": "os.unlink(sys.argv[1] + '/note.md')",
    "rename": "os.rename(sys.argv[1] + '/note.md', sys.argv[1] + '/other.md')",
}


@pytest.mark.semantics("S22")
@pytest.mark.parametrize("change", CHANGES)
def test_a_program_that_is_killed_while_a_source_takes_its_change_ends_and_the_change_is_whole(
    mount: Mount, tmp_path: Path, programs: type[Program], change: str
) -> None:
    """A program that is killed with an open file hands it over at its end, which a signal cannot interrupt."""
    begin = "import os, sys, time; f = os.open(sys.argv[1] + '/new.md', os.O_RDWR | os.O_CREAT); os.write(f, b'new'); "
    here, lock_path = mount / DIRECTORY, tmp_path / "pad.file.lock"
    hands_over = change in ("close", "fsync", "exit")

    def is_asked() -> bool:
        """Return whether the source waits for the lock of its file."""
        return f"{lock_path}\n" in shell(f"find /proc/{mount.pid}/fd -printf '%l\\n' || true").text

    if not hands_over:
        begin = "import os, sys, time; "
    with open(lock_path, "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code = f"{begin}print('ready', flush=True); {CHANGES[change]}; time.sleep(60)"
        program = programs(sys.executable, "-c", code, here)
        assert program.process.stdout is not None
        assert program.process.stdout.readline() == b"ready\n"
        if change != "exit":
            wait_until(is_asked, "the source is asked")
        program.send(signal.SIGKILL)
        assert program.wait(LOCKED_WITHIN / 2).status == -signal.SIGKILL
        wait_until(is_asked, "the source is asked still")
    names = {"note.md", "new.md"} if hands_over else {"other.md"} if change == "rename" else set[str]()
    wait_until(lambda: {*shell("ls -A", directory=here).text.split()} == names, "the source has the change")
    for name in names - {"note.md"}:
        file = tmp_path / "pad.file"  # the mount shows the name before
        wait_until(lambda name=name, file=file: file.exists() and name in file.read_text(), "it is stored")
        assert stored(tmp_path, name) == ("new" if hands_over else "one\n")


def test_other_mounts_learn_of_a_write_at_once(here: Path, mounted: Mounts, tmp_path: Path) -> None:
    """Without being told, the other mount would serve the content that it has for an hour."""
    other = mounted({**pad(tmp_path), "ttl": "1h"}) / DIRECTORY
    assert run("cat", other / "note.md").text == "one\n"
    shell("echo changed > note.md; echo new > new.txt", directory=here)
    wait_until(lambda: run("cat", other / "note.md").text == "changed\n", "the other mount is told")
    wait_until(lambda: "new.txt" in shell("ls", directory=other).text, "of names as well")


def test_what_may_not_be_written_says_so(mounted: Mounts, tmp_path: Path) -> None:
    mount = mounted(pad(tmp_path), {**pad(tmp_path, capabilities=("read", "list")), "name": "closed"})
    closed = mount / "bb-memory+closed+memory"
    assert errno_of("open(sys.argv[1], 'w')", closed / "note.md") == "EROFS"
    assert errno_of("open(sys.argv[1], 'w')", closed / "other") == "EROFS"
    assert errno_of("os.mkdir(sys.argv[1])", mount / "directory") == "EROFS"
    here = mount / DIRECTORY
    assert errno_of("os.symlink('note.md', sys.argv[1])", here / "link") == "EOPNOTSUPP"
    assert errno_of("os.link(sys.argv[1], sys.argv[1] + '2')", here / "note.md") == "EOPNOTSUPP"
    assert shell("stat -c %a .", directory=closed).text == "555\n"
