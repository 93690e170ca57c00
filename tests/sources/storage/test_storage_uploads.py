"""The names of uploads: which of them their writer has left behind."""

import re
import subprocess
import sys
import time

import pytest

from bbfs.sources.storage.uploads import Uploads

SCRIPT = """
from bbfs.sources.storage.uploads import Uploads
with Uploads().name() as name:
    print(name, flush=True)
    input()
"""


@pytest.fixture
def uploads() -> Uploads:
    return Uploads()


def test_what_is_under_way_is_not_left(uploads: Uploads) -> None:
    with uploads.name() as first, uploads.name() as second:
        assert first != second
        assert not uploads.is_left(first)
    assert uploads.is_left(first)
    with Uploads().name() as another:
        assert not uploads.is_left(another)


def test_what_a_killed_process_had_under_way_is_left(uploads: Uploads) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert not uploads.is_left(name)
        process.kill()
        process.wait(20)
    assert uploads.is_left(name)


def test_what_another_machine_had_under_way_is_left_after_a_day(uploads: Uploads) -> None:
    with uploads.name() as name:
        _, _, machine, process, own, _ = re.split(r"-", name)
    day, now = 24 * 3600, int(time.time())
    other = "0" * 8 if machine != "0" * 8 else "1" * 8
    for process_of in (process, "7fffffff"):
        for at, left in ((now - 60, False), (now + day, False), (now - 2 * day, True)):
            assert uploads.is_left(f".bbfs-{at:x}-{other}-{process_of}-{int(own, 16) ^ 1:08x}-1.part") is left


@pytest.mark.parametrize("name", ["note.md", ".bbfs-0362774e1103e278.part", ".bbfs-1-1-1-1-1.part", ""])
def test_other_names_are_left_alone(uploads: Uploads, name: str) -> None:
    assert not uploads.is_left(name)
