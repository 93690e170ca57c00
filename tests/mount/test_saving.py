"""Saving on a real mount: afterwards the source has it (S32, S33). `test_saves.py` has the ways in which programs save.

The source is one in memory with a file, so that another process can say what is stored.
"""

import fcntl
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from harness import Mount, Mounts, SourceTable
from programs import PACKAGES, Program, errno_of, run, shell, wait_until

from bbfs.sources.memory.file import LOCKED_WITHIN, MemoryFile

DIRECTORY = "bb-memory+pad+memory"
pytestmark = pytest.mark.semantics("S32", "S33")


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


@pytest.fixture(scope="module")
def shared(module_mounted: Mounts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a pad for tests that write names of their own."""
    return module_mounted(pad(tmp_path_factory.mktemp("pad"))) / DIRECTORY


def stored(tmp_path: Path, name: str) -> str:
    """What the source has, as another process reads it."""
    kept = MemoryFile(str(tmp_path / "pad.file"), 1 << 30).read()
    return kept.contents.held[f"memory://{name}"].content.data.decode()


def test_a_file_is_there_at_once_after_a_rename_over_the_same_bytes(shared: Path) -> None:
    for name in ("a", "b", "a", "b"):  # git replaces its index by the same bytes
        (shared / name).write_text("same")
        if name == "b":
            os.rename(shared / "b", shared / "a")
            assert (shared / "a").read_text() == "same"
    (shared / "a").write_text("other")
    assert (shared / "a").read_text() == "other"


def test_a_redirection_of_a_shell_is_one_write(mounted: Mounts, tmp_path: Path) -> None:
    mount = mounted(pad(tmp_path), tables={"": {"log_level": "debug"}})
    shell("echo text > note.md; date > new.txt; touch empty", directory=mount / DIRECTORY)
    handed_over = re.findall(r"handed over (\S+),", mount.log())
    assert handed_over == [f"{DIRECTORY}://{name}" for name in ("note.md", "new.txt", "empty")]


@pytest.mark.semantics("S32")
def test_a_close_hands_over_while_its_program_reads_the_file(here: Path, tmp_path: Path) -> None:
    code = (
        f"{PACKAGES}from bbfs.sources.memory.file import MemoryFile; r = os.open(sys.argv[1], os.O_RDONLY);"
        "f = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC); os.close(f);"
        "print(MemoryFile(sys.argv[2], 1 << 30).read().contents.held['memory://note.md'].content.data); os.close(r)"
    )
    assert errno_of(f"exec({code!r})", here / "note.md", tmp_path / "pad.file") == "b''\nOK None"


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


@pytest.mark.semantics("S22")
def test_a_lookup_beside_a_name_that_changes_waits_five_seconds_at_most(
    mounted: Mounts, tmp_path: Path, programs: type[Program]
) -> None:
    mount = mounted(pad(tmp_path), expected=["the change goes on", "waits for any more is made"])
    here = mount / DIRECTORY
    shell("echo new > .note.md.Ab12Cd", directory=here)
    rename = "import os, sys; os.rename(sys.argv[1] + '/.note.md.Ab12Cd', sys.argv[1] + '/note.md')"
    with open(tmp_path / "pad.file.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        began = time.monotonic()
        program = programs(sys.executable, "-c", rename, here)
        descriptors = f"find /proc/{mount.pid}/fd -printf '%l\\n' || true"
        wait_until(lambda: f"{lock.name}\n" in shell(descriptors).text, "the source is asked")
        beside = programs("stat", here / "absent")
        done = program.wait(LOCKED_WITHIN)
        assert "Connection timed out" in done.err.decode()
        assert beside.wait(LOCKED_WITHIN).status == 1
        assert time.monotonic() - began < LOCKED_WITHIN
    wait_until(lambda: {*shell("ls -A", directory=here).text.split()} == {"note.md"}, "the rename goes on")
    assert run("cat", here / "note.md").text == "new\n"


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


@pytest.mark.semantics("S7", "S33.1")
def test_what_tar_cannot_make_it_says(shared: Path, tmp_path: Path) -> None:
    """GNU tar makes an empty file for such a link first, and drops it only if it is still that file."""
    shell(
        "mkdir in; echo whole > in/file; ln -s /etc/hosts in/absolute; ln -s ../x in/above; tar cf in.tar in",
        directory=tmp_path,
    )
    done = run("tar", "xf", tmp_path / "in.tar", "-C", shared, status=2)
    assert done.err.decode().count("Cannot create symlink") == 2
    assert {*shell("ls -A in", directory=shared).text.split()} == {"file"}
    assert run("cat", shared / "in/file").text == "whole\n"


@pytest.mark.semantics("S33.5")
def test_attributes_that_describe_a_resource_are_copied_to_no_effect(shared: Path, tmp_path: Path) -> None:
    run("cp", "--preserve=all", shared / "note.md", shared / "copy.md")
    run("rsync", "-aX", shared / "note.md", shared / "synced.md")
    run("cp", "--preserve=xattr", shared / "note.md", tmp_path / "out.md")
    run("rsync", "-aX", tmp_path / "out.md", shared / "back.md")
    assert shell("cat copy.md synced.md back.md", directory=shared).text == 3 * "one\n"
    run("setfattr", "-x", "user.bbfs.title", shared / "copy.md")
    assert (
        "Operation not supported"
        in run("setfattr", "-n", "user.mine", "-v", "x", shared / "copy.md", status=1).err.decode()
    )
