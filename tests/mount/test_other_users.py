"""Other users of a mount of root's: what a local folder denies a user, the mount denies that user, too.

The oracle is a plain directory with the same owners, modes and access control lists, and the same system calls.
"""

import json
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Mount, Mounts, folder
from programs import run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
ALICE, BOB, CAROL, TEAM = 21001, 21002, 21003, 21100
USERS = {
    "alice": (ALICE, []),
    "bob": (BOB, [TEAM]),
    "carol": (CAROL, []),
}
WRITTEN, READ = "bb-filesystem+work+file", "bb-filesystem+plain+file"
WRITE = ["read", "list", "write"]
DIRECTORIES = {
    "open": (ALICE, TEAM, 0o755, ""),
    "sticky": (ALICE, TEAM, 0o1777, ""),
    "team": (ALICE, TEAM, 0o770, f"u:{BOB}:---"),
    "given": (ALICE, ALICE, 0o700, f"u:{CAROL}:rwx"),
    "search": (ALICE, TEAM, 0o711, f"u:{BOB}:---"),
    "default": (ALICE, TEAM, 0o777, f"d:u:{BOB}:r--,d:g::---,d:m:r--,d:o::---"),
}
FILES = {
    "all": (ALICE, TEAM, 0o666, ""),
    "own": (ALICE, ALICE, 0o600, ""),
    "denied": (ALICE, TEAM, 0o664, f"u:{BOB}:---"),
    "mask": (ALICE, TEAM, 0o600, f"u:{CAROL}:rw-,m:rw-,g::---"),
    "masked": (ALICE, TEAM, 0o600, f"u:{CAROL}:rw-,m:r--"),
    "group": (ALICE, ALICE, 0o644, f"g:{TEAM}:---"),
    "bobs": (BOB, TEAM, 0o640, f"u:{CAROL}:r--"),
}
READS = ["read", "may read", "may write", "attributes"]
CHANGES = [
    "append", "empty", "truncate", "chmod", "set times", "touch", "rename", "link", "remove what was renamed",
    "set an attribute", "create", "make a directory", "make a link", "remove", "remove what was created",
]  # fmt: skip
AS_USER = """
import errno, json, os, sys
def read(path):
    with open(path) as file:
        return file.read()
def write(path, mode, text):
    with open(path, mode) as file:
        file.write(text)
calls = {
    "read": read,
    "may read": lambda path: os.access(path, os.R_OK),
    "may write": lambda path: os.access(path, os.W_OK),
    "attributes": lambda path: os.getxattr(path, "user.mine").decode(),
    "append": lambda path: write(path, "a", "x"),
    "empty": lambda path: write(path, "w", "x"),
    "truncate": lambda path: os.truncate(path, 1),
    "chmod": lambda path: os.chmod(path, 0o777),
    "set times": lambda path: os.utime(path, (1, 1)),
    "touch": lambda path: os.utime(path),
    "rename": lambda path: os.rename(path, path + ".new"),
    "link": lambda path: os.link(path, path + ".hard"),
    "remove what was renamed": lambda path: os.unlink(path + ".new"),
    "set an attribute": lambda path: os.setxattr(path, "user.mine", b"x"),
    "create": lambda path: write(path + ".made", "w", "n"),
    "make a directory": lambda path: os.mkdir(path + ".dir"),
    "make a link": lambda path: os.symlink("x", path + ".link"),
    "remove": lambda path: os.unlink(path),
    "remove what was created": lambda path: os.unlink(path + ".made"),
}
def outcome(call, path):
    try:
        return call(path)
    except OSError as error:
        return errno.errorcode[error.errno]
os.umask(0)
directory, directories, files, wanted = sys.argv[1], *map(json.loads, sys.argv[2:])
os.chdir(directory)
found = [
    [name, file, each, outcome(calls[each], name + "/" + file)]
    for name in directories for file in files for each in wanted
]
found += [[name, "", "list", outcome(lambda path: sorted(os.listdir(path)), name)] for name in directories]
print(json.dumps(found))
"""


def _given(paths: list[Path], owner: int, group: int, mode: int, acl: str) -> None:
    for path in paths:
        os.chown(path, owner, group)
        path.chmod(mode)
    if acl:
        subprocess.run(["setfacl", "-m", acl, *paths], check=True)


def tree(root: Path) -> None:
    """Make directories and files of three users, each directory with all files."""
    root.mkdir(parents=True)
    for each in (root, root.parent):
        each.chmod(0o755)
    for name in DIRECTORIES:
        (root / name).mkdir()
        for each in FILES:
            (root / name / each).write_text(f"{name} {each}\n")
            os.setxattr(root / name / each, "user.mine", b"y")
    for each, of in FILES.items():
        _given([root / name / each for name in DIRECTORIES], *of)
    for name, of in DIRECTORIES.items():
        _given([root / name], *of)


def tried(user: str, directory: Path, calls: list[str]) -> list[tuple[str, str, str, object]]:
    """Make calls as a user, in each directory for each file. Return them with what each gives, or its errno."""
    uid, groups = USERS[user]
    more = ["--groups=" + ",".join(map(str, groups))] if groups else ["--clear-groups"]
    given = map(json.dumps, ([*DIRECTORIES], [*FILES], calls))
    words = ["/usr/bin/python3", "-I", "-S", "-c", AS_USER, directory, *given]
    done = run("setpriv", f"--reuid={uid}", f"--regid={uid}", *more, *words, timeout=50)
    return [(where, file, call, outcome) for where, file, call, outcome in json.loads(done.out)]


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """Where the folders are. In those that are changed, each user has a tree of its own, and so has a test.

    Every pytest that starts closes the directory of `tmp_path` to others.
    """
    with tempfile.TemporaryDirectory(prefix="bbfs-others-") as name:
        Path(name).chmod(0o755)
        for each in (*(f"{top}/{user}" for top in ("work", "oracle") for user in USERS), "work/more", "plain"):
            tree(Path(name, each))
        yield Path(name)


