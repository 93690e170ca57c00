"""A passed folder without a mount: it does what the kernel does on a plain directory, and nothing leads out of it."""

import errno
import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plain_kernel import OWN, PlainKernel

from bbfs.resources.catalog.record import PASSED
from bbfs.sources.filesystem.beneath import AtMountPoint, MountPoint, Root
from bbfs.sources.filesystem.writing import NOREPLACE, rename_with
from bbfs.vfs.passthrough.folder import EXCHANGE, Creator, PassedFolder
from bbfs.vfs.passthrough.inodes import folder_of
from bbfs.vfs.passthrough.places import OPEN_DIRECTORIES

OPERATIONS = int(os.environ.get("BBFS_PASSED_OPERATIONS", "4000"))
"""Random operations of the model-based test; `make passed` runs a million."""
LIFE = 5000
"""Operations on one pair of directories."""


def passed(root: Path, mount_point: MountPoint | None = None, *, hidden: bool = True) -> PassedFolder:
    root.mkdir(exist_ok=True)
    return PassedFolder(Root(os.fsencode(root), mount_point), 0, hidden=hidden)


@pytest.fixture
def kernel(tmp_path: Path) -> PlainKernel:
    return PlainKernel(passed(tmp_path / "folder"))


class Plain:
    """The same system calls on a plain directory."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.root = root

    def at(self, path: str) -> Path:
        return self.root / path if path else self.root

    def write_at(self, path: str, flags: int, offset: int, data: bytes) -> None:
        number = os.open(self.at(path), flags | os.O_NOFOLLOW, 0o644)
        try:
            os.pwrite(number, data, offset)
        finally:
            os.close(number)

    def read_all(self, path: str) -> bytes:
        number = os.open(self.at(path), os.O_RDONLY | os.O_NOFOLLOW)
        try:
            return os.read(number, 1 << 20)
        finally:
            os.close(number)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(self.at(path))

    def set(self, path: str, **changed: int) -> None:
        if "mode" in changed:
            if self.at(path).is_symlink():
                raise OSError(errno.EOPNOTSUPP, "")
            os.chmod(self.at(path), changed["mode"])
        else:
            os.utime(self.at(path), ns=(changed["accessed_ns"], changed["modified_ns"]), follow_symlinks=False)

    def truncate(self, path: str, size: int) -> None:
        if self.at(path).is_symlink():
            raise OSError(errno.ELOOP, "")
        os.truncate(self.at(path), size)

    def mkdir(self, path: str) -> None:
        self.at(path).mkdir(mode=0o755)

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, self.at(path))

    def readlink(self, path: str) -> str:
        return os.readlink(self.at(path))

    def link(self, path: str, to: str) -> None:
        os.link(self.at(path), self.at(to), follow_symlinks=False)

    def unlink(self, path: str) -> None:
        os.unlink(self.at(path))

    def rmdir(self, path: str) -> None:
        os.rmdir(self.at(path))

    def rename(self, path: str, to: str, flags: int = 0) -> None:
        rename_with(-100, os.fsencode(self.at(path)), -100, os.fsencode(self.at(to)), flags)


def outcome(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    try:
        return call(*arguments, **named)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything in a directory: types, modes, sizes, bytes, targets, links."""
    found: dict[str, tuple[object, ...]] = {}
    first: dict[int, str] = {}
    for directory, directories, files in os.walk(root):
        for name in sorted(directories + files):
            path = Path(directory, name)
            status, below = path.lstat(), str(path.relative_to(root))
            content: object = None
            if stat.S_ISREG(status.st_mode):
                content = path.read_bytes()
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            same = first.setdefault(status.st_ino, below) if not stat.S_ISDIR(status.st_mode) else below
            found[below] = (status.st_mode, content, status.st_nlink, same)
        directories.sort()
    return found


