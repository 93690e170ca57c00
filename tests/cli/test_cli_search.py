"""`bbfs search` without a mount: what it prints, opens and refuses."""

import json
import os
import pty
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from forked_daemon import forked

Run = Callable[..., Result]

HERE = "bb-memory+kb+memory"
CONFIG = """
[[sources]]
name = "kb"
type = "memory"
[sources.config.resources]
"tls/renew.md" = "# Certificates\\n\\nRenew the certificate with `certbot \\u001b[31mrenew`.\\n"
"tls/issue.md" = "How a certificate is issued."
"logo" = { base64 = "AP8A", mimeType = "image/png", description = "certificate" }

[[sources]]
name = "notes"
type = "filesystem"
config = { root = "notes" }
"""


@pytest.fixture
def only(tmp_path: Path) -> list[str]:
    """Options for a source that searches and a folder, which does not."""
    file = tmp_path / "sources.toml"
    file.write_text(CONFIG)
    (tmp_path / "notes").mkdir()
    return ["--config", str(file)]


@pytest.mark.semantics("S36")
def test_hits_are_paths_with_snippets_the_best_first(bbfs: Run, only: list[str]) -> None:
    done = bbfs("search", "renew the certificate", *only)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        f"{HERE}/tls/renew.md",
        "    # Certificates Renew the certificate with `certbot [31mrenew`.",
        f"{HERE}/tls/issue.md",
        "    How a certificate is issued.",
    ]
    assert done.stderr.startswith("bbfs: cannot be searched: notes (no search of their own, not indexed)\n")
    in_both = bbfs("search", "renew the certificate", "--in", "kb,notes", *only)
    assert (in_both.stdout, in_both.stderr) == (done.stdout, done.stderr)
    assert bbfs("search", "-l", "-n", "1", "issued", "--in", "kb/tls", "-q", *only).output == f"{HERE}/tls/issue.md\n"
    [first, _] = json.loads(bbfs("search", "--json", "renew certificate", "--in", "kb", *only).stdout)
    assert first.pop("score") == pytest.approx(1 / 6, abs=1e-6)
    assert first == {
        "path": f"{HERE}/tls/renew.md",
        "uri": "bb-memory+kb+memory://tls/renew.md",
        "source": "kb",
        "title": "renew.md",
        "snippet": "# Certificates Renew the certificate with `certbot [31mrenew`.",
        "foundBy": ["kb"],
    }


@pytest.mark.semantics("S36")
@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["nothing"], 1, "cannot be searched: notes"),
        (["certificate", "--in", "notes"], 1, "cannot be searched: notes"),
        (["--mode", "meaning", "certificate", "--in", "kb"], 1, "not searched: kb (by words only)"),
        ([" "], 1, "a query without a word"),
        (["certificate", "--in", "nowhere"], 1, "no source 'nowhere'"),
        (["certificate", "--in", "kb/none"], 1, "none"),
        ([], 2, "Missing argument 'WORD…'"),
        (["-n", "0", "certificate"], 2, "0"),
    ],
)
def test_without_a_hit_the_status_is_1(bbfs: Run, only: list[str], words: list[str], status: int, says: str) -> None:
    done = bbfs("search", *words, *only)
    assert (done.exit_code, done.stdout) == (status, "")
    assert says in done.stderr


@pytest.mark.semantics("S36")
def test_several_words_need_no_quotation_marks(bbfs: Run, only: list[str]) -> None:
    one = bbfs("search", "-l", "how a certificate is issued", *only)
    several = bbfs("search", "-l", "how", "a", "certificate", "is", "issued", *only)
    assert one.stdout.splitlines()[0] == f"{HERE}/tls/issue.md"
    assert (several.stdout, several.stderr) == (one.stdout, one.stderr)
    # As before, a URI or a path inside a mount is no word; the name of a source is one.
    assert (
        bbfs("search", "-l", "certificate", "bb-memory+kb+memory://tls/issue.md", *only).stdout
        == f"{HERE}/tls/issue.md\n"
    )
    named = bbfs("search", "certificate", "kb", *only)
    assert "bbfs: 'kb' is a word of the search; --in kb searches in that source alone" in named.stderr
    assert "is a word" not in bbfs("search", "certificate", "kb", "--in", "notes", *only).stderr


def test_the_command_that_indexes_a_source_is_named(bbfs: Run, only: list[str], tmp_path: Path) -> None:
    assert "bbfs: 'bbfs index notes' with the same options makes it searchable\n" in bbfs("search", "a", *only).stderr
    default = tmp_path / "config/bbfs/config.toml"
    default.parent.mkdir(parents=True)
    default.write_text(Path(only[1]).read_text())
    assert "bbfs: 'bbfs index notes' makes it searchable\n" in bbfs("search", "a").stderr
    assert bbfs("search", "a", "--in", "kb").stderr == ""


def test_the_best_hit_is_opened(bbfs: Run, only: list[str]) -> None:
    assert bbfs("search", "--open", "issued", "-q", *only).stdout_bytes == b"How a certificate is issued."
    refused = bbfs("search", "--open", "logo", "-q", *only)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "only text can be opened without a mount" in refused.stderr


def test_on_a_terminal_it_is_coloured_and_a_pager_opens(only: list[str], tmp_path: Path) -> None:
    def on_terminal(*words: str) -> bytes:
        ours, theirs = pty.openpty()
        line = forked("-m", "bbfs", "search", *words, "-q", *only)
        environ = {**os.environ, "PAGER": f"tee {tmp_path / 'paged'}"}
        with subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, env=environ) as child:
            os.close(theirs)
            said, deadline = b"", time.monotonic() + 60
            while time.monotonic() < deadline:
                try:
                    said += os.read(ours, 4096)
                except OSError:  # the other end is closed
                    break
            child.wait(60)
        os.close(ours)
        return said

    shown = on_terminal("renew", "--in", "kb")
    assert b"\x1b[35mbb-memory+kb+memory/tls/renew.md\x1b[0m" in shown
    assert b"\x1b[31m\x1b[1mrenew\x1b[0m`." in shown
    assert shown.count(b"\x1b[31m") == shown.lower().count(b"\x1b[31m\x1b[1mrenew")  # none of the source's own
    on_terminal("--open", "issued", "--in", "kb")
    assert (tmp_path / "paged").read_text() == "How a certificate is issued."


@pytest.mark.semantics("S36")
def test_what_was_indexed_is_found_unmounted(bbfs: Run, only: list[str], tmp_path: Path) -> None:
    (tmp_path / "notes/zebra.md").write_text("striped")
    assert bbfs("index", "notes", *only).exit_code == 0
    found = bbfs("search", "-l", "striped", *only)
    assert (found.stdout, found.stderr) == ("bb-filesystem+notes+file/zebra.md\n", "")


@pytest.mark.semantics("S36.8")
def test_what_was_not_indexed_since_is_counted_with_the_command_that_indexes_it(
    bbfs: Run, only: list[str], tmp_path: Path
) -> None:
    (tmp_path / "notes/zebra.md").write_text("striped")
    bbfs("index", "notes", *only)
    (tmp_path / "notes/tiger.md").write_text("striped")
    assert bbfs("search", "striped", *only).stderr == (
        "bbfs: the index may be out of date: notes (1 new document); 'bbfs index notes' with the same options reads"
        " what has changed\n"
    )