@pytest.fixture(scope="module")
def others(root: Path, module_mounted: Mounts) -> Mount:
    return module_mounted(
        folder("work", root / "work", capabilities=WRITE),
        folder("plain", root / "plain"),
        tables={"mount": {"allow_other": True}},
    )


def rights(root: Path) -> dict[str, str]:
    """Return the owners, modes, access control lists and contents below a directory."""
    listed = subprocess.run(["getfacl", "-R", "-n", "."], cwd=root, check=True, capture_output=True, text=True).stdout
    texts = {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}
    return texts | {block.splitlines()[0]: block for block in listed.split("\n\n") if block}


@pytest.mark.semantics("S8.1", "S28.2")
@pytest.mark.parametrize("user", USERS)
def test_a_written_folder_lets_each_user_do_what_the_folder_itself_does(others: Mount, root: Path, user: str) -> None:
    for calls in (READS, CHANGES):
        expected = tried(user, root / "oracle" / user, calls)
        assert tried(user, others / WRITTEN / user, calls) == expected
    assert rights(root / "work" / user) == rights(root / "oracle" / user)


@pytest.mark.semantics("S8.1", "S28.2")
def test_a_read_only_folder_lets_each_user_read_what_the_folder_itself_does(others: Mount, root: Path) -> None:
    reads = ["read", "attributes"]
    before = rights(root / "plain")
    for user in USERS:
        assert tried(user, others / READ, reads) == tried(user, root / "plain", reads)
        tried(user, others / READ, CHANGES)
    script = f"cd {others / READ}; echo x > open/all; rm open/all; mkdir x; chmod 0 open"
    tried_by_root = run("sh", "-c", script, status=None)
    assert tried_by_root.err.count(b"Read-only file system") == 4
    assert rights(root / "plain") == before


@pytest.mark.semantics("S28.2")
def test_searches_and_texts_of_folders_are_not_for_others(others: Mount, root: Path) -> None:
    (root / "plain/open/page.html").write_text("<p>a secret of alice</p>")
    (root / "plain/open/page.html").chmod(0o600)
    nobody = ["setpriv", f"--reuid={BOB}", f"--regid={BOB}", "--clear-groups"]
    for made in (".search/alice", f"{READ}/.search/alice", f"{READ}/open/.search/alice", f"{READ}/open/page.html.md"):
        assert run("ls", others / made, status=None).status == 0, made
        assert run(*nobody, "cat", others / made, status=None).status == 1, made
    assert run(*nobody, "cat", others / f"{READ}/open/all").out == b"open all\n"


def test_a_file_that_was_made_after_its_name_was_free_is_not_opened_unasked(others: Mount, root: Path) -> None:
    """The kernel caches that a name is free, and asks for no permission where it creates a file."""
    for number in range(5):
        name = f"more/sticky/new{number}"
        script = f"import os,sys; os.path.exists({name!r}); print(flush=True); sys.stdin.read(1); " + (
            f"os.read(os.open({name!r}, os.O_RDWR | os.O_CREAT), 9)"
        )
        bob = subprocess.Popen(
            ["setpriv", f"--reuid={BOB}", f"--regid={BOB}", "--clear-groups", "/usr/bin/python3", "-c", script],
            cwd=others / WRITTEN, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert bob.stdout is not None
        bob.stdout.read(1)
        secret = root / "work" / name
        secret.touch(0o600)
        secret.write_text("secret")
        _, said = bob.communicate(b"x", timeout=20)
        assert b"PermissionError" in said


def test_a_file_that_was_closed_to_others_just_now_is_closed_at_once(others: Mount, root: Path) -> None:
    bob = ["setpriv", f"--reuid={BOB}", f"--regid={BOB}", "--clear-groups"]
    file, itself = others / WRITTEN / "more/open/all", root / "work/more/open/all"
    for _ in range(3):
        assert run(*bob, "cat", file).status == 0
        itself.chmod(0o600)
        assert run(*bob, "cat", file, status=None).status == 1
        subprocess.run(["setfacl", "-m", f"u:{BOB}:r", itself], check=True)
        assert run(*bob, "cat", file).status == 0
        subprocess.run(["setfacl", "-b", itself], check=True)
        itself.chmod(0o644)


@pytest.mark.semantics("S28.3")
@pytest.mark.parametrize("way", [">", ">>", "1<>", "dd"])
def test_other_bytes_do_not_run_with_the_owners_rights(others: Mount, root: Path, way: str) -> None:
    """As write(2) of a user without the privilege CAP_FSETID does on a local disk."""
    program = root / "work/more/open/program"
    shutil.copy("/bin/true", program)
    os.chown(program, ALICE, TEAM)
    program.chmod(0o6777)
    command = {"dd": "dd if=/dev/zero of=program bs=4096 count=1 conv=notrunc oflag=direct"}.get(
        way, f"echo x {way} program"
    )
    bob = ["setpriv", f"--reuid={BOB}", f"--regid={BOB}", "--clear-groups"]
    before = program.read_bytes()
    run(*bob, "sh", "-c", f"cd {others / WRITTEN}/more/open; {command}")
    assert program.read_bytes() != before
    assert stat.S_IMODE(program.stat().st_mode) == 0o777
    assert time.time() - program.stat().st_mtime < 60
