"""Test programs from the registry of Debian: stress-ng, fio, and the suites in the sources of git and SQLite.

What has to be built is built below `.foreign` in the repository, once.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from judging import Found
from kinds import Ground
from programs import Done, run, shell
from repository import ROOT

HERE = Path(__file__).parent
BUILT = ROOT / ".foreign"
BUILD = 1800
"""Seconds for building one of them."""
SKIPPED_BY_STRESS = frozenset({"bind-mount", "binderfs", "ioprio", "procfs", "eventfd", "dup", "chattr", "inode-flags"})
"""Stressors of its class that use no directory, or leave files that a plain directory cannot remove."""
_VERIFY = "--verify_state_save=0 --verify_fatal=1 --do_verify=1 --group_reporting --minimal"
VERIFY = f"--verify=crc32c {_VERIFY} --size=4m --bs=4k-64k"
JOBS: Mapping[str, str] = {
    "a sequential write": f"--rw=write {VERIFY}",
    "random writes": f"--rw=randwrite {VERIFY}",
    "random reads and writes": f"--rw=randrw {VERIFY}",
    "writes with fsync": f"--rw=randwrite --fsync=20 {VERIFY}",
    "four writers": f"--rw=randwrite --numjobs=4 {VERIFY}",
    "by a map": f"--rw=randrw --ioengine=mmap {VERIFY}",
    "by vectors": f"--rw=randwrite --ioengine=pvsync2 {VERIFY}",
    "by asynchronous calls": f"--rw=randwrite --ioengine=libaio --iodepth=8 {VERIFY}",
    "past the page cache": f"--rw=randwrite --direct=1 {VERIFY}",
    "with time-stamped blocks": f"--rw=randwrite --verify=meta {_VERIFY} --size=2m --bs=4k",
    "a file cut meanwhile": f"--rw=randwrite --overwrite=1 --fallocate=none {VERIFY}",
}
_STOPS = "the script stops"
GIT_SCRIPTS = "t[0-3]*.sh t7*.sh"
_ODD = re.compile(r"/\S+|\b\d[\d.x:]*\b|0x[0-9a-f]+")


def _plainly(text: str) -> str:
    """Return a message without paths and numbers, which differ from run to run."""
    return _ODD.sub("…", text).strip()[:160]


def stress(ground: Ground, plain: Ground, quick: bool = False) -> Found:
    """stress-ng's class of file systems, each stressor with two workers and `--verify`."""
    if shutil.which("stress-ng") is None:
        return Found(lacking="stress-ng is not installed")
    told = run("stress-ng", "--class", "filesystem?", status=None)
    names = (told.out + told.err).decode().partition("stressors:")[2].split()
    found = Found()
    for name in (each for each in names if each not in SKIPPED_BY_STRESS):
        if quick and name not in ("dentry", "rename", "flock"):
            continue
        ends: list[str] = []
        for which in (plain, ground):
            at = which.fresh()
            words = ["--timeout", "1" if which is plain else "2", "--temp-path", at, "--verify"]
            try:
                done = run("stress-ng", f"--{name}", "2", *words, timeout=60, status=None)
                ends.append(_failure(name, done))
            except AssertionError as error:
                ends.append(_plainly(str(error)))
            run("rm", "-rf", at, timeout=120, status=None)
        found.add(name, *([] if ends[0] == ends[1] or not ends[1] else [ends[1]]))
    return found


def _failure(name: str, done: Done) -> str:
    """Return the first complaint of a stressor, empty if it had none. A stressor may be skipped (status 3)."""
    lines = [line for line in (done.out + done.err).decode(errors="replace").splitlines() if f"{name}:" in line]
    failed = [line.partition(f"{name}:")[2] for line in lines if re.search(r"fail|cannot|error|skipp|unable", line)]
    if done.status or any("cannot" in line for line in failed):
        return f"status {done.status}: {_plainly(failed[0] if failed else 'no reason')}"
    return ""


def fio(ground: Ground, plain: Ground, quick: bool = False) -> Found:
    """fio with checksums in what it writes, read back."""
    if shutil.which("fio") is None:
        return Found(lacking="fio is not installed")
    found = Found()
    for name, words in JOBS.items():
        if quick and name not in ("random writes", "by a map"):
            continue
        at = ground.fresh()
        try:
            done = run(
                "fio",
                "--name=job",
                "--directory=" + str(at).replace(":", r"\:"),
                *words.split(),
                timeout=240,
                status=None,
            )
            lines = [
                line for line in done.err.decode(errors="replace").splitlines() if "fio:" in line or "verify" in line
            ]
            found.add(name, *([f"status {done.status}: {_plainly((lines or [''])[0])}"] if done.status else []))
        except AssertionError as error:
            found.add(name, _plainly(str(error)))
        run("rm", "-rf", at, timeout=120, status=None)
    return found


def source(package: str) -> Path:
    """Return the upstream source of a Debian package, which this machine's apt fetches. Raise AssertionError."""
    there = BUILT / package
    if not (there / "source").is_dir():
        there.mkdir(parents=True, exist_ok=True)
        shell('sh "$1" "$2"', HERE / "sources.sh", package, directory=there, timeout=BUILD)
    return there / "source"


