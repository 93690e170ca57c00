"""`kill -9` of the daemon in the middle of saves: the file is the old or the new one, and no saved byte is lost (S32).

`make kills` has 200 rounds.
"""

import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from harness import Mounts
from programs import wait_until

from bbfs.sources.memory.file import MemoryFile

ROUNDS = int(os.environ.get("ROUNDS", "4"))
SAVES = """
import os, sys
for number in range(10_000):
    try:
        for name in ("in place", "beside"):
            text = (f"{number:06} " * 2000).encode()
            path = os.path.join(sys.argv[1], name)
            temporary = path if name == "in place" else os.path.join(sys.argv[1], ".tmp-beside")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.write(descriptor, text)
            os.close(descriptor)
            if temporary != path:
                os.rename(temporary, path)
            print(name, number, flush=True)
    except OSError as error:
        sys.exit(str(error))
"""


def kept(file: Path, name: str) -> bytes | None:
    held = MemoryFile(str(file), 1 << 30).read().contents.held.get(f"memory://{name.replace(' ', '%20')}")
    return None if held is None else held.content.data


@pytest.mark.semantics("S32.3")
@pytest.mark.timeout(30 + 3 * ROUNDS)
def test_a_killed_daemon_leaves_whole_files(mounted: Mounts, tmp_path: Path) -> None:
    file, random_ = tmp_path / "pad.file", random.Random(ROUNDS)
    config = {"file": str(file), "max_bytes": "8MiB"}
    source = {"name": "pad", "type": "memory", "capabilities": ["read", "list", "write"], "config": config}
    for _ in range(ROUNDS):
        mount = mounted(source)
        program = subprocess.Popen(
            [sys.executable, "-c", SAVES, mount / "bb-memory+pad+memory"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert program.stdout is not None
        told = [program.stdout.readline()]
        wait_until(lambda: file.exists(), "the first save is stored")
        with suppress(subprocess.TimeoutExpired):
            program.wait(random_.random() * 0.4)
        mount.process.kill()
        mount.process.wait(10)
        told += program.communicate(timeout=20)[0].splitlines()
        for name in ("in place", "beside"):
            saved = max((int(line.rpartition(" ")[2]) for line in told if line.startswith(name)), default=-1)
            content = kept(file, name)
            if content is None:
                assert saved == -1
                continue
            if content:
                number = int(content[:6])
                assert content == (f"{number:06} " * 2000).encode(), "nothing is half"
                assert number >= saved, "what was saved is there"
            else:
                assert name == "in place", "only a program that empties a file first can leave it empty"
        mount.destroy()
