"""Print the verdicts of attacks as a table in Markdown: `hostile_table.py FILE`."""

import json
import sys
from pathlib import Path
from typing import Any

HEAD = ("attack", "folder: longest (ms)", "99 % (ms)", "server: longest (ms)", "memory (MiB)", "descriptors", "end (s)")


def row(verdict: dict[str, Any]) -> str:
    """Return the row of a verdict."""
    seconds = [f"{verdict[key] * 1000:.0f}" for key in ("longest", "most", "server")]
    numbers = [f"{verdict['memory'] / 2**20:.0f}", str(verdict["descriptors"]), f"{verdict['end']:.1f}"]
    return "| " + " | ".join([verdict["name"], *seconds, *numbers]) + " |"


def table(lines: list[str]) -> str:
    """Return the table of verdicts, each a line of JSON."""
    rule = "|" + "---|" * len(HEAD)
    return "\n".join(["| " + " | ".join(HEAD) + " |", rule, *(row(json.loads(line)) for line in lines)])


if __name__ == "__main__":
    print(table(Path(sys.argv[1]).read_text().splitlines()))
