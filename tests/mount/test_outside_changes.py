"""What others change in a folder that a mount passes through, while the kernel keeps its names and attributes.

The kernel would keep them for `LASTS` seconds, which is longer than these tests wait. So an event makes a change show.
"""

import mmap
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Mount, folder
from programs import errno_of, python, shell, wait_until

from bbfs.vfs.passthrough.vouched import ASKED, LASTS, READY_LASTS, Bounds

NAME = "bb-filesystem+work+file"
WRITE = ["read", "list", "write"]
SHOW = "find . -printf '%P %y %m %s %n %l %T@\\n' | sort"
STATE = "stat -c '%n %F %a %s %h %Y' a b c l d d/a d/b d/f d/f/a e e/a new d/new e/new d/new/a e/new/a 2> /dev/null"
"""Asks for each name, and lists no directory."""
SOON = 30.0
"""Seconds for an event on a busy machine; the kernel keeps everything for longer."""
assert LASTS > SOON


def fill(root: Path) -> None:
    for directory in ("d", "e", "d/f"):
        (root / directory).mkdir()
    for file in ("a", "b", "c", "d/a", "d/b", "d/f/a", "e/a"):
        (root / file).write_text(file)
    (root / "l").symlink_to("a")


def made(mount: Mount, root: Path, name: str) -> tuple[Path, Path]:
    """A directory of the folder with some files, and where the mount has it."""
    place, there = root / name, mount / NAME / name
    place.mkdir()
    fill(place)
    wait_until(lambda: errno_of("os.stat(sys.argv[1])", there).startswith("OK"), "the directory is there")
    return place, there


def keep(there: Path, root: Path) -> None:
    """Have the kernel keep names and attributes: those that exist, and one that does not."""
    newest = max(each.lstat().st_ctime for each in root.rglob("*"))
    wait_until(lambda: time.time() > newest + Bounds().quiet, "the files have been left alone for a while")
    for _ in range(ASKED + 2):
        shell(f"{SHOW} > /dev/null; {STATE}", directory=there, status=1)


def shown(there: Path) -> str:
    return shell(SHOW, directory=there).text


def the_same(there: Path, root: Path) -> bool:
    return shown(there) == shown(root)


CHANGES: dict[str, Callable[[Path], object]] = {
    "create": lambda root: (root / "new").write_text("new"),
    "create below": lambda root: (root / "d" / "new").mkdir(),
    "delete": lambda root: (root / "a").unlink(),
    "rename": lambda root: (root / "a").rename(root / "d" / "new"),
    "rename over": lambda root: (root / "a").rename(root / "b"),
    "write": lambda root: (root / "d" / "a").write_text("longer than before"),
    "append": lambda root: shell("printf more >> d/b", directory=root),
    "truncate": lambda root: os.truncate(root / "b", 0),
    "chmod": lambda root: (root / "d" / "b").chmod(0o600),
    "chmod of a directory": lambda root: (root / "d").chmod(0o700),
    "times": lambda root: os.utime(root / "e" / "a", (1, 1)),
    "link": lambda root: os.link(root / "d" / "a", root / "e" / "new"),
    "symbolic link": lambda root: shell("ln -sfn b l", directory=root),
    "directory moved": lambda root: (root / "d" / "f").rename(root / "e" / "new"),
    "directory replaced": lambda root: shell("mkdir x; echo x > x/x; mv d y; mv x d; rm -r y", directory=root),
    "directories exchanged": lambda root: shell("mv d x; mv e d; mv x e", directory=root),
    "all removed": lambda root: shell("rm -r *", directory=root),
}
"""What others do in a folder."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def mount(module_mounted: Callable[..., Mount], root: Path) -> Mount:
    return module_mounted(folder("work", root, capabilities=WRITE))


@pytest.mark.semantics("S40.2", "S40.8")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_others_shows_at_once(mount: Mount, root: Path, name: str) -> None:
    place, there = made(mount, root, name)
    keep(there, place)
    CHANGES[name](place)
    right = shell(STATE, directory=place, status=1).text
    wait_until(lambda: shell(STATE, directory=there, status=1).text == right, "the change shows", SOON)
    assert the_same(there, place)


@pytest.mark.semantics("S40.8")
def test_what_a_program_of_the_mount_has_changed_shows_in_the_next_listing(mount: Mount, root: Path) -> None:
    place, there = made(mount, root, "own")
    keep(there, place)
    script = f"""set -e