class Walk:
    """Random operations on a passed folder, and on a plain directory."""

    def __init__(self, seed: int, kernel: PlainKernel, plain: Plain) -> None:
        self.random = random.Random(seed)
        self.kernel, self.plain = kernel, plain
        self.open: list[tuple[Any, int]] = []

    def path(self) -> str:
        depth = self.random.choice((1, 1, 1, 2, 2, 3))
        return "/".join(self.random.choice("abcde") for _ in range(depth))

    def step(self) -> None:
        choose = self.random
        path, to = self.path(), self.path()
        name, arguments, named = choose.choice(
            (
                ("write_at", self.some_write(path), {}),
                ("write_at", self.some_write(path), {}),
                ("read_all", (path,), {}),
                ("truncate", (path, choose.choice((0, 1, 4096, 9000))), {}),
                ("mkdir", (path,), {}),
                ("mkdir", (path,), {}),
                ("rmdir", (path,), {}),
                ("unlink", (path,), {}),
                ("rename", (path, to, choose.choice((0, 0, 0, NOREPLACE, EXCHANGE))), {}),
                ("rename", (path, to), {}),
                ("link", (path, to), {}),
                ("symlink", (choose.choice(("nowhere", "../nowhere", "/nowhere")), path), {}),
                ("readlink", (path,), {}),
                ("set", (path,), {"mode": choose.choice((0o600, 0o755))}),
                ("set", (path,), {"accessed_ns": 10**9, "modified_ns": choose.randrange(10**18)}),
                ("listdir", (choose.choice(("", path)),), {}),
            )
        )
        got = outcome(getattr(self.kernel, name), *arguments, **named)
        right = outcome(getattr(self.plain, name), *arguments, **named)
        if name == "listdir" and isinstance(got, list) and isinstance(right, list):
            got, right = sorted(got), sorted(right)
        assert got == right, (name, arguments, named)

    def some_write(self, path: str) -> tuple[Any, ...]:
        flags = os.O_WRONLY | self.random.choice(
            (0, os.O_CREAT, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_CREAT | os.O_TRUNC, os.O_APPEND)
        )
        return path, flags, self.random.choice((0, 3, 4000)), self.random.randbytes(self.random.choice((1, 10, 5000)))


@pytest.mark.semantics("S40")
@pytest.mark.timeout(7200)
def test_random_operations_do_what_they_do_on_a_plain_directory(tmp_path: Path) -> None:
    """Both trees are compared after every 200 operations, with all errors in between.

    New ones begin after `LIFE` operations: what a rename has moved deeper than the paths of the walk is never removed.
    """
    for first in range(0, OPERATIONS, LIFE):
        place = tmp_path / str(first)
        place.mkdir()
        kernel, plain = PlainKernel(passed(place / "folder")), Plain(place / "plain")
        walk = Walk(OPERATIONS + first, kernel, plain)
        for number in range(min(LIFE, OPERATIONS - first)):
            walk.step()
            if number % 200 == 199:
                assert tree(place / "folder") == tree(place / "plain")
        assert all(inode.lookups > 0 for inode in kernel.names.values())
        shutil.rmtree(place)


# -- inodes ------------------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S7.4")
def test_hard_links_are_one_inode_that_lasts_while_it_is_held(kernel: PlainKernel, tmp_path: Path) -> None:
    kernel.write_at("a", os.O_WRONLY | os.O_CREAT, 0, b"1")
    inode = kernel.find("a")
    assert inode.number >= PASSED
    assert folder_of(inode.number) == 0
    kernel.mkdir("d")
    kernel.link("a", "d/b")
    assert kernel.find("d/b") is inode
    assert kernel.stat("a").st_nlink == 2
    kernel.unlink("a")
    kernel.rename("d", "e")
    assert kernel.find("e/b") is inode
    again = PlainKernel(passed(tmp_path / "folder"))
    assert again.find("e/b").number == inode.number  # across mounts as well
    other = PlainKernel(PassedFolder(Root(os.fsencode(tmp_path / "folder"), None), 1, hidden=True))
    assert other.find("e/b").number != inode.number


@pytest.mark.semantics("S40")
def test_a_file_that_is_removed_while_open_can_be_used(kernel: PlainKernel) -> None:
    opened, _ = kernel.open("a", os.O_RDWR | os.O_CREAT)
    kernel.unlink("a")
    kernel.write_at("a", os.O_WRONLY | os.O_CREAT, 0, b"other")
    assert kernel.folder.write(opened, 0, b"mine") == 4
    assert kernel.folder.getattr(opened.inode).st_size == 4
    assert kernel.folder.getattr(opened.inode).st_nlink == 0
    assert kernel.folder.read(opened, 0, 10) == b"mine"
    kernel.close(opened)
    assert kernel.read_all("a") == b"other"


