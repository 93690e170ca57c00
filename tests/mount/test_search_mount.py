"""Search on a real mount: `bbfs search` through its daemon."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from harness import Mounts, SourceTable, folder, mcp
from office_documents import pdf
from programs import run
from repository import SERVERS

HERE = "bb-memory+kb+memory"
RESOURCES = {
    "tls/renew.md": "# Certificates\n\nRenew the certificate with certbot.\n",
    "tls/issue.md": "How a certificate is issued.\n",
    "soup.txt": "lunch\n",
}


def knowledge(**resources: str) -> SourceTable:
    return {"name": "kb", "type": "memory", "config": {"resources": resources or RESOURCES}}


@pytest.mark.semantics("S36")
def test_a_search_asks_the_daemon_of_the_mount(mounted: Mounts, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a certificate")
    mount = mounted(knowledge(), folder("notes", tmp_path))
    done = mount.bbfs("search", "--json", "issued certificate", mount / HERE / "tls")
    hits = json.loads(done.out)
    assert [hit["path"] for hit in hits] == [str(mount / HERE / "tls" / name) for name in ("issue.md", "renew.md")]
    assert hits[0]["uri"] == "bb-memory+kb+memory://tls/issue.md"
    done = mount.bbfs("search", "--open", "lunch")
    assert done.text == "lunch\n"
    assert b"cannot be searched: notes" in done.err
    assert mount.bbfs("search", "nothing", status=1).out == b""


@pytest.mark.semantics("S36")
def test_the_command_that_a_search_names_makes_the_rest_searchable(mounted: Mounts, tmp_path: Path) -> None:
    (tmp_path / "lease of 2031.txt").touch()
    (tmp_path / "invoice.pdf").write_bytes(pdf(""))
    mount = mounted(knowledge(), folder("notes", tmp_path, index=True))
    [command] = re.findall("'bbfs (.*?)'", mount.bbfs("search", "2031", status=1).err.decode())
    assert mount.bbfs(*shlex.split(command)).text == "notes: 2 documents indexed, 0 unchanged\n"
    for word, name in (("2031", "lease of 2031.txt"), ("invoice", "invoice.pdf")):
        done = mount.bbfs("search", word)
        assert (done.text, done.err) == (f"{mount / 'bb-filesystem+notes+file' / name}\n", b"")


@pytest.mark.semantics("S36.2", "S37.3")
def test_a_source_that_is_not_connected_costs_a_line_and_two_seconds(mounted: Mounts) -> None:
    mount = mounted(knowledge(), mcp("hung", ["sleep", "3600"]))
    found = str(mount / HERE / "soup.txt")
    for options, seconds in (["--timeout", "1"], "1"), ([], "2"), (["--timeout", "0.3"], "0.3"):
        done = mount.bbfs("search", "-l", *options, "lunch")
        assert (done.text, done.err.decode()) == (f"{found}\n", f"bbfs: hung: no answer within {seconds} s\n")
    counted = mount.bbfs("grep", "-c", "lunch", mount.path, status=2).text.splitlines()
    assert {f"{found}:1", f"{mount.path}/.about.md:0"} <= {*counted}
    done = mount.bbfs("grep", "lunch", mount.path, status=2)
    left_out = f"bbfs: {mount.path}/mcp-server+hung: left out: no answer within 2 s\n"
    assert (done.text, done.err.decode()) == (f"{found}:1:lunch\n", left_out)


@pytest.mark.semantics("S36.6")
def test_a_walk_never_searches(mounted: Mounts, tmp_path: Path) -> None:
    log = tmp_path / "searches.log"
    server = [sys.executable, SERVERS / "calls.py", log]
    docs = mcp("docs", server, search={"tool": "echo", "query": "text"})
    mount = mounted(docs, expected=["invalid entry left out"])
    for command in (
        ["find", mount.path, "-ls"],
        ["grep", "-rc", "", mount.path],
        ["ls", "-aR", mount.path],
        ["du", "-a", mount.path],
        ["tar", "cf", tmp_path / "all.tar", "-C", mount.path, "."],
        ["cp", "-a", mount.path, tmp_path / "copy"],
        ["sh", "-c", 'cd "$0" && echo .* */.* */*/.* && ls .search && stat .search/word', mount.path],
    ):
        run(*command)
        assert "call " not in log.read_text(), command
    assert run("ls", mount / ".search" / "word").text.split() == ["results.md", "results.ndjson"]
    assert [line for line in log.read_text().splitlines() if line.startswith("call ")] == ['call echo {"text": "word"}']
