"""Scratches on real mounts: programs write over the sources, and what they wrote is listed, discarded and applied."""

import json
import os
import pty
import select
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from forked_daemon import forked
from harness import State, config_text, mcp
from played_page import play
from programs import bbfs, shell, wait_until
from repository import DOCS, SERVERS

from bbfs.cli.operands import control_client
from bbfs.cli.operands.scratches import running
from bbfs.fuse import mountpoint
from bbfs.fuse.scratch import overlay, processes
from bbfs.fuse.scratch.directory import Scratch
from bbfs.model.errors import BbfsError
from bbfs.resources.commands.table import CallTool, Put, Remove, Retry

BOUND = 60.0
WRITABLE = ("-o", "notes.capabilities=read,list,write")
SOURCE = "bb-filesystem+notes+file"
UNPRIVILEGED = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all")
"""A command that may mount nothing but in a user namespace."""
BBFS = f'"{sys.executable}" -m bbfs'
ONE_AFTER_ANOTHER = """
import shlex, sys
from bbfs.cli import main
statuses = []
for line in sys.argv[1:]:
    try:
        main(shlex.split(line))
    except SystemExit as ended:
        statuses.append(ended.code)
print(statuses)
"""
"""Runs commands of bbfs in one process, and prints how each has ended."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of notes, and where it is mounted with a scratch."""

    state: State
    folder: Path
    mnt: Path
    scratch: Path

    @property
    def notes(self) -> Path:
        return self.mnt / SOURCE

    def bbfs(
        self, *words: str | Path, status: int | None = 0, by: Sequence[str] = (), meant: bool = False
    ) -> "CompletedProcess[str]":
        """Run a command. meant: names of sources are those at `mnt`, whatever else is mounted on this machine."""
        environ = self.state.environ() | ({"BBFS_MOUNT": str(self.mnt)} if meant else {})
        if by:
            done = subprocess.run(
                [*by, sys.executable, "-m", "bbfs", *map(str, words)], env=environ, stdin=subprocess.DEVNULL,
                capture_output=True, encoding="utf-8", errors="replace", timeout=BOUND, check=False,
            )  # fmt: skip
        else:
            forked = bbfs(*words, env=environ, status=None, timeout=BOUND)
            said = (each.decode(errors="replace") for each in (forked.out, forked.err))
            done = CompletedProcess([*map(str, words)], forked.status, *said)
        assert status is None or done.returncode == status, (done.returncode, done.stdout, done.stderr)
        return done

    def mount(self, *words: str | Path) -> None:
        given = ("--dir", f"notes={self.folder}", "--scratch", self.scratch, "--background")
        self.bbfs("mount", self.mnt, *given, *words)

    def run(
        self, *words: str | Path, status: int | None = 0, command: str, by: Sequence[str] = ()
    ) -> "CompletedProcess[str]":
        given = ("--at", self.mnt, *([] if "--on" in words else ["--dir", f"notes={self.folder}"]))
        return self.bbfs(
            "run", *given, *words, "--", "sh", "-ec", f'cd "{self.notes}"; {command}', status=status, by=by
        )

    def changes(self) -> list[str]:
        return self.bbfs("changes", self.mnt).stdout.replace(f"{SOURCE}/", "").splitlines()

    def files(self) -> dict[str, str]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_text() for path in found}

    def leftovers(self) -> list[str]:
        mounts = [mount.path for mount in mountpoint.mounts() if mount.path.startswith(str(self.folder.parent))]
        return [*mounts, *self.state.processes()]