@pytest.mark.semantics("S40")
@pytest.mark.parametrize("replaced", [False, True])
def test_a_directory_that_is_removed_while_in_use_is_empty(kernel: PlainKernel, replaced: bool) -> None:
    kernel.mkdir("d")
    kernel.mkdir("other")
    inode = kernel.find("d")
    kernel.folder.counted(kernel.root, b"d", kernel.folder.getattr(inode))  # a program is in it
    if replaced:
        kernel.rename("other", "d")
    else:
        kernel.rmdir("d")
    assert stat.S_ISDIR(kernel.folder.getattr(inode).st_mode)
    opened = kernel.folder.opendir(inode)
    kernel.folder.begin(opened)
    assert opened.names == []
    opened.descriptor.close()
    assert outcome(kernel.folder.lookup, inode, b"x") == "ENOENT"
    assert outcome(kernel.folder.mkdir, inode, b"x", Creator(0o755, *OWN)) == "ENOENT"


def test_what_other_programs_do_to_a_held_inode_is_seen(kernel: PlainKernel, tmp_path: Path) -> None:
    kernel.mkdir("d")
    kernel.write_at("d/a", os.O_WRONLY | os.O_CREAT, 0, b"1")
    held = kernel.find("d/a")
    os.rename(tmp_path / "folder" / "d", tmp_path / "folder" / "e")
    (tmp_path / "folder" / "d").mkdir()
    (tmp_path / "folder" / "d" / "a").write_bytes(b"another")
    assert kernel.read_all("e/a") == b"1"
    assert kernel.find("e/a") is held
    (tmp_path / "folder" / "e" / "a").unlink()
    with pytest.raises(OSError) as raised:
        kernel.folder.getattr(held)
    assert raised.value.errno == errno.ESTALE


def test_directories_beyond_the_open_ones_are_opened_again(kernel: PlainKernel) -> None:
    others = ["others", *(f"others/{number}" for number in range(OPEN_DIRECTORIES))]
    for path in ("a", "a/b", "a/b/c", "a/b/c/d", "x", "x/y", *others):
        kernel.mkdir(path)

    def open_others(name: str) -> None:
        for path in others:
            kernel.mkdir(f"{path}/{name}")

    kernel.write_at("a/b/c/d/f", os.O_WRONLY | os.O_CREAT, 0, b"1")
    kernel.write_at("x/y/f", os.O_WRONLY | os.O_CREAT, 0, b"2")
    open_others("first")
    assert (kernel.read_all("a/b/c/d/f"), kernel.read_all("x/y/f")) == (b"1", b"2")
    open_others("second")
    kernel.rename("a/b/c", "x/y/c")
    assert kernel.read_all("x/y/c/d/f") == b"1"


def test_a_folder_that_is_replaced_is_found_again(kernel: PlainKernel, tmp_path: Path) -> None:
    kernel.write_at("a", os.O_WRONLY | os.O_CREAT, 0, b"old")
    (tmp_path / "folder").rename(tmp_path / "aside")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_bytes(b"new")
    kernel.stat("")
    assert kernel.read_all("a") == b"new"


# -- beneath the root --------------------------------------------------------------------------------------------------


@pytest.mark.semantics("S29.1")
@pytest.mark.parametrize("name", [b"..", b".", b"", b"a/b", b"../x"])
def test_no_name_is_a_way(kernel: PlainKernel, name: bytes) -> None:
    kernel.mkdir("a")
    for call in (kernel.folder.lookup, kernel.folder.unlink, kernel.folder.rmdir):
        with pytest.raises(OSError) as raised:
            call(kernel.root, name)
        assert raised.value.errno == errno.EINVAL
    with pytest.raises(OSError):
        kernel.folder.create(kernel.root, name, os.O_WRONLY, Creator(0o644, *OWN))


