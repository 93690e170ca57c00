"""What was fetched before is read while the source is away, also by the next mount."""

import pytest
from harness import Mounts, folder
from programs import wait_until
from scripted import ScriptedServer

LONG = {"listing": "1h", "content": "0s"}


def fill(server: ScriptedServer, count: int = 20) -> None:
    for number in range(count):
        server.add(f"test://d/{number:02}.txt", f"text {number}\n", mimeType="text/plain")


@pytest.mark.semantics("S42")
def test_a_fetch_serves_the_next_mount_without_its_server(mounted: Mounts, server: ScriptedServer) -> None:
    fill(server)
    state, source = mounted.state(), server.source("docs", ttl=LONG)
    first = mounted(source, state=state)
    assert first.bbfs("fetch", "docs").text == "mcp-server+docs: 20 files loaded, 0 on disk already, 150 B\n"
    first.kill()  # the disk has it when the command has ended
    for number in range(20):
        server.crash(f"test://d/{number:02}.txt")
    again = mounted(source, state=state, mount_point=first.path, expected=["crash", "closed", "Unreachable", "ended"])
    for number in range(20):
        assert (again / f"mcp-server+docs/test/d/{number:02}.txt").read_text() == f"text {number}\n"


@pytest.mark.semantics("S42.1")
def test_a_fetch_that_fails_in_part_ends_with_1(mounted: Mounts, server: ScriptedServer) -> None:
    fill(server, 3)
    server.fail("test://d/01.txt", -32002)
    mount = mounted(server.source("docs"), folder("local", server.directory), expected=["01.txt"])
    done = mount.bbfs("fetch", mount.path, "--max-files", "10", status=1)
    assert done.text.endswith("2 files loaded, 0 on disk already, 1 failed, 14 B\n")
    assert "local: a local folder is read where it is" in done.err.decode()
    assert "01.txt: " in done.err.decode()
    done = mount.bbfs("fetch", mount / "mcp-server+docs/test/d/02.txt")
    assert done.text == "mcp-server+docs/test/d/02.txt: 0 files loaded, 1 on disk already, 7 B\n"
    assert "no such resource" in mount.bbfs("fetch", mount / "mcp-server+docs/test/x", status=1).err.decode().lower()


@pytest.mark.semantics("S42.2")
def test_a_pinned_source_is_there_without_its_server(mounted: Mounts, server: ScriptedServer) -> None:
    fill(server)
    state, source = mounted.state(), server.source("docs", pin=True, maxStale="0s", ttl=LONG)
    first = mounted(source, state=state)
    wait_until(lambda: "20 files pinned, 150 B on disk\n" in first.bbfs("status", first.path).text, "all are there")
    assert "is pinned by its option pin" in first.bbfs("fetch", "--unpin", "docs", status=1).err.decode()
    first.stop()
    for number in range(20):
        server.crash(f"test://d/{number:02}.txt")
    again = mounted(source, state=state, mount_point=first.path, expected=["not all that is pinned", "closed", "ended"])
    for number in range(20):
        assert (again / f"mcp-server+docs/test/d/{number:02}.txt").read_text() == f"text {number}\n"


@pytest.mark.semantics("S42.2")
def test_a_path_is_pinned_until_it_is_not(mounted: Mounts, server: ScriptedServer) -> None:
    fill(server, 3)
    mount = mounted(server.source("docs"))
    assert mount.bbfs("fetch", "--pin", mount / "mcp-server+docs/test/d/01.txt").text.endswith("7 B\n")
    wait_until(lambda: "docs: 1 file pinned, 7 B on disk\n" in mount.bbfs("status", mount.path).text, "it is pinned")
    assert "pinned of docs: test/d/01.txt" in mount.bbfs("fetch", "--unpin", "docs", status=1).err.decode()
    mount.bbfs("fetch", "--unpin", mount / "mcp-server+docs/test/d/01.txt")
    wait_until(lambda: "pinned" not in mount.bbfs("status", mount.path).text, "it is no more")
