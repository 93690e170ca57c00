"""What the daemon keeps in memory."""

import subprocess
import sys

import pytest

BUFFERS = """
import resource, sys
from bbfs.fuse.daemon import keep_freed_buffers

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def read():
    return [bytearray(1 << 20) for _ in range(3)]  # as two requests under way have them

read()
if sys.argv[1] == "kept":
    keep_freed_buffers()
read()
before = faults()
for _ in range(20):
    read()
print(faults() - before)
"""


@pytest.mark.parametrize("state", ["kept", "given back"])
def test_the_buffers_of_a_read_have_the_pages_of_the_read_before(state: str) -> None:
    """A page that the C library has given back costs a fault and zeros when it is needed again."""
    done = subprocess.run(
        [sys.executable, "-c", BUFFERS, state], capture_output=True, text=True, timeout=30, check=True
    )
    pages = 20 * 3 * 256
    assert (int(done.stdout) < pages // 4) == (state == "kept")


def test_a_daemon_imports_only_what_its_configuration_needs() -> None:
    code = "import sys, bbfs.fuse.daemon, bbfs.sources.filesystem.handler; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    imported = set(done.stdout.split())
    assert "bbfs.resources.search.index.local" in imported
    assert not imported & {"mcp", "httpx2", "h11", "html", "sqlite_vec", "bbfs.sources.embeddings.options"}
    assert not imported & {"bbfs.resources.search.index.store", "bbfs.resources.cache.shared.valkey_tier"}
