"""SystemCalls reads the request of a waiting thread: from a made-up /proc, and from a real thread."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from bbfs.fuse import waiting_programs
from bbfs.fuse.waiting_programs import SystemCalls
from bbfs.vfs.filesystem import Wanted
from bbfs.vfs.names import Aim

THREAD = 4242
STACK, COUNTER = 0x7FFE76E75D88, 0x7F578EEF02AD
MODE, SIZE, BLOCKS, MTIME, EVERYTHING = 0x2, 0x200, 0x400, 0x40, 0x7FF
PATH = 0x55AA00001000
NEAR = 0x1000
"""An address in a file for the memory of a program."""


def line(number: int, *arguments: int, stack: int = STACK) -> str:
    """A line in the form of proc_pid_syscall(5)."""
    six = [*arguments, *[0] * (6 - len(arguments))]
    return " ".join([str(number), *map(hex, (*six, stack, COUNTER))]) + "\n"


def proc(directory: Path, shown: str | None, *, name: str = "program", arguments: tuple[str, ...] = ()) -> Path:
    """A /proc with one thread in it. shown: its system call; None for a file that does not exist."""
    (directory / "self").symlink_to(str(os.getpid()))
    thread = directory / str(THREAD)
    thread.mkdir()
    if shown is not None:
        (thread / "syscall").write_text(shown)
    (thread / "comm").write_text(f"{name}\n")
    (thread / "cmdline").write_text("".join(f"{word}\0" for word in (name, *arguments)))
    return directory


def statx(machine: str, mask: int, **more: int) -> str:
    return line({"x86_64": 332, "aarch64": 291}[machine], 0xFFFFFF9C, PATH, 0x100, mask, **more)


@pytest.mark.semantics("S12.3")
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        (0, Wanted.EXISTENCE),
        (MODE, Wanted.EXISTENCE),
        (0x11F, Wanted.EXISTENCE),  # type, mode, links, owner, inode
        (0x1000, Wanted.EXISTENCE),  # the mount
        (SIZE, Wanted.ALL),
        (BLOCKS | MODE, Wanted.ALL),
        (MTIME | MODE, Wanted.ALL),
        (EVERYTHING, Wanted.ALL),
        (0xFFF, Wanted.ALL),
    ],
)
async def test_the_mask_of_statx_decides(tmp_path: Path, machine: str, mask: int, wanted: Wanted) -> None:
    assert await SystemCalls(proc(tmp_path, statx(machine, mask)), machine).wanted(THREAD) is wanted


CALLS = {
    "x86_64": {
        Wanted.EXISTENCE: {"access": 21, "faccessat": 269, "faccessat2": 439},
        Wanted.XATTRS: {"getxattr": 191, "lgetxattr": 192, "listxattr": 194, "llistxattr": 195, "getxattrat": 464},
        Wanted.ALL: {
            "stat": 4,
            "lstat": 6,
            "newfstatat": 262,
            "open": 2,
            "openat": 257,
            "io_uring_enter": 426,
            "x": 291,
        },
        Wanted.CHANGE: {"rename": 82, "renameat2": 316, "chmod": 90, "utimensat": 280, "setxattr": 188, "truncate": 76},
    },
    "aarch64": {
        Wanted.EXISTENCE: {"faccessat": 48, "faccessat2": 439},
        Wanted.XATTRS: {"getxattr": 8, "lgetxattr": 9, "listxattr": 11, "llistxattr": 12, "listxattrat": 465},
        Wanted.ALL: {"newfstatat": 79, "openat": 56, "openat2": 437, "io_uring_enter": 426, "x": 332, "y": 191},
        Wanted.CHANGE: {"renameat2": 276, "fchmodat": 53, "utimensat": 88, "setxattr": 5, "truncate": 45},
    },
    "riscv64": {Wanted.ALL: {"statx": 291, "faccessat": 48, "getxattr": 8}},
}


@pytest.mark.semantics("S12.3")
@pytest.mark.parametrize(
    ("machine", "number", "wanted"),
    [
        pytest.param(machine, number, wanted, id=f"{machine}-{name}")
        for machine, by_wanted in CALLS.items()
        for wanted, calls in by_wanted.items()
        for name, number in calls.items()
    ],
)
async def test_the_number_of_a_call_decides_by_the_table_of_the_machine(
    tmp_path: Path, machine: str, number: int, wanted: Wanted
) -> None:
    shown = line(number, 0xFFFFFF9C, PATH, PATH, MODE)
    assert await SystemCalls(proc(tmp_path, shown), machine).wanted(THREAD) is wanted


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (os.O_RDONLY, Wanted.ALL),
        (os.O_WRONLY | os.O_CREAT | os.O_TRUNC, Wanted.ALL),
        (os.O_WRONLY | os.O_APPEND, Wanted.CHANGE),
        (os.O_RDWR, Wanted.CHANGE),
    ],
)
@pytest.mark.parametrize(
    ("machine", "number", "before"), [("x86_64", 2, (PATH,)), ("x86_64", 257, (3, PATH)), ("aarch64", 56, (3, PATH))]
)
async def test_an_open_that_keeps_the_content_to_write_is_a_change(
    tmp_path: Path, machine: str, number: int, before: tuple[int, ...], flags: int, wanted: Wanted
) -> None:
    made = proc(tmp_path, line(number, *before, flags))
    assert await SystemCalls(made, machine).wanted(THREAD) is wanted


@pytest.mark.semantics("S9")
@pytest.mark.parametrize(
    "shown",
    [
        None,
        "",
        "-1 0x7ffe76e75d88 0x7f578eef02ad\n",
        "running\n",
        line(195, PATH, stack=0xFFC0_1000),  # stat64 of a program of 32 bits
        line(332, 0, PATH, 0, MODE, stack=0),  # a worker of the kernel
        line(332 | 1 << 30, 0, PATH, 0, MODE),  # x32
    ],
    ids=["gone", "nothing", "outside", "running", "32 bits", "kernel", "x32"],
)
async def test_what_is_not_recognised_may_want_the_size(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, shown: str | None
) -> None:
    assert await SystemCalls(proc(tmp_path, shown), "x86_64").wanted(THREAD) is Wanted.ALL


async def test_a_thread_that_is_not_asleep_yet_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    made = proc(tmp_path, "running\n")
    looks: list[int] = []

    async def fall_asleep(_: float) -> None:
        looks.append(1)
        if len(looks) == 3:
            (made / str(THREAD) / "syscall").write_text(statx("x86_64", MODE))

    monkeypatch.setattr(waiting_programs.trio, "sleep", fall_asleep)
    assert await SystemCalls(made, "x86_64").wanted(THREAD) is Wanted.EXISTENCE


@pytest.mark.parametrize(
    ("name", "mask", "wanted"),
    [("getfattr", EVERYTHING, Wanted.XATTRS), ("stat", MODE, Wanted.ALL), ("stat2", MODE, Wanted.EXISTENCE)],
)
async def test_some_programs_need_other_fields_than_they_ask_for(
    tmp_path: Path, name: str, mask: int, wanted: Wanted
) -> None:
    made = proc(tmp_path, statx("x86_64", mask), name=name)
    assert await SystemCalls(made, "x86_64").wanted(THREAD) is wanted


@pytest.mark.parametrize("thread", [0, -1])
async def test_a_thread_without_a_number_here_may_want_the_size(tmp_path: Path, thread: int) -> None:
    assert await SystemCalls(proc(tmp_path, None)).wanted(thread) is Wanted.ALL


async def test_the_numbers_of_another_namespace_are_not_looked_up(tmp_path: Path) -> None:
    made = proc(tmp_path, statx("x86_64", MODE))
    (made / "self").unlink()
    (made / "self").symlink_to("1")
    assert await SystemCalls(made, "x86_64").wanted(THREAD) is Wanted.ALL


@pytest.mark.semantics("S9", "S12.3")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("ls", Wanted.EXISTENCE),
        ("/usr/bin/ls --color=auto", Wanted.EXISTENCE),
        ("ls --color -aF1 dir -R", Wanted.EXISTENCE),
        ("ls --color=auto -- -l", Wanted.EXISTENCE),
        ("ls -l", Wanted.ALL),
        ("ls --color=auto -Fsa", Wanted.ALL),
        ("ls dir -lh", Wanted.ALL),
        ("ls -t", Wanted.ALL),
        ("ls -S", Wanted.ALL),
        ("ls -U --size", Wanted.ALL),
        ("ls --sort=size", Wanted.ALL),
        ("ls --format=long", Wanted.ALL),
        ("ls --full-time", Wanted.ALL),
        ("getfattr -d file", Wanted.XATTRS),
        ("stat file", Wanted.ALL),
        ("lsd", Wanted.ALL),
        ("", Wanted.ALL),
    ],
)
async def test_where_the_call_is_not_shown_the_arguments_may_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, wanted: Wanted
) -> None:
    """Yama and hidepid show the files of a program's memory to no other process."""
    name, *arguments = words.split(" ")
    made = proc(tmp_path, statx("x86_64", MODE), name="x")
    (made / str(THREAD) / "cmdline").write_text("".join(f"{word}\0" for word in (name, *arguments) if word))

    really_open = os.open

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if str(path).endswith("/syscall"):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        return really_open(path, *rest, **more)

    monkeypatch.setattr(waiting_programs.os, "open", refuse)
    assert await SystemCalls(made, "x86_64").wanted(THREAD) is wanted


