"""Draw the session of `bbfs demo` as a moving picture and as a still one: `picture.py OUTPUT_DIRECTORY`.

The demo runs on a terminal of its own, and all that is drawn is what it wrote. Commands whose output is long or says
nothing to a reader are left out; a command appears as if it were typed, since the demo writes it at once.
"""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

WIDTH, HEIGHT = 100, 26
LEFT_OUT = ("find ", "getfattr ", "wc ", "sha256sum ", "cmp ", "bbfs-knowledge import", "bbfs call ")
STILL = re.compile(r"ls|cat .*/rows\.csv|(grep|bbfs search) .*")
"""The commands of the still picture."""
FRAME = ("--template", "window_frame")
AT_ONCE = 4
"""Characters that appear together."""
KEY, RETURN, LINE, READ = 0.06, 0.3, 0.02, 1.4
"""Seconds: for those characters, before the output of a command, for a line of it, and until the next command."""
STAYS = "until Ctrl-C"
_PROMPT = re.compile(r"(?P<prompt>\x1b\[32m(?:\w+ )?\$\x1b\[0m )\x1b\[1m(?P<command>.*)\x1b\[0m")
_TITLE = re.compile(r"\x1b\[36m— .* —\x1b\[0m")

Step = tuple[str, str, list[str]]


def session() -> str:
    """Run the demo on a terminal until it waits for Ctrl-C, and return all that it writes."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm-256color"}
    demo = Path(sys.executable).with_name("bbfs")
    with subprocess.Popen([demo, "demo"], stdin=theirs, stdout=theirs, stderr=theirs, env=environ) as program:
        os.close(theirs)
        written, asked = b"", False
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the terminal ends with the program
                break
            written += piece
            if not asked and STAYS.encode() in written:
                program.send_signal(signal.SIGINT)
                asked = True
    os.close(ours)
    if program.returncode:
        raise SystemExit(f"the demo ended with status {program.returncode}:\n{written.decode()}")
    return written.decode()


def steps(written: str) -> Iterator[Step]:
    """Return prompt, command and lines of each command that is shown, and titles as lines without a command."""
    step: Step | None = None
    for line in written.split("\r\n"):
        if (found := _PROMPT.fullmatch(line)) is not None:
            if step is not None:
                yield step
            step = found["prompt"], found["command"], []
        elif _TITLE.fullmatch(line):
            if step is not None:
                yield step
            step = "", "", [line]
        elif step is not None:
            step[2].append(line)
    if step is not None:
        yield step


def shown(all_steps: list[Step]) -> Iterator[Step]:
    """Leave out commands, and titles below which none is left."""
    kept = [step for step in all_steps if not step[1].startswith(LEFT_OUT)]
    for step, following in zip(kept, [*kept[1:], None], strict=True):
        if step[1] or (following is not None and following[1]):
            yield step


def recording(wanted: list[Step]) -> Iterator[str]:
    """Return a recording in the format asciicast v2 (https://docs.asciinema.org/manual/asciicast/v2/)."""
    at = 0.0
    yield json.dumps({"version": 2, "width": WIDTH, "height": HEIGHT})
    for prompt, command, lines in wanted:
        typed = [command[start : start + AT_ONCE] for start in range(0, len(command), AT_ONCE)]
        written = [prompt, *(f"\x1b[1m{piece}\x1b[0m" for piece in typed), "\r\n"] if command else []
        pauses = [0.0, *(KEY for _ in typed), RETURN] if command else []
        for text, pause in zip(
            [*written, *(f"{line}\r\n" for line in lines)], [*pauses, *(LINE for _ in lines)], strict=True
        ):
            at += pause
            yield json.dumps([round(at, 2), "o", text])
        at += READ if command else 0


def still(wanted: list[Step]) -> Iterator[str]:
    """Return a recording of a few commands that are there at once."""
    chosen = [step for step in wanted if STILL.fullmatch(step[1])]
    lines = [line for prompt, command, lines in chosen for line in (f"{prompt}\x1b[1m{command}\x1b[0m", *lines)]
    rows = sum(max(1, -(-len(re.sub(r"\x1b\[\d+m", "", line)) // WIDTH)) for line in lines)
    yield json.dumps({"version": 2, "width": WIDTH, "height": rows})
    yield json.dumps([0.1, "o", "\r\n".join(lines)])


def draw(recorded: Iterator[str], *options: str | Path) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".cast") as cast:
        cast.write("\n".join(recorded) + "\n")
        cast.flush()
        subprocess.run([Path("build/picture/bin/termtosvg"), "render", cast.name, *options, *FRAME], check=True)


def main() -> None:
    output = Path(sys.argv[1])
    wanted = list(shown(list(steps(session()))))
    draw(recording(wanted), output / "demo.svg", "--min-frame-duration", "100")
    with tempfile.TemporaryDirectory() as frames:
        draw(still(wanted), frames, "--still-frames")
        shutil.copyfile(max(Path(frames).iterdir()), output / "demo-still.svg")


if __name__ == "__main__":
    main()
