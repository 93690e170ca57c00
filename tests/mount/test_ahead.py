"""Loading ahead on a real mount: what programs that walk through a slow server have the server do."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from harness import Mounts, mcp
from programs import Program, shell, wait_until
from repository import SERVERS

SERVER = SERVERS / "slow.py"
COUNT = 200


WALKS = (
    "grep -rc . . | wc -l",
    "find . -type f -print0 | xargs -0 cat | wc -c",
    "tar cf - . | wc -c",
    'out=$(mktemp -d) && cp -a . "$out/copy" && rm -r "$out"',
    "ls -lR . | wc -l",
    "find . -type f -print0 | xargs -0 -P4 -n3 cat | wc -c",
)


class Slow:
    """A server whose reads take a while, and what it was asked for. directory: of its files on a mount."""

    def __init__(self, tmp_path: Path, name: str = "slow", *, delay: float = 0.01, directories: int = 0) -> None:
        self._counters = tmp_path / f"{name}.counters"
        self._counters.touch()
        options = ["--count", COUNT, "--delay", delay, "--directories", directories, "--counters", self._counters]
        self.source = mcp(name, [sys.executable, SERVER, *map(str, options)], ttl=600, concurrency=16)
        self.directory = f"mcp-server+{name}/test/items"

    def reads(self) -> Counter[str]:
        return Counter(line.removeprefix("read ") for line in self._counters.read_text().splitlines())


@pytest.mark.semantics("S9.2", "S12", "S12.2")
@pytest.mark.parametrize("directories", [0, 40])
def test_a_walk_reads_each_resource_exactly_once(mounted: Mounts, tmp_path: Path, directories: int) -> None:
    walked = {walk: Slow(tmp_path, f"slow-{n}", directories=directories) for n, walk in enumerate(WALKS)}
    mount = mounted(*(slow.source for slow in walked.values()))
    for walk, slow in walked.items():
        shell(walk, directory=mount / slow.directory)
        assert len(slow.reads()) == COUNT, walk
        assert set(slow.reads().values()) == {1}, walk


def test_the_first_files_of_a_directory_cost_few_others(mounted: Mounts, tmp_path: Path) -> None:
    slow = Slow(tmp_path)
    shell("ls | head -n 20 | xargs cat > /dev/null", directory=mounted(slow.source) / slow.directory)
    assert 20 <= len(slow.reads()) <= 32


def test_a_reader_that_is_killed_leaves_no_load_behind_that_has_not_begun(
    mounted: Mounts, programs: type[Program], tmp_path: Path
) -> None:
    slow = Slow(tmp_path, delay=0.5)
    directory = mounted(slow.source) / slow.directory
    shell("ls > /dev/null", directory=directory)
    reader = programs("sh", "-c", f"cat {directory}/*")
    wait_until(lambda: len(slow.reads()) >= 16, "the walk is under way")
    reader.kill()
    shell(f"cat {directory}/0199.txt > /dev/null", timeout=20)
    assert len(slow.reads()) < COUNT // 2
