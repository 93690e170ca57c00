"""What programs that watch a mount are told of changes at its sources (S43)."""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from harness import Mounts, folder
from programs import Program, errno_of, run, shell, wait_until
from scripted import ScriptedServer
from watched import WATCHING, Watcher, events_of, toucher_of


@pytest.mark.semantics("S43", "S43.1", "S43.3", "S43.5")
def test_changes_of_a_source_are_events(mounted: Mounts, programs: type[Program], server: ScriptedServer) -> None:
    for name in ("one", "two"):
        server.add(f"docs://a/{name}", name)
    mount = mounted(server.source("docs"), tables={"mount": {"inotify": True}})
    place = mount / "mcp-server+docs/docs/a"
    run("cat", place / "one", place / "two")
    watcher = Watcher(programs(sys.executable, WATCHING, place, place / "one"))
    for content in ("new", "newer"):  # a program watches the inode that it has found, whatever the version is
        before = server.log().count("read docs://a/one")
        server.add("docs://a/one", content)
        server.say("notifications/resources/updated", uri="docs://a/one")
        wait_until(lambda: watcher.events(f"MODIFY {place} one", f"MODIFY {place / 'one'} "), "both are told")
        assert server.log().count("read docs://a/one") == before
        assert run("cat", place / "one").text == content
    server.add("docs://a/three", "3")
    server.add("docs://a/b/c", "c")
    server.remove("docs://a/two")
    server.say("notifications/resources/list_changed")
    told = (f"CREATE {place} three", f"CREATE,DIRECTORY {place} b", f"DELETE {place} two")
    wait_until(lambda: watcher.events(*told), "names that came and went")
    assert run("ls", place).text.split() == ["b", "one", "three"]
    for call in (
        "os.utime(sys.argv[1])",
        "os.unlink(sys.argv[1])",
        "os.rename(sys.argv[1], sys.argv[1] + 'x')",
        "os.truncate(sys.argv[1], 0)",
        "os.mknod(sys.argv[1] + 'new')",
        "os.mkdir(sys.argv[1] + 'new')",
        "os.symlink('x', sys.argv[1] + 'new')",
    ):
        assert errno_of(call, place / "one") == "EROFS"
    assert (events_of(mount)["on"], events_of(mount)["failed"]) == (True, 0)
    first = toucher_of(mount.pid)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    server.remove("docs://a/b/c")
    server.say("notifications/resources/list_changed")
    wait_until(lambda: watcher.events(f"DELETE,DIRECTORY {place} b"), "another process goes on")
    hanging = toucher_of(mount.pid)
    assert hanging is not None
    os.kill(hanging, signal.SIGSTOP)  # the unmount does not wait for it


@pytest.mark.semantics("S18", "S18.8", "S43.2", "S43.6")
def test_changes_of_folders_are_events(mounted: Mounts, programs: type[Program], tmp_path: Path) -> None:
    """What others change in a folder, and not what programs of the mount change, whose events the kernel makes."""
    roots = notes, work = tmp_path / "notes", tmp_path / "work"
    for root in roots:
        root.mkdir()
        (root / "old").write_text("old")
    mount = mounted(folder("notes", notes), folder("work", work, capabilities=["read", "list", "write"]))
    shown, written = (mount / f"bb-filesystem+{root.name}+file" for root in roots)
    run("ls", "-l", shown, written)
    watcher = Watcher(programs(sys.executable, WATCHING, shown, written))
    wait_until(lambda: events_of(mount)["watched"] == 2, "bbfs has found the watches")
    for root, there in zip(roots, (shown, written), strict=True):
        (tmp_path / "new").write_text("new")
        (tmp_path / "new").rename(root / "new")  # at once: its name and its content would be two events
        with (root / "old").open("a") as file:
            file.write("er")
        events = f"CREATE {there} new", f"MODIFY {there} old"
        wait_until(partial(watcher.events, *events), "what is new")
        (root / "old").rename(root / "moved")
        wait_until(partial(watcher.events, f"DELETE {there} old", f"CREATE {there} moved"), "a rename")
    shell("mkdir dir two; rmdir two", directory=written)
    own = "CREATE,DIRECTORY {} dir", "CREATE,DIRECTORY {} two", "DELETE,DIRECTORY {} two"
    wait_until(lambda: watcher.events(*(each.format(written) for each in own)), "the kernel's own events, once")
    for root in roots:
        (root / "moved").unlink()
    last = f"DELETE {shown} moved", f"DELETE {written} moved"
    wait_until(lambda: watcher.events(*last), "nothing came twice")
