"""The commands with a mount, in processes of their own."""

import ctypes
import json
import logging
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from forked_daemon import ForkedDaemon, forked
from programs import Program, children_of, descriptors_of, waits_in_fuse
from repository import SERVERS
from scripted import PROGRAM, ScriptedServer

from bbfs import __version__
from bbfs.cli import logs
from bbfs.cli.commands import mount as mount_command
from bbfs.cli.demo import remove_busy
from bbfs.fuse import mounting, mountpoint, places
from bbfs.fuse.mountpoint import ATTRIBUTE, STATUS, STATUS_DIRECTORY, TYPE

Run = Callable[..., Result]
SYS_PIDFD_GETFD = 438
Mount = Callable[..., tuple[Path, ForkedDaemon]]
Process = Callable[..., "subprocess.CompletedProcess[bytes]"]
Until = Callable[..., None]


def text(done: "subprocess.CompletedProcess[bytes]") -> str:
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.semantics("S2.2", "S9", "S11")
def test_paths_uris_and_names_are_read_through_the_mount(
    mount: Mount, process: Process, knowledge: list[str], folder: Path
) -> None:
    point, _ = mount("--dir", f"via-mount={folder}", *knowledge)
    uri = "bb-filesystem+via-mount+file:./hello.txt"
    path = point / "bb-filesystem+via-mount+file/hello.txt"
    assert text(process("cat", path, uri, "via-mount/hello.txt")) == "hello\n" * 3
    assert text(process("cat", "hello.txt", cwd=path.parent)) == "hello\n"
    assert text(process("ls", cwd=path.parent)) == text(process("ls", path.parent))
    assert text(process("ls", cwd=point)) == text(process("ls", point))
    assert text(process("ls", point)) == "bb-filesystem+via-mount+file/\nmcp-server+shelf/\n"
    assert "hello.txt" in text(process("ls", "-lR", "via-mount"))
    assert text(process("path", uri)) == f"{path}\n"
    assert text(process("uri", path)) == f"{uri}\n"
    assert text(process("cat", "bb-filesystem+via-mount+file:./sub dir/grüße.md")) == "# Grüße\n"
    document = json.loads(text(process("stat", "--json", path)))[0]
    assert (document["uri"], document["size"], document["mount"]) == (uri, 6, str(point))
    document_uri = "mcp-server+shelf+resource://knowledge/guides/document/first"
    server_path = point / "mcp-server+shelf/resource/knowledge/guides/document/first"
    assert (
        text(process("cat", document_uri, server_path, "resource://knowledge/guides/document/first")) == "# First\n" * 3
    )
    assert text(process("uri", server_path)) == f"{document_uri}\n"
    missing = process("cat", point / "mcp-server+shelf/resource/none", "/etc/passwd")
    assert missing.returncode == 1
    assert b"none: No such file or directory" in missing.stderr
    assert b"/etc/passwd: not inside a bbfs mount" in missing.stderr


def test_what_no_listing_has_is_found_through_the_mount(mount: Mount, process: Process, tmp_path: Path) -> None:
    log, config = tmp_path / "calls", tmp_path / "tools.toml"
    server = SERVERS / "calls.py"
    command = f"mcpConfig = {{ command = {str(sys.executable)!r}, args = ['-I', {str(server)!r}, {str(log)!r}] }}"
    config.write_text(f"[[sources]]\nname = 't'\n{command}\ntools = 'read-only'\nstart = 'eager'\n")
    assert text(process("sources", "--offline", "--json", "--config", config)).count('"idle"') == 1
    assert not log.exists()  # nobody has started it
    point, _ = mount("--config", config)
    assert text(process("ls", point / "mcp-server+t/tool/echo?text=x")) == "echo?text=x\n"
    parts = process("cat", point / "mcp-server+t/tool/several?")
    assert parts.returncode == 0, parts.stderr
    assert b"# notes\n" in parts.stdout
    wrong = process("cat", point / "mcp-server+t/tool/echo?times=2")
    assert wrong.returncode == 1
    assert b"text" in wrong.stderr  # which argument is missing
    assert process("ls", point / "mcp-server+t/tool/none").returncode == 1


@pytest.mark.semantics("S12")
def test_a_broken_resource_has_a_path_a_uri_and_metadata(mount: Mount, process: Process, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "server")
    server.add("test://d/broken", "x", title="A Title")
    server.fail("test://d/broken", -32603)
    options = ["--mcp", f"s={sys.executable} -I -S {PROGRAM} {server.directory}"]
    point, _ = mount(*options)
    uri, path = "mcp-server+s+test://d/broken", point / "mcp-server+s/test/d/broken"
    assert text(process("path", uri)) == f"{point / 'mcp-server+s+test/d/broken'}\n"
    assert text(process("uri", path)) == f"{uri}\n"
    assert text(process("uri", "broken", cwd=path.parent)) == f"{uri}\n"  # no name of a source
    assert server.reads() == 0
    for operands in ([path], [uri], [*options, uri]):
        document = json.loads(text(process("stat", "--json", *operands)))[0]
        assert (document["uri"], document["title"], document["kind"]) == (uri, "A Title", "file")
        assert "as told" in document["error"]
        assert "size" not in document
    assert process("stat", path.with_name("none")).returncode == 1
    failed = process("cat", path)
    assert failed.returncode == 1
    assert b"as told" in failed.stderr


