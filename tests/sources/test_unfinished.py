"""The names of files that are not whole yet: which of them their writer has left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bbfs.sources.unfinished import is_left, is_of_others, new_name, remove_left

SCRIPT = "from bbfs.sources.unfinished import new_name; print(new_name(), flush=True); input()"


def test_what_an_ended_process_was_writing_is_left(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert not is_left(name)
        process.kill()
        process.wait(20)
    assert is_left(name)
    own = new_name()
    for each in (name, own, "note.md"):
        (tmp_path / each).touch()
    directory = os.open(tmp_path, os.O_RDONLY)
    remove_left(directory, time.time())
    os.close(directory)
    assert {*os.listdir(tmp_path)} == {own, "note.md"}


def of_another_machine(at: int) -> str:
    """Return the name of a file that another machine writes. at: the time by its clock (seconds)."""
    _, _, machine, process, end = new_name().split("-")
    return f".bbfs-{at:x}-{'0' * 8 if machine != '0' * 8 else '1' * 8}-{process}-{end}"


def test_what_another_machine_has_not_written_for_a_day_is_left_whatever_its_clock_says(tmp_path: Path) -> None:
    day, now = 24 * 3600, int(time.time())
    names = [of_another_machine(at) for at in (1, now - 2 * day, now, now + 400 * day)]
    assert not [*filter(is_left, names)]
    assert all(map(is_of_others, names))
    directory = os.open(tmp_path, os.O_RDONLY)
    for modified, left in ((now - 60, False), (now + day, False), (now - 2 * day, True)):
        for name in names:
            (tmp_path / name).touch()
            os.utime(tmp_path / name, (modified, modified))
        remove_left(directory, now)
        assert {*os.listdir(tmp_path)} == (set() if left else {*names})
    os.close(directory)


@pytest.mark.parametrize("name", ["note.md", ".bbfs-0362774e1103e278.part", ".bbfs-1-1-1-1.part", ""])
def test_other_names_are_left_alone(name: str) -> None:
    assert not is_left(name)
    assert not is_of_others(name)
