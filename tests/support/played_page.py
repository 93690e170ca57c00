"""Pages of the documentation that are run as they are written: `$ COMMAND` and its output, in blocks `console`.

With `BBFS_WRITE_TOUR=1` a page is written again, with what the commands print now.
"""

import difflib
import os
import re
from collections.abc import Callable
from pathlib import Path

_BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)


def play(page: Path, output: Callable[[str], str]) -> None:
    """Run the commands of a page in order. output: runs one. Raise AssertionError if something else is printed."""
    written = page.read_text()

    def played(block: re.Match[str]) -> str:
        shown: list[str] = []
        for command in re.findall(r"^\$ (.*)$", block[0], re.MULTILINE):
            text = "\n".join(line.rstrip() for line in output(command).splitlines())
            shown += [f"$ {command}", *([text] if text else [])]
        return "\n".join(shown) + "\n"

    now = _BLOCK.sub(played, written)
    if os.environ.get("BBFS_WRITE_TOUR"):
        page.write_text(now)
    differences = difflib.unified_diff(written.splitlines(), now.splitlines(), "written", "now", lineterm="")
    assert now == written, "\n".join(differences)
