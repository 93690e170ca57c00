"""Steps of a command that changes a scratch: it ends or stops itself before one of them.

A step is a call that changes a name or a mode: `os.rename 3` is the third rename. To be run in place of `bbfs`:
`python apply_steps.py FILE STEP SIGNAL WORDS…`. FILE gets a line for each step.
"""

import os
import sys
from collections import Counter
from typing import Any

_STEPS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.utime", "os.chmod", "os.symlink"}


def main() -> None:
    told, wanted, number, *words = sys.argv[1:]
    lines = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    counts: Counter[str] = Counter()

    def come(kind: str) -> None:
        counts[kind] += 1
        step = f"{kind} {counts[kind]}"
        os.write(lines, f"{step}\n".encode())
        if step == wanted:
            os.kill(os.getpid(), int(number))

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STEPS:
            come(event)
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT:
            come("make")

    from bbfs.cli import main as bbfs

    sys.addaudithook(hear)
    sys.argv = ["bbfs", *words]
    bbfs(prog_name="bbfs")


if __name__ == "__main__":
    main()