def reading() -> int:
    """Return the number of the system call that reads a file."""
    return int(Path("/proc/self/syscall").read_text().split()[0])


async def test_the_form_of_this_kernels_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(waiting_programs.SYSTEM_CALLS, "test", {reading(): Wanted.XATTRS})
    assert await SystemCalls(machine="test").wanted(os.getpid()) is Wanted.XATTRS


@pytest.mark.semantics("S34.7")
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("path", "flags", "aim"),
    [
        (b"notes/new", os.O_WRONLY | os.O_CREAT, Aim.CREATES),
        (b"new/", os.O_WRONLY | os.O_CREAT, Aim.CREATES),
        (b"new/new", os.O_WRONLY | os.O_CREAT, Aim.CREATES),
        (b"new", os.O_RDONLY, Aim.OTHER),
        (b"/notes/new/deep", os.O_WRONLY | os.O_CREAT, Aim.PASSES),
        (b"notes", os.O_WRONLY | os.O_CREAT, Aim.OTHER),  # a link leads to the name
        (b"x" * 5000, os.O_RDONLY, Aim.UNKNOWN),
    ],
)
async def test_the_path_of_a_call_tells_why_a_name_is_looked_up(
    tmp_path: Path, machine: str, path: bytes, flags: int, aim: Aim
) -> None:
    openat = line({"x86_64": 257, "aarch64": 56}[machine], 0xFFFFFF9C, NEAR, flags)
    made = proc(tmp_path, openat)
    (made / str(THREAD) / "mem").write_bytes(bytes(NEAR) + path + b"\0after")
    assert await SystemCalls(made, machine).aim(THREAD, b"new") is aim


