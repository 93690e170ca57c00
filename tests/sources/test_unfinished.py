"""The names of files that are not whole yet: which of them their writer has left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bbfs.sources.unfinished import is_left, new_name, remove_left

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
    remove_left(directory)
    os.close(directory)
    assert {*os.listdir(tmp_path)} == {own, "note.md"}


def test_what_another_machine_was_writing_is_left_after_a_day() -> None:
    day, now = 24 * 3600, int(time.time())
    _, _, machine, process, end = new_name().split("-")
    other = "0" * 8 if machine != "0" * 8 else "1" * 8
    for process_of in (process, "7fffffff"):
        for at, left in ((now - 60, False), (now + day, False), (now - 2 * day, True)):
            assert is_left(f".bbfs-{at:x}-{other}-{process_of}-{end}") is left


@pytest.mark.parametrize("name", ["note.md", ".bbfs-0362774e1103e278.part", ".bbfs-1-1-1-1.part", ""])
def test_other_names_are_left_alone(name: str) -> None:
    assert not is_left(name)
