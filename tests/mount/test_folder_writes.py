"""A folder with the capability `write` on a real mount: what programs do there, they do to the folder."""

import os
import signal
import sqlite3
import stat
import sys
import zipfile
from pathlib import Path

import pytest
from harness import Mount, Mounts, folder
from programs import errno_of, run, shell, wait_until

NAME = "bb-filesystem+work+file"
WRITE = ["read", "list", "write"]
SCRIPTS = {
    "redirections": "echo one > a; echo two >> a; echo three | tee b | tee -a a > c; : > a.empty; cp a a.copy; "
    "sed -i s/two/2/ a; sed -i.bak s/one/1/ a; truncate -s 5 b; dd if=/dev/zero of=sparse bs=1 count=1 seek=70000 "
    "2>dd.log; rm dd.log; mv c d; ln d e; ln -s d f; chmod 600 a; touch -d @1000000000 a.empty",
    "directories": "mkdir -p a/b/c x; touch a/b/c/f; mv a/b x/b; rmdir a; cp -r x y; rm -r x; mkdir -m 1777 t; mv y z",
    "vim": "echo text > f; chmod 640 f; vim -u NONE -n -es -c 's/text/other/' -c 'wq' f; "
    "echo one > g; vim -u NONE -es -c 'set backup writebackup' -c 's/one/two/' -c 'wq' g; "
    "echo one > h; vim -u NONE -es -c 'set backupcopy=no' -c 's/one/two/' -c 'wq' h",
    "rename over": "echo old > f; echo new > .f.tmp; mv .f.tmp f; echo n2 > f.new; sync f.new; mv f f~; mv f.new f",
    "tar": 'tar -xf "$1/tree.tar"; tar -cf all.tar --mtime=@0 --sort=name tree; mkdir again; '
    "tar -C again -xf all.tar; rm all.tar",
    "cp -a": 'cp -a "$1/tree" copy; cp -a copy second; rm -r copy',
    "rsync": 'rsync -a "$1/tree/" a/; rsync -a --inplace "$1/other/" a/; rsync -a --delete "$1/tree/" b/; '
    'rsync -aH --inplace --append-verify "$1/tree/" b/',
    "unzip": 'unzip -q "$1/tree.zip"',
    "make": 'printf "all: b c\\nb: a\\n\\tcp a b\\nc: b\\n\\tcat a b > c\\n" > Makefile; echo 1 > a; make -s; make -q',
    "sqlite": "sqlite3 d.sqlite 'pragma journal_mode=wal; create table t(a); insert into t values (1),(2);' "
    "'insert into t select a + 2 from t' > out; sqlite3 d.sqlite 'pragma journal_mode=delete; vacuum' >> out; "
    "sqlite3 d.sqlite 'select sum(a) from t; pragma integrity_check' >> out; rm d.sqlite",
    "git": "git init -q . -b main; git config gc.auto 0; cp -r \"$1/tree\" t; git add .; git commit -qm one; "
    "echo more >> t/a; rm t/b; git commit -qam two; git checkout -q -b side HEAD~1; echo side > s; git add s; "
    "git commit -qm three; git merge -q main -m four; git gc -q; git fsck --strict; git status --porcelain; "
    "git log --format=%s%d > log; git ls-files -s > files; rm -rf .git",
}  # fmt: skip
"""What programs do, by their names. It is done in a directory of the mount, and in a plain one."""
ENVIRON = {
    "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z", "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b", "HOME": "/nonexistent",
}  # fmt: skip
KEEPS_TIMES = ("tar", "cp -a", "rsync")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def mount(module_mounted: Mounts, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Mount:
    other = tmp_path_factory.mktemp("other")
    return module_mounted(folder("work", root, capabilities=WRITE), folder("plain", other))


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trees to copy from: with modes, old times, links and a name that is not UTF-8."""
    made = tmp_path_factory.mktemp("material")
    for name, text in (("tree", "first"), ("other", "second")):
        (made / name / "d").mkdir(parents=True)
        for file in ("a", "b", "d/c", "d/ä b"):
            (made / name / file).write_text(f"{text} {file}\n" * 1000)
            os.utime(made / name / file, ns=(10**18, 10**18 + 123456789))
        (made / name / "a").chmod(0o640)
        (made / name / "l").symlink_to("d/c")
        os.link(made / name / "d" / "c", made / name / "hard")
    run("tar", "-C", made, "-cf", made / "tree.tar", "tree")
    with zipfile.ZipFile(made / "tree.zip", "w") as archive:
        archive.write(made / "tree" / "a", "tree/a")
        archive.write(made / "tree" / "d" / "c", "tree/d/c")
    for each in made.rglob("*"):
        if each.is_symlink():  # rsync does not set the time of a link that was made in the same second
            os.utime(each, ns=(1_500_000_000_000_000_000, 1_500_000_000_000_000_000), follow_symlinks=False)
    return made


@pytest.fixture
def place(mount: Mount, root: Path, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """A new directory of the mount, and the one in the folder."""
    name = f"{abs(hash(request.node.name)):x}"
    (root / name).mkdir()
    wait_until(lambda: errno_of("os.stat(sys.argv[1])", mount / NAME / name).startswith("OK"), "it is there")
    return mount / NAME / name, root / name


def tree(root: Path, *, times: bool) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        modified = status.st_mtime_ns if times and not path.is_dir() else None
        links = status.st_nlink if not path.is_dir() else None
        found[str(path.relative_to(root))] = (oct(status.st_mode), content, links, modified)
    return found


@pytest.mark.semantics("S8", "S40")
@pytest.mark.parametrize("name", SCRIPTS)
def test_what_programs_do_is_what_they_do_on_a_plain_directory(
    place: tuple[Path, Path], material: Path, tmp_path: Path, name: str
) -> None:
    script = "umask 022; set -e; " + "; ".join(f'export {key}="{value}"' for key, value in ENVIRON.items())
    there, here = place
    (tmp_path / "plain").mkdir()
    shell(f"{script}; {SCRIPTS[name]}", material, directory=there)
    shell(f"{script}; {SCRIPTS[name]}", material, directory=tmp_path / "plain")
    times = name in KEEPS_TIMES
    right = tree(tmp_path / "plain", times=times)
    assert tree(here, times=times) == right
    shown = shell(f"find . -mindepth 1 -printf '%P %m %s %n{' %T@' if times else ''}\\n' | sort", directory=there).text
    wanted = shell(f"find . -mindepth 1 -printf '%P %m %s %n{' %T@' if times else ''}\\n' | sort", directory=here).text
    assert shown == wanted


@pytest.mark.semantics("S32", "S40.1")
def test_what_is_synced_and_closed_is_in_the_folder(place: tuple[Path, Path]) -> None:
    there, here = place
    code = (
        "d = os.open(sys.argv[1], os.O_RDONLY); f = os.open('f', os.O_CREAT | os.O_RDWR, 0o600, dir_fd=d);"
        "os.write(f, b'1' * 100000); os.fsync(f); os.fdatasync(f); os.fsync(d); os.unlink('f', dir_fd=d);"
        "os.pwrite(f, b'2', 5); assert os.pread(f, 3, 4) == b'121'; assert os.fstat(f).st_nlink == 0;"
        "g = os.open('g', os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, dir_fd=d);"
        "os.write(g, b'a'); os.lseek(g, 0, 0); os.write(g, b'b'); os.close(g);"
        "h = os.open('h', os.O_CREAT | os.O_RDWR, dir_fd=d); os.posix_fallocate(h, 0, 5000); os.close(h)"
    )
    assert errno_of(f"exec({code!r})", there) == "OK None"
    assert sorted(os.listdir(here)) == ["g", "h"]
    assert (here / "g").read_bytes() == b"ab"
    assert (here / "h").read_bytes() == bytes(5000)


@pytest.mark.semantics("S40")
def test_a_shared_mapping_writes_to_the_file(place: tuple[Path, Path]) -> None:
    there, here = place
    (here / "f").write_bytes(bytes(10000))
    code = (
        "import mmap; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 10000); m[5000:5003] = b'abc'; m.flush()"
    )
    assert errno_of(f"exec({code!r})", there / "f") == "OK None"
    assert (here / "f").read_bytes()[4999:5004] == b"\0abc\0"
    assert errno_of(f"exec({code.replace('r+b', 'a+b')!r})", there / "f") == "ENODEV"


@pytest.mark.semantics("S40.5")
@pytest.mark.parametrize("access", ["O_RDWR", "O_WRONLY"])
def test_what_is_appended_is_at_the_end_that_other_programs_have_made(place: tuple[Path, Path], access: str) -> None:
    there, here = place
    code = (
        "there, here = sys.argv[1:]; open(here, 'wb').close();"
        f"f = os.open(there, os.{access} | os.O_APPEND | os.O_CREAT); os.write(f, b'1\\n');"
        "reader = open(there, 'rb'); assert reader.read() == b'1\\n'; other = open(here, 'ab', buffering=0);"
        "other.write(b'other\\n'); os.write(f, b'2\\n'); other.write(b'more\\n'); os.pwrite(f, b'3\\n', 0);"
        "reader.seek(0); print(reader.read()); os.close(f)"
    )
    assert errno_of(f"exec({code!r})", there / "log", here / "log") == "b'1\\nother\\n2\\nmore\\n3\\n'\nOK None"
    assert (here / "log").read_bytes() == b"1\nother\n2\nmore\n3\n"


@pytest.mark.semantics("S40")
def test_errors_are_the_kernels_own(place: tuple[Path, Path], mount: Mount) -> None:
    there, here = place
    (here / "full").mkdir()
    (here / "full" / "f").touch()
    (here / "f").write_bytes(b"1")
    for code, right in {
        "os.rmdir('full')": "ENOTEMPTY",
        "os.unlink('none')": "ENOENT",
        "os.mkdir('full')": "EEXIST",
        "os.open('f', os.O_CREAT | os.O_EXCL)": "EEXIST",
        "os.rename('full', 'full/sub')": "EINVAL",
        "os.rename('f', '../../f')": "EXDEV" if os.geteuid() == 0 else "EACCES",
        "os.mkdir('n' * 256)": "ENAMETOOLONG",
        "os.setxattr('f', 'trusted.bbfs', b'1')": "ENOTSUP",
        "os.mknod('c', 0o20600, 259)": "EPERM",
        "os.listdir('f')": "ENOTDIR",
    }.items():
        assert errno_of(f"[os.chdir(sys.argv[1]), {code}]", there) in (
            right,
            "EOPNOTSUPP" if "xattr" in code else right,
        )
    plain = mount / "bb-filesystem+plain+file"
    assert errno_of("open(sys.argv[1] + '/new', 'w')", plain) == "EROFS"
    assert errno_of("os.link(sys.argv[1] + '/f', sys.argv[2] + '/l')", there, plain) in ("EXDEV", "EROFS")
    assert tree(here, times=False).keys() == {"full", "full/f", "f"}


@pytest.mark.semantics("S9", "S13", "S40.2")
def test_both_sides_see_what_the_other_does(place: tuple[Path, Path]) -> None:
    there, here = place
    shell("echo one > f; cat f > g", directory=there)
    assert (here / "g").read_text() == "one\n"
    (here / "f").write_text("longer than before\n")
    (here / "new").write_text("new\n")
    wait_until(lambda: run("cat", there / "f").text == "longer than before\n", "the other version is there")
    wait_until(lambda: "new" in run("ls", there).text.split(), "the new name is there")
    (here / "g").unlink()
    wait_until(lambda: errno_of("os.stat(sys.argv[1])", there / "g") == "ENOENT", "the name is gone")


@pytest.mark.semantics("S11", "S35", "S38", "S40.3")
def test_descriptions_texts_and_attributes_are_there_by_name(place: tuple[Path, Path], mount: Mount) -> None:
    there, here = place
    shell("echo '<p>some <b>text</b></p>' > page.html; setfattr -n user.note -v mine page.html", directory=there)
    assert run("cat", there / "page.html.md").text.strip() == "some **text**"
    shell("echo '<p>other</p>' > page.html", directory=there)
    wait_until(lambda: run("cat", there / "page.html.md").text.strip() == "other", "the text is that of the new page")
    uri = run("getfattr", "--only-values", "-n", "user.bbfs.uri", there / "page.html").text
    assert uri == f"{NAME}:./{here.name}/page.html"
    assert run("getfattr", "--only-values", "-n", "user.mime_type", there / "page.html").text == "text/html"
    assert run("getfattr", "--only-values", "-n", "user.note", there / "page.html").text == "mine"
    assert run("cat", mount / NAME / ".about.md").text.startswith("# work")
    assert os.listdir(here) == ["page.html"]


@pytest.mark.semantics("S29.1")
def test_a_link_that_leads_out_is_text(place: tuple[Path, Path], tmp_path: Path) -> None:
    there, here = place
    (tmp_path / "outside").write_text("outside")
    shell('ln -s "$1" l; chmod -h 700 l 2>&1 || true; touch -h -d @1 l; mv l m', tmp_path / "outside", directory=there)
    assert os.readlink(here / "m") == str(tmp_path / "outside")
    assert (here / "m").lstat().st_mtime == 1
    assert (tmp_path / "outside").read_text() == "outside"


@pytest.mark.semantics("S28")
def test_the_mount_is_writable_where_a_source_is(mount: Mount, root: Path) -> None:
    line = next(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {mount.path} " in line)
    assert {"rw", "nosuid", "nodev", "noexec"} <= set(line.split()[5].split(","))
    assert stat.S_IMODE(int(run("stat", "-c", "%f", mount / NAME).text, 16)) == stat.S_IMODE(root.stat().st_mode)
    assert run("df", "--output=avail", mount.path).text.split()[1] != "0"


@pytest.mark.semantics("S29", "S33")
def test_a_mount_point_in_the_folder_stays_an_empty_directory(mounted: Mounts, tmp_path: Path) -> None:
    (tmp_path / "root" / "mnt").mkdir(parents=True)
    point = tmp_path / "root" / "mnt"
    mount = mounted(folder("work", tmp_path / "root", capabilities=WRITE), mount_point=point)
    assert run("find", mount / NAME, "-printf", "%P\n", timeout=20).text.split() == ["mnt"]
    assert errno_of("os.rmdir(sys.argv[1])", mount / NAME / "mnt") != "OK None"
    assert errno_of("open(sys.argv[1], 'w')", mount / NAME / "mnt" / "f") in ("EROFS", "EACCES")
    shell("echo 1 > f; mv f g; cat g", directory=mount / NAME)
    assert (tmp_path / "root" / "g").read_text() == "1\n"


@pytest.mark.semantics("S22", "S26", "S27", "S40.7")
def test_a_mount_in_the_folder_that_hangs_costs_no_other_source_anything(mounted: Mounts, tmp_path: Path) -> None:
    for name in ("work/in ner", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "work" / "f").write_text("1")
    (tmp_path / "other" / "g").write_text("2")
    mount = mounted(
        folder("work", tmp_path / "work", capabilities=WRITE, timeout=1), folder("other", tmp_path / "other")
    )
    assert run("cat", mount / NAME / "f").text == "1"
    inner = mounted(folder("inner", tmp_path / "other"), mount_point=tmp_path / "work" / "in ner")
    os.kill(inner.pid, signal.SIGSTOP)
    try:
        assert errno_of("os.stat(sys.argv[1])", mount / NAME / "in ner", timeout=20) == "ETIMEDOUT"
        assert errno_of("os.listdir(sys.argv[1])", mount / NAME, timeout=20) == "ETIMEDOUT"
        assert run("cat", mount / NAME.replace("work", "other") / "g", timeout=20).text == "2"
        assert run("cat", mount / NAME / "f", timeout=20).text == "1"
        mount.stop()
    finally:
        os.kill(inner.pid, signal.SIGCONT)


@pytest.mark.semantics("S40.4")
def test_sqlite_locks_between_two_programs(place: tuple[Path, Path]) -> None:
    there, here = place
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=30);"
        "[c.execute('insert into t values (?)', (i,)) and c.commit() for i in range(20)]"
    )
    with sqlite3.connect(here / "d") as made:
        made.execute("create table t(a)")
    made.close()
    shell('for n in 1 2 3; do "$1" -c "$2" d & done; wait', sys.executable, code, directory=there, timeout=50)
    with sqlite3.connect(here / "d") as made:
        assert made.execute("select count(*) from t").fetchone() == (60,)
    made.close()


@pytest.mark.semantics("S40.2")
def test_an_open_finds_the_size_that_another_program_has_given_a_file(place: tuple[Path, Path]) -> None:
    there, here = place
    (here / "grown").write_text("0")
    for number in range(1, 6):
        assert (there / "grown").stat().st_size
        text = str(number) * number * 1000
        (here / "grown").write_text(text)  # in place
        assert (there / "grown").read_text() == text
