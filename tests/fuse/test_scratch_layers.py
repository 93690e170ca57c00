"""The layers of a scratch, made by hand: what is read as a change, what discarding and applying make of it.

A plain directory is the lower layer here; an overlay needs a machine that may mount one (tests/mount/test_scratch.py).
"""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from click.testing import CliRunner

from bbfs.cli.commands.writing import scratch as commands
from bbfs.fuse.mountpoint import MountError
from bbfs.fuse.scratch import changes as changes_of
from bbfs.fuse.scratch import copying, entries, layers, settling
from bbfs.fuse.scratch import shown as shown_layer
from bbfs.fuse.scratch.bases import Attempt, Base, Notes
from bbfs.fuse.scratch.changes import MAX_DEPTH, Change, changes, digest
from bbfs.fuse.scratch.directory import Scratch
from bbfs.fuse.scratch.origin import origin, parsed
from bbfs.fuse.scratch.shown import Shown
from bbfs.model.errors import Conflict, TooLarge
from bbfs.model.versions import Expected
from bbfs.resources.writing.pending import PendingStore, PendingWrite, new_id, pending_path
from bbfs.resources.writing.temporary import KEEPING
from bbfs.sources.content.memory import MemoryContent

OPAQUE = "user.overlay.opaque"
ORIGIN = "user.bbfs.origin"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    made = Scratch.made(str(tmp_path / "scratch"), str(tmp_path / "mnt"))
    for path in ("file", "old", "directory/one", "directory/two", "directory/deep/three"):
        write(made.lower, path, f"{path}\n")
    made.note(kind="kernel in a user namespace")
    see(made)
    return made


def origin_at(root: str, path: str, version: str) -> None:
    """Let a file of the lower layer have a version, as its daemon states it."""
    os.setxattr(Path(root, path), ORIGIN, json.dumps({"path": path, "etag": version}).encode())


def see(scratch: Scratch) -> None:
    """Note what the lower layer has, as its daemon does when programs look at all of it."""
    shown = Shown(scratch)
    for file in sorted(Path(scratch.lower).rglob("*")):
        path = str(file.relative_to(scratch.lower))
        found = file.lstat()
        if file.is_file() and not file.is_symlink():
            if not os.listxattr(file):
                origin_at(scratch.lower, path, f"first {path}")
            version = {"etag": json.loads(os.getxattr(file, ORIGIN))["etag"]}
            trio.run(shown.note_all, [(path, Base("file", version))])
        else:
            trio.run(shown.note_status, path, found)


def changed_by_the_source(scratch: Scratch, path: str, text: str) -> None:
    """Let the source replace a file. Neither its time nor its size need tell it."""
    file, before = Path(scratch.lower, path), Path(scratch.lower, path).stat()
    file.write_text(text)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    origin_at(scratch.lower, path, f"another {path}")