def test_a_resource_of_several_contents_is_read_as_a_whole(mount: Mount, process: Process) -> None:
    options = ["--mcp", f"several={shlex.join(forked(SERVERS / 'resources.py'))}"]
    point, _ = mount(*options)
    direct = process("cat", *options, "mcp-server+several+test://many")
    mounted = process("cat", point / "mcp-server+several/test/many")
    assert len(text(direct)) > 0
    assert sorted(text(mounted)) == sorted(text(direct))


def test_a_mount_of_another_user_is_used_only_by_its_path(
    mount: Mount, bbfs: Run, only: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point, _ = mount(*only)
    path = point / "bb-filesystem+notes+file"
    uri = "bb-filesystem+notes+file:./hello.txt"
    assert bbfs("ls", "notes").exit_code == bbfs("refresh", path).exit_code == 0
    table = [replace(each, user=4711) if each.is_bbfs else each for each in mountpoint.mounts()]
    with monkeypatch.context() as patched:
        patched.setattr(mountpoint, "mounts", lambda: table)
        for command in (
            ["ls", "notes"], ["cat", uri], ["stat", uri], ["watch", "notes"], ["refresh", "notes"], ["sources"],
            ["put", folder / "hello.txt", "notes/hello.txt"], ["uri", "notes/hello.txt"],
        ):  # fmt: skip
            result = bbfs(*command)
            assert result.exit_code == 1 or "by the rule alone" in result.stderr, command
            assert str(point) not in result.output, command
        assert "belongs to another user" in bbfs("doctor").stdout
        assert bbfs("cat", path / "hello.txt").stdout == "hello\n"
        patched.setenv("BBFS_MOUNT", str(point))
        assert "hello.txt" in bbfs("ls", "notes").stdout
        # A mount may name any socket: only its own user's is spoken to.
        refused = bbfs("refresh", path)
        assert refused.exit_code == 1
        assert "belongs to another user" in refused.stderr


def test_names_and_umount_do_not_wait_for_a_daemon_that_hangs(
    mount: Mount, bbfs: Run, only: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mount_command, "ENDS_WITHIN", 0.1)
    looks = [{1}, set[int]()]  # after the unmount another mount has the number of the device
    monkeypatch.setattr(mounting, "copies", lambda _: looks.pop())
    point, daemon = mount(*only)
    daemon.send_signal(signal.SIGSTOP)
    with pytest.raises(mountpoint.MountError, match="does not answer"):
        mountpoint.names(str(point), timeout=0.5)
    result = bbfs("umount", point)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"its daemon has not ended within 0.1 s: process {daemon.pid} is stopped" in result.stderr
    assert mountpoint.mount_at(str(point)) is None
    daemon.send_signal(signal.SIGCONT)
    assert daemon.wait(20) == 0


def test_a_short_name_is_followed_where_a_source_is_indexed(mount: Mount, process: Process, only: list[str]) -> None:
    point, _ = mount(*only)
    done = process("index", f"{point.name}/notes", cwd=point.parent)
    assert done.stdout.decode() == f"{point.name}/notes: 2 documents indexed, 0 unchanged\n", done.stderr


def test_a_search_that_no_mount_answers_fails_also_with_q(mount: Mount, process: Process, only: list[str]) -> None:
    points = [mount(*only)[0] for _ in range(2)]
    for point in points:
        for socket in places_of_control(point):
            socket.unlink()
    done = process("search", "-q", "hello")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"the control socket" in done.stderr


def places_of_control(point: Path) -> list[Path]:
    """Return the control socket of a mount."""
    return [Path(os.fsdecode(os.getxattr(point, ATTRIBUTE)))]


def test_doctor_asks_for_no_sources_beside_a_mount_with_its_own(
    mount: Mount, process: Process, only: list[str]
) -> None:
    mount(*only)
    found = json.loads(process("doctor", "--json").stdout)
    [configuration] = [each for each in found if each["check"] == "configuration"]
    assert configuration["level"] == "ok"
    assert "the mounts have their own" in configuration["finding"]


def test_a_missing_file_of_the_command_line_is_refused_like_a_missing_folder(process: Process, tmp_path: Path) -> None:
    for option, named in (("--source", "shop=nosuch.db"), ("--source", "nosuch.zip"), ("--dir", "nosuch")):
        done = process("mount", tmp_path / "mnt", option, named, cwd=tmp_path)
        assert done.returncode == 1, named
        missing = named.rpartition("=")[2]
        assert done.stderr.decode().endswith(f"{tmp_path}/{missing}: No such file or directory\n"), done.stderr


def test_the_audit_has_who_did_what_and_the_log_is_objects(mount: Mount, only: list[str], tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    writable = ["-o", "notes.capabilities=read,list,write", "--audit", str(audit), "--audit-reads"]
    point, daemon = mount(*only, *writable, "--log-format", "json", "-v")
    inside = point / "bb-filesystem+notes+file"
    script = 'cat hello.txt; echo new >b; mv b "$(printf "c\\nd")"; rm hello.txt; cat nosuch'
    subprocess.run(["sh", "-c", script], cwd=inside, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20)
    daemon.terminate()
    assert daemon.wait(20) == 0
    found = [json.loads(line) for line in audit.read_text().splitlines()]
    here = "bb-filesystem+notes+file"
    told = [(each["operation"], each["command"], each["path"], each["outcome"]) for each in found]
    for wanted in (
        ("open", "cat", f"{here}/hello.txt", "ok"),
        ("create", "sh", f"{here}/b", "ok"),
        ("write", "sh", f"{here}/b", "ok"),
        ("rename", "mv", f"{here}/b", "ok"),
        ("unlink", "rm", f"{here}/hello.txt", "ok"),
    ):
        assert wanted in told
    [renamed] = [each for each in found if each["operation"] == "rename" and each["command"] == "mv"]
    assert (renamed["to"], renamed["source"], renamed["uid"]) == (f"{here}/c\nd", "notes", os.getuid())
    assert [each["bytes"] for each in found if each["operation"] == "write" and each["command"] == "sh"] == [4]
    said = [json.loads(line) for line in point.with_suffix(".said").read_text().splitlines()]
    assert {"time", "level", "logger", "message", "pid"} == set(said[0])
    assert any(each["message"] == f"mounted on {point}" for each in said)


def test_info_names_every_path_and_makes_none(mount: Mount, process: Process, only: list[str], tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    before = json.loads(text(process("info", "--json", env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)})))
    assert before["runtime"] == f"{runtime}/bbfs"
    assert not runtime.exists()
    assert (before["configuration"], before["cache"]) == (
        f"{tmp_path}/config/bbfs/config.toml",
        f"{tmp_path}/cache/bbfs",
    )
    named = {"metadata", "contents", "index", "state", "pending", "logs", "logins", "runtime", "version"}
    assert named <= before.keys()
    point, _ = mount(*only)
    after = json.loads(text(process("info", "--json")))
    [mounted] = [each for each in after["mounts"] if each["path"] == str(point)]
    assert mounted["control"] == os.fsdecode(os.getxattr(point, ATTRIBUTE))
    assert mounted["inotify"]["why_off"].startswith("the kernel mount is read-only")
    assert os.path.exists(after["metadata"])
    shown = text(process("info"))
    assert mounted["control"] in shown
    assert "its events" in shown
    assert re.search(rf"{re.escape(after['logs'])} +\(not there\)", shown)


def test_load_prints_the_metadata_of_the_listing(mount: Mount, process: Process, knowledge: list[str]) -> None:
    point, _ = mount(*knowledge)
    uri = "mcp-server+shelf+resource://knowledge/guides/document/first"
    path = point / "mcp-server+shelf/resource/knowledge/guides/document/first"
    mounted = json.loads(text(process("stat", "--json", path)))[0]
    loaded = json.loads(text(process("load", "--direct", *knowledge, uri)))[0]["metadata"]
    for key in ("name", "title", "mimeType", "lastModified", "size", "annotations"):
        assert loaded.get(key) == mounted.get(key), key


@pytest.mark.semantics("S26.2")
def test_umount_ends_a_live_a_busy_and_a_dead_mount(mount: Mount, process: Process, only: list[str]) -> None:
    live, daemon = mount(*only)
    assert text(process("umount", live)) == ""
    assert mountpoint.mount_at(str(live)) is None
    assert daemon.wait(20) == 0
    busy, _ = mount(*only)
    with (busy / "bb-filesystem+notes+file/hello.txt").open("rb") as file:
        done = process("unmount", busy)
        assert (done.returncode, done.stdout) == (0, b"")
        assert b"was in use" in done.stderr
        assert mountpoint.mount_at(str(busy)) is None
        assert file.read() == b"hello\n"
    dead, daemon = mount(*only)
    daemon.kill()
    daemon.wait(20)
    if mountpoint.mount_at(str(dead)) is not None:
        assert text(process("umount", dead)) == ""
    assert mountpoint.mount_at(str(dead)) is None
    again = process("umount", dead)
    assert again.returncode == 0
    assert b"nothing is mounted there" in again.stderr
    other = process("umount", "/proc")
    assert other.returncode == 1
    assert b"not one of bbfs" in other.stderr


@pytest.mark.semantics("S26")
def test_umount_frees_the_programs_that_wait_for_a_daemon_that_hangs(
    mount: Mount, bbfs: Run, only: list[str], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mount_command, "ENDS_WITHIN", 0.1)
    monkeypatch.setattr(mounting, "PATIENCE", 0.1)
    point, daemon = mount(*only)
    daemon.send_signal(signal.SIGSTOP)
    waiting = subprocess.Popen(["stat", point / "bb-filesystem+notes+file/none"], stderr=subprocess.DEVNULL)
    until(lambda: waits_in_fuse(waiting.pid))
    found = {row["finding"]: row.get("remedy") for row in json.loads(bbfs("doctor", "--json", *only).stdout)}
    remedy = next(remedy for finding, remedy in found.items() if finding.startswith(f"{point} does not answer"))
    assert remedy.startswith(f"'bbfs umount {point}'")
    assert bbfs("umount", point).exit_code == 0
    assert waiting.wait(60) == 1
    assert mountpoint.mount_at(str(point)) is None


@pytest.mark.semantics("S26")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may abort a connection on every machine")
@pytest.mark.parametrize("command", ["umount", "mount"])
def test_a_killed_daemon_whose_connection_lasts_is_cleared(
    mount: Mount, process: Process, only: list[str], until: Until, command: str
) -> None:
    """As a thread of it does that waits in the kernel, this test keeps the daemon's descriptors of the connection."""
    point, daemon = mount(*only)
    pidfd = os.pidfd_open(daemon.pid)
    devices = [number for number, leads in descriptors_of(daemon.pid).items() if leads == "/dev/fuse"]
    kept = [ctypes.CDLL(None).syscall(SYS_PIDFD_GETFD, pidfd, number, 0) for number in devices]
    os.close(pidfd)
    assert kept
    assert min(kept) >= 0
    try:
        daemon.send_signal(signal.SIGSTOP)
        for child in children_of(daemon.pid):  # the notifier answers in its place
            os.kill(child, signal.SIGKILL)
        daemon.kill()
        daemon.wait(20)
        waiting = subprocess.Popen(["stat", point / "bb-filesystem+notes+file/none"], stderr=subprocess.DEVNULL)
        until(lambda: waits_in_fuse(waiting.pid))
        if command == "mount":
            assert text(process("mount", point, "--background", *only)) == ""
            assert mountpoint.names(str(point), timeout=20) == ["bb-filesystem+notes+file"]
        assert waiting.poll() is not None or command == "umount"
        assert process("umount", point).returncode == 0
        assert waiting.wait(20) == 1
    finally:
        for each in kept:
            os.close(each)
    assert mountpoint.mount_at(str(point)) is None


def test_background_returns_once_mounted_and_not_0_if_that_failed(
    fuse: None, process: Process, only: list[str], tmp_path: Path, until: Until
) -> None:
    point, log = tmp_path / "mnt", tmp_path / "log"
    try:
        done = process("mount", point, "--background", "--log", log, "--umask", "077", *only)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert (point / "bb-filesystem+notes+file/hello.txt").stat().st_mode & 0o777 == 0o400
        assert "mounted on" in log.read_text()
    finally:
        assert process("umount", point).returncode == 0
    until(lambda: "unmounted" in log.read_text())
    (tmp_path / "file").touch()
    failed = process("mount", tmp_path / "file", "--background", *only)
    assert failed.returncode == 32
    assert failed.stderr.decode().startswith("bbfs: ")
    inside = process("mount", tmp_path / "folder/mnt", "--background", "--dir", tmp_path / "folder/mnt/x")
    assert inside.returncode == 1
    assert mountpoint.mount_at(str(tmp_path / "folder/mnt")) is None


@pytest.mark.parametrize(
    ("command", "program"),
    [
        *(
            (["mount", "mnt"], each)
            for each in ("no-such-program-anywhere", "/nowhere/server", "./here/a.txt", "./here")
        ),
        *((each, "/nowhere/server") for each in (["mount", "mnt", "--background"], ["run"], ["serve"])),
    ],
)
def test_a_server_whose_program_is_missing_is_refused_at_once(
    bbfs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], program: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here/a.txt").touch()
    done = bbfs(*command, "--mcp", f"x={program}", *(["--", "true"] if command == ["run"] else []))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"bbfs: --mcp x: there is no program {program!r}\n"
    assert not (tmp_path / "mnt").exists()


def test_a_background_mount_says_which_programs_are_missing(fuse: None, process: Process, tmp_path: Path) -> None:
    config = tmp_path / "sources.toml"
    config.write_text('[[sources]]\nname = "a"\naccessMethod = "mcp"\nmcpConfig.command = "no-such-program"\n')
    said = "bbfs: a: there is no program 'no-such-program'; it is down until there is one\n"
    for words, expected in ([], said), (["-q"], ""):
        done = process("mount", tmp_path / "mnt", "--background", "--config", config, *words)
        assert process("umount", tmp_path / "mnt").returncode == 0
        assert (done.returncode, done.stderr.decode()) == (0, expected)


@pytest.mark.parametrize(
    "options", [[], ["--background"], ["--scratch", "kept"], ["--scratch", "kept", "--background"]]
)
def test_a_mount_point_that_cannot_be_made_is_named_in_one_line(
    fuse: None, process: Process, mount: Mount, tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    point, _ = mount("--dir", str(tmp_path / "here"))
    long = "a" * 300
    refused = {
        "/sys/no/right": "/sys/no/right cannot be made: ",
        f"{point}/new": f"{point}/new cannot be made: Read-only file system",
        f"here/{long}": f"{tmp_path}/here/{long} cannot be made: File name too long",
        "file": f"{tmp_path}/file is not a directory",
        "file/below": f"{tmp_path}/file is not a directory",
        "loop": f"{tmp_path}/loop: Too many levels of symbolic links",
        point.name: f"{point} is a bbfs mount already: 'bbfs umount {point}' first",
    }
    for place, said in refused.items():
        done = process("mount", place, "--dir", "here", *options, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (32, b"", 1)
        assert done.stderr.decode().startswith(f"bbfs: {said}")
    empty = process("mount", "", "--dir", "here", *options, cwd=tmp_path)
    assert (empty.returncode, b"'MNT': an empty path" in empty.stderr) == (1, True)


def test_a_daemon_in_the_background_keeps_a_log_that_commands_name(
    fuse: None, bbfs: Run, process: Process, folder: Path, tmp_path: Path, until: Until
) -> None:
    point = tmp_path / "mnt"
    log = places.log_path(str(point))
    assert log.parent == tmp_path / "state/bbfs/logs"
    log.parent.mkdir(0o777, parents=True)
    done = process("mount", point, "--background", "--dir", f"notes={folder}", "--mcp", "gone=false")
    try:
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        until(lambda: "mounted on" in log.read_text())  # the daemon writes it once it has left the terminal
        assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert f"its log: {log}" in bbfs("doctor").stdout
        assert f"the log of {point}: {log}" in bbfs("sources").stderr
        address = os.fsdecode(os.getxattr(point, ATTRIBUTE))
        os.kill(int(Path(address).stem.rpartition("-")[2]), signal.SIGKILL)
        until(lambda: mounting.is_dead(str(point)))
        assert f"is dead: its daemon is gone; its log: {log}" in bbfs("doctor").stdout
    finally:
        assert process("umount", point).returncode == 0


def test_a_log_that_is_large_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "logs/mnt.log"
    logs.also_log_to_bounded_file(str(path), logging.INFO)
    for number in range(300):
        logging.getLogger("bbfs.test").info("%012000d", number)
    assert {each.name for each in path.parent.iterdir()} == {"mnt.log", "mnt.log.1"}
    assert max(each.stat().st_size for each in path.parent.iterdir()) < logs.LARGEST_LOG + 12_300
    assert path.read_text().endswith("299\n")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="No such device"):
        logs.also_log_to_bounded_file(str(path), logging.INFO)


def test_sources_and_doctor_see_the_mount(mount: Mount, process: Process, folder: Path) -> None:
    point, _ = mount("--dir", f"seen={folder}")
    rows = [row for row in json.loads(text(process("sources", "--json"))) if row["mount"] == str(point)]
    assert [(row["id"], row["state"], row["resources"]) for row in rows] == [("seen", "up", 2)]
    for operand in (point, point / "seen", "seen"):
        assert [row["mount"] for row in json.loads(text(process("sources", operand, "--json")))] == [str(point)]
    assert json.loads((point / ".bbfs/status.json").read_text())["sources"][0]["resources"] == 2
    assert {row["resources"] for row in json.loads(text(process("sources", "--json", "--offline")))} == {None}
    checks = [(check["check"], check["finding"]) for check in json.loads(process("doctor", "--json").stdout)]
    assert ("mount", f"{point}, 1 source") in checks
    assert (f"source seen at {point}", "up, 2 resources") in checks
    assert f"source seen at {point}" not in process("doctor", "--json", "--dir", folder).stdout.decode()


def test_the_status_has_the_process_the_sources_and_the_programs_that_wait(
    mount: Mount, process: Process, folder: Path, until: Until
) -> None:
    point, daemon = mount("--dir", f"seen={folder}", "--mcp", "hung=sleep 1000", "-o", "hung.timeout=1h")

    def state() -> dict[str, Any]:
        [found] = json.loads(text(process("status", point, "--json")))
        return found

    assert text(process("cat", point / "bb-filesystem+seen+file/hello.txt")) == "hello\n"
    waiting = Program("ls", point / "mcp-server+hung")
    try:
        until(lambda: state()["waiting"])
        found, lines = state(), text(process("status", point)).splitlines()
    finally:
        waiting.kill()
    assert (waiting.pid, "ls") in [(each["pid"], each["program"]) for each in found["waiting"]]
    assert found["mount"] == str(point)
    assert found["process"].items() >= {"pid": daemon.pid, "version": __version__}.items()
    assert found["process"]["bytes"] > 10 << 20
    requests = {row["id"]: row["requests"] for row in found["sources"]}
    assert (requests["seen"]["ended"], requests["seen"]["failed"]) == (1, 0)
    assert 0 < requests["seen"]["median_seconds"] <= requests["seen"]["p95_seconds"]
    assert found["loads_from"] == {"disk": 0, "shared": 0, "source": 1}
    assert lines[0].startswith(f"{point}: up ")
    assert f"process {daemon.pid}," in lines[0]
    rows = [line.split() for line in lines]
    assert ["up", "1", "0"] in [[row[1], *row[3:5]] for row in rows if row[:1] == ["seen"]]
    assert [str(waiting.pid), "ls"] in [row[:2] for row in rows]
    assert str(point) in {each["mount"] for each in json.loads(process("status", "--json").stdout)}


def test_the_metrics_are_a_file_and_an_endpoint(mount: Mount, process: Process, folder: Path) -> None:
    point, _ = mount("--dir", f"seen={folder}", "--metrics", "127.0.0.1:0", "-v")
    url = re.search(r"metrics at (\S+)", point.with_suffix(".said").read_text())
    assert url is not None
    with urllib.request.urlopen(url[1], timeout=10) as answer:
        scraped = answer.read().decode()
    for told in (scraped, text(process("cat", point / ".bbfs/metrics"))):
        assert 'bbfs_source_requests_total{source="seen"} 0.0\n' in told
    taken = process("mount", folder.parent / "other", "--dir", folder, "--metrics", url[1].split("/")[2])
    assert taken.returncode != 0
    assert "Address already in use" in taken.stderr.decode()
    assert process("mount", folder.parent / "other", "--dir", folder, "--metrics", "9464").returncode == 1


def test_the_status_of_a_silent_mount_is_an_error(mount: Mount, process: Process, folder: Path, until: Until) -> None:
    assert process("status", folder).stderr.decode() == f"bbfs: {folder} is not a mount point\n"
    point, daemon = mount("--dir", str(folder))
    daemon.send_signal(signal.SIGSTOP)
    [hung] = json.loads(process("status", point, "--json").stdout)
    assert hung == {"mount": str(point), "error": mountpoint.silent(str(point))}
    assert f"'bbfs umount {point}' removes it" in hung["error"]
    daemon.kill()
    until(lambda: daemon.poll() is not None)
    dead = process("status", point)
    assert dead.returncode == 1
    assert f"{point}: is dead: its daemon is gone" in dead.stdout.decode()


def test_a_path_in_a_hung_mount_is_not_waited_for(
    mount: Mount, process: Process, only: list[str], tmp_path: Path
) -> None:
    point, daemon = mount(*only)
    (tmp_path / "link").symlink_to(point / "bb-filesystem+notes+file")
    daemon.send_signal(signal.SIGSTOP)
    inside = f"{point.name}/bb-filesystem+notes+file/hello.txt"
    commands = (
        ("cat", inside),
        ("cat", point.parent / inside),
        ("cat", "link/hello.txt"),
        ("ls", point.name),
        ("sources", point.name),
        ("search", "--in", point.name, "hello"),
        ("search", "hello", f"./{point.name}"),
        ("grep", "hello", point.name),
        ("watch", "--once", "--timeout", "3", point.name),
    )
    running = [
        subprocess.Popen(forked("-m", "bbfs", *command), cwd=tmp_path, stderr=subprocess.PIPE) for command in commands
    ]
    for command, each in zip(commands, running, strict=True):
        said = each.communicate(timeout=60)[1].decode()
        assert each.returncode == (2 if command[0] == "grep" else 1), command
        assert f"{point} does not answer" in said, (command, said)
    daemon.send_signal(signal.SIGCONT)
    assert text(process("cat", inside, cwd=tmp_path)) == "hello\n"


def test_a_mount_without_a_control_socket_hides_no_hit_of_others(
    mount: Mount, process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, unfit = tmp_path / "sources.toml", tmp_path / ("long" * 25)
    config.write_text('[[sources]]\nname = "kb"\ntype = "memory"\nconfig.resources = { "a.md" = "about a haystraw" }\n')
    unfit.mkdir(mode=0o700)
    with monkeypatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(unfit))
        without, _ = mount("--config", str(config))
    gone, _ = mount("--config", str(config))
    os.unlink(os.getxattr(gone, ATTRIBUTE))
    point, _ = mount("--config", str(config))
    done = process("search", "-l", "haystraw")
    assert done.stdout.decode().splitlines() == [str(point / "bb-memory+kb+memory/a.md")]
    said = [line for line in done.stderr.decode().splitlines() if str(tmp_path) in line]
    assert len(said) == 2
    assert f"passed over: {without}: the daemon of {without} has no control socket" in said[0]
    assert re.search(f"passed over: {gone}: the control socket .* is gone: unmount and mount again", said[1])


def test_the_status_of_an_older_bbfs_is_shown_as_far_as_it_goes(
    bbfs: Run, fuse: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"started": "2026-01-01T00:00:00Z", "now": "2026-01-03T01:00:00Z", "loads": 3, "sources": []}
    memory = dict.fromkeys(("bytes", "max_bytes", "contents", "hits", "misses", "evictions"), 0)
    (tmp_path / STATUS_DIRECTORY).mkdir()
    (tmp_path / STATUS_DIRECTORY / STATUS).write_text(json.dumps({**said, "memory": memory}))
    monkeypatch.setattr(mountpoint, "mount_at", lambda path: mountpoint.Mount(path, TYPE, 0))
    shown = bbfs("status", str(tmp_path)).stdout
    assert f"{tmp_path}: up 2 d 1 h, an older bbfs\n" in shown
    assert "loaded: 3 from sources\n" in shown


@pytest.mark.semantics("S35")
def test_a_server_that_was_left_out_is_named_with_the_reason(mount: Mount, process: Process, tmp_path: Path) -> None:
    host = tmp_path / "host.json"
    servers = {"nokey": {"command": "true", "env": {"KEY": "${NO_SUCH_KEY}"}}, "good": {"command": "false"}}
    host.write_text(json.dumps({"mcpServers": servers}))
    point, _ = mount("--mcp-config", str(host))
    reason = f"left out: {host}: mcpServers.nokey.env.KEY: environment variable NO_SUCH_KEY is not set"
    for command in ("tools", "ls", "sources"):
        done = process(command, "nokey")
        assert done.returncode == 1
        assert f"no source 'nokey' at {point}: {reason}\n" in done.stderr.decode()
    for command in (("sources", "--offline", str(point)), ("tools", str(point))):
        assert f"bbfs: nokey: {reason}" in process(*command).stderr.decode()
    found = [check for check in json.loads(process("doctor", "--json").stdout) if reason in check["finding"]]
    assert [(check["level"], check["check"]) for check in found] == [("warn", f"source nokey at {point}")]
    assert "NO_SUCH_KEY is not set" in (point / ".about.md").read_text()


def test_ls_as_json_loads_nothing_without_l(mount: Mount, process: Process, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "server")
    server.add("test://a.md", "text", mimeType="text/markdown")
    server.add("test://b/c", "more")
    source = ["--mcp", f"scripted={shlex.join([sys.executable, '-I', '-S', str(PROGRAM), str(server.directory)])}"]
    point, _ = mount(*source)
    for arguments in (["scripted"], [str(point / "mcp-server+scripted")], [*source, "scripted"]):
        entries = json.loads(text(process("ls", "-R", "--json", *arguments)))
        files = {entry["name"]: entry for entry in entries if entry["kind"] == "file" and entry["name"] != ".about.md"}
        assert [(entry["uri"], entry.get("mimeType"), entry.get("size")) for entry in files.values()] == [
            ("mcp-server+scripted+test://a.md", "text/markdown", None),
            ("mcp-server+scripted+test://b/c", None, None),
        ]
        assert all(re.fullmatch(r"\d{4}-.*Z", entry["lastModified"]) for entry in files.values())
    assert server.reads() == 0
    entries = json.loads(text(process("ls", "-R", "-l", "--json", "scripted")))
    sizes = {entry["name"]: entry.get("size") for entry in entries if entry["kind"] == "file"}
    assert (sizes["a.md"], sizes["c"]) == (4, 4)


def test_ls_as_json_of_a_large_directory_asks_its_daemon_once(
    mount: Mount, bbfs: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "server")
    for number in range(130):
        server.add(f"test://many/{number}.md", "text", mimeType="text/markdown" if number % 2 else None)
    server.add(f"test://many/{'é' * 60}/long", "in a directory")
    server.add(f"test://many/long?{'q' * 1000}", "with more than a page takes")
    point, _ = mount("--mcp", f"lot={shlex.join([sys.executable, '-I', '-S', str(PROGRAM), str(server.directory)])}")
    (point / "mcp-server+lot/test/many/7.md").read_bytes()  # its size is known now
    asked: list[str] = []
    get = os.getxattr

    def counted(path: str, name: str, **extra: bool) -> bytes:
        asked.append(name)
        return get(path, name, **extra)

    monkeypatch.setattr(os, "getxattr", counted)
    listed = bbfs("ls", "--json", "lot/test/many").stdout
    assert asked.count("user.bbfs.metadata") == 1  # the long one
    entries = {entry["name"]: entry for entry in json.loads(listed)}
    files = {name: entry for name, entry in entries.items() if entry["kind"] == "file"}
    for name, entry in files.items():
        assert json.loads(bbfs("ls", "--json", f"lot/test/many/{name}").stdout) == [entry]
    assert asked.count("user.bbfs.metadata") > 130
    assert len(entries) == 132
    assert (entries["7.md"]["size"], entries["8.md"].get("size")) == (4, None)
    assert server.reads() == 1


def test_what_the_source_says_is_told_through_the_mount(mount: Mount, process: Process, tmp_path: Path) -> None:
    config = tmp_path / "sources.toml"
    config.write_text(
        '[[sources]]\nname = "told"\naccessMethod = "mcp"\nmcpConfig.command = "no-such-program-anywhere"\n'
    )
    point, _ = mount("--config", str(config))
    for command in (["ls", "told"], ["cat", f"{point}/mcp-server+told/x/y"], ["stat", "mcp-server+told+x://y"]):
        done = process(*command)
        assert done.returncode == 1
        assert b"Host is down: " in done.stderr
        assert b"no-such-program-anywhere" in done.stderr


def test_of_several_mounts_the_one_that_has_it_is_read(
    mount: Mount, process: Process, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/only-here.txt").write_bytes(b"here\n")
    first, _ = mount("--dir", f"several={folder}")
    second, _ = mount("--dir", f"several={tmp_path / 'other'}")
    uri = "bb-filesystem+several+file:./"
    assert text(process("cat", f"{uri}hello.txt", f"{uri}only-here.txt")) == "hello\nhere\n"
    missing = process("cat", f"{uri}nowhere")
    assert missing.returncode == 1
    assert f"{uri}nowhere: at {first}, {second}: ".encode() in missing.stderr
    read = process("cat", "several/hello.txt", "several/only-here.txt")
    assert text(read) == "hello\nhere\n"
    which = "bbfs: several: at {}, not at {}; BBFS_MOUNT or a path chooses another"
    said = [line for line in read.stderr.decode().splitlines() if "passed over" not in line]  # mounts of other tests
    assert said == [which.format(first, second), which.format(second, first)]
    assert b"several" not in process("cat", "-q", "several/hello.txt").stderr
    missing = process("cat", "several/nowhere")
    assert missing.returncode == 1
    assert f"several/nowhere: at {first}, {second}: No such file or directory".encode() in missing.stderr
    table = text(process("sources"))
    assert table.splitlines()[0].split()[-1] == "MOUNT"
    assert all(any(line.endswith(str(point)) for line in table.splitlines()) for point in (first, second))


def test_a_variable_says_which_mount_is_meant(mount: Mount, process: Process, tmp_path: Path) -> None:
    points = {}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "which").write_text(name)
        points[name], _ = mount("--dir", f"shared={tmp_path / name}")
    for name, point in points.items():
        assert text(process("cat", "shared/which", env={"BBFS_MOUNT": str(point)})) == name
    wrong = process("cat", "shared/which", env={"BBFS_MOUNT": str(tmp_path)})
    assert wrong.returncode != 0
    assert f"{tmp_path} is no mount of bbfs (BBFS_MOUNT)".encode() in wrong.stderr


def test_a_directory_that_is_not_empty_is_told_before_it_is_hidden(
    fuse: None, process: Process, only: list[str], tmp_path: Path
) -> None:
    point = tmp_path / "full"
    point.mkdir()
    (point / "file").touch()
    try:
        done = process("mount", point, "--background", *only)
        assert (done.returncode, done.stdout) == (0, b"")
        assert done.stderr.decode() == f"bbfs: {point} is not empty; while it is mounted on, what is in it is hidden\n"
    finally:
        assert process("umount", point).returncode == 0


def test_the_demo_shows_its_session_and_leaves_nothing(fuse: None, process: Process, tmp_path: Path) -> None:
    done = process("demo", env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    shown = done.stdout.decode()
    for command in ("ls", "find", "cat", "grep -rn", "wc -c", "sha256sum", "bbfs search", "bbfs call", "sed -i"):
        assert f"\nmnt $ {command}" in shown
    for command in ("bbfs-knowledge import", "bbfs mount", "bbfs run", "bbfs umount"):
        assert f"\n$ {command}" in shown
    assert "The change was there after" in shown
    assert shown.endswith("nothing is left behind.\n")
    assert not list(tmp_path.glob("bbfs-demo-*"))


def test_the_demo_removes_its_folder_while_a_program_ends_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "cache").mkdir(parents=True)
    script = "while number=$((number + 1)); do : > cache/$number; [ $number != 2000 ] || echo; done"
    with subprocess.Popen(["timeout", "1", "sh", "-c", script], cwd=folder, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        remove_busy(folder)
    assert not folder.exists()


def test_on_a_terminal_the_demo_stays_until_ctrl_c(fuse: None, tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    demo = subprocess.Popen(
        [sys.executable, "-m", "bbfs", "demo"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "NO_COLOR": "1"},
        preexec_fn=lambda: os.close(controller),
    )
    os.close(terminal)
    try:
        shown = b""
        while b"until Ctrl-C" not in shown:
            shown += os.read(controller, 4096)  # ends at the latest with the demo
        (point,) = tmp_path.glob("bbfs-demo-*/mnt")
        assert mountpoint.names(str(point)) == ["bb-database+shop+sqlite", "bb-filesystem+notes+file", "mcp-server+kb"]
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 0
        assert b"\x1b" not in shown
        assert not list(tmp_path.glob("bbfs-demo-*"))
    finally:
        if demo.poll() is None:
            demo.terminate()
            demo.wait(30)
        os.close(controller)


_HEAVY = {
    "trio",
    "anyio",
    "pydantic",
    "pyfuse3",
    "mcp",
    "httpx2",
    "sqlite3",
    "importlib.metadata",
    "email",
    "fractions",
}
_HEAVY |= {
    "bbfs.config",
    "bbfs.sources",
    "bbfs.resources.manager",
    "bbfs.resources.commands.table",
    "bbfs.model.values",
}
"""What no command imports that asks a mount."""
_IMPORTED = """
import contextlib, io, json, sys
from bbfs.cli import main
for words in json.loads(sys.argv[1]):
    said, status = io.TextIOWrapper(io.BytesIO()), None
    with contextlib.redirect_stdout(said):
        try:
            main(words)
        except SystemExit as ended:
            status = ended.code
        said.flush()
    print(json.dumps([status, said.buffer.getvalue().decode(), [*sys.modules]]))
"""
"""Runs commands one after another. Prints how each ended, what it said, and what is imported by then."""


def test_a_command_that_asks_a_mount_imports_neither_an_event_loop_nor_sources(mount: Mount, tmp_path: Path) -> None:
    config, file = tmp_path / "sources.toml", tmp_path / "new.md"
    config.write_text('[[sources]]\nname = "kb"\ntype = "memory"\nconfig.resources = { "a.md" = "about a needle" }\n')
    file.write_text("another needle")
    point, _ = mount("--config", str(config))
    here = point / "bb-memory+kb+memory"
    status_and_output = {
        ("ls",): (0, "bb-memory+kb+memory"),
        ("ls", "-l", here): (0, "a.md"),
        ("ls", "--json", here): (0, '"size": 14'),
        ("cat", here / "a.md"): (0, "about a needle"),
        ("cat", "kb/a.md"): (0, "about a needle"),
        ("stat", here / "a.md"): (0, "bb-memory+kb+memory://a.md"),
        ("path", "bb-memory+kb+memory://a.md"): (0, str(here / "a.md")),
        ("uri", here / "a.md"): (0, "bb-memory+kb+memory://a.md"),
        ("search", "needle"): (0, str(here / "a.md")),
        ("grep", "needle", here): (0, "about a needle"),
        ("sources",): (0, "kb"),
        ("tools",): (0, "SOURCE"),
        ("refresh", here): (0, ""),
        ("index", "--dry-run", "kb"): (0, "kb: "),
        ("put", file, here / "b.md"): (0, ""),
        ("pending",): (0, ""),
        ("watch", "--timeout", "0.1", here): (124, ""),
        ("umount", point): (0, ""),
    }
    *without_watch, watch, umount = status_and_output
    for commands in (without_watch, [watch, umount]):
        line = [sys.executable, "-c", _IMPORTED, json.dumps([[*map(str, each)] for each in commands])]
        done = subprocess.run(line, capture_output=True, timeout=60, check=True, text=True)
        for command, told in zip(commands, map(json.loads, done.stdout.splitlines()), strict=True):
            status, said = status_and_output[command]
            assert (told[0], said in told[1]) == (status, True), (command, told[:2], done.stderr)
            assert not (_HEAVY - ({"trio"} if watch in commands else set())) & {*told[2]}, command


def test_an_index_without_a_name_asks_no_mount(mount: Mount, process: Process, folder: Path, tmp_path: Path) -> None:
    point, _ = mount("--dir", f"theirs={folder}")
    none = process("index")
    assert (none.returncode, none.stdout) == (1, b"")
    assert b"no sources to work with" in none.stderr
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.md").write_text("text")
    config = tmp_path / "config" / "bbfs" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[[sources]]\nname = "mine"\ntype = "filesystem"\nconfig = {{ root = "{tmp_path}/own" }}\n')
    assert text(process("index")).startswith("bb-filesystem+mine+file: 1 document indexed")
    assert "theirs" in text(process("index", "theirs"))
    assert "theirs" in text(process("index", env={"BBFS_MOUNT": str(point)}))


@pytest.mark.semantics("S26.2")
def test_a_mount_that_another_namespace_keeps_is_named_and_leaves_the_next_one_alone(
    mount: Mount, process: Process, only: list[str]
) -> None:
    point, daemon = mount(*only)
    own = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    with subprocess.Popen([*own, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as elsewhere:
        assert elsewhere.stdin is not None
        assert elsewhere.stdout is not None
        elsewhere.stdin.write(b"there\n")
        assert elsewhere.stdout.read(6) == b"there\n"
        said = process("umount", point)
        assert (said.returncode, said.stdout) == (0, b"")
        assert b"another mount namespace (a container or a sandbox) still has it" in said.stderr
        assert f"or by 'kill {daemon.pid}'" in said.stderr.decode()
        text(process("mount", "--background", *only, point))
        daemon.terminate()
        assert daemon.wait(20) == 0
        assert (point / "notes" / "hello.txt").read_text() == "hello\n"
        elsewhere.stdin.close()
    assert process("umount", point).stderr == b""
