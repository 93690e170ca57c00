"""Which version of a content a reader gets, and what is asked of a source for it (S7, S13, S15 to S20)."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Mounts, folder
from programs import Program, errno_of, python, run, wait_until
from scripted import ScriptedServer

OLD = "".join(f"old line {number}\n" for number in range(50_000))
NEW = "".join(f"the new line {number}\n" for number in range(60_000))

HOLD = """
file = os.open(sys.argv[1], os.O_RDONLY)
first = os.pread(file, 10, 0)
open(sys.argv[2], "w").close()
open(sys.argv[3]).read()
rest, position = [first], 10
while chunk := os.pread(file, 65536, position):
    rest.append(chunk)
    position += len(chunk)
assert os.fstat(file).st_size == position, (os.fstat(file).st_size, position)
sys.stdout.buffer.write(b"".join(rest))
"""


class Reader:
    """A program that opens a file, reads its beginning, and the rest when it is told to."""

    def __init__(self, program: Callable[..., Program], path: Path, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._opened, self._go = directory / "opened", directory / "go"
        os.mkfifo(self._go)
        code = f"import os, sys\n{HOLD}"
        self._program = program(sys.executable, "-I", "-c", code, path, self._opened, self._go)
        wait_until(self._opened.exists, "the reader has opened the file")

    def rest(self) -> str:
        wait_until(self._release, "the reader waits")
        done = self._program.wait()
        assert done.status == 0, done.err.decode().splitlines()[-1]
        return done.text

    def _release(self) -> bool:
        try:
            os.close(os.open(self._go, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True


def inode(path: Path) -> int:
    return int(run("stat", "-c", "%i", path).text)


@pytest.mark.semantics("S7.1", "S12.5", "S13")
@pytest.mark.parametrize("entry_ttl", [0, 3600])
def test_a_new_content_of_a_resource_is_a_new_inode_and_the_open_file_stays_what_it_was(
    mounted: Mounts, programs: type[Program], server: ScriptedServer, tmp_path: Path, entry_ttl: int
) -> None:
    server.add("test://d/file", OLD)
    path = mounted(server.source("docs", ttl={"listing": entry_ttl, "content": 0})) / "mcp-server+docs/test/d/file"
    before = inode(path)
    reader = Reader(programs, path, tmp_path)
    server.add("test://d/file", NEW)
    # The kernel may still hold the name of the old inode: that it is outdated must not show.
    assert run("cat", path).text == NEW
    assert inode(path) != before
    assert run("wc", "-c", path).text.split()[0] == str(len(NEW))
    assert reader.rest() == OLD
    assert run("cat", path).text == NEW


@pytest.mark.semantics("S13")
def test_a_large_local_file_that_is_rewritten_while_it_is_read_gives_an_error_and_never_a_mixture(
    mounted: Mounts, programs: type[Program], tmp_path: Path
) -> None:
    folder_path = tmp_path / "folder"
    folder_path.mkdir()
    (folder_path / "file").write_bytes(b"o" * 8_000_000)
    path = mounted(folder("local", folder_path, ttl=0)) / "bb-filesystem+local+file/file"
    reader = Reader(programs, path, tmp_path)
    (folder_path / "file").write_bytes(b"n" * 8_000_000)
    with pytest.raises(AssertionError, match=r"Stale file handle|Input/output error"):
        reader.rest()
    assert run("cat", path).text == "n" * 8_000_000


@pytest.mark.semantics("S17.1")
def test_local_files_are_looked_at_again_after_a_second(mounted: Mounts, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    path = mounted(folder("local", tmp_path)) / "bb-filesystem+local+file/file"
    assert run("cat", path).text == "old"
    (tmp_path / "file").write_text("the new one")
    wait_until(lambda: run("cat", path).text == "the new one", "the change shows")
    (tmp_path / "late").write_text("x")
    wait_until(lambda: run("cat", path.with_name("late"), status=None).text == "x", "the new file shows")


@pytest.mark.semantics("S18")
def test_a_notified_change_of_a_content_and_of_the_listing_shows_at_once(
    mounted: Mounts, server: ScriptedServer
) -> None:
    server.add("test://d/file", OLD)
    server.add("test://d/other", "other")
    directory = mounted(server.source("docs", ttl=3600)) / "mcp-server+docs/test/d"
    path = directory / "file"
    assert run("cat", path).text == OLD
    before = inode(path), inode(directory / "other")
    server.add("test://d/file", NEW)
    server.say("notifications/resources/updated", uri="test://d/file")
    wait_until(lambda: run("cat", path).text == NEW, "the new content shows")
    assert inode(path) != before[0]
    assert inode(directory / "other") == before[1]
    assert run("ls", directory, directory / "new", status=2).text == f"{directory}:\nfile\nother\n"
    server.add("test://d/new", "new")
    server.remove("test://d/other")
    server.say("notifications/resources/list_changed")
    wait_until(lambda: run("ls", directory).text.split() == ["file", "new"], "the new listing shows")
    assert run("cat", directory / "new").text == "new"
    assert errno_of("open(sys.argv[1])", directory / "other") == "ENOENT"


@pytest.mark.semantics("S19")
def test_an_unchanged_content_keeps_the_page_cache(mounted: Mounts, server: ScriptedServer) -> None:
    server.add("test://d/file", OLD)
    mount = mounted(server.source("docs", ttl={"listing": 3600, "content": 0}))
    path = mount / "mcp-server+docs/test/d/file"
    assert run("cat", path).text == OLD
    # mincore(2) tells which pages the kernel has before anything is read again.
    code = """
import ctypes, mmap
with open(sys.argv[1], "rb") as file:
    size = os.fstat(file.fileno()).st_size
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    address = libc.mmap(None, ctypes.c_size_t(size), 1, 1, file.fileno(), ctypes.c_long(0))
    pages = -(-size // mmap.PAGESIZE)
    vector = (ctypes.c_ubyte * pages)()
    assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), vector) == 0
    print(sum(v & 1 for v in vector), pages)
"""
    reads = server.reads()
    cached, pages = map(int, python(code, path).text.split())
    assert server.reads() > reads
    assert cached == pages
