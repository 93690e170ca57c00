"""A program that opens more files than the daemon may have descriptors costs no other program anything (S33)."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Mounts, folder
from programs import python, run

LIMIT = 256
HOG = """
import errno, os, sys
held = []
try:
    while len(held) < 2000:
        held.append(os.open(os.path.join(sys.argv[1], str(len(held))), int(sys.argv[2]), 0o600))
except OSError as error:
    print(len(held), errno.errorcode[error.errno], flush=True)
sys.stdin.read()
"""


@pytest.mark.semantics("S27", "S40.6")
@pytest.mark.parametrize("opened", ["passed", "read-only"])
def test_a_program_that_opens_everything_leaves_the_rest_to_others(
    mounted: Mounts, tmp_path: Path, opened: str
) -> None:
    for name in ("many", "other"):
        (tmp_path / name).mkdir()
        for number in range(2000 if name == "many" else 5):
            with open(tmp_path / name / str(number), "wb") as file:
                large = opened == "read-only" and name == "many"
                file.truncate(2 << 20 if large else 1)  # sparse, and too large to be held in memory
    capabilities = {"capabilities": ["read", "list", "write"]} if opened == "passed" else {}
    options = {"config": {"max_memory": "1MiB"}} if opened == "read-only" else {}
    mount = mounted(
        folder("many", tmp_path / "many", **capabilities, **options),
        folder("other", tmp_path / "other"),
        {"name": "pad", "type": "memory", "capabilities": ["read", "list", "write"]},
    )
    resource.prlimit(mount.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    hog = subprocess.Popen(
        [sys.executable, "-S", "-c", HOG, mount / "bb-filesystem+many+file", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert hog.stdout is not None
        count, error = hog.stdout.readline().split()
        assert int(count) > LIMIT // 8
        assert error == ("EMFILE" if opened == "passed" else "EIO")
        run("ls", "-lR", mount / "bb-filesystem+other+file")
        assert run("cat", mount / "bb-filesystem+other+file/3").out
        if opened == "passed":
            assert (
                python(
                    "print(len([open(os.path.join(sys.argv[1], str(each))) for each in range(10)]))",
                    mount / "bb-filesystem+many+file",
                ).text
                == "10\n"
            )
        for number in range(20):
            run("sh", "-c", 'echo text > "$1" && cat "$1"', "sh", mount / f"bb-memory+pad+memory/{number}")
    finally:
        hog.communicate(timeout=20)
    run("cat", mount / "bb-filesystem+many+file/1999")
