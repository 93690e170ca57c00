"""Search on a real mount: `bbfs search` through its daemon."""

import json
import sys
from pathlib import Path

import pytest
from harness import Mount, Mounts, SourceTable, folder, mcp
from programs import Done, run
from repository import SERVERS

HERE = "bb-memory+kb+memory"
RESOURCES = {
    "tls/renew.md": "# Certificates\n\nRenew the certificate with certbot.\n",
    "tls/issue.md": "How a certificate is issued.\n",
    "soup.txt": "lunch\n",
}


def knowledge(**resources: str) -> SourceTable:
    return {"name": "kb", "type": "memory", "config": {"resources": resources or RESOURCES}}


def bbfs(mount: Mount, *arguments: str | Path, status: int = 0) -> Done:
    return run(sys.executable, "-m", "bbfs", *arguments, status=status, env=mount.environ(), timeout=30)


@pytest.fixture
def mount(mounted: Mounts, tmp_path: Path) -> Mount:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("a certificate")
    return mounted(knowledge(), folder("notes", tmp_path / "folder"))


@pytest.mark.semantics("S36")
@pytest.mark.timeout(150)
def test_a_search_asks_the_daemon_of_the_mount(mount: Mount) -> None:
    done = bbfs(mount, "search", "--json", "issued certificate", mount / HERE / "tls")
    hits = json.loads(done.out)
    assert [hit["path"] for hit in hits] == [str(mount / HERE / "tls" / name) for name in ("issue.md", "renew.md")]
    assert hits[0]["uri"] == "bb-memory+kb+memory://tls/issue.md"
    done = bbfs(mount, "search", "--open", "lunch")
    assert done.text == "lunch\n"
    assert b"cannot be searched: notes" in done.err
    assert bbfs(mount, "search", "nothing", status=1).out == b""


@pytest.mark.semantics("S22", "S36")
def test_a_source_that_hangs_does_not_hold_the_others(mounted: Mounts) -> None:
    hung = mcp("hung", [sys.executable, SERVERS / "slow.py", "--count", "1", "--delay", "3600"])
    mount = mounted(knowledge(), hung)
    done = bbfs(mount, "search", "-l", "--timeout", "2", "lunch")
    assert done.text.splitlines() == [str(mount / HERE / "soup.txt")]