@pytest.mark.semantics("S22")
@pytest.mark.parametrize(
    ("call", "first", "second", "aim"),
    [
        (83, b"d/new", b"", Aim.MAKES),  # mkdir
        (82, b"d/old", b"d/new", Aim.MAKES),  # rename
        (82, b"d/new", b"d/other", Aim.OTHER),
        (82, b"d/new", b"e/new", Aim.OTHER),  # either directory may be meant
        (88, b"new", b"d/link", Aim.OTHER),  # symlink: its text is not looked up
        (88, b"text", b"d/new", Aim.MAKES),
        (87, b"d/new", b"", Aim.OTHER),  # unlink
    ],
)
async def test_a_call_that_makes_a_name(tmp_path: Path, call: int, first: bytes, second: bytes, aim: Aim) -> None:
    made = proc(tmp_path, line(call, NEAR, NEAR + 100))
    memory = first.ljust(100, b"\0") + second + b"\0"
    (made / str(THREAD) / "mem").write_bytes(bytes(NEAR) + memory)
    assert await SystemCalls(made, "x86_64").aim(THREAD, b"new") is aim


@pytest.mark.parametrize(
    "shown", [None, "running\n", line(82, NEAR, NEAR), line(257, 0, 1 << 63), line(1, NEAR), line(257, 0, NEAR)]
)
async def test_a_lookup_without_a_readable_path_may_be_for_anything(tmp_path: Path, shown: str | None) -> None:
    assert await SystemCalls(proc(tmp_path, shown), "x86_64").aim(THREAD, b"new") is Aim.UNKNOWN