@pytest.fixture(scope="module")
def overlays(fuse: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip the test where the kernel refuses this user an overlay."""
    root = tmp_path_factory.mktemp("overlay")
    for name in ("lower", "upper", "work", "mnt"):
        (root / name).mkdir()
    data = f"lowerdir={root}/lower,upperdir={root}/upper,workdir={root}/work"
    try:
        overlay.mount("none", str(root / "mnt"), "overlay", 0, data)
    except OSError as error:
        pytest.skip(f"the kernel refuses an overlay here: {error.strerror}")
    overlay.detach(str(root / "mnt"))


@pytest.fixture
def place(overlays: None, tmp_path: Path) -> Iterator[Place]:
    folder = tmp_path / "folder"
    (folder / "plans" / "old").mkdir(parents=True)
    for path in ("one", "two", "plans/a", "plans/old/b"):
        (folder / path).write_text(f"{path}\n")
    made = Place(State(), folder, tmp_path / "mnt", tmp_path / "scratch #1")
    try:
        yield made
        made.bbfs("umount", made.mnt)
        assert made.leftovers() == []
    finally:
        for mount in reversed(mountpoint.mounts()):
            if mount.path.startswith(str(tmp_path)):
                overlay.detach(mount.path)
        for process in made.state.processes():
            os.kill(int(process.partition(":")[0]), signal.SIGKILL)
        made.state.remove()


def test_the_page_is_as_it_is_written(place: Place) -> None:
    root = place.folder.parent
    (place.folder / "list").write_text("buy bread\n")
    (place.folder / "draft").write_text("draft\n")
    for name in ("one", "two", "plans/a"):
        (place.folder / name).unlink()
    command_line = f'bbfs() {{ {shlex.join(forked("-m", "bbfs"))} "$@"; }}\n'

    def output(command: str) -> str:
        done = shell(f"{command_line}({command}) 2>&1", directory=root, env=place.state.environ(), status=None)
        return done.text.replace(str(root), "~")

    play(DOCS / "scratch.md", output)


@pytest.mark.semantics("S39.2", "S39.3")
def test_write_anywhere_list_discard(place: Place) -> None:
    place.mount()
    notes = place.notes
    with (notes / "one").open("a") as file:
        file.write("more\n")
    (notes / "new").write_text("new\n")
    (notes / "two").unlink()
    subprocess.run(["mv", notes / "plans" / "old", notes / "older"], check=True, timeout=BOUND)
    subprocess.run(["git", "init", "-q", notes / "repository"], check=True, timeout=BOUND)
    assert (place.folder / "one").read_text() == "one\n"
    assert sorted(os.listdir(place.folder)) == ["one", "plans", "two"]
    subprocess.run(["rm", "-r", notes / "repository"], check=True, timeout=BOUND)
    assert place.changes() == [
        "A  new",
        "A  older/",
        "R  plans/old/b -> older/b",
        "M  one",
        "D  plans/old/",
        "D  two",
    ]
    assert "+more\n" in place.bbfs("changes", place.mnt, notes / "one", "--diff").stdout
    assert '"from":' in place.bbfs("changes", place.scratch, "--json").stdout

    with (notes / "one").open():
        busy = place.bbfs("discard", place.mnt, status=1)
    assert "is in use" in busy.stderr
    place.bbfs("discard", place.mnt, notes / "older", f"{SOURCE}/new")
    assert place.changes() == ["M  one", "D  plans/old/", "D  two"]
    assert "Read-only" in place.bbfs("apply", place.mnt, notes / "one", status=1).stderr  # without the capability
    assert (place.folder / "one").read_text() == "one\n"
    assert (notes / "one").read_text() == "one\nmore\n"
    place.bbfs("discard", place.mnt)
    assert place.changes() == []
    assert sorted(os.listdir(notes)) == ["one", "plans", "two"]
    assert "nothing was changed" in place.bbfs("changes", place.mnt, "notes/one", status=1).stderr
    assert f"one: not below {place.mnt}" in place.bbfs("changes", place.mnt, "one", status=1).stderr


@pytest.mark.semantics("S39", "S39.9")
def test_a_scratch_lasts_and_shows_what_the_sources_become(place: Place) -> None:
    place.mount()
    (place.notes / "mine").write_text("mine")
    (place.notes / "plans/new").write_text("new")
    (place.notes / "plans/a").unlink()
    (place.notes / "made").mkdir()
    (place.notes / "made/of it").write_text("it")
    again = place.bbfs(
        "mount", place.mnt.with_name("other"), "--dir", place.folder, "--scratch", place.scratch, status=32
    )
    assert "in use by another" in again.stderr
    place.bbfs("umount", place.mnt)
    assert place.leftovers() == []
    assert "not mounted" in place.bbfs("apply", place.scratch, status=1).stderr
    assert place.bbfs("changes", place.scratch).stdout.splitlines() == [
        f"W  {SOURCE}/made/of it",
        f"W  {SOURCE}/mine",
        f"D  {SOURCE}/plans/a",
        f"W  {SOURCE}/plans/new",
    ]
    place.bbfs("discard", place.scratch, f"{SOURCE}/made", f"{SOURCE}/plans")
    assert place.bbfs("changes", place.scratch).stdout == f"W  {SOURCE}/mine\n"
    place.mount()
    assert (place.notes / "mine").read_text() == "mine"
    assert place.changes() == ["A  made/", "A  mine"]
    place.bbfs("discard", place.mnt, f"{SOURCE}/made")
    assert (place.notes / "plans/a").read_text() == "plans/a\n"
    checks = json.loads(place.bbfs("doctor", "--json", "--dir", place.folder, status=None).stdout)
    mounted = f"{place.mnt} with the scratch {place.scratch}, 1 source"
    assert any(each["finding"].startswith(mounted) for each in checks)

    assert (place.notes / "one").read_text() == "one\n"
    assert not (place.notes / "three").exists()
    (place.folder / "one").write_text("another, by the source")
    (place.folder / "three").write_text("new")
    (place.folder / "two").unlink()

    def is_shown() -> bool:
        try:
            return (place.notes / "one").read_text() == "another, by the source"
        except OSError:
            return False

    wait_until(is_shown, "the changed file")
    wait_until((place.notes / "three").exists, "the new file")
    wait_until(lambda: not (place.notes / "two").exists(), "the removed file")
    assert place.changes() == ["A  mine"]


@pytest.mark.semantics("S39.4")
def test_apply(place: Place) -> None:
    for name in ("x", "y"):
        (place.folder / name).write_text(name)
    place.mount(*WRITABLE)
    notes = place.notes
    (notes / "one").write_text("changed\n")
    (notes / "plans" / "a").write_text("mine\n")
    subprocess.run(["mv", notes / "plans" / "old", notes / "older"], check=True, timeout=BOUND)
    (notes / "older" / "script").write_text("#!/bin/sh\n")
    (notes / "older" / "script").chmod(0o755)
    (notes / "two").unlink()
    (place.folder / "plans" / "a").write_text("changed by the source\n")
    assert (place.folder / "one").read_text() == "one\n"

    done = place.bbfs("apply", place.mnt, "--dry-run")
    assert done.stdout.splitlines()[0] == f"A  {SOURCE}/older/"
    done = place.bbfs("apply", place.mnt, status=1)
    assert "plans/a: the source has changed it meanwhile" in done.stderr
    assert place.files() == {
        "one": "changed\n",
        "older/b": "plans/old/b\n",
        "older/script": "#!/bin/sh\n",
        "plans/a": "changed by the source\n",
        "x": "x",
        "y": "y",
    }
    assert os.access(place.folder / "older" / "script", os.X_OK)
    assert place.changes() == ["M  plans/a"]
    assert (notes / "plans" / "a").read_text() == "mine\n"
    place.bbfs("apply", place.mnt, "--overwrite")
    assert (place.folder / "plans" / "a").read_text() == "mine\n"
    assert place.changes() == []

    (notes / "one").write_text("once more\n")
    digest = place.bbfs("changes", place.mnt, "--digest").stdout.splitlines()[-1].removeprefix("digest ")
    (notes / "one").write_text("ONCE MORE\n")
    assert "not those that were reviewed" in place.bbfs("apply", place.mnt, "--as", digest, status=1).stderr
    assert (place.folder / "one").read_text() == "changed\n"
    shown = json.loads(place.bbfs("changes", place.mnt, "--digest", "--json").stdout)
    assert [each["mode"] for each in shown["changes"]] == ["0644"]
    place.bbfs("apply", place.mnt, "--as", shown["digest"])
    assert (place.folder / "one").read_text() == "ONCE MORE\n"

    (notes / "x").rename(notes / "y")
    (place.folder / "y").unlink()
    done = place.bbfs("apply", place.mnt, status=1)
    assert f"{SOURCE}/x -> {SOURCE}/y: the source has removed it meanwhile" in done.stderr
    assert (place.folder / "x").read_text() == "x"


STOPPING = """
import os, signal, sys
once = iter([signal.SIGSTOP])
from bbfs.cli import main
sys.addaudithook(lambda event, _: event == "os.utime" and os.kill(os.getpid(), next(once, 0)))
main(prog_name="bbfs")
"""


def stopped(place: Place, *words: str | Path) -> "subprocess.Popen[bytes]":
    """Start a command, and return when it has stopped itself before it sets the time of a file."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPING, *words],
        env=place.state.environ(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    stat = Path(f"/proc/{process.pid}/stat")
    wait_until(lambda: process.poll() is not None or stat.read_text().rpartition(") ")[2][0] == "T", "it stops")
    assert process.poll() is None
    return process


@pytest.mark.semantics("S39.8")
def test_while_changes_are_applied_the_mount_point_is_covered(place: Place) -> None:
    """What a program writes meanwhile fails: it reaches neither the directory below nor, after a kill, another one."""
    place.mount(*WRITABLE)
    (place.notes / "one").write_text("changed\n")
    (place.notes / "draft.part").write_text("kept as well\n")
    applying = stopped(place, "apply", place.mnt)
    try:
        for name in ("late", f"{SOURCE}/late"):
            with pytest.raises(OSError, match=r"Read-only|No such file"):
                (place.mnt / name).write_text("lost")
        applying.kill()
        applying.wait(BOUND)
    finally:
        applying.kill()
    wait_until(place.notes.is_dir, "the overlay again, by the process that keeps it")
    assert sorted(place.changes()) == ["A  draft.part", "M  one"]
    place.bbfs("apply", place.mnt)
    assert place.changes() == []
    place.bbfs("umount", place.mnt)
    assert not place.mnt.exists()  # so nothing was in the directory below
    plans = {"plans/a": "plans/a\n", "plans/old/b": "plans/old/b\n"}
    assert place.files() == {"one": "changed\n", "two": "two\n", "draft.part": "kept as well\n", **plans}


@pytest.mark.semantics("S39")
def test_a_link_in_the_way_to_the_mount_point_leads_no_mount_elsewhere(place: Place) -> None:
    """The owner of a directory above exchanges it while the overlay is unmounted."""
    above, victim = place.folder.with_name("above"), place.folder.with_name("victim")
    (victim / "mnt").mkdir(parents=True)
    (victim / "mnt" / "precious").write_text("precious")
    above.mkdir()
    mount_point = above / "mnt"
    place.bbfs(
        "mount", mount_point, "--dir", f"notes={place.folder}", "--scratch", place.scratch, "--background", *WRITABLE
    )
    moved = above.with_name("moved")
    try:
        (mount_point / SOURCE / "one").write_text("changed\n")
        applying = stopped(place, "apply", mount_point)
        above.rename(moved)
        above.symlink_to(victim)
        applying.send_signal(signal.SIGCONT)
        assert applying.wait(BOUND) == 0
        assert (victim / "mnt" / "precious").read_text() == "precious"
        assert not [mount for mount in mountpoint.mounts() if mount.path.startswith(str(victim))]
        assert (place.folder / "one").read_text() == "changed\n"
    finally:
        above.unlink(missing_ok=True)
        if moved.exists():
            moved.rename(above)
        place.bbfs("umount", mount_point, status=None)  # the process that keeps the overlay may have missed it
        wait_until(lambda: place.leftovers() == [], "the end of the mount")


@pytest.mark.semantics("S39")
def test_a_run_that_grants_no_write_and_one_that_applies_what_is_kept(place: Place) -> None:
    """A folder that is read and one that is passed through state one version of a file."""
    place.run("--scratch", place.scratch, command="echo more >> one; rm two; mv plans/a moved")
    done = place.run(*WRITABLE, "--scratch", place.scratch, "--on-exit", "apply", command="true")
    assert "not applied" not in done.stderr
    assert sorted(os.listdir(place.folder)) == ["moved", "one", "plans"]
    assert (place.folder / "one").read_text() == "one\nmore\n"

    place.run("--scratch", place.scratch, command="echo mine >> one")
    (place.folder / "one").write_text("theirs\n")
    done = place.run(*WRITABLE, "--scratch", place.scratch, "--on-exit", "apply", command="true", status=1)
    assert "the source has changed it meanwhile" in done.stderr
    assert (place.folder / "one").read_text() == "theirs\n"


@pytest.mark.semantics("S39")
@pytest.mark.parametrize("by", [(), UNPRIVILEGED], ids=["by root", "in a user namespace"])
def test_apply_removes_only_what_a_program_has_removed(place: Place, by: Sequence[str]) -> None:
    """Neither a path in an attribute nor the mark of another overlay says that a file is removed."""
    if by and subprocess.run(["unshare", "-Ur", "true"], check=False, capture_output=True).returncode:
        pytest.skip("user namespaces are not allowed here")
    for attribute in ("user.overlay.opaque", "user.fuseoverlayfs.opaque"):
        os.setxattr(place.folder / "plans", attribute, b"y")
    victim = place.folder.with_name("victim")
    victim.write_text("precious\n")
    (place.folder / "gone").mkdir()
    path = f"{SOURCE}/gone/../../../../{victim.name}"
    origin = f"import os; os.setxattr('made', 'user.bbfs.origin', b'{{\"path\": \"{path}\"}}')"
    command = (
        "touch .wh..wh..opq .wh.one made; rm -r gone plans/old; mkdir plans/old; echo new > plans/new; "
        f"{sys.executable} -c {shlex.quote(origin)}"
    )
    done = place.run(*WRITABLE, "--scratch", place.scratch, "--on-exit", "apply", command=command, by=by)
    assert done.stdout.replace(f"{SOURCE}/", "").splitlines() == [
        "A  .wh..wh..opq",
        "A  .wh.one",
        "A  made",
        "A  plans/new",
        "D  gone/",
        "D  plans/old/b",
    ]
    assert victim.read_text() == "precious\n"
    assert place.files().keys() == {".wh..wh..opq", ".wh.one", "made", "one", "plans/a", "plans/new", "two"}


@pytest.mark.semantics("S39.4")
def test_apply_to_a_source_that_is_no_folder(place: Place) -> None:
    """Files go through drafts there; a copy in the scratch tells its path and version all the same."""
    config, stored = place.scratch.with_name("config.toml"), place.scratch.with_name("stored.json")
    config.write_text(
        '[[sources]]\nname = "kept"\ntype = "memory"\ncapabilities = ["read", "list", "write"]\n'
        f'config = {{ file = "{stored}" }}\n'
    )
    place.bbfs("mount", place.mnt, "--config", config, "--scratch", place.scratch, "--background")
    kept, below = (root / "bb-memory+kept+memory" for root in (place.mnt, place.scratch / "lower"))
    (kept / "new").mkdir()
    (kept / "new" / "one").write_text("1")
    (kept / "two").write_text("2")
    names = ("4913", "a.part", "a.tmp", "x~", "tmpAb12Cd", "#x#", ".tmprc")
    for name in names:  # which programs make for themselves
        (kept / name).write_text(name)
    place.bbfs("apply", place.mnt)
    assert (below / "new" / "one").read_text() == "1"
    assert {name: stored.read_text().count(f'"{name}"') for name in names} == dict.fromkeys(names, 1)
    subprocess.run(["mv", kept / "new", kept / "moved"], check=True, timeout=BOUND)
    with (kept / "two").open("a") as file:
        file.write("mine")
    (below / "two").write_text("by the source")
    done = place.bbfs("apply", place.mnt, status=1)
    assert "R  bb-memory+kept+memory/new/one -> bb-memory+kept+memory/moved/one" in done.stdout
    assert "two: the source has changed it meanwhile" in done.stderr
    assert (below / "moved" / "one").read_text() == "1"
    assert not (below / "new").exists()
    assert (below / "two").read_text() == "by the source"
    assert (kept / "two").read_text() == "2mine"


@pytest.mark.semantics("S39.6")
def test_what_a_source_refuses_stays_in_the_scratch_alone(place: Place) -> None:
    """A path begins with the name of the source, as everywhere."""
    config = place.scratch.with_name("config.toml")
    rights = 'capabilities = ["read", "list", "write"]\nconfig = { max_bytes = 10 }'
    config.write_text(f'[[sources]]\nname = "kept"\ntype = "memory"\n{rights}\n')
    place.bbfs("mount", place.mnt, "--config", config, "--scratch", place.scratch, "--background")
    kept = place.mnt / "bb-memory+kept+memory"
    (kept / "large").write_text("x" * 20)
    (kept / "small").write_text("x")
    for _ in range(2):
        done = place.bbfs("apply", place.mnt, "kept/large", status=1)
        assert "max_bytes" in done.stderr
    assert "nothing is pending" in place.bbfs("pending").stderr
    terminal, stdin = pty.openpty()
    os.write(terminal, b"n\n")
    words = forked("-m", "bbfs", "discard", place.mnt)
    asked = subprocess.run(
        words, env=place.state.environ(), stdin=stdin, capture_output=True, timeout=BOUND, check=False
    )
    os.close(stdin)
    os.close(terminal)
    assert b"drop all changes" in asked.stderr
    assert asked.returncode != 0
    assert "kept/none: not below" in place.bbfs("changes", place.mnt, "kept/none", status=None).stderr.replace(
        "bb-memory+kept+memory", "kept"
    )
    assert place.bbfs("changes", place.mnt, "kept").stdout.count("\n") == 2
    place.bbfs("discard", place.mnt, "kept/large")
    assert place.bbfs("changes", place.mnt, "kept").stdout == "A  bb-memory+kept+memory/small\n"


@pytest.mark.semantics("S7.3", "S39.1", "S39.6")
def test_commands_read_what_programs_see_in_a_scratch(place: Place) -> None:
    place.mount()
    notes = place.notes
    (notes / "one").write_text("one, changed\n")
    (notes / "plans" / "new").write_text("new one\n")
    (notes / "two").unlink()
    subprocess.run(["rm", "-r", notes / "plans" / "old"], check=True, timeout=BOUND)

    def read(*words: str | Path) -> str:
        return place.bbfs(*words, meant=True).stdout.replace(str(place.mnt), "MNT")

    assert read("ls").splitlines() == ["MNT:", f"{SOURCE}/"]
    assert read("ls", notes).splitlines() == read("ls", "notes").splitlines() == ["one", "plans/"]
    assert read("ls", "-R", place.mnt / "notes" / "plans").splitlines()[1:] == ["a", "new"]
    assert read("cat", notes / "one", "notes/plans/new", f"{SOURCE}:./one") == "one, changed\nnew one\none, changed\n"
    listed = {each["name"]: each for each in json.loads(read("ls", "--json", "notes"))}
    assert (listed["one"]["size"], listed["one"]["uri"]) == (13, f"{SOURCE}:./one")
    (stated,) = json.loads(read("stat", "--json", notes / "one"))
    assert (stated["uri"], stated["size"], stated["mount"]) == (f"{SOURCE}:./one", 13, "MNT")
    assert read("path", f"{SOURCE}:./plans/a") == f"MNT/{SOURCE}/plans/a\n"
    assert read("uri", notes / "one") == f"{SOURCE}:./one\n"
    (source,) = json.loads(read("sources", place.mnt, "--json"))
    assert (source["name"], source["mount"]) == ("notes", "MNT")
    place.bbfs("refresh", notes)
    missing = place.bbfs("cat", notes / "two", f"{SOURCE}:./two", status=1, meant=True)
    assert missing.stderr.count("two: ") == 2
    for words in ((place.mnt,), ()):
        states = json.loads(place.bbfs("status", "--json", *words, status=None).stdout)
        assert str(place.mnt) in [state["mount"] for state in states if state.get("sources")]
        assert str(place.scratch / "lower") not in [state["mount"] for state in states]


@pytest.mark.semantics("S39")
def test_grep_and_search_give_the_lines_and_paths_of_a_scratch(place: Place) -> None:
    for number in range(40):
        (place.folder / f"f{number}").write_text(f"needle {number}\n" if number < 3 else "hay\n")
    place.mount()
    place.bbfs("index", place.mnt)
    notes = place.notes
    (notes / "f0").write_text("no more\n")
    (notes / "f1").unlink()
    (notes / "plans" / "a").write_text("a needle in a plan\n")
    (notes / "made").mkdir()
    (notes / "made" / "inside").write_text("a needle inside\n")
    expected = ["f2:1:needle 2", "made/inside:1:a needle inside", "plans/a:1:a needle in a plan"]
    assert place.bbfs("grep", "needle", notes).stdout.replace(f"{notes}/", "").splitlines() == expected
    assert place.bbfs("grep", "needle", notes / "made").stdout == f"{notes}/made/inside:1:a needle inside\n"
    counted = place.bbfs("grep", "-c", "needle", place.mnt).stdout.splitlines()
    plain = subprocess.run(["grep", "-rc", "needle", place.mnt], capture_output=True, text=True, timeout=BOUND)
    assert sorted(counted) == sorted(plain.stdout.splitlines())
    inside = place.bbfs(
        "run",
        *("--at", place.mnt.with_name("at"), "--dir", f"notes={place.folder}", "--on-exit"),
        *("discard", "--", "sh", "-ec", f'cd "$BBFS_MOUNT/notes"; rm f2; {BBFS} grep needle .'),
    )
    assert inside.stdout.splitlines() == ["./f0:1:needle 0", "./f1:1:needle 1"]
    found = place.bbfs("search", "-l", "needle", place.mnt).stdout.splitlines()
    assert f"{notes}/f2" in found
    assert f"{notes}/f1" not in found


@pytest.mark.semantics("S39.1")
def test_commands_write_into_a_scratch(place: Place) -> None:
    config = place.scratch.with_name("config.toml")
    config.write_text(
        '[[sources]]\nname = "kept"\ntype = "memory"\ncapabilities = ["read", "list", "write"]\n'
        f'[[sources]]\nname = "notes"\ntype = "filesystem"\nconfig = {{ root = "{place.folder}" }}\n'
        'capabilities = ["read", "list", "write"]\n'
    )
    place.bbfs("mount", place.mnt, "--config", config, "--scratch", place.scratch, "--background")
    hi = place.folder.with_name("hi")
    hi.write_text("hi\n")
    place.bbfs("put", hi, "kept/put", meant=True)
    place.bbfs("put", hi, "notes/plans/a", meant=True)
    place.bbfs("cp", place.notes / "two", "kept/copied", meant=True)
    place.bbfs("mv", "notes/one", f"{SOURCE}:./moved", meant=True)
    place.bbfs("rm", "notes/two", meant=True)
    assert "has neither" in place.bbfs("put", "--mime-type", "text/css", hi, "kept/x", status=1, meant=True).stderr
    assert sorted(place.changes()) == [
        *("A  bb-memory+kept+memory/copied", "A  bb-memory+kept+memory/put", "A  moved"),
        *("D  one", "D  two", "M  plans/a"),
    ]
    assert (place.folder / "plans" / "a").read_text() == "plans/a\n"
    assert sorted(os.listdir(place.folder)) == ["one", "plans", "two"]
    assert os.listdir(place.scratch / "lower" / "bb-memory+kept+memory") == []
    place.bbfs("put", "--remove", "kept/put", meant=True)
    place.bbfs("apply", place.mnt)
    assert (place.folder / "plans" / "a").read_text() == "hi\n"
    assert sorted(os.listdir(place.folder)) == ["moved", "plans"]


@pytest.mark.semantics("S39.1")
def test_no_command_writes_past_a_scratch(place: Place) -> None:
    """Neither through the mount below, nor by the control socket of its daemon."""
    log = place.folder.with_name("calls.log")
    config = place.scratch.with_name("config.toml")
    config.write_text(config_text([mcp("t", [sys.executable, "-I", SERVERS / "calls.py", log])], {}))
    place.mount("--config", config, *WRITABLE)
    hi = place.folder.with_name("hi")
    hi.write_text("hi\n")
    lower = place.scratch / "lower"
    for words in (
        ("put", hi, lower / SOURCE / "new"),
        ("cp", hi, lower / "notes" / "new"),
        ("rm", lower / "notes/one"),
    ):
        assert f"below a scratch: write in {place.mnt}" in place.bbfs(*words, status=1).stderr
    for request in (Put(f"{SOURCE}/new"), Remove(f"{SOURCE}/new"), Retry("0")):
        with pytest.raises(BbfsError, match="this mount has a scratch"):
            list(control_client.ask_now(str(lower), request))
    called = CallTool("mcp-server+t", "write", {"text": ("x",)}, confirmed=True)
    with pytest.raises(BbfsError, match="does not declare to be read-only"):
        list(control_client.ask_now(str(lower), called))
    past = place.bbfs("call", "t", "write", "text=x", "--yes", status=1, meant=True)
    assert f"{place.mnt} has a scratch" in past.stderr
    assert place.bbfs("call", "t", "echo", "text=x", meant=True).stdout == "x"
    assert "call write" not in log.read_text()
    assert sorted(os.listdir(place.folder)) == ["one", "plans", "two"]
    assert place.changes() == []


@pytest.mark.semantics("S31.8", "S39.2")
def test_a_result_that_only_an_open_makes_is_changed_whole_or_not_at_all(place: Place) -> None:
    """An overlay would copy as many bytes as it has before the open: none.

    A call of several parts becomes a directory, which the overlay shows a moment later.
    """
    log = place.folder.with_name("calls.log")
    place.mount("--mcp", f"t={sys.executable} -I {SERVERS / 'calls.py'} {log}")
    tool = place.mnt / "mcp-server+t" / "tool"
    for text, command in (
        ("a", "echo mine >> $0"), ("b", "touch $0"), ("c", "chmod 600 $0"), ("d", "mv $0 moved"),
    ):  # fmt: skip
        words = ["sh", "-c", command, f"echo?text={text}"]
        done = subprocess.run(words, cwd=tool, check=False, capture_output=True, text=True, timeout=BOUND)
        assert done.returncode != 0
        assert "not supported" in done.stderr
    assert not log.exists() or "call" not in log.read_text()
    kept = 'echo mine > "echo?text=e"; sed -i s/f/F/ "echo?text=f"; cp "echo?text=g" g; echo mine >> g'
    subprocess.run(["sh", "-ec", kept], cwd=tool, check=True, timeout=BOUND)
    names = ("echo?text=a", "echo?text=e", "echo?text=f", "g")
    assert [(tool / name).read_text() for name in names] == ["a", "mine\n", "F", "gmine\n"]
    parts = place.bbfs("cat", tool / "several?").stdout
    assert parts.startswith("number 6")

    def is_shown() -> bool:
        with suppress(OSError):
            return (tool / "several?" / "1.txt").read_text() == "number 6"
        return False

    wait_until(is_shown, "the parts of the result")
    assert [line for line in log.read_text().splitlines() if "several" in line] == ["call several {}"]


@pytest.mark.semantics("S39.1")
@pytest.mark.parametrize("shared", [False, True])
def test_no_command_in_a_run_writes_past_its_scratch(place: Place, shared: bool) -> None:
    """Also not with sources that it names itself, and not into the mount that its sources are of."""
    other = place.mnt.with_name("shared")
    options = f'--dir "o={place.folder}" -o o.capabilities=read,list,write'
    past = [f"cp {options} ./hi o/past", f"rm {options} o/two", *([f'cp ./hi "{other}/notes/past"'] if shared else [])]
    past += [f'{command} "{place.mnt}"' for command in ("changes", "umount")]
    lines = ["put hi notes/new", "rm notes/one", "mv notes/two notes/2", *past, "cat notes/new"]
    commands = (
        f'cd "{place.folder.parent}"; echo hi > hi; {BBFS} serve {options} < /dev/null',
        shlex.join([sys.executable, "-c", ONE_AFTER_ANOTHER, *lines]),
    )
    if shared:
        place.bbfs("mount", other, "--dir", f"notes={place.folder}", *WRITABLE, "--background")
    words = ("--on", other) if shared else WRITABLE
    try:
        done = place.run("--scratch", place.scratch, *words, command="; ".join(commands))
    finally:
        if shared:
            place.bbfs("umount", other)
    assert done.stdout == f"hi\n{[0, 0, 0, *[1] * len(past), 0]}\n", done
    assert "runs this server, so it writes to no source" in done.stderr
    assert done.stderr.count("'bbfs run' runs this command") == (3 if shared else 2), done.stderr
    assert [line for line in done.stderr.replace(f"{SOURCE}/", "").splitlines() if line.startswith("bbfs: ")][-5:] == [
        *("bbfs: A  2", "bbfs: A  new", "bbfs: D  one", "bbfs: D  two"),
        f"bbfs: 4 changes kept in {place.scratch}: --scratch with it goes on, and --on-exit applies or discards",
    ]
    assert sorted(os.listdir(place.folder)) == ["one", "plans", "two"]


@pytest.mark.semantics("S39")
@pytest.mark.skipif(shutil.which("fuse-overlayfs") is None, reason="fuse-overlayfs is not installed")
def test_the_program_for_users_without_an_overlay_of_the_kernel(place: Place) -> None:
    """A scratch that fuse-overlayfs has written is mounted by it again, for every user."""
    begun = Scratch.made(str(place.scratch), str(place.mnt))
    begun.note(kind="fuse-overlayfs")
    (Path(begun.upper) / SOURCE).mkdir()
    (Path(begun.upper) / SOURCE / "first").write_text("first\n")
    place.mount(*WRITABLE)
    mount = mountpoint.mount_at(str(place.mnt))
    assert mount is not None
    assert mount.type == "fuse.fuse-overlayfs"
    notes = place.notes
    with (notes / "one").open("a") as file:
        file.write("more\n")
    (notes / "two").unlink()
    subprocess.run(["mv", notes / "plans" / "old", notes / "older"], check=True, timeout=BOUND)
    subprocess.run(["rm", "-r", notes / "plans"], check=True, timeout=BOUND)
    (notes / "plans").mkdir()
    (notes / "plans" / "b").write_text("b\n")
    assert place.changes() == [
        *("A  first", "A  older/", "R  plans/old/b -> older/b", "M  one"),
        *("D  plans/a", "A  plans/b", "D  plans/old/", "D  two"),
    ]
    assert sorted(os.listdir(place.folder)) == ["one", "plans", "two"]
    assert place.bbfs("cat", notes / "one").stdout == "one\nmore\n"
    assert place.bbfs("ls", notes).stdout.split() == ["first", "older/", "one", "plans/"]
    assert place.bbfs("grep", "-l", ".", notes).stdout.replace(f"{notes}/", "").split() == [
        *("first", "older/b", "one", "plans/b"),
    ]
    place.bbfs("rm", notes / "older" / "b")
    place.bbfs("discard", place.mnt, notes / "two", notes / "first")
    assert sorted(os.listdir(notes)) == ["older", "one", "plans", "two"]
    place.bbfs("apply", place.mnt)
    assert place.files() == {"one": "one\nmore\n", "two": "two\n", "plans/b": "b\n"}
    assert place.changes() == []
    (notes / "late").write_text("late")
    place.bbfs("discard", place.mnt)
    assert sorted(os.listdir(notes)) == ["older", "one", "plans", "two"]


@pytest.mark.parametrize("killed", ["daemon", "keeper"])
def test_a_killed_process_leaves_nothing_that_umount_does_not_clear(place: Place, killed: str) -> None:
    place.mount()
    (place.notes / "mine").write_text("mine")
    keeper, daemon = sorted(int(each.partition(":")[0]) for each in place.state.processes())
    os.kill(keeper if killed == "keeper" else daemon, signal.SIGKILL)
    wait_until(lambda: place.state.processes() == [], "the end of the other process")
    assert running() is None  # no command takes it for the one that runs it
    place.bbfs("umount", place.mnt)
    place.mount()
    assert (place.notes / "mine").read_text() == "mine"


@pytest.mark.parametrize("then", ["mount", "elsewhere", "run"])
def test_what_a_killed_keeper_leaves_is_not_below_the_next_use_of_the_scratch(place: Place, then: str) -> None:
    """A program at the old overlay would write into the layers of the new one."""
    place.mount()
    (place.notes / "mine").write_text("mine")
    os.kill(min(int(each.partition(":")[0]) for each in place.state.processes()), signal.SIGKILL)
    wait_until(lambda: place.state.processes() == [], "the end of the daemon, which has the scratch until then")
    if then == "run":
        assert place.run("--scratch", place.scratch, command="cat mine").stdout == "mine"
    else:
        again = place if then == "mount" else replace(place, mnt=place.mnt.with_name("elsewhere"))
        again.mount()
        assert (again.notes / "mine").read_text() == "mine"
        at = [mount.path for mount in mountpoint.mounts() if mount.type == "overlay"]
        assert [path for path in at if path.startswith(str(place.folder.parent))] == [str(again.mnt)]
        again.bbfs("umount", again.mnt)
    assert place.leftovers() == []


def test_a_scratch_whose_sources_are_detached_is_no_run(place: Place) -> None:
    """Otherwise every command of this user would refuse to write, on any mount."""
    place.mount()
    subprocess.run(["umount", "--lazy", place.scratch / "lower"], timeout=BOUND, check=True)
    assert running() is None
    place.bbfs("umount", place.mnt)


@pytest.mark.semantics("S39.10")
def test_run(place: Place) -> None:
    done = place.run(
        "--scratch", place.scratch, "--on-exit", "discard", command="id -u; echo x >> one; cat one; exit 7", status=7
    )
    assert done.stdout == f"{os.geteuid()}\none\nx\n"
    assert place.leftovers() == []
    assert not place.mnt.exists()
    assert (place.folder / "one").read_text() == "one\n"

    hidden = f'echo x > new; test -z "$(ls -A "{place.scratch}/lower")"; kill -TERM $$'
    done = place.run("--scratch", place.scratch, status=128 + signal.SIGTERM, command=hidden)
    assert f"1 change kept in {place.scratch}" in done.stderr
    brief = place.folder.with_name("brief.toml")
    brief.write_text('[[sources]]\nname = "brief"\ntype = "memory"\ncapabilities = ["read", "list", "write"]\n')
    done = place.run(
        *("--scratch", place.scratch, "--on-exit", "apply", "--config", brief, *WRITABLE),
        command='cat new; echo y > "../bb-memory+brief+memory/lost"; sleep 1000 &',
        status=1,
    )
    assert done.stdout == f"x\nA  {SOURCE}/new\n"
    assert "not applied: bb-memory+brief+memory/lost: its source is in the memory of this run alone" in done.stderr
    assert (place.scratch / "upper" / "bb-memory+brief+memory" / "lost").read_text() == "y\n"
    assert (place.folder / "new").read_text() == "x\n"
    assert place.leftovers() == []


def test_a_run_that_cannot_begin_ends_as_env_does_and_one_that_could_apply_nothing_does_not_begin(place: Place) -> None:
    of = ("run", "--at", place.mnt, "--dir", f"notes={place.folder}")
    missing = place.bbfs(*of, "--", "no such program", status=127)
    assert "no such program: No such file" in missing.stderr
    assert "Permission denied" in place.bbfs(*of, "--", place.folder, status=126).stderr
    marker = place.folder.with_name("began")
    place.bbfs("mount", place.mnt, "--dir", f"notes={place.folder}", "--background")
    for where in (of, ("run", "--on", place.mnt)):
        refused = place.bbfs(*where, "--on-exit", "apply", "--", "touch", marker, status=1)
        assert "its option capabilities does not grant write" in refused.stderr
        assert not marker.exists()


def test_a_run_leaves_the_address_of_the_metrics_to_the_mount_that_lasts(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = place.folder.parent / "metrics.toml"
        config.write_text(
            f'[mount]\nmetrics = "127.0.0.1:{taken.getsockname()[1]}"\n'
            f'[[sources]]\nname = "notes"\ntype = "filesystem"\nconfig.root = "{place.folder}"\n'
        )
        place.bbfs("run", "--at", place.mnt, "--config", config, "--", "true")


def test_apply_replaces_no_line_that_was_appended_right_before_a_program_saved(place: Place) -> None:
    """The kernel has the file's earlier size then, and an overlay would copy as many bytes."""
    names = [f"list {number}" for number in range(50)]
    for name in names:
        (place.folder / name).write_text("first\n")
    place.mount(*WRITABLE)
    for name in names:
        os.stat(place.notes / name)
        for file, line in ((place.folder / name, "theirs\n"), (place.notes / name, "ours\n")):
            with file.open("a") as appended:
                appended.write(line)
    place.bbfs("apply", place.mnt)
    assert {(place.folder / name).read_text() for name in names} == {"first\ntheirs\nours\n"}


@pytest.mark.semantics("S7.3", "S39")
def test_programs_work_over_sources_that_are_no_folders(place: Place) -> None:
    """A first open finds the file that was looked up, and under a template a new name is free."""
    root = place.folder.parent
    imported(place, DOCS / "scratch.md", DOCS / "tour.md")
    shop = root / "shop.db"
    with closing(sqlite3.connect(shop)) as database:
        database.executescript(
            "create table item(id integer primary key, price real); insert into item values(1, 1.5), (2, 8)"
        )
    config = root / "bbfs.toml"
    sources = [
        mcp("kb", forked("-m", "bbfs.knowledge", "serve", "--db", root / "kb")),
        {"name": "kept", "type": "memory", "config": {"resources": {"a": "first"}}},
        {"name": "shop", "type": "database", "config": {"url": f"sqlite:///{shop}"}, "ttl": {"content": "0s"}},
    ]
    config.write_text(config_text(sources, {}))
    script = (
        "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute('update item set price = 1234'); d.commit()"
    )
    update = shlex.join([sys.executable, "-c", script, str(shop)])
    command = f"""
        cd "$BBFS_MOUNT"
        tail -n 1 bb-database+shop+sqlite/main/item/row/2.json
        {update}
        tail -n 1 bb-database+shop+sqlite/main/item/row/2.json
        cat bb-memory+kept+memory/a
        echo second > bb-memory+kept+memory/a
        sed -i s/1234/2.5/ bb-database+shop+sqlite/main/item/row/1.json
        cd mcp-server+kb/resource/knowledge/docs/document
        sed -i '1s/.*/new/' scratch
        head -n 1 scratch
        mkdir made
        cp tour made/
        rm "$(mktemp ./XXXXXX)"
        git init -q made
        printf 'all:\\n\\techo made > result\\n' > made/Makefile
        make -s -C made
        cat made/result
        mv made moved
        rm tour
        ls
    """
    done = place.run("--config", config, "--on-exit", "keep", "--scratch", place.scratch, command=command)
    assert done.stdout.splitlines() == [' "price":8.0}', ' "price":1234.0}', "firstnew", "made", "moved", "scratch"]
    changed = {path.relative_to(place.scratch / "upper") for path in (place.scratch / "upper").rglob("*")}
    row = Path("bb-database+shop+sqlite/main/item/row/1.json")
    assert row in changed
    assert '"price":2.5' in (place.scratch / "upper" / row).read_text()
    assert (place.scratch / "upper/bb-memory+kept+memory/a").read_text() == "second\n"


@contextmanager
def shared_mount(place: Place, *words: str | Path) -> Iterator[Path]:
    """Mount sources without a scratch, at a place of their own."""
    lower = place.mnt.with_name("shared")
    place.bbfs("mount", lower, *words, "--background")
    try:
        yield lower
    finally:
        place.bbfs("umount", lower)


def test_two_runs_over_one_mount_see_only_their_own_changes(place: Place) -> None:
    with shared_mount(place, "--dir", f"notes={place.folder}") as lower:
        met = place.folder.with_name("met")
        met.mkdir()
        command = 'echo $0 > "$0"; touch "{met}/$0"; until test -e "{met}/a" -a -e "{met}/b"; do sleep 0.05; done; ls'
        words = forked("-m", "bbfs", "run", "--on", lower, "--at", place.mnt, "--on-exit", "discard")
        words += ["--", "sh", "-ec", f'cd "{place.notes}"; {command.format(met=met)}']
        both = [
            subprocess.Popen([*words, name], env=place.state.environ(), stdout=subprocess.PIPE, text=True)
            for name in ("a", "b")
        ]
        seen = [each.communicate(timeout=BOUND)[0].split() for each in both]
        assert seen == [["a", "one", "plans", "two"], ["b", "one", "plans", "two"]]
        assert sorted(os.listdir(lower / SOURCE)) == ["one", "plans", "two"]


@pytest.mark.semantics("S39")
def test_a_run_over_a_mount_that_is_there_applies_what_its_sources_have_not_changed(place: Place) -> None:
    """Its daemon notes the versions for the run, also of names that programs have looked up before."""
    with shared_mount(place, "--dir", f"notes={place.folder}", *WRITABLE) as lower:
        subprocess.run(["ls", "-lR", lower], check=True, capture_output=True, timeout=BOUND)
        given = ("--on", lower, "--on-exit", "apply")
        place.run(*given, command="echo mine >> one; rm two; mv plans/a moved; touch new")
        assert sorted(os.listdir(place.folder)) == ["moved", "new", "one", "plans"]
        assert (place.folder / "one").read_text() == "one\nmine\n"
        late = shlex.quote(str(place.folder / "moved"))
        done = place.run(*given, command=f"rm moved; echo theirs > {late}; echo x >> one", status=1)
        assert "moved: the source has" in done.stderr
        assert (place.folder / "one").read_text() == "one\nmine\nx\n"
        assert (place.folder / "moved").read_text() == "theirs\n"


def documents(place: Place, sizes: str) -> Path:
    """A configuration of a server that states neither size nor version of its documents before a load."""
    root = place.folder.parent
    imported(place, *(document(place, name, "first") for name in ("one", "two", "six")))
    tools = {"write": {"tool": "put_document", "blob": "blob", "version": "version"}}
    command = forked("-m", "bbfs.knowledge", "serve", "--writable", "--db", root / "kb")
    server = mcp("kb", command, sizes=sizes, capabilities=["read", "list", "write"], **tools)
    config = root / "bbfs.toml"
    config.write_text(config_text([server], {}))
    return config


def document(place: Place, name: str, text: str) -> Path:
    file = place.folder.parent / f"{name}.md"
    file.write_text(f"{name}: {text}\n")
    return file


def imported(place: Place, *files: Path) -> None:
    """Let the server have documents."""
    words = ("import", "--create", "--db", place.folder.parent / "kb", "--collection", "docs", *files)
    subprocess.run(forked("-m", "bbfs.knowledge", *words), check=True, capture_output=True, timeout=BOUND)


DOCUMENTS = "mcp-server+kb/resource/knowledge/docs/document"


@pytest.mark.semantics("S9.5", "S39.2", "S39.6")
@pytest.mark.parametrize("sizes", ["exact", "lazy"])
def test_a_first_write_copies_the_whole_content_and_is_based_on_it(place: Place, sizes: str) -> None:
    """Nothing but the copy of the overlay has loaded the file: only that load tells size and version."""
    config = documents(place, sizes)
    place.bbfs("mount", place.mnt, "--config", config, "--scratch", place.scratch, "--background")
    shown, below = place.mnt / DOCUMENTS, place.scratch / "lower" / DOCUMENTS
    with (shown / "one").open("a") as file:
        file.write("mine\n")
    subprocess.run(["touch", shown / "two"], check=True, timeout=BOUND)
    with (shown / "six").open("a") as file:
        file.write("mine\n")
    assert [(shown / name).read_text() for name in ("one", "two")] == ["one: first\nmine\n", "two: first\n"]
    imported(place, document(place, "six", "later"))
    done = place.bbfs("apply", place.mnt, status=1)
    assert "six: the source has changed it" in done.stderr
    assert "one" not in done.stderr
    assert "two" not in done.stderr
    assert [(below / name).read_text() for name in ("one", "two")] == ["one: first\nmine\n", "two: first\n"]
    assert (shown / "six").read_text() == "six: first\nmine\n"


@pytest.mark.semantics("S9.5", "S39.2")
def test_a_run_over_a_mount_of_lazy_sizes_copies_whole_contents(place: Place) -> None:
    with shared_mount(place, "--config", documents(place, "lazy")) as lower:
        command = f'cd "$BBFS_MOUNT/{DOCUMENTS}"; touch two; echo mine >> one; cat one two'
        given = ("run", "--on", lower, "--at", place.mnt, "--on-exit", "apply", "--", "sh", "-ec", command)
        done = place.bbfs(*given)
        assert done.stdout.startswith("one: first\nmine\ntwo: first\n"), done
        assert (lower / DOCUMENTS / "one").read_text() == "one: first\nmine\n"


def test_run_without_the_privilege_to_mount(place: Place) -> None:
    """A user namespace gives it to the daemon and the overlay alone."""
    if subprocess.run(["unshare", "-Ur", "true"], check=False, capture_output=True).returncode:
        pytest.skip("user namespaces are not allowed here")
    command = f'echo x >> one; rm -r plans; mkdir plans; ls; umount "{place.mnt}" 2>&1 || echo kept'
    done = place.run("--scratch", place.scratch, command=command, by=UNPRIVILEGED)
    assert done.stdout.split()[:3] == ["one", "plans", "two"], done
    assert done.stdout.endswith("kept\n")
    changes = [line.replace(f"{SOURCE}/", "") for line in done.stderr.splitlines()]
    assert changes[:2] == ["bbfs: M  one", "bbfs: D  plans/a"]
    assert place.leftovers() == []


def test_a_shell_on_a_terminal_and_the_question_after_it(place: Place) -> None:
    """The shell has jobs of its own; when it has ended, the terminal is that of bbfs again."""
    words = ("run", "--dir", f"notes={place.folder}", "--at", place.mnt, "--", "bash", "--norc", "-i")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable, [sys.executable, "-m", "bbfs", *map(str, words)], place.state.environ() | {"PS1": "ready> "}
        )
    shown = b""

    def await_text(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            assert select.select([terminal], [], [], BOUND)[0], shown
            shown += os.read(terminal, 4096)

    try:
        await_text(b"ready> ")
        os.write(terminal, f"echo x > {place.notes}/new; jobs; exit 5\n".encode())
        await_text(b"iscard?")
        os.write(terminal, b"x\n")
        await_text(b"is none of apply, keep and discard")
        os.write(terminal, b"d\n")
        with suppress(OSError):  # EIO: the terminal has no user any more
            while True:
                shown += os.read(terminal, 4096)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5, shown
    finally:
        os.close(terminal)
    assert f"A  {SOURCE}/new".encode() in shown
    assert list((place.state.home / ".local" / "state" / "bbfs" / "scratches").iterdir()) == []


@pytest.mark.semantics("S39.10")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_no_process_and_no_mount(place: Place, number: signal.Signals) -> None:
    command = f'cd "{place.notes}"; echo x > new; setsid sleep 1000 & echo ready; exec sleep 1000'
    words = ("run", "--dir", f"notes={place.folder}", "--at", place.mnt, "--scratch", place.scratch)
    running = subprocess.Popen(
        [sys.executable, "-m", "bbfs", *words, "--", "sh", "-ec", command],
        env=place.state.environ(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    with running:
        assert running.stdout.readline() == "ready\n"
        running.send_signal(number)
        assert running.wait(BOUND) == (-number if number == signal.SIGKILL else 128 + number)
    wait_until(lambda: place.leftovers() == [], "the end of all processes")
    assert (place.scratch / "upper" / SOURCE / "new").read_text() == "x\n"


def test_without_user_namespaces_and_without_root_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def unshare(self, _flags: int) -> int:
            return -1

    monkeypatch.setattr(processes, "_libc", Refusing())
    with pytest.raises(mountpoint.MountError, match="user namespaces"):
        processes.enter_namespaces()


@pytest.mark.semantics("S39")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_scratch_on_a_full_disk_is_applied_discarded_and_unmounted(place: Place) -> None:
    """Applying and discarding make room, so neither may need some."""
    disk = place.scratch.with_name("disk")
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True, timeout=BOUND)
    try:
        _fill_and_make_room(Place(place.state, place.folder, place.mnt, disk / "scratch"), disk)
    finally:
        overlay.detach(str(disk))


def _fill(place: Place, disk: Path) -> None:
    """Let a program in a scratch fill its disk."""
    with suppress(OSError), (place.notes / "large").open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert os.statvfs(disk).f_bavail == 0


def _fill_and_make_room(place: Place, disk: Path) -> None:
    place.mount(*WRITABLE)
    (place.notes / "one").write_text("1\n")
    (place.notes / "two").unlink()
    _fill(place, disk)
    place.bbfs("apply", "--yes", place.mnt, place.notes / "one", place.notes / "two")
    assert (place.folder / "one").read_text() == "1\n"
    assert not (place.folder / "two").exists()
    _fill(place, disk)
    place.bbfs("umount", place.mnt)
    place.bbfs("discard", "--yes", place.scratch, f"{SOURCE}/large")
    place.mount(*WRITABLE)
    _fill(place, disk)
    place.bbfs("discard", "--yes", place.mnt)
    assert place.changes() == []
    (place.notes / "one").write_text("one more\n")
    assert place.changes() == ["M  one"]
    assert sorted(os.listdir(disk / "scratch")) == ["bases", "edited", "held", "lower", "scratch.json", "upper", "work"]
    place.bbfs("umount", place.mnt)
