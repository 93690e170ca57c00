"""Events for programs that watch: on mounts of users who are not root, of other users, in other namespaces (S43)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from harness import Mount, Mounts, SourceTable, folder
from programs import Program, run, wait_until
from scripted import ScriptedServer
from watched import WATCHING, Watcher, events_of, toucher_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
ALICE, BOB, CAROL = 21001, 21002, 21003
WRITE = ["read", "list", "write"]
SHOWN, WORK = "mcp-server+docs/docs/a", "bb-filesystem+work+file"
IMITATE = """
import errno, os, sys
def outcome(call, *words, **more):
    try:
        call(*words, **more)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "OK"
said, (rounds, *places) = set(), sys.argv[1:]
for _ in range(int(rounds)):
    for place in places:
        for name in ("one", "never", "../.bbfs-" + os.urandom(16).hex()):
            path = place + "/" + name
            said |= {
                outcome(os.mknod, path), outcome(os.mkdir, path), outcome(os.symlink, "x", path),
                outcome(os.unlink, path), outcome(os.rmdir, path), outcome(os.utime, path, ns=(1, 2)),
                outcome(os.rename, path, path + "x"), outcome(os.truncate, path, 0),
            }
print(*sorted(said))
"""
AS_NUMBER = """
import os, sys
number, user, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
for _ in range(2000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(number - 1))
    child = os.fork()
    if child == 0:
        if os.getpid() == number:
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            try:
                os.unlink(path)
                os.mkdir(path)
            except OSError as error:
                os._exit(error.errno)
        os._exit(255 * (os.getpid() != number))
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ended != 255:
        sys.exit(ended)
sys.exit("no child had the number")
"""
REFUSALS = {"EACCES", "EEXIST", "ENOENT", "EROFS", "EPERM", "ENOTDIR"}


def as_user(user: int) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


@pytest.fixture
def place(short_path: Path) -> Path:
    """A directory that every user can enter. (Another run of pytest closes the one above `tmp_path` to others.)"""
    short_path.chmod(0o755)
    return short_path


@pytest.fixture
def users(fuse: None, place: Path) -> Iterator[None]:
    """Let Alice mount, as on any desktop. These are settings of the tests' own table of mounts alone."""
    (place / "passwd").write_text(Path("/etc/passwd").read_text() + f"alice:x:{ALICE}:{ALICE}::/:/bin/sh\n")
    os.mknod(place / "fuse", 0o020666, os.stat("/dev/fuse").st_rdev)
    (place / "fuse").chmod(0o666)
    bound = {place / "passwd": "/etc/passwd"}
    if os.stat("/dev/fuse").st_mode & 0o006 != 0o006:
        os.rename(place / "fuse", f"/dev/.bbfs-test-fuse-{os.getpid()}")
        bound[Path(f"/dev/.bbfs-test-fuse-{os.getpid()}")] = "/dev/fuse"
    for what, where in bound.items():
        subprocess.run(["mount", "--bind", what, where], check=True, timeout=20)
    yield
    for what, where in bound.items():
        subprocess.run(["umount", "-l", where], check=True, timeout=20)
        what.unlink()


def mount_of_alice(mounts: Mounts, place: Path, start: str, *sources: SourceTable) -> Mount:
    """Mount as Alice. start: what her shell runs before the daemon, in the same process."""
    state, point, python = mounts.state(), place / "mnt", place / "python"
    point.mkdir()
    python.write_text(f'#!/bin/sh\n{start} {sys.executable} "$@"\n')
    python.chmod(0o755)
    (point.parent / "work").mkdir()
    for each in (point, state.home, place / "work"):
        os.chown(each, ALICE, ALICE)
    wrapper = place / "as-alice"
    wrapper.write_text(f'#!/bin/sh\nexec {" ".join(as_user(ALICE))} {python} "$@"\n')
    wrapper.chmod(0o755)
    work = folder("work", place / "work", capabilities=WRITE)
    return mounts(*sources, work, state=state, mount_point=point, python=wrapper)


@pytest.fixture
def docs(place: Path) -> Iterator[ScriptedServer]:
    """A server that a daemon of any user can start."""
    before = os.umask(0)
    server = ScriptedServer(place / "server")
    yield server
    os.umask(before)