def git(ground: Ground, plain: Ground, quick: bool = False, *, scripts: str = GIT_SCRIPTS, workers: int = 1) -> Found:
    """git's own tests, those of basics, the index, branches and the work tree, with their directories on the mount."""
    try:
        tests = source("git") / "t"
        if not (tests.parent / "git").exists():
            options = "NO_GETTEXT=1 NO_CURL=1 NO_EXPAT=1 NO_TCLTK=1 NO_OPENSSL=1 CFLAGS=-O1"
            shell(f"make -j2 {options} > build.log 2>&1", directory=tests.parent, timeout=BUILD)
    except AssertionError as error:
        return Found(lacking=_plainly(str(error)))
    _let_programs_run(ground)
    chosen = sorted({each.name for pattern in scripts.split() for each in tests.glob(pattern)})
    found = Found()
    with ThreadPoolExecutor(workers) as pool:
        there = ground.fresh()
        for name, failed in zip(chosen, pool.map(lambda each: _git_script(tests, each, there), chosen), strict=True):
            if failed:  # as on a plain directory?
                there_too = _git_script(tests, name, plain.fresh())
                failed = [each for each in failed if each not in there_too or each.startswith(_STOPS)]
            found.add(name, *failed)
    return found


def _git_script(tests: Path, name: str, at: Path) -> list[str]:
    """Return the tests of a script that failed, by their descriptions."""
    try:
        done = shell('nice "./$1" --root="$2"', name, at, directory=tests, timeout=900, status=None)
    except AssertionError as error:
        return [f"no end: {_plainly(str(error))}"]
    lines = done.out.decode(errors="replace").splitlines()
    failed = [line.partition(" - ")[2] for line in lines if line.startswith("not ok") and "# TODO" not in line]
    ended = any(line.startswith("1..") for line in lines)
    shell('rm -rf -- "$1"/trash*', at, timeout=120, status=None)
    return failed if ended else [*failed, f"{_STOPS} after: {(lines or [''])[-1][:100]}"]


def _let_programs_run(ground: Ground) -> None:
    """Lift `noexec` from this mount, as root may (mount(8)): git's tests run scripts of their directories."""
    if ground.kind == "plain":
        return
    at = next(each for each in (ground.directory, *ground.directory.parents) if os.path.ismount(each))
    run("mount", "-i", "-o", "remount,bind,exec", at, status=None)


SQLITE: Sequence[str] = (
    "walthread1", "walthread2", "walthread3", "walthread4", "walthread5", "cgt_pager_1", "dynamic_triggers",
    "checkpoint_starvation_1", "checkpoint_starvation_2", "create_drop_index_1", "lookaside1", "vacuum1", "stress1",
    "shared1",
)  # fmt: skip


def sqlite(ground: Ground, plain: Ground, quick: bool = False) -> Found:
    """SQLite's tests of threads, and its tool of keys and values, the database on the mount."""
    try:
        tree = source("sqlite3")
        if not (tree / "kvtest").exists():
            shell('sh "$1"', HERE / "sqlite.sh", directory=tree, timeout=BUILD)
    except AssertionError as error:
        return Found(lacking=_plainly(str(error)))
    found = Found()
    for name in SQLITE:
        if quick and name not in ("lookaside1", "shared1"):
            continue
        at = ground.fresh()
        try:
            done = shell('exec "$1/threadtest3" "$2"', tree, name, directory=at, timeout=150, status=None)
            text = (done.out + done.err).decode(errors="replace")
            errors = re.findall(r"^.*(?:ERROR|error|corrupt|malformed|not a database).*$", text, re.MULTILINE)
            errors = [line for line in errors if not re.search(r"\b0 errors", line)]
            found.add(
                name,
                *([f"status {done.status}: {_plainly((errors or [text[-80:]])[0])}"] if done.status or errors else []),
            )
        except AssertionError as error:
            found.add(name, _plainly(str(error)))
        shell('rm -rf "$1"', at, timeout=60, status=None)
    for name, script in _KEYS.items():
        at = ground.fresh()
        done = shell(f'K="$1/kvtest"; {script}', tree, directory=at, timeout=200, status=None)
        found.add(
            name,
            *(
                [f"status {done.status}: {_plainly(done.err.decode() or done.out.decode()[-100:])}"]
                if done.status
                else []
            ),
        )
        shell('rm -rf "$1"', at, timeout=60, status=None)
    return found


_COUNT = "--count 300 --size 3000 --variance 2000"
_KEYS: Mapping[str, str] = {
    "kvtest": f"$K init x.db {_COUNT} && $K run x.db --count 2000 --integrity-check "
    "&& $K run x.db --count 300 --update",
    "kvtest with a log": f"$K init x.db {_COUNT} --pagesize 1024 && $K run x.db --count 300 --update --jmode WAL "
    "--integrity-check",
    "kvtest by a map": f"$K init x.db {_COUNT} && $K run x.db --count 1000 --mmap 1000000 --integrity-check",
    "kvtest of files": f"$K init x.db {_COUNT} && mkdir files && $K export x.db files "
    "&& $K run files --count 1000 --max-id 300 && test $(ls files | wc -l) = 300",
}
