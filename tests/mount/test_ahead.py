"""Loading ahead on a real mount: what programs that walk through a slow server have the server do."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from harness import Mount, Mounts, mcp
from programs import Program, shell, wait_until
from repository import SERVERS

SERVER = SERVERS / "slow.py"
COUNT = 200


class Slow:
    """A mount of a server whose reads take a while, and what the server was asked for."""

    def __init__(self, mounted: Mounts, tmp_path: Path, *, delay: float = 0.01, directories: int = 0) -> None:
        self._counters = tmp_path / "counters"
        self._counters.touch()
        options = ["--count", COUNT, "--delay", delay, "--directories", directories, "--counters", self._counters]
        command = [sys.executable, SERVER, *map(str, options)]
        self.mount: Mount = mounted(mcp("slow", command, ttl=600, concurrency=16))
        self.directory = self.mount / "mcp-server+slow/test/items"

    def reads(self) -> Counter[str]:
        return Counter(line.removeprefix("read ") for line in self._counters.read_text().splitlines())


@pytest.mark.semantics("S9.2", "S12")
@pytest.mark.parametrize("directories", [0, 40])
@pytest.mark.parametrize(
    "command",
    [
        "grep -rc . . | wc -l",
        "find . -type f -print0 | xargs -0 cat | wc -c",
        "tar cf - . | wc -c",
        'out=$(mktemp -d) && cp -a . "$out/copy" && rm -r "$out"',
        "ls -lR . | wc -l",
        "find . -type f -print0 | xargs -0 -P4 -n3 cat | wc -c",
    ],
)
def test_a_walk_reads_each_resource_exactly_once(
    mounted: Mounts, tmp_path: Path, command: str, directories: int
) -> None:
    slow = Slow(mounted, tmp_path, directories=directories)
    shell(command, directory=slow.directory)
    assert len(slow.reads()) == COUNT
    assert set(slow.reads().values()) == {1}


def test_the_first_files_of_a_directory_cost_few_others(mounted: Mounts, tmp_path: Path) -> None:
    slow = Slow(mounted, tmp_path)
    shell("ls | head -n 20 | xargs cat > /dev/null", directory=slow.directory)
    assert 20 <= len(slow.reads()) <= 32


def test_a_reader_that_is_killed_leaves_no_load_behind_that_has_not_begun(
    mounted: Mounts, programs: type[Program], tmp_path: Path
) -> None:
    slow = Slow(mounted, tmp_path, delay=0.5)
    shell("ls > /dev/null", directory=slow.directory)
    reader = programs("sh", "-c", f"cat {slow.directory}/*")
    wait_until(lambda: len(slow.reads()) >= 16, "the walk is under way")
    reader.kill()
    shell(f"cat {slow.directory}/0199.txt > /dev/null", timeout=20)
    assert len(slow.reads()) < COUNT // 2