@pytest.mark.semantics("S29.1")
def test_links_that_take_the_place_of_files_and_directories_are_not_followed(
    kernel: PlainKernel, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    kernel.mkdir("d")
    kernel.write_at("d/secret", os.O_WRONLY | os.O_CREAT, 0, b"inside")
    kernel.write_at("f", os.O_WRONLY | os.O_CREAT, 0, b"inside")
    directory, file, below = kernel.find("d"), kernel.find("f"), kernel.find("d/secret")
    kernel.folder.forget(directory.number, 0)
    directory.descriptor = None  # as if many other directories had been used since
    os.rename(tmp_path / "folder" / "d", tmp_path / "away")
    (tmp_path / "folder" / "d").symlink_to(outside)
    (tmp_path / "folder" / "f").unlink()
    (tmp_path / "folder" / "f").symlink_to(outside / "secret")
    with pytest.raises(OSError):
        kernel.folder.lookup(directory, b"secret")
    with pytest.raises(OSError):
        kernel.folder.create(directory, b"new", os.O_WRONLY, Creator(0o644, *OWN))
    for inode in (file, below):
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_TRUNC):
            with pytest.raises(OSError) as raised:
                kernel.folder.open(inode, flags)
            assert raised.value.errno == errno.ESTALE
    with pytest.raises(FileExistsError):
        kernel.folder.create(kernel.root, b"f", os.O_WRONLY | os.O_EXCL, Creator(0o644, *OWN))
    with pytest.raises(OSError):
        kernel.folder.create(kernel.root, b"f", os.O_WRONLY | os.O_TRUNC, Creator(0o644, *OWN))
    assert sorted(os.listdir(outside)) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


@pytest.mark.semantics("S29")
def test_attributes_of_a_link_are_its_own(kernel: PlainKernel, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"1")
    before = outside.stat()
    kernel.symlink(str(outside), "l")
    kernel.set("l", modified_ns=10**9, accessed_ns=10**9)
    kernel.set("l", uid=OWN[0])
    assert outcome(kernel.set, "l", mode=0o777) == "ENOTSUP"
    kernel.link("l", "again")
    assert (tmp_path / "folder" / "again").is_symlink()
    assert outside.stat() == before
    assert (tmp_path / "folder" / "l").lstat().st_mtime_ns == 10**9


@pytest.mark.semantics("S29")
def test_the_mount_point_in_the_folder_is_not_touched(tmp_path: Path) -> None:
    root = tmp_path / "folder"
    (root / "sub" / "mnt").mkdir(parents=True)
    (root / "sub" / "mnt" / "below").write_bytes(b"never seen")
    kernel = PlainKernel(passed(root, MountPoint.named(str(root / "sub" / "mnt"))))
    parent = kernel.find("sub")
    with pytest.raises(AtMountPoint):
        kernel.folder.lookup(parent, b"mnt")
    opened = kernel.folder.opendir(parent)
    kernel.folder.begin(opened)
    kernel.folder.look_ahead(opened, 0)
    assert opened.ahead == {0: None}
    for call in (kernel.folder.unlink, kernel.folder.rmdir):
        with pytest.raises(OSError) as raised:
            call(parent, b"mnt")
        assert raised.value.errno == errno.EBUSY
    assert outcome(kernel.rename, "sub/mnt", "elsewhere") == "EBUSY"
    assert outcome(kernel.mkdir, "sub/mnt") == "EBUSY"


def test_hidden_names_are_neither_shown_nor_made(tmp_path: Path) -> None:
    kernel = PlainKernel(passed(tmp_path / "folder", hidden=False))
    (tmp_path / "folder" / ".h").write_bytes(b"1")
    (tmp_path / "folder" / "v").write_bytes(b"1")
    assert kernel.listdir("") == ["v"]
    assert outcome(kernel.stat, ".h") == "ENOENT"
    assert outcome(kernel.mkdir, ".new") == "EACCES"
    assert outcome(kernel.rename, "v", ".v") == "EACCES"


# -- modes, pages, attributes ------------------------------------------------------------------------------------------