@pytest.mark.semantics("S43.5")
def test_the_mount_of_a_user_has_events_and_no_stranger_passes_for_the_process_that_makes_them(
    users: None, mounted: Mounts, programs: type[Program], docs: ScriptedServer, place: Path
) -> None:
    """The daemon of a shell that ignores SIGCHLD: the kernel gives the number of its child away at once."""
    docs.add("docs://a/one", "one")
    mount = mount_of_alice(mounted, place, "trap '' CHLD; exec", docs.source("docs"))
    shown, alice = mount / SHOWN, as_user(ALICE)
    run(*alice, "cat", shown / "one")
    watcher = Watcher(programs(*alice, sys.executable, WATCHING, shown))
    imitator = programs(*alice, sys.executable, "-c", IMITATE, "150", shown)
    for number in range(5):
        docs.add("docs://a/one", f"{number}")
        docs.say("notifications/resources/updated", uri="docs://a/one")
        wait_until(lambda: watcher.events(f"MODIFY {shown} one"), "each change is told once")
        docs.add("docs://a/new")
        docs.say("notifications/resources/list_changed")
        wait_until(lambda: watcher.events(f"CREATE {shown} new"), "a name that came")
        docs.remove("docs://a/new")
        docs.say("notifications/resources/list_changed")
        wait_until(lambda: watcher.events(f"DELETE {shown} new"), "a name that went")
    assert set(imitator.wait().text.split()) <= REFUSALS
    assert watcher.events()
    process = toucher_of(mount.pid)
    assert process is not None
    assert run(*alice, "head", "-c1", f"/proc/{process}/environ", status=None).status == 1  # nor by ptrace(2)
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: toucher_of(mount.pid) != process, "nobody waits for it")
    (place / "work/file").write_text("mine")
    run(sys.executable, "-c", AS_NUMBER, str(process), str(ALICE), mount / WORK / "file")
    assert (place / "work/file").is_dir()


@pytest.mark.semantics("S43", "S43.6")
def test_a_mount_in_a_user_namespace_has_events(
    users: None, mounted: Mounts, programs: type[Program], docs: ScriptedServer, place: Path
) -> None:
    alice = as_user(ALICE)
    if run(*alice, "unshare", "-U", "-r", "true", status=None).status:
        pytest.skip("no user may make a user namespace here")
    docs.add("docs://a/one", "one")
    docs.add("docs://a/two")
    mount = mount_of_alice(mounted, place, "exec unshare -U -m -r", docs.source("docs"))
    inside = [*alice, "nsenter", "-t", str(mount.pid), "-U", "-m", "--preserve-credentials"]
    shown, work = mount / SHOWN, mount / WORK
    run(*inside, "cat", shown / "one")
    watcher = Watcher(programs(*inside, sys.executable, WATCHING, shown, work))
    docs.add("docs://a/one", "other")
    docs.say("notifications/resources/updated", uri="docs://a/one")
    wait_until(lambda: watcher.events(f"MODIFY {shown} one"), "a new content")

    state = mount / ".bbfs/status.json"
    wait_until(lambda: json.loads(run(*inside, "cat", state).out)["inotify"]["watched"] == 2, "bbfs has found both")
    (place / "new").write_text("new")
    (place / "new").rename(place / "work/new")
    wait_until(lambda: watcher.events(f"CREATE {work} new"), "a file of the folder")
    docs.remove("docs://a/one")
    docs.say("notifications/resources/list_changed")
    wait_until(lambda: watcher.events(f"DELETE {shown} one"), "a name that went")


@pytest.mark.semantics("S28.2", "S43.7")
def test_other_users_are_told_of_what_they_may_list_and_gain_nothing(
    mounted: Mounts, programs: type[Program], docs: ScriptedServer, place: Path
) -> None:
    root = place / "work"
    root.mkdir()
    for name, owner, mode in (("open", ALICE, 0o755), ("own", ALICE, 0o700), ("bobs", BOB, 0o750)):
        (root / name).mkdir()
        (root / name / "one").write_text("one")
        os.chown(root / name, owner, owner)
        (root / name).chmod(mode)
    docs.add("docs://a/one", "one")
    sources = docs.source("docs"), folder("work", root, capabilities=WRITE)
    mount = mounted(*sources, tables={"mount": {"allow_other": True}})
    shown, work = mount / SHOWN, mount / WORK
    run("ls", "-lR", shown, work)
    may = {ALICE: ("open", "own"), BOB: ("open", "bobs"), CAROL: ("open",)}
    watchers: dict[int, Watcher] = {}
    for user, names in may.items():
        program = [*as_user(user), sys.executable, WATCHING]
        watchers[user] = Watcher(programs(*program, shown, *(work / name for name in names)))
        for name in {"open", "own", "bobs"}.difference(names):
            assert b"PermissionError" in run(*program, work / name, status=1).err
    wait_until(lambda: events_of(mount)["watched"] == 4, "bbfs has found all watches")
    imitators = [
        programs(*as_user(user), sys.executable, "-c", IMITATE, "60", shown, work / "own", work / "bobs")
        for user in (CAROL, CAROL)
    ]
    for number in range(4):
        docs.add("docs://a/one", f"{number}")
        docs.say("notifications/resources/updated", uri="docs://a/one")
        docs.add(f"docs://a/new{number}")
        docs.say("notifications/resources/list_changed")
        for name in ("open", "own", "bobs"):
            (place / "new").write_text("new")
            (place / "new").rename(root / name / f"new{number}")
        for user, names in may.items():
            told = [f"CREATE {work / name} new{number}" for name in names]
            told += [f"MODIFY {shown} one", f"CREATE {shown} new{number}"]
            wait_until(partial(watchers[user].events, *told), f"{user} is told of {told}")
    for each in imitators:
        assert set(each.wait().text.split()) <= REFUSALS
    assert all(each.events() for each in watchers.values())
    assert {path.name for path in root.rglob("*")} == {"open", "own", "bobs", "one", *(f"new{n}" for n in range(4))}
