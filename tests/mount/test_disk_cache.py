"""What is on disk serves the next mount, a source that is down, and contents that memory has no room for."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from harness import Mounts, State, folder
from programs import errno_of, run, shell, wait_until
from scripted import ScriptedServer

LONG = {"listing": "1h", "content": "1h"}


def kept(state: State) -> list[str]:
    """The digests of the contents on disk, in files and in the index."""
    directory = state.home / "cache/bbfs/contents"
    found = [path.name for path in directory.glob("??/*")]
    if (directory / "index.sqlite").exists():
        with closing(sqlite3.connect(directory / "index.sqlite")) as db:
            found += [row[0] for row in db.execute("SELECT digest FROM small UNION SELECT digest FROM content")]
    return found


def fill(server: ScriptedServer, count: int = 30) -> None:
    for number in range(count):
        server.add(f"test://d/{number % 3}/{number:02}.txt", f"text {number}\n" * number, mimeType="text/plain")


def add_several(server: ScriptedServer) -> None:
    """A resource of several contents, which is a directory once it was loaded."""
    server.add_contents("test://several", {"text": "one"}, {"text": "two", "uri": "test://several/second"})


def walk(directory: Path) -> str:
    """Everything that a program can see: names, sizes, times of files, bytes."""
    files = "find . -type f ! -name .about.md"  # which has the state of the source
    listed = shell(f"ls -lR --time-style=+ .; {files} -printf '%p %s %T@\\n' | sort", directory=directory).text
    return listed + shell(f"{files} | sort | xargs cat; {files} | xargs grep text | sort", directory=directory).text


@pytest.mark.semantics("S17.2")
def test_after_a_remount_nothing_fresh_is_asked_for(mounted: Mounts, server: ScriptedServer) -> None:
    fill(server)
    add_several(server)
    state, source = mounted.state(), server.source("docs", ttl=LONG)
    first = mounted(source, state=state)
    seen = walk(first / "mcp-server+docs")
    first.stop()
    assert len(kept(state)) == 32
    asked = server.log()
    assert server.reads() == 31
    second = mounted(source, state=state)
    assert walk(second / "mcp-server+docs") == seen
    assert server.log() == asked  # not even started


@pytest.mark.semantics("S17")
def test_a_listing_that_was_announced_to_be_outdated_is_asked_for_after_a_remount(
    mounted: Mounts, server: ScriptedServer
) -> None:
    server.add("test://one", "1")
    state, source = mounted.state(), server.source("docs", ttl=LONG)
    first = mounted(source, state=state)
    directory = first / "mcp-server+docs/test"
    assert run("ls", directory).text == "one\n"
    server.hang_listing()
    server.add("test://two", "2")
    lists = server.lists()
    server.say("notifications/resources/list_changed")
    wait_until(lambda: server.lists() > lists, "the source is asked again")
    first.stop()
    server.release_listing()
    assert run("ls", mounted(source, state=state) / "mcp-server+docs/test").text == "one\ntwo\n"


@pytest.mark.semantics("S15.2")
@pytest.mark.parametrize("how", ["no cache on disk", "too small a cache", "a source that is not kept on disk"])
def test_without_room_on_disk_the_log_names_the_limits(mounted: Mounts, server: ScriptedServer, how: str) -> None:
    server.add("test://large", "x" * (3 << 20))
    cache: dict[str, object] = {"memory": "1 MiB"}
    options: dict[str, object] = {}
    if how == "a source that is not kept on disk":
        options["disk"] = False
    else:
        cache["disk"] = 0 if how == "no cache on disk" else "2 MiB"
    limits = r"more than the memory budget of 1048576 bytes .*(\[cache\] disk|its option disk)"
    mount = mounted(server.source("docs", **options), tables={"cache": cache}, expected=[limits])
    assert errno_of("open(sys.argv[1]).read()", mount / "mcp-server+docs/test/large") == "EFBIG"
    mount.stop()
    assert kept(mount.state) == []


def test_nothing_of_a_local_folder_and_of_what_must_not_be_is_on_disk(
    mounted: Mounts, server: ScriptedServer, tmp_path: Path
) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local/file").write_text("local")
    server.add("test://a", "secret")
    mount = mounted(server.source("docs", disk=False), folder("here", tmp_path / "local"))
    assert run("cat", mount / "mcp-server+docs/test/a", mount / "bb-filesystem+here+file/file").text == "secretlocal"
    mount.stop()
    assert kept(mount.state) == []