for size in $(seq 1 20); do
    printf x >> d/a; {SHOW} | grep -q "^d/a f [0-9]* $((size + 3)) "
    ln d/b e/hard; printf x >> e/hard; {SHOW} | grep -q "^d/b f [0-9]* $((size + 3)) "; rm e/hard
    mv b x; test -e x; test ! -e b; {SHOW} | grep -q "^x f"; mv x b; {SHOW} | grep -q "^b f"
    mkdir -p e/new; (cd e/new && stat .. > /dev/null && test "$(pwd -P)" = "$PWD"); rmdir e/new
done"""
    shell(script, directory=there)
    assert the_same(there, place)


@pytest.mark.semantics("S40.10")
def test_the_time_of_a_write_through_a_mapping_shows_when_the_file_is_opened(mount: Mount, root: Path) -> None:
    place, there = made(mount, root, "mapped")
    (place / "d" / "a").write_bytes(bytes(4096))
    with (place / "d" / "a").open("r+b") as opened:
        mapped = mmap.mmap(opened.fileno(), 0)
    keep(there, place)
    before = (place / "d" / "a").stat().st_mtime_ns
    mapped[0:4] = b"text"
    mapped.flush()
    after = (place / "d" / "a").stat().st_mtime_ns
    assert after > before
    code = "d = os.open(sys.argv[1], os.O_RDONLY); print(os.fstat(d).st_mtime_ns, os.read(d, 4).decode())"
    assert python(code, there / "d" / "a").text == f"{after} text\n"
    assert LASTS + READY_LASTS <= 60
    mapped.close()


@pytest.mark.semantics("S40.8")
def test_dropped_events_are_made_up_for(mount: Mount, root: Path) -> None:
    """The daemon is stopped while others cause more events than the kernel's queue holds."""
    place, there = made(mount, root, "many")
    keep(there, place)
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    mount.process.send_signal(signal.SIGSTOP)
    try:
        for number in range(most // 4 + 1):
            (place / f"noise {number % 2}").write_text("")
            (place / f"noise {number % 2}").unlink()
        (place / "d" / "a").unlink()
        (place / "a").rename(place / "e" / "new")
        (place / "b").write_text("longer than before")
        (place / "d" / "f").rename(place / "d" / "new")
    finally:
        mount.process.send_signal(signal.SIGCONT)
    wait_until(lambda: the_same(there, place), "the changes show", SOON)


@pytest.mark.semantics("S40.9")
def test_a_folder_with_more_directories_than_are_watched_is_true(
    module_mounted: Callable[..., Mount], tmp_path: Path
) -> None:
    root = tmp_path / "work"
    root.mkdir()
    python = tmp_path / "python"
    bounded = "folders.Bounds = partial(Bounds, directories=2, names=3)"
    code = (
        "import sys; from functools import partial; from bbfs.cli import main; "
        "from bbfs.vfs.passthrough import folders; from bbfs.vfs.passthrough.vouched import Bounds; "
        f"{bounded}; main(sys.argv[3:])"
    )
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    python.chmod(0o755)
    fill(root)
    mount = Mount((folder("work", root, capabilities=WRITE),), python=python)
    try:
        there = mount / NAME
        keep(there, root)
        for change in ("write", "rename over", "directories exchanged"):
            CHANGES[change](root)
            wait_until(lambda: the_same(there, root), "the change shows", SOON)
    finally:
        mount.stop()


@pytest.mark.semantics("S40.8")
@pytest.mark.timeout(120)
def test_random_changes_from_both_sides_show_on_the_mount(mount: Mount, root: Path) -> None:
    """Programs of the mount and others take turns. Each sees what the other has done."""
    place, there = made(mount, root, "random")
    keep(there, place)
    choose = random.Random(7)

    def path() -> str:
        return "/".join(choose.choice("abde") for _ in range(choose.choice((1, 2, 2, 3))))

    for _ in range(20):
        for side in (there, place):
            steps = [
                choose.choice(
                    (
                        f"echo {choose.random()} > {path()}",
                        f"echo more >> {path()}",
                        f"mkdir {path()}",
                        f"rm -r {path()}",
                        f"mv -T {path()} {path()}",
                        f"ln {path()} {path()}",
                        f"chmod {choose.choice(('640', '755'))} {path()}",
                    )
                )
                for _ in range(choose.choice((1, 3, 10)))
            ]
            shell("; ".join(f"{step} 2> /dev/null" for step in steps), directory=side, status=None)
            if side == place:
                wait_until(lambda: the_same(there, place), f"what others have done shows: {steps}", SOON)
            assert shown(there) == shown(place), steps
