"""Type keys to a program on a terminal of its own: `typed_keys.py 'SHOWN' 'KEYS' … -- PROGRAM…`.

Each KEYS (with Python's escapes) are typed once the terminal has shown the text before them. Ends as the program does.
"""

import os
import pty
import select
import sys
import time

BOUND = 30.0
"""Seconds for each text to be shown, and for the end."""


def shown(terminal: int, text: bytes | None) -> None:
    """Wait until a terminal shows a text, or until it is closed if there is none."""
    seen, deadline = b"", time.monotonic() + BOUND
    while text is None or text not in seen:
        if not select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
            sys.exit(f"not shown within {BOUND:g} s: {text!r}; only {seen[-2000:]!r}")
        try:
            seen += os.read(terminal, 1 << 16)
        except OSError:  # EIO: the program has closed its side
            if text is None:
                return
            sys.exit(f"it ended, and did not show {text!r}; only {seen[-2000:]!r}")


def main() -> None:
    end = sys.argv.index("--")
    steps, command = sys.argv[1:end], sys.argv[end + 1 :]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, {**os.environ, "TERM": "xterm", "LINES": "24", "COLUMNS": "80"})
    for text, keys in zip(steps[::2], steps[1::2], strict=True):
        shown(terminal, text.encode())
        os.write(terminal, keys.encode().decode("unicode_escape").encode())
    shown(terminal, None)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    main()
