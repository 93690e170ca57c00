"""Random operations on one file, compared with a copy in memory: builds and runs exercise.c."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from judging import Found
from kinds import Ground
from programs import run

SOURCE = Path(__file__).with_name("exercise.c")
SIZES = (1 << 18, 1 << 16, 1 << 18, 3 << 20)
"""Of the file, in bytes, for each seed: the last one is kept on disk while it is written."""
OPERATIONS: Mapping[str, int] = {"S3": 100_000, "SFTP": 100_000, "WebDAV": 100_000}
MANY = 1_000_000
"""Operations where OPERATIONS has no other number."""
SECONDS = 0.02
"""Bound for one operation, on average, on a busy machine."""


def exercise(ground: Ground, plain: Ground, quick: bool = False, *, operations: int = 0) -> Found:
    """Run with several seeds, which share the operations."""
    found, share = Found(), (operations or (2000 if quick else OPERATIONS.get(ground.kind, MANY))) // len(SIZES)
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory, "exercise")
        run("gcc", "-O2", "-o", program, SOURCE, timeout=60)
        at = ground.fresh()
        for seed, size in enumerate(SIZES, 1):
            bound = 60 + share * SECONDS
            try:
                done = run(program, at / "file", str(seed), str(share), str(size), timeout=bound, status=None)
                first = done.err.decode(errors="replace").partition("\n")[0]
                found.add(f"seed {seed}, {size} bytes", *([first] if done.status or first else []))
            except AssertionError as error:
                found.add(f"seed {seed}, {size} bytes", str(error)[-200:])
    return found