def write(root: str, path: str, text: str) -> Path:
    file = Path(root, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def whiteout(root: str, path: str) -> None:
    Path(root, path).parent.mkdir(parents=True, exist_ok=True)
    os.mknod(Path(root, path), stat.S_IFCHR, os.makedev(0, 0))


def opaque(root: str, path: str) -> None:
    Path(root, path).mkdir(parents=True, exist_ok=True)
    os.setxattr(Path(root, path), OPAQUE, b"y")


def listed(scratch: Scratch) -> list[str]:
    return [commands.summary(change) for change in changes(scratch)]


def tree(root: str) -> dict[str, str]:
    files = (path for path in Path(root).rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_text() for path in files}


def applied(scratch: Scratch, *, overwrite: bool = False) -> dict[str, str | None]:
    return {each.change.path: each.error for each in settling.apply(scratch, changes(scratch), overwrite=overwrite)}


def test_nothing_changed(scratch: Scratch) -> None:
    """A copy-up without a change is none: a program that opens a file for writing makes one."""
    found = os.stat(Path(scratch.lower, "file"))
    copy = write(scratch.upper, "file", "file\n")
    os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
    Path(scratch.upper, "directory", "deep").mkdir(parents=True)
    assert listed(scratch) == []


def test_made_changed_removed_touched(scratch: Scratch) -> None:
    write(scratch.upper, "new/inside", "x")
    write(scratch.upper, "file", "other\n")
    write(scratch.upper, "directory/one", "directory/one\n")
    whiteout(scratch.upper, "old")
    whiteout(scratch.upper, "never there")
    Path(scratch.upper, "link").symlink_to("/etc/passwd")
    assert listed(scratch) == [
        "T  directory/one",
        "M  file",
        "A  link  [link to /etc/passwd, leads out of the source]",
        "A  new/",
        "A  new/inside",
        "D  old",
    ]


def test_many_changes_of_one_directory_are_found_wherever_its_listing_has_them(scratch: Scratch) -> None:
    for number in range(300):  # more than twice the names that have changed: a part of them is beyond what is listed
        write(scratch.lower, f"d/{number}", "old")
    for number in range(0, 100, 2):
        write(scratch.upper, f"d/{number}", "changed")
        whiteout(scratch.upper, f"d/{number + 1}")
        write(scratch.upper, f"d/new{number}", "old")
    found = {change.path: change.what for change in changes(scratch)}
    assert {path: what for path, what in found.items() if "new" not in path} == {
        f"d/{number}": "removed" if number % 2 else "changed" for number in range(100)
    }
    assert {what for path, what in found.items() if "new" in path} == {"added"}
    assert len(found) == 150


def test_many_files_of_one_size_are_compared_by_their_bytes(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "x" * 600_000
    for number in range(40):
        write(scratch.lower, f"d/{number}", f"{long if number == 7 else ''}old")
        write(scratch.upper, f"d/{number}", f"{long if number == 7 else ''}{'oLd' if number % 7 == 0 else 'old'}")
        os.utime(Path(scratch.upper, f"d/{number}"), (1, number))
    found = {f"d/{number}": "changed" if number % 7 == 0 else "attributes" for number in range(40)}
    assert {change.path: change.what for change in changes(scratch)} == found

    def fail(name: str, *_: object) -> bool:
        if name == "33":
            raise OSError(errno.EHOSTDOWN, "the source is down")
        return True

    monkeypatch.setattr(changes_of, "is_same", fail)
    with pytest.raises(OSError, match="the source is down"):
        changes(scratch)


def test_a_file_that_the_source_removes_while_changes_are_listed_is_a_new_one(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = changes_of.is_same

    def removed(name: str, upper: int, lower: int, found: os.stat_result, below: os.stat_result) -> bool:
        os.unlink(name, dir_fd=lower)
        return compare(name, upper, lower, found, below)

    write(scratch.upper, "file", "mine\n")
    monkeypatch.setattr(changes_of, "is_same", removed)
    assert listed(scratch) == ["A  file"]


def test_removed_by_fuse_overlayfs_and_a_file_that_has_only_its_prefix(scratch: Scratch) -> None:
    write(scratch.upper, ".wh.old", "")
    write(scratch.upper, "directory/.wh..wh..opq", "")
    write(scratch.upper, "directory/one", "1")
    assert "A  .wh.old" in listed(scratch)
    scratch.note(kind="fuse-overlayfs")
    assert listed(scratch) == ["D  directory/deep/", "M  directory/one", "D  directory/two", "D  old"]


@pytest.mark.parametrize("kind", ["kernel", "kernel in a user namespace", "fuse-overlayfs"])
def test_what_another_overlay_would_take_for_a_mark_is_a_file_of_the_user(scratch: Scratch, kind: str) -> None:
    """As when a layer of a container is unpacked, or an overlay copies a source's directory with its attributes."""
    scratch.note(kind=kind)
    foreign = {"user.overlay.opaque", "user.fuseoverlayfs.opaque"}
    foreign.discard({"fuse-overlayfs": "user.fuseoverlayfs.opaque"}.get(kind, OPAQUE if "user" in kind else ""))
    for attribute in foreign:
        for directory in ("directory", "directory/deep"):
            Path(scratch.upper, directory).mkdir(exist_ok=True)
            os.setxattr(Path(scratch.upper, directory), attribute, b"y")
    os.setxattr(write(scratch.upper, "directory/one", ""), "user.overlay.whiteout", b"y")
    write(scratch.upper, "directory/deep/new", "x")
    names = [
        ".wh.file",
        "directory/.wh..wh..opq",
        "directory/.wh..opq",
        "directory/.wh.two",
        "directory/deep/.wh.three",
    ]
    if kind != "fuse-overlayfs":
        for name in names:
            write(scratch.upper, name, "")
    before = tree(scratch.lower)
    assert not [line for line in listed(scratch) if line.startswith("D")]
    settling.discard(scratch, [change for change in changes(scratch) if change.path == "directory/deep/new"])
    write(scratch.upper, "directory/deep/new", "y")
    assert set(applied(scratch).values()) == {None}
    made = {} if kind == "fuse-overlayfs" else dict.fromkeys(names, "")
    assert tree(scratch.lower) == {**before, **made, "directory/one": "", "directory/deep/new": "y"}
    assert listed(scratch) == []


@pytest.mark.parametrize("name", [".wh.", ".wh..", ".wh..."])
def test_a_mark_for_no_name_removes_nothing(scratch: Scratch, name: str) -> None:
    scratch.note(kind="fuse-overlayfs")
    Path(scratch.upper, "directory", "deep").mkdir(parents=True)
    write(scratch.upper, f"directory/deep/{name}", "")
    assert listed(scratch) == []


def test_a_directory_that_was_made_again_hides_all_that_was_in_it(scratch: Scratch) -> None:
    opaque(scratch.upper, "directory")
    write(scratch.upper, "directory/one", "1")
    assert listed(scratch) == ["D  directory/deep/", "M  directory/one", "D  directory/two"]


def test_a_directory_in_place_of_a_file_and_a_file_in_place_of_a_directory(scratch: Scratch) -> None:
    write(scratch.upper, "file/inside", "x")
    write(scratch.upper, "directory", "x")
    expected = ["D  directory/", "A  directory", "D  file", "A  file/", "A  file/inside"]
    assert listed(scratch) == expected
    assert set(applied(scratch).values()) == {None}
    assert tree(scratch.lower) == {"directory": "x", "file/inside": "x", "old": "old\n"}
    assert listed(scratch) == []
    assert os.listdir(scratch.upper) == []


def test_a_renamed_file_and_a_copied_one(scratch: Scratch) -> None:
    for name in ("a copy", "renamed"):
        os.setxattr(write(scratch.upper, name, "old\n"), ORIGIN, b'{"path": "old"}')
    os.setxattr(write(scratch.upper, "one", "1"), ORIGIN, b'{"path": "directory/one"}')
    assert listed(scratch) == ["A  a copy", "A  one", "A  renamed"]
    whiteout(scratch.upper, "old")
    whiteout(scratch.upper, "directory")
    assert listed(scratch) == ["R  old -> a copy", "D  directory/", "R  directory/one -> one", "A  renamed"]
    assert set(applied(scratch).values()) == {None}
    assert tree(scratch.lower) == {"a copy": "old\n", "file": "file\n", "one": "1", "renamed": "old\n"}


@pytest.mark.parametrize(
    "origin", [b'{"path": "../../etc/passwd"}', b'{"path": 1}', b"[", b"[" * 3000, b"\xff", b'"x"']
)
def test_an_origin_that_a_program_invents_is_none(scratch: Scratch, origin: bytes) -> None:
    os.setxattr(write(scratch.upper, "new", "x"), ORIGIN, origin)
    whiteout(scratch.upper, "old")
    assert listed(scratch) == ["A  new", "D  old"]


@pytest.mark.semantics("S29", "S39")
@pytest.mark.parametrize(
    "path",
    [
        *("directory/../../../victim", "directory/..", "directory/./one", "directory//one", "directory/one/", "/old"),
        *("directory/", "directory/never there", "directory/link/victim", "link/victim", "directory/\0"),
        "directory/\ud800",
    ],
)
def test_only_an_entry_of_what_was_removed_is_an_old_name(scratch: Scratch, tmp_path: Path, path: str) -> None:
    """No path in an attribute leads out of the sources, to be removed there."""
    victim = write(str(tmp_path), "victim", "precious")
    for link in ("directory/link", "link"):
        Path(scratch.lower, link).symlink_to(tmp_path)
    see(scratch)
    os.setxattr(write(scratch.upper, "new", "x"), ORIGIN, json.dumps({"path": path}).encode())
    whiteout(scratch.upper, "directory")
    whiteout(scratch.upper, "link")
    assert listed(scratch) == ["D  directory/", "D  link", "A  new"]
    assert set(applied(scratch).values()) == {None}
    assert victim.read_text() == "precious"
    assert tree(scratch.lower) == {"file": "file\n", "new": "x", "old": "old\n"}


@pytest.mark.parametrize("path", ["../victim", "directory/../../../victim"])
def test_settling_follows_no_path_out_of_the_layers(scratch: Scratch, tmp_path: Path, path: str) -> None:
    victim = write(str(tmp_path), "victim", "precious")
    write(scratch.upper, "new", "x")
    change = Change("renamed", "new", "file", old=path)
    assert [outcome.error for outcome in settling.apply(scratch, [change])] == ["Invalid argument"]
    with pytest.raises(OSError, match="Invalid argument"):
        settling.discard(scratch, [replace(change, path="gone")])
    assert victim.read_text() == "precious"


def test_symbolic_links_in_the_layers_lead_nowhere(scratch: Scratch, tmp_path: Path) -> None:
    """No link of the upper layer is read through, and none of a source is written through."""
    outside = tmp_path / "outside"
    write(str(outside), "secret", "secret")
    Path(scratch.upper, "link").symlink_to(outside)
    Path(scratch.lower, "way out").symlink_to(outside)
    see(scratch)
    write(scratch.upper, "way out/secret", "overwritten")
    assert listed(scratch) == [
        f"A  link  [link to {outside}, leads out of the source]",
        *("D  way out", "A  way out/", "A  way out/secret"),
    ]
    assert set(applied(scratch).values()) == {None}
    assert (outside / "secret").read_text() == "secret"
    assert Path(scratch.lower, "way out", "secret").read_text() == "overwritten"
    assert os.readlink(Path(scratch.lower, "link")) == str(outside)


def test_a_tree_that_is_too_deep_is_refused_and_can_be_discarded(scratch: Scratch) -> None:
    here = os.open(scratch.upper, os.O_RDONLY)
    for _ in range(MAX_DEPTH + 2000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(TooLarge, match=str(MAX_DEPTH)):
        changes(scratch)
    settling.discard(scratch, None)
    assert os.listdir(scratch.upper) == []


def test_strange_names(scratch: Scratch) -> None:
    names = ["-rf", "a\nb", "a:b,c\\d", "\udcff", "\x1b[31m"]
    for name in names:
        write(scratch.upper, name, name.encode(errors="surrogateescape").hex())
    assert sorted(change.path for change in changes(scratch)) == sorted(names)
    assert set(applied(scratch).values()) == {None}
    assert sorted(set(os.listdir(scratch.lower)) - {"file", "old", "directory"}) == sorted(names)


def test_discarding_some_changes_leaves_the_others(scratch: Scratch) -> None:
    opaque(scratch.upper, "directory")
    write(scratch.upper, "directory/one", "1")
    write(scratch.upper, "file", "other\n")
    write(scratch.upper, "new/inside", "x")
    whiteout(scratch.upper, "old")

    def drop(path: str) -> None:
        settling.discard(scratch, [change for change in changes(scratch) if change.concerns([path])])

    drop("directory/two")
    assert listed(scratch) == [
        "D  directory/deep/",
        "M  directory/one",
        "M  file",
        "A  new/",
        "A  new/inside",
        "D  old",
    ]
    drop("new")
    drop("old")
    assert listed(scratch) == ["D  directory/deep/", "M  directory/one", "M  file"]
    drop("directory")
    assert listed(scratch) == ["M  file"]


def test_what_a_source_has_changed_is_a_conflict_until_it_is_overwritten(scratch: Scratch) -> None:
    write(scratch.lower, "based", "1")
    see(scratch)
    # What a program says of the version that it has changed counts nothing.
    os.setxattr(write(scratch.upper, "based", "mine"), ORIGIN, b'{"path": "based", "etag": "another based"}')
    changed_by_the_source(scratch, "based", "theirs")
    write(scratch.upper, "new", "mine")
    write(scratch.lower, "new", "the source's, and other")
    whiteout(scratch.upper, "old")
    changed_by_the_source(scratch, "old", "changed")
    errors = applied(scratch)
    assert all(error and ("meanwhile" in error or "not known" in error) for error in errors.values()), errors
    assert set(errors) == {"based", "new", "old"}
    assert set(applied(scratch, overwrite=True).values()) <= {None}
    assert tree(scratch.lower)["based"] == tree(scratch.lower)["new"] == "mine"
    assert "old" not in tree(scratch.lower)
    assert listed(scratch) == []


def test_to_overwrite_means_what_a_source_has_changed_just_now_too(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(scratch.upper, "file", "mine")
    refusals = iter([errno.EBUSY] * 3)
    put_file = copying.put_file

    def put(*arguments: Any) -> None:
        for refusal in refusals:
            raise OSError(refusal, os.strerror(refusal))
        put_file(*arguments)

    monkeypatch.setattr(copying, "put_file", put)
    assert "has changed it meanwhile" in (applied(scratch)["file"] or "")
    assert applied(scratch, overwrite=True) == {"file": None}
    assert tree(scratch.lower)["file"] == "mine"


@pytest.mark.parametrize("put", ["file", "symlink"])
def test_what_a_source_makes_right_before_the_rename_stays(scratch: Scratch, put: str) -> None:
    write(scratch.upper, "new", "mine")
    there = tree(scratch.lower)

    def check() -> None:
        write(scratch.lower, "new", "theirs")

    with entries.directory(scratch.upper) as upper, entries.directory(scratch.lower) as lower:
        place = copying.Place("new", lower, KEEPING + "1", replaces=False)
        made = {
            "file": partial(copying.put_file, "new", upper, 0o644, place, check),
            "symlink": partial(copying.put_symlink, "target", place, check),
        }
        with pytest.raises(Conflict):
            made[put]()
    assert tree(scratch.lower) == there | {"new": "theirs"}


@pytest.mark.semantics("S39.6")
@pytest.mark.parametrize("seconds", [-100_000_000, 100_000_000])
def test_no_clock_decides_what_is_a_conflict(scratch: Scratch, monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """Neither the time of a source nor that of this machine, set back or forward by three years."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + seconds)
    for path, text in (("file", "mine"), ("directory/one", "mine, too")):
        write(scratch.upper, path, text)
    whiteout(scratch.upper, "old")
    for path in ("file", "old"):
        changed_by_the_source(scratch, path, "theirs")
    for path in ("file", "old", "directory/one"):
        os.utime(Path(scratch.lower, path), (now - seconds, now - seconds))
    errors = applied(scratch)
    assert {path for path, error in errors.items() if error} == {"file", "old"}
    assert tree(scratch.lower)["file"] == tree(scratch.lower)["old"] == "theirs"
    assert tree(scratch.lower)["directory/one"] == "mine, too"


@pytest.mark.semantics("S39.6")
def test_a_base_that_the_source_has_removed_is_a_conflict(scratch: Scratch) -> None:
    """A file, and one whose whole directory is gone: neither is made again, unless that is meant."""
    write(scratch.upper, "file", "mine")
    write(scratch.upper, "directory/deep/three", "mine")
    Path(scratch.lower, "file").unlink()
    subprocess.run(["rm", "-r", Path(scratch.lower, "directory")], check=True)
    before = tree(scratch.lower)
    assert all(applied(scratch).values())
    assert tree(scratch.lower) == before
    assert set(applied(scratch, overwrite=True).values()) == {None}
    assert tree(scratch.lower) == {**before, "file": "mine", "directory/deep/three": "mine"}


@pytest.mark.semantics("S39.6")
def test_a_version_that_is_not_known_is_a_conflict(scratch: Scratch) -> None:
    write(scratch.lower, "unseen", "theirs")
    origin_at(scratch.lower, "unseen", "1")
    whiteout(scratch.upper, "unseen")
    assert "not known" in str(applied(scratch)["unseen"])
    assert applied(scratch, overwrite=True) == {"unseen": None}


@pytest.mark.semantics("S39")
def test_a_directory_with_a_file_that_the_source_has_made_is_not_removed(scratch: Scratch) -> None:
    whiteout(scratch.upper, "directory")
    write(scratch.lower, "directory/deep/late", "theirs")
    before = tree(scratch.lower)
    assert applied(scratch)["directory"] is not None
    assert tree(scratch.lower) == before


async def test_the_note_of_a_name_ends_when_the_scratch_hides_it(scratch: Scratch) -> None:
    shown = Shown(scratch)
    write(scratch.upper, "file", "mine")
    whiteout(scratch.upper, "old")
    opaque(scratch.upper, "directory")
    for path in ("file", "old", "directory/one", "directory/deep/three"):
        await shown.note_all([(path, Base("file", {"etag": "later"}))])
    await shown.note_all([("seen", Base("file", {"etag": "1"}))])
    shown.opened("seen")
    await shown.note_all([("seen", Base("file", {"etag": "2"}))])
    bases = Notes.of(scratch).bases
    versions = [bases[path].version for path in ("file", "old", "directory/one", "directory/deep/three", "seen")]
    assert {"etag": "later"} not in versions
    assert versions[-1] == {"etag": "1"}
    shown.closed("seen")
    await shown.note_absent("seen")
    assert "seen" not in Notes.of(scratch).bases


@pytest.mark.parametrize(
    "damage",
    ["[" * 200_000, '{"path":"file","kind":"file","version":[1]}', '{"path":5,"kind":"file"}', '{"path":"file"'],
    ids=["deep", "version", "path", "torn"],
)
def test_damaged_notes_are_left_out(scratch: Scratch, damage: str) -> None:
    before = Notes.of(scratch)
    with Path(before.path).open("a") as file:
        file.write(damage)
    read = Notes.of(scratch)
    assert read.bases == before.bases
    read.shown("later", Base("file", {"etag": "1"}))
    read.close()
    assert Notes.of(scratch).bases == {**before.bases, "later": Base("file", {"etag": "1"})}


def test_a_damaged_state_is_told(scratch: Scratch) -> None:
    Path(scratch.path, "scratch.json").write_text("[" * 200_000)
    with pytest.raises(MountError, match="is damaged; the changes are in"):
        _ = scratch.state


def test_notes_that_are_read_again_are_those_that_were_made(scratch: Scratch) -> None:
    """A directory that goes takes the notes below it along; later notes of the same names stay."""
    made = Notes(str(Path(scratch.path, "bases")))
    directory, file = Base("directory"), Base("file")
    for path, base in (("a", directory), ("a/b", directory), ("a/b/c", file), ("ab", file)):
        made.shown(path, base)
    made.absent("a/b")
    made.attempted("a/b/c", Attempt("", ()))
    made.shown("a/b/again", file)
    assert Notes.of(scratch).bases.keys() >= made.bases.keys() == {"a", "ab", "a/b/again"}
    made.absent("a")
    made.shown("a/b/new", file)
    made.ended("a/b")  # it went with `a`, and takes nothing along any more
    made.close()
    assert {"a", "a/b/again", "a/b/c"}.isdisjoint(Notes.of(scratch).bases)
    assert made.bases.keys() <= Notes.of(scratch).bases.keys()


async def test_the_version_that_an_open_has_is_noted_until_its_close(scratch: Scratch) -> None:
    """The first open of a file is what an overlay copies; what is shown or opened meanwhile is another version."""
    shown = Shown(scratch)
    write(scratch.upper, "file", "mine")
    hidden = Notes.of(scratch).bases["file"]
    await shown.note_all([("seen", Base("file", {"modified_ns": 1, "size": 2}))])
    for path, version in (("seen", "1"), ("seen", "2"), ("file", "later")):
        await shown.note_open(path, Base("file", {"etag": version}))
    await shown.note_all([("seen", Base("file", {"etag": "3"}))])
    bases = Notes.of(scratch).bases
    assert (bases["seen"].version, bases["file"]) == ({"etag": "1"}, hidden)
    shown.closed("seen")
    shown.closed("seen")
    await shown.note_all([("seen", Base("file", {"etag": "3"}))])
    await shown.note_open("seen", None)
    assert Notes.of(scratch).bases["seen"].version == {"etag": "3"}


async def test_a_locked_directory_of_the_upper_layer_holds_no_other_request_up(
    scratch: Scratch, mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel locks it while it asks the daemon for what it copies there."""
    unlocked, noted = threading.Event(), Shown(scratch)
    monkeypatch.setattr(shown_layer, "is_hidden", lambda *_: not unlocked.wait(30))
    scratch.note(kind="overlay")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(noted.note_all, [("file", Base("file", {"etag": "1"}))])
        await trio.testing.wait_all_tasks_blocked()  # other requests are answered, also that of the kernel
        unlocked.set()
    assert Notes.of(scratch).bases["file"].version == {"etag": "1"}
    unlocked.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(noted.note_all, [("old", Base("file", {"etag": "1"}))])
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(1.0)  # it is answered all the same
    assert Notes.of(scratch).bases["old"].version == {"etag": "first old"}
    unlocked.set()


@pytest.mark.semantics("S39")
def test_the_notes_of_a_directory_with_changes_outlast_the_directory(scratch: Scratch) -> None:
    """The daemon sees that a source has removed it: a change in it must not be taken for a new file."""
    write(scratch.upper, "directory/deep/three", "mine")
    subprocess.run(["rm", "-r", Path(scratch.lower, "directory")], timeout=60, check=True)
    shown = Shown(scratch)
    for path in ("directory/deep/three", "directory/deep", "directory"):
        trio.run(shown.note_absent, path)
    assert {"directory", "directory/deep", "directory/deep/three"} <= Notes.of(scratch).bases.keys()
    assert all(applied(scratch).values())


@pytest.mark.semantics("S39.6")
def test_what_a_source_changes_while_a_change_is_applied_stays(
    scratch: Scratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = write(str(tmp_path), "outside", "")
    outside.chmod(0o600)
    write(scratch.upper, "file", "mine")
    write(scratch.upper, "old", "old\n").chmod(0o666)
    file, old = Path(scratch.lower, "file"), Path(scratch.lower, "old")
    copy, checked = copying.copy_data, layers.type_of

    def copied(content: int, to: int, wanted: os.stat_result, lower: int) -> None:
        changed_by_the_source(scratch, "file", "theirs, meanwhile")
        copy(content, to, wanted, lower)

    def swapped(found: os.stat_result) -> str:
        if found.st_ino == old.lstat().st_ino:
            link = Path(tmp_path, "link")
            link.symlink_to(outside)
            link.replace(old)  # in one step: the thread of the other change looks there as well
        return checked(found)

    monkeypatch.setattr(copying, "copy_data", copied)
    monkeypatch.setattr(layers, "type_of", swapped)
    outcomes = list(settling.apply(scratch, changes(scratch)))
    assert [outcome.error is not None for outcome in outcomes] == [True, True]
    assert file.read_text() == "theirs, meanwhile"
    assert stat.S_IMODE(outside.stat().st_mode) == 0o600
    assert {path.name for path in Path(scratch.lower).iterdir()} == {"file", "old", "directory"}


@pytest.mark.semantics("S39")
def test_what_a_program_changes_while_a_change_is_applied_stays_in_the_scratch(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another namespace of mounts the overlay lives on when this one's is unmounted."""
    file, copy = write(scratch.upper, "file", "mine"), copying.copy_data

    def copied(content: int, to: int, wanted: os.stat_result, lower: int) -> None:
        copy(content, to, wanted, lower)
        with file.open("a") as program:
            program.write(", and more")

    with monkeypatch.context() as patched:
        patched.setattr(copying, "copy_data", copied)
        assert "since it was listed" in str(applied(scratch)["file"])
    assert Path(scratch.lower, "file").read_text() == "file\n"
    assert listed(scratch) == ["M  file"]
    assert file.read_text() == "mine, and more"


@pytest.mark.semantics("S39")
def test_what_a_mount_that_died_leaves_at_a_source_is_removed_later(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: object, **__: object) -> None:
        raise OSError(errno.ENOTCONN, "dead")

    write(scratch.upper, "new", "new\n")
    with monkeypatch.context() as patched:
        for name in ("fsync", "unlink", "stat"):
            patched.setattr(os, name, dead if name != "stat" else _dies_once_written(dead, os.stat))
        assert applied(scratch) == {"new": "dead"}
    assert [name for name in os.listdir(scratch.lower) if name.startswith(KEEPING)] != []
    assert applied(scratch) == {"new": None}
    assert [name for name in os.listdir(scratch.lower) if name.startswith(KEEPING)] == []


def _dies_once_written(dead: Callable[..., None], real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
    def stat_of(path: str, *arguments: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(KEEPING):
            dead()
        return real(path, *arguments, **options)

    return stat_of


@pytest.mark.semantics("S32", "S39")
@pytest.mark.parametrize("seconds", [0, -3600])
def test_the_pending_write_of_another_program_is_not_dropped(
    scratch: Scratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """seconds: by which the clock is set meanwhile."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = PendingStore(pending_path())
    began = time.time()
    write(scratch.upper, "file", "mine")

    def refused(number: int) -> None:
        for data in (b"mine", b"by another program"):
            about = PendingWrite(
                new_id(), "one", "file:./file", "", ("file",), Expected(), 4, began + seconds, "Full: full"
            )
            store.keep(about, MemoryContent(data))
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", refused)
    assert applied(scratch) == {"file": "full: full"}
    assert [store.content_path(each).read_bytes() for each in store.items()] == [b"by another program"]


@pytest.mark.semantics("S39")
def test_a_renamed_file_that_the_source_has_changed_is_written_under_neither_name(scratch: Scratch) -> None:
    os.setxattr(write(scratch.upper, "renamed", "old\n"), ORIGIN, b'{"path": "old"}')
    whiteout(scratch.upper, "old")
    changed_by_the_source(scratch, "old", "OLD\n")
    before = tree(scratch.lower)
    assert "meanwhile" in str(applied(scratch)["renamed"])
    assert tree(scratch.lower) == before
    assert listed(scratch) == ["R  old -> renamed"]
    assert applied(scratch, overwrite=True) == {"renamed": None}
    assert tree(scratch.lower) == {"renamed": "old\n"} | {name: before[name] for name in before if name != "old"}


def test_a_change_after_one_that_was_applied_is_based_on_it(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = iter("abcdefgh")
    monkeypatch.setattr(layers, "version_in", lambda *_: {"etag": versions.setdefault("new", next(stated))})
    versions: dict[str, str] = {}
    write(scratch.upper, "new", "1")
    assert applied(scratch) == {"new": None}
    write(scratch.upper, "new", "second")
    assert applied(scratch) == {"new": None}
    write(scratch.lower, "new", "the source's own")
    versions.clear()
    whiteout(scratch.upper, "new")
    assert "meanwhile" in str(applied(scratch)["new"])


def test_the_version_of_a_passed_file_is_that_of_the_file() -> None:
    """What bbfs has cached of it may be a second old: a change within that second would be no conflict."""
    assert parsed(origin("a", {"etag": "1"})) == {"path": "a", "etag": "1"}
    assert len(parsed(origin("x" * 5000, {}))["path"]) < 100


def test_a_directory_stays_if_a_file_that_was_moved_out_of_it_cannot_be_applied(scratch: Scratch) -> None:
    os.setxattr(write(scratch.upper, "one", "1"), ORIGIN, b'{"path": "directory/one"}')
    whiteout(scratch.upper, "directory")
    chosen = changes(scratch)
    write(scratch.lower, "one", "made meanwhile")
    failed = [outcome.change.path for outcome in settling.apply(scratch, chosen) if outcome.error]
    assert failed == ["one", "directory"]
    assert tree(scratch.lower)["directory/one"] == "directory/one\n"


def test_a_pipe_is_not_applied_and_does_not_block(scratch: Scratch) -> None:
    os.mkfifo(Path(scratch.upper, "pipe"))
    os.mkfifo(Path(scratch.upper, "file"))
    assert listed(scratch) == ["D  file", "A  file", "A  pipe"]
    assert applied(scratch)["pipe"] is not None


def test_differences(scratch: Scratch) -> None:
    write(scratch.upper, "file", "file\nmore")
    write(scratch.upper, "binary", "\0")
    write(scratch.upper, "large", "x" * (1 << 20 | 1))
    whiteout(scratch.upper, "old")
    assert list(commands.differences(scratch, changes(scratch))) == [
        "A  binary  (binary)", "--- a/file", "+++ b/file", "@@ -1 +1,2 @@", " file", "+more",
        "\\ No newline at end of file", "A  large  (larger than 1 MiB)", "--- a/old", "+++ /dev/null",
        "@@ -1 +0,0 @@", "-old",
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["", "mnt/in", "../{name}"])
def test_a_scratch_needs_a_directory_of_its_own(tmp_path: Path, path: str, scratch: Scratch) -> None:
    mount_point = tmp_path / "mnt"
    with pytest.raises(MountError):
        Scratch.made(str(tmp_path / path.format(name=tmp_path.name)), str(mount_point))


def test_one_overlay_at_once(scratch: Scratch) -> None:
    with scratch.held():
        assert scratch.is_held()
        with pytest.raises(MountError, match="in use"), scratch.held():
            pass
        with pytest.raises(MountError, match="in use"):
            settling.discard(scratch, None)
    assert not scratch.is_held()


@pytest.mark.semantics("S39.7")
def test_no_privileged_bit_and_nothing_that_the_umask_takes_is_applied(scratch: Scratch) -> None:
    """Whoever wrote it: what is applied has at most the rights of a new file of the user who applies."""
    modes = {"suid": 0o6755, "sticky": 0o1777, "script": 0o777, "open": 0o666, "file": 0o4755}
    for name, mode in modes.items():
        write(scratch.upper, name, "x" if name != "file" else "file\n").chmod(mode)
    for name, mode in {"shared": 0o2775, "tmp": 0o1777, "made": 0o777, "directory": 0o3777}.items():
        Path(scratch.upper, name).mkdir(exist_ok=True)
        Path(scratch.upper, name).chmod(mode)
    assert listed(scratch) == [
        "T  directory/  [mode 0755 -> 3777, setgid, sticky: not applied]",
        "T  file  [mode 0644 -> 4755, setuid: not applied]",
        "A  made/  [mode 0777]",
        "A  open  [mode 0666]",
        "A  script  [mode 0777]",
        "A  shared/  [mode 2775, setgid: not applied]",
        "A  sticky  [mode 1777, sticky: not applied]",
        "A  suid  [mode 6755, setuid, setgid: not applied]",
        "A  tmp/  [mode 1777, sticky: not applied]",
    ]
    before = os.umask(0o022)
    try:
        errors = applied(scratch)
    finally:
        os.umask(before)
    refused = {path for path, error in errors.items() if error}
    assert refused == {"directory", "file", "shared", "sticky", "suid", "tmp"}
    assert "setuid, setgid" in str(errors["suid"])
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path(scratch.lower).iterdir()}
    assert found == {"directory": 0o755, "file": 0o644, "old": 0o644, "made": 0o755, "open": 0o644, "script": 0o755}
    assert Path(scratch.upper, "suid").exists()


@pytest.mark.semantics("S39.3")
def test_what_a_program_takes_the_rights_to_from_its_user_is_listed_and_discarded(scratch: Scratch) -> None:
    write(scratch.upper, "file", "FILE\n").chmod(0)
    write(scratch.upper, "hidden/inside", "")
    write(scratch.upper, "made/hidden/inside", "")
    for path in ("hidden", "made/hidden"):
        Path(scratch.upper, path).chmod(0)
    plain = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"] if os.geteuid() == 0 else []
    script = (
        "import sys; from bbfs.fuse.scratch import changes, directory, settling\n"
        "scratch = directory.Scratch(sys.argv[1])\n"
        "print(*(f'{each.what} {each.path}' for each in changes.changes(scratch)), sep='\\n')\n"
        "print(*(each.path for each in changes.recorded(scratch)))\n"
        "settling.discard(scratch, None)\n"
    )
    done = subprocess.run(
        [*plain, sys.executable, "-c", script, scratch.path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "changed file",
        "added hidden",
        "added made",
        "added made/hidden",
        "file hidden made/hidden",
    ]
    assert os.listdir(scratch.upper) == []


@pytest.mark.semantics("S39")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_what_another_user_wrote_gives_that_user_no_rights(scratch: Scratch) -> None:
    Path(scratch.upper).chmod(0o777)
    for above in Path(scratch.upper).parents:
        above.chmod(above.stat().st_mode | 0o111)
    child = os.fork()
    if child == 0:
        try:
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            write(scratch.upper, "mine", "#!/bin/sh\n").chmod(0o6755)
            write(scratch.upper, "plain", "plain").chmod(0o777)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    errors = applied(scratch)
    assert errors["plain"] is None
    assert "setuid" in str(errors["mine"])
    found = Path(scratch.lower, "plain").stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode) & 0o7022) == (0, 0)
    assert not Path(scratch.lower, "mine").exists()


@pytest.mark.semantics("S39.6")
def test_only_what_was_listed_is_applied(scratch: Scratch) -> None:
    write(scratch.upper, "new", "reviewed")
    whiteout(scratch.upper, "old")
    chosen = changes(scratch)
    shown = digest(chosen)
    assert digest(changes(scratch)) == shown
    write(scratch.upper, "new", "replaced")
    Path(scratch.upper, "old").unlink()
    write(scratch.upper, "old", "here again")
    write(scratch.upper, "file", "another")
    assert digest(changes(scratch)) != shown
    before = tree(scratch.lower)
    outcomes = {each.change.path: each.error for each in settling.apply(scratch, chosen)}
    assert all("since it was listed" in str(error) for error in outcomes.values())
    assert tree(scratch.lower) == before


@pytest.mark.parametrize(
    ("path", "target", "leads_out"),
    [
        ("source/a", "b", False),
        ("source/d/a", "../b", False),
        ("source/d/a", "../../other/b", True),
        ("source/a", "../b", True),
        ("source/a", "/etc", True),
        ("source/a", "d/../../b", True),
    ],
)
def test_a_link_that_leads_out_of_its_source_is_shown(path: str, target: str, leads_out: bool) -> None:
    change = Change("added", path, "symlink", target=target)
    assert change.leads_out is leads_out
    assert ("leads out of the source" in commands.summary(change)) is leads_out
    assert commands.document(change)["target"] == target


def test_names_for_a_program_end_with_nul(scratch: Scratch) -> None:
    write(scratch.upper, 'new/a\nb "c"', "x")
    Path(os.fsdecode(os.fsencode(scratch.upper) + b"/\xff")).touch()
    done = CliRunner().invoke(commands.changes, [scratch.path, "-z"])
    assert done.stdout_bytes == b'W\0new/a\nb "c"\0W\0\xff\0', done.output
    assert CliRunner().invoke(commands.changes, [scratch.path, "-z", "--json"]).exit_code == 2


def test_names_are_quoted_as_git_quotes_them(scratch: Scratch) -> None:
    write(scratch.upper, 'a\nD  "old"\\', "")
    write(scratch.upper, "plain é", "")
    Path(scratch.upper, "link").symlink_to("\x1b[2J")
    assert listed(scratch) == [
        r'A  "a\nD  \"old\"\\"',
        r'A  link  [link to "\033[2J"]',
        "A  plain é",
    ]


@pytest.mark.semantics("S39")
def test_holes_stay_holes_and_what_has_no_room_is_refused_before_it_is_copied(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(Path(scratch.upper, "sparse"), "wb") as file:
        file.truncate(10 << 40)
        for place in (1 << 30, 5 << 40):
            file.seek(place)
            file.write(b"data")
    assert applied(scratch) == {"sparse": None}
    found = Path(scratch.lower, "sparse")
    assert (found.stat().st_size, found.stat().st_blocks < 100) == (10 << 40, True)
    with found.open("rb") as file:
        file.seek(5 << 40)
        assert file.read(5) == b"data\0"
    found.unlink()
    write(scratch.upper, "large", "x" * (2 << 20))
    room = os.statvfs(scratch.lower)
    full = os.statvfs_result((*room[:3], 10, 10, *room[5:]))
    monkeypatch.setattr(os, "fstatvfs", lambda _: full)
    assert "room for" in str(applied(scratch)["large"])
    assert sorted(os.listdir(scratch.lower)) == ["directory", "file", "old"]


def kinds_of_changes(scratch: Scratch) -> None:
    """Make one change of each kind in the upper layer."""
    write(scratch.upper, "file", "changed")
    write(scratch.upper, "made/deep/new", "new")
    write(scratch.upper, "x.part", "kept as well")
    os.setxattr(write(scratch.upper, "renamed", "directory/one\n"), ORIGIN, b'{"path": "directory/one"}')
    whiteout(scratch.upper, "directory")
    write(scratch.upper, "old/inside", "a directory in place of a file")
    Path(scratch.upper, "link").symlink_to("file")


APPLIED = {
    "file": "changed",
    "made/deep/new": "new",
    "x.part": "kept as well",
    "renamed": "directory/one\n",
    "old/inside": "a directory in place of a file",
    "link": "changed",
}


def contents(root: str) -> set[str]:
    """Return the contents of all files, whatever their names, and the targets of links."""
    found = {os.readlink(path) for path in Path(root).rglob("*") if path.is_symlink()}
    return found | {path.read_text() for path in Path(root).rglob("*") if path.is_file() and not path.is_symlink()}


def applied_until(scratch: Scratch, step: int) -> bool:
    """Apply all changes in a process that is killed before a step. Return whether it came to its end instead."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            chosen = changes(scratch)
            left = [step]

            def count(event: str, arguments: tuple[object, ...]) -> None:
                if event in STEPS or (event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT):
                    left[0] -= 1
                    if left[0] == 0:
                        os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(count)
            status = 2 if any(each.error for each in settling.apply(scratch, chosen)) else 0
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFEXITED(status)


STEPS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.utime", "os.chmod", "os.symlink"}


@pytest.mark.semantics("S39.5")
def test_a_kill_at_any_step_of_applying_loses_nothing_and_it_goes_on(tmp_path: Path, scratch: Scratch) -> None:
    kinds_of_changes(scratch)
    pristine = tmp_path / "pristine"
    # `cp` keeps the whiteouts, and attributes, which a copy of Python does not.
    subprocess.run(["cp", "-a", scratch.path, pristine], check=True)
    before = {"changed", "new", "kept as well", "directory/one\n", "a directory in place of a file", "file"}
    ended, step = False, 0
    while not ended:
        step += 1
        subprocess.run(["rm", "-rf", scratch.path], check=True)
        subprocess.run(["cp", "-a", pristine, scratch.path], check=True)
        chosen = changes(scratch)
        assert len(chosen) == 11, chosen
        ended = applied_until(scratch, step)
        missing = before - contents(scratch.upper) - contents(scratch.lower)
        assert not missing, (step, missing)
        assert {path: error for path, error in applied(scratch).items() if error} == {}, step
        assert tree(scratch.lower) == APPLIED, step
        assert listed(scratch) == [], step
        assert tree(scratch.upper) == {}, step
    assert step > 20


@pytest.mark.semantics("S39.5")
def test_what_a_killed_apply_has_stored_is_applied_for_a_list_from_before(scratch: Scratch) -> None:
    """A source that answers late may be listed without it."""
    was_stored: set[bool] = set()
    ended, step = False, 0
    while not ended:
        step += 1
        mine, there = Path(scratch.upper, f"made {step}"), Path(scratch.lower, f"made {step}")
        mine.write_text("new")
        chosen = changes(scratch)
        ended = applied_until(scratch, step)
        if mine.exists():
            was_stored.add(there.exists())
            assert [each.error for each in settling.apply(scratch, chosen)] == [None], step
            assert not mine.exists()
        assert there.read_text() == "new"
    assert was_stored == {False, True}


@pytest.mark.semantics("S39")
def test_an_interrupt_ends_what_is_under_way_and_begins_no_other(scratch: Scratch) -> None:
    names = [f"{number:03}" for number in range(400)]
    for name in names:
        write(scratch.upper, f"made/{name}", name)
    applying = settling.apply(scratch, changes(scratch))
    for _ in range(3):
        next(applying)
    with pytest.raises(KeyboardInterrupt):
        applying.throw(KeyboardInterrupt)
    mine, there = (set(os.listdir(Path(layer, "made"))) for layer in (scratch.upper, scratch.lower))
    assert mine | there == set(names)
    assert mine & there == set()
    assert len(mine) > 200
    assert set(applied(scratch).values()) == {None}
    assert set(os.listdir(Path(scratch.lower, "made"))) == set(names)
