"""Print the verdicts of attacks as tables in Markdown, the worst of each family first: `hostile_table.py FILE`."""

import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

HEAD = ("folder: longest (ms)", "99 % (ms)", "server: longest (ms)", "memory (MiB)", "descriptors", "end (s)")
MEASURES = ("longest", "most", "server", "memory", "descriptors", "end")


def row(name: str, verdict: dict[str, Any]) -> str:
    """Return the row of a verdict."""
    seconds = [f"{verdict[key] * 1000:.0f}" for key in ("longest", "most", "server")]
    numbers = [f"{verdict['memory'] / 2**20:.0f}", str(verdict["descriptors"]), f"{verdict['end']:.1f}"]
    return "| " + " | ".join([name, *seconds, *numbers]) + " |"


def worst(verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the worst value of each measure."""
    return {key: max(verdict[key] for verdict in verdicts) for key in MEASURES}


def machine() -> str:
    """Return the date, and what the machine has."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{date.today()}, {os.cpu_count()} cores, {memory:.0f} GiB of memory, Linux {platform.release()}"


def tables(lines: Sequence[str]) -> str:
    """Return the tables of verdicts, each a line of JSON."""
    verdicts = [json.loads(line) for line in lines]
    families: dict[str, list[dict[str, Any]]] = {}
    for verdict in verdicts:
        families.setdefault(verdict["family"], []).append(verdict)
    rule = "|" + "---|" * (len(HEAD) + 1)
    made = [f"{len(verdicts)} attacks, {machine()}. The worst of each family:", ""]
    made += ["| family (attacks) | " + " | ".join(HEAD) + " |", rule]
    made += [row(f"{family} ({len(each)})", worst(each)) for family, each in sorted(families.items())]
    made += ["", "| attack | " + " | ".join(HEAD) + " |", rule]
    return "\n".join([*made, *(row(verdict["name"], verdict) for verdict in verdicts)])


if __name__ == "__main__":
    print(tables(Path(sys.argv[1]).read_text().splitlines()))
