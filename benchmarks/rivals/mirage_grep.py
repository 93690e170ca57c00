"""The search of mirage's shell over a folder, for benchmarks/search.py: `mirage_grep.py FOLDER PATTERN ROUNDS`

Prints one JSON object: the lines that match (paths below the folder), and the seconds of each round in this process.
"""

import asyncio
import json
import shlex
import sys
import time

from mirage import MountMode, Workspace
from mirage.vfs.disk import DiskVFS

ROOT = "/files"


async def main() -> None:
    folder, pattern, rounds = sys.argv[1:]
    workspace = Workspace({ROOT: (DiskVFS(folder), MountMode.READ)})
    seconds: list[float] = []
    found = ""
    for _ in range(int(rounds)):
        begun = time.perf_counter()
        result = await workspace.shell(f"grep -rn -e {shlex.quote(pattern)} {ROOT}")
        found = await result.stdout_str() or ""
        seconds.append(time.perf_counter() - begun)
    lines = sorted(line.removeprefix(ROOT + "/") for line in found.splitlines())
    print(json.dumps({"lines": lines, "seconds": seconds}))


if __name__ == "__main__":
    asyncio.run(main())