@pytest.mark.semantics("S8", "S40")
def test_modes_are_those_that_the_program_asked_for(kernel: PlainKernel, tmp_path: Path) -> None:
    kernel.folder.create(kernel.root, b"f", os.O_WRONLY, Creator(0o666, *OWN))
    kernel.folder.mkdir(kernel.root, b"d", Creator(0o1777, *OWN))
    assert stat.S_IMODE((tmp_path / "folder" / "f").stat().st_mode) == 0o666
    assert stat.S_IMODE((tmp_path / "folder" / "d").stat().st_mode) == 0o1777
    kernel.folder.mknod(kernel.root, b"p", stat.S_IFIFO, Creator(0o622, *OWN))
    assert (tmp_path / "folder" / "p").lstat().st_mode == stat.S_IFIFO | 0o622
    with pytest.raises(PermissionError):
        kernel.folder.mknod(kernel.root, b"c", stat.S_IFCHR, Creator(0o622, *OWN))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.semantics("S29")
def test_only_what_was_made_is_given_to_its_user(
    kernel: PlainKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, making = tmp_path / "folder", os.mkdir
    secret = folder / "of root"
    secret.mkdir()
    (secret / "file").touch()

    def swapped(name: bytes, mode: int, *, dir_fd: int) -> None:
        making(name, mode, dir_fd=dir_fd)
        (folder / os.fsdecode(name)).rmdir()
        secret.rename(folder / os.fsdecode(name))

    kernel.folder.mkdir(kernel.root, b"own", Creator(0o755, 4711, 4711))
    monkeypatch.setattr(os, "mkdir", swapped)
    kernel.folder.mkdir(kernel.root, b"swapped", Creator(0o755, 4711, 4711))
    assert [(folder / name).stat().st_uid for name in ("own", "swapped")] == [4711, 0]


@pytest.mark.semantics("S13")
def test_the_kernel_keeps_its_pages_only_while_the_file_is_the_same(kernel: PlainKernel, tmp_path: Path) -> None:
    kernel.write_at("a", os.O_WRONLY | os.O_CREAT, 0, b"1")
    inode, long_ago = kernel.find("a"), 10**9
    path = tmp_path / "folder" / "a"

    def kept() -> bool:
        opened, right = kernel.folder.open(inode, os.O_RDONLY)
        kernel.folder.closed(opened)
        return right

    assert not kept()
    assert not kept()  # changed so lately that a second change could have the same time
    inode.stamp = (1, long_ago, path.stat().st_ctime_ns)
    path.write_bytes(b"2")
    assert not kept()
    inode.stamp = (path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_ctime_ns)
    assert kept()


@pytest.mark.semantics("S40")
def test_a_descriptor_is_no_other_files_while_a_thread_has_it(kernel: PlainKernel) -> None:
    kernel.write_at("a", os.O_WRONLY | os.O_CREAT, 0, b"1")
    inode = kernel.find("a")
    opened, _ = kernel.folder.open(inode, os.O_RDWR)
    found = opened.descriptor
    number = found.number
    kernel.folder.closed(opened)
    assert os.fstat(found.number).st_ino == inode.key[1]
    del found
    with pytest.raises(OSError):
        os.fstat(number)


@pytest.mark.semantics("S40.3")
def test_extended_attributes_are_those_of_the_file(kernel: PlainKernel, tmp_path: Path) -> None:
    kernel.write_at("a", os.O_WRONLY | os.O_CREAT, 0, b"1")
    inode = kernel.find("a")
    try:
        kernel.folder.setxattr(inode, b"user.note", b"text")
    except OSError as error:
        pytest.skip(f"the file system of the tests has none: {error}")
    assert os.getxattr(tmp_path / "folder" / "a", "user.note") == b"text"
    assert kernel.folder.listxattr(inode) == [b"user.note"]
    assert kernel.folder.getxattr(inode, b"user.note") == b"text"
    kernel.folder.removexattr(inode, b"user.note")
    assert kernel.folder.listxattr(inode) == []


def test_names_are_listed_as_they_were_when_the_program_began(kernel: PlainKernel, tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / "folder" / f"f{number}").touch()
    opened = kernel.folder.opendir(kernel.root)
    kernel.folder.begin(opened)
    kernel.folder.look_ahead(opened, 0)
    for number in range(60):
        (tmp_path / "folder" / f"f{number}").rename(tmp_path / "folder" / f"g{number}")
    assert len(opened.names) == 60
    kernel.folder.look_ahead(opened, 30)
    assert opened.ahead == {}
    kernel.folder.begin(opened)
    assert sorted(opened.names) == sorted(b"g%d" % number for number in range(60))
    assert kernel.folder.direct
